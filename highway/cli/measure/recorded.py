"""Record the items that a role receives over its links, to measure the role alone.

A *role* is a pipeline of a topology file.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import platform
import resource
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from highway.engine import batch
from highway.engine.batch import nbytes
from highway.engine.component import Shape
from highway.engine.running import worker_count
from highway.engine.stage import Stage, Stamped, expand
from highway.engine.threads import WAITING
from highway.errors import PipelineError
from highway.modules import ZMQSink, ZMQSource
from highway.observe.calibration import Calibration, RoleCost, StageCost
from highway.observe.profile import Profile, measure_link, profile
from highway.process.cores import available_cores
from highway.topology import Topology
from highway.topology.graph import graph
from highway.wire.codec import named
from highway.wire.envelope import Envelope

MOST_BYTES = 500_000_000  # maximum bytes of a role's items that are kept for the receivers


@dataclass
class Roles:
    """Measures each role once, and keeps the role's items for the roles that receive these items.

    Args:
        topology: The topology.
        most: Maximum number of items from a source.
        limit: Maximum seconds for each stage.
    """

    topology: Topology
    most: int
    limit: float
    _done: dict[str, tuple[list[tuple[Stage, Shape]], Profile]] = field(default_factory=dict, init=False)
    _sent: dict[str, StageCost] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._edges = [edge for edge in graph(self.topology).edges if edge.source in self.topology.roles]

    def in_order(self) -> list[str]:
        """Return the roles with stages. Senders come before their receivers."""
        order: list[str] = []
        for name, role in self.topology.roles.items():
            if role.stages:
                order += [each for each in (*self._before(name, {name}), name) if each not in order]
        return order

    def known(self) -> list[str]:
        """Return the roles whose input is known. The input is unknown if a role receives, but no role in the file sends to the role."""
        order = self.in_order()
        return [role for role in order if not self.outside(role)] + [role for role in self.topology.roles if role not in order]

    def outside(self, role: str) -> list[str]:
        """Return the URLs from which a role receives, if no role in the file sends to the role."""
        source = self.topology.stages(role)[0].op
        urls = source.url if isinstance(source, ZMQSource) and not self._feeders(role) else []
        return [urls] if isinstance(urls, str) else urls

    def measure(self, role: str) -> tuple[list[tuple[Stage, Shape]], Profile]:
        """Return a role's stages and their profile. A role that receives gets the items of its senders.

        The stage that sends does not run, so its measured cost is 0.
        """
        if role not in self._done:
            stages = self._stages(role)
            found = self._profile(stages, self._given(role))
            self._done[role] = stages, found._replace(items=_some(found.items))
        return self._done[role]

    def cost(self, role: str) -> RoleCost:
        """Return the cost of a role, including sending and receiving. A role without stages has only the cost of receiving."""
        feeders, given = self._feeders(role), self._given(role)
        received = self._link_cost(feeders[0]) if feeders else StageCost("", "source")
        if not self.topology.roles[role].stages:
            samples = _samples(given[0]) if given else 1.0
            return RoleCost([_with(StageCost("ZMQSource", "source"), received, 1.0)], samples)
        stages, found = self.measure(role)
        rivalled = self._profile(self._stages(role), given, rivalled=True).stages
        costs = [replace(own, held=min(own.cpu, other.held)) for own, other in zip(found.stages, rivalled, strict=True)]
        samples = _samples(found.example) if found.example is not None else 1.0
        taken = found.taken * _samples(given[0]) / samples if given else 1.0
        if given:
            costs[0] = _with(costs[0], received, found.taken)
        if not isinstance(stages[-1][0].op, ZMQSink):
            return RoleCost(costs, samples, taken)
        sent = self._link_cost(role)
        costs[-1] = _with(costs[-1], sent, 1.0)
        return RoleCost(costs, samples, taken, sent.nbytes)

    def _stages(self, role: str) -> list[tuple[Stage, Shape]]:
        """Build and return new stages of a role."""
        stages = self.topology.stages(role)
        try:
            return expand(stages)
        except PipelineError as error:
            raise self.topology.roles[role].location.error(str(error)) from None

    def _given(self, role: str) -> list[Stamped] | None:
        """Return the items that a role receives; ``None`` if no other role in the file produces items for it."""
        for feeder in self._feeders(role):
            stages, found = self.measure(feeder)
            if found.items:
                return list(_carried(stages[-1][0].op, found.items))
        return None

    def _profile(self, stages: list[tuple[Stage, Shape]], given: list[Stamped] | None, rivalled: bool = False) -> Profile:
        running = stages[:-1] if isinstance(stages[-1][0].op, ZMQSink) else stages
        with contextlib.redirect_stdout(io.StringIO()):  # drop the output of the stages
            found = profile(running, self.topology.seed, self.most, self.limit, given, rivalled)
        return found._replace(stages=[*found.stages, *(StageCost(stage.label, shape) for stage, shape in stages[len(running) :])])

    def _link_cost(self, role: str) -> StageCost:
        """Return the cost of the link on which a role sends."""
        if role not in self._sent:
            stages, found = self.measure(role)
            sink = stages[-1][0].op
            is_known = isinstance(sink, ZMQSink) and found.items
            self._sent[role] = measure_link(sink.link, sink.allow64, found.items) if is_known else StageCost("", "sink")
        return self._sent[role]

    def _feeders(self, role: str) -> list[str]:
        names = dict.fromkeys(edge.source for edge in self._edges if edge.target == role)
        return [name for name in names if self.topology.roles[name].stages and role not in self._before(name, {name})]

    def _before(self, role: str, seen: set[str]) -> Iterator[str]:
        """Yield each role that sends to a role, directly or indirectly. Senders come before their receivers. Links can form a cycle."""
        for edge in self._edges:
            if edge.target == role and edge.source not in seen and self.topology.roles[edge.source].stages:
                seen.add(edge.source)
                yield from self._before(edge.source, seen)
                yield edge.source


def _carried(sink: ZMQSink, items: list[Stamped]) -> Iterator[Stamped]:
    """Yield items in the form in which a receiver gets them: with the codec's types, and read-only."""
    codec = named(sink.link.options.codec)
    for item, passport in items:
        frames = codec.encode(item, Envelope(passport=passport), sink.allow64)
        yield Stamped(codec.decode([memoryview(frame) for frame in frames]).item, passport)


