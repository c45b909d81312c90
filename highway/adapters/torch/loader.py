"""``DataLoader``: torch's loader with exact resume, errors that name the sample, and optional worker threads."""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar

import torch
import torch.distributed
import torch.utils.data
from torch.utils.data import DistributedSampler, IterableDataset

from highway.adapters.positions import is_called_by_lightning, received_by_caller
from highway.adapters.torch.generators import GLOBAL, set_state, states_of
from highway.adapters.torch.identity import expect_same, identity_of, of_another_rank, ranks_of, with_workers_of
from highway.adapters.torch.iterators import MultiProcessIterator, SingleProcessIterator
from highway.adapters.torch.order import IndexOrder
from highway.adapters.torch.over_pipeline import PipelineItems, PipelineIterator, unchanged
from highway.adapters.torch.probe import check_threads, is_declared_safe
from highway.adapters.torch.progress import FORMAT, between, from_public, to_public
from highway.adapters.torch.threads import ThreadIterator, Threads
from highway.engine import Pipeline
from highway.engine.context import in_stage
from highway.errors import ConfigError, PipelineError

T = TypeVar("T", covariant=True)


class DataLoader(torch.utils.data.DataLoader[T]):
    """A ``torch.utils.data.DataLoader`` whose state resumes in the middle of an epoch.

    By default, worker processes, seeds, order, batches and errors are the same as in torch. This class adds:

    - :meth:`state_dict` and :meth:`load_state_dict` resume at any batch, with any sampler and dataset, as in torchdata's
      ``StatefulDataLoader``. If the number of workers has not changed, random transforms also continue exactly.
    - If reading a sample raises an error, a note names the sample. If a worker dies, the error names the samples that it was reading.
    - With ``workers="threads"``, several threads read each batch together. The first batch comes sooner, and all threads share one dataset.

    ``DataLoader(pipeline)`` yields the items of a :class:`~highway.Pipeline`, with tensors instead of arrays. Each loop is one epoch.

    Args:
        dataset: A map-style dataset, an ``IterableDataset``, or a :class:`~highway.Pipeline`.
        batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn, pin_memory, drop_last, timeout: As in torch.
        worker_init_fn, multiprocessing_context, generator, prefetch_factor, persistent_workers, pin_memory_device, in_order: As in torch.
        snapshot_every_n_steps: Each worker calls ``state_dict`` of an ``IterableDataset`` whenever it has read this number of batches. 0
            means never. After a resume, the worker reads the batches since the last call again, and drops them.
        workers: ``"processes"`` (as in torch) or ``"threads"``. With threads, an error is raised if the first samples use a global random
            generator, or differ when several threads read them. ``None`` selects threads for datasets of highway and for classes with
            ``__thread_safe__ = True``, unless you pass ``collate_fn``, ``worker_init_fn`` or ``multiprocessing_context``. Otherwise, it
            selects processes.
        isolated: Whether the threads run in a separate process until the loader is closed or deleted. The dataset must be picklable.
        per_worker: Whether each thread has its own copy of the dataset (``copy.deepcopy``).
        shard: Whether each rank reads only its part of the dataset, as with ``DistributedSampler``. Calling ``set_epoch`` is not necessary.
        budget_mb: With ``isolated``, megabytes of shared memory for the batches.
        rank, world_size: With ``shard``, the rank and the number of ranks. The defaults come from ``torch.distributed``, or from the
            environment (torchrun, srun).

    Raises:
        ValueError: torch does not allow this combination of arguments.
        ConfigError: highway does not allow this combination of arguments; or threads cannot safely read the dataset (at the first loop).

    >>> loader = DataLoader(range(6), batch_size=2, shuffle=True)
    >>> batches = iter(loader)
    >>> first, state = next(batches), loader.state_dict()
    >>> rest = [batch.tolist() for batch in batches]
    >>> loader.load_state_dict(state)
    >>> [batch.tolist() for batch in loader] == rest
    True
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        snapshot_every_n_steps: int = 1,
        workers: Literal["processes", "threads"] | None = None,
        isolated: bool = False,
        per_worker: bool = False,
        shard: bool = False,
        budget_mb: float = 1024.0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self.snapshot_every_n_steps, self.budget_mb = snapshot_every_n_steps, budget_mb
        self.isolated, self.per_worker = isolated, per_worker
        self.has_default_collate = collate_fn is None
        self._epoch = self._loops = 0
        self._progress: Any = None  # the progress of the last loop, or a snapshot of it
        self._resumed: dict[str, Any] | None = None  # the snapshot (an internal state) from which the next loop resumes
        self._untouched: list[Any] = []  # the states of the process's generators when a state was loaded
        self._received: Any = None  # the position of the loop, if an adapter reads batches of this loader in advance
        self._threads: Threads | None = None  # idle threads for the next loop
        self._loop_threads: list[Threads] = []
        self._is_loaded = False  # whether a state was loaded since the last loop
        self._iterator: Any = None
        self._pipeline = dataset if isinstance(dataset, Pipeline) else None
        if self._pipeline is not None:
            given = (batch_size != 1, shuffle, sampler, batch_sampler, num_workers, collate_fn, drop_last, workers, isolated, shard)
            if any(part is not None and part is not False and part != 0 for part in given):
                raise ConfigError(
                    "DataLoader: the stages of a pipeline define its data, order and workers; DataLoader(pipeline) accepts no further "
                    "argument except pin_memory"
                )
            self.workers = "processes"
            self._batches = PipelineItems(self._pipeline)
            super().__init__(self._batches, None, collate_fn=unchanged, pin_memory=pin_memory)
            return
        num_workers = operator.index(num_workers)
        self.shard = shard or rank is not None or world_size is not None
        if rank is not None and not shard:
            warnings.warn("DataLoader: rank without shard=True is deprecated; add shard=True", DeprecationWarning, stacklevel=2)
        if self.shard:
            if sampler is not None or batch_sampler is not None or isinstance(dataset, IterableDataset):
                raise ConfigError(
                    "DataLoader: shard=True creates its own sampler, for a map-style dataset; remove sampler and batch_sampler"
                )
            here, ranks = ranks_of(rank, world_size)
            seed = 0 if generator is None else generator.initial_seed()
            sampler, shuffle = DistributedSampler(dataset, ranks, here, bool(shuffle), seed, drop_last), None
        if (isolated or per_worker) and workers is None and num_workers > 0:
            text = 'DataLoader: isolated and per_worker without workers="threads" are deprecated; add workers="threads"'
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            workers = "threads"
        if workers == "processes" and (isolated or per_worker):
            raise ConfigError('DataLoader: isolated=True and per_worker=True are only for threads; add workers="threads", or remove them')
        if workers not in (None, "processes", "threads"):
            raise ConfigError(f"DataLoader: workers={workers!r}; expected 'processes' or 'threads'")
        if workers is None:
            own = is_declared_safe(dataset) and collate_fn is None and worker_init_fn is None and multiprocessing_context is None
            workers = "threads" if own and not isinstance(dataset, IterableDataset) else "processes"
        elif workers == "threads" and isinstance(dataset, IterableDataset):
            raise ConfigError(
                'DataLoader(workers="threads"): threads read samples by index, which an IterableDataset does not support; remove workers'
            )
        self.workers = workers
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )

    def check_worker_number_rationality(self) -> None:
        """Warn, as torch does, if there are more worker processes than cores."""
        if self.workers == "processes":
            super().check_worker_number_rationality()

    def _order(self) -> IndexOrder:
        inner = getattr(self.batch_sampler, "sampler", None) if self.batch_sampler is not None else None
        return IndexOrder(self._index_sampler, inner, self.generator)

    @property
    def epoch(self) -> int:
        """The epoch of the next loop, from 0."""
        return self._epoch if self._pipeline is None else self._batches.epoch

    def __iter__(self) -> Iterator[Any]:
        """Begin the next epoch. If a state was loaded, continue its epoch.

        Raises:
            Exception: reading a sample raised this error. A note names the sample.
        """
        self._is_loaded = self._is_loaded and is_called_by_lightning()
        return received_by_caller(self, self._after_empty_rest(self._begin()) if self._is_loaded else self._begin())

    def _after_empty_rest(self, rest: Iterator[Any]) -> Iterator[Any]:
        """Yield the remaining batches of an epoch. If there are none, yield the next epoch: Lightning saves states after the last batch."""
        for batch in rest:
            self._is_loaded = False
            yield batch
        if self._is_loaded:
            self._is_loaded = False
            yield from self._begin()

    def _begin(self) -> Any:
        if self._pipeline is not None:
            return self._get_iterator()
        progress = self._progress
        if self._resumed is None and getattr(progress, "is_untouched", False):  # a resumed loop was restarted before its first batch
            self._resumed = progress.snapshot()
        if self._resumed is not None:
            self._epoch = self._resumed["epoch"]
            self._restore_generators()
        if self._iterator is not None and (self._resumed is not None or self._iterator.failure is not None):
            self._iterator._shutdown_workers()  # the persistent workers are dead, or not at the position of the loaded state
            self._iterator = None
        if self.shard:
            self.sampler.set_epoch(self._epoch)
        iterator: Any = super().__iter__() if self.workers == "processes" else self._get_iterator()
        self._progress, self._resumed, self._received = iterator.progress, None, None
        self._epoch += 1
        return iterator

    def _get_iterator(self) -> Any:
        if self._pipeline is not None:
            return PipelineIterator(self)
        order = self._order()
        resumed = with_workers_of(self, self._resumed)
        if self.num_workers == 0:
            return SingleProcessIterator(self, order, self._epoch, resumed)
        if self.workers == "processes":
            self.check_worker_number_rationality()
            return MultiProcessIterator(self, order, self._epoch, resumed)
        if self._loops == 0 and not self.per_worker:
            check_threads(self.dataset, self.num_workers)
        self._loops += 1
        threads, self._threads = self._threads or Threads(self), None
        self._loop_threads.append(threads)
        return ThreadIterator(self, order, self._epoch, resumed, threads, self._loops, self._take_back)

    def _take_back(self, threads: Threads) -> None:
        """Keep the threads of a loop that has ended, if they are persistent."""
        if threads not in self._loop_threads:  # the loader was closed
            return
        self._loop_threads.remove(threads)
        if (self.persistent_workers or self.isolated) and self._threads is None:
            self._threads = threads
        else:
            threads.close()

    def _restore_generators(self) -> None:
        """Restore the global random generators, except generators that the program has set or used since the state was loaded."""
        saved = (self._resumed or {}).pop("generators", None)
        if saved is not None:
            for generator, now, untouched, state in zip(GLOBAL, states_of(GLOBAL), self._untouched, saved, strict=True):
                if now == untouched != state:
                    set_state(generator, state)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next loop, and call ``set_epoch`` of the samplers. Without this call, each loop is the next epoch.

        Args:
            epoch: The number of the epoch, from 0.

        Raises:
            ConfigError: a loaded state is in the middle of another epoch, or the pipeline is in another epoch.
        """
        if self._pipeline is not None:
            self._batches.set_epoch(epoch)
            return
        resumed = self._resumed
        if resumed is not None and resumed["yielded"] is not None:
            if epoch != resumed["epoch"]:
                raise ConfigError(
                    f"DataLoader: set_epoch({epoch}), but the state that was loaded is in epoch {resumed['epoch']}, after "
                    f"{resumed['yielded']} batches; continue with that epoch, or build a new DataLoader without the state"
                )
            return
        self._epoch = epoch
        if resumed is not None:
            resumed["epoch"] = epoch
        self._order().set_epoch(epoch)

    def position(self) -> Any:
        """Return the position after the last batch that this loader has yielded, for :meth:`received`."""
        return self._batches.position() if self._pipeline is not None else self._snapshot()

    def received(self, position: Any) -> None:
        """Make :meth:`state_dict` return the state at ``position``; see :meth:`highway.Pipeline.received`."""
        if self._pipeline is not None:
            self._batches.received(position)
            return
        if position is None and isinstance(self._received, dict):
            self._progress = self._received
        self._received = position

    def _snapshot(self) -> dict[str, Any]:
        if self._resumed is not None:
            return copy.copy(self._resumed)
        if isinstance(self._progress, dict):
            return self._progress
        return between(self._epoch, self._order()) if self._progress is None else self._progress.snapshot()

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch that the loop has received.

        Call this method before, in or after a loop. Workers read batches in advance. After a resume, they read these batches again. If the
        state is saved in the loop after its last batch, the resumed loop yields no batches.

        Returns:
            A dict. ``json`` can serialize it, unless the states of your own datasets and samplers contain other types.

        Raises:
            PipelineError: a stage of a pipeline reads this loader; or a stage of this loader's pipeline does not support states.
        """
        if self._pipeline is not None:
            return self._batches.state_dict()
        if isinstance(self._received, PipelineError):
            raise self._received
        if self._received is None and getattr(self._progress, "is_in_stage", False) and not in_stage():
            raise PipelineError(
                "state_dict: a pipeline reads this DataLoader ahead of your loop; call state_dict() of the object that your loop reads"
            )
        return {**to_public(self._received or self._snapshot()), "of": identity_of(self)}

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]], allow_changed: Collection[str] = ()) -> None:
        """Resume the next loop from a state.

        The state includes the global random number generators of torch (CPU), NumPy and Python. The next loop restores these generators,
        except generators that your program has set or used since this call.

        Args:
            state: The return value of :meth:`state_dict`. With an empty dict, the next loop begins :attr:`epoch` from its start. A pipeline
                does not accept an empty dict. It accepts a list with the states of all ranks, to resume on another number of ranks.
            allow_changed: Names of parameters that can differ from the saved loader, such as ``"batch_size"``. A difference only logs a
                warning. For a pipeline, see :meth:`highway.Pipeline.load_state_dict`.

        Raises:
            PipelineError: the state is not valid, parameters differ, ``allow_changed`` has an unknown name, or a pipeline's loop has begun.
        """
        self._is_loaded = True
        if self._pipeline is not None:
            self._batches.load_state_dict(state, allow_changed)
            return
        self._progress = self._received = None
        if isinstance(state, Mapping) and not state:
            self._resumed = None
            return
        if not isinstance(state, Mapping) or state.get("format") != FORMAT or "order" not in state:
            raise PipelineError(
                f"load_state_dict: expected a state of a DataLoader over a dataset, from this version of highway; got {str(state)[:60]}"
            )
        here, there = identity_of(self), state["of"]
        expect_same(here, there, allow_changed)
        resumed = from_public({name: part for name, part in state.items() if name != "of"})
        self._resumed = resumed if here["ranks"] == there["ranks"] else of_another_rank(resumed, there["ranks"][1], here["ranks"][1])
        self._epoch = self._resumed["epoch"]
        self._untouched = states_of(GLOBAL)

    @property
    def why_here(self) -> str:
        """Raise an error, because this property was removed."""
        raise AttributeError('DataLoader.why_here was removed: use loader.workers ("processes" or "threads") and loader.isolated')

    def as_torch(self) -> IterableDataset:
        """Return an ``IterableDataset`` of the batches. Deprecated, because this loader is a ``torch.utils.data.DataLoader``."""
        warnings.warn("DataLoader.as_torch() is deprecated; use the loader itself", DeprecationWarning, stacklevel=2)
        return _Batches(self)

    def close(self) -> None:
        """End the workers, or stop the pipeline. The next loop over a dataset starts new workers. Closing again does nothing."""
        if self._pipeline is not None:
            self._batches.close()
        if self._iterator is not None and hasattr(self._iterator, "_shutdown_workers"):
            self._iterator._shutdown_workers()
        self._iterator = None
        for threads in (*filter(None, [self._threads]), *self._loop_threads):
            threads.close()
        self._threads, self._loop_threads = None, []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Batches(IterableDataset):
    """The batches of a loader."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def __len__(self) -> int:
        return len(self._loader)
