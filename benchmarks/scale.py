"""Measure the cost of an image besides decoding: simulated decoding with 2 to 64 workers, and JPEGs of 16x16, in highway and others.

In the simulation, the files are read, and then a worker sleeps for 1 ms per image instead of decoding. So two cores show what many cores
would show. Each number of workers of each loader runs in its own process, and the cases take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path

import measure
from dataset import FOLDER, tiny
from images import draw
from loaders import Case, present
from measure import Rate, Report, chosen, foreign, in_turns, machine
from peers.process import Peer

SHAPE = (16, 16)
SLEEP = 1000  # microseconds
WORKERS = {"simulated": (2, 8, 16, 32, 64), "tiny": (2, 8)}
TITLES = {
    "simulated": "Simulated: 1 ms of sleep instead of decoding an image (target: 50,000 images/s with 64 workers)",
    "tiny": "Tiny: JPEGs of 16x16, decoded, cropped, scaled and flipped",
}
CASES = {
    "highway": Case("with_highway", "pipeline"),
    "tf.data": Case("with_tensorflow", environment="tensorflow"),
    "Grain, our decoder": Case("with_grain", environment="grain"),
    "SPDL, our decoder": Case("with_spdl", "seam", "spdl"),
    "tensorpack, our decoder": Case("with_tensorpack", environment="tensorpack"),
}
TARGETS = {
    ("highway, tiny, 2 workers", "tf.data, tiny, 2 workers"): 3.0,
    ("highway, tiny, 8 workers", "tf.data, tiny, 8 workers"): 2.0,
    ("highway, tiny, 8 workers", "highway, tiny, 2 workers"): 1.0,
    **{
        (f"highway, simulated, {more} workers", f"highway, simulated, {fewer} workers"): 1.0
        for fewer, more in zip(WORKERS["simulated"], WORKERS["simulated"][1:], strict=False)
    },
}


def options() -> argparse.Namespace:
    parser = measure.parser(__doc__, rounds=5)
    parser.add_argument("--images", type=int, default=1000, help="number of files (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=20, help="epochs per turn over the tiny images (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.5, help="simulation: seconds per turn at the ideal rate (default: %(default)s)")
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder for the images")
    return measure.parse(parser, epochs=2, seconds=0.1)


def start(
    given: argparse.Namespace, folder: Path, place: Path, closing: contextlib.ExitStack
) -> tuple[dict[str, dict[str, Peer]], dict[str, str]]:
    """Start all processes; return them by kind and name, and why some have not started."""
    cases = {name: CASES[name] for name in chosen(CASES, given)}
    peers: dict[str, dict[str, Peer]] = {kind: {} for kind in WORKERS}
    absent: dict[str, str] = {}
    for kind, counts in WORKERS.items():
        for workers in counts:
            simulated = kind == "simulated"
            epochs = max(1, round(workers * given.seconds * 1e6 / SLEEP / given.images)) if simulated else given.epochs
            path = place / f"{kind}-{workers}"
            path.mkdir()
            replace(draw(folder, epochs, workers, SHAPE), simulated=SLEEP if simulated else 0).save(path)
            found, missing = present(cases, path, closing)
            absent |= missing
            peers[kind] |= {f"{name}, {kind}, {workers} workers": peer for name, peer in found.items()}
    return peers, absent


def tables(report: Report, kind: str, rates: dict[str, Rate]) -> None:
    """Print what a kind of work has given: rates, ratios to highway's, and processor time."""
    counts, ours = WORKERS[kind], [rates.get(f"highway, {kind}, {workers} workers") for workers in WORKERS[kind]]
    rows = []
    for name in CASES:
        row = [rates.get(f"{name}, {kind}, {workers} workers") for workers in counts]
        if not any(row):
            continue
        rows.append([f"{name}: images/s", *(f"{rate.items:,.0f}" if rate else "-" for rate in row)])
        if name != "highway":
            ratios = [f"{our.items / rate.items:.2f}" if our and rate else "-" for our, rate in zip(ours, row, strict=True)]
            rows.append(["highway's rate / this rate", *ratios])
        rows.append(["processor time, us per image", *(f"{1e6 * rate.cpu:,.1f}" if rate else "-" for rate in row)])
        rows.append(["max/min of the rounds", *(f"{rate.spread:.2f}" if rate else "-" for rate in row)])
    report.line(f"**{TITLES[kind]}**")
    report.table(["workers", *map(str, counts)], rows)


def main() -> None:
    given = options()
    report = Report("scale", given.record)
    folder = tiny(given.data, given.images)
    report.line(machine("highway-data", "numpy"))
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as closing:
        peers, absent = start(given, folder, Path(place), closing)
        report.line(foreign({name.partition(",")[0]: peer.process.versions for kind in peers.values() for name, peer in kind.items()}))
        report.line(f"{given.images} JPEGs of 16x16; batches of 64; {given.rounds} rounds.")
        rates = {kind: in_turns({name: peer.work for name, peer in some.items()}, given.rounds, absent) for kind, some in peers.items()}
    for kind in WORKERS:
        tables(report, kind, rates[kind])
    for name, reason in absent.items():
        report.line(f"absent: {name} ({reason})")
    report.targets(rates["simulated"] | rates["tiny"], TARGETS)
    report.record()


if __name__ == "__main__":
    main()
