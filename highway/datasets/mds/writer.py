"""Write samples into MDS shards, which Mosaic's streaming can read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from typing import Annotated, Any

import msgspec
import numpy as np
import xxhash

from highway.datasets.mds.encodings import encode, encoding_for, encoding_of
from highway.datasets.mds.shards import INDEX, FileEntry, Index, ShardEntry
from highway.datasets.npy.rows import KEYS
from highway.datasets.writing import writing_folder
from highway.errors import ItemError
from highway.parameters.ranges import Range

_LARGEST = 1 << 32  # maximum byte offset in a shard, because offsets are uint32
_HASH = "xxh3_64"  # name of the checksum algorithm in streaming


class MDSWriter:
    """Writes samples into shards; see :func:`mds_writer`."""

    def __init__(self, folder: str, size_limit: int) -> None:
        self._folder, self._limit = folder, size_limit
        self._columns: dict[str, str] = {}  # the encoding of each column
        self._sizes: list[int | None] = []
        self._waiting: list[bytes] = []
        self._bytes = 0
        self.index = Index([])
        self.samples = 0

    def add(self, key: str, sample: Mapping[str, Any]) -> None:
        """Append a sample.

        Raises:
            ItemError: the first sample had other fields, or fields of other types.
            ItemError: the sample has no fields, or a field ``__key__``, or a value that no encoding supports.
        """
        row = {KEYS: key, **sample}
        if not self.samples:
            if KEYS in sample or not sample:
                raise ItemError(f"the sample has {f'a field {KEYS!r}, where its key is kept' if sample else 'no fields'}")
            self._columns = {name: encoding_for(name, row[name]) for name in sorted(row)}
            self._sizes = [encoding_of(encoding).size for encoding in self._columns.values()]
        elif row.keys() != self._columns.keys():
            raise ItemError(
                f"the sample has {', '.join(row)}, but the first sample has {', '.join(self._columns)}; give all samples the same fields"
            )
        values = [encode(name, encoding, row[name]) for name, encoding in self._columns.items()]
        varying = [len(value) for value, size in zip(values, self._sizes, strict=True) if size is None]
        if 4 * len(varying) + sum(map(len, values)) >= _LARGEST - (1 << 24):
            raise ItemError(f"the sample has {sum(map(len, values))} bytes; expected less than 4 GiB")
        data = b"".join([np.array(varying, "<u4").tobytes(), *values])
        if self._waiting and self._bytes + len(data) + 4 > self._limit:
            self.flush()
        self._waiting.append(data)
        self._bytes += len(data) + 4
        self.samples += 1

    def flush(self) -> None:
        """Write the buffered samples into a shard."""
        samples, self._waiting, self._bytes = self._waiting, [], 0
        name = f"shard.{len(self.index.shards):05}.mds"
        entry = ShardEntry(
            column_names=list(self._columns),
            column_encodings=list(self._columns.values()),
            column_sizes=self._sizes,
            raw_data=FileEntry(name, 0),
            samples=len(samples),
            size_limit=self._limit,
            hashes=[_HASH],
        )
        settings = {key: value for key, value in msgspec.to_builtins(entry).items() if key not in ("raw_data", "samples", "zip_data")}
        config = msgspec.json.encode(settings, order="sorted")
        begin = 4 * (len(samples) + 2) + len(config)
        offsets = np.array(list(accumulate(map(len, samples), initial=begin)), "<u4")
        digest = xxhash.xxh3_64()
        with open(os.path.join(self._folder, name), "wb") as file:
            for part in (np.array(len(samples), "<u4").tobytes(), offsets.tobytes(), config, *samples):
                file.write(part)
                digest.update(part)
            entry.raw_data.bytes = file.tell()
        entry.raw_data.hashes = {_HASH: digest.hexdigest()}
        self.index.shards.append(entry)


@contextmanager
def mds_writer(path: str, size_limit: Annotated[int, Range(ge=1, lt=_LARGEST)] = 1 << 26, durable: bool = False) -> Iterator[MDSWriter]:
    """Write samples into a folder of MDS shards. The folder gets its final name only when all shards are complete.

    All samples must have the same fields. The column ``__key__`` contains the keys of the samples.

    Args:
        path: The folder.
        size_limit: Maximum size of a shard in bytes, approximately. A sample that is larger gets its own shard.
        durable: Whether to wait until all files are on the disk. The files then survive a crash of the machine.

    Raises:
        FileExistsError: the path is a file, or a folder that is not empty.
        OSError: a file cannot be written.
        ItemError: a sample does not have the fields of the first sample, or has a value that MDS does not support (when the sample is
            added).
    """
    with writing_folder(path, INDEX, durable) as folder:
        writer = MDSWriter(folder, min(size_limit, _LARGEST // 2))
        yield writer
        if writer.samples:
            writer.flush()
        with open(os.path.join(folder, INDEX), "wb") as file:
            file.write(msgspec.json.encode(writer.index, order="sorted"))
