"""Ends that are invented or damaged do not end a receiver, and what it keeps of senders is bounded; with sockets of ZeroMQ alone."""

import os
import pickle
import random
import threading

import numpy as np
import pytest
import zmq
from waiting import wait_until

from highway import Passport, Pipeline, Stage, Stamped
from highway.modules import ZMQSink, ZMQSource
from highway.wire import sequence_numbers
from highway.wire.codec import named
from highway.wire.envelope import Envelope
from highway.wire.receiver import LinkReceiver
from highway.wire.sequence_numbers import Senders
from highway.wire.transports.protocol import SourceAddress
from highway.wire.url import parse

EMPTY = (np.zeros((0, 1), np.uint8),)


def item(number):
    return (np.full((1, 1), number % 256, np.uint8),)


def message(sender, number, codec="tensorcom", **flags):
    return named(codec).encode(EMPTY if flags.get("end") else item(number), Envelope(sender=sender, number=number, **flags))


@pytest.fixture
def peer():
    """A function that opens a PUSH socket of ZeroMQ, connected to an address."""
    sockets = []
    context = zmq.Context()

    def connect(place):
        sockets.append(context.socket(zmq.PUSH))
        sockets[-1].connect(place)
        return sockets[-1]

    yield connect
    for socket in sockets:
        socket.close(0)
    context.term()


@pytest.fixture(params=["ipc", "tcp"])
def receiver(request, ipc):
    place = f"zpull+ipc://{ipc()}" if request.param == "ipc" else "zpull://127.0.0.1:0"
    with LinkReceiver(parse(place, "receive"), {}) as receiver:
        yield receiver


def received(receiver, count):
    return [receiver.recv(60).envelope.number for _ in range(count)]


def assert_waits(receiver, malformed=0):
    """See a receiver go on waiting, until so many malformed messages have come, and for a while longer."""

    def waits():
        with pytest.raises(TimeoutError):
            receiver.recv(0.15)
        return receiver.counters["malformed"] >= malformed

    wait_until(waits)
    assert waits() and waits()


@pytest.mark.slow
@pytest.mark.parametrize("reveals", [False, True], ids=["ends alone", "a message in front of each"])
def test_ends_with_invented_names_end_nobody(receiver, peer, reveals, caplog):
    honest, forger = peer(receiver.bound[0]), peer(receiver.bound[0])
    name = os.urandom(8)
    for number in range(11):
        honest.send_multipart(message(name, number))
    assert received(receiver, 11) == list(range(11))
    for _ in range(5):
        invented = os.urandom(8)
        if reveals:
            forger.send_multipart(message(invented, 0))
            assert received(receiver, 1) == [0]
        forger.send_multipart(message(invented, int(reveals), end=True))
    assert_waits(receiver, 0 if reveals else 4)
    assert (receiver.counters["malformed"], "ignored the end" in caplog.text) == ((0, False) if reveals else (4, True))
    forger.close()
    assert_waits(receiver)
    for number in range(11, 200):
        honest.send_multipart(message(name, number))
    honest.send_multipart(message(name, 200, end=True))
    assert received(receiver, 189) == list(range(11, 200))
    with pytest.raises(EOFError):
        receiver.recv(60)


def test_an_end_of_another_name_over_a_senders_own_connection_is_not_its_end(receiver, peer):
    one, name = peer(receiver.bound[0]), os.urandom(8)
    one.send_multipart(message(name, 0))
    one.send_multipart(message(os.urandom(8), 1, end=True))
    one.send_multipart(message(name, 1))
    assert received(receiver, 2) == [0, 1]
    assert_waits(receiver)
    one.send_multipart(message(name, 2, end=True))
    with pytest.raises(EOFError):
        receiver.recv(60)
    assert (receiver.counters["ended"], receiver.counters["malformed"]) == (1, 1)


def test_damaged_messages_and_ends_of_one_sender_do_not_end_another(receiver, peer):
    draw = random.Random(9)
    honest, damaged = peer(receiver.bound[0]), peer(receiver.bound[0])
    name, other = os.urandom(8), os.urandom(8)
    for number in range(200):
        honest.send_multipart(message(name, number))
    got = received(receiver, 1)  # so that it is there before the other one says that it ends
    for number in range(1000):
        frames = [bytearray(frame) for frame in message(other, number % 100, end=bool(number % 3))]
        for _ in range(draw.randint(1, 4)):
            frames[0][draw.randrange(len(frames[0]))] = draw.randrange(256)
        damaged.send_multipart(frames)
    while len(got) < 200:
        try:
            envelope = receiver.recv(60).envelope
        except ValueError:
            continue
        if envelope is not None and envelope.sender == name:
            got.append(envelope.number)
    assert got == list(range(200))
    for _ in range(3):
        with pytest.raises(TimeoutError):
            while True:
                try:
                    receiver.recv(0.15)
                except ValueError:
                    continue


