"""Links between pipelines."""

import contextlib
import itertools
import threading

import numpy as np
import pytest
from waiting import wait_until

from highway import ConfigError, FrameError, LinkError, Origin, Passport, Pipeline, Stage, Stamped
from highway.modules import ZMQSink, ZMQSource
from highway.wire import tally
from highway.wire.connection import Connection
from highway.wire.sender import LinkSender
from highway.wire.transports.zmq.socket import ZMQReceiver
from highway.wire.url import parse

NAMES = itertools.count()
PATIENCE = 60  # seconds that are far more than anything here takes


class Batches:
    """``count`` batches, whose images hold their number; waits for ``gate`` after the first."""

    def __init__(self, count, start=0, size=4, gate=None):
        self.count, self.start, self.size, self.gate = count, start, size, gate

    def __iter__(self):
        for number in range(self.start, self.start + self.count):
            yield np.full((2, self.size, self.size, 3), number % 256, np.uint8), np.array([number, -number], np.int32)
            if self.gate and not self.gate.wait(PATIENCE):
                raise TimeoutError("the test did not open the gate")


def numbers(items):
    return [int(labels[0]) for _, labels in items]


@contextlib.contextmanager
def running(*pipelines):
    """Run pipelines that end in sinks, beside the test; raise what they raise."""
    errors = []

    def run(pipeline):
        try:
            pipeline.run()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(pipeline,)) for pipeline in pipelines]
    for thread in threads:
        thread.start()
    try:
        yield
        for thread in threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in threads), "a pipeline does not end"
    finally:
        for pipeline in pipelines:
            pipeline.stop()
        for thread in threads:
            thread.join(PATIENCE)
    if errors:
        raise errors[0]


PAIRS = {
    "plain, sender binds": ("{transport}://{place}", None, "{transport}://{place}", None),
    "plain, receiver binds": ("{transport}://{place}", False, "{transport}://{place}", True),
    "push and pull": ("zpush+{transport}://{place}", None, "zpull+{transport}://{place}", None),
    "reverse push and pull": ("zrpush+{transport}://{place}", None, "zrpull+{transport}://{place}", None),
    "pub and sub": ("zpub+{transport}://{place}?receivers=1", None, "zsub+{transport}://{place}", None),
    "reverse pub and sub": ("zrpub+{transport}://{place}?receivers=1", None, "zrsub+{transport}://{place}", None),
}


@pytest.mark.parametrize("transport", ["ipc", "inproc"])
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_every_pair_of_sockets_delivers_everything_and_the_end(pair, transport, ipc):
    place = ipc() if transport == "ipc" else f"link{next(NAMES)}"
    sink_url, sink_binds, source_url, source_binds = pair
    sink = ZMQSink(sink_url.format(transport=transport, place=place), bind=sink_binds)
    source = ZMQSource(source_url.format(transport=transport, place=place), bind=source_binds)
    with running(Pipeline([Batches(20), sink])):
        receiver = Pipeline([source])
        assert numbers(receiver) == list(range(20))
    counters = receiver.stats().stages[0].counters
    assert counters["gaps"] == counters["duplicates"] == counters["late"] == 0


@pytest.mark.parametrize("codec", ["tensorcom", "tenbin", "msgpack"])
def test_every_codec_delivers_arrays_as_they_were(codec, ipc):
    place = ipc()
    with running(Pipeline([Batches(3), ZMQSink(f"ipc://{place}", codec=codec)])):
        items = list(Pipeline([ZMQSource(f"ipc://{place}?codec={codec}")]))
    for (images, labels), (sent_images, sent_labels) in zip(items, Batches(3), strict=True):
        assert (images.dtype, labels.dtype) == (np.uint8, np.int32)
        np.testing.assert_array_equal(images, sent_images)
        np.testing.assert_array_equal(labels, sent_labels)
        assert not images.flags.writeable


