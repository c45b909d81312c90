"""``Stage(timeout=, attempts=)``: an item that takes too long is tried again on another thread, and is an error after its attempts."""

import copy
import itertools
import logging
import math
import threading
import time
from collections import Counter

import numpy as np
import pytest
from waiting import wait_until

from highway import DROP, ConfigError, Passport, Pipeline, PipelineError, Stage, Stamped
from highway.engine.resume import MARK_WITHIN
from highway.engine.stage import Origin, expand
from highway.engine.threads import Run
from highway.modules import Batch, DecodeImage, Reader, Shuffle
from highway.parameters.location import Location
from highway.topology.registry import Registry

SOON = 0.2  # seconds: an item that takes longer for another reason is only tried once more than it has to be
A_SECOND = 1.0  # if the place where it hangs matters: it must have got there
OFTEN = 1000  # attempts


class Hang:
    """Hangs with some items, in the first calls for each, until it is released. Returns the item and a random number."""

    def __init__(self, *items, calls=1):
        self.items, self.calls, self.seen, self.released = items, calls, Counter(), threading.Event()
        self.threads = []  # that hang

    def __call__(self, item, rng):
        self.seen[item] += 1
        number = int(rng.integers(1 << 30))
        if item in self.items and self.seen[item] <= self.calls:
            self.threads.append(threading.current_thread())
            self.released.wait(60)
        return item, number, int(rng.integers(1 << 30))

    def __deepcopy__(self, memo):
        return self

    def fingerprint(self):
        return "the same results, whether it hangs or not"


@pytest.fixture
def hang():
    """Make a map that hangs, and release it at the end."""
    made = []

    def make(*items, **options):
        made.append(Hang(*items, **options))
        return made[-1]

    yield make
    for one in made:
        one.released.set()
        for thread in one.threads:
            thread.join(60)


def expected(items, seed=3):
    return list(Pipeline([items, Stage(Hang(), name="hang")], seed=seed))


@pytest.mark.parametrize("num_workers", [1, 4])
@pytest.mark.parametrize("ordered", [True, False])
def test_an_item_that_hangs_is_tried_again_with_the_same_random_numbers(hang, num_workers, ordered):
    stage = Stage(hang(3, 4), num_workers, ordered, name="hang", timeout=SOON, attempts=OFTEN)
    pipeline = Pipeline([range(40), stage], seed=3)
    found = list(pipeline)
    assert (found if ordered else sorted(found)) == expected(range(40))
    assert pipeline.stats().stages[1].counters["abandoned_threads"] >= 2
    assert pipeline.stats().stages[1].errors == 0


def test_nothing_changes_if_no_item_hangs(hang):
    pipeline = Pipeline([range(40), Stage(hang(), 3, name="hang", timeout=600)], seed=3)
    assert list(pipeline) == expected(range(40))
    assert pipeline.stats().stages[1].counters == {}


def test_a_warning_names_the_item_and_where_it_hangs(hang, caplog):
    source = [Stamped(number, Passport(0, number, keys=(f"{number}.jpg",))) for number in range(5)]
    list(Pipeline([source, Stage(hang(3), name="hang", timeout=A_SECOND, attempts=OFTEN)]))
    text = next(message for message in caplog.messages if "3.jpg" in message)
    begin = "in stage 'hang', at epoch 0, item 3, keys 3.jpg: the item has taken longer than timeout=1 s; attempt 2 of 1000 begins on "
    assert text.startswith(f"{begin}another thread. The abandoned thread is in wait, line ")
    *_, last = text.split(", called from ")
    assert last.startswith("__call__, line ") and last.endswith("test_time_limit.py")  # without the calls of the engine


@pytest.mark.slow
def test_after_its_attempts_the_item_is_an_error_that_names_it(hang):
    source = [Stamped("a", Passport(0, 7, keys=("a.jpg",)))]
    with pytest.raises(TimeoutError) as caught:
        list(Pipeline([source, Stage(hang("a", calls=2), name="hang", timeout=A_SECOND, attempts=2)]))
    assert str(caught.value).startswith("hang: the item has taken longer than timeout=1 s in each of 2 attempts; raise timeout=")
    notes = "\n".join(caught.value.__notes__)
    assert "in stage 'hang', at epoch 0, item 7, keys a.jpg" in notes
    assert "test_time_limit.py" in notes


