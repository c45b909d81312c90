"""Samples to the rows of batches: what memory a batch has, how a run of rows is filled, and what item comes out in the end.

Each of these classes is a way to do so (:class:`BatchFormat`). One object serves all batches of a run, and many threads at once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.random import Generator

from highway.datasets.dataset import Dataset
from highway.engine.batch import Item, collate, fields
from highway.engine.cancel import check_cancelled
from highway.errors import ConfigError, ImageError
from highway.images.buffers import BufferPool
from highway.process.aligned import aligned, aligned_copy
from highway.reading.decode import DecodeOptions

_NO_IMAGE = np.empty((0, 0, 3), np.uint8)
_IMAGE_FIELDS = ("image", "jpg", "jpeg", "png", "webp", "bmp", "ppm", "tif", "tiff", "gif")
_LABEL_FIELDS = ("label", "cls", "class", "fine_label")

RngOf = Callable[[int], Generator | None]


class BatchFormat(Protocol):
    """How the samples of a batch become one item."""

    def memory(self, length: int) -> Any:
        """Return what a batch of so many rows is filled in."""

    def fill(self, memory: Any, first: int, samples: Sequence[Any], rng_of: RngOf) -> None:
        """Fill a run of rows.

        Args:
            memory: The batch's.
            first: The first of the rows.
            samples: What the dataset has returned for them.
            rng_of: Returns the generator of one of ``samples``, for use until the next call; ``None`` where nothing is drawn.

        Raises:
            BadRow: the sample of a row cannot be used; the rows before it are filled.
        """

    def item(self, memory: Any) -> Item:
        """Return the batch, when all its rows are filled.

        Raises:
            BadRow: the sample of a row does not fit those of the others. If another one takes its place, this is called again.
        """


class BadRow(Exception):
    """A sample cannot be used.

    Args:
        place: Which of the samples.
        cause: Why.
    """

    def __init__(self, place: int, cause: Exception) -> None:
        super().__init__(place)
        self.place, self.cause = place, cause


class Stacked:
    """Arrays of one shape, stacked; or with ``as_list`` the lists of the samples' values."""

    def __init__(self, as_list: bool = False) -> None:
        self._as_list = as_list

    def memory(self, length: int) -> list[Any]:
        return [None] * length

    def fill(self, memory: list[Any], first: int, samples: Sequence[Any], rng_of: RngOf) -> None:
        memory[first : first + len(samples)] = samples
        for place, sample in enumerate(samples):
            if sample is None:
                raise BadRow(place, TypeError("the dataset has returned None; expected a sample"))

    def item(self, memory: list[Any]) -> Item:
        try:
            return collate(memory, self._as_list)
        except ValueError as error:
            raise _odd_one(memory, error) from error


class _Images:
    """The images of a batch while they are decoded, and their labels."""

    def __init__(self, length: int, images: np.ndarray | list[np.ndarray]) -> None:
        self.images, self.labels = images, aligned((length,), np.int32)


class DecodedImages:
    """Images, decoded straight into their rows.

    Args:
        options: What becomes of an image.
        labelled: Whether samples have labels, and batches too.
        classes: How many labels there are, if each goes out as a row with a one at its number; ``None``: as the number.
    """

    def __init__(self, options: DecodeOptions, labelled: bool, classes: int | None = None) -> None:
        self._options, self._labelled, self._classes = options, labelled, classes
        self._shape = options.output_shape
        self._pool: BufferPool | None = None

    def memory(self, length: int) -> _Images:
        if self._shape is None:
            return _Images(length, [_NO_IMAGE] * length)
        if (size := length * math.prod(self._shape) * 3) > (self._pool.nbytes if self._pool else 0):
            self._pool = BufferPool(size)  # the first batch is as large as any, but where a run goes on in the middle
        assert self._pool is not None
        return _Images(length, self._pool.take((length, *self._shape, 3)))

    def fill(self, memory: _Images, first: int, samples: Sequence[Any], rng_of: RngOf) -> None:
        images, decoded = memory.images, self._options.decoded
        for place, sample in enumerate(samples):
            check_cancelled()
            try:
                data, label = image_and_label(sample, self._labelled)
                if isinstance(images, np.ndarray):
                    decoded(data, rng_of(place), images[first + place])
                else:
                    images[first + place] = decoded(data, rng_of(place))
                if self._labelled:
                    memory.labels[first + place] = label
            except ValueError as error:
                raise BadRow(place, ImageError(str(error))) from error
            except Exception as error:
                raise BadRow(place, error) from error

    def item(self, memory: _Images) -> tuple[Any, ...]:
        images, memory.images = memory.images, []  # others may still hold the batch
        if not self._labelled:
            return (images,)
        labels = memory.labels
        return images, labels if self._classes is None else aligned_copy(np.eye(self._classes, dtype=np.float32)[labels])


