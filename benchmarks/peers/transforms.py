"""Transforms of one image of 256x256x3 bytes, one after the other in one thread: highway's, and those of its peers.

The argument is a folder with ``job.json``: ``seconds`` of processor time that a turn takes; ``--list`` instead tells the rows. A mode is a
row of the tables beside this and, behind the last colon, whose transform it is. highway, Albumentations and torchvision draw for each
image, as in use; highway's plain functions, OpenCV and Pillow are called with fixed parameters. All get their own kind of image: an array,
torchvision a tensor with the channels first, Pillow its Image.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # its threads go on spinning in the turn of the next row

import numpy as np
import torch
import transform_rows_colour
import transform_rows_geometry
from PIL import Image
from transform_batches import BATCHES, Work, channels_first, work
from transform_rows import LIBRARIES, SIZE
from worker import serve

from highway.data import photos
from highway.images.ops import cv2_or_none
from samples import Came, load

cv2_or_none()  # switches off OpenCV's threads
torch.set_num_threads(1)
ROWS = transform_rows_geometry.ROWS | transform_rows_colour.ROWS


def pictures(shape: tuple[int, int]) -> list[np.ndarray]:
    """Return eight photographs of one size."""
    paths = sorted(Path(photos()).rglob("*.jpg"))[::4][:8]
    return [np.asarray(Image.open(path).convert("RGB").resize(shape[::-1])) for path in paths]


def change(row: str, library: str) -> Work:
    """Return what a row has a library do."""
    if row in BATCHES:
        return work(row, library, pictures)
    images, transform = pictures(SIZE), ROWS[row][LIBRARIES.index(library)]
    if library == "highway":
        rng = np.random.default_rng(0)
        return Work(lambda image: transform(image, rng), images)
    if library == "Pillow":
        return Work(transform, [Image.fromarray(image) for image in images])
    if library == "Albumentations":
        return Work(lambda image: transform(image=image)["image"], images)
    return Work(transform, list(map(channels_first, images)) if library == "torchvision" else images)


def prepare(job: dict[str, Any], mode: str) -> Callable[[], Iterator[tuple[Came, None]]]:
    row, _, library = mode.rpartition(":")
    function, given, count = change(row, library)

    def turn() -> Iterator[tuple[Came, None]]:
        until, done = time.thread_time() + job["seconds"], 0
        while time.thread_time() < until:
            for one in given:
                function(one)
            done += count * len(given)
        yield Came(done, 0), None

    return turn


def listed() -> dict[str, list[str]]:
    """Return the rows, and the libraries that have each."""
    rows = {row: [library for library, one in zip(LIBRARIES, several, strict=True) if one is not None] for row, several in ROWS.items()}
    return rows | BATCHES


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print(json.dumps(listed()))
        raise SystemExit
    serve(prepare, "albumentations", "opencv-python-headless", "pillow", "torch", "torchvision", load=load)
