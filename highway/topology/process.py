"""One role in this process: run its pipeline, tell how it goes, and stop when asked to."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from types import FrameType, TracebackType
from typing import Any, NamedTuple, NoReturn, Self, TextIO

from highway.engine import Pipeline
from highway.stats import PipelineStats, StageStats

TICK = 0.5  # seconds between two reports

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LAST_RESORT = 15  # seconds that a process whose parent is gone takes at most to end


class Terminated(BaseException):
    """The process was asked to end (SIGTERM)."""


class StuckError(RuntimeError):
    """A pipeline did not stop; its process can only be ended without waiting for its threads."""


def terminate(number: int = 0, frame: FrameType | None = None) -> NoReturn:
    """Begin to end this process, once; the kernel ends it if it takes too long."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.alarm(_LAST_RESORT)
    raise Terminated


@contextlib.contextmanager
def termination() -> Iterator[None]:
    """Have SIGTERM raise :class:`Terminated` in the main thread."""
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _ending() -> Iterator[None]:
    """Do not begin to end once more, half way through it: a second SIGTERM is ignored, a second Ctrl-C ends the process at once."""
    before = {
        number: signal.signal(number, action) for number, action in ((signal.SIGTERM, signal.SIG_IGN), (signal.SIGINT, signal.SIG_DFL))
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(pipeline: Pipeline, progress: Callable[[PipelineStats], None], tick: float = TICK) -> None:
    """Run a pipeline until its source ends; items that come out of one without a sink are dropped.

    The pipeline is waited for on another thread, so that this one can report, and hear signals.

    Args:
        pipeline: What to run.
        progress: Called every ``tick`` seconds, and once at the end, however it ends.
        tick: Seconds.

    Raises:
        StuckError: it had to be stopped, and did not.
        Exception: what a stage raised, what ``progress`` raised, or a signal's KeyboardInterrupt or Terminated.
    """
    pool = ThreadPoolExecutor(1, "highway-run")
    ended = pool.submit(_drain, pipeline)
    try:
        while not _wait(ended, tick):
            progress(pipeline.stats())
        ended.result()
    finally:
        with _ending():
            pipeline.stop()
            pool.shutdown(wait=False)
            if not _wait(ended, 1.0):
                raise StuckError("a stage does not stop; see the warning above")
            progress(pipeline.stats())


def _drain(pipeline: Pipeline) -> None:
    if pipeline.ends_in_sink:
        pipeline.run()
    else:
        for _ in pipeline:
            pass


def _wait(ended: Future[None], seconds: float) -> bool:
    """Wait for the end, and say whether it came."""
    with contextlib.suppress(TimeoutError):
        ended.exception(seconds)
    return ended.done()


class Reporter:
    """Tells the process that launched this one how its role goes: a line of JSON each time.

    Args:
        descriptor: The writing end of a pipe to the launcher.
    """

    def __init__(self, descriptor: int) -> None:
        self._out: TextIO = os.fdopen(descriptor, "w", encoding="utf-8", buffering=1)
        self._parent = os.getppid()

    def progress(self, stats: PipelineStats) -> None:
        """Report the figures.

        Raises:
            Terminated: nobody is there any more to hear them.
        """
        self._send(stats=asdict(stats))

    def error(self, message: str) -> None:
        """Report what ended the role."""
        self._send(error=message)

    def done(self) -> None:
        """Report that the role has ended as it should; a process that ends without this has failed."""
        self._send(done=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        """Close the pipe; what could not be sent is dropped."""
        with contextlib.suppress(BrokenPipeError):
            self._out.close()

    def _send(self, **report: Any) -> None:
        try:
            self._out.write(json.dumps(report, default=str) + "\n")
        except BrokenPipeError:
            terminate()
        if os.getppid() != self._parent:
            terminate()


class Report(NamedTuple):
    """A line that a :class:`Reporter` wrote: one of the three."""

    stats: PipelineStats | None = None
    error: str = ""
    done: bool = False

    @classmethod
    def read(cls, line: str) -> Report:
        report = json.loads(line)
        if stats := report.get("stats"):
            report["stats"] = PipelineStats([StageStats(**stage) for stage in stats["stages"]], stats["seconds"])
        return cls(**report)


def die_with_parent() -> None:
    """Have this process end when its parent does, even if that is killed: at once on Linux, elsewhere with the next report."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
