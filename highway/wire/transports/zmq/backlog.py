"""What a sender has given to ZeroMQ and what has not left yet, in messages and bytes."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence

COPY_BELOW = 1 << 16  # bytes; copying less is cheaper than keeping track of it


class Backlog:
    """The messages that have not left: ZeroMQ holds on to the memory of a frame until its bytes are with the system.

    Attributes:
        nbytes: Bytes that have not left, or have since :meth:`count` or :meth:`add`.
    """

    def __init__(self) -> None:
        self._messages: deque[tuple[weakref.ref[memoryview], int]] = deque()  # the last frame that is kept track of, and all bytes
        self.nbytes = 0

    def add(self, views: Sequence[memoryview], nbytes: int, copied_below: int) -> None:
        """Note that a message was sent; one of whose frames all were copied is not kept track of."""
        for view in reversed(views):
            if view.nbytes >= copied_below:
                self._messages.append((weakref.ref(view), nbytes))
                self.nbytes += nbytes
                break
        while self._messages and self._messages[0][0]() is None:
            self.nbytes -= self._messages.popleft()[1]

    def count(self) -> tuple[int, int]:
        """Return how many messages have not left, and their bytes."""
        self._messages = deque(message for message in self._messages if message[0]() is not None)
        self.nbytes = sum(nbytes for _, nbytes in self._messages)
        return len(self._messages), self.nbytes
