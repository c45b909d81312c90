"""Run maps in a child process: the parent's side, for one worker."""

from __future__ import annotations

import contextlib
import math
import re
import socket
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from time import monotonic, sleep
from typing import Any, Final

from highway.children import maps as in_child
from highway.children.maps import ApplyMaps, Kind
from highway.children.objects import INLINE, KINDS, Full, ObjectLink, Record, size
from highway.children.pickling import Script, pack
from highway.children.process import death, end, expect_no_import, start
from highway.engine.ahead import Outcome
from highway.engine.context import Limit, here
from highway.engine.stage import Passport, Positions, Stamped
from highway.engine.time_limit import stack_in_words
from highway.errors import LinkError
from highway.process.cores import ONE_THREAD

MOST: Final = 64  # maximum number of items in flight to a child
WORK_AHEAD: Final = 0.02  # seconds of work in flight to a child: many times the cost of sending an item
GATHER_LEAST, GATHER_MOST = 0.0005, 0.01  # minimum and maximum seconds to let answers gather
SLOW: Final = 0.1  # if an item takes more seconds than this, only one item is in flight to a child
BYTES_AHEAD: Final = 1 << 20  # maximum bytes of items, or of their results, in flight
BYTES_IN_SOCKET: Final = 1 << 15  # bytes that always fit into the socket's buffer, so that sending never blocks
SHARE: Final = 1 / 8  # weight of the last item in the moving averages
RISE: Final = 1 / 64  # weight of the last item in the average of ``_least_seconds``
STACK_WITHIN: Final = 3.0  # maximum seconds to wait for the stack of a child that is being ended


class _Handed:
    """An item for the child, and its progress."""

    __slots__ = ("attempts", "error", "frames", "in_socket", "stamped")

    def __init__(self, stamped: Stamped) -> None:
        self.stamped = stamped
        self.frames: list[Any] | None = None  # the pickled item, until it is sent
        self.error: Exception | None = None  # why the item cannot be sent
        self.in_socket = 0  # bytes of the item in the socket
        self.attempts = 0  # number of attempts that took too long


