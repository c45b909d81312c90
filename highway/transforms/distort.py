"""Transforms that distort the image by a displacement field."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.images.ops import Size, scale
from highway.images.scratch import scratch
from highway.parameters.checks import checked
from highway.parameters.ranges import Count, Range
from highway.transforms.base import Geometric
from highway.transforms.parameters import Amount, PerChannel, Positive

_COARSE = 2.0  # distance between the grid points for which Elastic draws random numbers, in standard deviations of the blur
# If the blur has at least this standard deviation, Elastic computes only every second pixel of the field, and interpolates linearly.
_SMOOTH = 4.0
# Points on the sides of a box, as fractions of the box.
_AROUND = np.array([place for at in np.linspace(0, 1, 17) for place in ((at, 0), (at, 1), (0, at), (1, at))], np.float32)


class _Distortion(Geometric):
    """A transform that moves each pixel. A field contains the displacement of each pixel."""

    interpolation: F.Linear
    fill: PerChannel = 0.0

    @abstractmethod
    def fill_planes(self, planes: np.ndarray, params: Any) -> None:
        """Write the offset (right, down) from each pixel to its source: float32 ``(2, H, W)``, in pixels."""

    def field(self, params: Any, size: Size, planes: np.ndarray | None = None) -> np.ndarray:
        """Return the field for :func:`highway.functional.displace`, float32 ``(H, W, 2)``. It is a view of ``planes``, if given."""
        planes = np.empty((2, *size), np.float32) if planes is None else planes
        self.fill_planes(planes, params)
        return planes.transpose(1, 2, 0)

    def _field(self, params: Any, size: Size) -> np.ndarray:
        return self.field(params, size, scratch("field", (2, *size), np.float32))

    def image(self, image: np.ndarray, params: Any) -> np.ndarray:
        return image if params is None else F.displace(image, self._field(params, _size(image)), self.interpolation, self.fill)

    def mask(self, mask: np.ndarray, params: Any) -> np.ndarray:
        return mask if params is None else F.displace(mask, self._field(params, _size(mask)), "nearest")

    def points(self, points: np.ndarray, params: Any, size: Size) -> np.ndarray:
        return points if params is None else F.displace_points(points, self._field(params, size))


def _size(image: np.ndarray) -> Size:
    return image.shape[0], image.shape[1]


@checked
@dataclass(frozen=True)
class Elastic(_Distortion):
    """Distort the image by a smooth random displacement field ("Best practices for CNNs", Simard et al. 2003).

    Without ``rng``, the image does not change. The field has the same strength and smoothness as in torchvision's ``ElasticTransform``.
    torchvision blurs uniform noise, and multiplies it by ``alpha / 2`` pixels. highway draws the field on a coarse grid, and interpolates
    the field by splines, which is faster.

    Args:
        alpha: Strength of the displacements.
        sigma: Standard deviation of the blur in pixels. Greater values lead to smoother fields.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill: Value of new pixels: a number, or one number per channel.

    >>> photo = np.zeros((32, 32, 3), np.uint8)
    >>> augmented = Elastic(alpha=50, sigma=5)(photo, np.random.default_rng(0))
    >>> augmented.shape, augmented.dtype
    ((32, 32, 3), dtype('uint8'))
    """

    alpha: Amount = 50.0
    sigma: Positive = 5.0
    interpolation: F.Linear = "bilinear"
    fill: PerChannel = 0.0

    def draw(self, size: Size, rng: Generator | None) -> np.ndarray | None:
        if rng is None:
            return None
        places = [max(2, round(length / (_COARSE * self.sigma)) + 1) for length in size]
        deviation = self.alpha / 2 / np.sqrt(3) / (2 * np.sqrt(np.pi) * self.sigma)
        return rng.standard_normal((2, *places), np.float32) * np.float32(deviation)

    def outlines(self, boxes: np.ndarray) -> np.ndarray:
        low, high = boxes[:, None, :2], boxes[:, None, 2:]
        around: np.ndarray = low + _AROUND * (high - low)  # the sides become curves
        return around

    def fill_planes(self, planes: np.ndarray, params: np.ndarray) -> None:
        (height, width), smooth = planes.shape[1:], self.sigma >= _SMOOTH
        for drawn, plane in zip(params, planes, strict=True):
            coarse = scale(drawn, (height // 2 + 1, width // 2 + 1), "bicubic") if smooth else drawn
            scale(coarse, (height, width), "bilinear" if smooth else "bicubic", plane)


@checked
@dataclass(frozen=True)
class GridDistortion(_Distortion):
    """Divide the image by a grid, and stretch the rows and columns of the grid by random factors.

    Without ``rng``, the image does not change.

    Args:
        num_steps: Number of rows, and also of columns, of the grid.
        distort_limit: Maximum distance of the factors from 1.
        interpolation: ``"nearest"`` or ``"bilinear"``.

    >>> photo = np.zeros((32, 32, 3), np.uint8)
    >>> augmented = GridDistortion(num_steps=5, distort_limit=0.3)(photo, np.random.default_rng(0))
    >>> augmented.shape, augmented.dtype
    ((32, 32, 3), dtype('uint8'))
    """

    num_steps: Count = 5
    distort_limit: Annotated[float, Range(ge=0, lt=1)] = 0.3
    interpolation: F.Linear = "bilinear"

    def draw(self, size: Size, rng: Generator | None) -> list[np.ndarray] | None:
        """Return the source coordinates of the grid lines: an array float64 ``(num_steps + 1,)`` for rows, and another for columns."""
        if rng is None:
            return None
        lines = []
        for length in size:
            ends = np.zeros(self.num_steps + 1)
            np.cumsum(1 + self.distort_limit * (2 * rng.random(self.num_steps) - 1), out=ends[1:])
            lines.append(ends * (length / ends[-1]))
        return lines

    def _lines(self, length: int) -> np.ndarray:
        return np.linspace(0, length, self.num_steps + 1)

    def fill_planes(self, planes: np.ndarray, params: list[np.ndarray]) -> None:
        down, right = (
            (np.interp(np.arange(length) + 0.5, self._lines(length), lines) - np.arange(length) - 0.5).astype(np.float32)
            for length, lines in zip(planes.shape[1:], params, strict=True)
        )
        planes[0], planes[1] = right, down[:, None]

    def points(self, points: np.ndarray, params: list[np.ndarray] | None, size: Size) -> np.ndarray:
        if params is None:
            return points
        pairs = zip(points.T, size[::-1], params[::-1], strict=True)
        return np.stack([np.interp(part, lines, self._lines(length)) for part, length, lines in pairs], axis=1).astype(np.float32)
