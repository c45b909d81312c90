"""The contents of a pipeline's state: the states of its stages, which markers collect, and the lineages of items as JSON.

The source regularly sends a :class:`Marker` between its items, with the state of the source. Each stream that receives the marker adds its
own state, and all stages pass the marker on. The marker therefore holds the states of all stages at one point in the sequence of items
(Chandy and Lamport, *Distributed snapshots*, 1985). :class:`highway.engine.consumer.Consumer` keeps the last marker, and counts the items
after it. ``state_dict()`` returns the states in the last marker and this count. The resumed run starts at the marker, and drops as many
items as were counted.

A state holds no items. For each item that waits in a stage, the state holds the item's *lineage*, which describes how the item was made.
When the run resumes, the stages make these items again. docs/adr/0011 gives the reasons. docs/howto/resume.md shows how to write a source
or stream that supports states.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

import highway
from highway.engine.stage import Lineage, Passport
from highway.errors import PipelineError
from highway.renamed import explain_missing

FORMAT = 5  # version of the format of states; a state of format 2 or older does not name the version of highway that saved it
MARK_EVERY = 100  # a marker is due after this number of outputs of the source
MARK_APART = 0.01  # minimum seconds between two markers
MARK_WITHIN = 0.25  # a marker is due after this number of seconds, even if there are fewer outputs
MARK_SHARE = 0.02  # maximum fraction of a stage's time that markers take; if a marker takes long, the next marker comes later


class StageState(NamedTuple):
    """The state of a stage at a marker.

    Args:
        epoch: For a stream with ``per_epoch``: the epoch of the items that the stream receives. For other stages, 0.
        runs: For a stream with ``per_epoch``: whether the stream is within this epoch. If not, the stream waits for the next epoch and has
            no state. For other stages, ``True``.
        state: The state of the component; ``None`` if ``runs`` is false.
        held: Passports (metadata) of the inputs that wait in the stage.
        numbered: Number of outputs to which the engine has given an index, because the component yielded them without a passport.
    """

    epoch: int = 0
    runs: bool = True
    state: Any = None
    held: Sequence[Passport] = ()
    numbered: int = 0


_NO_ITEMS = np.empty((0, 2), np.int64)


class ReadByRank(NamedTuple):
    """A record of what one rank of an earlier run has read, for ``deal_rest`` of :class:`highway.engine.component.Traits`.

    Args:
        rank: The pair ``[rank, world_size]``.
        state: The state of the source at the rank's last marker; ``None`` at the beginning.
        last: Epoch and index of the last item that the rank has returned. ``None`` if the rank does not return the source's items in order.
            In this case, ``held`` and ``used`` show which items the rank has returned.
        held: Epoch and index of the source's items that waited in stages at the marker, int64 ``(N, 2)``. If the stage after the reader
            splits batches into samples: epoch, batch index and row of each sample, int64 ``(N, 3)``.
        used: The source's items that the rank has returned since the marker, in the form of ``held``.
    """

    rank: Sequence[int]
    state: Any = None
    last: Sequence[int] | None = None
    held: np.ndarray = _NO_ITEMS
    used: np.ndarray = _NO_ITEMS


class ItemsOfRank(NamedTuple):
    """The items of one rank in an epoch, or in the rest of an epoch.

    Args:
        length: Number of these items.
        indexes: A function from int64 arrays to int64 arrays. For each number n, it returns the index of the rank's n-th item, from n = 0.
    """

    length: int
    indexes: Callable[[np.ndarray], np.ndarray]


def expect_state(state: Any) -> None:
    """Raise PipelineError if an object is not the return value of ``state_dict()`` of this version."""
    if not isinstance(state, Mapping) or not isinstance(state.get("format"), int):
        names = f" of {', '.join(map(repr, islice(state, 5)))}" if isinstance(state, Mapping) and state else ""
        raise PipelineError(f"load_state_dict: expected the return value of state_dict(); got a {type(state).__name__}{names}")
    if state["format"] != FORMAT:
        raise PipelineError(
            f"load_state_dict: highway {state.get('version', '0.1.0 or older')} saved this state, in format {state['format']!r}, but "
            f"highway {highway.__version__} reads format {FORMAT}; resume with that version, or start again without the state"
        )
    if state.get("digest") != digest(state, "load_state_dict"):
        raise PipelineError(
            "load_state_dict: the state differs from the return value of state_dict(): part of it is missing or was changed"
        )


def digest(state: Mapping[str, Any], caller: str) -> str:
    """Return a checksum of a state. Raises PipelineError if JSON cannot hold the state."""
    try:
        text = json.dumps({name: part for name, part in state.items() if name != "digest"}, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise PipelineError(f"{caller}: part of the state cannot be written as JSON: {error}") from None
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def packed(numbers: np.ndarray) -> str:
    """Return an int64 array as a text. The text is short if the differences between successive values are small or repeat."""
    return base64.b64encode(zlib.compress(np.diff(numbers, prepend=0).astype("<i8").tobytes(), 1)).decode()


def unpacked(text: str) -> np.ndarray:
    """Return the array from which :func:`packed` has made a text."""
    return np.cumsum(np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i8"), dtype=np.int64)


class Marker:
    """Travels through the stages between two items, and collects the states of the stages.

    Args:
        clock: The clock that decides when the next marker is due; ``None`` if the marker was read from a state.
        states: States of the stages, by the index of the stage.

    Attributes:
        refused: The error message of the first stage whose state cannot be saved; empty if all states can be saved.
        dropped: Earlier markers that a stage did not pass on, because the run cannot be resumed at these markers.
    """

    __slots__ = ("clock", "dropped", "refused", "states")

    def __init__(self, clock: MarkerClock | None = None, states: dict[int, StageState] | None = None) -> None:
        self.clock, self.states, self.refused = clock, {} if states is None else states, ""
        self.dropped: list[Marker] = []

    def as_json(self, at_epoch: Any = None) -> dict[str, Any]:
        """Return the states.

        Each input that has a lineage is stored once, under ``"shared"``, even if only one waiting item was made from this input. An input
        without a lineage is stored with each item that was made from it.

        ``at_epoch`` is the source's trait with this name. If it is given and there are no states yet, return the source's state before
        epoch 0.
        """
        shared = _Shared()
        states = {}
        for number, state in self.states.items():
            held = [as_json(passport, shared.of_input) for passport in state.held]
            states[str(number)] = {**state._asdict(), "held": held}
        if at_epoch and not states:
            states["0"] = StageState(state=at_epoch(0))._asdict()
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
    """Return the identity and lineage of an item in a form that JSON can hold.

    Without a lineage, the result is ``[epoch, index]`` of the passport. With a lineage, it is ``[epoch, index, stage, part, *inputs]``.
    Each input is also such a list, or the return value of ``of_input``.
    """
    if not passport.made_of:
        return [passport.epoch, passport.index]
    inputs, part, stage = passport.made_of
    return [passport.epoch, passport.index, stage, part, *map(of_input or as_json, inputs)]


def from_json(saved: Sequence[Any], shared: Sequence[Passport] = ()) -> Passport:
    """Return a passport with the epoch, index and lineage that :func:`as_json` has returned.

    Args:
        saved: The return value of :func:`as_json`.
        shared: The passports of shared inputs. A number in place of an input in ``saved`` is an index of this list.
    """
    epoch, index, *made = saved
    if not made:
        return Passport(epoch, index)
    stage, part, *inputs = made
    passports = tuple(shared[one] if isinstance(one, int) else from_json(one, shared) for one in inputs)
    return Passport(epoch, index, made_of=Lineage(passports, part, stage))


class _Shared:
    """Stores each input that has a lineage once. Items can share an input: for example, all samples of a split batch share the batch.

    Attributes:
        lineages: The lineages of these inputs. An item refers to an input by its index in this list.
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
    """Decides when the next marker is due. If markers take much time, they are sent less often."""

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
        """Record that a stage spent ``seconds`` on the last marker. This delays the next marker, so that markers take little time."""
        self._not_before = max(self._not_before, time.monotonic() + seconds / MARK_SHARE)