class RemoteMaps:
    """Runs maps in a child process, with several items in flight. Only one thread is allowed to use it.

    The child processes items in order, and sends each answer immediately. If the child dies, the first item without an answer becomes an
    error, because the child was working on this item. A new child gets the later items, because work on them had not started. If an item
    takes too long, its child is ended, and a new child gets the item again, until the item has no attempts left.

    Args:
        maps: The maps that the child applies.
        budget_mb: Megabytes of shared memory for items, and the same amount for results.
        limit: The time limit of an item.

    Raises:
        PipelineError: the process cannot be started.
        LinkError: the pickled maps are larger than half of the budget.
    """

    def __init__(self, maps: ApplyMaps, budget_mb: float, limit: Limit | None = None) -> None:
        self._maps, self._budget_mb, self._limit = maps, budget_mb, limit
        self._handed: deque[_Handed] = deque()  # items that were sent and not answered, and items that cannot be sent, in order
        self._unsent: deque[_Handed] = deque()  # items that wait to be sent, after those in _handed
        self._at_work = self._in_socket = 0  # number of items that the child has, and their bytes in the socket
        self._seconds: float | None = None  # average seconds of work per item
        self._least_seconds = 0.0  # average seconds of work of the quickest recent items
        self._nbytes = 0.0  # average size of an item or its result
        self._is_gone = self._is_ready = False
        self._since = 0.0  # earliest time at which the child could begin the first item
        self._begin()

    @property
    def depth(self) -> int:
        """The number of items that should be in flight, so that the child never waits for the next item."""
        if self._seconds is None or self._seconds >= SLOW:
            return 1
        return int(max(2, min(MOST, WORK_AHEAD / max(self._seconds, 1e-9), BYTES_AHEAD / max(self._nbytes, 1.0))))

    def send(self, items: Sequence[Stamped]) -> None:
        """Send items to the child: as many items as fit now, and the others when there is room.

        Raises:
            PipelineError: the child has died, and a new process cannot be started.
        """
        self._unsent.extend(map(_Handed, items))
        if self._is_gone:
            self._begin()
        self._send()

    def receive(self) -> Iterator[Outcome]:
        """Wait for answers, and yield the outcomes of the first items in order.

        An outcome is a pair of an error (or ``None``) and a result. The error comes from a map, or from sending the item or its result. If
        the child has died, the error is a RemoteError. If the item takes too long, the error is a TimeoutError.
        """
        yield from self._failures()
        if not self._handed:
            return
        self._let_gather()
        try:
            answers = self._link.receive(self._deadline)
        except LinkError:
            yield self._lost(death(self._process, "Processes", " while it had an item"))
            return
        self._since = monotonic()
        if not answers:
            yield from self._late()
        for kind, record, seconds, nbytes in answers:
            if kind == "ready":
                self._is_ready = True
                continue
            outcome = self._outcome(kind, record)
            if kind == "skippable":
                self._least_seconds = 0.0  # do not wait for more answers: the child waits for this answer
                self._tell(stage_goes_on_from(outcome[0]))
            elif kind == "unfit":
                yield self._lost(outcome[0])
                return
            else:
                self._seconds = seconds if self._seconds is None else self._seconds + (seconds - self._seconds) * SHARE
                self._least_seconds = min(seconds, self._least_seconds + (seconds - self._least_seconds) * RISE)
                self._nbytes = max(self._nbytes, self._nbytes + (nbytes - self._nbytes) * SHARE)
                self._in_socket -= self._handed.popleft().in_socket
                self._at_work -= 1
                yield outcome
                if self._handed and self._handed[0].error is not None:
                    yield from self._failures()

    def apply(self, item: Any, epoch: int, index: int, rows: Sequence[int]) -> Any:
        """Return the result of the maps for one item. Call this method only if no item is in flight. Raises the errors of the maps."""
        self.send([Stamped(item, Passport(epoch, index, positions=Positions(index, rows) if rows else None))])
        while True:
            for error, value in self.receive():
                if error is not None:
                    raise error
                return value
            self.send([])

    def close(self) -> None:
        """End the process. Kill a working process, because its result is not needed. Closing again does nothing."""
        if self._handed or not self._is_ready:
            self._process.kill()
        self._link.close()
        self._stacks.close()
        end(self._process)

    def _begin(self) -> None:
        """Start a child, and send its task."""
        expect_no_import("Processes")
        self._is_gone = self._is_ready = False
        kinds = (*KINDS, socket.SOCK_STREAM)  # the last pair is for the child's stack
        self._process, (*ours, self._stacks) = start(
            "Processes", in_child.__name__, kinds, [self._budget_mb], **dict.fromkeys(ONE_THREAD, "1")
        )
        self._link = ObjectLink("Processes", ours, self._budget_mb)
        try:
            self._link.send((Script.of_this_process(), sys.argv, self._link.record(pack(self._maps))))
        except BaseException as error:
            if not (isinstance(error, LinkError) and self._link.is_over):  # if the child has died, the first item gets the error
                self.close()
                raise

    def _send(self) -> None:
        """Send items while there is room: small items in one message, large items in one message each."""
        run: list[Record] = []
        was_idle = not self._at_work
        while self._unsent and self._in_socket < BYTES_IN_SOCKET:
            handed = self._unsent[0]
            handed.error = None
            try:
                item, passport = handed.stamped
                frames = handed.frames = handed.frames or pack((item, passport.epoch, passport.index, passport.rows))
                nbytes = size(frames)
                if nbytes > INLINE:
                    run = self._flushed(run)
                record = self._link.record(frames, wait=not self._at_work)
            except Full:  # cannot happen while the child has no items
                break
            except Exception as error:  # pickle and __reduce__ can raise any error
                if not self._link.is_over:  # if the child has died, its first item gets the error
                    handed.error = error
            else:
                run.append(record)
                handed.in_socket = 0 if record is None else nbytes
                self._in_socket += handed.in_socket
                self._nbytes += (nbytes - self._nbytes) * SHARE
            self._at_work += handed.error is None
            handed.frames = None
            self._handed.append(self._unsent.popleft())
        self._flushed(run)
        if was_idle:
            self._since = monotonic()

    def _let_gather(self) -> None:
        """Let answers gather for up to half of the child's work time, because waking up for each answer costs 0.1 ms."""
        rest = min(GATHER_MOST, self._at_work * self._least_seconds / 2)
        if rest >= GATHER_LEAST and self._at_work >= 4:
            sleep(rest)

    def _flushed(self, run: list[Record]) -> list[Record]:
        """Send the collected records, and return an empty list."""
        if run:
            self._tell(run)
        return []

    def _tell(self, message: Any) -> None:
        with contextlib.suppress(LinkError):  # the child is gone; receive() reports it
            self._link.send(message)

    def _outcome(self, kind: Kind, record: Record) -> Outcome:
        try:
            value = self._link.value(record)
        except Exception as error:  # the value cannot be unpickled here
            return error, None
        return (None, value) if kind == "result" else (value.error(), None)

    def _failures(self) -> Iterator[Outcome]:
        """Yield the errors of the next items that could not be sent, up to the first item that was sent."""
        while self._handed and self._handed[0].error is not None:
            yield self._handed.popleft().error, None

    def _lost(self, error: BaseException | None) -> Outcome:
        """Drop a child that has died or cannot start. The outcome of its first item is ``error``. A new child gets the later items."""
        self._drop()
        self._unsent.popleft()
        return error, None

    def _drop(self) -> None:
        """End the child, and keep its items for a new child."""
        self.close()
        self._is_gone = True
        self._unsent.extendleft(reversed(self._handed))
        self._handed.clear()
        self._at_work = self._in_socket = 0

    @property
    def _deadline(self) -> float:
        """The time after which the first item is late. It is infinite before the child has started, or if there is no limit."""
        return self._since + self._limit.seconds if self._limit is not None and self._is_ready else math.inf

    def _late(self) -> Iterator[Outcome]:
        """End the child, because its first item takes too long. If this was the item's last attempt, yield an error for it."""
        assert self._limit is not None
        handed, number = self._handed[0], self._process.pid
        handed.attempts += 1
        self._limit.count("ended_processes")
        stack = f"Process {number} was ended {self._stack()}"
        self._drop()
        again = f"attempt {handed.attempts + 1} of {self._limit.attempts} begins in another process"
        try:
            self._limit.late("the item", handed.attempts, stack, again)
        except TimeoutError as error:
            self._unsent.popleft()
            yield error, None

    def _stack(self) -> str:
        """End the child by SIGTERM, and return a text that describes its stack. The child writes its stack before it ends."""
        self._process.terminate()
        self._stacks.settimeout(STACK_WITHIN)
        written = b""
        with contextlib.suppress(OSError):  # also a timeout: in a system call that hangs, the child gets no signal
            while read := self._stacks.recv(1 << 16):
                written += read
        calls = re.findall(r'File "(.*)", line (\d+) in (.*)', written.decode(errors="replace"))
        return stack_in_words((function, line, file) for file, line, function in calls)


def stage_goes_on_from(error: BaseException | None) -> bool:
    """Return whether the stage skips an error that a map reported."""
    try:
        if isinstance(error, Exception):
            here().report_error(error)
            return True
    except Exception as raised:
        if raised is not error:
            raise
    return False
