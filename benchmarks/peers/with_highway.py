"""highway: ImageFileReader in a pipeline; and, by hand, the same decoding with no engine around it.

Modes: ``pipeline``; ``shards``, the same from tar files by number; ``stream``, from tar files sample by sample; ``loop``. The argument
``wheels`` leaves out the optional C extension even where it is built.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from worker import Batch, Batches, Job, serve

RUN = 16  # rows that a thread of the bare loop fills at once, as those of highway do where two share a batch of 64


def prepare(job: Job, mode: str) -> Batches:
    if mode == "loop":
        return _loop(job)
    if mode == "stream":
        return _stream(job)
    return _pipeline(job, _packed(job) if mode == "shards" else job.folder)


def _packed(job: Job) -> str:
    """Pack the folder into a tar file for each worker, in its order, and return their paths with braces."""
    from highway.datasets import ImageFolder
    from highway.datasets.shards import shard_writer

    folder = ImageFolder(job.folder)
    paths = [f"{job.shards[0]}-{shard}.tar" for shard in range(job.workers)]
    share = -(-len(folder) // job.workers)
    for shard, path in enumerate(paths):
        with shard_writer(path) as out:
            for number in range(shard * share, min((shard + 1) * share, len(folder))):
                data, label = folder[number]
                out.add(folder.keys[number], {"jpg": data, "cls": label})
    return f"{job.shards[0]}-{{0..{job.workers - 1}}}.tar"


def _pipeline(job: Job, data_dir: str) -> Batches:
    """The boxes and coins are not taken from the table: drawing them is part of highway's work, and gives the same ones."""
    from highway import Pipeline
    from highway.images import run
    from highway.modules import ImageFileReader
    from highway.transforms import RandomResizedCrop

    run._simulated = job.simulated
    crop = RandomResizedCrop(job.shape)
    reader = ImageFileReader(data_dir, job.batch, crop=crop, flip=0.5, epochs=job.epochs, num_workers=job.workers, seed=0)

    def batches() -> Iterator[Batch]:
        position = 0
        with Pipeline([reader]) as pipeline:
            for (images, _), _ in pipeline.stamped():
                yield images, range(position, position + len(images))
                position += len(images)

    return batches


def _stream(job: Job) -> Batches:
    """The boxes are drawn by where an image is in the stream, and others than those of the table."""
    from highway import Pipeline, Stage
    from highway.modules import Batch, DecodeImage, WebDatasetSource
    from highway.transforms import RandomResizedCrop

    def batches() -> Iterator[tuple[np.ndarray, list[int]]]:
        source = WebDatasetSource(job.shards, epochs=1, shuffle=False)
        decode = Stage(DecodeImage("jpg", crop=RandomResizedCrop(job.shape), flip=0.5), num_workers=job.workers)
        with Pipeline([source, decode, Batch(job.batch)], seed=0) as pipeline:
            for item, passport in pipeline.stamped():
                yield item["jpg"], [int(key) for key in passport.keys]

    return batches


def _loop(job: Job) -> Batches:
    """Plain threads over preallocated batches, which draw boxes and coins as highway's workers do, and then use those of the table."""
    from highway.images.run import decode_run
    from highway.reading.draws import Draws
    from highway.transforms import RandomResizedCrop

    crop, total, size = RandomResizedCrop(job.shape), len(job.files), job.batch
    memory, boxes = [np.empty((size, *job.shape, 3), np.uint8) for _ in range(4)], job.boxes.astype(np.int64)

    def work(runs: Iterator[int], lock: threading.Lock) -> None:
        def boxes_of(sizes: np.ndarray) -> tuple[np.ndarray, dict[int, Exception]]:
            crop.draw_boxes(sizes, Draws(0, np.arange(first, stop)).numbers[:, 1:])
            return boxes[first:stop], {}

        while True:
            with lock:
                first = next(runs, total)
            if first == total:
                return
            stop = min(first + RUN, first - first % size + size, total)
            rows = memory[first // size % 4][first % size : first % size + stop - first]
            decode_run(job.files[first:stop], boxes_of, job.flips[first:stop], rows, 1 << 26, False)

    def batches() -> Iterator[Batch]:
        """All of the work comes first; only the last four batches still hold what they held."""
        runs, lock = iter([row for batch in range(0, total, size) for row in range(batch, min(batch + size, total), RUN)]), threading.Lock()
        with ThreadPoolExecutor(job.workers) as pool:
            for done in [pool.submit(work, runs, lock) for _ in range(job.workers)]:
                done.result()
        for first in range(0, total, size):
            count = min(size, total - first)
            yield memory[first // size % 4][:count], range(first, first + count)

    return batches


if __name__ == "__main__":
    if "wheels" in sys.argv[2:]:
        sys.modules["highway.images._jpeg"] = None  # type: ignore[assignment]  # importing it fails, as where it has not been built
    serve(prepare, "highway-data", "numpy", "simplejpeg", "opencv-python-headless")
