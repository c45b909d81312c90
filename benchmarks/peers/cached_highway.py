"""highway's Cache of whole decoded images, and what bounds it.

Modes: ``pipeline``, a cache on disk and Augmentations behind it; ``resize``, the same boxes drawn and scaled from the same cache by plain
threads, with no engine around them; ``memcpy``, the cached images copied, whole, by as many threads.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from worker import Batch, Batches, Job, serve

from highway import Pipeline, Traits
from highway.engine.stage import Passport, Stamped
from highway.images.decode import decode
from highway.modules import Augmentations, Cache
from highway.transforms import FlipX, RandomResizedCrop


@dataclass
class Files:
    """The table's files, once."""

    files: list[str]

    def __highway__(self) -> Traits:
        return Traits(epochs=1)

    def __iter__(self) -> Iterator[Stamped]:
        for number, file in enumerate(self.files):
            yield Stamped((file, np.int32(number)), Passport(0, number, keys=(file,)))


@dataclass
class Whole:
    """Decodes whole images."""

    def __highway__(self) -> Traits:
        return Traits(parallel=True)

    def __call__(self, item: tuple[str, np.int32]) -> tuple[np.ndarray, np.int32]:
        return decode(Path(item[0]).read_bytes()), item[1]


def prepare(job: Job, mode: str) -> Batches:
    folder = tempfile.TemporaryDirectory(prefix="highway-benchmark-cache-")
    files = sorted(set(job.files))
    cache = Cache(folder.name, batch_size=job.batch, stack=False, epochs=1, key="whole images")
    decoding = [Files(files), Whole(), cache]
    with Pipeline(decoding) as pipeline:
        images = [image for images, _ in pipeline for image in images]
    if mode == "pipeline":
        return partial(_pipeline, job, decoding, folder)
    return partial(_loop, job, images, mode)


def _pipeline(job: Job, decoding: list[Any], _: object) -> Iterator[Batch]:
    *before, cache = decoding
    again = Cache(cache.path, batch_size=job.batch, stack=False, epochs=job.epochs, key=cache.key)
    with Pipeline([*before, again, Augmentations([RandomResizedCrop(job.shape), FlipX()])]) as pipeline:
        for batch, _ in pipeline.stamped():
            yield batch


def _loop(job: Job, images: list[np.ndarray], mode: str) -> Iterator[Batch]:
    images = images * job.epochs
    memory = [np.empty((job.batch, *job.shape, 3), np.uint8) for _ in range(2 * job.workers)]
    largest = max(image.nbytes for image in images)
    scratch = [np.empty(largest, np.uint8) for _ in memory]
    crop = RandomResizedCrop(job.shape)

    def one(start: int) -> tuple[np.ndarray, int]:
        place = start // job.batch % len(memory)
        for row, image in enumerate(images[start : start + job.batch]):
            if mode == "memcpy":
                scratch[place][: image.nbytes].reshape(image.shape)[...] = image
                continue
            rng = np.random.Generator(np.random.Philox(key=start + row))
            top, left, height, width = crop.box(image.shape[:2], rng)
            part, out = image[top : top + height, left : left + width], memory[place][row]
            cv2.resize(part, job.shape[::-1], dst=out, interpolation=cv2.INTER_LINEAR)
            if rng.random() < 0.5:
                cv2.flip(out, 1, dst=out)
        return memory[place], min(job.batch, len(images) - start)

    with ThreadPoolExecutor(job.workers) as pool:
        for batch, count in pool.map(one, range(0, len(images), job.batch)):
            yield batch[:count], range(count)


if __name__ == "__main__":
    cv2.setNumThreads(0)
    serve(prepare, "highway-data", "numpy", "opencv-python-headless")
