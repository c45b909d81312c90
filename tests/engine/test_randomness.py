"""Where random numbers come from."""

from numpy.random import Generator, Philox

from highway.engine.randomness import Substreams


def draw(rng):
    return [rng.random(), int(rng.integers(1000)), int(rng.integers(1000)), int(rng.integers(1000)), rng.random(), *rng.permutation(9)]


def test_a_generator_set_to_a_substream_draws_as_a_new_one_whatever_was_drawn_before():
    substreams = Substreams(77 << 64 | 3)
    for index in (5, 0, 5, 2**64 - 1):
        assert draw(substreams.at(index)) == draw(Generator(Philox(key=77 << 64 | 3, counter=index << 64)))
        substreams.at(1).integers(10)  # leaves half of a number behind
