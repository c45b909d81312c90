"""Where random numbers come from."""

from numpy.random import Generator, Philox

from highway.engine.randomness import Substreams


def draw(rng):
    return [rng.random(), int(rng.integers(1000)), int(rng.integers(1000)), int(rng.integers(1000)), rng.random(), *rng.permutation(9)]


def test_a_generator_set_to_a_substream_draws_as_a_new_one_whatever_was_drawn_before():
    substreams, key = Substreams(), 77 << 64 | 3
    for counter in (5 << 64, 0, 5 << 64, 7, (2**64 - 1) << 64, 4 << 128 | 9, 2**256 - 1):
        assert draw(substreams.at(key, counter)) == draw(Generator(Philox(key=key, counter=counter)))
        substreams.at(key + 1, 1).integers(10)  # leaves half of a number behind
