"""How a run goes on where another one was: what stages say of themselves between two items, and how that travels.

Every so often the source sends a :class:`Marker` after its items. Each stage that meets it writes down its state and hands it on, so that
it says where all of them were at one moment of the stream (Chandy and Lamport, *Distributed snapshots*, 1985). Whoever takes the items
keeps the last marker, and counts those behind it.

A state holds numbers, never what was read: of items that wait in a stage it says how they were made, and they are made again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from highway.engine import cancel
from highway.engine.source import remaker
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


def keep(save: Save) -> None:
    """Say how the state of the source or stream that runs on this thread is found; called at its begin.

    A stream is asked when it asks for its next input, a source when it has yielded; one that cannot be left there returns ``None``. A
    stream without a state says ``keep(Saved)``.
    """
    scope = cancel.here()
    scope.save, scope.says_its_state = save, True


def saved() -> Saved | None:
    """Return what the source or stream that begins on this thread is to go on from; ``None`` if it begins at the begin."""
    scope = cancel.here()
    resume, scope.resume = scope.resume, None
    return resume() if resume is not None else None


def between_epochs() -> None:
    """Stand for a stream that waits for an epoch to begin with, and has no state."""


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


def recipe(passport: Passport) -> list[Any]:
    """Return how an item was made, as JSON holds it: the epoch and index of its passport, and of what other items a stream made it."""
    if not passport.made_of:
        return [passport.epoch, passport.index]
    stage, inputs, part = passport.made_of
    return [passport.epoch, passport.index, stage, part, *map(recipe, inputs)]


class MarkerClock:
    """Says when it is time for another marker."""

    def __init__(self) -> None:
        self._items, self._at = 0, time.monotonic()

    def is_due(self, items: int) -> bool:
        """Say so, and wait again from then on.

        Args:
            items: How many the source has sent.
        """
        now = time.monotonic()
        if items - self._items < MARK_EVERY and now - self._at < MARK_WITHIN:
            return False
        self._items, self._at = items, now
        return True


def mark(worker: StageWorkers, marker: Stamped, epoch: int = 0) -> bool:
    """Write down the state of a stage, and hand the marker on; say whether that could be done."""
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
        held = [recipe(stamped.passport) for stamped in found.held]
        states[worker.number] = {"epoch": epoch, "runs": True, "state": found.state, "held": held}
    worker.outbox.put(marker)
    return True


def _asked(save: Save, marker: Stamped) -> Saved | None:
    try:
        return save()
    except PipelineError as error:
        marker.item.refused = marker.item.refused or str(error).removesuffix(" does not say where it is")
        return Saved()


def made_here(passport: Passport, worker: StageWorkers) -> Passport:
    """Return a passport that says of which stage its ``made_of`` is."""
    stage, *rest = passport.made_of
    if stage is None:
        return passport._replace(made_of=(worker.number, *rest))
    if worker.shape == "source":  # it comes from a pipeline, of whose stages that speaks
        return passport._replace(made_of=(worker.number, (), recipe(passport)))
    return passport


def resume(worker: StageWorkers, state: Any, kitchen: Kitchen) -> None:
    """Have a stage go on from what another run has written down; called before it begins."""
    worker.resumed = state
    if state and "state" in state:
        worker.scope.resume = lambda: Saved(state["state"], kitchen.all_made(state["held"]))


class Kitchen:
    """Makes items again as they came into a stage, from their recipes.

    Args:
        workers: All stages.
        number: Which of them they came into.
    """

    def __init__(self, workers: Sequence[StageWorkers], number: int) -> None:
        self._workers, self._number = workers, number

    def all_made(self, recipes: Sequence[Sequence[Any]]) -> list[Stamped]:
        """Return the items of recipes; they are made as the source orders them, which may read one after the other."""
        made = {
            place: self.made(recipes[place])
            for place in sorted(range(len(recipes)), key=lambda place: (recipes[place][0], recipes[place][1]))
        }
        return [made[place] for place in range(len(recipes))]

    def made(self, recipe: Sequence[Any]) -> Stamped:
        """Return the item of a recipe.

        Raises:
            PipelineError: a stage cannot make what it has made again, or makes something else now.
        """
        epoch, index, stage, part, *inputs = (*recipe, 0, None)[: max(4, len(recipe))]
        worker = self._workers[stage]
        make = remaker(worker.stage.op)
        if make is None:
            where = self._workers[self._number].stage.name if self._number < len(self._workers) else "another pipeline"
            raise PipelineError(f"{worker.stage.name} cannot make items again, which wait in {where}; it can by a method remake()")
        kitchen = Kitchen(self._workers, stage)
        items = [kitchen.made(one) for one in inputs]
        with cancel.entered(cancel.on_behalf_of(worker.scope)):
            made = make(items, part) if stage else make(epoch, index, part)
        if type(made) is not Stamped:
            made = Stamped(made, Passport(epoch, index, worker.origin))
        made_of = (stage, tuple(item.passport for item in items), part) if len(recipe) > 2 else ()
        stamped = Stamped(made.item, made.passport._replace(epoch=epoch, index=index, made_of=made_of))
        for between in self._workers[stage + 1 : self._number]:
            if between.shape == "map":
                with (
                    cancel.entered(cancel.on_behalf_of(between.scope)),
                    between.copying,
                ):  # if the map is not thread-safe, its workers have copies
                    result = between.apply(*stamped, between.stage.op)
                if result is DROP:
                    raise PipelineError(f"{between.stage.name} leaves out epoch {epoch}, item {index} now, which it has handed on before")
                stamped = result
        return stamped
