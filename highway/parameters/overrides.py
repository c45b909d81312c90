"""Which of two methods of an object speaks for the other."""

from __future__ import annotations


def speaks_for(method: str, other: str, thing: object) -> bool:
    """Say whether a method of an object, if it has it, does what another one would: not if a derived class has that one alone anew."""
    own = (vars(kind) for kind in type(thing).__mro__)
    return method in next((names for names in own if names.keys() & {method, other}), ())
