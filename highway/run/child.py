"""A process of a replica as its launcher sees it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from highway.engine.stats import PipelineStats
from highway.process import interrupt
from highway.run.idle import Idle
from highway.run.role import RoleReport
from highway.wire.tally import Tally

_ASKED = (128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGINT, -signal.SIGTERM)  # how a process ends that was asked to
_DRAINED = (0, 128 + signal.SIGTERM)


@dataclass(eq=False)
class Child:
    """A process of a replica.

    Args:
        popen: The process.
        reports: Where it says how it goes, in lines for :meth:`report`.
        tally: What it has received and sent over links.
        started: When it was, by ``time.monotonic()``.
        stats: Its last figures.
        error: What ended it, as it said.
        leaving: Whether it was asked to end.
        done: Whether it said that it has ended as it should.
        code: How it ended; negative for a signal; ``None`` while it runs, or before all that it reported was heard.
    """

    popen: subprocess.Popen[bytes]
    reports: IO[bytes]
    tally: Tally
    started: float = field(default_factory=time.monotonic)
    stats: PipelineStats | None = None
    error: str = ""
    leaving: bool = False
    done: bool = False
    code: int | None = None
    _idle: Idle = field(default_factory=Idle)

    @classmethod
    def start(cls, arguments: Sequence[str], env: Mapping[str, str]) -> Child:
        """Start one, in a process group of its own, which keeps the terminal's Ctrl-C from it: that is passed on in order instead.

        Args:
            arguments: Those of ``highway run``, besides where to report.
            env: Its environment.
        """
        tally, (reading, writing) = Tally(), os.pipe()
        try:
            with interrupt.Withheld():
                popen = subprocess.Popen(
                    [sys.executable, "-P", "-m", "highway", "run", *arguments, f"--report-to={writing}", f"--count-in={tally.descriptor}"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=[writing, tally.descriptor],
                    process_group=0,
                    env=env,
                )
        except BaseException:
            os.close(reading)
            tally.close()
            raise
        finally:
            os.close(writing)
        return cls(popen, os.fdopen(reading, "rb"), tally)

    def report(self, line: str) -> None:
        """Take in what it says of itself."""
        report = RoleReport.read(line)
        if report.stats:
            self.stats = report.stats
            self._idle.look(report.stats)
        self.error = report.error or self.error
        self.leaving = self.leaving or report.draining
        self.done = self.done or report.done

    @property
    def is_over(self) -> bool:
        """Whether it has ended. It is not reaped by this, so that its number, which is that of its group, is nobody else's yet."""
        if self.popen.returncode is not None or not hasattr(os, "waitid"):  # macOS has it from Python 3.13 on
            return self.popen.poll() is not None
        return os.waitid(os.P_PID, self.popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    @property
    def idle(self) -> float:
        """Seconds for which it has received nothing and waited for input, so that it could have."""
        return self._idle.seconds

    @property
    def failed(self) -> bool:
        """Whether it has ended, but not as it should."""
        as_it_should = (self.code == 0 and self.done) or (self.leaving and self.code in _ASKED)
        return self.code is not None and not as_it_should

    @property
    def how(self) -> str:
        """How it ended, in two or three words."""
        code = self.code or 0
        if not self.failed:
            return "ended" if not self.leaving else "was drained" if code in _DRAINED else "was stopped"
        return f"was killed by {_signal_name(-code)}" if code < 0 else f"failed with exit code {code}"

    @property
    def failure(self) -> str:
        """How it ended, with the error."""
        return f"({self.how.removeprefix('was ').removeprefix('failed with ')}): {self.error or 'it ended without a word'}"

    def send(self, number: int) -> None:
        """Send it a signal, unless it was reaped."""
        if self.popen.returncode is None:
            os.kill(self.popen.pid, number)  # Popen.send_signal() would reap it, if it has just ended

    def kill(self) -> None:
        """End it and all that it has started, unless it was reaped: its number may be another's by then."""
        if self.popen.returncode is None:
            with contextlib.suppress(PermissionError):  # as macOS calls a group of which nothing but a dead process is left
                os.killpg(self.popen.pid, signal.SIGKILL)

    def reap(self) -> int:
        """End what it has started and left behind, now that it has ended itself, and return how it did; negative for a signal."""
        self.kill()
        self.code = self.popen.wait()
        self.tally.close()
        return self.code


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"  # those for real time have no names
