"""Store millions of keys in little memory. The keys are concatenated in one ``bytes`` object."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgpack
import numpy as np

from highway.datasets.dataset import LazyKeys
from highway.engine.cancel import check_cancelled

LIST = b"__keys__"  # in databases of tensorpack and highway, the value of this key is a list of all other keys
_AT_ONCE = 1 << 16


def is_sample(key: bytes) -> bool:
    """Return whether a key belongs to a sample. Keys such as ``__keys__`` and ``__len__`` belong to metadata."""
    return not (key.startswith(b"__") and key.endswith(b"__") and len(key) > 4)


class Keys(LazyKeys):
    """The keys of the samples in a database. A key is converted to a string when it is requested.

    Args:
        keys: All keys of the database. Keys of metadata, such as ``__keys__``, are skipped.
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        rows, sizes = [], array("I")
        left = iter(keys)
        while some := list(islice(left, _AT_ONCE)):
            check_cancelled()
            some = list(filter(is_sample, some))
            rows.append(b"".join(some))
            sizes.extend(map(len, some))
        self._row, lengths = b"".join(rows), np.asarray(sizes)
        self._length = len(lengths)
        self._width = int(lengths[0]) if len(lengths) and (lengths == lengths[0]).all() else None
        self._ends = None if self._width is not None else np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

    def _key_at(self, number: int) -> str:
        return self.encoded(number).decode(errors="surrogateescape")

    def encoded(self, number: int) -> bytes:
        """Return a key as bytes. Raises IndexError."""
        number = range(self._length)[number]
        if self._width is not None:
            return self._row[number * self._width : (number + 1) * self._width]
        begin, end = self._ends[number : number + 2].tolist()  # type: ignore[index]  # either _width or _ends is set
        return self._row[begin:end]

    def are_distinct(self) -> bool:
        """Return whether all keys have different hashes. In this case, all keys are different."""
        hashes = np.fromiter((hash(self.encoded(number)) for number in range(self._length)), np.int64, self._length)
        return len(np.unique(hashes)) == self._length

    def several(self, numbers: Sequence[int]) -> list[bytes]:
        """Return several keys as bytes. Raises IndexError."""
        if (width := self._width) is None:
            return list(map(self.encoded, numbers))
        row, all_numbers = self._row, range(self._length)
        return [row[(at := all_numbers[number] * width) : at + width] for number in numbers]


class ZeroKeys(Keys):
    """The keys in databases of the Highway library of 2017. Sample n has a key of n zero bytes. As a string, the key is ``str(n)``.

    Args:
        keys: All keys of the database. Only their lengths are stored.
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._width, self._sizes = None, np.fromiter(map(len, keys), np.uint32)
        self._length = len(self._sizes)

    def _key_at(self, number: int) -> str:
        return str(self._sizes[number])

    def encoded(self, number: int) -> bytes:
        return bytes(int(self._sizes[number]))


def listed(value: Any) -> Iterator[bytes]:
    """Yield the keys in the value of ``__keys__``.

    Raises:
        ValueError: the value is not a msgpack list of byte strings. It can be a pickle.
    """
    unpacker = msgpack.Unpacker(max_buffer_size=0, raw=True)
    unpacker.feed(value)
    try:
        count = unpacker.read_array_header()
        for _ in range(count):
            key = unpacker.unpack()
            if not isinstance(key, bytes):
                raise ValueError(f"the list of keys contains a {type(key).__name__}")
            yield key
    except (msgpack.UnpackException, msgpack.StackError, msgpack.FormatError) as error:
        raise ValueError(f"not a list of keys: {error or type(error).__name__}") from None
    if unpacker.tell() != len(value):
        raise ValueError("other data follow the list of keys")


def pack_list(keys: Iterable[bytes], count: int) -> bytes:
    """Return the value of ``__keys__``: a list of ``count`` keys."""
    packer = msgpack.Packer(autoreset=False)
    packer.pack_array_header(count)
    for key in keys:
        packer.pack(key)
    packed: bytes = packer.bytes()
    return packed
