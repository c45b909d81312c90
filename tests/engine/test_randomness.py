"""Where random numbers come from."""

import random

import pytest
from numpy.random import Generator, Philox

from highway.engine.randomness import Below, Substreams, go_on, state_of


def draw(rng):
    return [rng.random(), int(rng.integers(1000)), int(rng.integers(1000)), int(rng.integers(1000)), rng.random(), *rng.permutation(9)]


def test_a_generator_set_to_a_substream_draws_as_a_new_one_whatever_was_drawn_before():
    substreams, key = Substreams(), 77 << 64 | 3
    for counter in (5 << 64, 0, 5 << 64, 7, (2**64 - 1) << 64, 4 << 128 | 9, 2**256 - 1):
        assert draw(substreams.at(key, counter)) == draw(Generator(Philox(key=key, counter=counter)))
        substreams.at(key + 1, 1).integers(10)  # leaves half of a number behind


@pytest.mark.parametrize("key", range(20))
def test_integers_that_are_drawn_many_at_once_are_those_that_are_drawn_one_by_one(key):
    chosen, rng, many = random.Random(key), Generator(Philox(key=key)), Below(Generator(Philox(key=key)))
    for bound in chosen.choices([1, 2, 3, 7, 1000, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**40], k=6):
        for _ in range(chosen.choice([1, 2, 255, 256, 257, 600])):
            assert many.next(bound) == int(rng.integers(bound))
        state = state_of(rng)
        assert many.state() == state
        if chosen.random() < 0.5:  # another run goes on
            again = Generator(Philox())
            go_on(again, many.state())
            many = Below(again)
