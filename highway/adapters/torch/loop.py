"""One epoch of a :class:`~highway.adapters.torch.loader.DataLoader` over a dataset, and who reads for it."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from highway.adapters.torch.nested import as_tensors
from highway.adapters.torch.samples import Failed, Read, ReadSamples, Runs, Task
from highway.engine import Pipeline, cancel
from highway.engine.fed import Fed
from highway.engine.stage import Stage
from highway.errors import EndOfStream, PipelineError
from highway.modules.processes import Processes

log = logging.getLogger("highway")


class Workers(Protocol):
    """Who reads batches: takes tasks, and hands out what has come of them, the first first unless order does not matter."""

    window: int  # batches that should be asked for before the first of them is taken

    def send(self, task: Task) -> None: ...
    def take(self, timeout: float | None) -> Read | Failed: ...
    def close(self) -> None: ...


class Caller:
    """Reads a batch when it is taken, on the thread that takes it: ``num_workers=0``."""

    window = 0

    def __init__(self, reader: ReadSamples) -> None:
        self._reader, self._tasks = reader, deque[Task]()

    def send(self, task: Task) -> None:
        self._tasks.append(task)

    def take(self, timeout: float | None) -> Read | Failed:
        return self._reader.read(self._tasks.popleft())

    def close(self) -> None:
        self._tasks.clear()


class PipelineWorkers:
    """A pipeline that is fed with tasks: threads, or processes, here or in a process of their own.

    Args:
        reader: What they do.
        ahead: Batches that should be done before they are wanted; of processes, by each.
        is_ordered: Whether batches come in the order of the tasks.
        has_processes: Whether each worker is a process, and reads whole batches.
        isolated: Whether the pipeline is in a process of its own.
        per_worker: Whether each thread has a copy of the dataset.
        budget_mb: Megabytes of shared memory that batches may take.
    """

    def __init__(
        self, reader: ReadSamples, ahead: int, is_ordered: bool, has_processes: bool, isolated: bool, per_worker: bool, budget_mb: float
    ) -> None:
        number = reader.num_workers
        self._fed = Fed() if has_processes else Runs(number, reader.divides)
        self.window = ahead * number if has_processes else ahead + 1 + (1 if reader.divides else number)
        work: Any = Processes([reader], number, budget_mb) if has_processes else reader
        waiting = self.window * (1 if has_processes else number)
        stage = Stage(work, number, is_ordered, waiting, name="read", per_worker=per_worker and not has_processes)
        self.pipeline = Pipeline([self._fed, stage], isolated=isolated, budget_mb=budget_mb)
        self._early: deque[Any] = deque()
        self._is_begun = False

    def send(self, task: Task) -> None:
        self._fed.put(task)
        if not self._is_begun:
            self._is_begun = True
            with contextlib.suppress(TimeoutError):  # there is nothing yet, but work begins
                self._early.append(self.pipeline.dequeue(block=False))

    def is_ready(self) -> bool:
        """Say whether the first task was done; its result is dropped then."""
        with contextlib.suppress(TimeoutError):
            if not self._early:
                self.pipeline.dequeue(block=False)
            else:
                self._early.popleft()
            return True
        return False

    def take(self, timeout: float | None) -> Read | Failed:
        result = self._early.popleft() if self._early else self.pipeline.dequeue(timeout=timeout)
        return result._replace(batch=as_tensors(result.batch)) if type(result) is Read else result

    def close(self) -> None:
        self._fed.close()  # it waits for tasks, not for the end
        self.pipeline.stop()


class Relieved:
    """Workers here, until others that need time to start are there. These start when the first batch is done: it has all cores till then.

    Args:
        here: Who reads meanwhile.
        others: Who reads from then on.
    """

    def __init__(self, here: PipelineWorkers, others: PipelineWorkers) -> None:
        self._here: PipelineWorkers | None = here
        self._others: PipelineWorkers | None = others
        self.window = others.window
        self._asked = deque[PipelineWorkers]()  # who has the tasks whose results are to be taken
        self._are_asked = self._are_there = False

    def send(self, task: Task) -> None:
        if self._are_asked and not self._are_there and self._others is not None:
            self._look(self._others)
        chosen = self._others if self._are_there else self._here
        assert chosen is not None  # one of them is
        self._asked.append(chosen)
        chosen.send(task)

    def take(self, timeout: float | None) -> Read | Failed:
        result = self._asked[0].take(timeout)
        self._asked.popleft()
        if not self._are_asked and self._others is not None:
            self._are_asked = True
            self._others.send(Task.greeting())
        if self._here is not None and self._are_there and self._here not in self._asked:
            self._here.close()
            self._here = None
        return result

    def _look(self, others: PipelineWorkers) -> None:
        try:
            self._are_there = others.is_ready()
        except Exception as error:
            log.warning("DataLoader: samples are read in this process, since another one cannot: %s: %s", type(error).__name__, error)
            others.close()
            self._others = None

    def close(self) -> None:
        for workers in filter(None, (self._here, self._others)):
            workers.close()


@dataclass
class LoopState:
    """Where a loop over batches is.

    Args:
        epoch: Which one it is in.
        begun: The states of generators and samplers when it began.
        batches: How many were given, from the first on.
        ahead: Those that were given besides, where no order is kept.
        length: How many there are in the epoch, if that is known.
        has_ended: Whether all were given.
        is_untouched: Whether a state said so, and none was given since: then a loop that is begun anew goes on from here, too.
        is_in_stage: Whether a stage of a pipeline has taken the last one.
    """

    epoch: int
    begun: dict[str, Any]
    batches: int = 0
    ahead: set[int] = field(default_factory=set)
    length: int | None = None
    has_ended: bool = False
    is_untouched: bool = False
    is_in_stage: bool = False

    def copy(self) -> LoopState:
        """Return a copy that stays here."""
        return replace(self, ahead=set(self.ahead))

    def give(self, index: int) -> None:
        """Note that a batch is given."""
        self.is_untouched, self.is_in_stage = False, cancel.in_stage()
        self.ahead.add(index)
        while self.batches in self.ahead:
            self.ahead.remove(self.batches)
            self.batches += 1
        self.has_ended = self.batches == self.length


class Loop:
    """Yields the batches of an epoch that were not given yet.

    Args:
        number: Which loop over the loader it is.
        workers: Who reads them.
        numbers: Those of the samples of each batch of the epoch.
        seed: What their randomness derives from.
        place: What was given.
        timeout: Seconds to wait for a batch at most.
        give_back: Called with the workers when the loop has ended or was left.
    """

    def __init__(
        self,
        number: int,
        workers: Workers,
        numbers: Iterable[Any],
        seed: int,
        place: LoopState,
        timeout: float | None,
        give_back: Callable[[Workers], None],
    ) -> None:
        self._number, self._seed, self._timeout = number, seed, timeout
        self._workers: Workers | None = workers
        self._give_back = give_back
        self.place = place
        self._sent = self._taken = 0
        self._error: Exception | None = None  # of the sampler, raised behind the batches that it has named
        self._numbers: Iterator[tuple[int, Any]] | None = enumerate(numbers)

    def begin(self, least: int = 0) -> None:
        """Have the first batches read, ``least`` at least."""
        self._send(max(least, self._workers.window if self._workers is not None else 0))

    def __iter__(self) -> Loop:
        return self

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            TimeoutError: it is not there in time.
            Exception: what was raised for it; the next call returns the one behind.
        """
        if self._workers is None:
            raise StopIteration
        self._send(max(1, self._workers.window))
        if self._taken == self._sent:
            self.place.has_ended = self._error is None
            self.close()
            if self._error is not None:
                raise self._error
            raise StopIteration
        result = self._take(self._workers)
        self._taken += 1
        self._send(self._workers.window)
        if isinstance(result, Failed):
            raise result.error()
        self.place.give(result.index)
        return result.batch

    def _take(self, workers: Workers) -> Read | Failed:
        try:
            while (result := workers.take(self._timeout)).loop != self._number:
                pass  # of a loop that was left
        except TimeoutError as error:
            raise TimeoutError(f"DataLoader: no batch within timeout={self._timeout:g} s") from error
        except EndOfStream:
            self._workers = None
            raise PipelineError("the DataLoader was closed in the middle of a loop over it") from None
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):
                self._workers = None
                workers.close()
            raise
        return result

    def _send(self, window: int) -> None:
        while self._numbers is not None and self._workers is not None and self._sent - self._taken < window:
            try:
                index, numbers = next(self._numbers)
            except StopIteration:
                self._numbers = None
                return
            except Exception as error:
                self._numbers, self._error = None, error
                return
            if index >= self.place.batches and index not in self.place.ahead:
                self._workers.send(Task(self._number, index, numbers, self._seed))
                self._sent += 1

    def close(self) -> None:
        """Leave the rest. Closing again does nothing."""
        workers, self._workers = self._workers, None
        if workers is not None:
            self._give_back(workers)

    def __del__(self) -> None:
        self.close()
