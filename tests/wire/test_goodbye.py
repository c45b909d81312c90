"""A receiver that is drained takes everything that was sent to it: its senders wait until it is gone."""

import contextlib
import itertools
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import zmq
from waiting import wait_until

from highway import Pipeline
from highway.engine.cancel import wait
from highway.modules import ZMQSink, ZMQSource, links
from highway.wire import goodbye, tenbin
from highway.wire.goodbye import MAGIC, LeaveServer, path_of
from highway.wire.pausable import PausableSender
from highway.wire.receiver import LinkReceiver
from highway.wire.sender import LinkSender
from highway.wire.transports.opening import opener_of
from highway.wire.url import parse

PADDING = np.zeros(1 << 16, np.uint8)  # so that the system's buffers hold hundreds of messages, not ten thousands


def item(number):
    return np.full((1, 1), number, np.int32), PADDING


def number_of(item):
    return int(item[0][0, 0])


class Numbers:
    """Numbers without end, but while it is paused."""

    def __init__(self):
        self.count, self.is_paused = 0, False

    def __iter__(self):
        for number in itertools.count():
            while self.is_paused:
                wait(0.01)
            self.count = number + 1
            yield item(number)


class Keep:
    """Keeps what comes, while its gate is open."""

    def __init__(self):
        self.got, self.gate = [], threading.Event()
        self.gate.set()

    def consume(self, items):
        for each in items:
            while not self.gate.is_set():
                wait(0.01)
            self.got.append(number_of(each))


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Has nobody take an end that a busy machine does not run for one that is gone."""
    for name in ("PAUSE", "SILENCE", "HELLO", "GONE"):
        monkeypatch.setattr(goodbye, name, 100.0)
    for name in ("LEAVE", "LAST_CALL"):
        monkeypatch.setattr(links, name, 100.0)


@pytest.fixture
def run():
    """A function that runs a pipeline that ends in a sink on a thread of its own, and returns it with ``ended()``."""
    pipelines, threads = [], []

    def start(*stages):
        pipelines.append(Pipeline(list(stages)))
        threads.append(threading.Thread(target=pipelines[-1].run))
        threads[-1].start()

        def ended(thread=threads[-1]):
            thread.join(120)
            return not thread.is_alive()

        return pipelines[-1], ended

    yield start
    for pipeline in pipelines:
        pipeline.stop()
    for thread in threads:
        thread.join(60)


@pytest.fixture(params=["ipc", "tcp", "tcp between hosts"])
def place(request, ipc, own_address, monkeypatch):
    """A location with its transport in front."""
    if request.param == "ipc":
        return f"ipc://{ipc()}"
    if request.param == "tcp between hosts":  # which share no UNIX sockets
        monkeypatch.setattr(goodbye, "is_loopback", lambda host: False)
        calls = itertools.count()
        monkeypatch.setattr(goodbye, "path_of", lambda name: f"\0highway-leave-{name.hex()}-{next(calls)}")
    return free_tcp(own_address)


def free_tcp(host):
    """Return the URL of a port that is free."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"tcp://{host}:{probe.getsockname()[1]}"


def url(scheme, place, options=""):
    return f"{scheme}+{place}{options}"


def has_heard(pipeline, senders):
    """Say whether a receiver knows so many senders: one that it has heard nothing of cannot be told that it leaves."""
    return pipeline.stats().stages[0].counters.get("senders") == senders


def assert_all_came(source, *sinks):
    got = sorted(number for sink in sinks for number in sink.got)
    assert got == list(range(source.count))


@pytest.mark.slow
@pytest.mark.parametrize("pauses", [False, True], ids=["a sender that goes on", "a sender that waits for its next item"])
def test_of_what_was_sent_to_one_of_several_receivers_nothing_is_lost_when_it_is_drained(place, run, pauses):
    source, sinks = Numbers(), [Keep(), Keep(), Keep()]
    sender, sender_ended = run(source, ZMQSink(url("zrpush", place, "?receivers=3")))
    receivers = [run(ZMQSource(url("zrpull", place)), sink) for sink in sinks]
    wait_until(lambda: all(len(sink.got) > 50 for sink in sinks))
    source.is_paused = pauses
    for pipeline, ended in receivers[:2]:
        pipeline.drain()
        assert ended()
        before = len(sinks[2].got)
        if not pauses:
            wait_until(lambda before=before: len(sinks[2].got) > before + 100)
    source.is_paused, before = False, source.count
    wait_until(lambda: source.count > before + 500)
    sender.drain()
    assert sender_ended()
    assert receivers[2][1]()
    assert_all_came(source, *sinks)


