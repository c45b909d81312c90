"""When a run resumes, make again the inputs that waited in stages, and convert the states of another number of ranks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from highway.engine.component import Ranks
from highway.engine.context import entered, here, on_behalf_of
from highway.engine.hashing.identity import MIXTURE, is_named
from highway.engine.resume import Marker, ReadByRank, StageState, digest, is_between_epochs, packed, unpacked
from highway.engine.running import RunningStage
from highway.engine.source import has_state, ranks_of, remake_of
from highway.engine.stage import DROP, Lineage, Passport, Stamped
from highway.errors import PipelineError

log = logging.getLogger("highway")


class Remaker:
    """Makes the inputs of a stage again from their passports (metadata). If several items share an input, the input is made only once.

    Args:
        stages: All stages.
        number: Index of the stage that the items entered; the number of stages for the outputs of the pipeline.
    """

    def __init__(self, stages: Sequence[RunningStage], number: int) -> None:
        self._stages, self._number = stages, number
        self._uses: Counter[Any] = Counter()  # remaining uses of each input
        self._inputs: dict[Any, Stamped] = {}  # inputs that will be used again

    def items(self, passports: Sequence[Passport]) -> list[Stamped]:
        """Make items again and return them in the order of ``passports``.

        The items are made in the order of the source, so that the source can read sequentially.

        Raises:
            PipelineError: a stage cannot make its items again, or now drops an item that it has passed on before.
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
        """Make an item again: call the stage that made it, and apply the maps between this stage and the stage that the item entered."""
        epoch, index, lineage = *passport[:2], passport.made_of
        inputs, part, made_by = lineage or Lineage()
        stage = made_by or 0
        running = self._stages[stage]
        make = remake_of(running.stage.op, running.traits)
        if make is None or (lineage is not None and not lineage.is_known):
            where = self._stages[number].stage.name if number < len(self._stages) else "another pipeline"
            raise PipelineError(
                f"{running.stage.name} cannot make the items again that wait in {where}; declare Traits(remake=...) in this component"
            )
        items = [self._input(one, lineage) for one in inputs] if lineage is not None else []
        with entered(on_behalf_of(running.context)):
            made = make(items, part) if stage else make(epoch, index, part)
        if type(made) is not Stamped:
            made = Stamped(made, Passport(epoch, index, running.origin))
        by = None if lineage is None else Lineage(tuple(item.passport for item in items), part, stage)
        stamped = Stamped(made.item, made.passport.again(epoch, index)._replace(made_of=by))
        for between in self._stages[stage + 1 : number]:
            if between.shape == "map":
                with entered(on_behalf_of(between.context)):
                    result = _applied(between, stamped)
                if result is DROP:
                    what = f"item {index} of epoch {epoch}"
                    raise PipelineError(f"{between.stage.name} now drops {what}, but kept this item before; resume with the old map")
                stamped = result
        return stamped


def _applied(running: RunningStage, stamped: Stamped) -> Any:
    """Return the result of a map for an item that it has processed before."""
    running.here.passport = stamped.passport  # for error messages
    if running.limit is not None:
        return running.apply(*stamped, running.limit.apply)
    with running.copying:  # if the map is not thread-safe, its workers have copies
        return running.apply(*stamped, running.with_context(running.stage.op, here()))


def _key(made_of: Lineage | None, passport: Passport) -> tuple[Any, ...]:
    """Return a key for an input of an item. If two items share the input, the keys are equal."""
    return made_of and made_of.stage, id(passport) if passport.made_of else passport[:2]


# --- states of other ranks ---