def test_dicts_with_long_names_and_their_passports_come_back(ipc):
    place = ipc()
    passport = Passport(3, 14, Origin("elsewhere", "reader", 2), ("a.jpg", "b.jpg"), (1.5,))
    sent = {"image": np.zeros((2, 3), np.uint8), "bounding_boxes": np.ones((2, 4), np.float32)}
    seen = []

    class Keep:
        def consume(self, items):
            for item in items:
                seen.append((item, items.passport))

    with running(Pipeline([[Stamped(sent, passport)], ZMQSink(f"ipc://{place}")]), Pipeline([ZMQSource(f"ipc://{place}"), Keep()])):
        pass
    ((item, received),) = seen
    assert list(item) == list(sent)
    np.testing.assert_array_equal(item["bounding_boxes"], sent["bounding_boxes"])
    assert received._replace(times=()) == passport._replace(times=())
    assert received.times[0] == 1.5
    assert len(received.times) == 2


def jitter(item, rng):
    images, labels = item
    return images, rng.integers(0, 1000, labels.shape, np.int32)


def test_a_map_behind_a_link_draws_the_same_numbers(ipc):
    place = ipc()
    here = [labels.tolist() for _, labels in Pipeline([Batches(10), jitter], seed=7)]
    with running(Pipeline([Batches(10), ZMQSink(f"ipc://{place}")])):
        there = [labels.tolist() for _, labels in Pipeline([ZMQSource(f"ipc://{place}"), Stage(jitter, num_workers=3)], seed=7)]
    assert there == here


@pytest.mark.parametrize("size", [4, 200], ids=["small", "large"])
def test_one_reader_two_workers_and_a_trainer_end_by_themselves(size, ipc):
    source, trainer = f"ipc://{ipc()}", f"ipc://{ipc()}"
    reader = Pipeline([Batches(60, size=size), ZMQSink(source, receivers=2)])
    workers = [Pipeline([ZMQSource(source), lambda item: item, ZMQSink(trainer, bind=False)]) for _ in range(2)]
    with running(reader, *workers):
        items = list(Pipeline([ZMQSource(trainer, bind=True, senders=2)]))
    assert sorted(numbers(items)) == list(range(60))
    assert min(worker.stats().items for worker in workers) >= 10


@pytest.mark.parametrize("senders", [0, 1, 2])
def test_a_receiver_that_binds_waits_for_all_that_are_connected(senders, ipc):
    place, gate = ipc(), threading.Event()
    short, long = (
        Pipeline([Batches(count, start, gate=gate), ZMQSink(f"ipc://{place}", bind=False)]) for count, start in ((2, 0), (40, 100))
    )
    source = Pipeline([ZMQSource(f"ipc://{place}", bind=True, senders=senders)])
    with running(short, long):
        first = numbers([source.dequeue(timeout=PATIENCE), source.dequeue(timeout=PATIENCE)])
        assert sorted(first) == [0, 100]
        gate.set()
        assert sorted(first + numbers(source)) == [0, 1, *range(100, 140)]


