"""Read the file ``index.json`` of a folder of MDS shards, and the samples in a shard."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
import xxhash

from highway.datasets.dataset import chosen
from highway.datasets.mds.encodings import as_bytes, encoding_of
from highway.datasets.records.protobuf import Data
from highway.engine.cancel import check_cancelled
from highway.errors import DatasetError
from highway.stores.file import exists, open_file, read_whole
from highway.stores.unchanging import FileRange, FileState
from highway.stores.url import join, shown

_AT_ONCE = 1 << 24  # number of bytes to read at once for a checksum

INDEX = "index.json"
VERSION = 2


class FileEntry(msgspec.Struct):
    """The entry of a file in ``index.json``.

    Args:
        basename: The path of the file in the folder.
        bytes: The size of the file in bytes.
        hashes: The checksums of the file, by the name of the algorithm.
    """

    basename: str
    bytes: int
    hashes: dict[str, str] = {}


class ShardEntry(msgspec.Struct):
    """The entry of a shard in ``index.json``.

    Args:
        column_names: Sorted names of the columns.
        column_encodings: Encoding of each column.
        column_sizes: Number of bytes of each column; ``None`` for columns of variable size.
        raw_data: The uncompressed file.
        samples: Number of samples in the shard.
        format: ``"mds"``.
        version: 2.
        compression: Compression of ``zip_data``.
        hashes: Names of the checksum algorithms.
        size_limit: Maximum number of bytes of a shard.
        zip_data: The compressed file.
    """

    column_names: list[str]
    column_encodings: list[str]
    column_sizes: list[int | None]
    raw_data: FileEntry
    samples: int
    format: str = "mds"
    version: int = VERSION
    compression: str | None = None
    hashes: list[str] = []
    size_limit: int | str | None = None
    zip_data: FileEntry | None = None


class Index(msgspec.Struct):
    """The content of ``index.json``."""

    shards: list[ShardEntry]
    version: int = VERSION


def read_index(folder: str) -> Index:
    """Read the file ``index.json`` of a folder.

    Raises:
        FileNotFoundError: the folder has no ``index.json``.
        DatasetError: ``index.json`` is invalid.
    """
    path = join(folder, INDEX)
    if not exists(path):
        raise FileNotFoundError(
            f"{shown(path)!r}: there is no such file; pass the folder that contains it; without this file, a dataset is incomplete"
        )
    try:
        index = msgspec.json.decode(read_whole(path), type=Index)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DatasetError(f"{shown(path)}: not an index of MDS, or damaged or truncated: {error}") from error
    for number, shard in enumerate(index.shards):
        where = f"{shown(path)}: shard {number}"
        if (shard.format, shard.version, index.version) != ("mds", VERSION, VERSION):
            raise DatasetError(f"{where} has the format {shard.format!r}, version {shard.version}; expected 'mds', version {VERSION}")
        names = shard.column_names
        if not (len(set(names)) == len(names) == len(shard.column_encodings) == len(shard.column_sizes)) or shard.samples < 0:
            raise DatasetError(
                f"{where} has {shard.samples} samples with the columns {names}; expected a name, an encoding and a size for each column"
            )
        if shard.raw_data.basename.startswith("/") or ".." in shard.raw_data.basename.split("/"):
            raise DatasetError(f"{where}: the file {shard.raw_data.basename!r} is outside the folder")
    if twice := [name for name, times in Counter(shard.raw_data.basename for shard in index.shards).items() if times > 1]:
        raise DatasetError(f"{shown(path)}: several shards have the file {twice[0]!r}: the index is damaged")
    return index


class Shard:
    """A shard, open for reading.

    Args:
        folder: The folder that contains ``index.json``.
        entry: The entry of the shard in ``index.json``.
        fields: A dict from field names to the columns to read. ``None``: all columns except ``leave_out``.
        leave_out: A column that is not a field.
        state: The expected size and modification time of the file. ``None``: both can have any value.

    Raises:
        OSError: the shard cannot be opened.
        DatasetError: the file does not match ``index.json``, or a selected column cannot be read.
    """

    def __init__(
        self, folder: str, entry: ShardEntry, fields: dict[str, str] | None, leave_out: str, state: FileState | None = None
    ) -> None:
        path = join(folder, entry.raw_data.basename)
        self.path, self._entry = shown(path), entry
        if entry.zip_data is not None and not exists(path):
            unpack = f"{str(entry.compression).partition(':')[0]} -d {entry.zip_data.basename}"
            raise DatasetError(
                f"{self.path}: the shard exists only in compressed form, without random access: unpack it, for example with {unpack}"
            )
        self.file = open_file(path, state)
        size, count = self.file.state.size, entry.samples
        if size != entry.raw_data.bytes:
            raise DatasetError(
                f"{self.path}: found {size} bytes, but {INDEX} lists {entry.raw_data.bytes} bytes: the shard was truncated or replaced"
            )
        begin = 4 * (count + 2)
        if begin > size:
            raise DatasetError(f"{self.path}: {size} bytes cannot hold {count} samples, the number in {INDEX}")
        numbers = np.frombuffer(self.file.read(0, begin), "<u4")
        self.offsets = numbers[1:]
        if numbers[0] != count or self.offsets[0] < begin or self.offsets[-1] > size or (np.diff(self.offsets.astype(np.int64)) < 0).any():
            raise DatasetError(f"{self.path}: not a shard of {count} samples, or damaged: it begins with {numbers[:4].tolist()}")
        self._check_columns(self.file.read(begin, int(self.offsets[0]) - begin))
        names = {name: name for name in entry.column_names if name != leave_out or fields is not None}
        try:
            self._wanted = {new: self._column(old) for new, old in chosen(names, fields).items()}
        except DatasetError:
            raise
        except ValueError as error:
            raise DatasetError(f"{self.path}: {error}") from None
        self._key = self._column(leave_out) if leave_out in entry.column_names else None

    def _check_columns(self, config: bytes) -> None:
        """Compare the columns in ``index.json`` and in the shard. Raises DatasetError."""
        try:
            found = msgspec.json.decode(config, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DatasetError(f"{self.path}: the shard is damaged: there is no JSON before the samples: {error}") from error
        for name in ("column_names", "column_encodings", "column_sizes"):
            if found.get(name, said := getattr(self._entry, name)) != said:
                raise DatasetError(
                    f"{self.path}: the shard has {name} {found[name]}, but {INDEX} has {said}: one of these files is damaged, or belongs "
                    f"to another dataset"
                )

    def verify(self) -> None:
        """Check a checksum of the file. If ``index.json`` has several, check the fastest. Raises DatasetError."""
        hashes = self._entry.raw_data.hashes
        known = [name for name in hashes if hasattr(xxhash, name) or name in hashlib.algorithms_available]
        if hashes and not known:
            raise DatasetError(f"{self.path}: {INDEX} has only the checksums {', '.join(hashes)}, which highway cannot compute")
        if not hashes:
            return
        name = min(known, key=lambda name: not hasattr(xxhash, name))
        digest = getattr(xxhash, name)() if hasattr(xxhash, name) else hashlib.new(name, usedforsecurity=False)
        for begin in range(0, self.file.state.size, _AT_ONCE):
            check_cancelled()
            digest.update(self.file.read(begin, min(_AT_ONCE, self.file.state.size - begin)))
        if digest.hexdigest() != hashes[name]:
            raise DatasetError(
                f"{self.path}: the shard is damaged: its {name} is not {hashes[name]}, the value in {INDEX}; fetch or write it again"
            )

    def _column(self, name: str) -> tuple[int, Callable[[Data], Any]]:
        """Return the index of a column in a sample, and the function that decodes the column."""
        place = self._entry.column_names.index(name)
        try:
            encoding = encoding_of(self._entry.column_encodings[place])
        except DatasetError as error:
            raise DatasetError(f"{self.path}: column {name!r}: {error}") from None
        if (said := self._entry.column_sizes[place]) is not None and said != encoding.size:
            raise DatasetError(f"{self.path}: column {name!r}: {INDEX} lists {said} bytes per value, expected {encoding.size}")
        return place, partial(self._decoded, name, None if encoding.decode is as_bytes else encoding.decode)

    def place(self, row: int) -> FileRange:
        """Return the range of a sample in the file."""
        begin, end = self.offsets[row : row + 2].tolist()
        return FileRange(self.file, begin, end - begin)

    def sample(self, row: int, data: Data) -> dict[str, Any]:
        """Decode a sample from its bytes. If ``data`` is a view, the sample contains views instead of ``bytes``. Raises DatasetError."""
        return self._values(row, data, self._wanted)

    def key(self, row: int) -> str:
        """Return the key of a sample. Raises DatasetError."""
        assert self._key is not None
        return str(self._values(row, self.file.read(*self.place(row)[1:]), {"": self._key})[""])

    def _values(self, row: int, data: Data, wanted: dict[str, tuple[int, Callable[[Data], Any]]]) -> dict[str, Any]:
        try:
            sizes = self._entry.column_sizes
            varying = sizes.count(None)
            if len(data) < 4 * varying:
                raise ValueError(f"{len(data)} bytes cannot hold the sizes of {varying} columns")
            found = iter(struct.unpack_from(f"<{varying}I", data))
            ends = list(accumulate((next(found) if size is None else size for size in sizes), initial=4 * varying))
            if ends[-1] != len(data):
                raise ValueError(f"its columns need {ends[-1]} bytes, but the sample has {len(data)} bytes")
            return {name: decode(data[ends[place] : ends[place + 1]]) for name, (place, decode) in wanted.items()}
        except ValueError as error:
            raise DatasetError(f"{self.path}: sample {row} is damaged: {error}") from error

    @staticmethod
    def _decoded(name: str, decode: Callable[[bytes], Any] | None, data: Data) -> Any:
        if decode is None:
            return data
        try:
            return decode(bytes(data))
        except (ValueError, ArithmeticError, LookupError, struct.error) as error:
            raise ValueError(f"column {name!r}: {type(error).__name__}: {error}") from error
