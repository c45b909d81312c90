"""``Stage(per_worker=True)``: each worker of a map has a copy of its own."""

import copy
import threading
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest

from highway import Pipeline, PipelineError, Stage
from highway.engine.context import here
from highway.modules import Augmentations, Batch, ImageFileReader, Map, Processes, Repeat
from highway.parameters.location import Location
from highway.topology.registry import Registry
from highway.transforms import FlipX

WORKERS = 4


class NotThreadSafe:
    """Add one; raise where two threads are in one object, as they are if it is shared: each waits for all others in its first call."""

    def __init__(self):
        self.inside, self.calls, self.thread, self.first = False, 0, None, Meeting(WORKERS)

    def __call__(self, item):
        if self.inside:
            self.first.abort()
            raise RuntimeError("two threads are in one map")
        self.inside = True
        if not self.calls:
            self.first.wait(30)
        assert self.thread in (None, threading.get_ident())
        self.thread = threading.get_ident()
        self.calls += 1
        here().count(self, "tokenized")
        self.inside = False
        return item + 1


class Meeting(threading.Barrier):
    def __deepcopy__(self, memo):
        return self


def test_each_worker_has_a_copy_and_the_component_itself_is_never_called():
    component = NotThreadSafe()
    for _ in range(2):
        pipeline = Pipeline([range(20), Stage(component, num_workers=WORKERS, per_worker=True)])
        assert list(pipeline) == list(range(1, 21))
        assert pipeline.stats().stages[1].counters == {"tokenized": 20}
        assert component.calls == 0 and component.thread is None


def test_the_map_notices_when_it_is_shared():
    with pytest.raises(RuntimeError):  # or a BrokenBarrierError, which is one
        list(Pipeline([range(20), Stage(NotThreadSafe(), num_workers=WORKERS)]))


def test_it_works_without_order():
    stage = Stage(NotThreadSafe(), num_workers=WORKERS, ordered=False, per_worker=True)
    assert sorted(Pipeline([range(20), stage])) == list(range(1, 21))


def test_a_copy_is_made_on_the_thread_of_its_worker():
    made = []

    class Local:
        def __deepcopy__(self, memo):
            made.append(threading.get_ident())
            return Owned(threading.get_ident())

        def __call__(self, item):
            raise AssertionError("only its copies are called")

    @dataclass
    class Owned:
        thread: int

        def __call__(self, item):
            assert self.thread == threading.get_ident()
            return item

    assert list(Pipeline([range(50), Stage(Local(), num_workers=3, per_worker=True)])) == list(range(50))
    assert len(set(made)) == len(made) == 3


@dataclass
class Draw:
    scratch: list = field(default_factory=list)

    def __call__(self, item, rng):
        self.scratch.append(item)
        return item + rng.integers(1 << 30)


def test_what_a_map_draws_by_rng_is_the_same_with_copies():
    runs = [list(Pipeline([range(30), Stage(Draw(), n, per_worker=n > 1)], seed=5)) for n in (1, 3)]
    assert runs[0] == runs[1]


def test_augmentations_are_the_same_with_copies():
    reader = ImageFileReader("highway:photos/val", 8, (32, 32), epochs=1)
    runs = [list(Pipeline([reader, Stage(Augmentations([FlipX()]), 2, per_worker=copies)], seed=1)) for copies in (False, True)]
    for (shared, _), (copied, _) in zip(*runs, strict=True):
        np.testing.assert_array_equal(shared, copied)


class TwoMaps:
    def __init__(self):
        self.first, self.second = NotThreadSafe(), NotThreadSafe()

    def stages(self):
        return [self.first, Stage(self.second, name="second"), Batch(2)]


def test_a_composite_hands_it_on_to_its_maps():
    pipeline = Pipeline([range(8), Stage(TwoMaps(), num_workers=WORKERS, per_worker=True)])
    assert np.concatenate(list(pipeline)).tolist() == list(range(2, 10))
    assert [stage.counters for stage in pipeline.stats().stages[1:3]] == [{"tokenized": 8}] * 2


