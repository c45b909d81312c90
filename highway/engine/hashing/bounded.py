"""Hash texts, arrays and lists of any size in a bounded time.

A *plain* container is a list, tuple, dict or set that holds only numbers, texts and plain containers. Texts, arrays and plain containers
are hashed completely, up to 64 MB in total. After 64 MB, only a sample of each value is hashed, with the length, dtype and shape of the
value. If a list that is not plain has more than 16,384 entries, only evenly spaced entries are hashed.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import marshal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import xxhash

from highway.engine.hashing.objects import FLAT, is_blank, is_inert
from highway.errors import HighwayError

MOST_BYTES = 64 * 2**20
MOST_ENTRIES, MOST_PLAIN = 2**14, MOST_BYTES // 8  # maximum number of hashed entries of a list, and of a plain list
MOST_LISTED, MOST_OBJECTS = 2**16, 2**18  # maximum hashed list entries and objects in total; of further objects, only the type is hashed
MOST_NESTED = 40  # objects are hashed recursively up to this nesting depth; deeper objects are hashed later
_LEAST = 2**20, 2**10, 2**12  # limits for the values that a component changes while it runs: bytes, list entries, objects
_FEW = 16  # number of hashed entries of a list after the limits are reached
_PLAIN = FLAT | {list, tuple, dict}  # types whose marshalled bytes depend only on the values
_BLOCKS, _BLOCK = 256, 4096  # number of blocks in a sample, and bytes of a block


class UnknownValueError(HighwayError):
    """A value that cannot be hashed."""


class Hashed(NamedTuple):
    """The hash of a value.

    Args:
        values: Hash of the objects that the program passes to the component.
        code: Hash of the source code that the value depends on; empty if the value does not depend on code of the user.
    """

    values: bytes
    code: bytes = b""


class Bounded(ABC):
    """Base class of hashers. It hashes values of any size in a bounded time.

    Attributes:
        changing: Names and values of the variables that the current component changes while it runs. The component's hash does not contain
            these values, because the hash must be the same before and after a run. Zeros and empty containers are skipped, because counters
            and caches begin with them.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Reset the limits for the next component."""
        self._bytes_left, self._entries_left, self._objects_left = MOST_BYTES, MOST_LISTED, MOST_OBJECTS
        self._path: dict[Any, int] = {}  # the values being hashed, from outer to inner
        self._nested: dict[int, Any] = {}  # deeply nested values, by id
        self._later: list[Any] = []  # nested values that are not hashed yet
        self.changing: list[tuple[str, Any]] = []

    def is_too_deep(self, value: Any) -> bool:
        """Return whether a value is nested so deeply that hashing it now could cause a RecursionError. Such a value is hashed later."""
        if len(self._path) < MOST_NESTED:
            return False
        if id(value) not in self._nested:
            self._nested[id(value)] = value
            self._later.append(value)
        return True

    def note_changing(self, name: str, value: Any) -> None:
        if not (is_blank(value) or is_inert(value)) and len(self.changing) < _LEAST[1]:
            self.changing.append((name, value))

    def hashes_of_changing(self) -> dict[str, bytes]:
        """Return the hashes of the values in ``changing``, by name, and empty ``changing``. Call it after the component was hashed."""
        changing, self.changing = self.changing, []
        self._bytes_left, self._entries_left, self._objects_left = _LEAST
        found: dict[str, bytes] = {}
        for name, value in changing:
            with contextlib.suppress(Exception):  # another pipeline can change the value at this moment
                found[name] = found.get(name, b"") + self.of(value).values
        return found

    @abstractmethod
    def of(self, value: Any) -> Hashed:
        """Return the hash of a value."""

    def text(self, value: str | bytes, kind: str = "") -> Hashed:
        if len(value) <= 64:
            self._bytes_left -= len(value)
            return Hashed((kind + repr(value)).encode(errors="surrogatepass"))
        length = len(value)
        if length > max(self._bytes_left, _BLOCK):
            value = value[:: length // _BLOCK + 1]
        self._bytes_left -= len(value)
        data = value if isinstance(value, bytes) else value.encode(errors="surrogatepass")
        return Hashed(b"%d " % length + hashlib.blake2b(data, digest_size=16, person=(kind or type(value).__name__).encode()).digest())

    def entries(self, part: Callable[[int], list[Any]], length: int) -> Hashed:
        """Return the hash of the entries of a list. ``part(n)`` returns every n-th entry."""
        entries = part(1 + (length - 1) // MOST_PLAIN if length else 1)
        if (size := plain_bytes(entries, self._bytes_left)) is not None:
            self._bytes_left -= size
            return Hashed(hashlib.blake2b(marshal.dumps(entries, 2), digest_size=16).digest())
        most = max(min(MOST_ENTRIES, self._entries_left), _FEW)
        if len(entries) > most:
            entries = [*entries[:: len(entries) // most + 1], entries[-1]]
        self._entries_left -= len(entries)
        return summed("", (("", self.of(entry)) for entry in entries))

    def set_of(self, value: Any) -> Hashed:
        entries = list(value)
        if (size := plain_bytes(entries, self._bytes_left)) is not None:
            self._bytes_left -= size
            return Hashed(_digest(sorted(marshal.dumps(entry, 2) for entry in entries)))
        if len(entries) > MOST_ENTRIES:
            try:
                return self.of([*heapq.nsmallest(_BLOCK, entries), *heapq.nlargest(_BLOCK, entries)])
            except TypeError:  # the entries cannot be compared
                return Hashed(b"")
        return summed("", (("", part) for part in sorted(map(self.of, entries))))

    def array(self, kind: str, array: np.ndarray) -> Hashed:
        about = f"{kind} {array.dtype} {array.shape}".encode()
        if array.dtype.hasobject:
            entries = self.entries(lambda step: array.flat[::step].tolist(), array.size)
            return summed(kind, [("about", Hashed(about)), ("", entries)])
        digest = xxhash.xxh3_128(about)  # ten times as fast as blake2b
        if array.nbytes <= self._bytes_left:
            self._bytes_left -= array.nbytes
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        elif array.flags.c_contiguous:
            data = array.reshape(-1).view(np.uint8)
            for begin in np.linspace(0, max(len(data) - _BLOCK, 0), _BLOCKS, dtype=int).tolist():
                digest.update(data[begin : begin + _BLOCK].tobytes())
        else:
            digest.update(array.flat[np.linspace(0, array.size - 1, min(_BLOCK, array.size), dtype=int)].tobytes())
        return Hashed(digest.digest())


def plain_bytes(entries: list[Any], most: int) -> int | None:
    """Return the approximate bytes of a list that holds only numbers, texts, and nested lists, tuples and dicts.

    Return ``None`` if the list holds objects of other types, takes more than ``most`` bytes, or is nested too deeply.
    """
    size, level = 0, entries
    for _ in range(MOST_NESTED):
        kinds = set(map(type, level))
        if not kinds <= _PLAIN:
            return None
        size += 8 * len(level) + (sum(len(one) for one in level if type(one) in (str, bytes)) if kinds & {str, bytes} else 0)
        if size > most:
            return None
        if kinds <= FLAT:
            return size
        inner = [one.items() if type(one) is dict else one for one in level if type(one) in (list, tuple, dict)]
        level = list(islice(chain.from_iterable(inner), most // 8 + 1))
    return None


def summed(kind: str, parts: Iterable[tuple[str, Hashed]]) -> Hashed:
    """Return the hash of a value with named parts."""
    values, codes = [kind.encode()], []
    for name, (value, code) in parts:
        values.append(b"%s\0%d " % (name.encode(errors="surrogatepass"), len(value)) + value)
        codes.append(code)
    code = _digest([b"%d " % len(code) + code for code in codes]) if any(codes) else b""
    return Hashed(_digest(values), code)


def _digest(parts: list[bytes]) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()
