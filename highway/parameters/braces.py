"""Expand braces in URLs and file names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from highway.errors import ConfigError

MOST = 1_000_000  # maximum number of expanded texts, such as the shards of a dataset

_BRACES = re.compile(r"\{([^{}]*(?:,[^{}]*)+|[^{},]+\.\.[^{},]+)\}")


def expand_braces(text: str, most: int = MOST) -> list[str]:
    """Return the texts to which ``{a,b}`` and ``{0..3}`` in a text expand, as in a shell. Numbers keep leading zeros.

    >>> expand_braces("zsub://h{a,b}:788{0..1}")
    ['zsub://ha:7880', 'zsub://ha:7881', 'zsub://hb:7880', 'zsub://hb:7881']

    Raises:
        ConfigError: a range is malformed or has more than 10,000 numbers, or there are more than ``most`` texts.
    """
    found: dict[str, None] = {}  # a dict, because nested braces can lead to the same text twice
    for number, whole in enumerate(_expanded(text)):
        found[whole] = None
        if len(found) > most or number > 10 * most:
            raise ConfigError(f"'{text:.200}': its braces expand to more than {most:,} texts; use several smaller patterns")
    return list(found)


def _expanded(text: str) -> Iterator[str]:
    found = _BRACES.search(text)
    if not found:
        yield text
        return
    head, tail = text[: found.start()], text[found.end() :]
    for choice in _choices(found[1], text):
        yield from _expanded(head + choice + tail)


def _choices(body: str, text: str) -> Iterator[str]:
    if "," in body:
        yield from body.split(",")
        return
    first, last = body.split("..", 1)
    if not (first.isdigit() and last.isdigit()):
        raise ConfigError(f"'{text}': '{{{body}}}' is not a range; expected, for example, {{0..3}} or {{a,b}}")
    start, stop = int(first), int(last)
    if abs(stop - start) >= 10_000:
        count = abs(stop - start) + 1
        raise ConfigError(
            f"'{text}': '{{{body}}}' has {count:,} numbers; expected at most 10,000: use several patterns with smaller ranges"
        )
    width = max(len(first), len(last)) if first.startswith("0") or last.startswith("0") else 0
    step = 1 if stop >= start else -1
    for number in range(start, stop + step, step):
        yield str(number).zfill(width)
