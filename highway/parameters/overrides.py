"""Decide which of two related methods of an object takes precedence."""

from __future__ import annotations


def speaks_for(method: str, other: str, thing: object) -> bool:
    """Return whether ``method`` takes precedence over ``other``.

    It does if the most derived class that defines at least one of the two methods defines ``method``.
    """
    own = (vars(kind) for kind in type(thing).__mro__)
    return method in next((names for names in own if names.keys() & {method, other}), ())


def is_overridden(method: str, other: str, thing: object) -> bool:
    """Return whether a subclass overrides only ``other``. The ``method`` of the base class would then ignore the override."""
    names = [vars(kind).keys() for kind in type(thing).__mro__]
    return any(method in own for own in names) and not speaks_for(method, other, thing)
