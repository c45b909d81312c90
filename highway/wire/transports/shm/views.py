"""The memory of a same-host link's receiver: mapped slots of a sender, and views that call a function when they are deleted."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Callable

import numpy as np

from highway.errors import FrameError, LinkError
from highway.process.aligned import aligned
from highway.wire.transports.shm import message
from highway.wire.transports.shm.message import Bytes, places
from highway.wire.transports.shm.slots import most_for

_BLOCK = 512  # bytes of the unit of ``st_blocks``, stat(2)
_SHORT = (errno.ENOMEM, errno.EMFILE, errno.ENFILE)  # this process lacks memory or descriptors; not the sender's fault


class Mapping:
    """A sender's slot in the memory of a receiver.

    Args:
        fd: The slot's descriptor.
        nbytes: Size of the message in the slot, in bytes.
        writable: Whether this process is allowed to write to the memory.

    Raises:
        FrameError: the memory can shrink, its size does not fit the message, or it is not completely allocated.
        LinkError: this process has no memory or descriptor to map the slot.
    """

    def __init__(self, fd: int, nbytes: int, writable: bool) -> None:
        self.is_writable = writable
        self.size = _checked_size(fd, nbytes)
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        try:
            self._map = mmap.mmap(fd, self.size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, prot=prot)
        except OSError as error:
            if error.errno not in _SHORT:
                raise FrameError(f"the sender's memory cannot be mapped: {error}") from None
            raise LinkError(
                f"the sender's memory cannot be mapped: {error}; check that enough memory and file descriptors (ulimit -n) are free"
            ) from error
        self.bytes: Bytes = np.frombuffer(self._map, np.uint8)
        self.memory = memoryview(self._map)


def _checked_size(fd: int, nbytes: int) -> int:
    try:
        is_sealed = bool(fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK)
    except OSError:  # the descriptor is not a memfd
        is_sealed = False
    if not is_sealed:
        raise FrameError("the sender's memory is not sealed against shrinking")
    status = os.fstat(fd)
    if not nbytes <= status.st_size <= most_for(nbytes) or not status.st_size:
        raise FrameError(f"a message of {nbytes} bytes is announced in a slot of {status.st_size} bytes")
    if status.st_blocks * _BLOCK < status.st_size:  # reading pages that were not allocated would allocate memory for this process
        raise FrameError(f"the sender announces {status.st_size} bytes of memory, but has allocated only {status.st_blocks * _BLOCK} bytes")
    return status.st_size


def lend(mapping: Mapping, lengths: tuple[int, ...], give_back: Callable[[int], object], number: int) -> list[memoryview]:
    """Return the frames of a message as views. ``give_back(number)`` is called as soon as no view of a frame is left.

    Raises:
        FrameError: the frames do not fit into the slot.
    """
    frames = message.calls.lend(mapping.memory, lengths, give_back, number)
    if frames is None:
        raise _too_much(mapping, lengths)
    return frames


def copy(mapping: Mapping, lengths: tuple[int, ...]) -> list[memoryview]:
    """Return the frames of a message as views of a copy of the message. Raises the errors of :func:`lend`."""
    found, end = places(lengths)
    if end > mapping.size:
        raise _too_much(mapping, lengths)
    memory = aligned((end,), mapping.bytes.dtype)
    memory[:] = mapping.bytes[:end]
    whole = memory.data if mapping.is_writable else memory.data.toreadonly()
    return [whole[place] for place in found]


def _too_much(mapping: Mapping, lengths: tuple[int, ...]) -> FrameError:
    return FrameError(f"{len(lengths)} frames of {sum(lengths)} bytes are announced in a slot of {mapping.size} bytes")
