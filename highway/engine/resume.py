"""Resume a run: states of sources and streams, the markers that collect them, and the remaking of items.

The source regularly sends a :class:`Marker` after its items. Each stage that receives the marker adds its state and passes the marker on,
so that the marker holds the states of all stages at one point of the stream (Chandy and Lamport, *Distributed snapshots*, 1985).
:class:`highway.engine.consumer.Consumer` keeps the last marker and counts the items after it.

A state holds no data. For each item that waits in a stage, it holds the item's *lineage*: how the item was made. When the run resumes, the
items are made again. docs/adr/0011 gives the reasons, and docs/howto/resume.md shows how to write a source or stream that supports states.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from highway.engine.context import entered, here, on_behalf_of
from highway.engine.source import remake_of
from highway.engine.stage import DROP, Passport, Stamped
from highway.errors import PipelineError

if TYPE_CHECKING:
    from highway.engine.workers import StageWorkers

MARK_EVERY = 100  # outputs of the source between two markers at most,
MARK_APART = 0.01  # but at least this many seconds between them
MARK_WITHIN = 0.25  # seconds between two markers at most, if there are outputs
MARK_SHARE = 0.02  # share of a stage's time that markers may take; a stage that holds very many items gets fewer markers


class Saved(NamedTuple):
    """The state of a source or stream between two items.

    Args:
        state: A value that JSON can hold.
        held: For a stream, the inputs that wait in it.
    """

    state: Any = None
    held: Sequence[Stamped] = ()


Save = Callable[[], Saved | None]


def keep(save: Save, as_source: bool = False) -> None:
    """Register the function that returns the state of the source or stream on this thread. Call it when the source or stream starts.

    The engine calls ``save`` when a stream asks for its next input, or after a source has yielded. ``save`` returns ``None`` if the run
    cannot be resumed at this point. A stream without a state calls ``keep(Saved)``.

    Args:
        save: Returns the state.
        as_source: For a stream that takes no more inputs: ask it for its state as a source, and start markers here.
    """
    context = here()
    context.save, context.says_its_state, context.is_source = save, True, as_source
    context.holds |= save is not Saved


def saved() -> Saved | None:
    """Return the state from which the source or stream on this thread resumes; ``None`` if it starts from the beginning."""
    context = here()
    resume, context.resume = context.resume, None
    return resume() if resume is not None else None


def is_resumed() -> bool:
    """Return whether :func:`saved` will return a state."""
    return here().resume is not None


def between_epochs() -> None:
    """Take the place of ``save`` for a stream that waits for an epoch, and so has no state. It is never called."""


class Keeper:
    """A block in which :func:`keep` and :func:`saved` apply to a source inside the source that runs on this thread.

    Args:
        state: The state from which the inner source resumes; ``None``: it starts from the beginning.
    """

    def __init__(self, state: Any) -> None:
        self.save: Any = None
        self._resume: Any = None if state is None else lambda: Saved(state)

    def __enter__(self) -> None:
        context = here()
        self._outer, context.save, context.resume = (context.save, context.resume), self.save, self._resume
        context.inner += 1

    def __exit__(self, *_: object) -> None:
        context = here()
        self.save, self._resume = context.save, context.resume
        context.save, context.resume = self._outer
        context.inner -= 1


class Marker:
    """Passes through the stages after an item of the source and collects their states.

    Args:
        clock: Decides when the next marker is due; ``None`` if the marker was read from a state.
        states: States of the stages, by stage number. Their ``held`` entries are passports, or lineages read from a state.
        made: The shared lineages that lineages read from a state refer to.

    Attributes:
        refused: The first stage that does not support states.
    """

    __slots__ = ("clock", "made", "refused", "states")

    def __init__(self, clock: MarkerClock | None = None, states: dict[int, Any] | None = None, made: list[Any] | None = None) -> None:
        self.clock, self.states, self.made, self.refused = clock, {} if states is None else states, made, ""

    def as_json(self) -> dict[str, Any]:
        """Return the states and the shared lineages."""
        if self.made is not None:
            return {"states": {str(number): state for number, state in self.states.items()}, "made": self.made}
        lineages, states = _Lineages(), {}
        for number, state in self.states.items():
            held = [lineage(passport, lineages.of_input) for passport in state.get("held", ())]
            states[str(number)] = {**state, "held": held} if "held" in state else state
        return {"states": states, "made": lineages.made}


def lineage(passport: Passport, of_input: Callable[[Passport], Any] | None = None) -> list[Any]:
    """Return how an item was made, in a form that JSON can hold.

    ``[epoch, index]`` of its passport. If the passport has ``made_of``, these are followed by the number of the stage that made the item,
    the item's part, and for each input its lineage or the return value of ``of_input``.
    """
    if not passport.made_of:
        return [passport.epoch, passport.index]
    stage, inputs, part = passport.made_of
    return [passport.epoch, passport.index, stage, part, *map(of_input or lineage, inputs)]


class _Lineages:
    """Lineages in which an input that several items share, such as the batch they were split from, is replaced by a number.

    Attributes:
        made: The lineages of the shared inputs, indexed by these numbers.
    """

    def __init__(self) -> None:
        self.made: list[Any] = []
        self._numbers: dict[int, int] = {}  # by the id of the passport

    def of_input(self, passport: Passport) -> Any:
        if not passport.made_of:
            return lineage(passport)
        number = self._numbers.get(id(passport))
        if number is None:
            made = lineage(passport, self.of_input)
            number = self._numbers[id(passport)] = len(self.made)
            self.made.append(made)
        return number


class MarkerClock:
    """Decides when the next marker is due. The less time markers take, the sooner."""

    def __init__(self) -> None:
        self._not_before = 0.0
        self.begin(0)

    def begin(self, items: int) -> None:
        """Restart the wait, after the source has sent ``items`` items in total."""
        self._items, self._at = items, time.monotonic()

    def is_due(self, items: int) -> bool:
        """Return whether a marker is due after the source has sent ``items`` items in total."""
        now = time.monotonic()
        waited = now - self._at
        return now >= self._not_before and (waited >= MARK_WITHIN or (items - self._items >= MARK_EVERY and waited >= MARK_APART))

    def spent(self, seconds: float) -> None:
        """Delay the next marker so that markers take only a small part of the time, after a stage spent ``seconds`` on one."""
        self._not_before = max(self._not_before, time.monotonic() + seconds / MARK_SHARE)


def mark(worker: StageWorkers, marker: Stamped, epoch: int = 0) -> bool:
    """Add the state of a stage to a marker and pass the marker on.

    Args:
        worker: The stage. Called on its thread.
        marker: The marker that the stage received.
        epoch: The current epoch of a stream that restarts with each epoch.

    Returns:
        Whether the run can be resumed at this point. If not, a source sends no marker now.
    """
    save, states, began = worker.context.save, marker.item.states, time.monotonic()
    if save is between_epochs:
        states[worker.number] = {"epoch": epoch, "runs": False}
    elif save is None:
        marker.item.refused = marker.item.refused or worker.stage.name
    elif (found := _asked(save, marker)) is None:
        return bool(marker.item.refused)
    else:
        held = [stamped.passport for stamped in found.held]
        states[worker.number] = {"epoch": epoch, "runs": True, "state": found.state, "held": held}
        if marker.item.clock is not None:
            marker.item.clock.spent(time.monotonic() - began)
    worker.outbox.put(marker)
    return True


def _asked(save: Save, marker: Stamped) -> Saved | None:
    """Return the state of a stage. If a source inside it does not support states, the marker records that source's name."""
    try:
        return save()
    except PipelineError as error:
        marker.item.refused = marker.item.refused or str(error).removesuffix(" does not say where it is")
        return Saved()


