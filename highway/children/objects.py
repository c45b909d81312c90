"""How objects travel between a process and its child: small ones through a socket, large ones in shared memory, all in one order."""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Sequence
from typing import Any, Final

from highway.children.pickling import unpack
from highway.engine.cancel import check_cancelled
from highway.errors import LinkError
from highway.process.aligned import aligned_bytes
from highway.wire.transports.shm import ShmReceiver, ShmSender

INLINE: Final = 1 << 14  # bytes of a pickle with its arrays: up to here copying them twice is quicker than a slot of shared memory
KINDS: Final = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_SEQPACKET)  # of the sockets between a parent and its child

Record = tuple[Any, list[bytes]] | None
"""A pickled object and the memory of its arrays; ``None`` if they are the next message in shared memory."""

_LENGTH = struct.Struct("<I")
_TICK = struct.pack("ll", 0, 100_000)  # a timeval: 0.1 s between two looks at whether the stage was cancelled
_AT_ONCE = 1 << 18  # bytes


class Full(Exception):
    """There is no room in shared memory now."""


def size(frames: Sequence[Any]) -> int:
    """Return the bytes of a pickle with its arrays."""
    return sum([memoryview(frame).nbytes for frame in frames]) if len(frames) > 1 else len(frames[0])


class ObjectLink:
    """One end of the way between a process and its child. For one thread.

    Messages are what ``pickle`` can make of Python's own types; other objects are in their records. The other end reads at once all that
    has come meanwhile, so that many small messages cost it one look at the socket, and none waits for others.

    Args:
        who: How messages call whoever needs it.
        sockets: This end's, of :data:`KINDS`; in the parent the second is for what goes to the child.
        budget_mb: Megabytes of shared memory that may be in use by what this end sends.
        is_child: Whether this is the child's end.
    """

    def __init__(self, who: str, sockets: Sequence[socket.socket], budget_mb: float, is_child: bool = False) -> None:
        self._who = who
        self._sock, to_child, to_parent = sockets
        if not is_child:  # which is never cancelled
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TICK)
        self._sender, self._receiver = ShmSender(who, budget_mb), ShmReceiver(who)
        self._sender.connections.adopt(to_parent if is_child else to_child)
        self._receiver.connections.adopt(to_child if is_child else to_parent)
        self._read = b""  # the begin of a message

    @property
    def is_over(self) -> bool:
        """Whether the shared memory of the other end is gone, so that an error of its link is no error of what was sent."""
        return self._sender.connections.is_over

    def record(self, frames: list[Any], wait: bool = True) -> Record:
        """Return what ``pack()`` has made of an object as a part of messages; a large one goes into shared memory now.

        Args:
            frames: The pickle and the memory of arrays.
            wait: Whether to wait for room in shared memory.

        Raises:
            Full: there is no room, and it does not wait.
            LinkError: it is larger than the budget allows, or memory is short, or the other end is gone.
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
        """Return the object of a record, with arrays that are read-only and aligned to 64 bytes. Records are taken in their order.

        Raises:
            Exception: it cannot be made here.
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
            raise LinkError(f"{self._who}: the other process is gone") from error

    def receive(self) -> list[Any]:
        """Wait for messages, and return all that have come.

        Raises:
            LinkError: the other end is gone, and all that it has sent was received.
        """
        while True:
            self._receiver.expect()
            try:
                data = self._sock.recv(_AT_ONCE)
            except BlockingIOError:
                check_cancelled()
                continue
            except ConnectionError:
                data = b""
            if not data:
                raise LinkError(f"{self._who}: the other process is gone")
            if messages := self._complete(self._read + data if self._read else data):
                return messages

    def close(self) -> None:
        """Leave; what was received stays valid. Closing again does nothing."""
        self._sock.close()
        self._sender.close()
        self._receiver.close()

    def _complete(self, data: bytes) -> list[Any]:
        """Return the messages that are whole, and keep the rest."""
        messages, begin, end = [], 0, len(data)
        while end - begin >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, begin)
            if end - begin < _LENGTH.size + length:
                break
            begin += _LENGTH.size + length
            messages.append(pickle.loads(data[begin - length : begin]))  # a memoryview would take longer
        self._read = data[begin:]
        return messages
