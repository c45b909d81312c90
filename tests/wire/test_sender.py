"""The end of a link that sends: how it tells the end of a stream."""

import ctypes
import socket
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zmq
from waiting import wait_until

from highway import EndOfStream, LinkError
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


@pytest.mark.slow
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


KILLED = """
import sys
from highway.wire.receiver import LinkReceiver
from highway.wire.url import parse
with LinkReceiver(parse(sys.argv[1], "receive"), {}) as receiver:
    while not receiver.transport_end.peers().live:
        pass
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [70, 1000])
@pytest.mark.parametrize("binds", [True, False], ids=["the sender binds", "the receivers bind"])
def test_shared_memory_of_a_receiver_that_is_killed_does_not_hold_up_the_end_of_the_stream(popen, binds, kilobytes):
    names = [uuid.uuid4().hex for _ in range(1 if binds else 2)]
    message, url = (np.zeros(kilobytes * 1000, np.uint8),), f"{'zrpull' if binds else 'zpull'}+shm://"
    link = parse([f"{'zrpush' if binds else 'zpush'}+shm://{name}?budget_mb=4" for name in names], "send")
    begin = threading.Event()
    with LinkSender(link) as sender, ThreadPoolExecutor() as pool:
        silent = popen([sys.executable, "-c", KILLED, f"{url}{names[0]}"], stdin=subprocess.PIPE)
        ends = pool.submit(read_shared_memory, f"{url}{names[-1]}", begin)
        peers = sender.transport_end.peers
        wait_until(lambda: peers().live == 2)
        with pytest.raises(TimeoutError):
            while True:
                sender.send(message, timeout=0.5)
        silent.kill()
        begin.set()
        wait_until(lambda: peers().live == 1)
        sender.finish()
        assert ends.result(60) > 0


def read_shared_memory(url, begin):
    """Connect, and return how many messages there are until the end of the stream."""
    with LinkReceiver(parse(url, "receive"), counters := {}) as receiver:
        wait_until(lambda: receiver.transport_end.peers().live)
        assert begin.wait(60)
        with pytest.raises(EndOfStream):
            while True:
                receiver.recv(60)
    return counters["messages"]


def read_to_the_end(receiver):
    """Read messages until the end of the stream, and close."""
    receiver.rcvtimeo = 60_000
    with receiver:
        while tenbin.decode_list(receiver.recv_multipart())[0].size:
            pass


@pytest.mark.parametrize("binds", [True, False], ids=["the sender binds", "the receiver binds"])
@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_a_sender_whose_last_receiver_was_cut_off_does_not_end_as_if_all_had_arrived(places, transport, binds):
    (address,) = places(transport, 1)
    link = parse(f"{'zrpush' if binds else 'zpush'}+{address}?linger_ms=100", "send")
    with zmq.Context() as context, LinkSender(link, hears_leave=True) as sender:
        receiver = context.socket(zmq.PULL)
        receiver.linger = 0
        (receiver.connect if binds else receiver.bind)(address)
        for _ in range(20):
            sender.send((np.zeros(100, np.uint8),), timeout=60)
        wait_until(lambda: sender.transport_end.peers().live == 1)
        receiver.close()
        wait_until(lambda: sender.transport_end.peers().live == 0)
        with pytest.raises(LinkError, match="some of 20 messages may be lost: the last receiver disconnected"):
            sender.finish()


def test_a_sender_whose_last_receiver_was_cut_off_tells_the_end_to_one_that_comes_in_time(places):
    (address,) = places("tcp", 1)
    with LinkSender(parse(f"zrpush+{address}?linger_ms=60000", "send"), hears_leave=True) as sender, ThreadPoolExecutor() as pool:
        with LinkReceiver(parse(f"zrpull+{address}", "receive"), {}) as receiver:
            sender.send((np.zeros(100, np.uint8),), timeout=60)
            receiver.recv(60)
        wait_until(lambda: sender.transport_end.peers().live == 0)
        finished = pool.submit(sender.finish)
        with LinkReceiver(parse(f"zrpull+{address}", "receive"), {}) as receiver, pytest.raises(EndOfStream):
            receiver.recv(60)
        finished.result(60)


def in_use():
    """Return the bytes that this process has allocated."""
    fields = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]
    info = type("mallinfo2", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_size_t) for name in fields]})
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = info
    return ask().uordblks


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33")
@pytest.mark.parametrize("scheme", ["zpub", "zrpush"])
def test_a_sender_that_sends_nothing_keeps_no_memory_for_receivers_that_are_gone(own_address, scheme):
    kind = b"SUB" if scheme == "zpub" else b"PULL"
    ready = b"\5READY\x0bSocket-Type" + len(kind).to_bytes(4) + kind
    greeting = b"\xff" + bytes(8) + b"\x7f\3\0NULL" + bytes(48) + bytes([4, len(ready)]) + ready
    with LinkSender(parse(f"{scheme}://{own_address}:0", "send")) as sender:
        host, port = sender.bound[0].removeprefix("tcp://").split(":")
        before = in_use()
        for _ in range(400):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(greeting)
                assert connection.recv(1)  # it has been taken in
        wait_until(lambda: in_use() - before < 1 << 20)
