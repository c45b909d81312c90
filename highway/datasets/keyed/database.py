"""Base classes for databases of keys and values. In such a dataset, a sample is a value of the database."""

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
        """Return ``use(value)`` for the value of each key. ``use`` must not keep the value, whose memory is freed afterwards.

        Raises:
            BadValue: a key does not exist, or ``use`` raises a ValueError or RecursionError.
            DatasetError: the database has changed, or is damaged.
        """

    def keys(self) -> Iterator[bytes]:
        """Yield all keys, in sorted order."""

    def last_key(self) -> bytes | None:
        """Return the last key, or ``None`` if there are no keys."""

    def count(self) -> int | None:
        """Return the number of keys. Return ``None`` if the database can only count the keys by reading all of them."""


class BadValue(Exception):
    """A value does not exist, or cannot be decoded.

    Args:
        place: Index of the key in the list of requested keys.
        reason: The reason, for messages.
    """

    def __init__(self, place: int, reason: object) -> None:
        super().__init__(place, reason)
        self.place, self.reason = place, reason


def use_all(keys: Iterable[bytes], get: Callable[[bytes], Data | None], use: Callable[[Data], T]) -> list[T]:
    """Return ``use(get(key))`` for each key. Raises BadValue; see :meth:`Database.read`."""
    found: list[T] = []
    try:
        for key in keys:
            if (value := get(key)) is None:
                raise ValueError("the list of keys contains this key, but the database has no value for it; write the database again")
            found.append(use(value))
    except (ValueError, RecursionError) as error:
        raise BadValue(len(found), error) from error
    return found


class _Contents(NamedTuple):
    """A database, its keys, and the function that decodes its values."""

    database: Database
    keys: Keys
    decode: Callable[[Data], Any]


@dataclass
class KeyedDataset(ABC):
    """Random access to the values of a database, in the order of the keys.

    Args:
        path: The database.
        decode: The format of the values. ``"bytes"``: values are not decoded. ``"fields"``: the format of highway's writers
            (:mod:`highway.datasets.keyed.values`). ``"msgpack"``: msgpack, with arrays as in msgpack-numpy and tensorpack. ``"caffe"``:
            Caffe's Datum. ``"example"``: ``tf.train.Example``. ``"ten"``, ``"npy"``, ``"json"``: the content of such a file.
            ``"trusted_pickle"``: pickles, which tensorpack writes by default. Loading a pickle can run any code, so use
            ``"trusted_pickle"`` only for a local file that you trust. ``None``: the first value determines the format, which is
            ``"fields"``, ``"msgpack"``, ``"caffe"`` or ``"bytes"``. If the first value looks like a pickle, an error is raised.
        fields: A dict from new field names to the fields to read, for samples that are dicts. ``{"image": "png;jpg"}`` reads the field
            ``png``, or the field ``jpg`` if a sample has no field ``png``. ``None`` reads all fields under their own names.
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
        """Open the database. Each process calls this method once."""

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
    """Writes samples into a database."""

    def __init__(self) -> None:
        self._times: dict[bytes, int] = {}
        self.samples = 0

    def add(self, key: str, sample: Mapping[str, Any]) -> None:
        """Add a sample. If the key already exists, ``-2``, ``-3``, ... is appended to the key, so that no sample is replaced.

        Raises:
            ItemError: the key begins and ends with ``__``. Such keys are reserved for metadata.
            ItemError: the key is empty, or too long for the database.
            TypeError: the value of a field cannot be encoded. Most of these errors are ItemErrors.
            OSError: the database cannot be written.
        """
        self.put(key.encode(errors="surrogateescape"), encode_sample(sample))

    def put(self, key: bytes, value: bytes) -> None:
        """Add an encoded sample; see :meth:`add`."""
        if not is_sample(key):
            raise ItemError(f"the key {key!r} begins and ends with '__', which is reserved for metadata; use another key")
        whole = key
        while not self._put(whole, value):
            times = self._times[key] = self._times.get(key, 1) + 1
            whole = b"%b-%d" % (key, times)
        self.samples += 1

    @abstractmethod
    def _put(self, key: bytes, value: bytes) -> bool:
        """Write a value if the key does not exist. Return whether the value was written."""


def _listed(database: Database) -> Keys:
    """Return the keys of a database. If the database stores a complete list of its keys, only this list is read."""
    last = database.last_key()
    if last is not None and not any(last):  # keys are sorted: if the last key has only zero bytes, all keys have only zero bytes
        return ZeroKeys(database.keys())
    count = database.count()
    if count is not None:
        try:
            keys = database.read([LIST], lambda value: Keys(listed(value)))[0]
        except BadValue:  # the database has no list, or another program wrote the list, for example as a pickle
            keys = None
        if keys is not None and len(keys) == count - 1 and keys.are_distinct():
            return keys
    return Keys(database.keys())
