"""Count the messages that this process receives and sends over links.

The launcher is the process of ``highway run`` or ``highway launch`` that started this process. The counts are int64s in memory that this
process shares with the launcher. So the launcher can read the counts even if this process is killed.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import astuple, dataclass
from typing import Final

from highway.process.memory import anonymous_file


@dataclass(frozen=True)
class Counts:
    """Counts for all links of a process. End messages do not count.

    Args:
        received: Messages that the process took from links, including malformed messages.
        senders: Senders of the received messages.
        sent: Messages that the process passed to links, including the message that is being sent.
        receivers: Receivers that have been connected so far. A receiver that reconnects counts twice.
        connections: Connections so far to senders; 0 if the process was killed.
    """

    received: int = 0
    senders: int = 0
    sent: int = 0
    receivers: int = 0
    connections: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return the sum of both counts."""
        return Counts(*map(sum, zip(astuple(self), astuple(other), strict=True)))


RECEIVED, SENDERS, SENT, RECEIVERS, CONNECTIONS = range(5)  # index of each count
SIZE: Final = 5 * 8  # bytes
NAME: Final = "highway-tally"  # name of the memory in /proc


class Tally:
    """A tally: the counts of one process, as the launcher sees them. Close the tally after use."""

    def __init__(self) -> None:
        self.descriptor = anonymous_file(NAME)
        os.truncate(self.descriptor, SIZE)
        self._memory = mmap.mmap(self.descriptor, SIZE)
        self._last = Counts()

    def read(self) -> Counts:
        """Return the current counts. After :meth:`close`, return the last counts."""
        if not self._memory.closed:
            with memoryview(self._memory).cast("q") as values:
                self._last = Counts(*values)
        return self._last

    def close(self) -> None:
        """Release the launcher's mapping of the memory. The process keeps its own mapping."""
        if not self._memory.closed:
            self.read()
            self._memory.close()
            os.close(self.descriptor)


def read_kept(path: str) -> Counts:
    """Return the counts of a :class:`Tally` of another process. ``path`` is the path of the tally's descriptor in ``/proc``.

    Raises:
        OSError: the other process has ended, or the file at the path has no counts.
    """
    if NAME not in os.readlink(path):
        raise FileNotFoundError(f"{path}: this file does not contain counts of highway")
    with open(path, "rb") as file, memoryview(file.read(SIZE)).cast("q") as values:
        return Counts(*values)


def here() -> memoryview:
    """Return the counts of this process as writable memory, indexed by ``RECEIVED``, ``SENDERS`` and so on."""
    return _here


def share(descriptor: int) -> None:
    """Begin to count in the memory of a :class:`Tally`.

    Args:
        descriptor: The descriptor of the memory, inherited from the launcher.
    """
    global _here
    memory = mmap.mmap(descriptor, SIZE)  # stays mapped until the process ends
    os.close(descriptor)
    _here = memoryview(memory).cast("q")


def is_shared() -> bool:
    """Return whether a launcher counts the messages of this process."""
    return isinstance(_here.obj, mmap.mmap)


def counts() -> Counts:
    """Return the counts of this process."""
    return Counts(*_here)


_here = memoryview(bytearray(SIZE)).cast("q")
