"""highway: ImageFileReader in a pipeline; and, by hand, the same decoding with no engine around it.

Modes: ``pipeline``; ``shards``, the same from tar files by number; ``loop``. The argument ``wheels`` leaves out the optional C extension
even where it is built.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from worker import Batch, Batches, Job, serve


def prepare(job: Job, mode: str) -> Batches:
    if mode == "loop":
        return _loop(job)
    return _pipeline(job, _packed(job) if mode == "shards" else job.folder)


def _packed(job: Job) -> str:
    """Pack the folder into a tar file for each worker, in its order, and return their paths with braces."""
    from highway.datasets import ImageFolder
    from highway.datasets.shards import encoded, shard_writer

    folder = ImageFolder(job.folder)
    paths = [f"{job.shards[0]}-{shard}.tar" for shard in range(job.workers)]
    share = -(-len(folder) // job.workers)
    for shard, path in enumerate(paths):
        with shard_writer(path) as out:
            for number in range(shard * share, min((shard + 1) * share, len(folder))):
                data, label = folder[number]
                out.add(encoded(folder.keys[number], {"jpg": data, "cls": label}))
    return f"{job.shards[0]}-{{0..{job.workers - 1}}}.tar"


def _pipeline(job: Job, data_dir: str) -> Batches:
    """The boxes and coins are not taken from the table: drawing them is part of highway's work, and gives the same ones."""
    from highway import Pipeline
    from highway.modules import ImageFileReader
    from highway.transforms import RandomResizedCrop

    crop = RandomResizedCrop(job.shape)
    reader = ImageFileReader(data_dir, job.batch, crop=crop, flip=0.5, epochs=job.epochs, num_workers=job.workers)

    def batches() -> Iterator[Batch]:
        position = 0
        with Pipeline([reader]) as pipeline:
            for (images, _), _ in pipeline.stamped():
                yield images, range(position, position + len(images))
                position += len(images)

    return batches


def _loop(job: Job) -> Batches:
    """Plain threads over preallocated batches, which draw a box and a coin as highway's workers do, and then use those of the table."""
    from highway.engine.randomness import Substreams
    from highway.images.decode import checked_header, decode_crop
    from highway.transforms import RandomResizedCrop

    crop, total, size = RandomResizedCrop(job.shape), len(job.files), job.batch
    memory = [np.empty((size, *job.shape, 3), np.uint8) for _ in range(4)]

    def work(rows: Iterator[int], lock: threading.Lock) -> None:
        substreams = Substreams(0)
        while True:
            with lock:
                run = list(itertools.islice(rows, 8))
            if not run:
                return
            for row in run:
                rng = substreams.at(row)
                with open(job.files[row], "rb", buffering=0) as file:
                    data = file.read()
                header = checked_header(data)
                crop.box(header.size, rng)
                rng.random()
                box = tuple(job.boxes[row].tolist())
                decode_crop(data, header, box, memory[row // size % 4][row % size], flipped=bool(job.flips[row]))

    def batches() -> Iterator[Batch]:
        """All of the work comes first; only the last four batches still hold what they held."""
        rows, lock = iter(range(total)), threading.Lock()
        with ThreadPoolExecutor(job.workers) as pool:
            for done in [pool.submit(work, rows, lock) for _ in range(job.workers)]:
                done.result()
        for first in range(0, total, size):
            count = min(size, total - first)
            yield memory[first // size % 4][:count], range(first, first + count)

    return batches


if __name__ == "__main__":
    if "wheels" in sys.argv[2:]:
        sys.modules["highway.images._jpeg"] = None  # type: ignore[assignment]  # importing it fails, as where it has not been built
    serve(prepare, "highway-data", "numpy", "simplejpeg", "opencv-python-headless")
