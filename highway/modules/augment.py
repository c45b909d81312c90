"""Transforms as a stage: augment the images of a batch, and the boxes, points and masks that belong to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from highway.engine.batch import Field, Item, get, names, replace, stacked
from highway.images.items import checked_image, is_batch
from highway.parameters.checks import checked
from highway.process.aligned import aligned
from highway.transforms import TransformLike, Writing


@checked
@dataclass
class Augmentations:
    """Apply transforms to each image of a batch, or to the image of a sample; every image gets a draw of its own.

    What belongs to an image shares its draw. The item's own arrays are never written into; the result's are new.

    Args:
        transforms: Applied in this order; none by default.
        deterministic: Whether to leave out all chance: the identity, the centre.
        field: The field that holds the images: its name or position. By default the first of a tuple; of a dict ``"image"`` or ``"images"``
            if there is one, else the first. An array ``(B, H, W, C)``, and a list or object array of images, is a batch; an array
            ``(H, W)``, or ``(H, W, C)`` of 1 to 4 channels, is one image. Any other array of three axes is refused, since it may be a batch
            of grey images (which need their channel: ``(B, H, W, 1)``), and so are channels that come first.
        boxes: The field of the boxes, x1, y1, x2, y2 in pixels: for one image ``(N, 4)``; for a batch an array ``(B, N, 4)``, padded with
            empty boxes, or a list or object array of B times ``(N_i, 4)``. They come back as float32, in the same form and number: a
            box that has left the image is (0, 0, 0, 0), and padding stays as it is.
        points: The field of the points, x and y in pixels, likewise with 2 in place of 4; they may leave the image.
        mask: The field of the masks: ``(H, W)``, or ``(B, H, W)`` or a list of B, of any dtype; their values are never mixed.

    Returns:
        The item with these fields changed. Batches come out as one array ``(B, H', W', C')``.

    Raises:
        ConfigError: something in ``transforms`` is no transform (on construction).
        KeyError: a field is not there.
        ValueError: an array is no image, or could be another thing as well; the images of a batch come out with different shapes; boxes,
            points or masks do not fit the images.
    """

    parallel: ClassVar[bool] = True

    transforms: list[TransformLike] = dataclasses.field(default_factory=list)
    deterministic: bool = False
    field: str | int | None = None
    boxes: str | int | None = None
    points: str | int | None = None
    mask: str | int | None = None

    @property
    def draws(self) -> bool:
        """Whether chance has a part in what comes out."""
        return not self.deterministic

    def __call__(self, item: Item, rng: Generator | None) -> Item:
        where = self._fields(item)
        given = {role: get(item, field) for role, field in where.items()}
        apply = self._batch if is_batch(given["image"], "Augmentations") else self._one
        done = apply(given, None if self.deterministic else rng)
        return replace(item, {where[role]: value for role, value in done.items()})

    def _fields(self, item: Item) -> dict[str, Field]:
        image = self.field
        if image is None:
            known = names(item)
            if not known:
                raise KeyError("Augmentations: the item has no fields; expected one that holds images")
            image = next((name for name in ("image", "images") if name in known), known[0])
        others = {"boxes": self.boxes, "points": self.points, "mask": self.mask}
        return {"image": image, **{role: field for role, field in others.items() if field is not None}}

    def _batch(self, given: dict[str, Any], rng: Generator | None) -> dict[str, Any]:
        count = len(given["image"])
        for role, values in given.items():
            if len(values) != count:
                raise ValueError(f"Augmentations: the batch has {count} images, but {role} for {len(values)}")
        if count == 0:
            return {}
        rows: dict[str, list[np.ndarray]] = {role: [] for role in given if role != "image"}
        images = None
        for row in range(count):
            target = None if images is None else images[row]
            try:
                done = self._one({role: values[row] for role, values in given.items()}, rng, target)
            except Exception as error:
                error.add_note(f"image {row} of a batch of {count}")
                raise
            image = done.pop("image")
            if images is None or target is None:
                images = aligned((count, *image.shape), image.dtype)
                target = images[row]
            if image is not target:
                self._expect_same(image, target, row)
                target[...] = image
            for role, value in done.items():
                rows[role].append(value)
        return {"image": images, **{role: _like(given[role], values) for role, values in rows.items()}}

    def _one(self, given: dict[str, Any], rng: Generator | None, out: np.ndarray | None = None) -> dict[str, Any]:
        """Transform one image and what belongs to it; the last transform may write into ``out``, a row of the batch."""
        values = {role: _CHECKED[role](value, given["image"]) for role, value in given.items()}
        for position, transform in enumerate(self.transforms):
            image = values["image"]
            size = image.shape[:2]
            try:
                params = transform.draw(size, rng)
                for role in values.keys() & {"boxes", "points"}:
                    values[role] = getattr(transform, role)(values[role], params, size)
                if "mask" in values:
                    values["mask"] = transform.mask(values["mask"], params)
                if out is not None and position == len(self.transforms) - 1 and isinstance(transform, Writing):
                    values["image"] = transform.into(image, params, out)
                else:
                    values["image"] = transform.image(image, params)
            except Exception as error:
                error.add_note(f"in transforms[{position}], {transform}")
                raise
        if out is None:
            values["image"] = _new(values["image"], given["image"])
        if "mask" in values:
            values["mask"] = _new(values["mask"], given["mask"])
        return values

    def _expect_same(self, image: np.ndarray, target: np.ndarray, row: int) -> None:
        if image.shape != target.shape or image.dtype != target.dtype:
            raise ValueError(
                f"Augmentations: after {' > '.join(map(str, self.transforms)) or 'no transforms'} image 0 of the batch is "
                f"{target.shape} {target.dtype} and image {row} is {image.shape} {image.dtype}; a batch needs one shape and dtype: "
                f"end with a transform that gives one, such as Resize, CenterCrop or RandomResizedCrop, or augment before batching"
            )


def _coordinates(columns: int, value: Any, _: Any) -> np.ndarray:
    array = np.array(value, np.float32)  # a copy
    if array.size == 0:
        return array.reshape(0, columns)
    if array.ndim != 2 or array.shape[1] != columns:
        raise ValueError(f"Augmentations: boxes are (N, 4) and points (N, 2) for each image; got an array of shape {array.shape}")
    return array


def _mask(value: Any, image: np.ndarray) -> np.ndarray:
    mask = np.asarray(value)
    if mask.shape[:2] != image.shape[:2]:
        raise ValueError(f"Augmentations: the mask is {mask.shape}, but its image {image.shape}; both need the same height and width")
    return mask


_CHECKED: dict[str, Callable[[Any, Any], np.ndarray]] = {
    "image": lambda value, _: checked_image(value, "Augmentations"),
    "boxes": partial(_coordinates, 4),
    "points": partial(_coordinates, 2),
    "mask": _mask,
}


def _new(value: np.ndarray, given: Any) -> np.ndarray:
    return value.copy() if np.may_share_memory(value, given) else value


def _like(given: Any, values: list[np.ndarray]) -> Any:
    """Return one value per image in the form in which they were given: an array, an object array, or a list."""
    if not isinstance(given, np.ndarray):
        return values
    if given.dtype != object:
        return stacked(values)
    result = np.empty(len(values), object)
    result[:] = values
    return result
