"""The table "What happens when", row by row."""

import functools
import gc
import itertools
import json
import threading
import time
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from waiting import wait_until

from highway import DROP, EndOfStream, Passport, Pipeline, PipelineError, Stage, Stamped, check_cancelled
from highway.engine.channel import Channel
from highway.engine.context import at_end
from highway.engine.running import WARN_EVERY
from highway.engine.stats import StageStats
from highway.errors import ConfigError
from highway.modules import Take


class Collect:
    """A sink that keeps what it gets."""

    def __init__(self):
        self.got = []

    def consume(self, items):
        for item in items:
            self.got.append((item, items.passport))


class Forever:
    """A source that never ends, and notes when it was unwound."""

    def __init__(self):
        self.opened, self.closed = threading.Event(), threading.Event()

    def __iter__(self):
        self.opened.set()
        try:
            number = 0
            while True:
                yield number
                number += 1
        finally:
            self.closed.set()


def block_until_cancelled(item):
    while True:
        check_cancelled()
        time.sleep(0.001)  # work, between two looks at whether to stop


def fail_at(number, error):
    def fail(item):
        if item == number:
            raise error
        return item

    return fail


# --- shapes ---


def test_an_iterable_and_a_builtin_are_a_pipeline():
    assert list(Pipeline([range(10), str])) == [str(n) for n in range(10)]


def test_a_generator_function_is_a_source():
    def numbers():
        yield from range(3)

    assert list(Pipeline([numbers])) == [0, 1, 2]


def test_a_function_is_a_source_that_is_called_until_it_raises_end_of_stream():
    numbers = iter(range(3))

    def read():
        try:
            return next(numbers)
        except StopIteration:
            raise EndOfStream("no more") from None

    assert list(Pipeline([read])) == [0, 1, 2]


def test_a_composite_is_replaced_by_its_stages():
    class Squares:
        def stages(self):
            return [range(4), Stage(lambda n: n * n, name="square")]

    pipeline = Pipeline([Squares(), str])
    assert list(pipeline) == ["0", "1", "4", "9"]
    assert [stage.name for stage in pipeline.stats().stages] == ["Squares.range", "Squares.square", "str"]


def test_a_stage_around_a_composite_sets_the_workers_of_its_maps():
    class Squares:
        def stages(self):
            return [range(4), lambda n: n * n]

    assert [s.num_workers for s in Pipeline([Stage(Squares(), num_workers=3)]).stats().stages] == [1, 3]


def test_a_pipeline_is_a_source_of_another_and_stops_with_it():
    source = Forever()
    with Pipeline([Pipeline([source, lambda n: n + 1])]) as outer:
        assert [outer.dequeue() for _ in range(3)] == [1, 2, 3]
    assert source.closed.wait(30)


class Times:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, item):
        return item * self.factor


