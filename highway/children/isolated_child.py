"""What runs in the process of an isolated pipeline: all its stages, and who hands over what comes out of them."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from highway.children.child import ignore_interrupts
from highway.children.control import Control, ControlClosed
from highway.children.pickling import Failure, importing, pack, pack_arrays
from highway.engine.consumer import Consumer
from highway.engine.stage import Origin, Passport, expand
from highway.engine.stats import StageStats
from highway.engine.threads import Run
from highway.errors import Cancelled, EndOfStream, LinkError, PipelineError
from highway.wire.transports.shm import ShmSender

NAME: Final = "Pipeline(isolated=True)"
MOST: Final = 16  # items in shared memory: those that wait, and those that the consumer still looks at


class Begin(NamedTuple):
    """How the run of a pipeline begins.

    Args:
        seed: The pipeline's.
        origin: What its passports say.
        state: What it goes on from; ``None``: from the begin.
        draining: Whether its source shall end at once.
        background: Whether nobody waits for it, who would be told of an error.
        lineage: Whether passports say what the items were made of.
        is_counted: Whether the length was returned, which counts on every item.
    """

    seed: int
    origin: Origin
    state: Mapping[str, Any] | None
    draining: bool
    background: bool
    lineage: bool
    is_counted: bool


class Begun(NamedTuple):
    """What stages have said of themselves when the first item has come out.

    Args:
        says_its_state: Whether the source has.
        holding: The numbers of stages in which items may wait.
    """

    says_its_state: bool
    holding: list[int]


class Ended(NamedTuple):
    """How the run has ended.

    Args:
        stages: What each stage has done; empty if it has not begun.
        failure: What one has raised.
    """

    stages: list[StageStats]
    failure: Failure | None


def main(parent: int, control_fd: int, items_fd: int, budget_mb: float) -> None:
    """Run a pipeline; hand over what comes out of it by one socket, and do what the parent asks for by the other, until it closes them."""
    ignore_interrupts()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # what is printed shall not wait for the end
    control, items = Control(socket.socket(fileno=control_fd)), ShmSender(NAME, budget_mb, MOST, warns=False, writable=True)
    items.connections.adopt(socket.socket(fileno=items_fd))
    try:
        _serve(parent, control, items)
    except ControlClosed:  # the parent has no use for the pipeline
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
        if not isinstance(begin, Begin):  # it was stopped before it began
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
        if stopped or items.connections.is_over:  # nobody wants to know
            return
    ended = Ended(_stages(run) if run is not None else [], failure)
    try:
        frames = pack(("end", ended))
    except Exception as error:  # of what a component counts
        frames = pack(("end", Ended([], failure or Failure.of(error))))
    items.send(frames)


def _work(run: Run, begin: Begin, items: ShmSender) -> None:
    """Run the pipeline to its end; raise what one of its stages does."""
    if begin.state is not None:
        Consumer(run).go_on(begin.state, None)  # the parent has compared the stages
    if begin.is_counted:
        run.count()
    run.background = begin.background
    if begin.draining:
        run.drain()
    run.start()
    if run.workers[-1].shape == "sink":
        run.wait()
        return
    with contextlib.suppress(EndOfStream, Cancelled):
        _hand_over(run, begin, items)
    run.join()
    run.raise_error()


def _hand_over(run: Run, begin: Begin, items: ShmSender) -> None:
    first = True
    while True:
        item, passport = run.take(None)
        if first:
            source, *rest = run.workers
            holding = [worker.number for worker in rest if worker.context.holds]
            items.send(pack(("begun", Begun(source.context.says_its_state, holding))))
            first = False
        try:
            frames = pack_arrays(("item", (item, _plain(passport, begin))))
        except Exception as error:  # pickle raises what it likes, and __reduce__ too
            raise PipelineError(
                f"{NAME}: what comes out of {run.workers[-1].stage.name} cannot be handed to another process: {error}; "
                "hand over arrays, numbers and text, or leave isolated=True out"
            ) from error
        items.send(frames)
        del item, frames  # whose memory may be used for the next one


def _plain(passport: Passport, begin: Begin) -> tuple[Any, ...]:
    """Return a passport as what is unpickled at once: a tuple, with ``None`` in place of this pipeline's own origin."""
    epoch, index, origin, keys, times, made_of = passport
    return epoch, index, None if origin == begin.origin else origin, keys, times, made_of if begin.lineage else ()


def _attend(parent: int, control: Control, run: Run, items: ShmSender) -> None:
    """Do what the parent asks for, until it has the run stopped."""
    with contextlib.suppress(ControlClosed):
        while True:
            what, value, number = control.receive_from(parent)
            if what == "stop":
                break
            if what == "skip":
                run.skip(value)
            elif what == "feed":
                run.workers[0].stage.op.put(value)
            elif what == "drain":
                run.drain()
            elif what == "wait":
                run.background = False
            else:
                control.send((number, *_answer(what, run, items)))
    run.stop()


def _answer(what: str, run: Run, items: ShmSender) -> list[Any]:
    """Return an answer as it is pickled, or the error that has come in its place."""
    answers: dict[str, Callable[[], Any]] = {
        "stages": lambda: _stages(run, items.in_use()),
        "length": run.length,
        "data": lambda: run.snapshot.data(),
    }
    try:
        return pack(answers[what]())
    except Exception as error:  # of the user's components, or what they count
        return pack(Failure.of(error))


def _stages(run: Run, waiting: int = 0) -> list[StageStats]:
    """Return what each stage has done; what has come out of the last one may be ``waiting`` in shared memory, too."""
    *others, last = run.stats().stages
    if last.shape == "sink":
        return [*others, last]
    return [*others, replace(last, queued=last.queued + waiting, capacity=last.capacity + MOST)]
