"""The child's side of a pipeline that runs in its own process. It runs all stages, and passes the items of the last stage to the parent."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from highway.children.control import Control, ControlClosed
from highway.children.pickling import Failure, importing, pack, pack_arrays
from highway.children.receiving import Ended
from highway.engine.consumer import Consumer
from highway.engine.remake import lists_sources, short_lineage
from highway.engine.stage import Lineage, Origin, Passport, expand
from highway.engine.stats import StageStats
from highway.engine.threads import Run
from highway.errors import Cancelled, EndOfStream, LinkError, PipelineError
from highway.process.interrupt import ignore_interrupts
from highway.wire.transports.shm import ShmSender

MOST: Final = 16  # maximum number of items in shared memory, which wait or are in use by the consumer


class Begin(NamedTuple):
    """The parent's first message after the stages: the parameters of the run.

    Args:
        seed: The pipeline's seed.
        origin: Host, role and replica in the passports (metadata) of the pipeline's items.
        state: The state to resume from; ``None`` starts from the beginning.
        draining: Whether the source must end at once.
        background: Whether no caller waits for the run. Errors of the run can then not be raised.
        lineage: Whether each passport lists the items from which its item was made.
        is_counted: Whether ``len(pipeline)`` was called. The caller then relies on the number of items.
    """

    seed: int
    origin: Origin
    state: Mapping[str, Any] | None
    draining: bool
    background: bool
    lineage: bool
    is_counted: bool


def main(parent: int, fds: list[int], who: str, budget_mb: float, writable: bool) -> None:
    """Run a pipeline. Answer the parent's requests on one socket and send items on the other, until the parent closes the sockets.

    Args:
        parent: The ID of the process that started this process.
        fds: The sockets for requests and for items.
        who: The start of error messages.
        budget_mb: Megabytes of shared memory for items.
        writable: Whether the parent is allowed to write into the items.
    """
    ignore_interrupts()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # print lines at once, not at exit
    requests, results = (socket.socket(fileno=fd) for fd in fds)
    control, items = Control(requests), ShmSender(who, budget_mb, MOST, warns=False, writable=writable)
    items.connections.adopt(results)
    try:
        _serve(parent, control, items)
    except ControlClosed:  # the parent no longer needs the pipeline
        pass
    except LinkError:
        if not items.connections.is_over:
            raise
    finally:
        items.close()


def _serve(parent: int, control: Control, items: ShmSender) -> None:
    importing.script, sys.argv = control.receive_from(parent)
    run: Run | None = None
    failure: Failure | None = None
    try:
        stages, begin = control.receive_from(parent), control.receive_from(parent)
        if not isinstance(begin, Begin):  # the parent stopped the run before it began
            return
        run = Run(expand(stages), begin.seed, begin.origin)
        threading.Thread(target=_attend, args=(parent, control, run, items), name="highway:control", daemon=True).start()
        _work(run, begin, items)
    except ControlClosed:
        raise
    except BaseException as error:
        failure = Failure.of(error)
    if run is not None:
        stopped = run.stopped
        run.stop()
        if stopped or items.connections.is_over:  # the parent does not wait for the last message
            return
    ended = Ended(_stages(run) if run is not None else [], failure)
    try:
        frames = pack(("end", ended))
    except Exception as error:  # a value in the counters of a component cannot be pickled
        frames = pack(("end", Ended([], failure or Failure.of(error))))
    items.send(frames)


def _work(run: Run, begin: Begin, items: ShmSender) -> None:
    """Run the pipeline to its end. Raises the errors of its stages."""
    if begin.state is not None:
        Consumer(run).go_on(begin.state, None)  # the parent has already compared the stages
    if begin.is_counted:
        run.count()
    run.background = begin.background
    if begin.draining:
        run.drain()
    run.start()
    if run.stages[-1].shape == "sink":
        run.wait()
        return
    with contextlib.suppress(EndOfStream, Cancelled):
        _hand_over(run, begin, items)
    run.join()
    run.raise_error()


def _hand_over(run: Run, begin: Begin, items: ShmSender) -> None:
    first, lists, told = True, not begin.lineage and lists_sources(run.stages), list[int]()
    while True:
        item, passport = run.take(None)
        if first:
            items.send(pack(("begun", run.stages[0].context.refusal)))
            first = False
        if (renumbered := run.renumbered) != told:
            told = renumbered
            items.send(pack(("renumbered", told)))
        made_of = short_lineage(passport, run.stages) if lists else passport.made_of if begin.lineage else None
        try:
            frames = pack_arrays(("item", (item, _plain(passport, begin, made_of))))
        except Exception as error:  # pickle and __reduce__ can raise any error
            raise PipelineError(
                f"{items.link}: an item of {run.stages[-1].stage.name} cannot be sent to another process: {error}; yield arrays, numbers "
                "and text, or run the stages in this process"
            ) from error
        items.send(frames)
        del item, frames  # so that the next item can reuse their memory


def _plain(passport: Passport, begin: Begin, made_of: Lineage | None) -> tuple[Any, ...]:
    """Return a passport as a tuple, because tuples unpickle faster. ``None`` replaces the origin of this pipeline."""
    epoch, index, origin, keys, times, _, positions = passport if begin.lineage else passport.sent()
    return epoch, index, None if origin == begin.origin else origin, keys, times, made_of, positions


def _attend(parent: int, control: Control, run: Run, items: ShmSender) -> None:
    """Carry out the parent's requests until it stops the run."""
    with contextlib.suppress(ControlClosed):
        while True:
            what, value, number = control.receive_from(parent)
            if what == "stop":
                break
            if what == "skip":
                run.skip(value)
            elif what == "feed":
                run.stages[0].stage.op.put(value)
            elif what == "drain":
                run.drain()
            elif what == "wait":
                run.background = False
            else:
                control.send((number, *_answer(what, run, items)))
    run.stop()


def _answer(what: str, run: Run, items: ShmSender) -> list[Any]:
    """Return the pickled answer to a question. If computing the answer raises an error, return the pickled error."""
    answers: dict[str, Callable[[], Any]] = {
        "stages": lambda: _stages(run, items.in_use()),
        "length": run.length,
        "data": lambda: run.snapshot.data(),
    }
    try:
        return pack(answers[what]())
    except Exception as error:  # from the user's components, or while pickling their statistics
        return pack(Failure.of(error))


def _stages(run: Run, waiting: int = 0) -> list[StageStats]:
    """Return the statistics of each stage. ``waiting`` is the number of the last stage's items that are in shared memory."""
    *others, last = run.stats().stages
    if last.shape == "sink":
        return [*others, last]
    return [*others, replace(last, queued=last.queued + waiting, capacity=last.capacity + MOST)]
