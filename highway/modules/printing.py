"""Streams that pass every item on unchanged, and print information about the items."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from highway.engine.batch import Field, Item, fields, names, nbytes
from highway.engine.component import Traits
from highway.engine.stage import Items, Passport, Stamped
from highway.parameters.checks import checked
from highway.parameters.ranges import Count, Range

PARTS = 16  # maximum number of printed entries of a list or dict


@checked
@dataclass
class Peek:
    """Print the shapes, dtypes and value ranges of the arrays in the first items, including arrays nested in lists and dicts.

    Args:
        n: Number of items to print, at least 0.
        names: Names for the fields of tuples and lists, in order. By default, the name of a field is its index.

    Raises:
        ValueError: ``names`` does not contain one name for each field of a tuple or list.

    >>> batches = [(np.zeros((2, 3), np.uint8), np.arange(2))]
    >>> items = list(Pipeline([batches, Peek(names=["images", "labels"])]))
    epoch 0, item 0
      images: uint8 (2, 3), 0 to 0
      labels: int64 (2,), 0 to 1
    """

    n: Annotated[int, Range(ge=0)] = 1
    names: list[str] | None = None

    def __highway__(self) -> Traits:
        return Traits(length=lambda items: items)

    def stream(self, items: Items) -> Iterator[Stamped]:
        for position, item in enumerate(items):
            if position < self.n:
                print(describe(item, items.passport, self.names), flush=True)
            yield Stamped(item, items.passport)


@checked
@dataclass
class Benchmark:
    """Print the rate after every ``n`` items, and at the end for the remaining items. The first item only starts the clock.

    Args:
        n: Number of items per printed line, at least 1.

    >>> items = list(Pipeline([range(200), Benchmark(n=100)]))
    100 items in ... items/s, ... MB/s
    99 items in ... items/s, ... MB/s
    """

    n: Count = 100

    def __highway__(self) -> Traits:
        return Traits(length=lambda items: items)

    def stream(self, items: Items) -> Iterator[Stamped]:
        count = size = 0
        start = 0.0
        for item in items:
            if start == 0.0:
                start = time.perf_counter()
            else:
                count, size = count + 1, size + nbytes(item)
            if count == self.n:
                now = time.perf_counter()
                print(rate(count, size, now - start), flush=True)
                count, size, start = 0, 0, now
            yield Stamped(item, items.passport)
        if count:
            print(rate(count, size, time.perf_counter() - start), flush=True)


def rate(count: int, size: int, seconds: float) -> str:
    """Return a line with the number of items, the time in seconds, and the rates in items and megabytes per second.

    >>> rate(200, 500_000_000, 2.5)
    '200 items in 2.50 s: 80.0 items/s, 200.0 MB/s'
    """
    seconds = max(seconds, 1e-9)
    return f"{count} items in {seconds:.2f} s: {count / seconds:,.1f} items/s, {size / seconds / 1e6:,.1f} MB/s"


def describe(item: Item, passport: Passport, called: Sequence[str] | None = None) -> str:
    """Return a text that describes an item, with one line for each field and nested value.

    If the item is not a dict, ``called`` holds names to use in place of the indexes of its fields. If the number of names differs from the
    number of fields, a ValueError is raised.

    >>> print(describe((np.arange(6, dtype=np.uint8).reshape(2, 3), 7), Passport(0, 3, keys=("a.jpg", "b.jpg"))))
    epoch 0, item 3, keys a.jpg, b.jpg
      0: uint8 (2, 3), 0 to 5
      1: int 7
    """
    keys = f", keys {', '.join(passport.keys[:3])}{', ...' if len(passport.keys) > 3 else ''}" if passport.keys else ""
    known = names(item)
    if called is not None and not isinstance(item, dict):
        if len(called) != len(known):
            raise ValueError(
                f"Peek: {len(called)} names, {', '.join(called)}, but the item has {len(known)} fields; expected one name for each field"
            )
        known = tuple(called)
    return "\n".join([f"epoch {passport.epoch}, item {passport.index}{keys}", *_rows(known, fields(item), "  ")])


def _rows(known: Sequence[Field], values: Sequence[Any], indent: str) -> Iterator[str]:
    """Yield a line for each value, followed by indented lines for its nested values."""
    for name, value in zip(known[:PARTS], values, strict=False):
        yield f"{indent}{name}: {_describe(value)}"
        if _has_parts(value):
            yield from _rows(names(value), fields(value), indent + "  ")
    if len(known) > PARTS:
        yield f"{indent}... and {len(known) - PARTS} more"


def _has_parts(value: Any) -> bool:
    """Return whether a list or dict contains an array or a nested list or dict. Numbers and texts fit on one line."""
    return isinstance(value, (dict, list, tuple)) and any(isinstance(part, (np.ndarray, dict, list, tuple)) for part in fields(value))


def _describe(value: Any) -> str:
    if _has_parts(value):
        return f"{type(value).__name__} of {len(value)}"
    if not isinstance(value, np.ndarray):
        shown = repr(value)
        return f"{type(value).__name__} {shown if len(shown) <= 60 else shown[:57] + '...'}"
    limits = f", {value.min():g} to {value.max():g}" if value.size and value.dtype.kind in "biuf" else ""
    return f"{value.dtype} {value.shape}{limits}"
