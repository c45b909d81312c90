"""The states of all ranks resume on any number of ranks: each sample of an epoch comes once, but for what evens out the ranks.

Each case is a random pipeline. It runs on a random number of ranks for a random number of steps, then on two other numbers of ranks. The
last ranks give the rest. ``pytest --resume-cases 100000`` runs as many cases.
"""

import contextlib
import json
from collections import Counter
from dataclasses import dataclass
from functools import partial
from random import Random

import numpy as np
import pytest
from pairwise import pairwise
from random_resumes import APART, AT_ONCE, many_markers, noise, plus, pytest_generate_tests  # noqa: F401

from highway import DROP, Pipeline, Stage, Traits
from highway.engine import Stateless
from highway.engine.stage import Passport, Stamped
from highway.errors import EndOfStream, PipelineError
from highway.modules import (
    Batch,
    BatchByShape,
    Bucket,
    Cache,
    Concat,
    Deal,
    FixedEpochs,
    Mix,
    Pack,
    Reader,
    Shuffle,
    Take,
    Tee,
    Unbatch,
    Zip,
)


def numbers(item):
    if isinstance(item, tuple):  # of Pack: the rows' values, the sequences, the places in a sequence
        values, sequences, places = item
        return values[(sequences > 0) & (places == 0)].tolist()
    return np.asarray(item).reshape(len(item), -1)[:, 0].tolist() if np.ndim(item) else [int(item)]


def first_number(item):
    return numbers(item)[0] % APART


def some(item, by):
    return DROP if first_number(item) % by == 0 else item


def broken(item):
    if first_number(item) % 4 == 1:
        raise ValueError("a broken sample")
    return item


class InBlocks(list):
    def blocks(self):
        return [range(first, min(first + 4, len(self))) for first in range(0, len(self), 4)]


def as_array(item):
    """Return a sequence of one or two values."""
    return np.full(1 + item % 2, item)


MAPS = {
    "array": lambda n: Stage(as_array),
    "plus": lambda n: Stage(partial(plus, by=n), num_workers=n),
    "noise": lambda n: Stage(noise, num_workers=n),
    "some": lambda n: Stage(partial(some, by=2 + n), num_workers=n, drops=True),
    "broken": lambda n: Stage(broken, num_workers=n, on_error="skip"),
    "unordered": lambda n: Stage(partial(plus, by=n), num_workers=2, ordered=False),
}
SOURCES = {
    "concat": lambda first, second: [Concat([first, Pipeline([second, partial(plus, by=2)])])],
    "zip": lambda first, second: [Zip([first, second]), unzipped],
    "mix": lambda first, second: [Mix([first, second], weights=[2, 1])],
    "mix by size": lambda first, second: [Mix([Stage(first, name="first"), second], by_size=True, seed=8)],
}
STREAMS = {
    "shuffle": lambda n: Shuffle(4 * n),
    "tee": lambda n: Tee(id),
    "batch": lambda n: Batch(1 + n),
    "bucket": lambda n: Bucket([4 * n], [2, 3], by=first_number, ragged=None),
    "pack": lambda n: Pack(2 + n, bins=2),
    "by shape": lambda n: BatchByShape(1 + n),
    "unbatch": lambda n: Unbatch(),
}
SECOND = 1000  # the first sample of the second of two readers


def unzipped(pair):
    first, second = pair
    assert np.array_equal(first + SECOND, second), "other samples were paired"
    return first


SINGLE = ["plus", "noise", "some", "broken", "unordered", "tee", "shuffle"]  # for single samples
ENDS = ["batch", "bucket", "pack", "by shape"]  # they give batches


