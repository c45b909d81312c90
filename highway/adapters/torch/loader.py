"""``DataLoader``: torch's own interface, with threads, or processes, in place of torch's workers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, Self

import torch
from torch.utils.data import IterableDataset, default_convert

from highway.adapters.positions import received_by_caller
from highway.adapters.torch.apart import why_not_apart
from highway.adapters.torch.batches import DatasetBatches
from highway.adapters.torch.collate import collate
from highway.adapters.torch.device import pin
from highway.adapters.torch.loop import Caller, PipelineWorkers, Relieved, Workers
from highway.adapters.torch.nested import mapped
from highway.adapters.torch.over_pipeline import PipelineBatches
from highway.adapters.torch.samplers import SampleOrder
from highway.adapters.torch.samples import ReadSamples
from highway.engine import Pipeline
from highway.errors import ConfigError

log = logging.getLogger("highway")


class DataLoader:
    """Read a map-style dataset in batches, with the arguments, order and results of ``torch.utils.data.DataLoader``; or a pipeline.

    ::

        loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=8)
        for epoch in range(10):
            for images, labels in loader: ...

    A pipeline is the only argument then: ``DataLoader(Pipeline([...]))`` gives its items, arrays as tensors, a loop for each epoch.

    Workers are threads, which read parts of one batch together, for code that lets go of Python's lock (decoding, numpy, files); for code
    that holds it, ``workers="processes"``. ``highway doctor --dataset module:name`` measures which is better. Both are in a process of
    their own, away from the thread that trains, where the dataset can be pickled, holds at most 64 MB and comes from a module; where it
    cannot, they are here, and :attr:`why_here` says why. Threads here read the first batches, until that process has started.

    Several ranks get equal numbers of batches, as by torch's ``DistributedSampler``, unless a sampler is given. ``state_dict()`` between
    two batches and ``load_state_dict()`` before a loop go on with the next batch, whatever was being read.

    Args:
        dataset: Has ``__len__`` and ``__getitem__``, or is a :class:`~highway.Pipeline`.
        batch_size: Samples per batch, at least 1; ``None``: samples one by one.
        shuffle: Whether to draw a new order for each epoch.
        sampler: Yields the numbers of samples.
        batch_sampler: Yields lists of them.
        num_workers: Threads, or processes; 0: batches are read when they are asked for, by who asks.
        collate_fn: Makes a batch of a list of samples; ``None``: :func:`~highway.adapters.torch.collate.collate`, torch's own rules.
        pin_memory: Whether batches are copied to pinned memory where there is a GPU, by who takes them; ``to_device`` does it by itself, in
            a thread.
        drop_last: Whether to leave out a last batch that is not full.
        timeout: Seconds to wait for a batch at most; 0 is no limit.
        worker_init_fn: Called with the number of each worker before it begins, on its thread or in its process.
        multiprocessing_context: Processes are always spawned; anything else is refused.
        generator: What the order is drawn by; ``None``: torch's global one, as in torch.
        prefetch_factor: Batches that wait to be taken; of processes, for each. ``None``: 2.
        persistent_workers: Whether workers stay for the next epoch; ``None``: yes, until the loader is closed or collected.
        pin_memory_device: Refused: ``to_device(loader, device)`` says where to.
        in_order: Whether batches come in the order of the sampler.
        workers: ``"threads"`` or ``"processes"``.
        isolated: Whether workers are in a process of their own; ``None``: if they can be.
        per_worker: Whether each thread has a copy of the dataset, for one that is not thread-safe.
        rank: Which part of the samples is read; ``None``: as torch.distributed or the environment says.
        world_size: How many parts there are.
        budget_mb: Megabytes of shared memory that batches from other processes may take; one may take half.

    Raises:
        ConfigError: arguments that do not go together, or mean nothing here.
        PipelineError: ``isolated=True`` or ``workers="processes"``, and the dataset cannot be pickled (in the first loop).
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
        persistent_workers: bool | None = None,
        pin_memory_device: str = "",
        in_order: bool = True,
        workers: Literal["threads", "processes"] = "threads",
        isolated: bool | None = None,
        per_worker: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        budget_mb: float = 1024.0,
    ) -> None:
        self.dataset, self.num_workers, self.pin_memory, self.timeout = dataset, num_workers, pin_memory, timeout
        self.batch_size, self.drop_last, self.generator = None if batch_sampler is not None else batch_size, drop_last, generator
        self.worker_init_fn, self.prefetch_factor, self.in_order = worker_init_fn, prefetch_factor, in_order
        self.persistent_workers = persistent_workers is not False
        self.workers, self.isolated, self.per_worker, self._budget_mb = workers, isolated, per_worker, budget_mb
        self._collate_fn = collate_fn
        self.why_here = ""
        order = SampleOrder(batch_size, shuffle, sampler, batch_sampler, drop_last, generator, rank, world_size)
        if isinstance(dataset, Pipeline):
            if order != SampleOrder() or num_workers or collate_fn is not None:
                raise ConfigError(
                    "DataLoader: a pipeline says itself what is read, in which order and by how many workers; give "
                    "DataLoader(pipeline) nothing else but pin_memory"
                )
            self._batches: DatasetBatches | PipelineBatches = PipelineBatches(dataset)
            return
        order.check()
        self._check(multiprocessing_context, pin_memory_device)
        self._batched = batch_size is not None or batch_sampler is not None
        self._batches = DatasetBatches(dataset, order, self._make_workers, self.persistent_workers, timeout or None)

    def _check(self, multiprocessing_context: Any, pin_memory_device: str) -> None:
        name = type(self.dataset).__name__
        if isinstance(self.dataset, IterableDataset) or not hasattr(self.dataset, "__getitem__"):
            raise ConfigError(
                f"DataLoader: {name} has no samples by number; give it to a pipeline: DataLoader(Pipeline([dataset, Batch(64)]))"
            )
        if not isinstance(self.num_workers, int) or self.num_workers < 0:
            raise ConfigError(f"DataLoader: num_workers={self.num_workers!r}; expected 0 or more")
        if self.workers not in ("threads", "processes"):
            raise ConfigError(f"DataLoader: workers={self.workers!r}; expected 'threads' or 'processes'")
        if self.timeout < 0 or (self.prefetch_factor is not None and self.prefetch_factor < 1):
            raise ConfigError(
                f"DataLoader: timeout={self.timeout}, prefetch_factor={self.prefetch_factor}; expected seconds from 0, and 1 batch or more"
            )
        method = getattr(multiprocessing_context, "get_start_method", lambda: multiprocessing_context)()
        if method not in (None, "spawn"):
            raise ConfigError(f"DataLoader: multiprocessing_context={method!r}; processes are always spawned, never forked: leave it out")
        if pin_memory_device:
            raise ConfigError(f"DataLoader: pin_memory_device={pin_memory_device!r}; say to_device(loader, {pin_memory_device!r})")

    def _make_workers(self) -> Workers:
        has_processes, number = self.workers == "processes", self.num_workers
        if number == 0:
            return Caller(self._reader(False))
        if self.isolated is None:
            self.why_here = why_not_apart(self.dataset, self._collate_fn, self.worker_init_fn)
            if self.why_here:
                log.info("DataLoader: %s is read in this process: it %s", type(self.dataset).__name__, self.why_here)
        isolated = not self.why_here if self.isolated is None else self.isolated
        workers = self._pipeline(has_processes, isolated)
        if self.isolated is None and isolated and not has_processes and self.worker_init_fn is None:  # which may be for that process alone
            return Relieved(self._pipeline(False, False), workers)
        return workers

    def _pipeline(self, has_processes: bool, isolated: bool) -> PipelineWorkers:
        reader = self._reader(isolated or has_processes, has_processes, has_processes)
        depth = 2 if self.prefetch_factor is None else self.prefetch_factor
        return PipelineWorkers(reader, depth, self.in_order, has_processes, isolated, self.per_worker, self._budget_mb)

    def _reader(self, is_apart: bool, is_seeded: bool = False, has_processes: bool = False) -> ReadSamples:
        own = (self.dataset, self._collate_fn, self._batched, self.worker_init_fn, self.num_workers)
        return ReadSamples(*own, is_apart, is_seeded, has_processes)

    @property
    def collate_fn(self) -> Callable[[Any], Any]:
        """What makes a batch of samples."""
        return self._collate_fn or (collate if self._batched else default_convert)

    @property
    def sampler(self) -> Any:
        """What yields the numbers of samples."""
        return self._batches.samplers.sampler if isinstance(self._batches, DatasetBatches) else None

    @property
    def batch_sampler(self) -> Any:
        """What yields lists of them; ``None`` if there are no batches."""
        return self._batches.samplers.batch_sampler if isinstance(self._batches, DatasetBatches) else None

    @property
    def epoch(self) -> int:
        """The number of the next loop's epoch, from 0."""
        return self._batches.epoch

    def __len__(self) -> int:
        """Return how many batches an epoch has, on this rank.

        Raises:
            TypeError: the sampler, or a stage of the pipeline, does not know.
        """
        return len(self._batches)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        """Begin the next epoch, or the rest of one that a state is in the middle of.

        Raises:
            Exception: what is raised for a sample, with notes that say which, in the place of its batch.
        """
        batches = received_by_caller(self, iter(self._batches))
        return (mapped(batch, pin) for batch in batches) if self.pin_memory and torch.cuda.is_available() else batches

    def set_epoch(self, epoch: int) -> None:
        """Have the next loop be this epoch; samplers are told. Without it, epochs are counted.

        Raises:
            ConfigError: a state was loaded that is in the middle of another one, or a pipeline is in another one.
        """
        self._batches.set_epoch(epoch)

    def position(self) -> Any:
        """Return where the last loop is after the last batch that was taken, for :meth:`received`."""
        return self._batches.position()

    def received(self, position: Any) -> None:
        """Have :meth:`state_dict` return the state at a position; see :meth:`highway.Pipeline.received`."""
        self._batches.received(position)

    def state_dict(self) -> dict[str, Any]:
        """Return where the last loop is, between two batches: what was read beyond counts for nothing.

        Raises:
            PipelineError: a stage of the pipeline does not say its state, or stages of another pipeline take the batches.
        """
        return self._batches.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], allow_changed: Collection[str] = ()) -> None:
        """Have the next loop resume from a state.

        After the last batch of an epoch, that is the next epoch, whether the loop has ended or is about to; :attr:`epoch` is its number.

        Args:
            state: What :meth:`state_dict` returned.
            allow_changed: What may have changed since, and is logged: stages of the pipeline by name, or, over a dataset, what the error
                names, such as ``"batch_size"``.

        Raises:
            PipelineError: the state was saved by another loader, or ``allow_changed`` names nothing that is compared.
        """
        self._batches.load_state_dict(state, allow_changed)

    def as_torch(self) -> IterableDataset[Any]:
        """Return an ``IterableDataset`` of the batches, for who checks the type: ``torch.utils.data.DataLoader(it, batch_size=None)``."""
        return _AsTorch(self)

    def close(self) -> None:
        """End the workers. The next loop starts others. Closing again does nothing."""
        self._batches.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"DataLoader({type(self.dataset).__name__}, num_workers={self.num_workers}, workers={self.workers!r})"


class _AsTorch(IterableDataset[Any]):
    """The batches of a loader; its epochs, state and length are the loader's."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        if torch.utils.data.get_worker_info() is not None:
            raise ConfigError("DataLoader.as_torch(): leave num_workers at 0; highway's loader has workers of its own")
        return iter(self._loader)

    def __len__(self) -> int:
        return len(self._loader)

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], allow_changed: Collection[str] = ()) -> None:
        self._loader.load_state_dict(state, allow_changed)
