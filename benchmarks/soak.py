"""Check whether memory is bounded and constant over a long time, at full rate.

`highway run` starts a reader, which decodes photographs to batches, and a consumer in another process, which receives them through shared
memory. Every few seconds, the memory, file descriptors and shared memory of the three processes are read from /proc. The exit code is
always 0: the verdict is printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dataset import FOLDER, describe, imagenet_like
from highway import Pipeline
from highway.modules import ImageFileReader
from highway.transforms import RandomResizedCrop
from measure import Report, machine

BATCH, SHAPE, BUDGET_MB, WORKERS = 64, (224, 224), 128, 2
BATCH_MB = BATCH * SHAPE[0] * SHAPE[1] * 3 / 1e6
UNUSED = 4  # batches whose memory a reader keeps to use again
ALL, ANONYMOUS, SHARED, DESCRIPTORS = "PSS of all", "anonymous", "shared", "descriptors"
FLAT = 0.01  # a rise by less than this part, over the whole time, is none
TOPOLOGY = f"""
links:
  batches: {{from: reader, to: trainer, transport: shm, budget_mb: {BUDGET_MB}}}
roles:
  reader:
    - ImageFileReader:
        data_dir: ${{photos}}
        batch_size: {BATCH}
        crop: {{RandomResizedCrop: {{shape: [{SHAPE[0]}, {SHAPE[1]}]}}}}
        flip: 0.5
        epochs: null
        num_workers: {WORKERS}
    - ZMQSink: {{link: batches}}
  trainer:
    - ZMQSource: {{link: batches}}
    - Benchmark: 500
vars:
  photos: ""
"""


@dataclass(frozen=True)
class Sample:
    """What the processes hold at one time: seconds since the start, and numbers by name."""

    seconds: float
    values: dict[str, float]


def tree(root: int) -> dict[int, str]:
    """Return a process and its descendants, with the role that each runs."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return {pid: role(pid) for pid in found}


def role(pid: int) -> str:
    """Return what a process does: the role, or "run" for the one that starts the others."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return words[words.index("--role") + 1] if "--role" in words else "run"


def measure(root: int) -> dict[str, float]:
    """Return megabytes of each process, of all, of these anonymous and in shared memory (each file once), and descriptors but those of it.

    Raises:
        OSError: a process has ended meanwhile.
    """
    values: dict[str, float] = {ALL: 0.0, ANONYMOUS: 0.0, SHARED: 0.0, DESCRIPTORS: 0.0}
    shared: dict[int, int] = {}
    for pid, name in tree(root).items():
        rollup = dict(line.split()[:2] for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
        values[f"RSS {name}"] = values.get(f"RSS {name}", 0.0) + int(rollup["Rss:"]) * 1024 / 1e6
        values[ALL] += int(rollup["Pss:"]) * 1024 / 1e6  # a part of what is shared with others, so it also depends on them
        values[ANONYMOUS] += int(rollup["Pss_Anon:"]) * 1024 / 1e6
        for descriptor in os.scandir(f"/proc/{pid}/fd"):
            try:
                status = os.stat(descriptor.path)
                memfd = os.readlink(descriptor.path).startswith("/memfd:")
            except FileNotFoundError:
                continue  # it was closed meanwhile
            if memfd:
                shared[status.st_ino] = status.st_blocks * 512
            values[DESCRIPTORS] += not memfd
    values[SHARED] = sum(shared.values()) / 1e6
    return values


def watch(process: subprocess.Popen[bytes], seconds: float, every: float) -> Iterator[Sample]:
    """Measure again and again, until the time is over or the process ends."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds and process.poll() is None:
        try:
            yield Sample(passed, measure(process.pid))
        except OSError as error:
            print(f"{passed:.0f} s: not measured, because a process has ended ({error})", flush=True)
        time.sleep(max(0.0, every - (time.monotonic() - began - passed)))


