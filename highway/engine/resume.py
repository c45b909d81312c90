"""Resume a run: states of sources and streams, the markers that collect them, and the remaking of items.

The source regularly sends a :class:`Marker` after its items. Each stage that receives the marker adds its state and passes the marker on,
so that the marker holds the states of all stages at one point of the stream (Chandy and Lamport, *Distributed snapshots*, 1985).
:class:`highway.engine.consumer.Consumer` keeps the last marker and counts the items after it.

A state holds no data. For each item that waits in a stage, it holds the item's *lineage*: how the item was made. When the run resumes, the
items are made again. docs/adr/0011 gives the reasons, and docs/howto/resume.md shows how to write a source or stream that supports states.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from highway.engine.context import entered, here, on_behalf_of
from highway.engine.source import remake_of
from highway.engine.stage import DROP, Lineage, Passport, Stamped
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
        as_source: For a stream that takes no more inputs. The engine then treats the stream as a source: it calls ``save`` after outputs,
            and the stream sends the markers.
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
    """Placeholder for ``save``, for a stream that waits for the next epoch and therefore has no state. It is never called."""


class Keeper:
    """A ``with`` block for a source that runs inside another source: in it, :func:`keep` and :func:`saved` apply to the inner source.

    Args:
        state: The state from which the inner source resumes. ``None``: the inner source starts from the beginning.
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


class StageState(NamedTuple):
    """The state of a stage at a marker.

    Args:
        epoch: The epoch of a stream that restarts with each epoch.
        runs: Whether the stream is within that epoch. If not, it waits for the next one and has no state.
        state: What the stage has saved.
        held: Passports of the inputs that wait in the stage.
    """

    epoch: int = 0
    runs: bool = True
    state: Any = None
    held: Sequence[Passport] = ()


class Marker:
    """Passes through the stages after an item of the source and collects their states.

    Args:
        clock: Decides when the next marker is due; ``None`` if the marker was read from a state.
        states: States of the stages, by stage number.

    Attributes:
        refused: The first stage that does not support states.
    """

    __slots__ = ("clock", "refused", "states")

    def __init__(self, clock: MarkerClock | None = None, states: dict[int, StageState] | None = None) -> None:
        self.clock, self.states, self.refused = clock, {} if states is None else states, ""

    def as_json(self) -> dict[str, Any]:
        """Return the states. An input that several waiting items share is stored once, under ``"shared"``."""
        shared = _Shared()
        states = {}
        for number, state in self.states.items():
            held = [as_json(passport, shared.of_input) for passport in state.held]
            states[str(number)] = {**state._asdict(), "held": held}
        return {"states": states, "shared": shared.lineages}

    @staticmethod
    def from_json(state: Mapping[str, Any]) -> Marker:
        """Return a marker from the return value of :meth:`as_json`."""
        shared: list[Passport] = []
        for lineage in state["shared"]:  # a lineage refers only to lineages before it
            shared.append(from_json(lineage, shared))
        states = {int(number): StageState(**saved) for number, saved in state["states"].items()}
        return Marker(None, {number: one._replace(held=[from_json(held, shared) for held in one.held]) for number, one in states.items()})


def as_json(passport: Passport, of_input: Callable[[Passport], Any] | None = None) -> list[Any]:
    """Return how an item was made, in a form that JSON can hold.

    Without a lineage, this is ``[epoch, index]`` of the passport. With a lineage, it is ``[epoch, index, stage, part, *inputs]``, where
    each input is again such a list, or the return value of ``of_input``.
    """
    if not passport.made_of:
        return [passport.epoch, passport.index]
    inputs, part, stage = passport.made_of
    return [passport.epoch, passport.index, stage, part, *map(of_input or as_json, inputs)]


def from_json(saved: Sequence[Any], shared: Sequence[Passport] = ()) -> Passport:
    """Return a passport with the epoch, index and lineage that :func:`as_json` has returned.

    Args:
        saved: The return value.
        shared: The passports of inputs that were replaced by a number.
    """
    epoch, index, *made = saved
    if not made:
        return Passport(epoch, index)
    stage, part, *inputs = made
    passports = tuple(shared[one] if isinstance(one, int) else from_json(one, shared) for one in inputs)
    return Passport(epoch, index, made_of=Lineage(passports, part, stage))


class _Shared:
    """Replaces inputs by numbers if they have a lineage, because several items may share an input, such as a batch that was split.

    Attributes:
        lineages: The lineages of these inputs, indexed by the numbers.
    """

    def __init__(self) -> None:
        self.lineages: list[Any] = []
        self._numbers: dict[int, int] = {}  # by the id of the passport

    def of_input(self, passport: Passport) -> Any:
        if not passport.made_of:
            return as_json(passport)
        number = self._numbers.get(id(passport))
        if number is None:
            lineage = as_json(passport, self.of_input)
            number = self._numbers[id(passport)] = len(self.lineages)
            self.lineages.append(lineage)
        return number


class MarkerClock:
    """Decides when the next marker is due. If markers take little time, they are sent more often."""

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
        """Delay the next marker after a stage spent ``seconds`` on the last one, so that markers take only a small share of the time."""
        self._not_before = max(self._not_before, time.monotonic() + seconds / MARK_SHARE)


