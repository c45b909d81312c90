"""highway's decoder as a plain function, for peers that run any Python function in their threads: what differs is then the loader alone."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from worker import Job

from highway.images.decode import checked_header, decode_crop


def decoder(job: Job) -> Callable[..., tuple[np.ndarray, int]]:
    """Return a function that reads the image with a number, into a row if it is given one: uint8 ``(H, W, 3)``, and the number."""

    def decode(number: int, row: np.ndarray | None = None) -> tuple[np.ndarray, int]:
        with open(job.files[number], "rb", buffering=0) as file:
            data = file.read()
        out = np.empty((*job.shape, 3), np.uint8) if row is None else row
        if job.simulated:
            checked_header(data)
            time.sleep(job.simulated / 1e6)
            return out, number
        decode_crop(data, checked_header(data), tuple(job.boxes[number].tolist()), out, flipped=bool(job.flips[number]))
        return out, number

    return decode
