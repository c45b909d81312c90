"""A state that was saved on other ranks resumes exactly, or is refused by the shape of the pipeline, before anything runs."""

import io
import json
import logging
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image

from highway import DROP, Pipeline, Stage, Traits
from highway.engine import Position
from highway.engine.stage import Passport, Several, Stamped
from highway.errors import ConfigError, PipelineError
from highway.modules import (
    Batch,
    Cache,
    Concat,
    EncodedImageReader,
    ImageFileReader,
    ImageReader,
    Mix,
    Processes,
    Reader,
    Repeat,
    Shuffle,
    Tee,
    Zip,
)

TOTAL = 240


def reader(rank=None, world_size=None, batch_size=None, total=TOTAL):
    return Reader(range(total), batch_size, epochs=2, rank=rank, world_size=world_size)


def state_after(pipeline, count):
    with pipeline:
        for _ in range(count):
            pipeline.dequeue()
        return json.loads(json.dumps(pipeline.state_dict()))


def numbers(items):
    return [int(number) for item in items for number in np.atleast_1d(item)]


def double(number):
    return 2 * number


def some(number):
    return DROP if number % 3 == 0 else number


def broken(number):
    if number % 3 == 0:
        raise ValueError("broken")
    return number


class Broken(list):
    def __getitem__(self, number):
        return broken(super().__getitem__(number))


@pytest.fixture
def at_rank(monkeypatch):
    """Return what makes this process a rank, as torchrun does."""

    def set_rank(rank, world_size):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(world_size))

    return set_rank


def after(*stages):
    return lambda rank, world_size: Pipeline([reader(rank, world_size), *stages])


SHAPES = {
    "cache": ("Cache.epochs", after(Cache(batched=False))),
    "shuffle": ("Shuffle", after(Shuffle(1000))),
    "batch": ("Batch", after(Batch(4))),
    "unordered": ("double", after(Stage(double, num_workers=2, ordered=False))),
    "drops": ("some", after(Stage(some, drops=True))),
    "skips": ("broken", after(Stage(broken, on_error="skip"))),
    "reader that skips samples": (
        "Reader.read",
        lambda rank, world_size: Pipeline(
            [Stage(Reader(Broken(range(TOTAL)), epochs=2, rank=rank, world_size=world_size), on_error="skip")]
        ),
    ),
    "concat": ("Concat", lambda rank, world_size: Pipeline([Concat([reader(), [1, 2]])])),
    "mix": ("Mix", lambda rank, world_size: Pipeline([Mix([reader(), [1, 2]])])),
    "zip": ("Zip", lambda rank, world_size: Pipeline([Zip([reader(), Pipeline([reader(), Shuffle(9)])])])),
    "mix that continues": ("Mix", lambda rank, world_size: Pipeline([Mix([reader(), reader()], stop="first")])),
    "repeat": ("Repeat", lambda rank, world_size: Pipeline([Repeat(Concat([reader()]), 2)])),
    "repeat of a reader": ("Repeat", lambda rank, world_size: Pipeline([Repeat(reader(), 2)])),
    "pipeline": ("Pipeline", lambda rank, world_size: Pipeline([Pipeline([reader(), double])])),
}


@pytest.mark.parametrize(("before", "now"), [((0, 2), (0, 4)), ((1, 4), (0, 2)), ((0, 2), (1, 2))])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [1, 30])
def test_a_shape_that_is_not_exact_on_other_ranks_is_refused_from_the_first_item_on(shape, before, now, count, at_rank):
    stage, build = SHAPES[shape]
    at_rank(*before)
    state = state_after(build(*before), count)
    expected = (
        f"load_state_dict: {stage} is not exact on other ranks: the state was saved on .*rank {before[0]} of {before[1]}.*, but this is "
        rf".*rank {now[0]} of {now[1]}.*; (load the states of all {before[1]} ranks, .*)?start again .*allow_changed=\['{stage}'\]"
    )
    at_rank(*now)
    with build(*now) as pipeline, pytest.raises(PipelineError, match=expected):
        pipeline.load_state_dict(state)
    at_rank(*before)
    with build(*before) as pipeline:
        pipeline.load_state_dict(state)  # on the same rank


