"""What runs in a child process."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from highway.children.pickling import Failure, importing, pack, unpack
from highway.engine import Pipeline, cancel
from highway.engine.component import takes_rng
from highway.engine.randomness import generator, stage_key
from highway.engine.stage import DROP, Stage, Stamped
from highway.errors import LinkError
from highway.process.interrupt import die_with_parent
from highway.wire.transports.shm import ShmReceiver, ShmSender


class ApplyMaps(NamedTuple):
    """The task of a child that maps items.

    Args:
        names: The names of the maps, on which their randomness hangs.
        maps: The maps, applied one after the other.
        seed: The pipeline's.
    """

    names: list[str]
    maps: list[Callable[..., Any]]
    seed: int

    def apply(self, item: Any, epoch: int, index: int) -> Any:
        """Return what the maps make of an item, as they would in the pipeline's own process."""
        passport = None
        for name, fn in zip(self.names, self.maps, strict=True):
            item = fn(item, generator(stage_key(self.seed, name), epoch, index)) if takes_rng(fn) else fn(item)
            if item is None:
                raise TypeError(f"{name} returned None; return the item, or return DROP to leave it out")
            if item is DROP:
                return DROP
            if type(item) is Stamped:
                item, passport = item
                epoch, index = passport.epoch, passport.index
        return item if passport is None else Stamped(item, passport)


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


def main(parent: int, items_fd: int, results_fd: int, budget_mb: float) -> None:
    """Work on items from one socket, and send what they become to the other, until the parent closes them or is gone."""
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("highway: the process that started this one is gone")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends its children
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
    cancel.enter(cancel.Scope(report_error, seed=seed))
    frames = items.recv()
    task: ApplyMaps | None = None
    while True:
        try:
            if task is None:
                first = unpack(frames)
                if isinstance(first, RunPipeline):
                    results.send(pack(("result", None)))
                    for stamped in first.items():
                        results.send(pack(("result", stamped)))
                    results.send(pack(("end", None)))
                    return
                task, answer = first, None
            else:
                answer = task.apply(*unpack(frames))
            results.send(pack(("result", answer)))
        except BaseException as error:
            if results.connections.is_over:
                return
            results.send(pack(("error", Failure.of(error))))
            if task is None:
                return
        del frames
        answer = None  # the item's memory goes back before the next one is waited for
        frames = items.recv()