def mark(worker: StageWorkers, marker: Stamped, epoch: int = 0) -> bool:
    """Add the state of a stage to a marker and pass the marker on.

    Args:
        worker: The stage. Called on its thread.
        marker: The marker that the stage received.
        epoch: The current epoch of a stream that restarts with each epoch.

    Returns:
        ``False`` if the run cannot be resumed at this point. A source then sends no marker now.
    """
    save, states, began = worker.context.save, marker.item.states, time.monotonic()
    if save is between_epochs:
        states[worker.number] = StageState(epoch, runs=False)
    elif save is None:
        marker.item.refused = marker.item.refused or worker.stage.name
    elif (found := _asked(save, marker)) is None:
        return bool(marker.item.refused)
    else:
        held = [stamped.passport for stamped in found.held]
        states[worker.number] = StageState(epoch, True, found.state, held)
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
    """Complete the lineage of a passport with the number of the stage that made the item."""
    inputs, part, stage = _lineage_of(worker, passport)
    if stage is None:
        return Passport(*passport[:5], Lineage(inputs, part, worker.number))  # half of the time of _replace
    if worker.shape == "source":  # the item comes from an inner pipeline: its lineage has a stage number there
        return passport._replace(made_of=Lineage((), as_json(passport), worker.number))
    return passport


def _lineage_of(worker: StageWorkers, passport: Passport) -> Lineage:
    """Return the lineage of a passport. Up to version 0.1.0 it was ``(None, inputs, part)``, which works with a warning until 0.3."""
    made_of: Any = passport.made_of
    if type(made_of) is Lineage:
        return made_of
    _, inputs, part = made_of
    warnings.warn(
        f"{worker.stage.name}: made_of=(None, inputs, part) in a passport is made_of=Lineage(inputs, part) now, of highway; highway reads "
        "the tuple until version 0.3",
        FutureWarning,
        stacklevel=2,
    )
    return Lineage(inputs, part)


def resume(worker: StageWorkers, state: StageState | None, remaker: Remaker) -> None:
    """Make a stage resume from a saved state. Called before the stage begins."""
    worker.resumed = state
    if state is not None and state.runs:
        worker.context.resume = lambda: Saved(state.state, remaker.items(state.held))


class Remaker:
    """Makes items again, as they entered a stage, from their passports. An input that several items share is made once.

    Args:
        workers: All stages.
        number: Number of the stage that the items entered.
    """

    def __init__(self, workers: Sequence[StageWorkers], number: int) -> None:
        self._workers, self._number = workers, number
        self._uses: Counter[Any] = Counter()  # remaining uses of each input
        self._inputs: dict[Any, Stamped] = {}  # inputs that will be used again

    def items(self, passports: Sequence[Passport]) -> list[Stamped]:
        """Make items again and return them in the order of ``passports``.

        They are made in the order of the source, so that the source can read sequentially.

        Raises:
            PipelineError: A stage cannot make its items again, or now makes other items.
        """
        for passport in passports:
            self._count_inputs(passport)
        order = sorted(range(len(passports)), key=lambda place: passports[place][:2])
        made = {place: self._item(passports[place], self._number) for place in order}
        return [made[place] for place in range(len(passports))]

    def _count_inputs(self, passport: Passport) -> None:
        for one in passport.made_of.inputs if passport.made_of else ():
            key = _key(passport.made_of, one)
            self._uses[key] += 1
            if self._uses[key] == 1:
                self._count_inputs(one)

    def _input(self, passport: Passport, made_of: Lineage) -> Stamped:
        key = _key(made_of, passport)
        stamped = self._inputs.pop(key, None) or self._item(passport, made_of.stage or 0)
        self._uses[key] -= 1
        if self._uses[key]:
            self._inputs[key] = stamped
        return stamped

    def _item(self, passport: Passport, number: int) -> Stamped:
        """Make an item again and apply the maps between the stage that made it and the stage that it entered."""
        epoch, index, *_, lineage = passport
        inputs, part, made_by = lineage or Lineage()
        stage = made_by or 0
        worker = self._workers[stage]
        make = remake_of(worker.stage.op, worker.traits)
        if make is None:
            where = self._workers[number].stage.name if number < len(self._workers) else "another pipeline"
            raise PipelineError(f"{worker.stage.name} cannot make items again, which wait in {where}; it can by Traits(remake=...)")
        items = [self._input(one, lineage) for one in inputs] if lineage is not None else []
        with entered(on_behalf_of(worker.context)):
            made = make(items, part) if stage else make(epoch, index, part)
        if type(made) is not Stamped:
            made = Stamped(made, Passport(epoch, index, worker.origin))
        by = None if lineage is None else Lineage(tuple(item.passport for item in items), part, stage)
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


def _key(made_of: Lineage | None, passport: Passport) -> tuple[Any, ...]:
    """Return the key of an input of an item: equal for two items that share the input."""
    return made_of and made_of.stage, id(passport) if passport.made_of else passport[:2]
