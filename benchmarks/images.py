"""Compare highway with other loaders: a folder of JPEGs to batches of 64 uint8 images of 224x224, random resized crop and flip.

Each loader runs in its own process, and the loaders take turns. They read the same files in the same order, and cut out the same boxes.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
import tempfile
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
from numpy.random import Generator

from dataset import describe, imagenet_like
from highway import Items, Pipeline
from highway.images.decode import backend
from highway.modules import ImageFileReader
from highway.reading.draws import Draws
from highway.reading.sampler import epoch_key
from highway.transforms import RandomResizedCrop
from loaders import BATCH, SHAPE, Case, options, present
from measure import Absent, Report, chosen, foreign, in_turns, machine
from peers.process import Peer
from peers.worker import CHECKED, Job

ALIKE = 6.0  # levels of 255: decoders and ways of scaling differ by 1 to 3 on average, another box by 30
BOUND = "bound: "
WHEELS = ", wheels only"
STREAM = "highway, shards as a stream"  # which draws boxes of its own

CASES = {
    "highway": Case("with_highway", "pipeline", process="highway"),
    "highway, tar shards": Case("with_highway", "shards", process="highway"),
    STREAM: Case("with_highway", "stream", process="highway"),
    "highway, wheels only": Case("with_highway", "pipeline", arguments=("wheels",), process="wheels"),
    "bare decode loop": Case("with_highway", "loop", process="highway"),
    "bare decode loop, wheels only": Case("with_highway", "loop", arguments=("wheels",), process="wheels"),
    "tf.data, fused operator": Case("with_tensorflow", environment="tensorflow"),
    "Grain, our decoder": Case("with_grain", environment="grain"),
    "tensorpack, our decoder": Case("with_tensorpack", environment="tensorpack"),
    "SPDL, our decoder": Case("with_spdl", "seam", "spdl"),
    "SPDL": Case("with_spdl", "own", "spdl"),
    "DALI, CPU operators": Case("with_dali", environment="dali"),
    "DataLoader, cv2": Case("with_torch", "cv2"),
    "DataLoader, Pillow": Case("with_torch", "pillow"),
    "webdataset, cv2": Case("with_webdataset"),
    f"{BOUND}decoding whole images": Case("with_bounds", "decode"),
    f"{BOUND}entropy decoding": Case("with_bounds", "entropy"),
}
# What is compared, with what, and how much faster it should be.
TARGETS = {
    ("highway", "bare decode loop"): 0.97,
    ("highway", "tf.data, fused operator"): 1.1,
    ("highway, tar shards", "highway"): 0.95,
    (STREAM, "highway"): 0.95,
    ("highway, wheels only", "bare decode loop, wheels only"): 0.97,
    ("highway, wheels only", "tf.data, fused operator"): 1.0,
    ("highway, wheels only", "DataLoader, Pillow"): 1.9,
    ("highway, wheels only", "DataLoader, cv2"): 1.1,
    ("highway, wheels only", "DALI, CPU operators"): 1.3,
    ("highway, wheels only", "SPDL"): 2.0,
}


@dataclass
class Recorder:
    """Draw the boxes of a crop, and write them down."""

    crop: RandomResizedCrop
    drawn: list[np.ndarray] = field(default_factory=list, init=False)

    @property
    def shape(self) -> tuple[int, int]:
        return self.crop.shape

    def box(self, size: tuple[int, int], rng: Generator | None) -> tuple[int, int, int, int]:
        return self.crop.box(size, rng)

    def draw_boxes(self, sizes: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        self.drawn.append(self.crop.draw_boxes(sizes, numbers))
        return self.drawn[-1]


@dataclass
class Keys:
    """Collect the keys of the samples."""

    keys: list[str] = field(default_factory=list, init=False)

    def consume(self, items: Items) -> None:
        for _ in items:
            self.keys += items.passport.keys


def draw(folder: Path, epochs: int, workers: int, shape: tuple[int, int] = SHAPE) -> Job:
    """Let highway read the images with one worker, which does so in order, and write down what it reads and draws."""
    recorder, keys = Recorder(RandomResizedCrop(shape)), Keys()
    Pipeline([ImageFileReader(str(folder), BATCH, crop=recorder, flip=0.5, epochs=epochs, num_workers=1, seed=0), keys]).run()
    boxes = np.concatenate(recorder.drawn).astype(np.int32)
    files = [str(folder / key) for key in keys.keys]
    positions = np.arange(len(files) // epochs)
    coins = np.concatenate([Draws(epoch_key(0, epoch), positions).numbers[:, 0] for epoch in range(epochs)])
    return Job(str(folder), epochs, files, [], workers, BATCH, shape, boxes, coins < 0.5)


def pack(files: list[str], count: int, folder: Path) -> list[str]:
    """Deal the files to ``count`` tar files, named by their numbers, and return the paths of these."""
    paths = [str(folder / f"{shard:03}.tar") for shard in range(count)]
    for shard, path in enumerate(paths):
        with tarfile.open(path, "w") as tar:
            for number in range(shard, len(files), count):
                data = Path(files[number]).read_bytes()
                member = tarfile.TarInfo(f"{number:07}.jpg")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return paths


def expected(job: Job) -> np.ndarray:
    """Return what the last images of the table are, decoded exactly and scaled by OpenCV: uint8 ``(B, H, W, 3)``."""
    images = []
    for number in range(max(0, len(job.files) - CHECKED), len(job.files)):
        top, left, height, width = job.boxes[number].tolist()
        image = cv2.imread(job.files[number])[top : top + height, left : left + width, ::-1]
        image = cv2.resize(np.ascontiguousarray(image), SHAPE[::-1], interpolation=cv2.INTER_LINEAR)
        images.append(image[:, ::-1] if job.flips[number] else image)
    return np.stack(images)


def compare(peers: dict[str, Peer], job: Job, path: Path, absent: dict[str, str]) -> dict[str, float]:
    """Return for each peer by how many levels its pixels differ from the expected ones, on average; move those that fail to ``absent``.

    Raises:
        SystemExit: a peer does other work than the job says.
    """
    reference, differences = expected(job).astype(np.int16), {}
    for name, peer in list(peers.items()):
        try:
            images = peer.check(path)
        except Absent as error:
            absent[name] = str(error)
            del peers[name]
            continue
        if name.startswith((BOUND, STREAM)):
            continue
        differences[name] = float(np.abs(images - reference).mean())
        if differences[name] > ALIKE:
            raise SystemExit(
                f"{name}: its pixels differ by {differences[name]:.1f} levels of 255, so it does not read the boxes of the job"
            )
    return differences


def main() -> None:
    given = options(__doc__, epochs=3)
    report = Report("images", given.record)
    folder = imagenet_like(given.data, given.images)
    compiled = find_spec("highway.images._jpeg") is not None
    cases = {name: CASES[name] for name in chosen(CASES, given) if compiled or not name.endswith(WHEELS)}
    report.line(machine("highway-data", "numpy", "simplejpeg", "opencv-python-headless", "pillow", "torch", "webdataset"))
    report.line(f"highway decodes with {backend()}.")
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as closing:
        place = Path(temporary)
        job = draw(folder, given.epochs, given.workers)
        job = replace(job, shards=pack(job.files, 2 * given.workers, place))
        job.save(place)
        peers, absent = present(cases, place, closing)
        report.line(foreign({name: peer.process.versions for name, peer in peers.items()}))
        differences = compare(peers, job, place / "images.npy", absent)
        rates = in_turns({name: peer.work for name, peer in peers.items()}, given.rounds, absent)
    report.line(f"{describe(folder)}, {given.epochs} times per turn; {given.workers} workers; {given.rounds} rounds.")
    if not compiled:
        absent |= {
            name: f"the same as {name.removesuffix(WHEELS)!r}, because the C extension is not built"
            for name in CASES
            if name.endswith(WHEELS)
        }
    against = ["bare decode loop", "tf.data, fused operator", "DataLoader, Pillow", f"{BOUND}entropy decoding"]
    report.rates("A folder of JPEGs to batches", rates, against, "images", absent)
    for name, peer in peers.items():
        for death in peer.deaths:
            report.line(f"{name} was restarted, because it {death}")
    report.targets(rates, TARGETS if compiled else {tuple(name.removesuffix(WHEELS) for name in pair): TARGETS[pair] for pair in TARGETS})
    report.line(
        "Mean difference from the pixels of an exact decoder and cv2's bilinear scaling, in levels of 255: "
        + ", ".join(f"{name} {difference:.1f}" for name, difference in differences.items())
        + "."
    )
    report.record()


if __name__ == "__main__":
    main()
