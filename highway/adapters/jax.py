"""Pass batches to JAX. Install JAX separately: ``pip install jax``, or ``jax[cuda12]``, ``jax[tpu]``, ..."""

from __future__ import annotations

import atexit
import functools
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

try:
    import jax
except ImportError as error:
    from highway.errors import ConfigError

    raise ConfigError(
        "highway.adapters.jax needs jax: pip install jax; https://docs.jax.dev shows the command for each accelerator"
    ) from error

from highway.adapters.common_end import TIMEOUT, CommonEnd, expect_one_rank
from highway.adapters.device_loader import DeviceLoader
from highway.process.ranks import ReaderRanks


def ranks() -> ReaderRanks:
    """Return ``jax.process_index()`` and ``jax.process_count()`` as the arguments ``rank`` and ``world_size`` for a reader.

    ::

        jax.distributed.initialize()
        reader = Reader(dataset, 64, **ranks())

    A rank is a process. It can have any number of devices. Call ``jax.distributed.initialize()`` before this function. Without
    ``initialize()``, the result is rank 0 of 1. If you call ``initialize()`` after this function, it raises ``RuntimeError``, because the
    backend of JAX has started.

    >>> ranks() == {"rank": 0, "world_size": 1}
    True
    >>> reader = Reader(range(100), 8, **ranks())
    """
    return {"rank": jax.process_index(), "world_size": jax.process_count()}


def to_device(
    loader: Iterable[Any], sharding: Any = None, depth: int = 2, end_together: bool = False, end_timeout: float = TIMEOUT
) -> DeviceLoader:
    """Return a loader that moves batches to the device, up to ``depth`` batches in advance.

    ::

        for epoch in range(10):
            for images, labels in to_device(pipeline, NamedSharding(mesh, PartitionSpec("batch"))):
                state = step(state, images, labels)

    A separate thread puts the batches on the device. ``len``, ``state_dict`` and ``load_state_dict`` of the returned loader call the
    methods of ``loader``. In a state, batches that wait on the device do not count as received. If ``loader`` is not from highway, always
    call ``state_dict()`` of the returned loader, because ``loader`` does not know which batches the loop has received.

    On a CPU, JAX does not copy arrays in aligned memory, such as batches of highway. Do not write to such an array while the JAX array
    exists. Unless ``jax_enable_x64`` is set, JAX converts 64-bit numbers to 32 bits. Floats are rounded. An integer that does not fit into
    32 bits raises an error.

    Args:
        loader: A :class:`~highway.Pipeline`, or any iterable of arrays in tuples, lists and dicts.
        sharding: A ``jax.sharding.Sharding`` or a device, on which the rows are put. With a sharding, each process passes its own rows.
            ``None`` is the default device.
        depth: Maximum number of batches that wait on the device, at least 1. A batch that is being moved does not count.
        end_together: Whether the loops of all JAX processes end after the same number of batches: as soon as one process has no more
            batches. If other processes drop batches, a warning contains the number of these batches. All processes must run the same loops
            in the same order. All batches must have the same shapes, so pass ``drop_last=True`` to ``Batch``.
        end_timeout: With ``end_together``: maximum seconds that a process waits for the other processes before a batch. Then it raises an
            error that names the batch. The default is 30 minutes.

    Raises:
        ConfigError: ``depth`` is below 1; ``end_timeout`` is not above 0; or ``end_together`` is true and the launcher started several
            ranks, but ``jax.distributed`` is not initialised (when a loop begins).
        PipelineError: with ``end_together``, the loader of another process raised an error, another process does not answer within
            ``end_timeout``, or the processes run different loops.
        ValueError: the rows of an array cannot be divided evenly among the parts of the sharding (when running).
        OverflowError: an integer does not fit into 32 bits (when running).
        TypeError: JAX does not support the dtype of an array (when running).

    >>> batches = [(np.zeros((2, 3), np.float32), np.int32([5, 7]))]
    >>> with Pipeline([batches]) as pipeline:
    ...     for images, labels in to_device(pipeline):
    ...         print(images.shape, labels)
    (2, 3) [5 7]
    """
    return DeviceLoader(loader, lambda: _Put(sharding), depth, CommonEnd(_processes, end_timeout) if end_together else None)


class _Put:
    def __init__(self, sharding: Any) -> None:
        self.sharding = sharding

    def move(self, batch: Any) -> Any:
        return jax.tree_util.tree_map_with_path(self._put, batch)

    def receive(self, batch: Any) -> Any:
        return batch

    def _put(self, path: Any, value: Any) -> Any:
        if isinstance(value, jax.Array):
            return jax.device_put(value, self.sharding)
        array, place = np.asarray(value), f"item{jax.tree_util.keystr(path)}"
        if array.dtype.kind in "USOMmV" and array.dtype.name not in _EXTENDED:
            raise TypeError(
                f"to_device: {place} is an array of {array.dtype}, a dtype that JAX does not support; convert it, or remove it with Select"
            )
        if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and not jax.config.jax_enable_x64:
            _expect_to_fit(array, place)
        if not isinstance(self.sharding, jax.sharding.Sharding):
            return jax.device_put(array, self.sharding)
        self._expect_rows_to_divide(array, place)
        return jax.make_array_from_process_local_data(self.sharding, array)

    def _expect_rows_to_divide(self, array: np.ndarray, place: str) -> None:
        rows, parts = len(array) if array.ndim else 1, _parts(self.sharding, array.ndim)
        if rows % parts:
            raise ValueError(
                f"to_device: {place} has {rows} rows, which cannot be divided evenly among the {parts} parts of the sharding in this "
                f"process; use a batch size that is a multiple of {parts}, and drop a shorter last batch (drop_last=True)"
            )


