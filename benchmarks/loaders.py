"""The parts that the tables of loaders share: the cases, each a script in its own process, and the options."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import measure
from dataset import FOLDER
from peers.environments import python, variables
from peers.process import Peer, Process

SHAPE = (224, 224)
BATCH = 64


@dataclass(frozen=True)
class Case:
    """A script in peers/, its mode, and its environment; none for the one that runs this.

    ``arguments`` are those of the script. Cases that have one and the same ``process`` run in it in turns: what a process gets of memory
    and caches differs from one to the next by more than what is to be seen between them.
    """

    script: str
    mode: str = ""
    environment: str = ""
    arguments: tuple[str, ...] = ()
    process: str = ""

    def start(self, job: Path) -> Process:
        """Start it, or raise ``Absent``."""
        return Process(python(self.environment), self.script, [job, *self.arguments], variables=variables(self.environment))


def options(description: str | None, epochs: int) -> argparse.Namespace:
    """Read the options of a table of loaders."""
    parser = measure.parser(description, rounds=5)
    parser.add_argument("--images", type=int, default=1000, help="number of images (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=epochs, help="epochs per turn (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="number of worker threads or processes (default: %(default)s)")
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder for the images")
    return measure.parse(parser, images=200, epochs=1)


def present(cases: Mapping[str, Case], job: Path, closing: contextlib.ExitStack) -> tuple[dict[str, Peer], dict[str, str]]:
    """Start the peers; return those that have started, and why the others have not."""
    peers: dict[str, Peer] = {}
    absent: dict[str, str] = {}
    processes: dict[str, Process] = {}
    for name, case in cases.items():
        key = case.process or name
        if key not in processes:
            try:
                processes[key] = case.start(job)
            except measure.Absent as error:
                absent[name] = str(error)
                continue
            closing.callback(processes[key].close)
        peers[name] = Peer(processes[key], case.mode)
    return peers, absent
