"""The pipeline of a conversion, which writes several files concurrently, or one sample after another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from typing import Any

from highway.cli.convert.reading import Input, KeyedSample
from highway.cli.convert.target import Target
from highway.datasets.writing import SampleWriter
from highway.engine import Pipeline
from highway.engine.component import Traits
from highway.engine.context import Context
from highway.engine.stage import Items, Stage, Stamped
from highway.stores.url import is_url

_REQUESTS = 16  # number of writing threads if each sample is a request to a store
_READ_AT_ONCE = 32  # samples that a worker reads and decodes before the writer gets them


def converting(source: Input, target: Target, workers: int | None) -> Pipeline:
    """Return the pipeline that writes the missing samples. The stages have counters ``samples`` and ``skipped``."""
    if source.total is not None and target.is_written_in_parts:
        if workers is None and is_url(target.path) and target.format.layout in ("each", "keys"):
            workers = _REQUESTS
        return Pipeline([partial(target.units, source.total), Stage(InParts(source, target), num_workers=workers, name="write")])
    return Pipeline([unwritten(source, target), Stage(Prepared(source), num_workers=workers), Stage(InOrder(target), name="write")])


def unwritten(source: Input, target: Target | None) -> Any:
    """Return a source of ranges of all indices. Without random access, it yields the samples that ``target`` lacks (``None``: all)."""
    if source.total is None:
        return Remaining(source, target)
    return partial(_runs, source.total)


def _runs(total: int) -> Iterator[range]:
    for begin in range(0, total, _READ_AT_ONCE):
        yield range(begin, min(begin + _READ_AT_ONCE, total))


@dataclass
class Remaining:
    """A source without random access that yields the samples that the target lacks; without a target, all samples."""

    source: Input
    target: Target | None

    def __iter__(self, context: Context) -> Iterator[Stamped]:
        for stamped in self.source.stream():
            if self.target is not None and self.target.has(stamped.passport.index):
                context.count(self, "skipped")
            else:
                yield stamped._replace(item=stamped)


@dataclass
class Prepared:
    """A map that converts samples, and returns a list of them. An input is a range of indices, or a single sample."""

    source: Input

    def __highway__(self) -> Traits:
        return Traits(parallel=True)

    def __call__(self, wanted: range | Stamped) -> list[KeyedSample]:
        if isinstance(wanted, range):
            return list(self.source.read(wanted))
        return [self.source.sample(wanted.passport.index, wanted)]


@dataclass
class InParts:
    """A map that writes a range of samples to the file that contains the range, and counts the samples."""

    source: Input
    target: Target

    def __highway__(self) -> Traits:
        return Traits(parallel=True)

    def __call__(self, numbers: range, context: Context) -> int:
        with self.target.part(numbers.start) as writer:
            for sample in self.source.read(numbers):
                _add(writer, sample)
                context.count(self, "samples")
        return len(numbers)


@dataclass
class InOrder:
    """A sink that writes samples in sequence."""

    target: Target

    def consume(self, items: Items) -> None:
        samples: Iterator[Any] = chain.from_iterable(items)
        for _, group in groupby(samples, lambda sample: self.target.unit_of(sample.number)):
            first = next(group)
            with self.target.part(first.number) as writer:
                for sample in chain([first], group):
                    _add(writer, sample)
                    items.context.count(self, "samples")


def _add(writer: SampleWriter, sample: KeyedSample) -> None:
    try:
        writer.add(sample.key, sample.fields)
    except Exception as error:
        error.add_note(f"highway: the error was raised for sample {sample.number} ({sample.key!r})")
        if re.search("[\ud800-\udfff]", sample.key):
            error.add_note("highway: the key of the sample is a file name that is not UTF-8: rename the file, or pass --number-keys")
        raise