def test_an_item_is_skipped_after_its_attempts_and_counted(hang, caplog):
    stage = Stage(hang("a", calls=3), name="hang", timeout=SOON, attempts=3, on_error="skip")
    pipeline = Pipeline([["a"], stage])
    assert list(pipeline) == []
    stats = pipeline.stats().stages[1]
    assert (stats.errors, stats.counters) == (1, {"abandoned_threads": 3})
    assert "TimeoutError: hang: the item has taken longer than timeout=0.2 s in each of 3 attempts" in caplog.messages[-1]


def test_max_errors_counts_such_items(hang):
    stage = Stage(hang("a", "b", calls=OFTEN), timeout=SOON, on_error="skip", max_errors=1)
    with pytest.raises(TimeoutError) as caught:
        list(Pipeline([["a", "b"], stage]))
    assert "max_errors=1 is exceeded: this is error 2" in caught.value.__notes__


def test_an_error_of_the_map_is_not_tried_again():
    calls = []

    def fails(item):
        calls.append(item)
        raise KeyError(item)

    with pytest.raises(KeyError) as caught:
        list(Pipeline([["a"], Stage(fails, timeout=600, attempts=5)]))
    assert calls == ["a"]
    assert "in stage 'fails', at epoch 0, item 0" in caught.value.__notes__[0]


def test_what_an_abandoned_thread_returns_is_never_used():
    released, threads, arrays = threading.Event(), [], []

    def late(item):
        threads.append(threading.current_thread())
        arrays.append(array := np.zeros(3))
        if len(threads) == 1:
            released.wait(60)
            array[:] = 1
        else:
            released.set()
            threads[0].join(60)
        return array

    (found,) = Pipeline([["a"], Stage(late, timeout=2 * SOON, attempts=OFTEN)])
    assert not threads[0].is_alive()
    assert arrays[0].tolist() == [1, 1, 1]
    assert found is not arrays[0] and found.tolist() == [0, 0, 0]


def test_each_attempt_has_its_own_copy_of_an_item_that_the_map_writes_into():
    released, calls = threading.Event(), itertools.count()

    def add_one(array):
        array += 1
        if next(calls) == 0:
            released.wait(60)
        return array

    arrays = [np.zeros(2), np.ones(2)]
    found = list(Pipeline([arrays, Stage(add_one, timeout=SOON, attempts=OFTEN)]))
    released.set()
    np.testing.assert_array_equal(found, [[1, 1], [2, 2]])
    np.testing.assert_array_equal(arrays, [[0, 0], [1, 1]])


def test_an_item_that_cannot_be_copied_is_an_error_that_names_the_cause():
    assert list(Pipeline([[threading.Lock()], Stage(lambda lock: 1, timeout=600)])) == [1]
    with pytest.raises(TypeError, match="cannot pickle") as caught:
        list(Pipeline([[threading.Lock()], Stage(lambda lock: 1, timeout=600, attempts=2)]))
    assert "with attempts above 1, each attempt gets a copy of the item" in caught.value.__notes__[0]


def test_an_abandoned_thread_is_cancelled_and_what_it_reports_does_not_count():
    ended, reported = threading.Event(), []

    class Polls:
        calls = 0

        def __call__(self, item, context):
            self.calls += 1
            if self.calls > 1:
                return item
            try:
                context.wait(600)
            finally:
                context.count(self, "polls")
                try:
                    context.report_error(ValueError("late"))
                except BaseException as error:
                    reported.append(type(error).__name__)
                    raise
                finally:
                    ended.set()

    pipeline = Pipeline([["a"], Stage(Polls(), timeout=SOON, attempts=OFTEN, on_error="skip")])
    assert list(pipeline) == ["a"]
    assert ended.wait(60)
    assert reported == ["Cancelled"]
    stats = pipeline.stats().stages[1]
    assert stats.errors == 0 and "polls" not in stats.counters


def test_a_map_reports_errors_and_counts_as_without_a_timeout():
    class Counts:
        def __call__(self, item, context):
            context.count(self, "seen")
            context.report_error(ValueError(item))
            return item

    pipeline = Pipeline([["a", "b"], Stage(Counts(), timeout=600, on_error="skip")])
    assert list(pipeline) == ["a", "b"]
    stats = pipeline.stats().stages[1]
    assert (stats.errors, stats.counters) == (2, {"seen": 2})