def moved(
    stages: Sequence[RunningStage], states: Sequence[Mapping[str, Any]], ranks: Ranks, is_list: bool, allow_changed: Collection[str] | None
) -> Mapping[str, Any]:
    """Convert the states of a run with another number of ranks, batch size or mixture. Return the state in which this rank resumes.

    Args:
        stages: The stages of this pipeline.
        states: The states of all ranks, or of one rank.
        ranks: The ranks of this pipeline's source.
        is_list: Whether the user gave a list of states.
        allow_changed: The stages that are allowed to differ.

    Raises:
        PipelineError: the states do not determine which items are left.
    """
    source, *rest = stages
    is_remixed = any(name.endswith(MIXTURE) for name in allow_changed or ())
    state = dict(max(states, key=lambda state: (state["epoch"], state["begun"])))
    counts = [(number, count) for one in states for number, count in one["errors"].items()]
    state["errors"] = dict(sorted(counts, key=lambda pair: pair[1]))  # max_errors limits each rank: keep the largest count of the old ranks
    if all(map(is_between_epochs, states)) and (begins := _at_epoch(stages, state["epoch"])) is not None:
        if len(epochs := {state["epoch"] for state in states}) > 1:
            raise PipelineError(f"load_state_dict: the states are before different epochs, {epochs}; load the states of one checkpoint")
        if is_remixed:
            ((_, count),) = state["ranks"]
            begins[0] = _dealt(source, [ReadByRank([rank, count], begins[0]) for rank in range(count)])
        return _begins(state, ranks, begins)
    for name in sorted({name for one in states for name in one["renumbered"]}):
        refuse(name, "changed the epoch or index of items, so the remaining samples of the other ranks are unknown", allow_changed)
    rank, *others = state["ranks"] or [None]
    is_divided = rank is not None and all(one == rank for one in others)  # all sources are divided among the same ranks
    has_all = is_list or (rank is not None and rank[1] == 1)
    name, keeps = _obstacle(stages), "keeps data of earlier epochs, parts of items, or data of one rank only"
    obstacle = f"{name} {keeps}" if name else "" if is_divided else f"{source.stage.name} has sources with different ranks"
    if has_all and not obstacle:
        return _begins(state, ranks, {0: _dealt(source, [_read(stages, one) for one in states])})
    if is_list or (is_remixed and obstacle):
        how, way_out = (
            ("with another mixture", "with the same mixture") if is_remixed else ("on other ranks", "on the same number of ranks")
        )
        way_out += "" if any(map(_spans_epochs, stages)) else ", or from states that were saved between two epochs"
        raise PipelineError(
            f"load_state_dict: {obstacle}, so the run cannot resume {how} in the middle of an epoch, even from the states of all ranks; "
            f"resume {way_out}"
        )
    why = f"is not exact on other ranks: the state was saved on {_shown(state['ranks'])}, but this is {_shown(ranks)}"
    of_all = "" if obstacle else _of_all(state["ranks"][0][1])
    kept = dict(state["states"])
    for running in rest:
        if not running.stage.keeps_count or running.stage.name in state["uneven"]:  # uneven: has dropped or skipped items
            refuse(running.stage.name, why, allow_changed, of_all)
            kept.pop(str(running.number), None)
    state = dict(state) | {"states": kept, "ranks": ranks}
    if source.traits.deal_anew is None or not is_divided:
        refuse(source.stage.name, why, allow_changed)
    else:
        try:
            with entered(on_behalf_of(source.context)):
                dealt = source.traits.deal_anew(kept.get("0", {}).get("state"), state["last"], rank)
            kept["0"] = StageState(state=dealt)._asdict()
            state |= {"items": 0, "last": None, "given": [], "used": used_as_json([], stages)}
        except PipelineError as error:
            refuse(source.stage.name, str(error), allow_changed)
    return state | {"digest": digest(state, "load_state_dict")}


def _dealt(source: RunningStage, reads: list[ReadByRank]) -> Any:
    assert source.traits.deal_rest is not None
    try:
        with entered(on_behalf_of(source.context)):
            return source.traits.deal_rest(reads)
    except PipelineError as error:
        raise PipelineError(f"load_state_dict: {source.stage.name} {error}") from None


def _begins(state: Mapping[str, Any], ranks: Ranks, states: Mapping[int, Any]) -> Mapping[str, Any]:
    """Return a state in which no item waits in a stage. ``states`` holds the states of the stages, by the index of the stage."""
    changes: dict[str, Any] = {"ranks": ranks, "uneven": [], "last": None, "items": 0, "given": [], "used": used_as_json([], ())}
    changes["states"] = {str(number): StageState(state=own)._asdict() for number, own in states.items()}
    begun = dict(state) | changes | {"shared": []}
    return begun | {"digest": digest(begun, "load_state_dict")}


def _at_epoch(stages: Sequence[RunningStage], epoch: int) -> dict[int, Any] | None:
    """Return the states of the stages at the beginning of an epoch; ``None`` if a stage keeps data from one epoch to the next."""
    if any(map(_spans_epochs, stages)):
        return None
    return {running.number: running.traits.at_epoch(epoch) for running in stages if running.traits.at_epoch is not None}


def _spans_epochs(running: RunningStage) -> bool:
    """Return whether a stage keeps data from one epoch to the next."""
    return running.shape != "map" and running.stage.spans_epochs