_EXTENDED = {"bfloat16", *(name for name in dir(jax.numpy) if name.startswith(("float8", "float4", "int4", "uint4", "int2", "uint2")))}


def _expect_to_fit(array: np.ndarray, place: str) -> None:
    """Raise OverflowError if an integer does not fit into 32 bits. JAX would keep only the lower 32 bits."""
    limits = np.iinfo(np.int32 if array.dtype.kind == "i" else np.uint32)
    if array.size and not (limits.min <= array.min() and array.max() <= limits.max):
        wrong = array.max() if array.max() > limits.max else array.min()
        raise OverflowError(
            f"to_device: {place} contains {wrong}, which does not fit into {limits.dtype}, but JAX converts {array.dtype} to "
            f'{limits.dtype}; call jax.config.update("jax_enable_x64", True) first, or map the values to smaller numbers'
        )


def _parts(sharding: Any, ndim: int) -> int:
    """Return the number of parts into which this process's rows are divided."""
    many = 2 * len(sharding.device_set)  # a number of rows that the sharding can divide evenly
    rows = {str(where[0]) for where in sharding.addressable_devices_indices_map((many,) * max(1, ndim)).values()}
    return len(rows)


_EXIT_TIMEOUT = 5.0  # maximum seconds that Python waits at its exit for exchanges that are still running


@functools.cache
def _processes() -> _Processes | None:
    """Return the processes of JAX, or ``None`` if there is only one."""
    if jax.process_count() == 1:
        expect_one_rank("jax.distributed.initialize()")
        return None
    return _Processes()


class _Processes:
    """The processes of JAX that end their loops together.

    An exchange is a computation on all devices. It runs during a training step. The thread of the loop starts the exchange before this
    step. Therefore, all processes start the exchanges and the steps in the same order, as JAX requires.
    """

    def __init__(self) -> None:
        self.rank, self.world_size, self.loops = jax.process_index(), jax.process_count(), 0
        devices = sorted(jax.devices(), key=lambda device: device.process_index)
        mesh = jax.sharding.Mesh(np.reshape(devices, (self.world_size, -1)), ("processes", "devices"))
        self._own = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("processes"))
        self._gather = jax.jit(lambda reports: reports, out_shardings=jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
        atexit.register(_end_exchanges)

    def begin(self, numbers: list[int]) -> _Exchange:
        return _Exchange(lambda: self._gather(jax.make_array_from_process_local_data(self._own, np.array([numbers], np.int32))))

    def wait_for(self, batch: str) -> None:
        """Do nothing, because JAX has no public way to send texts to other processes."""

    def missing(self, batch: str) -> list[int]:
        return []


class _Exchange(threading.Thread):
    """An exchange on a separate thread, because waiting for JAX has no time limit, and Ctrl-C does not interrupt it.

    On GPUs and TPUs, the call that starts the computation returns at once. On CPUs, it might return only after all processes have called
    it.
    """

    def __init__(self, gather: Callable[[], Any]) -> None:
        super().__init__(name="end_together", daemon=True)
        self._gather, self._gather_has_returned = gather, threading.Event()
        self.start()

    def run(self) -> None:
        self._reports: Any = None
        self._error: Exception | None = None
        try:
            self._reports = self._gather()
            self._gather_has_returned.set()
            self._reports.block_until_ready()
        except Exception as error:
            self._error = error
            self._gather_has_returned.set()

    def has_started(self) -> bool | None:
        return self._gather_has_returned.wait(1) or None

    def wait(self) -> list[int] | None:
        self.join(1)
        if self.is_alive():
            return None
        if self._error is not None:
            raise self._error
        numbers: list[int] = np.asarray(self._reports.addressable_data(0)).min(axis=0).tolist()
        return numbers


def _end_exchanges() -> None:
    """At the exit of Python, wait until the exchanges that are still running have ended.

    If a thread returns from JAX's C++ code while Python exits, the process aborts. An exchange ends at the latest when another process
    ends. Therefore, this function first calls ``jax.distributed.shutdown()``, which waits until all processes are about to end.
    """
    if exchanges := [thread for thread in threading.enumerate() if isinstance(thread, _Exchange)]:
        try:
            jax.distributed.shutdown()
        finally:
            deadline = time.monotonic() + _EXIT_TIMEOUT
            for exchange in exchanges:
                exchange.join(max(0.0, deadline - time.monotonic()))
