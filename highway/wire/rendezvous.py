"""How ends of links find each other that have a name in place of an address: ``zpush+named://images.reader.0``.

The end that binds takes a free port, and publishes its address under the name. The end that connects follows the name: to where it is
published now, and to another place when it is published there. A thread of its own speaks to the rendezvous, which all processes of a run
share; who moves data only reads what that has heard last.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from highway.errors import ConfigError, LinkError

log = logging.getLogger("highway")

REFRESH = 1.0  # seconds between two looks at where all names are; before they are all known, between a tenth of that and that
PUBLISH = 5.0  # seconds after which addresses are published again: a rendezvous may have been lost, and have begun anew


class Rendezvous(Protocol):
    """Where the processes of a run publish addresses by name. Its methods are called on one thread, which they may keep waiting."""

    def publish(self, addresses: Mapping[str, str]) -> None:
        """Say where names of this process are: ``host:port`` of each. Raises OSError if it cannot be reached."""

    def find(self, names: Collection[str]) -> Mapping[str, str]:
        """Return where names are, of those that are known. Raises as :meth:`publish`."""


class FolderRendezvous:
    """A folder that all hosts see: a file for each name.

    Args:
        path: The folder; it is made if it is not there.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def publish(self, addresses: Mapping[str, str]) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        for name, address in addresses.items():
            with tempfile.NamedTemporaryFile("w", dir=self._path, prefix=".", delete=False) as file:
                file.write(address)
            os.replace(file.name, self._file(name))

    def find(self, names: Collection[str]) -> Mapping[str, str]:
        found = {}
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found[name] = self._file(name).read_text()
        return found

    def _file(self, name: str) -> Path:
        return self._path / urllib.parse.quote(name, safe="")


class Directory:
    """What this process knows of where names are.

    Args:
        rendezvous: Where it publishes and asks.
        host: Where others reach this process's host: a name or an IP address.

    Attributes:
        version: Changes when an address does.
    """

    def __init__(self, rendezvous: Rendezvous, host: str) -> None:
        self.host, self.version = host, 0
        self._rendezvous = rendezvous
        self._published: dict[str, str] = {}
        self._wanted: set[str] = set()
        self._known: Mapping[str, str] = {}
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def publish(self, name: str, port: int) -> None:
        """Say that a name of this process is at a port of its host."""
        with self._lock:
            self._published[name] = f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"
        self._begin()

    def follow(self, name: str) -> None:
        """Ask where a name is from now on."""
        with self._lock:
            self._wanted.add(name)
        self._begin()

    def address(self, name: str) -> str:
        """Return where a name was when it was last heard of; empty if it never was."""
        return self._known.get(name, "")

    def close(self) -> None:
        """Hear and say nothing more."""
        self._is_closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._go_round, name="highway:rendezvous", daemon=True)
            self._thread.start()
        self._wake.set()

    def _go_round(self) -> None:
        published: Mapping[str, str] = {}
        pause, due, is_told = 0.0, 0.0, False
        while not self._is_closed:
            with self._lock:
                own, wanted = dict(self._published), set(self._wanted)
            try:
                if own and (own != published or time.monotonic() >= due):
                    self._rendezvous.publish(own)
                    published, due = own, time.monotonic() + PUBLISH
                self._take_in(self._rendezvous.find(wanted))
                is_told = False
            except OSError as error:
                if not is_told:
                    log.warning("the rendezvous does not answer, so links stay at the addresses that are known: %s", error)
                is_told = True
            pause = REFRESH if all(map(self.address, wanted)) else min(REFRESH, max(REFRESH / 10, 2 * pause))
            if self._wake.wait(pause):
                self._wake.clear()
                pause = 0.0

    def _take_in(self, found: Mapping[str, str]) -> None:
        if new := {name: address for name, address in found.items() if address != self._known.get(name)}:
            self._known = {**self._known, **new}
            self.version += 1


_directory: Directory | None = None


def use(rendezvous: Rendezvous, host: str = "") -> None:
    """Have the links of this process that have names find each other at a rendezvous.

    Args:
        rendezvous: Where; it is the same for all processes of a run.
        host: Where others reach this host; by default the address of its name.
    """
    global _directory
    _directory = Directory(rendezvous, host or own_address())


def directory(url: str) -> Directory:
    """Return what this process knows of names.

    Raises:
        LinkError: no rendezvous is used here.
    """
    if _directory is None:
        raise LinkError(
            None, f"{url}: a name is found at a rendezvous, and this process has none; `highway run --rendezvous folder:PATH` gives it one"
        )
    return _directory


def own_address() -> str:
    """Return the address of this host's name; its loopback address, if that is all that the name stands for."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def parse(text: str) -> Rendezvous:
    """Return the rendezvous of a text: ``folder:PATH``.

    Raises:
        ConfigError: it is none.
    """
    kind, _, rest = text.partition(":")
    if kind != "folder" or not rest:
        raise ConfigError(f"--rendezvous {text}: expected folder:PATH, a folder that all hosts of the run see")
    return FolderRendezvous(rest)
