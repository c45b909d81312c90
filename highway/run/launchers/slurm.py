"""Start processes in jobs of Slurm: a job array for each role with several replicas, and a job for each other role.

The *launcher* is the process that starts and watches the processes of a run, such as ``highway run``. A *role* is a pipeline of a topology
file. A *replica* is one of its processes.

A job runs :mod:`highway.run.job`. This program starts the process of a replica, and exchanges files with the launcher in the folder of the
run. If the process ends and is restarted, the new process runs on the same node, and does not wait in the queue. If a node fails, Slurm
requeues the job, and the replica's next process runs on the new node.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
import shutil
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

import highway
from highway.errors import ConfigError
from highway.parameters.location import did_you_mean
from highway.run.engines import LiveEngine, Option, Show
from highway.run.folder import JobOrder, NewsReader, RunFolder, newest, place_of
from highway.run.launcher import LaunchSpec
from highway.run.launchers.slurm_jobs import LATER, OPTIONS, PREFIX, RUNS, WAITS, JobState, begin, call, job_states, script, submission
from highway.run.remote import News, RemoteProcess
from highway.run.report import RoleReport
from highway.topology import Topology
from highway.topology.apart import problems_apart
from highway.topology.plan import Role
from highway.topology.wiring import Wiring

LOOK = 0.3  # seconds between two reads of the jobs' news
ASK = 3.0  # seconds between two queries to Slurm
BEAT = 5.0  # seconds between two signs of life that the launcher writes for the jobs
END = 60.0  # maximum seconds for jobs to end; by default (KillWait), Slurm kills a job after 30 s


def _problems(topology: Topology) -> Iterator[ConfigError]:
    """Yield an error for each link that needs a common host, and for each label that is not a feature or an option of sbatch."""
    yield from problems_apart(topology)
    for role in topology.roles.values():
        for name, value in role.resources.labels.items():
            location = topology.plan.location / "roles" / role.name / "resources" / "labels" / name
            option = name.removeprefix(PREFIX)
            if option != name and option not in OPTIONS:
                yield location.error(f"expected one of {', '.join(OPTIONS)} after {PREFIX}{did_you_mean(option, OPTIONS)}")
            if not value.isprintable():
                yield location.error(
                    f"{value!r} cannot be part of a Slurm script, because it contains a line break or another control character"
                )
            elif option == name and not re.fullmatch(r"[\w.+-]+", value):
                yield location.error(f"{value!r} is not a feature of a node; expected a word, such as a100")


def _connect(wiring: Wiring, options: argparse.Namespace, show: Show) -> SlurmLauncher:
    """Return a launcher that submits jobs.

    Raises:
        ConfigError: Slurm is not installed or does not answer, or the folder already exists or cannot be created.
    """
    for command in ("sbatch", "squeue", "scancel", "scontrol"):
        if shutil.which(command) is None:
            raise ConfigError(f"--on slurm: this host does not have the command {command}; launch from a host that has Slurm's commands")
    folder = RunFolder(_path(wiring, options))
    try:
        job_states()
    except ConfigError as error:
        raise ConfigError(f"--on slurm: {error}; launch from a host of the cluster, where `sinfo` answers") from None
    try:
        folder.make()
    except OSError as error:
        is_old = isinstance(error, FileExistsError)
        why = "already exists, but a run needs a new folder" if is_old else f"cannot be created ({error.strerror})"
        raise ConfigError(f"--folder {folder.path} {why}") from None
    return SlurmLauncher(wiring.topology, folder, show)


def _preview(wiring: Wiring, options: argparse.Namespace) -> Mapping[str, str]:
    """Return the scripts of the jobs. The keys are the commands that would submit the jobs."""
    folder = RunFolder(_path(wiring, options))
    roles = [wiring.topology.roles[name] for name in dict.fromkeys(process.role for process in wiring.processes)]
    return {shlex.join(submission(folder, role, range(role.replicas))): script(folder, role) for role in roles}


def _path(wiring: Wiring, options: argparse.Namespace) -> Path:
    default = Path("highway-runs", f"{wiring.topology.plan.name}-{time.strftime('%Y%m%d-%H%M%S')}")
    path = Path(options.folder or default).absolute()
    for name, where in (("the current directory", Path.cwd()), ("--folder", path)):
        if not str(where).isprintable():
            raise ConfigError(
                f"{name} {str(where)!r} cannot be part of a Slurm script, because it contains a line break or another control character"
            )
    return path


ENGINE = LiveEngine(
    name="slurm",
    what="jobs of Slurm",
    problems=_problems,
    connect=_connect,
    preview=_preview,
    options=[
        Option("folder", {"metavar": "DIR", "type": Path, "help": "a new folder of the run that all hosts see (default: in highway-runs)"})
    ],
)


class SlurmLauncher:
    """Starts processes in jobs of Slurm: a :class:`highway.run.launcher.Launcher`. The first :meth:`wait` submits the jobs.

    Args:
        topology: The topology of the processes.
        folder: The folder of the run, which all hosts see.
        show: As for :class:`~highway.run.launchers.local.LocalLauncher`.
    """

    def __init__(self, topology: Topology, folder: RunFolder, show: Show) -> None:
        self._topology, self._folder, self._show = topology, folder, show
        self._jobs: dict[str, ReplicaJob] = {}
        self._look_due = self._ask_due = self._beat_due = float("-inf")
        self._beats = 0
        self._is_begun = self._is_told = False

    def start(self, spec: LaunchSpec) -> RemoteProcess:
        """Start a process in the job of its replica, or in a job that the next :meth:`wait` submits."""
        key, replica = spec.process.key, spec.process.replica
        name = place_of(key.role, replica)
        if name not in self._jobs:
            self._jobs[name] = ReplicaJob(self._folder, self._topology.roles[key.role], replica, self._show)
        return self._jobs[name].start(spec)

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds``, and read the folder of the run if this is due.

        Returns:
            Whether a job has sent news, or a process has ended.

        Raises:
            ConfigError: Slurm refuses a job at the beginning. The error has Slurm's message.
        """
        self._submit()
        until = time.monotonic() + seconds
        if self._look_due > until:
            time.sleep(max(0.0, until - time.monotonic()))
            return False
        time.sleep(max(0.0, self._look_due - time.monotonic()))
        self._look_due = (now := time.monotonic()) + LOOK
        if now >= self._beat_due:
            self._beat_due, self._beats = now + BEAT, self._beats + 1
            self._folder.beat(self._beats)
        happened = self._hear()
        if now >= self._ask_due:
            self._ask_due = now + ASK
            happened |= self._look_at_jobs()
        return happened

    def close(self) -> None:
        """End all jobs, and wait until they have ended."""
        left, asked, why = {id for job in self._jobs.values() for id in (job.id, *job.cancelled) if id}, False, ""
        deadline = time.monotonic() + END
        while left and time.monotonic() < deadline:
            try:
                states = job_states()
                left = {job for job in left if states.get(job, JobState()).what in (WAITS, RUNS)}
                if left and not asked:
                    call(["scancel", *sorted(left)])
                    asked = True
            except ConfigError as error:  # such as: a job has just ended; the next query shows whether jobs are left
                why = f" ({error})"
            time.sleep(LOOK if left else 0)  # poll, because Slurm does not signal the end of a job
        if left:
            self._say(
                f"Slurm has not ended the jobs {', '.join(sorted(left))} within {END:g} s{why}; `squeue` lists the jobs, "
                f"`scancel` ends them"
            )

    def _submit(self) -> None:
        """Submit jobs for the processes that have no job."""
        roles: dict[str, list[ReplicaJob]] = {}
        for job in self._jobs.values():
            if job.runs and not job.id:
                roles.setdefault(job.role.name, []).append(job)
        later = [] if self._is_begun else [LATER]  # no job begins before Slurm has accepted all jobs
        numbers = {name: self._submit_role(jobs, later) for name, jobs in roles.items()}
        for name, number in numbers.items():
            if later:
                begin(number)
            if number:
                self._say(f"{name} is job {number} of Slurm")
        self._is_begun = True

    def _submit_role(self, jobs: Sequence[ReplicaJob], options: Sequence[str]) -> str:
        """Submit the jobs of a role. Return Slurm's ID of the jobs; empty if Slurm refuses jobs after the beginning of the run."""
        role = jobs[0].role
        path = self._folder.jobs / place_of(role.name, "sh")
        if not path.exists():
            path.write_text(script(self._folder, role))
        sbatch, *rest = submission(self._folder, role, [job.replica for job in jobs])
        try:
            number = call([sbatch, *options, *rest]).strip().partition(";")[0]
        except ConfigError as error:
            why = (
                f"Slurm rejected the job of this role: {str(error).removeprefix('sbatch: ').removeprefix('Batch job submission failed: ')}"
            )
            if not self._is_begun:
                raise (self._topology.plan.location / "roles" / role.name).error(why) from None
            for job in jobs:
                job.process.lose(why)
            return ""
        for job in jobs:
            job.submitted(f"{number}_{job.replica}" if role.most > 1 else number)
        return number

    def _hear(self) -> bool:
        """Read the news of the jobs. Return whether there was news."""
        holders = self._folder.holders()
        return sum(job.hear(holders) for job in self._jobs.values()) > 0

    def _look_at_jobs(self) -> bool:
        """React to Slurm's states of the jobs. Return whether the process of a job has ended."""
        try:
            states = job_states()
        except ConfigError as error:
            if not self._is_told:
                self._say(f"Slurm does not answer; the running processes continue: {error}")
            self._is_told = True
            return False
        self._is_told = False
        happened = self._hear()  # read the news that jobs wrote before Slurm was queried
        for job in [job for job in self._jobs.values() if job.id]:
            did_run = job.runs
            job.judge(states.get(job.id, JobState()))
            happened |= did_run and not job.runs
        return happened

    def _say(self, text: str) -> None:
        self._show("highway", text, True)


