"""Arrow files and streams, mapped into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from highway.datasets.tables.backend import ipc, pa
from highway.datasets.tables.files import FilesTable
from highway.datasets.tables.rows import DecodedRows
from highway.datasets.tables.table import Piece
from highway.datasets.tables.values import IN_MEMORY, Access, Bytes, in_memory
from highway.engine.cancel import check_cancelled
from highway.errors import DatasetError
from highway.stores.file import FileState, UnchangingFile

_FILE, _STREAM = b"ARROW1", b"\xff\xff\xff\xff"  # how they begin
_END = _STREAM + bytes(4)  # how streams end
_OTHERS = {
    b"PAR1": "a Parquet file; read it by Parquet(...)",
    b"FEA1": "Feather of version 1; write it anew by pyarrow.feather.write_feather(table, path, compression='uncompressed')",
}
_LARGE = 1 << 14  # bytes from which on a value is read from the file, without the interpreter's lock, and not copied out of the map


class _Mapped:
    """A file in memory, and the record batches in it as far as they lie there as they are.

    Args:
        path: The file.
        budget: Bytes that batches of a stream may take if they are compressed.
    """

    def __init__(self, path: str, budget: int) -> None:
        with pa.memory_map(path) as file:
            self.content = file.read_buffer()  # the map stays, though the file is closed
        begin = self.content[:8].to_pybytes()
        self.batches: list[pa.RecordBatch] = []
        if begin.startswith(_FILE):
            self._read_file()
        elif begin.startswith(_STREAM):
            self._read_stream(budget)
        else:
            what = _OTHERS.get(begin[:4], f"it begins with {begin!r}; expected {_FILE!r}, or {_STREAM!r} of a stream")
            raise pa.ArrowInvalid(what)

    def _read_file(self) -> None:
        file = ipc.open_file(self.content)
        self.schema, self.counts, self.is_mapped = file.schema, list[int](), True
        if not file.num_record_batches:
            return
        first = file.get_batch(0)
        self.is_mapped = self.holds(first)
        if not self.is_mapped:  # the rows are counted by the column that is decoded fastest
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
                    f"a compressed stream, which takes more memory than cache_mb={budget >> 20} allows; write it as a file, or uncompressed"
                )
        if self.content[-len(_END) :].to_pybytes() != _END:
            raise pa.ArrowInvalid(f"the stream does not end in {_END!r}; its writer was not closed, or it was cut short")
        if source.tell() != self.content.size:
            raise pa.ArrowInvalid(f"an end mark before byte {source.tell()} of {self.content.size}, as zeros over a message make it")
        self.counts = [batch.num_rows for batch in self.batches]

    def reader(self, columns: Iterable[str]) -> Any:
        """Return what reads some columns of the file's batches."""
        return self._reader([self.schema.get_field_index(name) for name in dict.fromkeys(columns)])

    def _reader(self, numbers: list[int]) -> Any:
        return ipc.open_file(self.content, options=ipc.IpcReadOptions(included_fields=numbers, use_threads=False))

    def holds(self, batch: pa.RecordBatch) -> bool:
        """Say whether a batch lies in the file as it is, and was not decompressed."""
        buffers = (buffer for column in batch.columns for buffer in column.buffers() if buffer is not None and buffer.size)
        return all(self.offset(buffer) is not None for buffer in buffers)

    def offset(self, buffer: pa.Buffer) -> int | None:
        """Return where in the file a buffer lies, if it does."""
        offset = buffer.address - self.content.address
        return offset if 0 <= offset <= self.content.size - buffer.size else None


class ArrowTable(FilesTable):
    """The rows of Arrow files and streams."""

    format, piece = "Arrow", "record batch"

    def __init__(self, *args: Any) -> None:
        self._mapped: list[_Mapped] = []
        super().__init__(*args)

    def _layout(self, file: int) -> tuple[pa.Schema, list[int]]:
        mapped = _Mapped(self.files[file], self.budget)
        if FileState.of(self.files[file]) != self.open(file).state:
            raise DatasetError(f"{self.files[file]}: it was replaced while it was opened; begin anew")
        self._mapped.append(mapped)
        return mapped.schema, mapped.counts

    def _decode_piece(self, piece: Piece) -> tuple[DecodedRows, int]:
        mapped, columns = self._mapped[piece.file], self.in_files
        if mapped.is_mapped:
            batch, size = mapped.batches[piece.index], 0
            access = Access(partial(_memory, mapped, partial(self.open, piece.file)), IN_MEMORY.file)
        else:
            batch, access = mapped.reader(columns).get_batch(piece.index), IN_MEMORY
            size = batch.get_total_buffer_size()
        batch = batch.select(columns)
        batch.validate(full=True)  # since nothing looks after offsets when single rows are read
        return DecodedRows(self.with_partitions([batch], piece), self.selection.columns, access), size

    def _column_of(self, file: int, name: str) -> Iterable[pa.RecordBatch]:
        mapped = self._mapped[file]
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
    """Return what reads a buffer. It refers to no table, which keeps what was decoded: they would be freed together, much later."""
    copied, offset = in_memory(buffer), mapped.offset(buffer)
    if offset is None or buffer.size < _LARGE:
        return copied
    return lambda begin, end: copied(begin, end) if end - begin < _LARGE else file().read(offset + begin, end - begin)
