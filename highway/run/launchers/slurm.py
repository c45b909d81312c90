"""Jobs of Slurm: an array for each role with several replicas, a job for each other role.

A job runs :mod:`highway.run.job`, which starts the process of its replica, and exchanges files with the launcher in the folder of the run.
So a restarted process stays on its node, and does not wait in the queue again. If a node fails, Slurm requeues the job, and the next
process runs on the new node.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from highway.errors import ConfigError
from highway.parameters.location import did_you_mean
from highway.run.engines import LiveEngine, Option, Show
from highway.run.folder import RunFolder, place_of
from highway.run.launcher import LaunchSpec
from highway.run.launchers.slurm_jobs import LATER, OPTIONS, PREFIX, RUNS, WAITS, JobState, begin, call, job_states, script, submission
from highway.run.launchers.slurm_replica import ReplicaJob
from highway.run.remote import RemoteProcess
from highway.topology import Topology
from highway.topology.apart import problems_apart
from highway.topology.wiring import Wiring

LOOK = 0.3  # seconds between two reads of the jobs' news
ASK = 3.0  # seconds between two queries to Slurm
BEAT = 5.0  # seconds between two signs of life of the launcher for the jobs
END = 60.0  # maximum seconds for jobs to end; Slurm kills them after 30, unless its KillWait is set


def _problems(topology: Topology) -> Iterator[ConfigError]:
    """Yield an error for processes that must share one host, and for labels that are neither features nor options of sbatch."""
    yield from problems_apart(topology)
    for role in topology.roles.values():
        for name, value in role.resources.labels.items():
            location = topology.plan.location / "roles" / role.name / "resources" / "labels" / name
            option = name.removeprefix(PREFIX)
            if option != name and option not in OPTIONS:
                yield location.error(f"expected one of {', '.join(OPTIONS)} behind {PREFIX}{did_you_mean(option, OPTIONS)}")
            if not value.isprintable():
                yield location.error(
                    f"{value!r} cannot be part of a Slurm script, because it contains a line break or another control character"
                )
            elif option == name and not re.fullmatch(r"[\w.+-]+", value):
                yield location.error(f"{value!r} is no feature of a node: expected a word, such as a100")


def _connect(wiring: Wiring, options: argparse.Namespace, show: Show) -> SlurmLauncher:
    """Return a launcher that submits jobs.

    Raises:
        ConfigError: Slurm is not installed or does not answer, or the folder is not new.
    """
    for command in ("sbatch", "squeue", "scancel", "scontrol"):
        if shutil.which(command) is None:
            raise ConfigError(f"--on slurm: there is no command {command} here; launch from a host that has Slurm's commands")
    folder = RunFolder(_path(wiring, options))
    try:
        job_states()
    except ConfigError as error:
        raise ConfigError(f"--on slurm: {error}; launch from a host of the cluster, where `sinfo` answers") from None
    try:
        folder.make()
    except OSError as error:
        why = "is there already, and a run needs a new one" if isinstance(error, FileExistsError) else f"cannot be made ({error.strerror})"
        raise ConfigError(f"--folder {folder.path} {why}") from None
    return SlurmLauncher(wiring.topology, folder, show)


def _preview(wiring: Wiring, options: argparse.Namespace) -> Mapping[str, str]:
    """Return a dict with the commands that would submit jobs, and their scripts."""
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
        """Read the folder of the run if this is due within ``seconds``, otherwise only wait; return whether a job has sent news.

        Raises:
            ConfigError: Slurm refuses a job, with Slurm's message.
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
            except ConfigError as error:  # scancel fails if a job has just ended; the next query shows whether jobs are left
                why = f" ({error})"
            time.sleep(LOOK if left else 0)  # Slurm does not signal when a job has ended
        if left:
            self._say(f"Slurm has not ended {', '.join(sorted(left))} within {END:g} s{why}; `squeue` shows them, `scancel` ends them")

    def _submit(self) -> None:
        """Submit jobs for the processes that have none."""
        roles: dict[str, list[ReplicaJob]] = {}
        for job in self._jobs.values():
            if job.runs and not job.id:
                roles.setdefault(job.role.name, []).append(job)
        later = [] if self._is_begun else [LATER]  # none begins before all are accepted
        numbers = {name: self._submit_role(jobs, later) for name, jobs in roles.items()}
        for name, number in numbers.items():
            if later:
                begin(number)
            if number:
                self._say(f"{name} is job {number} of Slurm")
        self._is_begun = True

    def _submit_role(self, jobs: Sequence[ReplicaJob], options: Sequence[str]) -> str:
        """Submit jobs of a role, and return the job's number; empty if Slurm refuses a job for a restarted process."""
        role = jobs[0].role
        path = self._folder.jobs / place_of(role.name, "sh")
        if not path.exists():
            path.write_text(script(self._folder, role))
        sbatch, *rest = submission(self._folder, role, [job.replica for job in jobs])
        try:
            number = call([sbatch, *options, *rest]).strip().partition(";")[0]
        except ConfigError as error:
            why = f"Slurm refuses its job: {str(error).removeprefix('sbatch: ').removeprefix('Batch job submission failed: ')}"
            if not self._is_begun:
                raise (self._topology.plan.location / "roles" / role.name).error(why) from None
            for job in jobs:
                job.process.lose(why)
            return ""
        for job in jobs:
            job.submitted(f"{number}_{job.replica}" if role.most > 1 else number)
        return number

    def _hear(self) -> bool:
        """Read the news of the jobs; return whether there were any."""
        holders = self._folder.holders()
        return sum(job.hear(holders) for job in self._jobs.values()) > 0

    def _look_at_jobs(self) -> bool:
        """Process Slurm's states of the jobs; return whether the process of a job has ended."""
        try:
            states = job_states()
        except ConfigError as error:
            if not self._is_told:
                self._say(f"Slurm does not answer, and what runs goes on: {error}")
            self._is_told = True
            return False
        self._is_told = False
        happened = self._hear()  # news written before Slurm was queried
        for job in [job for job in self._jobs.values() if job.id]:
            did_run = job.runs
            job.judge(states.get(job.id, JobState()))
            happened |= did_run and not job.runs
        return happened

    def _say(self, text: str) -> None:
        self._show("highway", text, True)
