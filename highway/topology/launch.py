"""Every role of a topology in a process of its own on this machine, watched until the last one has ended."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Protocol, cast

import highway
from highway.components import built_in
from highway.stats import PipelineStats
from highway.topology.model import Topology
from highway.topology.plan import End, Role
from highway.topology.process import Report

GRACE = 3.0  # seconds that the other roles may take to end by themselves when the last sink has ended
PATIENCE = 8.0  # seconds that a process may take to end when it is asked to; a pipeline's own stop() takes 5 at most
TICK = 0.25


class Screen(Protocol):
    """Where the launcher shows what goes on."""

    def line(self, name: str, text: str, is_error: bool) -> None:
        """Show a line that the process ``name`` printed."""

    def update(self, stats: Mapping[str, PipelineStats]) -> None:
        """Show the figures of all processes, some times per second."""


@dataclass(eq=False)
class Process:
    """A replica of a role, as its launcher sees it."""

    name: str
    role: str
    popen: subprocess.Popen[bytes]
    stats: PipelineStats | None = None
    error: str = ""
    done: bool = False
    code: int | None = None  # negative for a signal; None while it runs, or before all that it reported was heard

    @property
    def failed(self) -> bool:
        """Whether it has ended, but not as it should."""
        return self.code is not None and not (self.code == 0 and self.done)

    @property
    def failure(self) -> str:
        """How it ended, in words."""
        code = self.code or 0
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"{self.name} failed ({how}): {self.error or 'it ended without a word'}"

    def signal(self, number: int) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(number)

    def kill(self) -> None:
        """End the process and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)


@dataclass
class Result:
    """How a launch ended.

    Args:
        code: 0 if all went well, 1 if a role failed, 128 and the signal's number if a signal ended it.
        message: What failed, in words; empty if nothing did.
        stats: The last figures of each process.
    """

    code: int
    message: str
    stats: Mapping[str, PipelineStats]


def launch(topology: Topology, ends: Sequence[End], options: Sequence[str], screen: Screen) -> Result:
    """Run processes of a topology on this machine until they have ended, and leave none behind.

    It ends when the sinks end: once the last role that sends nothing on over a link has ended, the others get some seconds to end by
    themselves and are then stopped. If one fails, the others are stopped. SIGINT and SIGTERM stop all; a second one kills them.

    Args:
        topology: A topology without errors.
        ends: The processes.
        options: The arguments of ``highway run`` that each process gets besides its role and replica.
        screen: Shows what they print, and their figures.
    """
    watch = _Watch(screen)
    sinks = {end.role for end in ends if not _sends(topology, end)}
    try:
        with watch.signals():
            for end in ends:
                role = topology.roles[end.role]
                name = role.name if role.replicas == 1 else f"{role.name}[{end.replica}]"
                watch.start(name, role, [*options, "--role", role.name, "--replica", str(end.replica)])
            return watch.until_the_end(sinks)
    finally:
        watch.close()


def _sends(topology: Topology, end: End) -> bool:
    """Say whether a process ends in a link to another one."""
    return isinstance(topology.stages(end.role, end.replica)[-1].op, built_in("highway.modules")["ZMQSink"])


