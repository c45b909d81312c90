"""Random access to the values of a LevelDB database, and a writer for LevelDB databases."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from highway.datasets.keyed.database import Database, KeyedDataset, KeyedWriter, use_all
from highway.datasets.keyed.shared import Watch, shared
from highway.datasets.records.protobuf import Data
from highway.datasets.writing import writing_folder
from highway.errors import ConfigError, DatasetError
from highway.extras import import_extra
from highway.parameters.checks import checked
from highway.stores.file import fingerprint_of, local
from highway.stores.url import shown

T = TypeVar("T")

_TABLES = (".ldb", ".sst")
BATCH = 1 << 22  # number of bytes to write together
_BLOCK = 1 << 15  # number of bytes of a block in a log; a record never crosses the end of a block
_RECORD = struct.Struct("<4xHB")  # checksum, length and kind of a record
_ZEROS, _FULL, _FIRST, _MIDDLE = range(4)  # kinds of records


def _library() -> Any:
    try:
        return import_extra("plyvel", "leveldb", "LevelDB")
    except ConfigError as error:
        if sys.version_info >= (3, 13):
            raise ConfigError(
                f"{error}; plyvel supports Python up to 3.12: convert the database with Python 3.12, for example to LMDB"
            ) from error
        raise


class _LevelDBDatabase:
    """An open database. All datasets of this process that read the database share this object. No other process can open the database."""

    def __init__(self, path: str) -> None:
        plyvel = _library()
        self._path, self._process, self._error = path, os.getpid(), plyvel.Error
        for name in _logs(path):
            _check_log(name)
        try:
            self._database = plyvel.DB(path, create_if_missing=False, paranoid_checks=True)
        except plyvel.Error as error:
            raise DatasetError(f"{path}: {_reason(error)}") from error
        self._watch, self._sizes = Watch(path), _sizes_of(path)

    def check_process(self) -> None:
        """Raise DatasetError in a forked child process, because the threads of the database run only in the parent process."""
        if self._process != os.getpid():
            raise DatasetError(
                f"{self._path}: the parent of this forked process has opened the database, and LevelDB allows only one process: read it "
                f"in the parent, or convert it to LMDB, which any number of processes can read"
            )

    def _check_sizes(self) -> None:
        """Raise DatasetError if a table was truncated. LevelDB maps tables, and reading a truncated table would end the process."""
        found = _sizes_of(self._path)
        for name, size in self._sizes.items():
            if found.get(name, size) < size:  # LevelDB removes a table when it merges the table with others
                raise DatasetError(
                    f"{self._path}: {name} had {size} bytes when it was first read, and now has {found[name]} bytes; a dataset must not "
                    "change while it is read: copy the database again"
                )
        self._sizes = found

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """If a file was written to, check the sizes of the tables. Convert LevelDB's errors to DatasetErrors that name the database."""
        self._watch.after_writes(self._check_sizes)
        try:
            yield
        except self._error as error:
            raise DatasetError(f"{self._path}: the database is damaged: LevelDB reports: {_text(error)}") from error

    def read(self, keys: Sequence[bytes], use: Callable[[Data], T]) -> list[T]:
        self.check_process()
        with self._naming():
            return use_all(keys, partial(self._database.get, verify_checksums=True), use)

    def _iterator(self) -> Any:
        # In plyvel 1.5.1, iterator() stops at a damaged last block without an error. raw_iterator() raises an error.
        return closing(self._database.raw_iterator(verify_checksums=True))

    def keys(self) -> Iterator[bytes]:
        with self._naming(), self._iterator() as found:
            found.seek_to_first()
            while found.valid():
                yield found.key()
                found.next()

    def last_key(self) -> bytes | None:
        with self._naming(), self._iterator() as found:
            found.seek_to_last()
            return found.key() if found.valid() else None

    def count(self) -> None:
        return None


def _sizes_of(folder: str) -> dict[str, int]:
    """Return the size of each table file in a folder."""
    with os.scandir(folder) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.name.endswith(_TABLES)}


def _logs(folder: str) -> list[str]:
    """Return the paths of the logs that LevelDB reads when it opens a database. The manifest is also a log."""
    with open(os.path.join(folder, "CURRENT"), "rb") as file:
        manifest = os.fsdecode(file.read().rstrip(b"\n"))
    return [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".log") or name == manifest]


def _check_log(path: str) -> None:
    """Raise DatasetError if a log ends within a record. LevelDB would ignore the record, and delete the log."""
    with open(path, "rb") as file:
        data = file.read()
    at, kind = 0, _FULL
    while at < len(data):
        rest = _BLOCK - at % _BLOCK
        if rest >= _RECORD.size:  # otherwise, the block ends with zeros
            length, kind = _RECORD.unpack_from(data, at) if at + _RECORD.size <= len(data) else (rest, _ZEROS)
            rest = _RECORD.size + length
            if kind == _ZEROS or rest > min(_BLOCK - at % _BLOCK, len(data) - at):
                break
        at += rest
    if at < len(data) or kind in (_FIRST, _MIDDLE):
        raise DatasetError(
            f"{path}: damaged or truncated at byte {at}, or another process is writing to it. LevelDB would open the database without the "
            f"later samples: wait for the other process, copy the database again, or remove the damaged part with plyvel.repair_db()"
        )


