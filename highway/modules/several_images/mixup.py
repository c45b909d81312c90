"""Mix the images of a batch with each other, and their labels in the same proportion."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.engine.batch import Field, Item, get, names, replace
from highway.engine.component import Traits
from highway.images.items import checked_image, image_field
from highway.modules.targets import expect_batch, expect_partners
from highway.parameters.checks import checked
from highway.parameters.ranges import Count, Probability
from highway.process.aligned import aligned
from highway.transforms.parameters import Positive

_LABELS = ("label", "labels")
_NOT_MIXED = ("boxes", "points", "keypoints", "mask", "masks")


class _Pair(NamedTuple):
    """Rows of a batch, their partner rows, and the index of the random weight for these rows."""

    rows: slice
    others: slice
    draw: int


@dataclass
class _Mixing:
    num_classes: Count | None = None
    alpha: Positive = 1.0
    p: Probability = 1.0
    per_image: bool = False
    field: str | int | None = None
    labels: str | int | None = None

    def __highway__(self) -> Traits:
        return Traits(parallel=True)

    def __call__(self, item: Item, rng: Generator) -> Item:
        owner = type(self).__name__
        image, label = self._fields(item)
        images, labels = _images(get(item, image), owner), self._soft(get(item, label))
        count = len(images)
        if len(labels) != count:
            raise ValueError(f"{owner}: the batch has {count} images, but labels for {len(labels)}")
        expect_partners(count, owner)
        if count == 0:
            return replace(item, {label: labels})
        draws = count if self.per_image else 1
        shares = np.where(rng.random(draws) < self.p, rng.beta(self.alpha, self.alpha, draws), 1.0)
        if self.per_image:
            partners = (np.arange(count) + rng.integers(1, count, count)) % count
            pairs = [_Pair(slice(row, row + 1), slice(of, of + 1), row) for row, of in enumerate(partners.tolist())]
        else:
            partners = np.roll(np.arange(count), 1)
            pairs = [_Pair(slice(1, None), slice(0, count - 1), 0), _Pair(slice(0, 1), slice(count - 1, None), 0)]
        mixed, shares = self._mixed(images, pairs, shares, rng)
        own = shares.astype(np.float32)[:, None]
        return replace(item, {image: mixed, label: labels * own + labels[partners] * (1 - own)})

    @abstractmethod
    def _mixed(self, images: np.ndarray, pairs: list[_Pair], shares: np.ndarray, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the new images, and the final weight of the row's own image for each entry of ``shares``."""

    def _fields(self, item: Item) -> tuple[Field, Field]:
        owner, known = type(self).__name__, names(item)
        image = image_field(item) if self.field is None else self.field
        if belongs := [name for name in known if name in _NOT_MIXED]:
            raise ValueError(
                f"{owner} mixes images and labels, but cannot mix {belongs[0]!r}, which would no longer match the images; remove it with "
                "Select, or use Mosaic or CopyPaste, which support boxes and masks"
            )
        if self.labels is not None:
            return image, self.labels
        label: Field | None = next((name for name in _LABELS if name in known), None)
        if not isinstance(item, dict) and len(known) == 2:
            label = 1 if image in (0, -2) else 0
        if label is None:
            raise KeyError(
                f"{owner}: cannot tell which field contains the labels; the item has {', '.join(map(repr, known))}; pass labels="
            )
        return image, label

    def _soft(self, given: Any) -> np.ndarray:
        """Return labels as float32 ``(B, K)``."""
        owner, labels = type(self).__name__, np.asarray(given)
        if labels.ndim == 2 and labels.dtype.kind in "biuf":
            if self.num_classes not in (None, labels.shape[1]):
                raise ValueError(
                    f"{owner}: labels have the shape {labels.shape}, so there are {labels.shape[1]} classes, but "
                    f"num_classes={self.num_classes}"
                )
            return labels.astype(np.float32)
        if labels.ndim != 1 or (labels.dtype.kind not in "iu" and len(labels)):
            raise ValueError(
                f"{owner}: labels are an array of shape {labels.shape} {labels.dtype}; expected whole numbers (B,), or a share of each "
                "class (B, num_classes)"
            )
        if self.num_classes is None:
            raise ValueError(f"{owner}: labels are whole numbers; pass the number of classes as num_classes=")
        wrong = np.flatnonzero((labels < 0) | (labels >= self.num_classes))
        if len(wrong):
            raise ValueError(
                f"{owner}: label {labels[wrong[0]]} of image {wrong[0]} is out of range; with num_classes={self.num_classes} labels are "
                f"0 to {self.num_classes - 1}"
            )
        soft = np.zeros((len(labels), self.num_classes), np.float32)
        soft[np.arange(len(labels)), labels.astype(np.intp)] = 1
        return soft


