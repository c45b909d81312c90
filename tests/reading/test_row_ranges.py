"""How the rows of batches are dealt out to workers."""

from itertools import islice

from highway.modules import Reader
from highway.reading.plan import MOST_BYTES, MOST_SAMPLES, QUICK, RowRange, RowRanges


def runs_when_each_takes(seconds: float, count: int, batch_size: int | None = 100, sample: object = 1) -> list[range]:
    """Return the first runs of rows, if filling each of them takes so long and all samples are like this one."""
    runs = []
    for run, _ in islice(iter(RowRanges(Reader(range(1000), batch_size, shuffle=False))), count):
        assert isinstance(run, RowRange)
        run.batch.reading.took(seconds, [] if batch_size else [sample] * (run.stop - run.first))
        runs.append(range(run.first, run.stop))
    return runs


def test_runs_that_are_filled_quickly_become_whole_batches() -> None:
    expected = [range(32), range(32, 64), range(64, 96), range(96, 100), range(100), range(100)]
    assert runs_when_each_takes(QUICK / 2, 6) == expected


def test_runs_that_take_long_stay_short_so_that_all_workers_share_a_batch() -> None:
    short = [range(32), range(32, 64), range(64, 96), range(96, 100)]
    assert runs_when_each_takes(2 * QUICK, 8) == short * 2


def test_single_samples_are_read_in_runs_that_grow_where_they_are_filled_quickly() -> None:
    assert runs_when_each_takes(2 * QUICK, 3, None) == [range(8)] * 3
    lengths = [8, 16, 32, 64, 128, MOST_SAMPLES]
    assert runs_when_each_takes(QUICK / 2, 8, None) == [
        *map(range, lengths),
        range(MOST_SAMPLES),
        range(1000 - sum(lengths) - MOST_SAMPLES),
    ]


def test_runs_of_large_samples_stay_short_however_quickly_they_are_filled() -> None:
    large = bytes(MOST_BYTES // 20)
    assert runs_when_each_takes(0, 4, None, {"image": large}) == [range(8), range(16), range(16), range(16)]
    assert runs_when_each_takes(0, 2, None, {"image": bytes(MOST_BYTES)}) == [range(8)] * 2
