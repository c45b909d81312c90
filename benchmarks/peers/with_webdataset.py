"""webdataset's pipeline in DataLoader's worker processes, which stay: tar files to batches, decoded and scaled by OpenCV."""

from __future__ import annotations

from collections.abc import Iterator

import cv2
import numpy as np
import webdataset as wds
from worker import Batch, Batches, Job, serve


def prepare(job: Job) -> Batches:
    cv2.setNumThreads(0)

    def decode(sample: tuple[bytes, str]) -> tuple[np.ndarray, int]:
        data, key = sample
        number = int(key)
        top, left, height, width = job.boxes[number].tolist()
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)[top : top + height, left : left + width]
        image = cv2.cvtColor(cv2.resize(image, job.shape[::-1], interpolation=cv2.INTER_LINEAR), cv2.COLOR_BGR2RGB)
        return cv2.flip(image, 1) if job.flips[number] else image, number

    samples = wds.WebDataset(job.shards, shardshuffle=False, nodesplitter=None).to_tuple("jpg", "__key__").map(decode)
    loader = wds.WebLoader(samples.batched(job.batch), batch_size=None, num_workers=job.workers, persistent_workers=True)

    def batches() -> Iterator[Batch]:
        for images, numbers in loader:
            yield np.asarray(images), numbers

    return batches


if __name__ == "__main__":
    serve(prepare, "webdataset", "torch", "opencv-python-headless")
