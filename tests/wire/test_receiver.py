"""Gaps, repetitions and ends, as a receiver sees them."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from highway import EndOfStream
from highway.wire import receiver, sequence_numbers
from highway.wire.codec import named
from highway.wire.envelope import Envelope
from highway.wire.receiver import LinkReceiver
from highway.wire.transports import protocol, zmq
from highway.wire.transports.protocol import Peers
from highway.wire.url import parse


class Script:
    """A receiver that plays messages: ``(sender, number)``, with flags of an envelope behind, or :class:`Peers` for who is there then.

    Where ``None`` is, and at the end, nothing comes: then it moves a clock on, in place of waiting.
    """

    def __init__(self, messages, clock=None):
        self.messages, self.bound, self.now, self.clock = list(messages), [], Peers(), clock

    def recv(self, timeout=None):
        while self.messages and isinstance(self.messages[0], Peers):
            self.now = self.messages.pop(0)
        if not self.messages or self.messages[0] is None:
            del self.messages[:1]
            if self.clock is not None:
                self.clock[0] += timeout
            raise TimeoutError("nothing more")
        sender, number, *flags = self.messages.pop(0)
        envelope = Envelope(sender=sender, number=number, **dict.fromkeys(flags, True))
        return named("tensorcom").encode([np.zeros(1, np.uint8)], envelope)

    def peers(self):
        return self.now

    def source(self, frames):
        return None

    def times_used(self, source):
        return 1

    def close(self, linger):
        self.closed = True


def receive(monkeypatch, messages, url="zsub+ipc://x"):
    """Return the numbers that came, the counters, and whether the stream ended."""
    now = [0.0]
    for module in (receiver, protocol):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(zmq, "open_receiver", lambda link: Script(messages, now))
    counters, numbers = {}, []
    with LinkReceiver(parse(url, "receive"), counters) as end:
        try:
            while True:
                numbers.append(end.recv(timeout=0.5).envelope.number)
        except EndOfStream:
            with pytest.raises(EndOfStream):
                end.recv(timeout=0.5)
            return numbers, counters, True
        except TimeoutError:
            return numbers, counters, False


def counts(counters):
    return counters["gaps"], counters["duplicates"], counters["late"]


A, B = b"aaaaaaaa", b"bbbbbbbb"


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([(A, 0), (A, 1), (A, 2)], (0, 0, 0)),
        ([(A, 0), (A, 3), (A, 4)], (2, 0, 0)),
        ([(A, 5), (A, 6)], (0, 0, 5)),
        ([(A, 0), (A, 0), (A, 1), (A, 0)], (0, 2, 0)),
        ([(A, 0), (B, 0), (A, 1), (B, 1)], (0, 0, 0)),
        ([(A, 0), (B, 2), (B, 4), (A, 2)], (2, 0, 2)),
        ([(A, 0), (A, 4, "end")], (3, 0, 0)),
        ([(A, 4, "end")], (0, 0, 4)),
        ([(A, 0), (A, 1, "end")], (0, 0, 0)),
    ],
)
def test_numbers_tell_gaps_repetitions_and_what_came_before(monkeypatch, messages, expected):
    _, counters, _ = receive(monkeypatch, messages)
    assert counts(counters) == expected


def test_who_pulls_misses_nothing_of_what_others_got_but_a_subscriber_gets_all(monkeypatch):
    messages = [(A, 3, "shared"), (A, 7, "shared"), (A, 7, "shared"), (A, 9, "shared", "end")]
    assert counts(receive(monkeypatch, list(messages), "zrpull+ipc://x")[1]) == (0, 1, 0)
    assert counts(receive(monkeypatch, list(messages), "zsub+ipc://x")[1]) == (3, 1, 3)


def test_counts_are_kept_for_each_sender(monkeypatch):
    _, counters, _ = receive(monkeypatch, [(A, 0), (A, 3), (B, 1), (B, 4)])
    assert (counters["gaps from 61616161"], counters["gaps from 62626262"], counters["late from 62626262"]) == (2, 2, 1)
    assert counters["senders"] == 2


def test_a_sender_is_warned_of_once(monkeypatch, caplog):
    receive(monkeypatch, [(A, 0), (A, 3), (A, 6), (B, 0), (B, 0), (B, 0)])
    assert [record.message.split(": ", 1)[1] for record in caplog.records] == [
        "sender 61616161: 2 messages are missing before message 3; further cases are counted, but not logged",
        "sender 62626262: message 0 arrived twice; further cases are counted, but not logged",
    ]


@pytest.mark.parametrize(
    ("url", "messages", "ended"),
    [
        ("zsub+ipc://x", [(A, 0), (A, 1, "end")], True),
        ("zsub+ipc://x", [(A, 0)], False),
        ("zsub+ipc://x{1,2}", [(A, 0), (A, 1, "end")], False),
        ("zsub+ipc://x{1,2}", [(A, 1, "end"), (A, 1, "end"), (B, 0)], False),
        ("zsub+ipc://x{1,2}", [(A, 1, "end"), (B, 1, "end")], True),
        ("zpull+ipc://x?senders=2", [(A, 1, "end")], False),
        ("zpull+ipc://x?senders=2", [(A, 1, "end"), (B, 0), (B, 1, "end")], True),
        ("zpull+ipc://x", [Peers(1, 1), (A, 1, "end"), None], True),
        ("zpull+ipc://x", [Peers(2, 2), (A, 1, "end"), None], False),  # the other one has not ended
        ("zpull+ipc://x", [Peers(1, 2), (A, 1, "end"), None], False),  # it went, so the one that is there has not ended
        ("zpull+ipc://x", [Peers(0, 2), (A, 1, "end"), None], True),  # the other one went without an end
        ("zpull+ipc://x", [Peers(2, 2), (A, 1, "end"), (B, 1, "end"), None], True),
        ("zpull+ipc://x", [Peers(2, 2), (A, 1, "end"), None, (B, 0), (B, 1, "end"), None], True),
        ("zpull+ipc://x", [Peers(1, 1), None], False),
        ("zpull+ipc://x?senders=1", [Peers(2, 2), (A, 1, "end"), None], False),  # one more has joined
        ("zpull+ipc://x?senders=1", [Peers(2, 2), (A, 1, "end"), None, (B, 1, "end"), None], True),
        ("zpull+ipc://x?senders=2", [Peers(0, 1), (A, 1, "end"), None], False),
        ("zpull+ipc://x?senders=1", [Peers(0, 2), (A, 1, "end", "extra"), None], False),  # it was one more, and another was lost
        ("zpull+ipc://x?senders=1", [Peers(1, 2), (A, 1, "end", "extra"), None], False),
        ("zpull+ipc://x?senders=1", [Peers(1, 2), (A, 1, "end", "extra"), (B, 1, "end"), None], True),
        ("zpull+ipc://x?senders=1", [Peers(0, 2), (A, 1, "end", "extra"), (B, 1, "end"), None], True),
        ("zpull+ipc://x?senders=1", [Peers(2, 2), (A, 1, "end", "extra"), (B, 1, "end"), None], True),
        ("zpull+ipc://x?senders=1", [Peers(2, 2), (B, 1, "end"), None], False),  # one more is there still
        ("zsub+ipc://x{1,2}", [(A, 1, "end"), (B, 1, "end", "extra")], True),  # where none is waited for, all are alike
    ],
)
def test_a_stream_ends_when_its_senders_have(monkeypatch, url, messages, ended):
    assert receive(monkeypatch, messages, url)[2] == ended


def test_a_sender_that_does_not_come_is_missed_aloud(monkeypatch, caplog):
    monkeypatch.setattr(receiver, "TELL_AFTER", 0.0)
    receive(monkeypatch, [Peers(0, 1), (A, 0), (A, 1, "end"), None, None, None], "zpull+ipc://x?senders=2")
    assert re.fullmatch(
        r"zpull\+ipc://x: no message has arrived for 0 s: waiting for a sender; 0 senders are connected, 1 have sent messages, 1 of "
        r"senders=2 "
        r"have ended. Ctrl-C or `highway drain` ends the wait. If no sender is connected, `highway run --wait SECONDS` limits the wait",
        caplog.messages[0],
    )


def test_what_is_waited_for_is_said_again_at_growing_intervals(monkeypatch, caplog):
    now = [0.0]
    monkeypatch.setattr(receiver, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(zmq, "open_receiver", lambda link: Script([]))
    with LinkReceiver(parse("zrpull+ipc://x", "receive"), {}) as end:
        said = []
        for second in range(2000):
            now[0] = float(second)
            assert not end.is_over()
            said += [second] * len(caplog.messages)
            caplog.clear()
    assert said == [10, 20, 40, 80, 160, 320, 640, 1240, 1840]


def test_a_sender_that_is_there_and_says_nothing_is_told_later(monkeypatch, caplog):
    now = [0.0]
    monkeypatch.setattr(receiver, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(zmq, "open_receiver", lambda link: Script([Peers(1, 1)]))
    with LinkReceiver(parse("zrpull+ipc://x", "receive"), {}) as end:
        with pytest.raises(TimeoutError):
            end.transport_end.recv()
        for second in (0, 20, 59):
            now[0] = float(second)
            assert not end.is_over()
        assert caplog.messages == []
        now[0] = 60.0
        assert not end.is_over()
    assert (
        "no message has arrived for 60 s: the connected senders send no messages; 1 senders are connected, 0 have sent messages"
        in caplog.text
    )


@pytest.mark.parametrize("transport", ["ipc", "tcp", "shm"])
def test_a_wait_for_senders_ends_the_stream_with_a_word(monkeypatch, transport, caplog, ipc):
    monkeypatch.setattr(receiver, "wait_for_senders", 0.2)
    monkeypatch.setattr(receiver, "CHECK_EVERY", 0.05)
    location = {"ipc": ipc(), "tcp": "127.0.0.1:9", "shm": f"wait-{id(caplog)}"}[transport]
    with LinkReceiver(parse(f"zrpull+{transport}://{location}", "receive"), {}) as end, pytest.raises(EndOfStream):
        end.recv()
    assert "s. 0 senders had sent messages, and 0 senders had ended" in caplog.text


def test_who_went_without_an_end_is_said(monkeypatch, caplog):
    receive(monkeypatch, [Peers(0, 2), (A, 1, "end"), None], "zpull+ipc://x")
    assert caplog.messages == ["zpull+ipc://x: 1 of 2 senders disconnected without the end of their stream"]


def test_memory_of_senders_is_bounded(monkeypatch):
    monkeypatch.setattr(sequence_numbers, "MOST", 3)
    messages = [(bytes([n]) * 8, 0) for n in range(10)]
    numbers, counters, _ = receive(monkeypatch, messages)
    assert (len(numbers), counters["senders"]) == (10, 10)
