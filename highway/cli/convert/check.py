"""``highway convert --check``: read the converted files, and compare each sample with the sample of the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np

from highway.cli import command
from highway.cli.convert.reading import Input, KeyedSample
from highway.cli.convert.writing import Prepared
from highway.datasets.format import Format
from highway.datasets.opened import opened
from highway.engine.component import Traits
from highway.engine.context import Context
from highway.engine.stage import Items, Stamped
from highway.images.header import opened as opened_image
from highway.safe_text import for_terminal

_SHOWN = 20  # maximum printed differences


@dataclass
class Compared:
    """A map (a function for each item) that compares converted samples with the samples of the source.

    An input is a range of indices, or a single sample. The output is how many samples were compared, and sentences about differences.

    Args:
        prepared: Map that returns the expected samples.
        back: The dataset of the converted files.
        format: The format of the converted files.
    """

    prepared: Prepared
    back: Input
    format: Format

    @opened
    def _numbers(self) -> dict[str, int]:
        return {key: number for number, key in enumerate(self.back.keys or ())}

    def __highway__(self) -> Traits:
        return Traits(parallel=True)

    def __call__(self, wanted: range | Stamped, context: Context) -> tuple[int, list[str]]:
        expected = [sample._replace(key=self.format.named(sample.key, sample.fields)) for sample in self.prepared(wanted)]
        places = [self._place(sample) for sample in expected]
        found: list[str] = []
        for sample, place, other in zip(expected, places, self._read(places), strict=True):
            differences = ["it is missing"] if other is None else list(self._differences(sample, other))
            if self.format.keeps_order and place is not None and place != sample.number:
                differences.insert(0, f"it has index {place} in DST")
            found += [f"sample {sample.number} ({sample.key!r}): {difference}" for difference in differences]
            context.count(self, "samples")
        return len(expected), found

    def _place(self, sample: KeyedSample) -> int | None:
        """Return the index of a sample of SRC in DST. Samples without keys have the same index in both. ``None``: DST has no such index."""
        total = self.back.total or 0
        if self.format.keeps_keys and self.back.keys is not None:
            if sample.number < total and self.back.keys[sample.number] == sample.key:
                return sample.number
            if (number := self._numbers.get(sample.key)) is not None:
                return number
        return sample.number if sample.number < total else None

    def _read(self, places: Sequence[int | None]) -> list[KeyedSample | None]:
        if places and places[0] is not None and places == list(range(places[0], places[0] + len(places))):
            return list(self.back.read(range(places[0], places[0] + len(places))))
        return [None if place is None else next(self.back.read(range(place, place + 1))) for place in places]

    def _differences(self, expected: KeyedSample, found: KeyedSample) -> Iterator[str]:
        if self.format.keeps_keys and found.key != expected.key:
            yield f"its key in DST is {found.key!r}"
        fields = found.fields
        image = next((name for name, value in expected.fields.items() if isinstance(value, np.ndarray)), "")
        if image and "png" not in expected.fields and isinstance(png := fields.get("png"), bytes):  # DST stores images as PNG
            label = "cls" if "cls" in expected.fields else "label"
            fields = {{"png": image, "cls": label}.get(name, name): value for name, value in fields.items()}
            fields[image] = _pixels(png, expected.fields[image].shape)
            if label in fields and isinstance(known := expected.fields.get(label), np.integer):
                fields[label] = known.dtype.type(fields[label])  # a folder does not store the dtype of its labels
        if list(fields) == ["0"] and len(expected.fields) == 1:
            fields = dict(zip(expected.fields, fields.values(), strict=True))  # a bare value has no name
        for name in [*expected.fields, *(name for name in fields if name not in expected.fields)]:
            if name not in fields or name not in expected.fields:
                yield f"{name} is in {'SRC' if name in expected.fields else 'DST'} only"
            elif words := difference(expected.fields[name], fields[name]):
                yield f"{name}: {words}"


@dataclass
class Differences:
    """A sink that collects differences, and reports them at the end.

    Args:
        total: Number of samples in DST.
    """

    total: int
    shown: list[str] = field(default_factory=list, init=False)
    count: int = field(default=0, init=False)
    samples: int = field(default=0, init=False)

    def consume(self, items: Items) -> None:
        for compared, differences in items:
            self.samples += compared
            self.count += len(differences)
            self.shown += map(for_terminal, differences[: _SHOWN - len(self.shown)])

    def report(self, path: str) -> int:
        """Print the result of the comparison, and return the exit code."""
        if self.total != self.samples:
            print(f"{path}: DST has {self.total:,} samples, but SRC has {self.samples:,}")
        if self.count:
            more = f"; the first {_SHOWN} are" if self.count > _SHOWN else ""
            print("\n  ".join([f"{path}: {self.count:,} differences from SRC{more}:", *self.shown]))
        elif self.total == self.samples:
            print(f"{path}: compared with SRC, all {self.samples:,} samples are the same")
            return command.DONE
        return command.FAILED


def _pixels(png: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """Decode a PNG. If the array in the source has a last axis of length 1, add such an axis."""
    with opened_image(png) as image:
        pixels = np.asarray(image)
    return pixels[..., None] if (*pixels.shape, 1) == shape else pixels


def difference(expected: Any, found: Any) -> str:
    """Return a description of the difference between two values, or an empty text if the values are equal."""
    if type(expected) in (int, float):  # Python's own numbers have no dtype
        kind = "iu" if type(expected) is int else "f"
        if np.ndim(found) == 0 and np.asarray(found).dtype.kind in kind:
            return _values(np.asarray(expected), np.asarray(found))
    kinds = _kind(expected), _kind(found)
    if kinds[0] != kinds[1]:
        return f"{kinds[0]} in SRC, {kinds[1]} in DST"
    if isinstance(expected, dict):
        if expected.keys() != found.keys():
            return f"the field names are {', '.join(map(str, expected))} in SRC, and {', '.join(map(str, found))} in DST"
        parts = [(f"[{name!r}]", expected[name], found[name]) for name in expected]
    elif isinstance(expected, (list, tuple)):
        parts = [(f"[{place}]", *pair) for place, pair in enumerate(zip(expected, found, strict=True))]
    elif isinstance(expected, (str, bytes)):
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(expected, found, strict=False)))
        return "" if expected == found else f"differs from position {same} on (length {len(expected)} in SRC, {len(found)} in DST)"
    elif expected is None or _is_object(expected):
        return "" if expected == found else f"{expected!r} in SRC, {found!r} in DST"
    else:
        return _values(np.asarray(expected), np.asarray(found))
    return next((f"{where}: {words}" for where, one, other in parts if (words := difference(one, other))), "")


def _values(expected: np.ndarray, found: np.ndarray) -> str:
    if expected.tobytes() == found.tobytes() or np.array_equal(expected, found, equal_nan=expected.dtype.kind in "fc"):
        return ""
    places = np.argwhere(expected != found)
    if not expected.ndim:
        return f"{expected.item()!r} in SRC, {found.item()!r} in DST"
    return f"{len(places)} of its {expected.size} values differ, the first at {places[0].tolist()}"


def _is_object(value: Any) -> bool:
    return not isinstance(value, (np.ndarray, np.generic, bool, int, float, complex))


def _kind(value: Any) -> str:
    """Return a description of a value's type. A Python number is described by the equal numpy type."""
    if isinstance(value, (str, bytes, dict)):
        return next(kind.__name__ for kind in (str, bytes, dict) if isinstance(value, kind))
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} of {len(value)}"
    if value is None or _is_object(value):
        return type(value).__name__
    array = np.asarray(value)
    return f"{array.dtype}{list(array.shape) if array.ndim else ''}"
