"""The parent's side of a pipeline that runs in its own process; see docs/adr/0013."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from highway.children import isolated_child
from highway.children.control import Control, ControlClosed
from highway.children.isolated_child import Begin
from highway.children.pickling import Failure, Script, unpack
from highway.children.process import death, end, expect_no_import, expect_picklable, start
from highway.children.receiving import ReceivingRun
from highway.engine.component import Shape, name_of
from highway.engine.context import in_stage
from highway.engine.source import Fed
from highway.engine.stage import Origin, Stage
from highway.engine.stats import PipelineStats
from highway.engine.threads import INTERRUPT_POLL, STOP_TIMEOUT
from highway.errors import Cancelled, ConfigError, EndOfStream, LinkError, RemoteError
from highway.process import interrupt
from highway.process.cores import ONE_THREAD
from highway.wire.transports.shm import ShmReceiver

log = logging.getLogger("highway")

NAME: Final = "Pipeline(isolated=True)"
EXIT_TIMEOUT = STOP_TIMEOUT + 2  # seconds for the process to stop its stages, report stages that do not stop, and exit


class IsolatedRun(ReceivingRun):
    """A run whose stages are in a process of their own. In this process, the stages have no threads and only hold descriptions.

    Args:
        given: The stages as the user passed them.
        stages: The stages, with parts in place of composites.
        seed: The pipeline's seed.
        origin: Host, role and replica in the passports (metadata) of the pipeline's items.
        budget_mb: Megabytes of shared memory for items.
        who: The start of error messages.
        feeds_stage: Whether the run is the source of another pipeline. If so, arrays are read-only, passports have no lineage (how an item
            was made), and numerical libraries use one thread. If the run is stopped before its end, the process is killed.

    Raises:
        ConfigError: ``budget_mb`` is not above 0.
        PipelineError: a stage cannot be pickled.
    """

    def __init__(
        self,
        given: Sequence[Any],
        stages: list[tuple[Stage, Shape]],
        seed: int | None,
        origin: Origin,
        budget_mb: float,
        who: str = NAME,
        feeds_stage: bool = False,
    ) -> None:
        super().__init__(stages, seed, origin, who)
        if not budget_mb > 0:
            raise ConfigError(f"{who}: budget_mb={budget_mb}; expected more than 0 megabytes of shared memory, such as 1024")
        for part in given:
            expect_picklable(part, part.label if isinstance(part, Stage) else name_of(part), who)
        self._given, self._budget_mb, self._feeds_stage = list(given), budget_mb, feeds_stage
        self._process: _IsolatedProcess | None = None

    def spawn(self) -> None:
        """Start the process. The process waits until :meth:`start` is called."""
        with self._lock:
            if self._process is None and not self.stopped:
                self._process = _IsolatedProcess(self._name, self._given, self._budget_mb, self._feeds_stage)

    def _open(self) -> None:
        with interrupt.held(), self._lock:  # Ctrl-C between the steps would start the run twice, or never
            if self._process is not None and not self._opened:
                draining = self.stages[0].context.draining
                lineage = in_stage() and not self._feeds_stage
                self._process.tell(Begin(self.seed, self._origin, self.resumed_from, draining, self.background, lineage, self.is_counted))
            self._opened = True
        if isinstance(source := self.stages[0].stage.op, Fed):
            source.forward(lambda value: self._tell("feed", value))

    def _receive(self, timeout: float | None) -> tuple[str, Any] | None:
        return None if self._process is None else self._process.receive(timeout)

    def _lost(self, error: LinkError) -> BaseException:
        return error if self._process is None else self._process.lost(error)

    def _note_begin(self, value: Any) -> None:
        self.stages[0].context.refusal = value

    def wait(self, is_interrupted: Callable[[], bool] = lambda: False) -> None:
        self._tell("wait")
        try:
            while True:
                if is_interrupted():
                    raise KeyboardInterrupt
                with contextlib.suppress(TimeoutError):
                    self._get(INTERRUPT_POLL)
        except (EndOfStream, Cancelled):
            self.join()
        except BaseException:
            self.stop()
            raise
        self.raise_error()

    def skip(self, epoch: int) -> bool:
        skips = super().skip(epoch)
        if skips:
            self._tell("skip", epoch)
        return skips

    def length(self) -> int:
        self.is_counted = True
        found = self._ask("length")
        return super().length() if found is None else int(found)

    def identities(self) -> dict[str, Any]:
        return self.snapshot.identities(self._ask("data"))  # computed here, because pickling can change the child's copies of the stages

    def stats(self) -> PipelineStats:
        self._last = self._ask("stages") or self._last
        stats = super().stats()
        return dataclasses.replace(stats, stages=self._last or stats.stages)

    def drain(self) -> None:
        super().drain()
        self._tell("drain")

    def stop(self) -> None:
        self._note_stop()
        if self._process is not None and os.getpid() == self._pid:
            is_starting = isinstance(self.stages[0].stage.op, Fed) and not self._is_there  # importing modules can take seconds
            if is_starting or (self._feeds_stage and not self._is_over):
                self._process.kill()  # loses no work
            self._process.tell(("stop", None, 0))
            self._process.hang_up()
        self.join()

    def join(self) -> None:
        """Wait for the process after its stages have ended or were asked to end."""
        if self._process is not None and os.getpid() == self._pid:
            self._process.end()
            with self._receiving:
                self._is_over = True
                self._process.close()

    def _tell(self, what: str, value: Any = None) -> None:
        """Send a message to the child process. Do nothing before the run begins, or in a forked copy of this process."""
        if self._process is not None and self._opened and os.getpid() == self._pid:
            self._process.tell((what, value, 0))

    def _ask(self, what: str) -> Any:
        """Ask the child process and return its answer; ``None`` if no process can answer.

        Raises:
            Exception: the process raised it while answering.
        """
        if self._process is None or not self._opened or os.getpid() != self._pid:
            return None
        found = self._process.ask(what)
        if isinstance(found, Failure):
            raise found.error()
        return found


class _IsolatedProcess:
    """The child process of an isolated run, and the links to it."""

    def __init__(self, who: str, stages: list[Any], budget_mb: float, feeds_stage: bool) -> None:
        expect_no_import(who)
        self._who = who
        self._asking, self._asked = threading.Lock(), 0
        self._items = ShmReceiver(who, writable=not feeds_stage)
        kinds = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
        environment = dict.fromkeys(ONE_THREAD, "1") if feeds_stage else {}
        try:
            self._process, (control, self._sock) = start(
                who, isolated_child.__name__, kinds, [who, budget_mb, not feeds_stage], **environment
            )
        except BaseException:
            self._items.close()
            raise
        self._control = Control(control)
        self._items.pair(self._sock)
        self.tell((Script.of_this_process(), sys.argv))
        self.tell(stages)

    def receive(self, timeout: float | None) -> tuple[str, Any]:
        """Return the kind and the value of the next message. Raises the errors of :meth:`ShmReceiver.recv` and of unpickling."""
        kind, value = unpack(self._items.recv(timeout))
        return kind, value

    def lost(self, error: LinkError) -> LinkError | RemoteError:
        """Return the error that explains why no message can be received."""
        return death(self._process, self._who) if self._items.connections.is_over else error

    def tell(self, message: Any) -> None:
        """Send a message. If the process is gone, do nothing, because receiving the next item raises the error."""
        with contextlib.suppress(ControlClosed):
            self._control.send(message)

    def ask(self, what: str) -> Any:
        """Send a question and return the answer; ``None`` if the process is gone."""
        with self._asking, contextlib.suppress(ControlClosed):
            self._asked += 1
            self.tell((what, None, self._asked))
            while True:
                number, *answer = self._control.receive()
                if number == self._asked:  # otherwise, it is the answer to an earlier question that Ctrl-C interrupted
                    return unpack(answer)

    def hang_up(self) -> None:
        """Accept no more items, and wake the thread that waits for an item."""
        with contextlib.suppress(OSError):  # the process is gone
            self._sock.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """Kill the process at once."""
        self._process.kill()

    def end(self) -> None:
        """Wait until the process has ended. If this takes longer than :data:`EXIT_TIMEOUT`, kill the process."""
        if end(self._process, EXIT_TIMEOUT):
            log.warning("%s: process %d did not end within %g s, and was killed", self._who, self._process.pid, EXIT_TIMEOUT)

    def close(self) -> None:
        """Close the links. Arrays of received items stay valid."""
        self._items.close()
        self._control.close()
