"""Streams that hand on every item, and print what passes."""

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

PARTS = 16  # of a list or dict that are printed


@checked
@dataclass
class Peek:
    """Print what the first items look like: the shapes, dtypes and ranges of their arrays, however deep in lists and dicts.

    Args:
        n: Items to print, at least 0.
        names: What to call the fields of tuples and lists, in their order; else they are called by their positions.
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
    """Print the rate of each ``n`` items; the first item only starts the clock.

    Args:
        n: Items between two lines, at least 1.
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
    """Return a line that says how many items and bytes passed in how many seconds.

    >>> rate(200, 500_000_000, 2.5)
    '200 items in 2.50 s: 80.0 items/s, 200.0 MB/s'
    """
    seconds = max(seconds, 1e-9)
    return f"{count} items in {seconds:.2f} s: {count / seconds:,.1f} items/s, {size / seconds / 1e6:,.1f} MB/s"


def describe(item: Item, passport: Passport, called: Sequence[str] | None = None) -> str:
    """Return what an item looks like: a line for the item, and one for each field, by what it is ``called``, and for each part of it.

    >>> print(describe((np.arange(6, dtype=np.uint8).reshape(2, 3), 7), Passport(0, 3, keys=("a.jpg", "b.jpg"))))
    epoch 0, item 3, keys a.jpg, b.jpg
      0: uint8 (2, 3), 0 to 5
      1: int 7
    """
    keys = f", keys {', '.join(passport.keys[:3])}{', ...' if len(passport.keys) > 3 else ''}" if passport.keys else ""
    known = names(item)
    if called is not None and not isinstance(item, dict):
        if len(called) != len(known):
            raise ValueError(f"Peek: {len(called)} names, {', '.join(called)}, but the item has {len(known)} fields; expected one for each")
        known = tuple(called)
    return "\n".join([f"epoch {passport.epoch}, item {passport.index}{keys}", *_rows(known, fields(item), "  ")])


def _rows(known: Sequence[Field], values: Sequence[Any], indent: str) -> Iterator[str]:
    """Yield a line for each value, and below it, further in, those of its parts."""
    for name, value in zip(known[:PARTS], values, strict=False):
        yield f"{indent}{name}: {_describe(value)}"
        if _has_parts(value):
            yield from _rows(names(value), fields(value), indent + "  ")
    if len(known) > PARTS:
        yield f"{indent}... and {len(known) - PARTS} more"


def _has_parts(value: Any) -> bool:
    """Say whether there is an array, or a list or dict of more, in a list or dict; numbers and texts are short enough for one line."""
    return isinstance(value, (dict, list, tuple)) and any(isinstance(part, (np.ndarray, dict, list, tuple)) for part in fields(value))


def _describe(value: Any) -> str:
    if _has_parts(value):
        return f"{type(value).__name__} of {len(value)}"
    if not isinstance(value, np.ndarray):
        shown = repr(value)
        return f"{type(value).__name__} {shown if len(shown) <= 60 else shown[:57] + '...'}"
    limits = f", {value.min():g} to {value.max():g}" if value.size and value.dtype.kind in "biuf" else ""
    return f"{value.dtype} {value.shape}{limits}"