def test_each_thread_has_its_own_copy_of_a_map_that_is_not_thread_safe():
    released, made, tries = threading.Event(), itertools.count(), itertools.count()

    class Own:
        def __init__(self):
            self.threads, self.number = set(), next(made)

        def __deepcopy__(self, memo):
            return Own()

        def __call__(self, item):
            assert self.number > 0, "the map itself is only copied"
            self.threads.add(threading.get_ident())
            assert len(self.threads) == 1
            if item == 2 and next(tries) == 0:
                released.wait(60)
            return item, self.number

    found = list(Pipeline([range(5), Stage(Own(), 1, per_worker=True, timeout=SOON, attempts=OFTEN)]))
    released.set()
    assert [item for item, _ in found] == list(range(5))
    assert found[0][1] < found[2][1]


def test_a_state_saved_while_an_item_is_tried_again_is_exact():
    again, go_on, released = threading.Event(), threading.Event(), threading.Event()
    calls = Counter()

    def hang_at_7(item, rng):
        calls[item] += 1
        if item == 7 and calls[item] == 1:
            released.wait(60)
        if item == 7 and calls[item] == 2:
            again.set()
            go_on.wait(60)
        return item, int(rng.integers(1 << 30))

    def pipeline():
        stage = Stage(hang_at_7, 2, name="hang", timeout=5 * SOON, attempts=OFTEN)
        return Pipeline([Reader(range(20), shuffle=False, epochs=1), stage], seed=5)

    with pipeline() as first:
        items = iter(first)
        begin = [next(items) for _ in range(5)]
        assert again.wait(60)
        state = first.state_dict()
        go_on.set()
        rest = list(items)
    with pipeline() as second:
        second.load_state_dict(state)
        assert list(second) == rest
    released.set()
    assert [item for item, _ in begin + rest] == list(range(20))


class Late(list):
    """Yields item 8 so late that a state is taken after it."""

    def __iter__(self):
        for number, item in enumerate(super().__iter__()):
            if number == 8:
                time.sleep(MARK_WITHIN)
            yield item


@pytest.mark.parametrize("settings", [{}, {"per_worker": True}])
def test_items_that_are_made_again_for_a_state_have_the_limit_too(hang, caplog, settings):
    """Shuffle holds items when the state is taken. A resumed run calls the map for them again."""

    def pipeline(map, **settings):
        return Pipeline([Late(range(20)), Stage(map, name="hang", **settings), Shuffle(5)], seed=5)

    with pipeline(Hang()) as first:
        items = iter(first)
        begin = [next(items) for _ in range(7)]
        state = first.state_dict()
        rest = list(items)
    held = min(set(range(9)) - {item for item, *_ in begin})
    map = hang(held)
    with pipeline(map, timeout=SOON, attempts=OFTEN, **settings) as second:
        second.load_state_dict(state)
        assert list(second) == rest
    assert map.seen[held] >= 2
    assert any(f"at epoch 0, item {held}: the item has taken longer" in message for message in caplog.messages)


@pytest.mark.parametrize("attempts", [1, OFTEN])
def test_a_pipeline_with_threads_that_hang_stops_at_once(hang, caplog, attempts):
    """Otherwise it waits for 5 seconds, and reports which thread does not stop."""
    map = hang("a", calls=OFTEN)
    with Pipeline([["b", "a", *range(100)], Stage(map, name="hang", timeout=SOON, attempts=attempts, on_error="skip")]) as pipeline:
        pipeline.dequeue()
        wait_until(lambda: map.threads and pipeline.stats().stages[1].counters.get("abandoned_threads"))
    wait_until(lambda: all(one in map.threads for one in threading.enumerate() if one.name.startswith("highway:")))
    assert any(thread.is_alive() for thread in map.threads)
    assert not any("does not stop" in message for message in caplog.messages)


@pytest.mark.slow
def test_a_pipeline_does_not_wait_for_an_item_that_hangs_in_its_second_attempt(hang, caplog):
    """With a limit above the 5 seconds after which a pipeline reports a thread that does not stop."""
    map = hang("a", calls=2)
    with Pipeline([["b", "a"], Stage(map, name="hang", timeout=6, attempts=2)]) as pipeline:
        assert pipeline.dequeue()[0] == "b"
        wait_until(lambda: len(map.threads) == 2, 60)
    assert pipeline.stats().stages[1].counters == {"abandoned_threads": 2}
    assert not any("does not stop" in message for message in caplog.messages)


