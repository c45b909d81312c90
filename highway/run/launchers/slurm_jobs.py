"""The jobs of Slurm: the scripts that start them, and their states in Slurm."""

from __future__ import annotations

import math
import os
import shlex
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from highway.errors import ConfigError
from highway.run.folder import RunFolder, place_of
from highway.run.launchers.local import environment
from highway.topology.plan import Role

PREFIX = "slurm/"  # prefix of labels that are options of sbatch
OPTIONS = ("account", "exclude", "licenses", "nodelist", "partition", "qos", "reservation", "time")

WAITS, RUNS = "waits", "runs"
STATES: Mapping[str, str] = {  # by Slurm's state of a job: what the job does, or how it ended; in all states not listed, the job runs
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"), WAITS),
    "BOOT_FAIL": "has ended, because its node did not boot",
    "CANCELLED": "was cancelled",
    "COMPLETED": "has ended",
    "DEADLINE": "has ended at its deadline",
    "FAILED": "has failed",
    "NODE_FAIL": "has ended, because its node failed",
    "OUT_OF_MEMORY": "used more memory than its limit; set a larger memory_mb in the resources of the role",
    "PREEMPTED": "was preempted by another job",
    "REVOKED": "was revoked",
    "TIMEOUT": f"reached its time limit; set a longer time with the label {PREFIX}time",
    "": "is no longer known to Slurm",
}


def script(folder: RunFolder, role: Role) -> str:
    """Return the script that the jobs of a role run.

    Raises:
        ConfigError: a value contains a line break or another control character.
    """
    number = "${SLURM_ARRAY_TASK_ID}" if role.most > 1 else "0"
    log = str(folder.logs / place_of(role.name, "")).replace("%", "%%") + f"{'%a' if role.most > 1 else 0}.log"
    needs, labels = role.resources, role.resources.labels
    features = [value for name, value in labels.items() if not name.startswith(PREFIX)]
    options = {
        "job-name": role.name,
        "chdir": os.getcwd(),
        "output": log,
        "open-mode": "append",
        "nodes": 1,
        "ntasks": 1,
        "cpus-per-task": math.ceil(needs.cpus) if needs.cpus else "",
        "gres": f"gpu:{needs.gpus}" if needs.gpus else "",
        "mem": f"{math.ceil(needs.memory_mb * 1e6 / 2**20)}M" if needs.memory_mb else "",
        "constraint": "&".join(features),
        **{name.removeprefix(PREFIX): value for name, value in labels.items() if name.startswith(PREFIX)},
    }
    for name, value in options.items():
        if not str(value).isprintable():  # the shell would run the text after a line break as a command
            raise ConfigError(
                f"{role.name}: the {name} {str(value)!r} cannot be part of a Slurm script, because it contains a line "
                f"break or another control character"
            )
    head = [f"#SBATCH --{name}={shlex.quote(str(value))}" for name, value in options.items() if value]
    path = environment({})["PYTHONPATH"]
    body = [f"export PYTHONPATH={shlex.quote(path)}"] if path else []
    command = shlex.join([sys.executable, "-P", "-m", "highway.run.job", str(folder.path), place_of(role.name, "")])
    return "\n".join(["#!/bin/sh", *head, "#SBATCH --requeue", *body, f"exec {command}{number}", ""])


def submission(folder: RunFolder, role: Role, replicas: Collection[int]) -> list[str]:
    """Return the command that submits the jobs of the given replicas."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(sorted(replicas)), lambda pair: pair[1] - pair[0])]
    numbers = ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
    array = [f"--array={numbers}"] if role.most > 1 else []
    return ["sbatch", "--parsable", *array, str(folder.jobs / f"{place_of(role.name, 'sh')}")]


def call(command: Sequence[str]) -> str:
    """Run a command of Slurm, and return its output.

    Raises:
        ConfigError: the command failed. The error has the message of the command.
    """
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        raise ConfigError(f"{command[0]}: {said[-1].removeprefix(f'{command[0]}: ').removeprefix('error: ')}")
    return done.stdout


LATER = "--begin=now+1hour"
"""An option of sbatch that delays a job until :func:`begin`. When Slurm accepts a delayed job, Slurm checks that nodes can run the job.
Slurm does not check this for a held job."""


def begin(job: str) -> None:
    """Let a delayed job start when it has a node. Raises the errors of :func:`call`."""
    call(["scontrol", "update", f"JobId={job}", "StartTime=now"])


class JobState(NamedTuple):
    """Slurm's state of a job: the name of the state (a key of ``STATES``), why the job waits, and the nodes of the job."""

    name: str = ""
    reason: str = ""
    nodes: str = ""

    @property
    def what(self) -> str:
        """What the job does, or how it ended."""
        return STATES.get(self.name, RUNS)


def job_states() -> Mapping[str, JobState]:
    """Return Slurm's states of this user's jobs, by job ID. Slurm forgets a job some minutes after its end.

    Raises:
        ConfigError: Slurm does not answer.
    """
    said = call(["squeue", "--noheader", "--array", "--states=all", f"--user={os.getuid()}", "--format=%i|%T|%r|%N"])
    rows = [line.strip().split("|") for line in said.splitlines() if line.strip()]
    return {job: JobState(*rest) for job, *rest in rows}
