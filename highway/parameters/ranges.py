"""Conditions on the values of parameters. They are part of the type hint, such as ``Annotated[int, Range(ge=1)]``."""

from __future__ import annotations

import inspect
import operator
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import repeat
from typing import Annotated, Any

UNIONS = (typing.Union, types.UnionType)
_BOUNDS = {"ge": (operator.ge, "at least", "minimum"), "gt": (operator.gt, "above", "exclusiveMinimum")}
_BOUNDS |= {"le": (operator.le, "at most", "maximum"), "lt": (operator.lt, "below", "exclusiveMaximum")}
_MANY = 2**53  # texts omit bounds of at least this size, because such bounds only catch mistakes


@dataclass(frozen=True, kw_only=True)
class Range:
    """Bounds of a number, or of each number in a tuple: ``Annotated[int, Range(ge=1)]``.

    Args:
        ge: Minimum, included.
        gt: Minimum, excluded.
        le: Maximum, included.
        lt: Maximum, excluded.
        words: Text for the expected value in error messages. By default, the text is generated from the bounds.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    words: str = ""

    @cached_property
    def bounds(self) -> dict[str, float]:
        """A dict from the names of the bounds that are set to their values."""
        return {name: bound for name in _BOUNDS if (bound := getattr(self, name)) is not None}

    @property
    def expected(self) -> str:
        """Text for the expected value in error messages."""
        return self.words or str(self)

    def __str__(self) -> str:
        return " and ".join(f"{_BOUNDS[name][1]} {bound:g}" for name, bound in self.bounds.items() if bound < _MANY)

    @property
    def keywords(self) -> dict[str, float]:
        """The bounds as keywords of JSON schema."""
        return {_BOUNDS[name][2]: bound for name, bound in self.bounds.items()}

    def holds(self, value: Any) -> bool:
        """Return whether a number, or each number in a tuple, is within the bounds. NaN is never within the bounds."""
        if isinstance(value, (list, tuple)):
            return all(map(self.holds, value))
        return all(_BOUNDS[name][0](value, bound) for name, bound in self.bounds.items())


@dataclass(frozen=True)
class Predicate:
    """A condition on a value, as a function.

    Args:
        holds: A function that returns whether a value meets the condition.
        expected: Text for the expected value in error messages.
    """

    holds: Callable[[Any], bool]
    expected: str


@dataclass(frozen=True)
class Unhashed:
    """Marks a parameter that can change between ``state_dict()`` and ``load_state_dict()``.

    For example: ``num_workers: Annotated[int, HOW]``. The hash of a component does not include such parameters.

    Args:
        why: Why the items do not depend on the parameter.
        of_stage: Whether the mark applies only if the component is a stage of the pipeline, and not if it is inside another component.
    """

    why: str
    of_stage: bool = False


HOW = Unhashed("it changes how the component runs")
ENDS = Unhashed("it changes only where the items end", of_stage=True)
RANK = Unhashed("the engine compares the ranks itself")

Count = Annotated[int, Range(ge=1)]
Epochs = Annotated[int | None, Range(ge=1, words="at least 1, or None to repeat for ever"), ENDS]
Probability = Annotated[float, Range(ge=0, le=1, words="a probability from 0 to 1")]
Seed = Annotated[int, Range(ge=0, lt=2**63, words="a whole number, at least 0")]
Shape = Annotated[tuple[int, int], Range(ge=1, words="(height, width) in pixels, at least 1")]


def unmet(value: Any, hint: Any) -> str:
    """Return the text of the first condition of a hint that a value does not meet, or an empty text.

    ``None`` meets all conditions.

    >>> unmet(0, Count | None)
    'at least 1, or None'
    """
    if value is None or not _has_conditions(hint):
        return ""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        failed = (note.expected for note in inner[1:] if isinstance(note, (Range, Predicate)) and not note.holds(value))
        return next(failed, "") or unmet(value, inner[0])
    if origin in UNIONS:
        expected = next((unmet(value, part) for part in inner if _has_conditions(part) and _is_a(value, part)), "")
        return f"{expected}, or None" if expected and type(None) in inner else expected
    parts = inner if origin is tuple and Ellipsis not in inner else repeat(inner[-1 if isinstance(value, Mapping) else 0])
    return next(filter(None, map(unmet, value.values() if isinstance(value, Mapping) else value, parts)), "")


def _is_a(value: Any, hint: Any) -> bool:
    origin, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in UNIONS:
        return any(_is_a(value, part) for part in inner)
    return _is_a(value, inner[0]) if origin is Annotated else inspect.isclass(origin) and isinstance(value, origin)


@cache
def _has_conditions(hint: Any) -> bool:
    if typing.get_origin(hint) in (Callable, typing.Literal):
        return False
    return isinstance(hint, (Range, Predicate)) or any(map(_has_conditions, (*typing.get_args(hint), *getattr(hint, "__metadata__", ()))))
