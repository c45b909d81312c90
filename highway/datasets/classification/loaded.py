"""Base class of datasets whose images and labels are loaded into memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from highway.datasets.opened import opened
from highway.errors import DatasetError
from highway.renamed import new_method
from highway.stores.file import exists, fingerprint_of
from highway.stores.url import join, shown

Split = Literal["train", "test"]


@dataclass
class LoadedImages(ABC):
    """Base class of datasets of labelled images in memory. A sample is a dict: an image and its labels."""

    data_dir: str
    split: Split = "train"

    @abstractmethod
    def _files(self) -> list[str]:
        """Return the paths of the files. Raises FileNotFoundError."""

    @abstractmethod
    def _load(self) -> dict[str, np.ndarray]:
        """Return a dict from field names to arrays. The images are the first field."""

    @opened
    def _arrays(self) -> dict[str, np.ndarray]:
        return self._load()

    def __len__(self) -> int:
        return len(self._arrays["image"])

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        arrays = self._arrays
        rows = zip(*(array[numbers] for array in arrays.values()), strict=True)
        return [dict(zip(arrays, row, strict=True)) for row in rows]

    def mean_image(self, splits: Sequence[Split] = ()) -> np.ndarray:
        """Return the mean of all images.

        Args:
            splits: The splits whose images are averaged. The default is the split of this dataset. (The default of tensorpack's
                ``get_per_pixel_mean()`` is ``["train", "test"]``.)

        Returns:
            float32 ``(H, W, C)``, from 0 to 255. ``mean_image().mean(axis=(0, 1))`` is the mean of each channel.

        Raises:
            FileNotFoundError: a file does not exist.
            DatasetError: a file is damaged or truncated.
            DatasetError: there are no images.
        """
        images = [(self if split == self.split else replace(self, split=split))._arrays["image"] for split in splits or [self.split]]
        if not (count := sum(map(len, images))):
            raise DatasetError(f"{shown(self.data_dir)}: there are no images, so there is no mean image")
        return np.asarray(sum(part.sum(axis=0, dtype=np.uint64) for part in images) / count, np.float32)

    if not TYPE_CHECKING:  # hidden from type checkers, which accept misspelt names in a class with __getattr__

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError. If ``name`` is a method of tensorpack, the error names the corresponding method of highway."""
            if advice := new_method(name):
                raise AttributeError(f"{type(self).__name__} has no {name}{advice}", name=name, obj=self)
            return object.__getattribute__(self, name)  # this raises the error

    def locate(self, number: int) -> str:
        """Return the folder and the index of an image."""
        return f"{shown(self.data_dir)}: image {number} of {self.split}"

    def fingerprint(self) -> str:
        """Return a string that changes when one of the files is written to."""
        return fingerprint_of((path, path) for path in self._files())


def found(folders: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the path of the first file that exists, or ``None``. All names are tried in a folder before the next folder."""
    return next((path for folder in folders for name in names if exists(path := join(folder, name))), None)


def missing(data_dir: str, names: Sequence[str], what: str) -> FileNotFoundError:
    """Return an error for a missing file. The message explains that highway does not download the file."""
    return FileNotFoundError(
        f"{shown(data_dir)!r}: found no {' or '.join(names)} in this folder or its usual subfolders; download and unpack {what} "
        f"(highway does not download data)"
    )


def checked_labels(labels: np.ndarray, classes: int, path: str) -> np.ndarray:
    """Return labels as int32.

    Raises:
        DatasetError: a label is negative, or not below the number of classes.
    """
    if labels.size and not (labels.min() >= 0 and labels.max() < classes):
        raise DatasetError(f"{shown(path)}: the labels are from {labels.min()} to {labels.max()}; expected labels from 0 to {classes - 1}")
    return labels.astype(np.int32)
