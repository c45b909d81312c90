"""URLs of links: ``KIND[+TRANSPORT]://location[?option=value&...][#topic]``.

The kind determines the type of the socket, and whether this end binds:

========  =======  =========  ====================================================
scheme    socket   this end   used by
========  =======  =========  ====================================================
zpush     push     connects   a worker that sends to a trainer
zpull     pull     binds      a trainer that many workers send to
zpub      pub      binds      a server that many trainers listen to
zsub      sub      connects   a trainer that listens to a server
zrpush    push     binds      a source that many workers receive from
zrpull    pull     connects   a worker that receives from a source
zrpub     pub      connects   a server that sends to one ``zrsub``
zrsub     sub      binds      a trainer that many servers send to
========  =======  =========  ====================================================

The transport determines the form of the location:

- ``tcp``, the default: ``host:port``.
- ``ipc``: the path of a UNIX socket.
- ``shm``: a name on this machine. Only for push and pull.
- ``inproc``: a name within the process.
- ``named``: a name whose address comes from a rendezvous, a store of addresses (:mod:`highway.wire.rendezvous`). The data use tcp.

Plain ``tcp://``, ``ipc://``, ``shm://`` and ``inproc://`` mean push at a sender and pull at a receiver. The argument ``bind`` of
:func:`parse` then selects whether this end binds. Port ``0`` or ``*`` selects a free port. Host ``*`` means all interfaces. An empty host
means the loopback interface.

Braces expand as in a shell: ``zsub://host:788{0..3}`` means four URLs. All URLs of a link share one socket. A link can mix tcp URLs and ipc
URLs.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from highway.errors import ConfigError
from highway.parameters.braces import expand_braces
from highway.parameters.location import did_you_mean
from highway.wire.options import DEFAULTS, LinkOptions, parse_options
from highway.wire.transports.table import TRANSPORTS, Transport

Kind = Literal["push", "pull", "pub", "sub"]
Direction = Literal["send", "receive"]

MOST_URLS = 10_000  # maximum expansions of one text with braces

SCHEMES: dict[str, tuple[Kind, bool]] = {
    "zpush": ("push", False),
    "zpull": ("pull", True),
    "zpub": ("pub", True),
    "zsub": ("sub", False),
    "zrpush": ("push", True),
    "zrpull": ("pull", False),
    "zrpub": ("pub", False),
    "zrsub": ("sub", True),
}
"""Scheme -> (type of socket, whether the end binds)."""

_DEFAULT, *_ = TRANSPORTS.values()


class SocketKind(NamedTuple):
    """A type of socket.

    Args:
        direction: Whether sockets of this type send or receive.
        fans_out: Whether each receiver gets every message. If false, each message goes to one receiver.
    """

    direction: Direction
    fans_out: bool


KINDS: dict[Kind, SocketKind] = {
    "push": SocketKind("send", False),
    "pub": SocketKind("send", True),
    "pull": SocketKind("receive", False),
    "sub": SocketKind("receive", True),
}

_URL = re.compile(r"(?P<scheme>[^:/?#+]+)(?:\+(?P<transport>[^:/?#]*))?://(?P<location>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#(?P<topic>.*))?")
_TCP = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*):(?P<port>\d+|\*)")

SHOWN_URLS = 4  # maximum URLs of a link in error and log messages


@dataclass(frozen=True)
class Link:
    """One end of a link: the parsed URLs of one socket.

    Args:
        urls: The given URLs, after the expansion of braces.
        kind: The type of socket.
        bind: Whether this end binds. If false, this end connects.
        transports: The transport of each URL: only ``shm``, only ``inproc``, or any mix of the other transports.
        locations: The location of each URL: ``host:port``, a path or a name.
        topic: The topic of a publisher's messages, or the prefix of the topics that a subscriber receives.
        options: The options in the query of the URLs.
    """

    urls: tuple[str, ...]
    kind: Kind
    bind: bool
    transports: tuple[Transport, ...]
    locations: tuple[str, ...]
    topic: str = ""
    options: LinkOptions = DEFAULTS

    @property
    def transport(self) -> Transport:
        """The transport of the first URL."""
        return self.transports[0]

    @property
    def fans_out(self) -> bool:
        """Whether each receiver gets every message. If false, each message goes to one receiver."""
        return KINDS[self.kind].fans_out

    @property
    def sends(self) -> bool:
        """Whether this end sends."""
        return KINDS[self.kind].direction == "send"

    @property
    def budget_mb(self) -> float:
        """Maximum megabytes of messages that wait at this end for each connection. With ``+shm``: for all connections together."""
        return self.transport.budget_mb if self.options.budget_mb is None else self.options.budget_mb

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses for ZeroMQ: ``transport://location`` of each URL."""
        return tuple(f"{transport.name}://{location}" for transport, location in zip(self.transports, self.locations, strict=True))

    def __str__(self) -> str:
        """Return the URLs without their options, for messages.

        If there are many URLs, return the first URLs and the number of the others.
        """
        shown = [re.sub(r"\?[^#]*", "", url) for url in self.urls]
        return ", ".join(shown) if len(shown) <= SHOWN_URLS else f"{', '.join(shown[:SHOWN_URLS])} and {len(shown) - SHOWN_URLS} more"


