"""``python -m highway.run.job FOLDER PLACE`` is the program of a replica's job. It runs on the host of the job.

The *launcher* is the process that starts and watches the processes of a run, such as ``highway run``. To *drain* a process means to end its
source and to deliver the items in flight.

When the launcher gives an order, the program starts the process of the replica. It writes news for the launcher into a shared folder. The
program ends when the launcher has ended or no longer needs the job, or when the engine stops the job.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import msgspec

import highway
from highway.images.software import software
from highway.run.folder import Claim, JobOrder, Line, RoleSoftware, RunFolder
from highway.run.launcher import LaunchSpec
from highway.run.remote import Agent, News
from highway.run.report import RoleReport
from highway.wire.rendezvous import own_address

LOOK = 0.5  # seconds between two checks of the launcher's order
TELL = 2.0  # seconds between two writes of statistics, which are also the job's sign of life; printed lines wait a tenth of this time
CHECK = 5.0  # seconds between two checks that the launcher lives
KEEP = 60.0  # seconds to wait for the first order, and for another order after a process has failed
ORPHANED = 120.0  # if the launcher gives no sign of life for this many seconds, the job ends
LEAVE = 60.0  # maximum seconds to wait for the end of the process of a job that was asked to end


class Job:
    """Runs the processes of a replica, one process at a time.

    Args:
        folder: The folder of the run.
        place: The base name of the replica's files in the folder (:func:`~highway.run.folder.place_of`).
        holder: The base name of this job's files in the folder.
        address: Address at which other hosts reach this host.
    """

    def __init__(self, folder: RunFolder, place: str, holder: str, address: str) -> None:
        self._folder, self._place, self._holder, self._address = folder, place, holder, address
        self._writer = folder.writer(holder)
        self._start = folder.claim(place).start  # if this job replaces another job, the process of that job has ended
        folder.take(place, Claim(holder, self._start))
        self._agent: Agent | None = None
        self._signals_sent = 0
        self._untold: list[News] = []
        self._told = float("-inf")
        self._heartbeat, self._heard, self._checked = b"", time.monotonic(), float("-inf")
        self._until = time.monotonic() + KEEP
        self._asked = self._leaving = self._is_draining = False

    def leave(self, *_: object) -> None:
        """Drain the process, and end the job when the process has ended. This method is a signal handler."""
        self._asked = True

    def run(self) -> None:
        """Run until the job is no longer needed."""
        due = 0.0
        try:
            while time.monotonic() < self._until and not (self._leaving and self._agent is None):
                if (now := time.monotonic()) >= due:
                    due = now + LOOK
                    self._look()
                if self._asked and not self._leaving:
                    self._leave()
                if self._agent is None:
                    self._tell()
                    time.sleep(LOOK)  # poll, because a shared folder sends no notifications
                else:
                    self._hear(self._agent.news(LOOK))
        finally:
            if self._agent is not None:
                self._agent.close()

    def _look(self) -> None:
        """Follow the launcher's order. Every :data:`CHECK` seconds, check that the launcher lives and that this job holds the replica."""
        if time.monotonic() >= self._checked + CHECK:
            self._check()
        order = self._folder.order(self._place)
        if order is None or self._leaving:
            return
        if self._agent is None and order.start > self._start:
            self._begin(order)
        if self._agent is not None and order.start == self._start:
            for number in order.signals[self._signals_sent :]:
                self._agent.signal(number)
            self._signals_sent = len(order.signals)

    def _check(self) -> None:
        self._checked = time.monotonic()
        if (heartbeat := self._folder.heartbeat()) != self._heartbeat:
            self._heartbeat, self._heard = heartbeat, self._checked
        if self._checked > self._heard + ORPHANED:
            self._asked = True
        if self._folder.claim(self._place).holder != self._holder:  # another job has replaced this job, because the launcher lost this host
            self._until = 0.0

    def _begin(self, order: JobOrder) -> None:
        self._check()
        if not self._until:
            return
        self._start, self._signals_sent, self._until, self._is_draining = order.start, 0, float("inf"), False
        self._folder.take(self._place, Claim(self._holder, order.start))
        if error := self._differs(order):
            self._hear(News(self._address, reports=[RoleReport(error=error)], code=2))
            return
        self._agent = Agent(LaunchSpec.from_json(order.spec), self._address, [f"--rendezvous=folder:{self._folder.rendezvous}"])

    def _differs(self, order: JobOrder) -> str:
        """Return a message if software on this host differs from the software of the run, otherwise an empty text."""
        if order.version != highway.__version__:
            return (
                f"{self._address} has highway {highway.__version__}, but the launching host has highway {order.version}; install the "
                f"same version on both"
            )
        role = LaunchSpec.from_json(order.spec).process.key.role
        first = self._folder.agree(role, RoleSoftware(software(), self._address))
        if first.software == software():
            return ""
        return (
            f"{self._address} has {software()}, but {first.host}, where {role} ran first, has {first.software}: the same seed would "
            f"give different batches on the two nodes; install the same software on both (`highway doctor` lists it), or select the "
            f"nodes with labels"
        )

    def _leave(self) -> None:
        self._leaving, self._until = True, time.monotonic() + LEAVE
        if self._agent is not None:
            self._agent.drain()
            news = self._agent.news(0)
            self._hear(msgspec.structs.replace(news, reports=[*news.reports, RoleReport(draining=True)]))

    def _hear(self, news: News) -> None:
        """Collect news, and write them if this is due."""
        for text, is_error in news.lines:
            print(text, file=sys.stderr if is_error else sys.stdout, flush=True)
        self._untold.append(news)
        self._is_draining |= any(report.draining for report in news.reports)
        if news.code is not None:
            # A process that was asked to end is not started again. `highway drain` asks without the launcher, so without a signal.
            is_wanted_again = news.code and not self._signals_sent and not self._is_draining
            self._until = min(self._until, time.monotonic() + (KEEP if is_wanted_again else 0.0))
            if self._agent is not None:
                self._agent.close()
                self._agent = None
        self._tell()

    def _tell(self) -> None:
        """Write the collected news or a sign of life, if due. Errors and the final report are due at once, statistics after ``TELL``."""
        reports = [report for news in self._untold for report in news.reports]
        matters = [report for report in reports if not report.stats]
        lines = [line for news in self._untold for line in news.lines]
        last = self._untold[-1] if self._untold else None
        pause = 0.0 if matters or (last and last.code is not None) else TELL / 10 if lines else TELL
        if (now := time.monotonic()) < self._told + pause:
            return
        if last is not None:
            figures = [report for report in reports if report.stats][-1:]
            last = News(last.address, lines, [*figures, *matters], last.counts, last.code)
        self._writer.tell(Line(self._start, last))
        self._untold, self._told = [], now


def main(folder: str, place: str) -> None:
    """Run the job of the replica with the base name ``place``."""
    environment = os.environ
    job = environment.get("SLURM_ARRAY_JOB_ID", environment["SLURM_JOB_ID"])
    job += f"_{environment['SLURM_ARRAY_TASK_ID']}" if "SLURM_ARRAY_TASK_ID" in environment else ""
    running = Job(RunFolder(Path(folder)), place, f"{job}.{environment.get('SLURM_RESTART_COUNT', '0')}", own_address())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, running.leave)
    running.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
