"""Slurm, as it is: a controller and some nodes in a network namespace of their own, without systemd, in one folder."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from namespaces import Hosts, network
from namespaces import missing as no_namespaces
from waiting import wait_until

NODES = ("n1", "n2", "n3", "n4")

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}({address})
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=1
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0
MessageTimeout=3
TCPTimeout=1
SlurmdParameters=config_overrides
SlurmdTimeout=6
KillWait=4
ReturnToService=2
MpiDefault=none
NodeName=n[1-2] NodeHostname={host} NodeAddr={address} Port=[17001-17002] CPUs=8 RealMemory=4000 Features=cpu
NodeName=n[3-4] NodeHostname={host} NodeAddr={address} Port=[17003-17004] CPUs=8 RealMemory=4000 Features=cpu,nvme
PartitionName=all Nodes=n[1-4] Default=YES LLN=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=n[1-2] MaxTime=1 State=UP
"""


def missing() -> str:
    """Return what keeps Slurm from running here, or ``""``."""
    tools = [tool for tool in ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scancel") if shutil.which(tool) is None]
    return f"no command '{tools[0]}': apt-get install slurm-wlm munge; `tox -e launchers-slurm`" if tools else no_namespaces()


@dataclass
class Cluster:
    """A Slurm that runs.

    Args:
        folder: Its configuration, state and logs.
        host: What its commands are started on.
    """

    folder: Path
    hosts: Hosts
    daemons: dict[str, subprocess.Popen[str]]

    @property
    def environment(self) -> dict[str, str]:
        """What its commands need to find it."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def popen(self, arguments: list[str], **options: object) -> subprocess.Popen[str]:
        """Start a command where Slurm's are, with the ``env`` in addition."""
        own = options.pop("env", {})
        return self.hosts.popen("slurm", arguments, env={**self.environment, **own}, **options)

    def ask(self, *arguments: str) -> str:
        """Return what a command says."""
        with self.popen(list(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as command:
            said, _ = command.communicate(timeout=200)
        return said.strip()

    def jobs(self) -> list[str]:
        """Return the jobs that have not ended, as ``ID NAME STATE NODE``."""
        return self.ask("squeue", "--noheader", "--array", "--format=%i %j %T %N").splitlines()

    def start(self, name: str, *arguments: str) -> None:
        """Start a daemon."""
        with open(self.folder / f"{name}.out", "a") as log:
            self.daemons[name] = self.popen(list(arguments), stdout=log, stderr=log)

    def start_node(self, node: str) -> None:
        """Start the daemon of a node."""
        self.start(node, "slurmd", "-D", "-N", node)

    def stop(self, name: str) -> None:
        """End a daemon."""
        daemon = self.daemons.pop(name)
        daemon.terminate()
        daemon.wait(30)

    def kill_node(self, node: str) -> None:
        """End a node as a lost machine does: its daemon, and all that runs there."""
        self.daemons[node].kill()
        self.daemons.pop(node).wait()
        for process in self.processes_on(node):
            _kill(process)

    def processes_on(self, node: str) -> list[int]:
        """Return the processes of jobs on a node, behind Slurm's own of each job: where that outlives them, it tells of their end."""
        processes = self.hosts.processes("slurm")
        log = str(self.folder / f"slurmd.{node}.log")
        steps = [process for process in processes if b"slurmstepd" in _read(process, "cmdline") and log in _files(process)]
        return [*steps, *(process for process in processes if f"SLURMD_NODENAME={node}" in _words(process))]

    def end(self) -> None:
        """End the daemons, and all that runs on their host; no process of a job is left, nor what started it."""
        for daemon in self.daemons.values():
            daemon.terminate()
        for daemon in self.daemons.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()
            daemon.wait()
        wait_until(lambda: not any(map(_kill, self.hosts.processes("slurm"))))


def _read(process: int, name: str) -> bytes:
    with contextlib.suppress(OSError):  # it has ended
        return Path(f"/proc/{process}/{name}").read_bytes()
    return b""


def _words(process: int) -> list[str]:
    return _read(process, "environ").decode(errors="replace").split("\0")


def _files(process: int) -> list[str]:
    found = []
    for path in Path(f"/proc/{process}/fd").glob("*"):
        with contextlib.suppress(OSError):  # it has closed it
            found.append(os.readlink(path))
    return found


def _kill(process: int) -> bool:
    """Kill a process, and say that there was one; Slurm's own of each job are ours since :func:`adopting`."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    return True


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Have what becomes an orphan inside be a child of this process, and end it: not every machine has an init that waits for orphans."""
    before = _children()
    _be_subreaper(True)
    try:
        yield
    finally:
        _be_subreaper(False)
        for child in _children() - before:
            _kill(child)
            os.waitpid(child, 0)


def _children() -> set[int]:
    return {int(child) for path in Path("/proc/self/task").glob("*/children") for child in path.read_text().split()}


def _be_subreaper(value: bool) -> None:
    assert ctypes.CDLL(None, use_errno=True).prctl(36, int(value), 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start Slurm in a folder with a short path, and end it, with all that it runs."""
    with adopting(), network(["slurm"]) as hosts:
        host, address = socket.gethostname().partition(".")[0], hosts.addresses["slurm"]
        names = Path(f"/etc/netns/{hosts.prefix}-slurm/hosts")  # what `ip netns exec` puts in place of /etc/hosts
        names.parent.mkdir(parents=True)
        names.write_text(f"127.0.0.1 localhost\n{address} {host}\n")
        (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder, host=host, address=address))
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # found without a look at what is mounted
        (folder / "state").mkdir()
        for node in NODES:
            (folder / f"spool.{node}").mkdir()
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        os.chmod(folder, 0o755)
        found = Cluster(folder, hosts, {})
        try:
            own = [f"--{name}={folder}/munge.{name}" for name in ("socket", "key-file", "pid-file", "log-file", "seed-file")]
            own[1] = f"--key-file={folder}/munge.key"
            found.start("munged", "munged", "--foreground", "--force", *own)
            wait_until(lambda: (folder / "munge.socket").exists())
            found.start("slurmctld", "slurmctld", "-D", "-i")
            for node in NODES:
                found.start_node(node)
            wait_until(
                lambda: found.ask("sinfo", "--noheader", "--Node", "--partition=all", "--format=%T").split() == ["idle"] * len(NODES)
            )
            yield found
        finally:
            found.end()
            shutil.rmtree(names.parent)
