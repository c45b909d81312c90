"""Who takes the items of a pipeline: where that is in their epochs, and what ``state_dict()`` says of it."""

from __future__ import annotations

import copy
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from highway.engine import cancel
from highway.engine.remake import Remaker
from highway.engine.resume import Marker, resume
from highway.engine.stage import Stamped
from highway.errors import Cancelled, EndOfStream, PipelineError

if TYPE_CHECKING:
    from highway.engine.threads import Run
    from highway.engine.workers import StageWorkers

ENDED = (
    "the pipeline has ended; for several passes give its source epochs=, or build a new pipeline for each with other seeds (Pipeline(..., "
    "seed=) and those of its stages), else each pass has the same order and the same random numbers"
)
FORMAT = 1  # of states


class Consumer:
    """Takes the items of a run, and knows where in its epochs it is, and where behind the last marker (:mod:`highway.engine.resume`)."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._turn = threading.Lock()  # held by who waits for an item, so that none overtakes a marker
        self._place = threading.RLock()  # held while what follows changes
        self.epoch = 0
        self._held: Stamped | None = None  # the first item of the next epoch: by it the end of one is seen
        self._skipped = -1  # the last epoch that a loop has left early
        self._loop: int | None = None  # the epoch that a loop is in
        self._was_left = False  # whether that loop was left, and the rest of its epoch waits for the next one
        self._looped = False  # whether there was a loop over a whole epoch
        self._marker = Marker()  # the last that came
        self._met: Marker | None = None  # it, unless it came in another run
        self._errors: Counter[int] = Counter()  # what was left out before it, by the stage's number
        self._taken = 0  # items that came behind it
        self._last: tuple[int, int] | None = None  # epoch and index of the last item
        self._repeated = 0  # how many of those are left out, since the run that this one goes on from has given them already
        self._unordered = next((worker for worker in run.workers if worker.shape == "map" and not worker.stage.ordered), None)
        self._given: list[tuple[int, int]] = []  # where no order is kept: which items came behind the marker,
        self._left_out: set[tuple[int, int]] = set()  # and which ones are left out
        self._received: Consumer | PipelineError | None = None  # where the loop is, if somebody takes items ahead of it
        self._is_in_stage = False  # whether the last item was taken by a stage of another pipeline

    def take(self, timeout: float | None) -> Stamped:
        """Return the next item of the run: no marker, none of an epoch that was left, none that was given already.

        Raises:
            TimeoutError: another thread has waited for one all the time.
        """
        if not self._turn.acquire(True, -1 if timeout is None else timeout):
            raise TimeoutError(f"no item within {timeout:g} s; the pipeline goes on")
        self._is_in_stage = cancel.in_stage()
        try:
            while True:
                stamped = self._held or self._run.take(timeout)
                with self._place:
                    if self._is_next(stamped):
                        return stamped
        finally:
            self._turn.release()

    def _is_next(self, stamped: Stamped) -> bool:
        """Note what has come, and say whether it is an item that is wanted."""
        self._held = None
        if type(stamped.item) is Marker:
            self._errors.update({worker.number: worker.left_out.behind.pop(self._met, 0) for worker in self._run.workers})
            self._met = stamped.item
            self._marker, self._taken, self._repeated = stamped.item, 0, max(0, self._repeated - self._taken)
            self._given.clear()
            return False
        if self._left_out and stamped.passport[:2] in self._left_out:
            self._left_out.remove(stamped.passport[:2])
            self._given.append(stamped.passport[:2])
            return False
        if stamped.passport.epoch <= self._skipped:
            return False
        self._taken += 1
        if self._taken <= self._repeated:
            return False
        self._repeated = 0
        self.epoch = stamped.passport.epoch
        self._last = stamped.passport[:2]
        if self._unordered is not None:
            self._given.append(self._last)
        return True

    def position(self) -> Consumer:
        """Return where this is now, as a copy that stays there."""
        with self._place:
            position = copy.copy(self)
            position._received = None
            for name, value in vars(self).items():
                if isinstance(value, (list, dict, set)):
                    setattr(position, name, copy.copy(value))
        return position

    def received(self, position: Consumer | PipelineError | None) -> None:
        """Have :meth:`state` return the state at a position, or raise an error; ``None``: return the state of this itself."""
        self._received = position
        self._is_in_stage &= position is not None

    def left(self) -> Consumer:
        """Return this position, after the loop there was left."""
        if self._loop is not None:
            self._leave(self._loop)
        return self

    def _leave(self, number: int) -> None:
        """Note that the loop over an epoch was left."""
        self._was_left = not self._run.skip(number)
        if not self._was_left:
            self._skipped, self.epoch, self._loop, self._taken = number, number + 1, None, 0
            self._given.clear()

    @property
    def is_taken_ahead(self) -> bool:
        """Whether somebody takes items ahead of a loop, and says which of them the loop has received."""
        return self._received is not None

    def one_epoch(self, items: Iterator[Stamped]) -> Iterator[Any]:
        """Yield the items of an epoch, or the rest of one whose loop was left; of the next if there is no rest.

        Raises:
            EndOfStream: there is no other epoch.
        """
        number, self._loop, last = -1 if self._loop is None else self._loop, None, self._last
        was_left, self._was_left = self._was_left, False
        try:
            for stamped in items:
                if 0 <= number < stamped.passport.epoch and not was_left:
                    self._held, self._looped, self._loop = stamped, True, None
                    self._taken, self._last = self._taken - 1, last  # it is not taken yet
                    del self._given[-1:]
                    return
                last, was_left = self._last, False
                number = self._loop = max(number, stamped.passport.epoch)
                yield stamped.item
        except (GeneratorExit, Cancelled):  # the loop was left
            self._leave(number)
            raise
        self._loop = None
        if number < 0 and (self._looped or self._skipped >= 0):
            raise EndOfStream(ENDED)
        self._looped = True
        if number >= 0 and not (self._run.stopped or self._run.workers[0].scope.draining):
            self.epoch = number + 1

    def state(self) -> dict[str, Any]:
        """Return what ``state_dict()`` does, for :meth:`go_on`.

        Raises:
            PipelineError: a stage does not say its state, or nobody knows where the loop is.
        """
        if isinstance(self._received, PipelineError):
            raise self._received
        if self._received is None and self._is_in_stage and not cancel.in_stage():
            raise PipelineError(
                f"state_dict: another pipeline takes the items of {self._run} ahead of your loop; call state_dict() of that pipeline"
            )
        if flushed := self.flushed():
            raise PipelineError(
                f"state_dict: since drain() {', '.join(sorted(flushed))} may have handed on what else would have waited for more; call "
                "state_dict() before drain()"
            )
        first, position = self._run.workers[0], self._received or self
        if refused := position._marker.refused or (first.stage.name if position._taken and not first.scope.says_its_state else ""):
            raise PipelineError(f"state_dict: {refused} does not say where it is; see highway.engine.resume")
        self._expect_items_to_be_known_again()
        with self._place:
            state = position._state(first) | {"stages": list(self._identities.items())}
        return state | {"digest": _digest(state)}

    def flushed(self) -> set[str]:
        """Return which stages may have handed on, since the pipeline was drained, what else would have waited for more."""
        first = self._run.workers[0]
        if not first.scope.draining:
            return first.scope.flushed
        return first.scope.flushed | {worker.stage.name for worker in self._run.workers[1:] if worker.scope.holds}

    def _state(self, source: StageWorkers) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "seed": self._run.seed,
            "ranks": _ranks(source),
            "last": self._last,
            "epoch": self.epoch,
            "loop": self._loop,
            "skipped": self._skipped,
            "items": max(self._taken, self._repeated) if self._unordered is None else 0,
            "given": [*self._given, *sorted(self._left_out)],
            "errors": {str(number): errors for number, errors in self._errors.items() if errors},
            **self._marker.as_json(),
        }

    @cached_property
    def _identities(self) -> dict[str, str]:
        return self._run.identities()

    def remake(self, lineage: list[Any]) -> Stamped:
        """Return an item again that came out of the pipeline.

        Raises:
            PipelineError: a stage cannot make it again.
        """
        for worker in self._run.workers:
            if worker.traits.repeats:
                raise PipelineError(f"{worker.stage.name} cannot make items again, which wait in another pipeline")
        self._run.use_seed()
        return Remaker(self._run.workers, len(self._run.workers)).items([lineage])[0]

    def go_on(self, state: Any) -> None:
        """Begin where the consumer of another run was, by its :meth:`state`; called before the run begins.

        Raises:
            PipelineError: it is no state, or that of another pipeline.
        """
        if not isinstance(state, Mapping) or state.get("format") != FORMAT:
            what = f"a {type(state).__name__}"
            if isinstance(state, Mapping) and state:
                what = f"format {state['format']!r}" if "format" in state else f"{what} of {', '.join(map(repr, islice(state, 5)))}"
            raise PipelineError(f"load_state_dict: expected what state_dict() returned, of format {FORMAT}; got {what}")
        if state.get("digest") != _digest(state):
            raise PipelineError("load_state_dict: the state is not what state_dict() returned: part of it is missing or was changed")
        workers, here, there = self._run.workers, self._identities, dict(state["stages"])
        if state["seed"] != self._run.seed:
            raise PipelineError(f"load_state_dict: the state was saved with seed={state['seed']}; this pipeline has seed={self._run.seed}")
        if list(here) != list(there):
            raise PipelineError(f"load_state_dict: the state was saved by {' -> '.join(there)}, and this pipeline is {' -> '.join(here)}")
        if changed := [name for name in here if here[name] != there[name]]:
            raise PipelineError(
                f"load_state_dict: {', '.join(changed)} had other parameters, or read something else, when the state was saved "
                "(of files their paths, sizes and times count); give the same, or begin anew without the state"
            )
        self._marker = Marker(states={int(number): saved for number, saved in state["states"].items()}, made=state["made"])
        items, ranks = state["items"], _ranks(workers[0])
        if state["ranks"] != ranks and state["last"] is not None:
            items = self._deal_anew(workers, state, items)
        self._errors = Counter({int(number): errors for number, errors in state["errors"].items()})
        for number, worker in enumerate(workers):
            worker.left_out.earlier = self._errors[number]
            resume(worker, self._marker.states.get(number), Remaker(workers, number, state["made"]))
        self.epoch, self._loop, self._skipped, self._repeated = state["epoch"], state["loop"], state["skipped"], items
        self._last = state["last"] and tuple(state["last"])
        self._left_out = {(epoch, index) for epoch, index in state["given"]}
        self._looped = self.epoch > 0 or self._loop is not None
        self._run.skip(self._skipped)
        self._run.resumed_from = state

    def _expect_items_to_be_known_again(self) -> None:
        """Raise PipelineError where no order is kept, and a stage behind makes other items of those that come in another order."""
        if self._unordered is None:
            return
        for worker in self._run.workers[self._unordered.number :]:
            traits = worker.traits
            if worker.shape != "map" and (traits.repeats or traits.length is None or traits.length(2**40) != 2**40):
                raise PipelineError(
                    f"state_dict: {self._unordered.stage.name} keeps no order (ordered=False), so {worker.stage.name} behind it "
                    "makes other items of the same; keep the order, or put it before"
                )

    def _deal_anew(self, workers: Sequence[StageWorkers], state: Mapping[str, Any], items: int) -> int:
        """Have the source go on from a state of other ranks, and return how many items behind the marker are to be left out.

        Raises:
            PipelineError: a stage has a state of that rank's items, or makes more or fewer of them.
        """
        source, *rest = workers
        mine = f"this is rank {' of '.join(map(str, _ranks(source) or ()))}"
        for worker in rest:
            saved = self._marker.states.get(worker.number) or {}
            keeps_count = worker.shape == "map" or (worker.traits.length is not None and worker.traits.length(1000) == 1000)
            if saved.get("state") is not None or saved.get("held") or not keeps_count:
                raise PipelineError(
                    f"load_state_dict: the state was saved by rank {' of '.join(map(str, state['ranks']))}, and {mine}; "
                    f"{worker.stage.name} holds items of that rank: go on with the same ranks, or batch in the reader"
                )
        if source.traits.deal_anew is None or state["ranks"][1] == (_ranks(source) or (0, 1))[1]:
            return items
        self._marker.states[0] = {"epoch": 0, "runs": True, "held": [], "state": None}
        self._marker.states[0]["state"] = source.traits.deal_anew(_state_of(state), state["last"], state["ranks"])
        return 0


def _digest(state: Mapping[str, Any]) -> str:
    text = json.dumps({name: part for name, part in state.items() if name != "digest"}, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _ranks(source: StageWorkers) -> list[int] | None:
    return source.traits.ranks() if source.traits.ranks is not None else None


def _state_of(state: Mapping[str, Any]) -> Any:
    return (state["states"].get("0") or {}).get("state")
