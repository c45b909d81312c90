"""Transforms that change the range and dtype of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from highway import functional as F
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Range
from highway.transforms.base import Transform
from highway.transforms.parameters import Number, PerChannel


@checked
@dataclass(frozen=True)
class RescaleImages(Transform):
    """Return ``(image - offset) * scale`` as float32. By default, values from 0 to 255 become values from -1 to 0.992.

    Args:
        scale: A number, or one number per channel.
        offset: A number, or one number per channel. It is subtracted before the multiplication.

    >>> RescaleImages()(np.array([[0, 128, 192]], np.uint8))
    array([[-1. ,  0. ,  0.5]], dtype=float32)
    """

    rowwise: ClassVar[bool] = True

    scale: PerChannel = 1 / 128
    offset: PerChannel = 128.0

    def image(self, image: np.ndarray, params: None, out: np.ndarray | None = None) -> np.ndarray:
        return F.rescale(image, self.scale, self.offset, out)

    into = image


@checked
@dataclass(frozen=True)
class Normalize(Transform):
    """Return ``(image - mean) / std`` as float32. uint8 images are divided by 255 first.

    Args:
        mean: A number, or one number per channel, as a fraction of the full range. By default, the values of ImageNet.
        std: A number, or one number per channel, above 0, as a fraction of the full range. By default, the values of ImageNet.

    >>> Normalize(mean=0.5, std=0.5)(np.array([[0, 255]], np.uint8))
    array([[-1.,  1.]], dtype=float32)
    """

    rowwise: ClassVar[bool] = True

    mean: PerChannel = F.IMAGENET_MEAN
    std: Annotated[PerChannel, Range(gt=0, words="numbers above 0")] = F.IMAGENET_STD

    def __post_init__(self) -> None:
        several = isinstance(self.mean, tuple) and isinstance(self.std, tuple)
        fit = not several or len(self.mean) == len(self.std)  # type: ignore[arg-type]
        require(fit, self, "mean", f"the same number of values as std={self.std!r}")

    def image(self, image: np.ndarray, params: None, out: np.ndarray | None = None) -> np.ndarray:
        return F.normalize(image, self.mean, self.std, out)

    into = image


@checked
@dataclass(frozen=True)
class ToFloat(Transform):
    """Return the image times ``scale`` as float32.

    Args:
        scale: The factor. With the default, values from 0 to 255 become values from 0 to 1.

    >>> ToFloat()(np.array([[0, 255]], np.uint8))
    array([[0., 1.]], dtype=float32)
    """

    rowwise: ClassVar[bool] = True

    scale: Number = 1 / 255

    def image(self, image: np.ndarray, params: None, out: np.ndarray | None = None) -> np.ndarray:
        return F.to_float(image, self.scale, out)

    into = image


@checked
@dataclass(frozen=True)
class ToUint8(Transform):
    """Return floats times ``scale`` as uint8, rounded and saturated. uint8 images do not change.

    Args:
        scale: The factor. With the default, values from 0 to 1 become values from 0 to 255.

    >>> ToUint8()(np.array([[0, 0.2, 1]], np.float32))
    array([[  0,  51, 255]], dtype=uint8)
    """

    rowwise: ClassVar[bool] = True

    scale: Number = 255.0

    def image(self, image: np.ndarray, params: None) -> np.ndarray:
        return F.to_uint8(image, self.scale)


@checked
@dataclass(frozen=True)
class MinMaxNormalize(Transform):
    """Scale the values so that the minimum becomes ``min`` and the maximum becomes ``max``. The result is float32.

    Args:
        min: Minimum of the result.
        max: Maximum of the result.
        all_channel: Whether to use the minimum and maximum of all channels together. With ``False``, each channel is scaled separately.

    >>> MinMaxNormalize(min=1, max=3)(np.array([[50, 100, 150]], np.uint8)).round(3)
    array([[1., 2., 3.]], dtype=float32)
    """

    min: Number = 0.0
    max: Number = 255.0
    all_channel: bool = True

    def image(self, image: np.ndarray, params: None) -> np.ndarray:
        return F.min_max_normalize(image, self.min, self.max, self.all_channel)


@checked
@dataclass(frozen=True)
class MeanVarianceNormalize(Transform):
    """Return ``(image - mean) / deviation`` as float32, with the mean and standard deviation of the image.

    Args:
        all_channel: Whether to use the mean and deviation of all channels together. With ``False``, each channel is normalized separately.

    >>> MeanVarianceNormalize()(np.array([[1, 3]], np.uint8))
    array([[-1.,  1.]], dtype=float32)
    """

    all_channel: bool = True

    def image(self, image: np.ndarray, params: None) -> np.ndarray:
        return F.mean_variance_normalize(image, self.all_channel)