def test_repeat_runs_its_stages_with_it():
    stage = Stage(NotThreadSafe(), num_workers=WORKERS, per_worker=True)
    with Pipeline([range(8), stage, Repeat(times=2)]) as pipeline:
        assert [list(pipeline), list(pipeline)] == 2 * [list(range(1, 9))]


class AddWithLock:
    """Can be sent to a process, but not be copied."""

    def __deepcopy__(self, memo):
        raise AssertionError("the process has a copy")

    def __call__(self, item):
        return item + 1


@pytest.mark.slow
def test_processes_have_copies_anyway():
    stage = Stage(Processes([AddWithLock()], num_processes=2), per_worker=True)
    assert list(Pipeline([range(6), stage])) == list(range(1, 7))


def test_a_pipeline_in_a_process_has_it():
    stages = [Map(np.int64), Stage(Draw(), num_workers=2, per_worker=True)]
    with Pipeline([Processes([list_of_numbers, *stages])], seed=3) as pipeline:
        assert len(list(pipeline)) == 5


def list_of_numbers():
    yield from range(5)


def test_what_cannot_be_copied_is_named_with_a_way_out():
    class Locked:
        def __init__(self):
            self.lock = threading.Lock()

        def __call__(self, item):
            return item

    expected = r"Locked cannot be copied .*per_worker=True.*cannot pickle '_thread.lock' object; define a method __deepcopy__"
    pipeline = Pipeline([range(3), Stage(Locked(), num_workers=2, per_worker=True, on_error="skip")])
    with pytest.raises(PipelineError, match=expected) as raised:
        list(pipeline)
    assert isinstance(raised.value.__cause__, TypeError)
    assert "in stage 'Locked', worker" in raised.value.__notes__[0]


@pytest.mark.parametrize("op", [abs, str, lambda item: item, Map(abs), Map(lambda item: item, field=0), [].append])
def test_functions_are_refused_since_what_they_use_is_not_copied(op):
    with pytest.raises(
        PipelineError, match=r"the objects that a function uses are not copied with the function.*functools.partial\(function, tokenizer\)"
    ):
        Pipeline([range(3), Stage(op, per_worker=True)])


def called(component, item):
    return component(item)


@pytest.mark.parametrize("wrap", [lambda c: partial(called, c), Map, lambda c: Map(partial(called, c)), lambda c: c.__call__])
def test_what_a_function_is_given_is_copied(wrap):
    component = NotThreadSafe()
    assert list(Pipeline([range(8), Stage(wrap(component), num_workers=WORKERS, per_worker=True)])) == list(range(1, 9))
    assert component.calls == 0


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([Stage(range(3), per_worker=True)], "range is a source.*per_worker=True is only for maps"),
        ([range(3), Stage(Batch(2), per_worker=True)], "Batch is a stream.*per_worker=True is only for maps"),
        ([Stage(ImageFileReader("x", 2), per_worker=True)], "ImageFileReader is a source, whose workers share one reader"),
        ([range(3), Stage(Repeat(times=2), per_worker=True)], "Repeat uses the settings of the stages before it"),
    ],
)
def test_it_is_for_maps(stages, message):
    with pytest.raises(PipelineError, match=message):
        Pipeline(stages)


def test_a_composite_without_maps_does_not_take_it():
    class Batches:
        def stages(self):
            return [Batch(2)]

    with pytest.raises(PipelineError, match="Batches: per_worker=True is only for maps, but this component contains no map"):
        Pipeline([range(3), Stage(Batches(), per_worker=True)])


def test_yaml_has_it_beside_the_component():
    stage = Registry().build_stage({"Augmentations": ["FlipX"], "num_workers": 2, "per_worker": True}, Location())
    assert stage.per_worker and stage.settings == ["num_workers", "per_worker"]
    assert copy.deepcopy(stage) == stage
