"""The code of a child process that maps items for its parent."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from highway.children.objects import ObjectLink, Record, size
from highway.children.pickling import Failure, importing, pack
from highway.engine.context import Context, enter, here
from highway.engine.randomness import generator, stage_key
from highway.engine.stage import DROP, Stamped
from highway.errors import LinkError
from highway.mistakes import FIRST_ITEMS, state_of, warn_of_state
from highway.parameters.hints import takes_context, takes_rng
from highway.process.interrupt import die_with_parent, ignore_interrupts

Kind = Literal["ready", "result", "error", "skippable", "unfit"]
"""The kind of an answer. ``ready``: the child has the maps. ``result``: a result. ``error``: a map raised an error. ``skippable``: a map
reported an error, and the parent decides whether to skip the item. ``unfit``: an error prevents the child's start."""


class ApplyMaps(NamedTuple):
    """The task of a child that maps items.

    Args:
        names: The names of the maps. The random numbers of a map depend on its name.
        maps: The maps, in the order in which they are applied.
        seed: The pipeline's seed.
        watched: Whether to warn of maps that keep state between items in this process.
    """

    names: list[str]
    maps: list[Callable[..., Any]]
    seed: int
    watched: bool = False

    def prepared(self) -> Callable[[Any, int, int, Sequence[int]], Any]:
        """Return a function that maps an item exactly as the parent would.

        The function receives the item, its epoch and index, and the positions of its rows.
        """
        maps = [partial(fn, context=here()) if takes_context(fn) else fn for fn in self.maps]
        keys = [stage_key(self.seed, name) if takes_rng(fn) else None for name, fn in zip(self.names, self.maps, strict=True)]
        steps = list(zip(self.names, maps, keys, strict=True))

        def apply(item: Any, epoch: int, index: int, rows: Sequence[int]) -> Any:
            passport = None
            for name, fn, key in steps:
                item = fn(item) if key is None else fn(item, generator(key, epoch, index, rows))
                if item is None:
                    raise TypeError(f"{name} returned None; return the item, or return DROP to drop it")
                if item is DROP:
                    return DROP
                if type(item) is Stamped:
                    item, passport = item
                    rows = passport.rows or (rows if passport[:2] == (epoch, index) else ())
                    epoch, index = passport.epoch, passport.index
            return item if passport is None else Stamped(item, passport)

        left = FIRST_ITEMS

        def apply_watched(item: Any, epoch: int, index: int, rows: Sequence[int]) -> Any:
            nonlocal left
            if left <= 0:
                return apply(item, epoch, index, rows)
            left -= 1
            before = [state_of(fn) for fn in self.maps]
            result = apply(item, epoch, index, rows)
            warned = [warn_of_state(*one) for one in zip(before, self.maps, self.names, strict=True)]
            left = 0 if any(warned) else left
            return result

        return apply_watched if self.watched else apply


def main(parent: int, fds: list[int], budget_mb: float) -> None:
    """Map items in order, until the parent closes the sockets or the thread that started this process ends."""
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("highway: the process that started this process has ended")
    ignore_interrupts()
    *sockets, stacks = fds
    faulthandler.register(signal.SIGTERM, file=stacks, all_threads=False, chain=True)  # afterwards, the signal ends the process as usual
    link = ObjectLink("Processes", [socket.socket(fileno=fd) for fd in sockets], budget_mb, is_child=True)
    try:
        _Mapping(link).serve()
    except LinkError:  # the socket has failed; errors in a record are sent as answers instead
        return
    finally:
        link.close()


class _Mapping:
    """The loop of a child. Its queues hold the items that wait, and the parent's decisions whether to skip an error."""

    def __init__(self, link: ObjectLink) -> None:
        self._link = link
        self._waiting: deque[Record] = deque()
        self._verdicts: deque[bool] = deque()

    def serve(self) -> None:
        kind: Kind
        (importing.script, sys.argv, task), *messages = self._link.receive()
        self._take(messages)
        try:
            maps = self._link.value(task)
            enter(Context(self._report_error, seed=maps.seed))
            apply = maps.prepared()
        except BaseException as error:
            self._answer("unfit", Failure.of(error))
            return
        self._answer("ready", None)
        while True:
            while not self._waiting:
                self._take(self._link.receive())
            began = time.perf_counter()
            try:
                kind, value = "result", apply(*self._link.value(self._waiting.popleft()))
            except BaseException as error:
                kind, value = "error", Failure.of(error)
            try:
                self._answer(kind, value, time.perf_counter() - began)
            except Exception as error:  # the result cannot be pickled, or exceeds the memory budget
                self._answer("error", Failure.of(error))
            value = None  # free the item's memory before waiting for the next item

    def _take(self, messages: list[Any]) -> None:
        for message in messages:
            if isinstance(message, bool):
                self._verdicts.append(message)
            else:
                self._waiting.extend(message)

    def _answer(self, kind: Kind, value: Any, seconds: float = 0.0) -> None:
        frames = pack(value)
        self._link.send((kind, self._link.record(frames), seconds, size(frames)))

    def _report_error(self, error: Exception) -> None:
        """Send an error to the parent, whose stage decides whether to skip the item."""
        self._answer("skippable", Failure.of(error))
        while not self._verdicts:
            self._take(self._link.receive())
        if not self._verdicts.popleft():
            raise error