@dataclass
class _Watch:
    screen: Screen
    processes: list[Process] = field(default_factory=list)
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    heard: list[int] = field(default_factory=list)
    code: int = 0
    message: str = ""
    deadline: float | None = None
    stopping: bool = False

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Note SIGINT and SIGTERM instead of being ended by them."""

        def note(number: int, frame: FrameType | None) -> None:
            self.heard.append(number)

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def start(self, name: str, role: Role, arguments: list[str]) -> None:
        """Start one process; a process group of its own keeps the terminal's Ctrl-C from it, which is passed on in order instead."""
        reading, writing = os.pipe()
        try:
            popen = subprocess.Popen(
                [sys.executable, "-P", "-m", "highway", "run", *arguments, "--report-to", str(writing)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[writing],
                process_group=0,
                env=_environment(role.env),
            )
        finally:
            os.close(writing)
        process = Process(name, role.name, popen)
        self.processes.append(process)
        self._read(os.fdopen(reading, "rb"), lambda line: self._report(process, line))
        self._read(popen.stdout, lambda line: self.screen.line(name, line, False))
        self._read(popen.stderr, lambda line: self.screen.line(name, line, True))

    def until_the_end(self, sinks: set[str]) -> Result:
        while any(process.code is None for process in self.processes):
            self._hear()
            gone = [process for process in self.processes if process.popen.poll() is not None]
            self._listen(TICK)
            for process in gone:
                process.code = process.popen.returncode
            self._judge(sinks)
            self.screen.update(self._stats())
        for process in self.processes:
            process.kill()  # what it has started and left behind
        while self._listen(0):
            pass
        return Result(self.code, self.message, self._stats())

    def _listen(self, seconds: float) -> bool:
        """Take in what the processes have written, and say whether there was any."""
        ready = self.selector.select(seconds) if self.selector.get_map() else []
        for key, _ in ready:
            key.data(key.fileobj)
        return bool(ready)

    def _judge(self, sinks: set[str]) -> None:
        """Decide from what has ended whether the rest has to."""
        failed = next((process for process in self.processes if process.failed), None)
        if failed and not self.stopping:
            self.code, self.message = 1, failed.failure
            self._stop(signal.SIGTERM)
        ended = all(process.code is not None for process in self.processes if process.role in sinks)
        if ended and sinks and not self.stopping and self.deadline is None:
            self.deadline = time.monotonic() + GRACE
        if self.deadline is not None and time.monotonic() > self.deadline:
            if self.stopping:
                self._kill()
            else:
                self._stop(signal.SIGTERM)

    def _hear(self) -> None:
        while self.heard:
            number = self.heard.pop(0)
            if self.stopping:
                self._kill()
            else:
                self.code, self.message = 128 + number, "interrupted" if number == signal.SIGINT else "terminated"
                self._stop(number)

    def _stop(self, number: int) -> None:
        self.stopping, self.deadline = True, time.monotonic() + PATIENCE
        for process in self.processes:
            process.signal(number)

    def _kill(self) -> None:
        for process in self.processes:
            if process.code is None:
                self.screen.line(process.name, "does not end; it is killed", True)
                process.kill()

    def close(self) -> None:
        """Leave nothing behind: no process, none that one of them started, no open pipe."""
        for process in self.processes:
            process.kill()
            process.popen.wait()
        for key in list(self.selector.get_map().values()):
            self._forget(cast(IO[bytes], key.fileobj))
        self.selector.close()

    def _forget(self, stream: IO[bytes]) -> None:
        self.selector.unregister(stream)
        stream.close()

    def _read(self, stream: IO[bytes] | None, handle: Callable[[str], None]) -> None:
        """Call ``handle`` with every line of a stream."""
        assert stream is not None
        os.set_blocking(stream.fileno(), False)
        rest = b""

        def ready(stream: IO[bytes]) -> None:
            nonlocal rest
            data = os.read(stream.fileno(), 65536)
            *lines, rest = (rest + data).split(b"\n")
            if not data:
                self._forget(stream)
                lines += [rest] if rest else []
            for line in lines:
                handle(line.decode(errors="replace"))

        self.selector.register(stream, selectors.EVENT_READ, ready)

    def _report(self, process: Process, line: str) -> None:
        report = Report.read(line)
        process.stats = report.stats or process.stats
        process.error = report.error or process.error
        process.done = process.done or report.done

    def _stats(self) -> dict[str, PipelineStats]:
        return {process.name: process.stats for process in self.processes if process.stats}


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that is to import the same highway as this one, whatever lies in the current directory."""
    home = str(Path(highway.__file__).parents[1])
    paths = [] if home == sysconfig.get_path("purelib") else [home]
    path = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path, **own}
