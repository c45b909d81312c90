"""Where random numbers in maps come from (docs/adr/0003): one sequence for each stage, a substream of it for each item."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.random import Generator, Philox

_MASK = 2**64 - 1
_AT_ONCE = 256  # integers that are drawn together


def stage_key(seed: int, name: str) -> int:
    """Return what the sequence of a stage hangs on: the pipeline's seed and the stage's name."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest(), "little")


def generator(key: int, epoch: int, index: int) -> Generator:
    """Return the generator for one item of a stage."""
    return Generator(Philox(key=key, counter=counter_of(epoch, index)))


def counter_of(epoch: int, index: int) -> int:
    """Return where the substream of an item begins in the sequence of a stage."""
    # Philox is a counter-based generator: each (epoch, index) owns a substream of 2**128 numbers of the stage's own sequence.
    return (epoch & _MASK) << 192 | (index & _MASK) << 128


class Substreams:
    """One generator that is set to any place of any sequence; much quicker than a new one for each."""

    def __init__(self) -> None:
        self._rng = Generator(Philox(key=0))
        self._fresh = self._rng.bit_generator.state  # with nothing left of what was drawn before

    def at(self, key: int, counter: int) -> Generator:
        """Return the generator, as if it were a new one; for use until the next call.

        Args:
            key: What the sequence hangs on, below 2**128.
            counter: Where it begins, below 2**256, in steps of four numbers.
        """
        place = self._fresh["state"]
        for name, value in (("key", key), ("counter", counter)):
            place[name][:] = [value >> shift & _MASK for shift in range(0, 64 * len(place[name]), 64)]
        self._rng.bit_generator.state = self._fresh
        return self._rng


def state_of(rng: Generator) -> list[int]:
    """Return where a Philox generator is, as JSON can hold it."""
    state: Any = rng.bit_generator.state
    numbers = [*state["state"]["counter"], *state["state"]["key"], *state["buffer"]]
    return [int(number) for number in (*numbers, state["buffer_pos"], state["has_uint32"], state["uinteger"])]


def go_on(rng: Generator, numbers: list[int]) -> None:
    """Bring a Philox generator to where another one was."""
    *arrays, position, has_half, half = numbers
    counter, key, buffer = (np.array(part, np.uint64) for part in (arrays[:4], arrays[4:6], arrays[6:]))
    state = {"counter": counter, "key": key}
    rng.bit_generator.state = {
        "bit_generator": "Philox",
        "state": state,
        "buffer": buffer,
        "buffer_pos": position,
        "has_uint32": has_half,
        "uinteger": half,
    }


def epoch_and_index(rng: Generator) -> tuple[int, int]:
    """Return the epoch and index that a fresh generator was made for."""
    counter = rng.bit_generator.state["state"]["counter"]
    return int(counter[3]), int(counter[2])


class Below:
    """Integers from 0 up to a bound, as a Philox generator draws them one by one; while the bound stays the same, drawn many at once.

    Args:
        rng: What draws them, and nothing else meanwhile.
    """

    def __init__(self, rng: Generator) -> None:
        self._rng = rng
        self._bound = 0
        self._before: Any = None  # the generator's state before those that were drawn at once
        self._left: list[int] = []  # of these, the last one first

    def next(self, bound: int) -> int:
        """Return the next integer below ``bound``."""
        if bound == self._bound and self._left:
            return self._left.pop()
        if bound == self._bound:
            self._before = self._rng.bit_generator.state
            self._left = self._rng.integers(bound, size=_AT_ONCE)[::-1].tolist()
            return self._left.pop()
        if self._left:
            self._rng, self._left = self._caught_up(), []
        self._bound = bound
        return int(self._rng.integers(bound))

    def state(self) -> list[int]:
        """Return where the generator is, as :func:`state_of` does."""
        return state_of(self._caught_up() if self._left else self._rng)

    def _caught_up(self) -> Generator:
        """Return a generator that has drawn what was handed out, and no more."""
        rng = Generator(Philox())
        rng.bit_generator.state = self._before
        rng.integers(self._bound, size=_AT_ONCE - len(self._left))
        return rng
