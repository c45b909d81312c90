"""The records of TFRecord files by number, and their writer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO

from highway.datasets.file import UnchangingFile, open_file
from highway.datasets.opened import opened
from highway.datasets.records.example import encode_example
from highway.datasets.records.files import ReadPlan, RecordFile, Records
from highway.datasets.records.framing import FOOTER, HEADER, checked_data, framed, offsets_of, read_records
from highway.datasets.writing import writing
from highway.parameters.checks import checked
from highway.stores.file import FileRange, read_ranges
from highway.stores.url import shown

_OPEN = 100  # files that are open at once; most processes may open 1024
_LARGE = 1 << 16  # bytes; neighbours with no more are read at once
_START = 512  # bytes that a key is looked for in first


class _TFRecordFile:
    """The records of a TFRecord file."""

    def __init__(self, path: str, index: bool | str, reopen: Any) -> None:
        self.path, self._path, self._reopen = shown(path), path, reopen
        file = open_file(path)
        self.is_here = file.is_here
        self._state, self._offsets = file.state, offsets_of(file, path, index).data  # whose items are found faster one by one

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def read(self, numbers: Sequence[int]) -> Iterator[bytes]:
        for some in self._groups(numbers):
            ranges, records = self.plan(some)
            yield from records(read_ranges(ranges))

    def _groups(self, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
        """Yield the numbers in groups of so many as are not large together."""
        offsets, size, first = self._offsets, 0, 0
        for place, number in enumerate(numbers):
            size += offsets[number + 1] - offsets[number]
            if size > _LARGE and place > first:
                yield numbers[first:place]
                size, first = offsets[number + 1] - offsets[number], place
        yield numbers[first:]

    def plan(self, numbers: Sequence[int]) -> ReadPlan:
        file, runs, ranges = self._file(), list(self._runs(numbers)), list[FileRange]()
        for begin, end, _ in runs:
            if self._is_large(begin, end):
                ranges += FileRange(file, begin + HEADER, end - begin - HEADER - FOOTER), FileRange(file, end - FOOTER, FOOTER)
            else:
                ranges.append(FileRange(file, begin, end - begin))

        def records(contents: Sequence[bytes]) -> list[bytes]:
            found, left = list[bytes](), iter(contents)
            for begin, end, places in runs:
                if self._is_large(begin, end):
                    found.append(checked_data(self.path, next(left), next(left), begin))
                else:
                    found += read_records(self.path, next(left), begin, places)
            return found

        return ReadPlan(ranges, records)

    def _is_large(self, begin: int, end: int) -> bool:
        """Say whether a run is one record that is read without its length, so that its data need not be copied out of what is read."""
        return self.is_here and end - begin > _LARGE

    def _runs(self, numbers: Sequence[int]) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
        """Yield where records begin and end that lie one after the other, all of them and each; large ones stand alone."""
        offsets, first = self._offsets, 0
        places = [(offsets[number], offsets[number + 1]) for number in numbers]
        for last in range(1, len(places) + 1):
            begin, end = places[first][0], places[last - 1][1]
            if last < len(places) and places[last][0] == end and places[last][1] - begin <= _LARGE:
                continue
            yield begin, end, places[first:last]
            first = last

    def _file(self) -> UnchangingFile:
        file: UnchangingFile = self._reopen(self._path, self._state)
        return file

    def start(self, number: int) -> bytes:
        begin, end = self._offsets[number] + HEADER, self._offsets[number + 1]
        return self._file().read(begin, min(_START, end - FOOTER - begin))


@checked
@dataclass
class TFRecord(Records):
    """The records in TFRecord files, in the order of the files and of the records in them.

    Where they lie is found by one pass over the files when they are first read, at about a million records a second, or read from an index.
    The checksums of all lengths are checked then, and that of a record's data when it is read.

    Args:
        index: Whether to keep where the records lie in ``FILE.index`` beside each file, or in the folder of this name. An index that is not
            that of the file any more, by its size and time, is made anew. One that is beside the file is used in any case.

    A sample is a record's ``bytes``, or with ``example`` a dict.

    Raises:
        ConfigError: there are ``fields`` or a ``key`` without ``example``, or google-crc32c is not installed.
        OSError: a file cannot be opened, or an index not be written (when it is first read).
        DatasetError: a file is no TFRecord file, is compressed, damaged or cut short (when it is first read); a record does not fit its
            checksum, or is no Example; or a file has changed since.

    >>> dataset = TFRecord("train-{00000..00015}-of-00016.tfrecord", example=True, fields={"image": "image/encoded", "label": "label"})
    """

    index: bool | str = False

    @opened
    def _handles(self) -> Any:
        return lru_cache(_OPEN)(open_file)

    def _open(self, path: str) -> RecordFile:
        return _TFRecordFile(path, self.index, self._handles)


class TFRecordWriter:
    """Adds records to a file; see :func:`tfrecord_writer`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.samples = 0

    def add(self, key: str, sample: Mapping[str, Any]) -> None:
        """Append a sample as an Example; its key is the feature ``__key__``.

        Raises:
            TypeError: an Example cannot hold one of its fields.
        """
        self.write(encode_example(key, sample))

    def write(self, data: bytes) -> None:
        """Append a record of any bytes."""
        self._file.write(framed(data))
        self.samples += 1


@contextmanager
def tfrecord_writer(path: str, durable: bool = False) -> Iterator[TFRecordWriter]:
    """Write a TFRecord file, which has its name only when it is whole; see :func:`highway.datasets.writing.writing`.

    >>> with tfrecord_writer("train.tfrecord") as writer:
    ...     writer.add("0001", {"image": jpeg, "label": 3})
    """
    with writing(path, durable) as name, open(name, "wb") as file:
        yield TFRecordWriter(file)
