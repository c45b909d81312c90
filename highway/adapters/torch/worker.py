"""A worker process. It runs the worker loop of torch, and adds the state of the worker to each result."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch.utils.data
from torch._utils import ExceptionWrapper
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data._utils.worker import _IterableDatasetStopIteration, _ResumeIteration

from highway.adapters.torch.fetch import IterableFetcher, MapFetcher, add_advice
from highway.adapters.torch.generators import GLOBAL, set_states, states_of
from highway.adapters.torch.order import restore_user, state_of_user
from highway.adapters.torch.slots import SlotSender, note_sending


class WorkerState(NamedTuple):
    """The state of a worker after a batch.

    Args:
        fetched: Number of batches of this epoch that the worker has read.
        generators: States of the global random generators of the process.
        dataset: The result of ``state_dict()`` of the dataset, or ``None``.
        iterator: The result of ``state_dict()`` of the dataset's iterator, or ``None``.
        at: Number of batches of this epoch that the worker had read when ``dataset`` and ``iterator`` were saved.
        has_ended: Whether an iterable dataset has ended.
        begun: States of the global generators after ``at`` batches. A resumed run reads the batches after ``at`` again from these states.
    """

    fetched: int = 0
    generators: Any = None
    dataset: Any = None
    iterator: Any = None
    at: int = 0
    has_ended: bool = False
    begun: Any = None


@dataclass(frozen=True)
class WorkerResult:
    """A batch or an error, and the state of the worker after it. Not a tuple, because old versions of torch would pin its parts."""

    task: int
    data: Any
    state: WorkerState

    def __reduce__(self) -> tuple[Any, ...]:
        note_sending()
        return WorkerResult, (self.task, self.data, self.state)

    @property
    def cannot_begin(self) -> bool:
        """Whether this is an error before the first batch of the worker: from ``worker_init_fn``, or from loading the state."""
        return isinstance(self.data, ExceptionWrapper) and self.state.generators is None

    def pin_memory(self, *_: Any) -> WorkerResult:
        """Return the result with its tensors in pinned memory. Called by the pinning thread of torch."""
        if isinstance(self.data, ExceptionWrapper):
            return self
        try:
            return replace(self, data=pin_memory(self.data))
        except Exception:
            return replace(self, data=ExceptionWrapper(where="in pin memory thread"))


class WorkerEnded(_IterableDatasetStopIteration):
    """The result at the end of a worker's iterable dataset, with the state of the worker."""

    def __init__(self, worker_id: int, state: WorkerState) -> None:
        super().__init__(worker_id)
        self.state = state