def test_a_slow_receiver_among_slow_ones_takes_what_waits_for_it(place, run):
    source, sinks = Numbers(), [Keep(), Keep()]
    sender, sender_ended = run(source, ZMQSink(url("zrpush", place, "?receivers=2")))
    receivers = [run(ZMQSource(url("zrpull", place)), sink) for sink in sinks]
    wait_until(lambda: all(sink.got for sink in sinks))
    for sink in sinks:
        sink.gate.clear()
    blocked = [0, -1]
    wait_until(lambda: (blocked.append(source.count), threading.Event().wait(0.2), blocked[-1] == source.count)[-1])  # no room is left
    receivers[0][0].drain()
    sinks[0].gate.set()
    assert receivers[0][1]()
    sinks[1].gate.set()
    wait_until(lambda: source.count > blocked[-1] + 100)
    sender.drain()
    assert sender_ended()
    assert receivers[1][1]()
    assert_all_came(source, *sinks)


@pytest.mark.slow
def test_a_receiver_that_binds_is_drained_and_its_successor_goes_on_behind_it(place, run):
    sources = [Numbers(), Numbers()]
    senders = [run(source, ZMQSink(url("zpush", place))) for source in sources]
    counts = []
    for stage in range(3):
        sink = Keep()
        pipeline, ended = run(ZMQSource(url("zpull", place, f"?senders={2 if stage == 2 else 0}")), sink)
        wait_until(lambda sink=sink: len(sink.got) > 200)
        wait_until(lambda pipeline=pipeline: has_heard(pipeline, 2))
        if stage == 2:
            for sender, _ in senders:
                sender.drain()
            assert all(sender_ended() for _, sender_ended in senders)
        else:
            pipeline.drain()
        assert ended()
        counts += sink.got
    assert sorted(counts) == sorted([*range(sources[0].count), *range(sources[1].count)])


def test_a_receiver_that_binds_an_ipc_and_a_tcp_address_loses_nothing_of_either_when_it_is_drained(ipc, own_address, run):
    addresses = [f"ipc://{ipc()}", free_tcp(own_address)]
    sources, sinks = [Numbers(), Numbers()], [Keep(), Keep()]
    receiver, receiver_ended = run(ZMQSource(addresses, bind=True), sinks[0])
    senders = [run(source, ZMQSink(address, bind=False)) for source, address in zip(sources, addresses)]
    wait_until(lambda: len(sinks[0].got) > 100 and has_heard(receiver, 2))
    receiver.drain()
    assert receiver_ended()
    _, successor_ended = run(ZMQSource(addresses, bind=True, senders=2), sinks[1])
    wait_until(lambda: len(sinks[1].got) > 100)
    for sender, ended in senders:
        sender.drain()
        assert ended()
    assert successor_ended()
    got = sorted(number for sink in sinks for number in sink.got)
    assert got == sorted(number for source in sources for number in range(source.count))


def test_who_cannot_be_told_is_said_and_what_has_arrived_is_taken(ipc, run, caplog, monkeypatch):
    monkeypatch.setattr(links, "QUIET", 1.0)
    place, sink = ipc(), Keep()
    source = ZMQSource(f"zpull+ipc://{place}")
    pipeline, ended = run(source, sink)
    with zmq.Context() as context, context.socket(zmq.PUSH) as stock:
        stock.connect(f"ipc://{place}")
        for number in range(20):
            stock.send_multipart(tenbin.encode_list([item(number)[0]]))  # small, so that they come together
        wait_until(lambda: sink.got)
        pipeline.drain()
        assert ended()
        stock.linger = 0
    assert sink.got == list(range(20))
    assert pipeline.stats().stages[0].counters["untold"] == 1
    assert "1 senders were not notified that this receiver leaves, so their messages in transit are lost" in caplog.text


