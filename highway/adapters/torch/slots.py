"""Shared memory that worker processes reuse for later batches, because the kernel has to clear the pages of new memory.

A *slot* is a piece of shared memory. A worker collates batches into free slots, and sends the numbers of these slots to the loader. The
loader returns a slot to the worker when no object in its process refers to the memory. A slot is dropped if a third process might have
received its memory. If no slot is free, the data is sent as in torch.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

import numpy as np
import torch
from torch.multiprocessing import get_sharing_strategy
from torch.multiprocessing.reductions import fd_id, reduce_storage, shared_cache
from torch.utils.data._utils import collate

_MOST = 64  # maximum number of slots of a worker
_AGE = 128  # maximum age of a free slot, in calls of take()
_LARGE = 1 << 14  # minimum size of an array in a slot, in bytes; for smaller arrays, pickling is as fast
_PAGE = 1 << 12
_SHARE = 4  # the slots of all workers use at most 1 / _SHARE of the free shared memory
_DROPPED = -(1 << 62)

_receivers: weakref.WeakValueDictionary[int, SlotReceiver] = weakref.WeakValueDictionary()
_tokens = count()
_users: weakref.WeakKeyDictionary[SlotReceiver | SlotSender, None] = weakref.WeakKeyDictionary()
_sender: SlotSender | None = None  # the sender of this process, if it is a worker


def receivers(num_workers: int) -> list[SlotReceiver]:
    """Create a receiver for each worker that will be started."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]  # a slot needs a descriptor in the worker and in the loader's process
    most = _MOST if descriptors < 0 else max(1, min(_MOST, descriptors // 4 // num_workers))
    return [SlotReceiver(row, num_workers) for row in torch.zeros(num_workers, most, dtype=torch.int64).share_memory_()]


class _Slot:
    """A file in shared memory, and a torch storage of its first bytes.

    Args:
        descriptor: The descriptor of the file. The storage duplicates it.
        size: Size of the storage in bytes.
        generation: The number of the file, counted over all files of the worker.
    """

    def __init__(self, descriptor: int, size: int, generation: int) -> None:
        self.storage = torch.UntypedStorage._new_shared_fd_cpu(descriptor, size)
        self.generation = generation
        self.length = os.fstat(descriptor).st_size
        self.transfers = 0  # number of times that the worker has sent the slot, or the loader has received it
        self.last_taken = 0
        self.is_lent = self._is_forked = False
        self._file, self._address = fd_id(descriptor), self.storage.data_ptr()
        self._references_of_unused = self._references()

    def _references(self) -> tuple[int, int, int]:
        """Return the reference counts of the storage. Read the first count twice, because another thread might create a tensor."""
        storage = self.storage
        uses = torch._C._storage_Use_Count
        return uses(storage._cdata), sys.getrefcount(storage), uses(storage._cdata)

    @property
    def is_unused(self) -> bool:
        """Whether no tensor, array or view in this process refers to the memory."""
        return self._references() == self._references_of_unused

    @property
    def is_exported(self) -> bool:
        """Whether another process might have received the memory from this process, by fork or by torch's pickling."""
        return self._is_forked or self.storage.data_ptr() != self._address or self._file in shared_cache

    @property
    def descriptor(self) -> int:
        return int(self.storage._share_fd_cpu_()[0])

    def note_fork(self) -> None:
        """Note that a child process is about to inherit the memory."""
        self._is_forked = self._is_forked or not self.is_unused

    def resized(self, size: int) -> _Slot:
        """Return a slot of the same file with another size."""
        slot = _Slot(self.descriptor, size, self.generation)
        slot.transfers = self.transfers
        return slot


class SlotReceiver:
    """The slots of a worker, in the process of the loader.

    Args:
        given_back: Shared memory with a number for each slot: the ``transfers`` of the slot when it was last given back. If the number is
            negative, the worker drops the slot.
        num_workers: Number of workers.
    """

    def __init__(self, given_back: torch.Tensor, num_workers: int) -> None:
        self.slots: dict[int, _Slot] = {}
        self.sender = SlotSender(next(_tokens), given_back, num_workers)
        self._given_back = given_back.numpy()
        self._lock = threading.Lock()  # torch's thread that pins memory also receives slots
        _receivers[self.sender.token] = self
        _users[self] = None

    def receive(self, number: int, generation: int, size: int, handle: Any) -> torch.UntypedStorage:
        """Return the storage of a slot that the worker has sent."""
        descriptor = None if handle is None else handle.detach()
        try:
            with self._lock:
                if descriptor is not None and (number not in self.slots or self.slots[number].generation != generation):
                    self.slots[number] = _Slot(descriptor, size, generation)
                elif self.slots[number].storage.nbytes() != size:
                    self.slots[number] = self.slots[number].resized(size)
                slot = self.slots[number]
                storage = slot.storage  # from here on the slot is in use
                slot.transfers, slot.is_lent = slot.transfers + 1, True
                return storage
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def give_back(self) -> None:
        """Give the unused slots back to the worker."""
        with self._lock:
            for number, slot in list(self.slots.items()):
                if slot.is_lent and slot.is_unused:
                    slot.is_lent = False
                    self._given_back[number] = -slot.transfers if slot.is_exported else slot.transfers
                elif self._given_back[number] == _DROPPED:
                    del self.slots[number]


class SlotSender:
    """The slots of a worker, in the process of the worker. Only one thread of the worker sends slots.

    Args:
        token: Number of the receiver in the loader's process.
        given_back: The shared memory ``given_back`` of the receiver.
        num_workers: Number of workers that share the memory.
    """

    def __init__(self, token: int, given_back: torch.Tensor, num_workers: int) -> None:
        self.token, self._row, self._num_workers = token, given_back, num_workers

    def install(self) -> None:
        """In this process, make torch's default collation fill slots, and make torch's pickling send the numbers of slots."""
        global _sender
        _sender = self
        self.slots: dict[int, _Slot] = {}
        self._given_back = self._row.numpy()
        self._generations, self._taken = count(1), 0
        self._lock = threading.Lock()  # one thread takes slots, and another thread sends them
        self._process, self._thread = os.getpid(), 0
        _users[self] = None
        functions = collate.default_collate_fn_map
        for kind, function in functions.items():
            if function is collate.collate_tensor_fn:
                functions[kind] = self._collate_tensors
            elif function in (collate.collate_int_fn, collate.collate_float_fn, collate.collate_numpy_scalar_fn):
                functions[kind] = self._in_slot(function)
        ForkingPickler.register(torch.UntypedStorage, self._reduce_storage)
        ForkingPickler.register(np.ndarray, self._reduce_array)

    def note_sending(self) -> None:
        """Note that this thread sends results."""
        self._thread = threading.get_ident()

    def take(self, size: int) -> torch.UntypedStorage | None:
        """Return the uninitialized storage of a free slot, or ``None`` if no slot is free."""
        if size == 0 or os.getpid() != self._process or get_sharing_strategy() != "file_descriptor":
            return None
        with self._lock:
            self._taken += 1
            free = self._free()
            fitting = [number for number in free if size <= self.slots[number].length <= max(_PAGE, 2 * size)]
            fitting.sort(key=lambda number: (self.slots[number].storage.nbytes() == size, self.slots[number].last_taken))
            number = fitting[-1] if fitting else self._new(size, free)
            if number is None:
                return None
            if self.slots[number].storage.nbytes() != size:
                self.slots[number] = self.slots[number].resized(size)
            slot = self.slots[number]
            slot.last_taken = self._taken
            return slot.storage

    def _free(self) -> list[int]:
        """Return the numbers of the free slots. Drop free slots that cannot be reused, or that were unused for a long time."""
        free = []
        for number, slot in list(self.slots.items()):
            if slot.is_unused and abs(given_back := int(self._given_back[number])) == slot.transfers:
                free.append(number)
                if given_back < 0 or slot.is_exported or self._taken - slot.last_taken > _AGE:
                    self._drop(free.pop())
        return free

    def _drop(self, number: int) -> None:
        del self.slots[number]
        self._given_back[number] = _DROPPED

    def _new(self, size: int, free: list[int]) -> int | None:
        """Return the number of a new slot, which can replace a free slot. ``None``: too many slots, or too little shared memory."""
        number = next((number for number in range(len(self._given_back)) if number not in self.slots), None)
        if number is None and free:
            number = min(free, key=lambda number: self.slots[number].last_taken)
            self._drop(number)
        shared, held = os.statvfs("/dev/shm"), sum(slot.length for slot in self.slots.values())
        length = -(-size // _PAGE) * _PAGE
        if number is None or _SHARE * self._num_workers * (held + length) > shared.f_bavail * shared.f_frsize + self._num_workers * held:
            return None
        try:
            whole = torch.UntypedStorage._new_using_fd_cpu(length)
            self.slots[number] = _Slot(whole._share_fd_cpu_()[0], size, next(self._generations))
        except RuntimeError:  # too few file descriptors; torch will raise its own error
            return None
        self._given_back[number] = 0
        return number

    def _collate_tensors(self, batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
        first = batch[0]
        if _is_plain(first) and all(getattr(one, "shape", None) == first.shape for one in batch):
            storage = self.take(len(batch) * first.nbytes)
            if storage is not None:
                out = torch.empty(0, dtype=first.dtype).set_(storage, 0, (len(batch), *first.shape))
                return torch.stack(tuple(batch), 0, out=out)
        return collate.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)

    def _in_slot(self, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def collated(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
            values = function(batch, collate_fn_map=collate_fn_map)
            storage = self.take(values.nbytes)
            return values if storage is None else torch.empty(0, dtype=values.dtype).set_(storage, 0, values.shape).copy_(values)

        return collated

    def _reduce_storage(self, storage: torch.UntypedStorage) -> Any:
        if threading.get_ident() == self._thread:
            with self._lock:  # the thread that collates might take a slot now
                for number, slot in self.slots.items():
                    # Old versions of torch create a new wrapper of the storage.
                    if slot.storage._cdata == storage._cdata and not slot.is_exported:
                        slot.transfers += 1
                        is_known = self._given_back[number] != 0  # whether the loader's process has received the file
                        handle = None if is_known else DupFd(slot.descriptor)
                        return _receive, (self.token, number, slot.generation, storage.nbytes(), handle)
        return reduce_storage(storage)

    def _reduce_array(self, array: np.ndarray) -> Any:
        is_plain = array.dtype.isnative and not array.dtype.hasobject and array.flags.c_contiguous
        if threading.get_ident() == self._thread and array.nbytes >= _LARGE and is_plain:
            storage = self.take(array.nbytes)
            if storage is not None:
                _array(storage, array.dtype, array.shape)[...] = array
                return _array, (storage, array.dtype, array.shape)
        return array.__reduce_ex__(4)  # as the pickler does


def note_sending() -> None:
    """Note that this thread sends the results of a worker."""
    if _sender is not None:
        _sender.note_sending()


def _receive(token: int, *transfer: Any) -> torch.UntypedStorage:
    return _receivers[token].receive(*transfer)


def _is_plain(tensor: torch.Tensor) -> bool:
    is_dense = type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
    return is_dense and not (tensor.is_quantized or tensor.is_nested or tensor.is_conj() or tensor.is_neg())


def _array(storage: torch.UntypedStorage, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    array: np.ndarray = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
    return array.view(dtype).reshape(shape)


def _note_fork() -> None:
    for reference in _users.keyrefs():  # a copy, because another thread might add an entry
        for slot in list(getattr(reference(), "slots", {}).values()):
            slot.note_fork()


os.register_at_fork(before=_note_fork)
