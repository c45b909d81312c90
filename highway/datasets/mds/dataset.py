"""Random access to the samples in MDS shards. MDS is the format of Mosaic's streaming."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from highway.datasets.dataset import LazyKeys
from highway.datasets.mds.shards import INDEX, Shard, ShardEntry, read_index
from highway.datasets.npy.rows import KEYS
from highway.datasets.opened import MOST_OPEN, opened
from highway.datasets.parts import PartedDataset, Spans
from highway.datasets.records.protobuf import Data
from highway.parameters.checks import checked
from highway.stores.file import fingerprint_of, read_ranges
from highway.stores.unchanging import FileState
from highway.stores.url import join, shown

log = logging.getLogger("highway")


class _Shards:
    """The shards of a folder."""

    def __init__(self, folder: str, fields: dict[str, str] | None, verify: bool) -> None:
        self.entries = read_index(folder).shards
        self.spans = Spans(entry.samples for entry in self.entries)
        # The function must not refer to self, because this would be a reference cycle.
        self.open = lru_cache(MOST_OPEN)(partial(_opened, folder, self.entries, fields, verify, {}))
        self.has_keys = bool(self.entries) and all(KEYS in entry.column_names for entry in self.entries)
        if verify and not all(entry.raw_data.hashes for entry in self.entries):
            log.warning("%s has no checksums for some shards: damage in these shards is not detected", shown(join(folder, INDEX)))

    def find(self, number: int) -> tuple[Shard, int]:
        """Return the shard of a sample, and the index of the sample in the shard. Raises IndexError."""
        place, row = self.spans.place(number)
        return self.open(place), row

    def key(self, number: int) -> str:
        shard, row = self.find(number)
        return shard.key(row)


def _opened(
    folder: str, entries: list[ShardEntry], fields: dict[str, str] | None, verify: bool, states: dict[int, FileState], number: int
) -> Shard:
    """Open a shard. The first call stores the size and modification time of the file in ``states``. Later calls require the same values."""
    shard = Shard(folder, entries[number], fields, KEYS, states.get(number))
    if verify and number not in states:
        shard.verify()
    states[number] = shard.file.state
    return shard


@checked
@dataclass
class MDS(PartedDataset):
    """The samples in a folder of MDS shards, in the order of ``index.json``. Shards in an object store, such as S3, are not copied.

    Args:
        path: The folder that contains ``index.json``, or the URL of this folder.
        fields: A dict from field names to columns. ``{"image": "jpeg;png"}`` reads the column ``jpeg``, or the column ``png`` if a shard
            has no column ``jpeg``. ``None`` reads all columns under their own names.
        verify: Whether to compare each shard with its checksum in ``index.json``. The first access to a shard then reads the whole shard.
            If ``index.json`` lacks checksums, a warning is logged.

    A sample is a dict. Images with the encoding ``jpeg`` or ``png`` stay encoded, as ``bytes``. Numbers and arrays have the dtypes of their
    columns (``int`` is int64). For other encodings, see :mod:`highway.datasets.mds.encodings`. If there is a column ``__key__``, it
    contains the keys of the samples, and is not a field. highway does not read columns of pickles (``pkl``), because loading a pickle can
    run any code. Select other columns by ``fields``.

    Raises:
        FileNotFoundError: the folder has no ``index.json`` (on the first access).
        OSError: a shard cannot be opened (when its first sample is read).
        DatasetError: ``index.json`` is not valid.
        DatasetError: a shard is compressed or truncated, does not match ``index.json``, or has changed since the first access.
        DatasetError: a selected column does not exist, or has an unsupported encoding such as ``pkl``.
        DatasetError: a sample is damaged.

    >>> Pipeline([[{"x": 1, "text": "first"}, {"x": 2, "text": "second"}], MDSSink("train")]).run()
    >>> dataset = MDS("train")
    >>> len(dataset), dataset[1]
    (2, {'text': 'second', 'x': np.int64(2)})
    """

    path: str
    fields: dict[str, str] | None = None
    verify: bool = False

    @opened
    def _shards(self) -> _Shards:
        return _Shards(self.path, self.fields, self.verify)

    @property
    def keys(self) -> Sequence[str] | None:
        """The keys of the samples; ``None`` if the samples have no keys."""
        return LazyKeys(self._shards.key, len(self)) if self._shards.has_keys else None

    @property
    def spans(self) -> Spans:
        return self._shards.spans

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return several samples. Samples in an object store are requested concurrently."""
        return self._several(numbers, bytes)

    def __getviews__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return several samples, with ``memoryview`` instead of ``bytes``."""
        return self._several(numbers, memoryview)

    def _several(self, numbers: Sequence[int], kind: Callable[[bytes], Data]) -> list[dict[str, Any]]:
        found = [self._shards.find(number) for number in numbers]
        contents = read_ranges([shard.place(row) for shard, row in found])
        return [shard.sample(row, kind(data)) for (shard, row), data in zip(found, contents, strict=True)]

    def locate(self, number: int) -> str:
        """Return the shard of a sample, and the index of the sample in the shard."""
        shard, row = self._shards.find(number)
        return f"{shard.path}: sample {row}"

    def fingerprint(self) -> str:
        """Return a string that changes when ``index.json`` or a shard is written to, or when ``fields`` changes."""
        names = [INDEX, *(entry.raw_data.basename for entry in read_index(self.path).shards)]
        return f"{fingerprint_of((name, join(self.path, name)) for name in names)} {self.fields}"
