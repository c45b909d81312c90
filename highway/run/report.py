"""Reports of a process to its launcher about the role that the process runs. Each report is a line of JSON.

The *launcher* is the process that starts and watches the processes of a run, such as ``highway run``. A *role* is a pipeline of a topology
file.
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple, Self

import msgspec

from highway.engine.stats import PipelineStats
from highway.observe.state import as_json
from highway.run.role import Terminated


class Reporter:
    """Reports the state of a role to the launcher of this process, through a pipe.

    If the launcher has ended, each report raises :class:`highway.run.role.Terminated`.
    """

    def __init__(self, descriptor: int) -> None:
        self._out = os.fdopen(descriptor, "wb")
        self._parent = os.getppid()

    def progress(self, stats: PipelineStats) -> None:
        """Report the statistics of the pipeline."""
        self._send(RoleReport(stats))

    def draining(self) -> None:
        """Report that a process other than the launcher has asked the role to end. The launcher then does not restart the role."""
        self._send(RoleReport(draining=True))

    def error(self, message: str) -> None:
        """Report the error that ended the role."""
        self._send(RoleReport(error=message))

    def done(self) -> None:
        """Report that the role has ended normally and delivered all its items. A process that exits without this report has failed."""
        self._send(RoleReport(done=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the pipe. If the launcher has gone, unsent reports are dropped."""
        with contextlib.suppress(BrokenPipeError):
            self._out.close()

    def _send(self, report: RoleReport) -> None:
        try:
            self._out.write(as_json(report) + b"\n")
            self._out.flush()
        except BrokenPipeError:
            raise Terminated from None
        if os.getppid() != self._parent:
            raise Terminated


class RoleReport(NamedTuple):
    """A report from a :class:`Reporter`. Each report sets exactly one of the four fields."""

    stats: PipelineStats | None = None
    error: str = ""
    draining: bool = False
    done: bool = False

    @classmethod
    def read(cls, line: str) -> RoleReport:
        return msgspec.json.decode(line, type=cls)
