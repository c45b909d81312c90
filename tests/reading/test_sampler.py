import itertools
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import highway
from highway.errors import ConfigError
from highway.reading.sampler import Permutation, Sampler, epoch_key

DRAWN = 1 << 16  # up to here a permutation is drawn, above it is computed


def permuted(n, seed=0, epoch=0):
    return Permutation(n, epoch_key(seed, epoch), 0)(np.arange(n))


def order(epoch=0, **sampler):
    """Return the numbers of an epoch, rank by rank."""
    world_size = sampler.pop("world_size", 1)
    ranks = [Sampler(rank=rank, world_size=world_size, **sampler) for rank in range(world_size)]
    return [one.order(epoch)(one.positions(0, one.share)) for one in ranks]


def test_orders_are_computed_nowhere_else():
    root = Path(highway.__file__).parent
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if re.search(r"\bpermut(ed|ation)\(|\.shuffle\(", path.read_text())}
    of_images = ("transforms/", "modules/several_images/")  # what is done to images has draws of its own
    assert {path for path in found if not path.startswith(of_images)} == {"reading/sampler.py"}


# --- permutations ---


@given(st.integers(1, 200_000), st.integers(0, 2**63 - 1), st.integers(0, 1000))
def test_every_number_stands_at_one_position(n, seed, epoch):
    numbers = permuted(n, seed, epoch)
    assert numbers.dtype == np.int64
    assert np.array_equal(np.sort(numbers), np.arange(n))


@pytest.mark.parametrize("n", [1, 2, 3, DRAWN - 1, DRAWN, DRAWN + 1, 2 * DRAWN, 2 * DRAWN + 1, 1 << 20, (1 << 20) + 1])
def test_every_number_stands_at_one_position_at_powers_of_two_and_beside_them(n):
    assert np.array_equal(np.sort(permuted(n)), np.arange(n))


@pytest.mark.parametrize("n", [1000, 100_000])
def test_a_number_does_not_hang_on_what_else_is_looked_up(n):
    whole, permutation = permuted(n), Permutation(n, epoch_key(0, 0), 0)
    some = np.random.default_rng(0).integers(0, n, (7, 31))
    assert np.array_equal(permutation(some), whole[some])
    assert permutation(np.array([], np.int64)).shape == (0,)


