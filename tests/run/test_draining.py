"""Draining a pipeline: its source ends before the next item, and what it has yielded comes out."""

import itertools
import threading
import time
import uuid

import numpy as np
import pytest
from waiting import wait_until

from highway import DROP, EndOfStream, Pipeline, Stage, Traits
from highway.data import photos
from highway.engine.cancel import check_cancelled, wait
from highway.modules import Cache, ImageFileReader, ZMQSink, ZMQSource
from highway.wire.receiver import LinkReceiver
from highway.wire.sender import LinkSender
from highway.wire.url import parse


class Gate:
    """A map that lets nothing pass before it is opened."""

    def __init__(self):
        self.opened, self.reached = threading.Event(), threading.Event()

    def __call__(self, item):
        self.reached.set()
        assert self.opened.wait(30)
        return item


class Waiting:
    """Yields some items, then waits for ever."""

    def __init__(self, count, finishes=False):
        self.count, self.does_finish, self.waits, self.closed = count, finishes, threading.Event(), False

    def __highway__(self):
        return Traits(finishes=self.does_finish)

    def __iter__(self):
        try:
            yield from range(self.count)
            self.waits.set()
            while True:
                wait(30)
        finally:
            self.closed = True


def begin(pipeline):
    """Start a pipeline out of which nothing comes yet."""
    with pytest.raises(TimeoutError):
        pipeline.dequeue(block=False)


@pytest.mark.parametrize("wrap", [iter, lambda numbers: (n for n in numbers), lambda numbers: lambda: next(numbers)])
def test_what_the_source_has_yielded_is_delivered_and_no_more_is_taken(wrap):
    numbers, gate = itertools.count(), Gate()
    source = wrap(numbers)
    with Pipeline([source, Stage(gate, num_workers=3)]) as pipeline:
        begin(pipeline)
        assert gate.reached.wait(30)
        pipeline.drain()
        gate.opened.set()
        items = list(pipeline)
    assert items == list(range(next(numbers)))


def test_a_source_that_waits_is_interrupted_and_closed():
    source = Waiting(3)
    with Pipeline([source, str]) as pipeline:
        assert pipeline.dequeue() == "0"
        assert source.waits.wait(30)
        pipeline.drain()
        assert list(pipeline) == ["1", "2"]
        with pytest.raises(EndOfStream, match="has ended"):
            pipeline.dequeue()
    assert source.closed


def test_a_pipeline_that_is_drained_before_it_starts_has_no_items():
    with Pipeline([range(3)]) as pipeline:
        pipeline.drain()
        assert list(pipeline) == []


def test_an_error_of_a_later_stage_is_still_raised():
    gate = Gate()

    def fail(n):
        raise ValueError("no")

    with Pipeline([itertools.count(), gate, fail]) as pipeline:
        threading.Timer(0, lambda: (gate.reached.wait(30), pipeline.drain(), gate.opened.set())).start()
        with pytest.raises(ValueError, match="no"):
            list(pipeline)


class Finishing:
    """A source that has more at hand than it has yielded."""

    def __highway__(self):
        return Traits(finishes=True)

    def __iter__(self, context):
        for n in itertools.count():
            yield n
            if context.finish():
                yield "last"
                return


def test_a_source_may_finish_what_it_has_begun():
    gate = Gate()
    with Pipeline([Finishing(), gate]) as pipeline:
        begin(pipeline)
        assert gate.reached.wait(30)
        pipeline.drain()
        gate.opened.set()
        items = list(pipeline)
    assert items == [*range(len(items) - 1), "last"]


class Lingering:
    """A source that does not come to an end when it is drained."""

    def __init__(self):
        self.lingers = threading.Event()

    def __highway__(self):
        return Traits(finishes=True)

    def __iter__(self, context):
        yield 0
        while not context.finish():
            time.sleep(0.001)
        self.lingers.set()
        while True:
            check_cancelled()


def test_a_stop_ends_a_source_that_still_finishes():
    source = Lingering()
    with Pipeline([source]) as pipeline:
        assert pipeline.dequeue() == 0
        pipeline.drain()
        assert source.lingers.wait(30)
        pipeline.stop()
        with pytest.raises(EndOfStream):
            pipeline.dequeue()


def test_a_pipeline_that_is_the_source_of_another_is_drained_with_it():
    inner, gate = Waiting(20), Gate()
    with Pipeline([Pipeline([Stage(inner, buffer_size=30), gate]), str]) as pipeline:
        begin(pipeline)
        assert inner.waits.wait(30)
        pipeline.drain()
        gate.opened.set()
        assert list(pipeline) == [str(n) for n in range(20)]


def test_a_reader_ends_with_a_whole_batch():
    with Pipeline([ImageFileReader(f"{photos()}/train", 4, (8, 8))]) as pipeline:
        first = pipeline.dequeue()
        pipeline.drain()
        batches = [first, *pipeline]
    assert {len(labels) for _, labels in batches} == {4}


def test_a_cache_of_an_epoch_that_was_cut_short_is_none(tmp_path):
    gate = Gate()
    source = [(np.array([[n]]),) for n in range(100)]
    with Pipeline([source, gate, Cache(str(tmp_path / "cache"), epochs=1, key="a", batched=True)]) as pipeline:
        begin(pipeline)
        assert gate.reached.wait(30)
        pipeline.drain()
        gate.opened.set()
        count = len(list(pipeline))
    assert 0 < count < 100
    with Pipeline([source, Cache(str(tmp_path / "cache"), epochs=1, key="a", batched=True)]) as pipeline:
        assert len(list(pipeline)) == 100


