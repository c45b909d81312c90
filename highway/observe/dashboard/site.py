"""Answer the HTTP requests of the page, by default only from this machine."""

from __future__ import annotations

import contextlib
import gzip
import hmac
import ipaddress
import json
import logging
import os
import re
import secrets
import time
import urllib.parse
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from http.cookies import CookieError, SimpleCookie
from importlib import resources
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from highway.observe.dashboard.document import Minute, Values, document, points
from highway.observe.dashboard.history import EVERY, History
from highway.observe.dashboard.looking import SIZE, Looker
from highway.observe.poll import Poller, View
from highway.observe.snapshot import Snapshot
from highway.topology.graph import Graph
from highway.wire.address import is_loopback

FRESH = 1.0  # while there are viewers, the document is rebuilt when it is older than this many seconds
ASKED = 5.0  # after a request, viewers are assumed for this many seconds
LINES = 200  # maximum number of log lines in a document
LONGEST = 400  # maximum characters of a log line

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/draw.js": ("draw.js", "text/javascript; charset=utf-8"),
    "/uplot.css": ("uplot.css", "text/css; charset=utf-8"),
    "/uplot.js": ("uplot.js", "text/javascript; charset=utf-8"),
    "/uplot-licence.txt": ("uplot-licence.txt", "text/plain; charset=utf-8"),
}
HEADERS = [
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
]

_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::\d+)?")

log = logging.getLogger("highway")


