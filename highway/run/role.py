"""Run one role in this process: run the role's pipeline, send reports, and drain or stop on request.

A *role* is a pipeline of a topology file. To *drain* it means to end its source and to deliver the items in flight.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from highway.engine import Pipeline
from highway.engine.stats import PipelineStats
from highway.engine.threads import STOP_TIMEOUT
from highway.errors import StuckError
from highway.process import signals
from highway.process.readable import readable
from highway.run.control import ControlServer

log = logging.getLogger("highway")

TICK = 0.5  # seconds between two reports

_ASKED = (signal.SIGINT, signal.SIGTERM)
_LAST_RESORT = 15  # a process that does not end within this many seconds is killed


class Terminated(SystemExit):
    """SIGTERM has asked the process to end, or its launcher has ended.

    Attributes:
        drained: Whether the process delivered all items in flight before it ended.
    """

    def __init__(self, drained: bool = False) -> None:
        super().__init__(128 + signal.SIGTERM)
        self.drained = drained


def _deafen() -> None:
    """Ignore SIGTERM from now on, and let SIGINT kill the process immediately."""
    if signals.are_heard():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def stay(tell: Callable[[], None]) -> None:
    """Call ``tell`` to report the end of the role, and then wait for SIGINT or SIGTERM. A signal during the call counts."""
    with signals.received(_ASKED) as heard:
        tell()
        while os.read(heard, 1)[0] not in _ASKED:
            pass  # other code handles this signal


def run(
    pipeline: Pipeline,
    progress: Callable[[PipelineStats], None],
    tick: float = TICK,
    drain_timeout: float = 0.0,
    control: ControlServer | None = None,
) -> None:
    """Run a pipeline until its source ends. Without a sink, the items are dropped.

    A separate thread consumes the items, so that this thread can send reports and, if it is the main thread, receive signals.

    Args:
        pipeline: The pipeline to run.
        progress: A function that is called with the statistics every ``tick`` seconds, and once at the end, even after an error.
        tick: Seconds between two calls of ``progress``.
        drain_timeout: Maximum seconds to deliver items in flight after SIGTERM. After this time, or at a second signal, the pipeline is
            stopped. 0: SIGTERM stops the pipeline immediately.
        control: A server that receives requests to drain from other processes.

    Raises:
        Terminated: SIGTERM or ``progress`` has asked the process to end, or the pipeline was not drained in time.
        KeyboardInterrupt: the role was interrupted.
        StuckError: the pipeline did not stop on request.
        Exception: a stage or ``progress`` raised an error.
    """
    failure: list[BaseException] = []
    ended, writing = os.pipe()
    pool = ThreadPoolExecutor(1, "highway-run")
    with signals.received(_ASKED) as heard:
        try:
            try:
                pool.submit(_consume, pipeline, failure, writing)
            except RuntimeError as error:
                os.close(writing)  # _consume() would have closed it, but its thread could not be started
                error.add_note("the system allows no more threads for this process; raise the limit (ulimit -u, or the container's pids)")
                raise
            terminated = _attend(pipeline, lambda: progress(pipeline.stats()), tick, drain_timeout, ended, heard, control)
            if failure:
                raise failure[0]
            if terminated:
                raise Terminated(drained=True)
        except Terminated:
            signal.alarm(_LAST_RESORT)  # if the process does not end by itself, the kernel kills it
            _deafen()
            raise
        except KeyboardInterrupt:
            _deafen()
            raise
        finally:
            until = time.monotonic() + STOP_TIMEOUT + 1.0  # even if a stage does not stop, stop() takes no longer than STOP_TIMEOUT
            pipeline.stop()
            pool.shutdown(wait=False)
            stuck = not readable([ended], max(1.0, until - time.monotonic()))
            os.close(ended)
            if stuck:
                raise StuckError("a stage does not stop; see the warning above")
            progress(pipeline.stats())


def _attend(
    pipeline: Pipeline,
    progress: Callable[[], None],
    tick: float,
    drain_timeout: float,
    ended: int,
    heard: int,
    control: ControlServer | None,
) -> bool:
    """Wait until the pipeline has ended. Return whether it ended after SIGTERM.

    Raises:
        Terminated, KeyboardInterrupt: the pipeline has not ended, and must be stopped.
    """
    until, terminated = float("inf"), False
    while True:
        left = max(0.0, min(tick, until - time.monotonic()))
        waits: list[Any] = [ended, heard, *(control.sockets if control else ())]
        ready = readable(waits, left)
        asked = control is not None and control.poll(ready)
        came = os.read(heard, 1)[0] if heard in ready else None
        if came == signal.SIGINT:
            raise KeyboardInterrupt
        if came == signal.SIGTERM:
            if terminated or not drain_timeout:
                raise Terminated
            terminated = True
        elif came is not None:  # another handler gets it; torch's DataLoader handles SIGCHLD
            continue
        elif ended in ready:
            return terminated
        if (asked or terminated) and until == float("inf"):
            log.info("draining: the source ends, and items in flight are delivered")
            pipeline.drain()
            until = time.monotonic() + drain_timeout
        elif time.monotonic() >= until:
            log.warning(
                "not drained within %g s; items still in flight are lost (for more time, pass a larger --drain-timeout)", drain_timeout
            )
            raise Terminated
        progress()


def _consume(pipeline: Pipeline, failure: list[BaseException], ended: int) -> None:
    try:
        if pipeline.ends_in_sink:
            pipeline.run()
        else:
            for _ in pipeline.stamped():
                pass
    except BaseException as error:
        failure.append(error)
    finally:
        os.close(ended)
