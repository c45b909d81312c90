"""Read and write ArrayRecord files, with random access to the records. Google's library reads and writes the files."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from highway.datasets.opened import MOST_OPEN, opened
from highway.datasets.records.example import encode_example
from highway.datasets.records.files import ReadPlan, RecordFile, Records
from highway.datasets.writing import writing
from highway.errors import DatasetError
from highway.extras import import_extra
from highway.parameters.checks import checked
from highway.stores.file import local
from highway.stores.unchanging import FileState, UnchangingFile

log = logging.getLogger("highway")

_RANDOM = "readahead_buffer_size:0,max_parallelism:0"
_BUFFER = 1 << 15  # bytes to read at once; the library's default, 1 MiB, would read too much
_GROUP = re.compile(r"group_size:(\d+)")


def _library() -> Any:
    return import_extra("array_record.python.array_record_module", "arrayrecord", "ArrayRecord")


class _Reader:
    """An open file."""

    def __init__(self, path: str, state: FileState | None = None) -> None:
        self.file = UnchangingFile(path, state)
        self.reader = _library().ArrayRecordReader(path, options=_RANDOM, file_reader_buffer_size=_BUFFER)
        self.length: int = self.reader.num_records()
        if not self.reader.ok():  # for a truncated file, the library raises no error, and reports no records
            raise DatasetError(
                f"{path}: not an ArrayRecord file, or truncated: the end of the file, which lists the positions of the records, is missing"
            )


class _ArrayRecordFile:
    """The records of an ArrayRecord file."""

    is_here = True

    def __init__(self, path: str, reopen: Callable[[str, FileState], _Reader]) -> None:
        self.path, self._reopen = path, reopen
        found = _Reader(path)
        self._state, self._length = found.file.state, found.length
        group = _GROUP.search(found.reader.writer_options_string() or "")
        if group and int(group[1]) > 1:
            log.warning(
                "%s: groups of %s records are compressed together (group_size), so random access to one record decompresses its whole "
                "group; write the file again with group_size:1, as arrayrecord_writer does",
                path,
                group[1],
            )

    def __len__(self) -> int:
        return self._length

    def plan(self, numbers: Sequence[int]) -> ReadPlan:
        return ReadPlan((), lambda _: self.read(numbers))

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        found = self._reopen(self.path, self._state)
        try:
            records: list[bytes] = found.reader.read(list(numbers))
        except RuntimeError as error:
            found.file.check()
            raise DatasetError(f"{self.path}: record {' or '.join(map(str, numbers))}: {error}") from error
        found.file.check()
        return records

    def start(self, number: int) -> bytes:
        return self.read([number])[0]


@checked
@dataclass
class ArrayRecord(Records):  # Records documents the parameters
    """The records in ArrayRecord files, file by file.

    Google's library array-record reads the files, and checks the records. The library reads only local files. highway therefore copies
    files from an object store, such as S3, into a local folder, which ``?cache_dir=FOLDER`` in the URL sets. If the writer compressed
    records in groups, reading a record decompresses the whole group. In this case, highway logs a warning.

    A sample is the ``bytes`` of a record. If ``example`` is true, a sample is a dict of features.

    Raises:
        ConfigError: array-record is not installed, or a path is a URL and no local folder is set.
        ConfigError: ``fields`` or ``key`` is given, but ``example`` is false.
        OSError: a file cannot be opened (on the first access).
        DatasetError: a file is not an ArrayRecord file, is truncated, or has changed since it was opened.
        DatasetError: a record is damaged.
        DatasetError: ``example`` is true, but a record is not an Example, or lacks a feature in ``fields``.

    >>> samples = [{"text": "first", "label": 3}, {"text": "second", "label": 5}]
    >>> Pipeline([samples, ArrayRecordSink("train.array_record")]).run()
    >>> dataset = ArrayRecord("train.array_record", example=True)
    >>> len(dataset), dataset[1]["label"]
    (2, np.int64(5))
    """

    @opened
    def _readers(self) -> Callable[[str, FileState], _Reader]:
        return lru_cache(MOST_OPEN)(_Reader)  # each reader has two open files

    def _open(self, paths: Sequence[str]) -> list[RecordFile]:
        return [_ArrayRecordFile(local(path), self._readers) for path in paths]


class ArrayRecordWriter:
    """Writes records into a file; see :func:`arrayrecord_writer`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._writer = _library().ArrayRecordWriter(path, "group_size:1")
        self.samples = 0

    def add(self, key: str, sample: Mapping[str, Any]) -> None:
        """Append a sample as an Example. The feature ``__key__`` contains the key.

        Raises:
            TypeError: an Example cannot contain the value of a field.
        """
        self.write(encode_example(key, sample))

    def write(self, data: bytes) -> None:
        """Append ``data`` as a record.

        Raises:
            OSError: the record cannot be written.
        """
        try:
            self._writer.write(data)
        except RuntimeError as error:
            raise OSError(f"{self._path}: {error}") from error
        self.samples += 1

    def close(self) -> None:
        """Write the remaining records, and the byte offsets of all records. Raises OSError."""
        try:
            self._writer.close()
        except RuntimeError as error:
            raise OSError(f"{self._path}: {error}") from error


@contextmanager
def arrayrecord_writer(path: str, durable: bool = False) -> Iterator[ArrayRecordWriter]:
    """Write an ArrayRecord file. The file gets its final name only when it is complete; see :func:`highway.datasets.writing.writing`.

    Each record is compressed separately, so that random access is fast.

    Args:
        path: The path or URL of the file.
        durable: Whether to wait until the file is on the disk. The file then survives a crash of the machine.

    >>> with arrayrecord_writer("train.array_record") as writer:
    ...     writer.add("0001", {"image": jpeg, "label": 3})
    """
    with writing(path, durable) as name:
        writer = ArrayRecordWriter(name)
        try:
            yield writer
        finally:
            writer.close()
