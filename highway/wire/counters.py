"""The table of a link's counters, with a description of each counter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class LinkCounter(NamedTuple):
    """One counter.

    Args:
        about: Description, a sentence.
        at_viewer: Description in the commands that show the batches of a link; empty if these commands do not show the counter.
        is_fault: Whether a count above 0 is a fault.
    """

    about: str
    at_viewer: str = ""
    is_fault: bool = False


LINK_COUNTERS: Final[Mapping[str, LinkCounter]] = {
    "messages": LinkCounter("Messages that a ZMQSource received or a ZMQSink sent, without the messages that end a stream."),
    "bytes": LinkCounter("Bytes of the messages that a ZMQSource received or a ZMQSink sent."),
    "gaps": LinkCounter(
        "Messages that were sent but did not arrive.", "sent, but dropped before they arrived: this subscriber is too slow", True
    ),
    "late": LinkCounter("Messages that were sent before the receiver connected.", "sent before this subscriber connected"),
    "duplicates": LinkCounter("Messages that arrived twice.", "arrived twice", True),
    "malformed": LinkCounter("Messages that could not be decoded.", "could not be decoded", True),
}
FAULTS: Final = tuple(name for name, counter in LINK_COUNTERS.items() if counter.is_fault)


def start(counters: dict[str, float]) -> None:
    """Set the missing counters of a receiver to 0: :data:`LINK_COUNTERS`, and the counters ``received``, ``senders`` and ``ended``."""
    for name in (*LINK_COUNTERS, "received", "senders", "ended"):
        counters.setdefault(name, 0)


def faults(counters: Mapping[str, float]) -> dict[str, int]:
    """Return the faults that a receiver has counted, by name."""
    return {name: int(counters.get(name, 0)) for name in FAULTS}
