"""Make batches from encoded images: decode the images into the rows, or keep them encoded."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from highway.datasets.dataset import Dataset, StoredFiles
from highway.errors import ConfigError, ImageError
from highway.images.buffers import BufferPool
from highway.images.run import File, decode_run
from highway.process.aligned import aligned, aligned_copy
from highway.reading.batch_formats import NO_ERRORS
from highway.reading.decode import DecodeOptions
from highway.reading.draws import Draws

_NO_IMAGE = np.empty((0, 0, 3), np.uint8)
_IMAGE_FIELDS = ("image", "img", "jpg", "jpeg", "png", "webp", "bmp", "ppm", "tif", "tiff", "gif")
_LABEL_FIELDS = ("label", "cls", "class", "fine_label")


class _Images:
    """The images of a batch while they are decoded, and their labels."""

    def __init__(self, length: int, images: np.ndarray | list[np.ndarray]) -> None:
        self.images, self.labels = images, aligned((length,), np.int32)


class DecodedImages:
    """Decodes images into the rows of a batch.

    Args:
        options: How to decode an image.
        labelled: Whether samples and batches have labels.
        classes: Number of classes, for one-hot labels. ``None``: labels are whole numbers.
    """

    takes_files = True

    def __init__(self, options: DecodeOptions, labelled: bool, classes: int | None = None) -> None:
        self._options, self._labelled, self._classes = options, labelled, classes
        self._shape = options.output_shape
        self._pool: BufferPool | None = None

    def memory(self, length: int) -> _Images:
        if self._shape is None:
            return _Images(length, [_NO_IMAGE] * length)
        if (size := length * math.prod(self._shape) * 3) > (self._pool.nbytes if self._pool else 0):
            self._pool = BufferPool(size)  # the first batch has the full size, unless a run resumes at a smaller last batch
        assert self._pool is not None
        return _Images(length, self._pool.take((length, *self._shape, 3)))

    def fill(self, memory: _Images, first: int, samples: Sequence[Any], draws: Draws | None) -> Mapping[int, Exception]:
        options, rows = self._options, slice(first, first + len(samples))
        files, errors = self._files(memory.labels[rows], samples)
        images, flipped = memory.images[rows], options.coins(len(files), draws)
        errors |= decode_run(files, lambda sizes: options.boxes(sizes, draws), flipped, images, options.max_pixels, options.antialias)
        if isinstance(images, list):  # a slice of a list is a copy
            memory.images[rows] = images
        return {place: _of_image(errors[place]) for place in sorted(errors)} if errors else NO_ERRORS

    def _files(self, labels: np.ndarray, samples: Sequence[Any]) -> tuple[list[File], dict[int, Exception]]:
        """Store the labels. Return the encoded images, and by index the errors of samples without a valid image or label."""
        if isinstance(samples, StoredFiles) and (samples.labels is not None or not self._labelled):
            if self._labelled:
                labels[:] = samples.labels
            return list(samples), {}
        files, errors = list[File](), dict[int, Exception]()
        for place, sample in enumerate(samples):
            file: File
            try:
                file, label = image_and_label((b"",) if isinstance(samples, StoredFiles) else sample, self._labelled)
                if self._labelled:
                    labels[place] = label
            except Exception as error:
                file, errors[place] = None, error
            files.append(file)
        return files, errors

    def item(self, memory: _Images) -> tuple[Any, ...]:
        images, memory.images = memory.images, []  # frees the images, even if other objects still refer to ``memory``
        if not self._labelled:
            return (images,)
        labels = memory.labels
        return images, labels if self._classes is None else aligned_copy(np.eye(self._classes, dtype=np.float32)[labels])


class EncodedImages:
    """Keeps images encoded. A batch holds the concatenated bytes, the size of each image, and the labels."""

    takes_files = False

    def memory(self, length: int) -> list[Any]:
        return [None] * length

    def fill(self, memory: list[Any], first: int, samples: Sequence[Any], draws: Draws | None) -> Mapping[int, Exception]:
        errors = dict[int, Exception]()
        for place, sample in enumerate(samples):
            try:
                data, label = image_and_label(sample, True)
                memory[first + place] = bytes(data), label
            except Exception as error:
                errors[place] = error
        return errors

    def item(self, memory: list[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        contents, labels = zip(*memory, strict=True)
        sizes = np.array([len(data) for data in contents], np.int32)
        together = aligned((int(sizes.sum()),), np.uint8)
        np.concatenate([np.frombuffer(data, np.uint8) for data in contents], out=together)
        return together, aligned_copy(sizes), aligned_copy(np.array(labels, np.int32))


def _of_image(error: Exception) -> Exception:
    """Return an ImageError for a ValueError, and any other error unchanged."""
    if not isinstance(error, ValueError):
        return error
    told = ImageError(str(error))
    told.__cause__ = error
    return told


def image_and_label(sample: Any, labelled: bool) -> tuple[bytes | memoryview, Any]:
    """Return the encoded image of a sample and its label. Without ``labelled``, the label is ``None``.

    Args:
        sample: One of three forms: a tuple or list ``(image, label, ...)``; a dict with an image field such as ``image`` or ``jpg`` and a
            label field such as ``label`` or ``cls``; or only an image. The image is ``bytes``, a uint8 array of the bytes of an image file
            (tensorpack), or a dict with a field ``bytes`` (Hugging Face).
        labelled: Whether the sample must have a label.

    Raises:
        TypeError: the sample has none of these forms, or the label is not an integer.
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
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 1:
        image = image.tobytes()
    if isinstance(image, (bytes, bytearray, memoryview)) and (label is not None or not labelled):
        return bytes(image) if isinstance(image, bytearray) else image, _whole(label) if labelled else None
    expected = "(encoded image, label)" if labelled else "(encoded image,)"
    way_out = "; for Hugging Face, use cast_column('image', Image(decode=False)) to keep images encoded"
    raise TypeError(f"the sample is {_described(sample)}; expected {expected}{way_out if isinstance(sample, dict) else ''}")


def _described(sample: Any) -> str:
    if isinstance(sample, dict):
        return f"a dict with {', '.join(f'{name!r}: {type(value).__name__}' for name, value in sample.items())}"
    if isinstance(sample, (tuple, list)):
        return f"({', '.join(type(value).__name__ for value in sample)})"
    return f"of type {type(sample).__name__}"


def _whole(label: Any) -> int:
    try:
        return operator.index(label)
    except TypeError:
        if (number := int(label)) != label:  # an array of int32 would truncate 2.7 to 2
            raise TypeError(f"the label is {label!r}; expected a whole number") from None
        return number


def number_of_classes(dataset: Dataset) -> int:
    """Return the number of labels of a dataset.

    Raises:
        ConfigError: the dataset does not define the number.
    """
    classes = getattr(dataset, "classes", None)
    if classes is None:
        raise ConfigError(f"one_hot=True needs the number of labels, but {type(dataset).__name__} has no attribute classes")
    return len(classes)
