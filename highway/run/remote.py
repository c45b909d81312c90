"""A process on another host, where an engine has brought it: who runs it there tells, and who has launched it hears.

Between them goes :class:`News`, however the engine carries it: as JSON in files, or as it is.
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

KEEP = 60.0  # seconds for which the counts of a process can be read after its agent was killed


class News(msgspec.Struct, frozen=True):
    """What there is to tell of a process since the last time.

    Args:
        address: Where others reach its host.
        lines: What it has printed: texts, and whether they are from standard error.
        reports: What it has reported.
        counts: What it has received and sent over links.
        code: Its exit code, or minus the signal that ended it; ``None`` while it runs.
        counts_at: Where ``counts`` are on that host if whoever tells this is killed: for :func:`highway.wire.tally.read_kept`.
    """

    address: str
    lines: list[tuple[str, bool]] = []
    reports: list[RoleReport] = []
    counts: Counts = Counts()
    code: int | None = None
    counts_at: str = ""

    def to_json(self) -> bytes:
        """Return it in a line."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, line: bytes | str) -> News:
        """Read it back."""
        return msgspec.json.decode(line, type=cls)


class Agent:
    """Runs a process on the host that an engine has chosen for this one, and tells of it.

    Args:
        spec: What to run.
        address: Where others reach this host.
        arguments: More of those of ``highway run``.
    """

    def __init__(self, spec: LaunchSpec, address: str, arguments: Sequence[str] = ()) -> None:
        self.address = address
        self._lines: list[tuple[str, bool]] = []
        self._launcher = LocalLauncher(lambda _, text, is_error: self._lines.append((text, is_error)), orphaned=0.0, keep=KEEP)
        self._key = spec.process.key
        own = [f"--address={address}", "--end-with-launcher"]
        self._process = self._launcher.start(replace(spec, arguments=[*spec.arguments, *own, *arguments]))

    def news(self, seconds: float) -> News:
        """Wait until the process does something, or so long, and return what there is to tell."""
        self._launcher.wait(seconds)
        code = self._process.poll()
        while code is not None and self._launcher.wait(0):  # what it has printed last
            pass
        lines, self._lines = self._lines, []
        return News(self.address, lines, [*self._process.reports()], self._process.counts(), code, self._launcher.counts_at)

    def signal(self, number: int) -> None:
        """Send the process a signal, as :meth:`highway.run.launcher.Handle.signal`."""
        self._process.signal(number)

    def drain(self) -> None:
        """Have the process drained, as :mod:`highway.run.control` does it: who else asks it to does no harm, in whatever way."""
        for found in find(self._key):
            with found.connection:
                if peer_process(found.connection)[0] == self._process.popen.pid:
                    found.ask()

    def close(self) -> None:
        """End the process and all that it has started."""
        self._launcher.close()


class RemoteProcess:
    """A process on another host: a :class:`highway.run.launcher.Handle`.

    Args:
        name: That of its replica.
        show: As for :class:`~highway.run.launchers.local.LocalLauncher`.
        ask: Has a signal sent to it.
    """

    def __init__(self, name: str, show: Callable[[str, str, bool], None], ask: Callable[[int], None]) -> None:
        self.name, self.address, self.counts_at = name, "", ""
        self._show, self._ask = show, ask
        self._reports: list[RoleReport] = []
        self._counts = Counts()
        self._code: int | None = None
        self.is_lost = False

    def hear(self, news: News) -> None:
        """Take in what is told of it."""
        self.address, self.counts_at, self._counts, self._code = news.address, news.counts_at, news.counts, news.code
        for report in news.reports:
            on = f" (on {news.address})" if report.error and news.address not in report.error else ""
            self._reports.append(report._replace(error=report.error + on))
        for text, is_error in news.lines:
            self._show(self.name, text, is_error)

    def lose(self, why: str, code: int = -9, counts: Counts | None = None) -> None:
        """Take note that the engine has lost it, with its host or by itself: nothing more is heard of it.

        ``counts`` are those that it had in the end, if its host is still there to tell them.
        """
        if self._code is None:
            self._code, self.is_lost = code, counts is None
            self._counts = counts or self._counts
            self._reports.append(RoleReport(error=why))

    def poll(self) -> int | None:
        """Return how it ended, if it has."""
        return self._code

    def signal(self, number: int) -> None:
        """Have a signal sent to it, if it runs."""
        if self._code is None:
            self._ask(number)

    def reports(self) -> Sequence[RoleReport]:
        """Return what it has reported since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def counts(self) -> Counts:
        """Return what it had received and sent over links when it was last heard of."""
        return self._counts
