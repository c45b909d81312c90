"""What the workers of a :class:`~highway.adapters.torch.loader.DataLoader` do: read the samples of a batch, and put them together."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch.utils.data import TensorDataset, default_convert
from torch.utils.data._utils import worker as torch_worker

from highway.adapters.torch.collate import collate
from highway.adapters.torch.nested import as_arrays
from highway.children.pickling import Failure
from highway.datasets.dataset import locate
from highway.engine.cancel import OfThread
from highway.engine.component import OneToOne
from highway.engine.fed import Fed
from highway.engine.stage import DROP, Drop
from highway.errors import DatasetError, EndOfStream
from highway.reading.plan import QUICK


class Task(NamedTuple):
    """A batch to read.

    Args:
        loop: The loop over the loader that wants it.
        index: Which batch of the epoch it is.
        numbers: Those of its samples, as the sampler says them; or the one of a sample, if there are no batches.
        seed: What the randomness of all batches of the epoch derives from.
    """

    loop: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks for
    numbers: Any
    seed: int

    @staticmethod
    def greeting() -> Task:
        """Return one that is answered as soon as a worker can work, and reads nothing."""
        return Task(-1, -1, (), 0)


class Read(NamedTuple):
    """A batch that was read, and of which :class:`Task`."""

    loop: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks for
    batch: Any


class Failed:
    """What was raised in the place of a batch; it crosses to another process with its traceback as a note."""

    def __init__(self, loop: int, index: int, error: Exception | Failure) -> None:
        self.loop, self.index, self._error = loop, index, error

    def error(self) -> BaseException:
        """Return the error to raise."""
        return self._error.error() if isinstance(self._error, Failure) else self._error

    def __reduce__(self) -> tuple[Any, ...]:
        error = self._error
        return Failed, (self.loop, self.index, error if isinstance(error, Failure) else Failure.of(error))


class _Rows:
    """A batch whose samples are being read."""

    def __init__(self, task: Task, rows: int) -> None:
        self.task = task
        self.size = len(task.numbers) if rows else 1
        self.rows = rows or 1
        self.samples: list[Any] = [None] * self.size
        self.runs = -(-self.size // self.rows)
        self.done = count(1)  # next() is atomic: exactly one worker gets the number of the last run
        self.errors: dict[int, Exception] = {}  # by the row


class RunOfRows(NamedTuple):
    """Rows of a batch, one after the other, for one worker."""

    batch: _Rows
    first: int
    stop: int
    share: _Share


class _Share:
    """How many rows a run has: of the first batches each worker reads a part, and where that is quick, each reads whole ones."""

    def __init__(self, workers: int) -> None:
        self._workers, self._factor = workers, 1

    def rows(self, size: int) -> int:
        return max(1, min(size, self._factor * -(-size // self._workers)))

    def took(self, seconds: float) -> None:
        """Have longer runs if one took so many seconds, and that is quick: threads that take turns cost more."""
        if seconds < QUICK and self._factor < self._workers:
            self._factor *= 2


class Runs(Fed):
    """Yield the runs of rows of the batches that it is fed.

    Args:
        workers: How many share a batch.
        divides: Whether a batch has rows to share; else it is read at once.
    """

    def __init__(self, workers: int, divides: bool) -> None:
        super().__init__()
        self._workers, self._divides = workers, divides

    def __iter__(self) -> Iterator[RunOfRows]:
        share = _Share(self._workers)
        for task in self.values():
            whole = not self._divides or not len(task.numbers)
            batch = _Rows(task, 0 if whole else share.rows(len(task.numbers)))
            for first in range(0, batch.size, batch.rows):
                yield RunOfRows(batch, first, min(first + batch.rows, batch.size), share)


@dataclass
class ReadSamples:
    """Read samples, and make batches of them; what is raised for a batch is returned in its place.

    Args:
        dataset: What is read.
        collate_fn: Makes a batch of a list of samples, or of one sample where there are no batches; ``None``: as torch does by itself.
        batched: Whether there are batches.
        worker_init_fn: Called with the number of each worker before it begins.
        num_workers: How many there are.
        is_apart: Whether this is in a process of its own, whose threads, and generators of random numbers, are nobody else's.
        is_seeded: Whether the generators of ``random``, numpy and torch are seeded for each batch.
    """

    parallel: ClassVar[bool] = True

    dataset: Any
    collate_fn: Callable[[Any], Any] | None = None
    batched: bool = True
    worker_init_fn: Callable[[int], None] | None = None
    num_workers: int = 0
    is_apart: bool = False
    is_seeded: bool = False
    has_processes: bool = False
    first_worker: int = 0
    _numbers: Iterator[int] = field(default_factory=count, repr=False)

    def __post_init__(self) -> None:
        self._begun: OfThread[list[int]] = OfThread(list)  # the number of the worker on a thread
        self.several = getattr(self.dataset, "__getitems__", None) if self.batched else None
        self.gathers = self.batched and self.collate_fn is None and type(self.dataset) is TensorDataset

    drops: ClassVar[bool] = True  # all parts of a batch but the last
    one_to_one: ClassVar[OneToOne] = "in order"

    @property
    def divides(self) -> bool:
        """Whether several workers may read a batch together."""
        return self.batched and self.several is None and not self.gathers

    def __call__(self, work: RunOfRows | Task) -> Read | Failed | Drop:
        if not (begun := self._begun.value):
            begun.append(self._begin())
        if isinstance(work, Task):
            return self.read(work)
        batch, began = work.batch, time.perf_counter()
        if not self.divides or batch.runs == 1:
            result = self.read(batch.task)
            work.share.took(time.perf_counter() - began)
            return result
        task = batch.task
        if work.first == 0:
            self._seed(task)
        if not batch.errors:
            try:
                for row in range(work.first, work.stop):
                    batch.samples[row] = self._sample(task, row)
            except Exception as error:
                batch.errors[row] = error
            work.share.took(time.perf_counter() - began)
        if next(batch.done) < batch.runs:
            return DROP
        if batch.errors:
            return Failed(task.loop, task.index, batch.errors[min(batch.errors)])
        return self._collated(task, batch.samples)

    def read(self, task: Task) -> Read | Failed:
        """Return a batch, or what was raised for it."""
        if task.loop < 0:
            return Read(-1, -1, None)
        self._seed(task)
        try:
            samples: Any
            if self.gathers:
                numbers = torch.tensor(list(task.numbers))
                return self._handed(task, [tensor[numbers] for tensor in self.dataset.tensors])
            if not self.batched:
                samples = self._sample(task, None)
            elif self.several is not None:
                samples = self.several(task.numbers)
            else:
                samples = [self._sample(task, row) for row in range(len(task.numbers))]
        except Exception as error:
            return Failed(task.loop, task.index, _not_an_end(error))
        return self._collated(task, samples)

    def _sample(self, task: Task, row: int | None) -> Any:
        number = task.numbers if row is None else task.numbers[row]
        try:
            return self.dataset[number]
        except Exception as error:
            place = "" if row is None else f" (sample {row} of batch {task.index} of the epoch)"
            raised = _not_an_end(error)
            raised.add_note(f"highway: raised for {self._located(number)}{place}")
            if raised is error:
                raise
            raise raised from error

    def _located(self, number: Any) -> str:
        return locate(self.dataset, number) if isinstance(number, int) else f"sample {number!r} of {type(self.dataset).__name__}"

    def _collated(self, task: Task, samples: Any) -> Read | Failed:
        function = self.collate_fn or (collate if self.batched else default_convert)
        try:
            batch = function(samples)
        except Exception as error:
            raised = _not_an_end(error)
            numbers = str(task.numbers) if not self.batched or len(task.numbers) <= 8 else f"{str(task.numbers[:8])[:-1]}, ...]"
            raised.add_note(f"highway: raised when batch {task.index} of the epoch was put together, of the samples {numbers}")
            missing = [row for row, sample in enumerate(samples) if sample is None] if self.batched and isinstance(samples, list) else []
            if missing:
                raised.add_note(f"highway: {type(self.dataset).__name__} returned None for sample {task.numbers[missing[0]]}")
            return Failed(task.loop, task.index, raised)
        return self._handed(task, batch)

    def _handed(self, task: Task, batch: Any) -> Read:
        return Read(task.loop, task.index, as_arrays(batch) if self.is_apart else batch)

    def _seed(self, task: Task) -> None:
        if self.is_seeded:
            seed_generators(task.seed + task.index)

    def _begin(self) -> int:
        """Begin a worker on this thread, and return its number."""
        number = self.first_worker if self.has_processes else next(self._numbers)
        if self.is_apart:
            torch.set_num_threads(1)
        if self.has_processes:
            seed = torch.initial_seed()
            torch_worker._worker_info = torch_worker.WorkerInfo(id=number, num_workers=self.num_workers, seed=seed, dataset=self.dataset)
        if self.worker_init_fn is not None:
            try:
                self.worker_init_fn(number)
            except Exception as error:
                error.add_note(f"highway: raised by worker_init_fn of worker {number}")
                raise
        return number

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process reads by; each gets another number, beginning anywhere."""
        left_out = ("_begun", "_numbers", "several")
        state = {name: value for name, value in self.__dict__.items() if name not in left_out}
        return state | {"first_worker": next(self._numbers) % max(self.num_workers, 1)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._numbers = count()
        self.__post_init__()


def seed_generators(seed: int) -> None:
    """Seed the generators of ``random``, numpy and torch's CPU."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed % 2**63)


def _not_an_end(error: Exception) -> Exception:
    """Return an error that does not look like the end of a loop."""
    if not isinstance(error, (StopIteration, EndOfStream)):
        return error
    raised = DatasetError(f"the dataset has raised {type(error).__name__}{f': {error}' if str(error) else ''}, which is no sample")
    raised.__cause__ = error
    return raised
