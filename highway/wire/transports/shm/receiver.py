"""The receiving end of a same-host link."""

from __future__ import annotations

import itertools
import logging
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import partial

from highway.engine.cancel import check_cancelled
from highway.engine.context import here, in_stage
from highway.errors import FrameError, LinkError
from highway.wire.transports.protocol import Frame, Peers, SourceAddress, deadline_of
from highway.wire.transports.shm import message, packets, same_thread
from highway.wire.transports.shm.connections import Connections
from highway.wire.transports.shm.message import places
from highway.wire.transports.shm.packets import HOT, QUIET, SELDOM, SOON, TICK, unpack
from highway.wire.transports.shm.slots import check_platform
from highway.wire.transports.shm.views import Mapping, copy, lend
from highway.wire.url import Link

log = logging.getLogger("highway")

_numbers = itertools.count()  # identifiers of connections


class ShmReceiver:
    """The receiving end of a same-host link. Call ``listen``, ``connect`` or ``adopt`` of ``connections`` to establish a connection.

    Use the receiver on one thread. Views of received messages can be used on any thread.

    Args:
        link: Name of the link in messages.
        writable: Whether received messages are writable. Use this only if the sender belongs to this program and allows writing.

    Raises:
        ConfigError: this platform has no same-host links.
    """

    def __init__(self, link: str, writable: bool = False) -> None:
        check_platform()
        self.link = link
        self._ready: deque[_Sending] = deque()  # senders from which a message might have arrived
        self._looked = 0.0
        self._is_paired = False
        self.thread = same_thread.ident()
        self._source = SourceAddress(0)
        self.connections: Connections[_Sending] = Connections(link, packets.Hello("receiver"), partial(_Sending, writable=writable))
        self.bound = self.connections.bound

    def attach(self, link: Link) -> None:
        self.connections.attach(link)

    def pair(self, sock: socket.socket) -> None:
        """Use an existing connection as the only connection."""
        self._is_paired = True
        self.connections.adopt(sock)

    def peers(self) -> Peers:
        """Return the counts of connections to senders."""
        if time.monotonic() - self._looked > SOON:
            self.look()
        return self.connections.count()

    def recv(self, timeout: float | None = None) -> list[memoryview]:
        """Return the frames of the next message. Senders are read in turn.

        The frames are views of the sender's memory, aligned to 64 bytes, and read-only unless ``writable``. The sender reuses the memory
        after the last view is deleted. The receivers can hold half of the sender's memory and half of the sender's slots, in equal shares.
        If the views would exceed this receiver's share, the frames are views of a copy. So a consumer that keeps messages does not block
        the sender.

        Raises:
            TimeoutError: no message came within ``timeout`` seconds.
            LinkError: a message's memory cannot be mapped; no connection exists or can be established; or as for ``Connections.poll``.
        """
        deadline = deadline_of(timeout)
        if self._is_paired and self.connections.peers:
            self._ready.extend(() if self._ready else self.connections.peers)
        elif (timeout is not None and timeout < SOON) or time.monotonic() - self._looked > SOON:
            self.look()
        while True:
            while self._ready:
                peer = self._ready[0]
                try:
                    frames = peer.receive()
                except BlockingIOError:
                    self._ready.popleft()
                except (ConnectionError, EOFError):
                    self._lose(peer)
                except FrameError as error:
                    log.warning("%s: a sender is disconnected: %s", self.link, str(error))
                    self._lose(peer)
                else:
                    if len(self._ready) > 1:
                        self._ready.rotate(-1)
                    self._source = peer.source
                    return frames
            self._wait(deadline)

    def look(self, timeout: float = 0.0) -> None:
        """Wait at most ``timeout`` seconds for a message, or for a new or lost sender, and process what has come."""
        for peer in self.connections.poll(timeout):
            if peer not in self._ready:
                self._ready.append(peer)
        self._looked, self.thread = time.monotonic(), same_thread.ident()

    def refuse(self) -> None:
        """Make the senders use other receivers. Messages that were sent before can still be received."""
        self.look()
        for peer in self.connections.peers:
            with suppress(OSError):  # the sender has gone
                peer.sock.shutdown(socket.SHUT_RD)

    def expect(self) -> None:
        """From now on, return slots as soon as they are free. Call this method before the thread waits for anything other than messages."""
        for peer in self.connections.peers:
            peer.expect()

    def source(self, frames: Sequence[Frame]) -> SourceAddress:
        """Return the source of the last received message."""
        return self._source

    def times_used(self, connection: Hashable) -> int:
        """Return 1, because identifiers of connections are not reused."""
        return 1

    def close(self, linger: float = 0.0) -> None:
        """Close this end. Views of received messages stay valid. Unread messages are lost. Closing again does nothing."""
        for peer in self.connections.peers:
            peer.goodbye()
        self.connections.close()
        self._ready.clear()
        same_thread.discard(self)

    def _wait(self, deadline: float) -> None:
        check_cancelled()
        if self.connections.is_over:
            raise LinkError(f"{self.link}: the sender has disconnected")
        self.expect()
        late = f"{self.link}: no message arrived in time; {len(self.connections.peers)} senders are connected"
        try:
            with here().starved():
                self.look(packets.until(deadline, late, TICK if in_stage() else SELDOM))
        finally:
            for peer in self.connections.peers:
                peer.is_expected = False

    def _lose(self, peer: _Sending) -> None:
        self._ready.remove(peer)
        peer.goodbye()  # all messages have been read; the sender may still run, and use other receivers
        self.connections.detach(peer)


