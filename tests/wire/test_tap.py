"""Taps: who looks into a link sees what is sent, and nobody who sends or receives notices."""

import contextlib
import itertools
import logging
import os
import sys
import threading
import weakref

import numpy as np
import pytest
from waiting import wait_until

from highway.errors import ConfigError, EndOfStream
from highway.wire import tap
from highway.wire.receiver import LinkReceiver
from highway.wire.sender import LinkSender
from highway.wire.url import parse

WAIT = 60  # seconds; nothing here takes as long
TRANSPORTS = ["ipc", "tcp", "inproc", "shm"]


def name_of_a_tap(ipc):
    return f"@{os.getpid()}-{ipc().replace('/', '-')}"


@pytest.fixture
def link(ipc):
    """A link with a tap: ``link(transport, codec)`` returns its two ends, and a function that opens a viewer."""
    with contextlib.ExitStack() as stack:

        def receive(url):
            return stack.enter_context(LinkReceiver(parse(url, "receive"), {}))

        def opened(transport="ipc", codec="tensorcom"):
            name, options = name_of_a_tap(ipc), f"?codec={codec}"
            location = {"tcp": "127.0.0.1:0", "ipc": ipc()}.get(transport, name[1:])
            sender = stack.enter_context(LinkSender(parse(f"zrpush+{transport}://{location}{options}&tap=ipc://{name}", "send")))
            there = sender.bound[0].partition("://")[2] if transport == "tcp" else location
            receiver = receive(f"zrpull+{transport}://{there}{options}")
            while transport == "shm" and not sender.transport_end.peers().live:  # both ends must look around to meet
                with contextlib.suppress(TimeoutError):
                    receiver.recv(0.01)
            return sender, receiver, lambda: receive(f"zsub+ipc://{name}{options}")

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


def pass_on(sender, receiver, numbers):
    """Send items and receive them; yield the number of each."""
    for sent in numbers:
        sender.send(item(sent))
        assert number(receiver.recv(WAIT)) == sent
        yield sent


def show(sender, receiver, viewer, first):
    """Send items, and receive them, until a viewer sees one; return the number of that, and the next one."""
    for sent in pass_on(sender, receiver, range(first, first + 100_000)):
        with contextlib.suppress(TimeoutError):
            return number(viewer.recv(0.01)), sent + 1
    raise AssertionError("the viewer saw nothing")


@contextlib.contextmanager
def finishing(sender, receiver):
    """A sender that finishes on a thread of its own, once its receiver has heard the end and is closed; behind the block it has."""
    thread = threading.Thread(target=sender.finish)
    thread.start()
    with pytest.raises(EndOfStream):
        receiver.recv(WAIT)
    receiver.close()
    yield
    thread.join(WAIT)
    assert not thread.is_alive()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_receiver_gets_every_item_in_order_while_viewers_come_look_and_go(link, transport):
    sender, receiver, view = link(transport)
    after = 0
    for _ in range(3):
        viewer, idle = view(), view()
        seen, after = show(sender, receiver, viewer, after)
        assert seen < after
        *_, last = pass_on(sender, receiver, range(after, after + 50))
        following, after = [], last + 1
        for _ in range(3):  # of all that is sent meanwhile it may miss as much as it likes
            found, after = show(sender, receiver, viewer, after)
            following.append(found)
        assert following == sorted(set(following)) and following[0] > seen
        viewer.close()
        idle.close()
    assert [receiver.counters[name] for name in ("messages", "gaps", "late", "duplicates")] == [after, 0, 0, 0]


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
    # 2 wait, 1 or 2 are being sent, and the link's last ones; what has left or was dropped is let go of in the background
    wait_until(lambda: sum(ref() is not None for ref in refs) <= 6)


