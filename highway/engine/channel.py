"""The one queue of highway: bounded, ordered, closable from both ends.

What holds at every moment:

- A slot is made only by who holds a permit, and a permit is given only while there are fewer permits and slots together than ``capacity``;
  and as many more as what is to be put, or was filled in last, allows, but no more than ``extra``.
  Of items that were handed on together one has a permit, and the others come on top.
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
from highway.engine.stats import BLOCKED, BUSY, STARVED, Meter
from highway.errors import Cancelled, EndOfStream

_PENDING: Final = object()


class Slot:
    """A slot in the order of a channel, filled when its item is ready."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = _PENDING


class Together(list[Any]):
    """Items of one epoch that are handed on together, by one call: at least one."""


class Channel:
    """A queue of at most ``capacity`` items between two stages, and some more if they are small.

    A writer either puts a finished item, or takes a permit (:meth:`acquire`, which waits), makes a slot (:meth:`reserve`, which does
    not) and fills it later: so that several workers share the work of a stage, and their results keep the order of their inputs. One
    that needs no slot for that, because it is alone or no order is kept, appends what it has made.

    A writer that is alone and finds the queue full is woken when half of it is free: each time that a thread is woken, one that works on
    the same core is interrupted. Of several, each is woken as soon as there is room, since the others' permits may never become free.

    Args:
        capacity: Items that may wait or be in the making.
        writers: Threads that write.
        extra: How many more there may be at most. Who puts or fills in an item says how many more its size allows; what a permit is
            given for may turn out to be larger.

    The :class:`Meter` that a worker comes with is blocked or starved while it waits here, and else is left alone.
    """

    def __init__(self, capacity: int, writers: int = 1, extra: int = 0) -> None:
        self._least = capacity
        self._extra: Final = extra
        self._alone: Final = writers == 1
        self._limit = capacity  # by what was filled in last
        self._more = self._most = 0  # how many more what was filled in last allows, and what allowed most
        self._slots: deque[Any] = deque()  # slots, and items that are finished
        self._inside = 0  # items in them besides the first of each, where several are together
        self._permits = 0
        self._wake_at = 0  # how many slots there are when a writer that is alone is woken
        self._readers = self._writers = 0  # that wait
        self._closed = False
        self._cancelled = False
        lock = threading.Lock()
        self._readable = threading.Condition(lock)
        self._writable = threading.Condition(lock)
        self._lock = lock

    def __len__(self) -> int:
        """Items that wait, finished or as slots of those that are being made."""
        return len(self._slots) + self._inside

    @property
    def capacity(self) -> int:
        """Items that may wait or be in the making: as many as there were when the smallest up to now was there."""
        return self._least + self._most

    def acquire(self, meter: Meter | None = None) -> None:
        """Wait for room and take it."""
        with self._lock:
            if len(self._slots) + self._inside + self._permits >= self._limit or self._cancelled:
                self._wait_for_room(meter)
            self._permits += 1

    def acquire_some(self, most: int) -> int:
        """Take what room there is, at most for so many; return for how many."""
        with self._lock:
            if self._cancelled:
                raise Cancelled
            count = max(0, min(most, self._limit - len(self) - self._permits))
            self._permits += count
            return count

    def release(self, count: int) -> None:
        """Give back permits without having made slots."""
        with self._lock:
            for _ in range(count):
                self._permits -= 1
                self._released()

    def grow(self, by: int) -> None:
        """Let more items wait or be in the making; fewer if that is below 0, as soon as there are no more than that."""
        if by:
            with self._lock:
                self._least += by
                self._limit += by
                self._writable.notify_all()

    def reserve(self) -> Slot:
        """Turn a permit into the last slot in the order."""
        slot = Slot()
        with self._lock:
            if self._cancelled:
                raise Cancelled
            self._slots.append(slot)
            self._permits -= 1
        return slot

    def fill(self, slot: Slot, value: Any, more: int | None = None) -> None:
        """Set the item of a slot, and say how many more its size allows; with ``DROP`` the slot vanishes."""
        with self._lock:
            slot.value = value
            if type(value) is Together:
                self._inside += len(value) - 1
            if more is not None and more != self._more:
                self._set_limit(more)
            if self._slots and self._slots[0] is slot:
                self._settle()

    def put(self, value: Any, more: int | None = None, meter: Meter | None = None) -> None:
        """Wait for room and append a finished item."""
        with self._lock:
            if more is not None and more != self._more:
                self._set_limit(more)
            if len(self._slots) + self._inside + self._permits >= self._limit or self._cancelled:
                self._wait_for_room(meter)
            self._append(value)

    def append(self, value: Any, more: int | None = None) -> None:
        """Append a finished item, with a permit taken before."""
        with self._lock:
            if self._cancelled:
                raise Cancelled
            self._permits -= 1
            if more is not None and more != self._more:
                self._set_limit(more)
            self._append(value)

    def get(self, timeout: float | None = None, meter: Meter | None = None, together: bool = False) -> Any:
        """Wait for the next item and return it; with ``together`` all that were handed on together with it, as :class:`Together`.

        Raises:
            EndOfStream: the channel is closed and empty.
            Cancelled: it was cancelled.
            TimeoutError: nothing came within ``timeout`` seconds.
        """
        with self._lock:
            if (not self._slots or type(self._slots[0]) is Slot) and not self._is_ready():
                self._wait_for_item(timeout, meter)
            return self._first(together)

    def get_some(self, most: int) -> list[Any]:
        """Return the next items that are there, at most so many."""
        items: list[Any] = []
        with self._lock:
            while len(items) < most and self._is_ready():
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
            self._inside = 0
            self._readable.notify_all()
            self._writable.notify_all()

    def _first(self, together: bool = False) -> Any:
        value, left = self._slots.popleft(), 1
        if type(value) is Slot:
            value = value.value
        if type(value) is Together:
            self._inside -= len(value) - 1
            if together:
                left = len(value)
            else:
                self._slots.extendleft(value[:0:-1])
                value = value[0]
        if self._writers:
            self._released(left)
        if self._readers or (self._slots and type(self._slots[0]) is Slot):
            self._settle()
        return value

    def _set_limit(self, more: int) -> None:
        """Expect that what comes next is as small as this."""
        self._more, more = more, min(more, self._extra)
        self._limit, self._most = self._least + more, max(self._most, more)
        if self._writers:
            self._released()

    def _append(self, value: Any) -> None:
        if value is DROP:
            self._released()
        else:
            self._slots.append(value)
            if type(value) is Together:
                self._inside += len(value) - 1
            if self._readers and self._is_ready():
                self._readable.notify()

    def _is_ready(self) -> bool:
        """Say whether there is an item for a reader."""
        if not self._slots:
            return False
        first = self._slots[0]
        return type(first) is not Slot or first.value is not _PENDING

    def _wait_for_room(self, meter: Meter | None) -> None:
        while len(self) + self._permits >= self._limit and not self._cancelled:
            self._wake_at = len(self) // 2
            self._writers += 1
            try:
                _wait(self._writable, None, meter, BLOCKED)
            finally:
                self._writers -= 1
        if self._cancelled:
            raise Cancelled

    def _wait_for_item(self, timeout: float | None, meter: Meter | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._is_ready():
            if self._cancelled:
                raise Cancelled
            if self._closed and not self._slots:
                raise EndOfStream("the stream has ended")
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise TimeoutError
            self._readers += 1
            try:
                _wait(self._readable, remaining, meter, STARVED)
            finally:
                self._readers -= 1

    def _released(self, count: int = 1) -> None:
        """Wake writers that wait, if there is enough room, for so many items that have left."""
        enough = len(self) <= self._wake_at if self._alone else len(self) + self._permits < self._limit
        if self._writers and enough:
            self._writable.notify(count)

    def _settle(self) -> None:
        """Remove dropped slots from the front, and wake who waits for the item that is there now, or for the end."""
        while self._slots and type(first := self._slots[0]) is Slot and first.value is DROP:
            self._slots.popleft()
            self._released()
        if not self._readers:
            return
        if self._is_ready():
            self._readable.notify()
        elif self._closed and not self._slots:
            self._readable.notify_all()


def _wait(condition: threading.Condition, timeout: float | None, meter: Meter | None, state: int) -> None:
    """Wait until somebody notifies, or for so long; a worker that came with its meter is in this state meanwhile."""
    if meter is None:
        condition.wait(timeout)
        return
    meter.enter(state)
    try:
        condition.wait(timeout)
    finally:
        meter.enter(BUSY)
