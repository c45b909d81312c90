"""The sending end of a same-host link.

A *slot* is a piece of shared memory for one message.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any

from highway.engine.cancel import check_cancelled
from highway.engine.context import here
from highway.errors import FrameError, LinkError
from highway.wire.transports.protocol import Peers, deadline_of
from highway.wire.transports.shm import message, packets, same_thread
from highway.wire.transports.shm.connections import RETRY, Connections
from highway.wire.transports.shm.packets import HOT, LARGEST, QUIET, SOON, pack, unpack_slots
from highway.wire.transports.shm.slots import MemorySlot, Pool, check_platform
from highway.wire.url import Link

log = logging.getLogger("highway")

MEGABYTE = 1e6


class ShmSender:
    """The sending end of a same-host link. Call ``listen``, ``connect`` or ``adopt`` of ``connections`` to establish a connection.

    Use the sender on one thread.

    Args:
        link: Name of the link in messages.
        budget_mb: Maximum megabytes of shared memory in use. One message can take half of these megabytes.
        most: Maximum number of messages in use. Receivers hold up to half of this number as views, and copy further messages.
        warns: Whether to log a warning if a receiver disconnects with unread messages.
        writable: Whether receivers are allowed to write into their messages. Use this only if the receivers belong to this program.

    Raises:
        ConfigError: this platform has no same-host links.
    """

    def __init__(
        self, link: str, budget_mb: float = 256.0, most: int = packets.MOST_SLOTS, warns: bool = True, writable: bool = False
    ) -> None:
        check_platform()
        self._warns = warns
        self.link = link
        self.lost = 0
        self._budget_mb = budget_mb
        self._pool = Pool(int(budget_mb * MEGABYTE), most, writable)
        self._looked = 0.0
        self._written = 0  # bytes written since ``_looked``
        self.connections: Connections[_Receiving] = Connections(link, packets.Hello("sender", self._pool.budget, most), _Receiving)
        self.bound = self.connections.bound

    def attach(self, link: Link) -> None:
        self.connections.attach(link)

    def peers(self) -> Peers:
        """Return the counts of connections to receivers."""
        if time.monotonic() - self._looked > SOON:
            self.look()
        return self.connections.count()

    def send(self, frames: Sequence[Any], timeout: float | None = None) -> None:
        """Copy a message into shared memory, and send it to the least busy receiver. The frames can be changed after this call.

        Raises:
            TimeoutError: there was no receiver or free slot within ``timeout`` seconds.
            LinkError: the message takes more than half of the budget, or has too many frames; memory is short; no connection exists or can
                be established; or as for ``Connections.poll``.
        """
        if timeout is not None or time.monotonic() - self._looked > SOON:
            self.look()
        self._send(frames, deadline_of(timeout))

    def send_to_each(self, frames: Sequence[Any], receivers: int = 0, timeout: float | None = None) -> None:
        """Send a message to each connected receiver. ``receivers`` has no effect. Raises the errors of :meth:`send`."""
        deadline = deadline_of(timeout)
        self.look()
        for peer in list(self.connections.peers):
            self._send(frames, deadline, peer)

    def in_use(self) -> int:
        """Return the number of messages that receivers have not read or still hold, as far as this sender knows."""
        return sum(len(peer.out) for peer in self.connections.peers)

    def unsent(self) -> int:
        """Return 0, because a sent message belongs to its receiver."""
        return 0

    def settle(self, timeout: float) -> None:
        """Do nothing, because a disconnected receiver gets no messages."""

    def unread(self) -> bool:
        """Return False, because sent messages can still be read after this end has closed."""
        return False

    def look(self, timeout: float = 0.0) -> None:
        """Wait at most ``timeout`` seconds for returned slots, or for new or lost receivers, and process what has come."""
        if same_thread.look():
            timeout = min(timeout, RETRY)
        self._take_back(self.connections.poll(timeout))
        self._looked = time.monotonic()

    def close(self, linger: float = 0.0) -> None:
        """Close this end without waiting, because receivers can still read all sent messages. Closing again does nothing."""
        for peer in self.connections.close():
            for slot in peer.out.values():
                self._pool.drop(slot)
        self._pool.close()

    def _take_back(self, peers: Sequence[_Receiving]) -> None:
        """Reclaim the slots that these receivers have returned, and remove receivers that are gone."""
        for peer in peers:
            try:
                while True:  # take all returned slots, because the last returned slots are most likely still in the CPU's caches
                    for slot in peer.returned():
                        self._pool.put(slot)
            except BlockingIOError:
                pass
            except FrameError as error:
                log.warning("%s: a receiver is disconnected: %s", self.link, str(error))
                self._lose(peer)
            except (ConnectionError, EOFError):
                self._lose(peer)
        self._written = 0

    def _send(self, frames: Sequence[Any], deadline: float, only: _Receiving | None = None) -> None:
        lengths, end = message.calls.measured(frames)
        if end > self._pool.largest or len(lengths) > packets.MOST_FRAMES:
            raise self._too_large(len(lengths), end)
        slot = self._take(end, deadline)
        try:
            message.calls.fill(slot.memory, frames, lengths)
            while only is None or (only in self.connections.peers and not only.refuses):
                peer = only or self._least_busy()
                if peer is not None and self._give(peer, slot, lengths):
                    return
                self._wait(deadline, "no receiver has room" if self.connections.peers else "there is no receiver")
        except BaseException:
            self._pool.put(slot)
            raise
        self._pool.put(slot)  # the receiver ``only`` has gone, or is leaving

    def _least_busy(self) -> _Receiving | None:
        """Return the least busy of the receivers that take messages; ``None`` if no receiver takes messages."""
        peers = self.connections.peers
        if len(peers) == 1:
            return None if peers[0].refuses else peers[0]
        return min([peer for peer in peers if not peer.refuses], key=_Receiving.load, default=None)

    def _too_large(self, frames: int, nbytes: int) -> LinkError:
        if nbytes > self._pool.largest:
            return LinkError(
                f"{self.link}: the message has {nbytes / MEGABYTE:.1f} MB; expected at most half of budget_mb={self._budget_mb:g}: set "
                f"budget_mb={nbytes * 2 / MEGABYTE + 1:.0f} for the link or in the URL (?budget_mb=), or send smaller batches"
            )
        return LinkError(
            f"{self.link}: the message has {frames} frames; expected at most {packets.MOST_FRAMES}: combine several arrays into one array"
        )

    def _take(self, nbytes: int, deadline: float) -> MemorySlot:
        self._written += nbytes
        if self._written >= HOT:
            self.connections.check()
            self._take_back(tuple(self.connections.peers))
        slot = self._pool.reuse(nbytes)
        while slot is None:
            self.look()  # reusing a returned slot is better than creating a slot
            slot = self._pool.reuse(nbytes) or self._pool.make(nbytes)
            if slot is None:
                self._wait(deadline, "receivers still use all memory of this sender")
        return slot

    def _give(self, peer: _Receiving, slot: MemorySlot, lengths: tuple[int, ...]) -> bool:
        """Send a receiver the number of a slot. Return False if the receiver has gone, or has too many packets to read."""
        peers = self.connections.peers
        if self._pool.dropped:
            for other in peers:
                other.forget(self._pool.dropped)
            self._pool.dropped.clear()
        try:
            peer.tell(slot, len(peers), lengths)
            return True
        except BlockingIOError:
            return False
        except BrokenPipeError:  # the receiver accepts no more messages, or is gone; the next check removes a receiver that is gone
            peer.refuses = True
            return False
        except ConnectionError:
            self._lose(peer)
            return False
        except OSError as error:
            raise LinkError(f"{self.link}: the shared memory cannot be shared with the receiver: {error}") from error

    def _wait(self, deadline: float, why: str) -> None:
        check_cancelled()
        if self.connections.is_over:
            raise LinkError(f"{self.link}: the receiver has disconnected")
        with here().blocked():
            self.look(packets.until(deadline, f"{self.link}: the message was not sent in time: {why}"))

    def _lose(self, peer: _Receiving) -> None:
        """Remove a receiver. The receiver can still read its slots, so the memory of these slots is never written again."""
        self.connections.detach(peer)
        for slot in (*peer.out.values(), *peer.kept):
            self._pool.drop(slot)
        if peer.out:
            self.lost += len(peer.out)
        if peer.out and self._warns:
            log.warning("%s: a receiver disconnected before it had released %d messages, which may be lost", self.link, len(peer.out))


class _Receiving:
    """The sender's record of a receiver."""

    def __init__(self, sock: socket.socket, hello: packets.Hello) -> None:
        self.sock, self._post = sock, message.calls.poster(sock)
        self.out: dict[int, MemorySlot] = {}  # slots that the receiver has not given back
        self.kept: list[MemorySlot] = []  # slots that the receiver has read, and still held when it left
        self.refuses = False
        self._told = 0
        self._known: set[int] = set()
        self._forget: list[int] = []

    def __del__(self) -> None:
        self.sock.close()

    def load(self) -> tuple[int, int]:
        return len(self.out), self._told

    def tell(self, slot: MemorySlot, receivers: int, lengths: tuple[int, ...]) -> None:
        number = slot.number
        packet = pack(number, receivers, lengths, tuple(self._forget) if self._forget else ())
        if number in self._known:
            self._post(packet)
        else:
            self.sock.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packets.DESCRIPTOR.pack(slot.fd))], QUIET)
            self._known.add(number)
        if self._forget:
            self._forget.clear()
        self._told += 1
        self.out[number] = slot

    def forget(self, numbers: Iterable[int]) -> None:
        known = self._known.intersection(numbers)
        self._known -= known
        self._forget += known

    def returned(self) -> list[MemorySlot]:
        try:
            packet = self.sock.recv(LARGEST)
        except ConnectionResetError:  # the receiver died with unread packets; the error comes once, and then its packets can be read
            packet = self.sock.recv(LARGEST)
        if not packet:
            raise EOFError
        numbers = unpack_slots(packet)
        if numbers[0] & packets.KEPT:
            self.kept = [self.out.pop(number & ~packets.KEPT) for number in numbers if number & ~packets.KEPT in self.out]
            raise EOFError
        if not self.out.keys() >= set(numbers) or len(set(numbers)) < len(numbers):
            raise FrameError("it released a slot that it had not received, or released a slot twice")
        return [self.out.pop(number) for number in numbers]
