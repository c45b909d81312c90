"""Taps: who looks into a link sees what is sent, and nobody who sends or receives notices."""

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

from highway.errors import ConfigError, EndOfStream
from highway.wire import tap
from highway.wire.receiver import LinkReceiver
from highway.wire.sender import LinkSender
from highway.wire.url import parse

WAIT = 60  # seconds; nothing here takes as long
TRANSPORTS = ["ipc", "tcp", "inproc", "shm"]


@pytest.fixture
def link(ipc):
    """A link with a tap: ``link(transport)`` returns its two ends, and a function that opens a viewer."""
    with contextlib.ExitStack() as stack:

        def opened(transport="ipc", options=""):
            name = f"@{os.getpid()}-{ipc().replace('/', '-')}"
            location = {"tcp": "127.0.0.1:0", "ipc": ipc()}.get(transport, name[1:])
            sender = stack.enter_context(LinkSender(parse(f"zrpush+{transport}://{location}?tap=ipc://{name}{options}", "send")))
            there = sender.bound[0].partition("://")[2] if transport == "tcp" else location
            receiver = stack.enter_context(LinkReceiver(parse(f"zrpull+{transport}://{there}", "receive"), {}))
            while transport == "shm" and not sender.transport_end.peers().live:  # both ends must look around to meet
                with contextlib.suppress(TimeoutError):
                    receiver.recv(0.01)
            return sender, receiver, lambda: stack.enter_context(LinkReceiver(parse(f"zsub+ipc://{name}", "receive"), {}))

        yield opened


def item(number, size=100_000):
    return np.full(size, number % 256, np.uint8), np.array([number], np.int32)


def number(message):
    """Return the number of an item, which must be whole."""
    values, (found,) = message.item
    expected = item(found, len(values))
    np.testing.assert_array_equal(values, expected[0])
    assert [array.dtype for array in message.item] == [array.dtype for array in expected]
    return int(found)


def show(sender, receiver, viewer, first):
    """Send items, and receive them, until a viewer sees one; return the number of that, and the next one."""
    for sent in range(first, first + 100_000):
        sender.send(item(sent))
        assert number(receiver.recv(WAIT)) == sent
        with contextlib.suppress(TimeoutError):
            return number(viewer.recv(0.01)), sent + 1
    raise AssertionError("the viewer saw nothing")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_receiver_gets_every_item_in_order_while_viewers_come_look_and_go(link, transport):
    sender, receiver, view = link(transport)
    after = 0
    for _ in range(3):
        viewer, idle = view(), view()
        seen, after = show(sender, receiver, viewer, after)
        assert seen < after
        for sent in range(after, after + 50):
            sender.send(item(sent))
            assert number(receiver.recv(WAIT)) == sent
        after += 50
        following = [number(viewer.recv(WAIT)) for _ in range(3)]
        assert following == sorted(set(following)) and following[0] > seen
        viewer.close()
        idle.close()
    assert {name: receiver.counters[name] for name in ("messages", "gaps", "late", "duplicates")} == {
        "messages": after,
        "gaps": 0,
        "late": 0,
        "duplicates": 0,
    }


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_viewer_that_never_reads_neither_stops_the_link_nor_makes_the_sender_hold_more_than_a_few_items(link, transport):
    sender, receiver, view = link(transport)
    view()
    refs, sent = [], 0
    while not sender.tap.is_watched or sent < 300:
        values = item(sent)
        refs.append(weakref.ref(values[0]))
        sender.send(values)
        del values
        assert number(receiver.recv(WAIT)) == sent
        sent += 1
    assert sender.tap.is_watched
    deadline = time.monotonic() + WAIT  # what has left or was dropped is let go of in the background
    while (held := sum(ref() is not None for ref in refs)) > 6 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert held <= 6  # 2 wait, 1 or 2 are being sent, and the link's last ones


def test_nothing_is_passed_on_when_the_last_viewer_has_gone(link):
    sender, receiver, view = link()
    viewer, other = view(), view()
    _, after = show(sender, receiver, viewer, 0)
    viewer.close()
    _, after = show(sender, receiver, other, after)
    other.close()
    for sent in range(after, after + 100_000):
        sender.send(item(sent))
        assert number(receiver.recv(WAIT)) == sent
        if not sender.tap.is_watched:
            return
    raise AssertionError("the tap does not notice that the viewer has gone")


