"""The stages of a reader: one thread plans ranges of rows (``plan``), and many threads read the samples and fill the rows (``fill``)."""

from __future__ import annotations

from highway.engine.stage import Stage
from highway.reading.deal import expect_fits
from highway.reading.fill import Fill
from highway.reading.options import ReaderOptions
from highway.reading.plan import RowRanges, shares

AHEAD = 16  # maximum number of planned ranges in the channel; a large number, so that the planner wakes less often


def stages_of(reader: ReaderOptions, reading: str = "read") -> list[Stage]:
    """Return the stages of a reader. ``reading`` is the name of the stage with the workers."""
    expect_fits(reader.deal, reader.rows, reader.shuffle)
    return [
        Stage(RowRanges(reader), name="row_ranges", buffer_size=AHEAD),
        Stage(Fill(reader), num_workers=reader.num_workers, name=reading),
    ]


def samples_of_epoch(reader: ReaderOptions) -> int:
    """Return the number of samples that this rank reads in an epoch."""
    sampler, length = shares(reader, reader.open())
    return min(sampler.share, length * (reader.rows or 1))
