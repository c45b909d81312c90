"""PyTorch's DataLoader with worker processes that stay from epoch to epoch. Mode: ``pillow`` or ``cv2``, which decode and scale."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from worker import Batch, Batches, Job, serve


def read_pillow(file: str, box: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    top, left, height, width = box.tolist()
    with Image.open(file) as image:
        crop = image.convert("RGB").resize(shape[::-1], Image.Resampling.BILINEAR, box=(left, top, left + width, top + height))
    return np.array(crop)


def read_cv2(file: str, box: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    top, left, height, width = box.tolist()
    image = cv2.imread(file)[top : top + height, left : left + width]
    return cv2.cvtColor(cv2.resize(image, shape[::-1], interpolation=cv2.INTER_LINEAR), cv2.COLOR_BGR2RGB)


class Photos(Dataset):
    """One file per item, as most people write it."""

    def __init__(self, job: Job, read: Callable[[str, np.ndarray, tuple[int, int]], np.ndarray]) -> None:
        self.job, self.read = job, read

    def __len__(self) -> int:
        return len(self.job.files)

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        image = self.read(self.job.files[number], self.job.boxes[number], self.job.shape)
        return np.ascontiguousarray(image[:, ::-1]) if self.job.flips[number] else image, number


def prepare(job: Job, mode: str) -> Batches:
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    photos = Photos(job, {"pillow": read_pillow, "cv2": read_cv2}[mode])
    loader = DataLoader(photos, job.batch, num_workers=job.workers, persistent_workers=True)

    def batches() -> Iterator[Batch]:
        for images, numbers in loader:
            yield images.numpy(), numbers

    return batches


if __name__ == "__main__":
    serve(prepare, "torch", "pillow", "opencv-python-headless")
