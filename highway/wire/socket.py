"""Sockets of ZeroMQ; besides their context and monitors, the only module that imports ``zmq``.

Every wait lasts at most 100 ms, and then looks whether the stage was cancelled. Frames are sent and received without copies.
"""

from __future__ import annotations

import errno
import logging
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, TypeVar

import zmq

from highway.cancel import check_cancelled, wait
from highway.errors import ItemError, LinkError
from highway.wire import address, context
from highway.wire.memory import keep_freed_memory
from highway.wire.monitor import Monitor, readable
from highway.wire.transport import Frame, Peers, Source
from highway.wire.url import Link

log = logging.getLogger("highway")

T = TypeVar("T")

POLL_MS = 100  # between two looks whether the stage was cancelled
RELEASE = 0.5  # seconds that an address may take to become free: a socket that was closed lets go of it in the background
# Without time to send the rest of a message, libzmq 4.3.5 aborts the process if the receiver leaves at the same moment
# (session_base.cpp:233, its issue 3442).
LEAST_LINGER_MS = 100
COPY_BELOW = 1 << 16  # bytes; copying less is cheaper than keeping track of it
MAX_HWM = 1000  # messages that may wait at each end of a connection
USUAL_MB = 4  # a message, before the first one shows its size

# XPUB is PUB that shows who subscribes.
_TYPES = {"push": zmq.PUSH, "pull": zmq.PULL, "pub": zmq.XPUB, "sub": zmq.SUB}
_MORE, _NOBLOCK, _POLLIN = int(zmq.SNDMORE), int(zmq.NOBLOCK), int(zmq.POLLIN)  # as enums they take longer than the call
# The system asks a peer that says nothing whether it is there still: a host may vanish. In seconds; it is given up after a minute.
_KEEPALIVE = {zmq.TCP_KEEPALIVE: 1, zmq.TCP_KEEPALIVE_IDLE: 30, zmq.TCP_KEEPALIVE_INTVL: 10, zmq.TCP_KEEPALIVE_CNT: 3}


