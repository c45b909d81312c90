"""The iterators over one epoch: subclasses of torch's iterators that record their progress, for the state of the loader."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from multiprocessing.connection import Connection, wait
from typing import Any

import torch.utils.data
from torch._utils import ExceptionWrapper
from torch.utils.data import IterDataPipe
from torch.utils.data._utils import MP_STATUS_CHECK_INTERVAL
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter
from torch.utils.data.graph_settings import apply_random_seed

from highway.adapters.torch.fetch import advice_on_shared_memory, held_by_dead
from highway.adapters.torch.generators import GLOBAL, set_states, states_of
from highway.adapters.torch.order import IndexOrder
from highway.adapters.torch.progress import EpochProgress, at_start
from highway.adapters.torch.slots import receivers
from highway.adapters.torch.worker import Fetching, WorkerContext, WorkerEnded, WorkerResult, WorkerState
from highway.engine.context import in_stage
from highway.process import signals
from highway.process.interrupt import held


class LoaderView:
    """A loader with some replaced attributes. It is passed to torch's iterators."""

    def __init__(self, loader: Any, **replaced: Any) -> None:
        self._loader = loader
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class Stateful:
    """Base class of the iterators of a loader. It records the progress for the state of the loader.

    Args:
        loader: The loader.
        order: The order of the indices.
        epoch: The number of the epoch.
        resumed: A snapshot (an internal state) to resume from.
    """

    progress: EpochProgress
    _dataset: Any  # this and the next attribute belong to torch's iterators
    _shared_seed: int | None
    _is_closed = False

    def _begin(self, loader: Any, order: IndexOrder, epoch: int, resumed: dict[str, Any] | None) -> None:
        self._order = order
        self._before = states_of(GLOBAL), order.own_states()
        workers = [] if resumed is None else resumed["workers"]
        self._resumed = None if resumed is None or resumed["yielded"] is None else resumed
        self.progress = self._progress(loader, epoch)
        self._workers_resume: list[WorkerState | None] = [None] * max(1, loader.num_workers)
        if workers and len(workers) == len(self._workers_resume):
            self._workers_resume = list(workers)
            self.progress.workers = list(workers)
        self._is_begun = self._resumed is not None or bool(workers and loader.num_workers)  # the saved run had already drawn torch's seed
        self._seeds = None if not self._is_begun or resumed is None else (resumed["base_seed"], resumed.get("shared_seed"))
        if self._resumed is not None:
            self.progress.yielded, self.progress.is_untouched = self._resumed["yielded"], True
        if self._resumed is not None and self.progress.is_map:
            order.resume(self._resumed["order"], self._resumed["pending"])
        elif resumed is not None:
            order.load_samplers(resumed["order"]["samplers"])
            order.load_own(resumed["order"]["own"])
            self._before = self._before[0], order.own_states()

    def _progress(self, loader: Any, epoch: int) -> EpochProgress:
        is_map = loader._dataset_kind == torch.utils.data._DatasetKind.Map
        workers = [WorkerState()] * max(1, loader.num_workers)
        keeps = loader.num_workers > 0 and loader.persistent_workers
        if loader.workers == "threads":
            return EpochProgress(epoch, self._order, is_map, num_workers=0)
        return EpochProgress(epoch, self._order, is_map, loader.num_workers, workers=workers, keeps_workers=keeps)

    def _undo_draws(self) -> None:
        """Restore the generators from which torch has drawn seeds, if the saved run had already drawn these seeds."""
        if self._is_begun:
            set_states(GLOBAL, self._before[0])
            self._order.load_own(self._before[1])

    def __next__(self) -> Any:
        data = self._take()
        progress = self.progress
        progress.yielded += 1
        progress.failed, progress.is_untouched, progress.is_in_stage = None, False, in_stage()
        return data

    def close(self) -> None:
        """Skip the remaining batches of the epoch, and free its resources. Closing again does nothing."""
        self._is_closed = True
        self._end()

    def _next_index(self) -> Any:
        try:
            return super()._next_index()  # type: ignore[misc]
        except StopIteration:
            if not self._order.is_interrupted:
                raise
            self._sampler_iter = iter(self._order)
            return super()._next_index()  # type: ignore[misc]

    def _take(self) -> Any:
        if self._is_closed:
            raise StopIteration
        try:
            return super().__next__()  # type: ignore[misc]  # of torch's iterator
        except StopIteration:
            self.progress.has_finished, self.progress.is_untouched = True, False
            self._end()
            raise

    def _end(self) -> None:
        """Free the resources of the epoch."""