@pytest.fixture
def sending(ipc):
    """A sender whose receivers can say that they leave, and a receiver that is connected to it."""
    place = f"ipc://{ipc()}"
    link = parse(url("zrpush", place), "send")
    with LinkSender(link, hears_leave=True) as sender, LinkReceiver(parse(url("zrpull", place), "receive"), {}) as receiver:
        sender.send(item(0), timeout=60)
        receiver.recv(60)
        yield sender, receiver


def call(sender, words):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path_of(sender.name))
    connection.send(words)
    return connection


@pytest.mark.parametrize("is_silent", [True, False])
def test_who_says_that_it_leaves_and_stays_holds_a_sender_up_for_a_while_only(sending, monkeypatch, is_silent):
    now = [0.0]
    monkeypatch.setattr(goodbye, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(goodbye, "PAUSE" if is_silent else "SILENCE", 10_000.0)
    sender, receiver = sending
    with call(sender, MAGIC + sender.name):
        wait_until(lambda: sender.transport_end.is_paused)
        now[0] = 1000.0
        sender.send(item(1), timeout=60)  # it would not return
        assert number_of(receiver.recv(60).item) == 1
        with call(sender, MAGIC + sender.name):
            sender.send(item(2), timeout=60)  # it rests between two, as long as it has paused
            assert number_of(receiver.recv(60).item) == 2


@pytest.mark.parametrize("words", [MAGIC + b"somebody", b"", b"x" * 16, MAGIC])
def test_who_does_not_name_the_sender_holds_nobody_up(sending, words, monkeypatch):
    monkeypatch.setattr(goodbye, "HELLO", 0.2)
    sender, receiver = sending
    with call(sender, words) as connection:
        assert connection.recv(1) == b""
        assert not sender.transport_end.is_paused
    sender.send(item(1), timeout=60)
    assert receiver.recv(60).envelope.number == 1  # no mark was sent before


@pytest.mark.parametrize("callers", [5, 300])
@pytest.mark.parametrize("words", [b"", MAGIC], ids=["silent", "half of a name"])
def test_callers_that_say_nothing_hold_up_no_receiver_that_leaves(sending, callers, words):
    sender, receiver = sending
    with contextlib.ExitStack() as stack:
        for _ in range(callers):
            stack.enter_context(call(sender, words))
        leaving = stack.enter_context(call(sender, MAGIC + sender.name))
        leaving.settimeout(60)
        assert leaving.recv(8) == (1).to_bytes(8, "little")  # the sender has paused for it
        receiver.leave()
        wait_until(lambda: not receiver.awaits_marks() or has_read(receiver))
        receiver.close()


def has_read(receiver):
    """Take a message, if there is one."""
    with contextlib.suppress(TimeoutError):
        receiver.recv(0.01)
    return False


def listening(host):
    """Return the TCP ports at which processes listen on an address, as a scan finds them."""
    address = socket.inet_aton(host)[::-1].hex().upper()
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table][1:]
    return {int(row[1].split(":")[1], 16) for row in rows if row[1].startswith(f"{address}:") and row[3] == "0A"}


def test_silent_connections_to_every_port_of_a_sender_cost_no_item_of_a_receiver_that_leaves(own_address, run, monkeypatch):
    monkeypatch.setattr(goodbye, "is_loopback", lambda host: False)
    calls = itertools.count()
    monkeypatch.setattr(goodbye, "path_of", lambda name: f"\0highway-leave-{name.hex()}-{next(calls)}")  # only the port is left
    place, source, sinks = free_tcp(own_address), Numbers(), [Keep(), Keep()]
    sender, sender_ended = run(source, ZMQSink(url("zrpush", place, "?receivers=2")))
    receivers = [run(ZMQSource(url("zrpull", place)), sink) for sink in sinks]
    wait_until(lambda: all(len(sink.got) > 50 for sink in sinks))
    ports = listening(own_address)
    assert len(ports) == 2  # the link's and the other one
    with contextlib.ExitStack() as stack:
        for port in [*ports] * 5:
            stack.enter_context(socket.create_connection((own_address, port)))
        receivers[0][0].drain()
        assert receivers[0][1]()
        sender.drain()
        assert sender_ended()
        assert receivers[1][1]()
    assert_all_came(source, *sinks)


