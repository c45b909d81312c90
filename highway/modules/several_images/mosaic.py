"""Combine four images of a batch into one image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.engine.batch import Item, get, replace
from highway.engine.component import Traits
from highway.images.ops import Box, Interpolation, Size
from highway.images.sampling import fitting
from highway.modules.targets import WITHOUT_BOXES, Target, Targets, joined, like, rows_where
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Probability, Shape
from highway.process.aligned import aligned
from highway.transforms import Geometric, covering_box
from highway.transforms.base import areas, placed
from highway.transforms.parameters import Centers, PerChannel, Share


@checked
@dataclass
class Mosaic:
    """Combine four images of a batch into one image around a random centre, with their boxes, points and masks.

    From "YOLOv4: Optimal Speed and Accuracy of Object Detection", Bochkovskiy et al. 2020. Each image of the batch becomes a mosaic of this
    image and three other images of the batch. If the batch has fewer than four images, a mosaic contains some images more than once.

    Args:
        shape: Height and width of the mosaic in pixels.
        boxes: The field of the boxes, x1, y1, x2, y2 in pixels. The field is a list with boxes ``(N, 4)`` for each image, or an array
            padded with empty boxes.
        points: The field of the points: for each image ``(N, 2)``, or ``(N, K, 2)`` for K points of each of N objects.
        mask: The field of the masks: for each image ``(H, W)``, or ``(N, H, W)`` with one mask for each of N objects.
        with_boxes: Fields with one row per box, such as labels. If points or masks have one row per box, also list their field here. ``[]``
            means that there are no such fields. With ``None``, the first batch with boxes is checked. If another field has one row per box,
            an error is raised.
        p: Probability that an image becomes a mosaic. Otherwise, the image alone fills the output, as described for ``fit_mode``.
        center_range: Range of the random centre, as fractions of the height and width of the mosaic.
        fit_mode: How an image fills its part of the mosaic. Both modes keep the aspect ratio. ``"cover"`` crops the largest box with the
            aspect ratio of the part, at a random position in the image, and resizes this box. ``"contain"`` resizes the whole image to fit
            into the part, and places it next to the centre. The remaining pixels of the part get the value ``fill``.
        fill: Value of the pixels that no image covers, as one number, or as one number per channel. Only used with ``"contain"``.
        min_visibility: Minimum remaining fraction of a box's area. Boxes with a smaller fraction are removed.
        interpolation: See :class:`~highway.transforms.Resize`. Masks always use ``"nearest"``.
        field: The field of the images, ``(B, H, W, C)`` or a list of images of any sizes. By default ``"image"`` or ``"images"`` of a dict,
            or the first field of a tuple.

    Returns:
        The item with images ``(B, *shape, C)``. Boxes, points, masks ``(N, H, W)`` and the fields of ``with_boxes`` become lists, with one
        element per mosaic. An element contains the concatenated rows of the four images, without the rows of removed and empty boxes.
        Points ``(N, 2)`` outside their part of the mosaic are removed. Exception: points ``(N, K, 2)``, and points whose field is in
        ``with_boxes``, are moved to the border of their part. Masks ``(H, W)`` are combined in the same way as the images, with 0 as the
        fill value. All other fields are unchanged. A batch without images is returned unchanged.

    Raises:
        ValueError: the item is not a batch, or has only one image; or the images differ in dtype or number of channels.
        ValueError: boxes, points, masks or the fields of ``with_boxes`` do not fit the images.
        ValueError: a field with one row per box is not in ``with_boxes``.
        KeyError: a field does not exist.
        ConfigError: ``with_boxes`` is given without ``boxes`` (on construction).

    >>> batch = [np.zeros((30, 40, 3), np.uint8), np.ones((50, 20, 3), np.uint8)], [3, 7]
    >>> images, labels = Mosaic((64, 64))(batch, np.random.default_rng(0))
    >>> images.shape, labels
    ((2, 64, 64, 3), [3, 7])
    """

    shape: Shape
    boxes: str | int | None = None
    points: str | int | None = None
    mask: str | int | None = None
    with_boxes: list[str | int] | None = None
    p: Probability = 1.0
    center_range: Centers = (0.3, 0.7)
    fit_mode: Literal["cover", "contain"] = "cover"
    fill: PerChannel = 0.0
    min_visibility: Share = 0.0
    interpolation: Interpolation = "bilinear"
    field: str | int | None = None

    def __post_init__(self) -> None:
        require(self.boxes is not None or not self.with_boxes, self, "with_boxes", WITHOUT_BOXES)
        fields = (self.field, self.boxes, self.points, self.mask, self.with_boxes or ())
        self._targets = Targets("Mosaic", *fields, all_named=self.with_boxes is not None)

    def __highway__(self) -> Traits:
        return Traits(parallel=True)

    def __call__(self, item: Item, rng: Generator) -> Item:
        where, targets = self._targets.several(item)
        if not targets:
            return item
        self._expect_rows(targets)
        first = targets[0]["image"]
        images = aligned((len(targets), *self.shape, *first.shape[2:]), first.dtype)
        done = [self._made(self._drawn(row, targets, rng), image) for row, image in enumerate(images)]
        changed: dict[Any, Any] = {where["image"]: images}
        for role in done[0]:
            values = [target[role] for target in done]
            as_given = role == "mask" and values[0].ndim == 2
            changed[where[role]] = like(get(item, where[role]), values) if as_given else values
        return replace(item, changed)

    def _expect_rows(self, targets: Sequence[Target]) -> None:
        for role in ("points", "mask") if self.boxes is not None else ():
            several = next((target[role].shape for target in targets if role in target and target[role].ndim == 3), None)
            if several and not self._targets.goes_with_boxes(role):
                raise ValueError(
                    f"Mosaic: {role} of shape {several} have a row for each object, and this stage can remove boxes; add the field to "
                    f"with_boxes, so that its rows are removed with the boxes: with_boxes=[..., {getattr(self, role)!r}]"
                )

    def _drawn(self, row: int, targets: Sequence[Target], rng: Generator) -> list[tuple[_Part, Target]]:
        """Return the parts of the mosaic for image ``row``. Each part has a target, which is a dict with an image and its annotations."""
        height, width = self.shape
        if rng.random() >= self.p:
            return [(self._part(targets[row], (0, 0, height, width), (0.5, 0.5), rng), targets[row])]
        low, high = self.center_range
        down, right = (round(length * share) for length, share in zip(self.shape, rng.uniform(low, high, 2).tolist(), strict=True))
        count = len(targets)
        others = (row + 1 + np.resize(rng.permutation(count - 1), 3)) % count
        rows = rng.permutation([row, *others.tolist()]).tolist()
        below, beside = height - down, width - right
        cells = [(0, 0, down, right), (0, right, down, beside), (down, 0, below, right), (down, right, below, beside)]
        given = [(targets[of], cell, towards) for of, cell, towards in zip(rows, cells, _TOWARDS, strict=True) if cell[2] and cell[3]]
        return [(self._part(target, cell, towards, rng), target) for target, cell, towards in given]

    def _part(self, target: Target, cell: Box, towards: tuple[float, float], rng: Generator) -> _Part:
        """Return the part for an image and a cell. A cell is one of the four boxes around the centre of the mosaic.

        If the image does not fill the cell, ``towards`` is its position in the cell, from 0 (top, left) to 1 (bottom, right).
        """
        (height, width), (top, left, rows, columns) = target["image"].shape[:2], cell
        if self.fit_mode == "cover":
            _, _, *window = covering_box((height, width), columns / rows)
            down, right = (int(rng.integers(length - part + 1)) for length, part in zip((height, width), window, strict=True))
            return _Part((down, right, window[0], window[1]), cell, self.interpolation)
        scale = min(rows / height, columns / width)
        inner = min(rows, max(1, round(height * scale))), min(columns, max(1, round(width * scale)))
        down, right = (round((length - part) * share) for length, part, share in zip((rows, columns), inner, towards, strict=True))
        return _Part((0, 0, height, width), (top + down, left + right, *inner), self.interpolation)

    def _made(self, parts: list[tuple[_Part, Target]], image: np.ndarray) -> Target:
        """Write a mosaic into ``image``, and return the annotations of the mosaic."""
        if self.fit_mode == "contain":
            image[...] = fitting(self.fill, image, "Mosaic")
        for part, target in parts:
            image[part.slices] = part.image(target["image"], None)
        moved = [self._moved(part, target) for part, target in parts]
        return {role: self._together(role, [target[role] for target in moved], parts) for role in moved[0]}

    def _moved(self, part: _Part, target: Target) -> Target:
        """Return the annotations of one image in the mosaic.

        Boxes and points get the coordinates of the mosaic. Masks get the coordinates of their part.
        """
        moved, size = {role: value for role, value in target.items() if role != "image"}, target["image"].shape[:2]
        top, left, height, width = part.to
        offset = np.array([left, top], np.float32)
        if "points" in moved:
            points = part.points(moved["points"].reshape(-1, 2), None, size).reshape(moved["points"].shape)
            edges = np.array([width, height], np.float32)
            if points.ndim == 2 and not self._targets.goes_with_boxes("points"):
                points = points[((points >= 0) & (points <= edges)).all(axis=1)]
            moved["points"] = np.clip(points, 0, edges) + offset
        if "boxes" in moved:
            boxes = part.boxes(moved["boxes"], None, size)
            stay = (areas(boxes) > 0) & (part.visible(moved["boxes"], None, size) >= self.min_visibility)
            moved["boxes"] = boxes + np.tile(offset, 2)
            moved |= {role: rows_where(value, stay) for role, value in moved.items() if self._targets.goes_with_boxes(role)}
        if "mask" in moved:
            moved["mask"] = part.masks(moved["mask"])
        return moved

    def _together(self, role: str, values: list[Any], parts: list[tuple[_Part, Target]]) -> Any:
        """Combine the annotations of the parts of a mosaic."""
        if role != "mask":
            return joined(values, role, "Mosaic")
        if len({value.ndim for value in values}) > 1:
            raise ValueError(
                "Mosaic: some images have a mask (H, W), and some have masks of objects (N, H, W); expected the same kind for all images"
            )
        counts = [len(value) for value in values] if values[0].ndim == 3 else []
        ends = np.cumsum(counts).tolist()
        masks = np.zeros((*ends[-1:], *self.shape), np.result_type(*values))
        for number, ((part, _), value) in enumerate(zip(parts, values, strict=True)):
            (masks[ends[number] - counts[number] : ends[number]] if counts else masks)[..., *part.slices] = value
        return masks


# For each of the four cells, the corner at the centre of the mosaic, as the row and column from 0 to 1.
_TOWARDS = ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0))


@dataclass(frozen=True)
class _Part(Geometric):
    """A transform that crops a box of an image, and resizes the box to the size of a part of a mosaic.

    Args:
        source: The box in the image.
        to: The part, as a box in the mosaic.
        interpolation: The interpolation for resizing.
    """

    source: Box
    to: Box
    interpolation: Interpolation

    @property
    def slices(self) -> tuple[slice, slice]:
        """The rows and columns of the part."""
        top, left, height, width = self.to
        return slice(top, top + height), slice(left, left + width)

    def output(self, params: None, size: Size) -> Size:
        return self.to[2:]

    def image(self, image: np.ndarray, params: None) -> np.ndarray:
        return F.resize(F.crop(image, self.source[:2], self.source[2:]), self.to[2:], self.interpolation)

    def mask(self, mask: np.ndarray, params: None) -> np.ndarray:
        return F.resize(F.crop(mask, self.source[:2], self.source[2:]), self.to[2:], "nearest")

    def masks(self, masks: np.ndarray) -> np.ndarray:
        """Crop and scale one mask ``(H, W)``, or several masks ``(N, H, W)``."""
        if masks.ndim == 2:
            return self.mask(masks, None)
        return np.stack([self.mask(mask, None) for mask in masks]) if len(masks) else np.empty((0, *self.to[2:]), masks.dtype)

    def points(self, points: np.ndarray, params: None, size: Size) -> np.ndarray:
        top, left, height, width = self.source
        scale = self.to[3] / width, self.to[2] / height
        return placed(points, scale, (-left * scale[0], -top * scale[1]))
