"""Batches that ``to_device`` has taken and the loop has not received: they do not count in any state."""

import itertools
import json

import pytest

from highway import Pipeline, PipelineError
from highway.modules import Batch, Reader

torch = pytest.importorskip("torch")

from torch.utils import data  # noqa: E402
from waiting import wait_until  # noqa: E402

from highway.adapters.torch import DataLoader, to_device  # noqa: E402

BATCHES, DEPTH = 8, 3


class Moving:
    """A part of a batch that knows whether it was moved."""

    moved: list[int]  # the numbers that the thread of to_device has moved

    def __init__(self, number):
        self.number = number

    def to(self, device, non_blocking):
        self.moved.append(self.number)
        return self


@pytest.fixture(autouse=True)
def moved():
    Moving.moved = []
    return Moving.moved


def pipeline():
    return Pipeline([Reader(list(range(BATCHES)), 1, num_workers=2, epochs=3), lambda batch: Moving(int(batch[0]))], seed=7)


def over_dataset():
    return DataLoader(range(BATCHES), 1, num_workers=2, collate_fn=lambda samples: Moving(samples[0]), workers="threads")


def over_pipeline():
    made = pipeline()
    return made, DataLoader(made)


def wrapped(made):
    return to_device(made, "cpu", DEPTH)


MADE = {  # what holds the data, what is looped over, and what is asked
    "a pipeline": lambda: (made := pipeline(), wrapped(made), made),
    "a pipeline, asked by what it is wrapped in": lambda: (made := pipeline(), batches := wrapped(made), batches),
    "a loader over a pipeline": lambda: (both := over_pipeline(), wrapped(both[1]), both[1]),
    "the pipeline of a loader": lambda: (both := over_pipeline(), wrapped(both[1]), both[0]),
    "a loader over a dataset": lambda: (made := over_dataset(), wrapped(made), made),
    "a loader in two": lambda: (made := over_dataset(), wrapped(wrapped(made)), made),
}


@pytest.fixture(params=MADE)
def make(request):
    owners = []

    def make():
        owner, batches, asked = MADE[request.param]()
        owners.append(owner)
        return batches, asked

    yield make
    for owner in owners:
        for part in owner if isinstance(owner, tuple) else (owner,):
            (part.stop if isinstance(part, Pipeline) else part.close)()


def numbers(batches):
    return [batch.number for batch in batches]


def saved(asked):
    return json.loads(json.dumps(asked.state_dict()))


def test_a_state_counts_what_the_loop_has_received(make, moved):
    batches, asked = make()
    received, states = [], []
    for _ in range(2):
        for batch in batches:
            received.append(batch.number)
            wait_until(lambda: len(moved) >= min(len(received) + 2, -(-len(received) // BATCHES) * BATCHES))  # further ahead than the loop
            states.append(saved(asked))
    assert all(sorted(received[first:][:BATCHES]) == list(range(BATCHES)) for first in (0, BATCHES))
    for count in (1, 4, BATCHES - 1, BATCHES + 3):
        resumed, asked = make()
        asked.load_state_dict(states[count - 1])
        rest = numbers(resumed)
        assert received[:count] + rest == received[: count + len(rest)] and len(rest) == -count % BATCHES
        assert sorted(numbers(resumed)) == list(range(BATCHES))


def test_after_a_break_the_state_is_the_same_as_after_a_break_of_a_loop_over_the_loader(make, moved):
    def left(batches, asked):
        for _ in batches:
            break
        state, rest = saved(asked), [numbers(batches), numbers(batches)]
        resumed, asked = make()
        asked.load_state_dict(state)
        return rest, [numbers(resumed) for _ in rest]

    (batches, asked), (other, itself) = make(), make()
    while hasattr(other, "loader"):
        other = other.loader
    got, expected = left(batches, asked), left(other, itself)
    assert got == expected
    assert [sorted(epoch) for epoch in got[0]] == [list(range(BATCHES))] * 2


def test_after_an_error_on_the_way_to_the_device_nothing_is_lost(make, moved):
    class Full(list):
        def append(self, number):
            if len(self) == 4:
                raise MemoryError("the device is full")
            super().append(number)

    whole, received = numbers(make()[0]), []
    Moving.moved = Full()
    batches, asked = make()
    with pytest.raises(MemoryError, match="the device is full"):
        for batch in batches:
            received.append(batch.number)
    state = saved(asked)
    Moving.moved = moved
    resumed, asked = make()
    asked.load_state_dict(state)
    assert received + numbers(resumed) == whole


def test_a_with_block_ends_a_loop_and_does_not_close_the_loader():
    with pipeline() as made:
        with to_device(made, "cpu") as batches:
            loop = iter(batches)
            next(loop)
        assert list(loop) == []
        assert [sorted(numbers(to_device(made, "cpu"))) for _ in range(2)] == [list(range(BATCHES))] * 2


def test_a_pipeline_in_another_one_refuses_its_state():
    with pipeline() as inner, Pipeline([inner, lambda moving: moving.number, Batch(2)]) as outer:
        batches = iter(outer)
        next(batches)
        with pytest.raises(
            PipelineError, match=r"state_dict: another pipeline reads the items of Pipeline\(Reader.*call state_dict\(\) of that"
        ):
            inner.state_dict()
        state, rest = saved(outer), [batch.tolist() for batch in batches]
    with pipeline() as inner, Pipeline([inner, lambda moving: moving.number, Batch(2)]) as outer:
        outer.load_state_dict(state)
        assert [batch.tolist() for batch in outer] == rest


class Batches(data.IterableDataset):
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return iter(self.loader)


def test_a_loader_whose_batches_a_stage_takes_refuses_its_state():
    with over_dataset() as loader:
        for _ in to_device(data.DataLoader(Batches(loader), batch_size=None), "cpu"):
            with pytest.raises(PipelineError, match=r"state_dict: a pipeline reads this DataLoader ahead of your loop;"):
                loader.state_dict()


def test_without_epochs_a_state_counts_what_the_loop_has_received_after_a_break_too(moved):
    with Pipeline([range(100), Moving]) as endless:
        for batch in itertools.islice(to_device(endless, "cpu"), 5):
            last = batch.number
        wait_until(lambda: max(moved) > last)
        state = saved(endless)
    with Pipeline([range(100), Moving]) as endless:
        endless.load_state_dict(state)
        assert next(iter(endless)).number == last + 1
