"""Read and write TFRecord files, with random access to the records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, pairwise, repeat
from typing import Any, BinaryIO

import numpy as np

from highway.datasets.index.file import Group, index_path
from highway.datasets.index.of_files import indexes_of
from highway.datasets.opened import MOST_OPEN, opened
from highway.datasets.records import trusted_pickle
from highway.datasets.records.example import encode_example
from highway.datasets.records.files import ReadPlan, RecordFile, Records
from highway.datasets.records.framing import FOOTER, HEADER, VERSION, check_records, framed, index_of
from highway.datasets.records.protobuf import Data
from highway.datasets.writing import writing
from highway.errors import ConfigError, DatasetError
from highway.parameters.checks import checked
from highway.stores.file import open_file, read_ranges
from highway.stores.unchanging import FileRange, UnchangingFile
from highway.stores.url import is_url, shown

LARGE = 1 << 16  # larger records (in bytes) are read alone; smaller records are read together, up to about this size
IN_MEMORY = 1 << 18  # maximum bytes of records in memory, approximately
_START = 512  # number of bytes at the start of a record that are searched for the key


class _TFRecordFile:
    """The records of a TFRecord file."""

    def __init__(self, path: str, index: Group, reopen: Any) -> None:
        self.path, self._path, self._reopen, self._index = shown(path), path, reopen, index
        self.is_here = not is_url(path)

    def __len__(self) -> int:
        return self._index.lengths[0] - 1

    @cached_property
    def _offsets(self) -> np.ndarray:
        return self._index.arrays[0]

    def read(self, numbers: Sequence[int]) -> Iterator[Data]:
        begins, ends = self._places(numbers)
        together, large = np.cumsum(ends - begins) // IN_MEMORY, ends - begins > LARGE
        for first, stop in pairwise(_bounds((together[1:] != together[:-1]) | large[1:] | large[:-1]).tolist()):
            if self.is_here and large[first]:
                yield self._large(int(begins[first]), int(ends[first]))
            else:
                ranges, records = self._plan(begins[first:stop], ends[first:stop])
                yield from records(read_ranges(ranges))

    def plan(self, numbers: Sequence[int]) -> ReadPlan:
        return self._plan(*self._places(numbers))

    def _places(self, numbers: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the begin and end of each record in the file."""
        rows = np.asarray(numbers, np.int64)
        return self._offsets[rows].astype(np.int64), self._offsets[rows + 1].astype(np.int64)

    def _plan(self, begins: np.ndarray, ends: np.ndarray) -> ReadPlan:
        """Return a plan that reads consecutive records together."""
        file, windows = self._file(), begins // LARGE
        bounds = _bounds((begins[1:] != ends[:-1]) | (windows[1:] != windows[:-1]))
        counts, run_begins = bounds[1:] - bounds[:-1], begins[bounds[:-1]]
        run_sizes = ends[bounds[1:] - 1] - run_begins

        def records(contents: Sequence[bytes]) -> list[Data]:
            parts: list[Data] = [memoryview(content) if len(content) > LARGE else content for content in contents]
            before = run_begins.repeat(counts)
            starts, stops = (begins - before + HEADER).tolist(), (ends - before - FOOTER).tolist()
            frames = list(zip(chain.from_iterable(map(repeat, parts, counts.tolist())), starts, stops, strict=True))
            found = [data[start:stop] for data, start, stop in frames]
            check_records(file, found, [data[stop : stop + FOOTER] for data, _, stop in frames], begins.tolist())
            return found

        return ReadPlan(list(map(FileRange, repeat(file), run_begins.tolist(), run_sizes.tolist())), records)

    def _large(self, begin: int, end: int) -> bytes:
        """Read the data of a large record without a copy. The length of the record is not read."""
        file = self._file()
        data, footer = read_ranges([FileRange(file, begin + HEADER, end - begin - HEADER - FOOTER), FileRange(file, end - FOOTER, FOOTER)])
        check_records(file, [data], [footer], [begin])
        return data

    def _file(self) -> UnchangingFile:
        file: UnchangingFile = self._reopen(self._path, self._index.state)
        return file

    def start(self, number: int) -> bytes:
        begin, end = self._offsets[number : number + 2].tolist()
        begin += HEADER
        return self._file().read(begin, min(_START, end - FOOTER - begin))


def _bounds(apart: np.ndarray) -> np.ndarray:
    """Return the start of each group, and the end of the last group. ``apart[i]``: whether items i and i + 1 are in different groups."""
    return np.concatenate(([0], apart.nonzero()[0] + 1, [len(apart) + 1]))


