"""What Parquet, Arrow and Hugging Face have in common: rows by number, each a dict."""

from __future__ import annotations

import glob
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from highway.datasets.dataset import LazyKeys
from highway.datasets.opened import opened
from highway.datasets.paths import files_below, files_of
from highway.datasets.tables.partitions import TableFile, table_files
from highway.parameters.ranges import Count
from highway.stores.file import fingerprint_of
from highway.stores.url import is_url, shown, without_options

if TYPE_CHECKING:
    from highway.datasets.tables.table import Table

_HIDDEN = (".", "_")


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
        return [file.path for file in self._found()]

    def _found(self) -> list[TableFile]:
        paths = [self.paths] if isinstance(self.paths, str) else self.paths
        return table_files([(path, self._files_at(path)) for path in paths])

    def _files_at(self, path: str) -> Sequence[str]:
        return files_at(path, self.suffixes)

    def fingerprint(self) -> str:
        """Return a text that changes when files are added, removed, renamed or written to, or other fields are read."""
        return f"{fingerprint_of((path, path) for path in self.files)} {self.fields} {self.key} {self.nulls}"


def files_at(path: str, suffixes: Sequence[str]) -> list[str]:
    """Return the files in a folder and below it, or else those that a path stands for: braces and patterns are written out.

    As pyarrow does, skip files and folders whose names begin with ``.`` or ``_``: they are unfinished, backups or metadata.

    Raises:
        FileNotFoundError: there are none.
    """
    if is_url(path):
        name = without_options(path)
        if glob.has_magic(name) or _ends(name, suffixes):
            return files_of(path)
        from highway.stores.listing import listing_of  # here, since files on this machine need nothing of it

        listing = listing_of(path)
        seen = [number for number, key in enumerate(listing.keys) if not any(part.startswith(_HIDDEN) for part in key.split("/"))]
        found = [listing.object(number).url.with_options for number in seen if _ends(listing.keys[number], suffixes)]
    elif os.path.isdir(path):
        found = [os.path.join(path, key) for key in files_below(path, hidden=_HIDDEN) if _ends(key, suffixes)]
    else:
        return files_of(path)
    if not found:
        raise FileNotFoundError(f"{shown(path)!r}: no file in this folder or below it ends in {' or '.join(suffixes)}")
    return found


def _ends(name: str, suffixes: Sequence[str]) -> bool:
    return name.lower().endswith(tuple(suffixes))