def test_urls_with_braces_share_a_socket_on_either_side(ipc):
    place = ipc()
    senders = [Pipeline([Batches(10, start), ZMQSink(f"ipc://{place}{end}")]) for end, start in (("a", 0), ("b", 100))]
    with running(*senders):
        assert sorted(numbers(Pipeline([ZMQSource(f"ipc://{place}{{a,b}}")]))) == [*range(10), *range(100, 110)]
    place = ipc()
    receivers = [Pipeline([ZMQSource(f"ipc://{place}{end}", bind=True)]) for end in "ab"]
    with running(Pipeline([Batches(20), ZMQSink(f"ipc://{place}{{a,b}}", bind=False, receivers=2)])):
        threads_items = [[], []]
        threads = [threading.Thread(target=lambda n=n: threads_items[n].extend(numbers(receivers[n]))) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert sorted(threads_items[0] + threads_items[1]) == list(range(20))
    assert min(map(len, threads_items)) == 10


def test_a_publisher_gives_everything_to_each_subscriber(ipc):
    place = ipc()
    got = [[], []]
    threads = [threading.Thread(target=lambda n=n: got[n].extend(numbers(Pipeline([ZMQSource(f"zsub+ipc://{place}")])))) for n in range(2)]
    for thread in threads:
        thread.start()
    with running(Pipeline([Batches(25), ZMQSink(f"zpub+ipc://{place}", receivers=2)])):
        for thread in threads:
            thread.join(PATIENCE)
    assert got == [list(range(25))] * 2


def test_a_subscriber_gets_the_topic_it_asks_for(ipc):
    places = [ipc(), ipc()]
    publishers = [
        Pipeline([Batches(5, start), ZMQSink(f"zpub+ipc://{place}?receivers=1#{topic}")])
        for place, topic, start in ((places[0], "train", 0), (places[1], "val", 100))
    ]
    source = ZMQSource([f"zsub+ipc://{place}?senders=1#train" for place in places], timeout=PATIENCE)
    with running(publishers[0]):
        assert numbers(Pipeline([source])) == list(range(5))
    publishers[1].stop()


def test_a_slow_subscriber_counts_what_it_missed(ipc, caplog):
    place, batch = ipc(), [np.zeros(1_000_000, np.uint8)]
    with (
        Connection(f"zsub+ipc://{place}?budget_mb=2") as subscriber,
        Connection(f"zpub+ipc://{place}?budget_mb=2&receivers=1") as publisher,
    ):
        for _ in range(60):
            publisher.send(batch)
        counters, sent = subscriber.counters, 60
        while counters["messages"] + counters["gaps"] + counters["late"] < sent:  # until the last one has come
            publisher.send(batch)
            sent += 1
            with contextlib.suppress(TimeoutError):
                while True:
                    subscriber.recv(timeout=0.5)
    assert counters["gaps"] >= 20
    assert counters["messages"] + counters["gaps"] + counters["late"] == sent
    assert sum("messages are missing before message" in record.message for record in caplog.records) == 1
    assert sum(value for name, value in counters.items() if name.startswith("gaps from ")) == counters["gaps"]


def test_messages_that_nobody_came_for_are_an_error(ipc):
    place = ipc()
    pipeline = Pipeline([Batches(3), ZMQSink(f"ipc://{place}?linger_ms=200", bind=False)])
    with pytest.raises(
        LinkError,
        match=r"3 messages were not delivered, because no receiver connected within linger_ms=200; start a "
        r"receiver",
    ):
        pipeline.run()


def test_an_end_that_nobody_came_for_is_a_warning(ipc, caplog):
    Pipeline([Batches(0), ZMQSink(f"ipc://{ipc()}?linger_ms=100")]).run()
    assert "the stream has ended, but no receiver connected within linger_ms to receive the end" in caplog.text


def test_a_sink_waits_for_a_receiver_that_is_behind(ipc):
    place, gate = ipc(), threading.Event()

    def slowly(item):
        assert gate.wait(PATIENCE)
        return item

    sender = Pipeline([Batches(30, size=300), ZMQSink(f"ipc://{place}?budget_mb=1&linger_ms=50")])
    with running(sender):
        receiver = Pipeline([ZMQSource(f"ipc://{place}?budget_mb=1"), slowly])
        with pytest.raises(TimeoutError):
            receiver.dequeue(timeout=0.5)
        gate.set()
        assert numbers(receiver) == list(range(30))


@pytest.mark.parametrize(("send", "receive"), [("zpush", "zpull"), ("zrpush", "zrpull")])
def test_the_tail_outlasts_a_receiver_that_pauses_at_the_end(send, receive, ipc):
    place = ipc()
    sender = Pipeline([Batches(20, size=60), ZMQSink(f"{send}+ipc://{place}?budget_mb=1&linger_ms=50&receivers=1")])
    with running(sender):
        receiver = ZMQReceiver(parse(f"{receive}+ipc://{place}?budget_mb=1", "receive"))
        count = len([receiver.recv(timeout=PATIENCE)])
        before = sender.stats().stages[-1].blocked
        wait_until(lambda: sender.stats().stages[-1].blocked > before + 0.25)  # all queues are full, for longer than it lingers
        while count < 20:
            count += len([receiver.recv(timeout=PATIENCE)])
        receiver.recv(timeout=PATIENCE)  # the end
        receiver.close(0)


def test_a_failure_before_the_sink_is_not_an_end_of_the_stream(ipc):
    place = ipc()

    def fail(item):
        raise ZeroDivisionError

    source = Pipeline([ZMQSource(f"ipc://{place}", timeout=1)])
    with pytest.raises(ZeroDivisionError), running(Pipeline([Batches(3), fail, ZMQSink(f"ipc://{place}")])):
        with pytest.raises(TimeoutError, match="no message within 1 s"):
            source.dequeue()
        source.stop()


def test_an_end_is_not_told_when_it_is_not_wanted(ipc):
    place = ipc()
    with running(Pipeline([Batches(2), ZMQSink(f"ipc://{place}", end=False)])):
        source = Pipeline([ZMQSource(f"ipc://{place}")])
        assert numbers([source.dequeue(timeout=PATIENCE), source.dequeue(timeout=PATIENCE)]) == [0, 1]
        with pytest.raises(TimeoutError):
            source.dequeue(timeout=1)
        source.stop()


def test_a_sender_that_went_away_without_an_end_is_named(ipc, caplog):
    place = ipc()
    with Connection(f"zpush+ipc://{place}") as other:
        other.send([np.zeros((1, 1), np.uint8), np.array([7], np.int32)])
        source = Pipeline([ZMQSource(f"ipc://{place}", bind=True)])
        assert numbers([source.dequeue(timeout=PATIENCE)]) == [7]
        other.close()
    with running(Pipeline([Batches(2), ZMQSink(f"ipc://{place}?linger_ms=200&receivers=1", bind=False)])):
        assert numbers(source) == [0, 1]
    assert "1 of 2 senders disconnected without the end of their stream" in caplog.text


def test_stop_ends_a_source_and_a_sink_that_wait_for_peers(ipc):
    source = Pipeline([ZMQSource(f"ipc://{ipc()}")])
    with pytest.raises(TimeoutError):
        source.dequeue(timeout=0.05)
    source.stop()
    sink = Pipeline([Batches(5), ZMQSink(f"ipc://{ipc()}")])
    with pytest.raises(KeyboardInterrupt), running(sink):
        raise KeyboardInterrupt


class Own(np.ndarray):
    """An array whose own code is wrong."""

    @property
    def shape(self):
        raise TypeError("of the user's own")


def test_an_error_of_the_users_own_is_not_taken_for_an_item_that_cannot_be_sent(ipc):
    sink = Stage(ZMQSink(f"ipc://{ipc()}"), on_error="skip")
    with Pipeline([[(np.zeros(1, np.uint8).view(Own),)], sink]) as sender, pytest.raises(TypeError, match="of the user's own"):
        sender.run()


@pytest.mark.parametrize(("on_error", "received"), [("raise", []), ("skip", [1])])
def test_a_field_that_cannot_be_sent_is_an_error_or_is_left_out(on_error, received, ipc):
    place = ipc()
    items = [(np.zeros(1, np.uint8), np.array([0])), (np.zeros(1, np.uint8), np.array([1], np.int32))]
    sender = Pipeline([items, Stage(ZMQSink(f"ipc://{place}"), on_error=on_error)])
    source = Pipeline([ZMQSource(f"ipc://{place}")])
    if on_error == "skip":
        with running(sender):
            assert numbers(source) == received
        return
    with pytest.raises(TypeError, match=r"field 1 has the 64-bit dtype int64; send astype\(np.int32\), or pass allow64=True"):
        sender.run()
    source.stop()


def test_malformed_messages_are_counted_and_left_out_when_told_to(ipc):
    place = ipc()
    source = Stage(ZMQSource(f"ipc://{place}"), on_error="skip")
    with LinkSender(parse(f"zrpush+ipc://{place}", "send")) as peer, Pipeline([source]) as pipeline:
        with pytest.raises(TimeoutError):
            pipeline.dequeue(timeout=0.01)
        for frames in ([b"garbage"], [b"x" * 24, b""], [bytes(24)] * 2):
            peer.transport_end.send(frames, PATIENCE)
        peer.send([np.zeros(1, np.uint8), np.array([5], np.int32)])
        assert numbers([pipeline.dequeue(timeout=PATIENCE)]) == [5]
        stats = pipeline.stats().stages[0]
    assert (stats.errors, stats.counters["malformed"], stats.counters["messages"]) == (3, 3, 4)


def test_one_source_has_an_ipc_and_a_tcp_address(ipc):
    place = ipc()
    pipeline = Pipeline([ZMQSource([f"ipc://{place}", "tcp://127.0.0.1:0"], bind=True, senders=2)])  # one may end before the other comes
    while not (bound := pipeline.stats().stages[0].counters.get("bound")):
        with pytest.raises(TimeoutError):
            pipeline.dequeue(timeout=0.01)
    assert bound[0] == f"ipc://{place}"
    sinks = [ZMQSink(address, bind=False) for address in bound]
    with running(*(Pipeline([Batches(20, start), sink]) for start, sink in zip((0, 100), sinks))):
        got = numbers(pipeline)
    assert sorted(got) == [*range(20), *range(100, 120)]
    counters = pipeline.stats().stages[0].counters
    assert {name: counters[name] for name in ("senders", "ended", "gaps", "duplicates", "malformed")} == {
        "senders": 2,
        "ended": 2,
        "gaps": 0,
        "duplicates": 0,
        "malformed": 0,
    }


def test_one_source_connects_to_an_ipc_and_a_tcp_address(ipc):
    place = ipc()
    with Connection("zrpush://127.0.0.1:0?end=1") as over_tcp, Connection(f"zrpush+ipc://{place}?end=1") as over_ipc:
        pipeline = Pipeline([ZMQSource([over_tcp.bound[0], f"ipc://{place}"])])
        with pytest.raises(TimeoutError):
            pipeline.dequeue(timeout=0.01)
        threads = [threading.Thread(target=each.serve, args=(Batches(20, start),)) for start, each in ((0, over_tcp), (100, over_ipc))]
        for thread in threads:
            thread.start()
        assert sorted(numbers(pipeline)) == [*range(20), *range(100, 120)]
        for thread in threads:
            thread.join()


@pytest.mark.parametrize(("sends", "receives"), [("push", "zrpull"), ("zpub", "zsub")])
def test_one_sink_has_an_ipc_and_a_tcp_address(sends, receives, ipc):
    scheme = "" if sends == "push" else f"{sends}+"
    sink = ZMQSink([f"{scheme}ipc://{ipc()}", f"{scheme}tcp://127.0.0.1:0"], receivers=2)
    gate = threading.Event()
    with running(pipeline := Pipeline([Batches(20, gate=gate), sink])):
        bound = wait_until(lambda: pipeline.stats().stages[1].counters.get("bound"))
        sources = [ZMQSource(f"{receives}+{address}") for address in bound]
        pipelines = [Pipeline([source]) for source in sources]
        gate.set()
        got = []
        threads = [threading.Thread(target=lambda each=each: got.append(numbers(each))) for each in pipelines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    expected = sorted([*range(20)] * (2 if sends == "zpub" else 1))
    assert sorted(itertools.chain(*got)) == expected
    assert all(got)


def test_a_malformed_message_ends_the_run_otherwise(ipc):
    place, before = ipc(), tally.counts()
    with LinkSender(parse(f"zrpush+ipc://{place}", "send")) as peer:
        pipeline = Pipeline([ZMQSource(f"ipc://{place}")])
        with pytest.raises(TimeoutError):
            pipeline.dequeue(timeout=0.01)
        peer.transport_end.send([b"garbage"], PATIENCE)
        with pytest.raises(
            FrameError, match=f"ipc://{place}: message 1: the message has 1 frames; expected a header and data for each array"
        ):
            pipeline.dequeue(timeout=PATIENCE)
    assert tally.counts().received == before.received + 1


def test_an_address_that_is_in_use_is_an_error_with_the_way_out():
    with Connection("zpull://127.0.0.1:0") as other:
        url = "tcp" + other.bound[0][3:]
        with pytest.raises(LinkError, match=r"cannot bind tcp://127.0.0.1:\d+: Address already in use; `ss -ltnp 'sport = :\d+'`"):
            Pipeline([ZMQSource(url, bind=True)]).dequeue()


def test_the_bound_address_can_be_read_back():
    pipeline = Pipeline([Batches(0), ZMQSink("tcp://localhost:*?linger_ms=0")])
    pipeline.run()
    (bound,) = pipeline.stats().stages[1].counters["bound"]
    assert bound.startswith("tcp://127.0.0.1:")
    assert int(bound.rsplit(":", 1)[1]) > 0


@pytest.mark.parametrize("component", [ZMQSink, ZMQSource])
def test_a_url_or_codec_that_cannot_be_used_is_found_without_network(component):
    with pytest.raises(ConfigError, match="unknown scheme 'zpsh'; did you mean"):
        component("zpsh://host:1")
    with pytest.raises(ConfigError, match="unknown codec 'tenbon'; did you mean tenbin"):
        component("tcp://host:1", codec="tenbon")


def test_waiting_for_receivers_is_told(ipc, caplog, monkeypatch):
    monkeypatch.setattr("highway.wire.sender.TELL_AFTER", 0.0)
    place = ipc()
    with running(Pipeline([Batches(2), ZMQSink(f"ipc://{place}", receivers=1)])):
        wait_until(lambda: "waiting for receivers; 0 of 1 are connected" in caplog.text)
        assert numbers(Pipeline([ZMQSource(f"ipc://{place}")])) == [0, 1]


def test_two_pipelines_of_one_component_count_and_bind_apart():
    """What belongs to a run is not the component's."""
    sink, first, second = ZMQSink("tcp://127.0.0.1:0?receivers=1"), Batches(3), Batches(5)
    senders = [Pipeline([batches, sink]) for batches in (first, second)]

    def bound(pipeline):
        return wait_until(lambda: pipeline.stats().stages[1].counters.get("bound"))

    with running(*senders):
        places = [bound(sender) for sender in senders]
        assert places[0] != places[1]
        receivers = [Pipeline([ZMQSource(place)]) for place in places]
        assert [numbers(receiver) for receiver in receivers] == [list(range(3)), list(range(5))]
    assert [receiver.stats().stages[0].counters["messages"] for receiver in receivers] == [4, 6]


WAITS = {
    "a sink that binds": lambda place: [Batches(10_000, size=1), ZMQSink(f"ipc://{place}")],
    "a sink that connects": lambda place: [Batches(10_000, size=40), ZMQSink(f"ipc://{place}", bind=False, budget_mb=0.01)],
    "a sink that waits for receivers": lambda place: [Batches(10_000), ZMQSink(f"ipc://{place}", receivers=1)],
    "a publisher": lambda place: [Batches(10_000), ZMQSink(f"zpub+ipc://{place}?receivers=1")],
    "a sink over shm": lambda place: [Batches(10_000), ZMQSink(f"zrpush+shm://{place.replace('/', '-')}")],
    "a source that binds": lambda place: [ZMQSource(f"zpull+ipc://{place}"), ZMQSink(f"ipc://{place}2")],
    "a source that connects": lambda place: [ZMQSource(f"zrpull+ipc://{place}"), ZMQSink(f"ipc://{place}2")],
    "a source over shm": lambda place: [ZMQSource(f"zrpull+shm://{place.replace('/', '-')}"), ZMQSink(f"ipc://{place}2")],
    "a subscriber": lambda place: [ZMQSource(f"zsub+ipc://{place}"), ZMQSink(f"ipc://{place}2")],
}


@pytest.mark.parametrize("waits", WAITS)
def test_a_pipeline_that_waits_for_a_peer_that_is_not_there_ends_when_it_is_drained(ipc, waits):
    place, errors = ipc(), []
    pipeline = Pipeline(WAITS[waits](place))

    def run():
        try:
            pipeline.run()
        except LinkError as error:  # something was given to ZeroMQ that nobody has taken
            errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: any(stage.blocked or stage.starved for stage in pipeline.stats().stages))
        pipeline.drain()
        thread.join(PATIENCE)
        assert not thread.is_alive()
    finally:
        pipeline.stop()
        thread.join(PATIENCE)
    assert all("drained while no receiver was connected" in error or "were not delivered" in error for error in errors)