def parse(
    url: str | Sequence[str],
    direction: Direction,
    bind: bool | None = None,
    *,
    braces: bool = True,
    defaults: LinkOptions = DEFAULTS,
) -> Link:
    """Parse one URL, or several URLs that share a socket.

    Args:
        url: One URL or several.
        direction: Whether this end sends or receives.
        bind: Whether this end binds, for plain URLs such as ``tcp://host:port``. ``None``: the sender binds. For other URLs, the value must
            fit the scheme.
        braces: Whether braces are expanded.
        defaults: Values of options that the query does not set.

    Raises:
        ConfigError: a URL is invalid, or the URLs cannot share a socket.
    """
    given = [url] if isinstance(url, str) else list(url)
    urls = [each for one in given for each in (expand_braces(one, MOST_URLS) if braces else [one])]
    if not urls:
        raise ConfigError("no URL was given; expected for example 'tcp://127.0.0.1:5555' or 'zsub://host:7880'")
    return joined([_parse_one(one, direction, bind, defaults) for one in urls])


def joined(links: Sequence[Link]) -> Link:
    """Combine links into one link, whose URLs share a socket.

    Raise ConfigError if a link cannot share the socket of the first link. The message names both links.
    """
    first = links[0]
    for link in links[1:]:
        why = [each.alone for each in (*link.transports, *first.transports) if each.alone]
        if why and set(link.transports) != set(first.transports):
            raise ConfigError(f"'{link}' and '{first}' cannot share a socket: {why[0]}")
        if _settings(link) != _settings(first):
            raise ConfigError(f"'{link}' and '{first}' cannot share a socket: their schemes, options and topics must be equal")
    parts = zip(*((link.urls, link.transports, link.locations) for link in links), strict=True)
    urls, transports, locations = (tuple(itertools.chain(*each)) for each in parts)
    return dataclasses.replace(first, urls=urls, transports=transports, locations=locations)


def _settings(link: Link) -> tuple[object, ...]:
    """Return the settings that must be equal for all URLs of a socket."""
    return link.kind, link.bind, link.topic, dataclasses.replace(link.options, budget_mb=link.budget_mb)


def url_of(scheme: str, transport: Transport, location: str) -> str:
    """Return a URL without options. The URL does not name the default transport."""
    return f"{scheme}://{location}" if transport is _DEFAULT else f"{scheme}+{transport.name}://{location}"


def kind_of(url: str | Sequence[str]) -> Kind:
    """Return the type of socket for the scheme of a URL. If there are several URLs, the scheme of the first URL counts.

    Raises:
        ConfigError: the scheme is unknown, or is a plain scheme such as ``tcp://``, which does not determine the type of socket.
    """
    first = url if isinstance(url, str) else next(iter(url), "")
    scheme = re.split(r"[+:]", first, maxsplit=1)[0]
    if scheme not in SCHEMES:
        known = "" if scheme not in TRANSPORTS else f", such as zsub+{scheme} or zpush+{scheme}"
        raise ConfigError(
            f"'{first}': the scheme must select the type of socket and the end that binds{known or did_you_mean(scheme, SCHEMES)}"
        )
    return SCHEMES[scheme][0]


