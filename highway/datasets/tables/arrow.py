"""Random access to the rows of Arrow files, and of folders that Hugging Face's ``save_to_disk`` wrote. The files are mapped into memory."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from highway.datasets.tables.backend import ipc, pa
from highway.datasets.tables.files import FilesLayout, FilesTable, files_at
from highway.datasets.tables.partitions import TableFile
from highway.datasets.tables.rows import DecodedRows
from highway.datasets.tables.table import Piece
from highway.datasets.tables.values import IN_MEMORY, Access, Bytes, in_memory
from highway.engine.cancel import check_cancelled
from highway.errors import ConfigError, DatasetError
from highway.parameters.checks import checked
from highway.stores.file import local, state_of
from highway.stores.unchanging import UnchangingFile
from highway.stores.url import is_url, without_options

_FILE, _STREAM = b"ARROW1", b"\xff\xff\xff\xff"  # first bytes of a file, and of a stream
_END = _STREAM + bytes(4)  # end mark of a stream
_OTHERS = {
    b"PAR1": "this is a Parquet file; use Parquet(...)",
    b"FEA1": "this is Feather version 1; write it again with pyarrow.feather.write_feather(table, path, compression='uncompressed')",
}
_LARGE = 1 << 14  # larger values (in bytes) are read from the file, without the GIL; smaller values are copied from the mapped memory


def expect_whole(stream: pa.Buffer, end: int) -> None:
    """Raise ArrowInvalid if a stream does not end with its first end mark. ``end`` is the byte offset at which reading stopped."""
    if stream[-len(_END) :].to_pybytes() != _END:
        raise pa.ArrowInvalid(f"the stream does not end in {_END!r}; its writer was not closed, or the stream was truncated")
    if end != stream.size:
        raise pa.ArrowInvalid(
            f"there is an end mark before byte {end}, but the stream has {stream.size} bytes; perhaps zeros have overwritten a message"
        )


class _Mapped:
    """A mapped file and its record batches.

    Args:
        path: The file.
        budget: If the file is a stream: maximum number of bytes of its decompressed batches.
    """

    def __init__(self, path: str, budget: int) -> None:
        with pa.memory_map(path) as file:
            self.content = file.read_buffer()  # the mapped memory stays valid after the file is closed
        begin = self.content[:8].to_pybytes()
        self.batches: list[pa.RecordBatch] = []
        if begin.startswith(_FILE):
            self._read_file()
        elif begin.startswith(_STREAM):
            self._read_stream(budget)
        else:
            what = _OTHERS.get(begin[:4], f"the file begins with {begin!r}; expected {_FILE!r}, or {_STREAM!r} for a stream")
            raise pa.ArrowInvalid(what)

    def _read_file(self) -> None:
        file = ipc.open_file(self.content)
        self.schema, self.counts, self.is_mapped = file.schema, list[int](), True
        if not file.num_record_batches:
            return
        first = file.get_batch(0)
        self.is_mapped = self.holds(first)
        if not self.is_mapped:  # to count the rows, decode only one column
            number = next((n for n, field in enumerate(self.schema) if pa.types.is_primitive(field.type)), 0)
            file = self._reader([number])
        for number in range(file.num_record_batches):
            check_cancelled()
            batch = file.get_batch(number)
            self.counts.append(batch.num_rows)
            if self.is_mapped:
                self.batches.append(batch)

    def _read_stream(self, budget: int) -> None:
        source = pa.BufferReader(self.content)
        stream, taken = ipc.open_stream(source), 0
        self.schema, self.is_mapped = stream.schema, True
        for batch in stream:
            check_cancelled()
            self.batches.append(batch)
            if not self.holds(batch) and (taken := taken + batch.get_total_buffer_size()) > budget:
                raise DatasetError(
                    f"the compressed stream needs more memory than cache_mb={budget >> 20} allows; write it as a file, or uncompressed"
                )
        expect_whole(self.content, source.tell())
        self.counts = [batch.num_rows for batch in self.batches]

    def reader(self, columns: Iterable[str]) -> Any:
        """Return an Arrow file that reads only these columns."""
        return self._reader([self.schema.get_field_index(name) for name in dict.fromkeys(columns)])

    def _reader(self, numbers: list[int]) -> Any:
        return ipc.open_file(self.content, options=ipc.IpcReadOptions(included_fields=numbers, use_threads=False))

    def holds(self, batch: pa.RecordBatch) -> bool:
        """Return whether the values of a batch are in the mapped memory. This is true if the batch is uncompressed."""
        buffers = (buffer for column in batch.columns for buffer in column.buffers() if buffer is not None and buffer.size)
        return all(self.offset(buffer) is not None for buffer in buffers)

    def offset(self, buffer: pa.Buffer) -> int | None:
        """Return the byte offset of a buffer in the mapped file. Return ``None`` if the buffer is not in the file."""
        offset = buffer.address - self.content.address
        return offset if 0 <= offset <= self.content.size - buffer.size else None


@checked
@dataclass
class Arrow(FilesTable[_Mapped]):
    """The rows of Arrow files, file by file.

    This class reads files and streams in Arrow's IPC format, Feather files, and folders that Hugging Face's ``save_to_disk`` wrote. It does
    not need the package ``datasets``. An uncompressed file is mapped into memory and read row by row. Random access is then as fast as
    reading in order. A compressed file is decoded in whole record batches. For such files, use ``Reader(..., shuffle="blocks")``, which
    reads the rows of a record batch together. Feather files are compressed by default.

    Args:
        paths: A folder, a file, a pattern such as ``"train-*.arrow"``, the URL of one of these, or a list of these. Braces are expanded.
            For folders, see :class:`~highway.datasets.Parquet`. Files in an object store, such as S3, are copied into a local folder, which
            ``?cache_dir=FOLDER`` in the URL sets.
        fields: A dict from field names to columns. ``{"label": "fine_label;label"}`` reads the column ``fine_label``, or the column
            ``label`` if there is no column ``fine_label``. ``None`` reads all columns except ``__key__``, under their own names.
        key: The column that contains the keys of the samples. ``None``: the column ``__key__``. If there is no such column, the keys are
            the row numbers.
        nulls: A dict from field names to values that replace nulls: ``{"caption": ""}``. If any other field contains a null, reading the
            row raises an error.
        cache_mb: Maximum size in MiB of the decoded record batches in memory. Batches of uncompressed files, and batches that are being
            decoded, do not count.

    A sample is a dict with the same types as in :class:`~highway.datasets.Parquet`.

    Raises:
        ConfigError: pyarrow is not installed.
        ConfigError: the folder contains a ``DatasetDict``, which has splits. Pass the folder of one split.
        ConfigError: a path is a URL, but no local folder is set.
        FileNotFoundError: a path has no Arrow files (when the dataset is first read).
        DatasetError: a file is not in Arrow format, is damaged or truncated, or has changed since the first read.
        DatasetError: a selected column does not exist, exists twice, or has different types in different files.
        DatasetError: ``nulls`` has a name that is not a field.
        DatasetError: a compressed stream needs more memory than ``cache_mb``.
        DatasetError: a table of Hugging Face was saved after ``select``, ``filter`` or ``shuffle``. Call ``flatten_indices()`` before you
            save the table.
        DatasetError: a value is null, and ``nulls`` has no replacement for the field.
        DatasetError: a key is null.

    >>> Pipeline([[{"text": "first", "label": 3}, {"text": "second", "label": 5}], ArrowSink("train.arrow")]).run()
    >>> dataset = Arrow("train.arrow", fields={"y": "label"})
    >>> len(dataset), dataset[1]
    (2, {'y': np.int64(5)})
    """

    format: ClassVar = "Arrow"
    piece: ClassVar = "record batch"
    suffixes: ClassVar = (".arrow", ".feather", ".ipc")

    def _files_at(self, path: str) -> Sequence[str]:
        if is_url(path) and not glob.has_magic(name := without_options(path)) and not name.endswith(self.suffixes):
            path = local(path)  # copy the folder to this machine, because only local files can be mapped
        return _saved_files(path) or files_at(path, self.suffixes)

    def _found(self) -> list[TableFile]:
        return [file._replace(path=local(file.path)) for file in super()._found()]

    def _details(self, layout: FilesLayout[_Mapped], file: int) -> tuple[_Mapped, pa.Schema, list[int]]:
        mapped = _Mapped(layout.files[file], self.cache_mb << 20)
        if state_of(layout.files[file]) != layout.open(file).state:
            raise DatasetError(f"{layout.files[file]}: the file was replaced while it was being opened; start the program again")
        return mapped, mapped.schema, mapped.counts

    def _decode_piece(self, layout: FilesLayout[_Mapped], piece: Piece) -> tuple[DecodedRows, int]:
        mapped, columns = layout.details[piece.file], layout.in_files
        if mapped.is_mapped:
            batch, size = mapped.batches[piece.index], 0
            access = Access(partial(_memory, mapped, partial(layout.open, piece.file)), IN_MEMORY.file)
        else:
            batch, access = mapped.reader(columns).get_batch(piece.index), IN_MEMORY
            size = batch.get_total_buffer_size()
        batch = batch.select(columns)
        batch.validate(full=True)  # checks all offsets, because reading single rows does not check offsets
        return DecodedRows(layout.with_partitions([batch], piece), layout.selection.columns, access), size

    def _column_of(self, layout: FilesLayout[_Mapped], file: int, name: str) -> Iterable[pa.RecordBatch]:
        mapped = layout.details[file]
        if mapped.is_mapped:
            batches: Iterable[pa.RecordBatch] = (batch.select([name]) for batch in mapped.batches)
        else:
            reader = mapped.reader([name])
            batches = map(reader.get_batch, range(reader.num_record_batches))
        for batch in batches:
            check_cancelled()
            batch.validate(full=True)
            yield batch


def _memory(mapped: _Mapped, file: Callable[[], UnchangingFile], buffer: pa.Buffer) -> Bytes:
    """Return a function that reads a buffer. The function must not refer to a table, because a table keeps decoded buffers in memory."""
    copied, offset = in_memory(buffer), mapped.offset(buffer)
    if offset is None or buffer.size < _LARGE:
        return copied
    return lambda begin, end: copied(begin, end) if end - begin < _LARGE else file().read(offset + begin, end - begin)


def _saved_files(folder: str) -> Sequence[str]:
    """Return the files of a folder that ``save_to_disk`` wrote, in order. Return an empty list for any other folder.

    Raises:
        ConfigError: the folder has splits.
        DatasetError: the folder has a separate index of its rows (``indices``), or lacks a list of its files.
    """
    if splits := _json(folder, "dataset_dict.json"):
        names = " or ".join(repr(os.path.join(folder, str(name))) for name in splits.get("splits", []))
        raise ConfigError(f"{folder!r}: the folder has splits; pass the folder of one split: {names}")
    if not (state := _json(folder, "state.json")):
        return []
    try:
        named = [file["filename"] for file in state["_data_files"]]
        files = [os.path.join(folder, name) for name in named if os.path.basename(name) == name]
    except (KeyError, TypeError) as error:
        raise DatasetError(f"{folder}: state.json does not list the files: {error!r}") from error
    if not files or len(files) != len(named):
        raise DatasetError(f"{folder}: state.json lists {named}; expected files of this folder")
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise DatasetError(
            f"{folder}: the table was saved with an index of its rows; save it again with dataset.flatten_indices().save_to_disk(...)"
        )
    return files


def _json(folder: str, name: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except ValueError as error:
        raise DatasetError(f"{os.path.join(folder, name)}: not JSON, or truncated: {error}") from error
    return found if isinstance(found, dict) else {}
