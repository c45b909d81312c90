"""Sockets of ZeroMQ: the ends of links over tcp, ipc, inproc and named.

A waiting socket checks every 100 ms whether the stage was cancelled. Frames of 64 kB and more are sent and received without copies.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import zmq

from highway.engine.cancel import check_cancelled, wait
from highway.engine.context import here
from highway.errors import ItemError
from highway.wire.transports.memory import keep_freed_memory
from highway.wire.transports.protocol import Frame, Peers, SourceAddress
from highway.wire.transports.zmq import context
from highway.wire.transports.zmq.base import COPY_BELOW, BaseSocket
from highway.wire.transports.zmq.monitor import readable
from highway.wire.url import Link

log = logging.getLogger("highway")

UNDER_WAY = 3  # messages of a connection in addition to waiting messages: ZeroMQ is writing them, or has not released them yet
ROOM_AFTER = 0.001  # seconds between two checks whether messages have left
CALM = 1.0  # maximum seconds that the first message waits for closing connections
LATEST = 0.02  # maximum seconds that a publisher waits for room before it drops a message

_MORE, _NOBLOCK, _POLLIN, _POLLOUT = map(int, (zmq.SNDMORE, zmq.NOBLOCK, zmq.POLLIN, zmq.POLLOUT))  # enums would be slow
_MORE_AT_ONCE = _MORE | _NOBLOCK


class ZMQSender(BaseSocket):
    """A PUSH or PUB socket; see :class:`highway.wire.transports.protocol.TransportSender`.

    Attributes:
        send_frame: ``send_frame(frame, flags, copy)`` passes a frame to ZeroMQ. This is pyzmq's C method, because zmq.Socket.send adds 3 us
            to each call.
    """

    _option = zmq.SNDHWM

    def _waiting(self) -> AbstractContextManager[None]:
        return here().blocked()

    def __init__(self, link: Link) -> None:
        self._backlog, self._largest = Backlog(), 0
        # Within a process, a receiver refers to the sender's memory.
        self._budget = float("inf") if link.transport.within_process else link.budget_mb * 1e6
        self._is_dropping = self._told = False
        self._subscriptions = self._subscribed = 0
        super().__init__(link)
        self.socket.copy_threshold = 0  # whether to copy is an argument of each frame
        self.send_frame: Callable[..., Any] = super(zmq.Socket, self.socket).send

    def send(self, frames: Sequence[Frame], timeout: float | None = None, copy_below: int = COPY_BELOW) -> None:
        """Send a message; see :class:`highway.wire.transports.protocol.TransportSender`.

        Frames smaller than ``copy_below`` are copied, and :meth:`unsent` does not track them.
        """
        self._check_process()
        views = [memoryview(frame) for frame in frames]  # new views, because ZeroMQ refers to each view until its bytes have left
        sizes = [view.nbytes for view in views]
        nbytes, largest = sum(sizes), max(sizes)
        if largest > self._limit:
            raise ItemError(
                f"{self.link}: a frame has {largest / 1e6:.1f} MB; expected at most max_mb={self.link.options.max_mb:g}: send smaller "
                f"batches, or set ?max_mb={largest / 1e6 + 1:.0f} in the URLs of both ends"
            )
        if not self._fitted:
            self._fit_before_anything_is_sent(nbytes)
        if nbytes >= COPY_BELOW:
            copy_below = min(copy_below, largest)  # so that at least one frame is tracked
        self._largest = max(self._largest, nbytes)
        is_bounded = self._is_raised or not self.link.fans_out  # otherwise ZeroMQ's high-water mark is the limit
        if is_bounded and self._backlog.nbytes > self._budget + UNDER_WAY * self._largest and not self._make_room(timeout):
            self._sent += 1  # the message is dropped, but counts as sent
            return
        if self.link.fans_out:
            self.socket.getsockopt(zmq.EVENTS)  # lets ZeroMQ notice what subscribers have read
        while not self._send_once(views, timeout, copy_below):
            pass
        if self._left:
            self._disconnect_left()
        self._backlog.add(views, nbytes, copy_below)
        self._sent += 1

    def _fit_before_anything_is_sent(self, nbytes: int) -> None:
        """Wait until no connection is closing, and set the high-water mark for messages of this size.

        The *high-water mark* is ZeroMQ's maximum number of waiting messages. If connections open and close all the time, keep the mark, and
        limit the waiting bytes instead.
        """
        deadline = time.monotonic() + CALM
        while not self._fitted:
            is_last = time.monotonic() >= deadline  # read the clock before the attempt, because the process can be stopped for a while
            self._fit(nbytes)
            if is_last and not self._fitted:
                self._fitted = self._is_raised = True
            elif not self._fitted:
                wait(ROOM_AFTER)

    def _make_room(self, timeout: float | None) -> bool:
        """Wait until there is room for a message. A publisher waits at most ``LATEST`` seconds. Return False if there is no room.

        This wait is needed if messages are larger than the first message, because ZeroMQ's high-water mark fits the first message.
        """
        since, is_pub = time.monotonic(), self.link.fans_out
        patience = (0 if self._is_dropping else LATEST) if is_pub else float("inf")
        if timeout is not None:
            patience = min(patience, timeout)
        usual = 0 if self._is_alone else self._first_mark * self._largest  # bytes that ZeroMQ's high-water mark allows for one receiver
        allowed = max(self._budget, usual) + UNDER_WAY * self._largest
        while True:
            check_cancelled()
            _, waiting = self._waiting_messages()
            peers = self.peers()
            if waiting <= allowed * max(1, peers.live if peers else 1):
                self._is_dropping = False
                return True
            if time.monotonic() - since >= patience:
                if not is_pub:
                    raise self._timed_out("no receiver accepted a message", timeout)
                self._drop(waiting, peers)
                return False
            with self._waiting():
                wait(ROOM_AFTER)

    def _drop(self, waiting: int, peers: Peers | None) -> None:
        self._is_dropping = True
        if not self._told and (peers is None or peers.live):  # messages of closed connections are released soon
            self._told = True
            log.warning(
                "%s: %.0f MB of messages wait for slow subscribers, so all subscribers lose messages until the slow subscribers have read "
                "them. The later messages are larger than the first message; raise budget_mb, which is %g",
                self.link,
                waiting / 1e6,
                self.link.budget_mb,
            )

    def _send_once(self, views: Sequence[memoryview], timeout: float | None, copy_below: int) -> bool:
        """Send a message. Return False if the receiver left in the middle of the message. ZeroMQ then drops all frames of the message.

        If ZeroMQ notices only later that the receiver has left, all its messages to this receiver are lost, including this message.
        """
        send, (first, *rest) = self.send_frame, views
        # Poll before sending, even with a timeout of 0: pyzmq loses a Ctrl-C that comes while a non-blocking call has nothing to do.
        self._retry(_POLLOUT, timeout, "no receiver accepted a message", send, first, _MORE if rest else 0, first.nbytes < copy_below)
        whole, left = True, len(rest)
        for view in rest:
            left -= 1
            try:
                send(view, _MORE_AT_ONCE if left else _NOBLOCK, view.nbytes < copy_below)  # frames after the first never wait
            except zmq.Again:
                whole = False
        return whole

    def send_to_each(self, frames: Sequence[Frame], receivers: int, timeout: float | None = None) -> None:
        """Send a message ``receivers`` times.

        ZeroMQ sends to the receivers in turn, so each receiver gets the message once. See :meth:`TransportSender.send_to_each`.
        """
        for _ in range(receivers):
            self.send(frames, timeout, copy_below=0)

    def peers(self) -> Peers | None:
        """Return the counts of connections. A publisher returns the counts of its subscriptions, even for inproc."""
        connected = super().peers()
        if os.getpid() != self._pid:
            return connected
        if not self._sent:
            self._connect()
        if not self.link.fans_out:
            return connected
        while readable(self.socket):
            frame = self.socket.recv(copy=False)
            first = frame.bytes[:1]
            if connected is not None and first == b"\1":
                self._monitor.hear(int(frame.get(zmq.SRCFD)))
            self._subscriptions += (first == b"\1") - (first == b"\0" and self._subscriptions > 0)  # other messages are not subscriptions
            self._subscribed += first == b"\1"
        if connected is None:
            return Peers(self._subscriptions, self._subscribed, self._subscribed)
        return connected._replace(live=min(len(self._monitor.heard), self._subscriptions), seen=self._subscribed)

    def unsent(self) -> int:
        """Return the number of messages of 64 kB and more that have not left. Before the first receiver connects, all messages count."""
        peers = self.peers()
        if peers is None:
            return 0
        return self._waiting_messages()[0] if peers.seen or self.link.fans_out else self._sent

    def _waiting_messages(self) -> tuple[int, int]:
        """Return the number of messages that have not left, and their bytes.

        ZeroMQ keeps the messages of a closed connection until the program calls the socket. ``getsockopt`` is such a call. Otherwise, a
        sender that only waits would wait for these messages forever.
        """
        self.socket.getsockopt(zmq.EVENTS)
        return self._backlog.count()

    def settle(self, timeout: float) -> None:
        """Wait until ZeroMQ passes no more messages to closed connections. ZeroMQ reports the end of a connection earlier."""
        with contextlib.suppress(zmq.ZMQError):  # there is no free descriptor
            context.settle(timeout)
        self.socket.getsockopt(zmq.EVENTS)

    def unread(self) -> bool:
        """Return whether a receiver has unread data that is lost if this end closes.

        Data can be lost over UNIX sockets. If this end closes, the receiver's ZeroMQ can notice the end of the connection before all data
        are read, and then drops the unread data. Over TCP, the end of the connection comes after the data.
        """
        return self.peers() is not None and self._monitor.unread()


class ZMQReceiver(BaseSocket):
    """A PULL or SUB socket; see :class:`highway.wire.transports.protocol.TransportReceiver`."""

    _option = zmq.RCVHWM

    def _waiting(self) -> AbstractContextManager[None]:
        return here().starved()

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._recv: Callable[..., Frame] = super(zmq.Socket, self.socket).recv
        if not link.transport.within_process:
            keep_freed_memory()

    def refuse(self) -> None:
        """Do nothing, because senders of ZeroMQ always send to all connected receivers in turn."""

    def recv(self, timeout: float | None = None) -> list[Frame]:
        self._check_process()
        frames = self._retry(_POLLIN, timeout, "no message", self._message)
        if self._checks_user:
            self._check_user()
        if not self._fitted:
            self._fit(sum(map(len, frames)))
        if self._left:
            self._leave_behind()
        return frames

    def _leave_behind(self) -> None:
        """Disconnect from previous addresses of names as soon as all messages from these addresses are read. ZeroMQ drops unread messages.

        ZeroMQ reads connections in turn, and the high-water mark limits the waiting messages of each connection. So after ``_unread``
        further messages, all messages from previous addresses are read.
        """
        self._monitor.peers()
        if not self._left <= self._monitor.closed:
            self._unread = len(self._connected) * (self._first_mark + 1)
        self._unread -= 1
        if self._unread < 0:
            self._disconnect_left()

    def source(self, frames: Sequence[Frame]) -> SourceAddress | None:
        """Return the source, with the descriptor of the connection; see :class:`highway.wire.transports.protocol.TransportReceiver`."""
        if self.link.transport.within_process:
            return None
        return SourceAddress(int(frames[0].get(zmq.SRCFD)), _host(str(frames[0].get("Peer-Address"))))

    def times_used(self, connection: Hashable) -> int:
        """Return how many connections have had a descriptor; see :class:`highway.wire.transports.protocol.TransportReceiver`."""
        return 1 if self.peers() is None else self._monitor.times_used(connection)

    def _message(self) -> list[Frame]:
        receive = self._recv
        frames = [frame := receive(0, False)]
        while frame.more:
            frames.append(frame := receive(0, False))
        return frames


def _host(address: str) -> str:
    """Return the host in ZeroMQ's ``Peer-Address``; empty for a UNIX socket, whose ``Peer-Address`` is ``localhost:UID:GID:PID``."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return ""
    return address.removeprefix("::ffff:")


class Backlog:
    """The messages that have not left this process. A message has left when ZeroMQ has released the memory of its last tracked frame.

    Attributes:
        nbytes: Upper limit of the bytes that have not left. :meth:`count` and :meth:`add` update this limit.
    """

    def __init__(self) -> None:
        self._messages: deque[tuple[weakref.ref[memoryview], int]] = deque()  # (last tracked frame of a message, bytes of the message)
        self.nbytes = 0

    def add(self, views: Sequence[memoryview], nbytes: int, copied_below: int) -> None:
        """Note a sent message. A message whose frames were all copied is not tracked."""
        for view in reversed(views):
            if view.nbytes >= copied_below:
                self._messages.append((weakref.ref(view), nbytes))
                self.nbytes += nbytes
                break
        while self._messages and self._messages[0][0]() is None:
            self.nbytes -= self._messages.popleft()[1]

    def count(self) -> tuple[int, int]:
        """Return the number of messages that have not left, and their bytes."""
        self._messages = deque(message for message in self._messages if message[0]() is not None)
        self.nbytes = sum(nbytes for _, nbytes in self._messages)
        return len(self._messages), self.nbytes