class EncodedImages:
    """Images as they are stored: their bytes one after the other, how many each has, and the labels."""

    def memory(self, length: int) -> list[Any]:
        return [None] * length

    def fill(self, memory: list[Any], first: int, samples: Sequence[Any], rng_of: RngOf) -> None:
        for place, sample in enumerate(samples):
            try:
                memory[first + place] = image_and_label(sample, True)
            except Exception as error:
                raise BadRow(place, error) from error

    def item(self, memory: list[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        contents, labels = zip(*memory, strict=True)
        sizes = np.array([len(data) for data in contents], np.int32)
        together = aligned((int(sizes.sum()),), np.uint8)
        np.concatenate([np.frombuffer(data, np.uint8) for data in contents], out=together)
        return together, aligned_copy(sizes), aligned_copy(np.array(labels, np.int32))


def _odd_one(samples: Sequence[Any], error: ValueError) -> BadRow:
    """Return which sample of a batch that cannot be stacked, because of an ``error``, is not like most others."""
    forms: list[str] = []
    for row, sample in enumerate(samples):
        try:
            forms.append(_form(sample))
        except ValueError as own:
            return BadRow(row, own)
    (usual, _), *others = Counter(forms).most_common()
    if not others:
        raise error
    row = next(row for row, form in enumerate(forms) if form != usual)
    way_out = "make them alike, or say batch_size=None and batch them behind what does so"
    return BadRow(row, ValueError(f"the sample is {forms[row]}, but others of its batch are {usual}; {way_out}"))


def _form(sample: Any) -> str:
    """Return what has to be the same in all samples of a batch, in words."""
    arrays = [array[0] for array in fields(collate([sample]))]
    parts = ["str or object" if array.dtype.kind in "USO" else f"{array.dtype} {array.shape}" for array in arrays]
    if isinstance(sample, dict):
        parts = [f"{name!r}: {part}" for name, part in zip(sample, parts, strict=True)]
    return f"{type(sample).__name__} ({', '.join(parts)})" if isinstance(sample, (dict, tuple, list)) else parts[0]


def image_and_label(sample: Any, labelled: bool) -> tuple[bytes, Any]:
    """Return the encoded image of a sample, and its label; ``None`` if it is not ``labelled``.

    Args:
        sample: A tuple or list ``(image, label, ...)``, a dict with a field such as ``image`` or ``jpg``, and ``label`` or ``cls``, or an
            image alone. An image is ``bytes``, or as Hugging Face keeps it a dict with ``bytes``.
        labelled: Whether it must have a label.

    Raises:
        TypeError: it is none of that.
    """
    if isinstance(sample, dict):
        image = next((sample[name] for name in _IMAGE_FIELDS if name in sample), None)
        label = next((sample[name] for name in _LABEL_FIELDS if name in sample), None)
    elif isinstance(sample, (tuple, list)):
        image, label = (*sample, None, None)[:2]
    else:
        image, label = sample, None
    if isinstance(image, dict):
        image = image.get("bytes")
    if isinstance(image, (bytes, bytearray, memoryview)) and (label is not None or not labelled):
        return bytes(image), label
    expected = "(encoded image, label)" if labelled else "(encoded image,)"
    way_out = "; for Hugging Face, cast_column('image', Image(decode=False)) leaves images encoded"
    raise TypeError(f"the sample is {_described(sample)}; expected {expected}{way_out if isinstance(sample, dict) else ''}")


def _described(sample: Any) -> str:
    if isinstance(sample, dict):
        return f"a dict with {', '.join(f'{name!r}: {type(value).__name__}' for name, value in sample.items())}"
    if isinstance(sample, (tuple, list)):
        return f"({', '.join(type(value).__name__ for value in sample)})"
    return f"of type {type(sample).__name__}"


def number_of_classes(dataset: Dataset) -> int:
    """Return how many labels a dataset has.

    Raises:
        ConfigError: it does not say.
    """
    classes = getattr(dataset, "classes", None)
    if classes is None:
        raise ConfigError(f"one_hot=True needs to know how many labels there are, but {type(dataset).__name__} has no attribute classes")
    return len(classes)
