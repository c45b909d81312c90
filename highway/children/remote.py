"""Maps in a child process, as the worker that has it uses them."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from time import sleep
from typing import Any, Final

from highway.children import maps as in_child
from highway.children.maps import ApplyMaps, Kind
from highway.children.objects import INLINE, KINDS, Full, ObjectLink, Record, size
from highway.children.pickling import Script, pack
from highway.children.process import death, end, expect_no_import, start
from highway.engine.ahead import Outcome
from highway.engine.context import here
from highway.engine.stage import Stamped
from highway.errors import LinkError, PipelineError
from highway.process.cores import ONE_THREAD

MOST: Final = 64  # items that a child has in flight
WORK_AHEAD: Final = 0.02  # seconds of work that it has in flight: many times what it takes to hand it more
GATHER_LEAST, GATHER_MOST = 0.0005, 0.01  # seconds for which its answers gather, if they do
SLOW: Final = 0.1  # seconds of work on an item from which on it is better that whoever is free first takes the next one
BYTES_AHEAD: Final = 1 << 20  # of the items, or of their results, in flight
BYTES_IN_SOCKET: Final = 1 << 15  # so much fits, whatever the child does, so that neither ever waits for the other to read
SHARE: Final = 1 / 8  # of the last item in the averages
RISE: Final = 1 / 64  # the same, in the time that the quickest items take


class _Handed:
    """An item for the child, and what is known of it."""

    __slots__ = ("error", "frames", "in_socket", "stamped")

    def __init__(self, stamped: Stamped) -> None:
        self.stamped = stamped
        self.frames: list[Any] | None = None  # before it is sent
        self.error: Exception | None = None  # why it cannot be
        self.in_socket = 0  # bytes


class RemoteMaps:
    """Maps in a child process, with several items at once on their way. For one thread.

    The child works on its items one after the other and answers each at once. So if it dies, the first item without an answer is the one
    that it had, which is an error; nothing has come of those behind it and nothing can, and another child gets them.

    Args:
        maps: What the child does.
        budget_mb: Megabytes of shared memory for items, and again for results.

    Raises:
        PipelineError: no process can be started.
        LinkError: the maps take more memory than half of that.
    """

    def __init__(self, maps: ApplyMaps, budget_mb: float) -> None:
        self._maps, self._budget_mb = maps, budget_mb
        self._handed: deque[_Handed] = deque()  # sent and without an answer; with these, in their places, those that cannot be sent
        self._unsent: deque[_Handed] = deque()  # behind these
        self._at_work = self._in_socket = 0  # items that the child has, and their bytes
        self._seconds: float | None = None  # of work on an item, on average
        self._least_seconds = 0.0  # the same of the quickest of late
        self._nbytes = 0.0  # of an item, or of its result
        self._is_gone = self._has_answered = False
        self._begin()

    @property
    def depth(self) -> int:
        """How many items should be in flight: so many that the child never waits for the next one."""
        if self._seconds is None or self._seconds >= SLOW:
            return 1
        return int(max(2, min(MOST, WORK_AHEAD / max(self._seconds, 1e-9), BYTES_AHEAD / max(self._nbytes, 1.0))))

    def send(self, items: Sequence[Stamped]) -> None:
        """Hand over items, as many as there is room for; the others as soon as there is some.

        Raises:
            PipelineError: no process can be started in place of one that has died.
        """
        self._unsent.extend(map(_Handed, items))
        if self._is_gone:
            self._begin()
        self._send()

    def receive(self) -> Iterator[Outcome]:
        """Wait, and yield what has become of the items that came first, in their order.

        It is an error that the maps have raised, one of sending the item or its result, or a RemoteError if the child has died.

        Raises:
            Exception: the stage does not go on from an error of which a map has told it.
        """
        yield from self._failures()
        if not self._handed:
            return
        self._let_gather()
        try:
            answers = self._link.receive()
        except LinkError:
            yield self._lost(death(self._process, "Processes", " while it had an item"))
            return
        for kind, record, seconds, nbytes in answers:
            self._has_answered = True
            outcome = self._outcome(kind, record)
            if kind == "skippable":
                self._least_seconds = 0.0  # it waits to be told, and may ask again
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

    def apply(self, stamped: Stamped) -> Any:
        """Return what the maps make of one item, while none is in flight; raise what they raise."""
        self.send([stamped])
        while True:
            for error, value in self.receive():
                if error is not None:
                    raise error
                return value
            self.send([])

    def close(self) -> None:
        """End the process: at once if it is at work, whose result nobody wants; else it ends by itself. Closing again does nothing."""
        if self._handed or not self._has_answered:
            self._process.kill()
        self._link.close()
        end(self._process)

    def _begin(self) -> None:
        """Start a child, and give it its task."""
        expect_no_import("Processes")
        self._is_gone = self._has_answered = False
        self._process, self._link = _started(self._budget_mb)
        try:
            self._link.send((Script.of_this_process(), sys.argv, self._link.record(pack(self._maps))))
        except BaseException as error:
            if not (isinstance(error, LinkError) and self._link.is_over):  # else it has died, which is an error of the first item
                self.close()
                raise

    def _send(self) -> None:
        """Send what there is room for: small items in one message, large ones in one each."""
        run: list[Record] = []
        while self._unsent and self._in_socket < BYTES_IN_SOCKET:
            handed = self._unsent[0]
            handed.error = None
            try:
                frames = handed.frames = handed.frames or pack((handed.stamped.item, *handed.stamped.passport[:2]))
                nbytes = size(frames)
                if nbytes > INLINE:
                    run = self._flushed(run)
                record = self._link.record(frames, wait=not self._at_work)
            except Full:  # not when the child has answered what it has
                break
            except Exception as error:  # pickle raises what it likes, and __reduce__ too
                if not self._link.is_over:  # else the child has died, which is an error of the first item that it should have had
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

    def _let_gather(self) -> None:
        """Let answers gather for half the time, at most, that the child's work takes: to wake for each costs a tenth of a millisecond."""
        rest = min(GATHER_MOST, self._at_work * self._least_seconds / 2)
        if rest >= GATHER_LEAST and self._at_work >= 4:
            sleep(rest)

    def _flushed(self, run: list[Record]) -> list[Record]:
        """Send a run of records, and return an empty one."""
        if run:
            self._tell(run)
        return []

    def _tell(self, message: Any) -> None:
        with contextlib.suppress(LinkError):  # the child is gone, which is seen when its answers are read
            self._link.send(message)

    def _outcome(self, kind: Kind, record: Record) -> Outcome:
        try:
            value = self._link.value(record)
        except Exception as error:  # it cannot be made here
            return error, None
        return (None, value) if kind == "result" else (value.error(), None)

    def _failures(self) -> Iterator[Outcome]:
        """Yield the errors of the items that could not be sent, up to the next one that was."""
        while self._handed and self._handed[0].error is not None:
            yield self._handed.popleft().error, None

    def _lost(self, error: BaseException | None) -> Outcome:
        """Part from a child that has died, or cannot begin: this is an error of the item that it had; another one gets those behind it."""
        self.close()
        self._is_gone = True
        self._handed.popleft()
        self._unsent.extendleft(reversed(self._handed))
        self._handed.clear()
        self._at_work = self._in_socket = 0
        return error, None


def _started(budget_mb: float) -> tuple[subprocess.Popen[bytes], ObjectLink]:
    """Start a process, with one end of each of some pairs of sockets, and return it and the link of the other ends."""
    pairs = [socket.socketpair(socket.AF_UNIX, kind) for kind in KINDS]
    fds = [their.fileno() for _, their in pairs]
    link = ObjectLink("Processes", [our for our, _ in pairs], budget_mb)
    try:
        return start(in_child.__name__, (fds, budget_mb), fds, **dict.fromkeys(ONE_THREAD, "1")), link
    except BaseException as error:
        link.close()
        if isinstance(error, OSError):
            raise PipelineError(f"Processes: a process cannot be started: {error}") from error
        raise
    finally:
        for _, their in pairs:
            their.close()


def stage_goes_on_from(error: BaseException | None) -> bool:
    """Ask the stage whether it goes on from an error of which a map has told it."""
    try:
        if isinstance(error, Exception):
            here().report_error(error)
            return True
    except Exception as raised:
        if raised is not error:
            raise
    return False