class Fetching:
    """Creates the fetchers of a worker, restores its state, and records its state after each batch.

    Args:
        state: The state to resume from, or ``None`` to start from the beginning.
        batch_size: Number of samples per batch, or ``None`` if the loader yields single samples.
        snapshot_every: Number of batches between two calls of ``state_dict`` of an iterable dataset. 0 means never. Between two calls, the
            state of the worker contains the number of batches to skip.
    """

    def __init__(self, state: WorkerState | None, batch_size: int | None, snapshot_every: int) -> None:
        self._resumed, self._batch_size, self._snapshot_every = state, batch_size, snapshot_every
        self._is_restored = False
        self._fetcher: Any = None
        self._fetched = 0
        self._begun: Any = None
        self._last = WorkerState()

    def restore(self, dataset: Any) -> None:
        """Load the state of the dataset."""
        if self._resumed is not None and not self._is_restored:
            restore_user(dataset, self._resumed.dataset)
            self._is_restored = True

    def fetcher(self, is_map: bool, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> Any:
        """Return a fetcher for an epoch. The first fetcher resumes from the state."""
        self.restore(dataset)
        state, self._resumed = self._resumed or WorkerState(), None
        if state.begun is not None:
            set_states(GLOBAL, state.begun)
        if is_map:
            fetcher: Any = MapFetcher(dataset, auto_collation, collate_fn, drop_last)
        else:
            self._begun = state.generators if state.begun is None and state.at else states_of(GLOBAL)
            fetcher = IterableFetcher(dataset, auto_collation, collate_fn, drop_last)
            restore_user(fetcher.dataset_iter, state.iterator)
            if state.fetched > state.at and not state.has_ended:
                if state.at:  # if no batch was read before the saved position, keep the states after iter(dataset)
                    set_states(GLOBAL, self._begun)
                fetcher.skip(state.fetched - state.at, self._batch_size)
            fetcher.ended = fetcher.ended or state.has_ended
        if state.generators is not None:
            set_states(GLOBAL, state.generators)
        self._fetcher, self._fetched, self._last = fetcher, state.fetched, state
        return fetcher

    def count(self) -> None:
        self._fetched += 1

    def state(self, has_ended: bool = False) -> WorkerState:
        """Return the state after the last batch."""
        if self._fetcher is None:  # the worker could not begin
            return self._last
        dataset, iterator, at = self._last.dataset, self._last.iterator, self._last.at
        generators = states_of(GLOBAL)
        is_map = isinstance(self._fetcher, MapFetcher)
        if is_map or has_ended or (self._snapshot_every and self._fetched % self._snapshot_every == 0):
            own: Any = None if is_map else self._fetcher.dataset_iter
            iterator = state_of_user(own)
            if own is not self._fetcher.dataset:
                dataset = state_of_user(self._fetcher.dataset)
            if dataset is not None or iterator is not None:
                at, self._begun = self._fetched, generators
        begun = None if at and at == self._fetched else self._begun
        self._last = WorkerState(self._fetched, generators, dataset, iterator, at, has_ended, begun)
        return self._last


class _Results:
    """The queue for the results of a worker. It adds the state of the worker to each result."""

    def __init__(self, queue: Any, fetching: Fetching, where: str) -> None:
        self._queue, self._fetching, self._where = queue, fetching, where
        queue._on_queue_feeder_error = self._put_error  # multiprocessing would drop the batch, and the loop would wait forever

    def _put_error(self, error: Exception, result: tuple[Any, Any]) -> None:
        task, data = result
        error.add_note(f"highway: raised when batch {task} of the epoch was sent from the worker")
        add_advice(error)
        wrapper = ExceptionWrapper((type(error), error, error.__traceback__), self._where)
        self._queue.put((task, replace(data, data=wrapper)))

    def put(self, result: tuple[Any, Any]) -> None:
        task, data = result
        if isinstance(task, _ResumeIteration):
            self._queue.put(result)
            return
        has_ended = isinstance(data, _IterableDatasetStopIteration)
        try:
            if not has_ended:
                self._fetching.count()
            state = self._fetching.state(has_ended)
        except Exception:  # an error of the user's state_dict()
            state, data, has_ended = WorkerState(), ExceptionWrapper(where=self._where), False
        self._queue.put((task, WorkerEnded(data.worker_id, state) if has_ended else WorkerResult(task, data, state)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


def run_worker(
    loop: Callable[..., None],
    args: tuple[Any, ...],
    changed: dict[str, Any],
    failed: Connection | None,
    fetching: Fetching,
    slots: SlotSender,
) -> None:
    """Run torch's worker loop in a separate process.

    Args:
        loop: torch's worker loop.
        args: The arguments of the loop.
        changed: A dict with the arguments of the loop that differ in a resumed epoch.
        failed: Receives whether ``worker_init_fn`` has failed. ``None``: the caller does not need this information.
        fetching: Creates the fetchers of the worker.
        slots: Shared memory for the worker's results.
    """
    slots.install()
    arguments = inspect.signature(loop).bind(*args).arguments | changed
    dataset = arguments["dataset"]
    arguments["data_queue"] = _Results(arguments["data_queue"], fetching, f"in DataLoader worker process {arguments['worker_id']}")
    kinds = torch.utils.data._DatasetKind
    of_torch = kinds.create_fetcher

    def create_fetcher(kind: Any, data: Any, *rest: Any) -> Any:
        return fetching.fetcher(kind == kinds.Map, data, *rest) if data is dataset else of_torch(kind, data, *rest)

    if failed is not None:
        user_init = arguments["init_fn"]

        def initialize(worker_id: int) -> None:
            has_failed = False
            try:
                user_init(worker_id)
            except Exception:
                has_failed = True
                raise
            finally:
                with suppress(OSError):  # the loader no longer listens after its timeout
                    failed.send(has_failed)

        arguments["init_fn"] = initialize
    # A terminal also sends Ctrl-C to the workers. Ignore it, because the next call of next() needs the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kinds.create_fetcher = staticmethod(create_fetcher)  # patches torch only in this process, which runs only this loop
    loop(**arguments)


class WorkerContext:
    """A multiprocessing context. Its processes call :func:`run_worker`, which runs the worker loop of torch.

    Args:
        context: The context.
        changed: A dict with the arguments of the loop that differ in a resumed epoch.
        fetchings: For each worker, the object that creates its fetchers.
        senders: For each worker, the shared memory for its results.
        has_init: Whether there is a ``worker_init_fn``.
    """

    def __init__(self, context: Any, changed: dict[str, Any], fetchings: list[Fetching], senders: list[SlotSender], has_init: bool) -> None:
        self._context, self._changed = context, changed
        # With other start methods, starting a worker takes seconds. Do not wait, so that the program can start other loaders meanwhile.
        waits = has_init and context.get_start_method() == "fork"
        pipes = [Pipe(duplex=False) if waits else (None, None) for _ in senders]
        self.failed = [reader for reader, _ in pipes if reader is not None]
        self._workers = zip([writer for _, writer in pipes], fetchings, senders, strict=True)

    def Process(self, *, target: Any, args: tuple[Any, ...]) -> Any:
        return self._context.Process(target=run_worker, args=(target, args, self._changed, *next(self._workers)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
