"""Worker threads, in this process or in a separate process. Several threads can read parts of one batch."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import torch
from torch.utils.data import TensorDataset, default_convert
from torch.utils.data.dataloader import _BaseDataLoaderIter

from highway.adapters.torch.collate import collate
from highway.adapters.torch.device import pin
from highway.adapters.torch.fetch import MapFetcher, annotate, held_by_dead, place
from highway.adapters.torch.iterators import LoaderView, Stateful
from highway.adapters.torch.nested import as_arrays, as_tensors, mapped
from highway.adapters.torch.order import IndexOrder
from highway.children.pickling import Failure
from highway.engine import Pipeline
from highway.engine.component import Traits
from highway.engine.context import OfThread
from highway.engine.source import Fed
from highway.engine.stage import DROP, Drop, Stage
from highway.errors import EndOfStream, PipelineError, RemoteError
from highway.reading.plan import QUICK


class Task(NamedTuple):
    """A batch to read: the number of the loop, the number of the batch in the loop, and the indices of its samples."""

    loop: int
    number: int
    indices: Any


class Raised:
    """An error instead of a batch. If it is pickled for another process, the traceback of the error becomes a note."""

    def __init__(self, error: Exception | Failure) -> None:
        self._error: Exception | Failure | None = error

    def error(self) -> BaseException:
        """Return the error, and remove it from this object. Threads might keep this object, and the error refers to frames of the loop."""
        error, self._error = self._error, None
        assert error is not None
        return error.error() if isinstance(error, Failure) else error

    def __reduce__(self) -> tuple[Any, ...]:
        assert self._error is not None
        return Raised, (self._error if isinstance(self._error, Failure) else Failure.of(self._error),)


class ThreadResult(NamedTuple):
    """The batch for a task, or the error that reading the batch has raised."""

    loop: int
    number: int
    batch: Any = None
    raised: Raised | None = None


class _Batch:
    """A batch whose samples several threads are reading."""

    def __init__(self, task: Task, rows: int) -> None:
        self.task, self.rows = task, rows
        self.samples: list[Any] = [None] * len(task.indices)
        self.parts = -(-len(self.samples) // rows)
        self.done = count(1)  # counts the finished parts; next() is atomic, so only one thread gets the last count
        self.errors: dict[int, Exception] = {}  # from the row to its error


class _Part(NamedTuple):
    """Rows of a batch that one thread reads."""

    batch: _Batch
    first: int
    stop: int
    share: _Share


class _Share:
    """Determines the number of rows that a thread reads at a time: a part of the batch, or the whole batch if reading is fast."""

    def __init__(self, threads: int) -> None:
        self._threads, self._factor = threads, 1

    def rows(self, size: int) -> int:
        return max(1, min(size, self._factor * -(-size // self._threads)))

    def took(self, seconds: float) -> None:
        if seconds < QUICK and self._factor < self._threads:  # reading is faster than switching between threads
            self._factor *= 2


class _Tasks(Fed):
    """A source of tasks: whole batches, or parts of batches for several threads."""

    def __init__(self, threads: int, divides: bool) -> None:
        super().__init__()
        self._threads, self._divides = threads, divides

    def __iter__(self) -> Iterator[_Part | Task]:
        share = _Share(self._threads)
        for task in self.values():
            if not self._divides or not len(task.indices):
                yield task
                continue
            batch = _Batch(task, share.rows(len(task.indices)))
            for first in range(0, len(batch.samples), batch.rows):
                yield _Part(batch, first, min(first + batch.rows, len(batch.samples)), share)


@dataclass
class _Read:
    """Reads samples and collates them. If this fails, the result contains the error instead of a batch.

    Args:
        dataset: The dataset.
        collate_fn: A function that collates a list of samples, or converts one sample if ``batched`` is false. ``None``: as in torch.
        batched: Whether the loader yields batches instead of single samples.
        worker_init_fn: A function that each thread calls with its index before it reads.
        is_isolated: Whether this runs in a separate process.
    """

    dataset: Any
    collate_fn: Callable[[Any], Any] | None = None
    batched: bool = True
    worker_init_fn: Callable[[int], None] | None = None
    is_isolated: bool = False
    _numbers: Iterator[int] = field(default_factory=count, repr=False)

    def __post_init__(self) -> None:
        self._started: OfThread[list[int]] = OfThread(list)
        self._gathers = self.batched and self.collate_fn is None and type(self.dataset) is TensorDataset
        self._fetcher = MapFetcher(self.dataset, self.batched, self.collate_fn or (collate if self.batched else default_convert), False)

    def __highway__(self) -> Traits:
        # It returns DROP for each part of a batch, except the part that is finished last.
        return Traits(parallel=True, drops=True, one_to_one="in order")

    @property
    def divides(self) -> bool:
        """Whether several threads can read parts of one batch."""
        return self.batched and not self._gathers and getattr(self.dataset, "__getitems__", None) is None

    def __call__(self, work: _Part | Task) -> ThreadResult | Drop:
        if not self._started.value:
            self._start(next(self._numbers))
            self._started.value.append(1)
        if isinstance(work, Task):
            return self._result(work, lambda: self._fetch(work.indices))
        batch, began = work.batch, time.perf_counter()
        row = work.first
        try:
            for row in range(work.first, work.stop):
                batch.samples[row] = self.dataset[batch.task.indices[row]]
        except Exception as error:
            try:
                annotate(error, f"raised for {place(self.dataset, batch.task.indices[row])}")
            except Exception as other:
                error = other
            batch.errors[row] = error
        work.share.took(time.perf_counter() - began)
        if next(batch.done) < batch.parts:
            return DROP
        if batch.errors:
            raised = Raised(batch.errors[min(batch.errors)])
            batch.errors.clear()
            return ThreadResult(batch.task.loop, batch.task.number, raised=raised)
        return self._result(batch.task, lambda: self._fetcher.collated(batch.samples, batch.task.indices))

    def _fetch(self, indices: Any) -> Any:
        if self._gathers:
            rows = torch.tensor(list(indices))
            return [tensor[rows] for tensor in self.dataset.tensors]
        return self._fetcher.fetch(indices)

    def _result(self, task: Task, read: Callable[[], Any]) -> ThreadResult:
        try:
            batch = read()
        except Exception as error:
            return ThreadResult(task.loop, task.number, raised=Raised(error))
        return ThreadResult(task.loop, task.number, as_arrays(batch) if self.is_isolated else batch)

    def _start(self, number: int) -> None:
        if self.is_isolated:
            torch.set_num_threads(1)
        if self.worker_init_fn is not None:
            try:
                self.worker_init_fn(number)
            except Exception as error:
                error.add_note(f"highway: raised by worker_init_fn of thread {number}")
                raise

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in ("_started", "_numbers", "_fetcher")}
        return state | {"_numbers": next(self._numbers)}  # the copies for different threads get different numbers

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"_numbers": count(state["_numbers"])})
        self.__post_init__()


class Threads:
    """The worker threads of a loader: a pipeline that processes tasks."""

    def __init__(self, loader: Any) -> None:
        own_collate = None if loader.has_default_collate else loader.collate_fn
        read = _Read(loader.dataset, own_collate, loader.batch_sampler is not None, loader.worker_init_fn, loader.isolated)
        number = loader.num_workers
        # Maximum number of batches that are requested but not yet received.
        self.window = loader.prefetch_factor + 1 + (1 if read.divides else number)
        self._tasks = _Tasks(number, read.divides)
        stage = Stage(read, number, loader.in_order, self.window * number, name="read", per_worker=loader.per_worker)
        self._pipeline = Pipeline([self._tasks, stage], isolated=loader.isolated, budget_mb=loader.budget_mb)
        self._early: deque[Any] = deque()
        self._is_started = False

    def send(self, task: Task) -> None:
        self._tasks.put(task)
        if not self._is_started:
            self._is_started = True
            with contextlib.suppress(TimeoutError):  # no result is ready, but the call starts the threads
                self._early.append(self._pipeline.dequeue(block=False))

    def take(self, timeout: float | None) -> ThreadResult:
        """Return the next batch.

        Raises:
            TimeoutError: there was no batch within ``timeout`` seconds.
        """
        result: ThreadResult = self._early.popleft() if self._early else self._pipeline.dequeue(timeout=timeout)
        return result._replace(batch=as_tensors(result.batch))

    def close(self) -> None:
        self._tasks.close()
        self._pipeline.stop()


class ThreadIterator(Stateful, _BaseDataLoaderIter):
    """Reads batches with worker threads.

    Args:
        loader: The loader.
        order: The order of the indices.
        epoch: The number of the epoch.
        resumed: A snapshot (an internal state) to resume from.
        threads: The threads that read the batches.
        loop: The number of this loop over the loader.
        give_back: A function that is called with the threads at the end of the loop.
    """

    _is_exiting = staticmethod(sys.is_finalizing)  # an attribute, because the global names of this module might be deleted at exit

    def __init__(
        self,
        loader: Any,
        order: IndexOrder,
        epoch: int,
        resumed: dict[str, Any] | None,
        threads: Threads,
        loop: int,
        give_back: Callable[[Threads], None],
    ) -> None:
        self._threads: Threads | None = threads
        self._give_back, self._loop = give_back, loop
        self._begin(loader, order, epoch, resumed)
        super().__init__(LoaderView(loader, _index_sampler=order))
        if self._seeds is not None:
            self._base_seed = self._seeds[0]
        self._undo_draws()
        self.progress.base_seed = self._base_seed
        self._sent = 0
        self._error: Exception | None = None
        self._send()

    def _send(self) -> None:
        threads, pending = self._threads, self.progress.pending
        while threads is not None and len(pending) < threads.window and self._error is None:
            try:
                index = self._next_index()
            except Exception as error:  # the sampler has ended or failed; raised after the batches that were already requested
                self._error = error
                return
            threads.send(Task(self._loop, self._sent, index))
            pending[self._sent] = 0, index
            self._sent += 1

    def _next_data(self) -> Any:
        threads, pending = self._threads, self.progress.pending
        if threads is None or not pending:
            self._end()
            error, self._error = self._error, StopIteration()
            raise error or StopIteration
        try:
            while (result := threads.take(self._timeout or None)).loop != self._loop:
                pass  # the result of an abandoned loop
        except TimeoutError as error:
            raise RuntimeError(f"DataLoader timed out after {self._timeout:g} seconds") from error
        except RemoteError as error:
            held = held_by_dead([index for _, index in pending.values()], self._auto_collation)
            raise RemoteError(f"{error}; {held}") from error
        except EndOfStream:
            self._threads = None
            raise PipelineError("the DataLoader was closed in the middle of a loop over it; close it after the loop") from None
        task = pending.pop(result.number)
        self._send()
        if result.raised is not None:
            self.progress.failed = task
            raise result.raised.error()
        return mapped(result.batch, pin) if self._pin_memory else result.batch

    def _end(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            self._give_back(threads)

    def __del__(self) -> None:
        if hasattr(self, "progress") and not self._is_exiting():  # at exit, the pipeline has already stopped
            self._end()
