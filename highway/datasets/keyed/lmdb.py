"""Random access to the values of an LMDB database, and a writer for LMDB databases."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from highway.datasets.keyed.database import Database, KeyedDataset, KeyedWriter, use_all
from highway.datasets.keyed.keys import LIST, pack_list
from highway.datasets.keyed.shared import shared
from highway.datasets.records.protobuf import Data
from highway.datasets.writing import writing
from highway.engine.cancel import check_cancelled
from highway.errors import DatasetError, ItemError
from highway.extras import import_extra
from highway.parameters.checks import checked
from highway.stores.file import fingerprint_of, local
from highway.stores.unchanging import UnchangingFile
from highway.stores.url import join, shown, without_options

T = TypeVar("T")

_FILE = "data.mdb"
MAP_SIZE = 1 << 30  # maximum bytes of a new database; the writer doubles this limit when the database is full
TRANSACTION = 1 << 24  # number of bytes that one transaction writes
_LONGEST = 511  # maximum number of bytes of a key
_RECORD = 48  # number of bytes of LMDB's record about a named database
# The layout of a file; see mdb.c of LMDB.
_META = struct.Struct("<92xH34xQ8xQ")  # flags of the database, number of its root page, number of the transaction
_PAGE = struct.Struct("<Q2xHH2x")  # number of the page, its kind, and the end of its list of entries
_CHILD = struct.Struct("<3H")  # an entry of a branch page: the number of the child page
_BRANCH, _LEAF = 1, 2  # kinds of pages
_SEVERAL = 4  # the flag of a database that allows several values for a key


def _library() -> Any:
    return import_extra("lmdb", "lmdb", "LMDB")


def data_file(path: str) -> str:
    """Return the file of a database. A database is either a file, or a folder that contains the file ``data.mdb``."""
    return path if path.endswith(".mdb") or os.path.isfile(path) else os.path.join(path, _FILE)


class _Environment:
    """A database file that is mapped for reading. All datasets of this process that read the file share this object.

    The file is opened read-only and without LMDB's locks, so LMDB writes no files. LMDB can open a file only once per process. Therefore, a
    forked child process uses the inherited handle.
    """

    def __init__(self, path: str) -> None:
        lmdb = _library()
        try:
            self.lmdb = lmdb.open(path, subdir=False, readonly=True, lock=False, readahead=False, create=False, max_dbs=1)
        except lmdb.Error as error:
            raise DatasetError(f"{path}: {_reason(lmdb, error)}") from error


def _reason(lmdb: Any, error: Exception) -> str:
    if isinstance(error, (lmdb.InvalidError, lmdb.VersionMismatchError)):
        return f"not an LMDB database, or a database of another version of LMDB's format ({error})"
    if "already open" in str(error):
        return (
            "other code in this process has opened the file with lmdb.open(); close it there, because LMDB can open a file only once "
            "per process"
        )
    return f"LMDB reports: {error}"


class _LMDBDatabase:
    """An open database. Each dataset has its own object."""

    def __init__(self, path: str) -> None:
        self._file = UnchangingFile(path)
        if not self._file.state.size:
            raise DatasetError(f"{path}: the file is empty, so it is not an LMDB database; was its writer stopped before the end?")
        found = os.stat(path)
        self._environment: _Environment = shared(("lmdb", found.st_dev, found.st_ino), lambda: _Environment(path))
        self._lmdb = self._environment.lmdb
        with self._naming():
            pages, size = self._lmdb.info()["last_pgno"] + 1, self._lmdb.stat()["psize"]
        if pages * size > self._file.state.size:
            raise DatasetError(f"{path}: expected at least {pages * size} bytes, found {self._file.state.size}: the file was truncated")

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Check that the file was not truncated. (Reading a truncated file would end the process.) Name the file in LMDB's errors."""
        self._file.check_size()
        try:
            yield
        except _library().Error as error:
            raise self._damaged(f"LMDB reports: {error}") from error
        finally:
            self._file.check()

    def _damaged(self, why: str) -> DatasetError:
        return DatasetError(f"{self._file.path}: the database is damaged or was written to; copy or write it again: {why}")

    def read(self, keys: Sequence[bytes], use: Callable[[Data], T]) -> list[T]:
        self._file.check_size()  # the same check as in _naming(), but faster
        try:
            with self._lmdb.begin(buffers=use is not bytes) as transaction:  # without buffers, LMDB makes the only copy
                return use_all(keys, transaction.get, use)
        except _library().Error as error:
            raise self._damaged(f"LMDB reports: {error}") from error
        finally:
            self._file.check()

    def keys(self) -> Iterator[bytes]:
        with self._naming(), self._lmdb.begin(buffers=True) as transaction, transaction.cursor() as cursor:
            self._check_tree()
            for key, value in cursor.iternext():
                if len(value) == _RECORD and self._is_named_database(bytes(key), transaction):
                    name = bytes(key).decode(errors="backslashreplace")
                    raise DatasetError(
                        f"{self._file.path}: {name!r} is the name of a database in this file, not the key of a sample, and highway does "
                        f"not read named databases; copy it into a separate file: `mdb_dump -n -s NAME FILE | mdb_load -n NEWFILE`"
                    )
                yield bytes(key)

    def _check_tree(self) -> None:
        """Check the pages that contain keys. If a cursor reaches a page of the wrong kind, LMDB crashes the process.

        Raises:
            DatasetError: a page has the wrong number or the wrong kind.
            DatasetError: keys are missing.
        """
        size, depth = self._lmdb.stat()["psize"], self._lmdb.stat()["depth"]
        metas = [_META.unpack(self._file.read(place, _META.size)) for place in (0, size)]
        flags, root, _ = max(metas, key=lambda meta: meta[-1])  # the meta page of the last transaction
        pages, found = [(root, depth)] if depth else [], 0
        while pages:
            check_cancelled()
            number, depth = pages.pop()
            page = self._file.read(number * size, _PAGE.size if depth == 1 else size)
            own, kind, end = _PAGE.unpack_from(page)
            count = (end - _PAGE.size) // 2
            if own != number or kind & 3 != (_LEAF if depth == 1 else _BRANCH) or not 0 < count < size // 4:
                raise self._damaged(f"page {number} is not a page of the database's tree")
            if depth == 1:
                found += count
                continue
            for place in struct.unpack_from(f"<{count}H", page, _PAGE.size):
                if place > size - _CHILD.size:
                    raise self._damaged(f"page {number} has an entry at byte {place}")
                low, middle, high = _CHILD.unpack_from(page, place)
                pages.append((low | middle << 16 | high << 32, depth - 1))
        if found != self.count() and not flags & _SEVERAL:
            raise self._damaged(f"{found} of {self.count()} keys were found")

    def _is_named_database(self, key: bytes, transaction: Any) -> bool:
        lmdb = _library()
        try:
            self._lmdb.open_db(key, txn=transaction, create=False)
        except (lmdb.IncompatibleError, lmdb.NotFoundError):
            return False
        return True

    def last_key(self) -> bytes | None:
        with self._naming(), self._lmdb.begin() as transaction, transaction.cursor() as cursor:
            return bytes(cursor.key()) if cursor.last() else None

    def count(self) -> int:
        return int(self._lmdb.stat()["entries"])


