"""Send objects between a process and its child, in order. Small objects go through a socket, large objects through shared memory."""

from __future__ import annotations

import math
import pickle
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, Final

from highway.children.pickling import unpack
from highway.engine.cancel import check_cancelled
from highway.errors import LinkError
from highway.process.aligned import aligned_bytes
from highway.wire.transports.shm import ShmReceiver, ShmSender

INLINE: Final = 1 << 14  # bytes of a pickle and its arrays: up to this size, two copies are faster than a slot of shared memory
KINDS: Final = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_SEQPACKET)  # types of the sockets between parent and child

Record = tuple[Any, list[bytes]] | None
"""A pickled object and the memory of its arrays; ``None`` if the object is the next message in shared memory."""

_LENGTH = struct.Struct("<I")
_TICK = struct.pack("ll", 0, 100_000)  # a timeval: 0.1 s between checks whether the stage was cancelled
_AT_ONCE = 1 << 18  # maximum bytes of one read


class Full(Exception):
    """There is no room in shared memory at the moment."""


def size(frames: Sequence[Any]) -> int:
    """Return the bytes of a pickle and its arrays."""
    return sum([memoryview(frame).nbytes for frame in frames]) if len(frames) > 1 else len(frames[0])


class ObjectLink:
    """One end of the connection between a process and its child. Only one thread is allowed to use it.

    A message contains only Python's built-in types. A message refers to other objects by records (:data:`Record`). A receiver reads all
    available messages with one system call.

    Args:
        who: The start of error messages.
        sockets: The sockets of this end, with the types in :data:`KINDS`: for messages, objects to the child, and objects to the parent.
        budget_mb: Megabytes of shared memory for the objects that this end sends.
        is_child: Whether this is the child's end.
    """

    def __init__(self, who: str, sockets: Sequence[socket.socket], budget_mb: float, is_child: bool = False) -> None:
        self._who = who
        self._sock, to_child, to_parent = sockets
        if not is_child:  # the child is never cancelled
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TICK)
        self._sender, self._receiver = ShmSender(who, budget_mb), ShmReceiver(who)
        self._sender.connections.adopt(to_parent if is_child else to_child)
        self._receiver.connections.adopt(to_child if is_child else to_parent)
        self._read = b""  # the start of an incomplete message

    @property
    def is_over(self) -> bool:
        """Whether the other end of the shared memory is closed. If so, an object is not the cause of a LinkError."""
        return self._sender.connections.is_over

    def record(self, frames: list[Any], wait: bool = True) -> Record:
        """Turn the frames of an object (see ``pack()``) into a record for a message. A large object is copied into shared memory.

        Args:
            frames: The pickle and the memory of arrays.
            wait: Whether to wait for room in shared memory.

        Raises:
            Full: there is no room, and ``wait`` is false.
            LinkError: the object exceeds the budget, memory is short, or the other end is closed.
        """
        if len(frames) == 1 and len(frames[0]) <= INLINE:
            return frames[0], []
        if size(frames) <= INLINE:
            return frames[0], [bytes(frame) for frame in frames[1:]]
        try:
            self._sender.send(frames, None if wait else 0.0)
        except TimeoutError as error:
            raise Full from error
        return None

    def value(self, record: Record) -> Any:
        """Return the object of a record. Its arrays are read-only and aligned to 64 bytes. Call this method for each record, in order.

        Raises:
            Exception: the object cannot be unpickled.
        """
        if record is None:
            return unpack(self._receiver.recv())
        data, buffers = record
        return unpack([data, *map(aligned_bytes, buffers)] if buffers else [data])

    def send(self, message: Any) -> None:
        """Send a message.

        Raises:
            LinkError: the other end is gone.
        """
        data = pickle.dumps(message, 5)
        try:
            self._sock.sendall(_LENGTH.pack(len(data)) + data)
        except ConnectionError as error:
            raise LinkError(f"{self._who}: the other process has closed the connection") from error

    def receive(self, deadline: float = math.inf) -> list[Any]:
        """Wait until messages arrive, and return all of them. If none arrives before ``deadline``, return an empty list.

        Args:
            deadline: The time at which to stop waiting, as ``time.monotonic()``.

        Raises:
            LinkError: the other end is closed, and all its messages were received.
        """
        while True:
            self._receiver.expect()
            try:
                data = self._sock.recv(_AT_ONCE)
            except BlockingIOError:
                check_cancelled()
                if time.monotonic() >= deadline:
                    return []
                continue
            except ConnectionError:
                data = b""
            if not data:
                raise LinkError(f"{self._who}: the other process has closed the connection")
            if messages := self._complete(self._read + data if self._read else data):
                return messages

    def close(self) -> None:
        """Close this end. Received objects stay valid. Closing again does nothing."""
        self._sock.close()
        self._sender.close()
        self._receiver.close()

    def _complete(self, data: bytes) -> list[Any]:
        """Return the complete messages, and keep the bytes after them for the next call."""
        messages, begin, end = [], 0, len(data)
        while end - begin >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, begin)
            if end - begin < _LENGTH.size + length:
                break
            begin += _LENGTH.size + length
            messages.append(pickle.loads(data[begin - length : begin]))  # a memoryview would be slower
        self._read = data[begin:]
        return messages
