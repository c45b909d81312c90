"""A source of random arrays. Use it to measure stages, or to try a pipeline without data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as numbers
from typing import Annotated, Any

import numpy as np
from numpy.random import Generator, Philox

from highway.engine.context import Context, here
from highway.errors import ConfigError
from highway.parameters.checks import checked
from highway.parameters.ranges import Count, Predicate, Range, Seed
from highway.process.aligned import aligned

_AT_ONCE = 1 << 16  # number of elements to draw at once; few, so that the elements are still in the CPU caches when they are copied


def _is_number_type(dtype: str) -> bool:
    try:
        return np.dtype(dtype).kind in "biuf"
    except TypeError:
        return False


@checked
@dataclass
class Noise:
    """Yield tuples of random arrays.

    Args:
        shape: Shape of each array, including the batch axis; or a list with one shape per array.
        n_tensors: Number of arrays in a tuple, at least 1. By default there is one array, or one array per shape.
        dtype: Dtype of the arrays. Integers cover the whole range of their dtype. Floats are in [0, 1). float16 values can also be rounded
            to 1.
        constant: Whether to yield the same arrays each time. Then creating arrays takes no time, which is useful for measurements.
        count: Number of tuples, or ``None`` for no limit.
        seed: Seed of the values, at least 0. ``None``: the pipeline's seed.

    Yields:
        A tuple of arrays.

    Raises:
        ConfigError: a parameter is out of its range.

    >>> [(x.shape, y.dtype) for x, y in Noise((2, 3), 2, "float32", count=1)]
    [((2, 3), dtype('float32'))]
    >>> [images.shape + labels.shape for images, labels in Noise([(8, 24, 24, 3), (8,)], count=1)]
    [(8, 24, 24, 3, 8)]
    """

    shape: Annotated[
        tuple[int | tuple[int, ...], ...],
        Predicate(lambda shape: len(set(map(type, shape))) <= 1, "one shape, or a list of shapes"),
        Range(ge=0, words="lengths, at least 0"),
    ] = (64, 224, 224, 3)
    n_tensors: Count | None = None
    dtype: Annotated[str, Predicate(_is_number_type, "bool, or the name of a NumPy integer or float type, such as uint8")] = "uint8"
    constant: bool = False
    count: Annotated[int | None, Range(ge=0, words="at least 0, or None for no limit")] = None
    seed: Seed | None = None

    def __post_init__(self) -> None:
        if self.n_tensors not in (None, len(self.shapes)):
            raise ConfigError(f"Noise: n_tensors={self.n_tensors}, but {len(self.shapes)} shapes; remove n_tensors")

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of each array."""
        several = [part for part in self.shape if isinstance(part, tuple)]
        lengths = tuple(part for part in self.shape if isinstance(part, int))
        return several or [lengths] * (1 if self.n_tensors is None else self.n_tensors)

    def __iter__(self, context: Context | None = None) -> Iterator[tuple[np.ndarray, ...]]:
        item: tuple[np.ndarray, ...] = ()
        shapes, seed = self.shapes, (context or here()).seed_or(self.seed)
        for index in numbers() if self.count is None else range(self.count):
            if not item or not self.constant:
                rng = Generator(Philox(key=seed, counter=index << 128))
                item = tuple(self._array(rng, shape) for shape in shapes)
            yield item

    def _array(self, rng: Generator, shape: tuple[int, ...]) -> np.ndarray:
        array = aligned(shape, np.dtype(self.dtype))
        flat = array.reshape(-1)
        if array.dtype in (np.float32, np.float64):
            rng.random(out=flat, dtype=array.dtype)
            return array
        for begin in range(0, len(flat), _AT_ONCE):
            part = flat[begin : begin + _AT_ONCE]
            part[:] = _drawn(rng, len(part), array.dtype)
        return array


def _drawn(rng: Generator, count: int, dtype: np.dtype[Any]) -> np.ndarray:
    if dtype.kind == "f":
        return rng.random(count, np.float32)
    if dtype.kind == "b":
        return rng.integers(0, 2, count, np.uint8)
    bits, word = (64, np.uint64) if dtype.itemsize == 8 else (32, np.uint32)  # drawing large integers is faster than drawing small integers
    words: np.ndarray = rng.integers(0, 1 << bits, -(-count * dtype.itemsize * 8 // bits), word)
    drawn = words.view(f"u{dtype.itemsize}")[:count]
    return drawn if dtype.kind == "u" else drawn.view(dtype) ^ np.iinfo(dtype).min
