"""Let one process of a host use a rendezvous for all processes of the host.

A *rendezvous* stores the addresses of the links of a run, so that processes find each other.

The other processes do not import the libraries of the rendezvous.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import sys
import tempfile
import threading
from collections.abc import Collection, Mapping
from typing import Any

from highway.wire.address import peer_process
from highway.wire.registries.protocol import Rendezvous

TIMEOUT = 30.0  # maximum seconds for an answer


class Relay:
    """Uses a rendezvous for other processes of this host, on a separate thread, until :meth:`close`.

    Args:
        rendezvous: The rendezvous to use.

    Attributes:
        text: The value of the option ``--rendezvous`` for the other processes.
    """

    def __init__(self, rendezvous: Rendezvous) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if sys.platform == "linux":
            path = f"@highway-relay-{os.getuid()}-{os.urandom(8).hex()}"  # the system removes this name when the process ends
        else:
            self._folder = tempfile.TemporaryDirectory(prefix="highway-")
            path = f"{self._folder.name}/relay"
        self.text = f"relay:{path}"
        self._server = _Server(_address(path), rendezvous)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="highway:relay", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        if self._folder is not None:
            self._folder.cleanup()


def _address(path: str) -> str:
    """Return the address of a UNIX socket for Python's ``socket``. A path with ``@`` is a name in Linux's abstract namespace."""
    return f"\0{path[1:]}" if path.startswith("@") else path


def _is_ours(connection: socket.socket) -> bool:
    """Return whether the other end belongs to this user or to root. Any user of this host can connect to an abstract name."""
    return sys.platform != "linux" or peer_process(connection)[1] in (os.getuid(), 0)


class _Server(socketserver.UnixStreamServer):
    def __init__(self, path: str, rendezvous: Rendezvous) -> None:
        self.rendezvous = rendezvous
        super().__init__(path, _Question)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether to answer a request. Only requests of this user and of root are answered."""
        return _is_ours(request)


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
    """A rendezvous that this process reaches through a :class:`Relay` in another process of this host.

    Args:
        path: The address of the relay.
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
            connection.connect(_address(self._path))
            if not _is_ours(connection):
                raise OSError(f"{self._path}: a process of another user listens at this address")
            with connection.makefile("rw", encoding="utf-8") as lines:
                lines.write(json.dumps([method, argument]) + "\n")
                lines.flush()
                text = lines.readline()
        if not text:
            raise OSError(f"{self._path}: the process that connects this process to the rendezvous has ended")
        answer: dict[str, Any] = json.loads(text)
        if "error" in answer:
            raise OSError(answer["error"])
        return answer