class Site:
    """The page of a run.

    Args:
        title: The name of the run.
        look: A function that returns a view. The serving thread calls this function at most once per second. ``None``: the page shows the
            view of its endpoint.
        looker: Takes the batches.
        places: The names of the links or pipelines of ``looker``, in the same order.
        graph: The roles and links of the file; ``None`` without a file.
        check: The lines that ``highway check`` prints.
        note: A note on what the page cannot show.
    """

    def __init__(
        self,
        title: str,
        look: Callable[[], View] | None,
        looker: Looker,
        places: Sequence[str] = (),
        graph: Graph | None = None,
        check: Sequence[str] = (),
        note: str = "",
    ) -> None:
        self.listen, self.token = "127.0.0.1", ""
        self._look, self._graph, self._looker = look or (lambda: View(())), graph, looker
        self._is_endpoints = look is None
        self._about = {"title": title, "places": list(places), "check": list(check), "note": note, "size": SIZE}
        folder = resources.files("highway.observe.dashboard") / "page"
        self._files = {path: (kind, _Packed((folder / name).read_bytes())) for path, (name, kind) in FILES.items()}
        self._history, self._minute = History(), Minute()
        self._lines: deque[tuple[int, float, str, str, bool]] = deque(maxlen=LINES)
        self._count = 0
        self._built, self._sampled, self._asked = (float("-inf"),) * 3
        self._packed_history: tuple[int, _Packed] = (-1, _Packed(b""))
        self._now = _Packed(b"{}")
        self._failed = ""

    def open_at(self, listen: str, port: int, snapshot: Callable[[], Snapshot]) -> str:
        """Record where the page is served, and return the address for users.

        If other machines can reach the page, the address contains a token. Requests without the token are refused.

        Args:
            listen: The address that the server is bound to.
            port: The port.
            snapshot: A function that returns the endpoint's snapshot.
        """
        if self._is_endpoints:
            poller = Poller(())
            self._look = lambda: poller.view([snapshot()])
        self.listen = listen
        self.token = "" if is_loopback(listen) else secrets.token_urlsafe(24)
        self._cookie = f"highway_{port}"
        shown = {"0.0.0.0": os.uname().nodename, "::": os.uname().nodename}.get(listen, f"[{listen}]" if ":" in listen else listen)
        return f"http://{shown}:{port}/" + (f"?token={self.token}" if self.token else "")

    def line(self, name: str, text: str, is_error: bool = False) -> None:
        """Keep a line that a process has printed. Any thread can call this method."""
        self._count += 1
        self._lines.append((self._count, round(time.time(), 3), name, text[:LONGEST], is_error))

    def tick(self) -> None:
        """Rebuild the document if it is due. The serving thread calls this method at least once per second."""
        now = time.monotonic()
        is_sample = now - self._sampled >= EVERY
        if not is_sample and not (now - self._asked < ASKED and now - self._built >= FRESH):
            return
        self._built = now
        try:
            self._build(now, is_sample)
        except Exception as error:  # an error of the page must not end a run
            if (failed := f"{type(error).__name__}: {error}") != self._failed:
                log.warning("the dashboard cannot be built: %s", failed)
            self._failed = failed
            self._now = _Packed(json.dumps({"error": failed}).encode())

    def _build(self, now: float, is_sample: bool) -> None:
        view = self._look()
        shown = document(view, self._minute.add(view) if is_sample else self._minute.over(view), self._graph)
        if is_sample:
            self._sampled = now
            self._history.add(time.time(), self._point(shown))
        shown |= {"time": time.time(), "count": self._history.count, "log": list(self._lines), "point": self._point(shown)}
        self._now = _Packed(json.dumps(shown, default=str, separators=(",", ":")).encode())

    def _point(self, shown: Values) -> dict[str, float]:
        return {name: float(f"{value:.4g}") for name, value in points(shown)}

    def close(self) -> None:
        """Stop taking batches."""
        self._looker.close()

    def answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        if refused := self.refuses(environ):
            return _send(start, refused, "text/plain; charset=utf-8", _Packed(refused.encode()), environ)
        query = urllib.parse.parse_qs(environ.get("QUERY_STRING", ""))
        if self.token and "token" in query:
            cookie = f"{self._cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"
            return _send(start, "303 See Other", "text/plain", _Packed(b""), environ, [("Location", "./"), ("Set-Cookie", cookie)])
        status, (kind, body) = "200 OK", self._found(environ.get("PATH_INFO", ""), query)
        if not kind:
            status, kind = "404 Not Found", "text/plain; charset=utf-8"
        return _send(start, status, kind, body, environ)

    def _found(self, path: str, query: dict[str, list[str]]) -> tuple[str, _Packed]:
        if path in self._files:
            return self._files[path]
        if path == "/now.json":
            self._asked = time.monotonic()
            return "application/json", self._now
        if path == "/about.json":
            return "application/json", _Packed(json.dumps(self._about).encode())
        if path == "/history.bin":
            if self._packed_history[0] != self._history.count:
                self._packed_history = self._history.count, _Packed(self._history.to_bytes())
            return "application/octet-stream", self._packed_history[1]
        if path in ("/look.json", "/look.png"):
            with contextlib.suppress(ValueError, IndexError, KeyError):
                seen = self._looker.look(int(query["place"][0]))
                if path == "/look.png":
                    # If the number differs, the viewer has the labels and keys of an earlier batch.
                    return "image/png", _Packed(seen.picture if query["n"] == [str(seen.number)] else b"", pack=False)
                return "application/json", _Packed(json.dumps(seen._asdict() | {"picture": bool(seen.picture)}).encode())
        return "", _Packed(b"there is no such page")

    def refuses(self, environ: WSGIEnvironment) -> str:
        """Return the HTTP status for a request that is refused; empty if the request is allowed."""
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return "405 Method Not Allowed"
        if not self._knows(environ.get("HTTP_HOST", "")):
            return "421 Misdirected Request"
        if self.token and not any(hmac.compare_digest(given.encode(), self.token.encode()) for given in self._tokens(environ)):
            return "401 Open the address that highway printed, with its token"
        return ""

    def _knows(self, host: str) -> bool:
        """Return whether a Host header names this machine. A web site whose name resolves to this machine must not read the answers."""
        if not (found := _HOST.fullmatch(host.lower())):
            return False
        if is_loopback(name := found["v6"] or found["name"]):
            return True
        with contextlib.suppress(ValueError):
            return not is_loopback(self.listen) and bool(ipaddress.ip_address(name))
        return not is_loopback(self.listen) and name in {self.listen.lower(), os.uname().nodename.lower()}

    def _tokens(self, environ: WSGIEnvironment) -> list[str]:
        given = urllib.parse.parse_qs(environ.get("QUERY_STRING", "")).get("token", [])
        with contextlib.suppress(CookieError):
            cookies = SimpleCookie(environ.get("HTTP_COOKIE", ""))
            given += [cookies[self._cookie].value] if self._cookie in cookies else []
        return [*given, environ.get("HTTP_AUTHORIZATION", "").removeprefix("Bearer ")]


class _Packed:
    """The bytes of an answer, compressed once for all clients."""

    def __init__(self, plain: bytes, pack: bool = True) -> None:
        self.plain = plain
        self.packed = gzip.compress(plain, 1) if pack and len(plain) > 500 else b""


def _send(
    start: StartResponse, status: str, kind: str, body: _Packed, environ: WSGIEnvironment, more: Sequence[tuple[str, str]] = ()
) -> list[bytes]:
    is_packed = bool(body.packed) and "gzip" in environ.get("HTTP_ACCEPT_ENCODING", "")
    text = body.packed if is_packed else body.plain
    headers: list[tuple[str, Any]] = [("Content-Type", kind), ("Content-Length", str(len(text))), *HEADERS, *more]
    start(status, headers + [("Content-Encoding", "gzip")] * is_packed)
    return [b"" if environ["REQUEST_METHOD"] == "HEAD" else text]
