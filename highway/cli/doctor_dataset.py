"""``highway doctor --dataset module:name``: measure whether threads or processes read a dataset faster."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median
from typing import Any

from highway.cli import command
from highway.columns import terminal_width, wrapped
from highway.errors import ConfigError
from highway.process.cores import available_cores

TURNS = 3
CLEARLY = 1.1  # processes are recommended if they are more than this many times as fast, because they need memory and time to start


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to measure a dataset."""
    parser.add_argument(
        "--dataset",
        metavar="MODULE:NAME",
        help="measure whether threads or processes read a map-style dataset faster; NAME is the "
        "dataset, or a function that returns the dataset",
    )
    parser.add_argument("--batch-size", type=int, default=64, help="samples per batch (default: %(default)s)")
    parser.add_argument("--num-workers", type=int, help="number of threads or processes (default: the number of usable cores)")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of each of three measurements (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Measure threads and processes in turn, and print the better choice."""
    dataset, workers = load(options.dataset), options.num_workers or available_cores()
    rates: dict[str, list[float]] = {}
    with ExitStack() as closing:
        running = {}
        for kind in ("processes", "threads"):
            loader = _loader(dataset, options.batch_size, workers, kind)
            closing.callback(loader.close)
            running[kind] = _batches(loader)
            try:
                next(running[kind])  # get the first batch before the measurement, so that the start does not count
            except ConfigError as error:
                if kind == "processes":
                    raise
                print(f"{error}\n\nUse worker processes for this dataset, as with torch: DataLoader(dataset, num_workers={workers})")
                return command.DONE
        for _ in range(TURNS):
            for kind, batches in running.items():
                rates.setdefault(kind, []).append(_rate(batches, options.seconds) * options.batch_size)
    found = {kind: median(values) for kind, values in rates.items()}
    width = max(map(len, found))
    for kind, rate in found.items():
        print(f"{workers} {kind:<{width}}  {rate:>10,.0f} samples/s")
    print("\n" + wrapped(verdict(found["threads"], found["processes"], workers), terminal_width()))
    return command.DONE


def load(name: str) -> Any:
    """Import and return the dataset ``module:name``. A class or function with this name is called to get the dataset.

    Raises:
        ConfigError: ``name`` has no colon, the module or the name does not exist, or the dataset has no random access to samples.
    """
    module_name, _, attribute = name.partition(":")
    if not attribute:
        raise ConfigError(f"--dataset {name}: expected MODULE:NAME, such as mymodule:dataset")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ConfigError(f"--dataset {name}: {error}") from error
    dataset = found() if isinstance(found, type) or not hasattr(found, "__getitem__") else found
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise ConfigError(f"--dataset {name}: a {type(dataset).__name__} has no random access, because it lacks __len__ or __getitem__")
    return dataset


def verdict(threads: float, processes: float, workers: int) -> str:
    """Return a sentence that recommends threads or processes, given the samples per second of both."""
    if processes > CLEARLY * threads:
        return (
            f"Processes are {processes / threads:.1f} times as fast: the dataset holds Python's lock. "
            f"DataLoader(dataset, num_workers={workers})"
        )
    ratio = f"are {threads / processes:.1f} times as fast" if threads > CLEARLY * processes else "are as fast, and need less memory"
    return f'Threads {ratio}. DataLoader(dataset, num_workers={workers}, workers="threads")'


def _loader(dataset: Any, batch_size: int, workers: int, kind: Any) -> Any:
    from highway.adapters.torch import DataLoader  # imported here, because the import of torch takes seconds

    return DataLoader(dataset, batch_size, shuffle=True, num_workers=workers, workers=kind, drop_last=True)


def _batches(loader: Any) -> Iterator[Any]:
    if len(loader) == 0:
        raise ConfigError(f"--dataset: {len(loader.dataset)} samples are too few for a batch of {loader.batch_size}; lower --batch-size")
    while True:
        yield from loader


def _rate(batches: Iterator[Any], seconds: float) -> float:
    """Return the batches per second."""
    began, count = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < seconds or not count:
        next(batches)
        count += 1
    return count / took
