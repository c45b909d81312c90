"""The options in the query of a link's URL: ``?option=value&...``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl

from highway.errors import ConfigError
from highway.parameters.location import did_you_mean

PeerKind = Literal["any", "highway"]
"""Programs that are allowed at the other end of a link."""

OLD_NAMES: Mapping[str, str] = {"hwm_mb": "budget_mb"}  # still accepted


@dataclass(frozen=True)
class LinkOptions:
    """The options in the query of a URL.

    Args:
        codec: How items become frames. ``tensorcom``: a header frame and a data frame for each array. ``tenbin``: the same content in a
            single frame. ``msgpack``: the format of Highway 2017.
        budget_mb: Maximum megabytes of messages that wait at each end of a connection; default: 64. Two messages can always wait, even if
            these messages are larger. At most 1000 messages can wait at a sender, and four at a receiver. Three more messages can be in
            transit. On a same-host link (``+shm``): maximum megabytes of the sender's shared memory; default: 256. A message can use at
            most half of this memory.
        linger_ms: After the last item, maximum milliseconds that the sender waits while no receiver is connected.
        max_mb: Maximum size of a frame in megabytes. A receiver disconnects from a peer that sends a larger frame.
        senders: Number of senders that must end before a receiver ends. If the receiver binds, all connected senders must also have ended.
            ``0`` means one sender if the receiver binds, and one sender for each URL if the receiver connects.
        receivers: Number of receivers that must be connected before the sender sends the first item.
        end: Whether the sender tells the receivers when it has sent its last item.
        tap: Address at which viewers (programs that read copies of the messages) can connect to the sender, such as ``ipc://@name`` or
            ``tcp://host:port``. Empty: no tap.
        extra: Whether the sender is temporary. Receivers do not count a temporary sender among the ``senders`` that must end.
        peers: ``any``: all programs can connect. ``highway``: only programs that announce that they are highway can connect. Both ends need
            the same value.
        topology: Text that identifies the topology file of this end. With ``peers=highway``, ends of different topology files on one
            machine do not connect to each other.
    """

    codec: str = "tensorcom"
    budget_mb: float | None = None
    linger_ms: int = 5000
    max_mb: float = 1024.0
    senders: int = 0
    receivers: int = 0
    end: bool = True
    tap: str = ""
    extra: bool = False
    peers: PeerKind = "any"
    topology: str = ""


DEFAULTS = LinkOptions()


def parse_options(url: str, query: str, defaults: LinkOptions) -> LinkOptions:
    """Return the options of a link. Options that are not in the query keep their defaults.

    Raises:
        ConfigError: an option is unknown, or its value is invalid. The message names the ``url``.
    """
    kinds = {field.name: str(field.type).removesuffix(" | None") for field in dataclasses.fields(LinkOptions)}
    values: dict[str, object] = {}
    for given, text in parse_qsl(query, keep_blank_values=True):
        name = OLD_NAMES.get(given, given)
        if name not in kinds:
            raise ConfigError(f"'{url}': unknown option '{given}'{did_you_mean(given, [*kinds, *OLD_NAMES])}")
        convert, expected = _CONVERT[kinds[name]]
        try:
            values[name] = convert(text)
        except (ValueError, KeyError):
            raise ConfigError(f"'{url}': {given}={text!r}; expected {expected}") from None
    return dataclasses.replace(defaults, **values)  # type: ignore[arg-type]


def _natural(text: str) -> int:
    if not text.isdigit():
        raise ValueError(text)
    return int(text)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise ValueError(text)
    return value


_CONVERT: dict[str, tuple[Callable[[str], object], str]] = {
    "str": (str, "text"),
    "float": (_positive, "a number above 0"),
    "int": (_natural, "a whole number, at least 0"),
    "PeerKind": ({"any": "any", "highway": "highway"}.__getitem__, "any or highway"),
    "bool": ({"0": False, "1": True, "false": False, "true": True}.__getitem__, "0 or 1"),
}
"""Type of an option -> function that converts a text to this type, and the form of the text for error messages."""