def made_by(worker: StageWorkers, passport: Passport) -> Passport:
    """Complete ``made_of`` of a passport with the number of the stage that made the item."""
    stage, *rest = passport.made_of
    if stage is None:
        return Passport(*passport[:5], (worker.number, *rest))  # half of the time of _replace
    if worker.shape == "source":  # the item comes from an inner pipeline: ``made_of`` holds a stage number there
        return passport._replace(made_of=(worker.number, (), lineage(passport)))
    return passport


def resume(worker: StageWorkers, state: Any, remaker: Remaker) -> None:
    """Make a stage resume from a saved state. Called before the stage begins."""
    worker.resumed = state
    if state and "state" in state:
        worker.context.resume = lambda: Saved(state["state"], remaker.items(state["held"]))


class Remaker:
    """Makes items again from their lineages, as they entered a stage. An input that several items share is made once.

    Args:
        workers: All stages.
        number: Number of the stage that the items entered.
        made: The shared lineages that the items' lineages refer to.
    """

    def __init__(self, workers: Sequence[StageWorkers], number: int, made: Sequence[list[Any]] = ()) -> None:
        self._workers, self._number, self._made = workers, number, made
        self._uses: Counter[Any] = Counter()  # remaining uses of each input
        self._inputs: dict[Any, Stamped] = {}  # inputs that will be used again

    def items(self, lineages: Sequence[list[Any]]) -> list[Stamped]:
        """Make items again, in the order of the source, so that it may read them sequentially.

        Raises:
            PipelineError: A stage cannot make its items again, or now makes other items.
        """
        for lineage in lineages:
            self._count_inputs(lineage)
        order = sorted(range(len(lineages)), key=lambda place: lineages[place][:2])
        made = {place: self._item(lineages[place], self._number) for place in order}
        return [made[place] for place in range(len(lineages))]

    def _count_inputs(self, lineage: Sequence[Any]) -> None:
        for key, of_input in self._inputs_of(lineage):
            self._uses[key] += 1
            if self._uses[key] == 1:
                self._count_inputs(of_input)

    def _inputs_of(self, lineage: Sequence[Any]) -> Iterator[tuple[Any, list[Any]]]:
        """Yield the key and the lineage of each input of an item."""
        for of_input in lineage[4:]:
            yield (lineage[2], repr(of_input)), self._made[of_input] if isinstance(of_input, int) else of_input

    def _input(self, key: Any, lineage: Sequence[Any], stage: int) -> Stamped:
        stamped = self._inputs.pop(key, None) or self._item(lineage, stage)
        self._uses[key] -= 1
        if self._uses[key]:
            self._inputs[key] = stamped
        return stamped

    def _item(self, lineage: Sequence[Any], number: int) -> Stamped:
        """Make an item again and apply the maps between the stage that made it and the stage that it entered."""
        epoch, index, *made_of = lineage
        stage, part = made_of[:2] or (0, None)
        worker = self._workers[stage]
        make = remake_of(worker.stage.op, worker.traits)
        if make is None:
            where = self._workers[number].stage.name if number < len(self._workers) else "another pipeline"
            raise PipelineError(f"{worker.stage.name} cannot make items again, which wait in {where}; it can by Traits(remake=...)")
        items = [self._input(key, of_input, stage) for key, of_input in self._inputs_of(lineage)]
        with entered(on_behalf_of(worker.context)):
            made = make(items, part) if stage else make(epoch, index, part)
        if type(made) is not Stamped:
            made = Stamped(made, Passport(epoch, index, worker.origin))
        by = (stage, tuple(item.passport for item in items), part) if made_of else ()
        stamped = Stamped(made.item, made.passport._replace(epoch=epoch, index=index, made_of=by))
        for between in self._workers[stage + 1 : number]:
            if between.shape == "map":
                context = on_behalf_of(between.context)
                with entered(context), between.copying:  # if the map is not thread-safe, its workers have copies
                    result = between.apply(*stamped, between.with_context(between.stage.op, context))
                if result is DROP:
                    raise PipelineError(f"{between.stage.name} leaves out epoch {epoch}, item {index} now, which it has handed on before")
                stamped = result
        return stamped
