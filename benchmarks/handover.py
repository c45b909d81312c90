"""Compare highway's ``DataLoader`` with torch's on the same dataset: samples per second, first batch and memory."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch.utils.data

import dataset
from highway import Pipeline
from highway.adapters.torch import DataLoader
from highway.modules import ImageFileReader
from measure import Report, Work, chosen, in_turns, machine, parse, parser
from user_datasets import SIDE, DecodedByOpenCV, DecodedByPillow, InMemory, InPython, nbytes
from work import lasting

BATCH = 64
WARM = 8  # batches: more than wait in any of the loaders

Loader = Callable[[Any, int], Any]

STAYING = {"persistent_workers": True}

LOADERS: dict[str, Loader] = {
    "torch": lambda data, workers: torch.utils.data.DataLoader(data, BATCH, True, num_workers=workers, **STAYING),
    "highway": lambda data, workers: DataLoader(data, BATCH, True, num_workers=workers, **STAYING),
    "highway, threads": lambda data, workers: DataLoader(data, BATCH, True, num_workers=workers, workers="threads", **STAYING),
    "highway, isolated threads": lambda data, workers: DataLoader(data, BATCH, True, num_workers=workers, workers="threads", isolated=True),
}
TARGETS = {  # of which loader, against torch's, and how much it should be
    "decode with cv2": {("highway", "torch"): 1.0, ("highway, threads", "torch"): 1.05, ("our decoder", "torch"): 1.4},
    "decode with Pillow": {("highway", "torch"): 1.0, ("highway, threads", "torch"): 1.05},
    "pure Python, 1 ms": {("highway", "torch"): 1.0},
    "arrays in memory": {("highway", "torch"): 2.0, ("highway, threads", "torch"): 3.0},
}


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def turn(batches: Iterator[Any], count: int) -> Work:
    """Take so many batches, behind those that were read while others had their turn."""
    for _ in range(WARM):
        next(batches)
    began, volume = time.perf_counter(), 0
    for _ in range(count):
        volume += nbytes(next(batches))
    return Work(count * BATCH, volume, time.perf_counter() - began)


def rates(report: Report, kind: str, data: Any, count: int, options: Any, others: dict[str, Any]) -> None:
    """Measure all loaders on one dataset, each with workers that stay."""
    with ExitStack() as closing:
        cases = {}
        for name in chosen([*LOADERS, *others], options):
            loader = others[name]() if name in others else LOADERS[name](data, options.workers)
            closing.callback(getattr(loader, "close", lambda: None))
            cases[name] = partial(turn, endless(loader), count)
        measured = in_turns(cases, options.rounds, {})
        report.rates(f"{kind}, {options.workers} workers, batches of {BATCH}", measured, ["torch"], "samples")
        report.targets(measured, TARGETS[kind])
        cases.clear()
    gc.collect()


def first_batch(data: Any, name: str, workers: int) -> float:
    """Return the seconds from the loader to its first batch."""
    began = time.perf_counter()
    loader = LOADERS[name](data, workers)
    batches = iter(loader)
    next(batches)
    took = time.perf_counter() - began
    del batches
    getattr(loader, "close", lambda: None)()
    return took


def memory(data: Any, name: str, workers: int) -> float:
    """Return the megabytes that a loader adds to this process and its children, shared ones counted once."""
    gc.collect()
    before = _proportional(os.getpid())
    loader = LOADERS[name](data, workers)
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    used = _proportional(os.getpid())
    del batches
    getattr(loader, "close", lambda: None)()
    return (used - before) / 1e6


def _proportional(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    own = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    return own + sum(map(_proportional, children))


def first_batches(report: Report, data: Any, options: Any) -> None:
    """Measure how soon the first batch is there."""
    names = ["torch", "highway", "highway, threads"]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(3 * options.rounds):  # each takes a quarter of a second
        for name in names:
            seconds[name].append(first_batch(data, name, options.workers))
    first = {name: statistics.median(values) for name, values in seconds.items()}
    report.line(
        "**Seconds to the first batch, decoded with cv2 (targets: at most the time of torch; with threads, at most a third of it)**"
    )
    report.table(["case", "s", "x torch"], [[name, f"{value:.3f}", f"{first['torch'] / value:.2f}"] for name, value in first.items()])


def memories(report: Report, data: Any, options: Any) -> None:
    """Measure what memory loaders take."""
    names = ["highway, threads", "torch", "highway", "highway, isolated threads"]
    rows = [[name, f"{memory(data, name, options.workers):,.0f}"] for name in names]
    report.line("**Memory that a loader adds, in all processes (proportional set size)**")
    report.table(["case", "MB"], rows)


def main() -> None:
    arguments = parser(__doc__, rounds=5)
    arguments.add_argument("--workers", type=int, default=2, help="number of threads or processes (default: %(default)s)")
    arguments.add_argument("--batches", type=int, default=12, help="batches per turn (default: %(default)s)")
    arguments.add_argument("--kind", action="append", metavar="KIND", help="only datasets whose names contain this text; can be repeated")
    options = parse(arguments, batches=3)
    report = Report("handover", options.record)
    report.line(machine("highway-data", "numpy", "torch", "opencv-python-headless", "pillow"))
    folder = dataset.imagenet_like(dataset.FOLDER, 1000)
    files = sorted(map(str, folder.glob("*/*.jpg")))

    def our_decoder() -> DataLoader:
        return DataLoader(Pipeline([ImageFileReader(str(folder), BATCH, (SIDE, SIDE), num_workers=options.workers)]))

    kinds: dict[str, tuple[Any, int, dict[str, Any]]] = {
        "decode with cv2": (DecodedByOpenCV(files), options.batches, {"our decoder": our_decoder}),
        "decode with Pillow": (DecodedByPillow(files), options.batches, {}),
        "pure Python, 1 ms": (InPython(2000, lasting(0.001)), options.batches, {}),
        "arrays in memory": (InMemory(20_000), 10 * options.batches, {}),
    }
    wanted = [kind for kind in (*kinds, "first batch", "memory") if not options.kind or any(part in kind for part in options.kind)]
    for kind, (data, count, others) in kinds.items():
        if kind in wanted:
            rates(report, kind, data, count, options, others)
    if "first batch" in wanted:
        first_batches(report, DecodedByOpenCV(files), options)
    if "memory" in wanted:
        memories(report, DecodedByOpenCV(files), options)
    report.record()


if __name__ == "__main__":
    main()
