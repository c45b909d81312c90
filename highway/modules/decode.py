"""The map that decodes an image in a field of a sample."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from highway.engine import batch
from highway.engine.ahead import Outcome
from highway.engine.component import Traits
from highway.engine.context import Context
from highway.engine.randomness import Substreams, counter_of
from highway.engine.stage import Stamped
from highway.errors import ImageError
from highway.images.decode import decode, extension_or_none
from highway.images.items import expect_no_targets
from highway.images.run import Boxes, File, decode_run
from highway.parameters.checks import checked, require
from highway.parameters.overrides import speaks_for
from highway.process.aligned import aligned
from highway.reading.decode import DecodeOptions

_MOST = 16  # maximum number of images to decode at once
_WORK = 0.012  # maximum seconds of CPU time for a group of images; the first image must wait until the last image is decoded


@dataclass
class _OfField:
    field: str | int = "image"


@checked
@dataclass
class DecodeImage(DecodeOptions, _OfField):
    """Decode an image in a sample, and optionally crop and scale it to a given size.

    Args:
        field: The field that contains the bytes of an image file.
        shape: Height and width in pixels. The image is scaled and centre-cropped to this shape. Without ``shape`` and ``crop``, the whole
            image is returned in its own size.
        crop: A crop, such as ``RandomResizedCrop((224, 224))``. It draws a random box of the image. Only this box is decoded and scaled to
            the shape of the crop.
        flip: Probability, 0 to 1, of mirroring the image left to right. Requires ``shape`` or ``crop``.
        antialias: Whether to average all source pixels of an output pixel if the image becomes smaller. This is slower, but the result is
            smoother.
        max_pixels: Maximum number of pixels (height x width) of an image, as declared in its header. A larger image raises an error.

    Returns:
        The sample, with the decoded image, uint8 ``(H, W, 3)`` in RGB, in the same field.

    Raises:
        ConfigError: a parameter is out of its range, or both ``shape`` and ``crop`` are given.
        KeyError: the field does not exist.
        ImageError: the field does not contain ``bytes``; or the bytes are not an image, are damaged or truncated, or declare too many
            pixels.
        ValueError: the first sample has boxes, points or masks, and ``shape`` or ``crop`` is given. This map does not transform
            annotations.

    >>> reader = Reader("highway:photos/val", shuffle=False)
    >>> with Pipeline([reader, DecodeImage(0, shape=(64, 64))]) as pipeline:
    ...     image, label = pipeline.dequeue()
    >>> image.shape, image.dtype
    ((64, 64, 3), dtype('uint8'))
    """

    def __post_init__(self) -> None:
        self._is_checked = False  # whether the first item was checked
        require(self.shape is None or self.crop is None, self, "shape", "(height, width) in pixels; cannot be combined with crop")
        scaled = self.shape is not None or self.crop is not None
        require(scaled or not self.flip, self, "flip", "a probability from 0 to 1, only together with shape or crop")

    def __highway__(self) -> Traits:
        return Traits(parallel=True, draws=self.draws, ahead=self._ahead)

    def __call__(self, item: batch.Item, rng: Generator) -> batch.Item:
        data = self.encoded(item)
        image = decode(data, self.max_pixels) if self.output_shape is None else self.decoded(data, rng)
        return batch.replace(item, {self.field: image})

    def encoded(self, item: batch.Item) -> bytes:
        """Return the bytes of the image in an item. Raises KeyError, ImageError and ValueError."""
        if not self._is_checked and self.output_shape is not None:
            advice = "decode the whole image, and crop or scale by Augmentations({parameter}={field!r})"
            self._is_checked = expect_no_targets(item, "DecodeImage", advice)
        data = batch.get(item, self.field)
        if not isinstance(data, bytes):
            advice = "; put DecodeImage before Batch" if isinstance(data, (np.ndarray, list)) else ""
            raise ImageError(f"field {self.field!r} contains a {type(data).__name__}; expected the bytes of an image file{advice}")
        return data

    def _ahead(self, context: Context) -> _Together | None:
        """Return an object that decodes several images at once for a worker.

        Return ``None`` if images keep their own size, or if the C extension is not installed.
        """
        several = extension_or_none() is not None and speaks_for("_ahead", "__call__", self)
        return None if self.output_shape is None or not several else _Together(self, self.output_shape, context)


class _Together:
    """Decodes all images that wait for a worker in one call, without the GIL.

    The pixels and errors are the same as when the images are decoded one by one.

    Args:
        map: The map, which decodes one image.
        shape: Height and width of the decoded images.
        context: The context of the stage.
    """

    def __init__(self, map: DecodeImage, shape: tuple[int, int], context: Context) -> None:
        self._map, self._shape = map, (*shape, 3)
        self._substreams, self._key = Substreams(), context.key
        self._items: list[Stamped] = []
        self._seconds = _WORK  # CPU time for an image, measured in the last group

    @property
    def depth(self) -> int:
        return max(1, min(_MOST, int(_WORK / self._seconds)))

    def send(self, items: Sequence[Stamped]) -> None:
        self._items.extend(items)

    def receive(self) -> Iterator[Outcome]:
        items, self._items = self._items, []
        began = time.thread_time()
        images, errors = self._decoded(items)
        self._seconds = max(time.thread_time() - began, 1e-9) / len(items)
        for place, (item, _) in enumerate(items):
            if (error := errors.get(place)) is not None:
                yield error, None
            else:
                yield None, batch.replace(item, {self._map.field: images[place]})

    def _decoded(self, items: Sequence[Stamped]) -> tuple[tuple[np.ndarray, ...], dict[int, Exception]]:
        """Return the images, and a dict from the indexes of the items that cannot be decoded to their errors."""
        files, errors, flipped = list[File](), dict[int, Exception](), np.zeros(len(items), np.bool_)
        for place, (item, _) in enumerate(items):
            try:
                files.append(self._map.encoded(item))
            except Exception as error:
                errors[place] = error
                files.append(None)

        def boxes_of(sizes: np.ndarray) -> Boxes:
            boxes, without = np.zeros((len(items), 4), np.int64), dict[int, Exception]()
            for place, size in enumerate(map(tuple, sizes.tolist())):
                if size[0]:
                    rng = self._rng(items[place]) if self._map.draws else None
                    try:
                        boxes[place], flipped[place] = self._map.box_of(size, rng), self._map.coin(rng)
                    except Exception as error:
                        without[place] = error
            return boxes, without

        images = tuple(aligned(self._shape, np.uint8) for _ in items)
        errors |= decode_run(files, boxes_of, flipped, images, self._map.max_pixels, self._map.antialias)
        return images, errors

    def _rng(self, stamped: Stamped) -> Generator:
        """Return the random generator that the map would get for this item."""
        return self._substreams.at(self._key, counter_of(stamped.passport.epoch, stamped.passport.position))
