"""Transforms that distort the image, each place in another way."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.random import Generator

from highway import functional as F
from highway.images.ops import Size, scale
from highway.parameters.checks import checked
from highway.parameters.ranges import Count, Range
from highway.transforms.base import Geometric

_COARSE = 2.0  # deviations of the blur between two places at which Elastic draws


class _Distortion(Geometric):
    """A transform that takes each pixel from elsewhere."""

    interpolation: F.Linear
    fill: F.Fill = 0.0

    @abstractmethod
    def field(self, params: Any, size: Size) -> np.ndarray:
        """Return how far to the right, and down, of each pixel its value comes from: float32 ``(H, W, 2)``, in pixels."""

    def image(self, image: np.ndarray, params: Any) -> np.ndarray:
        return image if params is None else F.displace(image, self.field(params, _size(image)), self.interpolation, self.fill)

    def mask(self, mask: np.ndarray, params: Any) -> np.ndarray:
        return mask if params is None else F.displace(mask, self.field(params, _size(mask)), "nearest")

    def points(self, points: np.ndarray, params: Any, size: Size) -> np.ndarray:
        return points if params is None else F.displace_points(points, self.field(params, size))


def _size(image: np.ndarray) -> Size:
    return image.shape[0], image.shape[1]


@checked
@dataclass(frozen=True)
class Elastic(_Distortion):
    """Move every place by a smooth field of random vectors ("Best practices for CNNs", Simard et al. 2003); not without chance.

    The field is as strong, and as smooth, as torchvision's ``ElasticTransform``: even noise, blurred by a Gaussian, times ``alpha / 2``
    pixels. It is drawn at fewer places, and interpolated between them by splines.

    Args:
        alpha: How strong it is.
        sigma: How smooth it is: the deviation of the blur in pixels.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill: What new pixels hold: a number, or one for each channel.
    """

    alpha: Annotated[float, Range(ge=0)] = 50.0
    sigma: Annotated[float, Range(gt=0)] = 5.0
    interpolation: F.Linear = "bilinear"
    fill: F.Fill = 0.0

    def draw(self, size: Size, rng: Generator | None) -> np.ndarray | None:
        if rng is None:
            return None
        places = [max(2, round(length / (_COARSE * self.sigma)) + 1) for length in size]
        deviation = self.alpha / 2 / np.sqrt(3) / (2 * np.sqrt(np.pi) * self.sigma)
        return rng.standard_normal((*places, 2), np.float32) * np.float32(deviation)

    def field(self, params: np.ndarray, size: Size) -> np.ndarray:
        return scale(params, size, "bicubic")


@checked
@dataclass(frozen=True)
class GridDistortion(_Distortion):
    """Divide the image by a grid, and stretch each of its rows and columns by a factor that is drawn; not without chance.

    Args:
        num_steps: In how many rows, and columns.
        distort_limit: How far the factor may be from 1.
        interpolation: ``"nearest"`` or ``"bilinear"``.
    """

    num_steps: Count = 5
    distort_limit: Annotated[float, Range(ge=0, lt=1)] = 0.3
    interpolation: F.Linear = "bilinear"

    def draw(self, size: Size, rng: Generator | None) -> list[np.ndarray] | None:
        """Return where the lines of the grid come from, float64 ``(num_steps + 1,)``, for rows and for columns."""
        if rng is None:
            return None
        lines = []
        for length in size:
            ends = np.concatenate([[0.0], np.cumsum(1 + rng.uniform(-self.distort_limit, self.distort_limit, self.num_steps))])
            lines.append(ends * (length / ends[-1]))
        return lines

    def _lines(self, length: int) -> np.ndarray:
        return np.linspace(0, length, self.num_steps + 1)

    def field(self, params: list[np.ndarray], size: Size) -> np.ndarray:
        down, right = (
            np.interp(np.arange(length) + 0.5, self._lines(length), lines) - np.arange(length) - 0.5
            for length, lines in zip(size, params, strict=True)
        )
        field = np.empty((*size, 2), np.float32)
        field[..., 0], field[..., 1] = right, down[:, None]
        return field

    def points(self, points: np.ndarray, params: list[np.ndarray] | None, size: Size) -> np.ndarray:
        if params is None:
            return points
        pairs = zip(points.T, size[::-1], params[::-1], strict=True)
        return np.stack([np.interp(part, lines, self._lines(length)) for part, length, lines in pairs], axis=1).astype(np.float32)
