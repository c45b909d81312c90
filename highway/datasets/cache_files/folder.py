"""Read and write the files of a cache, which are in their own folder. The manifest is written last: if it exists, the cache is complete.

===================================  ==============================================================================================
``highway-cache.lock``               shows that the folder is for a cache; the process that writes the cache holds a lock on this file
``highway-cache-ID.data``            the arrays of the samples, each at a multiple of 64 bytes
``highway-cache-ID.index``           where each array begins, its shape, and the keys, positions and checksums of the samples
``highway-cache.json``               the manifest: the fingerprint of the content, the ID of the files, the size of the data file, and
                                     the checksum of the index file
===================================  ==============================================================================================

When all other files are on the disk, an atomic rename creates the manifest. Without a valid manifest, a folder has no cache. If a folder
contains files that do not belong to a cache, highway writes no cache into this folder, and never removes these files. Hidden files are
ignored. A :class:`CacheFolder` with the path ``""`` has no folder: its cache is in memory.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xxhash

from highway.datasets.cache_files.claim import MANIFEST, PART, claimed
from highway.datasets.cache_files.file import CacheFile, DiskFile
from highway.datasets.cache_files.layout import FieldSpec, Layout
from highway.datasets.cache_files.writer import CacheWriter, full_disk, packed_index, unpacked_index
from highway.datasets.writing import sync
from highway.errors import DatasetError

log = logging.getLogger("highway")

FORMAT = 3  # version of the file format; a cache with a different version is not used


class _OtherCache(DatasetError):
    """The folder has a cache with a different fingerprint or version."""


@dataclass(frozen=True)
class CacheFolder:
    """The location of a cache.

    Args:
        path: The folder, or ``""`` for memory.
        fingerprint: A string that identifies the content of the cache. A cache with a different fingerprint is not used. ``None``: a
            finished cache is used with any fingerprint. A cache of another file format is never used.
    """

    path: str
    fingerprint: str | None

    def open(self, quiet: bool = False) -> DiskFile | None:
        """Return the finished cache, or ``None`` if it does not exist or is not usable. If ``quiet`` is false, log why it is not usable."""
        try:
            return self.finished() if self.path else None
        except DatasetError as error:
            if not quiet:
                level = logging.INFO if isinstance(error, _OtherCache) else logging.WARNING
                log.log(level, "cache %s: %s; it will be created again", self.path, error)
        return None

    def finished(self) -> DiskFile | None:
        """Return the finished cache, or ``None`` if there is no manifest.

        Raises:
            DatasetError: the cache is damaged, or has a different fingerprint or version.
        """
        try:
            manifest = self._manifest()
            if manifest["format"] == FORMAT and self.fingerprint in (None, manifest["fingerprint"]):
                return self._load(manifest)
        except (FileNotFoundError, NotADirectoryError) as error:
            if os.path.basename(error.filename) == MANIFEST:  # the cache is not finished, or was discarded
                return None
            raise DatasetError(f"it is damaged ({os.path.basename(error.filename)} is missing)") from error
        except (ValueError, KeyError, TypeError) as error:
            raise DatasetError(f"it is damaged ({error})") from error
        raise _OtherCache("it was created from different data or stages, or by another version of highway")

    def discard(self) -> None:
        """Remove the manifest, so that the next run writes the cache again."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._file(MANIFEST))

    def _manifest(self) -> dict[str, Any]:
        with open(self._file(MANIFEST), "rb") as file:
            found = json.loads(file.read())
        manifest: dict[str, Any] = found["manifest"]
        if _sum(_canonical(manifest)) != found["xxh3_64"]:
            raise ValueError(f"{MANIFEST} does not match its checksum")
        return manifest

    def _load(self, manifest: dict[str, Any]) -> DiskFile:
        name = manifest["name"]
        with open(self._file(f"{name}.index"), "rb") as file:
            packed = file.read()
        if _sum(packed) != manifest["index_sum"]:
            raise ValueError(f"{name}.index does not match its checksum")
        size = os.stat(self._file(f"{name}.data")).st_size
        if size != manifest["size"]:
            raise ValueError(f"{name}.data has {size} bytes, not {manifest['size']}")
        raw = manifest["layout"]
        layout = Layout(raw["form"], raw["names"], [FieldSpec(**spec) for spec in raw["fields"]])
        index = unpacked_index(packed, manifest["arrays"])
        found = DiskFile(self._file(f"{name}.data"), layout, manifest["batch_size"], index)
        found.settled = manifest["settled"]
        return found

    @contextlib.contextmanager
    def writer(self, budget: int) -> Iterator[FolderWriter | None]:
        """Yield a writer for the cache, or ``None`` if there is nothing to write.

        There is nothing to write if another process is writing the cache, or if the finished cache is final (``settled``). A cache that is
        not final can lack samples that were skipped, so the writer can replace this cache. A cache in memory always gets a writer. At the
        end of the ``with`` block, the files of an unfinished cache are removed.

        Raises:
            ConfigError: the folder has files that do not belong to a cache.
        """
        with contextlib.ExitStack() as stack:
            if self.path:
                if not stack.enter_context(claimed(self.path)) or ((file := self.open(quiet=True)) and file.settled):
                    yield None
                    return
                self.clear()
            writer = FolderWriter(self, budget)
            stack.callback(writer.close)
            yield writer

    def clear(self) -> None:
        """Remove the files of old caches and of killed writers. If the finished cache is not usable, also remove its manifest and files.

        A process that has opened such a file can still read the file.
        """
        file = self.open(quiet=True)
        if file is None:
            self.discard()
        for name in os.listdir(self.path):
            if PART.fullmatch(name) and not (file and name.startswith(file.name.removesuffix("data"))):
                os.unlink(self._file(name))

    def publish(self, manifest: dict[str, Any]) -> None:
        manifest = {"format": FORMAT, "fingerprint": self.fingerprint, **manifest}
        _write(self._file(f"{MANIFEST}.new"), json.dumps({"manifest": manifest, "xxh3_64": _sum(_canonical(manifest))}).encode())
        os.replace(self._file(f"{MANIFEST}.new"), self._file(MANIFEST))
        sync(self.path)

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)


