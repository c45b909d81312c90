"""Repair a cache: create damaged samples again, and overwrite the damaged samples with the new samples."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence

from highway.datasets.cache_files.fields import Arrays
from highway.datasets.cache_files.file import DiskFile, span_of
from highway.datasets.index.file import checksum
from highway.engine import Pipeline
from highway.engine.stage import Stage
from highway.errors import DamagedError
from highway.modules.caching.epoch import Keyed, Passing, Stacker

log = logging.getLogger("highway")


def repair(file: DiskFile, stages: Sequence[Stage], arrays: Arrays, error: DamagedError) -> None:
    """Check all samples of a cache, and create damaged samples again.

    A separate pipeline runs the stages before the cache until all damaged samples are created again. A new sample must have the checksum of
    the damaged sample.

    Args:
        file: The cache.
        stages: The stages before the cache.
        arrays: A function that converts a sample to the arrays in the cache.
        error: The error that reported damaged samples. If the repair fails, this error is raised again.

    Raises:
        DamagedError: the stages are unknown, or do not create the same sample again.
        OSError: the cache cannot be written.
    """
    log.warning("cache %s; highway checks all samples and creates the damaged samples again", error)
    wanted: dict[int, list[int]] = defaultdict(list)
    for row in file.damaged():
        wanted[int(file.index["sums"][row])].append(row)
    count = sum(map(len, wanted.values()))
    for sample, *_ in _first_epoch(stages, file.batch_size > 0) if stages else ():
        span = span_of([values for _, values in arrays(sample)])
        for row in wanted.pop(checksum(span), ()):
            file.restore(row, span)
        if not wanted:
            log.warning("cache %s: created again: %d %s", file.path, count, "sample" if count == 1 else "samples")
            return
    if wanted:
        error.add_note(
            f"highway: {sum(map(len, wanted.values()))} damaged samples cannot be created again, because the stages before the cache are "
            "unknown or have changed; highway discards the cache, and the next run creates it again"
        )
        raise error


def _first_epoch(stages: Sequence[Stage], batched: bool) -> Iterator[Keyed]:
    """Yield the samples of the first epoch of the stages."""
    passing = Passing(batched, None, Stacker(stack=True), [])
    with Pipeline(stages) as pipeline:
        first: int | None = None
        for item, passport in pipeline.stamped():
            first = passport.epoch if first is None else first
            if passport.epoch != first:
                return
            yield from passing.rows(item, passport) if batched else [Keyed(item, passport.keys, passport.position)]
