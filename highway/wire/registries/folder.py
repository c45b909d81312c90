"""A rendezvous in a folder to which all hosts of a run have access.

A *rendezvous* stores the addresses of the links of a run, so that processes find each other.
"""

from __future__ import annotations

import os
import socket
import urllib.parse
from collections.abc import Collection, Mapping
from pathlib import Path

from highway.wire.registries.protocol import LONGEST


class FolderRendezvous:
    """A folder to which all hosts have access. Each name has a file, which contains the address.

    Args:
        path: The folder. A missing folder is created.
    """

    host = ""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def publish(self, addresses: Mapping[str, str]) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        for name, address in addresses.items():
            file = self._file(name)
            written = file.with_name(f".{file.name}.{socket.gethostname()}.{os.getpid()}")
            written.write_text(address)
            written.replace(file)

    def find(self, names: Collection[str]) -> Mapping[str, str]:
        try:
            there = set(os.listdir(self._path))  # list the folder, because NFS otherwise remembers for a minute that a file does not exist
        except FileNotFoundError:  # no process has published yet
            return {}
        files = {name: self._file(name) for name in names}
        return {name: _text_of(file) for name, file in files.items() if file.name in there}

    def _file(self, name: str) -> Path:
        return self._path / urllib.parse.quote(name, safe="")


def _text_of(file: Path) -> str:
    """Return the beginning of a file; empty for a folder or pipe. The length is limited, because another user may have written the file."""
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as opened:  # do not block on a pipe
            return opened.read(LONGEST + 1).decode(errors="replace")
    except (FileNotFoundError, IsADirectoryError):
        return ""