SILENCE = 60.0  # maximum seconds without news of a running job
PATIENCE = 15.0  # if a job waits for this many seconds, a message gives the reason


class ReplicaJob:
    """A replica, and the job that runs its processes.

    Args:
        folder: The folder of the run.
        role: The role.
        replica: The index of the replica.
        show: As for :class:`~highway.run.launchers.local.LocalLauncher`.

    Attributes:
        id: Slurm's ID of the job; empty if there is no job.
        cancelled: IDs of the jobs that were cancelled.
        process: The current or last process of the replica.
    """

    def __init__(self, folder: RunFolder, role: Role, replica: int, show: Show) -> None:
        self.role, self.replica, self.name, self.id = role, replica, place_of(role.name, replica), ""
        self.process = RemoteProcess("", show, self._ask)
        self._folder, self._show = folder, show
        self.cancelled: list[str] = []
        self._order: JobOrder | None = None
        self._holder = ""  # the job ID, and how often the job was requeued
        self._reader: NewsReader | None = None  # reads the news of the job
        self._unjudged: list[News] = []  # news that came after Slurm asked the job to end; kept until Slurm reports the job's state
        self._begun = False  # whether the process has sent news
        self._heard: float | None = None  # when the last news of the job came, or when the job was first seen running
        self._since: float | None = None  # when the process began to wait; None after the reason was shown

    @property
    def runs(self) -> bool:
        """Whether the process runs or will be started."""
        return self.process.poll() is None

    def start(self, spec: LaunchSpec) -> RemoteProcess:
        """Start a process in the job of this replica, when the job runs."""
        self.process = RemoteProcess(spec.name, self._show, self._ask)
        self._begun, self._since = False, time.monotonic()
        self._want(JobOrder(self._order.start + 1 if self._order else 1, spec.to_json(), [], highway.__version__))
        return self.process

    def submitted(self, job: str) -> None:
        """Record the ID of the replica's job."""
        self.id, self._holder, self._reader, self._heard = job, "", None, None

    def hear(self, holders: Collection[str]) -> bool:
        """Read the news of the job. Return whether there was news. ``holders`` are the holders that have written news."""
        if (holder := newest(holders, self.id)) not in ("", self._holder):
            if self._begun:
                self._lose("its job was queued again, because the node failed or other jobs have priority")
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
        """React to Slurm's state of the job."""
        now, where = time.monotonic(), f"job {self.id}{f' on {state.nodes}' if state.nodes else ''}"
        again = f"{where} was queued again, because the node failed or other jobs have priority"
        if state.what != RUNS:
            for news in self._unjudged:
                self.process.hear(news if state.what != WAITS else _undrained(news, again))
            self._unjudged = []
        if state.what == WAITS:
            if self._begun:
                self._lose(again)
                with contextlib.suppress(ConfigError):  # Slurm delays a requeued job for two minutes; not all users can change this
                    begin(self.id)
            elif self.runs and self._since is not None and now > self._since + PATIENCE:
                self._since = None
                self._show(self.process.name, f"waits in Slurm's queue as job {self.id} ({state.reason})", True)
        elif state.what == RUNS:
            self._heard = self._heard or now
            if self.runs and now > self._heard + SILENCE:
                self._lose(f"{where} has not reported for {SILENCE:g} s{'' if self._reader else self._unseen}")
                self.cancel()
        else:
            self.id, was_there = "", self._reader is not None
            if state.name == "COMPLETED" and was_there and not self._begun:
                return  # the job had ended before it saw the order for another start, so a new job is submitted
            if state.name == "CANCELLED" and self.runs:  # a user has cancelled the job, so the process is not started again
                self.process.hear(News(self.process.address, reports=[RoleReport(draining=True)], counts=self.process.counts()))
            self._lose(f"{where} {state.what}{'' if was_there else self._unseen}", -signal.SIGTERM if state.name == "CANCELLED" else -9)

    def cancel(self) -> None:
        """Cancel the job of this replica."""
        with contextlib.suppress(ConfigError):  # the job has ended, or Slurm does not answer; the launcher's close() checks again
            if self.id:
                call(["scancel", self.id])
        self.cancelled, self.id = [*self.cancelled, *filter(None, [self.id])], ""

    @property
    def _unseen(self) -> str:
        """The part of a message about a job that has never sent news."""
        log_file = self._folder.logs / f"{self.name}.log"
        return f"; the job has never reported: check that its node can access {self._folder.path}; its log is {log_file}"

    def _want(self, order: JobOrder) -> None:
        self._order = order
        self._folder.want(self.name, order)

    def _lose(self, why: str, code: int = -9) -> None:
        self._begun = False
        self.process.lose(why, code)

    def _ask(self, number: int) -> None:
        """Send the process a signal. If the process has not begun, or was already sent SIGKILL, cancel its job."""
        assert self._order is not None, "it was not started"
        if not self._begun or signal.SIGKILL in self._order.signals:
            self.cancel()
            self._lose("it does not answer" if self._begun else "it had not started", -number)
        else:
            self._want(msgspec.structs.replace(self._order, signals=[*self._order.signals, number]))


def _undrained(news: News, why: str) -> News:
    """Turn news of a drained process into news of a failed process, so that the process is restarted in the requeued job."""
    return msgspec.structs.replace(news, reports=[*(report for report in news.reports if not report.draining), RoleReport(error=why)])
