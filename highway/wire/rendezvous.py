"""Connect links by names instead of addresses: ``zpush+named://images.reader.0``.

A *rendezvous* is a place that all processes of a run can reach, such as a shared folder. The rendezvous stores the address of each name.

The end that binds uses a free port, and publishes its address under the name at the rendezvous. The end that connects looks up the name,
and connects to each new address of the name. A separate thread queries the rendezvous, so the threads that move data never wait for the
rendezvous.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping

from highway.errors import ConfigError, LinkError
from highway.wire.address import is_loopback
from highway.wire.registries.protocol import Rendezvous, is_address
from highway.wire.registries.table import KINDS

log = logging.getLogger("highway")

REFRESH = 1.0  # seconds between two queries of all names; while some names are unknown, the interval grows from a tenth of this value
SHOWN = 4  # maximum names in a log message
TELL_AFTER = 10.0  # seconds without an address for a name, or without an answer, before a warning
CLOSE = 5.0  # maximum seconds until the querying thread ends


class Directory:
    """The addresses that this process knows, by name. A separate thread updates the addresses until :meth:`close`.

    If the rendezvous has lost an address that this process has published, the thread publishes the address again. If the rendezvous has a
    different address for the name, another process has replaced this process, so the thread does not publish.

    Args:
        rendezvous: The rendezvous to use.
        host: Address of this host for other hosts: a name or an IP address.

    Attributes:
        version: A number that changes when an address changes.
    """

    def __init__(self, rendezvous: Rendezvous, host: str) -> None:
        self.host, self.version = host, 0
        self._rendezvous = rendezvous
        self._published: dict[str, str] = {}
        self._wanted: set[str] = set()
        self._known: Mapping[str, str] = {}
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._silence = _Silence()
        self._asked_at: float | None = None  # time of the query that is waiting for an answer
        self._is_closed, self._closed = False, threading.Event()

    def publish(self, name: str, url: str) -> None:
        """Publish an address, ``tcp://host:port``, under a name of this process."""
        with self._lock:
            self._published[name] = url
        self._begin()

    def follow(self, name: str) -> None:
        """Begin to query the rendezvous for the address of a name."""
        with self._lock:
            self._wanted.add(name)
        self._begin()

    def address(self, name: str) -> str:
        """Return the last known address of a name, as a URL; empty if no address is known."""
        return self._known.get(name, "")

    def close(self) -> None:
        """Stop the thread. The known addresses remain available."""
        self._is_closed = True
        self._wake.set()
        self._closed.set()
        for thread in self._threads:
            thread.join(CLOSE)  # a folder that does not answer can block the thread

    def _begin(self) -> None:
        if not self._threads:
            for name, work in (("highway:rendezvous", self._go_round), ("highway:rendezvous-watch", self._watch)):
                thread = threading.Thread(target=work, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
        self._wake.set()

    def _watch(self) -> None:
        """Warn if the rendezvous hangs, such as a folder on a dead file server. The querying thread cannot warn, because it waits."""
        while not self._closed.wait(REFRESH):
            asked = self._asked_at
            if asked is not None and time.monotonic() >= asked + TELL_AFTER:
                self._silence.does_not_answer(f"a request has had no answer for {TELL_AFTER:g} s")

    def _go_round(self) -> None:
        published: dict[str, str] = {}
        silence, pause = self._silence, 0.0
        while not self._is_closed:
            with self._lock:
                own, wanted = dict(self._published), set(self._wanted)
            try:
                self._asked_at = time.monotonic()
                found = self._rendezvous.find(wanted | own.keys())
                silence.no_address({name: text for name, text in found.items() if not is_address(text)})
                found = {name: text for name, text in found.items() if is_address(text)}
                if missing := {name: own[name] for name in own if name not in found or own[name] != published.get(name)}:
                    self._rendezvous.publish(missing)
                    published |= missing
                self._take_in({name: found[name] for name in wanted & found.keys()})
                silence.answers()
            except (OSError, ValueError) as error:
                silence.does_not_answer(error)
            self._asked_at = None
            unknown = {name for name in wanted if not self.address(name)}
            silence.unknown(unknown)
            pause = min(REFRESH, max(REFRESH / 10, 2 * pause)) if unknown else REFRESH
            if self._wake.wait(pause):
                self._wake.clear()
                pause = 0.0

    def _take_in(self, found: Mapping[str, str]) -> None:
        if new := {name: address for name, address in found.items() if address != self._known.get(name)}:
            self._known = {**self._known, **new}
            self.version += 1


class _Silence:
    """Warns once if the rendezvous does not answer, and once for each name that stays unknown."""

    def __init__(self) -> None:
        self._is_told = False
        self._since: dict[str, float] = {}  # time since which each name is unknown
        self._told: set[str] = set()
        self._junk: dict[str, object] = {}

    def answers(self) -> None:
        if self._is_told:
            log.info("the rendezvous answers again")
        self._is_told = False

    def no_address(self, found: Mapping[str, object]) -> None:
        for name, text in found.items():
            if self._junk.get(name) != text:
                log.warning(
                    "the rendezvous returned %.100r for %s, which is ignored because it is not an address such as tcp://host:port",
                    text,
                    name,
                )
        self._junk = dict(found)

    def does_not_answer(self, error: object) -> None:
        if not self._is_told:
            log.warning("the rendezvous does not answer, so links keep the known addresses: %s", error)
        self._is_told = True

    def unknown(self, names: set[str]) -> None:
        now = time.monotonic()
        self._since = {name: self._since.get(name, now) for name in names}
        if late := sorted({name for name, since in self._since.items() if now >= since + TELL_AFTER} - self._told):
            more = f" and {len(late) - SHOWN} more" if len(late) > SHOWN else ""
            log.warning(
                "no process has published the names %s%s; check that these processes run and use the same rendezvous",
                ", ".join(late[:SHOWN]),
                more,
            )
            self._told.update(late)


_directory: Directory | None = None


def use(rendezvous: Rendezvous, host: str = "") -> Directory:
    """Set the rendezvous for all named links that this process opens later.

    Args:
        rendezvous: The rendezvous; the same for all processes of a run.
        host: Address of this host for other hosts. Default: :func:`own_address`.
    """
    global _directory
    _directory = Directory(rendezvous, host or own_address())
    return _directory


def directory(url: str) -> Directory:
    """Return the directory of this process.

    Raises:
        LinkError: this process has no rendezvous.
    """
    if _directory is None:
        raise LinkError(
            None,
            f"{url}: the name in this URL needs a rendezvous, but this process has none; start the process with `highway run --rendezvous "
            "folder:PATH`",
        )
    return _directory


def own_address() -> str:
    """Return an address at which other hosts reach this host.

    By default, return the address of the host name. If this address is a loopback address or belongs to another host, return the local
    address of the default route. Without a default route, return ``127.0.0.1``.
    """
    with contextlib.suppress(OSError):
        if not is_loopback(address := socket.gethostbyname(socket.gethostname())):
            return _probed(lambda probe: probe.bind((address, 0)))
    with contextlib.suppress(OSError):  # sends nothing; the address is reserved (RFC 5737), so its route is the default route
        return _probed(lambda probe: probe.connect(("192.0.2.1", 9)))
    return "127.0.0.1"


def _probed(use: Callable[[socket.socket], None]) -> str:
    """Return the local address of a socket after ``use(socket)``."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        use(probe)
        return str(probe.getsockname()[0])


def join(text: str, host: str = "", run: str = "") -> None:
    """Set the rendezvous of this process from a text. A second call with the same text has no effect.

    Args:
        text: As for :func:`parse`. The text ``ray`` means ``ray:RUN``, where RUN is the argument ``run``.
        host: As for :func:`use`.
        run: The name of the run.

    Raises:
        ConfigError: the text is invalid, or this process already uses another rendezvous.
    """
    global _joined
    if run and (kind := KINDS.get(text)) and kind.places_are_runs:
        text = f"{text}:{run}"
    if _joined and text != _joined:
        raise ConfigError(f"{text}: this process already uses the rendezvous {_joined}; a process can use only one")
    if not _joined:
        found = parse(text)
        use(found, host or found.host)
        _joined = text


_joined = ""


def parse(text: str) -> Rendezvous:
    """Return the rendezvous of a text: ``KIND:PLACE``, such as ``folder:PATH`` or ``ray:RUN``.

    Raises:
        ConfigError: the text is invalid.
    """
    kind, _, place = text.partition(":")
    if kind not in KINDS or not place:
        raise ConfigError(f"rendezvous {text}: expected {' or '.join(each.shown for each in KINDS.values() if each.shown)}")
    return KINDS[kind].open(place)
