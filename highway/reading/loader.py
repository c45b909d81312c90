"""The stages that a reader consists of: one thread plans runs of rows (``plan``), many read their samples and fill them (``fill``)."""

from __future__ import annotations

from highway.engine.stage import Stage
from highway.reading.fill import Fill, Singles
from highway.reading.plan import ReaderLike, RowRanges, shares


def stages_of(reader: ReaderLike, reading: str = "read") -> list[Stage]:
    """Return the stages that a reader consists of; ``reading`` is the name of the one that has the workers."""
    stages = [Stage(RowRanges(reader), name="row_ranges"), Stage(Fill(reader), num_workers=reader.num_workers, name=reading)]
    return stages if reader.batch_size else [*stages, Stage(Singles(reader), name="samples")]


def samples_of_epoch(reader: ReaderLike) -> int:
    """Return how many samples a reader has in an epoch."""
    sampler, length = shares(reader, reader.open())
    return min(sampler.share, length * (reader.batch_size or 1))
