"""Compute how long the trainer of a run waited for data, for the page and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from highway.columns import percent
from highway.observe.bottleneck import bottleneck
from highway.observe.figures import share, waited
from highway.observe.poll import Sample

MINUTE = 60.0  # seconds that the page reports on
LITTLE = 0.05  # fraction of its time that a trainer may wait without advice


class Wait(NamedTuple):
    """The time that the trainer waited.

    Args:
        share: The fraction of its time, 0 to 1; ``None`` if no trainer runs.
        sentence: The explanation, with the change that would help.
        outside: Whether the trainer is outside the run. In this case ``share`` is an upper limit.
        of: The role; the last role of the run if the trainer is outside.
        seconds: The time that the statistics cover, at most :data:`MINUTE`.
    """

    share: float | None
    sentence: str
    outside: bool = False
    of: str = ""
    seconds: float = 0.0


def waiting(samples: Sequence[Sample]) -> Wait:
    """Return how long the trainer waited for data, from the recent statistics of the samples.

    The trainer consumes the items at the end. It is the loop over a pipeline or over its ``to_device``, or a sink that sends nothing. For a
    trainer outside the run, only the sender is known. It gives a lower limit of the time in which the trainer did *not* wait. Of several
    trainers, the result is for the trainer that waited most.
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
    exact = [each for each in found if not each[1]] or found  # a visible trainer gives better values
    roles = {one.state.role: [part for part, _, other in exact if other.state.role == one.state.role] for _, _, one in exact}
    role, parts = max(roles.items(), key=lambda each: sum(each[1]) / len(each[1]))
    part, outside = sum(parts) / len(parts), exact[0][1]
    seconds = max(one.recent.seconds for _, _, one in exact if one.recent)
    who = f"What receives from {role}" if outside else "The loop over this pipeline" if role == "pipeline" else role
    if part < LITTLE:
        sentence = f"{who} hardly waits for data: its own work limits the rate. Faster stages before it would not help."
    elif outside:
        sentence = f"{who} is outside this run, and waited at most {percent(part)} of its time for data. {advice}"
    else:
        sentence = f"{who} waited {percent(part)} of its time for data. {advice}"
    return Wait(part, sentence, outside, role, min(seconds, MINUTE))
