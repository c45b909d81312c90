"""A map from the bytes of an image file, in a field of a sample, to its pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.random import Generator

from highway.engine import batch
from highway.errors import ConfigError, ImageError
from highway.images.decode import MAX_PIXELS, checked_header, decode, decode_crop
from highway.parameters.checks import checked
from highway.transforms import BoxCrop
from highway.transforms.crop import covering_box


@checked
@dataclass
class DecodeImage:
    """Decode an image in a sample, whole or scaled to one size.

    Args:
        field: The field that holds the bytes of an image file.
        shape: Height and width in pixels; the image is scaled and centre-cropped to it. Without it, and without ``crop``, it comes whole.
        crop: Draws the box that is decoded and scaled to the crop's shape, such as ``RandomResizedCrop((224, 224))``.
        flip_p: Probability, 0 to 1, that the image is mirrored left to right; needs ``shape`` or ``crop``.
        antialias: Whether to average over all pixels that fall together where the image shrinks; slower, smoother.
        max_pixels: Greatest height x width that an image may announce.

    Returns:
        The sample, with uint8 ``(H, W, 3)`` in RGB in that field.

    Raises:
        ConfigError: a parameter is out of its range.
        KeyError: there is no such field.
        ImageError: the bytes are no image, are damaged or cut short, or announce too many pixels.
    """

    parallel: ClassVar[bool] = True

    field: str | int = "image"
    shape: tuple[int, int] | None = None
    crop: BoxCrop | None = None
    flip_p: float = 0.0
    antialias: bool = False
    max_pixels: int = MAX_PIXELS

    @property
    def draws(self) -> bool:
        """Whether chance has a part in what comes out."""
        return self.crop is not None or self.flip_p > 0

    def __post_init__(self) -> None:
        if self.shape is not None and (self.crop is not None or min(self.shape) < 1):
            raise ConfigError(f"DecodeImage: shape={self.shape}; expected (height, width) in pixels, and not together with crop")
        if not 0 <= self.flip_p <= 1 or (self.flip_p and self.shape is None and self.crop is None):
            raise ConfigError(f"DecodeImage: flip_p={self.flip_p}; expected a probability from 0 to 1, together with shape or crop")

    def __call__(self, item: batch.Item, rng: Generator) -> batch.Item:
        data = batch.get(item, self.field)
        if not isinstance(data, bytes):
            raise ImageError(f"field {self.field!r} holds a {type(data).__name__}; expected the bytes of an image file")
        return batch.replace(item, {self.field: self._decoded(data, rng)})

    def _decoded(self, data: bytes, rng: Generator) -> np.ndarray:
        shape = self.crop.shape if self.crop is not None else self.shape
        if shape is None:
            return decode(data, self.max_pixels)
        image = np.empty((*shape, 3), np.uint8)
        decode_into(image, data, self, rng)
        return image


class DecodeOptions(Protocol):
    """What :func:`decode_into` is asked for: parameters of :class:`DecodeImage`."""

    crop: BoxCrop | None
    flip_p: float
    antialias: bool
    max_pixels: int


def decode_into(out: np.ndarray, data: bytes, options: DecodeOptions, rng: Generator) -> None:
    """Decode an image file into ``out``, uint8 ``(H, W, 3)``: the box that is drawn, else the largest centred one.

    Raises:
        ImageError: the bytes are no image, are damaged or cut short, or announce too many pixels.
    """
    header = checked_header(data, options.max_pixels)
    box = covering_box(header.size, out.shape[1] / out.shape[0]) if options.crop is None else options.crop.box(header.size, rng)
    decode_crop(data, header, box, out, options.flip_p > 0 and bool(rng.random() < options.flip_p), options.antialias)
