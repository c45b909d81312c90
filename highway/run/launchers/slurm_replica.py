"""A replica on Slurm: its process, the order for its job, and the job's ID."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Collection

import msgspec

import highway
from highway.errors import ConfigError
from highway.run.engines import Show
from highway.run.folder import JobOrder, NewsReader, RunFolder, newest, place_of
from highway.run.launcher import LaunchSpec
from highway.run.launchers.slurm_jobs import RUNS, WAITS, JobState, begin, call
from highway.run.remote import News, RemoteProcess
from highway.run.report import RoleReport
from highway.topology.plan import Role

SILENCE = 60.0  # maximum seconds without news of a running job
PATIENCE = 15.0  # seconds before a message with the reason why a job waits


class ReplicaJob:
    """A replica, and the job that runs its processes.

    Args:
        folder: The folder of the run.
        role: The role.
        replica: The number.
        show: As for :class:`~highway.run.launchers.local.LocalLauncher`.

    Attributes:
        id: Slurm's ID of the job; empty if there is no job.
        cancelled: IDs of the jobs that were cancelled.
        process: The current or last process.
    """

    def __init__(self, folder: RunFolder, role: Role, replica: int, show: Show) -> None:
        self.role, self.replica, self.name, self.id = role, replica, place_of(role.name, replica), ""
        self.process = RemoteProcess("", show, self._ask)
        self._folder, self._show = folder, show
        self.cancelled: list[str] = []
        self._order: JobOrder | None = None
        self._holder = ""  # the job and how often it was queued
        self._reader: NewsReader | None = None  # its news
        self._unjudged: list[News] = []  # news since Slurm has asked the job to end, until Slurm reports its state
        self._begun = False  # whether the process has sent news
        self._heard: float | None = None  # when the job last sent news, or was seen running
        self._since: float | None = None  # when it began to wait; None after the reason was shown

    @property
    def runs(self) -> bool:
        """Whether its process runs, or will be started."""
        return self.process.poll() is None

    def start(self, spec: LaunchSpec) -> RemoteProcess:
        """Start a process in its job, as soon as the job exists."""
        self.process = RemoteProcess(spec.name, self._show, self._ask)
        self._begun, self._since = False, time.monotonic()
        self._want(JobOrder(self._order.start + 1 if self._order else 1, spec.to_json(), [], highway.__version__))
        return self.process

    def submitted(self, job: str) -> None:
        """Record the ID of the replica's job."""
        self.id, self._holder, self._reader, self._heard = job, "", None, None

    def hear(self, holders: Collection[str]) -> bool:
        """Read the news of its job, if the job is among ``holders``; return whether there was news."""
        if (holder := newest(holders, self.id)) not in ("", self._holder):
            if self._begun:
                self._lose("its job was queued again, since its node failed or others go before")
                self._unjudged = []
            self._holder, self._reader = holder, self._folder.reader(holder)
        happened = False
        for line in self._reader.hear() if self._reader else ():
            self._heard = time.monotonic()
            if self._order and line.start == self._order.start and line.news is not None:
                happened = self._begun = True
                if self._unjudged or any(report.draining for report in line.news.reports):
                    self._unjudged.append(line.news)
                else:
                    self.process.hear(line.news)
        return happened

    def judge(self, state: JobState) -> None:
        """React to the state of its job."""
        now, where = time.monotonic(), f"job {self.id}{f' on {state.nodes}' if state.nodes else ''}"
        again = f"{where} was queued again, since its node failed or others go before"
        if state.what != RUNS:
            for news in self._unjudged:
                self.process.hear(news if state.what != WAITS else _undrained(news, again))
            self._unjudged = []
        if state.what == WAITS:
            if self._begun:
                self._lose(again)
                with contextlib.suppress(ConfigError):  # Slurm delays it for two minutes; this fails if users may not change that
                    begin(self.id)
            elif self.runs and self._since is not None and now > self._since + PATIENCE:
                self._since = None
                self._show(self.process.name, f"waits in Slurm's queue as job {self.id} ({state.reason})", True)
        elif state.what == RUNS:
            self._heard = self._heard or now
            if self.runs and now > self._heard + SILENCE:
                self._lose(f"{where} has told nothing for {SILENCE:g} s{'' if self._reader else self._unseen}")
                self.cancel()
        else:
            self.id, was_there = "", self._reader is not None
            if state.name == "COMPLETED" and was_there and not self._begun:
                return  # the job had ended before it saw the order to start the process again: another job is submitted
            if state.name == "CANCELLED" and self.runs:  # a user wants it to end: it is not started again
                self.process.hear(News(self.process.address, reports=[RoleReport(draining=True)], counts=self.process.counts()))
            self._lose(f"{where} {state.what}{'' if was_there else self._unseen}", -signal.SIGTERM if state.name == "CANCELLED" else -9)

    def cancel(self) -> None:
        """Cancel its job."""
        with contextlib.suppress(ConfigError):  # it has ended, or Slurm does not answer: close() of the launcher checks again
            if self.id:
                call(["scancel", self.id])
        self.cancelled, self.id = [*self.cancelled, *filter(None, [self.id])], ""

    @property
    def _unseen(self) -> str:
        """The message about a job that has never sent news."""
        return f" and was never heard of: does its node see {self._folder.path}? It logs to {self._folder.logs / self.name}.log"

    def _want(self, order: JobOrder) -> None:
        self._order = order
        self._folder.want(self.name, order)

    def _lose(self, why: str, code: int = -9) -> None:
        self._begun = False
        self.process.lose(why, code)

    def _ask(self, number: int) -> None:
        """Send the process a signal; if it has not begun, or does not end after SIGKILL, cancel its job."""
        assert self._order is not None, "it was not started"
        if not self._begun or signal.SIGKILL in self._order.signals:
            self.cancel()
            self._lose("it does not answer" if self._begun else "it had not begun", -number)
        else:
            self._want(msgspec.structs.replace(self._order, signals=[*self._order.signals, number]))


def _undrained(news: News, why: str) -> News:
    """Return news of a process that was asked to end, but will be started again."""
    return msgspec.structs.replace(news, reports=[*(report for report in news.reports if not report.draining), RoleReport(error=why)])
