"""What one ``highway run`` answers over HTTP for its replicas: ``/metrics``, ``/stats``, ``/health``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Self
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import make_wsgi_app

from highway.observe.latest import Latest
from highway.observe.metrics import health, registry
from highway.observe.server import Server, open_port
from highway.topology.plan import host_and_port
from highway.topology.spec import MetricsSpec
from highway.topology.wiring import Wiring


class Endpoint:
    """Answers over HTTP with the last states that it was given. The port, the first free one of a range, is open when this is made.

    Raises:
        ConfigError: no port is free, or the address is not one of this machine.
    """

    def __init__(self, wiring: Wiring, spec: MetricsSpec) -> None:
        latest = Latest(wiring)
        self.update, self.snapshot = latest.update, latest.snapshot
        self._prometheus = make_wsgi_app(registry(self.snapshot))
        self._server = Server(open_port(spec), self._answer)
        self.url = f"http://{host_and_port(spec.listen, self._server.port)}"
        self._thread = ThreadPoolExecutor(1, "highway-metrics")
        self._thread.submit(self._server.serve)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the port."""
        self._server.stop()
        self._thread.shutdown()

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            answer: Iterable[bytes] = self._prometheus(environ, start)
            return answer
        if path == "/stats":
            status, body = "200 OK", self.snapshot().to_json()
        elif path == "/health":
            reasons = health(self.snapshot())
            status = "503 Service Unavailable" if reasons else "200 OK"
            body = json.dumps({"status": "failing" if reasons else "ok", "reasons": reasons}).encode()
        else:
            status, body = "404 Not Found", b'{"paths": ["/metrics", "/stats", "/health"]}'
        start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")])
        return [body]
