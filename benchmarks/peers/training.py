"""A training thread with a loader beside it, or in other processes: `PYTHON benchmarks/peers/training.py JOB LOADER`.

Commands are rows in JSON, one a line, as for :mod:`worker`: ``["train", KIND, SECONDS, RATE]`` has the thread take small steps, first with
the loader at rest and then while it takes so many images a second; ``["take", BATCHES]`` has it take batches of 9.6 MB that are ready.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from worker import Job

REST = 0.5  # seconds in which a loader fills its queues
BETWEEN = 0.02  # seconds between two large batches
LARGE = np.zeros((64, 224, 224, 3), np.uint8)
STEPS: dict[str, Callable[[], Callable[[], object]]] = {}


def step(make: Callable[[], Callable[[], object]]) -> Callable[[], Callable[[], object]]:
    STEPS[make.__name__] = make
    return make


@step
def operations() -> Callable[[], object]:
    """Twenty small operations of torch, each of which gives up the GIL and takes it again."""
    weights, values = torch.randn(32, 32) / 32, torch.randn(32, 32)

    def run() -> None:
        state = values
        for _ in range(10):
            state = torch.tanh(state @ weights)

    return run


@step
def python() -> Callable[[], object]:
    """Plain Python, of about the same length."""
    return lambda: sum(number * number for number in range(1500))


class Blank:
    """Large batches: a source for highway, a dataset for DataLoader and Grain."""

    def __iter__(self) -> Iterator[np.ndarray]:
        while True:
            yield LARGE

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, number: int) -> np.ndarray:
        return LARGE


def blank(number: int) -> np.ndarray:
    return LARGE


def highway(job: Job, isolated: bool) -> tuple[Iterator[Any], Iterator[Any]]:
    from highway import Pipeline
    from highway.modules import ImageFileReader
    from highway.transforms import RandomResizedCrop

    reader = ImageFileReader(job.folder, job.batch, crop=RandomResizedCrop(job.shape), flip=0.5, epochs=None, num_workers=job.workers)
    small, large = Pipeline([reader], isolated=isolated), Pipeline([Blank()], isolated=isolated)
    return (images for images, _ in _items(small)), _items(large)


def _items(pipeline: Any) -> Iterator[Any]:
    for item, _ in pipeline.stamped():
        yield item


def dataloader(job: Job, workers: int, library: str, in_threads: bool = False) -> tuple[Iterator[Any], Iterator[Any]]:
    import cv2
    from with_torch import Photos, read_cv2

    cv2.setNumThreads(0)
    options = {"num_workers": workers, "persistent_workers": True, **({"workers": "threads"} if in_threads else {})}
    loader = importlib.import_module(library).DataLoader
    small = loader(Photos(job, read_cv2), job.batch, **options)
    large = loader(Blank(), batch_size=None, **options)
    return (images for images, _ in _forever(small)), _forever(large)


def _forever(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def grain(job: Job, processes: int) -> tuple[Iterator[Any], Iterator[Any]]:
    import grain as library
    from seam import decoder

    options = library.ReadOptions(num_threads=job.workers, prefetch_buffer_size=2 * job.workers)
    numbers = library.MapDataset.source(range(len(job.files)))
    datasets = [numbers.map(decoder(job)).batch(job.batch).to_iter_dataset(options), library.MapDataset.source(Blank()).to_iter_dataset()]
    if processes:
        datasets = [dataset.mp_prefetch(library.MultiprocessingOptions(processes)) for dataset in datasets]
    small, large = datasets
    return (images for images, _ in small), iter(large)


def spdl(job: Job, in_subprocess: bool) -> tuple[Iterator[Any], Iterator[Any]]:
    from spdl.pipeline import PipelineBuilder, run_pipeline_in_subprocess

    small = PipelineBuilder().add_source(range(len(job.files))).aggregate(job.batch).pipe(partial(_decoded, job), concurrency=job.workers)
    large = PipelineBuilder().add_source(range(10**6)).pipe(blank)
    loaders = []
    for builder in (small.add_sink(2), large.add_sink(2)):
        if in_subprocess:
            loaders.append(iter(run_pipeline_in_subprocess(builder.get_config(), num_threads=job.workers)))
        else:
            pipeline = builder.build(num_threads=job.workers)
            closing.enter_context(pipeline.auto_stop())
            loaders.append(iter(pipeline))
    return loaders[0], loaders[1]


def _decoded(job: Job, numbers: list[int]) -> np.ndarray:
    from seam import decoder

    image, images = decoder(job), np.empty((len(numbers), *job.shape, 3), np.uint8)
    for row, number in zip(images, numbers, strict=True):
        image(number, row)
    return images


LOADERS: dict[str, tuple[Callable[[Job], tuple[Iterator[Any], Iterator[Any]]], tuple[str, ...]]] = {
    "highway": (partial(highway, isolated=False), ("highway-data",)),
    "isolated": (partial(highway, isolated=True), ("highway-data",)),
    "highway-dataloader": (partial(dataloader, workers=2, library="highway.adapters.torch"), ("highway-data",)),
    "highway-threads": (partial(dataloader, workers=2, library="highway.adapters.torch", in_threads=True), ("highway-data",)),
    "dataloader-1": (partial(dataloader, workers=1, library="torch.utils.data"), ("torch",)),
    "dataloader-2": (partial(dataloader, workers=2, library="torch.utils.data"), ("torch",)),
    "grain": (partial(grain, processes=0), ("grain",)),
    "grain-process": (partial(grain, processes=1), ("grain",)),
    "spdl": (partial(spdl, in_subprocess=False), ("spdl",)),
    "spdl-subprocess": (partial(spdl, in_subprocess=True), ("spdl",)),
}
closing = contextlib.ExitStack()


def train(take: Iterator[Any] | None, run: Callable[[], object], seconds: float, rate: float) -> dict[str, float]:
    """Take steps for so long, and a batch whenever one is due. Say what a step costs, and what the thread had to wait."""
    steps = images = 0
    longest = 0.0
    worked, waits = _scheduled()
    began = before = time.perf_counter()
    while before - began < seconds:
        if take is not None and (before - began) * rate >= images:
            images += len(next(take))
        run()
        steps += 1
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    took = before - began
    worked, waits = (after - earlier for after, earlier in zip(_scheduled(), (worked, waits), strict=True))
    return {
        "steps": steps / took,
        "images": images / took,
        "longest": longest,
        "cost": worked / steps,
        "core": worked / took,
        "waits": waits / took,
    }


def _scheduled() -> tuple[float, int]:
    """Return the seconds that this thread was on a core, and how often it gave that up to wait for something."""
    return time.thread_time(), resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def taken(items: Iterator[Any], batches: int) -> dict[str, float]:
    """Take large batches, and see them; return the median seconds."""
    found = []
    for item in itertools.islice(items, 10 + batches):
        del item
        time.sleep(BETWEEN)
        began = time.perf_counter()
        item = next(items)
        found.append(time.perf_counter() - began)
        assert item.shape == LARGE.shape
    return {"seconds": statistics.median(found[10:])}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    torch.set_num_threads(1)
    job = Job.load(Path(sys.argv[1]))
    open_loader, packages = LOADERS[sys.argv[2]]
    try:
        small, large = open_loader(job)
        versions = {name: importlib.metadata.version(name) for name in ("torch", *packages)}
        print(json.dumps({"versions": versions}), file=answers)
        for line in sys.stdin:
            command, *arguments = json.loads(line)
            if command == "take":
                answer: dict[str, Any] = taken(large, *arguments)
            else:
                kind, seconds, rate = arguments
                run = STEPS[kind]()
                next(small)
                time.sleep(REST)
                alone = train(None, run, seconds / 2, rate)
                answer = {"alone": alone, "beside": train(small, run, seconds, rate)}
            print(json.dumps(answer), file=answers)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers)
        raise
    finally:
        closing.close()
        os._exit(0)  # loaders of others leave threads and processes that do not end


if __name__ == "__main__":
    main()