def blocks(samples: list[Sample], seconds: float) -> Iterator[list[Sample]]:
    """Divide samples into runs of so many seconds."""
    for number in range(int(samples[-1].seconds // seconds) + 1):
        if block := [sample for sample in samples if sample.seconds // seconds == number]:
            yield block


def show(report: Report, samples: list[Sample], minutes: float) -> None:
    """Print least, median and greatest of every number, for runs of some minutes."""
    names = list(samples[-1].values)
    rows = []
    for block in blocks(samples, minutes * 60):
        row = [f"{block[0].seconds / 60:.1f} to {block[-1].seconds / 60:.1f}"]
        for name in names:
            numbers = [sample.values.get(name, 0.0) for sample in block]
            row.append(f"{min(numbers):.0f} / {statistics.median(numbers):.0f} / {max(numbers):.0f}")
        rows.append(row)
    report.line("**Megabytes, and number of descriptors: minimum / median / maximum**")
    report.table(["minutes", *names], rows)


def judge(report: Report, samples: list[Sample], warm_up: float) -> None:
    """Print how much each number grows, by a line fitted behind the warm-up, and say in words what that means."""
    warm = [sample for sample in samples if sample.seconds >= warm_up]
    minutes = np.array([sample.seconds for sample in warm]) / 60
    if len(warm) < 10:
        report.line(
            f"Verdict: none, because only {len(warm)} measurements follow the warm-up of {warm_up / 60:.1f} minutes; run it longer."
        )
        return
    rows, growing = [], []
    for name in samples[-1].values:
        numbers = np.array([sample.values.get(name, 0.0) for sample in warm])
        slope = np.polyfit(minutes, numbers, 1)[0]
        rise = slope * (minutes[-1] - minutes[0])
        if name in (ANONYMOUS, DESCRIPTORS) and rise > FLAT * np.median(numbers):
            growing.append(f"{name} by {rise:.1f} in {minutes[-1] - minutes[0]:.1f} minutes")
        rows.append([name, f"{slope:+.3f}" if name == DESCRIPTORS else f"{slope * 1000:+.0f} kB"])
    report.table(["after the warm-up", "rise per minute"], rows)
    verdict = "these values grow: " + ", ".join(growing) if growing else "anonymous memory and descriptors are flat"
    report.line(
        f"Verdict: {verdict} (after a warm-up of {warm_up / 60:.1f} minutes). Shared memory belongs to the link, and can grow up to the "
        "link's budget."
    )


def declared(photos: Path) -> str:
    """Return in words what the buffers may take, by what the pipeline declares."""
    reader = ImageFileReader(str(photos), BATCH, crop=RandomResizedCrop(SHAPE), flip=0.5, epochs=None, num_workers=WORKERS)
    places = sum(stage.capacity for stage in Pipeline([reader]).stats().stages)
    megabytes = BUDGET_MB + (places + UNUSED) * BATCH_MB
    words = (
        f"{BUDGET_MB} MB of the link's budget_mb, {places} places in the reader's queues and {UNUSED} unused batches that the reader "
        "keeps, "
    )
    return f"{words}of {BATCH_MB:.1f} MB each: at most {megabytes:.0f} MB"


def run(photos: Path, minutes: float, every: float) -> tuple[list[Sample], str]:
    """Run the topology; return the samples, and what it printed last."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as output:
        path = Path(folder) / f"soak-{os.getpid()}.yaml"  # the links have its name
        path.write_text(TOPOLOGY)
        command = [sys.executable, "-m", "highway", "run", path, "--set", f"photos={photos}"]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            samples = list(watch(process, minutes * 60, every))
            early = process.poll()
        finally:
            process.terminate()  # not SIGINT, which is ignored in a shell's background
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        output.seek(0)
        lines = [line.strip() for line in output if line.strip()]
    if early is not None:
        return samples, f"The run ended early, with exit code {early}: {lines[-1] if lines else 'it printed nothing'}"
    return samples, next(
        (line for line in reversed(lines) if line.startswith("trainer: ")), "The consumer did not report how many batches it received."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20, help="duration in seconds (default: %(default)s)")
    parser.add_argument("--every", type=float, default=5, help="seconds between measurements (default: %(default)s)")
    parser.add_argument("--images", type=int, default=1000, help="number of images (default: %(default)s)")
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder for the images")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the tables into a Markdown file")
    given = parser.parse_args()
    report = Report("soak", given.record)
    photos = imagenet_like(given.data, given.images)
    report.line(machine("highway-data", "numpy"))
    report.line(f"{describe(photos)}; {given.minutes:g} minutes, measured every {given.every:g} s.")
    samples, said = run(photos, given.minutes, given.every)
    report.line(f"{said} (batches of {BATCH}).")
    if not samples:
        report.line("Verdict: none, because nothing was measured.")
        return
    show(report, samples, min(2.0, given.minutes / 2))
    judge(report, samples, warm_up=min(120.0, given.minutes * 60 / 4))
    most, shared = (max(sample.values[name] for sample in samples) for name in (ALL, SHARED))
    limit = "no more" if shared <= BUDGET_MB else "MORE"
    report.line(f"The buffers can use {declared(photos)}.")
    report.line(
        f"All processes together used at most {most:.0f} MB, including code and libraries. At most {shared:.0f} MB of this memory was "
        f"shared, {limit} than the budget of the link."
    )
    report.record()


if __name__ == "__main__":
    main()
