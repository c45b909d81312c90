"""Compute how long the trainer of a run waited for data, for the dashboard and for the summary of a run.

A *role* is a pipeline of a topology file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from highway.columns import percent
from highway.observe.bottleneck import bottleneck
from highway.observe.figures import share, waited
from highway.observe.poll import Sample

MINUTE = 60.0  # seconds that the dashboard reports on
LITTLE = 0.05  # a trainer that waits for less than this fraction of its time gets no advice


class Wait(NamedTuple):
    """The time that the trainer waited.

    Args:
        share: The fraction of time, 0 to 1, in which the trainer waited; ``None`` if no trainer runs.
        sentence: A sentence that explains the result and suggests a change.
        outside: Whether the trainer is outside the run. ``share`` is then an upper limit.
        of: The role of the trainer. If the trainer is outside the run, the role that sends to the trainer.
        seconds: The time that the statistics cover, at most :data:`MINUTE`.
    """

    share: float | None
    sentence: str
    outside: bool = False
    of: str = ""
    seconds: float = 0.0


def waiting(samples: Sequence[Sample]) -> Wait:
    """Return how long the trainer waited for data, from the recent statistics of the samples.

    The trainer consumes the items at the end of the topology. The trainer is the loop over a pipeline or over its ``to_device``, or a sink
    that sends nothing. If there are several trainers, the result is for the role that waited most.

    If the trainer is outside the run, only the trainer's sender is known. The result is then an upper limit: while the sender waits to
    send, the trainer does not wait for data.
    """
    received = {one.ends.receives for one in samples}
    found: list[tuple[float, bool, Sample]] = []
    for one in samples:
        stats = one.recent
        if not one.runs or stats is None or stats.seconds <= 0 or (one.ends.sends and one.ends.sends in received):
            continue
        part = 1 - share(stats.stages[-1:], "blocked") if one.ends.sends else min(1.0, waited(stats) / stats.seconds)
        found.append((part, bool(one.ends.sends), one))
    advice = bottleneck(samples)
    if not found:
        return Wait(None, advice)
    exact = [each for each in found if not each[1]] or found  # prefer trainers in this run, because their values are exact
    roles = {one.state.role: [part for part, _, other in exact if other.state.role == one.state.role] for _, _, one in exact}
    role, parts = max(roles.items(), key=lambda each: sum(each[1]) / len(each[1]))
    part, outside = sum(parts) / len(parts), exact[0][1]
    seconds = max(one.recent.seconds for _, _, one in exact if one.recent)
    who = f"The receiver of {role}" if outside else "The loop over this pipeline" if role == "pipeline" else role
    if part < LITTLE:
        sentence = f"{who} hardly waits for data: its own work limits the rate. Faster stages upstream would not help."
    elif outside:
        sentence = f"{who} is outside this run, and waited at most {percent(part)} of its time for data. {advice}"
    else:
        sentence = f"{who} waited {percent(part)} of its time for data. {advice}"
    return Wait(part, sentence, outside, role, min(seconds, MINUTE))
