"""How a run goes on where another one was: states of sources and streams, the markers that collect them, and items that are made again.

Every so often the source sends a :class:`Marker` after its items. Each stage that meets it writes down its state and hands it on, so that
it says where all of them were at one moment of the stream (Chandy and Lamport, *Distributed snapshots*, 1985). Whoever takes the items
(:class:`highway.engine.consumer.Consumer`) keeps the last marker, and counts those behind it.

A state holds numbers, never what was read: of items that wait in a stage it says how they were made, their *lineage*, and they are made
again. docs/adr/0011 says why, docs/howto/resume.md how a source or stream of one's own says its state.
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
MARK_APART = 0.01  # but where that many take less than so many seconds
MARK_WITHIN = 0.25  # seconds between two markers at most, if there are outputs
MARK_SHARE = 0.02  # of the time of a stage, which markers may take; where one holds very many items they come less often


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
    """Say how the state of the source or stream that runs on this thread is found; called when it starts.

    A stream is asked when it asks for its next input, a source when it has yielded; one that cannot be left there returns ``None``. A
    stream without a state says ``keep(Saved)``.

    Args:
        save: Returns the state.
        as_source: Of a stream: whether it asks for no more inputs, and is asked as a source is; markers begin here then.
    """
    context = here()
    context.save, context.says_its_state, context.is_source = save, True, as_source
    context.holds |= save is not Saved


def saved() -> Saved | None:
    """Return what the source or stream that begins on this thread is to go on from; ``None`` if it begins at the start."""
    context = here()
    resume, context.resume = context.resume, None
    return resume() if resume is not None else None


def is_resumed() -> bool:
    """Say whether :func:`saved` has something to say."""
    return here().resume is not None


def between_epochs() -> None:
    """Stand in the place of ``save`` of a stream that waits for an epoch to begin with, and so has no state; never called."""


class Keeper:
    """A block in which :func:`keep` and :func:`saved` are those of a source inside of the one that runs on this thread.

    Args:
        state: What the inner one is to go on from; ``None``: it begins at the start.
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
    """Goes through the stages behind an item of the source.

    Args:
        clock: Says when the next is due; none if it was read from a state.
        states: What stages have written down, by their number; what is ``held`` there are passports, or lineages that were read.
        made: Lineages to which those that were read refer.

    Attributes:
        refused: The first stage that does not say its state.
    """

    __slots__ = ("clock", "made", "refused", "states")

    def __init__(self, clock: MarkerClock | None = None, states: dict[int, Any] | None = None, made: list[Any] | None = None) -> None:
        self.clock, self.states, self.made, self.refused = clock, {} if states is None else states, made, ""

    def as_json(self) -> dict[str, Any]:
        """Return the states, and the lineages to which they refer."""
        if self.made is not None:
            return {"states": {str(number): state for number, state in self.states.items()}, "made": self.made}
        lineages, states = _Lineages(), {}
        for number, state in self.states.items():
            held = [lineage(passport, lineages.of_input) for passport in state.get("held", ())]
            states[str(number)] = {**state, "held": held} if "held" in state else state
        return {"states": states, "made": lineages.made}


def lineage(passport: Passport, of_input: Callable[[Passport], Any] | None = None) -> list[Any]:
    """Return how an item was made, as JSON holds it.

    ``[epoch, index]`` of its passport; with ``made_of`` behind these the number of the stage that made it, which part of its inputs it is,
    and the lineage of each of these, or what ``of_input`` returns for it.
    """
    if not passport.made_of:
        return [passport.epoch, passport.index]
    stage, inputs, part = passport.made_of
    return [passport.epoch, passport.index, stage, part, *map(of_input or lineage, inputs)]


class _Lineages:
    """Lineages in which an input that several items share, such as the batch they were cut from, is a number.

    Attributes:
        made: The lineage of each of these inputs, by that number.
    """

    def __init__(self) -> None:
        self.made: list[Any] = []
        self._numbers: dict[int, int] = {}  # by the identity of the passport

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
    """Says when it is time for another marker: sooner the less time these take."""

    def __init__(self) -> None:
        self._not_before = 0.0
        self.begin(0)

    def begin(self, items: int) -> None:
        """Wait again, from a number of items that the source has sent."""
        self._items, self._at = items, time.monotonic()

    def is_due(self, items: int) -> bool:
        """Say so, when the source has sent so many items."""
        now = time.monotonic()
        waited = now - self._at
        return now >= self._not_before and (waited >= MARK_WITHIN or (items - self._items >= MARK_EVERY and waited >= MARK_APART))

    def spent(self, seconds: float) -> None:
        """Wait for so long that the time which a stage has spent on a marker is a small part of it."""
        self._not_before = max(self._not_before, time.monotonic() + seconds / MARK_SHARE)


def mark(worker: StageWorkers, marker: Stamped, epoch: int = 0) -> bool:
    """Write down the state of a stage, and hand the marker on.

    Args:
        worker: The stage, on whose thread this is called.
        marker: What it has met.
        epoch: The one that a stream which begins anew with each is in.

    Returns:
        Whether it could be left here; if not, a source sends no marker now.
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
        return Passport(*passport[:5], (worker.number, *rest))  # half of what _replace takes
    if worker.shape == "source":  # it comes from a pipeline, of whose stages that speaks
        return passport._replace(made_of=(worker.number, (), lineage(passport)))
    return passport


def resume(worker: StageWorkers, state: Any, remaker: Remaker) -> None:
    """Have a stage go on from what another run has written down; called before it begins."""
    worker.resumed = state
    if state and "state" in state:
        worker.context.resume = lambda: Saved(state["state"], remaker.items(state["held"]))


class Remaker:
    """Makes items again as they came into a stage, from their lineages; what several were made of, once.

    Args:
        workers: All stages.
        number: Which of them they came into.
        made: The lineages to which those of the items refer by numbers.
    """

    def __init__(self, workers: Sequence[StageWorkers], number: int, made: Sequence[list[Any]] = ()) -> None:
        self._workers, self._number, self._made = workers, number, made
        self._uses: Counter[Any] = Counter()  # how often an input will be asked for
        self._inputs: dict[Any, Stamped] = {}  # those that were made, and will be asked for again

    def items(self, lineages: Sequence[list[Any]]) -> list[Stamped]:
        """Return items again; they are made in the order of the source, which may read them one after the other.

        Raises:
            PipelineError: a stage cannot make what it has made again, or makes something else now.
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
        """Yield the lineage of each input of an item, and what it is remembered by."""
        for of_input in lineage[4:]:
            yield (lineage[2], repr(of_input)), self._made[of_input] if isinstance(of_input, int) else of_input

    def _input(self, key: Any, lineage: Sequence[Any], stage: int) -> Stamped:
        stamped = self._inputs.pop(key, None) or self._item(lineage, stage)
        self._uses[key] -= 1
        if self._uses[key]:
            self._inputs[key] = stamped
        return stamped

    def _item(self, lineage: Sequence[Any], number: int) -> Stamped:
        """Return an item again as it came into a stage: as it was made, and through the maps between."""
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
