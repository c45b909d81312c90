"""The measured costs of a topology on one machine, in memory and as JSON. ``sizing`` uses the costs to plan for other machines.

A *role* is a pipeline of a topology file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from highway.engine.component import Shape
from highway.errors import ConfigError

FORMAT = 1


@dataclass(frozen=True)
class StageCost:
    """The cost of a stage for each item at the end of the role, or the cost of a link for each message.

    Args:
        name: The label of the stage or link.
        seconds: Busy seconds of one worker, which include waiting for disks or servers; 0 if the stage was not measured.
        cpu: CPU seconds of the stage's process, and of processes that the stage has started.
        held: Upper limit of the seconds in which the stage held the GIL.
        read: Bytes that the stage reads from files.
        nbytes: Bytes of the arrays in one item of the stage.
        workers: Number of worker threads in the topology file.
        waiting: Maximum number of finished items that wait after the stage.
    """

    name: str
    shape: Shape
    seconds: float = 0.0
    cpu: float = 0.0
    held: float = 0.0
    read: float = 0.0
    nbytes: float = 0.0
    workers: int = 1
    waiting: int = 2

    def times(self, count: float) -> StageCost:
        """Return the cost of ``count`` items."""
        return replace(self, seconds=self.seconds * count, cpu=self.cpu * count, held=self.held * count, read=self.read * count)

    def rate(self, cores: int, processes: float = 1) -> float:
        """Return the items per second of the stage in all processes on a machine with these cores. The stage must have been measured."""
        threads = self.workers * processes / self.seconds
        return min(threads, cores / self.cpu) if self.cpu else threads


@dataclass(frozen=True)
class RoleCost:
    """The cost of a role.

    Args:
        stages: The costs of the stages. For an external role, which has no stages: the cost of receiving.
        samples: Number of samples in an item at the end of the role.
        taken: Number of samples that the role takes for each sample that it yields.
        message: Bytes of an item on the link to which the role sends; 0 if the role sends nothing.
    """

    stages: Sequence[StageCost]
    samples: float = 1.0
    taken: float = 1.0
    message: float = 0.0


@dataclass(frozen=True)
class Calibration:
    """The costs of roles, by name, on one machine.

    Args:
        roles: The cost of each role, by the role's name.
        cores: Number of cores available to the measuring process.
        process_mb: Megabytes of memory of a process whose stages hold no items.
        machine: The hostname of the machine.
        format: The version of the JSON format.
    """

    roles: Mapping[str, RoleCost]
    cores: int
    process_mb: float
    machine: str = ""
    format: int = FORMAT

    def to_json(self) -> str:
        """Return the calibration as JSON."""
        return msgspec.json.format(msgspec.json.encode(self)).decode()


def read(path: str) -> Calibration:
    """Read the output of ``highway bench --json``.

    Raises:
        ConfigError: the file cannot be read, is not the output of ``highway bench --json``, or has another format.
    """
    way_out = "create the file with `highway bench FILE --json > figures.json`"
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(), type=Calibration)
    except OSError as error:
        raise ConfigError(f"--from {path}: {os.strerror(error.errno or 0)}; {way_out}") from None
    except msgspec.MsgspecError as error:
        raise ConfigError(f"--from {path}: the file is not the output of highway bench --json ({error}); {way_out}") from None
    if found.format != FORMAT:
        raise ConfigError(f"--from {path}: the file has format {found.format}, but this highway reads format {FORMAT}; {way_out}")
    return found
