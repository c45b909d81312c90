"""Random access to the samples in a cache. A cache is a folder with decoded samples."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from highway.datasets.cache_files.claim import MANIFEST
from highway.datasets.cache_files.fields import arrays_as_they_came
from highway.datasets.cache_files.file import DiskFile, samples_of
from highway.datasets.cache_files.folder import CacheFolder, FolderWriter
from highway.datasets.dataset import LazyKeys
from highway.datasets.opened import opened
from highway.datasets.writing import writing_folder
from highway.errors import DatasetError
from highway.parameters.checks import checked
from highway.process.memory import free_disk
from highway.stores.file import local
from highway.stores.url import is_url, shown

_LARGE = 1 << 16  # samples are read together only if their mean size is below this number of bytes


@checked
@dataclass
class DecodedCache:
    """The samples of a complete cache.

    :class:`~highway.modules.Cache` or ``highway convert`` writes a cache. The samples have the order in which they were written.

    Args:
        path: The folder of the cache. A folder in an object store, such as S3, is copied into a local folder: add ``?cache_dir=FOLDER`` to
            the URL.

    A sample is equal to the sample that was cached. Its arrays are read-only. The samples have keys if each cached sample had exactly one
    key.

    Raises:
        ConfigError: ``path`` is a URL, but no local folder is set.
        FileNotFoundError: the folder has no complete cache (when the dataset is first read).
        DatasetError: the cache is truncated or damaged (when the dataset is first read). Create the cache again.
        DatasetError: another version of highway wrote the cache in a different format. Create the cache again.
        DamagedError: a sample does not match its checksum (when the sample is read).

    >>> samples = [{"x": n, "square": n * n} for n in range(3)]
    >>> same = list(Pipeline([samples, Cache("cache", shuffle=False, epochs=1, key="squares")]))
    >>> dataset = DecodedCache("cache")
    >>> len(dataset), dataset[2]
    (3, {'x': 2, 'square': 4})
    """

    path: str

    @opened
    def file(self) -> DiskFile:
        """The finished cache."""
        try:
            found = CacheFolder(local(self.path), None).finished()
        except DatasetError as error:
            raise DatasetError(f"{shown(self.path)}: the cache cannot be read: {error}; create it again") from error
        if found is None:
            path = shown(self.path)
            raise FileNotFoundError(f"{path!r}: there is no finished cache; create a cache with `highway convert SRC {path} --to cache`")
        return found

    def __len__(self) -> int:
        return len(self.file)

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        if self.file.nbytes < len(self.file) * _LARGE:
            return samples_of(self.file, numbers)
        return [samples_of(self.file, [number])[0] for number in numbers]  # so that each sample has its own memory

    @property
    def keys(self) -> Sequence[str] | None:
        """The keys of the samples; ``None`` unless every sample has exactly one key."""
        file = self.file
        return LazyKeys(lambda number: file.keys([number])[0], len(file)) if file.has_one_key_each else None

    def locate(self, number: int) -> str:
        """Return the index and key of a sample, and the folder of the cache."""
        keys = self.keys
        return f"sample {number}{f' ({keys[number]})' if keys else ''} of the cache {shown(self.path)}"

    def fingerprint(self) -> str:
        """Return a string that changes when the samples or their order change."""
        index = self.file.index
        digest = hashlib.blake2b(repr(self.file.layout).encode(), digest_size=16)
        for name in ("sums", "keys", "ends"):
            digest.update(np.ascontiguousarray(index[name]).data)
        return digest.hexdigest()


class SamplesWriter:
    """Writes samples into a cache; see :func:`cache_writer`."""

    def __init__(self, writer: FolderWriter) -> None:
        self._writer = writer

    def add(self, key: str, sample: Mapping[str, Any]) -> None:
        """Append a sample.

        Raises:
            CacheFullError: the sample does not fit on the disk.
            ValueError: the sample has different fields than earlier samples, or a field has a different type, dtype or number of axes.
            ItemError: a field of the sample has a type that a cache cannot store.
        """
        self._writer.add(dict(sample), (key,), arrays_as_they_came)


@contextmanager
def cache_writer(path: str) -> Iterator[SamplesWriter]:
    """Write samples into a cache. The cache cannot be read before it is complete.

    Raises:
        FileExistsError: the folder already contains converted samples, or another process is writing a cache into it. A cache of
            :class:`~highway.modules.Cache` is replaced.
        ConfigError: the folder has files that do not belong to a cache.
    """
    if is_url(path):
        with writing_folder(path, MANIFEST) as folder, cache_writer(folder) as samples:
            yield samples
        return
    with CacheFolder(path, "converted samples").writer(free_disk(path) * 9 // 10) as writer:
        if writer is None:
            raise FileExistsError(f"{path!r}: another process is writing this cache, or has finished it")
        yield SamplesWriter(writer)
        if len(writer):
            writer.seal(1)
