"""A small HTTP server that answers for the replicas of one ``highway run``: ``/metrics``, ``/stats``, ``/health``."""

from __future__ import annotations

import errno
import json
import re
import socket
import socketserver
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app

from highway.errors import ConfigError
from highway.topology.flow import whole_links
from highway.topology.losses import Losses
from highway.topology.metrics import health, registry
from highway.topology.model import Topology
from highway.topology.plan import End, ports
from highway.topology.snapshot import Loss, Snapshot, find_ends
from highway.topology.spec import MetricsSpec
from highway.topology.state import ReplicaState
from highway.topology.totals import Totals

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_GIVEN = re.compile(r"(?:(?P<host>\[[^\]]+\]|[^:\[\]]+):)?(?P<first>\d{1,5})(?:-(?P<last>\d{1,5}))?")


class Endpoint:
    """Answers over HTTP with the last states that it was given. The port is open when this is made.

    Args:
        topology: What runs.
        ends: Which replicas of it, here.
        spec: Where to listen; the first free port of a range is taken.

    Raises:
        ConfigError: no port is free, or the address is not one of this machine.
    """

    def __init__(self, topology: Topology, ends: Sequence[End], spec: MetricsSpec) -> None:
        self._name, self._ends = topology.plan.name, find_ends(topology, ends)
        self._states = [
            ReplicaState(end.role, end.replica, end.host, "starting", single=topology.roles[end.role].replicas == 1) for end in ends
        ]
        self._totals = Totals()
        self._losses = Losses(self._ends, whole_links(topology, ends))
        self._lost: Mapping[str, Loss] = {}
        self._prometheus = make_wsgi_app(registry(self.snapshot))
        self._server = _open(spec)
        self._server.set_app(self._answer)
        host = f"[{spec.listen}]" if ":" in spec.listen else spec.listen
        self.url = f"http://{host}:{self._server.server_port}"
        self._thread = ThreadPoolExecutor(1, "highway-metrics")
        self._thread.submit(self._server.serve_forever, 0.1)

    def update(self, states: Iterable[ReplicaState]) -> None:
        """Take in how the replicas are; call it some times per second, with all of them."""
        self._states = self._totals.count(states)
        self._lost = self._losses.count(self._states)

    def snapshot(self) -> Snapshot:
        """Return what there is to tell at this moment."""
        return Snapshot(self._name, self._states, self._ends, self._lost)

    def close(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            answer: Iterable[bytes] = self._prometheus(environ, start)
            return answer
        status, body = "200 OK", b""
        if path == "/stats":
            body = self.snapshot().to_json()
        elif path == "/health":
            reasons = health(self.snapshot())
            status = "503 Service Unavailable" if reasons else status
            body = json.dumps({"status": "failing" if reasons else "ok", "reasons": reasons}).encode()
        else:
            status, body = "404 Not Found", b'{"paths": ["/metrics", "/stats", "/health"]}'
        start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")])
        return [body]


def parse_metrics(text: str, default: MetricsSpec | None = None) -> MetricsSpec:
    """Return what ``--metrics [HOST:]PORT`` says; PORT may be a range, or 0 for any that is free.

    Args:
        text: The option's value.
        default: What the file says; its address counts where the option gives none.

    Raises:
        ConfigError: it cannot be read.
    """
    found = _GIVEN.fullmatch(text)
    first, last = (int(found["first"]), int(found["last"] or found["first"])) if found else (1, 0)
    if found is None or not first <= last <= 65535:
        raise ConfigError(f"--metrics {text}: expected a port, such as 9400, a range, or an address before it: 0.0.0.0:9400-9409")
    listen = found["host"] or (default.listen if default else MetricsSpec(0).listen)
    return MetricsSpec(f"{first}-{last}", listen.strip("[]"))


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Bind, without asking a name server what the address is called."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = 10  # seconds that a client may be silent

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: it would stand between the lines of the roles."""


def _open(spec: MetricsSpec) -> _Server:
    kind = _Server6 if ":" in spec.listen else _Server
    numbers = ports(spec)
    for port in numbers:
        try:
            return kind((spec.listen, port), _Handler)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise ConfigError(f"metrics: {spec.listen}:{port} cannot be opened: {error.strerror or error}") from None
    taken = f"port {numbers[0]} is" if len(numbers) == 1 else f"the ports {numbers[0]} to {numbers[-1]} are all"
    raise ConfigError(
        f"metrics: {taken} taken by another process; `ss -ltnp 'sport = :{numbers[0]}'` shows which; --metrics 0 takes any that is free"
    )
