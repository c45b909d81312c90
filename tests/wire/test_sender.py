"""The end of a link that sends: how it tells the end of a stream."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from highway import EndOfStream
from highway.wire.receiver import LinkReceiver
from highway.wire.sender import LinkSender
from highway.wire.transports import zmq
from highway.wire.transports.zmq.socket import ZMQSender
from highway.wire.url import parse


@pytest.mark.parametrize(("publish", "subscribe"), [("zpub", "zsub"), ("zrpub", "zrsub")])
def test_a_publisher_tells_its_end_again_to_a_subscriber_that_was_behind(publish, subscribe, monkeypatch):
    told, has_read = threading.Event(), threading.Event()

    class TellingSender(ZMQSender):
        def send_to_each(self, *arguments):
            super().send_to_each(*arguments)
            told.set()
            has_read.wait(60)

    monkeypatch.setattr(zmq, "open_sender", TellingSender)
    place = f"+inproc://behind-{publish}?budget_mb=8"
    with ThreadPoolExecutor() as pool, LinkSender(parse(f"{publish}{place}&linger_ms=1000&receivers=1", "send")) as sender:
        with LinkReceiver(parse(subscribe + place, "receive"), {}) as receiver:
            sender.wait_for_receivers()
            for _ in range(20):
                sender.send((np.zeros(1, np.uint8),))
            finished = pool.submit(sender.finish)
            assert told.wait(60)
            assert [receiver.recv(60).envelope.number for _ in range(4)] == [0, 1, 2, 3]
            has_read.set()
            with pytest.raises(EndOfStream):  # there was no room for more, nor for the first end
                receiver.recv(60)
        finished.result(60)
