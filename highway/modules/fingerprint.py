"""What made the items of a pipeline, in a few letters: other files or other parameters give other letters."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import singledispatch
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from highway.backend import cv2_or_none
from highway.cancel import check_cancelled
from highway.errors import ConfigError
from highway.modules.decode import backend
from highway.modules.readers import ImageReader
from highway.modules.webdataset import WebDatasetSource

_HOW = ("epochs", "num_workers", "counters")  # parameters that say how often or how fast, not what


@runtime_checkable
class Fingerprinted(Protocol):
    """A source or map that can say whether what comes out of it is still the same."""

    def fingerprint(self) -> str:
        """Return a text that changes when what comes out changes: parameters, and the names, sizes and times of the files."""


class FileState(NamedTuple):
    """What is asked of a file to see whether it has changed."""

    name: str
    size: int
    mtime_ns: int


def fingerprint(components: Sequence[Any]) -> str:
    """Return what made the items that come out of a source and the stages after it, as 32 hexadecimal digits.

    Readers are known by their parameters, and the names, sizes and times of their files; maps and streams that are dataclasses by their
    parameters; others by their method ``fingerprint()`` (:class:`Fingerprinted`). The decoder counts: pixels differ between them.

    Raises:
        ConfigError: one of the components cannot be known in this way.
    """
    digest = hashlib.blake2b(repr((backend(), cv2_or_none() is not None)).encode(), digest_size=16)
    for position, component in enumerate(components):
        if position == 0 and not _is_known_source(component):
            raise _unknown(component)
        if position and _reader(component) is _reader(components[0]):  # its files are known already
            continue
        for part in _parts(component):
            digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def epochs_of(source: Any) -> int | None:
    """Return how many passes a source makes over its data, by its parameter ``epochs``; ``None`` if it has none, or repeats for ever."""
    found = getattr(_reader(source), "epochs", None)
    return found if isinstance(found, int) else None


def _reader(source: Any) -> Any:
    """The component that the user wrote: a reader's own source, its planner, holds on to it."""
    return getattr(source, "reader", source)


def _is_known_source(source: Any) -> bool:
    return isinstance(_reader(source), (Fingerprinted, ImageReader, WebDatasetSource))


@singledispatch
def _files(component: Any) -> Iterator[FileState]:
    """The files that a component reads, as they are now."""
    return iter(())


@_files.register
def _(component: ImageReader) -> Iterator[FileState]:
    found = component.files()
    for key in found.keys:
        yield _state(os.path.join(found.root, key), key)


@_files.register
def _(component: WebDatasetSource) -> Iterator[FileState]:
    for url in component.shards:
        yield _state(url, url) if os.path.exists(url) else FileState(url, 0, 0)  # what lies behind a URL cannot be asked


def _state(path: str, name: str) -> FileState:
    check_cancelled()
    found = os.stat(path)
    return FileState(name, found.st_size, found.st_mtime_ns)


def _parts(value: Any) -> Iterator[str]:
    """Yield all that a value consists of, as texts."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, Fingerprinted) and not isinstance(value, type):
        yield f"{kind} {value.fingerprint()}"
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield kind
        for field in dataclasses.fields(value):
            if field.init and field.name not in _HOW:
                yield field.name
                yield from _parts(getattr(value, field.name))
        yield from map(repr, _files(value))
    elif value is None or isinstance(value, (str, bytes, int, float, complex, enum.Enum)):
        yield f"{kind} {value!r}"
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield f"{value.dtype} {value.shape} {hashlib.blake2b(value.tobytes()).hexdigest()}"
    elif isinstance(value, (list, tuple)):
        yield f"{kind} {len(value)}"
        for part in value:
            yield from _parts(part)
    elif isinstance(value, dict):
        yield f"{kind} {len(value)}"
        for key, part in value.items():
            yield from _parts(key)
            yield from _parts(part)
    else:
        raise _unknown(value)


def _unknown(value: Any) -> ConfigError:
    return ConfigError(
        f"Cache: it cannot be seen whether {value!r} still makes the same items: give Cache(key=...) a text that you change when it does, "
        "or give the component a method fingerprint() that returns one"
    )
