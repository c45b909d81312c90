"""The HTTP endpoint of one ``highway run`` for its replicas: ``/metrics``, ``/stats``, ``/health``, and the page for a browser.

A *role* is a pipeline of a topology file. A *replica* is one of its processes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Self
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import make_wsgi_app

from highway.observe.latest import Latest
from highway.observe.metrics import health, registry
from highway.observe.server import Server, open_port
from highway.observe.snapshot import Snapshot
from highway.topology.plan import host_and_port
from highway.topology.spec import MetricsSpec
from highway.topology.wiring import Wiring

if TYPE_CHECKING:
    from highway.observe.dashboard.site import Site

FIGURES = ("/metrics", "/stats", "/health")


class Answers:
    """Answers HTTP requests with the current state of a run. The constructor opens the port, or the first free port of a range.

    Args:
        snapshot: A function that returns the current state of the run.
        spec: The address to listen on.
        site: The page, if there is one.
        option: The option that gave the address. With ``--dashboard``, only clients that are allowed to see the page get statistics.

    Attributes:
        url: The address.
        page: The address of the page, with its token; empty if there is no page.

    Raises:
        ConfigError: no port is free, or the address does not belong to this machine.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], spec: MetricsSpec, site: Site | None = None, option: str = "--metrics") -> None:
        self.snapshot, self._site, self._is_open = snapshot, site, option == "--metrics"
        self._prometheus = make_wsgi_app(registry(snapshot))
        self._server = Server(open_port(spec, option), self._answer, site.tick if site else lambda: None)
        self.url = f"http://{host_and_port(spec.listen, self._server.port)}"
        self.page = site.open_at(spec.listen, self._server.port, snapshot) if site else ""
        # a daemon thread, because a script can end without closing the endpoint
        self._thread = threading.Thread(target=self._server.serve, name="highway-metrics", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def stop(self) -> None:
        """Close the port soon, without waiting."""
        self._server.stop()

    def close(self) -> None:
        """Close the port. Closing again does nothing."""
        self._server.stop()
        self._thread.join()
        if self._site:
            self._site.close()

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        is_figure = path in FIGURES
        if self._site and not (is_figure and (self._is_open or not self._site.refuses(environ))):
            return self._site.answer(environ, start)
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
            status, body = "404 Not Found", json.dumps({"paths": FIGURES}).encode()
        start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")])
        return [body]


class Endpoint(Answers):
    """Answers with the latest states of some processes of a topology. ``update`` receives these states."""

    def __init__(self, wiring: Wiring, spec: MetricsSpec, site: Site | None = None, option: str = "--metrics") -> None:
        latest = Latest(wiring)
        self.update = latest.update
        super().__init__(latest.snapshot, spec, site, option)
