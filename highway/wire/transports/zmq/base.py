"""The common part of ZeroMQ sockets: options, addresses, connections and waits."""

from __future__ import annotations

import errno
import logging
import os
import time
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import zmq

from highway.engine.cancel import check_cancelled, wait
from highway.errors import LinkError
from highway.wire import address, rendezvous
from highway.wire.transports.protocol import Peers, deadline_of
from highway.wire.transports.table import Transport
from highway.wire.transports.zmq import context
from highway.wire.transports.zmq.monitor import REFUSALS, Monitor
from highway.wire.url import Link, joined

log = logging.getLogger("highway")

T = TypeVar("T")

POLL_MS = 100  # milliseconds between two checks whether the stage was cancelled
ATTEMPT = 1.0  # maximum seconds for the first attempt to connect over a UNIX socket, on a busy machine
RELEASE = 0.5  # maximum seconds until an address is free, because a closed socket releases its address in the background
# If a closing socket has no time to send the rest of a message, and the receiver leaves at the same moment, libzmq 4.3.5 aborts the process
# (session_base.cpp:233, issue 3442 of libzmq).
LEAST_LINGER_MS = 1000
# A *stranger* is a program that does not speak ZMTP 3 (the protocol of ZeroMQ), or that lacks a required announcement. An end that has
# connected to a stranger reconnects after AGAIN seconds. The interval grows up to AGAIN_LATEST seconds.
AGAIN, AGAIN_LATEST = 0.1, 10.0
SETTLE = 0.05  # maximum seconds until both ends of a closing connection have released each other within libzmq
MAX_HWM = 1000  # maximum number of messages that wait at each end of a connection
USUAL_MB = 4  # assumed size of messages before the first message, in megabytes
COPY_BELOW = 1 << 16  # bytes; smaller frames are copied, because a copy is cheaper than tracking when the frame has left
RECEIVED = 4  # maximum number of messages that wait at a receiver, because the size of the next message is unknown

# XPUB is a PUB socket that also receives the subscriptions.
_TYPES = {"push": zmq.PUSH, "pull": zmq.PULL, "pub": zmq.XPUB, "sub": zmq.SUB}
# The system probes a silent peer, because the peer's host might have vanished, and gives up after a minute. Times are in seconds.
_KEEPALIVE = {zmq.TCP_KEEPALIVE: 1, zmq.TCP_KEEPALIVE_IDLE: 30, zmq.TCP_KEEPALIVE_INTVL: 10, zmq.TCP_KEEPALIVE_CNT: 3}


