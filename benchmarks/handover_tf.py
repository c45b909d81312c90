"""Compare the ways of batches into tf.data and JAX: highway's adapters and others.

The batches exist before the measurement, so that only the hand-over is measured: batches of 9.6 MB, which show the cost of copies, and
batches of 1.3 kB, which show the cost of each call. ``tox -e bench-handover-tf`` runs this script in its own environment.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}

import jax
import numpy as np
import tensorflow as tf

from highway import Pipeline
from highway.adapters.jax import to_device
from highway.adapters.tensorflow import to_dataset
from highway.process.aligned import aligned
from measure import Report, Work, chosen, in_turns, machine, parse, parser

SIZES = {"batches of 9.6 MB": ((64, 224, 224, 3), 1000), "batches of 1.3 kB": ((4, 336), 5000)}
AGAINST = {"tf.data": ("from_generator",), "JAX": ("device_put, not aligned",)}


class Batches:
    """The same four batches again and again, and how many are taken in a turn."""

    def __init__(self, shape: tuple[int, ...], count: int) -> None:
        self.arrays = [aligned(shape, np.uint8) for _ in range(4)]
        self.count = count
        for number, array in enumerate(self.arrays):
            array[...] = number
        self.unaligned = [np.frombuffer(bytearray(array.nbytes + 16), np.uint8)[16:].reshape(shape) for array in self.arrays]
        self.spec = tf.TensorSpec(shape, tf.uint8)

    def __iter__(self) -> Iterator[np.ndarray]:
        return itertools.islice(itertools.cycle(self.arrays), self.count)

    def work(self, items: Iterable[object]) -> Work:
        """Take all items of a route; what it takes to build it, and the first item, do not count."""
        iterator = iter(items)
        next(iterator)
        began = time.perf_counter()
        taken = sum(1 for _ in iterator)
        seconds = time.perf_counter() - began
        assert taken == self.count - 1
        return Work(taken, taken * self.arrays[0].nbytes, seconds)


def into_tensorflow(batches: Batches) -> dict[str, Callable[[], Work]]:
    """Return the routes into tf.data; each has two batches ahead."""

    def mapped(call: Callable[[tf.Tensor], tf.Tensor]) -> tf.data.Dataset:
        return tf.data.Dataset.range(batches.count).map(call).prefetch(2)

    def by_number(number: tf.Tensor) -> np.ndarray:
        return batches.arrays[int(number) % 4]

    def highway() -> Work:
        with Pipeline([lambda: iter(batches)]) as pipeline:
            return batches.work(to_dataset(pipeline, batches.spec))

    return {
        "highway, to_dataset": highway,
        "from_generator": lambda: batches.work(
            tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=batches.spec).prefetch(2)
        ),
        "numpy_function": lambda: batches.work(mapped(lambda number: tf.numpy_function(by_number, [number], tf.uint8))),
        "py_function": lambda: batches.work(mapped(lambda number: tf.py_function(by_number, [number], tf.uint8))),
        "convert_to_tensor, no tf.data": lambda: batches.work(map(tf.convert_to_tensor, batches)),
    }


def into_jax(batches: Batches) -> dict[str, Callable[[], Work]]:
    """Return the routes into JAX."""

    def highway() -> Work:
        with Pipeline([lambda: iter(batches)]) as pipeline:
            return batches.work(map(jax.block_until_ready, to_device(pipeline)))

    def put(arrays: list[np.ndarray]) -> Work:
        items = itertools.islice(itertools.cycle(arrays), batches.count)
        return batches.work(jax.block_until_ready(jax.device_put(array)) for array in items)

    return {
        "highway, to_device": highway,
        "device_put, aligned": lambda: put(batches.arrays),
        "device_put, not aligned": lambda: put(batches.unaligned),
    }


def main(options: argparse.Namespace) -> None:
    report = Report("handover_tf", options.record)
    report.line(machine("tensorflow-cpu", "jax", "numpy"))
    for size, (shape, count) in SIZES.items():
        batches = Batches(shape, count // 10 if options.quick else count)
        for framework, routes in (("tf.data", into_tensorflow(batches)), ("JAX", into_jax(batches))):
            absent: dict[str, str] = {}
            rates = in_turns({name: routes[name] for name in chosen(routes, options)}, options.rounds, absent)
            report.rates(f"Into {framework}, {size}", rates, AGAINST[framework], "batches", absent)
    report.record()


if __name__ == "__main__":
    main(parse(parser(__doc__, rounds=5)))
