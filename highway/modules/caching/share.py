"""Determine whether the samples of a rank, and their order, are known before the run.

The *plan* of a reader, a ``RowRanges``, determines the order of the samples, and which worker reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from highway.engine.component import Traits, seed_parameter, shape_of
from highway.engine.stage import Stage
from highway.parameters.hints import takes_rng
from highway.reading.plan import RowRanges


def plan_of(stages: Sequence[Stage]) -> RowRanges | None:
    """Return the plan of the reader, if all other stages before the cache are maps. Otherwise, return ``None``."""
    source, *rest = [stage.op for stage in stages] or [None]
    return source if isinstance(source, RowRanges) and all(shape_of(op) == "map" for op in rest) else None


def fixed_plan_of(stages: Sequence[Stage]) -> RowRanges | None:
    """Return the plan of the reader, if a rank reads the same samples in every epoch. Otherwise, return ``None``."""
    plans = [op for op in stages[0].layers if isinstance(op, RowRanges)] if stages else []
    return plans[0] if plans and plans[0].cache is not None else None


def is_exact(stages: Sequence[Stage]) -> bool:
    """Return whether an epoch from the cache is the same as an epoch from the reader. Then a saved state is valid for both."""
    plan = plan_of(stages)
    if plan is None or plan.stands_for.shuffle == "blocks":
        return False
    return not any(
        stage.on_error == "skip" or stage.drops or stage.traits.drops or _draws(stage.op) for stage in stages[2:]
    )  # the first two stages are the reader


def _draws(op: Any) -> bool:
    """Return whether a map draws random numbers that differ from epoch to epoch."""
    return takes_rng(op) or (seed_parameter(op, op) is not op and Traits.of(op).draws)
