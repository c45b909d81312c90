"""The consumer of a pipeline's items. It records which items the loop has received, and creates the state for ``state_dict()``."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any

import highway
from highway.engine.component import Stateless, no_state
from highway.engine.context import here, in_stage
from highway.engine.hashing.identity import MIXTURE, accepted, expect_same, expect_stages, is_named
from highway.engine.remake import Remaker, moved, refuse, splitting, tracks, used_as_json, used_from_json
from highway.engine.resume import FORMAT, Marker, digest, expect_state, expect_together, from_json, is_fresh
from highway.engine.running import RunningStage
from highway.engine.source import has_state, ranks_of
from highway.engine.stage import Stamped
from highway.engine.stats import Meter
from highway.engine.threads import Run, why_unknown
from highway.errors import Cancelled, EndOfStream, PipelineError

log = logging.getLogger("highway")


class Consumer:
    """Takes a run's items, and counts the items after the last marker, which holds the states of stages (:mod:`highway.engine.resume`)."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._turn = threading.Lock()  # held while an item is taken and recorded, so that items and markers stay in order
        self._place = threading.RLock()  # guards the attributes below
        self.epoch = 0
        self._has_begun = False  # whether an item of this epoch was taken
        self._held: Stamped | None = None  # an item that the last loop took but did not yield, because it begins the next epoch
        self._skipped = -1  # the last epoch whose loop ended early
        self._loop: int | None = None  # the epoch of the current loop; None if no loop is within an epoch
        self._was_left = False  # whether the loop ended early, so that the next loop yields the rest of the epoch
        self._looped = False  # whether a loop over a whole epoch has finished
        self._marker = Marker()  # the last marker
        self._met: Marker | None = None  # the last marker of this run; None before its first marker
        self._errors: Counter[int] = Counter()  # number of errors skipped before the marker, by the index of the stage
        self._taken = 0  # number of items taken after the marker
        self._repeated = 0  # number of items to drop after the marker, because the earlier run has already returned them
        self._last: tuple[int, int] | None = None  # epoch and index of the last item
        self._previous: tuple[int, int] | None = None  # epoch and index of the item before the last item
        self._loops = 0  # number of loops that were started
        self.has_ended = False  # whether there are no more items, in this run or in the earlier run that it resumes
        self._unordered = next((running for running in run.stages if running.shape == "map" and not running.stage.ordered), None)
        self._given: list[tuple[int, int]] = []  # if a stage keeps no order: epoch and index of the items returned after the marker
        self._left_out: set[tuple[int, int]] = set()  # if a stage keeps no order: epoch and index of the items to drop
        self._tracks = tracks(run.stages)
        self._used: list[Any] = []  # with ``_tracks``, for each item after the marker: its passport, or the source's items in it
        self._used_before: dict[tuple[int, int], Any] = {}  # for each item in ``_left_out``: the source's items in it
        self._step = 0  # number of items of this epoch that were returned
        self._received: Consumer | PipelineError | None = None  # the loop's position, if an adapter takes items before the loop needs them
        self.is_in_stage = False  # whether a stage of another pipeline took the last item

    def take(self, timeout: float | None, meter: Meter, is_in_stage: bool) -> Stamped:
        """Return the next item of the run. Drop markers, items of skipped epochs, and items that the earlier run returned.

        During the wait, ``meter`` is in the state ``STARVED``. ``is_in_stage``: whether a stage of another pipeline takes the item.

        Raises:
            TimeoutError: no item came within ``timeout`` seconds, or another thread was taking an item during this time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._turn.acquire(False) and not meter.starve(self._turn.acquire, True, -1 if timeout is None else timeout):
            raise TimeoutError(_nothing_within(timeout))
        self.is_in_stage = is_in_stage
        try:
            while True:
                left = timeout if deadline is None else max(0.0, deadline - time.monotonic())
                stamped = self._held or self._run.take(left, meter, is_in_stage)
                with self._place:
                    if self._is_next(stamped):
                        return stamped
        except TimeoutError as error:
            raise TimeoutError("; ".join([_nothing_within(timeout), *error.args])) from None
        finally:
            self._turn.release()

    def _is_next(self, stamped: Stamped) -> bool:
        """Record an item or marker, and return whether the consumer wants the item."""
        self._held = None
        if type(stamped.item) is Marker:
            met = [self._met, *stamped.item.dropped]
            for running in self._run.stages:
                self._errors[running.number] += sum(running.left_out.behind.pop(marker, 0) for marker in met)
            self._met = stamped.item
            del self._used[: None if self._unordered is not None else self._taken]
            self._marker, self._taken, self._repeated = stamped.item, 0, max(0, self._repeated - self._taken)
            self._given.clear()
            return False
        if self._left_out and stamped.passport[:2] in self._left_out:
            self._left_out.remove(stamped.passport[:2])
            self._note_given(stamped)
            return False
        if stamped.passport.epoch <= self._skipped:
            return False
        self._taken += 1
        if self._taken <= self._repeated:
            return False
        self._repeated = 0
        self._step = self._step + 1 if self._has_begun and self.epoch == stamped.passport.epoch else 1
        self.epoch, self._has_begun = stamped.passport.epoch, True
        self._previous, self._last = self._last, stamped.passport[:2]
        self._note_given(stamped)
        return True

    def _note_given(self, stamped: Stamped) -> None:
        if self._unordered is not None:
            self._given.append(stamped.passport[:2])
        if self._tracks:
            self._used.append(stamped.passport)

    def position(self) -> Consumer:
        """Return a copy of this object, with the current position."""
        with self._place:
            position = copy.copy(self)
            position._received = None
            for name, value in vars(self).items():
                if isinstance(value, (list, dict, set)):
                    setattr(position, name, copy.copy(value))
        return position

    def received(self, position: Consumer | PipelineError | None) -> None:
        """Make :meth:`state` return the state at ``position``, or raise ``position`` if it is an error. ``None`` undoes this."""
        self._received = position
        self.is_in_stage &= position is not None

    def left(self) -> Consumer:
        """Record that the loop ended early, and return the position after it."""
        if self._loop is not None:
            self._leave(self._loop)
        return self

    def _leave(self, number: int) -> None:
        self._was_left = not self._run.skip(number)
        if not self._was_left:
            self._finish(number)
            self._skipped, self._taken = number, 0
            self._given.clear()
            self._used.clear()

    @property
    def is_taken_ahead(self) -> bool:
        """Whether an adapter takes items before the loop needs them, and reports which items the loop has received."""
        return self._received is not None

    def one_epoch(self, items: Iterator[Stamped]) -> Iterator[Stamped]:
        """Yield the items of one epoch: the next epoch, or the rest of an epoch that the last loop did not finish.

        If maps dropped all items of this epoch, yield no items.

        Raises:
            EndOfStream: there are no more epochs.
        """
        if not self._loops:
            self._warn_of_uneven_ranks()
        self._loops += 1
        loop, number, self._loop = self._loops, -1 if self._loop is None else self._loop, None
        was_left, self._was_left = self._was_left, False
        expected = self._next_epoch
        try:
            for stamped in items:
                epoch = stamped.passport.epoch
                is_empty = number < 0 and expected < epoch and self._run.stages[0].traits.skips_epochs
                if is_empty or (0 <= number < epoch and not was_left):
                    self._put_back(stamped)
                    if loop == self._loops:  # otherwise, a later loop has begun that epoch
                        self._finish(expected if is_empty else number)
                    return
                was_left = False
                number = self._loop = max(number, epoch)
                yield stamped
        except (GeneratorExit, Cancelled):  # the loop ended early
            if loop == self._loops:  # otherwise, a later loop has taken more items
                self._leave(number)
            raise
        if loop < self._loops:
            return
        self._loop = None
        if number >= 0 and not self._is_cut_short:
            self._finish(number)
        elif number < 0 and self.has_empty_epoch:
            self._finish(expected)
        elif number < 0 and (self._looped or self._skipped >= 0):
            raise EndOfStream(self._run.why_over(True))
        self._looped = True

    def _warn_of_uneven_ranks(self) -> None:
        """Log a warning if ranks can have different numbers of items. Training would hang after one rank has ended its epoch."""
        stages, outer = self._run.stages, here().hand_over
        first = max((running.number for running in stages if _has_fixed_epochs(running)), default=0)
        why = next(filter(None, map(why_unknown, [running for running in stages[first:] if running is not splitting(stages)])), "")
        if not why or (outer is not None and outer.ends_together):
            return
        world_size = max((size for _, size in ranks_of(stages[0].stage.op, stages[0].traits)), default=1)
        if world_size > 1:
            log.warning(
                "%s: the %d ranks may have different numbers of items in an epoch, because %s. Training hangs if one rank ends its epoch "
                "first. With PyTorch and JAX, pass end_together=True to to_device. With TensorFlow and Keras, use FixedEpochs(size) as the "
                "last stage, and a reader with epochs=None",
                self._run,
                world_size,
                why,
            )

    def _finish(self, epoch: int) -> None:
        """Make the next loop run over the epoch after ``epoch``."""
        self.epoch, self._has_begun, self._loop, self._looped = epoch + 1, False, None, True

    def _put_back(self, stamped: Stamped) -> None:
        """Keep the last taken item, so that the next loop yields it."""
        self._held, self._taken, self._last = stamped, self._taken - 1, self._previous
        del self._given[-1:], self._used[-1:]

    @property
    def _next_epoch(self) -> int:
        """The epoch of the next loop, if the current epoch is finished."""
        return self.epoch + self._has_begun

    @property
    def has_empty_epoch(self) -> bool:
        """Whether maps dropped all items of the next epoch. The value is valid only after the last item."""
        epochs = self._run.epochs()
        return epochs is not None and self._next_epoch < epochs and not self._is_cut_short

    @property
    def _is_cut_short(self) -> bool:
        return self._run.stopped or self._run.stages[0].context.draining

    def state(self) -> dict[str, Any]:
        """Return the state for :meth:`highway.Pipeline.state_dict`. :meth:`go_on` resumes from this state.

        Raises:
            PipelineError: a stage does not support states, another pipeline takes the items, or the position is unknown.
        """
        if isinstance(self._received, PipelineError):
            raise self._received
        if self._received is None and self.is_in_stage and not in_stage():
            raise PipelineError(
                f"state_dict: another pipeline reads the items of {self._run} before your loop receives them; call state_dict() of that "
                "pipeline"
            )
        if flushed := self.flushed():
            raise PipelineError(
                f"state_dict: drain() has flushed incomplete items of {', '.join(sorted(flushed))}; call state_dict() before drain()"
            )
        first, position = self._run.stages[0], self._received or self
        without = no_state(first.stage.name) if position._taken and not has_state(first.stage.op, first.traits) else ""
        if refused := first.context.refusal or position._marker.refused or without:
            raise PipelineError(refused)
        self._expect_items_to_be_known_again()
        with self._place:
            state = position._state(first) | {"stages": list(self._identities.items())}
        return state | {"digest": digest(state, "state_dict")}

    def flushed(self) -> set[str]:
        """Return the names of streams that can have flushed their buffers because the pipeline was drained."""
        first, *rest = self._run.stages
        if not first.context.draining:
            return first.context.flushed
        return first.context.flushed | {running.stage.name for running in rest if running.traits.state not in (None, Stateless)}

    def _state(self, source: RunningStage) -> dict[str, Any]:
        before, stages = self._run.resumed_from or {"ended": False, "epoch": self.epoch, "uneven": (), "renumbered": ()}, self._run.stages
        renumbered = before["renumbered"]
        uneven = before["uneven"] if before["epoch"] == self.epoch else ()  # stages that have skipped or dropped items in this epoch
        return {
            "format": FORMAT,
            "version": highway.__version__,
            "seed": self._run.seed,
            "ranks": ranks_of(source.stage.op, source.traits),
            "uneven": [running.stage.name for running in stages[1:] if not running.stage.keeps_count or running.stage.name in uneven],
            "renumbered": [running.stage.name for running in stages if running.has_renumbered or running.stage.name in renumbered],
            "last": self._last,
            "ended": (self.has_ended and self._run.error is None and not source.context.draining)
            or (before["ended"] and not self._run.has_begun),
            "epoch": self.epoch,
            "begun": self._has_begun,
            "loop": self._loop,
            "skipped": self._skipped,
            "items": max(self._taken, self._repeated) if self._unordered is None else 0,
            "given": [*self._given, *sorted(self._left_out)],
            "used": used_as_json([*self._used, *(self._used_before[one] for one in sorted(self._left_out))], stages)
            if self._tracks
            else None,
            "step": self._step if self._has_begun else 0,
            "errors": {str(number): errors for number, errors in self._errors.items() if errors},
            **self._marker.as_json(self._last is not None and source.traits.deal_rest is not None and source.traits.at_epoch),
        }

    @cached_property
    def _identities(self) -> dict[str, Any]:
        return self._run.identities()

    def remake(self, lineage: list[Any]) -> Stamped:
        """Make an output of the pipeline again.

        Raises:
            PipelineError: a stage cannot make the item again.
        """
        self._run.use_seed()
        return Remaker(self._run.stages, len(self._run.stages)).items([from_json(lineage)])[0]

    def go_on(self, state: Any, allow_changed: Collection[str] | None = ()) -> None:
        """Resume from a state that an earlier run saved. Call this method before the run begins.

        Args:
            state: The return value of :meth:`state`, or a list of the states of all ranks.
            allow_changed: See :meth:`Pipeline.load_state_dict`. ``None``: do not compare the stages.

        Raises:
            PipelineError: the state is not valid, or belongs to another pipeline.
        """
        stages, ranks = self._run.stages, ranks_of(self._run.stages[0].stage.op, self._run.stages[0].traits)
        allow_changed = [allow_changed] if isinstance(allow_changed, str) else allow_changed
        is_list = isinstance(state, (list, tuple))
        states: list[Mapping[str, Any]] = list(state) if is_list else [state]
        if is_list and not states:
            raise PipelineError("load_state_dict: the list of states is empty; expected the states of all ranks")
        for one in states:
            expect_state(one)
        if is_list:
            expect_together(states)
        state = next((one for one in states if one["ranks"] == ranks), states[0])
        here = [running.stage.name for running in stages]
        expect_stages([name for name, _ in state["stages"]], here)
        if state["seed"] != self._run.seed:
            refuse("seed", f"was {state['seed']} when the state was saved, and is now {self._run.seed}", allow_changed)
        resume, is_remixed = stages[0].traits.resume, False
        if allow_changed is not None:
            names = [name for name in allow_changed if name != "seed" or name in here]
            is_remixed = resume is not None and any(
                name.endswith(MIXTURE) and is_named(here[0], [name.removesuffix(MIXTURE)]) for name in names
            )
            expect_same(dict(state["stages"]), self._identities, accepted(names, self._identities) if is_remixed else names)
        if is_remixed and state["seed"] != self._run.seed:
            raise PipelineError(
                f"load_state_dict: the seed was {state['seed']} when the state was saved, and is now {self._run.seed}; a changed mixture "
                "needs the same seed, because the seed determines the order of each dataset"
            )
        if resume is not None:
            resume([one["states"]["0"]["state"] for one in states if "0" in one["states"]], is_remixed)
        is_resized = any(name.endswith("batch_size") and is_named(here[0], [name.rpartition(".")[0]]) for name in allow_changed or ())
        if (state["ranks"] != ranks or is_resized or is_remixed) and not all(map(is_fresh, states)):
            self._run.use_seed()
            state = moved(stages, states, ranks, is_list, allow_changed)
        self._marker, items, last = Marker.from_json(state), state["items"], state["last"]
        self._errors = Counter({int(number): errors for number, errors in state["errors"].items()})
        for number, running in enumerate(stages):
            running.left_out.earlier = self._errors[number]
            running.resumed, running.remake = self._marker.states.get(number), Remaker(stages, number).items
        self.epoch, self._has_begun, self._loop = state["epoch"], state["begun"], state["loop"]
        self._skipped, self._repeated = state["skipped"], items
        self._last = last and tuple(last)
        self._left_out = {(epoch, index) for epoch, index in state["given"]}
        self._step = state["step"]
        if self._tracks:
            self._take_over(state)
        self._looped = self.epoch > 0 or self._loop is not None or state["ended"]
        self.has_ended = state["ended"] and not self._run.numbers_epochs
        self._run.skip(self._skipped)
        self._run.resumed_from = state

    def _take_over(self, state: Mapping[str, Any]) -> None:
        """Restore, for each item that the earlier run returned after the marker, the source's items in it."""
        used = used_from_json(state["used"])
        if used is None or self._unordered is None:
            self._used, self._tracks = used or [], used is not None
        else:
            self._used_before = {(epoch, index): items for (epoch, index), items in zip(state["given"], used, strict=True)}

    def _expect_items_to_be_known_again(self) -> None:
        """Raise PipelineError if a stage keeps no order, but a later stage depends on the order of its input."""
        if self._unordered is None:
            return
        for running in self._run.stages[self._unordered.number :]:
            if running.shape != "map" and running.traits.one_to_one is None:
                raise PipelineError(
                    f"state_dict: {self._unordered.stage.name} does not keep the order (ordered=False), but the items of "
                    f"{running.stage.name} depend on the order of its input; keep the order, or put this stage first"
                )


def _has_fixed_epochs(running: RunningStage) -> bool:
    """Return whether a stage makes its own epochs, with a number of items that does not depend on its input."""
    length = running.traits.length
    return running.shape == "stream" and running.traits.repeats and length is not None and length(0) == length(1)


def _nothing_within(timeout: float | None) -> str:
    return f"no item within {timeout:g} s; the pipeline continues"
