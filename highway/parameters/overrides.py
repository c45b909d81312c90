"""Decide which of two related methods of an object takes precedence."""

from __future__ import annotations


def speaks_for(method: str, other: str, thing: object) -> bool:
    """Return whether ``method`` takes precedence over ``other``: whether the most derived class that overrides one overrides ``method``."""
    own = (vars(kind) for kind in type(thing).__mro__)
    return method in next((names for names in own if names.keys() & {method, other}), ())


def is_overridden(method: str, other: str, thing: object) -> bool:
    """Return whether a subclass overrides only ``other``. The ``method`` of the base class would then ignore the override."""
    names = [vars(kind).keys() for kind in type(thing).__mro__]
    return any(method in own for own in names) and not speaks_for(method, other, thing)
