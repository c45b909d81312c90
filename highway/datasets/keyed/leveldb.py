"""The values of a LevelDB database by number, and its writer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from highway.datasets.file import fingerprint_of
from highway.datasets.keyed.database import Database, KeyedDataset, KeyedWriter, use_all
from highway.datasets.keyed.shared import shared
from highway.datasets.records.protobuf import Data
from highway.datasets.writing import writing_folder
from highway.distribution import import_extra
from highway.errors import ConfigError, DatasetError
from highway.parameters.checks import checked
from highway.stores.file import local
from highway.stores.url import shown

T = TypeVar("T")

_TABLES = (".ldb", ".sst")
_AT_ONCE = 1 << 22  # bytes that are written together


def _library() -> Any:
    try:
        return import_extra("plyvel", "leveldb", "LevelDB")
    except ConfigError as error:
        if sys.version_info >= (3, 13):
            raise ConfigError(f"{error}, for which Python 3.12 is the last; convert the database there, to LMDB for example") from error
        raise


class _LevelDBDatabase:
    """A database that is open, in this process alone, for all datasets that read it."""

    def __init__(self, path: str) -> None:
        plyvel = _library()
        self._path, self._process, self._error = path, os.getpid(), plyvel.Error
        try:
            self._database = plyvel.DB(path, create_if_missing=False)
        except plyvel.Error as error:
            raise DatasetError(f"{path}: {_reason(error)}") from error

    def check_process(self) -> None:
        """Raise DatasetError in a forked child, which has none of the threads that a database needs."""
        if self._process != os.getpid():
            raise DatasetError(
                f"{self._path}: it is open in the process that this one was forked from, and LevelDB lets one process in: read it there, "
                "or convert it to LMDB, which any number of processes read"
            )

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Have errors of the library say which database is damaged."""
        try:
            yield
        except self._error as error:
            raise DatasetError(f"{self._path}: damaged: LevelDB says: {_text(error)}") from error

    def read(self, keys: Sequence[bytes], use: Callable[[Data], T]) -> list[T]:
        self.check_process()
        with self._naming():
            return use_all(keys, partial(self._database.get, verify_checksums=True), use)

    def keys(self) -> Iterator[bytes]:
        with self._naming(), self._database.iterator(include_value=False, verify_checksums=True) as found:
            yield from found

    def last_key(self) -> bytes | None:
        with self._naming(), self._database.iterator(include_value=False, reverse=True) as found:
            return next(found, None)

    def count(self) -> None:
        return None


def _text(error: Exception) -> str:
    return b" ".join(arg if isinstance(arg, bytes) else str(arg).encode() for arg in error.args).decode(errors="replace")


def _reason(error: Exception) -> str:
    text = _text(error)
    if "lock" in text:
        where = "in this process, by other code" if "already held" in text else "in another process"
        return f"open {where}, and LevelDB lets one in at a time: close it there, or convert it to LMDB, which any number of processes read"
    return f"LevelDB says: {text}"


@checked
@dataclass
class LevelDB(KeyedDataset):
    """The values of a LevelDB database, in the order of their keys.

    LevelDB lets one process open a database at a time, which must be allowed to write to its folder. It does not know its keys without
    going through all of it, which is done when it is first read. Where there is a choice, use :class:`LMDB`.

    Args:
        path: The database: a folder. If it is in a store, it is copied into the cache.

    A sample is what ``decode`` makes of a value: ``bytes``, a dict, or what was packed. Its key is that in the database; for keys of n
    zero bytes, as Highway of 2017 wrote them, it is n.

    Raises:
        ConfigError: ``fields`` are named where samples have none, or plyvel is not installed.
        FileNotFoundError: there is no database (when it is first read).
        DatasetError: another process has it open, or it is damaged; or a value is not what ``decode`` says.

    >>> dataset = LevelDB("train.leveldb", decode="msgpack")
    """

    def _open(self) -> Database:
        path = local(self.path)
        if not os.path.exists(os.path.join(path, "CURRENT")):
            raise FileNotFoundError(f"{shown(self.path)!r}: no LevelDB database: no file CURRENT in it")
        found: _LevelDBDatabase = shared(("leveldb", os.path.realpath(path)), lambda: _LevelDBDatabase(path))
        found.check_process()
        return found

    def fingerprint(self) -> str:
        """Return a text that changes when the database is written to, or its values are decoded otherwise."""
        len(self)  # whose opening puts into tables what was only in a log
        path = local(self.path)
        tables = sorted(name for name in os.listdir(path) if name.endswith(_TABLES))
        return f"{fingerprint_of((name, os.path.join(path, name)) for name in tables)} {self.decode} {self.fields}"


class LevelDBWriter(KeyedWriter):
    """Adds values to a database; see :func:`leveldb_writer`."""

    def __init__(self, path: str) -> None:
        super().__init__()
        plyvel = _library()
        self._error = plyvel.Error
        self._database = plyvel.DB(path, create_if_missing=True, error_if_exists=True)
        self._pending: dict[bytes, bytes] = {}
        self._bytes = 0

    def _put(self, key: bytes, value: bytes) -> bool:
        if key in self._pending or self._database.get(key) is not None:
            return False
        self._pending[key] = value
        self._bytes += len(value)
        if self._bytes > _AT_ONCE:
            self.flush()
        return True

    def flush(self) -> None:
        """Write what was added. Raises OSError."""
        try:
            with self._database.write_batch() as batch:
                for key, value in self._pending.items():
                    batch.put(key, value)
        except self._error as error:
            raise OSError(f"{self._database.name}: {_text(error)}") from error
        self._pending, self._bytes = {}, 0

    def close(self) -> None:
        """Close the database."""
        self._database.close()


@contextmanager
def leveldb_writer(path: str, durable: bool = False) -> Iterator[LevelDBWriter]:
    """Write a LevelDB database, a folder that has its name only when it is whole.

    Raises:
        FileExistsError: there is something already.

    >>> with leveldb_writer("train.leveldb") as writer:
    ...     writer.add("cats/0001", {"jpg": jpeg, "cls": 3})
    """
    with writing_folder(path, "CURRENT", durable) as name:
        writer = LevelDBWriter(name)
        try:
            yield writer
            writer.flush()
        finally:
            writer.close()
