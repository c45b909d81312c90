"""What Parquet, Arrow and Hugging Face have in common: rows by number, each a dict."""

from __future__ import annotations

import glob
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from highway.datasets.dataset import LazyKeys
from highway.datasets.file import fingerprint_of
from highway.datasets.opened import opened
from highway.datasets.paths import files_of, stored
from highway.parameters.ranges import Count
from highway.stores.url import is_url, shown, without_options

if TYPE_CHECKING:
    from highway.datasets.tables.table import Table


class OfTable(ABC):
    """Rows of a table by number."""

    @abstractmethod
    def _opened(self) -> Table:
        """Open the table."""

    @opened
    def _table(self) -> Table:
        return self._opened()

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self._table.samples([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return several samples; what is read as a whole is read once for all of them."""
        return self._table.samples(numbers)

    @property
    def keys(self) -> Sequence[str]:
        """The samples' keys: the values of their column, or else the numbers of the rows."""
        return LazyKeys(self._table.key, len(self))

    @property
    def classes(self) -> list[str] | None:
        """The names of the labels, if Hugging Face has written them down."""
        return self._table.classes

    def blocks(self) -> list[range]:
        """Return the numbers of the rows that are read together: row groups, record batches."""
        return self._table.blocks()

    def locate(self, number: int) -> str:
        """Return the file of a sample, and the number of its row there."""
        return self._table.locate(number)


@dataclass
class OfTables(OfTable):
    """The rows of several files; the parameters that such datasets share."""

    suffixes: ClassVar[tuple[str, ...]]

    paths: str | list[str]
    fields: dict[str, str] | None = None
    key: str | None = None
    nulls: dict[str, Any] | None = None
    cache_mb: Count = 1024

    @property
    def files(self) -> list[str]:
        """The files' paths, as they are found now."""
        paths = [self.paths] if isinstance(self.paths, str) else self.paths
        return [file for path in paths for file in self._files_at(path)]

    def _files_at(self, path: str) -> Sequence[str]:
        return files_at(path, self.suffixes)

    def fingerprint(self) -> str:
        """Return a text that changes when files are added, removed, renamed or written to, or other fields are read."""
        return f"{fingerprint_of((path, path) for path in self.files)} {self.fields} {self.key} {self.nulls}"


def files_at(path: str, suffixes: Sequence[str]) -> list[str]:
    """Return the files in a folder, or else those that a path stands for: braces and patterns are written out.

    Raises:
        FileNotFoundError: there are none.
    """
    if is_url(path):
        name = without_options(path)
        return files_of(path) if glob.has_magic(name) or name.endswith(tuple(suffixes)) else _stored(path, suffixes)
    if not os.path.isdir(path):
        return files_of(path)
    if not (names := sorted(name for name in os.listdir(path) if name.endswith(tuple(suffixes)))):
        raise FileNotFoundError(f"{path!r}: no file in this folder ends in {' or '.join(suffixes)}")
    return [os.path.join(path, name) for name in names]


def _stored(folder: str, suffixes: Sequence[str]) -> list[str]:
    if not (found := [url for url in stored(folder) if without_options(url).endswith(tuple(suffixes))]):
        raise FileNotFoundError(f"{shown(folder)!r}: no object in this folder ends in {' or '.join(suffixes)}")
    return found
