"""The functions that run for each message of a same-host link: copy frames into a slot, send and read packets, return views of a slot.

A *slot* is a piece of shared memory for one message.

If the C extension was built, the functions are in C, otherwise in Python. Both have the same results.
"""

from __future__ import annotations

import logging
import mmap
import socket
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from highway.process.aligned import ALIGNMENT
from highway.wire.transports.shm.packets import ANCILLARY, CLOSE_ON_EXEC, DESCRIPTOR, DESCRIPTOR_LOST, LARGEST, QUIET

log = logging.getLogger("highway")

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
Packet = tuple[bytes, list[int], bool]  # the bytes, the received descriptors, and whether a descriptor was lost

_EXTENSION_API = 1  # version of the extension's interface
_BRIEF = 1 << 17  # maximum bytes to copy without releasing the GIL, because acquiring the GIL again can take longer than the copy
_BYTE = np.dtype(np.uint8)


@lru_cache(1024)  # a stream repeats the same few lengths
def places(lengths: tuple[int, ...]) -> tuple[list[slice], int]:
    """Return the byte offsets of frames of these lengths in a slot, and the total size in bytes."""
    found, end = [], 0
    for length in lengths:
        found.append(slice(end, end + length))
        end += -(-length // ALIGNMENT) * ALIGNMENT
    return found, end


class Calls(NamedTuple):
    """The functions that exist in C and in Python.

    Args:
        measured: Returns the lengths of frames, and the bytes that the frames need in a slot.
        fill: Copies frames of the measured lengths into a slot. Releases the GIL if the frames have more than 128 kB.
        lend: Returns the frames of a message as views of the memory, or ``None`` if the frames do not fit into the memory. When the last
            view is deleted, ``give_back(number)`` is called. This can happen on any thread, also during a garbage collection.
        poster: Takes a socket, and returns a function that sends a packet without waiting. The returned function can raise OSError. Use it
            only while the socket is open.
        reader: Takes a socket, and returns a function that reads the next packet. The returned function can raise OSError. Use it only
            while the socket is open.
    """

    measured: Callable[[Sequence[Any]], tuple[tuple[int, ...], int]]
    fill: Callable[[mmap.mmap, Sequence[Any], tuple[int, ...]], None]
    lend: Callable[[memoryview, tuple[int, ...], Callable[[int], object], int], list[memoryview] | None]
    poster: Callable[[socket.socket], Callable[[bytes], object]]
    reader: Callable[[socket.socket], Callable[[], Packet]]


class BorrowedBytes(Bytes):
    """The bytes of one message in a slot. All views refer to this object, which calls ``give_back`` after the last view is deleted."""

    __slots__ = ("give_back", "number")
    give_back: Callable[[int], object]
    number: int

    def __del__(self) -> None:
        self.give_back(self.number)


def _measured(frames: Sequence[Any]) -> tuple[tuple[int, ...], int]:
    lengths = tuple([memoryview(frame).nbytes for frame in frames])
    return lengths, places(lengths)[1]


def _fill(memory: mmap.mmap, frames: Sequence[Any], lengths: tuple[int, ...]) -> None:
    for frame, length, place in zip(frames, lengths, places(lengths)[0], strict=True):
        if length > _BRIEF:
            np.frombuffer(memory, np.uint8)[place] = np.frombuffer(frame, np.uint8)  # numpy releases the GIL while it copies
        else:
            memory[place] = frame


def _lend(memory: memoryview, lengths: tuple[int, ...], give_back: Callable[[int], object], number: int) -> list[memoryview] | None:
    found, end = places(lengths)
    if end > memory.nbytes:
        return None
    borrowed = BorrowedBytes((end,), _BYTE, memory)
    borrowed.give_back, borrowed.number = give_back, number
    whole = borrowed.data
    return [whole[place] for place in found]


def _poster(sock: socket.socket) -> Callable[[bytes], object]:
    send = sock.send
    return lambda packet: send(packet, QUIET)


def _reader(sock: socket.socket) -> Callable[[], Packet]:
    receive = sock.recvmsg

    def read() -> Packet:
        packet, ancillary, flags, _ = receive(LARGEST, ANCILLARY, CLOSE_ON_EXEC)
        return packet, [fd for _, _, data in ancillary for (fd,) in DESCRIPTOR.iter_unpack(data)], bool(flags & DESCRIPTOR_LOST)

    return read


def built(api: int = _EXTENSION_API) -> Calls | None:
    """Return the functions of the C extension.

    Return ``None`` if the extension was not built, or if the version of its interface is not ``api``.
    """
    try:
        import highway.wire.transports.shm._message as extension
    except ImportError:
        return None
    if api != extension.API:
        log.warning("the C extension was built from another version of highway and is not used: install highway-data again")
        return None
    post, packet = extension.post, extension.packet
    return Calls(
        extension.measured,
        extension.fill,
        extension.lend,
        lambda sock: partial(post, sock.fileno()),
        lambda sock: partial(packet, sock.fileno()),
    )


IN_PYTHON = Calls(_measured, _fill, _lend, _poster, _reader)
IN_C = built()
calls = IN_C or IN_PYTHON
