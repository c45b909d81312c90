"""Rows of packed sequences against Grain's, which are made by its own code; run by ``tox -e datasets``."""

import numpy as np
import pytest

from highway import Pipeline
from highway.datasets import MixedDataset
from highway.modules import ConcatThenSplit, Pack, Reader

grain = pytest.importorskip("grain", reason="grain is not installed: these are run by tox -e datasets")

rng = np.random.default_rng(0)
SEQUENCES = [
    {"inputs": rng.integers(1, 1000, count, np.int32), "targets": rng.random((max(1, count // 3), 2))} for count in rng.integers(1, 64, 500)
]
UNLIKE = {"inputs": 128, "targets": 30}


def ours(*stages):
    with Pipeline(list(stages)) as pipeline:
        return list(pipeline)


def assert_same(rows, expected):
    assert len(rows) == len(expected) > 10
    for row, other in zip(rows, expected, strict=True):
        assert sorted(row) == sorted(other)
        for name, value in row.items():
            assert value.dtype == other[name].dtype
            np.testing.assert_array_equal(value, other[name])


def theirs(samples, make, **how):
    return list(make(grain.MapDataset.source(samples).to_iter_dataset(), **how))


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(("length", "bins", "most"), [(64, 8, None), (UNLIKE, 5, None), (200, 64, 3), (64, 1, None)])
def test_rows_are_those_of_grain(length, bins, most, batched):
    lengths = dict.fromkeys(("inputs", "targets"), length) if isinstance(length, int) else length
    expected = theirs(
        SEQUENCES,
        grain.experimental.FirstFitPackIterDataset,
        length_struct=lengths,
        num_packing_bins=bins,
        shuffle_bins=False,
        max_sequences_per_bin=most,
        padding_struct={"inputs": -1, "targets": 0.5},
    )
    reader = Reader(SEQUENCES, 37, ragged="offsets", shuffle=False, epochs=1) if batched else SEQUENCES
    assert_same(ours(reader, Pack(length, bins, most, {"inputs": -1, "targets": 0.5}, batched)), expected)


def test_sequences_that_are_joined_and_split_are_those_of_grain():
    samples = [{"inputs": each["inputs"], "weights": each["inputs"] / 2} for each in SEQUENCES]
    for length in (16, 100):
        lengths = {"inputs": length, "weights": length}
        assert_same(
            ours(samples, ConcatThenSplit(length)),
            theirs(samples, grain.experimental.ConcatThenSplitIterDataset, length_struct=lengths),
        )


def test_a_mix_has_the_length_and_shares_of_grain_s():
    parts, weights = [range(100), range(1000, 1300), range(2000, 2050)], [0.3, 0.6, 0.1]
    mixed = grain.MapDataset.mix([grain.MapDataset.source(part) for part in parts], weights)
    ours = MixedDataset(parts, weights, stop="first")
    assert abs(len(ours) - len(mixed)) <= 2
    for position in (10, 100, 300):
        counts = [[sum(data[p] in part for p in range(position)) for part in parts] for data in (ours, mixed)]
        assert np.abs(np.subtract(*counts)).max() <= 2
