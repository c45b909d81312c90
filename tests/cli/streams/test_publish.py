"""One publisher, several subscribers, on real sockets: what a slow or late one loses is in its numbers."""

import contextlib
import queue
import threading

import numpy as np
import pytest
from waiting import wait_until

from highway import EndOfStream
from highway.cli.streams import mon
from highway.cli.streams.subscription import losses
from highway.wire.codec import named
from highway.wire.envelope import Envelope
from highway.wire.receiver import LinkReceiver
from highway.wire.sender import LinkSender
from highway.wire.transports.opening import opener_of
from highway.wire.url import parse

MEGABYTE = np.zeros(1_000_000, np.uint8)


def numbered(n):
    return MEGABYTE, np.array([n], np.int32)


class Publisher:
    """A publisher that sends numbered batches of 1 MB, and waits until its subscribers are there where it is told to."""

    def __init__(self, stack, budget_mb=64, subscribers=1):
        self.sender = stack.enter_context(LinkSender(parse(f"zpub://127.0.0.1:0?budget_mb={budget_mb}&receivers={subscribers}", "send")))
        self.address = self.sender.bound[0].removeprefix("tcp://")
        self.sent = 0

    def send(self, count):
        for _ in range(count):
            self.sender.send(numbered(self.sent))
            self.sent += 1


def subscribe(stack, publisher, budget_mb=64):
    return stack.enter_context(LinkReceiver(parse(f"zsub://{publisher.address}?budget_mb={budget_mb}", "receive"), {}))


def catch_up(publisher, receiver):
    """Send and read until the batch that was sent last has come, and return the numbers of all that have."""
    numbers = []
    while numbers[-1:] != [publisher.sent - 1]:
        publisher.send(1)  # which is dropped while the receiver is behind
        with contextlib.suppress(TimeoutError):
            while True:
                numbers.append(int(receiver.recv(0.1).item[1][0]))
    return numbers


@pytest.fixture
def stack():
    with contextlib.ExitStack() as stack:
        yield stack


def test_a_subscriber_that_keeps_up_loses_nothing(stack):
    publisher = Publisher(stack)
    receiver = subscribe(stack, publisher)
    publisher.sender.wait_for_receivers()
    for n in range(50):
        publisher.send(1)
        assert receiver.recv(30).item[1][0] == n
    assert (receiver.counters["gaps"], receiver.counters["late"]) == (0, 0)
    assert losses(receiver.counters) == "gaps 0"


def test_a_late_subscriber_is_told_how_many_it_missed(stack):
    publisher = Publisher(stack)
    publisher.send(7)
    receiver = subscribe(stack, publisher)
    publisher.sender.wait_for_receivers()
    publisher.send(3)
    assert [int(receiver.recv(30).item[1][0]) for _ in range(3)] == [7, 8, 9]
    assert (receiver.counters["late"], receiver.counters["gaps"]) == (7, 0)
    assert losses(receiver.counters) == "gaps 0, late 7 (sent before this subscriber connected)"


def test_what_a_slow_subscriber_loses_is_its_gaps_to_the_last_batch(stack):
    publisher = Publisher(stack, budget_mb=2)
    receiver = subscribe(stack, publisher, budget_mb=2)
    publisher.sender.wait_for_receivers()
    publisher.send(100)  # far more than the two ends and the kernel hold, while nobody reads
    numbers = catch_up(publisher, receiver)
    assert numbers == sorted(set(numbers))
    assert receiver.counters["gaps"] == publisher.sent - len(numbers) > 0
    assert "this subscriber is too slow" in losses(receiver.counters)


def test_a_slow_subscriber_costs_a_fast_one_and_the_publisher_nothing(stack):
    publisher = Publisher(stack, subscribers=2)
    slow, fast = subscribe(stack, publisher), subscribe(stack, publisher)
    publisher.sender.wait_for_receivers()
    for n in range(300):
        publisher.send(1)
        assert fast.recv(30).item[1][0] == n
    assert fast.counters["gaps"] == 0
    catch_up(publisher, slow)
    assert slow.counters["gaps"] == publisher.sent - slow.counters["messages"] > 0


def test_each_publisher_is_counted_on_its_own_to_its_end(send):
    urls = [send((numbered(n) for n in range(length)), how="publish") for length in (3, 6)]
    with LinkReceiver(parse(urls, "receive"), {}) as receiver:
        arrived = []
        with contextlib.suppress(EndOfStream):
            while True:
                arrived.append(int(receiver.recv(30).item[1][0]))
    assert sorted(arrived) == [0, 0, 1, 1, 2, 2, 3, 4, 5]
    assert (receiver.counters["gaps"], receiver.counters["late"], receiver.counters["senders"]) == (0, 0, 2)


def test_mon_shows_gaps_and_the_batches_before_it_came(stack, capsys):
    addresses = queue.SimpleQueue()

    class Sender(threading.Thread):
        def run(self):
            link = parse("zpub://127.0.0.1:0", "send")
            sender = opener_of(link.transport).open_sender(link)
            addresses.put(sender.bound[0].removeprefix("tcp://"))
            wait_until(lambda: sender.peers().live)
            for number in (5, 6, 11):
                sender.send(named("tensorcom").encode(numbered(number), Envelope(sender=b"12345678", number=number)))
            sender.close(10)

    sender = Sender()
    sender.start()
    assert mon.main([f"zsub://{addresses.get()}", "-c", "3"]) == 0
    sender.join()
    totals = capsys.readouterr().out.splitlines()[-1]
    assert totals.startswith(
        "3 batches, 3.0 MB; gaps 4 (sent, but dropped before they arrived: this subscriber is too slow), late 5 (sent before this "
        "subscriber connected)"
    )
