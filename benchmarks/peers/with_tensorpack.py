"""tensorpack: MultiThreadMapData with highway's decoder, then BatchData."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from seam import decoder
from worker import Batch, Batches, Job, serve


def prepare(job: Job) -> Batches:
    """Each pass has threads of its own, in the strict mode, which mixes no epochs.

    At the end of an epoch tensorpack fills its buffer from the next one; those images would be decoded while it is the turn of others.
    """
    from tensorpack.dataflow import BatchData, DataFlow, MultiThreadMapData

    decode, total = decoder(job), len(job.files)
    flows = []  # kept, for their threads take 5 seconds to stop

    class Numbers(DataFlow):
        """The images' numbers in the first epoch, and nothing to do in the next one."""

        def __init__(self) -> None:
            self.epochs: Iterator[list[int | None]] = iter([list(range(total)), [None] * total])

        def __len__(self) -> int:
            return total

        def __iter__(self) -> Iterator[int | None]:
            yield from next(self.epochs)

    def sample(number: int | None) -> tuple[np.ndarray, int] | bool:
        return False if number is None else decode(number)

    def batches() -> Iterator[Batch]:
        flow = BatchData(MultiThreadMapData(Numbers(), job.workers, sample, buffer_size=job.batch, strict=True), job.batch, remainder=True)
        flow.reset_state()
        flows.append(flow)
        yield from flow

    return batches


if __name__ == "__main__":
    serve(prepare, "tensorpack", "numpy", "simplejpeg")
