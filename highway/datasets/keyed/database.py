"""The base class of datasets whose samples are the values of a database of keys and values, and of the writers of such databases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from highway.datasets.keyed.keys import LIST, Keys, ZeroKeys, is_sample, listed
from highway.datasets.keyed.values import Decode, decoder, encode_sample, recognised
from highway.datasets.opened import opened
from highway.datasets.records.protobuf import Data
from highway.datasets.records.trusted_pickle import check_local
from highway.errors import ConfigError, DatasetError, ItemError
from highway.stores.url import shown

T = TypeVar("T")


class Database(Protocol):
    """An open database."""

    def read(self, keys: Sequence[bytes], use: Callable[[Data], T]) -> list[T]:
        """Return ``use(value)`` for the value of each key. ``use`` must not keep a reference to the value.

        Raises:
            BadValue: a key does not exist, or ``use`` raises a ValueError.
            DatasetError: the database has changed, or is damaged.
        """

    def keys(self) -> Iterator[bytes]:
        """Yield all keys, in their order."""

    def last_key(self) -> bytes | None:
        """Return the last key, or ``None`` if there are no keys."""

    def count(self) -> int | None:
        """Return the number of keys. Return ``None`` if the database would have to list its keys to count them."""


class BadValue(Exception):
    """A value cannot be used.

    Args:
        place: Index of the value's key in the list of requested keys.
        reason: The reason, which messages show.
    """

    def __init__(self, place: int, reason: object) -> None:
        super().__init__(place, reason)
        self.place, self.reason = place, reason


def use_all(keys: Iterable[bytes], get: Callable[[bytes], Data | None], use: Callable[[Data], T]) -> list[T]:
    """Return ``use(get(key))`` for each key. Raises the errors of :meth:`Database.read`."""
    found: list[T] = []
    try:
        for key in keys:
            if (value := get(key)) is None:
                raise ValueError("it is listed, but no longer exists; write the database again")
            found.append(use(value))
    except (ValueError, RecursionError) as error:
        raise BadValue(len(found), error) from error
    return found


class _Contents(NamedTuple):
    """A database, its keys, and the decoder of its values."""

    database: Database
    keys: Keys
    decode: Callable[[Data], Any]


@dataclass
class KeyedDataset(ABC):
    """Random access to the values of a database, in the order of their keys.

    Args:
        path: The database.
        decode: How to decode the values: ``"bytes"`` (values are not decoded); ``"fields"``, the format of highway's writer
            (:mod:`highway.datasets.keyed.values`); ``"msgpack"``, with arrays as msgpack-numpy and tensorpack write them; ``"caffe"``, a
            Datum; ``"example"``, a ``tf.train.Example``; ``"ten"``, ``"npy"`` or ``"json"``, the content of such a file; or
            ``"trusted_pickle"``, the pickles that tensorpack writes by default. A pickle can run any code, so use ``"trusted_pickle"`` only
            for a local file that you trust. ``None``: highway looks at the first value. If this value has the format ``"fields"``,
            ``"msgpack"`` or ``"caffe"``, all values are decoded in this format. Otherwise, values stay ``bytes``. If the first value looks
            like a pickle, the first access raises an error.
        fields: A dict from new field names to the fields to read, if samples are dicts. ``{"image": "png;jpg"}`` reads the first of the
            fields ``png`` and ``jpg`` that a sample has. ``None`` reads all fields under their own names.
    """

    path: str
    decode: Decode | None = None
    fields: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if self.decode == "trusted_pickle":
            check_local(type(self).__name__, [self.path])
        if self.fields is not None and self.decode in ("bytes", "ten", "npy"):
            raise ConfigError(
                f"{type(self).__name__}: decode={self.decode!r} yields values without fields, so fields={self.fields!r} "
                f"has no effect; remove one of them"
            )

    @abstractmethod
    def _open(self) -> Database:
        """Open the database, once per process."""

    @opened
    def _contents(self) -> _Contents:
        database = self._open()
        keys = _listed(database)
        name: str | None = self.decode
        if name is None:
            first = [keys.encoded(0)] if len(keys) else []
            try:
                name = next(iter(database.read(first, recognised)), "bytes")
            except BadValue as bad:
                raise DatasetError(f"{shown(self.path)}: sample {keys[0]!r}: {bad.reason}") from bad.__cause__
            if name == "bytes" and self.fields is not None:
                raise ConfigError(f"{shown(self.path)}: the encoding of the values is unknown; fields={self.fields!r} also needs decode=")
        return _Contents(database, keys, decoder(name, self.fields))

    def __len__(self) -> int:
        return len(self._contents.keys)

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several samples."""
        database, keys, decode = self._contents
        try:
            return database.read(keys.several(numbers), decode)
        except BadValue as bad:
            raise DatasetError(f"{self.locate(numbers[bad.place])}: {bad.reason}") from bad.__cause__

    @property
    def keys(self) -> Sequence[str]:
        """The keys as strings, in the order of the database."""
        return self._contents.keys

    def locate(self, number: int) -> str:
        """Return the database and key of a sample."""
        return f"{shown(self.path)}: sample {self.keys[number]!r}"


class KeyedWriter(ABC):
    """Adds values to a database."""

    def __init__(self) -> None:
        self._times: dict[bytes, int] = {}
        self.samples = 0

    def add(self, key: str, sample: Mapping[str, Any]) -> None:
        """Add a sample. If the key already exists, append ``-2``, ``-3``, ... to the key, so that no sample is replaced.

        Raises:
            ItemError: the key begins and ends with ``__``. Such keys are reserved for metadata.
            ItemError: the key has a length that the database does not support.
            TypeError: the value of a field cannot be encoded.
            OSError: the database cannot be written.
        """
        self.put(key.encode(errors="surrogateescape"), encode_sample(sample))

    def put(self, key: bytes, value: bytes) -> None:
        """Add an encoded value. If the key exists, append a number to the key. Raises the errors of :meth:`add`."""
        if not is_sample(key):
            raise ItemError(f"the key {key!r} begins and ends with '__', which is reserved for metadata; use another key")
        whole = key
        while not self._put(whole, value):
            times = self._times[key] = self._times.get(key, 1) + 1
            whole = b"%b-%d" % (key, times)
        self.samples += 1

    @abstractmethod
    def _put(self, key: bytes, value: bytes) -> bool:
        """Put a value if the key does not exist, and return whether it was put."""


def _listed(database: Database) -> Keys:
    """Return the keys of a database. If the database has a complete list of its keys, read the list. Otherwise read all keys."""
    last = database.last_key()
    if last is not None and not any(last):  # if the last key has only zero bytes, all keys have only zero bytes
        return ZeroKeys(database.keys())
    count = database.count()
    if count is not None:
        try:
            keys = database.read([LIST], lambda value: Keys(listed(value)))[0]
        except BadValue:  # there is no list, or another writer's list, such as a pickle
            keys = None
        if keys is not None and len(keys) == count - 1 and keys.are_distinct():
            return keys
    return Keys(database.keys())