@checked
@dataclass
class TFRecord(Records):  # Records documents the parameters ``paths``, ``example``, ``fields`` and ``key``
    """The records in TFRecord files, file by file.

    On the first access, highway scans the files to find the offsets of the records, at about a million records per second. An index file
    can store these offsets, so that later runs need no scan. The scan checks the checksums of the lengths of the records. When a record
    is read, the checksum of its data is checked.

    Args:
        index: ``True``: write the index file ``highway-tfrecord.index`` into the folder of the TFRecord files. A path: write the index file
            into this folder. ``False``: write no index file. An existing index file in the folder of the TFRecord files is used in all
            three cases. TFRecord files whose size or modification time has changed are scanned again. If a scan takes more than a second,
            one process per core scans local files.
        trusted_pickle: Whether records are pickles, which tensorpack's TFRecordSerializer writes by default. Loading a pickle can run any
            code, so pass ``True`` only for local files that you trust.

    A sample is the ``bytes`` of a record. If ``example`` is true, a sample is a dict of features. If ``trusted_pickle`` is true, a sample
    is the object in the pickle. A list becomes a tuple.

    Raises:
        ConfigError: google-crc32c is not installed.
        ConfigError: ``fields`` or ``key`` is given, but ``example`` is false.
        ConfigError: ``trusted_pickle`` is true, and ``example`` is true or a path is a URL.
        OSError: a file cannot be opened, or the index file cannot be written (on the first access).
        DatasetError: a file is not a TFRecord file, is compressed, damaged or truncated, or has changed since it was opened.
        DatasetError: a record does not match its checksum.
        DatasetError: ``example`` is true, but a record is not an Example, or lacks a feature in ``fields``.
        DatasetError: ``trusted_pickle`` is true, but a record is not a pickle.

    >>> Pipeline([[{"text": "first", "label": 3}, {"text": "second", "label": 5}], TFRecordSink("train.tfrecord")]).run()
    >>> dataset = TFRecord("train.tfrecord", example=True, fields={"y": "label"})
    >>> len(dataset), dataset[1]
    (2, {'y': np.int64(5)})
    """

    index: bool | str = False
    trusted_pickle: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trusted_pickle:
            trusted_pickle.check_local("TFRecord", [self.paths] if isinstance(self.paths, str) else self.paths)
            if self.example:
                raise ConfigError("TFRecord: a record is an Example or a pickle; example=True and trusted_pickle=True exclude each other")

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several samples. Consecutive records are read together."""
        return self._loaded(numbers, super().__getitems__(numbers))

    def __getviews__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several samples. The bytes of large samples are views."""
        return self._loaded(numbers, super().__getviews__(numbers))

    def _loaded(self, numbers: Sequence[int], samples: list[Any]) -> list[Any]:
        """Return samples. If ``trusted_pickle`` is true, load the pickles."""
        if not self.trusted_pickle:
            return samples
        loaded = list[Any]()
        for number, sample in zip(numbers, samples, strict=True):
            try:
                loaded.append(trusted_pickle.load(sample))
            except ValueError as error:
                raise DatasetError(f"{self.locate(number)}: {error}") from error
        return loaded

    def _bad_example(self, record: Data, error: ValueError) -> str:
        if not trusted_pickle.looks_like_pickle(record):
            return super()._bad_example(record, error)
        return trusted_pickle.refusal("the record is a pickle", "TFRecord(path, trusted_pickle=True)", "TFRecordSerializer")

    def fingerprint(self) -> str:
        """Return a string that changes when files are added, removed, renamed or written to.

        The string also depends on ``example``, ``fields`` and ``trusted_pickle``.
        """
        return super().fingerprint() + (" trusted_pickle" if self.trusted_pickle else "")

    def kept_at(self, facts: str) -> str | None:
        """Return the path of a file that stores the costs (such as pixels) of the samples. Return ``None`` if ``index`` is ``False``."""
        return index_path(f"{self.files[0]}.{facts}", self.index) if self.index else None

    @opened
    def _handles(self) -> Any:
        return lru_cache(MOST_OPEN)(open_file)

    def _open(self, paths: Sequence[str]) -> list[RecordFile]:
        indexes = indexes_of(paths, "tfrecord", VERSION, index_of, self.index)
        return [_TFRecordFile(path, index, self._handles) for path, index in zip(paths, indexes, strict=True)]


class TFRecordWriter:
    """Writes records into a file; see :func:`tfrecord_writer`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.samples = 0

    def add(self, key: str, sample: Mapping[str, Any]) -> None:
        """Append a sample as an Example. The feature ``__key__`` contains the key.

        Raises:
            TypeError: an Example cannot contain the value of a field.
        """
        self.write(encode_example(key, sample))

    def write(self, data: bytes) -> None:
        """Append ``data`` as a record."""
        self._file.write(framed(data))
        self.samples += 1


@contextmanager
def tfrecord_writer(path: str, durable: bool = False) -> Iterator[TFRecordWriter]:
    """Write a TFRecord file. The file gets its final name only when it is complete; see :func:`highway.datasets.writing.writing`.

    Args:
        path: The path or URL of the file.
        durable: Whether to wait until the file is on the disk. The file then survives a crash of the machine.

    >>> with tfrecord_writer("train.tfrecord") as writer:
    ...     writer.add("0001", {"image": jpeg, "label": 3})
    """
    with writing(path, durable) as name, open(name, "wb") as file:
        yield TFRecordWriter(file)
