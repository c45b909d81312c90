"""Grain: a MapDataset with highway's decoder, whose batches are made by threads."""

from __future__ import annotations

from collections.abc import Iterator

from seam import decoder
from worker import Batch, Batches, Job, serve


def prepare(job: Job) -> Batches:
    import grain

    numbers = grain.MapDataset.source(range(len(job.files)))
    options = grain.ReadOptions(num_threads=job.workers, prefetch_buffer_size=2 * job.workers)
    dataset = numbers.map(decoder(job)).batch(job.batch, drop_remainder=False).to_iter_dataset(options)

    def batches() -> Iterator[Batch]:
        yield from dataset

    return batches


if __name__ == "__main__":
    serve(prepare, "grain", "numpy", "simplejpeg")
