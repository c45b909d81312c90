"""Keep the values of many statistics over the last hour, in bounded memory."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Mapping

EVERY = 5.0  # seconds between two points
LENGTH = 720  # number of points in an hour
MOST = 2000  # maximum number of statistics; further statistics are dropped


class History:
    """Keeps the points of each statistic. A point is added every :data:`EVERY` seconds."""

    def __init__(self) -> None:
        self._times = array("d", [math.nan] * LENGTH)
        self._figures: dict[str, array[float]] = {}
        self._added: dict[str, int] = {}  # the index of each statistic's last point, counted from the first point ever
        self._count = 0

    @property
    def count(self) -> int:
        """The number of points that were added."""
        return self._count

    def add(self, time: float, values: Mapping[str, float]) -> None:
        """Add a point. If there are :data:`LENGTH` points, the new point replaces the oldest point."""
        at = self._count % LENGTH
        self._times[at] = time
        for figure in self._figures.values():
            figure[at] = math.nan
        for name, value in values.items():
            if name not in self._figures and len(self._figures) < MOST:
                self._figures[name] = array("f", [math.nan] * LENGTH)
            if name in self._figures:
                self._figures[name][at] = value
                self._added[name] = self._count
        for name in [name for name, last in self._added.items() if last <= self._count - LENGTH]:
            del self._figures[name], self._added[name]
        self._count += 1

    def to_bytes(self) -> bytes:
        """Return the history as bytes.

        The first 4 bytes are the length of the header as a little-endian integer. The header is JSON, with names and times. Then come the
        values of each name as 32-bit floats, the oldest first.
        """
        first, length = self._count % LENGTH if self._count > LENGTH else 0, min(self._count, LENGTH)
        names, times = list(self._figures), _turned(self._times, first)[:length].tolist()
        header = json.dumps({"count": self._count, "names": names, "times": times}).encode()
        header += b" " * (-len(header) % 4)
        return (
            len(header).to_bytes(4, "little") + header + b"".join(_turned(self._figures[name], first)[:length].tobytes() for name in names)
        )


def _turned(values: array[float], first: int) -> array[float]:
    return values[first:] + values[:first]
