"""Images and labels that are in memory as arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from highway.datasets.file import fingerprint_of
from highway.datasets.opened import opened
from highway.errors import DatasetError
from highway.stores.file import exists
from highway.stores.url import join, shown

Split = Literal["train", "test"]


@dataclass
class LoadedImages(ABC):
    """What labelled images in memory have in common: a sample is a row of each array, as a dict."""

    data_dir: str
    split: Split = "train"

    @abstractmethod
    def _files(self) -> list[str]:
        """Return the paths of the files. Raises FileNotFoundError."""

    @abstractmethod
    def _load(self) -> dict[str, np.ndarray]:
        """Return the arrays, of which the first are the images."""

    @opened
    def _arrays(self) -> dict[str, np.ndarray]:
        return self._load()

    def __len__(self) -> int:
        return len(self._arrays["image"])

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return several samples."""
        arrays = self._arrays
        rows = zip(*(array[numbers] for array in arrays.values()), strict=True)
        return [dict(zip(arrays, row, strict=True)) for row in rows]

    def locate(self, number: int) -> str:
        """Return the folder, and the number of an image."""
        return f"{shown(self.data_dir)}: image {number} of {self.split}"

    def fingerprint(self) -> str:
        """Return a text that changes when one of the files is written to."""
        return fingerprint_of((path, path) for path in self._files())


def found(folders: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the path of the first file that there is of these names, in the first of the folders that has one."""
    return next((path for folder in folders for name in names if exists(path := join(folder, name))), None)


def missing(data_dir: str, names: Sequence[str], what: str) -> FileNotFoundError:
    """Return an error that says which file there is not, and that nobody fetches it."""
    return FileNotFoundError(
        f"{shown(data_dir)!r}: no {' or '.join(names)} there or in the folders that they are usually in; download {what} and unpack it: "
        "highway does not"
    )


def checked_labels(labels: np.ndarray, classes: int, path: str) -> np.ndarray:
    """Return labels as int32.

    Raises:
        DatasetError: one of them is not below the number of classes.
    """
    if labels.size and not (labels.min() >= 0 and labels.max() < classes):
        raise DatasetError(f"{shown(path)}: it has labels from {labels.min()} to {labels.max()}; expected 0 to {classes - 1}")
    return labels.astype(np.int32)