@pytest.mark.parametrize("saved_again", [False, True])
@pytest.mark.parametrize("shape", ["drops", "skips", "reader that skips samples"])
def test_a_state_of_a_stage_that_could_drop_items_is_refused_on_other_ranks_by_one_that_cannot(shape, saved_again):
    stage, build = SHAPES[shape]
    state = state_after(build(0, 2), 30)
    plain = {
        "drops": after(some),
        "skips": after(broken),
        "reader that skips samples": lambda rank, world_size: Pipeline(
            [Reader(Broken(range(TOTAL)), epochs=2, rank=rank, world_size=world_size)]
        ),
    }
    if saved_again:
        pipeline = plain[shape](0, 2)
        pipeline.load_state_dict(state)
        state = state_after(pipeline, 0)
    with plain[shape](0, 3) as pipeline, pytest.raises(PipelineError, match=f"{stage} is not exact on other ranks"):
        pipeline.load_state_dict(state)


def test_items_that_were_skipped_count_until_the_end_of_the_epoch():
    """The samples are mended in the middle of epoch 0."""
    build = after(Stage(lambda number: number, name="broken"))
    pipeline = build(0, 2)
    pipeline.load_state_dict(state_after(SHAPES["skips"][1](0, 2), 30), allow_changed=["broken"])
    with pipeline:
        pipeline.dequeue()
        inside = pipeline.state_dict()
        list(pipeline)  # the rest of epoch 0
        pipeline.dequeue()
        behind = pipeline.state_dict()
    with build(0, 3) as pipeline, pytest.raises(PipelineError, match="broken is not exact on other ranks"):
        pipeline.load_state_dict(inside)
    with build(0, 3) as pipeline:
        pipeline.load_state_dict(behind)


def test_a_user_may_accept_the_change_of_a_stage(caplog):
    state = state_after(after(Shuffle(5))(0, 2), 20)
    with after(Shuffle(5))(0, 4) as pipeline, caplog.at_level(logging.WARNING):
        pipeline.load_state_dict(state, allow_changed=["Shuffle"])
        rest = numbers(pipeline)
    assert len(rest) == len(set(rest)) <= TOTAL / 4
    assert "Shuffle is not exact on other ranks" in caplog.text and "accepted by allow_changed" in caplog.text


def test_a_state_from_before_the_first_item_fits_any_ranks():
    state = state_after(after(Shuffle(5), Batch(3))(0, 2), 0)
    with after(Shuffle(5), Batch(3))(1, 4) as pipeline:
        pipeline.load_state_dict(state)
        resumed = numbers(pipeline)
    with after(Shuffle(5), Batch(3))(1, 4) as pipeline:
        assert resumed == numbers(pipeline)


@pytest.mark.parametrize("first", [None, 1])
def test_a_state_that_is_saved_again_on_other_ranks_before_the_first_item_is_exact(first):
    """As when a run is preempted right after it was started again on other ranks."""
    read, state = [], None
    for world_size, count in [(3, 5), (8, 0), (6, None)]:
        states, left = [], []
        for rank in range(world_size):
            with Pipeline([reader(rank, world_size, 4, total=239), double, Tee(id)]) as pipeline:
                if state is not None:
                    pipeline.load_state_dict(state)
                left.append([pipeline.dequeue() for _ in range(count)] if count is not None else list(pipeline))
                states.append(json.loads(json.dumps(pipeline.state_dict())))
        read += [number for found in left for number in numbers(found)]
        state = states[first or 0]
    times = Counter(read)
    assert set(times) == set(range(0, 478, 2))
    assert sum(times.values()) - 239 < 6 * 4  # what evens out the ranks