class Source:
    def stages(self):
        return [Stage(Forever(), name="plan"), str]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([], "at least one stage"),
        ([Take(1)], "the first stage must be a source .* Take is a stream"),
        ([lambda item: item], "the first stage must be a source .* lambda is a map"),
        ([Times(2)], "the first stage must be a source .* Times is a map"),
        ([range(3), Collect(), str], "Collect is a sink; only the last"),
        ([range(3), range(3)], "range is an iterable, so it is a source; only the first stage can be a source"),
        ([range(3), Source()], "Source.plan is an iterable, so it is a source; only the first stage can be a source"),
        ([range(3), 7], "7 is not a stage"),
        ([Stage(range(3), num_workers=2)], "range is a source, which runs in one thread; num_workers=2 is only for maps"),
        ([range(3), Take], r"Take is a class; pass an instance: Take\(\.\.\.\)"),
    ],
)
def test_stages_that_do_not_fit_are_refused_when_constructed(stages, message):
    with pytest.raises(PipelineError, match=message):
        Pipeline(stages)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_workers": 0}, "num_workers=0; expected at least 1, or None"),
        ({"buffer_size": 0}, "buffer_size=0"),
        ({"max_errors": -1, "on_error": "skip"}, "max_errors=-1; expected at least 0, or None"),
        ({"max_errors": 3}, "max_errors=3 without on_error='skip'"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(TypeError, match=message):
        Stage(str, **settings)


# --- order, passports, randomness ---


def slow_on_even(n):
    time.sleep(0.0005 * (n % 2 == 0))  # work, so that odd numbers would overtake
    return n


@pytest.mark.parametrize("num_workers", [1, 2, 8])
def test_maps_keep_the_order(num_workers):
    assert list(Pipeline([range(200), Stage(slow_on_even, num_workers=num_workers)])) == list(range(200))


def test_unordered_maps_lose_nothing():
    got = list(Pipeline([range(200), Stage(slow_on_even, num_workers=4, ordered=False)]))
    assert sorted(got) == list(range(200))


def test_an_unordered_map_hands_on_a_fast_item_before_a_slow_one():
    slow_may_go = threading.Event()

    def wait_at_zero(n):
        if n == 0:
            slow_may_go.wait(30)
        return n

    with Pipeline([range(2), Stage(wait_at_zero, num_workers=2, ordered=False)]) as pipeline:
        assert pipeline.dequeue(timeout=30) == 1
        slow_may_go.set()
        assert pipeline.dequeue(timeout=30) == 0


def draw(item, rng):
    return rng.integers(2**60)


def test_random_numbers_do_not_depend_on_the_number_of_workers():
    runs = [list(Pipeline([range(50), Stage(draw, num_workers=n)], seed=3)) for n in (1, 2, 8)]
    assert runs[0] == runs[1] == runs[2]
    assert len(set(runs[0])) == 50


def test_random_numbers_differ_between_stages_seeds_epochs_and_items():
    def source():
        for epoch in range(2):
            for index in range(2):
                yield Stamped(0, Passport(epoch, index))

    names_and_seeds = [("a", 0), ("b", 0), ("a", 1)]
    drawn = [n for name, seed in names_and_seeds for n in Pipeline([source, Stage(draw, name=name)], seed=seed)]
    assert len(set(drawn)) == 12


def test_random_numbers_hang_on_the_passport_not_on_the_place_in_the_stream():
    items = [Stamped(0, Passport(1, index)) for index in range(6)]
    assert list(Pipeline([items, draw]))[::-1] == list(Pipeline([items[::-1], draw]))


def test_passports_travel_with_their_items():
    items = [Stamped(n, Passport(epoch=2, index=n, keys=(f"{n}.jpg",))) for n in range(20)]
    sink = Collect()
    Pipeline([items, Stage(lambda n: DROP if n % 2 else n, num_workers=4), sink]).run()
    assert [(item, p.epoch, p.index, p.keys) for item, p in sink.got] == [(n, 2, n, (f"{n}.jpg",)) for n in range(0, 20, 2)]


def test_the_engine_numbers_the_items_of_a_plain_source_and_names_their_origin(monkeypatch):
    sink = Collect()
    monkeypatch.setattr("highway.engine.bodies.time", SimpleNamespace(time=lambda: 1234.5))
    Pipeline([range(3), sink]).run()
    passports = [passport for _, passport in sink.got]
    assert [(p.epoch, p.index) for p in passports] == [(0, 0), (0, 1), (0, 2)]
    assert all(p.times == (1234.5,) and p.origin.host for p in passports)


def test_a_map_may_replace_the_passport():
    sink = Collect()
    Pipeline([range(2), lambda n: Stamped(n, Passport(7, n)), sink]).run()
    assert [(p.epoch, p.index) for _, p in sink.got] == [(7, 0), (7, 1)]
    assert all(p.times and p.origin.host for _, p in sink.got), "who made the item, and when, is kept"


# --- ends ---


def test_the_end_is_raised_again_and_again():
    pipeline = Pipeline([range(1)])
    assert pipeline.dequeue() == 0
    for _ in range(3):
        with pytest.raises(EndOfStream, match="ended"):
            pipeline.dequeue()


def test_end_of_stream_is_an_eof_error():
    with pytest.raises(EOFError):
        Pipeline([()]).dequeue()


def test_a_second_loop_is_refused_rather_than_empty():
    pipeline = Pipeline([range(2)])
    assert list(pipeline) == [0, 1]
    with pytest.raises(EndOfStream, match="epochs="):
        iter(pipeline)


def test_a_loop_that_was_left_can_be_taken_up_again():
    with Pipeline([range(4)]) as pipeline:
        for item in pipeline:
            if item == 1:
                break
        assert list(pipeline) == [2, 3]


def test_a_stage_that_returns_early_unwinds_what_stands_before_it():
    source = Forever()
    assert list(Pipeline([source, str, Take(3)])) == ["0", "1", "2"]
    assert source.closed.is_set()


def test_a_source_blocked_outside_highway_is_unwound_when_a_later_stage_returns_early():
    class Blocked:
        def __iter__(self):
            yield 1
            block_until_cancelled(None)

    assert list(Pipeline([Blocked(), Take(1)])) == [1]


@pytest.mark.parametrize("end", [Take(1), fail_at("1", ValueError("bad"))])
def test_a_stage_that_is_woken_when_a_later_one_ends_knows_that_it_was_cancelled(end, monkeypatch):
    def blocked():
        yield 1
        block_until_cancelled(None)

    def cancel_and_wait(channel):
        cancel_channel(channel)
        if not cancelled:  # the first is the source's
            cancelled.append(channel)
            wait_until(lambda: not any(thread.name == "highway:str:0" for thread in threading.enumerate()))

    cancelled, cancel_channel = [], Channel.cancel
    with Pipeline([blocked, str, end]) as pipeline:
        monkeypatch.setattr(Channel, "cancel", cancel_and_wait)
        if isinstance(end, Take):
            assert list(pipeline) == ["1"]
        else:
            with pytest.raises(ValueError, match="bad"):
                list(pipeline)


def test_dropped_items_are_left_out():
    assert list(Pipeline([range(10), Stage(lambda n: n if n % 3 == 0 else DROP, num_workers=3, drops=True)])) == [0, 3, 6, 9]


def test_dequeue_that_times_out_lets_the_pipeline_go_on():
    release = threading.Event()

    def source():
        release.wait(30)
        yield "late"

    with Pipeline([source]) as pipeline:
        with pytest.raises(TimeoutError, match=r"0\.01 s"):
            pipeline.dequeue(timeout=0.01)
        with pytest.raises(TimeoutError):
            pipeline.dequeue(block=False)
        release.set()
        assert pipeline.dequeue(timeout=30) == "late"


# --- errors ---


@pytest.mark.parametrize("num_workers", [1, 4])
def test_the_consumer_gets_the_original_exception_again_and_again(num_workers):
    error = ZeroDivisionError("three")
    pipeline = Pipeline([range(100), Stage(fail_at(3, error), num_workers=num_workers, name="divide")])
    with pytest.raises(ZeroDivisionError) as first:
        list(pipeline)
    with pytest.raises(ZeroDivisionError) as again:
        pipeline.dequeue()
    assert first.value is error and again.value is error
    with pytest.raises(ZeroDivisionError):
        iter(pipeline)


def test_an_error_names_stage_worker_and_item():
    items = [Stamped(n, Passport(2, n, keys=(f"{n}.jpg",))) for n in range(5)]
    with pytest.raises(ValueError, match="bad") as caught:
        list(Pipeline([items, Stage(fail_at(3, ValueError("bad")), num_workers=4, name="decode")]))
    (note,) = caught.value.__notes__
    assert "in stage 'decode', worker " in note and " of 4, at epoch 2, item 3, keys 3.jpg" in note
    assert caught.value.__context__ is None


def test_a_source_error_is_not_an_end_of_stream():
    def source():
        yield 1
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        list(Pipeline([source]))


@pytest.mark.parametrize("error", [EndOfStream("inner"), StopIteration("inner")])
def test_an_error_that_looks_like_an_end_is_not_taken_for_one(error):
    with pytest.raises(RuntimeError, match=f"raised {type(error).__name__}: inner; to end a stream, return"):
        list(Pipeline([range(5), fail_at(2, error)]))


def test_an_error_in_a_sink_is_raised_by_run():
    class Failing:
        def consume(self, items):
            next(items)
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        Pipeline([range(100), Failing()]).run()


def test_an_error_unwinds_all_stages():
    source = Forever()
    with pytest.raises(ValueError, match="bad"):
        list(Pipeline([source, str, fail_at("5", ValueError("bad")), str]))
    assert source.closed.is_set()


def test_a_map_that_returns_none_is_told_about_drop():
    with pytest.raises(TypeError, match=r"forget returned None; .* return DROP"):
        list(Pipeline([range(3), Stage(lambda n: None, name="forget")]))


def test_skipped_errors_are_counted_and_warned_about(caplog):
    pipeline = Pipeline([range(10), Stage(fail_at(3, ValueError("bad")), on_error="skip", num_workers=2, name="decode")])
    assert list(pipeline) == [n for n in range(10) if n != 3]
    assert pipeline.stats().stages[1].errors == 1
    assert "decode skipped an item" in caplog.text and "ValueError: bad" in caplog.text and "item 3" in caplog.text


def test_warnings_are_limited(caplog, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("highway.engine.running.time", SimpleNamespace(monotonic=lambda: clock.now))

    def fail(item):
        clock.now = WARN_EVERY if item == 997 else clock.now
        raise ValueError("bad")

    pipeline = Pipeline([range(1000), Stage(fail, on_error="skip", name="read")])
    assert list(pipeline) == []
    assert pipeline.stats().stages[1].errors == 1000
    assert [" ".join(record.getMessage().split()[:4]) for record in caplog.records] == ["read skipped an item", "read skipped 997 items,"]


def test_the_error_budget_ends_the_run():
    def fail(item):
        raise ValueError(f"bad {item}")

    with pytest.raises(ValueError, match="bad 3") as caught:
        list(Pipeline([range(10), Stage(fail, on_error="skip", max_errors=3)]))
    assert any("max_errors=3 is exceeded: this is error 4" in note for note in caught.value.__notes__)


def test_cancelled_raised_by_a_stage_is_an_error():
    from highway import Cancelled

    with pytest.raises(RuntimeError, match="raised Cancelled"):
        list(Pipeline([range(3), fail_at(1, Cancelled())]))


# --- stop ---


def test_stop_unwinds_and_dequeue_says_so():
    source = Forever()
    pipeline = Pipeline([source, str])
    assert pipeline.dequeue() == "0"
    pipeline.stop()
    assert source.closed.is_set()
    with pytest.raises(EndOfStream, match="stopped"):
        pipeline.dequeue()


def test_stop_twice_and_before_the_start_is_fine():
    source = Forever()
    pipeline = Pipeline([source])
    pipeline.stop()
    pipeline.stop()
    with pytest.raises(EndOfStream, match="stopped"):
        pipeline.dequeue()
    assert not source.opened.is_set()


@pytest.mark.parametrize("items", [range(1), range(100)])
def test_a_loop_over_a_stopped_pipeline_is_an_error(items):
    pipeline = Pipeline([items])
    pipeline.stop()
    for _ in range(2):
        with pytest.raises(EndOfStream, match="stopped"):
            iter(pipeline)
        with pytest.raises(EndOfStream, match="stopped"):
            pipeline.dequeue()
    with Pipeline([items]) as pipeline:
        pipeline.dequeue()
    with pytest.raises(EndOfStream, match="stopped"):
        iter(pipeline)


def test_a_pipeline_that_has_ended_says_that_seeds_must_change():
    pipeline = Pipeline([range(1)])
    assert list(pipeline) == [0]
    with pytest.raises(EndOfStream, match=r"has ended: .* build a new pipeline for each pass\. Give each pipeline other seeds"):
        iter(pipeline)


def numbered():
    yield from range(3)


@pytest.mark.parametrize("source", [numbered, lambda: numbered(), lambda: iter([0, 1, 2]), functools.partial(map, int, "012")])
def test_a_function_that_returns_an_iterator_is_that_iterator(source):
    assert list(Pipeline([source])) == [0, 1, 2]


def test_a_generator_function_is_no_map():
    def twice(n):
        yield n
        yield n

    with pytest.raises(PipelineError, match=r"^twice is a generator function; .* define  stream\(self, items\)"):
        Pipeline([range(3), twice])


def test_stop_after_the_end_keeps_the_end():
    pipeline = Pipeline([range(1)])
    assert list(pipeline) == [0]
    pipeline.stop()
    with pytest.raises(EndOfStream, match="has ended"):
        pipeline.dequeue()


def test_stop_from_another_thread_wakes_a_blocked_dequeue():
    waiting = threading.Event()

    def source():
        waiting.set()
        block_until_cancelled(None)
        yield

    pipeline = Pipeline([source])
    stopper = threading.Thread(target=lambda: waiting.wait(30) and pipeline.stop())
    stopper.start()
    with pytest.raises(EndOfStream, match="stopped"):
        pipeline.dequeue()
    stopper.join()


def test_stop_from_a_stage_of_the_pipeline_itself():
    pipeline = Pipeline([Forever(), lambda n: pipeline.stop() or n])
    with pytest.raises(EndOfStream):
        for _ in range(100):
            pipeline.dequeue()


def test_leaving_the_with_block_stops():
    source = Forever()
    with Pipeline([source]) as pipeline:
        pipeline.dequeue()
    assert source.closed.is_set()


def test_a_stuck_stage_is_named_with_the_line_where_it_is(caplog, monkeypatch):
    monkeypatch.setattr("highway.engine.threads.STOP_TIMEOUT", 0.05)
    entered, release = threading.Event(), threading.Event()

    def stuck_here(item):
        entered.set()
        release.wait(30)
        return item

    pipeline = Pipeline([range(1), Stage(stuck_here, name="slow")])
    with pytest.raises(TimeoutError):
        pipeline.dequeue(timeout=0.01)
    entered.wait(30)
    pipeline.stop()
    release.set()
    assert "highway:slow:0 does not stop" in caplog.text and "check_cancelled" in caplog.text


def test_a_collected_pipeline_leaves_no_thread():
    source = Forever()
    pipeline = Pipeline([source, str])
    pipeline.dequeue()
    del pipeline
    assert source.closed.wait(30)


def test_a_pipeline_in_a_reference_cycle_is_collected():
    source = Forever()
    pipeline = Pipeline([source, str])
    pipeline.dequeue()
    pipeline.itself = pipeline
    reference = weakref.ref(pipeline)
    del pipeline
    gc.collect()
    assert reference() is None
    assert source.closed.wait(30)


def test_a_pipeline_may_be_collected_by_one_of_its_own_workers():
    source, collect = Forever(), threading.Event()

    def collecting(item):
        if item:
            collect.wait(30)
            gc.collect()
        return item

    pipeline = Pipeline([source, collecting])
    pipeline.dequeue()
    pipeline.itself = pipeline
    gc.disable()
    try:
        del pipeline
        collect.set()
        assert source.closed.wait(30)
    finally:
        gc.enable()


def test_nothing_starts_before_the_first_item_is_asked_for():
    source = Forever()
    pipeline = Pipeline([source])
    pipeline.stats()
    assert not source.opened.is_set()


# --- use against the shape ---


def test_run_needs_a_sink_and_dequeue_none():
    with pytest.raises(PipelineError, match="str is not a sink"):
        Pipeline([range(3), str]).run()
    with pytest.raises(PipelineError, match=r"Collect is a sink.*call run\(\)"):
        Pipeline([range(3), Collect()]).dequeue()


# --- numbers ---


def test_stats_count_items_bytes_and_times():
    batch = np.zeros((4, 2, 2, 3), np.uint8)
    pipeline = Pipeline([[(batch, np.zeros(4, np.int32))] * 5, Stage(lambda item: item, num_workers=2, name="same")])
    assert len(list(pipeline)) == 5
    stats = pipeline.stats()
    assert [(s.name, s.num_workers, s.items, s.bytes) for s in stats.stages] == [("list", 1, 5, 320), ("same", 2, 5, 320)]
    assert stats.seconds > 0 and stats.items == 5 and stats.rate == 5 / stats.seconds
    assert all(min(s.busy, s.starved, s.blocked) >= 0 for s in stats.stages)
    seconds = pipeline.stats().seconds
    assert seconds == stats.seconds, "the clock of an ended pipeline stands still"


def test_stats_say_what_may_wait_at_most():
    pipeline = Pipeline([[np.zeros(1000, np.uint8)] * 5, Stage(lambda item: item, num_workers=2, buffer_size=6, name="map")])
    list(pipeline)
    source, map_ = pipeline.stats().stages
    assert (map_.capacity, map_.memory) == (8, 8000.0)
    assert pipeline.stats().memory == source.memory + 8000.0
    link = StageStats("ZMQSink", 1, counters={"budget_mb": 64.0})
    assert link.memory == 64e6


@pytest.fixture
def clock(monkeypatch):
    """That of statistics: ``now`` is a time of each thread, and passes only where a test says so."""
    times = threading.local()
    monkeypatch.setattr("highway.engine.stats.time", SimpleNamespace(perf_counter=lambda: getattr(times, "now", 0.0)))
    return times


def test_the_bottleneck_is_the_stage_that_works_while_the_others_wait(clock, monkeypatch):
    monkeypatch.setattr("highway.engine.threads.cpu_seconds", lambda: 0.0)
    monkeypatch.setattr("highway.engine.threads.available_cores", lambda: 2)
    monkeypatch.setattr("highway.engine.threads.machine_load", lambda cores: 0.0)

    def works(n):
        clock.now = n + 1.0
        return n

    def waits(n, context):
        with context.starved():
            clock.now = n + 1.0
        return n

    pipeline = Pipeline([range(40), waits, Stage(works, name="slow"), waits])
    list(pipeline)
    assert pipeline.stats().bottleneck == (
        "slow is the bottleneck: it was busy 100% of the time; give it more workers (num_workers=2): 2.0 of 2 cores are free."
    )


def test_a_source_that_waits_is_starved_and_a_sink_that_waits_is_blocked_not_busy(clock):
    class Waiting:
        def __iter__(self, context):
            with context.starved():
                clock.now = 5.0
            yield 1

        def consume(self, items):
            for _ in items:
                with items.context.blocked():
                    clock.now = 7.0

    class Source(Waiting):
        consume = None

    pipeline = Pipeline([Source(), Waiting()])
    pipeline.run()
    source, sink = pipeline.stats().stages
    assert (source.busy, source.starved, source.blocked) == (0.0, 5.0, 0.0)
    assert (sink.busy, sink.starved, sink.blocked) == (0.0, 0.0, 7.0)


def test_a_slow_consumer_is_named_as_the_bottleneck():
    with Pipeline([Forever(), str]) as pipeline:
        wait_until(lambda: pipeline.dequeue() and pipeline.stats().bottleneck.startswith("The consumer is the bottleneck"))


@pytest.mark.parametrize("workers", [1, 2])
def test_memory_is_bounded_by_the_buffers(workers):
    alive = weakref.WeakSet()

    class Thing:
        pass

    def source():
        while True:
            thing = Thing()
            alive.add(thing)
            yield thing

    most = 0
    with Pipeline([source, Stage(lambda t: t, buffer_size=3, num_workers=workers)]) as pipeline:
        for _ in range(200):
            pipeline.dequeue()
            most = max(most, len(alive))
    assert most <= 2 + 1 + 3 + workers + workers + 3  # queues, items in work, and one in each hand


class Counting:
    """A map that keeps something for each worker until the worker ends."""

    def __init__(self):
        self.ended = []

    def __call__(self, item, context):
        if item < 4:
            at_end(lambda: self.ended.append(threading.get_ident()))
        return item, context.seed


@pytest.mark.parametrize("how", ["end", "stop", "error"])
def test_a_map_can_give_back_what_it_keeps_when_its_worker_ends(how):
    counting, seen = Counting(), []

    def last(item):
        seen.append(item)
        if how == "error" and len(seen) == 20:
            raise ValueError("enough")
        return item

    with Pipeline([range(4) if how == "end" else itertools.count(), Stage(counting, num_workers=1), last], seed=9) as pipeline:
        with pytest.raises((ValueError, EndOfStream)):
            while True:
                pipeline.dequeue()
                if how == "stop" and len(seen) >= 20:
                    pipeline.stop()
        assert len(counting.ended) == 4
        assert set(counting.ended) != {threading.get_ident()}
    assert seen[:2] == [(0, 9), (1, 9)]


def test_names_are_unique_also_if_a_name_looks_numbered():
    named = [Stage(lambda item, rng: rng.integers(1000), name=name) for name in ("a", "a", "a-2", "a", "a-2")]
    with Pipeline([[0], *named]) as pipeline:
        names = [stage.name for stage in pipeline.stages]
    assert names == ["list", "a", "a-3", "a-2", "a-4", "a-2-2"]


def test_maps_of_such_names_draw_different_numbers():
    def draw(drawn, rng):
        return [*drawn, int(rng.integers(10**9))]

    with Pipeline([[[]], *(Stage(draw, name=name) for name in ("a", "a", "a-2"))]) as pipeline:
        assert len(set(pipeline.dequeue())) == 3


@pytest.mark.parametrize("seed", [1.5, "7", [1]])
def test_a_seed_that_is_no_integer_is_refused_at_once(seed):
    with pytest.raises(ConfigError, match=r"Pipeline: seed=.*; expected an integer, or None"):
        Pipeline([range(3)], seed=seed)


def test_a_seed_may_be_an_integer_of_numpy():
    with Pipeline([range(3)], seed=np.int64(7)) as pipeline:
        json.dumps(pipeline.state_dict())


@pytest.mark.slow
def test_a_timeout_is_for_the_whole_call_however_many_items_are_skipped():
    def build():
        return Pipeline([list(range(40)), lambda number: (never.wait(0.05), number)[1]])

    never = threading.Event()

    with build() as pipeline:
        for _ in range(30):
            pipeline.dequeue()
        state = pipeline.state_dict()
    with build() as pipeline:
        pipeline.load_state_dict(state)
        with pytest.raises(TimeoutError, match=r"no item within 0\.2 s; the pipeline continues"):
            pipeline.dequeue(timeout=0.2)  # 30 items of 0.05 s are made again, and dropped
        assert pipeline.dequeue() == 30
