"""Read and write index files. An index file contains the indexes of data files. A data file's index is a group of arrays, which is mapped
into memory.

::

    16 bytes   b"highway index 1\\n", with the number of this format
    uint64     size of the table in bytes
    uint64     XXH3 of the table
    table      JSON: {"version": text, "size": bytes of all arrays, "groups": {name: [size, mtime_ns, XXH3, begin, [[dtype, length], ...]]}}
    arrays     each at a multiple of 64 bytes; the arrays of a group are consecutive, and start ``begin`` bytes after the table

All numbers are little-endian. ``name`` is the name of a data file, and ``size`` and ``mtime_ns`` are its size and modification time. XXH3
is a checksum of 64 bits.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import IO, Any

import numpy as np
import xxhash

from highway.datasets.writing import writing
from highway.errors import DatasetError
from highway.stores.file import read_whole
from highway.stores.unchanging import FileState
from highway.stores.url import beside, is_url, join, shown

log = logging.getLogger("highway")

SUFFIX = ".index"
_MAGIC = b"highway index 1\n"
_HEADER = struct.Struct("<16sQQ")
_ALIGNMENT = 64


class Group:
    """The index of one data file: several arrays.

    Args:
        state: The size and modification time of the data file.
        lengths: The length of each array.
        read: A function that returns the arrays. This function is called once, when the arrays are first used.
    """

    def __init__(self, state: FileState, lengths: Sequence[int], read: Callable[[], Sequence[np.ndarray]]) -> None:
        self.state, self.lengths, self._read = state, lengths, read

    @classmethod
    def of(cls, state: FileState, arrays: Sequence[np.ndarray]) -> Group:
        """Return a group of arrays in memory. Each array has one dimension."""
        return cls(state, list(map(len, arrays)), lambda: arrays)

    @cached_property
    def arrays(self) -> Sequence[np.ndarray]:
        return self._read()


Again = Callable[[str], Group]
"""A function that computes the index of a data file. The argument is the name of the data file."""


class IndexFile:
    """The groups in an index file.

    Args:
        path: The path of the index file, for messages.
        content: The content of the index file.
        begin: The byte offset of the first array.
        rows: The value of ``groups`` in the table.
        again: A function that computes a group again. This function is called if a group is damaged when it is first used.
    """

    def __init__(self, path: str, content: Any, begin: int, rows: Mapping[str, Any], again: Again) -> None:
        self._path, self._content, self._begin, self._rows, self._again = path, content, begin, rows, again

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def __getitem__(self, name: str) -> Group:
        size, mtime_ns, _, _, kinds = self._rows[name]
        return Group(FileState(size, mtime_ns), [length for _, length in kinds], partial(self._arrays, name))

    def _arrays(self, name: str) -> Sequence[np.ndarray]:
        size, mtime_ns, expected, position, kinds = self._rows[name]
        arrays, position = list[np.ndarray](), position + self._begin
        for dtype, length in kinds:
            arrays.append(np.ndarray(length, dtype, self._content, position))
            position += _padded(arrays[-1].nbytes)
        if checksum(arrays) == expected:
            return arrays
        log.warning("%s: the index of %r is damaged, so highway computes it again; remove this index file to repair it", self._path, name)
        group = self._again(name)
        if group.state != (size, mtime_ns) or group.lengths != [length for _, length in kinds]:
            raise DatasetError(f"{self._path}: the file {name!r} has changed since the dataset was opened; open the dataset again")
        return group.arrays


def index_path(path: str, where: bool | str) -> str:
    """Return the path of the index of a file.

    If ``where`` is a folder, the index is in this folder. Its name then contains a digest of the file's path, so that files with the same
    name have different indexes. Otherwise, the index is in the folder of the file.
    """
    if isinstance(where, bool):
        return beside(path, SUFFIX)
    whole = shown(path) if is_url(path) else os.path.abspath(path)
    digest = hashlib.blake2b(whole.encode(errors="surrogateescape"), digest_size=8).hexdigest()
    return join(where, f"{os.path.basename(whole)}-{digest}{SUFFIX}")


def load_index(path: str, version: str, again: Again) -> IndexFile | None:
    """Open an index file. Return ``None`` if the file does not exist, is incomplete, or has another version.

    Args:
        path: The path or URL of the index file. A local file is mapped into memory.
        version: The format of the data files and the version of their indexes, such as ``"tar 2"``.
        again: A function that computes a group again. This function is called if a group is damaged when it is first used.
    """
    try:
        if is_url(path):
            return _parsed(read_whole(path), path, version, again)
        with open(path, "rb") as file:
            return mapped_index(file, path, version, again)
    except (FileNotFoundError, PermissionError):  # S3 denies access to a missing file if the user may not list the bucket
        return None


def mapped_index(file: IO[bytes], path: str, version: str, again: Again) -> IndexFile | None:
    """Map an open file into memory; see :func:`load_index`."""
    size = os.fstat(file.fileno()).st_size
    return _parsed(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"", path, version, again)


def _parsed(content: Any, path: str, version: str, again: Again) -> IndexFile | None:
    if len(content) < _HEADER.size:
        return None
    magic, size, expected = _HEADER.unpack_from(content)
    table = content[_HEADER.size : _HEADER.size + size]
    if magic != _MAGIC or len(table) != size or xxhash.xxh3_64_intdigest(table) != expected:
        return None
    found, begin = json.loads(table), _padded(_HEADER.size + size)
    is_complete = found["version"] == version and len(content) == begin + found["size"]
    return IndexFile(shown(path), content, begin, found["groups"], again) if is_complete else None


def write_index(file: IO[bytes], version: str, groups: Mapping[str, Group]) -> None:
    """Write the content of an index file into an open file."""
    rows, position = {}, 0
    for name, group in groups.items():
        rows[name] = [*group.state, checksum(group.arrays), position, [[array.dtype.str, len(array)] for array in group.arrays]]
        position += sum(_padded(array.nbytes) for array in group.arrays)
    table = json.dumps({"version": version, "size": position, "groups": rows}).encode()
    file.write(_HEADER.pack(_MAGIC, len(table), xxhash.xxh3_64_intdigest(table)) + table + _padding(_HEADER.size + len(table)))
    for group in groups.values():
        for array in group.arrays:
            file.write(array.view(np.uint8).data)
            file.write(_padding(array.nbytes))


def save_index(path: str, version: str, groups: Mapping[str, Group]) -> None:
    """Write an index file atomically.

    Raises:
        OSError: the file cannot be written.
    """
    with writing(path) as part, open(part, "wb") as file:
        write_index(file, version, groups)


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _padding(size: int) -> bytes:
    return bytes(_padded(size) - size)


def checksum(arrays: Sequence[np.ndarray]) -> int:
    """Return the xxh3_64 checksum of the concatenated bytes of arrays."""
    found = xxhash.xxh3_64()
    for array in arrays:
        found.update(array.view(np.uint8).data)
    return found.intdigest()
