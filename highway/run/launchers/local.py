"""Start processes on this machine.

A *role* is a pipeline of a topology file. A *replica* is one of its processes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import selectors
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import highway
from highway.process import interrupt
from highway.process.cores import ONE_THREAD
from highway.process.memory import anonymous_file
from highway.run.engines import LiveEngine, Show
from highway.run.launcher import LaunchSpec
from highway.run.launchers import guard
from highway.run.preflight import preflight
from highway.run.report import RoleReport
from highway.topology.wiring import Wiring
from highway.wire.tally import Counts, Tally


def _connect(wiring: Wiring, options: argparse.Namespace, show: Show) -> LocalLauncher:
    """Return a launcher for this machine.

    Raises:
        ConfigError: a port that a process opens is in use.
    """
    preflight(wiring.ends)
    return LocalLauncher(show)


ENGINE = LiveEngine(
    name="local",
    what="processes on this machine",
    problems=lambda topology: iter(()),
    placed=lambda topology: Wiring.scaling(topology.on_this_machine()),
    connect=_connect,
)

CHUNK = 65536  # bytes to read at once: the capacity of a pipe
LONGEST = 65536  # maximum bytes of a printed line that is shown as one line
PROGRESS = 5.0  # seconds between two shown states of a progress bar
ORPHANED = 8.0  # seconds for processes to end after their launcher was killed


class LocalLauncher:
    """Starts processes on this machine: a :class:`highway.run.launcher.Launcher`.

    Args:
        show: A function that is called for each printed line. Arguments: name of the replica, text, and whether the text is from standard
            error.
        orphaned: Seconds for the started processes to end if this process is killed. After these seconds, a guard program kills the
            processes and their descendants.
        keep: After the kill, other processes can read the counts of the first process at ``counts_at`` for this many seconds.
    """

    def __init__(self, show: Show, orphaned: float = ORPHANED, keep: float = 0.0) -> None:
        self._show, self._orphaned, self._keep = show, orphaned, keep
        self.counts_at = ""
        """Path of the first process's counts. If this process was killed, :func:`highway.wire.tally.read_kept` reads the counts there."""
        self._guard: subprocess.Popen[bytes] | None = None
        self._selector = selectors.DefaultSelector()
        self._processes: list[LocalProcess] = []

    def start(self, spec: LaunchSpec) -> LocalProcess:
        """Start a process in its own process group.

        Therefore, only the launcher gets Ctrl-C from the terminal, and can stop the processes in order.
        """
        tally, handed, (reading, writing) = Tally(), anonymous_file("highway-spec"), os.pipe()
        try:
            if self._guard is None:
                self._guard = _start_guard(self._orphaned, self._keep, tally.descriptor)
                self.counts_at = f"/proc/{self._guard.pid}/fd/{tally.descriptor}"
            os.write(handed, spec.process.to_json().encode())
            os.lseek(handed, 0, os.SEEK_SET)
            descriptors = [f"--report-to={writing}", f"--count-in={tally.descriptor}", f"--spec-from={handed}"]
            with interrupt.Withheld():
                popen = subprocess.Popen(
                    [sys.executable, "-P", "-m", "highway", "run", *spec.arguments, *descriptors],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=[writing, tally.descriptor, handed],
                    process_group=0,
                    env=environment(spec.process.env),
                )
        except BaseException:
            os.close(reading)
            tally.close()
            raise
        finally:
            os.close(writing)
            os.close(handed)
        reports = _Lines(self._selector, os.fdopen(reading, "rb"), whole_only=True)
        assert popen.stdout is not None and popen.stderr is not None
        _Lines(self._selector, popen.stdout, lambda line: self._show(spec.name, line, False))
        _Lines(self._selector, popen.stderr, lambda line: self._show(spec.name, line, True))
        process = LocalProcess(popen, tally, spec.process.address, reports, self._tell_guard)
        self._tell_guard(f"+{popen.pid}")
        self._processes = [*(other for other in self._processes if other.popen.returncode is None), process]
        return process

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` until a process prints, reports or ends. Return whether this has happened."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            key.data.read()
        return bool(ready)

    def close(self) -> None:
        """Kill all processes of this launcher and all processes that these have started, and close all pipes."""
        for process in self._processes:
            process.reap()
        for key in list(self._selector.get_map().values()):
            key.data.close()
        self._selector.close()
        if self._guard is not None:
            assert self._guard.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.close()
            self._guard.wait()

    def _tell_guard(self, line: str) -> None:
        assert self._guard is not None and self._guard.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the guard program was killed
            self._guard.stdin.write(f"{line}\n".encode())


class LocalProcess:
    """A process on this machine, in its own process group: a :class:`highway.run.launcher.Handle`."""

    is_lost = False  # launcher and process share the memory of the counts, so the counts are always exact

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        tally: Tally,
        address: str = "",
        reports: _Lines | None = None,
        tell_guard: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.popen, self.address = popen, address
        self._tally, self._reports, self._tell_guard = tally, reports, tell_guard

    def poll(self) -> int | None:
        """Return the exit code; ``None`` while the process runs. If the process has ended, kill the processes that it has started."""
        if self.popen.returncode is None and self._has_ended():
            self.reap()
        return self.popen.returncode

    def signal(self, number: int) -> None:
        """Send a signal, but not to a reaped process, whose PID can be reused. SIGKILL also kills the processes that it has started."""
        if self.popen.returncode is None and number != signal.SIGKILL:
            os.kill(self.popen.pid, number)  # Popen.send_signal() would reap a process that has just ended
        elif self.popen.returncode is None:
            with contextlib.suppress(PermissionError):  # macOS raises PermissionError if all processes of the group are dead
                os.killpg(self.popen.pid, signal.SIGKILL)

    def reports(self) -> Sequence[RoleReport]:
        """Return the reports of the process since the last call."""
        if self._reports is None:
            return []
        if self.popen.returncode is not None:
            self._reports.read()
        return [RoleReport.read(line) for line in self._reports.take()]

    def counts(self) -> Counts:
        """Return the numbers of messages that the process received and sent over links."""
        return self._tally.read()

    def reap(self) -> None:
        """Kill the process if it runs, and all processes that it has started."""
        self.signal(signal.SIGKILL)
        if self.popen.returncode is None:
            self._tell_guard(f"-{self.popen.pid}")  # before wait(), after which a new process can get this PID
            self.popen.wait()
        self._tally.close()

    def _has_ended(self) -> bool:
        """Return whether the process has ended. Do not reap it, because the PID and process group of a reaped process can be reused."""
        if not hasattr(os, "waitid"):  # on macOS, Python has waitid() since version 3.13
            return self.popen.poll() is not None
        return os.waitid(os.P_PID, self.popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _start_guard(seconds: float, keep: float, kept: int) -> subprocess.Popen[bytes]:
    """Start the guard program, which kills all started processes if this process is killed. It gets no Ctrl-C, as it has a new session."""
    command = [sys.executable, "-I", "-S", guard.__file__, str(seconds), str(keep)]
    null = subprocess.DEVNULL
    with interrupt.Withheld():
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=null, stderr=null, bufsize=0, start_new_session=True, pass_fds=[kept]
        )


class _Lines:
    """Reads the lines of a stream. Passes each line to ``handle``, or keeps the line for :meth:`take`. Closes the stream at its end.

    Text before a carriage return is dropped, because a terminal would overwrite this text. The state of a progress bar is passed on every
    ``PROGRESS`` seconds. A line of more than ``LONGEST`` bytes becomes several lines.

    ``whole_only`` is for JSON. Complete lines are then passed on unchanged. If a killed writer has left an incomplete last line, this line
    is dropped.
    """

    def __init__(
        self, selector: selectors.BaseSelector, stream: IO[bytes], handle: Callable[[str], None] | None = None, whole_only: bool = False
    ) -> None:
        os.set_blocking(stream.fileno(), False)
        selector.register(stream, selectors.EVENT_READ, self)
        self._selector, self._stream, self._whole_only = selector, stream, whole_only
        self._kept: list[str] = []
        self._handle = handle or self._kept.append
        self._rest = b""  # bytes of an unterminated line
        self._is_split = False  # whether the beginning of the unterminated line was passed on
        self._shown = time.monotonic()

    def take(self) -> list[str]:
        """Return the kept lines."""
        taken = list(self._kept)
        self._kept.clear()
        return taken

    def read(self) -> None:
        """Handle all available data."""
        if self._stream.closed:
            return
        try:
            data = os.read(self._stream.fileno(), CHUNK)
        except BlockingIOError:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines and self._is_split:
            self._is_split = False
            lines = lines if lines[0] else lines[1:]
        if not data:
            self.close()
            lines += [self._rest] if self._rest and not self._whole_only else []
        for line in lines:
            self._show(line)
        if data and not self._whole_only:
            self._shorten()

    def close(self) -> None:
        """Close the stream."""
        self._selector.unregister(self._stream)
        self._stream.close()

    def _show(self, line: bytes) -> None:
        self._shown = time.monotonic()
        self._handle((line if self._whole_only else _last_state(line)).decode(errors="replace"))

    def _shorten(self) -> None:
        """Keep only the last state of a progress bar in the unterminated line."""
        before, returned, rest = self._rest.rpartition(b"\r")
        if len(rest) > LONGEST:
            self._show(rest)
            self._rest, self._is_split = b"", True
        elif returned and time.monotonic() >= self._shown + PROGRESS:
            self._show(before)
            self._rest = rest
        elif returned:
            self._rest = _last_state(before)[:LONGEST] + returned + rest


def _last_state(line: bytes) -> bytes:
    """Return the text that a terminal shows of a line: the text after the last carriage return that is not at the end of the line."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which a process imports the same highway as this process, from any current directory.

    In this environment, each numerical library uses one thread, because the stages of a role have their own threads. Variables of this
    process override this setting. The variables in ``own``, which the file sets for the role, override both.
    """
    home = str(Path(highway.__file__).parents[1])
    paths = [] if home == sysconfig.get_path("purelib") else [home]
    path = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**dict.fromkeys(ONE_THREAD, "1"), **os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path, **own}