def test_an_undeclared_drop_is_an_error_on_several_ranks():
    with (
        Pipeline([reader(0, 2), some]) as pipeline,
        pytest.raises(PipelineError, match=r"some returned DROP, but .*all 2 ranks must have the same number of"),
    ):
        for _ in pipeline:
            pass


def some_of_each(item):
    count = min(item % 3, 1)
    return Several([item] * count, range(count), [()] * count, range(count))


def test_so_is_several_without_items():
    with (
        Pipeline([reader(0, 2), some_of_each]) as pipeline,
        pytest.raises(PipelineError, match=r"some_of_each returned Several without items, but .*all 2 ranks must have the same number of"),
    ):
        for _ in pipeline:
            pass
    with Pipeline([reader(0, 1), some_of_each]) as pipeline:
        assert sum(1 for _ in pipeline) == 160
        with pytest.raises(TypeError, match="some_of_each has dropped items"):
            len(pipeline)


def test_a_declared_drop_is_none_and_one_rank_needs_no_declaration():
    with Pipeline([reader(0, 2), Stage(some, drops=True)]) as pipeline:
        assert all(number % 3 for number in pipeline)
    with Pipeline([reader(0, 1), some]) as pipeline:
        assert sum(1 for _ in pipeline) == 160


@pytest.mark.parametrize("in_processes", [False, True])
def test_an_undeclared_drop_is_an_error_once_the_length_was_asked_for(in_processes):
    stage = Processes([some], 1) if in_processes else some
    with Pipeline([reader(0, 1), stage]) as pipeline:
        assert len(pipeline) == TOTAL
        with pytest.raises(PipelineError, match=r"some returned DROP, .*counted this item .*; use Stage\(map, drops=True\)"):
            for _ in pipeline:
                pass


@pytest.mark.parametrize(
    "stage", [Stage(some, drops=True), Stage(Processes([some], 1), drops=True), Processes([Stage(some, drops=True)], 1)]
)
def test_a_pipeline_that_drops_has_no_length(stage):
    with Pipeline([reader(0, 1), stage]) as pipeline, pytest.raises(TypeError, match=r"some declares to drop items.*; count the items"):
        len(pipeline)


def test_a_pipeline_that_may_skip_items_has_no_length():
    for stages in (
        [reader(0, 1), Stage(broken, on_error="skip")],
        [Stage(reader(0, 1), on_error="skip"), Batch(4)],
    ):
        with Pipeline(stages) as pipeline:
            with pytest.raises(TypeError, match=r"(broken|Reader.read) skips items whose work fails \(on_error='skip'\); count the items"):
                len(pipeline)
            assert list(pipeline)  # which asks for a length, too
    with Pipeline([Stage(Reader(Broken(range(TOTAL)), 4, rank=0, world_size=1, epochs=1), on_error="skip")]) as pipeline:
        assert len(pipeline) == sum(1 for _ in pipeline) == TOTAL / 4  # other samples take the places of those that it skips


def test_a_pipeline_that_has_dropped_has_no_length():
    with Pipeline([reader(0, 1), some]) as pipeline:
        pipeline.dequeue()
        with pytest.raises(TypeError, match="some has dropped items"):
            len(pipeline)


def test_drops_is_for_maps():
    with pytest.raises(PipelineError, match="Shuffle is a stream; drops=True is only for maps"):
        Pipeline([range(3), Stage(Shuffle(2), drops=True)])


@dataclass
class Undeclared:
    """A source that says where it is, and not which ranks it depends on."""

    total: int = 9

    def __highway__(self):
        return Traits(state=lambda: Position(0))

    def __iter__(self, context):
        position = context.state_of(self)
        for number in range(position.value, self.total):
            position.value = number + 1
            yield Stamped(number, Passport(index=number))


