"""Receivers confirm what they have taken: a sender does not end as if all had arrived if one of them was killed."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zmq
from namespaces import missing, network

from highway import Connection, EndOfStream, LinkError
from highway.wire import confirmation
from highway.wire import sender as sender_module
from highway.wire.receiver import LinkReceiver
from highway.wire.sender import LinkSender
from highway.wire.url import parse

TAKE = """
import sys
from highway.wire.receiver import LinkReceiver
from highway.wire.url import parse

with LinkReceiver(parse(sys.argv[1], "receive"), {}) as receiver:
    print("ready", flush=True)
    for _ in range(int(sys.argv[2])):
        receiver.recv(100)
    print("taken", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(ipc, own_address):
    """A function that returns an unused location of a transport."""

    def place(transport):
        if transport == "ipc":
            return f"ipc://{ipc()}"
        if transport == "shm":
            return f"shm://highway-test-{os.urandom(8).hex()}"
        with socket.socket() as probe:
            probe.bind((own_address, 0))
            return f"tcp://{own_address}:{probe.getsockname()[1]}"

    return place


@pytest.fixture
def reading():
    """A function that starts a receiver in a process, which takes some messages and then waits."""
    processes = []

    def start(url, count):
        command = [sys.executable, "-c", TAKE, url, str(count)]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert processes[-1].stdout.readline() == "ready\n"
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate(timeout=60)


def send_all(sender, count=20):
    for number in range(count):
        sender.send((np.full((1, 1), number, np.int32),), timeout=60)


def finish(pool, sender, monkeypatch):
    """Have a sender finish on another thread, and return once it has written the end of the stream."""
    told, send_to_each = threading.Event(), sender.transport_end.send_to_each
    monkeypatch.setattr(sender.transport_end, "send_to_each", lambda *arguments: (send_to_each(*arguments), told.set()))
    finished = pool.submit(sender.finish)
    assert told.wait(60)
    return finished


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait(60)


def take_all(url):
    """Receive from a URL until the end of the stream, and return the number of messages."""
    with LinkReceiver(parse(url, "receive"), {}) as receiver:
        return read_to_the_end(receiver)


def read_to_the_end(receiver):
    """Read until the end of the stream, and return the number of messages."""
    count = 0
    while True:
        try:
            receiver.recv(60)
        except EndOfStream:
            return count
        count += 1


EACH = ["tcp", pytest.param("ipc", marks=pytest.mark.slow), pytest.param("shm", marks=pytest.mark.slow)]


@pytest.mark.parametrize("binds", [True, False], ids=["the sender binds", "the receiver binds"])
@pytest.mark.parametrize("transport", EACH)
def test_a_sender_does_not_end_as_if_all_had_arrived_if_its_receiver_is_killed_after_the_end_was_written(
    place, reading, transport, binds, monkeypatch
):
    address = place(transport)
    process = reading(f"{'zrpull' if binds else 'zpull'}+{address}", 5)
    with (
        ThreadPoolExecutor() as pool,
        LinkSender(parse(f"{'zrpush' if binds else 'zpush'}+{address}?receivers=1", "send"), hears_leave=True) as sender,
    ):
        send_all(sender)
        assert process.stdout.readline() == "taken\n"
        finished = finish(pool, sender, monkeypatch)
        kill(process)
        with pytest.raises(LinkError) as raised:
            finished.result(60)
    # It has reported 4 or 5 messages.
    assert f"of 20 messages may be lost: the receiver process {process.pid} ended or disconnected" in str(raised.value)
    assert re.search(r" (15|16) of 20", str(raised.value))


@pytest.mark.parametrize("binds", [True, False], ids=["the sender binds", "the receivers bind"])
@pytest.mark.parametrize("transport", EACH)
def test_a_sender_names_one_of_two_receivers_that_is_killed_after_the_end_was_written(place, reading, transport, binds, monkeypatch):
    addresses = [place(transport)] * 2 if binds else [place(transport), place(transport)]
    process = reading(f"{'zrpull' if binds else 'zpull'}+{addresses[0]}", 1)
    urls = [f"{'zrpush' if binds else 'zpush'}+{address}?receivers=2" for address in dict.fromkeys(addresses)]
    with (
        ThreadPoolExecutor() as pool,
        LinkSender(parse(urls, "send"), hears_leave=True) as sender,
    ):
        reads = pool.submit(take_all, f"{'zrpull' if binds else 'zpull'}+{addresses[1]}?senders=1")
        sender.wait_for_receivers()
        send_all(sender)
        assert process.stdout.readline() == "taken\n"
        finished = finish(pool, sender, monkeypatch)
        taken = reads.result(60)
        kill(process)
        with pytest.raises(LinkError, match=f" {19 - taken} of 20 messages .* the receiver process {process.pid} ended or"):
            finished.result(60)


@pytest.mark.parametrize("transport", ["tcp", "ipc", "shm"])
def test_a_sender_waits_until_its_receiver_has_read_the_end(place, transport, monkeypatch):
    address = place(transport)
    with (
        ThreadPoolExecutor() as pool,
        LinkReceiver(parse(f"zpull+{address}", "receive"), {}) as receiver,
        LinkSender(parse(f"zpush+{address}", "send"), hears_leave=True) as sender,
    ):
        sent = pool.submit(send_all, sender)
        receiver.recv(60)
        sent.result(60)
        finished = finish(pool, sender, monkeypatch)
        with pytest.raises(TimeoutError):
            finished.result(0.3)
        assert read_to_the_end_of_one(receiver) == 19
        finished.result(60)


def read_to_the_end_of_one(receiver):
    """Read until the end of a sender, which stays connected; return the number of messages."""
    count = 0
    while not receiver.counters["ended"]:
        try:
            receiver.recv(0.01)
            count += 1
        except (TimeoutError, EndOfStream):
            pass
    return count


def test_a_receiver_that_had_no_room_for_the_end_hears_it_when_it_has_read(place):
    address = place("tcp")
    with (
        ThreadPoolExecutor() as pool,
        LinkSender(parse(f"zrpush+{address}?receivers=2&budget_mb=1&linger_ms=600000", "send"), hears_leave=True) as sender,
        LinkReceiver(parse(f"zrpull+{address}", "receive"), {}) as slow,
    ):
        taken = pool.submit(take_all, f"zrpull+{address}")
        sender.wait_for_receivers()
        for _ in range(1000):
            sender.send((np.zeros(60_000, np.uint8),), timeout=60)
        slow.recv(60)
        finished = pool.submit(sender.finish)
        quickly = taken.result(60)
        assert quickly < 999 and not finished.done()
        assert 1 + quickly + read_to_the_end(slow) == 1000
        slow.close()
        finished.result(60)


def test_ends_that_a_receiver_has_no_use_for_hold_nobody_up(place, monkeypatch):
    address = place("ipc")
    with (
        ThreadPoolExecutor() as pool,
        LinkSender(parse(f"zrpush+{address}?receivers=2&linger_ms=200", "send"), hears_leave=True) as sender,
        LinkReceiver(parse(f"zrpull+{address}", "receive"), {}) as slow,
        LinkReceiver(parse(f"zrpull+{address}", "receive"), {}) as quick,
    ):
        sender.wait_for_receivers()
        send_all(sender)
        slow.recv(60)
        told, send_to_each = threading.Semaphore(0), sender.transport_end.send_to_each
        monkeypatch.setattr(sender.transport_end, "send_to_each", lambda *arguments: (send_to_each(*arguments), told.release()))
        finished = pool.submit(sender.finish)
        assert read_to_the_end(quick) == 10
        for _ in range(20):
            assert told.acquire(timeout=60)
        assert read_to_the_end(slow) == 9
        finished.result(60)


def test_a_sender_does_not_wait_for_ever_for_a_receiver_that_reads_nothing(place, monkeypatch, caplog):
    monkeypatch.setattr(sender_module, "MOST_SILENT", 0.5)
    address = place("tcp")
    with (
        LinkSender(parse(f"zrpush+{address}?linger_ms=2000", "send"), hears_leave=True) as sender,
        LinkReceiver(parse(f"zrpull+{address}", "receive"), {}) as receiver,
    ):
        send_all(sender)
        receiver.recv(60)
        sender.finish()
        assert f"19 of 20 messages may be lost: the receiver process {os.getpid()} has received nothing for" in caplog.text
        assert read_to_the_end(receiver) == 19


def test_a_receiver_whose_link_is_closed_is_not_waited_for(place, monkeypatch):
    address = place("tcp")
    with (
        ThreadPoolExecutor() as pool,
        LinkSender(parse(f"zrpush+{address}?linger_ms=2000", "send"), hears_leave=True) as sender,
        LinkReceiver(parse(f"zrpull+{address}", "receive"), {}) as receiver,
    ):
        send_all(sender)
        receiver.recv(60)
        finished = finish(pool, sender, monkeypatch)
        receiver.transport_end.close(0)
        with pytest.raises(LinkError, match=f"19 of 20 messages .* the receiver process {os.getpid()} ended or disconnected"):
            finished.result(60)


def test_a_receiver_that_closes_is_not_killed(place):
    address = place("tcp")
    with LinkSender(parse(f"zrpush+{address}?linger_ms=60000", "send"), hears_leave=True) as sender, ThreadPoolExecutor() as pool:
        with LinkReceiver(parse(f"zrpull+{address}", "receive"), {}) as receiver:
            send_all(sender)
            receiver.recv(60)
            finished = pool.submit(sender.finish)
            with pytest.raises(TimeoutError):
                finished.result(0.3)
        finished.result(60)


def test_a_sender_does_not_wait_for_programs_that_confirm_nothing(place):
    address = place("tcp")
    with zmq.Context() as context, context.socket(zmq.PULL) as stock:
        stock.bind(address)
        with LinkSender(parse(f"zpush+{address}", "send"), hears_leave=True) as sender:
            send_all(sender)
            sender.finish()


@pytest.mark.parametrize("options", ["codec=msgpack", "end=1"])
def test_without_envelopes_and_from_a_connection_a_sender_cannot_know_what_arrived(place, reading, options, monkeypatch):
    address, given = place("tcp"), "" if options == "end=1" else f"?{options}"
    process = reading(f"zrpull+{address}{given}", 5)
    if options == "end=1":
        with Connection(f"zrpush+{address}?end=1&receivers=1&linger_ms=1000") as sender:
            sender.serve([(np.zeros(1, np.int32),)] * 20)
            kill(process)
        return
    with (
        ThreadPoolExecutor() as pool,
        LinkSender(parse(f"zrpush+{address}?{options}&receivers=1", "send"), hears_leave=True) as sender,
    ):
        send_all(sender)
        assert process.stdout.readline() == "taken\n"
        finished = finish(pool, sender, monkeypatch)
        kill(process)
        finished.result(60)


def test_a_receiver_that_connects_again_after_the_network_was_cut_is_not_lost(monkeypatch):
    monkeypatch.setattr(confirmation, "LASTS", 0)
    confirmed, pairs = confirmation.Confirmations(), [socket.socketpair(), socket.socketpair()]
    calls = iter(theirs for _, theirs in pairs)
    channel = confirmation.ReportChannel(b"receiver", calls.__next__)
    for taken, (ours, _) in zip((3, 7), pairs, strict=True):
        confirmed.welcome(ours)
        channel.taken = taken
        channel.report()
        confirmed.hear(ours)
        assert (confirmed.connected, confirmed.taken, confirmed.lost) == (1, taken, [])
        if taken == 3:
            ours.shutdown(socket.SHUT_RDWR)
            confirmed.hear(ours)
            assert (confirmed.connected, confirmed.taken, len(confirmed.lost)) == (0, 3, 1)
    channel.close()
    for _ in range(2):  # its last word, and the end of the connection
        confirmed.hear(ours)
    assert (confirmed.connected, confirmed.taken, confirmed.lost) == (0, 7, [])


def test_a_receiver_gives_up_a_sender_that_closes_each_connection():
    calls = []

    def call():
        ours, theirs = socket.socketpair()
        ours.close()
        calls.append(theirs)
        return theirs

    channel = confirmation.ReportChannel(b"receiver", call)
    for taken in range(1, 100):
        channel.taken = taken
        channel.report()
    assert len(calls) == 1 and channel.is_over()
    channel.close()
    assert len(calls) == 1


SEND = """
import sys
import numpy as np
from highway import Pipeline
from highway.modules import ZMQSink
from highway.wire import confirmation

confirmation.KEEPALIVE.update(zip(confirmation.KEEPALIVE, (1, 1, 2)))
items = [(np.zeros(int(sys.argv[2]), np.uint8),)] * 50
Pipeline([items, ZMQSink(sys.argv[1])]).run()
"""


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("nbytes", [100, 1_000_000], ids=["all is written", "messages wait"])
@pytest.mark.parametrize("binds", [True, False], ids=["the sender binds", "the receiver binds"])
def test_a_sender_whose_network_is_cut_for_good_ends_with_an_error(binds, nbytes):
    with network(["one", "two"]) as hosts:
        at = f"{hosts.addresses['one' if binds else 'two']}:5555"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        taking = hosts.popen("two", [sys.executable, "-c", TAKE, f"{'zrpull' if binds else 'zpull'}://{at}", "5"], **pipes)
        sending = hosts.popen(
            "one",
            [sys.executable, "-c", SEND, f"{'zrpush' if binds else 'zpush'}://{at}?linger_ms=500&budget_mb=400", str(nbytes)],
            **pipes,
        )
        try:
            assert taking.stdout.readline() == "ready\n"
            assert taking.stdout.readline() == "taken\n"
            hosts.cut("two")
            _, error = sending.communicate(timeout=100)
            assert sending.returncode == 1
            assert re.search(
                r"LinkError: .*(messages may be lost: the receiver a process on 10|were not delivered, because no receiver)", error
            )
        finally:
            for process in (taking, sending):
                process.kill()
                process.communicate(timeout=60)
