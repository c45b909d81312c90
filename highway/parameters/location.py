"""The location of a value in a file, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from highway.errors import ConfigError
from highway.safe_text import for_terminal

Key = str | int


@dataclass(frozen=True)
class Location:
    """The path of a value in a tree of plain values, and the lines of the file at which values are defined.

    Args:
        path: The keys and indices from the root to the value.
        marks: A dict from paths to texts ``FILE:LINE``. A value without a mark has the mark of the nearest parent. Without a file, the
            dict is empty.

    >>> str(Location(marks={("roles",): "quickstart.yaml:12"}) / "roles" / "worker" / "stages" / 1)
    'quickstart.yaml:12: roles.worker.stages[1]'
    """

    path: tuple[Key, ...] = ()
    marks: Mapping[tuple[Key, ...], str] = field(default_factory=dict, repr=False)

    def __truediv__(self, key: Key) -> Location:
        return Location((*self.path, key), self.marks)

    def __str__(self) -> str:
        steps = (f"[{key}]" if isinstance(key, int) else f".{for_terminal(key)}" for key in self.path)
        return ": ".join(filter(None, [for_terminal(self.mark), "".join(steps).lstrip(".")]))

    @property
    def mark(self) -> str:
        """``FILE:LINE`` of the value, or of the nearest parent that has a line."""
        for length in range(len(self.path), -1, -1):
            if mark := self.marks.get(self.path[:length]):
                return mark
        return ""

    def error(self, message: str) -> ConfigError:
        """Return an error whose message starts with the location."""
        return ConfigError(": ".join(filter(None, [str(self), message])))


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return ``; did you mean X?`` if one of the ``known`` words is close to ``word``, otherwise the list of known words."""
    words = sorted(known)
    lower = {one.lower(): one for one in words}
    if close := difflib.get_close_matches(str(word).lower(), lower, n=1):
        return f"; did you mean {lower[close[0]]}?"
    if not words:
        return "; there are none"
    return f"; expected one of {', '.join(words)}" if len(words) <= 16 else ""


def show(value: object) -> str:
    """Return a text that describes a plain value: its type, and the value if it is short."""
    if value is None:
        return "null"
    if isinstance(value, (list, dict)):
        return f"a {'list' if isinstance(value, list) else 'mapping'} of {len(value)}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
