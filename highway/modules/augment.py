"""The stage that applies transforms to images and their boxes, points and masks."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.random import Generator

from highway.engine.batch import Item, get, replace
from highway.engine.component import Traits
from highway.engine.randomness import of_rows
from highway.errors import ConfigError
from highway.images.items import TARGETS, checked_image
from highway.images.ops import Size
from highway.modules.targets import WITHOUT_BOXES, Targets, rows_where, unshared
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Predicate, Range
from highway.process.aligned import aligned
from highway.transforms import Chain, TransformLike
from highway.transforms.base import Seen, areas
from highway.transforms.compose import Step, moves_pixels
from highway.transforms.rowwise import at_once, changed

Fields = str | int | Annotated[list[str | int], Predicate(bool, "at least one field")]
Pair = Annotated[tuple[int, int], Range(ge=0, words="the numbers of two points, from 0")]


@checked
@dataclass
class Augmentations:
    """Apply transforms to each image of a batch, or to the image of a sample, with separate random parameters per image.

    The annotations of an image are transformed with the same parameters as the image. The item's own arrays are never modified.

    Args:
        transforms: Transforms in order; a nested list counts as one transform. By default the list is empty.
        deterministic: Whether to run the transforms without random numbers, for example for a validation set. Crops then take the centre of
            the image.
        field: The name or index of the image field. By default ``"image"`` or ``"images"`` of a dict, or the first field. An array ``(B,
            H, W, C)`` and a list of images are batches. An array ``(H, W)``, or ``(H, W, C)`` with 1 to 4 channels, is one image. Any other
            array raises an error. Channels must be last. A batch of grey images needs a channel axis, ``(B, H, W, 1)``. The field can be a
            list of fields, such as the two images of a stereo camera. Then all images of a sample must have the same size. All images of a
            sample get the same random parameters.
        boxes: The name or index of the field with the boxes. A box is x1, y1, x2, y2 in pixels. For one image, the field is an array
            ``(N, 4)``. For a batch, it is an array ``(B, N, 4)`` padded with empty boxes, or a list of B arrays ``(N_i, 4)``. The
            transformed boxes have the same form, as float32.
        points: The field of the points, or a list of fields. A point is x and y in pixels. For one image, the field is an array ``(N, 2)``,
            or ``(N, K, 2)`` with K points for each of N objects. For a batch, it is an array with a first batch axis, or a list of arrays.
        mask: The field of the masks, or a list of fields. For one image, the field is an array ``(H, W)``, or ``(H, W, C)`` with channels,
            or ``(N, H, W)`` with a mask per object. For a batch, it is an array with a first batch axis, or a list of arrays. Any dtype is
            allowed. Values are never interpolated.
        with_boxes: Fields with one row per box, such as labels. If a box is removed, its rows in these fields are removed, too. The fields
            of ``points`` and ``mask`` can be in this list. ``None`` means that there are no such fields. If boxes can be removed, the stage
            then checks the first item with boxes: any other field with as many rows as boxes raises an error.
        swap_points: Pairs of points to swap if the image is mirrored, such as the left and the right eye. A pair consists of two indexes.
            For points ``(N, K, 2)``, an index selects one of the K points of an object. For points ``(N, 2)``, it selects one of the N
            points of the image.
        with_points: Fields with one entry per point, ``(N, K)`` or ``(N,)``. If a point is swapped or removed, its entry is swapped or
            removed, too.
        visibility: A field with one value per point, as in COCO. If a point is outside the image after any of the transforms, its value
            becomes 0.
        keep: How to treat boxes and points outside the image. Boxes are always clipped to the image. A box that is completely outside
            becomes (0, 0, 0, 0). ``"cut"`` keeps all boxes and points. ``"clip"`` also keeps all boxes and points, and moves each point
            that is outside to the nearest place on the border of the image. ``"drop"`` removes empty boxes, including padding. It also
            removes points ``(N, 2)`` that are outside, if their field is not in ``with_boxes``.
        as_list: Whether to return the images of a batch, and their annotations, as lists. Then the new images can differ in size.

    Returns:
        The item with the transformed fields. Without ``as_list``, the images of a batch are one array ``(B, H', W', C')``. A field of a
        batch becomes a list if ``keep="drop"`` or :class:`SanitizeBoxes` can remove its rows.

    Raises:
        ConfigError: an element of ``transforms`` is not a transform; ``boxes`` or ``points`` is required; or a parameter is not valid (on
            construction).
        KeyError: a field does not exist.
        ValueError: an array is not an image, or could be both an image and a batch; the new images of a batch differ in shape; or
            annotations do not fit the images.

    >>> batch = np.zeros((16, 32, 32, 3), np.uint8), np.arange(16)
    >>> augment = Augmentations([RandomCrop((24, 24)), FlipX()])
    >>> images, labels = augment(batch, np.random.default_rng(0))
    >>> images.shape, labels.shape
    ((16, 24, 24, 3), (16,))
    """

    transforms: list[TransformLike | tuple[TransformLike, ...]] = dataclasses.field(default_factory=list)
    deterministic: bool = False
    field: Fields | None = None
    boxes: str | int | None = None
    points: Fields | None = None
    mask: Fields | None = None
    with_boxes: list[str | int] | None = None
    keep: Literal["cut", "clip", "drop"] = "cut"
    swap_points: list[Pair] = dataclasses.field(default_factory=list)
    with_points: list[str | int] = dataclasses.field(default_factory=list)
    visibility: str | int | None = None
    as_list: bool = False

    def __post_init__(self) -> None:
        self._chain = Chain(tuple(self.transforms))
        for transform in self.transforms if self.boxes is None else ():
            if Chain(transform).sees_boxes:
                raise ConfigError(f"Augmentations: {transform} needs the boxes of an image; set the field of the boxes: boxes='boxes'")
        require(self.boxes is not None or not self.with_boxes, self, "with_boxes", WITHOUT_BOXES)
        for parameter in ("swap_points", "with_points", "visibility") if self.points is None else ():
            require(getattr(self, parameter) in ([], None), self, parameter, "no value unless points= is set to the field of the points")
        (field, images), (points, more_points), (mask, masks) = map(_split, (self.field, self.points, self.mask))
        more = {"image": images, "points": more_points, "mask": masks}
        taken = self.visibility is not None and self.visibility in (self.boxes, points, mask)
        require(not taken, self, "visibility", "a separate field, with a number for each point")
        swapped = [number for pair in self.swap_points for number in pair]
        require(len(swapped) == len(set(swapped)), self, "swap_points", "each point once")
        with_points = self.with_points if self.visibility is None else [*self.with_points, self.visibility]
        self._removes = self.boxes is not None and (self.keep == "drop" or self._chain.removes_boxes)
        fields = (field, self.boxes, points, mask, self.with_boxes or (), with_points)
        all_named = self.with_boxes is not None or not self._removes
        follow = TARGETS if moves_pixels(self._chain) else ()
        self._targets = Targets("Augmentations", *fields, follow=follow, all_named=all_named, more=more)

    def __highway__(self) -> Traits:
        return Traits(parallel=True, draws=not self.deterministic)

    def __call__(self, item: Item, rng: Generator | None) -> Item:
        drawn_by = None if self.deterministic else rng
        where = self._targets.fields(item)
        images: Any = get(item, where["image"]) if len(where) == 1 and not self.as_list else None
        if (count := at_once(self.transforms, images)) > 1:
            return replace(item, {where["image"]: self._several(images, count, drawn_by)})
        return self._targets.each(item, self._one, drawn_by, self._loses_rows, self.transforms, self.as_list)

    def _several(self, images: np.ndarray, at_once: int, rng: Generator | None) -> np.ndarray:
        """Transform a batch of images without annotations, several images at once."""
        params, size = list[list[Step]](), checked_image(images[0], "Augmentations").shape[:2]
        try:
            of_row = of_rows(rng, len(images))
            for row in range(len(images)):
                params.append(self._chain.draw_for(size, of_row(row), None))
        except Exception as error:
            error.add_note(f"image {len(params)} of a batch of {len(images)}")
            raise
        done = np.empty(0)
        for first in range(0, len(images), at_once):
            last = min(first + at_once, len(images))
            part = changed(self._chain, images, params, first, last)
            if first == 0:
                done = aligned((len(images), *part[0].shape), part[0].dtype)
            for row, image in enumerate(part if isinstance(part, list) else part[:1], first):
                self._targets.expect_same(image, done[0], row, self.transforms)
            done[first:last] = part
        return done

    def _one(self, given: dict[str, Any], out: np.ndarray | None, rng: Generator | None) -> dict[str, Any]:
        """Transform one image and its annotations. The last transform can write its result into ``out``, a row of the output batch."""
        belongs, chain = self._targets.checked(given), self._chain
        image, boxes = belongs.pop("image"), belongs.get("boxes")
        size: Size = image.shape[:2]
        params = chain.draw_for(size, rng, None if boxes is None else Seen(boxes, np.ones(len(boxes), np.float32)))
        if belongs:
            self._move(belongs, params, size)
            for role in belongs:
                if role == "mask" or self._targets.kind_of(role) in ("image", "mask"):
                    belongs[role] = unshared(belongs[role], given[role])
        image = chain.image(image, params, out)
        return {"image": image if out is not None else unshared(image, given["image"]), **belongs}

    def _move(self, belongs: dict[str, Any], params: Any, size: Size) -> None:
        """Transform the annotations of an image of ``size``, and apply ``keep`` to boxes and points outside the image."""
        chain = self._chain
        if "points" in belongs:
            points = belongs["points"]
            if self.visibility is not None and len(points):
                role, inside = self._targets.role_of(self.visibility), chain.inside(points.reshape(-1, 2), params, size)
                belongs[role] = np.asarray(belongs[role]) * inside.reshape(points.shape[:-1])
            belongs["points"] = chain.points(points.reshape(-1, 2), params, size).reshape(points.shape)
            self._move_points(belongs, params, size)
        if "mask" in belongs:
            belongs["mask"] = self._masks(belongs["mask"], params, size)
        for role, value in belongs.items():
            if (kind := self._targets.kind_of(role)) == "image":
                belongs[role] = chain.image(value, params)
            elif kind == "points":
                belongs[role] = chain.points(value.reshape(-1, 2), params, size).reshape(value.shape)
            elif kind == "mask":
                belongs[role] = self._masks(value, params, size)
        if "boxes" in belongs:
            belongs["boxes"] = chain.boxes(belongs["boxes"], params, size)
        if self._removes:
            stay = areas(belongs["boxes"]) > 0
            belongs.update({role: rows_where(value, stay) for role, value in belongs.items() if self._targets.goes_with_boxes(role)})

    def _move_points(self, belongs: dict[str, Any], params: Any, size: Size) -> None:
        """Apply ``swap_points`` to the moved points, and apply ``keep`` to points outside the image."""
        points = belongs["points"]
        together = [role for role in belongs if self._targets.goes_with_points(role)]
        if self.swap_points and len(points) and self._mirrors(params, size):
            order = self._order(points.shape)
            belongs.update({role: np.take(belongs[role], order, axis=points.ndim - 2) for role in together})
            points = belongs["points"]
        edges = np.array(self._chain.output(params, size)[::-1], np.float32)
        if self.keep == "clip":
            belongs["points"] = np.clip(points, 0, edges)
        elif self.keep == "drop" and not self._targets.goes_with_boxes("points") and points.ndim == 2:
            stay = ((points >= 0) & (points <= edges)).all(axis=1)
            belongs.update({role: rows_where(belongs[role], stay) for role in together})

    def _mirrors(self, params: Any, size: Size) -> bool:
        """Return whether the transforms mirror an image. If so, three of its corners change from clockwise to anticlockwise order."""
        height, width = size
        corners = np.array([[0, 0], [width, 0], [0, height]], np.float32)
        first, right, below = self._chain.points(corners, params, size).astype(np.float64)
        return bool(np.linalg.det(np.stack([right - first, below - first])) < 0)

    def _order(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return the permutation that swaps points of this shape."""
        if len(shape) == 2 and self._targets.goes_with_boxes("points"):
            raise ValueError(
                f"Augmentations: points have the shape {shape}, one point for each box; swap_points swaps points of one object, so it "
                "needs (N, K, 2)"
            )
        order = np.arange(shape[-2])
        for one, other in self.swap_points:
            if max(one, other) >= shape[-2]:
                raise ValueError(
                    f"Augmentations: points have the shape {shape}; swap_points={(one, other)} needs more than {max(one, other)} points "
                    "per object"
                )
            order[one], order[other] = other, one
        return order

    def _masks(self, masks: np.ndarray, params: Any, size: Size) -> np.ndarray:
        if masks.ndim == 2 or masks.shape[-2:] != size:  # with channels
            return self._chain.mask(masks, params)
        if len(masks) == 0:
            return np.empty((0, *self._chain.output(params, size)), masks.dtype)
        return np.stack([self._chain.mask(mask, params) for mask in masks])

    def _loses_rows(self, role: str) -> bool:
        return (self._removes and self._targets.goes_with_boxes(role)) or (self.keep == "drop" and self._targets.goes_with_points(role))


def _split(fields: Fields | None) -> tuple[str | int | None, list[str | int]]:
    """Return the first field, and a list of the other fields."""
    return (fields[0], fields[1:]) if isinstance(fields, list) else (fields, [])
