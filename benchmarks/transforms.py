"""Every transform against the best of OpenCV, Pillow, Albumentations and torchvision: images per second of processor time, one thread."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from loaders import Case, present
from measure import Rate, Report, chosen, foreign, in_turns, machine, parse, parser
from peers.environments import python

ENVIRONMENT = "transforms"
LIBRARIES = ("highway", "cv2", "Pillow", "Albumentations", "torchvision")
TORCHVISION = {"RandAugment": 3.0, "TrivialAugmentWide": 3.0, "AutoAugment": 3.0, "AugMix": 3.0, "detection chain": 2.0}  # targets


def listed() -> dict[str, Sequence[str]]:
    """Return the transforms, and the libraries that have each, as the peer says; the names alone tell that it has no environment."""
    if not python(ENVIRONMENT).exists():
        raise SystemExit(f"no environment {ENVIRONMENT!r}; make it with 'tox -e bench-peers -- {ENVIRONMENT}'")
    script = Path(__file__).resolve().parent / "peers" / "transforms.py"
    return json.loads(subprocess.run([python(ENVIRONMENT), script, "--list"], check=True, capture_output=True, text=True).stdout)


def row(name: str, rates: dict[str, Rate]) -> tuple[str, ...]:
    """Return a line of the table: the rates of all, and highway's as a multiple of the best of the others."""
    others = {library: rate for library, rate in rates.items() if library != "highway"}
    texts = [f"{1 / rates[library].cpu:,.0f}" if library in rates else "-" for library in LIBRARIES]
    if "highway" not in rates or not others:
        return name, *texts, "-", "-", "-"
    best = min(others, key=lambda library: others[library].cpu)
    return name, *texts, best, f"{others[best].cpu / rates['highway'].cpu:.2f}", f"{TORCHVISION.get(name, 1.0):.2f}"


def main() -> None:
    options = parser(__doc__, rounds=7)
    options.add_argument("--seconds", type=float, default=0.1, help="processor time that a turn takes (default: %(default)s)")
    given = parse(options, seconds=0.01)
    report = Report("transforms", given.record)
    transforms = listed()
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
    report.line(f"{given.seconds:g} s of processor time a turn; {given.rounds} rounds.")
    table = []
    for name in chosen(transforms, given):
        found = {library: rates[f"{name}:{library}"] for library in transforms[name] if f"{name}:{library}" in rates}
        table.append(row(name, found))
    report.line("**Images of 256x256x3 bytes a second; the detection chain: of 480x640x3 with 12 boxes**")
    report.table(["transform", *LIBRARIES, "best of the others", "highway, x best", "target"], table)
    for name, reason in absent.items():
        report.line(f"absent: {name} ({reason})")
    report.record()


if __name__ == "__main__":
    main()