def _obstacle(stages: Sequence[RunningStage]) -> str:
    """Return the name of a stage that prevents an exact resume on other ranks, even with all ranks' states; empty if no stage does."""
    source, *rest = stages
    for running in reversed(rest):
        traits = running.traits
        if running.shape == "map":
            is_exact = traits.remake is None or running.layers[-1] is source.layers[-1]  # a map with its own ``remake`` can split items
        else:
            is_exact = running.stage.keeps_count or (traits.per_epoch and (traits.whole_inputs or traits.one_to_one is not None))
            is_exact = is_exact or running is splitting(stages)
        if not is_exact:
            return running.stage.name
    if source.traits.deal_rest is not None:
        return ""
    return f"{source.stage.name} ({source.traits.indivisible})" if source.traits.indivisible else source.stage.name


def splitting(stages: Sequence[RunningStage]) -> RunningStage | None:
    """Return the stream that splits the batches of a reader into samples; ``None`` if no such stream comes directly after a reader."""
    own = list(takewhile(lambda running: running.layers[-1] is stages[0].layers[-1], stages))
    after = stages[len(own)] if len(own) < len(stages) else None
    makes_batches = any(running.traits.makes == "batches" for running in own) and stages[0].traits.deal_rest is not None
    return after if after is not None and after.traits.splits_batches and makes_batches else None


def needs_of_other_ranks(stages: Sequence[RunningStage]) -> str:
    """Return a text that describes what is needed to resume on another number of ranks, and which stage is the reason.

    The text is empty if one rank's state is enough, all ranks read the same items, or the pipeline has no states.
    """
    source, *rest = stages
    is_stateless = not has_state(source.stage.op, source.traits) or any(one.shape == "stream" and one.traits.state is None for one in rest)
    if is_stateless or stages[-1].shape == "sink" or not ranks_of(source.stage.op, source.traits):
        return ""
    other = "resume on another number of ranks"
    if spans := next(filter(_spans_epochs, stages), None):
        does = "carries data from one epoch to the next" if spans is not source else "has a position that fits only its rank"
        return f"{other} is impossible, because {spans.stage.name} {does}"
    if name := _obstacle(stages):
        return f"{other} is possible only between epochs, because {name} keeps parts of items, or data of one rank only"
    if source.traits.indivisible:
        return f"{other} is possible only between epochs, because {source.traits.indivisible}"
    if (running := next((running for running in rest if not running.stage.keeps_count), None)) is None:
        return ""
    holds = "splits batches" if running.traits.splits_batches else "holds items"
    does = holds if running.shape != "map" else "drops or skips items" if running.stage.ordered else "keeps no order"
    return f"{other} needs the states of all ranks, because {running.stage.name} {does}"


def tracks(stages: Sequence[RunningStage]) -> bool:
    """Return whether a state must list, for each item after the marker, the source's items in it.

    If all stages keep the order, the list is not needed, because the last item shows which items came before.
    """
    _, *rest = stages
    return not _obstacle(stages) and not all(map(_in_order, rest))


def _in_order(running: RunningStage) -> bool:
    """Return whether a stage passes on items in the order of the source, and holds no items. It can drop items."""
    return running.stage.ordered if running.shape == "map" else running.stage.keeps_count


def used_as_json(used: Sequence[Any], stages: Sequence[RunningStage]) -> Any:
    """Return the source's items in some outputs, as JSON. If a stage has split an item, return the name of this stage.

    Args:
        used: For each output, its passport, or the list of the source's items in it.
        stages: The stages.
    """
    try:
        items = [one if isinstance(one, list) else _all_source_items(one, stages) for one in used]
    except _SplitError as error:
        return str(error)
    columns = _flat([own for one in items for own in one]).T
    return [packed(np.array(list(map(len, items)), np.int64)), *map(packed, columns)]


def _all_source_items(passport: Passport, stages: Sequence[RunningStage]) -> list[list[int]]:
    if passport.made_of is not None and isinstance(passport.made_of.part, np.ndarray):
        items: list[list[int]] = passport.made_of.part.tolist()
        return items
    return list(_source_items(passport, stages, stages))


def lists_sources(stages: Sequence[RunningStage]) -> bool:
    """Return whether a process that receives the items needs their :func:`short_lineage`, to resume on another number of ranks."""
    source = stages[0]
    ranks = ranks_of(source.stage.op, source.traits)
    regroups = _merging(stages) is not None or splitting(stages) is not None
    return any(world_size > 1 for _, world_size in ranks) and tracks(stages) and regroups


def short_lineage(passport: Passport, stages: Sequence[RunningStage]) -> Lineage | None:
    """Return a lineage that only lists the source's items in an item; ``None`` if they are unknown."""
    try:
        return Lineage(part=np.array(list(_source_items(passport, stages, stages)), np.int64))
    except _SplitError:
        return None


