"""From decoded images on disk or in memory to batches of 64 uint8 images of 224x224, random-resized crop and flip: no decoding.

Each case runs in a process of its own, over the same whole images, and all take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dataset import describe, imagenet_like
from highway.transforms import RandomResizedCrop
from measure import console, in_turns, machine, show
from peers.environments import FOLDER, python
from peers.process import Absent, Peer
from peers.worker import Job

SHAPE = (224, 224)
BATCH = 64


@dataclass(frozen=True)
class Case:
    """A script in peers/, its mode, and its environment; none for the one that runs this."""

    script: str
    mode: str = ""
    environment: str = ""


CASES = {
    "highway, Cache": Case("cached_highway", "pipeline"),
    "FFCV, raw": Case("cached_ffcv", environment="ffcv"),
    "tf.data, cache()": Case("cached_tensorflow", environment="tensorflow"),
    "bound: resize": Case("cached_highway", "resize"),
    "bound: memcpy": Case("cached_highway", "memcpy"),
}


def table(folder: Path, epochs: int, workers: int) -> Job:
    """Return the files, ``epochs`` times, and boxes for those that draw none of their own."""
    files = sorted(map(str, folder.glob("*/*.jpg"))) * epochs
    crop, rng = RandomResizedCrop(SHAPE), np.random.default_rng(0)
    boxes = np.array([crop.box((375, 500), rng) for _ in files], np.int32)
    return Job(str(folder), epochs, files, [], workers, BATCH, SHAPE, boxes, rng.random(len(files)) < 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=5, help="how often a round goes over the images (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="threads that crop and scale (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--environments", type=Path, default=FOLDER, help="where the peers' environments are (default: %(default)s)")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "highway-benchmark-images", help="where the images are")
    options = parser.parse_args()
    folder = imagenet_like(options.data / str(options.images), options.images)
    job = table(folder, options.epochs, options.workers)
    absent = {}
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as closing:
        job.save(Path(place))
        peers: dict[str, Peer] = {}
        for name, case in CASES.items():
            interpreter = python(case.environment, options.environments) if case.environment else Path(sys.executable)
            try:
                peers[name] = Peer(interpreter, case.script, Path(place), case.mode, timeout=900)
            except Absent as error:
                absent[name] = str(error)
            else:
                closing.callback(peers[name].close)
        console.print(machine("highway", "numpy", "opencv-python-headless"))
        console.print(f"{describe(folder)}, decoded whole; {options.workers} workers")
        for name, peer in peers.items():
            console.print(f"{name}: {', '.join(f'{package} {version}' for package, version in peer.versions.items())}")
        rates = in_turns({name: peer.work for name, peer in peers.items()}, options.rounds)
    show("Decoded images to batches (target: 2 x FFCV raw)", rates, ["FFCV, raw", "tf.data, cache()", "bound: resize"], "images", absent)


if __name__ == "__main__":
    main()
