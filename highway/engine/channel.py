"""The queue between two stages. Its size is bounded, it keeps the order, and both the writer and the reader can close it.

A *permit* reserves room for an item. A *slot* is the place of an item that a worker has not finished yet.

Invariants:

- Only a writer with a permit can create a slot. A permit is given only while the sum of permits and items is below the limit.
- The limit is ``capacity`` plus a number of extra items, at most ``extra``. The writer passes this number with each item: the smaller the
  item, the larger the number. The number of the last item counts. A :class:`Together` (several items in one entry) needs only one permit,
  so its other items can exceed the limit.
- Items leave in the order in which their slots were created, whenever and by whichever worker the slots are filled.
- No writer calls :meth:`Channel.close` before all slots are created. After this call, the reader gets the remaining items and then
  ``EndOfStream``.
- After :meth:`Channel.cancel`, the queue is empty. Threads that wait in the channel, and threads that take or put an item later, get
  ``Cancelled``.
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
    """The place of an item in the order of a channel. The slot is filled when the item is ready."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = _PENDING


class Together(list[Any]):
    """One or more items of the same epoch that form one entry of a channel."""


class Channel:
    """A queue between two stages. It holds at most ``capacity`` items, and extra items if the items are small.

    A source or stream puts finished items (:meth:`put`). A worker of a map first takes a permit (:meth:`acquire`, which waits), and then
    its input. If there are several workers and the order is kept, the worker creates a slot (:meth:`reserve`, which does not wait), and
    fills the slot later (:meth:`fill`). Slots keep the order of the inputs. Otherwise, the worker appends the finished item
    (:meth:`append`).

    Each wake-up of a writer interrupts a thread on the same core. If the queue is full and has a single writer, the channel therefore wakes
    this writer when half of the waiting items have left. If there are several writers, the channel wakes one of them when there is room for
    one item. It does not wait for half of the queue, because a writer can keep a permit for a long time, such as while it waits for an
    input.

    Args:
        capacity: Maximum number of items that wait or are in work.
        writers: Number of threads that write.
        extra: Maximum number of items beyond ``capacity``. With each item, the writer passes the number of extra items that the size of
            this item allows. If a larger item allows fewer extra items, permits that were given before remain valid.

    The methods accept the :class:`Meter` of a worker. While the worker waits in the channel, its meter is in the state ``BLOCKED`` or
    ``STARVED``.
    """

    def __init__(self, capacity: int, writers: int = 1, extra: int = 0) -> None:
        self._least = capacity
        self._extra: Final = extra
        self._alone: Final = writers == 1
        self._limit = capacity  # depends on the size of the last item
        self._more = self._most = 0  # the number of extra items that the last item allows, and the maximum of this number so far
        self._slots: deque[Any] = deque()  # slots and finished items
        self._inside = 0  # items in ``Together`` entries, except the first item of each entry
        self._permits = 0
        self._wake_at = 0  # number of waiting items at which a single writer is woken
        self._readers = self._writers = 0  # number of threads that wait
        self._closed = False
        self._cancelled = False
        lock = threading.Lock()
        self._readable = threading.Condition(lock)
        self._writable = threading.Condition(lock)
        self._lock = lock

    def __len__(self) -> int:
        """Return the number of waiting items: finished items, and slots whose items are in work."""
        return len(self._slots) + self._inside

    @property
    def capacity(self) -> int:
        """The maximum number of items that wait or are in work: the largest limit so far."""
        return self._least + self._most

    def acquire(self, meter: Meter | None = None) -> None:
        """Wait for room and take a permit."""
        with self._lock:
            if len(self._slots) + self._inside + self._permits >= self._limit or self._cancelled:
                self._wait_for_room(meter)
            self._permits += 1

    def acquire_some(self, most: int) -> int:
        """Take permits for at most ``most`` items without waiting, and return their number."""
        with self._lock:
            if self._cancelled:
                raise Cancelled
            count = max(0, min(most, self._limit - len(self) - self._permits))
            self._permits += count
            return count

    def release(self, count: int) -> None:
        """Give back ``count`` permits that were not used for slots or items."""
        with self._lock:
            for _ in range(count):
                self._permits -= 1
                self._released()

    def grow(self, by: int) -> None:
        """Change the capacity by ``by`` items. If the capacity shrinks, waiting items remain until they are read."""
        if by:
            with self._lock:
                self._least += by
                self._limit += by
                self._writable.notify_all()

    def reserve(self) -> Slot:
        """Use a permit to create a slot at the end of the queue."""
        slot = Slot()
        with self._lock:
            if self._cancelled:
                raise Cancelled
            self._slots.append(slot)
            self._permits -= 1
        return slot

    def fill(self, slot: Slot, value: Any, more: int | None = None) -> None:
        """Set the item of a slot. ``more`` is the number of extra items that the size of this item allows.

        A slot with ``DROP`` is removed when it becomes the first slot.
        """
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
        """Append a finished item. This uses a permit."""
        with self._lock:
            if self._cancelled:
                raise Cancelled
            self._permits -= 1
            if more is not None and more != self._more:
                self._set_limit(more)
            self._append(value)

    def get(self, timeout: float | None = None, meter: Meter | None = None, together: bool = False) -> Any:
        """Wait for the next item and return it. With ``together``, a :class:`Together` is returned whole; otherwise, item by item.

        Raises:
            EndOfStream: the channel is closed and empty.
            Cancelled: the channel was cancelled.
            TimeoutError: no item came within ``timeout`` seconds.
        """
        with self._lock:
            if (not self._slots or type(self._slots[0]) is Slot) and not self._is_ready():
                self._wait_for_item(timeout, meter)
            return self._first(together)

    def get_some(self, most: int) -> list[Any]:
        """Return at most ``most`` items that are ready, without waiting."""
        items: list[Any] = []
        with self._lock:
            while len(items) < most and self._is_ready():
                items.append(self._first())
        return items

    def close(self) -> None:
        """Declare that no more items will be written."""
        with self._lock:
            self._closed = True
            self._readable.notify_all()

    def cancel(self) -> None:
        """Declare that no more items will be read, and drop the waiting items."""
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
        """Set the limit. ``more`` is the number of extra items that the last item allows."""
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
        """Return whether the first item can be read."""
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
        """After ``count`` items have left, wake waiting writers if there is enough room."""
        enough = len(self) <= self._wake_at if self._alone else len(self) + self._permits < self._limit
        if self._writers and enough:
            self._writable.notify(count)

    def _settle(self) -> None:
        """Remove dropped slots from the front, and wake readers that wait for the first item or for the end."""
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
    """Wait for a notification, at most ``timeout`` seconds. During the wait, the worker's meter is in ``state``."""
    if meter is None:
        condition.wait(timeout)
        return
    meter.enter(state)
    try:
        condition.wait(timeout)
    finally:
        meter.enter(BUSY)
