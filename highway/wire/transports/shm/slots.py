"""The shared memory of a same-host link's sender: slots, and the pool of slots.

A slot is a memfd: memory with a descriptor and without a name. The system frees it when all processes that hold it have ended, even if they
were killed. A seal prevents shrinking, so a receiver's view never loses its pages. Another seal prevents other processes from writing,
unless the receiver belongs to this program.
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
_LEAST = 1 << 16  # minimum bytes of a slot: small messages share one size
_FUTURE_WRITE = 0x10  # F_SEAL_FUTURE_WRITE, linux/fcntl.h: nobody else maps it writable or writes to it; since Linux 5.1


def check_platform() -> None:
    """Raise ConfigError if there are no memfds."""
    if not hasattr(os, "memfd_create"):
        raise ConfigError(f"same-host links (+shm) need Linux's memfd, and this is {sys.platform}; use +ipc instead")


class MemorySlot:
    """A slot of a sender's shared memory.

    Args:
        number: The number at the sender; never used again.
        size: Bytes, a multiple of the page size.
        writable: Whether the receiver may write to the slot, too.

    Attributes:
        memory: The memory for a message's frames.

    Raises:
        LinkError: there is no memory or descriptor for the slot.
    """

    def __init__(self, number: int, size: int, writable: bool = False) -> None:
        self.number, self.size = number, size
        try:
            self.fd = os.memfd_create("highway", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            try:
                os.posix_fallocate(self.fd, 0, size)  # otherwise a lack of memory would cause SIGBUS while writing
                self.memory = mmap.mmap(self.fd, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
                _seal(self.fd, writable)
            except BaseException:
                os.close(self.fd)
                raise
        except OSError as error:
            raise LinkError(
                f"no shared memory of {size / 1e6:.1f} MB: {error.strerror}; give the process more memory or descriptors "
                "(ulimit -n), or the link a smaller ?budget_mb="
            ) from error

    def close(self) -> None:
        """Release the slot. A receiver that has mapped the slot keeps the memory."""
        self.memory.close()
        os.close(self.fd)


class Pool:
    """The slots of a sender. It creates slots on demand, within limits on bytes and number, and reuses returned slots.

    Args:
        budget: Maximum bytes of all slots, rounded up to whole pages. One slot may take half, so that there is room for a message
            while receivers hold others.
        most: Maximum number of slots.
        writable: Whether receivers may write to the slots, too.
    """

    def __init__(self, budget: int, most: int = MOST_SLOTS, writable: bool = False) -> None:
        self._most, self._writable = most, writable
        self.largest = -(-budget // (2 * _PAGE)) * _PAGE
        self.budget = 2 * self.largest
        self.dropped: list[int] = []  # numbers of dropped slots; the user of the pool empties this list
        self._free: list[MemorySlot] = []  # the last slot was used most recently, and is probably in the caches
        self._made = self._count = self._bytes = 0

    def reuse(self, nbytes: int) -> MemorySlot | None:
        """Return a free slot that is large enough, but not much too large. ``None``: there is no such slot."""
        most = most_for(nbytes)
        for position in range(len(self._free) - 1, -1, -1):
            if nbytes <= self._free[position].size <= most:
                return self._free.pop(position)
        return None

    def make(self, nbytes: int) -> MemorySlot | None:
        """Return a new slot. If necessary, drop free slots of other sizes. ``None``: the slots in use leave no room."""
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
        """Take back a slot that has no reader any more."""
        self._free.append(slot)

    def drop(self, slot: MemorySlot) -> None:
        """Release a slot that may still have readers."""
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
        with contextlib.suppress(OSError):  # an older Linux does not know it
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _FUTURE_WRITE)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)


def most_for(nbytes: int) -> int:
    """Return the maximum size in bytes of a slot for a message of ``nbytes``."""
    return max(2 * nbytes, _LEAST)


def _rounded(nbytes: int) -> int:
    """Round up by at most an eighth, so that messages of similar size can use the same slot."""
    step = max(_PAGE, 1 << max(0, nbytes.bit_length() - 4))
    return max(_LEAST, -(-nbytes // step) * step)
