"""Code of a child process: setup, and running a whole pipeline."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from typing import NamedTuple

from highway.children.pickling import Failure, importing, pack, unpack
from highway.engine import Pipeline
from highway.engine.context import Context, enter
from highway.engine.stage import Stage, Stamped
from highway.errors import LinkError
from highway.process.interrupt import die_with_parent
from highway.wire.transports.shm import ShmReceiver, ShmSender


class RunPipeline(NamedTuple):
    """The task of a child that runs a pipeline of its own.

    Args:
        stages: Source first.
        seed: The pipeline's seed.
    """

    stages: list[Stage]
    seed: int

    def items(self) -> Iterator[Stamped]:
        """Run the pipeline and yield its items."""
        with Pipeline(self.stages, self.seed) as pipeline:
            for item, passport in pipeline.stamped():
                yield Stamped(item, passport._replace(made_of=None))  # the parent cannot create the item again


def begin(parent: int) -> None:
    """Prepare a child of the process with the id ``parent``: it ends with the thread that started it, and ignores Ctrl-C."""
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("highway: the process that started this one is gone")
    ignore_interrupts()


def ignore_interrupts() -> None:
    """Ignore Ctrl-C, which was blocked so far. The parent also receives Ctrl-C, and ends its children if necessary."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def main(parent: int, items_fd: int, results_fd: int, budget_mb: float) -> None:
    """Receive a pipeline from one socket and send its items to the other, until the parent closes the sockets or ends."""
    begin(parent)
    items, results = ShmReceiver("Processes"), ShmSender("Processes", budget_mb)
    items.connections.adopt(socket.socket(fileno=items_fd))
    results.connections.adopt(socket.socket(fileno=results_fd))
    try:
        _serve(items, results)
    except LinkError:
        if not items.connections.is_over and not results.connections.is_over:
            raise
    finally:
        items.close()
        results.close()


def _serve(items: ShmReceiver, results: ShmSender) -> None:
    def report_error(error: Exception) -> None:
        """Send an error to the parent, whose stage decides whether to skip the item."""
        results.send(pack(("skippable", Failure.of(error))))
        if not unpack(items.recv()):
            raise error

    importing.script, sys.argv, seed = unpack(items.recv())
    enter(Context(report_error, seed=seed))
    try:
        task: RunPipeline = unpack(items.recv())
        results.send(pack(("result", None)))
        for stamped in task.items():
            results.send(pack(("result", stamped)))
        results.send(pack(("end", None)))
    except BaseException as error:
        if not results.connections.is_over:
            results.send(pack(("error", Failure.of(error))))