class _Base:
    """A socket, its monitor, and what the two directions share."""

    _option: int  # sets the high-water mark of this direction

    def __init__(self, link: Link) -> None:
        self.link = link
        self.bound: list[str] = []
        self._pid = os.getpid()
        self._fitted = False
        self.socket: zmq.Socket[bytes] = context.current().socket(_TYPES[link.kind])
        context.opened()
        self._monitor: Monitor | None = None
        try:
            self._configure()
            for url, location in zip(link.urls, link.locations, strict=True):
                self._attach(url, location)
        except BaseException:
            self.close(0)
            raise

    def _configure(self) -> None:
        options = self.link.options
        self.socket.linger = options.linger_ms
        self.socket.sndtimeo = self.socket.rcvtimeo = POLL_MS
        self._first_mark = _mark(options.hwm_mb / USUAL_MB)
        self.socket.setsockopt(self._option, self._first_mark)
        self.socket.maxmsgsize = self._limit = int(options.max_mb * 1e6)
        self.socket.ipv6 = any(location.startswith("[") for location in self.link.locations)
        for option, value in _KEEPALIVE.items() if self.link.transport == "tcp" else ():
            self.socket.setsockopt(option, value)
        # With several receivers to connect to, the absent ones get no share; with one, what waits survives its restart.
        self.socket.immediate = len(self.link.locations) > 1
        if self.link.kind == "sub":
            self.socket.setsockopt(zmq.SUBSCRIBE, self.link.topic.encode())
        if self.link.kind == "pub":
            self.socket.setsockopt(zmq.XPUB_VERBOSER, 1)
        if self.link.transport == "ipc" and self.link.locations[0].startswith("@"):  # no file, so that its mode keeps nobody out
            self.socket.setsockopt(zmq.IPC_FILTER_UID, os.getuid())
        if self.link.transport != "inproc":
            self._monitor = Monitor(self.socket)

    def _attach(self, url: str, location: str) -> None:
        if self.link.transport == "ipc":
            address.check_folder(url, location)
        if not self.link.bind:
            if self.link.transport == "tcp":
                address.warn_unresolved(url, location)
            self._call(self.socket.connect, url, f"{self.link.transport}://{location}")
            return
        if self.link.transport == "tcp":
            location = address.interface(url, location)
        deadline = time.monotonic() + RELEASE
        while True:
            try:
                if self.link.transport == "ipc":
                    address.check_free(url, location)
                self._call(self.socket.bind, url, f"{self.link.transport}://{location}")
                break
            except LinkError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                    raise
                wait(RELEASE / 10)
        self.bound.append(self.socket.getsockopt_string(zmq.LAST_ENDPOINT))
        if location.endswith(":0"):
            log.info("%s: bound to %s", url, self.bound[-1])

    def _call(self, method: Any, url: str, target: str) -> None:
        try:
            method(target)
        except zmq.ZMQError as error:
            way_out = address.way_out(error.errno or 0, target)
            raise LinkError(error.errno, f"{url}: cannot {method.__name__} {target}: {zmq.strerror(error.errno or 0)}{way_out}") from None

    def peers(self) -> Peers | None:
        """Return the connections; ``None`` within a process, where ZeroMQ reports none, and in a forked child."""
        if self._monitor is None or os.getpid() != self._pid:
            return None
        return self._monitor.peers()

    def close(self, linger: float) -> None:
        """Close; what has not left yet may do so within ``linger`` seconds (at least 0.1), in the background. Closing again is nothing."""
        if self.socket.closed or os.getpid() != self._pid:
            return
        if self._monitor is not None:
            self._monitor.close()
        self.socket.close(max(LEAST_LINGER_MS, int(linger * 1000)))
        context.closed()

    def _fit(self, nbytes: int) -> None:
        """Set the high-water mark, which counts messages, to what the budget allows of messages as large as the first.

        Only once, and only for connections that are open: those that come later have the mark of :meth:`_configure`, which ZeroMQ copied
        when the address was bound. To set it again and again crashes libzmq 4.3.5 when connections close meanwhile. Besides, ZeroMQ takes
        notice of what was read in steps of half a mark, so that one which changes while messages are on their way, or is raised by the
        receiver, or is 1, can leave a connection waiting for ever.
        """
        self._fitted = True
        allowed = _mark(self.link.options.hwm_mb * 1e6 / max(nbytes, 1))
        if allowed < self._first_mark or (allowed > self._first_mark and self._option == zmq.SNDHWM):
            self.socket.getsockopt(zmq.EVENTS)  # takes notice of connections, so that the mark is set for them too
            self.socket.setsockopt(self._option, allowed)

    def _retry(self, attempt: Callable[[], T], event: int, timeout: float | None, what: str) -> T:
        """Return what ``attempt`` returns, once it does not find the socket busy; it may block for ``POLL_MS``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            check_cancelled()
            left = POLL_MS if deadline is None else max(0, int((deadline - time.monotonic()) * 1000))
            try:
                if left >= POLL_MS or self.socket.poll(left, event):
                    return attempt()
            except zmq.Again:
                continue
            if deadline is not None and time.monotonic() >= deadline:
                peers = self.peers()
                there = "" if peers is None else f"; peers connected: {peers.live}"
                raise TimeoutError(f"{self.link}: {what} within {timeout:.3g} s{there}")

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise LinkError(f"{self.link} was opened in process {self._pid}; open it in the process that uses it (this is {os.getpid()})")
        if self.socket.closed:
            raise LinkError(f"{self.link} is closed")


class ZMQSender(_Base):
    """A PUSH or PUB socket; see :class:`highway.wire.transport.Sender`."""

    _option = zmq.SNDHWM

    def __init__(self, link: Link) -> None:
        self._sent = 0
        self._leaving: deque[weakref.ref[memoryview]] = deque()
        self._subscriptions = self._subscribed = 0
        super().__init__(link)
        self._send: Callable[..., Any] = super(zmq.Socket, self.socket).send  # the one in C: zmq.Socket.send adds 3 us for each frame

    def send(self, frames: Sequence[Frame], timeout: float | None = None, copy_below: int = COPY_BELOW) -> None:
        """Send a message; see :class:`highway.wire.transport.Sender`. Smaller frames are copied, and not tracked by :meth:`unsent`."""
        self._check_process()
        views = [memoryview(frame) for frame in frames]  # new ones: ZeroMQ holds on to each until its bytes have left
        if (largest := max(view.nbytes for view in views)) > self._limit:
            self._refuse(largest)
        if not self._fitted:
            self._fit(sum(view.nbytes for view in views))
        if self.link.kind == "pub":
            self.socket.getsockopt(zmq.EVENTS)  # takes notice of what subscribers have read: without it, some that keep up are passed over
        while not self._send_once(views, timeout, copy_below):
            pass
        self._leaving.extend(weakref.ref(view) for view in views if view.nbytes >= copy_below)
        self._sent += 1
        while self._leaving and self._leaving[0]() is None:
            self._leaving.popleft()

    def _send_once(self, views: Sequence[memoryview], timeout: float | None, copy_below: int) -> bool:
        """Send a message, or say that its receiver went away in the middle of it: then ZeroMQ drops what came before and what follows.

        It says so where a frame finds the connection gone; else the message is lost with the others that were with this receiver.
        """
        whole, last = True, len(views) - 1
        for position, view in enumerate(views):
            more, small = (_MORE if position < last else 0), view.nbytes < copy_below
            if not position:
                self._retry(partial(self._send, view, more, small), zmq.POLLOUT, timeout, "no receiver took a message")
                continue
            try:
                self._send(view, _NOBLOCK | more, small)  # what has begun goes on, without waiting
            except zmq.Again:
                whole = False
        return whole

    def send_to_each(self, frames: Sequence[Frame], receivers: int, timeout: float | None = None) -> None:
        """Send a message so many times, which ZeroMQ deals out in turns; see :class:`highway.wire.transport.Sender`."""
        for _ in range(receivers):
            self.send(frames, timeout, copy_below=0)

    def peers(self) -> Peers | None:
        """Return the connections; of a publisher, those that have subscribed, which it is told within a process too."""
        connected = super().peers()
        if self.link.kind != "pub" or os.getpid() != self._pid:
            return connected
        while readable(self.socket):
            subscribed = self.socket.recv()[:1] == b"\1"
            self._subscriptions += 1 if subscribed else -1
            self._subscribed += subscribed
        if connected is None:
            return Peers(self._subscriptions, self._subscribed, self._subscribed)
        return Peers(min(connected.live, self._subscriptions), self._subscribed, connected.opened)

    def unsent(self) -> int:
        """Return how many messages are known not to have left: frames of 64 kB and more, and all messages if nobody has ever come."""
        peers = self.peers()
        if peers is None:
            return 0
        self._leaving = deque(view for view in self._leaving if view() is not None)
        return len(self._leaving) if peers.seen or self.link.kind == "pub" else self._sent

    def unread(self) -> bool:
        """Say whether a receiver has still to read something, which is lost if this end closes before: ZeroMQ drops what it has not read
        when it takes notice of the end of a UNIX socket, which may be at any time. The end of a TCP connection comes after the data.
        """
        return self.link.transport == "ipc" and self.peers() is not None and self._monitor is not None and self._monitor.unread()

    def _refuse(self, nbytes: int) -> None:
        raise ItemError(
            f"{self.link}: a frame of {nbytes / 1e6:.1f} MB; expected at most max_mb={self.link.options.max_mb:g}: send smaller batches, "
            f"or say ?max_mb={nbytes / 1e6 + 1:.0f} in the URLs of both ends"
        )


class ZMQReceiver(_Base):
    """A PULL or SUB socket; see :class:`highway.wire.transport.Receiver`."""

    _option = zmq.RCVHWM

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._recv: Callable[..., Frame] = super(zmq.Socket, self.socket).recv
        if link.transport != "inproc":
            keep_freed_memory()

    def refuse(self) -> None:
        """Do nothing: with ZeroMQ, who sends deals out its messages to all that are connected."""

    def recv(self, timeout: float | None = None) -> list[Frame]:
        """Wait for a message; see :class:`highway.wire.transport.Receiver`."""
        self._check_process()
        frames = self._retry(self._message, zmq.POLLIN, timeout, "no message")
        if not self._fitted:
            self._fit(sum(map(len, frames)))
        return frames

    def source(self, frames: Sequence[Frame]) -> Source | None:
        """Return the connection, by its descriptor; see :class:`highway.wire.transport.Receiver`."""
        if self.link.transport == "inproc":
            return None
        host = str(frames[0].get("Peer-Address")) if self.link.transport == "tcp" else ""
        return Source(int(frames[0].get(zmq.SRCFD)), host.removeprefix("::ffff:"))

    def connections(self, connection: Hashable) -> int:
        """Return how many connections have had a descriptor; see :class:`highway.wire.transport.Receiver`."""
        if self._monitor is None or self.peers() is None:
            return 1
        return self._monitor.connections(connection)

    def _message(self) -> list[Frame]:
        frames = [self._recv(0, False)]
        while frames[-1].more:
            frames.append(self._recv(0, False))
        return frames


def _mark(messages: float) -> int:
    return max(2, min(MAX_HWM, int(messages)))
