"""Transforms as a stage: augment the images of a batch, and the boxes, points and masks that belong to them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.random import Generator

from highway.engine.batch import Item, get, replace
from highway.errors import ConfigError
from highway.images.items import is_batch
from highway.images.ops import Size
from highway.modules.targets import Targets, like, rows_where
from highway.parameters.checks import checked, require
from highway.process.aligned import aligned
from highway.transforms import Chain, TransformLike
from highway.transforms.base import Seen, areas


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
            empty boxes, or a list or object array of B times ``(N_i, 4)``. They come back as float32, in the same form.
        points: The field of the points, x and y in pixels: for one image ``(N, 2)``, or ``(N, K, 2)`` for K of each of N objects; for a
            batch with a first axis more, or a list.
        mask: The field of the masks, of any dtype: for one image ``(H, W)``, or ``(N, H, W)`` for one of each of N objects; for a batch
            with a first axis more, or a list. Their values are never mixed.
        with_boxes: Fields that have a row for each box, such as labels: where boxes are removed, so are their rows. ``points`` and ``mask``
            may be among them.
        keep: What becomes of what leaves the image. Boxes are clipped to it, and one of which nothing is left becomes (0, 0, 0, 0). With
            ``"cut"`` it keeps its row, and points may lie outside; ``"clip"`` moves these to the nearest place on the image's border;
            ``"drop"`` removes the rows of all empty boxes, padding among them, and of points ``(N, 2)`` outside, unless they go with boxes.

    Returns:
        The item with these fields changed. Batches come out as one array ``(B, H', W', C')``. Fields of which rows may be removed, by
        ``keep="drop"`` or :class:`SanitizeBoxes`, come out of a batch as lists.

    Raises:
        ConfigError: something in ``transforms`` is no transform, or one needs boxes where there are none (on construction).
        KeyError: a field is not there.
        ValueError: an array is no image, or could be another thing as well; the images of a batch come out with different shapes; boxes,
            points, masks, or what goes with boxes, do not fit.
    """

    parallel: ClassVar[bool] = True

    transforms: list[TransformLike] = dataclasses.field(default_factory=list)
    deterministic: bool = False
    field: str | int | None = None
    boxes: str | int | None = None
    points: str | int | None = None
    mask: str | int | None = None
    with_boxes: list[str | int] = dataclasses.field(default_factory=list)
    keep: Literal["cut", "clip", "drop"] = "cut"

    def __post_init__(self) -> None:
        self._chain = Chain(tuple(self.transforms))
        for transform in self.transforms if self.boxes is None else ():
            if getattr(transform, "sees_boxes", False):
                raise ConfigError(f"Augmentations: {transform} goes by the boxes of an image; say which field holds them: boxes='boxes'")
        require(self.boxes is not None or not self.with_boxes, self, "with_boxes", "none without boxes: say which field holds these")
        self._targets = Targets("Augmentations", self.field, self.boxes, self.points, self.mask, self.with_boxes)
        self._removes = self.boxes is not None and (self.keep == "drop" or self._chain.removes_boxes)

    @property
    def draws(self) -> bool:
        """Whether chance has a part in what comes out."""
        return not self.deterministic

    def __call__(self, item: Item, rng: Generator | None) -> Item:
        where = self._targets.fields(item)
        given = {role: get(item, field) for role, field in where.items()}
        self._targets.expect_no_counts(item, [field for role, field in where.items() if self._loses_rows(role)])
        apply = self._batch if is_batch(given["image"], "Augmentations") else self._one
        done = apply(given, None if self.deterministic else rng)
        return replace(item, {where[role]: value for role, value in done.items()})

    def _batch(self, given: dict[str, Any], rng: Generator | None) -> dict[str, Any]:
        count = self._targets.expect_counts(given)
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
        return {"image": images, **{role: self._like(role, given[role], values) for role, values in rows.items()}}

    def _one(self, given: dict[str, Any], rng: Generator | None, out: np.ndarray | None = None) -> dict[str, Any]:
        """Transform one image and what belongs to it; the last transform may write into ``out``, a row of the batch."""
        belongs, chain = self._targets.checked(given), self._chain
        image, boxes = belongs.pop("image"), belongs.get("boxes")
        size: Size = image.shape[:2]
        params = chain.draw_for(size, rng, None if boxes is None else Seen(boxes, np.ones(len(boxes), np.float32)))
        if belongs:
            self._move(belongs, params, size)
            if "mask" in belongs:
                belongs["mask"] = _new(belongs["mask"], given["mask"])
        image = chain.image(image, params, out)
        return {"image": image if out is not None else _new(image, given["image"]), **belongs}

    def _move(self, belongs: dict[str, Any], params: Any, size: Size) -> None:
        """Have what belongs to an image of ``size`` follow it; do with what leaves it as ``keep`` says, and remove what is to go."""
        chain = self._chain
        edges = np.array(chain.output(params, size)[::-1], np.float32)
        if "points" in belongs:
            points = belongs["points"]
            moved = chain.points(points.reshape(-1, 2), params, size).reshape(points.shape)
            if self.keep == "clip":
                moved = np.clip(moved, 0, edges)
            elif self.keep == "drop" and not self._targets.goes_with_boxes("points") and moved.ndim == 2:
                moved = moved[((moved >= 0) & (moved <= edges)).all(axis=1)]
            belongs["points"] = moved
        if "mask" in belongs:
            belongs["mask"] = self._masks(belongs["mask"], params, size)
        if "boxes" in belongs:
            belongs["boxes"] = chain.boxes(belongs["boxes"], params, size)
        if self._removes:
            stay = areas(belongs["boxes"]) > 0
            belongs.update({role: rows_where(value, stay) for role, value in belongs.items() if self._targets.goes_with_boxes(role)})

    def _masks(self, masks: np.ndarray, params: Any, size: Size) -> np.ndarray:
        if masks.ndim == 2:
            return self._chain.mask(masks, params)
        if len(masks) == 0:
            return np.empty((0, *self._chain.output(params, size)), masks.dtype)
        return np.stack([self._chain.mask(mask, params) for mask in masks])

    def _like(self, role: str, given: Any, values: list[np.ndarray]) -> Any:
        """Return one value per image in the form in which they were given: an array, an object array, or a list."""
        return values if self._loses_rows(role) else like(given, values)

    def _loses_rows(self, role: str) -> bool:
        return (self._removes and self._targets.goes_with_boxes(role)) or (role == "points" and self.keep == "drop")

    def _expect_same(self, image: np.ndarray, target: np.ndarray, row: int) -> None:
        if image.shape != target.shape or image.dtype != target.dtype:
            raise ValueError(
                f"Augmentations: after {' > '.join(map(str, self.transforms)) or 'no transforms'} image 0 of the batch is "
                f"{target.shape} {target.dtype} and image {row} is {image.shape} {image.dtype}; a batch needs one shape and dtype: "
                f"end with a transform that gives one, such as Resize, CenterCrop or RandomResizedCrop, or augment before batching"
            )


def _new(value: np.ndarray, given: Any) -> np.ndarray:
    return value.copy() if np.may_share_memory(value, given) else value
