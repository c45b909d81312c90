"""Which fields of samples are wanted, and what they are to be called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def chosen(found: Mapping[str, T], fields: Mapping[str, str] | None) -> Mapping[str, T]:
    """Return what is wanted of what a sample has, under its new names.

    Args:
        found: What stands for each field.
        fields: New names, and for each the old ones, of which it takes the first that there is, with ``;`` between them. ``None``: all.

    Raises:
        ValueError: there is nothing for a field; says what was expected and found.
    """
    return found if fields is None else {new: found[_first(found, new, old.split(";"))] for new, old in fields.items()}


def named(fields: Mapping[str, str] | None) -> frozenset[str] | None:
    """Return all old names that occur; ``None`` if all fields are wanted."""
    return None if fields is None else frozenset(name for old in fields.values() for name in old.split(";"))


def _first(found: Mapping[str, T], new: str, old: list[str]) -> str:
    for name in old:
        if name in found:
            return name
    raise ValueError(f"nothing for the field {new!r}: expected {' or '.join(old)}, found {', '.join(found)}")
