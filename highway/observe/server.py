"""An HTTP server for a few clients, which may be slow or hostile. It is waitress with additional limits."""

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
SILENT = 10  # seconds that a client may be silent
LIFETIME = 30  # maximum seconds of a connection, whatever its client does
LARGEST = 16384  # bytes of a request
PAUSE = 1.0  # seconds without accepting when the process has no free descriptor

_NONE_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

logging.getLogger("waitress").setLevel(logging.ERROR)  # its warnings would appear between the lines of the roles


class _Channel(HTTPChannel):  # type: ignore[misc]
    """A connection that is closed if a client sends a request before the previous one is answered.

    Such a client could block a thread indefinitely.
    """

    def received(self, data: bytes) -> bool:
        done = bool(super().received(data))
        if len(self.requests) > 1:
            self.handle_close()
        return done


class Server(TcpWSGIServer):  # type: ignore[misc]  # waitress has no types
    """Answers requests at a port until it is stopped; ``listening`` is a bound socket.

    ``tick`` is called on the serving thread, at least once per second.

    Attributes:
        port: The port that the server listens on.
        paused_until: When the server accepts connections again, by ``time.monotonic()``, after it ran out of descriptors; else 0.
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
        """Answer until :meth:`stop`, and close the port."""
        while not self._stopped:
            self.turn()
            self._tick()
        self.task_dispatcher.shutdown()
        wasyncore.close_all(self._map)

    def stop(self) -> None:
        """Make :meth:`serve` return; called from another thread."""
        with contextlib.suppress(OSError):  # closed already: another thread's pull was enough
            self.trigger.pull_trigger(self._end)  # on the serving thread: here it would close the trigger before the pull

    def _end(self) -> None:
        self._stopped = True

    def turn(self) -> None:
        """Wait up to a second for connections and requests, handle them, and close connections that last too long.

        Connections are closed only between two polls. If one were closed during a poll, a new connection could get the number of its
        descriptor. The poll would then close the new connection because of events of the old one.
        """
        wasyncore.loop(timeout=1, use_poll=True, map=self._map, count=1)
        for channel in list(self.active_channels.values()):
            if channel.creation_time < time.time() - LIFETIME:
                channel.handle_close()  # its flag will_close has no effect while the client does not read

    def readable(self) -> bool:
        """Return whether to check for new connections."""
        return bool(super().readable()) and time.monotonic() >= self.paused_until

    def accept(self) -> Any:
        """Accept a connection. If there are too many, close the oldest connection, so that slow clients do not block short requests.

        If the process has no free descriptor, accept no connections for some time, to avoid a busy loop.
        """
        try:
            accepted = super().accept()
        except OSError as error:
            if error.errno in _NONE_LEFT:
                self.paused_until = time.monotonic() + PAUSE
            raise
        waiting = [channel for channel in self.active_channels.values() if not channel.requests]
        if len(self.active_channels) >= CONNECTIONS and waiting:
            min(waiting, key=lambda channel: channel.creation_time).handle_close()  # its descriptor is free for the next turn's connection
        return accepted


def open_port(spec: MetricsSpec, option: str = "--metrics") -> socket.socket:
    """Return a socket bound to the first free port; ``option`` is the option with the ports.

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
    taken = f"port {numbers[0]} is" if len(numbers) == 1 else f"the ports {numbers[0]} to {numbers[-1]} are all"
    raise ConfigError(
        f"{name}: {taken} taken by another process; `ss -ltnp 'sport = :{numbers[0]}'` shows which; {option} 0 takes any that is free"
    )
