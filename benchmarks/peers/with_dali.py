"""DALI's CPU operators: files read, boxes decoded and scaled by its threads; no GPU is used."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from worker import Batch, Batches, Job, serve


def prepare(job: Job) -> Batches:
    from nvidia.dali import fn, pipeline_def, types

    paths = [np.frombuffer(file.encode(), np.uint8) for file in job.files]
    corners, sizes = job.boxes[:, :2], job.boxes[:, 2:]

    def rows() -> Iterator[tuple[list[np.ndarray], ...]]:
        for first in range(0, len(paths), job.batch):
            run = range(first, min(first + job.batch, len(paths)))
            flips = [np.int32(job.flips[number]) for number in run]
            yield [paths[n] for n in run], [corners[n] for n in run], [sizes[n] for n in run], flips, [np.int32(n) for n in run]

    @pipeline_def(batch_size=job.batch, num_threads=job.workers, device_id=None)
    def define() -> tuple[object, object]:
        path, corner, size, flip, number = fn.external_source(source=rows, num_outputs=5, cycle="raise")
        image = fn.decoders.image_slice(
            fn.io.file.read(path), start=corner, shape=size, axis_names="HW", jpeg_fancy_upsampling=False, use_fast_idct=True
        )
        image = fn.resize(image, resize_y=job.shape[0], resize_x=job.shape[1], interp_type=types.INTERP_LINEAR, antialias=False)
        return fn.flip(image, horizontal=flip), number

    pipeline = define()
    pipeline.build()

    def batches() -> Iterator[Batch]:
        while True:
            try:
                images, numbers = pipeline.run()
            except StopIteration:
                pipeline.reset()
                return
            yield np.asarray(images.as_tensor()), numbers.as_array()  # a view, good until the next run()

    return batches


if __name__ == "__main__":
    serve(prepare, "nvidia-dali-cuda120", "numpy")
