"""Readers: what can be read by number, in batches or one by one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from highway.datasets.dataset import Dataset
from highway.datasets.folder import Files, ImageFolder
from highway.datasets.mixing.mixed import opened_parts
from highway.datasets.opening import open_images
from highway.engine.ragged import RaggedOptions
from highway.errors import ConfigError
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Count, Epochs, Shape
from highway.reading.batch_formats import BatchFormat, Stacked
from highway.reading.decode import DecodeOptions
from highway.reading.images import DecodedImages, number_of_classes
from highway.reading.loader import stages_of
from highway.reading.sampling import Sampling


@dataclass
class _OfDataset:
    dataset: Dataset
    batch_size: Count | None = None
    epochs: Epochs = None


@checked
@dataclass
class Reader(RaggedOptions, Sampling, _OfDataset):
    """Read a dataset by number, and yield its samples or batches of them.

    A dataset is any object with ``__len__`` and ``__getitem__``: those of :mod:`highway.datasets`, a torch or Hugging Face dataset, a list,
    an array. A path or URL stands for the dataset that ``highway.open`` opens. What comes out is the same for any number of workers, and
    the epoch the same for any number of ranks. A sample that cannot be read ends the run with an error that names it; with
    ``on_error="skip"`` its row holds the next sample of the epoch's order instead, and the passport's keys say so (without ``batch_size``
    it is left out).

    Args:
        dataset: What is read, or its path or URL. It is used by several threads at once; for one that cannot be, say ``num_workers=1``.
        batch_size: Samples per batch, at least 1; ``None`` for samples one by one.
        epochs: Passes over the dataset, or ``None`` to repeat for ever.
        ragged: What becomes of fields whose first axis differs from sample to sample, with ``batch_size``: ``"pad"``, ``"offsets"`` or
            ``"list"``, as in :class:`~highway.modules.batching.Batch`, and so what follows.
        fields: Which fields these are, by name or position; ``None``: all that have an axis.
        multiple: What the length of a padded field is rounded up to a multiple of.
        pad_to: The length of padded fields, for all or by field.
        fill: What stands in the rows of a padded field that are none.

    Yields:
        Samples as the dataset returns them, or batches: tuples, lists or dicts like the samples, with a new first axis in each field.
        Passport: the epoch, the number of the batch (or sample) in it, counted over all ranks, and the samples' keys if it has some.

    Raises:
        ConfigError: a parameter is out of its range, or does not fit the dataset or the other ranks.
        DatasetError: the dataset has changed, or has fewer samples than its length says.
        ValueError: the samples of a batch differ in their fields, shapes or dtypes; or there are none.
        Exception: what the dataset raises for a sample, with a note that says which.

    >>> from highway import Pipeline
    >>> with Pipeline([Reader([10, 11, 12, 13], batch_size=2, shuffle=False)]) as pipeline:
    ...     pipeline.dequeue()
    array([10, 11], dtype=int32)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.ragged is None or self.batch_size is not None, self, "ragged", "None, or a batch_size")
        if isinstance(self.dataset, bytes):
            raise ConfigError(f"Reader: dataset={self.dataset!r} is bytes; write a path as text, such as {os.fsdecode(self.dataset)!r}")

    def open(self) -> Dataset:
        """Return the dataset."""
        return opened_parts(self.dataset)

    def batch_format(self, dataset: Dataset) -> BatchFormat:
        """Return how batches are made."""
        return Stacked(self)


def images_at(data_dir: str | Dataset, folder: Callable[[str], Dataset]) -> Dataset:
    """Return the dataset that a parameter ``data_dir`` stands for; ``folder`` makes that of a folder."""
    return open_images(data_dir, folder) if isinstance(data_dir, str) else opened_parts(data_dir)


@dataclass
class _OfImages:
    data_dir: str | Dataset
    batch_size: Count
    shape: Shape | None = None  # one of DecodeOptions, but third among the arguments
    epochs: Epochs = None


@checked
@dataclass
class ImageReader(DecodeOptions, Sampling, _OfImages):
    """Read images and yield batches without labels.

    The images are decoded straight into their rows, on all cores. Crops and flips derive from the seed and the image's place in the epoch,
    whichever rank reads it. All else is as for :class:`Reader`.

    Args:
        data_dir: A folder of images, files of any format that ``highway.open`` reads, such as ``photos-{000..015}.tar``, or any dataset
            whose samples are encoded images: ``bytes``, tuples of which that is the first field, or dicts with a field such as ``image``
            or ``jpg``. ``highway:photos/...`` stands for photographs that come with the package.
        batch_size: Images per batch, at least 1.
        shape: Height and width in pixels; each image is scaled and centre-cropped to it. Without it, and without ``crop``, every image
            keeps its own size.
        epochs: Passes over the images, or ``None`` to repeat for ever.
        crop: Draws the box of each image that is decoded and scaled to the crop's shape, such as ``RandomResizedCrop((224, 224))``.
        flip: Probability, 0 to 1, that an image is mirrored left to right.
        antialias: Whether to average over all pixels that fall together where an image shrinks; slower, smoother.
        max_pixels: Greatest height x width that a file may announce.

    Yields:
        ``(images,)``: uint8 ``(B, H, W, 3)`` in RGB; if they keep their own sizes, a list of B arrays ``(H, W, 3)``. The passport's keys
        are the files' paths, relative to ``data_dir``, or what the dataset calls its samples.

    Raises:
        ConfigError: a parameter is out of its range, or ``shape`` is not that of ``crop``.
        FileNotFoundError: there is no such folder, or no images in it (on the first item, not here).
        ImageError: a file is no image, is damaged or cut short, or too large (when it is read).
        TypeError: a sample of the dataset holds no encoded image.
    """

    def __post_init__(self) -> None:
        if self.crop is not None and self.shape is not None and tuple(self.shape) != tuple(self.crop.shape):
            raise ConfigError(f"{type(self).__name__}: shape={self.shape}, but {self.crop} gives {self.crop.shape}; leave out shape")

    def open(self) -> Dataset:
        """Return the dataset."""
        return images_at(self.data_dir, Files)

    def batch_format(self, dataset: Dataset) -> BatchFormat:
        """Return how batches are made."""
        return DecodedImages(self, labelled=False)

    def stages(self) -> list[Any]:
        return stages_of(self, "decode")


@checked
@dataclass
class ImageFileReader(ImageReader):
    """Read labelled images and yield batches.

    Labels are numbered in the sorted order of the folders' names (:attr:`classes`). Images in folders below a label's folder belong to it.
    Everything else, the other arguments included, is as for :class:`ImageReader`.

    Args:
        data_dir: A folder that holds one folder per label, files of any format that ``highway.open`` reads, such as shards
            ``photos-{000..015}.tar`` of ``.jpg`` and ``.cls``, or any dataset with samples ``(encoded image, label)`` or dicts of such.
        one_hot: Whether a label is a row of zeros with a one at its number, instead of the number.

    Yields:
        ``(images, labels)``: uint8 ``(B, H, W, 3)`` in RGB, and int32 ``(B,)``, or with ``one_hot`` float32 ``(B, number of classes)``.

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
        """The labels' names, read from the folder each time; a label's number is its position."""
        return list(getattr(self.open(), "classes"))  # noqa: B009  # a protocol does not say so
