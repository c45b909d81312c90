"""Transforms whose parameters depend on the boxes of the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from numpy.random import Generator

from highway.images.ops import Box, Size
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Count, Predicate, Range
from highway.transforms.base import SeeingCrop, Seen, Transform, areas, below
from highway.transforms.parameters import Share

Amount = Annotated[float, Range(ge=0)]
Overlaps = Annotated[
    tuple[float, ...], Predicate(lambda some: some != () and all(least >= 0 for least in some), "at least one number, all at least 0")
]


@checked
@dataclass(frozen=True)
class SanitizeBoxes(Transform):
    """Remove boxes that are too small or not visible enough, and their rows in the ``with_boxes`` fields of ``Augmentations``.

    This transform sets such a box to (0, 0, 0, 0). After the last transform, all empty boxes are removed, including the padding of a batch.

    Args:
        min_size: Minimum width and height in pixels.
        min_area: Minimum area in pixels.
        min_visibility: Minimum fraction of a box that must still be in the image after the preceding transforms, from 0 to 1.

    >>> sample = {"image": np.zeros((20, 20, 3), np.uint8), "boxes": np.float32([[0, 0, 1, 1], [0, 0, 9, 9]]), "labels": np.int32([3, 7])}
    >>> augment = Augmentations([SanitizeBoxes(min_size=2)], boxes="boxes", with_boxes=["labels"])
    >>> augment(sample, rng=None)["labels"]
    array([7], dtype=int32)
    """

    min_size: Amount = 1.0
    min_area: Amount = 1.0
    min_visibility: Share = 0.0

    @property
    def sees_boxes(self) -> bool:
        return True

    @property
    def removes_boxes(self) -> bool:
        return True

    def draw_for(self, size: Size, rng: Generator | None, seen: Seen | None) -> np.ndarray | None:
        """Return which boxes to keep, bool ``(N,)``."""
        if seen is None:
            return None
        sides = (seen.boxes[:, 2:] - seen.boxes[:, :2]).min(axis=1, initial=np.inf)
        stay: np.ndarray = (sides >= self.min_size) & (areas(seen.boxes) >= self.min_area) & (seen.visible >= self.min_visibility)
        return stay

    def image(self, image: np.ndarray, params: np.ndarray | None) -> np.ndarray:
        return image

    def boxes(self, boxes: np.ndarray, params: np.ndarray | None, size: Size) -> np.ndarray:
        return boxes if params is None else np.where(params[:, None], boxes, np.float32(0))


class _Drawn(NamedTuple):
    top: int
    left: int
    height: int
    width: int
    within: np.ndarray | None = None  # which boxes to keep, bool (N,); None keeps all boxes


@checked
@dataclass(frozen=True)
class RandomIoUCrop(SeeingCrop):
    """Crop a random part of the image that overlaps with one of the boxes by at least a random minimum.

    From "SSD: Single Shot MultiBox Detector", Liu et al. 2016, section 2.2, as in torchvision's ``RandomIoUCrop``. The transform draws a
    minimum overlap (intersection over union), and then up to ``trials`` crops. It uses the first crop that has at least this overlap with a
    box whose centre is in the crop. If there is no such crop, the transform draws a new minimum overlap, up to 100 times. The image does
    not change if the minimum overlap is 1 or more, or if no crop is found. It also does not change if it has no boxes, or without ``rng``.

    A box whose centre is outside the crop becomes (0, 0, 0, 0). To remove such boxes, add :class:`SanitizeBoxes` after this transform.

    Args:
        min_scale: Minimum height and width of the crop, as a fraction of the height and width of the image.
        max_scale: Maximum height and width of the crop, as a fraction of the height and width of the image.
        min_aspect_ratio: Minimum width / height of the crop.
        max_aspect_ratio: Maximum width / height of the crop.
        sampler_options: The minimum overlaps from which to draw, each at least 0.
        trials: Maximum number of crops to draw for each minimum overlap.

    >>> sample = {"image": np.zeros((100, 100, 3), np.uint8), "boxes": np.float32([[40, 40, 60, 60]])}
    >>> augment = Augmentations([RandomIoUCrop()], boxes="boxes")
    >>> augment(sample, rng=np.random.default_rng(2))["image"].shape
    (80, 43, 3)
    """

    min_scale: Share = 0.3
    max_scale: Share = 1.0
    min_aspect_ratio: Amount = 0.5
    max_aspect_ratio: Amount = 2.0
    sampler_options: Overlaps = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    trials: Count = 40

    def __post_init__(self) -> None:
        for least, most in (("min_scale", "max_scale"), ("min_aspect_ratio", "max_aspect_ratio")):
            require(getattr(self, least) <= getattr(self, most), self, most, f"at least {least}={getattr(self, least)}")

    def draw_for(self, size: Size, rng: Generator | None, seen: Seen | None) -> _Drawn:
        whole = _Drawn(0, 0, *size)
        if rng is None or seen is None or not (there := areas(seen.boxes) > 0).any():
            return whole
        for _ in range(_ROUNDS):
            least = self.sampler_options[below(len(self.sampler_options), rng)]
            if least >= 1:
                return whole
            if (found := self._tried(size, rng.random((self.trials, 4)), seen.boxes, there, least)) is not None:
                return found
        return whole

    def _tried(self, size: Size, numbers: np.ndarray, boxes: np.ndarray, there: np.ndarray, least: float) -> _Drawn | None:
        """Return the first suitable crop, or ``None``. ``numbers``, ``(trials, 4)``, are the random numbers of the crops."""
        shapes = ((self.min_scale + (self.max_scale - self.min_scale) * numbers[:, :2]) * size).astype(np.int64)  # height, width
        corners = ((size - shapes) * numbers[:, 2:]).astype(np.int64)  # top, left
        fits = (shapes > 0).all(axis=1) & (shapes[:, 1] >= self.min_aspect_ratio * shapes[:, 0])
        fits &= shapes[:, 1] <= self.max_aspect_ratio * shapes[:, 0]
        low, high = corners[:, None, ::-1], (corners + shapes)[:, None, ::-1]  # (trials, 1, 2): x, y
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        within = there & ((low < centres) & (centres < high)).all(axis=2)  # (trials, N)
        common = np.maximum(np.minimum(boxes[:, 2:], high) - np.maximum(boxes[:, :2], low), 0).prod(axis=2)
        overlap = common / (areas(boxes) + shapes.prod(axis=1)[:, None] - common).clip(1e-9)
        good = np.flatnonzero(fits & (within & (overlap >= least)).any(axis=1))
        if not len(good):
            return None
        (top, left), (height, width) = corners[good[0]].tolist(), shapes[good[0]].tolist()
        return _Drawn(top, left, height, width, within[good[0]])

    def boxes(self, boxes: np.ndarray, params: _Drawn, size: Size) -> np.ndarray:
        moved = super().boxes(boxes, params, size)
        return moved if params.within is None else np.where(params.within[:, None], moved, np.float32(0))


# Maximum number of rounds of RandomIoUCrop. With the default options, each round is the last with a probability of at least 1/7.
_ROUNDS = 100


@checked
@dataclass(frozen=True)
class BoxSafeCrop(SeeingCrop):
    """Crop a random part of the image that contains all boxes. Parts of boxes outside the image are ignored.

    The left side of the crop is at a random position between the left side of the image and the left side of the box around all boxes. The
    other three sides are drawn in the same way. If there are no boxes, the sides of the crop are between the sides and the centre of the
    image. Without ``rng``, the image does not change. The results have different sizes, so add a :class:`Resize` after this transform.

    Args:
        erosion: Maximum fraction of the box around all boxes that can be cut off, from 0 to 1. The fraction applies separately to the
            height and to the width of this box. Half of it can be cut off on each side.

    >>> sample = {"image": np.zeros((100, 100, 3), np.uint8), "boxes": np.float32([[40, 40, 60, 60]])}
    >>> augment = Augmentations([BoxSafeCrop()], boxes="boxes")
    >>> cropped = augment(sample, rng=np.random.default_rng(0))
    >>> cropped["image"].shape, cropped["boxes"].tolist()
    ((90, 74, 3), [[15.0, 30.0, 35.0, 50.0]])
    """

    erosion: Share = 0.0

    def draw_for(self, size: Size, rng: Generator | None, seen: Seen | None) -> Box:
        height, width = size
        if rng is None:
            return 0, 0, height, width
        low, high = np.array([width, height]) / 2, np.array([width, height]) / 2
        boxes = np.empty((0, 4)) if seen is None else np.clip(seen.boxes, 0, [width, height, width, height])
        if (there := areas(boxes) > 0).any():
            low, high = boxes[there, :2].min(axis=0), boxes[there, 2:].max(axis=0)
        cut = (high - low) * self.erosion / 2
        low, high = np.floor(low + cut).astype(np.int64), np.ceil(high - cut).astype(np.int64)
        left, top, right, bottom = rng.random(4)
        x, y = int(low[0] * left), int(low[1] * top)
        to_x, to_y = width - int((width - high[0]) * right), height - int((height - high[1]) * bottom)
        return y, x, max(to_y - y, 1), max(to_x - x, 1)
