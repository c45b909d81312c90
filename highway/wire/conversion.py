"""Select and apply the functions that ``Connection`` applies to the arrays of a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Converter = Callable[[Any], Any]


def converters(given: str | Converter | Sequence[Converter | None] | None, device: str | None) -> list[Converter | None]:
    """Return the functions that the arguments ``converters`` and ``device`` select. If only a device is given, arrays become torch tensors.

    Raises:
        ConfigError: no converter has this name, or torch is needed but not installed.
    """
    if given is None and device is not None:
        given = "torch"
    if isinstance(given, str):
        from highway.adapters.arrays import named  # imported here, because only a converter given by name needs the adapters

        return [named(given, device)]
    return listify(given)


def transform_with(values: Sequence[Any], functions: Sequence[Converter | None]) -> list[Any]:
    """Apply the first function to the first value, and so on. If there are fewer functions than values, the list of functions repeats."""
    if not functions:
        return list(values)
    chosen = [functions[position % len(functions)] for position in range(len(values))]
    return [value if function is None else function(value) for value, function in zip(values, chosen, strict=True)]


def listify(given: Any) -> list[Any]:
    """Return a list: empty for ``None``, the elements of a list or tuple, or ``[given]`` for any other value."""
    if given is None:
        return []
    return list(given) if isinstance(given, (list, tuple)) else [given]
