"""How a run goes on where another one was: states of sources and streams, the markers that collect them, and items that are made again.

Every so often the source sends a :class:`Marker` after its items. Each stage that meets it writes down its state and hands it on, so that
it says where all of them were at one moment of the stream (Chandy and Lamport, *Distributed snapshots*, 1985). Whoever takes the items
(:class:`highway.engine.consumer.Consumer`) keeps the last marker, and counts those behind it.

A state holds numbers, never what was read: of items that wait in a stage it says how they were made, their *lineage*, and they are made
again. docs/adr/0011 says why, docs/howto/resume.md how a source or stream of one's own says its state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from highway.engine import cancel
from highway.engine.source import remake_of
from highway.engine.stage import DROP, Passport, Stamped
from highway.errors import PipelineError

if TYPE_CHECKING:
    from highway.engine.workers import StageWorkers

MARK_EVERY = 100  # outputs of the source between two markers at most
MARK_WITHIN = 0.25  # seconds between two markers at most, if there are outputs


class Saved(NamedTuple):
    """What a source or stream needs to go on from between two items.

    Args:
        state: What JSON can hold.
        held: Of a stream: the inputs that wait in it.
    """

    state: Any = None
    held: Sequence[Stamped] = ()


Save = Callable[[], Saved | None]


def keep(save: Save, as_source: bool = False) -> None:
    """Say how the state of the source or stream that runs on this thread is found; called at its begin.

    A stream is asked when it asks for its next input, a source when it has yielded; one that cannot be left there returns ``None``. A
    stream without a state says ``keep(Saved)``.

    Args:
        save: Returns the state.
        as_source: Of a stream: whether it asks for no more inputs, and is asked as a source is; markers begin here then.
    """
    scope = cancel.here()
    scope.save, scope.says_its_state, scope.is_source = save, True, as_source
    scope.holds |= save is not Saved


def saved() -> Saved | None:
    """Return what the source or stream that begins on this thread is to go on from; ``None`` if it begins at the begin."""
    scope = cancel.here()
    resume, scope.resume = scope.resume, None
    return resume() if resume is not None else None


def is_resumed() -> bool:
    """Say whether :func:`saved` has something to say."""
    return cancel.here().resume is not None


def between_epochs() -> None:
    """Stand in the place of ``save`` of a stream that waits for an epoch to begin with, and so has no state; never called."""


class Keeper:
    """A block in which :func:`keep` and :func:`saved` are those of a source inside of the one that runs on this thread.

    Args:
        state: What the inner one is to go on from; ``None``: it begins at the begin.
    """

    def __init__(self, state: Any) -> None:
        self.save: Any = None
        self._resume: Any = None if state is None else lambda: Saved(state)

    def __enter__(self) -> None:
        scope = cancel.here()
        self._outer, scope.save, scope.resume = (scope.save, scope.resume), self.save, self._resume
        scope.inner += 1

    def __exit__(self, *_: object) -> None:
        scope = cancel.here()
        self.save, self._resume = scope.save, scope.resume
        scope.save, scope.resume = self._outer
        scope.inner -= 1


class Marker:
    """Goes through the stages behind an item of the source.

    Attributes:
        states: What stages have written down, by their number.
        refused: The first stage that does not say its state.
    """

    __slots__ = ("refused", "states")

    def __init__(self) -> None:
        self.states: dict[int, Any] = {}
        self.refused = ""


def lineage(passport: Passport) -> list[Any]:
    """Return how an item was made, as JSON holds it.

    ``[epoch, index]`` of its passport; with ``made_of`` behind these the number of the stage that made it, which part of its inputs it is,
    and the lineage of each of these.
    """
    if not passport.made_of:
        return [passport.epoch, passport.index]
    stage, inputs, part = passport.made_of
    return [passport.epoch, passport.index, stage, part, *map(lineage, inputs)]


class MarkerClock:
    """Says when it is time for another marker."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, items: int) -> None:
        """Wait again, from a number of items that the source has sent."""
        self._items, self._at = items, time.monotonic()

    def is_due(self, items: int) -> bool:
        """Say so, when the source has sent so many items."""
        return items - self._items >= MARK_EVERY or time.monotonic() - self._at >= MARK_WITHIN


