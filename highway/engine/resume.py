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
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from highway.engine.component import NotNowError
from highway.engine.context import entered, on_behalf_of
from highway.engine.source import remake_of
from highway.engine.stage import DROP, Lineage, Passport, Stamped
from highway.errors import PipelineError
from highway.renamed import explain_missing

if TYPE_CHECKING:
    from highway.engine.input import StageInput
    from highway.engine.workers import StageWorkers

MARK_EVERY = 100  # outputs of the source between two markers at most,
MARK_APART = 0.01  # but at least this many seconds between them
MARK_WITHIN = 0.25  # seconds between two markers at most, if there are outputs
MARK_SHARE = 0.02  # share of a stage's time that markers may take; a stage that holds very many items gets fewer markers


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
        """Return the states, and the lineages of the inputs that several of their items share."""
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
        for lineage in state["shared"]:  # each refers to those before it
            shared.append(from_json(lineage, shared))
        states = {int(number): StageState(**saved) for number, saved in state["states"].items()}
        return Marker(None, {number: one._replace(held=[from_json(held, shared) for held in one.held]) for number, one in states.items()})


def as_json(passport: Passport, of_input: Callable[[Passport], Any] | None = None) -> list[Any]:
    """Return how an item was made, in a form that JSON can hold.

    ``[epoch, index]`` of its passport. If the passport has a lineage, these are followed by its stage and part, and for each input the same
    list or the return value of ``of_input``.
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
    """Replaces inputs that were made of other items by numbers, because several items may share them, such as a batch that was split.

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


def mark(worker: StageWorkers, marker: Stamped, items: StageInput) -> bool:
    """Add the state of a stage to a marker and pass the marker on.

    Args:
        worker: The stage. Called on its thread.
        marker: The marker that the stage received.
        items: The input of the stage.

    Returns:
        Whether the run can be resumed at this point. If not, the marker is not passed on.
    """
    state, states, began = worker.context.running[1], marker.item.states, time.monotonic()
    if not items.runs:
        states[worker.number] = StageState(items.epoch, runs=False)
    elif state is None:
        marker.item.refused = marker.item.refused or worker.stage.name
    else:
        try:
            waiting = items.waiting() if callable(items.waiting) else items.waiting
            states[worker.number] = StageState(items.epoch, True, state.state(), [stamped.passport for stamped in waiting])
        except NotNowError:
            return False
        except PipelineError as error:  # a source inside the stage does not support states: record its name
            marker.item.refused = marker.item.refused or str(error).removesuffix(" does not say where it is")
        if marker.item.clock is not None:
            marker.item.clock.spent(time.monotonic() - began)
    worker.outbox.put(marker)
    return True


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
        """Make items again, in the order of the source, so that it may read them sequentially.

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


explain_missing(__name__)
