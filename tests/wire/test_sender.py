"""The end of a link that sends: how it tells the end of a stream."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zmq
from waiting import wait_until

from highway import EndOfStream
from highway.wire import tenbin
from highway.wire.receiver import LinkReceiver
from highway.wire.sender import LinkSender
from highway.wire.transports import zmq as transport
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

    monkeypatch.setattr(transport, "open_sender", TellingSender)
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


@pytest.fixture
def places(ipc, own_address):
    """A function that returns unused locations of a transport."""

    def place(transport):
        if transport == "ipc":
            return f"ipc://{ipc()}"
        with socket.socket() as probe:
            probe.bind((own_address, 0))
            return f"tcp://{own_address}:{probe.getsockname()[1]}"

    return lambda transport, count: [place(transport) for _ in range(count)]


@pytest.mark.parametrize("kilobytes", [70, 1000])
@pytest.mark.parametrize("binds", [True, False], ids=["the sender binds", "the receivers bind"])
@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_messages_for_a_receiver_that_is_gone_do_not_hold_up_the_end_of_the_stream(places, transport, binds, kilobytes):
    addresses = places(transport, 1 if binds else 2)
    message, options = (np.zeros(kilobytes * 1000, np.uint8),), "?budget_mb=4"
    link = parse([f"{'zrpush' if binds else 'zpush'}+{address}{options}" for address in addresses], "send")
    with zmq.Context() as context, LinkSender(link) as sender, ThreadPoolExecutor() as pool:
        silent, reader = context.socket(zmq.PULL), context.socket(zmq.PULL)
        for receiver, address in zip((silent, reader), addresses * 2, strict=False):
            receiver.rcvhwm, receiver.linger = 1, 0
            (receiver.connect if binds else receiver.bind)(address)
        peers = sender.transport_end.peers
        wait_until(lambda: peers().live == 2)
        with pytest.raises(TimeoutError):
            while True:
                sender.send(message, timeout=0.5)
        silent.close()
        wait_until(lambda: peers().live == 1)
        ends = pool.submit(read_to_the_end, reader)
        wait_until(lambda: not sender.transport_end.unsent())  # with no further message, it would wait for ever
        sender.finish()
        ends.result(60)


def read_to_the_end(receiver):
    """Read messages until the end of the stream, and close."""
    receiver.rcvtimeo = 60_000
    with receiver:
        while tenbin.decode_list(receiver.recv_multipart())[0].size:
            pass
