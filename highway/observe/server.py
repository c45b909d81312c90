"""An HTTP server for a few clients: waitress, with limits against slow and hostile clients."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import time
from collections.abc import Callable
from typing import Any
from wsgiref.types import WSGIApplication

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from highway.errors import ConfigError
from highway.topology.plan import port_range
from highway.topology.spec import MetricsSpec

CONNECTIONS = 64  # maximum concurrent connections; a further connection closes the oldest
SILENT = 10  # a client that is silent for this many seconds is disconnected
LIFETIME = 30  # maximum seconds of a connection, even if its client is active
LARGEST = 16384  # maximum bytes of a request's header, and of its body
PAUSE = 1.0  # seconds to wait before accepting connections again, if the process had no free descriptor

_NONE_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

logging.getLogger("waitress").setLevel(logging.ERROR)  # waitress's warnings would appear between the lines of the roles


class _Channel(HTTPChannel):  # type: ignore[misc]
    """A connection that is closed if its client sends a request before the previous request is answered.

    Such a client could block a thread indefinitely.
    """

    def received(self, data: bytes) -> bool:
        done = bool(super().received(data))
        if len(self.requests) > 1:
            self.handle_close()
        return done


class Server(TcpWSGIServer):  # type: ignore[misc]  # waitress has no types
    """Answers requests at a port until :meth:`stop` is called. ``listening`` is a bound socket.

    The serving thread calls ``tick`` at least once per second.

    Attributes:
        port: The port that the server listens on.
        paused_until: If the process had no free descriptor, the time (by ``time.monotonic()``) at which the server accepts connections
            again; otherwise 0.
    """

    channel_class = _Channel

    def __init__(self, listening: socket.socket, application: WSGIApplication, tick: Callable[[], None] = lambda: None) -> None:
        self.port: int = listening.getsockname()[1]
        self._stopped, self._tick = False, tick
        self.paused_until = 0.0
        dispatcher = ThreadedTaskDispatcher()
        dispatcher.set_thread_count(2)
        limits: dict[str, Any] = {"connection_limit": 2 * CONNECTIONS, "channel_timeout": SILENT, "cleanup_interval": 1}
        sizes: dict[str, Any] = {"max_request_header_size": LARGEST, "max_request_body_size": LARGEST}
        adjustments = Adjustments(sockets=[listening], ident="highway", log_socket_errors=False, **limits, **sizes)
        where = (listening.family, listening.type, listening.proto, listening.getsockname())
        super().__init__(application, {}, True, listening, dispatcher, adjustments, where, bind_socket=False)

    def serve(self) -> None:
        """Answer requests until :meth:`stop` is called, and close the port."""
        while not self._stopped:
            self.turn()
            self._tick()
        self.task_dispatcher.shutdown()
        wasyncore.close_all(self._map)

    def stop(self) -> None:
        """Make :meth:`serve` return. Call this method from a thread that does not serve."""
        with contextlib.suppress(OSError):  # the trigger is closed: another thread has already stopped the server
            self.trigger.pull_trigger(self._end)  # the serving thread calls _end; a call here could close the trigger before the pull

    def _end(self) -> None:
        self._stopped = True

    def turn(self) -> None:
        """Wait up to a second for connections and requests, handle them, and close connections that last too long.

        Connections are closed only between two polls. If a connection were closed during a poll, a new connection could get the same
        descriptor number. The poll would then close the new connection because of events of the old connection.
        """
        wasyncore.loop(timeout=1, use_poll=True, map=self._map, count=1)
        for channel in list(self.active_channels.values()):
            if channel.creation_time < time.time() - LIFETIME:
                channel.handle_close()  # the flag will_close would have no effect while the client does not read

    def readable(self) -> bool:
        """Return whether to check for new connections."""
        return bool(super().readable()) and time.monotonic() >= self.paused_until

    def accept(self) -> Any:
        """Accept a connection. If there are too many connections, close the oldest, so that slow clients do not block short requests.

        If the process has no free descriptor, accept no connections for :data:`PAUSE` seconds, to avoid a busy loop.
        """
        try:
            accepted = super().accept()
        except OSError as error:
            if error.errno in _NONE_LEFT:
                self.paused_until = time.monotonic() + PAUSE
            raise
        waiting = [channel for channel in self.active_channels.values() if not channel.requests]
        if len(self.active_channels) >= CONNECTIONS and waiting:
            min(waiting, key=lambda channel: channel.creation_time).handle_close()  # frees a descriptor before the next turn
        return accepted


def open_port(spec: MetricsSpec, option: str = "--metrics") -> socket.socket:
    """Return a socket that listens on the first free port. ``option`` is the command-line option that gave the ports.

    Raises:
        ConfigError: no port is free, or the address does not belong to this machine.
    """
    numbers, name = port_range(spec.port), option.lstrip("-")
    for port in numbers:
        opened = socket.socket(socket.AF_INET6 if ":" in spec.listen else socket.AF_INET)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind((spec.listen, port))
            opened.listen()
            return opened
        except OSError as error:
            opened.close()
            if error.errno != errno.EADDRINUSE:
                raise ConfigError(f"{name}: {spec.listen}:{port} cannot be opened: {error.strerror or error}") from None
    taken = f"port {numbers[0]} is" if len(numbers) == 1 else f"all ports from {numbers[0]} to {numbers[-1]} are"
    raise ConfigError(
        f"{name}: {taken} used by another process; `ss -ltnp 'sport = :{numbers[0]}'` shows this process; {option} 0 uses any free port"
    )
