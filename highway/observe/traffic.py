"""The traffic of each link of a topology, over all its replicas."""

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
        sent: Messages that its senders sent since they started; if it publishes, a message counts once for each receiver. ``None`` if no
            sender is seen.
        received: Messages that its receivers took from it; ``None`` if no receiver is seen.
        faults: The faults that its receivers have counted, by name.
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
        """Messages that were sent and not received: under way, or lost. ``None`` if an end is not seen, or more were received than sent."""
        if self.sent is None or self.received is None or self.received > self.sent:
            return None
        return self.sent - self.received


def traffic(samples: Sequence[Sample]) -> list[Traffic]:
    """Return the traffic of each link, in the order of the replicas."""
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
