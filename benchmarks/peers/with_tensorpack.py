"""tensorpack: MultiThreadMapData with highway's decoder, then BatchData."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from seam import decoder
from worker import Batch, Batches, Job, serve


def prepare(job: Job) -> Batches:
    """Each pass has threads of its own, and padding, which is dropped, behind the images.

    tensorpack keeps its buffer full with what comes after an epoch; those images would be decoded while it is the turn of others.
    """
    from tensorpack.dataflow import BatchData, DataFromList, FixedSizeData, MultiThreadMapData

    decode, total, padding = decoder(job), len(job.files), [None] * job.batch

    def sample(number: int | None) -> tuple[np.ndarray, int] | None:
        return None if number is None else decode(number)

    def batches() -> Iterator[Batch]:
        numbers = DataFromList([*range(total), *padding], shuffle=False)
        samples = MultiThreadMapData(numbers, job.workers, sample, buffer_size=job.batch)
        flow = BatchData(FixedSizeData(samples, total), job.batch, remainder=True)
        flow.reset_state()
        yield from flow

    return batches


if __name__ == "__main__":
    serve(prepare, "tensorpack", "numpy", "simplejpeg")