class OnEveryRank(Undeclared):
    def __highway__(self):
        return Traits(state=lambda: Position(0), ranks=list)


def test_a_source_that_does_not_declare_its_ranks_is_refused_on_others(at_rank):
    at_rank(0, 2)
    state = state_after(Pipeline([Undeclared()]), 3)
    with Pipeline([Undeclared()]) as pipeline:
        pipeline.load_state_dict(state)
        assert list(pipeline) == [3, 4, 5, 6, 7, 8]
    at_rank(0, 4)
    with Pipeline([Undeclared()]) as pipeline, pytest.raises(PipelineError, match=r"Undeclared is not exact on other ranks.*rank 0 of 4"):
        pipeline.load_state_dict(state)


@pytest.mark.parametrize("source", [OnEveryRank(), list(range(9)), Concat([range(4), [4, 5, 6, 7, 8]])])
def test_a_source_that_is_the_same_on_every_rank_resumes_on_any(source, at_rank):
    at_rank(0, 2)
    state = state_after(Pipeline([source, Shuffle(2)]), 3)
    rest = []
    for world_size in (2, 4):
        at_rank(1, world_size)
        with Pipeline([source, Shuffle(2)]) as pipeline:
            pipeline.load_state_dict(state)
            rest.append(list(pipeline))
    assert rest[0] == rest[1] and len(rest[0]) == 6


def test_a_state_after_an_epoch_whose_items_were_all_dropped_is_not_one_from_before_the_first_item():
    def build(rank, world_size):
        return Pipeline([reader(rank, world_size), Stage(lambda number: DROP, name="all", drops=True)])

    with build(0, 2) as pipeline:
        assert list(pipeline) == []
        state = pipeline.state_dict()
    with build(0, 1) as pipeline:
        pipeline.load_state_dict(state)
        assert pipeline.epoch == 1


class InBlocks(list):
    def blocks(self):
        return [range(first, min(first + 10, len(self))) for first in range(0, len(self), 10)]


@pytest.mark.parametrize("order", [{}, {"shuffle": False}, {"shuffle": "blocks"}])
@pytest.mark.parametrize("left_out", [{"batch_size": 10, "drop_last": True}, {"on_uneven": "drop"}])
def test_samples_that_ranks_left_out_of_an_epoch_are_not_read_in_the_next_one_on_other_ranks(left_out, order):
    def build(rank, world_size):
        return Pipeline([Reader(InBlocks(range(102)), epochs=2, rank=rank, world_size=world_size, **left_out, **order)])

    with build(0, 4) as pipeline:
        list(pipeline)  # 80 samples of the four ranks, or 100
        state = pipeline.state_dict()
    for rank in range(2):
        with build(rank, 2) as pipeline, build(rank, 2) as other:
            list(other)
            pipeline.load_state_dict(state)
            assert numbers(pipeline) == numbers(other)


@pytest.mark.parametrize("chain", [(3, 4, 4, 1), (5, 5, 1), (2, 5, 5, 1), (4, 4, 2)])
def test_a_state_of_another_rank_that_is_saved_again_is_exact(chain):
    """Only the state of rank 0 was kept: each rank loads it, and saves again before its first item."""
    states, read = [None] * chain[0], []
    for place, world_size in enumerate(chain):
        saved_states = []
        for rank in range(world_size):
            with Pipeline([reader(rank, world_size, 4, total=239), double]) as pipeline:
                if states[0] is not None:
                    pipeline.load_state_dict(states[0] if place == 1 else states[-1])
                if place == 0:
                    read += numbers([pipeline.dequeue() for _ in range(5)])
                elif place == len(chain) - 1:
                    read += numbers(pipeline)
                saved_states.append(json.loads(json.dumps(pipeline.state_dict())))
        states = saved_states
    times = Counter(read)
    assert set(times) == set(range(0, 478, 2))
    assert sum(times.values()) - 239 < 4 * max(chain)