def test_nothing_is_passed_on_when_the_last_viewer_has_gone(link):
    sender, receiver, view = link()
    viewer, other = view(), view()
    _, after = show(sender, receiver, viewer, 0)
    viewer.close()
    _, after = show(sender, receiver, other, after)
    other.close()
    passed = pass_on(sender, receiver, itertools.count(after))
    wait_until(lambda: next(passed) and not sender.tap.is_watched, WAIT)


@pytest.mark.parametrize("codec", ["tensorcom", "tenbin", "msgpack"])
@pytest.mark.parametrize("behind", [0, 200])
def test_the_end_reaches_viewers_those_that_are_behind_too(link, monkeypatch, codec, behind):
    monkeypatch.setattr(tap, "VIEWERS_MAY_STAY", WAIT)
    sender, receiver, view = link(codec=codec)
    viewer, seen = view(), []
    _, after = show(sender, receiver, viewer, 0)
    list(pass_on(sender, receiver, range(after, after + behind)))
    with finishing(sender, receiver):
        with pytest.raises(EndOfStream):
            while True:
                seen.append(number(viewer.recv(WAIT)))
        assert seen == sorted(set(seen))
        viewer.close()


def test_without_a_viewer_the_end_does_not_wait(link, monkeypatch):
    monkeypatch.setattr(tap, "VIEWERS_MAY_STAY", 1000 * WAIT)
    sender, receiver, _ = link()
    list(pass_on(sender, receiver, [0]))
    with finishing(sender, receiver):
        pass


def test_an_address_that_is_taken_switches_the_tap_off_and_nothing_else(ipc, caplog):
    caplog.set_level(logging.INFO, "highway")
    name = name_of_a_tap(ipc)
    with LinkSender(parse(f"zrpush+ipc://{ipc()}?tap=ipc://{name}", "send")) as first:
        place = ipc()
        with (
            LinkSender(parse(f"zrpush+ipc://{place}?tap=ipc://{name}", "send")) as second,
            LinkReceiver(parse(f"zrpull+ipc://{place}", "receive"), {}) as receiver,
        ):
            list(pass_on(second, receiver, [5]))
            assert (first.tap is None, second.tap is None) == (False, True)
    (message,) = [record.getMessage() for record in caplog.records if "viewers" in record.getMessage()]
    assert (
        message == f"zrpush+ipc://{place}: another process already has the tap of this link, so viewers see the messages of that "
        f"process, not of this process"
    )


def test_a_tap_that_fails_is_closed_with_a_warning_and_the_link_goes_on(link, caplog):
    sender, receiver, view = link()
    viewer = view()
    _, after = show(sender, receiver, viewer, 0)
    sender.tap.sender.close(0)
    list(pass_on(sender, receiver, range(after, after + 20)))
    assert [record.getMessage().partition(": ")[2] for record in caplog.records].count(
        caplog.records[-1].getMessage().partition(": ")[2]
    ) == 1
    assert "the tap is closed: " in caplog.records[-1].getMessage()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_sees_nothing(link, popen):
    sender, receiver, view = link()
    address = sender.tap.bound[0]
    code = (
        "import os, sys, zmq; os.setuid(65534); s = zmq.Context().socket(zmq.SUB); s.subscribe(b''); "
        "s.connect(sys.argv[1]); print('ready', flush=True); print(s.poll(1000))"
    )
    process = popen([sys.executable, "-c", code, address])
    assert process.stdout.readline() == "ready\n"
    last = next(sent for sent in pass_on(sender, receiver, itertools.count()) if process.poll() is not None)
    assert process.stdout.read() == "0\n"
    assert show(sender, receiver, view(), last + 1)[0] > last


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("7900", "tap='7900'; expected an address to bind, such as ipc://@name or tcp://127.0.0.1:7900"),
        ("shm://x", "expected an address to bind"),
        ("ipc://", "expected a path after"),
        ("tcp://host", "expected host:port"),
    ],
)
def test_an_address_that_no_tap_can_have_is_refused_with_the_url(given, message):
    with pytest.raises(ConfigError, match=message):
        parse(f"zrpush://127.0.0.1:0?tap={given}", "send")