def _some(items: list[Stamped]) -> list[Stamped]:
    """Return the first items that fit within ``MOST_BYTES``, at least one item."""
    sizes = itertools.accumulate(nbytes(stamped.item) for stamped in items)
    return items[: max(1, sum(size <= MOST_BYTES for size in sizes))]


def _with(stage: StageCost, link: StageCost, items: float) -> StageCost:
    """Return the cost of a stage at one end of a link, which is the cost of ``items`` messages for each item of the role."""
    return replace(link.times(items), name=stage.name, shape=stage.shape, nbytes=stage.nbytes)


def _samples(made: Stamped) -> float:
    """Return the number of samples in an item: the number of keys in its passport (metadata), or the length of all fields, or 1."""
    return float(len(made.passport.keys) or batch.length(made.item) or 1)


def calibrate(roles: Roles, chosen: Sequence[str]) -> Calibration:
    """Return the costs of roles."""
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # measured before any stage has items
    process_mb = usage / (1e6 if sys.platform == "darwin" else 1e3 / 1.024)
    costs = {role: roles.cost(role) for role in chosen}
    return Calibration(costs, available_cores(), process_mb, platform.node())


def as_in_file(found: Calibration, topology: Topology, cores: int) -> Calibration:
    """Return a calibration with as many workers as a topology file gives each stage, on hosts with ``cores`` cores.

    Raises:
        ConfigError: the roles or stages of the file differ from the roles or stages in the calibration.
    """
    roles = {}
    for name, role in topology.roles.items():
        stages = expand(topology.stages(name)) if role.stages else []
        cost = found.roles.get(name)
        if cost is None:
            continue
        now, then = [stage.label for stage, _ in stages], [stage.name for stage in cost.stages]
        if role.stages and now != then:
            raise role.location.error(
                f"its stages are {', '.join(now)}, but the measured stages are {', '.join(then)}; measure again with `highway bench --json`"
            )
        running = [
            replace(own, workers=_workers(stage, shape, cores), waiting=stage.buffer_size or WAITING)
            for own, (stage, shape) in zip(cost.stages, stages)
        ]
        roles[name] = replace(cost, stages=running or cost.stages)
    return replace(found, roles=roles)


def _workers(stage: Stage, shape: Shape, cores: int) -> int:
    """Return the number of workers of a stage on a host with ``cores`` cores."""
    return cores if shape == "map" and stage.num_workers is None and stage.traits.parallel else worker_count(stage, shape)
