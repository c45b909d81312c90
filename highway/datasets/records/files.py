"""Base class of datasets that read the records of several files. A record is bytes, or a ``tf.train.Example``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, repeat
from typing import Annotated, Any, NamedTuple, Protocol

from highway.datasets.dataset import LazyKeys, chosen, named
from highway.datasets.index.file import SUFFIX
from highway.datasets.opened import opened
from highway.datasets.parts import PartedDataset, Spans
from highway.datasets.paths import files_of
from highway.datasets.records.example import KEY, decode_example, first_key, key_of
from highway.datasets.records.protobuf import Data
from highway.errors import ConfigError, DatasetError
from highway.parameters.ranges import Predicate
from highway.stores.file import fingerprint_of, read_ranges
from highway.stores.unchanging import FileRange

Paths = Annotated[str | list[str], Predicate(bool, "at least one file, such as 'train-{00000..00015}-of-00016.tfrecord'")]


class ReadPlan(NamedTuple):
    """A plan to read records: ranges of a file, and a function that extracts the records from these ranges.

    The ranges of several plans can be read together.
    """

    ranges: Sequence[FileRange]
    records: Callable[[Sequence[bytes]], Sequence[Data]]


class RecordFile(Protocol):
    """The records of one file."""

    path: str
    is_here: bool  # whether the file is on this machine, not in an object store

    def __len__(self) -> int: ...
    def read(self, numbers: Sequence[int]) -> Iterable[Data]:
        """Yield records by index. A large record is valid only until the next record is requested, because its memory can be reused."""

    def plan(self, numbers: Sequence[int]) -> ReadPlan:
        """Return a plan to read several records together. Large records are views."""

    def start(self, number: int) -> bytes:
        """Return the first bytes of a record. A short record is returned completely."""


class _Files:
    """The records of several files."""

    def __init__(self, files: Sequence[RecordFile]) -> None:
        self.files, self._are_here = files, all(file.is_here for file in files)
        self.spans = Spans(map(len, files))

    def place(self, number: int) -> tuple[RecordFile, int]:
        """Return the file of a record, and the index of the record in the file. Raises IndexError."""
        file, row = self.spans.place(number)
        return self.files[file], row

    def read(self, numbers: Sequence[int]) -> Iterable[Data]:
        """Yield records by index. Consecutive indexes that belong to one file are read together."""
        if not self._are_here or len(numbers) == 0:
            return self.read_at_once(numbers)
        if len(self.files) == 1:
            if min(numbers) < 0 or max(numbers) >= len(self.spans):
                numbers = [range(len(self.spans))[number] for number in numbers]
            return self.files[0].read(numbers)
        return chain.from_iterable(file.read(rows) for file, rows in self._neighbours(numbers))

    def _neighbours(self, numbers: Sequence[int]) -> list[tuple[RecordFile, list[int]]]:
        """Group consecutive indexes that belong to one file. For each group, return the file, and the indexes in this file."""
        runs = (list(places) for _, places in groupby(map(self.place, numbers), lambda place: id(place[0])))
        return [(places[0][0], [row for _, row in places]) for places in runs]

    def read_at_once(self, numbers: Sequence[int]) -> list[Data]:
        """Return records by index. Large records are views."""
        plans = [file.plan(rows) for file, rows in self._neighbours(numbers)]
        contents = iter(read_ranges([wanted for plan in plans for wanted in plan.ranges]))
        return [record for plan in plans for record in plan.records([next(contents) for _ in plan.ranges])]


@dataclass
class Records(PartedDataset):
    """Random access to the records of files, file by file.

    Args:
        paths: A path, a URL, a pattern such as ``"train-*"``, or a list of these. Braces are expanded. The files that match a pattern are
            sorted.
        example: Whether a record is a ``tf.train.Example``. A sample is then a dict of features. A feature with one value is ``bytes`` or a
            number (int64, float32). A feature with several values is a list of ``bytes``, or an array. A feature without values is skipped.
            If highway wrote the file, fields have their original dtypes and shapes.
        fields: A dict from field names to the features to decode: ``{"image": "image/encoded", "label": "image/class/label"}``. ``"a;b"``
            decodes the feature ``a``, or the feature ``b`` if there is no feature ``a``. ``None`` decodes all features under their own
            names.
        key: The feature that contains the key of a sample. ``None`` uses ``__key__``, which highway's writer adds. If the first record has
            no feature ``__key__``, the samples have no keys.
    """

    paths: Paths
    example: bool = False
    fields: dict[str, str] | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("fields", "key") if getattr(self, name) is not None]
        if given and not self.example:
            raise ConfigError(f"{type(self).__name__}: {given[0]} selects features, but samples are bytes; pass example=True")

    @abstractmethod
    def _open(self, paths: Sequence[str]) -> list[RecordFile]:
        """Open files."""

    @property
    def files(self) -> list[str]:
        """The paths of the files."""
        return files_of(self.paths, leave_out=SUFFIX)

    @opened
    def _files(self) -> _Files:
        return _Files(self._open(self.files))

    @property
    def spans(self) -> Spans:
        return self._files.spans

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several samples. Consecutive records are read together."""
        records = self._files.read(numbers)  # an iterator, so that only one record is in memory at a time
        return list(map(self._decoded, numbers, records)) if self.example else list(map(bytes, records))

    def __getviews__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several samples. The bytes of large samples are views."""
        records = self._files.read_at_once(numbers)
        return list(map(self._decoded, numbers, records, repeat(True))) if self.example else records

    def _decoded(self, number: int, record: Data, views: bool = False) -> dict[str, Any]:
        wanted = named(self.fields)
        try:
            found = decode_example(record, wanted, views)
            if wanted is None:
                found.pop(KEY, None)
            return dict(chosen(found, self.fields))
        except ValueError as error:
            raise DatasetError(f"{self.locate(number)}: {self._bad_example(record, error)}") from error

    def _bad_example(self, record: Data, error: ValueError) -> str:
        """Return why a record is not an Example, for the error message."""
        return str(error)

    @property
    def keys(self) -> Sequence[str] | None:
        """The keys of the samples. A key is read when it is requested. ``None`` if the samples have no keys."""
        return LazyKeys(self._key, len(self)) if self._has_keys else None

    @opened
    def _has_keys(self) -> bool:
        if not self.example or not len(self):
            return False
        return self.key is not None or self._found_key(0) is not None

    def _key(self, number: int) -> str:
        if (key := self._found_key(number)) is None:
            raise DatasetError(
                f"{self.locate(number)}: the record has no feature {self.key or KEY!r} for its key; select another feature by key="
            )
        return key

    def _found_key(self, number: int) -> str | None:
        file, row = self._files.place(number)
        key = first_key(file.start(row)) if self.key in (None, KEY) else None
        if key is not None:
            return key
        record = next(iter(file.read([row])))
        try:
            return key_of(record, self.key or KEY)
        except ValueError as error:
            raise DatasetError(f"{self.locate(number)}: {self._bad_example(record, error)}") from error

    def locate(self, number: int) -> str:
        """Return the file of a record, and the index of the record in the file."""
        file, row = self._files.place(number)
        return f"{file.path}: record {row}"

    def fingerprint(self) -> str:
        """Return a string that changes when files are added, removed, renamed or written to.

        The string also depends on ``example`` and ``fields``.
        """
        return f"{fingerprint_of((path, path) for path in self.files)} {self.example} {self.fields}"