class FolderWriter(CacheWriter):
    """Writes samples into a cache, and finishes the cache."""

    def __init__(self, folder: CacheFolder, budget: int) -> None:
        self._folder = folder
        self._name = f"highway-cache-{secrets.token_hex(8)}"
        self._sealed = False
        super().__init__(os.path.join(folder.path, f"{self._name}.data") if folder.path else "", budget)

    def seal(
        self, batch_size: int, left_out: int = 0, tried: CacheFile | None = None, places: Mapping[str, np.ndarray] | None = None
    ) -> CacheFile:
        """Finish the cache, write it to the disk, and return it. Remove an old cache in the folder.

        Args:
            batch_size: Samples in each batch that was cached; 0 if single samples were cached.
            left_out: Number of errors that were skipped (``on_error="skip"``) while the cache was written.
            tried: The cache of the earlier try that skipped samples; ``None`` if this is the first try.
            places: The optional arrays of the index, by name (listed in ``file``). By default there are none.

        Raises:
            CacheFullError: the disk has no space for the index.
        """
        file = self.finish(batch_size, places or {})
        file.settled = left_out == 0 or (tried is not None and not _has_more(file, tried))
        if self._folder.path:
            packed = packed_index(file.index)
            with full_disk():
                _write(os.path.join(self._folder.path, f"{self._name}.index"), packed)
                files = {"name": self._name, "size": file.nbytes, "index_sum": _sum(packed), "arrays": list(file.index)}
                about = {"samples": len(file), "batch_size": batch_size, "layout": asdict(file.layout)}
                self._folder.publish({**files, **about, "left_out": left_out, "settled": file.settled})
            self._sealed = True
            self._folder.clear()
        return file

    def close(self) -> None:
        """Close the file. If the cache was not finished, remove the files."""
        super().close()
        if self._folder.path and not self._sealed:
            for end in ("data", "index"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._folder.path, f"{self._name}.{end}"))


def _has_more(file: CacheFile, tried: CacheFile) -> bool:
    """Return whether a cache has samples that an earlier cache lacks. Compare their keys or, without keys, the numbers of samples."""
    keys = set(file.keys(range(len(file))))
    return not keys <= set(tried.keys(range(len(tried)))) if keys else len(file) > len(tried)


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
    sync(path)


def _canonical(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, sort_keys=True).encode()


def _sum(data: bytes) -> str:
    return str(xxhash.xxh3_64_hexdigest(data))
