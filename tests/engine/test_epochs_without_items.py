"""An epoch of which maps drop all items is an empty loop, wherever it is."""

import json

import pytest

from highway import DROP, EndOfStream, Pipeline, Stage
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


@pytest.mark.parametrize("kept", [(0, 2), (0,), (2,), (1,), (), (0, 1, 2)])
@pytest.mark.parametrize("stages", [[], [Shuffle(4)], [Batch(5)]])
def test_such_an_epoch_is_an_empty_loop(kept, stages):
    with pipeline_of(kept, *stages) as pipeline:
        found = loops(pipeline)
    assert [len(items) > 0 for items in found] == [epoch in kept for epoch in range(3)]


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
