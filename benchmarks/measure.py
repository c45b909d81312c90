"""Run cases in turns (each case once per round), and print medians over the rounds and ratios within a run as Markdown tables."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import plots


@dataclass(frozen=True)
class Work:
    """What one run of a case did: items, and bytes of the arrays in them (0: not meaningful)."""

    items: int
    bytes: int = 0
    seconds: float | None = None  # measured inside the case; else the whole call is timed
    cpu: float = 0.0  # seconds of processor time


@dataclass(frozen=True)
class Rate:
    """The median rates of a case, the spread (max / min) over its rounds, and the median seconds of processor time for an item."""

    items: float
    bytes: float
    spread: float
    cpu: float = 0.0


class Absent(Exception):
    """A case that cannot take part, or not any more; says why."""


def in_turns(cases: Mapping[str, Callable[[], Work]], rounds: int, absent: dict[str, str]) -> dict[str, Rate]:
    """Run each case once per round, in turns, after one round that warms up and is not counted.

    Args:
        cases: By their names.
        rounds: How many count.
        absent: Where the name of a case that gives up is noted, with the reason; it is left out from there on, and of what is returned.
    """
    rates: dict[str, list[tuple[float, float, float]]] = {name: [] for name in cases}
    for round_ in range(rounds + 1):
        for name in list(rates):
            began = time.perf_counter()
            try:
                work = cases[name]()
            except Absent as error:
                absent[name] = str(error)
                del rates[name]
                continue
            seconds = work.seconds or time.perf_counter() - began
            if round_:
                rates[name].append((work.items / seconds, work.bytes / seconds, work.cpu / work.items))
    medians = {}
    for name, measured in rates.items():
        items, volumes, cpu = zip(*measured, strict=True)
        medians[name] = Rate(statistics.median(items), statistics.median(volumes), max(items) / min(items), statistics.median(cpu))
    return medians


def parser(description: str | None, rounds: int) -> argparse.ArgumentParser:
    """Return a parser with the options that all tables have in common."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--quick", action="store_true", help="less work and two rounds, to test the script; do not compare the figures")
    made.add_argument("--rounds", type=int, default=rounds, help="number of rounds; each case runs once per round (default: %(default)s)")
    made.add_argument("--only", action="append", metavar="CASE", help="run only cases whose names contain this text; can be repeated")
    made.add_argument("--plots", action=plots.Plots, nargs=0, help="only draw the recorded tables as bars")
    made.add_argument("--record", type=Path, metavar="FILE", help="write the tables into a Markdown file")
    return made


def parse(parser: argparse.ArgumentParser, **quick: Any) -> argparse.Namespace:
    """Return the options; with ``--quick``, what is not given is 2 rounds and what ``quick`` says."""
    if parser.parse_args().quick:
        parser.set_defaults(rounds=2, **quick)
    return parser.parse_args()


def chosen(cases: Iterable[str], options: argparse.Namespace) -> list[str]:
    """Return the names of the cases that ``--only`` leaves."""
    return [name for name in cases if not options.only or any(part in name for part in options.only)]


@dataclass
class Report:
    """What a script prints, in Markdown, and may put in a file.

    Args:
        name: The script's.
        file: Where ``record()`` puts what was printed: between ``<!-- NAME -->`` and ``<!-- end of NAME -->``; none if it does not.

    Raises:
        SystemExit: the file has no such place.
    """

    name: str
    file: Path | None = None
    said: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.start, self.end = f"<!-- {self.name} -->", f"<!-- end of {self.name} -->"
        if self.file and not re.search(f"{self.start}.*{self.end}", self.file.read_text(), re.DOTALL):
            raise SystemExit(
                f"{self.file}: expected the line {self.start!r} and, after it, the line {self.end!r}; add both lines at the place for the "
                "tables"
            )

    def line(self, text: str) -> None:
        """Print a paragraph."""
        print(f"{text}\n", flush=True)
        self.said.append(f"{text}\n")

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table; the first column stands left, all others right."""
        rows = [tuple(header), *map(tuple, rows)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
        lines = [
            [text.rjust(width) if column else text.ljust(width) for column, (text, width) in enumerate(zip(row, widths))] for row in rows
        ]
        lines.insert(1, ["-" * width if column == 0 else "-" * (width - 1) + ":" for column, width in enumerate(widths)])
        self.line("\n".join(f"| {' | '.join(line)} |" for line in lines))

    def rates(
        self, title: str, rates: Mapping[str, Rate], against: Sequence[str], unit: str, absent: Mapping[str, str] | None = None
    ) -> None:
        """Print a table with a column of ratios for each case named in ``against``, and a line for each peer that is absent and why."""
        references = [name for name in against if name in rates]
        header = ["case", f"{unit}/s", "MB/s", *(f"x {name}" for name in references), "max/min"]
        rows = []
        for name, rate in rates.items():
            ratios = [f"{rate.items / rates[reference].items:.2f}" for reference in references]
            rows.append([name, f"{rate.items:,.0f}", f"{rate.bytes / 1e6:,.0f}" if rate.bytes else "-", *ratios, f"{rate.spread:.2f}"])
        self.line(f"**{title}**")
        self.table(header, rows)
        for name, reason in (absent or {}).items():
            self.line(f"absent: {name} ({reason})")

    def targets(self, rates: Mapping[str, Rate], targets: Mapping[tuple[str, str], float]) -> None:
        """Print the ratios that are promised: of which case, against which, and how much it should be."""
        rows = [
            [name, peer, f"{rates[name].items / rates[peer].items:.2f}", f"{target:.2f}"]
            for (name, peer), target in targets.items()
            if name in rates and peer in rates
        ]
        if rows:
            self.table(["case", "against", "ratio", "target"], rows)

    def record(self) -> None:
        """Put all that was printed in its place in the file, if there is one, with the day and how to repeat it."""
        if self.file is None:
            return
        arguments = [a for i, a in enumerate(sys.argv[1:], 1) if "--record" not in (a.partition("=")[0], sys.argv[i - 1])]
        command = shlex.join(["python", f"benchmarks/{self.name}.py", *arguments])
        what = "\n".join([self.start, f"\n{time.strftime('%d %B %Y')}, `{command}`\n", *self.said, self.end])
        self.file.write_text(re.sub(f"{self.start}.*?{self.end}", lambda _: what, self.file.read_text(), count=1, flags=re.DOTALL))
        if self.file.resolve() == plots.RECORDED:
            plots.write(self.name)


def machine(*packages: str) -> str:
    """Return one line that names the processor, the cores, Python and the versions of ``packages``."""
    cpus = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next((line.split(":", 1)[1].strip() for line in cpus.splitlines() if line.startswith("model name")), platform.processor())
    versions = [f"{package} {installed(package) or 'absent'}" for package in packages]
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, Linux {platform.release()}, Python {platform.python_version()}, {', '.join(versions)}."


def installed(package: str) -> str | None:
    """Return the version of a package in this environment."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def foreign(versions: Mapping[str, Mapping[str, str]]) -> str:
    """Return one line with the peers' packages whose versions are not those of this environment."""
    parts = []
    for name, packages in versions.items():
        if others := [f"{package} {version}" for package, version in packages.items() if installed(package) != version]:
            parts.append(f"{name}: {', '.join(others)}")
    return f"Cases with other package versions: {'; '.join(parts)}." if parts else "All cases use these versions."