class SingleProcessIterator(Stateful, _SingleProcessDataLoaderIter):
    """Reads batches on the calling thread (``num_workers=0``)."""

    def __init__(self, loader: Any, order: IndexOrder, epoch: int, resumed: dict[str, Any] | None) -> None:
        self._begin(loader, order, epoch, resumed)
        state = self._workers_resume[0]
        if state is not None:  # the loader restores the generators of the process
            state = WorkerState(dataset=state.dataset) if self._resumed is None else state._replace(generators=self._before[0])
        self._fetching = Fetching(state, loader.batch_size, 1)
        self._fetching.restore(loader.dataset)
        self._interrupted: list[Any] = []  # the indices of a batch, if a KeyboardInterrupt came before the batch was read
        kinds = torch.utils.data._DatasetKind
        view = LoaderView(loader, _index_sampler=order, _dataset_kind=kinds.Map)  # so that torch does not call iter(dataset) yet
        super().__init__(view)
        self._dataset_kind = loader._dataset_kind
        if self._seeds is not None:
            self._base_seed, shared = self._seeds
            if isinstance(self._dataset, IterDataPipe) and shared is not None:
                self._shared_seed = shared
                self._dataset = apply_random_seed(self._dataset, torch.Generator().manual_seed(shared))
        self._undo_draws()
        is_map = self._dataset_kind == kinds.Map
        self._dataset_fetcher = self._fetching.fetcher(is_map, self._dataset, self._auto_collation, self._collate_fn, self._drop_last)
        self.progress.base_seed, self.progress.shared_seed = self._base_seed, self._shared_seed
        self.progress.fetching = self._fetching

    def _next_index(self) -> Any:
        return self._interrupted.pop() if self._interrupted else super()._next_index()

    def _next_data(self) -> Any:
        index = self._next_index()
        self.progress.failed = 0, index
        try:
            data = self._dataset_fetcher.fetch(index)
        except BaseException as error:
            if not isinstance(error, Exception):
                self._interrupted.append(index)
            raise
        self._fetching.count()
        return torch.utils.data._utils.pin_memory.pin_memory(data, self._pin_memory_device) if self._pin_memory else data

    def _end(self) -> None:
        progress = self.progress
        if progress.fetching is not None:  # release the iterator of the dataset, so that it closes its resources; keep its state
            progress.workers, progress.fetching = [progress.fetching.state()], None

    def __del__(self) -> None:
        if hasattr(self, "progress"):
            self._end()