@checked
@dataclass
class LMDB(KeyedDataset):  # KeyedDataset documents the parameters ``decode`` and ``fields``
    """The values of an LMDB database, in the order of the keys.

    Keys that begin and end with ``__`` are not keys of samples. tensorpack and highway's writer add the key ``__keys__``, whose value is a
    list of the samples' keys. If a database has no such list, the first access reads all keys, at about a million keys per second.

    Each process opens the file once, read-only and without LMDB's locks. Do not write to the file while a process reads it. If the file is
    truncated between two reads, the next read raises an error. If the file is truncated during a read, the process ends. LMDB has no
    checksums, so damage in a value is not detected.

    Args:
        path: The file of the database, or a folder that contains the file ``data.mdb``. A database in an object store, such as S3, is
            copied into a local folder, which ``?cache_dir=FOLDER`` in the URL sets.

    A sample is a decoded value: ``bytes``, a dict, or another object. The key of a sample is its key in the database.

    Raises:
        ConfigError: lmdb is not installed, or ``path`` is a URL and no local folder is set.
        ConfigError: ``fields`` is given, but the samples have no fields, or their format is unknown.
        ConfigError: ``decode`` is ``"trusted_pickle"``, but ``path`` is a URL.
        OSError: the file does not exist or cannot be opened (when the dataset is first read).
        DatasetError: the file is not an LMDB database.
        DatasetError: the file is empty, truncated or damaged, or has changed since it was opened.
        DatasetError: the file contains named databases, which highway does not read.
        DatasetError: a value does not have the format ``decode``, or ``decode`` is ``None`` and the first value is a pickle.
        DatasetError: a sample lacks a field in ``fields``.

    >>> Pipeline([[{"txt": "a text", "cls": 3}, {"txt": "another", "cls": 5}], LMDBSink("train.lmdb")]).run()
    >>> dataset = LMDB("train.lmdb", fields={"text": "txt", "label": "cls"})
    >>> len(dataset), dataset[1]
    (2, {'text': 'another', 'label': np.int32(5)})
    """

    def _open(self) -> Database:
        path = local(self.path)
        if os.path.isdir(path) and not os.path.exists(data_file(path)):
            raise FileNotFoundError(f"{shown(self.path)!r}: there is no {_FILE} in this folder; was its writer stopped before the end?")
        return _LMDBDatabase(data_file(path))

    def fingerprint(self) -> str:
        """Return a string that changes when the file is written to, or when ``decode`` or ``fields`` changes."""
        return f"{fingerprint_of([(shown(self.path), data_file(local(self.path)))])} {self.decode} {self.fields}"


