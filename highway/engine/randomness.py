"""The random numbers of maps (docs/adr/0003). Each stage has its own sequence, and each position in an epoch its own part, a substream."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.random import Generator, Philox

Rng = TypeVar("Rng", bound=Generator | None)
_MASK = 2**64 - 1
_AT_ONCE = 256  # number of integers that are drawn together


def stage_key(seed: int, name: str) -> int:
    """Return the key of a stage's sequence, which depends on the pipeline's seed and the stage's name."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest(), "little")


class BatchGenerator(Generator):
    """The generator of a batch. It begins at the position of the first row. :func:`of_rows` returns the generator of each row.

    Args:
        key: Key of the stage's sequence.
        epoch: The epoch of the batch.
        rows: The position of each row.
    """

    def __init__(self, key: int, epoch: int, rows: Sequence[int]) -> None:
        super().__init__(Philox(key=key, counter=counter_of(epoch, rows[0])))
        self.key, self.epoch, self.rows = key, epoch, rows


def generator(key: int, epoch: int, index: int, rows: Sequence[int] = ()) -> Generator:
    """Return the generator for one item of a stage. ``rows`` holds the positions of the item's rows; empty if they are unknown."""
    return BatchGenerator(key, epoch, rows) if rows else Generator(Philox(key=key, counter=counter_of(epoch, index)))


def counter_of(epoch: int, position: int) -> int:
    """Return the counter at which the substream of a position begins."""
    # Philox is a counter-based generator: each (epoch, position) has its own 2**128 steps of the stage's sequence.
    return (epoch & _MASK) << 192 | (position & _MASK) << 128


def of_rows(rng: Rng, count: int) -> Callable[[int], Rng]:
    """Return a function from the index of a row to the generator of this row. Use each generator before the next call, which can reset it.

    If ``rng`` is not the generator of a batch with ``count`` rows, all rows share ``rng``.
    """
    if not isinstance(rng, BatchGenerator) or len(rng.rows) != count:
        return lambda row: rng
    seek: Any = Substreams().of(rng.key, rng.epoch)
    rows = rng.rows
    return lambda row: seek(rows[row])


class Substreams:
    """A generator that can be set to any counter of any sequence. Setting a generator is much faster than creating a generator."""

    def __init__(self) -> None:
        self._rng = Generator(Philox(key=0))
        self._fresh = self._rng.bit_generator.state  # the state of a new generator

    def at(self, key: int, counter: int) -> Generator:
        """Set the generator to a counter of a sequence, and return it. All calls return the same generator.

        Args:
            key: Key of the sequence, below 2**128.
            counter: The counter, below 2**256, as returned by :func:`counter_of`. Each step of the counter yields four numbers.
        """
        place = self._fresh["state"]
        for name, value in (("key", key), ("counter", counter)):
            place[name][:] = [value >> shift & _MASK for shift in range(0, 64 * len(place[name]), 64)]
        self._rng.bit_generator.state = self._fresh
        return self._rng

    def of(self, key: int, epoch: int) -> Callable[[int], Generator]:
        """Return a function that sets the generator to a position of an epoch. This function is faster than :meth:`at`."""
        self.at(key, counter_of(epoch, 0))
        bits, fresh = self._rng.bit_generator, {name: _as_list(value) for name, value in self._fresh.items()}
        counter = fresh["state"]["counter"]

        def seek(position: int) -> Generator:
            counter[2] = position & _MASK
            bits.state = fresh
            return self._rng

        return seek


def _as_list(value: Any) -> Any:
    """Return a part of a generator's state with lists in place of arrays, because NumPy reads lists faster."""
    if isinstance(value, dict):
        return {name: _as_list(part) for name, part in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def state_of(rng: Generator) -> list[int]:
    """Return the state of a Philox generator, in a form that JSON can hold."""
    state: Any = rng.bit_generator.state
    numbers = [*state["state"]["counter"], *state["state"]["key"], *state["buffer"]]
    return [int(number) for number in (*numbers, state["buffer_pos"], state["has_uint32"], state["uinteger"])]


def go_on(rng: Generator, numbers: list[int]) -> None:
    """Set a Philox generator to a state that :func:`state_of` returned."""
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


def place_of(rng: Generator) -> tuple[int, int, Sequence[int]]:
    """Return the epoch and position of a generator that has not drawn numbers yet, and the positions of the rows (empty if unknown)."""
    counter = rng.bit_generator.state["state"]["counter"]
    return int(counter[3]), int(counter[2]), rng.rows if isinstance(rng, BatchGenerator) else ()


class Below:
    """Random integers below a bound, one per call: the integers that the Philox generator ``rng`` would return.

    While the bound stays the same, many integers are drawn together, which is faster.

    Args:
        rng: The generator. No other code is allowed to use it.
    """

    def __init__(self, rng: Generator) -> None:
        self._rng = rng
        self._bound = 0
        self._before: Any = None  # the generator's state before the buffered integers were drawn
        self._left: list[int] = []  # buffered integers; the next integer is the last entry

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
        """Return the state of the generator, as :func:`state_of` does."""
        return state_of(self._caught_up() if self._left else self._rng)

    def _caught_up(self) -> Generator:
        """Return a generator that has drawn only the integers that were returned."""
        rng = Generator(Philox())
        rng.bit_generator.state = self._before
        rng.integers(self._bound, size=_AT_ONCE - len(self._left))
        return rng
