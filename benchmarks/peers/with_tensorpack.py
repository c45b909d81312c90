"""tensorpack: MultiThreadMapData with highway's decoder, then BatchData."""

from __future__ import annotations

from collections.abc import Iterator

from seam import decoder
from worker import Batch, Batches, Job, serve


def prepare(job: Job) -> Batches:
    from tensorpack.dataflow import BatchData, DataFromList, MultiThreadMapData

    numbers = DataFromList(range(len(job.files)), shuffle=False)
    samples = MultiThreadMapData(numbers, job.workers, decoder(job), buffer_size=job.batch, strict=True)
    flow = BatchData(samples, job.batch, remainder=True)
    flow.reset_state()

    def batches() -> Iterator[Batch]:
        yield from flow

    return batches


if __name__ == "__main__":
    serve(prepare, "tensorpack", "numpy", "simplejpeg")