class _Sending:
    """The receiver's record of a sender. Views of messages refer to this object, so the socket is closed after the last view is deleted."""

    _is_exiting = staticmethod(sys.is_finalizing)  # an attribute, because at exit the module's names are deleted before the last views

    def __init__(self, sock: socket.socket, hello: packets.Hello, writable: bool) -> None:
        self.sock, self._writable = sock, writable
        self._read = message.calls.reader(sock)
        self.source = SourceAddress(next(_numbers))
        self._pid = os.getpid()
        self.is_expected = False  # whether the receiver sleeps until this sender sends
        self._share = hello.budget // 2, hello.most // 2
        self._most = min(hello.most, packets.MOST_SLOTS)
        self._slots: dict[int, Mapping] = {}
        self._largest = 0  # bytes of the largest slot so far
        self._held: dict[int, int] = {}  # numbers of the slots that views hold -> sizes in bytes
        self._returned: deque[int] = deque()
        self._owed = 0  # bytes of the slots in ``_returned``; approximate, because several threads can add at the same time

    def __del__(self) -> None:
        self.sock.close()

    def receive(self) -> list[memoryview]:
        try:
            packet, fds, is_lost = self._read()
        except ConnectionResetError:  # the sender died with unread packets; the error comes once, and then its messages can be read
            packet, fds, is_lost = self._read()
        if not packet:
            raise EOFError
        if not fds and not is_lost:
            number, receivers, lengths, _ = self._understood(packet)
        else:
            number, receivers, lengths, _ = self._with_memory(packet, fds, is_lost)
        mapping = self._slots.get(number)
        if mapping is None:
            raise FrameError(f"slot {number} was announced without its descriptor")
        if number in self._held:
            raise FrameError(f"slot {number} was announced again before it was given back")
        if self._is_too_much(mapping.size, receivers):
            frames = copy(mapping, lengths)
            self._give_back(number)
            return frames
        self._held[number] = mapping.size
        return lend(mapping, lengths, self._give_back, number)

    def _understood(self, packet: bytes) -> packets.Announcement:
        announced = unpack(packet)
        for number in announced.forget:
            self._slots.pop(number, None)
        return announced

    def _with_memory(self, packet: bytes, fds: list[int], is_lost: bool) -> packets.Announcement:
        """Map the slot of a message if the slot is new, close the received descriptors, and return the content of the packet."""
        try:
            number, _, lengths, _ = announced = self._understood(packet)
            if len(fds) > 1:
                raise FrameError(f"{len(fds)} descriptors came with one message; expected at most one")
            if is_lost:
                raise LinkError("this process has no free file descriptor for the sender's memory; raise the limit (ulimit -n)")
            if number in self._slots or len(self._slots) >= self._most:
                raise FrameError(
                    f"slot {number} is announced as new, but the sender already has {len(self._slots)} of at most {self._most} slots"
                )
            self._slots[number] = mapping = Mapping(fds[0], places(lengths)[1], self._writable)
            self._largest = max(self._largest, mapping.size)
        finally:
            for fd in fds:
                os.close(fd)
        return announced

    def expect(self) -> None:
        """Give the free slots back to the sender now, and each other slot as soon as it is free."""
        self.is_expected = True  # set before _flush(), so that a thread that appends afterwards sees the flag
        self._flush()

    def goodbye(self) -> None:
        """Report the slots that views still hold, so that the sender does not count these slots as lost."""
        if os.getpid() == self._pid:
            self._flush()
            if held := list(self._held):
                with suppress(OSError):
                    self.sock.send(packets.pack_slots([number | packets.KEPT for number in held]), QUIET)

    def _is_too_much(self, size: int, receivers: int) -> bool:
        nbytes, count = self._share
        if (most := (len(self._held) + 1) * receivers) * self._largest <= nbytes:
            return most > count
        held = list(self._held.values())  # list() is one step, which no finalizer on another thread can interrupt
        return (sum(held) + size) * receivers > nbytes or (len(held) + 1) * receivers > count

    def _give_back(self, number: int) -> None:
        """Give a slot back. Runs as a finalizer, on any thread, so this method never blocks, takes no lock and raises nothing."""
        if self._is_exiting() or os.getpid() != self._pid:  # in a forked child, the view of the parent can still exist
            return
        self._owed += self._held.pop(number, 0)
        self._returned.append(number)
        if self.is_expected or self._owed >= HOT or len(self._returned) * 4 >= len(self._slots):
            self._flush()

    def _flush(self) -> None:
        numbers = []
        self._owed = 0
        with suppress(IndexError):
            while True:
                numbers.append(self._returned.popleft())
        if numbers:
            try:
                self.sock.send(packets.pack_slots(numbers), QUIET)
            except BlockingIOError:
                self._returned.extend(numbers)  # the next flush sends these numbers
            except OSError:
                return  # the sender has gone, but its unread packets need the mapped slots
