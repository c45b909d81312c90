"""Readers read the samples of datasets by index, and yield batches or single samples."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from highway.datasets.dataset import Dataset
from highway.datasets.folder import Files, ImageFolder
from highway.datasets.mixing.mixed import opened_parts
from highway.datasets.opening import open_images
from highway.engine.ragged import RaggedOptions
from highway.errors import ConfigError
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Count, Epochs, Shape
from highway.reading.batch_formats import BatchFormat, Stacked
from highway.reading.deal import Deal as Deal
from highway.reading.decode import DecodeOptions
from highway.reading.images import DecodedImages, number_of_classes
from highway.reading.loader import stages_of
from highway.reading.sampling import Batching


@dataclass
class _OfDataset:
    dataset: Dataset
    batch_size: Count | None = None
    epochs: Epochs = None


@checked
@dataclass
class Reader(RaggedOptions, Batching, _OfDataset):
    """Read a dataset by index, and yield batches or single samples.

    A dataset is any object with ``__len__`` and ``__getitem__``, such as the datasets of :mod:`highway.datasets`, a PyTorch or Hugging Face
    dataset, a list, or an array. ``highway.open`` opens a path or URL as a dataset. The outputs do not depend on the number of workers, and
    the order of an epoch does not depend on the number of ranks. If a sample cannot be read, an error names the sample and ends the run.
    With ``on_error="skip"``, the next sample of the epoch replaces the bad sample in its batch. If the reader yields single samples, the
    bad sample is skipped.

    Args:
        dataset: The dataset, or its path or URL. Several threads call the dataset at the same time. If the dataset is not thread-safe, pass
            ``num_workers=1`` and no ``timeout``.
        batch_size: Number of samples per batch, at least 1. ``None`` yields single samples.
        epochs: Number of passes over the dataset, or ``None`` to repeat indefinitely.
        ragged: How to batch ragged fields, whose first axis differs in length from sample to sample: ``"pad"``, ``"offsets"`` or
            ``"list"``. For this parameter and the next four parameters, see :class:`~highway.modules.batching.Batch`.
        fields: The ragged fields, by name or index. ``None``: all fields that have at least one axis.
        multiple: The length of a padded field is rounded up to a multiple of this number.
        pad_to: A fixed length of padded fields, as one number, or as a dict from fields to numbers.
        fill: Padding value, as one number, or as a dict from fields to numbers.

    Yields:
        The samples of the dataset, or batches. A batch is a tuple, list or dict like the samples, with a new first axis in each field. The
        passport (the metadata of an item) contains the epoch, the index of the batch or sample, and the keys of the samples. The index
        counts the items of all ranks together.

    Raises:
        ConfigError: a parameter is out of its range, or does not fit the dataset or the ranks.
        DatasetError: the dataset has changed, is empty, or has fewer samples than its length.
        ValueError: the samples of a batch differ in their fields, shapes or dtypes; or there are too few samples for a batch.
        Exception: the dataset raised this error for a sample. A note names the sample.

    >>> from highway import Pipeline
    >>> with Pipeline([Reader([10, 11, 12, 13], batch_size=2, shuffle=False)]) as pipeline:
    ...     pipeline.dequeue()
    array([10, 11], dtype=int32)
    """

    def __post_init__(self) -> None:
        RaggedOptions.__post_init__(self)
        Batching.__post_init__(self)
        require(self.ragged is None or self.has_size, self, "ragged", "None, or a batch_size")
        if isinstance(self.dataset, bytes):
            raise ConfigError(f"Reader: dataset={self.dataset!r} is bytes; write a path as text, such as {os.fsdecode(self.dataset)!r}")

    def open(self) -> Dataset:
        """Return the dataset."""
        return opened_parts(self.dataset)

    def batch_format(self, dataset: Dataset) -> BatchFormat:
        """Return the format of the batches."""
        return Stacked(self)


def images_at(data_dir: str | Dataset, folder: Callable[[str], Dataset]) -> Dataset:
    """Return the dataset for the parameter ``data_dir``. ``folder`` creates the dataset if the parameter is a folder."""
    return open_images(data_dir, folder) if isinstance(data_dir, str) else opened_parts(data_dir)


@dataclass
class _OfImages:
    data_dir: str | Dataset
    batch_size: Count | None = None
    shape: Shape | None = None  # moves this parameter of DecodeOptions to the third position
    epochs: Epochs = None


@checked
@dataclass
class ImageReader(DecodeOptions, Batching, _OfImages):
    """Read images and yield batches without labels.

    The images are decoded directly into the batch, on all cores. Crops and flips depend on the seed and on the position of the image in the
    epoch, not on the rank that reads the image. For the order, ranks and skipped samples, see :class:`Reader`.

    Args:
        data_dir: A folder of images; files of any format that ``highway.open`` reads, such as ``photos-{000..015}.tar``; or a dataset of
            encoded images. Samples of the dataset are ``bytes``, tuples with the image as the first field, or dicts with a field such as
            ``image`` or ``jpg``. ``highway:photos/train/...`` and ``highway:photos/val/...`` are folders of the highway package.
        batch_size: Number of images per batch, at least 1. Pass this number or ``global_batch_size``.
        shape: Height and width in pixels. Each image is scaled and centre-cropped to this shape. Without ``shape`` and ``crop``, every
            image keeps its own size.
        epochs: Number of passes over the images, or ``None`` to repeat indefinitely.
        crop: A crop, such as ``RandomResizedCrop((224, 224))``. It draws a random box of each image. Only this box is decoded and scaled to
            the shape of the crop.
        flip: Probability, 0 to 1, of mirroring an image left to right.
        antialias: Whether to average all source pixels of an output pixel if the image becomes smaller. This is slower, but the result is
            smoother.
        max_pixels: Maximum number of pixels (height x width) of an image, as declared in its header. A larger image raises an error.

    Yields:
        Tuples ``(images,)``. The images are uint8 ``(B, H, W, 3)`` in RGB, or a list of B arrays ``(H, W, 3)`` if they keep their own
        sizes. The passport (the metadata of a batch) contains the keys: the paths of the files, relative to ``data_dir``, or the keys of
        the dataset.

    Raises:
        ConfigError: a parameter is out of its range, or ``shape`` differs from the shape of ``crop``.
        FileNotFoundError: the folder does not exist or has no images (raised on the first item, not in the constructor).
        ImageError: a file is not an image, or is damaged, truncated or too large (when it is read).
        TypeError: a sample of the dataset has no encoded image.

    >>> with Pipeline([ImageReader("highway:photos/val/cat", 2, (64, 64))]) as pipeline:
    ...     (images,) = pipeline.dequeue()
    >>> images.shape
    (2, 64, 64, 3)
    """

    yields_samples: ClassVar = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.crop is not None and self.shape is not None and tuple(self.shape) != tuple(self.crop.shape):
            raise ConfigError(f"{type(self).__name__}: shape={self.shape}, but {self.crop} has the shape {self.crop.shape}; remove shape")

    def open(self) -> Dataset:
        """Return the dataset."""
        return images_at(self.data_dir, Files)

    def batch_format(self, dataset: Dataset) -> BatchFormat:
        """Return the format of the batches."""
        return DecodedImages(self, labelled=False)

    def stages(self) -> list[Any]:
        return stages_of(self, "decode")


@checked
@dataclass
class ImageFileReader(ImageReader):
    """Read labelled images and yield batches.

    A label is the index of its folder's name in the sorted list of the folder names (:attr:`classes`). An image in a subfolder of a label
    folder has the label of this folder. All arguments except ``data_dir`` and ``one_hot`` are the same as for :class:`ImageReader`.

    Args:
        data_dir: A folder with one folder per label; files of any format that ``highway.open`` reads, such as shards with ``.jpg`` and
            ``.cls``; or a dataset whose samples are ``(encoded image, label)`` or dicts with these two fields.
        one_hot: Whether labels are one-hot rows instead of integers.

    Yields:
        Tuples ``(images, labels)``. The images have the same form as from :class:`ImageReader`. The labels are int32 ``(B,)``. With
        ``one_hot``, they are float32 ``(B, number of classes)``.

    >>> from highway import Pipeline
    >>> reader = ImageFileReader("highway:photos/val", 16, (64, 64))
    >>> with Pipeline([reader]) as p:
    ...     images, labels = p.dequeue()
    >>> images.shape, labels.dtype, reader.classes[:3]
    ((16, 64, 64, 3), dtype('int32'), ['astronaut', 'brick', 'cat'])
    """

    one_hot: bool = False

    def open(self) -> Dataset:
        return images_at(self.data_dir, ImageFolder)

    def batch_format(self, dataset: Dataset) -> BatchFormat:
        return DecodedImages(self, labelled=True, classes=number_of_classes(dataset) if self.one_hot else None)

    @property
    def classes(self) -> list[str]:
        """The names of the labels, indexed by label. Each access opens the dataset and reads them."""
        return list(getattr(self.open(), "classes"))  # noqa: B009  # the protocol has no such attribute
