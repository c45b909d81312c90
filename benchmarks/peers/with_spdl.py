"""SPDL: a pipeline of threads. Mode: ``own``, its own decoder and filters (FFmpeg), or ``seam``, highway's decoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from worker import Batch, Batches, Job, serve


def prepare(job: Job, mode: str) -> Batches:
    from spdl.pipeline import PipelineBuilder

    decode, stack = {"own": _own, "seam": _seam}[mode](job)

    def batches() -> Iterator[Batch]:
        builder = PipelineBuilder().add_source(range(len(job.files)))
        builder = builder.pipe(decode, concurrency=job.workers).aggregate(job.batch).pipe(stack).add_sink(2)
        pipeline = builder.build(num_threads=job.workers)
        with pipeline.auto_stop():
            yield from pipeline

    return batches


def _own(job: Job) -> tuple[Callable[[int], Any], Callable[[list[Any]], Batch]]:
    import spdl.io

    height, width = job.shape

    def decode(number: int) -> tuple[Any, int]:
        top, left, rows, columns = job.boxes[number].tolist()
        flip = ",hflip" if job.flips[number] else ""
        filters = f"crop={columns}:{rows}:{left}:{top}:exact=1,scale={width}:{height}:flags=bilinear{flip},format=pix_fmts=rgb24"
        return spdl.io.decode_packets(spdl.io.demux_image(job.files[number]), filter_desc=filters), number

    def stack(samples: list[tuple[Any, int]]) -> Batch:
        frames, numbers = zip(*samples, strict=True)
        return spdl.io.to_numpy(spdl.io.convert_frames(list(frames))), numbers

    return decode, stack


def _seam(job: Job) -> tuple[Callable[[int], Any], Callable[[list[Any]], Batch]]:
    from seam import decoder

    def stack(samples: list[tuple[np.ndarray, int]]) -> Batch:
        images, numbers = zip(*samples, strict=True)
        return np.stack(images), numbers

    return decoder(job), stack


if __name__ == "__main__":
    serve(prepare, "spdl", "numpy")