@checked
@dataclass
class MixUp(_Mixing):
    """Mix each image of a batch with another image, and their labels in the same proportion.

    From "mixup: Beyond Empirical Risk Minimization", Zhang et al. 2018. As in torchvision's ``MixUp``, all images of a batch use the same
    random weight. Each image is mixed with the preceding image of the batch. The first image is mixed with the last image.

    Args:
        num_classes: Number of classes. Required for integer labels. For labels ``(B, K)``, it is optional, and must be ``K``.
        alpha: The weight of an image in its own mix is drawn from the distribution Beta(alpha, alpha). If ``alpha`` is 1, this distribution
            is uniform. If ``alpha`` is below 1, weights near 0 and near 1 are more likely.
        p: Probability that a batch is mixed. With ``per_image``, the probability that an image is mixed.
        per_image: Whether each image gets its own random weight, and is mixed with a random other image of the batch.
        field: The field of the images: uint8 or floats ``(B, H, W, C)``, or a list of images of one shape. By default ``"image"`` or
            ``"images"`` of a dict, or the first field.
        labels: The field of the labels: integers ``(B,)``, or numbers ``(B, K)``, such as one-hot labels. By default ``"label"`` or
            ``"labels"`` of a dict, or the other field of a tuple with two fields.

    Returns:
        The item with new images of the same shape and dtype, and labels float32 ``(B, K)``. uint8 values are rounded. If the images are a
        list, they become one array. Other fields are unchanged.

    Raises:
        ValueError: the item is not a batch, or has only one image; or the images differ in shape or dtype.
        ValueError: the number, shape or dtype of the labels is wrong; a label is out of range; or ``num_classes`` is missing or wrong.
        ValueError: the item has boxes, points or masks, which cannot be mixed.
        TypeError: the images are neither uint8 nor floats.
        KeyError: a field does not exist; or ``labels`` is not given, and the item has no default field of labels.

    >>> batch = np.zeros((2, 8, 8, 3), np.uint8), np.array([0, 1])
    >>> images, labels = MixUp(num_classes=2)(batch, np.random.default_rng(0))
    >>> labels.round(2)
    array([[0.87, 0.13],
           [0.13, 0.87]], dtype=float32)
    """

    def _mixed(self, images: np.ndarray, pairs: list[_Pair], shares: np.ndarray, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
        mixed = aligned(images.shape, images.dtype)
        for rows, others, draw in pairs:
            F.blend(images[rows], images[others], float(shares[draw]), mixed[rows])
        return mixed, shares


@checked
@dataclass
class CutMix(_Mixing):
    """Replace a box in each image by the same box of another image of the batch. Mix the labels in proportion to the areas.

    From "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable Features", Yun et al. 2019. As in torchvision's
    ``CutMix``, all images of a batch use the same random box. Each image gets the box of the preceding image of the batch. The first image
    gets the box of the last image. The centre of the box can be anywhere in the image. The box is clipped to the image.

    Args:
        num_classes: Number of classes; see :class:`MixUp`.
        alpha: The fraction of the area that an image keeps is drawn from the distribution Beta(alpha, alpha). If the box is clipped, this
            fraction becomes larger.
        p: Probability that a batch is mixed. With ``per_image``, the probability that an image is mixed.
        per_image: Whether each image gets its own random box from a random other image of the batch.
        field: The field of the images: ``(B, H, W, C)`` of any dtype, or a list of images of one shape. The default is the same as for
            :class:`MixUp`.
        labels: The field of the labels; see :class:`MixUp`.

    Returns:
        The item with new images of the same shape and dtype, and labels float32 ``(B, K)``. Other fields are unchanged.

    Raises:
        ValueError: for the reasons listed in :class:`MixUp`.
        KeyError: a field does not exist; or ``labels`` is not given, and the item has no default field of labels.

    >>> batch = np.zeros((2, 8, 8, 3), np.uint8), np.array([0, 1])
    >>> images, labels = CutMix(num_classes=2)(batch, np.random.default_rng(0))
    >>> labels.round(2)
    array([[0.98, 0.02],
           [0.02, 0.98]], dtype=float32)
    """

    def _mixed(self, images: np.ndarray, pairs: list[_Pair], shares: np.ndarray, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
        size = np.array(images.shape[1:3])
        centres = rng.integers(size, size=(len(shares), 2))
        half = (0.5 * np.sqrt(1 - shares)[:, None] * size).astype(np.int64)
        low, high = np.maximum(centres - half, 0), np.minimum(centres + half, size)
        mixed = aligned(images.shape, images.dtype)
        mixed[...] = images
        for rows, others, draw in pairs:
            (top, left), (bottom, right) = low[draw].tolist(), high[draw].tolist()
            mixed[rows, top:bottom, left:right] = images[others, top:bottom, left:right]
        return mixed, 1 - (high - low).prod(axis=1) / size.prod()


def _images(value: Any, owner: str) -> np.ndarray:
    """Return the images of a batch as one array."""
    expect_batch(value, owner)
    if isinstance(value, np.ndarray) and value.dtype != object:
        for image in value[:1]:
            checked_image(image, owner)
        return value
    images = [checked_image(image, owner) for image in value]
    if len(shapes := {(image.shape, str(image.dtype)) for image in images}) > 1:
        shown = " and ".join(f"{shape} {dtype}" for shape, dtype in sorted(shapes)[:2])
        raise ValueError(
            f"{owner}: a batch contains images of {shown}; make their shapes and dtypes equal first, for example with RandomResizedCrop"
        )
    return np.stack(images) if images else np.empty((0, 0, 0, 0), np.uint8)
