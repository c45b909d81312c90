"""FFCV: whole decoded images in its raw format, random-resized crops and flips by its compiled operations."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
from worker import Batch, Batches, Job, serve


class Photos:
    """What FFCV's writer reads: one image and its number for each index."""

    def __init__(self, files: list[str]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        return cv2.cvtColor(cv2.imread(self.files[number]), cv2.COLOR_BGR2RGB), number


def prepare(job: Job) -> Batches:
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip
    from ffcv.writer import DatasetWriter

    folder = tempfile.TemporaryDirectory(prefix="highway-benchmark-ffcv-")
    path = str(Path(folder.name) / "photos.beton")
    fields = {"image": RGBImageField(write_mode="raw"), "label": IntField()}
    DatasetWriter(path, fields, num_workers=1).from_indexed_dataset(Photos(sorted(set(job.files))), chunksize=16)
    image = [RandomResizedCropRGBImageDecoder(job.shape), RandomHorizontalFlip()]
    options = {"batch_size": job.batch, "num_workers": job.workers, "os_cache": True, "order": OrderOption.QUASI_RANDOM, "drop_last": False}
    loader = Loader(path, pipelines={"image": image, "label": None}, **options)
    loader.folder = folder  # as long as it is read

    def batches() -> Iterator[Batch]:
        for _ in range(job.epochs):
            for images, *_ in loader:
                yield images, range(len(images))

    return batches


if __name__ == "__main__":
    serve(prepare, "ffcv", "numba", "numpy")
