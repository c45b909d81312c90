"""The stages that a reader consists of: one thread plans runs of rows (``plan``), many read their samples and fill them (``fill``)."""

from __future__ import annotations

from highway.engine.stage import Stage
from highway.reading.fill import Fill
from highway.reading.plan import ReaderLike, RowRanges, shares

AHEAD = 16  # runs that are planned before they are filled, so that the one thread that plans is seldom woken; they hold numbers alone


def stages_of(reader: ReaderLike, reading: str = "read") -> list[Stage]:
    """Return the stages that a reader consists of; ``reading`` is the name of the one that has the workers."""
    return [
        Stage(RowRanges(reader), name="row_ranges", buffer_size=AHEAD),
        Stage(Fill(reader), num_workers=reader.num_workers, name=reading),
    ]


def samples_of_epoch(reader: ReaderLike) -> int:
    """Return how many samples a reader has in an epoch."""
    sampler, length = shares(reader, reader.open())
    return min(sampler.share, length * (reader.batch_size or 1))