def test_a_cache_that_serves_for_ever_ends():
    with Pipeline([[(np.array([[n]]),) for n in range(3)], Cache(key="a", batched=True)]) as pipeline:
        for _ in range(30):
            pipeline.dequeue()
        pipeline.drain()
        assert len(list(pipeline)) < 30


@pytest.mark.parametrize("transport", ["ipc", "shm"])
def test_what_has_arrived_at_a_link_is_yielded(transport, tmp_path):
    location = f"{tmp_path}/link" if transport == "ipc" else f"draining-{uuid.uuid4().hex}"
    source, gate = ZMQSource(f"zpull+{transport}://{location}"), Gate()
    with LinkSender(parse(f"zpush+{transport}://{location}", "send")) as sender, Pipeline([source, Stage(gate, buffer_size=1)]) as pipeline:
        begin(pipeline)
        wait_until(lambda: pipeline.stats().stages[0].counters.get("bound"))
        for n in range(20):
            sender.send((np.full(3, n, np.uint8),), timeout=30)
        assert gate.reached.wait(30)
        pipeline.drain()
        gate.opened.set()
        assert [int(item[0][0]) for item in pipeline] == list(range(20))


def test_senders_over_shared_memory_turn_to_other_receivers():
    location = f"turning-{uuid.uuid4().hex}"
    with LinkSender(parse(f"zrpush+shm://{location}", "send")) as sender:
        link = parse(f"zrpull+shm://{location}", "receive")
        with LinkReceiver(link, {}) as first, LinkReceiver(link, {}) as second:
            got = {first: [], second: []}
            ends = [end.transport_end for end in (first, second, sender)]
            wait_until(lambda: ([end.look() for end in ends], ends[-1].peers().live == 2)[-1])
            for n in range(40):
                if n == 20:
                    first.leave()
                sender.send((np.full(1, n, np.uint8),), timeout=30)
            for receiver, items in got.items():
                with pytest.raises(TimeoutError):
                    while True:
                        items.append(int(receiver.recv(0).item[0][0]))
    assert sorted(got[first] + got[second]) == list(range(40))
    assert max(got[first]) < 20 <= len(got[second])
    assert sender.transport_end.lost == 0


def test_what_is_dropped_on_the_way_does_not_hold_up_a_drain():
    gate = Gate()
    with Pipeline([itertools.count(), gate, lambda n: DROP]) as pipeline:
        begin(pipeline)
        assert gate.reached.wait(30)
        pipeline.drain()
        gate.opened.set()
        assert list(pipeline) == []


def test_a_sink_over_a_link_tells_its_receivers(tmp_path):
    source = Waiting(5)
    arrived = []
    with (
        Pipeline([ZMQSource(f"zpull+ipc://{tmp_path}/link"), lambda item: arrived.append(int(item[0][0])) or item]) as receiver,
        Pipeline([source, lambda n: (np.full(1, n, np.uint8),), ZMQSink(f"zpush+ipc://{tmp_path}/link")]) as sender,
    ):
        sender.start()
        assert source.waits.wait(30)
        sender.drain()
        assert len(list(receiver)) == 5
        sender.run()
    assert arrived == list(range(5))


def test_a_link_takes_nothing_before_the_sink_can_hand_it_on(tmp_path):
    asks, arrived = threading.Event(), []

    class Late:
        def consume(self, items):
            assert asks.wait(30)
            arrived.extend(int(item[0][0]) for item in items)

    source = ZMQSource(f"zpull+ipc://{tmp_path}/link")
    with (
        Pipeline([source, Late()]) as pipeline,
        Pipeline([range(3), lambda n: (np.full(1, n, np.uint8),), ZMQSink(f"zpush+ipc://{tmp_path}/link")]) as sender,
    ):
        pipeline.start()
        sender.start()
        assert pipeline.stats().stages[0].counters == {}
        asks.set()
        pipeline.run()
        sender.run()
    assert arrived == [0, 1, 2]


@pytest.mark.parametrize("source", ["a link", "a list"])
def test_a_sink_that_waits_for_receivers_is_drained_at_once(tmp_path, source):
    items = ZMQSource(f"zpull+ipc://{tmp_path}/in") if source == "a link" else [(np.zeros(1, np.int32),)] * 1000
    pipeline = Pipeline([items, ZMQSink(f"zrpush+ipc://{tmp_path}/out?receivers=1&linger_ms=1000000")])
    thread = threading.Thread(target=pipeline.run)
    thread.start()
    wait_until(lambda: pipeline.stats().stages[-1].counters.get("bound"))
    pipeline.drain()
    thread.join(30)
    was_drained = not thread.is_alive()
    pipeline.stop()
    thread.join()
    assert was_drained
    assert pipeline.stats().items == 0


def test_a_link_that_waits_for_the_sink_can_be_drained_and_stopped(tmp_path):
    class Never:
        def consume(self, items):
            wait(100)

    def names():
        return [thread.name for thread in threading.enumerate()]

    for end in ("drain", "stop"):
        with Pipeline([ZMQSource(f"zpull+ipc://{tmp_path}/link"), Never()]) as pipeline:
            pipeline.start()
            assert "highway:ZMQSource:0" in names()
            getattr(pipeline, end)()
            wait_until(lambda: "highway:ZMQSource:0" not in names())
