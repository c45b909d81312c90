"""Measure how much a loader slows down a training thread while it delivers 3,000 small images per second, and how long a batch takes.

Each loader has its own process. A training thread in this process takes steps: small operations of torch, or plain Python. The thread asks
each loader for the same number of images per second, as many as a GPU would ask for. So only the loader changes the rate of the steps. On
two cores, one core must suffice for the work of the loader.
"""

from __future__ import annotations

import contextlib
import io
import json
import statistics
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import measure
from highway.data import photos
from loaders import BATCH, Case
from measure import Absent, Report, chosen, foreign, machine
from peers.process import Process
from peers.worker import Job

SIDE = 32  # pixels
CASES = {
    "highway, isolated": Case("training", arguments=("isolated",)),
    "highway, in this process": Case("training", arguments=("highway",)),
    "highway, DataLoader, 2 workers": Case("training", arguments=("highway-dataloader",)),
    "highway, DataLoader, 2 threads": Case("training", arguments=("highway-threads",)),
    "DataLoader, 1 worker": Case("training", arguments=("dataloader-1",)),
    "DataLoader, 2 workers": Case("training", arguments=("dataloader-2",)),
    "Grain, threads": Case("training", environment="grain", arguments=("grain",)),
    "Grain, 1 process": Case("training", environment="grain", arguments=("grain-process",)),
    "SPDL, threads": Case("training", environment="spdl", arguments=("spdl",)),
    "SPDL, subprocess": Case("training", environment="spdl", arguments=("spdl-subprocess",)),
}
KINDS = {"operations": "small operations of torch", "python": "plain Python"}
TARGET = 0.95


def small_images(folder: Path, count: int) -> Path:
    """Make JPEGs of 32x32 pixels, in a folder for each label."""
    rng = np.random.default_rng(0)
    sources = sorted(Path(photos()).rglob("*.jpg"))
    for number in range(count):
        source = sources[number % len(sources)]
        with Image.open(source) as photo:
            left, top = rng.integers(photo.width - 4 * SIDE), rng.integers(photo.height - 4 * SIDE)
            part = photo.convert("RGB").resize((SIDE, SIDE), box=(left, top, left + 4 * SIDE, top + 4 * SIDE))
        data = io.BytesIO()
        part.save(data, "JPEG", quality=92)
        path = folder / source.parent.name / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.getvalue())
    return folder


def job_of(folder: Path, rows: int, workers: int) -> Job:
    """Return the work: rows of random boxes in the images, one after the other."""
    files = sorted(map(str, folder.glob("*/*.jpg")))
    rng = np.random.default_rng(0)
    sides = rng.integers(SIDE // 2, SIDE + 1, (rows, 2))
    boxes = np.concatenate([rng.integers(0, SIDE + 1 - sides), sides], axis=1).astype(np.int32)
    return Job(
        str(folder), 1, [files[row % len(files)] for row in range(rows)], [], workers, BATCH, (SIDE, SIDE), boxes, rng.random(rows) < 0.5
    )


class Trainer:
    """A training thread, in a process of its own, and what it has answered."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.answers: dict[str, list[dict]] = {kind: [] for kind in (*KINDS, "take")}

    def turn(self, seconds: float, rate: float) -> None:
        for kind in KINDS:
            self.ask(kind, "train", kind, seconds, rate)
        self.ask("take", "take", 30)

    def ask(self, key: str, *command: object) -> None:
        self.process.tell(json.dumps(command))
        self.answers[key].append(self.process.answer())

    def row(self, name: str, kind: str) -> list[str]:
        answers = self.answers[kind]
        beside, alone = (
            {key: statistics.median(a[when][key] for a in answers) for key in answers[0][when]} for when in ("beside", "alone")
        )
        shares = [answer["beside"]["steps"] / answer["alone"]["steps"] for answer in answers]
        parts = [f"{beside['core']:.0%}", f"{alone['core']:.0%}", f"{beside['waits']:,.0f}", f"{beside['cost'] / alone['cost']:.2f}"]
        pauses = [f"{1e3 * part['longest']:.1f}" for part in (beside, alone)]
        spread = f"{min(shares):.2f} to {max(shares):.2f}"
        return [name, f"{statistics.median(shares):.2f}", spread, *parts, *pauses, f"{beside['images']:,.0f}"]


def main() -> None:
    parser = measure.parser(__doc__, rounds=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds per turn of each training thread (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=3000, help="images per second that the thread requests (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="number of threads of a loader with threads (default: %(default)s)")
    options = measure.parse(parser, seconds=1.0)
    report = Report("training_thread", options.record)
    report.line(machine("highway-data", "numpy", "torch", "opencv-python-headless"))
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as closing:
        place = Path(temporary)
        job_of(small_images(place / "images", 1000), 200_000, options.workers).save(place)
        trainers, absent = {}, {}
        for name in chosen(CASES, options):
            try:
                process = CASES[name].start(place)
            except Absent as error:
                absent[name] = str(error)
                continue
            closing.callback(process.close)
            trainers[name] = Trainer(process)
        report.line(foreign({name: trainer.process.versions for name, trainer in trainers.items()}))
        for round_ in range(options.rounds + 1):
            for name, trainer in list(trainers.items()):
                try:
                    trainer.turn(options.seconds if round_ else 0.5, options.rate)
                except Absent as error:
                    absent[name] = str(error)
                    del trainers[name]
                if not round_:
                    trainer.answers = {key: [] for key in trainer.answers}
    report.line(
        f"JPEGs of {SIDE}x{SIDE} pixels, random-resized crop and flip, batches of {BATCH}, {options.rate:,.0f} images/s requested; loaders "
        f"with threads have {options.workers} threads; turns of {options.seconds:g} s, each after half as long without a loader; "
        f"{options.rounds} rounds."
    )
    for kind, what in KINDS.items():
        report.line(f"**A training thread that runs {what}: rate with the loader / rate alone (target: {TARGET})**")
        header = [
            "loader",
            "share",
            "min to max",
            "on a core",
            "on a core alone",
            "waits/s",
            "x cost",
            "longest step ms",
            "longest alone ms",
            "images/s",
        ]
        report.table(header, [trainer.row(name, kind) for name, trainer in trainers.items()])
    report.line("**Time to receive a batch of 9.6 MB that is ready (target: 0.2 ms)**")
    report.table(
        ["loader", "ms"],
        [[name, f"{1e3 * statistics.median(a['seconds'] for a in trainer.answers['take']):.2f}"] for name, trainer in trainers.items()],
    )
    for name, reason in absent.items():
        report.line(f"absent: {name} ({reason})")
    report.record()


if __name__ == "__main__":
    main()
