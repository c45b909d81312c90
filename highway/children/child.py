"""What runs in a child process: how each begins, and a whole pipeline."""

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
        seed: The pipeline's.
    """

    stages: list[Stage]
    seed: int

    def items(self) -> Iterator[Stamped]:
        """Yield what the pipeline makes."""
        with Pipeline(self.stages, self.seed) as pipeline:
            for item, passport in pipeline.stamped():
                yield Stamped(item, passport._replace(made_of=()))  # the parent cannot make it again


def begin(parent: int) -> None:
    """Tie a child to its parent, whose number this is: it ends with the thread that started it, and leaves Ctrl-C to it."""
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("highway: the process that started this one is gone")
    ignore_interrupts()


def ignore_interrupts() -> None:
    """Ignore Ctrl-C, which was withheld so far: it reaches the parent too, which ends its children if it wants to."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def main(parent: int, items_fd: int, results_fd: int, budget_mb: float) -> None:
    """Run the pipeline that comes from one socket, and send its items to the other, until the parent closes them or is gone."""
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
        """Ask the parent, whose stage knows what to do with errors."""
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
