"""Items that a role's feeders have made, as they would come out of the links between them: so a role can be measured without the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from highway.engine.batch import nbytes
from highway.engine.component import Shape
from highway.engine.stage import Stage, Stamped, expand
from highway.modules import ZMQSink, ZMQSource
from highway.observe.profile import Profile, profile
from highway.topology import Topology
from highway.topology.graph import graph
from highway.wire.codec import named
from highway.wire.envelope import Envelope

MOST_BYTES = 500_000_000  # of the items of a role, kept for the roles that it feeds


@dataclass
class Roles:
    """Measures roles, each once, and keeps what they send for those that they feed.

    Args:
        topology: With a file's roles and links.
        most: Items that a source is asked for.
        limit: Seconds that a stage may run.
    """

    topology: Topology
    most: int
    limit: float
    _done: dict[str, tuple[list[tuple[Stage, Shape]], Profile]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._edges = [edge for edge in graph(self.topology).edges if edge.source in self.topology.roles]

    def in_order(self) -> list[str]:
        """Return the roles that have stages, those that feed others first."""
        order: list[str] = []
        for name, role in self.topology.roles.items():
            if role.stages:
                order += [each for each in (*self._before(name, {name}), name) if each not in order]
        return order

    def outside(self, role: str) -> list[str]:
        """Return the URLs that a role receives from, if nobody in the file feeds it."""
        source = self.topology.stages(role)[0].op
        urls = source.url if isinstance(source, ZMQSource) and not self._feeders(role) else []
        return [urls] if isinstance(urls, str) else urls

    def measure(self, role: str) -> tuple[list[tuple[Stage, Shape]], Profile]:
        """Return a role's stages and what was found out about them. Sending is left out; a feeder's items take the place of receiving."""
        if role in self._done:
            return self._done[role]
        stages = expand(self.topology.stages(role))
        given = None
        for feeder in self._feeders(role):
            sink, items = self.measure(feeder)[0][-1][0].op, self.measure(feeder)[1].items
            if given is None and items:
                given = list(_carried(sink, items))
        running = stages[:-1] if isinstance(stages[-1][0].op, ZMQSink) else stages
        found = profile(running, self.topology.seed, self.most, self.limit, given)
        seconds = found.seconds + [0.0] * (len(stages) - len(running))
        self._done[role] = stages, Profile(seconds, _some(found.items))
        return self._done[role]

    def _feeders(self, role: str) -> list[str]:
        names = dict.fromkeys(edge.source for edge in self._edges if edge.target == role)
        return [name for name in names if self.topology.roles[name].stages and role not in self._before(name, {name})]

    def _before(self, role: str, seen: set[str]) -> Iterator[str]:
        """Yield the roles that feed a role, directly or not, the first ones first; each once, where links go in a circle too."""
        for edge in self._edges:
            if edge.target == role and edge.source not in seen and self.topology.roles[edge.source].stages:
                seen.add(edge.source)
                yield from self._before(edge.source, seen)
                yield edge.source


def _carried(sink: ZMQSink, items: list[Stamped]) -> Iterator[Stamped]:
    """Yield items as a receiver gets them: of the types that the codec has, and read-only."""
    codec = named(sink.link.options.codec)
    for item, passport in items:
        frames = codec.encode(item, Envelope(passport=passport), sink.allow64)
        yield Stamped(codec.decode([memoryview(frame) for frame in frames]).item, passport)


def _some(items: list[Stamped]) -> list[Stamped]:
    """Return the first items, as many as may be kept, and at least one."""
    sizes = itertools.accumulate(nbytes(stamped.item) for stamped in items)
    return items[: max(1, sum(size <= MOST_BYTES for size in sizes))]