def is_fresh(state: Mapping[str, Any]) -> bool:
    """Return whether a state was saved before the run returned its first item. Such a state fits any number of ranks."""
    return not (state["last"] or state["states"] or state["ended"] or state["epoch"])


def is_between_epochs(state: Mapping[str, Any]) -> bool:
    """Return whether a state was saved after a loop over an epoch, and before the first item of the next epoch."""
    return state["epoch"] > 0 and state["loop"] is None and not state["begun"]


def expect_together(states: Sequence[Mapping[str, Any]]) -> None:
    """Check that the states come from all ranks of one run, and were saved at the same step of the same epoch.

    The steps of states that were saved between two epochs are not compared.

    Raises:
        PipelineError: a rank has no state or several states; or the states differ in step, seed, stages or number of ranks.
    """
    ranks = [state["ranks"] for state in states]
    if not all(ranks):
        raise PipelineError(
            "load_state_dict: this pipeline returns the same items on every rank, so the states of ranks cannot be told apart; load one "
            "state: load_state_dict(state)"
        )
    sizes = sorted({world_size for (_, world_size), *_ in ranks})
    if len(sizes) > 1:
        raise PipelineError(
            f"load_state_dict: the states were saved on different numbers of ranks, {' and '.join(map(str, sizes))}; load the states of "
            "one checkpoint"
        )
    times = Counter(rank for (rank, _), *_ in ranks)
    missing = [str(rank) for rank in range(sizes[0]) if rank not in times]
    double = [str(rank) for rank, count in times.items() if count > 1]
    if missing or double:
        found = [f"{what} {', '.join(some)}" for what, some in (("no state of rank", missing), ("several states of rank", double)) if some]
        raise PipelineError(
            f"load_state_dict: the list has {' and '.join(found)}; expected one state of each of the {sizes[0]} ranks that saved them"
        )
    first = states[0]
    for state in states[1:]:
        pair = f"rank {ranks[0][0][0]} and rank {state['ranks'][0][0]}"
        if state["seed"] != first["seed"]:
            raise PipelineError(
                f"load_state_dict: the states of {pair} have different seeds, {first['seed']} and {state['seed']}; load the states of one "
                "run"
            )
        for (name, saved), (other, stage) in zip(first["stages"], state["stages"], strict=False):
            if name != other or saved["parameters"] != stage["parameters"]:
                raise PipelineError(
                    f"load_state_dict: the states of {pair} were saved by different stages, {name} and {other}, or with different "
                    f"parameters of {name}; load the states of one run"
                )
    steps: dict[int, Mapping[str, Any]] = {}  # by epoch: the state of a rank that is within this epoch
    for state in states:
        other_rank = steps.setdefault(state["epoch"], state) if not is_between_epochs(state) else state
        if other_rank["step"] != state["step"]:
            raise PipelineError(
                f"load_state_dict: the states of rank {other_rank['ranks'][0][0]} and rank {state['ranks'][0][0]} were saved at different "
                f"steps, after {other_rank['step']} and {state['step']} items of epoch {state['epoch']}; load the states that all ranks "
                "saved at the same step"
            )


explain_missing(__name__)
