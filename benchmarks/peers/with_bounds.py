"""What no loader of whole JPEGs can pass: entropy decoding alone, and decoding alone, on as many threads.

Modes: ``entropy`` decodes to 1/8 of the size in grey: libjpeg-turbo still reads every Huffman code, but has next to no pixels to compute.
``decode`` decodes whole images with the fast inverse DCT and the fast upsampling, and drops them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from worker import Batch, Batches, Job, serve


def prepare(job: Job, mode: str) -> Batches:
    from simplejpeg import decode_jpeg

    least = {"min_height": 1, "min_width": 1, "min_factor": 8, "colorspace": "GRAY"}
    decode: Callable[[bytes], Any] = partial(decode_jpeg, fastdct=True, fastupsample=True, **(least if mode == "entropy" else {}))

    def read(files: list[str]) -> int:
        for file in files:
            decode(Path(file).read_bytes())
        return len(files)

    def batches() -> Iterator[Batch]:
        runs = [job.files[first : first + 8] for first in range(0, len(job.files), 8)]
        position = 0
        with ThreadPoolExecutor(job.workers) as pool:
            for count in pool.map(read, runs):
                yield np.empty((count, 0), np.uint8), range(position, position + count)
                position += count

    return batches


if __name__ == "__main__":
    serve(prepare, "simplejpeg")