def _parse_one(url: str, direction: Direction, bind: bool | None, defaults: LinkOptions) -> Link:
    match = _URL.fullmatch(url)
    if not match:
        raise ConfigError(f"'{url}' is not a URL; expected KIND[+TRANSPORT]://location, such as tcp://host:5555 or zsub://host:7880")
    scheme, name = match["scheme"], match["transport"]
    kind, binds = _scheme(url, scheme, direction, bind)
    if scheme in TRANSPORTS:
        if name is not None:
            raise ConfigError(
                f"'{url}': '{scheme}' is a transport, and a URL can have only one; remove '+{name}', or use a scheme such as zpush+{scheme}"
            )
        name = scheme
    name = _DEFAULT.name if name is None else name
    if name not in TRANSPORTS:
        raise ConfigError(f"'{url}': unknown transport '{name}'{did_you_mean(name, TRANSPORTS)}")
    transport = TRANSPORTS[name]
    if KINDS[kind].fans_out and not transport.publishes:
        raise ConfigError(f"'{url}': the transport {name} supports only push and pull; use zpush+{name} and zpull+{name}, or {scheme}+ipc")
    location = _location(url, transport, match["location"], binds)
    topic = match["topic"] or ""
    if topic and not KINDS[kind].fans_out:
        raise ConfigError(f"'{url}': a {kind} socket has no topics; remove '#{topic}', or use zpub and zsub")
    options = parse_options(url, match["query"] or "", defaults)
    if options.tap:
        _check_tap(url, *options.tap.partition("://")[::2])
    return Link((url,), kind, binds, (transport,), (location,), topic, options)


def _scheme(url: str, scheme: str, direction: Direction, bind: bool | None) -> tuple[Kind, bool]:
    if scheme in TRANSPORTS:
        return ("push", bind is not False) if direction == "send" else ("pull", bind is True)
    if scheme not in SCHEMES:
        raise ConfigError(f"'{url}': unknown scheme '{scheme}'{did_you_mean(scheme, [*SCHEMES, *TRANSPORTS])}")
    kind, binds = SCHEMES[scheme]
    if KINDS[kind].direction != direction:
        fitting = [name for name, (other, _) in SCHEMES.items() if KINDS[other].direction == direction]
        raise ConfigError(f"'{url}': {scheme} can only {KINDS[kind].direction}; to {direction}, use one of {', '.join(fitting)}")
    if bind is not None and bind != binds:
        other = next(name for name, (k, b) in SCHEMES.items() if k == kind and b == bind)
        raise ConfigError(
            f"'{url}': bind={bind}, but {scheme} always {'binds' if binds else 'connects'}; remove bind=, or use {other}, which "
            f"{'binds' if bind else 'connects'}"
        )
    return kind, binds


def _location(url: str, transport: Transport, location: str, bind: bool) -> str:
    if not transport.has_port:
        if not location:
            raise ConfigError(f"'{url}': expected a {transport.location} after '://'")
        return location
    match = _TCP.fullmatch(location.rstrip("/"))
    if not match:
        raise ConfigError(f"'{url}': expected host:port after '://', such as 127.0.0.1:5555, [::1]:5555 or *:5555; found '{location}'")
    host, port = match["host"] or "127.0.0.1", match["port"].replace("*", "0")
    if int(port) > 65535:
        raise ConfigError(f"'{url}': port {port}; expected 0 to 65535")
    if not bind and (int(port) == 0 or host == "*"):
        raise ConfigError(f"'{url}': only the end that binds can use '*' or port 0; this end connects and needs the host and the port")
    return f"{host}:{port}"


def _check_tap(url: str, name: str, location: str) -> None:
    transport = TRANSPORTS.get(name)
    if transport is None or transport.within_process or not transport.publishes:
        raise ConfigError(f"'{url}': tap='{name}'; expected an address to bind, such as ipc://@name or tcp://127.0.0.1:7900")
    _location(url, transport, location, bind=True)