def test_an_end_that_says_more_than_came_is_a_gap_that_is_told(receiver, peer, caplog):
    one, name = peer(receiver.bound[0]), os.urandom(8)
    one.send_multipart(message(name, 0))
    one.send_multipart(message(name, 20, end=True))
    assert received(receiver, 1) == [0]
    with pytest.raises(EOFError):
        receiver.recv(60)
    assert receiver.counters["gaps"] == 19
    assert "19 messages are missing before the end, after 20 sent messages; further cases are counted, but not logged" in caplog.text


def test_two_that_had_nothing_to_send_are_both_heard_though_the_second_has_the_descriptor_of_the_first(peer, ipc):
    with LinkReceiver(parse(f"zpull+ipc://{ipc()}?senders=2", "receive"), {}) as receiver:
        for count in (1, 2):
            one = peer(receiver.bound[0])
            one.send_multipart(message(os.urandom(8), 0, end=True))
            wait_until(lambda count=count: receiver.transport_end.peers()[:2] == (1, count))
            one.close()
            wait_until(lambda: receiver.transport_end.peers().live == 0)
        with pytest.raises(EOFError):
            receiver.recv(60)
        assert receiver.counters["ended"] == 2


def test_all_that_is_kept_of_senders_is_bounded(monkeypatch):
    monkeypatch.setattr(sequence_numbers, "MOST", 10)
    monkeypatch.setattr(sequence_numbers, "NAMED", 5)
    counters = {}
    known = Senders(parse("zpull+ipc://x", "receive"), counters)
    for number in range(1000):
        envelope = Envelope(sender=os.urandom(32), number=number)
        known.take(envelope, lambda envelope, frames, number=number: SourceAddress(number), [])
        known.end(envelope._replace(end=True, number=number + 5), SourceAddress(number), 1)
    assert len(pickle.dumps(known)) < 10 * (sequence_numbers.WINDOW + 700)
    assert len(counters) < 30
    assert (known.ended, known.connections, counters["gaps"], counters["gaps from others"]) == (1000, 1000, 5000 - 1000, (995) * 4)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("interleaved", (0, 0, 0)),
        ("twice", (0, 6000, 0)),
        ("late", (0, 0, 100)),
        ("gaps", (60, 0, 0)),
    ],
)
def test_of_two_connections_to_one_sender_what_is_counted_is_true(order, expected):
    counters = {}
    known = Senders(parse("zsub+ipc://x{0..1}", "receive"), counters)
    numbers = list(range(6000))
    draw = random.Random(3)
    if order == "late":
        numbers = numbers[100:]
    if order == "gaps":
        numbers = [number for number in numbers if number % 100 or not number]
    if order == "twice":
        numbers = [number for number in numbers for _ in range(2)]
    numbers.sort(key=lambda number: number + draw.uniform(0, 300))
    for number in numbers:
        known.take(Envelope(sender=b"12345678", number=number), lambda envelope, frames: SourceAddress(1), [])
    known.end(Envelope(sender=b"12345678", number=6000, end=True), SourceAddress(1), 1)
    if order == "gaps":
        expected = (6000 - len(numbers), 0, 0)
    assert (counters["gaps"], counters["duplicates"], counters["late"]) == expected


def test_addresses_with_braces_at_both_ends_repeat_nothing(ipc):
    place = f"{ipc()}-{{0..1}}"
    source = ZMQSource(f"zrpull+ipc://{place}")
    with Pipeline([map(item, range(300)), ZMQSink(f"zrpush+ipc://{place}?receivers=2")]) as sender, Pipeline([source]) as receiver:
        runs = threading.Thread(target=sender.run)
        runs.start()
        got = [int(values[0, 0]) for (values,) in receiver]
        runs.join(60)
    assert sorted(got) == sorted(number % 256 for number in range(300))
    counters = receiver.stats().stages[0].counters
    assert (counters["duplicates"], counters["gaps"], counters["received"]) == (0, 0, 300)


def test_an_item_whose_keys_are_too_long_is_left_out_when_told_to(ipc):
    place = f"ipc://{ipc()}"
    items = [
        Stamped(item(0), Passport(keys=("k" * 2**21,))),
        Stamped(item(1), Passport(index=1)),
        Stamped(item(2), Passport(keys=("a\0b",))),
    ]
    with Pipeline([items, Stage(ZMQSink(place), on_error="skip")]) as sender, Pipeline([ZMQSource(place)]) as receiver:
        runs = threading.Thread(target=sender.run)
        runs.start()
        assert [int(values[0, 0]) for (values,) in receiver] == [1]
        runs.join(60)
        assert sender.stats().stages[-1].errors == 2
    with Pipeline([items, ZMQSink(place)]) as sender, pytest.raises(ValueError, match="the 1 sample keys have 2,097,152 characters"):
        sender.run()
