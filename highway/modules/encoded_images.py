"""Read and decode batches of encoded image files. One machine can read the files, and other machines can decode them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from highway.datasets.dataset import Dataset
from highway.datasets.folder import ImageFolder
from highway.engine.cancel import check_cancelled
from highway.engine.component import Traits
from highway.engine.randomness import of_rows
from highway.errors import ConfigError, ImageError
from highway.modules.readers import images_at
from highway.parameters.checks import checked
from highway.parameters.ranges import HOW, Count, Epochs
from highway.process.aligned import aligned, aligned_copy
from highway.reading.batch_formats import BatchFormat
from highway.reading.decode import DecodeOptions
from highway.reading.images import EncodedImages
from highway.reading.sampling import Batching


@dataclass
class _OfFiles:
    data_dir: str | Dataset
    batch_size: Count | None = None
    epochs: Epochs = None


@checked
@dataclass
class EncodedImageReader(Batching, _OfFiles):
    """Read labelled image files from one folder per label, and yield batches of encoded images for :class:`DecodeBatch`.

    With the same seed, the batches contain the same files as the batches of :class:`ImageFileReader`. This stage does not decode, so one
    machine can feed many other machines.

    Args:
        data_dir: A folder with one folder per label, files of another format, or a dataset with samples ``(encoded image, label)``, as for
            :class:`ImageFileReader`. ``highway:photos/train`` and ``highway:photos/val`` are folders of the highway package.
        batch_size: Number of images per batch, at least 1. Pass this number or ``global_batch_size``.
        epochs: Number of passes over the images, or ``None`` to repeat indefinitely.
        num_workers: Number of threads that read files, at least 1. ``Stage(reader, num_workers=...)`` overrides this number. More threads
            help if opening a file is slow.

    Yields:
        Tuples ``(data, sizes, labels)``. ``data``, uint8 ``(N,)``, contains the concatenated bytes of all files. ``sizes``, int32 ``(B,)``,
        contains the size of each file in bytes. ``labels`` is int32 ``(B,)``. The passport (the metadata of a batch) contains the keys: the
        paths of the files, relative to ``data_dir``.

    Raises:
        ConfigError: a parameter is out of its range.
        OSError: the folder does not exist, a folder has no images, or a file cannot be read (when running).

    >>> reader = EncodedImageReader("highway:photos/val", 16)
    >>> with Pipeline([reader, DecodeBatch((64, 64))]) as pipeline:
    ...     images, labels = pipeline.dequeue()
    >>> images.shape
    (16, 64, 64, 3)
    """

    yields_samples: ClassVar = False

    num_workers: Annotated[Count | None, HOW] = 4

    def open(self) -> Dataset:
        """Return the dataset."""
        return images_at(self.data_dir, ImageFolder)

    def batch_format(self, dataset: Dataset) -> BatchFormat:
        """Return the format of the batches."""
        return EncodedImages()


@checked
@dataclass
class DecodeBatch(DecodeOptions):
    """Decode the files of a batch from :class:`EncodedImageReader`. The reader can run on another machine.

    Args:
        shape: Height and width in pixels. Each image is scaled and centre-cropped to this shape. Pass either ``shape`` or ``crop``.
        crop: A crop, such as ``RandomResizedCrop((224, 224))``. It draws a random box of each image. Only this box is decoded and scaled to
            the shape of the crop.
        flip: Probability, 0 to 1, of mirroring an image left to right.
        antialias: Whether to average all source pixels of an output pixel if the image becomes smaller. This is slower, but the result is
            smoother.
        max_pixels: Maximum number of pixels (height x width) of an image, as declared in its header. A larger image raises an error.

    Returns:
        A tuple ``(images, labels)``. The images are uint8 ``(B, H, W, 3)`` in RGB. The labels are int32 ``(B,)``.

    Raises:
        ConfigError: a parameter is out of its range, or both or neither of ``shape`` and ``crop`` are given.
        ImageError: a file is not an image, or is damaged, truncated or too large. With ``on_error="skip"``, the whole batch is dropped.
        ValueError: the item is not a batch of files.

    >>> from highway import Pipeline
    >>> with Pipeline([EncodedImageReader("highway:photos/val", 16), DecodeBatch((64, 64))]) as p:
    ...     images, labels = p.dequeue()
    >>> images.shape, labels.dtype
    ((16, 64, 64, 3), dtype('int32'))
    """

    def __post_init__(self) -> None:
        if (self.shape is None) == (self.crop is None):
            raise ConfigError(f"DecodeBatch: shape={self.shape}, crop={self.crop}; expected exactly one of these parameters")

    def __highway__(self) -> Traits:
        return Traits(makes="batches", parallel=True, draws=self.draws)

    def __call__(self, item: tuple[np.ndarray, np.ndarray, np.ndarray], rng: Generator) -> tuple[np.ndarray, np.ndarray]:
        files, labels = _files(item)
        images = aligned((len(files), *(self.output_shape or ()), 3), np.uint8)
        of_row = of_rows(rng, len(files))
        for row, data in enumerate(files):
            check_cancelled()
            try:
                self.decoded(data.tobytes(), of_row(row), images[row])
            except ImageError as error:
                error.add_note(f"image {row} of a batch of {len(files)}")
                raise
        return images, aligned_copy(labels)  # labels that were received from another process might not be aligned


def _files(item: tuple[np.ndarray, np.ndarray, np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the bytes of each file of a batch, and the labels."""
    expected = "expected a batch of EncodedImageReader, (data, sizes, labels)"
    if not isinstance(item, tuple) or len(item) != 3:
        raise ValueError(f"DecodeBatch: got a {type(item).__name__}{f' of {len(item)}' if isinstance(item, tuple) else ''}; {expected}")
    data, sizes, labels = item
    if len(sizes) != len(labels) or sizes.min(initial=0) < 0 or sizes.sum() != len(data):
        raise ValueError(
            f"DecodeBatch: {len(data)} bytes, {len(sizes)} sizes with a sum of {sizes.sum()}, {len(labels)} labels; {expected}"
        )
    return np.split(data, np.cumsum(sizes)[:-1]), labels
