"""The memory that the links of a topology can use, and the messages that they can lose."""

from __future__ import annotations

from highway.topology.plan import SIDES, Plan, names
from highway.wire.codec import named


def memory(plan: Plan, host: str) -> dict[str, float]:
    """Return the maximum megabytes of each link's buffers on a host."""
    buffers = {link: plan.count(link, "from", host) for link in plan.links}
    for link, spec in plan.links.items():
        if not spec.over.is_senders_budget:  # each end has a buffer for each connection
            senders, receivers = (len(plan.processes_at(link, side)) for side in SIDES.values())
            buffers[link] = buffers[link] * receivers + plan.count(link, "to", host) * senders
    return {link: count * plan.links[link].budget_mb for link, count in buffers.items() if count}


def loss(plan: Plan, link: str) -> list[str]:
    """Return sentences about the messages that a link can lose: one sentence for each event, such as a killed sender."""
    spec = plan.links[link]
    senders, receivers = " or ".join(names(spec, "from")), " or ".join(names(spec, "to"))
    waiting = f"up to {spec.budget_mb:g} MB" + ("" if spec.over.is_senders_budget else " at each end of a connection")
    if spec.fans_out:
        return [
            f"if {receivers} is not connected, or is late by more than {waiting}: it misses the messages that are sent meanwhile",
            f"if {senders} is killed: its messages that wait to be sent are lost",
            "the receiver counts all missing messages",
        ]
    is_drained = spec.over.departure == "at once" or named(spec.codec).has_envelopes
    sentences = [
        f"if {receivers} is slow: nothing is lost, {senders} waits",
        f"if {receivers} is drained: {'nothing is' if is_drained else 'the messages in transit to it are'} lost",
        f"if {receivers} is killed: the messages that were sent to it and that it has not passed on are lost, {waiting}",
        f"if {senders} is killed: its messages that wait to be sent are lost",
    ]
    return sentences + [spec.over.loss] * bool(spec.over.loss)
