"""The traffic of each link of a topology, over all replicas (processes)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from highway.engine.stats import Rate
from highway.observe.poll import Sample
from highway.wire.counters import faults


@dataclass
class Traffic:
    """The traffic of a link, over all replicas.

    Args:
        link: Name of the link.
        sent: Number of messages that the link's senders have sent since their start. If the link publishes, a message counts once for each
            receiver. ``None`` if no sender is known.
        received: Number of messages that the link's receivers have taken; ``None`` if no receiver is known.
        faults: The faults that the link's receivers have counted, by the name of the fault.
        sending: The current rate of sending.
        receiving: The current rate of receiving.
    """

    link: str
    sent: int | None = None
    received: int | None = None
    faults: dict[str, int] = field(default_factory=lambda: faults({}))
    sending: Rate = field(default_factory=Rate)
    receiving: Rate = field(default_factory=Rate)

    @property
    def missing(self) -> int | None:
        """Number of messages that were sent and not received: in transit, or lost.

        ``None`` if no sender or no receiver is known, or if more messages were received than sent.
        """
        if self.sent is None or self.received is None or self.received > self.sent:
            return None
        return self.sent - self.received


def traffic(samples: Sequence[Sample]) -> list[Traffic]:
    """Return the traffic of each link. The links come in the order in which the samples use them."""
    links: dict[str, Traffic] = {}
    for one in samples:
        if name := one.ends.receives:
            link = links.setdefault(name, Traffic(name))
            link.received = (link.received or 0) + one.state.counts.received
            link.receiving = link.receiving.plus(one.rate(0))
            for fault, count in faults(one.state.stats.stages[0].counters if one.state.stats else {}).items():
                link.faults[fault] += count
        if name := one.ends.sends:
            link = links.setdefault(name, Traffic(name))
            receivers = sum(other.ends.receives == name for other in samples) if one.ends.publishes else 1
            link.sent = (link.sent or 0) + one.state.counts.sent * max(1, receivers)
            link.sending = link.sending.plus(one.rate(-1))
    return list(links.values())
