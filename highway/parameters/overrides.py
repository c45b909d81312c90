"""Which of two methods of an object speaks for the other."""

from __future__ import annotations


def speaks_for(method: str, other: str, thing: object) -> bool:
    """Say whether a method of an object, if it has it, does what another one would: not if a derived class has that one alone anew."""
    own = (vars(kind) for kind in type(thing).__mro__)
    return method in next((names for names in own if names.keys() & {method, other}), ())


def is_overridden(method: str, other: str, thing: object) -> bool:
    """Say whether a derived class has ``other`` anew, and so would be passed over by a method that its base has."""
    names = [vars(kind).keys() for kind in type(thing).__mro__]
    return any(method in own for own in names) and not speaks_for(method, other, thing)
