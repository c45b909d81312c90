"""Readers of image folders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from highway.data import resolve_data_dir
from highway.datasets.folder import ImageFiles, flat_files, label_names, labelled_files
from highway.engine.stage import Stage
from highway.errors import ConfigError
from highway.parameters.checks import checked
from highway.parameters.ranges import Count, Epochs, Seed, Shape
from highway.reading.decode import DecodeOptions
from highway.reading.loader import Fill, Images, RowRanges


@dataclass
class _OfFolder:
    data_dir: str
    batch_size: Count
    shape: Shape | None = None  # one of DecodeOptions, but third among the arguments
    epochs: Epochs = None
    shuffle: bool = True
    seed: Seed | None = None
    drop_last: bool = False
    num_workers: Count | None = None


@checked
@dataclass
class ImageReader(DecodeOptions, _OfFolder):
    """Read the images of one folder and yield batches without labels.

    Batches are the same, bit for bit, for any number of workers. An image that cannot be read ends the run with an error that names the
    file; with ``on_error="skip"`` its row holds the next image in the epoch's order instead, and the passport's keys say so. Such a file
    counts once in each epoch (``skipped``, ``max_errors``), and is not read again in it.

    Args:
        data_dir: The folder. ``highway:photos/...`` stands for photographs that come with the package.
        batch_size: Images per batch, at least 1.
        shape: Height and width in pixels; each image is scaled and centre-cropped to it. Without it, and without ``crop``, every image
            keeps its own size.
        epochs: Passes over the files, or ``None`` to repeat for ever.
        shuffle: Whether each epoch has an order of its own; else that of the paths.
        seed: What the orders, the crops and the flips derive from, at least 0; ``None``: the pipeline's seed.
        drop_last: Whether to leave out an epoch's last batch if it is smaller than the others.
        num_workers: Threads that read and decode, as in ``Stage(reader, num_workers=...)``, which goes first; ``None`` means the cores that
            this process may use.
        crop: Draws the box of each image that is decoded and scaled to the crop's shape, such as ``RandomResizedCrop((224, 224))``.
        flip: Probability, 0 to 1, that an image is mirrored left to right.
        antialias: Whether to average over all pixels that fall together where an image shrinks; slower, smoother.
        max_pixels: Greatest height x width that a file may announce.

    Yields:
        ``(images,)``: uint8 ``(B, H, W, 3)`` in RGB; if they keep their own sizes, a list of B arrays ``(H, W, 3)``. The passport's keys
        are the files' paths, relative to ``data_dir``.

    Raises:
        ConfigError: a parameter is out of its range, or ``shape`` is not that of ``crop``.
        FileNotFoundError: there is no such folder, or no images in it (on the first item, not here).
        ImageError: a file is no image, is damaged or cut short, or too large (when it is read).
    """

    def __post_init__(self) -> None:
        if self.crop is not None and self.shape is not None and tuple(self.shape) != tuple(self.crop.shape):
            raise ConfigError(f"{type(self).__name__}: shape={self.shape}, but {self.crop} gives {self.crop.shape}; leave out shape")

    def files(self) -> ImageFiles:
        """List the files in the order of their paths."""
        return flat_files(resolve_data_dir(self.data_dir))

    def item(self, images: Images, labels: np.ndarray, classes: int) -> tuple[Any, ...]:
        """Return what is yielded of a batch, whose ``labels`` are int32 ``(B,)``, below ``classes``."""
        return (images,)

    def stages(self) -> list[Any]:
        return [Stage(RowRanges(self), name="row_ranges"), Stage(Fill(self), num_workers=self.num_workers, name="decode")]


@checked
@dataclass
class ImageFileReader(ImageReader):
    """Read labelled images from one folder per label and yield batches.

    Labels are numbered in the sorted order of the folders' names (:attr:`classes`). Images in folders below a label's folder belong to it.
    Everything else, the other arguments included, is as for :class:`ImageReader`.

    Args:
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

    def files(self) -> ImageFiles:
        return labelled_files(resolve_data_dir(self.data_dir))

    def item(self, images: Images, labels: np.ndarray, classes: int) -> tuple[Any, ...]:
        return images, np.eye(classes, dtype=np.float32)[labels] if self.one_hot else labels

    @property
    def classes(self) -> list[str]:
        """The labels' names, read from the folder each time; a label's number is its position."""
        return label_names(resolve_data_dir(self.data_dir))
