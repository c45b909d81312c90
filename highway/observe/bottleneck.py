"""Name the bottleneck of a whole topology in one sentence.

A *role* is a pipeline of a topology file. A *replica* is one of its processes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from highway.columns import percent
from highway.engine.stats import SHORTEST, TOO_SHORT, StageStats, more_cores, more_workers, one_thread
from highway.observe.figures import Part, share
from highway.observe.poll import Sample
from highway.observe.snapshot import Ends

FULL = 0.5  # a stage can be the bottleneck if it works, or waits to send, for at least this fraction of its time


@dataclass
class _Role:
    """The recent statistics of a role's running replicas. ``stages`` holds a list for each stage, with an entry for each replica."""

    name: str
    ends: Ends
    machines: set[str] = field(default_factory=set)
    stages: defaultdict[str, list[StageStats]] = field(default_factory=lambda: defaultdict(list))

    def share(self, stage: str, part: Part) -> float:
        return share(self.stages[stage], part)

    @property
    def last(self) -> str:
        return list(self.stages)[-1]


def bottleneck(samples: Sequence[Sample]) -> str:
    """Return one sentence that names the bottleneck of a topology, from the recent statistics of its replicas (processes).

    The bottleneck is the stage whose workers are busiest, over all replicas of its role. The stages downstream of the bottleneck wait for
    input, and the stages upstream wait for room, even in other processes. If a role spends more than half of its time waiting for a
    receiver outside the run, this receiver is the bottleneck. If no stage is busy for half of its time, a link can be the bottleneck.
    """
    roles = _roles(samples)
    if not roles:
        return "No role is running now."
    if max(one.recent.seconds for one in samples if one.runs and one.recent) < SHORTEST:
        return TOO_SHORT
    received = {one.ends.receives for one in samples}
    for role in roles.values():
        if role.ends.sends not in received and role.share(role.last, "blocked") > FULL:
            what = f"The receiver of the link {role.ends.sends}" if role.ends.sends else f"The consumer of {role.name}"
            waited = percent(role.share(role.last, "blocked"))
            return (
                f"{what} is the bottleneck: {role.name} ({role.last}) waited {waited} of its time to "
                f"{'send' if role.ends.sends else 'pass on'} items."
            )
    busiest, stage = _busiest(roles)
    if busiest.share(stage, "busy") >= FULL:
        return _advice(busiest, stage, samples)
    if not any(one.items for role in roles.values() for figures in role.stages.values() for one in figures):
        return "No items passed through the stages during the measurement."
    return _slow_link(roles) or "No stage limits the rate: the limit is outside the stages (a link, a disk, the consumer)."


def slowest(samples: Sequence[Sample]) -> tuple[str, str] | None:
    """Return the role and the stage whose workers limit the rate; ``None`` if no stage limits the rate."""
    if not (roles := _roles(samples)):
        return None
    role, stage = _busiest(roles)
    return (role.name, stage) if role.share(stage, "busy") >= FULL else None


def _busiest(roles: Mapping[str, _Role]) -> tuple[_Role, str]:
    return max(((role, stage) for role in roles.values() for stage in role.stages), key=lambda one: one[0].share(one[1], "busy"))


def _roles(samples: Sequence[Sample]) -> Mapping[str, _Role]:
    roles: dict[str, _Role] = {}
    for one in samples:
        if one.runs and one.recent:
            role = roles.setdefault(one.state.role, _Role(one.state.role, one.ends))
            for stage in one.recent.stages:
                role.stages[stage.name].append(stage)
            role.machines.add(one.machine)
    return roles


def _advice(role: _Role, name: str, samples: Sequence[Sample]) -> str:
    figures = role.stages[name]
    stage, many = figures[0], len(figures) > 1
    who = f"its {len(figures)} replicas were" if many else f"its {stage.num_workers} workers were" if stage.num_workers > 1 else "it was"
    ways = [f"start more replicas (replicas: {len(figures) + 1})"] if role.ends.receives and role.ends.sends else []
    if stage.shape == "map":
        machine, cores, used = _freest(role.machines, samples)
        ways.append(more_workers(stage, cores, "them" if many else "it", ": "))
        advice = more_cores(ways, cores, used, f" of {machine}" if machine else "")
    else:
        advice = ", or ".join([*ways, one_thread(stage.shape)])
    return f"{role.name} ({name}) is the bottleneck: {who} busy {percent(role.share(name, 'busy'))} of the time; {advice}."


def _freest(machines: Collection[str], samples: Sequence[Sample]) -> tuple[str, int, float]:
    """Return the machine with the most free cores, the number of its cores (0 if unknown), and how many cores the replicas use."""
    found = []
    for machine in sorted(machines):
        recent = [one.recent for one in samples if one.machine == machine and one.runs and one.recent]
        used = max([sum(stats.cores_used for stats in recent), *(stats.load for stats in recent)])
        found.append((machine, max((stats.cores for stats in recent), default=0), used))
    return max(found, key=lambda one: one[1] - one[2])


def _slow_link(roles: Mapping[str, _Role]) -> str:
    """Return a sentence about a link whose sender waits to send while its receiver waits to receive; empty if no link is slow."""
    for sender in roles.values():
        for receiver in roles.values():
            if sender.ends.sends and sender.ends.sends == receiver.ends.receives:
                sends, receives = sender.share(sender.last, "blocked"), receiver.share(next(iter(receiver.stages)), "starved")
                if min(sends, receives) > FULL:
                    waited = f"{sender.name} waited {percent(sends)} of its time to send"
                    return (
                        f"The link {sender.ends.sends} is the bottleneck: {waited}, and {receiver.name} waited {percent(receives)} of its "
                        "time to receive."
                    )
    return ""