def _text(error: Exception) -> str:
    return b" ".join(arg if isinstance(arg, bytes) else str(arg).encode() for arg in error.args).decode(errors="replace")


def _reason(error: Exception) -> str:
    text = _text(error)
    if "lock" in text:
        where = "in other code of this process" if "already held" in text else "in another process"
        return (
            f"the database is already open {where}, and LevelDB can open a database only once: close it there, or convert it to LMDB, "
            f"which any number of processes can read"
        )
    return f"LevelDB reports: {text}"


@checked
@dataclass
class LevelDB(KeyedDataset):  # KeyedDataset documents the parameters ``decode`` and ``fields``
    """The values of a LevelDB database, in the order of the keys.

    Only one process at a time can open a LevelDB database, and the process needs write permission for the folder. If you can choose the
    format, use :class:`LMDB`, which any number of processes can read. LevelDB stores no list of the keys, so the first access reads the
    whole database.

    Args:
        path: The folder of the database. A folder in an object store, such as S3, is copied into a local folder, which
            ``?cache_dir=FOLDER`` in the URL sets.

    A sample is a decoded value: ``bytes``, a dict, or another object. The key of a sample is its key in the database.

    Raises:
        ConfigError: plyvel is not installed, or ``path`` is a URL and no local folder is set.
        ConfigError: ``fields`` is given, but the samples have no fields, or their format is unknown.
        ConfigError: ``decode`` is ``"trusted_pickle"``, but ``path`` is a URL.
        FileNotFoundError: ``path`` is not a LevelDB database (when the dataset is first read).
        DatasetError: another process has opened the database.
        DatasetError: the database is damaged or truncated.
        DatasetError: a value does not have the format ``decode``, or ``decode`` is ``None`` and the first value is a pickle.
        DatasetError: a sample lacks a field in ``fields``.

    >>> Pipeline([[{"txt": "a text", "cls": 3}, {"txt": "another", "cls": 5}], LevelDBSink("train.leveldb")]).run()
    >>> dataset = LevelDB("train.leveldb", fields={"text": "txt", "label": "cls"})
    >>> len(dataset), dataset[1]
    (2, {'text': 'another', 'label': np.int32(5)})
    """

    def _open(self) -> Database:
        path = local(self.path)
        if not os.path.exists(os.path.join(path, "CURRENT")):
            raise FileNotFoundError(f"{shown(self.path)!r}: not a LevelDB database: the file CURRENT is missing")
        found: _LevelDBDatabase = shared(("leveldb", os.path.realpath(path)), lambda: _LevelDBDatabase(path))
        found.check_process()
        return found

    def fingerprint(self) -> str:
        """Return a string that changes when the database is written to, or when ``decode`` or ``fields`` changes."""
        len(self)  # opening the database moves entries from the log to tables
        path = local(self.path)
        tables = sorted(name for name in os.listdir(path) if name.endswith(_TABLES))
        return f"{fingerprint_of((name, os.path.join(path, name)) for name in tables)} {self.decode} {self.fields}"


class LevelDBWriter(KeyedWriter):
    """Writes samples into a database; see :func:`leveldb_writer`."""

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
        if self._bytes > BATCH:
            self.flush()
        return True

    def flush(self) -> None:
        """Write the samples that are in memory. Raises OSError."""
        try:
            with self._database.write_batch() as batch:
                for key, value in self._pending.items():
                    batch.put(key, value)
        except self._error as error:
            raise OSError(f"{self._database.name}: {_text(error)}") from error
        self._pending, self._bytes = {}, 0

    def close(self) -> None:
        self._database.close()

    def finish(self) -> None:
        """Open the database once more, so that LevelDB moves the last samples from the log to a table. Raises OSError.

        A truncated table is detected. A truncated log cannot be detected, because a log has no end mark.
        """
        try:
            _library().DB(self._database.name).close()
        except self._error as error:
            raise OSError(f"{self._database.name}: {_text(error)}") from error


@contextmanager
def leveldb_writer(path: str, durable: bool = False) -> Iterator[LevelDBWriter]:
    """Write a LevelDB database, which is a folder. The folder gets its final name only when the database is complete.

    Args:
        path: The path or URL of the folder.
        durable: Whether to wait until the files are on the disk. The files then survive a crash of the machine.

    Raises:
        FileExistsError: the path is a file, or a folder that is not empty.

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
        writer.finish()
