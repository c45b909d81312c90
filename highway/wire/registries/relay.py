"""One process of a host speaks to a rendezvous for others, over a UNIX socket: what it takes to speak to it, they need not import."""

from __future__ import annotations

import json
import socket
import socketserver
import tempfile
import threading
from collections.abc import Collection, Mapping
from typing import Any

from highway.wire.rendezvous import Rendezvous

TIMEOUT = 30.0  # seconds that an answer may take


class Relay:
    """Asks a rendezvous for other processes of this host, on a thread of its own, until it is closed.

    Args:
        rendezvous: Who is asked.

    Attributes:
        text: Where the others ask: what their ``--rendezvous`` is.
    """

    def __init__(self, rendezvous: Rendezvous) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="highway-")  # no other user may look into it
        path = f"{self._folder.name}/relay"
        self.text = f"relay:{path}"
        self._server = _Server(path, rendezvous)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="highway:relay", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._folder.cleanup()


class _Server(socketserver.UnixStreamServer):
    def __init__(self, path: str, rendezvous: Rendezvous) -> None:
        self.rendezvous = rendezvous
        super().__init__(path, _Question)


class _Question(socketserver.StreamRequestHandler):
    server: _Server
    timeout = TIMEOUT

    def handle(self) -> None:
        method, argument = json.loads(self.rfile.readline())
        answer: dict[str, Any] = {}
        try:
            if method == "publish":
                self.server.rendezvous.publish(argument)
            else:
                answer["found"] = dict(self.server.rendezvous.find(argument))
        except OSError as error:
            answer["error"] = str(error)
        self.wfile.write(json.dumps(answer).encode())


class RelayRendezvous:
    """A rendezvous that another process of this host asks, by a :class:`Relay`.

    Args:
        path: Where that listens.
    """

    host = ""

    def __init__(self, path: str) -> None:
        self._path = path

    def publish(self, addresses: Mapping[str, str]) -> None:
        self._ask("publish", dict(addresses))

    def find(self, names: Collection[str]) -> Mapping[str, str]:
        found: dict[str, str] = self._ask("find", [*names])["found"]
        return found

    def _ask(self, method: str, argument: Any) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT)
            connection.connect(self._path)
            with connection.makefile("rw", encoding="utf-8") as lines:
                lines.write(json.dumps([method, argument]) + "\n")
                lines.flush()
                text = lines.readline()
        if not text:
            raise OSError(f"{self._path}: who asks the rendezvous for this process has ended")
        answer: dict[str, Any] = json.loads(text)
        if "error" in answer:
            raise OSError(answer["error"])
        return answer
