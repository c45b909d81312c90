"""Measuring in turns: every case once per round, medians over the rounds, ratios within one run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

console = Console(width=None if os.isatty(1) else 140, highlight=False)


@dataclass(frozen=True)
class Work:
    """What one run of a case did: items, and bytes of the arrays in them (0: not meaningful)."""

    items: int
    bytes: int = 0
    seconds: float | None = None  # measured inside the case; else the whole call is timed


@dataclass(frozen=True)
class Rate:
    """The median rates of a case, and the spread (max / min) over its rounds."""

    items: float
    bytes: float
    spread: float


def in_turns(cases: Mapping[str, Callable[[], Work]], rounds: int) -> dict[str, Rate]:
    """Run each case once per round, in turns, after one round that warms up and is not counted."""
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for round_ in range(rounds + 1):
        for name, case in cases.items():
            began = time.perf_counter()
            work = case()
            seconds = work.seconds or time.perf_counter() - began
            if round_:
                rates[name].append((work.items / seconds, work.bytes / seconds))
    medians = {}
    for name, measured in rates.items():
        items, volumes = zip(*measured, strict=True)
        medians[name] = Rate(statistics.median(items), statistics.median(volumes), max(items) / min(items))
    return medians


def show(
    title: str, rates: Mapping[str, Rate], against: str | Sequence[str], unit: str = "items", absent: Mapping[str, str] | None = None
) -> None:
    """Print a table with a column of ratios for each case named in ``against``, and a line for each peer that is absent and why."""
    references = [name for name in ([against] if isinstance(against, str) else against) if name in rates]
    console.print(f"\n[bold]{title}[/bold]", soft_wrap=True)
    table = Table()
    table.add_column("case")
    for column in (f"{unit}/s", "MB/s", *(f"x {name}" for name in references), "max/min"):
        table.add_column(column, justify="right")
    for name, rate in rates.items():
        ratios = [f"{rate.items / rates[reference].items:.2f}" for reference in references]
        table.add_row(name, f"{rate.items:,.0f}", f"{rate.bytes / 1e6:,.0f}" if rate.bytes else "-", *ratios, f"{rate.spread:.2f}")
    console.print(table)
    for name, reason in (absent or {}).items():
        console.print(f"absent: {name} ({reason})")


def machine(*packages: str) -> str:
    """Return one line that names the processor, the cores, Python and the versions of ``packages``."""
    cpus = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next((line.split(":", 1)[1].strip() for line in cpus.splitlines() if line.startswith("model name")), platform.processor())
    versions = []
    for package in packages:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{package} absent")
    return f"{model}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, {', '.join(versions)}"
