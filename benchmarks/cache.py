"""Measure batches of 64 uint8 images of 224x224 from decoded images, on disk or in memory: random resized crop and flip, no decoding.

Each case runs in its own process on the same images, and the cases take turns. The first epoch, which decodes, is not measured.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import numpy as np

from dataset import describe, imagenet_like
from loaders import BATCH, SHAPE, Case, options, present
from measure import Report, chosen, foreign, in_turns, machine
from peers.worker import Job

CASES = {
    "highway, Cache": Case("cached_highway", "pipeline"),
    "FFCV, raw": Case("cached_ffcv", environment="ffcv"),
    "tf.data, cache()": Case("cached_tensorflow", environment="tensorflow"),
    "bound: crop and resize": Case("cached_highway", "resize"),
    "bound: memcpy of whole images": Case("cached_highway", "memcpy"),
}
TARGETS = {("highway, Cache", "FFCV, raw"): 2.0}


def table(folder: Path, epochs: int, workers: int) -> Job:
    """Return the files, ``epochs`` times. Every case draws boxes and coins of its own, as part of its work."""
    files = sorted(map(str, folder.glob("*/*.jpg"))) * epochs
    return Job(str(folder), epochs, files, [], workers, BATCH, SHAPE, np.zeros((len(files), 4), np.int32), np.zeros(len(files), bool))


def main() -> None:
    given = options(__doc__, epochs=5)
    report = Report("cache", given.record)
    folder = imagenet_like(given.data, given.images)
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as closing:
        table(folder, given.epochs, given.workers).save(Path(place))
        peers, absent = present({name: CASES[name] for name in chosen(CASES, given)}, Path(place), closing)
        report.line(machine("highway-data", "numpy", "opencv-python-headless"))
        report.line(foreign({name: peer.process.versions for name, peer in peers.items()}))
        report.line(
            f"{describe(folder)}, decoded as a whole before the measurement; {given.epochs} epochs per turn; {given.workers} workers; "
            f"{given.rounds} rounds."
        )
        rates = in_turns({name: peer.work for name, peer in peers.items()}, given.rounds, absent)
    against = ["FFCV, raw", "tf.data, cache()", "bound: crop and resize", "bound: memcpy of whole images"]
    report.rates("Decoded images to batches", rates, against, "images", absent)
    report.targets(rates, TARGETS)
    report.record()


if __name__ == "__main__":
    main()
