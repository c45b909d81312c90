"""The one queue of highway: bounded, ordered, closable from both ends.

What holds at every moment:

- ``free + reserved permits + slots in the queue == capacity``; a slot is made only by who holds a permit, so the queue never outgrows it.
- Items leave in the order in which their slots were made, whoever fills them and whenever.
- After :meth:`Channel.close` no slot is made; the reader gets what is there and then ``EndOfStream``.
- After :meth:`Channel.cancel` nothing is kept, and everybody who waits or comes gets ``Cancelled``.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, Final

from highway.engine.stage import DROP
from highway.errors import Cancelled, EndOfStream

_PENDING: Final = object()


class Slot:
    """A slot in the order of a channel, filled when its item is ready."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = _PENDING


class Channel:
    """A queue of at most ``capacity`` items between two stages.

    A writer either puts a finished item, or takes a permit (:meth:`acquire`, which waits), makes a slot (:meth:`reserve`, which does
    not) and fills it later: so that several workers share the work of a stage, and their results keep the order of their inputs.

    A writer that is alone and finds the queue full is woken when half of it is free: each time that a thread is woken, one that works on
    the same core is interrupted. Of several, each is woken as soon as there is room, since the others' permits may never become free.

    Args:
        capacity: Items that may wait or be in the making.
        writers: Threads that write.
    """

    def __init__(self, capacity: int, writers: int = 1) -> None:
        self.capacity = capacity
        self._alone = writers == 1
        self._slots: deque[Slot] = deque()
        self._free = capacity
        self._closed = False
        self._cancelled = False
        lock = threading.Lock()
        self._readable = threading.Condition(lock)
        self._writable = threading.Condition(lock)
        self._readers = self._writers = 0  # who wait, at least: to notify nobody takes longer than to make a slot
        self._lock = lock

    def __len__(self) -> int:
        """Items that wait or are being made."""
        return len(self._slots)

    def acquire(self) -> None:
        """Wait for room and take it."""
        with self._lock:
            while self._free <= 0 and not self._cancelled:
                self._writers += 1
                self._writable.wait()
                self._writers -= 1
            if self._cancelled:
                raise Cancelled
            self._free -= 1

    def acquire_some(self, most: int) -> int:
        """Take what room there is, at most for so many; return for how many."""
        with self._lock:
            if self._cancelled:
                raise Cancelled
            count = max(0, min(most, self._free))
            self._free -= count
            return count

    def release(self, count: int) -> None:
        """Give back permits without having made slots."""
        with self._lock:
            for _ in range(count):
                self._release()

    def grow(self, by: int) -> None:
        """Let more items wait or be in the making; fewer if that is below 0, as soon as there are no more than that."""
        if by:
            with self._lock:
                self.capacity += by
                self._free += by
                self._writable.notify_all()

    def reserve(self) -> Slot:
        """Turn a permit into the last slot in the order."""
        slot = Slot()
        with self._lock:
            self._slots.append(slot)
        return slot

    def fill(self, slot: Slot, value: Any) -> None:
        """Set the item of a slot; with ``DROP`` the slot vanishes."""
        with self._lock:
            slot.value = value
            if self._slots and self._slots[0] is slot:
                self._settle()

    def put(self, value: Any) -> None:
        """Wait for room and append a finished item."""
        self.acquire()
        self.append(value)

    def append(self, value: Any) -> None:
        """Append a finished item, with a permit taken before."""
        self.fill(self.reserve(), value)

    def get(self, timeout: float | None = None) -> Any:
        """Wait for the next item and return it.

        Raises:
            EndOfStream: the channel is closed and empty.
            Cancelled: it was cancelled.
            TimeoutError: nothing came within ``timeout`` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while not (self._slots and self._slots[0].value is not _PENDING):
                if self._cancelled:
                    raise Cancelled
                if self._closed and not self._slots:
                    raise EndOfStream("the stream has ended")
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    raise TimeoutError(f"no item within {timeout:g} s; the pipeline goes on")
                self._readers += 1
                self._readable.wait(remaining)
                self._readers -= 1
            return self._first()

    def get_some(self, most: int) -> list[Any]:
        """Return the next items that are there, at most so many."""
        items: list[Any] = []
        with self._lock:
            while len(items) < most and self._slots and self._slots[0].value is not _PENDING:
                items.append(self._first())
        return items

    def close(self) -> None:
        """Say that nothing more will be written."""
        with self._lock:
            self._closed = True
            self._readable.notify_all()

    def cancel(self) -> None:
        """Say that nothing more will be read, and forget what waits."""
        with self._lock:
            self._cancelled = True
            self._slots.clear()
            self._readable.notify_all()
            self._writable.notify_all()

    def _first(self) -> Any:
        value = self._slots.popleft().value
        self._release()
        self._settle()
        return value

    def _release(self) -> None:
        self._free += 1
        if self._writers and self._free >= ((self.capacity + 1) // 2 if self._alone else 1):
            self._writable.notify()

    def _settle(self) -> None:
        """Remove dropped slots from the front, and wake who waits for the item that is there now, or for the end."""
        while self._slots and self._slots[0].value is DROP:
            self._slots.popleft()
            self._release()
        if self._slots and self._slots[0].value is not _PENDING:
            if self._readers:
                self._readable.notify()
        elif self._closed and not self._slots:
            self._readable.notify_all()
