"""Measure how soon a run begins and resumes on large data, and how much memory it needs.

Each figure is from its own process. The clock runs from the construction of the dataset to the first batch, without imports. The memory
is that of the process after the first batch. Mapped pages of files are counted separately, because the system can use their memory for
something else at any time. The rows are shuffled over all files.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from highway import Pipeline
from highway.datasets import Arrow, TFRecord
from highway.datasets.records.framing import framed
from highway.modules import Reader
from measure import Report, machine, parse, parser

RANKS, OTHER_RANKS, BATCH, STEPS = 4, 3, 256, 20
SECONDS, MEGABYTES = 1.0, 300
DATASETS = {"Arrow": lambda folder: Arrow(f"{folder}/*.arrow"), "TFRecord": lambda folder: TFRecord(f"{folder}/*.tfrecord", index=True)}


def write_arrow(folder: Path, files: int, rows: int) -> None:
    """Write Arrow files of one byte per row."""
    import pyarrow as pa

    numbers = np.random.default_rng(0).integers(256, size=rows, dtype=np.uint8)
    table = pa.table({"value": numbers})
    for number in range(files):
        with pa.OSFile(f"{folder}/{number:04}.arrow", "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)


def write_tfrecord(folder: Path, files: int, rows: int) -> None:
    """Write TFRecord files of records of eight bytes."""
    content = b"".join(framed(f"{number:08}".encode()) for number in range(rows))
    for number in range(files):
        Path(f"{folder}/{number:04}.tfrecord").write_bytes(content)


WRITERS = {"Arrow": write_arrow, "TFRecord": write_tfrecord}


def begin(kind: str, folder: str, rank: int, ranks: int, state: str, keep: str) -> dict[str, Any]:
    """Read the first batch, from the beginning or from a state. Save the state after some batches, if ``keep`` names a file."""
    began = time.perf_counter()
    with Pipeline([Reader(DATASETS[kind](folder), BATCH, rank=rank, world_size=ranks)], seed=1) as pipeline:
        if state:
            pipeline.load_state_dict(json.loads(Path(state).read_text()))
        pipeline.dequeue()
        seconds = time.perf_counter() - began
        for _ in range(STEPS if keep else 0):
            pipeline.dequeue()
        if keep:
            Path(keep).write_text(json.dumps(pipeline.state_dict()))
        return {"seconds": seconds, **memory()}


def memory() -> dict[str, float]:
    """Return the megabytes of this process's own memory, and of the pages of files that it has mapped, such as libraries."""
    found = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return {what: int(found[name].split()[0]) * 1024 / 1e6 for what, name in {"own": "RssAnon", "mapped": "RssFile"}.items()}


def begun(*arguments: object) -> dict[str, Any]:
    """Return the figures of a process of its own; see :func:`begin`."""
    command = [sys.executable, __file__, "--begin", json.dumps(arguments)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


def main() -> None:
    options = parser(__doc__, 3)
    options.add_argument("--files", type=int, default=1000, help="files per dataset (default: %(default)s)")
    options.add_argument(
        "--rows", type=int, default=10**6, help="rows per Arrow file; a TFRecord file has 1/100 of this number (default: %(default)s)"
    )
    given = parse(options, files=50, rows=10**5)
    report = Report("start", given.record)
    report.line(machine("numpy", "pyarrow"))
    for kind, rows in {"Arrow": given.rows, "TFRecord": given.rows // 100}.items():
        with tempfile.TemporaryDirectory(prefix="highway-start-") as folder:
            state = f"{folder}/state.json"
            WRITERS[kind](Path(folder), given.files, rows)
            cases = {
                "from the beginning, first run": [(kind, folder, 0, RANKS, "", state)],
                "from the beginning": [(kind, folder, 0, RANKS, "", "")] * given.rounds,
                "from a state": [(kind, folder, 0, RANKS, state, "")] * given.rounds,
                f"from a state, on {OTHER_RANKS} ranks instead of {RANKS}": [(kind, folder, 1, OTHER_RANKS, state, "")] * given.rounds,
            }
            lines = []
            for name, runs in cases.items():
                found = [begun(*run) for run in runs]
                seconds, own, mapped = (sorted(one[what] for one in found) for what in ("seconds", "own", "mapped"))
                times = seconds[len(seconds) // 2], seconds[-1]
                lines.append([name, *(f"{one:.2f}" for one in times), *(f"{one[-1]:,.0f}" for one in (own, mapped))])
        report.line(
            f"**{kind}: {given.files * rows:,} rows in {given.files:,} files (targets from a state: {SECONDS:g} s, {MEGABYTES} MB)**"
        )
        report.table(["first batch", "seconds, median", "seconds, maximum", "MB", "MB mapped"], lines)
    report.record()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--begin"]:
        print(json.dumps(begin(*json.loads(sys.argv[2]))))
    else:
        main()
