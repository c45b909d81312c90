"""Compare each transform with the fastest of OpenCV, Pillow, Albumentations and torchvision: images per second of processor time.

All run in one thread.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import highway.transforms
from loaders import Case, present
from measure import Absent, Rate, Report, chosen, foreign, in_turns, machine, parse, parser
from peers.environments import python

ENVIRONMENT = "transforms"
LIBRARIES = ("highway", "functional", "cv2", "Pillow", "Albumentations", "torchvision")
DRAWING, PLAIN = ("Albumentations", "torchvision"), ("cv2", "Pillow")  # for each image; nothing: called with fixed parameters
TARGETS = {"RandAugment": 3.0, "TrivialAugmentWide": 3.0, "AutoAugment": 3.0, "AugMix": 3.0, "detection chain": 2.0}  # others 1.0
NO_ROW = {  # and why
    **dict.fromkeys(("TopCenterCrop", "Slicer", "RandomCropRandomShape"), "returns a view of the image, like CenterCrop"),
    **dict.fromkeys(("Chain", "Sometimes", "OneOf", "SomeOf", "Shuffled"), "only calls the transforms that it contains"),
    "Lambda": "only calls its function",
    "AdditiveNoise": "the same as GaussianNoise with a fixed deviation",
    "BoxSafeCrop": "returns a view of the image, with less arithmetic than RandomIoUCrop",
    "Clip": "applies a table, like Solarize",
    "HistEq": "no other library has its mapping; computes a histogram and applies a table, like Equalize",
    "RescaleImages": "the function that Normalize calls",
    "ToUint8": "the inverse of ToFloat",
}


def listed() -> dict[str, Sequence[str]]:
    """Return the transforms, and the libraries that have each, as the peer says.

    Raises:
        Absent: it has no environment.
    """
    if not python(ENVIRONMENT).exists():
        raise Absent(f"no environment; create it with 'tox -e bench-peers -- {ENVIRONMENT}'")
    script = Path(__file__).resolve().parent / "peers" / "transforms.py"
    return json.loads(subprocess.run([python(ENVIRONMENT), script, "--list"], check=True, capture_output=True, text=True).stdout)


def unmeasured(rows: Iterable[str]) -> list[str]:
    """Return the transforms that have no row, without a reason."""
    kinds = {name: getattr(highway.transforms, name) for name in dir(highway.transforms)}
    public = {name for name, kind in kinds.items() if isinstance(kind, type) and dataclasses.is_dataclass(kind)}
    return sorted(public - NO_ROW.keys() - set(rows))


def times(rates: dict[str, Rate], own: str, others: Iterable[str]) -> tuple[str, str]:
    """Return who of some is the best, and how many times as fast one's own is."""
    there = [library for library in others if library in rates]
    if own not in rates or not there:
        return "-", "-"
    best = min(there, key=lambda library: rates[library].cpu)
    return best, f"{rates[best].cpu / rates[own].cpu:.2f}"


def row(name: str, rates: dict[str, Rate]) -> tuple[str, ...]:
    """Return a line of the table: the rates of all, and highway's as a multiple of the best of the others."""
    texts = [f"{1 / rates[library].cpu:,.0f}" if library in rates else "-" for library in LIBRARIES]
    best, ratio = times(rates, "highway", (*PLAIN, *DRAWING))
    target = "-" if ratio == "-" else f"{TARGETS.get(name, 1.0):.2f}"
    return name, *texts, best, ratio, target, times(rates, "highway", DRAWING)[1], times(rates, "functional", PLAIN)[1]


def main() -> None:
    options = parser(__doc__, rounds=7)
    options.add_argument("--seconds", type=float, default=0.1, help="processor time per turn, in seconds (default: %(default)s)")
    given = parse(options, seconds=0.01)
    report = Report("transforms", given.record)
    try:
        transforms = listed()
    except Absent as error:  # highway's own rows are measured in that environment too, beside the others
        report.line(f"absent: {ENVIRONMENT} ({error})")
        return
    if names := unmeasured(transforms):
        raise SystemExit(f"{', '.join(names)}: no row in benchmarks/peers/transform_rows_*.py, and no reason in NO_ROW")
    report.line(machine("highway-data", "numpy", "stringzilla"))
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as closing:
        (Path(temporary) / "job.json").write_text(json.dumps({"seconds": given.seconds}))
        names = {
            f"{name}:{library}": Case("transforms", f"{name}:{library}", ENVIRONMENT, process="transforms")
            for name in chosen(transforms, given)
            for library in transforms[name]
        }
        peers, absent = present(names, Path(temporary), closing)
        report.line(foreign({ENVIRONMENT: next(iter(peers.values())).process.versions} if peers else {}))
        rates = in_turns({name: peer.work for name, peer in peers.items()}, given.rounds, absent)
    report.line(f"{given.seconds:g} s of processor time per turn; {given.rounds} rounds.")
    table = []
    for name in chosen(transforms, given):
        found = {library: rates[f"{name}:{library}"] for library in transforms[name] if f"{name}:{library}" in rates}
        table.append(row(name, found))
    report.line("**Images per second: 256x256x3 bytes; with boxes: 480x640x3 bytes and 12 boxes**")
    ratios = ["best of the others", "highway, x best", "target", "highway, x best random", "functional, x best fixed"]
    report.table(["transform", *LIBRARIES, *ratios], table)
    reasons = [f"{', '.join(name for name in NO_ROW if NO_ROW[name] == reason)} ({reason})" for reason in dict.fromkeys(NO_ROW.values())]
    report.line(f"No row: {'; '.join(reasons)}.")
    for name, reason in absent.items():
        report.line(f"absent: {name} ({reason})")
    report.record()


if __name__ == "__main__":
    main()
