"""A folder of JPEGs to batches of 64 uint8 images of 224x224, random-resized crop and flip.

highway against the bare decode loop and PyTorch's DataLoader.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image

from dataset import describe, imagenet_like
from highway import Pipeline
from highway.modules import ImageFileReader
from highway.modules.decode import backend, checked_header, decode_crop
from highway.transforms import RandomResizedCrop
from measure import Work, console, in_turns, machine, show

SHAPE = (224, 224)
BATCH = 64
IMAGES = Path(tempfile.gettempdir()) / "highway-benchmark-images"
CROP = RandomResizedCrop(SHAPE)


def with_highway(folder: Path, workers: int) -> Work:
    reader = ImageFileReader(str(folder), BATCH, crop=CROP, flip=0.5, epochs=1, num_workers=workers)
    return _count(images for images, _ in Pipeline([reader]))


def bare_loop(files: list[Path], workers: int) -> Work:
    """The same decoding by plain threads over preallocated batches, with no engine: what the engine's overhead is measured against."""
    batches = [np.empty((BATCH, *SHAPE, 3), np.uint8) for _ in range(4)]
    rows = enumerate(files)
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                run = list(itertools.islice(rows, 8))
            if not run:
                return
            for number, path in run:
                rng = np.random.Generator(np.random.Philox(key=number))
                data = path.read_bytes()
                out = batches[number // BATCH % 4][number % BATCH]
                header = checked_header(data)
                decode_crop(data, header, CROP.box(header.size, rng), out, flipped=bool(rng.random() < 0.5))

    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work) for _ in range(workers)]:
            done.result()
    return Work(len(files), len(files) * batches[0][0].nbytes)


class Photos(torch.utils.data.Dataset):
    """What most people write: one file per item, decoded by Pillow or cv2, cropped at the same boxes."""

    def __init__(self, files: list[Path], read: Callable[[Path, np.random.Generator], np.ndarray]) -> None:
        self.files, self.read = files, read

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        rng = np.random.Generator(np.random.Philox(key=number))
        image = self.read(self.files[number], rng)
        return (np.ascontiguousarray(image[:, ::-1]) if rng.random() < 0.5 else image), 0


def read_pillow(path: Path, rng: np.random.Generator) -> np.ndarray:
    with Image.open(path) as image:
        top, left, height, width = CROP.box((image.height, image.width), rng)
        crop = image.convert("RGB").resize(SHAPE[::-1], Image.Resampling.BILINEAR, box=(left, top, left + width, top + height))
    return np.array(crop)


def read_cv2(path: Path, rng: np.random.Generator) -> np.ndarray:
    cv2.setNumThreads(0)
    image = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)
    top, left, height, width = CROP.box(image.shape[:2], rng)
    return cv2.resize(image[top : top + height, left : left + width], SHAPE[::-1], interpolation=cv2.INTER_LINEAR)


def with_dataloader(files: list[Path], workers: int, read: Callable[[Path, np.random.Generator], np.ndarray]) -> Work:
    loader = torch.utils.data.DataLoader(Photos(files, read), BATCH, shuffle=True, num_workers=workers)
    return _count(images.numpy() for images, _ in loader)


def _count(batches: object) -> Work:
    items = nbytes = 0
    for images in batches:  # type: ignore[attr-defined]
        assert images.shape[1:] == (*SHAPE, 3) and images.dtype == np.uint8
        items += len(images)
        nbytes += images.nbytes
    return Work(items, nbytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--data", type=Path, default=Path(tempfile.gettempdir()) / "highway-benchmark-images", help="where the images are made"
    )
    options = parser.parse_args()
    folder = imagenet_like(options.data / str(options.images), options.images)
    files = sorted(folder.glob("*/*.jpg"))
    console.print(machine("highway", "numpy", "simplejpeg", "opencv-python-headless", "pillow", "torch"))
    console.print(f"{describe(folder)}; {options.workers} workers; highway decodes with {backend()}")
    workers = options.workers
    cases = {
        "highway": lambda: with_highway(folder, workers),
        "bare decode loop": lambda: bare_loop(files, workers),
        "DataLoader, cv2": lambda: with_dataloader(files, workers, read_cv2),
        "DataLoader, Pillow": lambda: with_dataloader(files, workers, read_pillow),
    }
    rates = in_turns(cases, options.rounds)
    against = ["bare decode loop", "DataLoader, cv2", "DataLoader, Pillow"]
    show("Folder to batches (targets: 0.97 of the bare loop, 1.1 x DataLoader cv2, 1.9 x DataLoader Pillow)", rates, against, "images")


if __name__ == "__main__":
    main()