@pytest.mark.parametrize("codec", ["tensorcom", "tenbin", "msgpack"])
@pytest.mark.parametrize("behind", [0, 200])
def test_the_end_reaches_viewers_those_that_are_behind_too(ipc, monkeypatch, codec, behind):
    monkeypatch.setattr(tap, "VIEWERS_MAY_STAY", WAIT)
    place, name = ipc(), f"@{os.getpid()}-{ipc().replace('/', '-')}"
    with contextlib.ExitStack() as stack:
        sender = stack.enter_context(LinkSender(parse(f"zrpush+ipc://{place}?codec={codec}&tap=ipc://{name}", "send")))
        receiver = stack.enter_context(LinkReceiver(parse(f"zrpull+ipc://{place}?codec={codec}", "receive"), {}))
        viewer = stack.enter_context(LinkReceiver(parse(f"zsub+ipc://{name}?codec={codec}", "receive"), {}))
        _, after = show(sender, receiver, viewer, 0)
        for sent in range(after, after + behind):
            sender.send(item(sent))
            assert number(receiver.recv(WAIT)) == sent
        thread = threading.Thread(target=sender.finish)
        thread.start()
        with pytest.raises(EndOfStream):
            receiver.recv(WAIT)
        receiver.close()
        seen = []
        with pytest.raises(EndOfStream):
            while True:
                seen.append(number(viewer.recv(WAIT)))
        assert seen == sorted(set(seen))
        viewer.close()
        thread.join(WAIT)
        assert not thread.is_alive()


def test_without_a_viewer_the_end_does_not_wait(link, monkeypatch):
    monkeypatch.setattr(tap, "VIEWERS_MAY_STAY", 1000 * WAIT)
    sender, receiver, _ = link()
    sender.send(item(0))
    assert number(receiver.recv(WAIT)) == 0
    thread = threading.Thread(target=sender.finish)
    thread.start()
    with pytest.raises(EndOfStream):
        receiver.recv(WAIT)
    receiver.close()
    thread.join(WAIT)
    assert not thread.is_alive()


def test_an_address_that_is_taken_switches_the_tap_off_and_nothing_else(ipc, caplog):
    caplog.set_level(logging.INFO, "highway")
    name = f"@{os.getpid()}-{ipc().replace('/', '-')}"
    with LinkSender(parse(f"zrpush+ipc://{ipc()}?tap=ipc://{name}", "send")) as first:
        place = ipc()
        with (
            LinkSender(parse(f"zrpush+ipc://{place}?tap=ipc://{name}", "send")) as second,
            LinkReceiver(parse(f"zrpull+ipc://{place}", "receive"), {}) as receiver,
        ):
            second.send(item(5))
            assert number(receiver.recv(WAIT)) == 5
            assert (first.tap is None, second.tap is None) == (False, True)
    (message,) = [record.getMessage() for record in caplog.records if "viewers" in record.getMessage()]
    assert message == f"zrpush+ipc://{place}: viewers see what the process sends that was here first, and not what this one sends"


def test_a_tap_that_fails_is_closed_with_a_warning_and_the_link_goes_on(link, caplog):
    sender, receiver, view = link()
    viewer = view()
    _, after = show(sender, receiver, viewer, 0)
    sender.tap.sender.close(0)
    for sent in range(after, after + 20):
        sender.send(item(sent))
        assert number(receiver.recv(WAIT)) == sent
    assert [record.getMessage().partition(": ")[2] for record in caplog.records].count(
        caplog.records[-1].getMessage().partition(": ")[2]
    ) == 1
    assert "the tap is closed: " in caplog.records[-1].getMessage()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_sees_nothing(link):
    sender, receiver, view = link()
    address = sender.tap.bound[0]
    code = (
        "import os, sys, zmq; os.setuid(65534); s = zmq.Context().socket(zmq.SUB); s.subscribe(b''); "
        "s.connect(sys.argv[1]); print('ready', flush=True); print(s.poll(1000))"
    )
    with subprocess.Popen([sys.executable, "-c", code, address], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        sent = 0
        while process.poll() is None:
            sender.send(item(sent))
            assert number(receiver.recv(WAIT)) == sent
            sent += 1
        assert process.stdout.read() == "0\n"
    assert show(sender, receiver, view(), sent)[0] >= sent


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("7900", "tap='7900'; expected an address to bind, such as ipc://@name or tcp://127.0.0.1:7900"),
        ("shm://x", "expected an address to bind"),
        ("ipc://", "no path behind"),
        ("tcp://host", "expected host:port"),
    ],
)
def test_an_address_that_no_tap_can_have_is_refused_with_the_url(given, message):
    with pytest.raises(ConfigError, match=message):
        parse(f"zrpush://127.0.0.1:0?tap={given}", "send")
