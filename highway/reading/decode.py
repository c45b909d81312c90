"""The parameters for decoding image files. Readers and decoding maps share them."""

# No annotations from __future__: components in other modules inherit these hints, and would evaluate strings in the wrong module.
from dataclasses import dataclass
from operator import index
from typing import Annotated

import numpy as np
from numpy.random import Generator

from highway.images.decode import MAX_PIXELS, checked_header, decode_crop
from highway.images.ops import Box, Size
from highway.images.run import Boxes
from highway.parameters.ranges import Count, Predicate, Probability, Shape
from highway.process.aligned import aligned
from highway.reading.draws import Draws
from highway.transforms import BoxCrop
from highway.transforms.base import draws_runs
from highway.transforms.crop import covering_box

_BILINEAR = "a crop with interpolation='bilinear', the interpolation of the decoder; put other crops into Augmentations after the reader"


@dataclass
class DecodeOptions:
    """How to decode an image file. Base class of components with these parameters.

    This class must be the first base class. Dataclasses order the fields from the last base to the first, so these parameters come last.

    Args:
        shape: Height and width in pixels. The image is scaled and centre-cropped to this shape.
        crop: A crop, such as ``RandomResizedCrop``. The crop draws a box in each image. The box is decoded and scaled to the crop's shape.
        flip: Probability, 0 to 1, of mirroring the image left to right.
        antialias: Whether each output pixel is the average of all its source pixels when an image shrinks. This is slower, but smoother.
        max_pixels: Maximum number of pixels (height x width) that the header of an image is allowed to declare.
    """

    shape: Shape | None = None
    crop: Annotated[BoxCrop | None, Predicate(lambda crop: getattr(crop, "interpolation", "bilinear") == "bilinear", _BILINEAR)] = None
    flip: Probability = 0.0
    antialias: bool = False
    max_pixels: Count = MAX_PIXELS

    @property
    def draws(self) -> bool:
        """Whether random numbers change the pixels, not only the order of the images."""
        return self.crop is not None or self.flip > 0

    @property
    def output_shape(self) -> Size | None:
        """Height and width of the decoded images; ``None`` if every image keeps its own size."""
        return self.crop.shape if self.crop is not None else self.shape

    def coins(self, count: int, draws: Draws | None) -> np.ndarray:
        """Return whether each image of a range is flipped, bool ``(N,)``. Without ``draws``, no image is flipped."""
        return np.zeros(count, np.bool_) if draws is None or self.flip == 0 else draws.numbers[:, 0] < self.flip

    def boxes(self, sizes: np.ndarray, draws: Draws | None) -> Boxes:
        """Return the boxes of a range of images (:meth:`box_of`), and the errors of images without a box.

        Args:
            sizes: Heights and widths, int64 ``(N, 2)``; zeros for images that need no box.
            draws: The random numbers. ``None``: each box is in the centre.
        """
        crop, boxes, errors = self.crop, np.zeros((len(sizes), 4), np.int64), dict[int, Exception]()
        if crop is not None and draws is not None and draws_runs(crop):
            boxes = np.ascontiguousarray(crop.draw_boxes(sizes, draws.numbers[:, 1:]), np.int64)
        if boxes[:, 2].all():
            return boxes, errors
        for place in np.flatnonzero((sizes[:, 0] > 0) & (boxes[:, 2] == 0)).tolist():
            try:
                boxes[place] = self.box_of(tuple(sizes[place].tolist()), draws.generator(place) if draws else None)
            except Exception as error:
                errors[place] = error
        return boxes, errors

    def box_of(self, size: Size, rng: Generator | None) -> Box:
        """Return the box of an image.

        ``crop`` draws the box. Without ``crop``, the box is the largest centred box with the aspect ratio of ``shape``. Without ``crop``
        and ``shape``, the box is the whole image.
        """
        if self.crop is not None:
            top, left, height, width = map(index, self.crop.box(size, rng))
            return top, left, height, width
        return (0, 0, *size) if self.shape is None else covering_box(size, self.shape[1] / self.shape[0])

    def coin(self, rng: Generator | None) -> bool:
        """Return whether to flip an image. Call :meth:`box_of` first, because the generator draws the box before the flip."""
        return rng is not None and self.flip > 0 and bool(rng.random() < self.flip)

    def decoded(self, data: bytes, rng: Generator | None, out: np.ndarray | None = None) -> np.ndarray:
        """Return one box of an image, decoded and scaled to ``output_shape``. :meth:`box_of` chooses the box.

        Args:
            data: The bytes of the file.
            rng: Draws the box and the flip. ``None``: the box is in the centre, and the image is not flipped.
            out: Output array, uint8 ``(H, W, 3)`` of ``output_shape``, such as a row of a batch. ``None``: a new array.

        Raises:
            ImageError: the bytes are not an image, are damaged or truncated, or declare too many pixels.
        """
        header = checked_header(data, self.max_pixels)
        box = self.box_of(header.size, rng)
        if out is None:
            out = aligned((*(self.output_shape or header.size), 3), np.uint8)
        decode_crop(data, header, box, out, self.coin(rng), self.antialias)
        return out