def test_of_a_hundred_million_numbers_some_are_looked_up_in_the_memory_of_those():
    tracemalloc.start()
    try:
        permutation = Permutation(100_000_000, epoch_key(1, 2), 0)
        numbers = permutation(np.arange(99_999_000, 100_000_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(np.unique(numbers)) == 1000 and 0 <= numbers.min() <= numbers.max() < 100_000_000
    assert peak < 200_000  # bytes; 1000 int64 have 8000


def chi_square(counts):
    """Return how far counts are from being equal, in standard deviations of what that should be."""
    expected, freedom = counts.sum() / counts.size, counts.size - 1
    return (((counts - expected) ** 2 / expected).sum() - freedom) / (2 * freedom) ** 0.5


@pytest.mark.parametrize("n", [2, 3, 5, 16])
def test_of_a_few_numbers_each_stands_at_each_position_equally_often(n):
    found = np.array([permuted(n, seed, epoch) for seed in range(40) for epoch in range(100)])
    counts = np.array([np.bincount(column, minlength=n) for column in found.T])
    assert abs(chi_square(counts)) < 5


def test_of_four_numbers_each_order_is_equally_likely():
    orders = {order: number for number, order in enumerate(itertools.permutations(range(4)))}
    counts = np.bincount([orders[tuple(permuted(4, 7, epoch).tolist())] for epoch in range(4800)], minlength=24)
    assert abs(chi_square(counts)) < 5


@pytest.mark.parametrize("n", [DRAWN + 1, 100_003, 1 << 17, 999_983, 1_000_000])
def test_of_many_numbers_those_at_positions_near_each_other_are_spread_evenly(n):
    numbers = permuted(n, 3, 1)
    places, values = np.arange(n) * 32 // n, numbers * 32 // n
    assert abs(chi_square(np.bincount(places * 32 + values, minlength=1024))) < 5


@pytest.mark.parametrize("n", [1000, DRAWN, DRAWN + 1, 300_000, 1 << 20])
def test_no_more_numbers_stay_where_they_are_or_next_to_each_other_than_by_chance(n):
    for seed in range(4):
        numbers = permuted(n, seed)
        assert np.count_nonzero(numbers == np.arange(n)) < 10  # 1 is to be expected
        assert np.count_nonzero(np.diff(numbers) == 1) < 10


def correlation(one, other):
    return abs(np.corrcoef(one, other)[0, 1]) * len(one) ** 0.5


@pytest.mark.parametrize("n", [20_000, DRAWN + 1, 250_000])
def test_neighbours_epochs_and_seeds_have_nothing_to_do_with_each_other(n):
    for seed in range(3):
        numbers = permuted(n, seed, 5)
        assert correlation(numbers[:-1], numbers[1:]) < 5
        for other in permuted(n, seed, 6), permuted(n, seed + 1, 5):
            assert correlation(numbers, other) < 5
            assert np.count_nonzero(numbers == other) < 10
            assert np.count_nonzero(np.diff(numbers) == np.diff(other)) < 10


def test_orders_stay_as_they_are_from_one_version_to_the_next():
    assert permuted(10).tolist() == GOLDEN["drawn"]
    assert permuted(100_000, 1, 2)[:8].tolist() == GOLDEN["computed"]
    assert Permutation(10**9, epoch_key(1, 2), 0)(np.arange(4)).tolist() == GOLDEN["large"]
    assert order(3, total=10, seed=7)[0].tolist() == GOLDEN["shuffle"]
    assert order(3, total=12, seed=7, shuffle="blocks", blocks=blocks(3, 3, 3, 3), window=6)[0].tolist() == GOLDEN["blocks"]


GOLDEN = {
    "drawn": [0, 7, 8, 6, 9, 5, 1, 3, 2, 4],
    "computed": [46940, 15762, 34141, 91921, 92111, 44209, 77203, 41818],
    "large": [765776503, 431971211, 393816713, 154386687],
    "shuffle": [0, 4, 2, 9, 5, 3, 8, 6, 1, 7],
    "blocks": [9, 2, 0, 11, 1, 10, 3, 4, 7, 6, 5, 8],
}


# --- ranks ---

WORLDS = [1, 2, 3, 8]


@pytest.mark.parametrize("shuffle", [True, False, "blocks"])
@pytest.mark.parametrize("world_size", WORLDS)
def test_ranks_share_an_epoch_without_overlap_when_its_samples_can_be_shared_evenly(shuffle, world_size):
    for total in (24, 48 * 2000):
        ranks = order(1, total=total, shuffle=shuffle, blocks=blocks(*[total // 6] * 6), world_size=world_size)
        assert [len(rank) for rank in ranks] == [total // world_size] * world_size
        assert np.array_equal(np.sort(np.concatenate(ranks)), np.arange(total))


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_positions_of_an_epoch_are_dealt_out_so_that_any_number_of_ranks_reads_the_same_order(shuffle):
    (alone,) = order(4, total=24, seed=1, shuffle=shuffle)
    for world_size in WORLDS:
        dealt = np.stack(order(4, total=24, seed=1, shuffle=shuffle, world_size=world_size), axis=1)
        assert np.array_equal(dealt.reshape(-1), alone)


@given(st.integers(1, 50), st.integers(1, 12), st.sampled_from([True, False, "blocks"]), st.sampled_from(["pad", "drop"]))
def test_ranks_have_equally_many_samples_of_which_padding_alone_is_read_twice(total, world_size, shuffle, on_uneven):
    ranks = order(2, total=total, shuffle=shuffle, blocks=blocks(total), world_size=world_size, on_uneven=on_uneven)
    numbers = np.concatenate(ranks)
    assert len({len(rank) for rank in ranks}) == 1
    counts = np.bincount(numbers.astype(np.int64), minlength=total)
    if on_uneven == "drop":
        assert len(numbers) == total - total % world_size and counts.max(initial=0) <= 1
    elif total >= world_size:
        assert (counts >= 1).all() and counts.max() <= 2 and counts.sum() - total == -total % world_size
    else:  # more ranks than samples: each has one
        assert (counts >= 1).all() and [len(rank) for rank in ranks] == [1] * world_size


def test_samples_that_cannot_be_shared_evenly_are_an_error_on_demand():
    with pytest.raises(
        ConfigError,
        match=r"10 samples for 4 ranks leave a rest of 2; use on_uneven='pad' to read some samples twice, "
        r"or on_uneven='drop'",
    ):
        Sampler(10, world_size=4, on_uneven="raise")
    assert Sampler(12, world_size=4, on_uneven="raise").share == 3


# --- blocks ---


def blocks(*sizes):
    ends = np.cumsum([0, *sizes]).tolist()
    return [range(first, stop) for first, stop in itertools.pairwise(ends)]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 60), st.integers(0, 5), st.integers(0, 9))
def test_in_blocks_each_number_comes_once(sizes, window, seed, epoch):
    (numbers,) = order(epoch, total=sum(sizes), seed=seed, shuffle="blocks", blocks=blocks(*sizes), window=window)
    assert np.array_equal(np.sort(numbers), np.arange(sum(sizes)))


def test_a_window_of_one_sample_leaves_the_rows_of_each_block_in_their_order():
    (numbers,) = order(total=60, shuffle="blocks", blocks=blocks(*[10] * 6), window=1)
    rows = numbers.reshape(6, 10)
    assert (np.diff(rows, axis=1) == 1).all()
    assert sorted(rows[:, 0]) == [0, 10, 20, 30, 40, 50] != rows[:, 0].tolist()


def test_a_window_mixes_the_blocks_that_are_in_it_and_no_others():
    (numbers,) = order(total=1000, seed=2, shuffle="blocks", blocks=blocks(*[10] * 100), window=50)
    for window in numbers.reshape(20, 50):
        assert np.unique(window // 10, return_counts=True)[1].tolist() == [10] * 5  # five whole blocks
        assert (np.diff(window) != 1).sum() > 40  # and mixed
    assert not np.array_equal(np.sort(numbers[:50]), np.arange(50))


def test_without_a_number_sixteen_average_blocks_are_a_window():
    (numbers,) = order(total=3200, shuffle="blocks", blocks=blocks(*[10] * 320))
    assert {len(np.unique(window // 10)) for window in numbers.reshape(20, 160)} == {16}


def test_each_epoch_has_blocks_and_windows_of_its_own():
    first, second = (order(epoch, total=1000, shuffle="blocks", blocks=blocks(*[10] * 100), window=50)[0] for epoch in (0, 1))
    assert len(set(first[:50] // 10) & set(second[:50] // 10)) < 4
    assert np.count_nonzero(first == second) < 10


def test_windows_do_not_reach_from_one_rank_into_the_next():
    ranks = order(total=120, shuffle="blocks", blocks=blocks(*[5] * 24), window=25, world_size=3)
    for numbers in ranks:
        assert len(np.unique(numbers // 5)) == 8
        assert len(np.unique(numbers[:25] // 5)) == 5


def test_blocks_without_samples_are_passed_over():
    (numbers,) = order(total=12, shuffle="blocks", blocks=blocks(0, 5, 0, 0, 7, 0), window=4)
    assert np.array_equal(np.sort(numbers), np.arange(12))


def test_a_window_larger_than_what_is_drawn_is_mixed_too():
    total = 3 * DRAWN
    (numbers,) = order(total=total, shuffle="blocks", blocks=blocks(*[1024] * 192), window=total)
    assert np.array_equal(np.sort(numbers), np.arange(total))
    assert np.count_nonzero(np.diff(numbers) == 1) < 10
