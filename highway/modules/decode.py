"""A map from the bytes of an image file, in a field of a sample, to its pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from numpy.random import Generator

from highway.engine import batch
from highway.errors import ImageError
from highway.images.decode import decode
from highway.parameters.checks import checked, require
from highway.reading.decode import DecodeOptions


@dataclass
class _OfField:
    field: str | int = "image"


@checked
@dataclass
class DecodeImage(DecodeOptions, _OfField):
    """Decode an image in a sample, whole or scaled to one size.

    Args:
        field: The field that holds the bytes of an image file.
        shape: Height and width in pixels; the image is scaled and centre-cropped to it. Without it, and without ``crop``, it comes whole.
        crop: Draws the box that is decoded and scaled to the crop's shape, such as ``RandomResizedCrop((224, 224))``.
        flip: Probability, 0 to 1, that the image is mirrored left to right; needs ``shape`` or ``crop``.
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

    def __post_init__(self) -> None:
        require(self.shape is None or self.crop is None, self, "shape", "(height, width) in pixels, and not together with crop")
        scaled = self.shape is not None or self.crop is not None
        require(scaled or not self.flip, self, "flip", "a probability from 0 to 1, together with shape or crop")

    def __call__(self, item: batch.Item, rng: Generator) -> batch.Item:
        data = batch.get(item, self.field)
        if not isinstance(data, bytes):
            raise ImageError(f"field {self.field!r} holds a {type(data).__name__}; expected the bytes of an image file")
        image = decode(data, self.max_pixels) if self.output_shape is None else self.decoded(data, rng)
        return batch.replace(item, {self.field: image})
