"""Reports of a process to its launcher about its role: lines of JSON."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict
from typing import Any, NamedTuple, Self, TextIO

from highway.engine.stats import PipelineStats, StageStats
from highway.run.role import Terminated


class Reporter:
    """Reports the state of a role to the launcher of this process, through a pipe: a line of JSON each time."""

    def __init__(self, descriptor: int) -> None:
        self._out: TextIO = os.fdopen(descriptor, "w", encoding="utf-8", buffering=1)
        self._parent = os.getppid()

    def progress(self, stats: PipelineStats) -> None:
        """Report the statistics.

        Raises:
            Terminated: the launcher has ended.
        """
        self._send(stats=asdict(stats))

    def draining(self) -> None:
        """Report that another process than the launcher asked the role to end. The launcher does not start it again."""
        self._send(draining=True)

    def error(self, message: str) -> None:
        """Report the error that ended the role."""
        self._send(error=message)

    def done(self) -> None:
        """Report that the role has ended normally and delivered all its items. A process that ends without this report has failed."""
        self._send(done=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the pipe. If the launcher is gone, unsent data is dropped."""
        with contextlib.suppress(BrokenPipeError):
            self._out.close()

    def _send(self, **report: Any) -> None:
        try:
            self._out.write(json.dumps(report, default=str) + "\n")
        except BrokenPipeError:
            raise Terminated from None
        if os.getppid() != self._parent:
            raise Terminated


class RoleReport(NamedTuple):
    """A line that a :class:`Reporter` wrote: one of four kinds."""

    stats: PipelineStats | None = None
    error: str = ""
    draining: bool = False
    done: bool = False

    @classmethod
    def read(cls, line: str) -> RoleReport:
        report = json.loads(line)
        if stats := report.get("stats"):
            report["stats"] = PipelineStats(**{**stats, "stages": [StageStats(**stage) for stage in stats["stages"]]})
        return cls(**report)
