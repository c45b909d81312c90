"""The index of a shard: the byte offsets of its samples. The index is built from the headers of the tar archive."""

from __future__ import annotations

import os
import tarfile
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

import numpy as np

from highway.datasets.index.file import Group
from highway.datasets.tar_headers import BLOCK, MOST_ZEROS, PAX_BLOCKS, check_end, plain_file
from highway.datasets.tar_samples import grouped_by_key
from highway.datasets.tar_stream import COMPRESSED, Archive, open_shard
from highway.engine.cancel import check_cancelled
from highway.errors import ShardError
from highway.stores.file import open_file, state_of
from highway.stores.url import is_url, shown

VERSION = "tar 2"  # version of the index of a shard; version 1 did not check the ends of shards
Pread = Callable[[int, int], bytes]  # reads bytes; its arguments are the number of bytes, and the position of the first byte


class TarIndex(NamedTuple):
    """The byte offsets of the samples in a shard. A sample of two files takes about 45 bytes.

    Args:
        extensions: All file extensions in the shard, in lower case.
        ends: The index of each sample's last file, plus 1.
        key_ends: The index in the array ``keys`` at which each sample's key ends.
        keys: The concatenated keys in UTF-8, as uint8.
        kinds: The index of each file's extension in ``extensions``.
        offsets: The byte offset of each file's content in the shard.
        sizes: Number of bytes of each file.
    """

    extensions: np.ndarray
    ends: np.ndarray
    key_ends: np.ndarray
    keys: np.ndarray
    kinds: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray

    def key(self, sample: int) -> str:
        """Return the key of a sample."""
        begin = int(self.key_ends[sample - 1]) if sample else 0
        return self.keys[begin : int(self.key_ends[sample])].tobytes().decode(errors="surrogateescape")

    def files(self, sample: int) -> slice:
        """Return the range of indexes of a sample's files."""
        return slice(int(self.ends[sample - 1]) if sample else 0, int(self.ends[sample]))


def index_of(path: str) -> Group:
    """Return the index of a shard. For its arrays, see :class:`TarIndex`.

    Raises:
        ShardError: the shard is not a tar archive, or is compressed, damaged or truncated.
        ShardError: the shard contains a link or a sparse file. highway cannot read these by offset.
        ShardError: the shard was written to during the scan.
        OSError: the shard cannot be opened.
    """
    shard = shown(path)
    with _opened(path) as (file, pread):
        state = state_of(path)
        start = file.read(6)
        if kind := next((name for magic, name in COMPRESSED.items() if start.startswith(magic)), None):
            raise ShardError(
                f"{shard}: the shard is compressed with {kind}, so there is no random access to its files; unpack it, or read it with "
                f"WebDatasetSource"
            )
        file.seek(0)
        try:
            index = _scanned(file, pread, state.size)
        except (tarfile.TarError, EOFError, ValueError) as error:
            raise ShardError(f"{shard}: not a tar archive, or damaged or truncated; {error}") from error
        if state_of(path) != state:
            raise ShardError(f"{shard}: the shard was written to while its headers were read; read it when it is complete")
    return Group.of(state, index)


@contextmanager
def _opened(path: str) -> Iterator[tuple[BinaryIO, Pread]]:
    """Yield two ways to read a shard: a file object for tarfile, and a function that reads bytes at a byte offset."""
    if not is_url(path):
        with open_shard(path) as file:
            yield file, lambda size, place: os.pread(file.fileno(), size, place)
        return
    from highway.stores.streaming import Window  # imported here, because local files do not need this module

    whole = open_file(path)
    with whole.as_stream() as file:
        yield file, Window(whole).pread


def _scanned(file: BinaryIO, pread: Pread, total: int) -> TarIndex:
    extensions: dict[str, int] = {}
    ends, key_ends, kinds, offsets, sizes = (array("q") for _ in range(5))
    keys = bytearray()
    for key, files in grouped_by_key(_members(file, pread, total)):
        for extension, (offset, size) in files:
            kinds.append(extensions.setdefault(extension, len(extensions)))
            offsets.append(offset)
            sizes.append(size)
        keys += key.encode(errors="surrogateescape")
        ends.append(len(kinds))
        key_ends.append(len(keys))
    names = np.array(list(extensions), np.str_)
    small = map(_small, (kinds, offsets, sizes))
    return TarIndex(names, _small(ends), _small(key_ends), np.frombuffer(keys, np.uint8), *small)


def _small(values: array[int]) -> np.ndarray:
    found = np.asarray(values)
    return found.astype(np.min_scalar_type(found.max(initial=0)))


def _members(file: BinaryIO, pread: Pread, total: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the path, offset and size of each regular file, in the order of the archive.

    ``tar_headers`` parses plain headers, five times as fast as tarfile. tarfile parses all other headers, such as long names.
    """
    position, has_files = 0, False
    with Archive.over(file) as archive:
        while True:
            check_cancelled()
            header = pread(PAX_BLOCKS * BLOCK, position)
            if not archive.pax_headers and (plain := plain_file(header)) is not None:
                name, size, length = plain
                offset = position + length
                behind = offset + -(-size // BLOCK) * BLOCK
            else:
                file.seek(position)
                try:
                    info = archive.tarinfo.fromtarfile(archive)
                except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
                    return check_end(pread(MOST_ZEROS + 1, position), position, has_files)
                name, offset, size, behind = info.name, info.offset_data, info.size, archive.offset
                if info.islnk() or info.issym() or info.issparse():
                    raise tarfile.ReadError(
                        f"{name!r} is a link or a sparse file; pack the contents of files, with tar --hard-dereference -h"
                    )
                if not info.isreg():
                    name = ""
            if size < 0 or behind <= position or offset + size > total:
                raise tarfile.ReadError(
                    f"byte {position}: the header of {name!r} declares {size} bytes, which do not fit into the shard of {total} bytes"
                )
            if name:
                has_files = True
                yield name, (offset, size)
            position = behind