class BaseSocket:
    """The common part of sending and receiving sockets: the socket, its monitor, and its addresses."""

    _option: int  # the ZeroMQ option for the high-water mark of this direction

    def __init__(self, link: Link) -> None:
        self.link = link
        self.bound: list[str] = []
        self._files: list[address.SocketFile] = []  # files of the bound UNIX sockets
        self._pid = os.getpid()
        self._fitted = self._is_raised = self._checks_user = self._is_closed = False
        self._directory: rendezvous.Directory | None = None  # the directory from which this end gets the addresses of names
        self._followed: list[str] = []  # names to whose addresses this end connects
        self._connected: set[str] = set()  # current and previous addresses of the followed names
        self._left: set[str] = set()  # previous addresses of the followed names
        self._sent = 0  # number of sent messages
        self._unread = 0  # maximum number of messages to read until all messages from previous addresses are read
        self._heard = -1  # the last processed version of the directory
        self._gone, self._last_gone = 0, float("-inf")  # number of closed connections, and when the last one was noticed
        self.socket: zmq.Socket[bytes] = context.current().socket(_TYPES[link.kind])
        self._announced: set[str] = set()  # URLs to which this end announces that it is highway, although ``peers`` is ``any``
        self._absent: dict[str, float] = {}  # URL that is not connected -> time of the next attempt
        self._monitor = Monitor(self.socket, link)
        context.sockets[self._pid] += 1
        try:
            self._configure()
            self._attach_all(link, link)
            self._meet()
        except BaseException:
            self.close(0)
            raise

    @abstractmethod
    def _waiting(self) -> AbstractContextManager[None]:
        """Count the time in a ``with`` block as waiting for input or for room."""

    def _configure(self) -> None:
        options = self.link.options
        self.socket.linger = options.linger_ms
        self.socket.sndtimeo = self.socket.rcvtimeo = POLL_MS
        self._first_mark = _mark(self.link.budget_mb / USUAL_MB)
        if self._option == zmq.RCVHWM:
            self._first_mark = min(self._first_mark, RECEIVED)
        self.socket.setsockopt(self._option, self._first_mark)
        self.socket.maxmsgsize = self._limit = int(options.max_mb * 1e6)
        for option, value in _KEEPALIVE.items():
            self.socket.setsockopt(option, value)
        # ZeroMQ's default limit for a handshake is 30 s. A shorter limit would refuse slow peers, because a peer's process can be
        # suspended, and the doorkeeper (the thread that accepts or refuses peers) can wait for the GIL. The domain is a text that tells the
        # doorkeeper the topology file of this socket. With a domain, libzmq refuses peers that do not speak ZMTP 3. Without a domain, it
        # would treat any other bytes as ZMTP 1.
        _, self.socket.zap_domain = context.credentials(self.link)
        if options.peers == "highway":
            if self.link.bind:
                context.start_doorkeeper()
                self.socket.plain_server = 1
            else:
                self.socket.plain_username, self.socket.plain_password = context.credentials(self.link)
        if self.link.fans_out and not self.link.sends:
            self.socket.setsockopt(zmq.SUBSCRIBE, self.link.topic.encode())
        if self.link.fans_out and self.link.sends:
            self.socket.setsockopt(zmq.XPUB_VERBOSER, 1)

    def attach(self, link: Link) -> None:
        self._check_process()
        whole = joined([self.link, link])
        self._attach_all(link, whole)
        self.link = whole
        self._meet()

    def _attach_all(self, link: Link, whole: Link) -> None:
        """Open the addresses of ``link``. ``whole`` is the link with all addresses of this socket."""
        self.socket.ipv6 = any(location.startswith("[") for location in whole.locations)
        # With ``immediate``, ZeroMQ queues messages only for established connections. So absent receivers get no share of the messages. A
        # sender sets this option if it has several locations, or if its location is a name. Otherwise, unsent messages survive a restart of
        # the receiver. A receiver never sets this option, because ZeroMQ would drop its unread messages when the sender closes.
        self.socket.immediate = self._option == zmq.SNDHWM and (len(whole.locations) > 1 or whole.transport.is_named)
        ends = list(zip(link.urls, link.transports, link.locations, strict=True))
        if any(transport.location == "path" and location.startswith("@") for _, transport, location in ends):
            # A path that begins with @ is the name of an abstract UNIX socket. It is not a file, so no file permissions protect the socket.
            self.socket.setsockopt(zmq.IPC_FILTER_UID, os.getuid())
        for end in ends:
            self._attach(*end)

    def _attach(self, url: str, transport: Transport, location: str) -> None:
        if transport.is_named:
            self._attach_name(url, location)
            return
        has_path = transport.location == "path"
        if has_path:
            address.check_folder(url, location)
        if not self.link.bind:
            if transport.has_port:
                address.warn_unresolved(url, location)
            self._connect(f"{transport.name}://{location}")
            return
        if transport.has_port:
            location = address.interface(url, location)
        for left in range(10, -1, -1):  # a number of attempts, not a time, because the process can be suspended
            if has_path:
                address.check_free(url, location)
            try:
                self._call(self.socket.bind, url, f"{transport.name}://{location}")
                break
            except LinkError as error:
                if error.errno != errno.EADDRINUSE or not left:
                    raise
                wait(RELEASE / 10)
        self.bound.append(self.socket.getsockopt_string(zmq.LAST_ENDPOINT))
        if has_path and (file := address.SocketFile.at(location)):
            self._files.append(file)
        if location.endswith(":0"):
            log.info("%s: bound to %s", url, self.bound[-1])

    def _attach_name(self, url: str, name: str) -> None:
        """Bind a free port and publish its address under a name, or follow the name."""
        directory = rendezvous.directory(url)
        if not self.link.bind:
            directory.follow(name)
            self._directory = directory
            self._followed.append(name)
            return
        self.socket.ipv6 = ":" in directory.host
        try:
            location = address.interface(url, f"[{directory.host}]:0" if self.socket.ipv6 else f"{directory.host}:0")
            self.socket.bind(f"tcp://{location}")
        except (LinkError, zmq.ZMQError) as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else "this machine finds no address for the name"
            what = f"cannot bind a port of {directory.host} ({why}); pass another address of this host with --address HOST"
            raise LinkError(error.errno, f"{url}: {what}") from None
        self.bound.append(self.socket.getsockopt_string(zmq.LAST_ENDPOINT))
        directory.publish(name, self.bound[-1])

    def _follow(self) -> None:
        """Connect to new addresses of followed names. Several names can have the same address."""
        if self._directory is None or self._directory.version == self._heard:
            return
        self._heard = self._directory.version
        now = {found for name in self._followed if (found := self._directory.address(name))}
        new = now - self._connected
        self._connected |= now
        self.socket.ipv6 = any("[" in url for url in self._connected)
        self._connect(*sorted(new))
        self._left = self._connected - now
        self._unread = len(self._connected) * (self._first_mark + 1)

    def _disconnect_left(self) -> None:
        """Disconnect from the previous addresses of names."""
        self._disconnect_refused()
        for url in self._left:
            self._disconnect(url)
            self._absent.pop(url, None)
        self._connected -= self._left
        self._left = set()

    def _meet(self) -> None:
        """If this end connects to a UNIX socket, check the user of the other end before any data are sent or received."""
        checked = self._checked_locations()
        self._checks_user = bool(checked) and not self.link.bind
        if self._checks_user:
            self._monitor.wait_for_attempts(len(checked), ATTEMPT)
            self._check_user()

    def _check_user(self) -> None:
        """Process the monitor's events. Raise LinkError if this end has connected to a process of another user."""
        self._monitor.peers()
        if self._monitor.other_user is not None:
            self.close(0)
            raise address.of_another_user(self.link, self._monitor.other_user, self._checked_locations())

    def _checked_locations(self) -> list[str]:
        """Return the locations at which sockets of other users are refused."""
        return [location for location, transport in zip(self.link.locations, self.link.transports, strict=True) if transport.checks_user]

    def _call(self, method: Any, url: str, target: str) -> None:
        try:
            method(target)
        except zmq.ZMQError as error:
            way_out = address.way_out(error.errno or 0, target)
            raise LinkError(error.errno, f"{url}: cannot {method.__name__} {target}: {zmq.strerror(error.errno or 0)}{way_out}") from None

    def peers(self) -> Peers | None:
        """Return the counts of connections. ``None`` in a forked child, and for inproc: ZeroMQ reports no inproc connections."""
        self._follow()
        is_told = not self.link.transport.within_process and os.getpid() == self._pid
        return self._monitor.peers() if is_told else None

    def _connect(self, *urls: str) -> None:
        """Connect to addresses, and reconnect to addresses that have refused this end.

        With ``peers=any``, every second attempt announces that this end is highway. So this end reaches peers of other programs, which do
        not know the announcement, and highway peers that require it.
        """
        self._absent.update(dict.fromkeys(urls, 0.0))
        self._disconnect_refused()
        for url in [url for url, when in self._absent.items() if time.monotonic() >= when]:
            del self._absent[url]
            if url in self._announced:
                self.socket.plain_username, self.socket.plain_password = context.credentials(self.link)
            self._call(self.socket.connect, str(self.link), url)
            if url in self._announced:
                self.socket.plain_server = 0  # so that the next attempt has no announcement
            self._disconnect_refused()

    def _disconnect_refused(self) -> None:
        """Disconnect from addresses whose handshake has failed, until the next attempt.

        After a failed handshake, ZeroMQ does not reconnect. ZeroMQ frees the memory of the connection, but keeps a pointer to this memory.
        A new connection can use the same memory. If the old address is disconnected after that, ZeroMQ ends the new connection. Therefore,
        call this method before each new connection.
        """
        self._monitor.peers()
        refused, tries_both = self._monitor.refused, self._monitor.tries_both
        for url, count in list(refused.items()):
            was_announced = url in self._announced
            if url in self._monitor.ended or (tries_both and (count >= REFUSALS or not was_announced)):
                self._disconnect(url)
                self._absent[url] = time.monotonic()
                if tries_both:
                    self._announced ^= {url}
                    del refused[url]
                    if was_announced:
                        self._monitor.count_stranger(url)
                else:
                    self._absent[url] += min(AGAIN_LATEST, AGAIN * 2.0 ** min(count // REFUSALS, 20))
                self._monitor.ended.discard(url)

    def _disconnect(self, url: str) -> None:
        if url not in self._absent:
            self._call(self.socket.disconnect, str(self.link), url)

    def close(self, linger: float) -> None:
        """Close. Unsent messages are still sent in the background, for ``linger`` seconds but at least 1 s. Closing again does nothing."""
        if self._is_closed or os.getpid() != self._pid:
            return
        self._is_closed = True
        self._monitor.close()
        for file in self._files:  # remove the files now, because another process can bind the path later
            file.remove()
        self.socket.close(max(LEAST_LINGER_MS, int(linger * 1000)))
        context.sockets[self._pid] -= 1

    def _fit(self, nbytes: int) -> None:
        """Set ZeroMQ's high-water mark (the maximum number of waiting messages) to the budget divided by the size of the first message.

        The mark is set once, for the connections that are open at this time. Later connections get the mark of :meth:`_configure`, because
        ZeroMQ copied that mark when the address was bound. While a connection closes, the mark cannot be set (see :meth:`_is_calm`). A
        receiver then tries again with its next message. A sender waits, and tries again.

        A ZeroMQ receiver confirms messages in groups. The size of a group is half of the receiver's mark. Therefore, a connection can wait
        forever if the sender lowers its mark while messages are in transit, if the receiver raises its mark, or if the mark is 1.

        Later messages can be larger than the first message. Therefore a receiver never raises its mark, and a sender limits the bytes with
        :class:`~highway.wire.transports.zmq.socket.Backlog`.
        """
        allowed = _mark(self.link.budget_mb * 1e6 / max(nbytes, COPY_BELOW))
        # Raise the mark if messages are smaller than assumed, but not if one slow receiver of several could use the whole budget.
        may_raise = self._option == zmq.SNDHWM and (self.link.fans_out or self._is_alone) and not self.link.transport.within_process
        if allowed < self._first_mark or (allowed > self._first_mark and may_raise):
            if not self._is_calm():
                return
            self.socket.setsockopt(self._option, allowed)
            self._is_raised = allowed > self._first_mark
        self._fitted = True

    def _is_calm(self) -> bool:
        """Process connection events. Return whether no connection is closing.

        If the mark is set while a connection closes, libzmq 4.3.5 can write into freed memory. The monitor reports a closing connection
        before the socket notices the end of the connection, so this method misses no connection.
        """
        self.socket.getsockopt(zmq.EVENTS)  # ZeroMQ then processes new connections, so that the mark is also set for these
        peers = BaseSocket.peers(self)  # not self.peers(), which counts subscriptions for a publisher
        gone = peers.seen - peers.live if peers else 0
        if gone != self._gone:
            self._gone, self._last_gone = gone, time.monotonic()
        return time.monotonic() - self._last_gone > SETTLE

    def _retry(self, event: int, timeout: float | None, what: str, attempt: Callable[..., T], *arguments: Any) -> T:
        """Call ``attempt`` as soon as the socket is ready, and return its result. Raise TimeoutError after ``timeout`` seconds.

        A call can block for ``POLL_MS``.
        """
        deadline = deadline_of(timeout)
        left = POLL_MS if timeout is None or timeout * 1000 >= POLL_MS else max(0, int(timeout * 1000))
        while True:
            check_cancelled()
            if self._directory is not None:
                self._follow()
            try:
                with self._waiting():
                    if left == POLL_MS or self.socket.poll(left, event):
                        return attempt(*arguments)
            except zmq.Again:
                self._look_around()
            else:
                if time.monotonic() >= deadline:
                    self._look_around()
                    raise self._timed_out(what, timeout)
            left = int(max(0, min(POLL_MS, (deadline - time.monotonic()) * 1000)))

    def _look_around(self) -> None:
        """Process connection events. Called while there is nothing to read, or no room to send."""
        BaseSocket.peers(self)
        self._check_user()
        if not self._sent:
            self._connect()

    def _timed_out(self, what: str, timeout: float | None) -> TimeoutError:
        peers = self.peers()
        if unknown := [name for name in self._followed if self._directory and not self._directory.address(name)]:
            return TimeoutError(
                f"{self.link}: {what} within {timeout or 0:.3g} s; no process has published an address for {' and '.join(unknown)}: check "
                "that the other end runs"
            )
        if peers is None or peers.live:
            there = "" if peers is None else f"; peers connected: {peers.live}"
        else:
            never = "no peer is connected; check that the other end runs, and that this is its address"
            there = "; all peers have disconnected" if peers.seen else f": {never}"
        return TimeoutError(f"{self.link}: {what} within {timeout or 0:.3g} s{there}")

    @property
    def _is_alone(self) -> bool:
        """Whether this end can have only one connection."""
        return not self.link.bind and len(self.link.urls) == 1

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise LinkError(f"{self.link} was opened in process {self._pid}; open it in the process that uses it (this is {os.getpid()})")
        if self._is_closed:
            raise LinkError(f"{self.link} is closed")
        if self._checks_user:
            self._check_user()


def _mark(messages: float) -> int:
    return max(2, min(MAX_HWM, int(messages)))
