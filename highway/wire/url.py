"""URLs of links: ``KIND[+TRANSPORT]://location[?option=value&...][#topic]``.

The kind fixes the type of socket and who binds:

========  =======  =========  ====================================================
scheme    socket   who binds  used by
========  =======  =========  ====================================================
zpush     push     connects   a worker that sends to a trainer
zpull     pull     binds      that trainer
zpub      pub      binds      a server that many trainers listen to
zsub      sub      connects   one of those trainers
zrpush    push     binds      a source that hands out work
zrpull    pull     connects   a worker that fetches it
zrpub     pub      connects   as zpub, but to a ``zrsub`` that binds
zrsub     sub      binds      as zsub
========  =======  =========  ====================================================

Transports are ``tcp`` (the default; location ``host:port``), ``ipc`` (a path), ``shm`` (a name on this machine; push and pull only) and
``inproc`` (a name within the process). Plain ``tcp://``, ``ipc://``, ``shm://`` and ``inproc://`` mean push for who sends and pull for who
receives, and ``bind=`` says who binds. Braces expand as in a shell, ``zsub://host:788{0..3}``, and all expanded URLs share one socket, as
several URLs do, also of tcp and ipc. Port ``0`` or ``*`` is a free port; host ``*`` is every interface, an empty host the loopback
interface.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl

from highway.errors import ConfigError
from highway.parameters.location import did_you_mean

Kind = Literal["push", "pull", "pub", "sub"]
Direction = Literal["send", "receive"]

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
"""Scheme -> (socket, whether it binds)."""

TRANSPORTS = ("tcp", "ipc", "shm", "inproc")
ALONE = {
    "shm": "shm is shared memory, which no socket of ZeroMQ reads; use ipc in its place, or give each a source or sink of its own",
    "inproc": "over inproc ZeroMQ does not tell who is connected, so the end of the stream would be missed; use ipc in its place",
}
"""Transport -> why its URLs share no socket with those of others, and what to do."""

DIRECTIONS: dict[Kind, Direction] = {"push": "send", "pub": "send", "pull": "receive", "sub": "receive"}

_URL = re.compile(r"(?P<scheme>[^:/?#+]+)(?:\+(?P<transport>[^:/?#]*))?://(?P<location>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#(?P<topic>.*))?")
_TCP = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*):(?P<port>\d+|\*)")
_BRACES = re.compile(r"\{([^{}]*(?:,[^{}]*)+|[^{},]+\.\.[^{},]+)\}")

SHOWN_URLS = 4  # of a link, in messages


@dataclass(frozen=True)
class LinkOptions:
    """What the query of a URL can set.

    Args:
        codec: How items become frames: ``tensorcom`` (one header and one data frame for each array), ``tenbin`` (the same in a single
            frame) or ``msgpack`` (Highway 2017's).
        hwm_mb: Megabytes of messages that may wait at each end of each connection. At least two messages may, at most 1000 at a sender and
            four at a receiver; three more may be on their way.
        linger_ms: Milliseconds that the tail of a stream waits for a receiver when there is none.
        budget_mb: Megabytes of shared memory that the sender of a same-host link (``+shm``) may use, in place of ``hwm_mb``; one message
            may take half.
        max_mb: Megabytes that one frame may have; whoever sends a larger one is disconnected by the receiver.
        senders: Senders that must at least have ended before a receiver ends, besides all that are connected; 0 means one for each URL of
            a receiver that connects.
        receivers: Receivers that must be connected before the first item is sent.
        end: Whether the sender tells the receivers when its stream has ended.
        tap: Address at which the sender lets viewers look, such as ``ipc://@name`` or ``tcp://host:port``; none by default.
    """

    codec: str = "tensorcom"
    hwm_mb: float = 64.0
    budget_mb: float = 256.0
    linger_ms: int = 5000
    max_mb: float = 1024.0
    senders: int = 0
    receivers: int = 0
    end: bool = True
    tap: str = ""


@dataclass(frozen=True)
class Link:
    """One end of a link: what the URLs of one socket say.

    Args:
        urls: The URLs as given, after the expansion of braces.
        kind: The type of socket.
        bind: Whether this end binds; else it connects.
        transports: The transport of each: all ``shm``, all ``inproc``, or ``tcp`` and ``ipc`` in any order.
        locations: The location of each: ``host:port``, a path or a name.
        topic: Prefix that a subscriber asks for; what a publisher puts in front of its messages.
        options: The query.
    """

    urls: tuple[str, ...]
    kind: Kind
    bind: bool
    transports: tuple[str, ...]
    locations: tuple[str, ...]
    topic: str = ""
    options: LinkOptions = LinkOptions()

    @property
    def budget_mb(self) -> float:
        """Megabytes that may wait at this end: of each connection, or (``+shm``) of all."""
        return self.options.budget_mb if "shm" in self.transports else self.options.hwm_mb

    @property
    def addresses(self) -> tuple[str, ...]:
        """What ZeroMQ calls them: ``transport://location`` of each URL."""
        return tuple(f"{transport}://{location}" for transport, location in zip(self.transports, self.locations, strict=True))

    def __str__(self) -> str:
        """What messages call it: its URLs without their options, and the first ones of many."""
        shown = [re.sub(r"\?[^#]*", "", url) for url in self.urls]
        return ", ".join(shown) if len(shown) <= SHOWN_URLS else f"{', '.join(shown[:SHOWN_URLS])} and {len(shown) - SHOWN_URLS} more"


def parse(
    url: str | Sequence[str],
    direction: Direction,
    bind: bool | None = None,
    *,
    braces: bool = True,
    defaults: LinkOptions = LinkOptions(),
) -> Link:
    """Return what one URL, or several that share a socket, say.

    Args:
        url: A URL or several.
        direction: Whether items are sent or received at this end.
        bind: Who binds, for plain URLs such as ``tcp://host:port``; ``None`` means that the sender does.
        braces: Whether braces are expanded.
        defaults: LinkOptions that the query does not set.

    Raises:
        ConfigError: a URL cannot be used as written; the message says what is expected.
    """
    given = [url] if isinstance(url, str) else list(url)
    urls = [each for one in given for each in (expand_braces(one) if braces else [one])]
    if not urls:
        raise ConfigError("no URL was given; expected such as 'tcp://127.0.0.1:5555' or 'zsub://host:7880'")
    return joined([_parse_one(one, direction, bind, defaults) for one in urls])


def joined(links: Sequence[Link]) -> Link:
    """Return what several links say that share a socket; a ConfigError names the first one that cannot."""
    first = links[0]
    for link in links[1:]:
        if (link.kind, link.bind, link.topic, link.options) != (first.kind, first.bind, first.topic, first.options):
            raise ConfigError(f"'{link}' and '{first}' cannot share a socket: scheme, options and topic must be the same")
        why = [ALONE[each] for each in (*link.transports, *first.transports) if each in ALONE]
        if why and set(link.transports) != set(first.transports):
            raise ConfigError(f"'{link}' and '{first}' cannot share a socket: {why[0]}")
    parts = zip(*((link.urls, link.transports, link.locations) for link in links), strict=True)
    urls, transports, locations = (tuple(itertools.chain(*each)) for each in parts)
    return dataclasses.replace(first, urls=urls, transports=transports, locations=locations)


def kind_of(url: str | Sequence[str]) -> Kind:
    """Return the type of socket that the scheme of a URL, or of the first of several, fixes.

    Raises:
        ConfigError: it fixes none: it is a plain one such as ``tcp://``, or unknown.
    """
    first = url if isinstance(url, str) else next(iter(url), "")
    scheme = re.split(r"[+:]", first, maxsplit=1)[0]
    if scheme not in SCHEMES:
        known = "" if scheme not in TRANSPORTS else f", such as zsub+{scheme} or zpush+{scheme}"
        raise ConfigError(f"'{first}': expected a scheme that says what socket and who binds{known or did_you_mean(scheme, SCHEMES)}")
    return SCHEMES[scheme][0]


def expand_braces(text: str) -> list[str]:
    """Expand ``{a,b}`` and ``{0..3}`` as a shell does; numbers keep leading zeros.

    >>> expand_braces("zsub://h{a,b}:788{0..1}")
    ['zsub://ha:7880', 'zsub://ha:7881', 'zsub://hb:7880', 'zsub://hb:7881']
    """
    found = _BRACES.search(text)
    if not found:
        return [text]
    head, tail = text[: found.start()], text[found.end() :]
    # Braces within braces are expanded from the inside, which repeats what stands beside them.
    return list(dict.fromkeys(whole for choice in _choices(found[1], text) for whole in expand_braces(head + choice + tail)))


def _choices(body: str, text: str) -> Iterator[str]:
    if "," in body:
        yield from body.split(",")
        return
    first, last = body.split("..", 1)
    if not (first.isdigit() and last.isdigit()):
        raise ConfigError(f"'{text}': '{{{body}}}' is no range; expected such as {{0..3}} or {{a,b}}")
    start, stop = int(first), int(last)
    if abs(stop - start) >= 10_000:
        raise ConfigError(f"'{text}': '{{{body}}}' expands to {abs(stop - start) + 1} URLs; expected at most 10000")
    width = max(len(first), len(last)) if first.startswith("0") or last.startswith("0") else 0
    step = 1 if stop >= start else -1
    for number in range(start, stop + step, step):
        yield str(number).zfill(width)


def _parse_one(url: str, direction: Direction, bind: bool | None, defaults: LinkOptions) -> Link:
    match = _URL.fullmatch(url)
    if not match:
        raise ConfigError(f"'{url}' is no URL; expected KIND[+TRANSPORT]://location, such as tcp://host:5555 or zsub://host:7880")
    scheme, transport = match["scheme"], match["transport"]
    kind, binds = _scheme(url, scheme, direction, bind)
    if scheme in TRANSPORTS:
        if transport is not None:
            raise ConfigError(f"'{url}': '{scheme}' is a transport itself; leave '+{transport}' out, or name a kind: zpush+{scheme}")
        transport = scheme
    transport = "tcp" if transport is None else transport
    if transport not in TRANSPORTS:
        raise ConfigError(f"'{url}': unknown transport '{transport}'{did_you_mean(transport, TRANSPORTS)}")
    if transport == "shm" and kind not in ("push", "pull"):
        raise ConfigError(f"'{url}': shm links push and pull; use zpush+shm and zpull+shm, or {scheme}+ipc")
    location = _location(url, transport, match["location"], binds)
    topic = match["topic"] or ""
    if topic and kind not in ("pub", "sub"):
        raise ConfigError(f"'{url}': a {kind} socket has no topics; leave '#{topic}' out, or use zpub and zsub")
    return Link((url,), kind, binds, (transport,), (location,), topic, _options(url, match["query"] or "", defaults))


def _scheme(url: str, scheme: str, direction: Direction, bind: bool | None) -> tuple[Kind, bool]:
    if scheme in TRANSPORTS:
        return ("push", bind is not False) if direction == "send" else ("pull", bind is True)
    if scheme not in SCHEMES:
        raise ConfigError(f"'{url}': unknown scheme '{scheme}'{did_you_mean(scheme, [*SCHEMES, *TRANSPORTS])}")
    kind, binds = SCHEMES[scheme]
    if DIRECTIONS[kind] != direction:
        fitting = [name for name, (other, _) in SCHEMES.items() if DIRECTIONS[other] == direction]
        raise ConfigError(f"'{url}': {scheme} can only {DIRECTIONS[kind]}; to {direction}, expected one of {', '.join(fitting)}")
    if bind is not None and bind != binds:
        other = next(name for name, (k, b) in SCHEMES.items() if k == kind and b == bind)
        raise ConfigError(
            f"'{url}': bind={bind}, but {scheme} {'binds' if binds else 'connects'}; use {other}, which {'binds' if bind else 'connects'}"
        )
    return kind, binds


def _location(url: str, transport: str, location: str, bind: bool) -> str:
    if transport != "tcp":
        if not location:
            raise ConfigError(f"'{url}': no {'path' if transport == 'ipc' else 'name'} behind '://'")
        return location
    match = _TCP.fullmatch(location.rstrip("/"))
    if not match:
        raise ConfigError(f"'{url}': expected host:port behind '://', such as 127.0.0.1:5555, [::1]:5555 or *:5555; found '{location}'")
    host, port = match["host"] or "127.0.0.1", match["port"].replace("*", "0")
    if int(port) > 65535:
        raise ConfigError(f"'{url}': port {port}; expected 0 to 65535")
    if not bind and (int(port) == 0 or host == "*"):
        raise ConfigError(f"'{url}': '*' and port 0 are for the end that binds; the end that connects needs a host and a port")
    return f"{host}:{port}"


def _options(url: str, query: str, defaults: LinkOptions) -> LinkOptions:
    known = {field.name: field.type for field in dataclasses.fields(LinkOptions)}
    values: dict[str, object] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            raise ConfigError(f"'{url}': unknown option '{name}'{did_you_mean(name, known)}")
        try:
            values[name] = _CONVERT[str(known[name])](text)
        except (ValueError, KeyError):
            raise ConfigError(f"'{url}': {name}={text!r}; expected {_EXPECTED[str(known[name])]}") from None
    options = dataclasses.replace(defaults, **values)  # type: ignore[arg-type]
    if options.tap:
        _check_tap(url, *options.tap.partition("://")[::2])
    return options


def _check_tap(url: str, transport: str, location: str) -> None:
    if transport not in ("ipc", "tcp"):
        raise ConfigError(f"'{url}': tap='{transport}'; expected an address to bind, such as ipc://@name or tcp://127.0.0.1:7900")
    _location(url, transport, location, bind=True)


def _natural(text: str) -> int:
    if not text.isdigit():
        raise ValueError(text)
    return int(text)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise ValueError(text)
    return value


_CONVERT: dict[str, Callable[[str], object]] = {
    "str": str,
    "float": _positive,
    "int": _natural,
    "bool": {"0": False, "1": True, "false": False, "true": True}.__getitem__,
}
_EXPECTED = {"str": "text", "float": "a number above 0", "int": "a whole number, at least 0", "bool": "0 or 1"}
