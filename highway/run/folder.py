"""The folder that the hosts of a run share. The launcher writes orders for the job of each replica, and the jobs write news.

The *launcher* is the process that starts and watches the processes of a run, such as ``highway run``. A *role* is a pipeline of a topology
file. A *replica* is one of its processes.

News (:class:`~highway.run.remote.News`) are the output, the reports and the counts of a replica's process.

To change a file, a process replaces the file atomically. To append a line, a process opens and closes the file. Before the file is closed,
a network file system does not show the line to other hosts.
"""

from __future__ import annotations

import contextlib
import os
import urllib.parse
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from highway.run.remote import News

T = TypeVar("T")

SEGMENT = 1 << 20  # maximum bytes of a file; then the writer begins the next file, and the reader can delete the full file


class JobOrder(msgspec.Struct, frozen=True):
    """The launcher's orders for the job of a replica.

    Args:
        start: How many times the launcher has ordered to start the replica's process, counted over all jobs of the replica. If the process
            was started fewer times, the job starts it.
        spec: The process to run: a :class:`~highway.run.launcher.LaunchSpec` as JSON.
        signals: Signals to send to the current process, in order.
        version: The version of highway that the launcher has.
    """

    start: int
    spec: str
    signals: list[int] = []
    version: str = ""


class Claim(msgspec.Struct, frozen=True):
    """The job that holds a replica, and how many times the replica's process was started.

    If a job finds that the replica has another holder, the launcher has replaced the job.
    """

    holder: str = ""
    start: int = 0


class RoleSoftware(msgspec.Struct, frozen=True):
    """The software versions on which the pixels of a role depend, and the first host that has published these versions."""

    software: str
    host: str


class Line(msgspec.Struct, frozen=True):
    """A message of a job: the number of starts so far, and news of the last process. ``None``: the message is only a sign of life."""

    start: int
    news: News | None = None


class RunFolder:
    """The folder of a run.

    A *place* is the base name of a replica's files (:func:`place_of`). A *holder* is the base name of a job's files. A holder consists of
    the job's ID and the number of times that Slurm has requeued the job.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs, self.jobs, self.rendezvous = path / "logs", path / "jobs", path / "rendezvous"
        self._orders, self._news = path / "orders", path / "news"

    def make(self) -> None:
        """Create the folder. The subfolder for the rendezvous can already exist, because processes can join the run before it starts.

        Raises:
            OSError: the folder cannot be created, or belongs to an earlier run.
        """
        self.rendezvous.mkdir(parents=True, exist_ok=True)
        for folder in (self.logs, self.jobs, self._orders, self._news):
            folder.mkdir()

    def order(self, place: str) -> JobOrder | None:
        """Return the order for the job of a place; ``None`` if the launcher has not given an order."""
        return _read(self._orders / f"{place}.json", JobOrder)

    def want(self, place: str, order: JobOrder) -> None:
        """Give an order to the job of a place."""
        _write(self._orders / f"{place}.json", msgspec.json.encode(order))

    def claim(self, place: str) -> Claim:
        """Return the claim on a place."""
        return _read(self._orders / f"{place}.claim", Claim) or Claim()

    def take(self, place: str, claim: Claim) -> None:
        """Claim a place."""
        _write(self._orders / f"{place}.claim", msgspec.json.encode(claim))

    def agree(self, role: str, made: RoleSoftware) -> RoleSoftware:
        """Publish the software of a process, unless another process of the role has published its own. Return the published software."""
        path = self._orders / place_of(role, "made")
        own = path.with_name(f".{path.name}.{made.host}.{os.getpid()}")
        own.write_bytes(msgspec.json.encode(made))
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(own)  # a hard link never replaces an existing file, but a rename does
        own.unlink()
        return _read(path, RoleSoftware) or made

    def beat(self, number: int) -> None:
        """Write the launcher's sign of life. ``number`` must change with each call."""
        _write(self.path / "launcher", b"%d" % number)

    def heartbeat(self) -> bytes:
        """Return the launcher's last sign of life."""
        with contextlib.suppress(FileNotFoundError):
            return (self.path / "launcher").read_bytes()
        return b""

    def writer(self, holder: str) -> NewsWriter:
        """Return the writer for the news of a job."""
        return NewsWriter(self._news / holder)

    def reader(self, holder: str) -> NewsReader:
        """Return the reader for the news of a job."""
        return NewsReader(self._news / holder)

    def holders(self) -> set[str]:
        """Return the holders that have written news."""
        return {name.rpartition(".")[0] for name in os.listdir(self._news)}


class NewsWriter:
    """Writes the news of a job into a sequence of numbered files."""

    def __init__(self, path: Path) -> None:
        self._path, self._number = path, 0

    def tell(self, line: Line) -> None:
        """Append a line."""
        with open(f"{self._path}.{self._number}", "ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
            if file.tell() > SEGMENT:
                self._number += 1


class NewsReader:
    """Reads the files of a :class:`NewsWriter`, and deletes each file after reading it, except for the newest file."""

    def __init__(self, path: Path) -> None:
        self._path, self._number, self._offset = path, 0, 0

    def hear(self) -> Sequence[Line]:
        """Return the lines that were written since the last call."""
        lines: list[bytes] = []
        is_last = False
        while not is_last:
            is_last = not os.path.exists(f"{self._path}.{self._number + 1}")  # check before reading, because only the last file grows
            lines += self._read()
            if not is_last:
                os.unlink(f"{self._path}.{self._number}")
                self._number, self._offset = self._number + 1, 0
        return [msgspec.json.decode(line, type=Line) for line in lines]

    def _read(self) -> Sequence[bytes]:
        with contextlib.suppress(FileNotFoundError), open(f"{self._path}.{self._number}", "rb") as file:
            file.seek(self._offset)
            whole = file.read().rpartition(b"\n")[0]
            self._offset += len(whole) + 1 if whole else 0
            return whole.split(b"\n") if whole else []
        return []


def place_of(role: str, replica: int | str) -> str:
    """Return the base name of a replica's files."""
    return f"{urllib.parse.quote(role, safe='')}.{replica}"


def newest(holders: Collection[str], job: str) -> str:
    """Return the last holder of a job; empty if the job has not written news. When Slurm requeues a job, the job gets a new holder."""
    found = [int(holder.rpartition(".")[2]) for holder in holders if holder.rpartition(".")[0] == job]
    return f"{job}.{max(found)}" if found else ""


def _write(path: Path, data: bytes) -> None:
    written = path.with_name(f".{path.name}.{os.getpid()}")
    written.write_bytes(data)
    written.replace(path)


def _read(path: Path, kind: type[T]) -> T | None:
    with contextlib.suppress(FileNotFoundError):
        return msgspec.json.decode(path.read_bytes(), type=kind)
    return None
