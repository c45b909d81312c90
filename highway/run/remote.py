"""A process on a host that an engine has chosen: :class:`Agent` runs the process on its host, and sends news to the launcher.

The *launcher* is the process that starts and watches the processes of a run, such as ``highway run``.

:class:`RemoteProcess` represents the process in the launcher. Depending on the engine, :class:`News` travels as JSON in files or as Python
objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from highway.run.control import find
from highway.run.launcher import LaunchSpec
from highway.run.launchers.local import LocalLauncher
from highway.run.report import RoleReport
from highway.wire.address import peer_process
from highway.wire.tally import Counts

KEEP = 60.0  # after an agent was killed, the counts of its process can be read for this many seconds


class News(msgspec.Struct, frozen=True):
    """The output, reports and counts of a process since the previous news.

    Args:
        address: Address at which other hosts reach the host of the process.
        lines: The output: for each line, the text and whether it is from standard error.
        reports: The reports of the process.
        counts: The numbers of messages that the process received and sent over links.
        code: The exit code, or the negative number of the signal that ended the process; ``None`` while the process runs.
        counts_at: Path of the counts on the process's host. If the agent is killed, :func:`highway.wire.tally.read_kept` can read the
            counts there.
    """

    address: str
    lines: list[tuple[str, bool]] = []
    reports: list[RoleReport] = []
    counts: Counts = Counts()
    code: int | None = None
    counts_at: str = ""

    def to_json(self) -> bytes:
        """Return the news as a line of JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, line: bytes | str) -> News:
        """Return the news from a line of :meth:`to_json`."""
        return msgspec.json.decode(line, type=cls)


class Agent:
    """Runs a process on this host, which an engine has chosen, and returns news of the process.

    Args:
        spec: The process to run.
        address: Address at which other hosts reach this host.
        arguments: Further arguments of ``highway run``.
        keep: After this agent was killed, the counts of the process can be read for this many seconds.
    """

    def __init__(self, spec: LaunchSpec, address: str, arguments: Sequence[str] = (), keep: float = 0.0) -> None:
        self.address = address
        self._lines: list[tuple[str, bool]] = []
        self._launcher = LocalLauncher(lambda _, text, is_error: self._lines.append((text, is_error)), orphaned=0.0, keep=keep)
        self._key = spec.process.key
        own = [f"--address={address}", "--end-with-launcher"]
        self._process = self._launcher.start(replace(spec, arguments=[*spec.arguments, *own, *arguments]))

    def news(self, seconds: float) -> News:
        """Wait at most ``seconds`` for an event of the process, and return the news."""
        self._launcher.wait(seconds)
        code = self._process.poll()
        while code is not None and self._launcher.wait(0):  # read the last output of the process
            pass
        lines, self._lines = self._lines, []
        return News(self.address, lines, [*self._process.reports()], self._process.counts(), code, self._launcher.counts_at)

    def signal(self, number: int) -> None:
        """Send the process a signal; see :meth:`highway.run.launcher.Handle.signal`."""
        self._process.signal(number)

    def drain(self) -> None:
        """Drain the process through :mod:`highway.run.control`. Later calls have no effect."""
        for found in find(self._key):
            with found.connection:
                if peer_process(found.connection)[0] == self._process.popen.pid:
                    found.ask()

    def close(self) -> None:
        """Kill the process and all processes that it has started."""
        self._launcher.close()


class RemoteProcess:
    """A process on another host: a :class:`highway.run.launcher.Handle`.

    Args:
        name: The name of the process's replica.
        show: As for :class:`~highway.run.launchers.local.LocalLauncher`.
        ask: Function that sends the process a signal.
    """

    def __init__(self, name: str, show: Callable[[str, str, bool], None], ask: Callable[[int], None]) -> None:
        self.name, self.address, self.counts_at = name, "", ""
        self._show, self._ask = show, ask
        self._reports: list[RoleReport] = []
        self._counts = Counts()
        self._code: int | None = None
        self.is_lost = False

    def hear(self, news: News) -> None:
        """Handle news of the process."""
        self.address, self.counts_at, self._counts, self._code = news.address, news.counts_at, news.counts, news.code
        for report in news.reports:
            on = f" (on {news.address})" if report.error and news.address not in report.error else ""
            self._reports.append(report._replace(error=report.error + on))
        for text, is_error in news.lines:
            self._show(self.name, text, is_error)

    def lose(self, why: str, code: int = -9, counts: Counts | None = None) -> None:
        """Record that no more news will come, because the process or its host is gone or cannot be reached.

        ``counts`` are the final counts of the process, if its host can still report them."""
        if self._code is None:
            self._code, self.is_lost = code, counts is None
            self._counts = counts or self._counts
            self._reports.append(RoleReport(error=why))

    def poll(self) -> int | None:
        """Return the exit code if the process has ended, otherwise ``None``."""
        return self._code

    def signal(self, number: int) -> None:
        """If the process runs, send it a signal."""
        if self._code is None:
            self._ask(number)

    def reports(self) -> Sequence[RoleReport]:
        """Return the reports of the process since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def counts(self) -> Counts:
        """Return the numbers of messages that the process received and sent over links, from the last news."""
        return self._counts
