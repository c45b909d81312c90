"""The rows of Parquet files by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from highway.datasets.tables.dataset import OfTables
from highway.parameters.checks import checked

if TYPE_CHECKING:
    from highway.datasets.tables.parquet_files import ParquetTable


@checked
@dataclass
class Parquet(OfTables):
    """The rows of Parquet files, in the order of the files and of the rows in them.

    A row group is read and decoded as a whole, with the columns that are wanted. It stays in memory, each process having its own, until
    others need the room, and threads that want one wait for the one that decodes it. So read it by ``shuffle="blocks"``: blocks are the row
    groups, and those of one window are decoded once. A single row out of nowhere costs a row group: with ``shuffle=True`` some hundred rows
    a second are read where a window gives a hundred thousand. A warning says so where it happens.

    Args:
        paths: A folder, a file, a pattern such as ``"train-*.parquet"`` (braces expand), their URL, or a list of them. A folder stands for
            all files in it and below it, but for those whose names, or whose folders' names, begin with ``.`` or ``_``. Folders below it,
            or in a pattern, that are called ``label=0`` are a column ``label``, as Hive and Spark write them.
        fields: The columns to read, under new names: ``{"image": "img", "label": "fine_label;label"}`` takes the first that there is.
            ``None`` reads all as they are, but ``__key__``.
        key: The column that has the samples' keys. ``None``: ``__key__`` if there is one, else the numbers of the rows.
        nulls: What stands for nulls, by field: ``{"caption": ""}``. In all others a null is an error.
        cache_mb: MiB of memory that decoded row groups may take, besides those that are being decoded. A window should fit, which has 16
            row groups if nobody says more.

    A sample is a dict. Numbers and arrays have the dtype of their column, as have labels; images of Hugging Face are their encoded bytes;
    :mod:`highway.datasets.tables.values` lists the rest.

    Raises:
        ConfigError: pyarrow is not installed.
        FileNotFoundError: there are no such files (when it is first read).
        DatasetError: a file is no Parquet, damaged or cut short, or has changed since; columns are missing, or of other types in one file
            than in another; a row group does not fit into ``cache_mb``; there is a null.

    >>> dataset = Parquet("train-*.parquet", fields={"image": "img", "label": "fine_label"})
    """

    suffixes: ClassVar = (".parquet", ".pq")

    def _opened(self) -> ParquetTable:
        from highway.datasets.tables.parquet_files import ParquetTable  # here, since it needs pyarrow

        return ParquetTable(self._found(), self.fields, self.key, self.nulls, self.cache_mb << 20)