def mark(worker: StageWorkers, marker: Stamped, epoch: int = 0) -> bool:
    """Write down the state of a stage, and hand the marker on.

    Args:
        worker: The stage, on whose thread this is called.
        marker: What it has met.
        epoch: The one that a stream which begins anew with each is in.

    Returns:
        Whether it could be left here; if not, a source sends no marker now.
    """
    save, states = worker.scope.save, marker.item.states
    if worker.shape == "sink":
        return True
    if save is between_epochs:
        states[worker.number] = {"epoch": epoch, "runs": False}
    elif save is None:
        marker.item.refused = marker.item.refused or worker.stage.name
    elif (found := _asked(save, marker)) is None:
        return bool(marker.item.refused)
    else:
        held = [lineage(stamped.passport) for stamped in found.held]
        states[worker.number] = {"epoch": epoch, "runs": True, "state": found.state, "held": held}
    worker.outbox.put(marker)
    return True


def _asked(save: Save, marker: Stamped) -> Saved | None:
    """Return what a stage says; a source inside of it that does not say where it is refuses in its place, by its name."""
    try:
        return save()
    except PipelineError as error:
        marker.item.refused = marker.item.refused or str(error).removesuffix(" does not say where it is")
        return Saved()


def made_by(worker: StageWorkers, passport: Passport) -> Passport:
    """Return a passport whose ``made_of`` says which stage has made the item."""
    stage, *rest = passport.made_of
    if stage is None:
        return passport._replace(made_of=(worker.number, *rest))
    if worker.shape == "source":  # it comes from a pipeline, of whose stages that speaks
        return passport._replace(made_of=(worker.number, (), lineage(passport)))
    return passport


def resume(worker: StageWorkers, state: Any, remaker: Remaker) -> None:
    """Have a stage go on from what another run has written down; called before it begins."""
    worker.resumed = state
    if state and "state" in state:
        worker.scope.resume = lambda: Saved(state["state"], remaker.items(state["held"]))


class Remaker:
    """Makes items again as they came into a stage, from their lineage.

    Args:
        workers: All stages.
        number: Which of them they came into.
    """

    def __init__(self, workers: Sequence[StageWorkers], number: int) -> None:
        self._workers, self._number = workers, number

    def items(self, lineages: Sequence[list[Any]]) -> list[Stamped]:
        """Return items again; they are made in the order of the source, which may read them one after the other."""
        order = sorted(range(len(lineages)), key=lambda place: lineages[place][:2])
        made = {place: self.item(lineages[place]) for place in order}
        return [made[place] for place in range(len(lineages))]

    def item(self, lineage: Sequence[Any]) -> Stamped:
        """Return an item again: as it was made, and through the maps between that stage and this one.

        Raises:
            PipelineError: a stage cannot make what it has made again, or makes something else now.
        """
        epoch, index, *made_of = lineage
        stage, part, *inputs = made_of or (0, None)
        worker = self._workers[stage]
        make = remake_of(worker.stage.op)
        if make is None:
            where = self._workers[self._number].stage.name if self._number < len(self._workers) else "another pipeline"
            raise PipelineError(f"{worker.stage.name} cannot make items again, which wait in {where}; it can by a method remake()")
        remaker = Remaker(self._workers, stage)
        items = [remaker.item(one) for one in inputs]
        with cancel.entered(cancel.on_behalf_of(worker.scope)):
            made = make(items, part) if stage else make(epoch, index, part)
        if type(made) is not Stamped:
            made = Stamped(made, Passport(epoch, index, worker.origin))
        by = (stage, tuple(item.passport for item in items), part) if made_of else ()
        stamped = Stamped(made.item, made.passport._replace(epoch=epoch, index=index, made_of=by))
        for between in self._workers[stage + 1 : self._number]:
            if between.shape == "map":
                scope = cancel.on_behalf_of(between.scope)
                with cancel.entered(scope), between.copying:  # if the map is not thread-safe, its workers have copies
                    result = between.apply(*stamped, between.stage.op)
                if result is DROP:
                    raise PipelineError(f"{between.stage.name} leaves out epoch {epoch}, item {index} now, which it has handed on before")
                stamped = result
        return stamped
