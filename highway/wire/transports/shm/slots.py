"""The shared memory of a same-host link's sender: slots, and the pool of slots.

A slot is a memfd: memory with a descriptor, but without a name. The system frees the memory when all processes that hold the descriptor or
a mapping have ended, even if the processes were killed. A seal prevents shrinking, so that the pages of a receiver's views stay valid.
Unless the receiver belongs to this program, a second seal prevents other processes from writing (Linux 5.1 and later).
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import sys

from highway.errors import ConfigError, LinkError
from highway.wire.transports.shm.packets import MOST_SLOTS

_PAGE = 4096
_LEAST = 1 << 16  # minimum bytes of a slot, so that all small messages use slots of one size
_FUTURE_WRITE = 0x10  # F_SEAL_FUTURE_WRITE in linux/fcntl.h, since Linux 5.1: forbids new writable mappings and write(2)


def check_platform() -> None:
    """Raise ConfigError if this platform has no memfds."""
    if not hasattr(os, "memfd_create"):
        raise ConfigError(f"same-host links (+shm) need memfd_create, which this system ({sys.platform}) lacks; use +ipc instead")


class MemorySlot:
    """A slot of a sender's shared memory.

    Args:
        number: Number of the slot at the sender. The sender never reuses a number.
        size: Size in bytes, a multiple of the page size.
        writable: Whether the receiver is also allowed to write to the slot.

    Attributes:
        memory: The memory for a message's frames.

    Raises:
        LinkError: the system has no memory or descriptor for the slot.
    """

    def __init__(self, number: int, size: int, writable: bool = False) -> None:
        self.number, self.size = number, size
        try:
            self.fd = os.memfd_create("highway", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            try:
                os.posix_fallocate(self.fd, 0, size)  # without this call, a lack of memory would cause SIGBUS on a write
                self.memory = mmap.mmap(self.fd, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
                _seal(self.fd, writable)
            except BaseException:
                os.close(self.fd)
                raise
        except OSError as error:
            raise LinkError(
                f"cannot allocate {size / 1e6:.1f} MB of shared memory: {error.strerror}; give the process more memory or descriptors "
                f"(ulimit -n), or set a smaller ?budget_mb= for the link"
            ) from error

    def close(self) -> None:
        """Release the slot. A receiver that has mapped the slot keeps the memory."""
        self.memory.close()
        os.close(self.fd)


class Pool:
    """The slots of a sender. The pool creates slots on demand, up to a limit of bytes and a number of slots, and reuses returned slots.

    Args:
        budget: Maximum bytes of all slots, rounded up to whole pages. One slot can take half of the budget, so that there is room for a
            message while receivers hold other messages.
        most: Maximum number of slots.
        writable: Whether receivers are also allowed to write to the slots.
    """

    def __init__(self, budget: int, most: int = MOST_SLOTS, writable: bool = False) -> None:
        self._most, self._writable = most, writable
        self.largest = -(-budget // (2 * _PAGE)) * _PAGE
        self.budget = 2 * self.largest
        self.dropped: list[int] = []  # numbers of dropped slots; the sender empties this list
        self._free: list[MemorySlot] = []  # the last slot was used most recently, so it is probably in the CPU's caches
        self._made = self._count = self._bytes = 0

    def reuse(self, nbytes: int) -> MemorySlot | None:
        """Return a free slot that is large enough, but not much too large; ``None`` if there is no such slot."""
        most = most_for(nbytes)
        for position in range(len(self._free) - 1, -1, -1):
            if nbytes <= self._free[position].size <= most:
                return self._free.pop(position)
        return None

    def make(self, nbytes: int) -> MemorySlot | None:
        """Return a new slot.

        If necessary, drop free slots. Return ``None`` if the slots in use leave no room. Raises the errors of :class:`MemorySlot`.
        """
        size = min(_rounded(nbytes), self.largest)
        used = self._bytes - sum(slot.size for slot in self._free)
        if used + size > self.budget or self._count - len(self._free) >= self._most:
            return None
        while self._bytes + size > self.budget or self._count >= self._most:
            self.drop(self._free.pop(0))
        slot = MemorySlot(self._made, size, self._writable)
        self._made += 1
        self._count += 1
        self._bytes += size
        return slot

    def put(self, slot: MemorySlot) -> None:
        """Make a slot free, because no receiver reads it any more."""
        self._free.append(slot)

    def drop(self, slot: MemorySlot) -> None:
        """Remove a slot from the pool. Receivers that have mapped the slot can still read it."""
        self._count -= 1
        self._bytes -= slot.size
        self.dropped.append(slot.number)
        slot.close()

    def close(self) -> None:
        """Release the free slots."""
        while self._free:
            self.drop(self._free.pop())


def _seal(fd: int, writable: bool) -> None:
    if not writable:
        with contextlib.suppress(OSError):  # an older Linux does not support this seal
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _FUTURE_WRITE)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)


def most_for(nbytes: int) -> int:
    """Return the maximum size in bytes of a slot that is used for a message of ``nbytes``."""
    return max(2 * nbytes, _LEAST)


def _rounded(nbytes: int) -> int:
    """Round up a size by at most an eighth, so that messages of similar size can use the same slot."""
    step = max(_PAGE, 1 << max(0, nbytes.bit_length() - 4))
    return max(_LEAST, -(-nbytes // step) * step)
