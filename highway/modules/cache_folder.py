"""The files of a cache: samples one after the other, then an index of them; and a manifest that is written last.

A folder holds ``data-*`` (the samples' arrays, each at a multiple of 64 bytes, then the index), ``manifest.json``, which names it, and
``lock``, which its writer holds. The manifest appears by renaming, when all else is on the disk: a folder without a manifest, or
with one that does not fit, holds no cache, whatever else lies there. The same without a folder is a cache in memory.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import mmap
import os
import secrets
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any, Literal, cast

import numpy as np

from highway.batch import Item, fields, names
from highway.modules.cache_file import CacheFile, FieldSpec, Layout

log = logging.getLogger("highway")

FORMAT = 1  # of the files; another number is no cache of ours
ALIGNMENT = 64
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM)


class CacheFullError(OSError):
    """The samples do not fit: into the budget, or onto the disk."""


@dataclass(frozen=True)
class CacheFolder:
    """Where a cache is, or is to be.

    Args:
        path: The folder, or ``""`` for memory.
        fingerprint: Says what the cache holds; one that says something else is no cache of ours. ``None`` takes any that is finished.
    """

    path: str
    fingerprint: str | None

    def open(self) -> CacheFile | None:
        """Return the finished cache, or ``None`` if there is none that holds what we want."""
        if not self.path:
            return None
        try:
            with open(self._file("manifest.json"), encoding="utf-8") as file:
                manifest = json.load(file)
            if manifest["format"] != FORMAT or self.fingerprint not in (None, manifest["fingerprint"]):
                log.info("cache %s: made from something else, or by another version of highway; it will be made anew", self.path)
                return None
            return self._load(manifest)
        except FileNotFoundError:  # also while another process replaces it
            return None
        except (ValueError, KeyError, TypeError) as error:
            log.warning("cache %s: it is damaged (%s) and will be made anew", self.path, error)
            return None

    def _load(self, manifest: dict[str, Any]) -> CacheFile:
        with open(self._file(manifest["data"]), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != manifest["size"]:
                raise ValueError(f"{manifest['data']} has {size} bytes, not {manifest['size']}")
            file.seek(manifest["index"])
            index = {name: np.lib.format.read_array(file, allow_pickle=False) for name in manifest["arrays"]}
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        raw = manifest["layout"]
        layout = Layout(raw["form"], raw["names"], [FieldSpec(**spec) for spec in raw["fields"]])
        return CacheFile(memory, layout, manifest["batch_size"], index)

    @contextlib.contextmanager
    def writer(self, budget: int) -> Iterator[CacheWriter | None]:
        """Yield what writes the cache, or ``None`` if another process does or has done so; what is not sealed in the end is removed."""
        with contextlib.ExitStack() as stack:
            if self.path:
                os.makedirs(self.path, exist_ok=True)
                lock = stack.enter_context(open(self._file("lock"), "ab"))
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    yield None
                    return
                if self.open() is not None:
                    yield None
                    return
                self._clear()
            writer = CacheWriter(self, budget)
            stack.callback(writer.close)
            yield writer

    def _clear(self) -> None:
        """Remove what a writer that was killed, or another fingerprint, has left; who has mapped it keeps it."""
        found = os.listdir(self.path)
        for name in sorted(found, key=lambda name: name != "manifest.json"):  # the manifest first
            if name.startswith(("manifest.json", "data-")):
                os.unlink(self._file(name))

    def publish(self, manifest: dict[str, Any]) -> None:
        """Make a manifest appear, whole."""
        temporary = self._file("manifest.json.new")
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump({"format": FORMAT, "fingerprint": self.fingerprint, **manifest}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._file("manifest.json"))
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)


class CacheWriter:
    """Appends samples to a cache that is not finished yet."""

    def __init__(self, folder: CacheFolder, budget: int) -> None:
        self._folder, self._budget = folder, budget
        self._name = f"data-{secrets.token_hex(8)}"
        self._sealed = False
        self._layout: Layout | None = None
        self._offsets, self._ends, self._keys = array("q"), array("q"), bytearray()
        self._shapes: list[array[int]] = []
        self._end = 0
        self._file: IO[bytes] = self._create()

    def __len__(self) -> int:
        """Samples."""
        return len(self._ends)

    @property
    def nbytes(self) -> int:
        """Bytes written so far."""
        return self._end

    def _create(self) -> IO[bytes]:
        if self._folder.path:
            return open(os.path.join(self._folder.path, self._name), "xb+")
        if hasattr(os, "memfd_create"):
            return os.fdopen(os.memfd_create("highway-cache"), "w+b")
        return cast(IO[bytes], tempfile.TemporaryFile())

    def add(self, sample: Item, keys: Sequence[str] = ()) -> None:
        """Append a sample.

        Raises:
            CacheFullError: it does not fit; nothing more can be appended.
            ValueError: it differs from the samples before it in its fields, or in the dtype or number of axes of one.
            TypeError: a field is no array, number, ``str`` or ``bytes``.
        """
        found = [_as_array(name, value) for name, value in zip(names(sample), fields(sample), strict=True)]
        self._expect_alike(sample, [spec for spec, _ in found])
        with _full_disk():
            for (_, values), shapes in zip(found, self._shapes, strict=True):
                self._offsets.append(self._write(values))
                shapes.extend(values.shape)
        self._keys += "\0".join(keys).encode()
        self._ends.append(len(self._keys))

    def _write(self, values: np.ndarray) -> int:
        gap = -self._end % ALIGNMENT
        if self._end + gap + values.nbytes > self._budget:
            raise CacheFullError(f"the budget of {self._budget:,} bytes is used")
        self._file.write(bytes(gap))
        self._file.write(values.data)
        offset = self._end + gap
        self._end = offset + values.nbytes
        return offset

    def _expect_alike(self, sample: Item, specs: list[FieldSpec]) -> None:
        form: Literal["tuple", "dict", "value"] = (
            "dict" if isinstance(sample, dict) else "tuple" if isinstance(sample, (tuple, list)) else "value"
        )
        layout = Layout(form, list(names(sample)), specs)
        if self._layout is None:
            self._layout, self._shapes = layout, [array("q") for _ in specs]
        elif layout != self._layout:
            raise ValueError(f"Cache: sample {len(self)} has {_describe(layout)}, but sample 0 {_describe(self._layout)}; make them alike")

    def seal(self, batch_size: int) -> CacheFile:
        """Finish the cache and return it; by then it is on the disk.

        Raises:
            CacheFullError: there is no room for the index.
        """
        assert self._layout is not None
        count = len(self)
        index: dict[str, np.ndarray] = {
            "offsets": np.array(self._offsets, np.int64).reshape(count, -1),
            "keys": np.frombuffer(bytes(self._keys), np.uint8),
            "ends": np.array(self._ends, np.int64),
        }
        for number, (spec, shapes) in enumerate(zip(self._layout.fields, self._shapes, strict=True)):
            index[f"shapes-{number}"] = np.array(shapes, np.int64).reshape(count, spec.ndim)
        with _full_disk():
            self._file.write(bytes(-self._end % ALIGNMENT))
            start = self._file.tell()
            for values in index.values():
                np.lib.format.write_array(self._file, values, allow_pickle=False)
            self._file.flush()
            size = self._file.tell()
            memory = mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ)
            if self._folder.path:
                os.fsync(self._file.fileno())
                layout = asdict(self._layout)
                about = {"samples": count, "batch_size": batch_size, "layout": layout}
                self._folder.publish({"data": self._name, "size": size, "index": start, "arrays": list(index), **about})
        self._sealed = True
        return CacheFile(memory, self._layout, batch_size, index)

    def close(self) -> None:
        """Let go of the file; remove it if it was not sealed."""
        with contextlib.suppress(OSError):  # flushing what a full disk has refused
            self._file.close()
        if self._folder.path and not self._sealed:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._folder.path, self._name))


@contextlib.contextmanager
def _full_disk() -> Iterator[None]:
    try:
        yield
    except CacheFullError:
        raise
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise CacheFullError(f"{os.strerror(error.errno)}") from error


def _as_array(name: str | int, value: Any) -> tuple[FieldSpec, np.ndarray]:
    kind: Literal["array", "str", "bytes"] = "str" if isinstance(value, str) else "bytes" if isinstance(value, bytes) else "array"
    if kind == "array":
        values = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
    else:
        values = np.frombuffer(value.encode() if isinstance(value, str) else value, np.uint8)
    if values.dtype.kind not in "biufc":
        raise TypeError(f"Cache: field {name!r} is a {type(value).__name__}; expected an array, a number, a str or bytes")
    return FieldSpec(kind, values.dtype.str, values.ndim), values


def _describe(layout: Layout) -> str:
    kinds = (
        f"{name!r}: {spec.kind if spec.kind != 'array' else f'{np.dtype(spec.dtype)} with {spec.ndim} axes'}"
        for name, spec in zip(layout.names, layout.fields, strict=True)
    )
    return f"{layout.form} {', '.join(kinds)}"
