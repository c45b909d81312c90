import numpy as np
import pytest
from numpy.random import Generator, Philox

from highway.reading.draws import NUMBERS, Draws

KEY = 5 << 64 | 2


@pytest.mark.parametrize("stride", [1, 2, 8, 9, 1000])
def test_a_position_draws_the_same_numbers_in_any_run_and_on_any_rank(stride):
    alone = [Draws(KEY, np.array([position])).numbers[0] for position in range(0, 12 * stride, stride)]
    positions = np.arange(12) * stride
    for cuts in ([12], [5, 12], range(1, 13)):
        runs = [Draws(KEY, positions[first:stop]).numbers for first, stop in zip([0, *cuts], cuts, strict=False)]
        np.testing.assert_array_equal(np.concatenate(runs), alone)


def test_no_number_is_drawn_twice_and_they_are_spread_evenly():
    numbers = Draws(KEY, np.arange(1000)).numbers
    assert numbers.shape == (1000, NUMBERS) and numbers.min() >= 0 and numbers.max() < 1
    assert len(np.unique(numbers)) == numbers.size
    assert abs(numbers.mean() - 0.5) < 0.006 and abs(np.corrcoef(numbers[:-1, 0], numbers[1:, 0])[0, 1]) < 0.1
    other_epoch, far = Draws(KEY + 1, np.arange(1000)).numbers, Draws(KEY, np.arange(1000) + 2**40).numbers
    assert len(np.unique([numbers, other_epoch, far])) == 3 * numbers.size


def test_what_draws_as_it_likes_has_a_generator_for_each_position():
    draws = Draws(KEY, np.array([3, 4]))
    for place, position in ((1, 4), (0, 3), (1, 4)):
        assert draws.generator(place).random() == Generator(Philox(key=KEY, counter=position << 64)).random()
        draws.numbers  # noqa: B018  # drawing those changes nothing