@dataclass(frozen=True)
class Case:
    """A pipeline on any number of ranks.

    Args:
        source: The kind of the source: a reader, or two readers in another source.
        total: Number of samples. The second of two readers has fewer, except in ``Zip``.
        settings: Settings of the readers.
        stages: For each stage after the reader: its kind, and a number from 1 to 3 that is its parameter.
        by_loop: Whether loops take the items, and not ``dequeue()``.
    """

    source: str
    total: int
    settings: tuple
    stages: tuple
    by_loop: bool

    @classmethod
    def random(cls, rng):
        size = rng.choice([None, None, 1, 2, 3])
        settings = {"batch_size": size, "on_uneven": rng.choice(["pad", "pad", "drop"]), "shuffle": rng.choice([True, True, False])}
        if size is None and rng.random() < 0.1:
            settings["shuffle"] = "blocks"  # each number of ranks has its own order
        if size is not None and rng.random() < 0.2:
            settings["deal"] = Deal(lambda dataset: [number % 7 for number in range(len(dataset))])
        kinds = ["plus", "tee", "shuffle", "unordered"] if size else SINGLE
        source = rng.choice(["reader", "reader", *SOURCES])
        stages = []
        if size is not None and source == "reader" and rng.random() < 0.5:
            stages, size, kinds = [("unbatch", 1)], None, SINGLE
        stages += [(rng.choice(kinds), rng.randint(1, 3)) for _ in range(rng.randint(0, 3))]
        if size is None and rng.random() < 0.6:
            has_order = all(kind != "unordered" for kind, _ in stages)
            end = rng.choice(ENDS)
            stages += [("array", 1)] * (has_order and end in ("pack", "by shape"))
            stages += [(end, rng.randint(1, 3))] * has_order
            stages += [("shuffle", rng.randint(1, 2))] * (has_order and rng.random() < 0.3)
        return cls(source, rng.randint(5, 40), tuple(settings.items()), tuple(stages), rng.random() < 0.7)

    def readers(self, rank, world_size):
        first = range(self.total)
        second = range(SECOND, SECOND + (self.total if self.source == "zip" else max(self.total // 2, 5)))
        how = {"epochs": 2, "rank": rank, "world_size": world_size} | dict(self.settings)
        return [Reader(InBlocks(samples), **how) for samples in (first, second)[: 1 + (self.source != "reader")]]

    def build(self, rank, world_size, upto=None):
        readers = self.readers(rank, world_size)
        stages = [*readers] if self.source == "reader" else SOURCES[self.source](*readers)
        for place, (kind, number) in enumerate(self.stages[:upto]):
            stage = (MAPS | STREAMS)[kind](number)
            stages.append(Stage(stage.op if isinstance(stage, Stage) else stage, **self._how(stage), name=f"{kind}{place}"))
        return Pipeline(stages, seed=3)

    @staticmethod
    def _how(stage):
        return {name: getattr(stage, name) for name in stage.settings} if isinstance(stage, Stage) else {}

    @property
    def pads(self):
        return dict(self.settings)["on_uneven"] == "pad"

    @property
    def drops(self):
        return any(kind in ("some", "broken") for kind, _ in self.stages)

    def expected(self):
        """Return, for each epoch, the value of each sample that the maps keep, and the orders of the readers."""
        settings = {name: value for name, value in self.settings if name not in ("batch_size", "deal")}
        settings["shuffle"] = dict(self.settings)["shuffle"]
        plain = Case(self.source, self.total, tuple(settings.items()), tuple(one for one in self.stages if one[0] in MAPS), True)
        names = [f"{kind}{place}" for place, (kind, _) in enumerate(self.stages) if kind in MAPS]
        values, orders = [], []
        with plain.build(0, 1) as pipeline:
            source, stages = pipeline.stages[: -len(names) or None], pipeline.stages[len(pipeline.stages) - len(names) :]
            renamed = [Stage(stage.op, **self._how(stage), name=name) for stage, name in zip(stages, names, strict=True)]
            with Pipeline([*source, *renamed], seed=3) as maps:
                for _ in range(2):
                    values.append({number % APART: number for item in maps for number in numbers(item)})
        pipelines = [Pipeline([reader], seed=3) for reader in plain.readers(0, 1)]
        for _ in range(2):
            orders.append([[number for item in pipeline for number in numbers(item)] for pipeline in pipelines])
        return values, orders


def saved(pipeline):
    return json.loads(json.dumps(pipeline.state_dict()))


def take(case, pipeline, count):
    """Take up to ``count`` items of one epoch; return the numbers by epoch, and the state."""
    taken = [[], []]
    if count == 0:
        return taken, saved(pipeline)
    try:
        if not case.by_loop:
            for _ in range(count):
                item = pipeline.dequeue()
                taken[pipeline.epoch] += numbers(item)
            return taken, saved(pipeline)
        left = count
        for item in pipeline:
            taken[pipeline.epoch] += numbers(item)
            left -= 1
            if not left:
                return taken, saved(pipeline)
    except EndOfStream:
        pass
    return taken, saved(pipeline)


def rest(pipeline):
    found = [[], []]
    try:
        while True:
            for item in pipeline:
                found[pipeline.epoch] += numbers(item)
    except EndOfStream:
        return found


def check(number):
    rng = Random(number)
    case = Case.random(rng)
    states, read, history = None, [[], []], []
    for phase in range(3):
        world_size = rng.choice([1, 2, 3, 4, 5])
        count = rng.choice([0, 1, 2, 3, 5, 8, 13])
        history.append((world_size, count))
        found = []
        for rank in range(world_size):
            with case.build(rank, world_size) as pipeline:
                if states is not None:
                    try:
                        pipeline.load_state_dict(rng.sample(states, len(states)))
                    except PipelineError as error:
                        text = str(error)
                        assert text.startswith("load_state_dict: "), (number, case, history)
                        assert rank == 0, (number, "refused on some ranks only", text)
                        blocks = "shuffle='blocks'" in text and dict(case.settings)["shuffle"] == "blocks"
                        uneven = "different epochs" in text or "different steps" in text
                        assert blocks or uneven, (number, case, history, text)
                        return "refused"
                found.append(take(case, pipeline, count) if phase < 2 else (rest(pipeline), None))
        for taken, _ in found:
            for epoch in range(2):
                read[epoch] += taken[epoch]
        states = [state for _, state in found]
    most = sum(size - 1 for size, _ in history)  # each division may repeat or drop samples of a reader to even out the ranks
    most *= 1 + (case.source not in ("reader", "zip"))
    values, orders = case.expected()
    for epoch in range(2):
        times = Counter(one % APART for one in read[epoch])
        where = (number, case, history, epoch, times)
        assert set(times) <= set(values[epoch]), where
        others = [one for one in read[epoch] if one != values[epoch][one % APART]]
        blocks = dict(case.settings)["shuffle"] == "blocks"
        assert len(others) <= most or blocks, where  # a repeated sample has another position, so other noise
        missing = set(values[epoch]) - set(times)
        again = sorted(one for one, count in times.items() for _ in range(count - 1))
        if case.pads:
            assert not missing, where
            padding = sum(size - 1 for size, _ in history)  # the first samples of the epoch: each once, before any comes again
            allowed = Counter(one for order in orders[epoch] for one in (order * padding)[:padding])
            assert not Counter(again) - allowed or dict(case.settings)["shuffle"] == "blocks", where
            assert len(again) <= most, where
        else:
            assert not again, where
            assert len(missing) <= most, where
    return "dealt"


def test_the_states_of_all_ranks_resume_on_any_number_of_ranks(first):
    ends = Counter(check(number) for number in range(first, first + AT_ONCE))
    assert ends["dealt"] > AT_ONCE / 2, ends


# --- several readers ---


def second_reader(rank, world_size, **how):
    return Reader(InBlocks(range(SECOND, SECOND + 9)), epochs=3, rank=rank, world_size=world_size, **how)


def of_several(kind, rank, world_size, *stages, **how):
    first = Reader(InBlocks(range(24)), epochs=3, rank=rank, world_size=world_size, **how)
    return Pipeline([kind([first, second_reader(rank, world_size, **how)]), *stages], seed=3)


@pytest.mark.parametrize(
    ("count", "kind", "batch_size"),
    pairwise([1, 4, 5, 6, 7], [Concat, Mix, partial(Mix, by_size=True), partial(Zip, strict=False)], [None, 2]),
)
def test_the_state_of_one_rank_is_enough_for_several_readers_if_the_stages_hold_nothing(kind, batch_size, count):
    def build(rank, world_size):
        return of_several(kind, rank, world_size, batch_size=batch_size)

    def flat(item):
        return [one for part in item for one in flat(part)] if isinstance(item, tuple) else numbers(item)

    states, read = [], []
    for world_size, items in ((2, count), (3, 1), (1, None)):
        new = []
        for rank in range(world_size):
            with build(rank, world_size) as pipeline:
                if states:
                    pipeline.load_state_dict(states[rank % len(states)])
                items_of_rank = pipeline if items is None else (pipeline.dequeue() for _ in range(items))
                with contextlib.suppress(EndOfStream):  # the last epoch may be over
                    for item in items_of_rank:
                        read += [(pipeline.epoch, number) for number in flat(item)]
                new.append(saved(pipeline))
        states = new
    found = Counter(number for epoch, number in read if epoch == 0)
    whole = {*range(24), *range(SECOND, SECOND + 9)}
    assert set(found) <= whole if isinstance(kind, partial) and kind.func is Zip else set(found) == whole
    assert sum(found.values()) - len(found) <= 6  # the second of two readers has as many positions as needed for even ranks


def test_a_source_whose_items_do_not_follow_from_their_number_is_refused_in_the_middle_of_an_epoch():
    def build(rank, world_size):
        first = Reader(InBlocks(range(24)), epochs=3, rank=rank, world_size=world_size)
        return Pipeline([Concat([first, Pipeline([second_reader(rank, world_size), Shuffle(3)])]), Batch(2)], seed=3)

    refused(
        build,
        states_after(build, [2, 2]),
        r"Concat \(sources\[1\] has Shuffle, which can hold, drop or skip items; put it after\) keeps data of .* cannot resume on "
        r"other ranks in the middle of an epoch, .*; resume on the same number of ranks, or from states that were saved between two epochs",
    )


def test_a_zip_whose_readers_have_read_different_positions_is_refused():
    def build(rank, world_size):
        readers = [Reader(range(24), size, epochs=3, rank=rank, world_size=world_size) for size in (2, 3)]
        return Pipeline([Zip(readers, strict=False)], seed=3)

    states = states_after(build, [2, 2])
    refused(build, states, "Zip cannot divide its items among other ranks: its sources have read different positions of the epoch")
    refused(build, states[0], "Zip cannot divide its items among other ranks: its sources have read different positions of the epoch")


# --- between two epochs ---


def of_two_epochs(rank, world_size, *stages, **how):
    return Pipeline([Reader(InBlocks(range(24)), epochs=3, rank=rank, world_size=world_size, **how), *stages], seed=3)


BETWEEN = {
    "shuffle and batch": lambda path, *ranks: of_two_epochs(*ranks, Shuffle(5), Batch(4)),
    "blocks": lambda path, *ranks: of_two_epochs(*ranks, Shuffle(3), shuffle="blocks"),
    "drops": lambda path, *ranks: of_two_epochs(*ranks, Stage(partial(some, by=2), drops=True), Batch(3)),
    "skips": lambda path, *ranks: of_two_epochs(*ranks, Stage(broken, on_error="skip"), Shuffle(4)),
    "unordered": lambda path, *ranks: of_two_epochs(*ranks, Stage(partial(plus, by=1), num_workers=2, ordered=False)),
    "cache in memory": lambda path, *ranks: of_two_epochs(*ranks, Cache(batched=False), Shuffle(3)),
    "several": lambda path, *ranks: of_several(Concat, *ranks, Shuffle(3)),
    "several that hold items": lambda path, rank, world_size: Pipeline(
        [Mix([Reader(range(24), epochs=3, rank=rank, world_size=world_size), Pipeline([second_reader(rank, world_size), Shuffle(3)])])],
        seed=3,
    ),
    "cache in a folder": lambda path, *ranks: of_two_epochs(*ranks, Cache(path), batch_size=3),
    "cache that is full": lambda path, *ranks: of_two_epochs(*ranks, Cache(budget=1), batch_size=3),
    "cache of batches": lambda path, *ranks: of_two_epochs(*ranks, Batch(3), Cache(), Unbatch()),
}


@pytest.mark.parametrize(("shape", "world_size", "epochs"), pairwise(list(BETWEEN), [1, 2, 4], [1, 2]))
def test_a_state_of_one_rank_between_two_epochs_fits_any_number_of_ranks(shape, epochs, world_size, tmp_path):
    build = partial(BETWEEN[shape], str(tmp_path / "cache"))
    with build(1, 3) as pipeline:
        for _ in range(epochs):
            list(pipeline)
        state = saved(pipeline)
    kept = {number for number in range(24) if not (shape == "drops" and number % 2 == 0) and not (shape == "skips" and number % 4 == 1)}
    kept |= set(range(SECOND, SECOND + 9)) if shape.startswith("several") else set()
    found = []
    for rank in range(world_size):
        with build(rank, world_size) as pipeline:
            pipeline.load_state_dict(state)
            state_again = saved(pipeline)  # before the first item
        with build(rank, world_size) as pipeline:
            pipeline.load_state_dict(state_again)
            assert pipeline.epoch == epochs
            found.append([])
            for _ in range(epochs, 3):
                found[-1].append([number % APART for item in pipeline for number in numbers(item)])
            with pytest.raises(EndOfStream):
                list(pipeline)
    for epoch in range(3 - epochs):
        times = Counter(number for rank in found for number in rank[epoch])
        extra = Counter(number for number in times if number >= SECOND)  # 9 samples on 2 or 4 ranks
        assert times - extra - extra == Counter(number for number in kept if number < SECOND) and set(times) == kept, (epoch, times)


@pytest.mark.parametrize("stage", [FixedEpochs(5), Take(30)])
def test_a_stage_that_carries_items_over_epochs_is_refused_on_other_ranks_between_two_epochs(stage):
    with of_two_epochs(0, 2, stage) as pipeline:
        list(pipeline)
        state = saved(pipeline)
    with of_two_epochs(0, 3, stage) as pipeline:
        with pytest.raises(PipelineError, match=f"{type(stage).__name__} is not exact on other ranks"):
            pipeline.load_state_dict(state)
        with pytest.raises(PipelineError, match=r"list has no state of rank 1; expected one state of each of the 2 ranks"):
            pipeline.load_state_dict([state])


def test_a_cache_of_several_readers_is_refused_on_other_ranks_between_two_epochs():
    """Each rank of a reader keeps to the samples of its cache; the ranks of a Concat do not."""
    with of_several(Concat, 0, 2, Cache(batched=False)) as pipeline:
        list(pipeline)
        state = saved(pipeline)
    with of_several(Concat, 0, 3, Cache(batched=False)) as pipeline, pytest.raises(PipelineError, match="is not exact on other ranks"):
        pipeline.load_state_dict(state)


# --- what does not belong together ---


def states_after(build, counts):
    found = []
    for rank, count in enumerate(counts):
        with build(rank, len(counts)) as pipeline:
            for _ in range(count):
                pipeline.dequeue()
            found.append(saved(pipeline))
    return found


def batched(rank, world_size):
    return of_two_epochs(rank, world_size, Shuffle(3), Batch(2))


def refused(build, states, match):
    with build(0, 3) as pipeline, pytest.raises(PipelineError, match=match):
        pipeline.load_state_dict(states)


def test_states_that_do_not_belong_together_are_refused():
    first, second = states_after(batched, [2, 2])
    refused(batched, [], "the list of states is empty; expected the states of all ranks")
    refused(batched, [first], r"the list has no state of rank 1; expected one state of each of the 2 ranks")
    refused(batched, [first, second, first], r"several states of rank 0")
    refused(batched, [first, *states_after(batched, [2, 2, 2])[1:]], "saved on different numbers of ranks, 2 and 3")
    refused(batched, states_after(batched, [2, 3]), "saved at different steps, after 2 and 3 items of epoch 0")
    refused(batched, states_after(batched, [2, 7]), "different epochs: rank 0 is in epoch 0, but rank 1 is in epoch 1; load the states")
    refused(batched, first, r"load the states of all 2 ranks, load_state_dict\(\[state_of_rank_0, state_of_rank_1\]\)")
    refused(batched, [first, {**second, "seed": 5}], "part of it is missing or was changed")

    def other(rank, world_size):
        return of_two_epochs(rank, world_size, Shuffle(4), Batch(2))

    refused(
        batched, [first, states_after(other, [2, 2])[1]], "different stages, Shuffle and Shuffle, or with different parameters of Shuffle"
    )


def test_each_rank_of_the_same_number_takes_its_own_state_of_a_list():
    states = states_after(batched, [2, 2])
    for rank in range(2):
        with batched(rank, 2) as pipeline, batched(rank, 2) as alone:
            pipeline.load_state_dict(states[::-1])
            alone.load_state_dict(states[rank])
            assert [item.tolist() for item in pipeline] == [item.tolist() for item in alone]


@pytest.mark.parametrize("stages", [(partial(plus, by=1), Unbatch(), Shuffle(3)), (Shuffle(3, reuse=2),), (Cache(batched=True),)])
def test_a_stage_that_keeps_parts_or_other_data_is_refused_in_the_middle_of_an_epoch(stages):
    def build(rank, world_size):
        return of_two_epochs(rank, world_size, *stages, batch_size=2)

    refused(
        build, states_after(build, [3, 3]), "(Unbatch|Shuffle|Cache.epochs) keeps .* cannot resume on other ranks in the middle of an epoch"
    )


def test_the_state_of_a_single_rank_is_the_state_of_all():
    (state,) = states_after(batched, [3])
    read = []
    for rank in range(2):
        with batched(rank, 2) as pipeline:
            pipeline.load_state_dict(state)
            read += [number for item in pipeline for number in numbers(item)]
    assert len(read) == len(set(read)) == 24 - 6


def test_each_new_rank_continues_with_the_largest_number_of_errors_of_the_old_ranks():
    def build(rank, world_size, max_errors=None):
        reader = Reader(range(96), 1, epochs=3, rank=rank, world_size=world_size, shuffle=False)
        return Pipeline([reader, Stage(broken, on_error="skip", max_errors=max_errors)], seed=3)

    states = states_after(build, [20, 20])  # only the second of 2 ranks has broken samples: 1, 5, ...
    assert [len(state["errors"]) for state in states] == [0, 1]
    (errors,) = states[1]["errors"].values()
    for rank in range(3):
        with build(rank, 3, max_errors=errors) as pipeline:
            pipeline.load_state_dict(states)
            with pytest.raises(ValueError, match="a broken sample") as caught:
                list(pipeline)
        assert f"max_errors={errors} is exceeded: this is error {errors + 1}" in caught.value.__notes__


# --- another batch size ---


@pytest.mark.parametrize("sizes", [(4, 3), (3, 8), (2, 24)])
@pytest.mark.parametrize("world_size", [1, 2])
def test_the_rest_of_an_epoch_is_read_with_another_batch_size_on_request(sizes, world_size):
    def build(rank, size):
        return of_two_epochs(rank, world_size, partial(plus, by=1), batch_size=size)

    read = []
    for rank in range(world_size):
        with build(rank, sizes[0]) as pipeline:
            read += [number for _ in range(2) for number in numbers(pipeline.dequeue())]
            state = saved(pipeline)
        with build(rank, sizes[1]) as pipeline:
            with pytest.raises(PipelineError, match=r"Reader: batch_size.*Reader\.batch_size"):
                pipeline.load_state_dict(state)
            pipeline.load_state_dict(state, allow_changed=["Reader.batch_size"])
            batches = [numbers(item) for item in pipeline]
            assert {len(batch) for batch in batches[:-1]} <= {sizes[1]}
            read += [number for batch in batches for number in batch]
    assert Counter(number % APART for number in read) == Counter(range(24))


def test_a_name_with_a_parameter_accepts_no_other_parameter():
    (state,) = states_after(batched, [3])
    changed = partial(of_two_epochs, 0, 1, Shuffle(9), Batch(3))
    with changed() as pipeline, pytest.raises(PipelineError, match=r"Batch had other parameters.*Batch: batch_size"):
        pipeline.load_state_dict(state, allow_changed=["Shuffle.buffer_size"])
    with changed() as pipeline, pytest.raises(PipelineError, match=r"allow_changed contains 'Shuffle.size'"):
        pipeline.load_state_dict(state, allow_changed=["Shuffle.size", "Batch"])


ISOLATED = {
    "batch": lambda **ranks: [Reader(range(24), epochs=1, **ranks), Shuffle(3), Batch(2)],
    "unbatch": lambda **ranks: [Reader(range(24), 3, epochs=1, **ranks), Unbatch(), Shuffle(3)],
    "concat": lambda **ranks: [Concat([Reader(range(first, first + 12), epochs=1, **ranks) for first in (0, 12)]), Shuffle(3), Batch(2)],
}


@pytest.mark.parametrize("shape", ISOLATED)
def test_an_isolated_pipeline_resumes_on_other_ranks(shape):
    def build(rank, world_size):
        return Pipeline(ISOLATED[shape](rank=rank, world_size=world_size), seed=3, isolated=rank == 0)  # beside another rank that is not

    read, states = [], []
    for rank in range(2):
        with build(rank, 2) as pipeline:
            read += [number for _ in range(2) for number in numbers(pipeline.dequeue())]
            states.append(saved(pipeline))
    with build(0, 1) as pipeline:
        pipeline.load_state_dict(states)
        assert sorted(read + [number for item in pipeline for number in numbers(item)]) == list(range(24))
    if shape == "batch":
        refused(build, states_after(build, [2]), "Batch has split items of rank 0, or does not report")  # one rank: to save time


class Pairs:
    """Sums of two numbers."""

    def stream(self, items):
        for item in items:
            if (other := next(items, None)) is not None:
                yield item + other

    def __highway__(self):
        return Traits(per_epoch=True, whole_inputs=True, state=Stateless)


def test_a_stream_that_does_not_report_the_inputs_of_its_items_is_refused():
    def build(rank, world_size):
        return of_two_epochs(rank, world_size, Pairs())

    refused(build, states_after(build, [2, 2]), "Pairs has split items of rank 0, or does not report")


@pytest.mark.parametrize("isolated", [False, True])
def test_a_map_that_renumbers_items_on_one_rank_is_refused_on_others(isolated):
    def build(rank, world_size):
        reader = Reader(InBlocks(range(24)), epochs=3, rank=rank, world_size=world_size)
        return Pipeline([reader, backwards, Batch(2)], seed=3, isolated=isolated)

    (state,) = states_after(build, [2])
    with build(0, 1) as pipeline:
        pipeline.load_state_dict(state)
        again = saved(pipeline)
    for one in (state, [state], again):
        refused(build, one, "backwards changed the epoch or index of items")


def backwards(item):
    return Stamped(item, Passport(0, 23 - int(item)))