def test_a_caller_that_drips_does_not_hold_up_the_end_of_a_sender(sending):
    sender, _ = sending
    with call(sender, MAGIC[:4]), ThreadPoolExecutor() as pool:
        pool.submit(sender.close, 0).result(60)


def test_receivers_that_leave_together_are_let_go_together(ipc):
    place = f"ipc://{ipc()}"
    link = parse(url("zrpull", place), "receive")
    with contextlib.ExitStack() as stack:
        sender = stack.enter_context(LinkSender(parse(url("zrpush", place), "send"), hears_leave=True))
        receivers = [stack.enter_context(LinkReceiver(link, {})) for _ in range(3)]
        wait_until(lambda: sender.receivers == 3)
        for number in range(3):
            sender.send(item(number), timeout=60)
        for receiver in receivers:
            receiver.recv(60)
            receiver.leave()
        # No receiver leaves for good before all have found a mark: one after the other, the second would wait for ever.
        wait_until(lambda: not [has_read(receiver) for receiver in receivers if receiver.awaits_marks()])


def test_marks_are_no_items(sending, monkeypatch):
    monkeypatch.setattr(goodbye, "GONE", 0.0)  # it says that it leaves, and stays
    sender, receiver = sending

    def a_mark_has_come():
        with pytest.raises(TimeoutError):
            receiver.recv(0.05)
        return receiver.counters["messages"] > 1

    with call(sender, MAGIC + sender.name) as connection:
        wait_until(a_mark_has_come)
        assert (receiver.counters["received"], receiver.counters["duplicates"], receiver.counters["gaps"]) == (1, 0, 0)
        connection.send(b"\1")
    sender.send(item(1), timeout=60)
    assert number_of(receiver.recv(60).item) == 1


def test_a_mark_for_a_receiver_that_left_before_does_not_count(sending, monkeypatch):
    monkeypatch.setattr(goodbye, "GONE", 0.0)  # the first one is none that the link knows
    sender, receiver = sending
    with call(sender, MAGIC + sender.name) as connection:
        assert connection.recv(8) == (1).to_bytes(8, "little")  # it says how many messages it has sent
        assert receiver.transport_end.socket.poll(60_000)  # a mark, which stays where it is
        connection.send(b"\1")
    for number in range(1, 6):
        sender.send(item(number), timeout=60)
    receiver.leave()
    numbers = []
    while receiver.awaits_marks():
        with contextlib.suppress(TimeoutError):
            numbers.append(number_of(receiver.recv(0.05).item))
    assert numbers == [1, 2, 3, 4, 5]


def test_a_sender_of_another_user_or_none_is_unreachable():
    told = goodbye.Leave()
    told.tell(b"nobodyis", 0, "")
    told.tell(b"oldsends", None, "")
    assert told.unreachable == {b"nobodyis", b"oldsends"}
    assert not told.waits_for(b"nobodyis")


def test_a_sender_with_too_many_callers_is_called_again():
    name = os.urandom(8)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(path_of(name), family=socket.AF_UNIX, backlog=0))
        callers, told = [], goodbye.Leave()
        with pytest.raises(BlockingIOError):
            while True:
                callers.append(stack.enter_context(goodbye.call(name, 0, "")))
        told.tell(name, 0, "")
        assert told.waits_for(name)
        for _ in callers:
            server.accept()[0].close()
        told.tell(name, 0, "")
        with server.accept()[0] as connection:
            assert connection.recv(64) == MAGIC + name
        told.close()


def test_a_port_is_opened_on_the_interface_of_the_link_and_none_on_the_loopback(monkeypatch):
    for url, host in (
        ("zpush://127.0.0.1:9", "127.0.0.1"),
        ("zrpush://localhost:0", "127.0.0.1"),
        ("zpush+ipc://x", ""),
        (["zpush+ipc://x", "zpush://127.0.0.1:9"], "127.0.0.1"),
    ):
        link = parse(url, "send")
        sender = PausableSender(opener_of(link.transport).open_sender(link))
        assert goodbye.interface(link, sender.bound) == host
        with contextlib.closing(LeaveServer(link, os.urandom(8), sender, list)) as server:
            assert server.port == 0
        sender.close(0)
