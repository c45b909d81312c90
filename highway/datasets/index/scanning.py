"""Scan many data files to compute their indexes. If the scan takes long, several processes share the files."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import highway
from highway.datasets.index.file import Group, mapped_index, write_index
from highway.engine.cancel import wait
from highway.process.cores import available_cores
from highway.stores.url import is_url

Scan = Callable[[str], Group]
"""A function that computes the index of a data file. The function must be a public function of a module."""

SECONDS_ALONE = 1.0
"""Seconds after which other processes scan the remaining files."""

_TICK = 0.05  # seconds between two checks whether the processes have ended
_CODE = """import json, sys
task = json.load(sys.stdin)
sys.path[:] = task["sys.path"]
from highway.datasets.index.scanning import scan_for_parent
scan_for_parent(task)"""


def scanned(paths: Sequence[str], scan: Scan, version: str) -> dict[str, Group]:
    """Return the index of each data file.

    Args:
        paths: Paths or URLs of the data files.
        scan: A function that computes the index of one data file.
        version: The format of the data files and the version of their indexes, such as ``"tar 2"``.
    """
    found, began, shared = dict[str, Group](), time.monotonic(), any(map(is_url, paths))
    for number, path in enumerate(paths):
        if not shared and time.monotonic() - began > SECONDS_ALONE:
            shared = True
            found |= _scanned_elsewhere(paths[number:], scan, version)
        if path not in found:
            found[path] = scan(path)  # if another process has failed at this file, this process raises the error
    return found


def _scanned_elsewhere(paths: Sequence[str], scan: Scan, version: str) -> dict[str, Group]:
    """Scan data files in one process per core. Skip data files that could not be scanned."""
    count, found = min(available_cores(), len(paths)), dict[str, Group]()
    home = str(Path(highway.__file__).parents[1])
    task = {"sys.path": [home, *sys.path], "module": scan.__module__, "function": scan.__qualname__, "version": version}
    with ExitStack() as stack, suppress(OSError):  # if no process can be started, this process scans all files
        outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(count)]
        processes = [
            stack.enter_context(_process({**task, "paths": paths[number::count]}, output)) for number, output in enumerate(outputs)
        ]
        while any(process.poll() is None for process in processes):
            wait(_TICK)
        for output in outputs:
            if index := mapped_index(output, "output", version, scan):
                found |= {path: index[path] for path in index}
    return found


@contextmanager
def _process(task: dict[str, Any], output: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that scans data files. The process is a new interpreter, which never imports the user's script."""
    with tempfile.TemporaryFile() as given:
        given.write(json.dumps(task).encode())
        given.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-c", _CODE], stdin=given, stdout=output, stderr=subprocess.DEVNULL, start_new_session=True
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def scan_for_parent(task: Any) -> None:
    """Scan the data files of a task, and write an index file to stdout. Stop at the first error."""
    scan, found = getattr(import_module(task["module"]), task["function"]), {}
    with suppress(Exception):  # the parent process scans the other files, and raises the error
        for path in task["paths"]:
            found[path] = scan(path)
    write_index(sys.stdout.buffer, task["version"], found)
    sys.stdout.flush()