def test_a_consumer_that_waits_is_told_where_the_map_is_and_not_where_the_worker_waits(hang):
    map, reports = hang("a"), []

    class Reports(logging.Handler):
        def emit(self, record):
            if "threading.py" in record.getMessage():  # the map waits for the event
                reports.append(record.getMessage())
                map.released.set()

    run = Run(expand([["a"], Stage(map, name="hang", timeout=600)]), 0, Origin(), stalled_after=0.02)
    logger, handler = logging.getLogger("highway"), Reports(logging.WARNING)
    logger.addHandler(handler)
    try:
        run.start()
        assert run.take(None).item[0] == "a"
    finally:
        logger.removeHandler(handler)
        run.stop()
    assert "worker 1 of 1 has worked for" in reports[0]


def test_drops_pass_and_none_is_an_error_as_without_a_timeout():
    assert list(Pipeline([range(6), Stage(lambda n: DROP if n % 2 else n, drops=True, timeout=600)])) == [0, 2, 4]
    with pytest.raises(TypeError, match="returned None"):
        list(Pipeline([range(6), Stage(lambda n: None, timeout=600)]))


def test_images_that_are_decoded_several_at_once_are_the_same_one_by_one():
    def images(**settings):
        reader = Reader("highway:photos/val", shuffle=False, epochs=1)
        with Pipeline([reader, Stage(DecodeImage(0, shape=(16, 16), flip=0.5), 2, **settings)], seed=1) as pipeline:
            return [image for image, _ in pipeline]

    for one, other in zip(images(), images(timeout=600), strict=True):
        np.testing.assert_array_equal(one, other)


class InBatches:
    def __init__(self, *maps):
        self.maps = maps

    def stages(self):
        return [*self.maps, Batch(2)]


def test_a_composite_passes_it_on_to_its_maps():
    parts = expand([range(4), Stage(InBatches(abs), timeout=2, attempts=3)])
    assert [(stage.timeout, stage.attempts) for stage, _ in parts] == [(None, 1), (2.0, 3), (None, 1)]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"timeout": 0}, "Stage: timeout=0.0; expected seconds above 0, or None"),
        ({"timeout": -1.5}, "Stage: timeout=-1.5; expected seconds above 0, or None"),
        ({"timeout": math.nan}, "Stage: timeout=nan; expected seconds above 0, or None"),
        ({"timeout": "1"}, "Stage: timeout='1'; expected"),
        ({"timeout": 1, "attempts": 0}, "Stage: attempts=0; expected at least 1"),
        ({"attempts": 3}, "abs: attempts=3 without timeout; set timeout="),
    ],
)
def test_wrong_limits_are_refused(settings, told):
    with pytest.raises((ConfigError, PipelineError)) as caught:
        Stage(abs, **settings)
    assert str(caught.value).startswith(told)


class Collect:
    def consume(self, items):
        list(items)


@pytest.mark.parametrize(
    ("stages", "told"),
    [
        (
            [Stage(range(3), timeout=2)],
            "range is a source, which cannot try an item again; timeout=2 is only for maps and readers; remove timeout",
        ),
        ([range(3), Stage(Batch(2), timeout=2)], "Batch is a stream, which cannot try an item again; timeout=2"),
        ([range(3), Stage(Collect(), timeout=2)], "Collect is a sink, which cannot try an item again; timeout=2"),
        ([range(3), Stage(InBatches(), timeout=2)], "InBatches: timeout=2.0 is only for maps, but this component contains no map"),
    ],
)
def test_only_maps_and_readers_have_a_limit(stages, told):
    with pytest.raises(PipelineError) as caught:
        Pipeline(stages)
    assert str(caught.value).startswith(told)


def test_topology_files_have_both_keys():
    stage = Registry().build_stage({"Identity": None, "timeout": 30, "attempts": 3}, Location(("roles", "r", 1)))
    assert (stage.timeout, stage.attempts) == (30.0, 3)
    for settings, told in (
        ({"timeout": 0}, r"roles.r\[1\].timeout: .*seconds above 0"),
        ({"timeout": math.nan}, r"roles.r\[1\].timeout: .*seconds above 0"),
        ({"timeout": 1, "attempts": 0}, r"roles.r\[1\].attempts: .*at least 1"),
        ({"attempts": 2}, r"roles.r\[1\]: .*attempts=2 without timeout"),
    ):
        with pytest.raises(ConfigError, match=told):
            Registry().build_stage({"Identity": None, **settings}, Location(("roles", "r", 1)))


def test_a_stage_with_a_limit_can_be_copied():
    stage = copy.deepcopy(Stage(abs, timeout=2, attempts=3))
    assert (stage.timeout, stage.attempts) == (2.0, 3)
