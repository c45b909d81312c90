"""The folder of a run that its hosts share: what the launcher wants of each replica's job, and what the job tells of its process.

Files that are rewritten are replaced whole; those that grow are opened for each line, since only then a network file system shows it to
other hosts.
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

SEGMENT = 1 << 20  # bytes of a file of news; what is behind them comes in the next file, and this one is deleted when it was read


class JobOrder(msgspec.Struct, frozen=True):
    """What the launcher wants of the job of a replica.

    Args:
        start: How many times the replica's process is to have been started; the last time by ``spec``.
        spec: What to run, a :class:`~highway.run.launcher.LaunchSpec` in JSON.
        signals: What that process is to be sent, in order.
        version: The launcher's version of highway.
    """

    start: int
    spec: str
    signals: list[int] = []
    version: str = ""


class Claim(msgspec.Struct, frozen=True):
    """Which job has a replica, and how many times its process was started. A job that finds another name here has been replaced."""

    holder: str = ""
    start: int = 0


class RoleSoftware(msgspec.Struct, frozen=True):
    """What pixels of a role are made by: the software of the host of its first process."""

    software: str
    host: str


class Line(msgspec.Struct, frozen=True):
    """What a job tells: of which start of the process, and its news; ``None`` while none runs."""

    start: int
    news: News | None = None


class RunFolder:
    """The folder of a run.

    Args:
        path: Where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs, self.jobs, self.rendezvous = path / "logs", path / "jobs", path / "rendezvous"
        self._orders, self._news = path / "orders", path / "news"

    def make(self) -> None:
        """Make it. Who joins the run may have published its addresses there before.

        Raises:
            OSError: it cannot be made, or a run has used it.
        """
        self.rendezvous.mkdir(parents=True, exist_ok=True)
        for folder in (self.logs, self.jobs, self._orders, self._news):
            folder.mkdir()

    def order(self, place: str) -> JobOrder | None:
        """Return what is wanted of the job at a place, if the launcher has said it."""
        return _read(self._orders / f"{place}.json", JobOrder)

    def want(self, place: str, order: JobOrder) -> None:
        """Say what is wanted of the job at a place."""
        _write(self._orders / f"{place}.json", msgspec.json.encode(order))

    def claim(self, place: str) -> Claim:
        """Return who has a place."""
        return _read(self._orders / f"{place}.claim", Claim) or Claim()

    def take(self, place: str, claim: Claim) -> None:
        """Have a place."""
        _write(self._orders / f"{place}.claim", msgspec.json.encode(claim))

    def agree(self, role: str, made: RoleSoftware) -> RoleSoftware:
        """Say what a process of a role would run with, and return what the first one of the role has said."""
        path = self._orders / place_of(role, "made")
        own = path.with_name(f".{path.name}.{made.host}.{os.getpid()}")
        own.write_bytes(msgspec.json.encode(made))
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(own)  # which, unlike a rename, leaves what is there; on network file systems too
        own.unlink()
        return _read(path, RoleSoftware) or made

    def beat(self, number: int) -> None:
        """Say that the launcher is there."""
        _write(self.path / "launcher", b"%d" % number)

    def heartbeat(self) -> bytes:
        """Return what :meth:`beat` has written last."""
        with contextlib.suppress(FileNotFoundError):
            return (self.path / "launcher").read_bytes()
        return b""

    def writer(self, holder: str) -> NewsWriter:
        """Return what a job tells its news to."""
        return NewsWriter(self._news / holder)

    def reader(self, holder: str) -> NewsReader:
        """Return what the launcher hears a job's news by."""
        return NewsReader(self._news / holder)

    def holders(self) -> set[str]:
        """Return the jobs that have told something."""
        return {name.rpartition(".")[0] for name in os.listdir(self._news)}


class NewsWriter:
    """Tells the news of a job, in files whose names end with numbers."""

    def __init__(self, path: Path) -> None:
        self._path, self._number = path, 0

    def tell(self, line: Line) -> None:
        """Add a line."""
        with open(f"{self._path}.{self._number}", "ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
            if file.tell() > SEGMENT:
                self._number += 1


class NewsReader:
    """Hears what a :class:`NewsWriter` tells, and deletes what is read."""

    def __init__(self, path: Path) -> None:
        self._path, self._number, self._offset = path, 0, 0

    def hear(self) -> Sequence[Line]:
        """Return the lines that are new."""
        lines: list[bytes] = []
        is_last = False
        while not is_last:
            is_last = not os.path.exists(f"{self._path}.{self._number + 1}")  # before it is read: it grows no more if it is not the last
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
    """Return what the files of a replica are called."""
    return f"{urllib.parse.quote(role, safe='')}.{replica}"


def newest(holders: Collection[str], job: str) -> str:
    """Return which of some holders is the last that a job has had: one for each time that it was queued again."""
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
