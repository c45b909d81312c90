"""A replica of a role as its launcher sees it: the process that runs now or ran last, and what it said of itself."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

import highway
from highway.cores import ONE_THREAD
from highway.stats import PipelineStats
from highway.topology.plan import End, Role
from highway.topology.process import Report
from highway.topology.restart import Restarts
from highway.topology.state import Phase, ReplicaState

_ASKED = (128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGINT, -signal.SIGTERM)  # how a process ends that was asked to


class Read(Protocol):
    """Calls a function with every line of a stream from now on."""

    def __call__(self, stream: IO[bytes], handle: Callable[[str], None], whole: bool = False) -> None:
        """Args as follow.

        Args:
            stream: What to read; it is closed at its end.
            handle: Called with each line.
            whole: Whether to leave out a last line without an end, such as one that its writer was killed over.
        """


@dataclass(eq=False)
class Process:
    """A process of a replica.

    Args:
        popen: The process.
        started: When it was, by ``time.monotonic()``.
        stats: Its last figures.
        error: What ended it, as it said.
        leaving: Whether it was asked to end.
        done: Whether it said that it has ended as it should.
        code: How it ended; negative for a signal; ``None`` while it runs, or before all that it reported was heard.
    """

    popen: subprocess.Popen[bytes]
    started: float = field(default_factory=time.monotonic)
    stats: PipelineStats | None = None
    error: str = ""
    leaving: bool = False
    done: bool = False
    code: int | None = None

    def report(self, line: str) -> None:
        """Take in what it says of itself."""
        report = Report.read(line)
        self.stats = report.stats or self.stats
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
    def failed(self) -> bool:
        """Whether it has ended, but not as it should."""
        as_it_should = (self.code == 0 and self.done) or (self.leaving and self.code in _ASKED)
        return self.code is not None and not as_it_should

    @property
    def failure(self) -> str:
        """How it ended, in words."""
        code = self.code or 0
        how = f"killed by {_signal_name(-code)}" if code < 0 else f"exit code {code}"
        return f"({how}): {self.error or 'it ended without a word'}"

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
        return self.popen.wait()


class Replica:
    """A replica of a role, in one process after the other.

    Args:
        end: Which one.
        role: Its role.
        options: The arguments of ``highway run`` that it gets besides its role and replica.
    """

    def __init__(self, end: End, role: Role, options: Sequence[str]) -> None:
        self.end, self.role = end, role
        self.phase: Phase = "starting"
        self.restarts = 0
        self._row = Restarts(role.restart)
        self.due = 0.0  # when it is started again, in the phase waiting
        self._arguments = [*options, "--role", role.name, "--replica", str(end.replica)]
        self._process: Process | None = None
        self._last: PipelineStats | None = None
        self._error = ""

    @property
    def name(self) -> str:
        """What people call it."""
        return self.state().name

    @property
    def process(self) -> Process:
        """The process that runs now or ran last."""
        assert self._process is not None, "it was not started"
        return self._process

    @property
    def is_over(self) -> bool:
        """Whether no process of it runs, and none will."""
        return self.phase in ("ended", "failed")

    def state(self) -> ReplicaState:
        """Return what is known of it now."""
        process, phase = self._process, self.phase
        stats = process.stats if process and process.stats else self._last
        if process and phase in ("starting", "running"):
            phase = "draining" if process.leaving else "running" if process.stats else "starting"
        single = self.role.replicas == 1
        return ReplicaState(self.end.role, self.end.replica, self.end.host, phase, stats, self.restarts, self._error, single)

    def start(self, read: Read, show: Callable[[str, str, bool], None]) -> None:
        """Start its process; a process group of its own keeps the terminal's Ctrl-C from it, which is passed on in order instead.

        Args:
            read: Reads its streams.
            show: Shows a line that it prints: its name, the text, and whether that is from standard error.
        """
        reading, writing = os.pipe()
        try:
            popen = subprocess.Popen(
                [sys.executable, "-P", "-m", "highway", "run", *self._arguments, "--report-to", str(writing)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[writing],
                process_group=0,
                env=environment(self.role.env),
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        if self._process:
            self.restarts += 1
            self._last = self._process.stats or self._last
        self.phase = "starting"
        process = self._process = Process(popen)
        assert popen.stdout is not None and popen.stderr is not None
        read(os.fdopen(reading, "rb"), process.report, whole=True)
        read(popen.stdout, lambda line: show(self.name, line, False))
        read(popen.stderr, lambda line: show(self.name, line, True))

    def settle(self, may_restart: bool) -> str:
        """Take note that its process has ended, and decide what follows.

        Args:
            may_restart: Whether it may be started again.

        Returns:
            What there is to say of it, without its name; empty if it just ended.
        """
        process = self.process
        process.code = process.reap()
        self._error = process.failure if process.failed else ""
        self.phase = "failed" if process.failed else "ended"
        how = f"failed {process.failure}" if process.failed else ""
        if process.leaving or not may_restart or not self._row.follow(process.failed):
            return how
        delay = self._row.delay(time.monotonic() - process.started)
        if delay is None:
            return f"{how or 'has ended'}; not started again, since restart {self._row.row} of {self.role.restart.at_most} was the last"
        self.phase, self.due = "waiting", time.monotonic() + delay
        return f"{how or 'has ended'}; started again in {delay:g} s (restart {self._row.row} of {self.role.restart.at_most})"

    def give_up(self) -> None:
        """Do not start it again."""
        if self.phase == "waiting":
            self.phase = "failed" if self.process.failed else "ended"

    def ask(self, number: int) -> None:
        """Ask its process, if one runs, to end: SIGTERM drains it, SIGINT stops it."""
        if not self.is_over and not self.process.is_over:
            self.process.leaving = True
            self.process.send(number)

    def kill(self) -> None:
        """End what is left of its process, and of all that it has started."""
        if self._process:
            self._process.reap()


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"  # those for real time have no names


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that is to import the same highway as this one, whatever lies in the current directory.

    Numerical libraries get one thread each, since the stages of a role have threads of their own; the user's environment goes before that,
    and that of the role before both.

    Args:
        own: That of the role.
    """
    home = str(Path(highway.__file__).parents[1])
    paths = [] if home == sysconfig.get_path("purelib") else [home]
    path = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**dict.fromkeys(ONE_THREAD, "1"), **os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path, **own}
