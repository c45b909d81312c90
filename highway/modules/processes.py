"""Run maps (functions of one item) and whole pipelines in separate processes, for code that holds the GIL."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
from _thread import get_ident
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from numpy.random import Generator

from highway.children.isolated import IsolatedRun
from highway.children.maps import ApplyMaps
from highway.children.process import expect_picklable
from highway.children.remote import RemoteMaps
from highway.engine import Pipeline
from highway.engine.cancel import check_cancelled
from highway.engine.component import Component, Traits, shape_by_method
from highway.engine.context import Context, at_end
from highway.engine.randomness import place_of
from highway.engine.resume import Marker
from highway.engine.stage import Origin, Stage, Stamped, expand
from highway.errors import Cancelled, ConfigError, EndOfStream, PipelineError
from highway.mistakes import log
from highway.parameters.checks import checked
from highway.parameters.ranges import HOW, Count, Predicate, Range
from highway.process.cores import available_cores


@checked
@dataclass
class Processes:
    """Apply maps in several processes at once, for Python code that holds the GIL. Order and random numbers do not change.

    The processes are spawned, not forked. highway pickles the maps once per process, so define the maps at the top level of a module. If
    your script defines a map, start the pipeline under ``if __name__ == "__main__":``, because the processes import the script. Small items
    are sent in groups. Large arrays are copied once, into shared memory. The arrays in the results are read-only.

    If a map raises an error, the pipeline raises an error of the same type, with the traceback as a note. To set options such as
    ``on_error`` and ``timeout``, put a ``Stage`` around ``Processes``. If a process dies, its current item fails. With ``on_error="skip"``,
    this item is skipped, and a new process gets the other items of the dead process. With ``timeout=seconds``, highway ends a process if an
    item takes longer than this time. The counter ``ended_processes`` counts these processes. A new process tries the item again, until the
    item has been tried ``attempts`` times (a setting of ``Stage``).

    You can also run a whole pipeline, including its source and streams, in one process: ``Processes([source, decode, Batch(32)])``. To run
    several pipelines in parallel, pass a list of stages for each process: ``Processes([[TenSource("a.ten"), Batch(32)],
    [TenSource("b.ten"), Batch(32)]])``. The items of the pipelines alternate. Each process prepares at most 16 items in advance, with at
    most ``budget_mb`` megabytes. The stages of a whole pipeline can have their own settings.

    Args:
        maps: Maps, or the stages of one or several whole pipelines. Each process applies the maps one after another.
        num_processes: Number of processes. ``None``: the number of available cores, or one process per whole pipeline.
        budget_mb: Megabytes of shared memory for the items that are sent to a process. The results of the process get the same amount. An
            item can use at most half of this memory.

    Raises:
        ConfigError: there are no maps, or ``num_processes`` is below 1 or differs from the number of whole pipelines.
        PipelineError: an entry of ``maps`` cannot be pickled, is not a map, or has settings other than ``name`` and ``drops``; or a whole
            pipeline ends in a sink (when the pipeline is built).
        RemoteError: a process died, or raised an error whose type cannot be created in this process (when running).

    >>> list(Pipeline([["a", "b"], Processes([str.upper], num_processes=1)]))
    ['A', 'B']
    """

    maps: Annotated[list[Component], Predicate(bool, "at least one map")]
    num_processes: Annotated[Count | None, HOW] = None
    budget_mb: Annotated[float, Range(gt=0), HOW] = 1024.0

    def __post_init__(self) -> None:
        if (pipelines := self._pipelines()) and self.num_processes not in (None, len(pipelines)):
            raise ConfigError(
                f"Processes: num_processes={self.num_processes} for {len(pipelines)} whole pipeline(s), each in one process; pass a "
                "separate list of stages for each process, which begins with its own source: Processes([[source, ...], [other, ...]])"
            )

    def _pipelines(self) -> list[list[Any]]:
        """Return the stages of each whole pipeline. The list is empty if there are only maps."""
        if all(isinstance(part, (list, tuple)) for part in self.maps):
            return [list(part) for part in self.maps]  # type: ignore[call-overload]
        return [self.maps] if _is_source(self.maps[0]) else []

    def stages(self) -> list[Stage]:
        """Return the map that sends items to the processes, or the source that receives items from them.

        Raises:
            PipelineError: an entry of ``maps`` is not valid; see :class:`Processes`.
        """
        if pipelines := self._pipelines():
            return [Stage(_Sources([_expanded(stages) for stages in pipelines], self.budget_mb), name="source")]
        parts = expand([(), *self.maps])[1:]
        for part, shape in parts:
            if shape != "map":
                raise PipelineError(
                    f"Processes: {part.label} is a {shape}, but only maps can run in processes; put it before or after Processes"
                )
            if given := [name for name in part.settings if name != "drops"]:
                raise PipelineError(
                    f"Processes: {part.label} has its own settings ({', '.join(given)}); pass them to a Stage around Processes"
                )
            expect_picklable(part.op, part.label, "Processes")
        names = [part.name for part, _ in parts]
        count = self.num_processes or available_cores()
        remote = _Remote(names, [part.op for part, _ in parts], self.budget_mb, watched=count > 1)
        drops = any(part.drops or part.traits.drops for part, _ in parts)
        return [Stage(remote, num_workers=count, name="+".join(names), drops=drops)]


def _is_source(part: Any) -> bool:
    """Return whether a component is a source. A function counts as a map, except a generator function."""
    op = part.op if isinstance(part, Stage) else part
    if shape_by_method(op) == "composite":
        try:
            return bool(expand([part]))
        except PipelineError:  # the component is a composite of maps
            return False
    # A class with __iter__, such as str, is a map.
    return (hasattr(op, "__iter__") and not inspect.isclass(op)) or inspect.isgeneratorfunction(op)


def _expanded(stages: list[Any]) -> list[Stage]:
    parts = expand(stages)
    last, shape = parts[-1]
    if shape == "sink":
        raise PipelineError(f"Processes: {last.label} is a sink; put it after Processes, which passes on the items of the processes")
    for part, _ in parts:
        expect_picklable(part.op, part.label, "Processes")
    return [part for part, _ in parts]


class _Remote:
    """A map that runs in other processes. Each worker thread has one process, which ends with the thread."""

    def __init__(
        self, names: list[str], maps: list[Callable[..., Any]], budget_mb: Annotated[float, HOW], watched: Annotated[bool, HOW]
    ) -> None:
        self._names, self._maps, self._budget_mb = names, maps, budget_mb
        self._watched = watched  # only the first process is watched
        self._making_again: dict[int, RemoteMaps] = {}  # for each thread, a process that creates items again

    def __deepcopy__(self, memo: object) -> _Remote:
        """Return this object. It needs no copy for each worker, because each process has its own copies of the maps."""
        return self

    def __highway__(self) -> Traits:
        return Traits(workers_parameter="num_processes", ahead=self._ahead, applies_timeout=True)

    def _ahead(self, context: Context) -> RemoteMaps:
        """Start a process for the worker on this thread. The process ends when the worker ends."""
        watched, self._watched = self._watched and log.isEnabledFor(logging.WARNING), False
        remote = RemoteMaps(ApplyMaps(self._names, self._maps, context.seed, watched), self._budget_mb, context.limit)
        at_end(remote.close)
        return remote

    def __call__(self, item: Any, rng: Generator, context: Context) -> Any:
        """Apply the maps to an item that is created again after a resume.

        Each thread starts one process for such items, and keeps it.
        """
        thread = get_ident()
        if thread not in self._making_again:
            self._making_again[thread] = self._ahead(context)
            at_end(lambda: self._making_again.__delitem__(thread))
        return self._making_again[thread].apply(item, *place_of(rng))


class _Sources:
    """A source whose items come from whole pipelines, each in its own process. The items of the pipelines alternate."""

    def __init__(self, pipelines: list[list[Stage]], budget_mb: Annotated[float, HOW]) -> None:
        self._pipelines, self._budget_mb = pipelines, budget_mb

    def __highway__(self) -> Traits:
        in_order = len(self._pipelines) == 1  # the items of several pipelines alternate
        return Traits(
            length=lambda: sum(len(Pipeline(stages)) for stages in self._pipelines),
            numbers_epochs=in_order and Pipeline(self._pipelines[0]).numbers_epochs,
        )

    def __iter__(self, context: Context) -> Iterator[Stamped]:
        count, origin = len(self._pipelines), Origin(os.uname().nodename)
        runs = [IsolatedRun(stages, expand(stages), context.seed, origin, self._budget_mb, "Processes", True) for stages in self._pipelines]
        with contextlib.ExitStack() as stack:
            for run in runs:
                stack.callback(run.stop)
                run.start()
            live = dict(enumerate(map(_items, runs)))
            while live:
                for number, items in list(live.items()):
                    stamped = next(items, None)
                    if stamped is None:
                        del live[number]
                    else:
                        item, passport = stamped
                        passport = passport.within(number, passport.epoch, passport.index * count + number)
                        yield Stamped(item, passport._replace(made_of=None))  # a resumed run does not create these items again


def _items(run: IsolatedRun) -> Iterator[Stamped]:
    """Yield the items of a run. If the run has failed, raise its error."""
    try:
        while True:
            stamped = run.take(None, is_in_stage=True)
            if type(stamped.item) is not Marker:
                yield stamped
    except EndOfStream:
        run.join()
    except Cancelled:
        check_cancelled()
        run.join()
        run.raise_error()
        raise