class LMDBWriter(KeyedWriter):
    """Writes samples into a database; see :func:`lmdb_writer`."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._errors = _library()
        with self._errors_as_os_errors():
            self._lmdb = self._errors.open(path, subdir=False, lock=False, map_size=MAP_SIZE, sync=False, metasync=False)
        self._pending: list[tuple[bytes, bytes]] = []
        self._bytes = 0
        self._transaction = self._lmdb.begin(write=True)

    def put(self, key: bytes, value: bytes) -> None:
        """Add an encoded sample; see :meth:`add`."""
        with self._errors_as_os_errors():
            super().put(key, value)
            if self._bytes > TRANSACTION:
                self._commit()

    @contextmanager
    def _errors_as_os_errors(self) -> Iterator[None]:
        try:
            yield
        except self._errors.Error as error:
            raise OSError(f"LMDB reports: {error}") from error

    def _put(self, key: bytes, value: bytes) -> bool:
        if not 0 < len(key) <= _LONGEST:
            raise ItemError(f"the key {key[:40]!r}... has {len(key)} bytes; LMDB supports 1 to {_LONGEST} bytes")
        while True:
            try:
                if not self._transaction.put(key, value, overwrite=False):
                    return False
                break
            except self._errors.MapFullError:
                self._grow()
        self._pending.append((key, value))
        self._bytes += len(value)
        return True

    def _grow(self) -> None:
        """Double the maximum size of the database, and repeat the uncommitted changes."""
        self._transaction.abort()
        self._lmdb.set_mapsize(2 * self._lmdb.info()["map_size"])
        self._transaction = self._lmdb.begin(write=True)
        again, self._pending, self._bytes = self._pending, [], 0
        for key, value in again:
            self._put(key, value)

    def _commit(self) -> None:
        while True:
            try:
                self._transaction.commit()
                break
            except self._errors.MapFullError:
                self._grow()
        self._pending, self._bytes = [], 0
        self._transaction = self._lmdb.begin(write=True)

    def finish(self) -> None:
        """Write the remaining samples. Then write the list of all keys, under the key ``__keys__``."""
        with self._errors_as_os_errors():
            self._commit()
            with self._transaction.cursor() as cursor:
                keys = pack_list(cursor.iternext(keys=True, values=False), self.samples)
            self._put(LIST, keys)
            self._commit()

    def close(self) -> None:
        self._transaction.abort()
        self._lmdb.close()


@contextmanager
def lmdb_writer(path: str, durable: bool = False) -> Iterator[LMDBWriter]:
    """Write an LMDB database. If the path ends in ``.mdb``, it is a file. Otherwise, it is a folder with the file ``data.mdb``.

    The file gets its final name only when it is complete; see :func:`highway.datasets.writing.writing`.

    Args:
        path: The path or URL of the database.
        durable: Whether to wait until the file is on the disk. The file then survives a crash of the machine.

    >>> with lmdb_writer("train.lmdb") as writer:
    ...     writer.add("cats/0001", {"jpg": jpeg, "cls": 3})
    """
    with writing(path if without_options(path).endswith(".mdb") else join(path, _FILE), durable) as name:
        writer = LMDBWriter(name)
        try:
            yield writer
            writer.finish()
        finally:
            writer.close()
