"""What each link of a run carried: counted at both ends, so that what did not arrive is known, and why."""

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
        how: How it ended, in words.
        failed: Whether it did not end as it should.
        counts: What it had received and sent; exact, however it ended.
        stats: Its last figures, up to half a second older than its end if it was killed.
        was_killed: Whether it failed by a signal, and not by an error of its own.
        unfinished: Whether it was stopped before it had delivered all that it had received, while others still wanted it.
        is_lost: Whether ``counts`` are what it told last, and it may have received and sent more.
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
        """Messages at most that it had received and neither sent on nor used up, if it failed or was stopped too early; else 0.

        That is what its queues hold, and what its source had taken from the link to leave it, and no more than it had received without
        sending as many.
        """
        if not (self.failed or self.unfinished):
            return 0
        if self.stats is None:
            return max(0, self.counts.received - self.counts.sent)
        used = max(0, self.stats.items - self.failed)  # a sink that fails is not done with the item that it took last
        unsent = max(0, self.counts.received - max(self.counts.sent, used))  # a stream may make several messages of one
        room = sum(stage.capacity for stage in self.stats.stages) + 2  # one each at its source and its sink
        return min(unsent, room + int(self.stats.stages[0].counters.get("arrived", 0)))

    def __str__(self) -> str:
        """A sentence for people, if it held something."""
        lost = "1 message was" if self.held == 1 else f"up to {self.held:,} messages were"
        return f"{self.name} {self.how}: of what it had received, {lost} lost within it"


@dataclass(frozen=True)
class Account:
    """What a link has carried.

    Args:
        sent: Messages that its senders sent; to each receiver, if it publishes. ``None`` if no sender runs here.
        received: Messages that its receivers took from it. ``None`` if no receiver runs here.
        missing: Messages that were sent and not received, exactly unless ``lost`` is set; ``None`` if not all ends of the link are seen.
        reasons: Why some are missing, as far as it is known.
        unwanted: Whether nobody wanted the missing ones: the receivers ended of themselves, before the senders.
        doubts: Why it is not known how many are missing although all ends that the file has are seen: others received or sent a share.
        lost: The processes that were lost with the hosts where they ran. Their numbers are those that they told last.
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
        """A sentence for people, if something is missing, or may be."""
        if self.doubts:
            known = f"of {self.sent or 0:,} messages that were sent here, {self.received or 0:,} were received here"
            why = " and ".join(dict.fromkeys([*self.reasons, *self.doubts]))
            return f"how many messages on the link {self.link} did not arrive is not known ({known}): {why}"
        why = " and ".join(self.reasons) or "none of its processes says why"
        told = f", by what {' and '.join(self.lost)} told last before the loss of its host" if self.lost else ""
        return f"{self.missing:,} of {self.sent:,} messages on the link {self.link} did not arrive{told}: {why}"


def account(
    states: Sequence[ReplicaState], departures: Sequence[Departure], ends: Mapping[str, Ends], whole: Collection[str]
) -> list[Account]:
    """Return what each link has carried, at the end of a run: ``ends`` are by the names of replicas, ``whole`` the links seen entirely."""
    samples = [Sample.of(state, ends) for state in states]
    found = []
    for link in traffic(samples):
        at_link = [one for one in departures if link.link in (ends[one.name].receives, ends[one.name].sends)]
        doubts = list(_doubts(link.link, departures, ends)) if link.link in whole else []
        lost = list(dict.fromkeys(one.name for one in at_link if one.is_lost)) if link.link in whole and not doubts else []
        missing = link.missing if link.link in whole and not doubts else None
        if missing is None and lost and None not in (link.sent, link.received):
            missing = 0  # more came than the lost ones had told of
        reasons = list(_reasons(link, missing, samples, at_link, ends)) if missing or doubts or lost else []
        unwanted = bool(missing) and _unwanted(link.link, departures, ends)
        found.append(Account(link.link, link.sent, link.received, missing, reasons, unwanted, doubts, lost))
    return found


def _doubts(link: str, departures: Sequence[Departure], ends: Mapping[str, Ends]) -> Iterator[str]:
    senders, receivers = ([one for one in departures if getattr(ends[one.name], side) == link] for side in ("sends", "receives"))
    publishes = any(ends[one.name].publishes for one in senders)
    outside = {
        "receiver": 0 if publishes else max((one.counts.receivers for one in senders), default=0) - len(receivers),
        "sender": max((one.counts.senders for one in receivers), default=0) - len(senders),
    }
    for what, count in outside.items():
        if count > 0 and senders and receivers:
            yield f"{count} {what}{'s' if count > 1 else ''} outside this run took part"


def _unwanted(link: str, departures: Sequence[Departure], ends: Mapping[str, Ends]) -> bool:
    """Say whether a link's receivers ended of themselves, and its senders had to be stopped: then what was under way is no loss."""
    receivers = {one.how for one in departures if ends[one.name].receives == link}
    senders = {one.how for one in departures if ends[one.name].sends == link}
    return receivers == {"ended"} and senders <= {"ended", "was drained", "was stopped"} and "was stopped" in senders


def _reasons(
    link: Traffic, missing: int | None, samples: Sequence[Sample], at_link: Sequence[Departure], ends: Mapping[str, Ends]
) -> Iterator[str]:
    """Yield why messages are missing; where it is not known how many are, only what has failed."""
    yield from dict.fromkeys(
        f"{one.name} {one.how}" for one in at_link if one.failed or (missing and one.how != "ended" and one.counts != Counts())
    )
    counters = [one.state.stats.stages[0].counters for one in samples if one.ends.receives == link.link and one.state.stats]
    publishes = any(one.ends.publishes for one in samples if one.ends.sends == link.link)
    # A process that was started again counts as late what the process before it has received.
    is_exact = not any(one.state.restarts for one in samples if link.link in (one.ends.receives, one.ends.sends))
    for name, why in (("late", "were sent before a subscriber was there"), ("gaps", "were passed over by a subscriber that was behind")):
        count = sum(int(one.get(name, 0)) for one in counters)
        if publishes and missing and count:
            yield f"{count:,} {why}" if is_exact and count <= missing else f"some {why}"
