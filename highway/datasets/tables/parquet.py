"""Random access to the rows of Parquet files. A row group is always read as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from highway.datasets.tables.backend import pa, pq
from highway.datasets.tables.files import FilesLayout, FilesTable
from highway.datasets.tables.rows import DecodedRows
from highway.datasets.tables.stream import FileStream, fetched
from highway.datasets.tables.table import Piece
from highway.errors import DatasetError
from highway.parameters.checks import checked
from highway.stores.unchanging import FileRange, UnchangingFile

_FOOTER = 1 << 16  # number of bytes to read at the end of a file; most footers are shorter
_AT_ONCE = 64  # number of footers to fetch at once, and number of row groups whose key column is fetched at once


@checked
@dataclass
class Parquet(FilesTable[Any]):
    """The rows of Parquet files, file by file.

    highway reads and decodes whole row groups, with only the selected columns. If all decoded row groups fit into a quarter of
    ``cache_mb``, they stay in memory for the next epochs. Otherwise, a row group is removed from memory when all its rows have been read.

    Use ``Reader(..., shuffle="blocks")``. The reader shuffles the rows of several row groups (a window) at a time. Each row group is
    decoded once, at about a hundred thousand rows per second. With ``shuffle=True``, all row groups must fit into ``cache_mb``. Otherwise,
    nearly every row requires decoding a whole row group. This is slow (a few hundred rows per second), and highway logs a warning.

    Args:
        paths: A folder, a file, a pattern such as ``"train-*.parquet"``, the URL of one of these (in an object store such as S3), or a list
            of these. Braces are expanded. In a folder, all Parquet files are read, also in subfolders. Files and folders whose names begin
            with ``.`` or ``_`` are skipped. Subfolders such as ``label=0`` define a column ``label``, as in Hive and Spark.
        fields: A dict from field names to columns. ``{"label": "fine_label;label"}`` reads the column ``fine_label``, or the column
            ``label`` if there is no column ``fine_label``. ``None`` reads all columns except ``__key__``, under their own names.
        key: The column that contains the keys of the samples. ``None``: the column ``__key__``. If there is no such column, the keys are
            the row numbers.
        nulls: A dict from field names to values that replace nulls: ``{"caption": ""}``. If any other field contains a null, reading the
            row raises an error.
        cache_mb: Maximum size in MiB of the decoded row groups in memory. Row groups that are being decoded do not count. The row groups of
            the reader's window (16 by default) should fit into this size. Otherwise, some row groups are decoded several times.

    A sample is a dict. Numbers, labels and arrays have the dtype of the column. Images that Hugging Face stored stay encoded, as ``bytes``.
    For other types, see :mod:`highway.datasets.tables.values`.

    Raises:
        ConfigError: pyarrow is not installed.
        FileNotFoundError: a path has no Parquet files (when the dataset is first read).
        DatasetError: a file is not in Parquet format, is damaged or truncated, or has changed since the first read.
        DatasetError: a selected column does not exist, exists twice, or has different types in different files.
        DatasetError: ``nulls`` has a name that is not a field.
        DatasetError: a row group does not fit into ``cache_mb``.
        DatasetError: a value is null, and ``nulls`` has no replacement for the field.
        DatasetError: a key is null.

    >>> Pipeline([[{"img": b"a file", "fine_label": 3}, {"img": b"another", "fine_label": 5}], ParquetSink("train.parquet")]).run()
    >>> dataset = Parquet("train.parquet", fields={"image": "img", "label": "fine_label"})
    >>> len(dataset), dataset[1]
    (2, {'image': b'another', 'label': np.int64(5)})
    """

    format: ClassVar = "Parquet"
    piece: ClassVar = "row group"
    suffixes: ClassVar = (".parquet", ".pq")

    def _open(self) -> FilesLayout[Any]:
        layout = super()._open()
        for piece in layout.pieces:
            self._check_size(layout, piece)
        return layout

    def _details(self, layout: FilesLayout[Any], file: int) -> tuple[Any, pa.Schema, list[int]]:
        if file % _AT_ONCE == 0:
            sizes = [(one, one.state.size) for one in map(layout.open, range(file, min(file + _AT_ONCE, len(layout.files))))]
            layout.footers = fetched([FileRange(one, max(size - _FOOTER, 0), min(size, _FOOTER)) for one, size in sizes])
        found = pq.ParquetFile(FileStream(layout.open(file), layout.footers[file % _AT_ONCE]))
        return found.metadata, found.schema_arrow, [found.metadata.row_group(number).num_rows for number in range(found.num_row_groups)]

    def _check_size(self, layout: FilesLayout[Any], piece: Piece) -> None:
        """Raise DatasetError if a row group does not fit into the cache."""
        group, columns = layout.details[piece.file].row_group(piece.index), layout.selection.columns
        if group.total_byte_size <= layout.budget:
            return
        if (size := sum(leaf.total_uncompressed_size for leaf in _leaves(group, columns))) > layout.budget:
            raise DatasetError(
                f"{layout.names[piece.file]}: row group {piece.index} ({piece.rows} rows) is read as a whole and needs {size >> 20} MB, "
                f"more than cache_mb={self.cache_mb}: write the file again with smaller row groups (as parquet_writer does), raise "
                f"cache_mb, or select fewer columns by fields="
            )

    def _read(self, layout: FilesLayout[Any], file: int, groups: Sequence[int], columns: list[str]) -> Iterator[pa.Table]:
        """Yield columns of row groups. If the file is in an object store, all row groups are fetched at once."""
        opened, metadata = layout.open(file), layout.details[file]
        leaves = [] if opened.is_here else [leaf for group in groups for leaf in _leaves(metadata.row_group(group), columns)]
        held = [part for parts in fetched([_range(opened, leaf) for leaf in leaves]) for part in parts]
        parquet = pq.ParquetFile(FileStream(opened, held), metadata=metadata, pre_buffer=False, page_checksum_verification=True)
        for group in groups:
            yield parquet.read_row_group(group, columns, use_threads=False)

    def _decode_piece(self, layout: FilesLayout[Any], piece: Piece) -> tuple[DecodedRows, int]:
        (table,) = self._read(layout, piece.file, [piece.index], layout.in_files)
        if table.num_rows != piece.rows:
            raise pa.ArrowInvalid(f"expected {piece.rows} rows, found {table.num_rows}")
        table.validate(full=True)  # checks all offsets, because reading single rows does not check offsets
        return DecodedRows(layout.with_partitions(table.to_batches(), piece), layout.selection.columns), table.get_total_buffer_size()

    def _column_of(self, layout: FilesLayout[Any], file: int, name: str) -> Iterable[pa.RecordBatch]:
        groups = range(layout.details[file].num_row_groups)
        for first in groups[::_AT_ONCE]:
            for table in self._read(layout, file, groups[first : first + _AT_ONCE], [name]):
                yield from table.to_batches()


def _leaves(group: Any, columns: list[str]) -> list[Any]:
    """Return the leaf columns of ``columns`` in a row group. A nested column is stored as several leaf columns."""
    leaves = (group.column(number) for number in range(group.num_columns))
    return [leaf for leaf in leaves if leaf.path_in_schema.partition(".")[0] in columns or leaf.path_in_schema in columns]


def _range(file: UnchangingFile, leaf: Any) -> FileRange:
    """Return the range of a leaf column in the file."""
    begin = leaf.dictionary_page_offset if leaf.has_dictionary_page and leaf.dictionary_page_offset else leaf.data_page_offset
    return FileRange(file, begin, leaf.total_compressed_size)
