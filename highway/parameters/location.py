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
    """The path of a value in nested dicts and lists, and the lines of the file that define the values.

    Args:
        path: The keys and indexes from the root to the value.
        marks: A dict from paths to texts ``FILE:LINE``. Empty if there is no file. A value that is not in this dict has the text of the
            nearest parent.

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
        """``FILE:LINE`` of the value or the nearest parent. Empty if unknown."""
        for length in range(len(self.path), -1, -1):
            if mark := self.marks.get(self.path[:length]):
                return mark
        return ""

    def error(self, message: str) -> ConfigError:
        """Return an error whose message starts with the location."""
        return ConfigError(": ".join(filter(None, [str(self), message])))


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return ``; did you mean X?`` if a known word X is similar to ``word``; else a list of the known words if there are at most 16."""
    words = sorted(known)
    lower = {one.lower(): one for one in words}
    if close := difflib.get_close_matches(str(word).lower(), lower, n=1):
        return f"; did you mean {lower[close[0]]}?"
    if not words:
        return "; there are none"
    return f"; expected one of {', '.join(words)}" if len(words) <= 16 else ""


def show(value: object) -> str:
    """Return a text with the type of a value, and the length or the (shortened) value."""
    if value is None:
        return "null"
    if isinstance(value, (list, dict)):
        return f"a {'list' if isinstance(value, list) else 'mapping'} of {len(value)}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
