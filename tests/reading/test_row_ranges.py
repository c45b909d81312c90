"""How the rows of batches are dealt out to workers."""

from itertools import islice
from typing import cast

from highway.modules import Reader
from highway.reading.plan import QUICK, ReaderLike, RowRange, RowRanges


def runs_when_each_takes(seconds: float, count: int) -> list[range]:
    """Return the first runs of rows, if the workers say of each that it took so long."""
    runs = []
    for run, _ in islice(iter(RowRanges(cast(ReaderLike, Reader(range(1000), 100, shuffle=False)))), count):
        assert isinstance(run, RowRange)
        run.batch.reading.took(seconds)
        runs.append(range(run.first, run.stop))
    return runs


def test_runs_that_are_filled_quickly_become_whole_batches() -> None:
    expected = [range(32), range(32, 64), range(64, 96), range(96, 100), range(100), range(100)]
    assert runs_when_each_takes(QUICK / 2, 6) == expected


def test_runs_that_take_long_stay_short_so_that_all_workers_share_a_batch() -> None:
    short = [range(32), range(32, 64), range(64, 96), range(96, 100)]
    assert runs_when_each_takes(2 * QUICK, 8) == short * 2
