"""Decide which of two methods of an object takes precedence, if each method can replace the other."""

from __future__ import annotations


def speaks_for(method: str, other: str, thing: object) -> bool:
    """Return whether ``method`` takes precedence over ``other``.

    In the method resolution order, the first class that defines one of the two methods must define ``method``.
    """
    own = (vars(kind) for kind in type(thing).__mro__)
    return method in next((names for names in own if names.keys() & {method, other}), ())


def is_overridden(method: str, other: str, thing: object) -> bool:
    """Return whether a subclass overrides only ``other``, so that the inherited ``method`` must not be used."""
    names = [vars(kind).keys() for kind in type(thing).__mro__]
    return any(method in own for own in names) and not speaks_for(method, other, thing)