class MultiProcessIterator(Stateful, _MultiProcessingDataLoaderIter):
    """Reads batches in worker processes. torch starts the processes, and sends the indices to them."""

    def __init__(self, loader: Any, order: IndexOrder, epoch: int, resumed: dict[str, Any] | None) -> None:
        self._begin(loader, order, epoch, resumed)
        self.failure: RuntimeError | None = None
        self._kept: list[Any] = []  # a batch, if a KeyboardInterrupt came before the batch was delivered
        self._arrived: list[Any] = []  # a message of a worker, if Ctrl-C came while the message was received
        self._index: Any = None
        fetchings = [Fetching(state, loader.batch_size, loader.snapshot_every_n_steps) for state in self._workers_resume]
        changed = {} if self._seeds is None else {"base_seed": self._seeds[0]}
        if self._seeds is not None and self._seeds[1] is not None:
            changed["shared_seed"] = self._seeds[1]
        self._slots = receivers(loader.num_workers)
        senders = [slots.sender for slots in self._slots]
        has_init = loader.worker_init_fn is not None
        context = WorkerContext(loader.multiprocessing_context or torch.multiprocessing, changed, fetchings, senders, has_init)
        super().__init__(LoaderView(loader, multiprocessing_context=context, _index_sampler=order))
        if context.failed:
            self._raise_failed_init(context.failed)

    def _raise_failed_init(self, failed: list[Connection]) -> None:
        """Wait for ``worker_init_fn``. If it has failed, raise its error now, in ``iter()``, as torchdata does."""
        with self._naming_a_dead_worker():
            for number in sorted({number for number, _ in self.progress.pending.values()}):  # other workers send nothing
                wait([failed[number], self._workers[number].sentinel], self._timeout or None)
                if failed[number].poll() and failed[number].recv():
                    while not (isinstance(result := self._get_data()[1], WorkerResult) and result.cannot_begin):
                        pass
                    result.data.reraise()

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if first_iter:
            if self._seeds is not None:
                self._base_seed, self._shared_seed = self._seeds[0], self._seeds[1] or self._shared_seed
            self._undo_draws()
        else:
            kept, self._resumed = self.progress.workers, None
            self.progress = self._progress(loader, loader.epoch)
            self.progress.workers = [at_start(state) for state in kept]
        self._ended: dict[int, WorkerState] = {}
        self.progress.base_seed = self._base_seed
        super()._reset(loader, first_iter)
        self.progress.shared_seed = self._shared_seed

    def _next_index(self) -> Any:
        self._index = super()._next_index()
        return self._index

    def _try_put_index(self) -> None:
        if self._send_idx == 0 and self._resumed is not None:
            self._worker_queue_idx_cycle = islice(cycle(range(self._num_workers)), self._resumed["next_worker"] % self._num_workers, None)
        task = self._send_idx
        super()._try_put_index()
        if self._send_idx > task:
            self.progress.pending[task] = self._task_info[task][0], self._index

    def _try_get_data(self, timeout: float = MP_STATUS_CHECK_INTERVAL) -> Any:
        """Receive a message of a worker. Ctrl-C interrupts the waiting, but not the receiving, because the message would be lost."""
        if not self._arrived:
            if self._pin_memory or not self._data_queue._reader.poll(timeout):
                return super()._try_get_data(timeout if self._pin_memory else 0)
            with held():
                self._arrived.append(super()._try_get_data(timeout))
        return self._arrived.pop()

    def _get_data(self) -> Any:
        try:
            task, data = super()._get_data()
        # The worker might have died after it had sent the batch, but before this process received the memory of the batch.
        except (OSError, EOFError) as error:
            ended = wait([process.sentinel for process in self._workers], timeout=5)
            if not ended:
                raise
            for process in self._workers:
                # Torch's handler of SIGCHLD then raises its error here, not in the caller.
                process.join(5 if process.sentinel in ended else 0)
            raise RuntimeError("DataLoader worker exited unexpectedly.") from error
        if isinstance(data, WorkerEnded):
            self._ended[data.worker_id] = data.state
            self._settle(data.worker_id)
        return task, data

    def _process_data(self, result: WorkerResult, *worker: Any) -> Any:
        number, index = self.progress.pending.pop(result.task)
        if isinstance(result.data, ExceptionWrapper):
            self.progress.failed = number, index
        else:
            self.progress.workers[number] = result.state
        self._settle(number)
        try:
            return super()._process_data(result.data, *worker)
        except KeyboardInterrupt:  # Ctrl-C came while the sampler was running
            self._kept.append(result.data)
            raise

    def _next_data(self) -> Any:
        if not self._kept:
            return super()._next_data()
        self._try_put_index()
        data = self._kept.pop()
        if isinstance(data, ExceptionWrapper):
            data.reraise()
        return data

    def _settle(self, worker: int) -> None:
        """If the dataset of a worker has ended, and all its batches were delivered, store the last state of the worker."""
        if worker in self._ended and not any(info[0] == worker and len(info) == 2 for info in self._task_info.values()):
            self.progress.workers[worker] = self._ended[worker]

    def __next__(self) -> Any:
        if self.failure is not None:
            raise self.failure
        for slots in self._slots:
            slots.give_back()
        with self._naming_a_dead_worker():
            return super().__next__()

    @contextmanager
    def _naming_a_dead_worker(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            _break_cycle(error)
            if isinstance(error, RuntimeError):
                self.failure = self._of_dead_worker(error)
            if self.failure is None:
                raise
            raise self.failure from error

    def _end(self) -> None:
        if not self._persistent_workers:
            self._shutdown_workers()
            self._slots = []

    def _of_dead_worker(self, error: RuntimeError) -> RuntimeError | None:
        """Return an error that names a dead worker, the cause of its death and its samples, or ``None`` if no worker is dead."""
        for number, process in enumerate(self._workers):
            held = [index for _, (worker, index) in sorted(self.progress.pending.items()) if worker == number]
            if process.is_alive() or (process.exitcode == 0 and not held) or number in self._ended:
                continue
            how = f"exited with code {process.exitcode}" if process.exitcode >= 0 else f"was killed by {signals.name_of(-process.exitcode)}"
            batches = held_by_dead(held, self._auto_collation) if self.progress.is_map else f"it held {len(held)} batches"
            return RuntimeError(f"{error} Worker {number} (pid {process.pid}) {how}; {batches}.{_advice(-process.exitcode)}")
        return None


def _advice(number: int) -> str:
    if number == signal.SIGBUS:
        return f" {advice_on_shared_memory()}"
    if number == signal.SIGKILL:
        return " The kernel does this if memory runs out: lower num_workers or prefetch_factor, or give the machine more memory."
    return ""


def _break_cycle(error: Exception) -> None:
    """Clear the local variables of torch's ``reraise``, which refer to the error. Otherwise the workers run until garbage is collected."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if frame.f_code is ExceptionWrapper.reraise.__code__:
        frame.clear()
