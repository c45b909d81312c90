"""An epoch of which maps drop all items is an empty loop, wherever it is."""

import json

import pytest

from highway import DROP, EndOfStream, Pipeline, Stage, Traits
from highway.engine.stage import Passport, Stamped
from highway.errors import PipelineError
from highway.modules import Batch, Reader, Shuffle, Take


class OnlyEpochs:
    """Keep the samples of some epochs."""

    def __init__(self, *epochs):
        self.epochs, self.seen = epochs, 0

    def __call__(self, number):
        self.seen += 1
        return number if (self.seen - 1) // 10 in self.epochs else DROP


def pipeline_of(epochs, *stages, total=3):
    return Pipeline([Reader(range(10), epochs=total, shuffle=False), Stage(OnlyEpochs(*epochs), drops=True), *stages])


def loops(pipeline):
    found = []
    while True:
        try:
            found.append([getattr(item, "tolist", lambda item=item: item)() for item in pipeline])
        except EndOfStream:
            return found


KEPT = [(0, 2), (0,), (2,), (1,), (), (0, 1, 2)]


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("stages", [[], [Shuffle(4)], [Batch(5)]])
def test_such_an_epoch_is_an_empty_loop(kept, stages):
    with pipeline_of(kept, *stages) as pipeline:
        found = loops(pipeline)
    assert [len(items) > 0 for items in found] == [epoch in kept for epoch in range(3)]


@pytest.mark.parametrize("kept", KEPT)
def test_such_an_epoch_of_a_pipeline_in_another_is_an_empty_loop_too(kept):
    with pipeline_of(kept) as pipeline:
        expected = loops(pipeline)
    inner = Pipeline([pipeline_of(kept), Batch(1)])
    with Pipeline([inner, Stage(lambda batch: int(batch[0]), name="first")]) as pipeline:
        assert loops(pipeline) == expected


class Numbered:
    """A source of three epochs, of which the first has any number."""

    def __init__(self, first):
        self.first = first

    def __highway__(self):
        return Traits(numbers_epochs=True)

    def __iter__(self):
        for epoch in range(self.first, self.first + 3):
            for index in range(2):
                yield Stamped(epoch, Passport(epoch, index))


@pytest.mark.slow
@pytest.mark.parametrize("isolated", [False, True])
def test_a_source_numbers_its_epochs_from_0(isolated):
    with Pipeline([Numbered(0)], isolated=isolated) as pipeline:
        assert loops(pipeline) == [[0, 0], [1, 1], [2, 2]]
    with (
        Pipeline([Numbered(1)], isolated=isolated) as pipeline,
        pytest.raises(PipelineError, match="Numbered: its first item belongs to epoch 1; number epochs from 0"),
    ):
        list(pipeline)


def test_the_number_of_the_epoch_counts_it():
    with pipeline_of((0, 3), total=5) as pipeline:
        numbers = []
        for _ in range(5):
            list(pipeline)
            numbers.append(pipeline.epoch)
    assert numbers == [1, 2, 3, 4, 5]


def few(number, rng):
    return number if rng.random() < 0.3 else DROP


def few_of_two():
    return Pipeline([Reader(range(2), epochs=9), Stage(few, drops=True)], seed=2)


@pytest.mark.parametrize("loops_before", range(10))
def test_a_run_resumes_before_and_after_it(loops_before):
    with few_of_two() as pipeline:
        whole = loops(pipeline)
    assert len(whole) == 9 and [] in whole[1:-1]
    with few_of_two() as pipeline:
        for _ in range(loops_before):
            list(pipeline)
        state = json.loads(json.dumps(pipeline.state_dict()))
    with few_of_two() as pipeline:
        pipeline.load_state_dict(state)
        assert pipeline.epoch == loops_before
        assert loops(pipeline) == whole[loops_before:]


def test_items_that_were_dequeued_are_none_of_the_next_loop():
    with pipeline_of((0, 2)) as pipeline:
        assert [pipeline.dequeue() for _ in range(10)] == list(range(10))
        assert loops(pipeline) == [[], list(range(10))]


def test_a_stream_that_ends_early_has_no_more_epochs():
    with pipeline_of((0, 2), Take(10)) as pipeline:
        assert loops(pipeline) == [list(range(10))]


def test_a_pipeline_that_was_stopped_or_drained_has_no_more_epochs():
    with pipeline_of((0,)) as pipeline:
        pipeline.dequeue()
        pipeline.drain()
        assert len(loops(pipeline)) <= 1
    with pipeline_of((0,)) as pipeline:
        pipeline.stop()
        assert loops(pipeline) == []
