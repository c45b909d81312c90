"""``Pipeline``: runs stages in worker threads. The only place that starts threads."""

from __future__ import annotations

import _thread
import contextlib
import logging
import os
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from highway import cancel, script
from highway.channel import Channel
from highway.errors import Cancelled, EndOfStream, PipelineError
from highway.stage import DROP, Origin, Shape, Stage, expand
from highway.stats import PipelineStats
from highway.workers import StageWorkers, worker_count

__all__ = ["DROP", "EndOfStream", "Pipeline", "Stage"]

log = logging.getLogger("highway")

PATIENCE = 5.0  # seconds that stop() waits for a stage before it names it and goes on


class Pipeline:
    """A chain of stages, each in worker threads of its own.

    Nothing starts before the first :meth:`dequeue`, iteration or :meth:`run`. A script whose last act is to construct a pipeline that ends
    in a sink runs it until its source ends or the script is interrupted (see :mod:`highway.script`).

    Args:
        stages: Components, or :class:`Stage` objects that say how to run one. The first is the source; a sink can only be the last.
        seed: What all randomness in maps derives from, with the stage's name and the item's epoch and index.
        origin: Host, role and replica that the items which are made here carry in their passports.

    Raises:
        PipelineError: the stages do not fit together.

    >>> with Pipeline([range(3), str]) as pipeline:
    ...     print(list(pipeline))
    ['0', '1', '2']
    """

    def __init__(self, stages: Sequence[Any], seed: int = 0, origin: Origin | None = None) -> None:
        self._run = _Run(expand(stages), seed, origin or Origin(os.uname().nodename))
        self.ends_in_sink = self._run.workers[-1].shape == "sink"
        self._finalizer = weakref.finalize(self, self._run.abandon)
        self._ended = False
        if self.ends_in_sink and script.is_built_by_script(sys._getframe(1)):
            self._run.spawn()
            script.run_at_end(self._run, self)

    @staticmethod
    def from_yaml(path: str, role: str, **variables: Any) -> Pipeline:
        """Build the pipeline of one role of a topology file.

        Args:
            path: The YAML file.
            role: One of the file's roles.
            **variables: Values for the file's ``vars``.

        Raises:
            ConfigError: the file, the role or a variable is wrong; the message says where.
        """
        from highway.topology import load

        return load(path, variables).pipeline(role)

    def dequeue(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the next item.

        Args:
            block: Whether to wait for it; ``False`` is ``timeout=0``.
            timeout: Seconds to wait at most.

        Raises:
            EndOfStream: the source has ended, or the pipeline was stopped.
            TimeoutError: there is no item yet; the pipeline goes on.
            PipelineError: the pipeline ends in a sink.
            Exception: what a stage raised, with notes that say where; again on every later call.
        """
        if self.ends_in_sink:
            raise PipelineError(f"{self._last} is a sink, nothing comes out of this pipeline; call run()")
        self._run.start()
        try:
            return self._get(timeout if block else 0.0).item
        except (EndOfStream, Cancelled):
            cancel.check_cancelled()
            self._ended = True
            self._run.join()
            self._run.raise_error()
            raise EndOfStream("the pipeline was stopped" if self._run.stopped else "the pipeline has ended") from None

    def _get(self, timeout: float | None) -> Any:
        if timeout is not None or not cancel.in_stage():
            return self._run.output.get(timeout)
        while True:  # this pipeline is a part of another one, whose end must be able to interrupt it
            cancel.check_cancelled()
            with contextlib.suppress(TimeoutError), cancel.starved():
                return self._run.output.get(0.1)

    def __iter__(self) -> Iterator[Any]:
        """Yield items until the end.

        Raises:
            EndOfStream: the end was reached before: a loop over no items would look like an empty epoch.
        """
        if self._ended:
            self._run.raise_error()
            raise EndOfStream("the pipeline has ended; for several passes give its source epochs=, or build a new pipeline for each")
        return self._items()

    def _items(self) -> Iterator[Any]:
        try:
            while True:
                try:
                    item = self.dequeue()
                except EndOfStream:
                    return
                yield item
        finally:
            if cancel.is_cancelled():
                self.stop()

    def run(self) -> None:
        """Run a pipeline that ends in a sink until its source ends or :meth:`stop` is called.

        Raises:
            PipelineError: the last stage is no sink; iterate over the pipeline instead.
            Exception: what a stage raised.
        """
        if not self.ends_in_sink:
            raise PipelineError(f"{self._last} is no sink; iterate over the pipeline, call dequeue(), or append a sink")
        self._run.start()
        self._run.wait()

    def stop(self) -> None:
        """Cancel all stages and wait for their threads; a stage that does not end within 5 s is named in a warning and left behind.

        May be called again, from any thread, and while others wait in :meth:`dequeue`, who then get ``EndOfStream``.
        """
        self._run.stop()

    def stats(self) -> PipelineStats:
        """Return what each stage has done so far."""
        return self._run.stats()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Pipeline({' -> '.join(workers.stage.name for workers in self._run.workers)})"

    @property
    def _last(self) -> str:
        return self._run.workers[-1].stage.name


class _Run:
    """The threads and queues of a pipeline. They hold on to this and never to the ``Pipeline``, so that it can be collected."""

    def __init__(self, stages: list[tuple[Stage, Shape]], seed: int, origin: Origin) -> None:
        self.workers: list[StageWorkers] = []
        self.output = Channel(1)  # in front of the source: never used
        for stage, shape in stages:
            inbox, self.output = self.output, Channel(stage.buffer_size + worker_count(stage, shape))
            self.workers.append(StageWorkers(stage, shape, inbox, self.output, seed, origin))
        self.stopped = False
        self._error: BaseException | None = None
        self._trace: TracebackType | None = None
        self._lock = threading.Lock()
        self._gate = threading.Lock()  # a bare lock: Ctrl-C may leave the one inside an Event held
        self._gate.acquire()
        self._opened = False
        self._unfinished = len(self.workers)
        self._threads: list[threading.Thread] = []
        self._started_at = self._ended_at = 0.0
        self._pid = os.getpid()

    def spawn(self) -> None:
        """Create the threads; they do nothing before :meth:`start` opens the gate."""
        with self._lock:
            if self._threads or self.stopped:
                return
            for workers in self.workers:
                for number in range(len(workers.meters)):
                    name = f"highway:{workers.stage.name}:{number}"
                    self._threads.append(threading.Thread(target=self._thread, args=(workers, number), name=name, daemon=True))
            for thread in self._threads:
                thread.start()

    def start(self) -> None:
        if os.getpid() != self._pid:
            raise PipelineError(
                f"this pipeline belongs to process {self._pid}; a forked child has none of its threads: build it in the child, "
                "or start children with multiprocessing's 'spawn'"
            )
        if self._opened:
            return
        script.forget(self)
        self.spawn()
        self._started_at = self._started_at or time.perf_counter()
        self._open()

    def _open(self) -> None:
        with self._lock:
            if not self._opened:
                self._opened = True
                self._gate.release()

    def _thread(self, workers: StageWorkers, number: int) -> None:
        with self._gate:
            pass
        workers.work(number, self)

    def fail(self, error: BaseException) -> None:
        """Keep the first error and cancel everything."""
        with self._lock:
            first = self._error is None and not self.stopped
            if first:
                self._error, self._trace = error, error.__traceback__
        if not first:
            log.warning("after the pipeline had %s: %s", "stopped" if self.stopped else "failed", _one_line(error))
        self._cancel()

    def finished(self, worker: StageWorkers) -> None:
        """A stage has ended: nobody wants what stands before it."""
        self._cancel(upto=self.workers.index(worker))
        with self._lock:
            self._unfinished -= 1
            if self._unfinished == 0:
                self._ended_at = time.perf_counter()

    def _cancel(self, upto: int | None = None) -> None:
        for workers in self.workers[:upto]:
            workers.scope.cancel()
            workers.outbox.cancel()

    def raise_error(self) -> None:
        if self._error is not None:
            raise self._error.with_traceback(self._trace)

    def wait(self) -> None:
        try:
            for thread in self._threads:
                thread.join()
        except BaseException:
            self.stop()
            raise
        self.raise_error()

    def stop(self) -> None:
        script.forget(self)
        with self._lock:
            self.stopped = self.stopped or self._unfinished > 0
        self._cancel()
        self._open()
        self.join()

    def join(self) -> None:
        deadline = time.monotonic() + PATIENCE
        others = [thread for thread in self._threads if thread.ident != threading.get_ident()]
        for thread in others:
            thread.join(max(0.0, deadline - time.monotonic()))
        for thread in others:
            if thread.is_alive():
                log.warning(
                    "%s does not stop: %s; code that blocks there should call highway.check_cancelled()", thread.name, _position(thread)
                )

    def abandon(self) -> None:
        """Stop because the pipeline was collected or the interpreter exits; on any thread, maybe on one of ours with a lock held."""
        if os.getpid() != self._pid or not self._threads:
            return
        if threading.get_ident() in [thread.ident for thread in self._threads]:
            _thread.start_new_thread(self._cancel, ())
        else:
            self.stop()

    def stats(self) -> PipelineStats:
        until = self._ended_at or time.perf_counter()
        seconds = until - self._started_at if self._started_at else 0.0
        return PipelineStats([workers.stats() for workers in self.workers], seconds)


def _position(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return "it is just ending"
    code = frame.f_code
    return f"it is in {code.co_name}, line {frame.f_lineno} of {code.co_filename}"


def _one_line(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip().replace("\n", "; ")
