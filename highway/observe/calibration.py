"""What was measured of a topology on a machine, so that its needs can be worked out elsewhere: plain values, to JSON and back."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from highway.engine.component import Shape
from highway.errors import ConfigError

FORMAT = 1


@dataclass(frozen=True)
class StageCost:
    """What a stage takes for each item that comes out at the end of its role.

    Args:
        name: What it is called.
        seconds: Busy seconds of one worker; 0 if it was not measured.
        cpu: Seconds of cores.
        held: Seconds in which it held the GIL, at most.
        read: Bytes that it reads from files.
        nbytes: Bytes of the arrays in one of its items.
        workers: Its worker threads, as the file has them.
        waiting: Finished items that may wait behind it.
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


@dataclass(frozen=True)
class RoleCost:
    """What a role takes.

    Args:
        stages: Its stages; of a role that is started by others, what receiving takes.
        samples: Samples in an item that comes out at its end.
        taken: Samples that it takes for each that it hands on.
        message: Bytes that an item has on the link to which it is sent; 0 if it sends nothing.
    """

    stages: Sequence[StageCost]
    samples: float = 1.0
    taken: float = 1.0
    message: float = 0.0


@dataclass(frozen=True)
class Calibration:
    """The costs of roles, by their names, on one machine.

    Args:
        cores: The cores that the process that measured could use.
        process_mb: Megabytes that a process has before its stages hold anything.
    """

    roles: Mapping[str, RoleCost]
    cores: int
    process_mb: float
    machine: str = ""
    format: int = FORMAT

    def to_json(self) -> str:
        """Return it as JSON."""
        return msgspec.json.format(msgspec.json.encode(self)).decode()


def read(path: str) -> Calibration:
    """Read what ``highway bench --json`` has printed.

    Raises:
        ConfigError: there is no such file, or something else is in it.
    """
    way_out = "make it with `highway bench FILE --json > figures.json`"
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(), type=Calibration)
    except OSError as error:
        raise ConfigError(f"--from {path}: {os.strerror(error.errno or 0)}; {way_out}") from None
    except msgspec.MsgspecError as error:
        raise ConfigError(f"--from {path}: not what highway bench --json prints ({error}); {way_out}") from None
    if found.format != FORMAT:
        raise ConfigError(f"--from {path}: format {found.format}, but this highway reads {FORMAT}; {way_out}")
    return found
