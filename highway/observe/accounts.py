"""Count the messages of each link at both ends, to report missing messages and the reasons."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from highway.engine.stats import PipelineStats
from highway.observe.poll import Sample
from highway.observe.snapshot import Ends
from highway.observe.state import ReplicaState
from highway.observe.traffic import Traffic, traffic
from highway.wire.tally import Counts


@dataclass(frozen=True)
class Departure:
    """A process that has ended.

    Args:
        name: The name of the replica.
        how: A text that describes how the process ended.
        failed: Whether the process failed.
        counts: How many messages the process received and sent. Exact unless ``is_lost`` is true, even if the process was killed.
        stats: The last statistics. If the process was killed, the statistics can be up to half a second old.
        was_killed: Whether the process failed because of a signal that does not indicate a crash, such as SIGKILL.
        unfinished: Whether the process was asked to end, and had not delivered all needed items before it ended.
        is_lost: Whether the host of the process was lost. ``counts`` are then the last reported counts; the true counts can be higher.
    """

    name: str
    how: str
    failed: bool
    counts: Counts
    stats: PipelineStats | None = None
    was_killed: bool = False
    unfinished: bool = False
    is_lost: bool = False

    @property
    def held(self) -> int:
        """Maximum number of messages that the process lost: messages that it received, but neither sent nor processed.

        0 unless the process failed or was stopped too early. Otherwise, the number is an estimate: received messages minus sent or
        processed messages, but at most the number of messages that fit into the process.
        """
        if not (self.failed or self.unfinished):
            return 0
        if self.stats is None:
            return max(0, self.counts.received - self.counts.sent)
        used = max(0, self.stats.items - self.failed)  # includes the last item of a failed sink, which has not finished it
        unsent = max(0, self.counts.received - max(self.counts.sent, used))  # below 0 if a stage makes several messages of one
        room = sum(stage.capacity for stage in self.stats.stages) + 2  # one in the source, one in the sink
        return min(unsent, room + int(self.stats.stages[0].counters.get("arrived", 0)))

    def __str__(self) -> str:
        """Return a sentence about the lost messages. Use the sentence only if ``held`` is not 0."""
        what, were = ("1 message", "was") if self.held == 1 else (f"up to {self.held:,} messages", "were")
        return f"{self.name} {self.how}: {what} that it had received {were} lost"


@dataclass(frozen=True)
class Account:
    """The messages that a link has carried.

    Args:
        link: The name of the link.
        sent: Number of messages that the link's senders sent. If the link publishes, a message counts once for each receiver. ``None`` if
            no sender runs here.
        received: Number of messages that the link's receivers took. ``None`` if no receiver runs here.
        missing: Number of messages that were sent but not received. The number is exact unless ``lost`` has names. ``None``: some ends of
            the link are unknown, more messages were received than sent, or there are ``doubts``.
        reasons: Known reasons why messages are missing.
        unwanted: Whether no receiver needed the missing messages: all receivers ended normally, and at least one sender was stopped.
        doubts: Reasons why the number of missing messages is unknown: processes outside this run received or sent messages.
        lost: Processes that were lost with their hosts. Their counts are the last reported counts.
    """

    link: str
    sent: int | None
    received: int | None
    missing: int | None
    reasons: Sequence[str] = ()
    unwanted: bool = False
    doubts: Sequence[str] = ()
    lost: Sequence[str] = ()

    def __str__(self) -> str:
        """Return a sentence about the missing messages."""
        if self.doubts:
            known = f"in this run, {self.sent or 0:,} were sent and {self.received or 0:,} were received"
            why = " and ".join(dict.fromkeys([*self.reasons, *self.doubts]))
            return f"the number of lost messages on the link {self.link} is unknown ({known}): {why}"
        why = " and ".join(self.reasons) or "no process of the link reported a reason"
        told = f", according to the last report of {' and '.join(self.lost)} before its host was lost" if self.lost else ""
        return f"{self.missing:,} of {self.sent:,} messages on the link {self.link} did not arrive{told}: {why}"


def account(
    states: Sequence[ReplicaState], departures: Sequence[Departure], ends: Mapping[str, Ends], whole: Collection[str]
) -> list[Account]:
    """Return the account of each link at the end of a run.

    Args:
        states: The last states of the replicas (processes).
        departures: The processes that have ended.
        ends: The links of each replica, by the replica's name.
        whole: The links that have all their ends in this run.
    """
    samples = [Sample.of(state, ends) for state in states]
    found = []
    for link in traffic(samples):
        at_link = [one for one in departures if link.link in (ends[one.name].receives, ends[one.name].sends)]
        doubts = list(_doubts(link.link, departures, ends)) if link.link in whole else []
        lost = list(dict.fromkeys(one.name for one in at_link if one.is_lost)) if link.link in whole and not doubts else []
        missing = link.missing if link.link in whole and not doubts else None
        if missing is None and lost and None not in (link.sent, link.received):
            missing = 0  # more messages were received than sent according to the last reports of the lost processes
        reasons = list(_reasons(link, missing, samples, at_link, ends)) if missing or doubts or lost else []
        unwanted = bool(missing) and _unwanted(link.link, departures, ends)
        found.append(Account(link.link, link.sent, link.received, missing, reasons, unwanted, doubts, lost))
    return found


def _doubts(link: str, departures: Sequence[Departure], ends: Mapping[str, Ends]) -> Iterator[str]:
    senders, receivers = ([one for one in departures if getattr(ends[one.name], side) == link] for side in ("sends", "receives"))
    publishes = any(ends[one.name].publishes for one in senders)
    # If a receiver of this run reconnects, both it and its senders count the new connection, so the difference does not change.
    more = sum(one.counts.receivers for one in senders) - sum(one.counts.connections for one in receivers)
    outside = {
        "receiver": 0 if publishes else min(more, max((one.counts.receivers for one in senders), default=0) - len(receivers)),
        "sender": max((one.counts.senders for one in receivers), default=0) - len(senders),
    }
    for what, count in outside.items():
        if count > 0 and senders and receivers:
            yield f"{count} {what}{'s' if count > 1 else ''} outside this run used the link"


def _unwanted(link: str, departures: Sequence[Departure], ends: Mapping[str, Ends]) -> bool:
    """Return whether a link's receivers all ended normally and at least one sender was stopped: no receiver needed the messages."""
    receivers = {one.how for one in departures if ends[one.name].receives == link}
    senders = {one.how for one in departures if ends[one.name].sends == link}
    return receivers == {"ended"} and senders <= {"ended", "was drained", "was stopped"} and "was stopped" in senders


def _reasons(
    link: Traffic, missing: int | None, samples: Sequence[Sample], at_link: Sequence[Departure], ends: Mapping[str, Ends]
) -> Iterator[str]:
    """Yield the reasons why messages are missing. If the number of missing messages is unknown, yield only failures of processes."""
    yield from dict.fromkeys(
        f"{one.name} {one.how}" for one in at_link if one.failed or (missing and one.how != "ended" and one.counts != Counts())
    )
    counters = [one.state.stats.stages[0].counters for one in samples if one.ends.receives == link.link and one.state.stats]
    publishes = any(one.ends.publishes for one in samples if one.ends.sends == link.link)
    # After a restart, a subscriber counts the messages that its earlier process received as ``late``, so this count is too high.
    is_exact = not any(one.state.restarts for one in samples if link.link in (one.ends.receives, one.ends.sends))
    for name, why in (("late", "were sent before a subscriber was connected"), ("gaps", "were missed by a subscriber that was too slow")):
        count = sum(int(one.get(name, 0)) for one in counters)
        if publishes and missing and count:
            yield f"{count:,} {why}" if is_exact and count <= missing else f"some {why}"