def test_a_map_that_numbers_items_itself_is_an_error_on_several_ranks():
    def renumbered(number):
        return Stamped(number, Passport(0, int(number)))

    with Pipeline([reader(0, 2), renumbered]) as pipeline, pytest.raises(PipelineError, match="another epoch or index, but 2 ranks"):
        for _ in pipeline:
            pass
    with Pipeline([reader(0, 1), renumbered]) as pipeline:
        assert len(list(pipeline.stamped())) == 2 * TOTAL


class Pictures:
    """Grey pictures, each of the level of its number, with the number as the label."""

    def __len__(self):
        return TOTAL

    def __getitem__(self, number):
        file = io.BytesIO()
        Image.new("RGB", (4, 4), (number, number, number)).save(file, "png")
        return file.getvalue(), number


GLOBAL = {  # for each reader: its dataset, its other parameters, and what a batch shows of the numbers of its samples
    Reader: (range(TOTAL), {}, lambda batch: batch),
    ImageReader: (Pictures(), {"shape": (4, 4)}, lambda batch: batch[0][:, 0, 0, 0]),
    ImageFileReader: (Pictures(), {"shape": (4, 4)}, lambda batch: batch[1]),
    EncodedImageReader: (Pictures(), {}, lambda batch: batch[2]),
}


@pytest.mark.parametrize("kind", GLOBAL, ids=lambda kind: kind.__name__)
def test_a_global_batch_stays_the_same_on_any_number_of_ranks(kind):
    dataset, how, numbers_of = GLOBAL[kind]

    def readers(ranks):
        return [kind(dataset, epochs=2, rank=rank, world_size=ranks, global_batch_size=12, **how) for rank in range(ranks)]

    read, states = [], None
    for ranks, steps in ((4, 5), (3, 4), (1, 2), (2, 8), (4, 21)):
        pipelines = [Pipeline([reader], seed=3) for reader in readers(ranks)]
        batches = []
        for rank, pipeline in enumerate(pipelines):
            with pipeline:
                if states:
                    pipeline.load_state_dict(states[rank % len(states)])
                batches.append([numbers_of(pipeline.dequeue()).tolist() for _ in range(steps)])
                pipelines[rank] = pipeline.state_dict()
        states = pipelines
        read += [[number for batch in step for number in batch] for step in zip(*batches, strict=True)]
    with Pipeline(readers(1), seed=3) as alone:
        expected = [numbers_of(alone.dequeue()).tolist() for _ in range(40)]
    assert [sorted(step) for step in read] == [sorted(step) for step in expected]
    assert sorted(number for step in read[:20] for number in step) == list(range(TOTAL))


def test_a_global_batch_stays_the_same_after_more_steps_than_the_new_ranks_have_batches():
    def build(ranks):
        return Pipeline([Reader(range(240), epochs=1, rank=0, world_size=ranks, global_batch_size=12)])

    state = state_after(build(4), 12)  # of 20 steps; a batch of one of two ranks is twice as large
    with build(2) as pipeline:
        pipeline.load_state_dict(state)
        assert len(list(pipeline)) == 8


def test_a_global_batch_that_ranks_cannot_share_is_refused_before_the_first_item():
    with pytest.raises(ConfigError, match="Reader: 4 ranks cannot share global_batch_size=10 evenly; expected a multiple of 4, such as 12"):
        Pipeline([Reader(range(TOTAL), rank=1, world_size=4, global_batch_size=10)])
    for kind, (dataset, how, _) in GLOBAL.items():
        with pytest.raises(ConfigError, match=f"{kind.__name__}: global_batch_size=10; expected None, because batch_size=5 is set"):
            kind(dataset, 5, global_batch_size=10, **how)
        if kind is not Reader:
            with pytest.raises(
                ConfigError, match=f"{kind.__name__}: batch_size=None; expected a number of samples, or a global_batch_size"
            ):
                kind(dataset, **how)
