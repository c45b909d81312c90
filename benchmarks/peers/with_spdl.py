"""SPDL: threads that each make whole batches. Mode: ``own``, its own decoder and filters (FFmpeg), or ``seam``, highway's decoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from worker import Batch, Batches, Job, serve

Decode = Callable[[list[int]], Batch]


def prepare(job: Job, mode: str) -> Batches:
    from spdl.pipeline import PipelineBuilder

    decode = {"own": _own, "seam": _seam}[mode](job)

    def batches() -> Iterator[Batch]:
        builder = PipelineBuilder().add_source(range(len(job.files))).aggregate(job.batch)
        pipeline = builder.pipe(decode, concurrency=job.workers).add_sink(2).build(num_threads=job.workers)
        with pipeline.auto_stop():
            yield from pipeline

    return batches


def _own(job: Job) -> Decode:
    from spdl import io

    height, width = job.shape

    def image(number: int) -> io.ImageFrames:
        top, left, rows, columns = job.boxes[number].tolist()
        flip = ",hflip" if job.flips[number] else ""
        filters = f"crop={columns}:{rows}:{left}:{top}:exact=1,scale={width}:{height}:flags=bilinear{flip},format=pix_fmts=rgb24"
        return io.decode_packets(io.demux_image(job.files[number]), filter_desc=filters)

    def decode(numbers: list[int]) -> Batch:
        return io.to_numpy(io.convert_frames([image(number) for number in numbers])), numbers

    return decode


def _seam(job: Job) -> Decode:
    from seam import decoder

    image = decoder(job)

    def decode(numbers: list[int]) -> Batch:
        images = np.empty((len(numbers), *job.shape, 3), np.uint8)
        for row, number in zip(images, numbers, strict=True):
            image(number, row)
        return images, numbers

    return decode


if __name__ == "__main__":
    serve(prepare, "spdl", "numpy")