def _merging(stages: Sequence[RunningStage]) -> RunningStage | None:
    """Return the last stage that can merge several items into one; ``None`` if no stage can."""
    return next((running for running in reversed(stages) if running.traits.whole_inputs and running.traits.one_to_one is None), None)


def used_from_json(saved: Any) -> list[list[list[int]]] | None:
    """Return for each output the source's items in it, as ``[epoch, index]`` or ``[epoch, index, row]``; ``None`` if they are unknown."""
    if not isinstance(saved, list):
        return None
    counts, *columns = map(unpacked, saved)
    flat, stops = np.stack(columns, 1).tolist(), np.cumsum(counts).tolist()
    return [flat[stop - count : stop] for stop, count in zip(stops, counts.tolist(), strict=True)]


class _SplitError(Exception):
    """A stage has split an item, or does not report the inputs of its outputs. The message is the name of the stage."""


def _source_items(passport: Passport, stages: Sequence[RunningStage], before: Sequence[RunningStage]) -> Iterator[list[int]]:
    """Yield the epoch and index of each of the source's items in an item. The item has passed the stages in ``before``."""
    made_of, source = passport.made_of, stages[0].layers[-1]
    merging = _merging(before)
    if merging is not None and (made_of is None or made_of.stage != merging.number):
        raise _SplitError(merging.stage.name)
    made_by = stages[made_of.stage or 0] if made_of is not None else stages[0]
    split = splitting(stages)
    if made_by is split and made_of is not None:
        (batch,) = made_of.inputs
        yield [batch.epoch, batch.index, made_of.part]
        return
    if split is not None and split in before and made_by.number < split.number:
        raise _SplitError(split.stage.name)
    if made_of is None or made_by.layers[-1] is source:
        yield [passport.epoch, passport.index]
        return
    if not made_of.inputs or (not made_by.traits.whole_inputs and made_by.traits.one_to_one is None):
        raise _SplitError(made_by.stage.name)
    for one in made_of.inputs:
        yield from _source_items(one, stages, stages[: made_by.number])


def _read(stages: Sequence[RunningStage], state: Mapping[str, Any]) -> ReadByRank:
    """Return the record of what a rank has read, from its state."""
    rank = state["ranks"][0]
    source, *rest = stages
    if is_between_epochs(state):
        assert source.traits.at_epoch is not None
        return ReadByRank(rank, source.traits.at_epoch(state["epoch"]))
    states = Marker.from_json(state).states
    own = states.pop(0, StageState()).state
    if all(map(_in_order, rest)):
        return ReadByRank(rank, own, state["last"])
    used = used_from_json(state["used"])
    held: list[list[int]] = []
    try:
        if used is None:
            raise _SplitError(state["used"] or rest[-1].stage.name)
        for number, one in states.items():
            for passport in one.held:
                held += _source_items(passport, stages, stages[:number])
    except _SplitError as error:
        raise PipelineError(
            f"load_state_dict: {error} has split items of rank {rank[0]}, or does not report the inputs of its items (Lineage), so the "
            "remaining samples are unknown; resume on the same number of ranks, or from states that were saved between two epochs"
        ) from None
    return ReadByRank(rank, own, None, _flat(held), _flat([item for one in used for item in one]))


def _flat(items: list[list[int]]) -> np.ndarray:
    return np.array(items, np.int64).reshape(-1, len(items[0]) if items else 2)


def refuse(stage: str, why: str, allow_changed: Collection[str] | None, way_out: str = "start again without the state") -> None:
    """Raise PipelineError, or log a warning if ``allow_changed`` accepts the change of this stage. If it is ``None``, do nothing."""
    if allow_changed is None:
        return
    if not is_named(stage, allow_changed):
        raise PipelineError(
            f"load_state_dict: {stage} {why}; {way_out or 'start again without the state'}, or accept that the rest of the run may lose or "
            f"repeat items: load_state_dict(state, allow_changed=[{stage!r}])"
        )
    log.warning("load_state_dict: %s %s; accepted by allow_changed", stage, why)


def _of_all(count: int) -> str:
    names = ", ".join(f"state_of_rank_{rank}" for rank in range(count)) if count < 4 else f"state_of_rank_0, ..., state_of_rank_{count - 1}"
    return f"load the states of all {count} ranks, load_state_dict([{names}]), or start again without the state"


def _shown(ranks: Ranks) -> str:
    return " and ".join(f"rank {rank} of {world_size}" for rank, world_size in ranks) or "any rank"
