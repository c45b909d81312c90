"""The side of a peer: a process that the harness has go over all images, once for each line that it writes.

The harness starts ``PYTHON benchmarks/peers/with_NAME.py JOB [ARGUMENT...]`` and writes commands to its standard input, each a row of
strings in JSON on one line: ``["pass", MODE]``, or ``["check", PATH, MODE]``, a pass after which the last images are saved as an .npy file;
without the mode if there is one only. Each is answered by a line of JSON on the standard output; so is the start. An answer with
``"error"`` is the last one. Whatever else is printed goes to the standard error.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

CHECKED = 64  # images at the end of the table whose pixels are looked at


@dataclass(frozen=True)
class Job:
    """The work that is the same for all: which images, in which order, which box of each, and whether it is mirrored.

    Args:
        folder: Folder of JPEGs, one folder per label.
        epochs: How often each file occurs in ``files``.
        files: Paths, in the order in which highway reads them.
        shards: Tar files with the same images, for those that read no others.
        workers: Threads or processes that decode.
        batch: Images per batch.
        shape: Height and width of what comes out.
        boxes: int32 ``(N, 4)``: top, left, height and width in pixels.
        flips: bool ``(N,)``: whether to mirror left to right.
        simulated: Microseconds to sleep for each image, once it is read, in place of decoding it; 0 decodes.
    """

    folder: str
    epochs: int
    files: list[str]
    shards: list[str]
    workers: int
    batch: int
    shape: tuple[int, int]
    boxes: np.ndarray
    flips: np.ndarray
    simulated: int = 0

    def save(self, folder: Path) -> None:
        """Write the table of boxes as ``boxes.npy`` (with the coin as fifth column) and the rest as ``job.json``."""
        np.save(folder / "boxes.npy", np.column_stack([self.boxes, self.flips]).astype(np.int32))
        plain = {name: value for name, value in vars(self).items() if name not in ("boxes", "flips")}
        (folder / "job.json").write_text(json.dumps(plain))

    @classmethod
    def load(cls, folder: Path) -> Job:
        """Read what :meth:`save` has written."""
        table = np.load(folder / "boxes.npy")
        plain = json.loads((folder / "job.json").read_text())
        plain["shape"] = tuple(plain["shape"])
        return cls(**plain, boxes=table[:, :4], flips=table[:, 4].astype(bool))


Batch = tuple[np.ndarray, Any]  # uint8 images, and the number of each in the job's table
Batches = Callable[[], Iterable[Batch]]


def serve(prepare: Callable[..., Any], *packages: str, load: Callable[[Path], Any] = Job.load) -> None:
    """Answer the harness until it closes the standard input.

    Args:
        prepare: Called once for each mode, with the job and the mode if there is one; returns what starts a pass and yields its batches.
        packages: Names of the installed packages whose versions are reported.
        load: Reads the job in the folder that is the first argument.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        job = load(Path(sys.argv[1]))
        prepared = cache(partial(prepare, job))
        versions = {name: importlib.metadata.version(name) for name in packages}
        print(json.dumps({"versions": versions}), file=answers)
        for line in sys.stdin:
            command, *arguments = json.loads(line)
            path = arguments.pop(0) if command == "check" else ""
            batches = prepared(*arguments)
            answer = _check(job, batches, path) if command == "check" else _pass(batches)
            print(json.dumps(answer), file=answers)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers)
        raise


def _pass(batches: Batches) -> dict[str, float]:
    items = nbytes = 0
    began, cpu = time.perf_counter(), time.process_time()
    for images, _ in batches():
        items += len(images)
        nbytes += images.nbytes
    return {"items": items, "bytes": nbytes, "seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}


def _check(job: Job, batches: Batches, path: str) -> dict[str, float]:
    """Go over all images, see that each comes once, and save the last of the table."""
    total = len(job.files)
    first = max(0, total - CHECKED)
    kept = np.zeros((total - first, *job.shape, 3), np.uint8)
    times = np.zeros(total, int)
    for images, numbers in batches():
        if images.dtype != np.uint8:
            raise TypeError(f"batches of {images.dtype}; expected uint8")
        for image, number in zip(images, np.asarray(numbers).ravel().tolist(), strict=True):
            times[number] += 1
            if number >= first and image.size:
                kept[number - first] = image
    if (times != 1).any():
        raise ValueError(f"{int((times != 1).sum())} of {total} images were not read exactly once")
    np.save(path, kept)
    return {"items": total}
