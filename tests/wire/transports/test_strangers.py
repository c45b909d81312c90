"""Connections of programs that do not speak ZeroMQ's protocol: they get nothing, count for nothing, and end nobody."""

import contextlib
import itertools
import queue
import re
import socket
import struct
import threading

import numpy as np
import pytest
import zmq
from waiting import wait_until

from highway import EndOfStream, Pipeline, tenbin
from highway.modules import ZMQSink, ZMQSource
from highway.wire.receiver import LinkReceiver
from highway.wire.sender import LinkSender
from highway.wire.transports.zmq.monitor import Monitor
from highway.wire.url import parse

WORDS = {
    "a scrape": b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    "a hello of TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "a ping of redis": b"*1\r\n$4\r\nPING\r\n",
    "a banner of SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "19 bytes": b"x" * 19,
    "curl": b"GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n",
    "HTTP 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(200),
    "a mail": b"EHLO x\r\n",
    "zeros": bytes(300),
    "ones": b"\xff" * 300,
    "ZMTP 1": b"\x01\x00\x02\x00x" + bytes(20),
    "ZMTP 2": b"\xff\0\0\0\0\0\0\0\1\x7f\1\7\0\0\0\5hello",
    "ZMTP 3 and then anything": b"\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL" + bytes(48) + b"anything" * 100,
    "nothing": b"",
}


@pytest.fixture
def stranger():
    """A function that connects to the address of an end, says words, and stays connected as long as it may."""
    with contextlib.ExitStack() as stack:

        def connect(bound, words):
            host, port = bound.removeprefix("tcp://").rsplit(":", 1)
            connection = stack.enter_context(socket.create_connection((host, int(port))))
            connection.sendall(words)
            if words:
                connection.settimeout(60)
                with contextlib.suppress(ConnectionError):
                    while connection.recv(1 << 16):  # until it is disconnected
                        pass

        yield connect


def items(count):
    return [(np.full((1,), number, np.int32),) for number in range(count)]


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_a_receiver_that_binds_takes_nothing_from_strangers(stranger, own_address, words, caplog):
    got, counters = [], {}
    with LinkReceiver(parse(f"zpull://{own_address}:0?senders=1", "receive"), counters) as receiver:
        stranger(receiver.bound[0], words)
        address = receiver.bound[0].removeprefix("tcp://")
        thread = threading.Thread(target=Pipeline([items(20), ZMQSink(f"zpush://{address}")]).run)
        thread.start()
        with pytest.raises(EndOfStream):
            while True:
                got.append(int(receiver.recv(60).item[0][0]))
        thread.join()
    assert got == list(range(20))
    assert (counters["malformed"], counters.get("strangers", 0)) == (0, bool(words))
    assert caplog.text.count("does not use ZeroMQ's protocol, ZMTP 3") == bool(words)


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_a_sender_that_binds_gives_nothing_to_strangers(stranger, own_address, words):
    with LinkSender(parse(f"zrpush://{own_address}:0", "send")) as sender:
        for _ in range(3):
            stranger(sender.bound[0], words)
        assert sender.transport_end.peers()[:2] == (0, 0)
        with LinkReceiver(parse(f"zrpull://{sender.bound[0].removeprefix('tcp://')}", "receive"), {}) as receiver:
            got = []
            for item in items(20):
                sender.send(item, timeout=60)
                got.append(int(receiver.recv(60).item[0][0]))
            assert got == list(range(20))
            assert sender.transport_end.peers()[:2] == (1, 1)
            wait_until(lambda: sender.strangers == 3 * bool(words))


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_a_publisher_counts_its_subscribers_and_tells_them_the_end_whatever_strangers_say(stranger, own_address, words):
    with LinkSender(parse(f"zpub://{own_address}:0?receivers=1", "send")) as sender:
        address = sender.bound[0].removeprefix("tcp://")
        for _ in range(3):
            stranger(sender.bound[0], words)
        got = []
        subscriber = Pipeline([ZMQSource(f"zsub://{address}")])
        thread = threading.Thread(target=lambda: got.extend(int(item[0][0]) for item in subscriber))
        thread.start()
        sender.wait_for_receivers()
        stranger(sender.bound[0], words)
        assert sender.transport_end.peers()[:2] == (1, 1)
        for item in items(20):
            sender.send(item, timeout=60)
        sender.finish()
        thread.join(60)
        assert got == list(range(20))


def test_a_sender_that_connects_to_another_service_gives_it_nothing_and_says_so(own_address, caplog):
    with socket.create_server((own_address, 0)) as server:

        def greet():
            with contextlib.suppress(OSError), contextlib.ExitStack() as stack:  # until the server is shut down
                while True:
                    stack.enter_context(server.accept()[0]).sendall(WORDS["a banner of SSH"])

        thread = threading.Thread(target=greet)
        thread.start()
        with LinkSender(parse(f"zpush://{own_address}:{server.getsockname()[1]}?linger_ms=0", "send")) as sender:
            wait_until(lambda: sender.strangers)
            assert sender.transport_end.peers()[:2] == (0, 0)
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert re.search(r"a program that connected to tcp://\S+ does not use ZeroMQ's protocol", caplog.text)


@pytest.mark.parametrize("probes", [1, 20])
def test_a_probe_that_connects_and_goes_is_not_taken_for_a_peer_nor_a_peer_for_it(ipc, opened, probes):
    place = ipc()
    sender = opened(f"zrpush+ipc://{place}")
    with contextlib.ExitStack() as stack:
        receiver = opened(f"zrpull+ipc://{place}")
        for _ in range(probes):
            probe = stack.enter_context(socket.socket(socket.AF_UNIX))
            probe.connect(place)
        other = opened(f"zrpull+ipc://{place}")
        wait_until(lambda: sender.peers().seen == 2 and sender.peers().opened == 2 + probes)
    wait_until(lambda: sender.peers() == (2, 2, 2, 0))  # all are told of, and the probes are gone
    receiver.close(0)
    other.close(0)
    wait_until(lambda: sender.peers() == (0, 2, 2, 0))


def test_a_receiver_over_a_unix_socket_is_not_mistaken_for_a_silent_connection_when_it_leaves(tmp_path):
    with (
        LinkSender(parse(f"zrpush+ipc://{tmp_path}/s", "send")) as sender,
        socket.socket(socket.AF_UNIX) as silent,
        socket.socket(socket.AF_UNIX) as receiver,
    ):
        peers = sender.transport_end.peers
        receiver.connect(f"{tmp_path}/s")
        wait_until(lambda: peers().opened == 1)
        silent.connect(f"{tmp_path}/s")
        wait_until(lambda: peers().opened == 2)
        ready = b"\5READY\x0bSocket-Type\0\0\0\4PULL"
        receiver.sendall(b"\xff" + bytes(8) + b"\x7f\3\0NULL" + bytes(48) + bytes([4, len(ready)]) + ready)
        wait_until(lambda: peers().live == 1)
        receiver.close()
        wait_until(lambda: peers().live == 0)
        silent.close()
        wait_until(lambda: peers().opened == 1)
        assert peers() == (0, 1, 1, 0)


@pytest.mark.parametrize("kind", ["pub", "push"])
@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_receivers_of_other_programs_are_counted_and_told_the_end_while_strangers_speak(stock, ipc, own_address, transport, kind):
    place = f"{own_address}:0" if transport == "tcp" else ipc()
    with LinkSender(parse(f"z{'r' * (kind == 'push')}{kind}+{transport}://{place}?receivers=3&linger_ms=10000", "send")) as sender:
        location = sender.bound[0].removeprefix(f"{transport}://")

        def speak(words):
            for _ in range(5):
                with socket.socket(socket.AF_INET if transport == "tcp" else socket.AF_UNIX) as connection, contextlib.suppress(OSError):
                    connection.connect((own_address, int(location.rpartition(":")[2])) if transport == "tcp" else location)
                    connection.sendall(words)
                    connection.settimeout(60)
                    while words and connection.recv(1 << 16):
                        pass

        def receive():
            receiver = stock(zmq.SUB if kind == "pub" else zmq.PULL, rcvtimeo=60_000)
            if kind == "pub":
                receiver.subscribe(b"")
            receiver.connect(sender.bound[0])
            while tenbin.decode_list(receiver.recv_multipart())[0].size:
                pass
            # If a receiver closes while a message is sent to another one, libzmq 4.3.5 can send the rest of the message to a third one.
            told.wait(60)
            receiver.close()

        told = threading.Barrier(3)
        receivers = [threading.Thread(target=receive) for _ in range(3)]
        threads = [*receivers, *(threading.Thread(target=speak, args=[words]) for words in WORDS.values())]
        for thread in threads:
            thread.start()
        assert sender.wait_for_receivers()
        for thread in threads[3:]:
            thread.join()
        assert sender.transport_end.peers()[:2] == (3, 3)
        for item in items(30):
            sender.send(item, timeout=60)
        sender.finish()
        for thread in receivers:
            thread.join()
        wait_until(lambda: sender.transport_end.peers()[:3] == (0, 3, 3))


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_a_publisher_that_connects_tells_its_subscriber_the_end_beside_a_stranger(own_address, words):
    with socket.create_server((own_address, 0)) as server, LinkReceiver(parse(f"zrsub://{own_address}:0", "receive"), {}) as receiver:
        address = receiver.bound[0].removeprefix("tcp://")
        strangers = f"{own_address}:{server.getsockname()[1]}"
        sender = Pipeline([items(20), ZMQSink([f"zrpub://{address}", f"zrpub://{strangers}"], receivers=1)])

        def answer():
            with contextlib.suppress(OSError), contextlib.ExitStack() as stack:  # until the server is shut down
                while True:
                    stack.enter_context(server.accept()[0]).sendall(words)

        threads = [threading.Thread(target=answer), threading.Thread(target=sender.run)]
        for thread in threads:
            thread.start()
        got = []
        with pytest.raises(EndOfStream):
            while True:
                got.append(int(receiver.recv(60).item[0][0]))
        receiver.close()
        threads[1].join()
        server.shutdown(socket.SHUT_RDWR)
        threads[0].join()
    assert got == list(range(20))


GREETING = b"\xff" + bytes(8) + b"\x7f\3\0NULL" + bytes(48)  # of ZMTP 3
ERROR = b"\5ERROR\xc8" + bytes(200)  # with a reason that ZeroMQ does not know, so that it does not report that the handshake has failed
STALLED = b"\6" + len(ERROR).to_bytes(8) + ERROR[:-1]  # more than a peer says in its handshake
REST = {"an unknown error": ERROR[-1:], "another word": bytes(1000), "nothing": b""}


class Handshake(contextlib.ExitStack):
    """A connection to a sender whose handshake is done in steps."""

    def __init__(self, place, greeting, rest):
        super().__init__()
        self._words = {1: greeting, 2: rest}
        self._place, self._step = place, 0

    def step(self):
        """Connect, greet, or say the rest, and wait until ZeroMQ has noticed it, where it answers."""
        if self._step == 0:
            self._socket = self.enter_context(socket.socket(socket.AF_INET if isinstance(self._place, tuple) else socket.AF_UNIX))
            self._socket.settimeout(60)
            self._socket.connect(self._place)
            self.read(10)
        else:
            self._socket.sendall(self._words[self._step])
            if self._step == 1:
                self.read(len(GREETING) - 10)
                self.read_frame()  # of the sender's handshake: until it has said this, it takes in no more than one command
        self._step += 1

    def read(self, count):
        read = b""
        while len(read) < count:
            read += (part := self._socket.recv(count - len(read)))
            assert part, "the connection was closed"
        return read

    def wait_until_closed(self):
        with contextlib.suppress(ConnectionError):
            while self._socket.recv(1 << 16):
                pass

    def read_frame(self):
        """Read a frame, and return its flags."""
        flags = self.read(1)[0]
        self.read(int.from_bytes(self.read(8 if flags & 2 else 1)))
        return flags

    def read_messages(self, count):
        """Read so many messages, and leave."""
        while count:
            count -= not self.read_frame() & 1  # it is not followed by another frame of its message
        self.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pub", "push"])
@pytest.mark.parametrize("transport", ["tcp", "ipc"])
@pytest.mark.parametrize("looks", [True, False], ids=["looked at after each step", "looked at afterwards"])
@pytest.mark.parametrize("rest", REST.values(), ids=REST)
def test_a_receiver_is_counted_and_told_the_end_in_whatever_order_a_stranger_speaks(ipc, own_address, rest, looks, transport, kind):
    LinkReceiver(parse(f"zpull://{own_address}:0?peers=highway", "receive"), {}).close()  # from now on ZeroMQ asks highway about each peer
    for order in sorted(set(itertools.permutations("rrrsss"))):
        url = f"z{'r' * (kind == 'push')}{kind}+{transport}://{f'{own_address}:0' if transport == 'tcp' else ipc()}?linger_ms=60000"
        with LinkSender(parse(url, "send")) as sender:
            check_a_receiver_beside_a_stranger(sender, kind, order, rest, looks)


def check_a_receiver_beside_a_stranger(sender, kind, order, rest, looks):
    peers, (transport, _, location) = sender.transport_end.peers, sender.bound[0].partition("://")
    host, _, port = location.partition(":")
    place = (host, int(port)) if transport == "tcp" else location
    ready = b"\5READY\x0bSocket-Type\0\0\0" + (b"\3SUB" if kind == "pub" else b"\4PULL")
    subscription = b"\0\1\1" if kind == "pub" else b""
    receiver = Handshake(place, GREETING, bytes([4, len(ready)]) + ready + subscription)
    stranger = Handshake(place, GREETING + STALLED, rest)
    with receiver, stranger:
        for party in order:
            {"r": receiver, "s": stranger}[party].step()
            if looks:
                peers()
        if rest:
            stranger.wait_until_closed()
        stranger.close()
        wait_until(lambda: peers()[:3] == (1, 1, 1))
        sender.send(items(1)[0])
        thread = threading.Thread(target=receiver.read_messages, args=[2])
        thread.start()
        sender.finish()
        thread.join()
        wait_until(lambda: peers()[:3] == (0, 1, 1))


class PlayedSocket:
    """A socket whose connections are reported in the order of the test."""

    FD = -1

    def __init__(self, context):
        self.context = context

    def monitor(self, address, events):
        self.events = self.context.socket(zmq.PAIR)
        self.events.bind(address)

    def disable_monitor(self):
        self.events.close(0)


class PlayedConnections(contextlib.ExitStack):
    """Connections over which handshakes have gone, and a monitor that is told of them in the order of the test."""

    def __init__(self, own_address):
        super().__init__()
        self._endpoint = f"tcp://{own_address}:1".encode()
        self._played = PlayedSocket(self.enter_context(zmq.Context()))
        self._server = self.enter_context(socket.create_server((own_address, 0)))
        self.monitor = Monitor(self._played, parse("zrpush://127.0.0.1:0", "send"))
        self.callback(self.monitor.close)

    def greet(self):
        """Return a connection over which a handshake has gone."""
        client = self.enter_context(socket.create_connection(self._server.getsockname()))
        connection = self.enter_context(self._server.accept()[0])
        client.sendall(bytes(100))
        connection.sendall(bytes(100))
        for end in (client, connection):
            assert len(end.recv(100, socket.MSG_WAITALL)) == 100
        return connection

    def report(self, event, connection=None):
        self._played.events.send_multipart([struct.pack("=Hi", event, connection.fileno() if connection else 0), self._endpoint])

    def expect(self, *counts):
        wait_until(lambda: self.monitor.peers()[: len(counts)] == counts)


@pytest.mark.parametrize("when", ["before it has gone", "after it has gone", "nobody was counted"])
def test_a_receiver_whose_connection_is_reported_after_its_handshake_takes_the_place_of_a_stranger(own_address, when):
    with PlayedConnections(own_address) as played:
        stranger, receiver = played.greet(), played.greet()
        if when != "nobody was counted":
            played.report(zmq.Event.ACCEPTED, stranger)
        played.report(zmq.Event.HANDSHAKE_SUCCEEDED)  # of the receiver: the thread that accepted it has not reported it yet
        if when != "after it has gone":
            played.report(zmq.Event.ACCEPTED, receiver)
        played.expect(1, 1)
        if when == "nobody was counted":
            played.report(zmq.Event.ACCEPTED, stranger)
        played.report(zmq.Event.DISCONNECTED, stranger)
        if when == "after it has gone":
            played.expect(0, 1, 1)
            played.report(zmq.Event.ACCEPTED, receiver)
        played.expect(1, 1, 1)
        played.report(zmq.Event.DISCONNECTED, receiver)
        played.expect(0, 1, 1)
        silent = played.enter_context(socket.socket())
        played.report(zmq.Event.ACCEPTED, silent)  # a stranger that has said nothing takes no place
        played.expect(0, 1, 2)
        played.report(zmq.Event.DISCONNECTED, silent)
        played.expect(0, 1, 1)


def test_a_receiver_takes_the_place_of_a_stranger_that_has_gone_although_another_receiver_is_connected(own_address):
    with PlayedConnections(own_address) as played:
        stranger, late, other = played.greet(), played.greet(), played.greet()
        played.report(zmq.Event.ACCEPTED, stranger)
        played.report(zmq.Event.HANDSHAKE_SUCCEEDED)  # of the late one, whose connection has not been reported yet
        played.report(zmq.Event.ACCEPTED, other)
        played.report(zmq.Event.HANDSHAKE_SUCCEEDED)
        played.expect(2, 2)
        played.report(zmq.Event.DISCONNECTED, stranger)
        played.expect(1, 2)
        played.report(zmq.Event.ACCEPTED, late)
        played.expect(2, 2, 2)
        for number, receiver in enumerate((late, other), start=1):
            played.report(zmq.Event.DISCONNECTED, receiver)
            played.expect(2 - number, 2, 2)


def test_a_receiver_is_counted_if_another_one_was_taken_for_it_in_the_place_of_a_stranger(own_address):
    with PlayedConnections(own_address) as played:
        other, stranger, late = played.greet(), played.greet(), played.greet()
        played.report(zmq.Event.ACCEPTED, other)
        played.report(zmq.Event.ACCEPTED, stranger)
        played.report(zmq.Event.HANDSHAKE_SUCCEEDED)
        played.report(zmq.Event.HANDSHAKE_SUCCEEDED)  # of the late one, whose connection has not been reported yet
        played.report(zmq.Event.ACCEPTED, late)
        played.expect(2, 2, 3)
        played.report(zmq.Event.DISCONNECTED, stranger)
        played.expect(2, 2, 2)
        played.report(zmq.Event.DISCONNECTED, other)
        played.expect(1, 2, 2)
        played.report(zmq.Event.DISCONNECTED, late)
        played.expect(0, 2, 2)


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("place", range(3))
def test_a_receiver_beside_two_strangers_is_counted_again_when_both_have_gone(own_address, place, fails):
    with PlayedConnections(own_address) as played:
        parties = [played.greet() for _ in range(3)]
        receiver = parties[place]
        for party in parties:
            played.report(zmq.Event.ACCEPTED, party)
        played.report(zmq.Event.HANDSHAKE_SUCCEEDED)  # of the receiver
        played.expect(1, 1, 3)
        for number, party in enumerate(reversed(parties)):
            if party is not receiver:
                if fails and number:
                    played.report(zmq.Event.HANDSHAKE_FAILED_PROTOCOL)
                played.report(zmq.Event.DISCONNECTED, party)
            played.expect(1, 1)
        played.expect(1, 1, 1)
        played.report(zmq.Event.DISCONNECTED, receiver)
        played.expect(0, 1, 1)


@pytest.fixture
def stock():
    """A function that opens a socket of ZeroMQ that is not highway's."""
    with zmq.Context() as context, contextlib.ExitStack() as stack:

        def open_socket(kind, **options):
            opened = stack.enter_context(context.socket(kind))
            opened.linger = 0
            for name, value in options.items():
                setattr(opened, name, value)
            return opened

        yield open_socket


KINDS = {"pull": zmq.PULL, "push": zmq.PUSH, "sub": zmq.SUB, "dealer": zmq.DEALER, "router": zmq.ROUTER, "req": zmq.REQ, "pair": zmq.PAIR}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_a_link_between_highways_takes_nothing_from_other_programs_with_zeromq_and_gives_them_nothing(
    stock, own_address, tmp_path, transport, kind, caplog
):
    place = f"{own_address}:0" if transport == "tcp" else f"{tmp_path}/s"
    got = []
    with LinkSender(parse(f"zrpush+{transport}://{place}?peers=highway", "send")) as sender:
        stranger = stock(KINDS[kind])
        stranger.connect(sender.bound[0])
        wait_until(lambda: sender.strangers)
        url = f"zrpull+{sender.bound[0]}?peers=highway"
        with LinkReceiver(parse(url, "receive"), {}) as receiver:
            for item in items(20):
                sender.send(item, timeout=60)
                got.append(int(receiver.recv(60).item[0][0]))
            assert sender.transport_end.peers()[:2] == (1, 1)
    assert got == list(range(20))
    assert caplog.text.count("does not identify itself as highway") == 1


@pytest.mark.parametrize("announced", [None, (b"admin", b"1"), (b"highway", b"0")])
def test_a_sender_that_is_not_highway_ends_nobody_and_holds_up_nobody(stock, own_address, announced):
    got, counters = [], {}
    with LinkReceiver(parse(f"zpull://{own_address}:0?peers=highway", "receive"), counters) as receiver:
        stranger = stock(zmq.PUSH, **(dict(zip(("plain_username", "plain_password"), announced, strict=True)) if announced else {}))
        stranger.connect(receiver.bound[0])
        with contextlib.suppress(zmq.Again):
            stranger.send(b"anything", zmq.NOBLOCK)
        wait_until(lambda: receiver.transport_end.peers().strangers)
        address = receiver.bound[0].removeprefix("tcp://")
        thread = threading.Thread(target=Pipeline([items(20), ZMQSink(f"zpush://{address}", peers="highway")]).run)
        thread.start()
        with pytest.raises(EndOfStream):
            while True:
                got.append(int(receiver.recv(60).item[0][0]))
        thread.join()
    assert got == list(range(20))
    assert counters["malformed"] == 0 and counters["strangers"] >= 1


def test_an_end_that_connects_to_a_program_that_is_not_highway_gives_it_nothing(stock, own_address):
    other = stock(zmq.PULL)
    port = other.bind_to_random_port(f"tcp://{own_address}")
    with LinkSender(parse(f"zpush://{own_address}:{port}?peers=highway&linger_ms=0", "send")) as sender:
        wait_until(lambda: sender.strangers)
        assert sender.transport_end.peers()[:2] == (0, 0)
    assert not other.poll(0)


@pytest.mark.parametrize("words", [WORDS["a banner of SSH"], WORDS["ZMTP 3 and then anything"]])
def test_an_end_that_met_a_stranger_at_its_address_connects_when_highway_is_there(own_address, words):
    with socket.create_server((own_address, 0)) as server:
        place = f"{own_address}:{server.getsockname()[1]}"
        sender = LinkSender(parse(f"zpush://{place}?peers=highway&receivers=1", "send"))
        server.settimeout(60)
        met = 0
        while not met:
            with server.accept()[0] as connection:
                connection.sendall(words)
                met = wait_until(lambda: sender.strangers)
    with sender, LinkReceiver(parse(f"zpull://{place}?peers=highway", "receive"), {}) as receiver:
        wait_until(lambda: sender.transport_end.peers().live)
        sender.send(items(1)[0])
        assert int(receiver.recv(60).item[0][0]) == 0


def test_publishers_count_only_subscribers_that_are_highway_if_they_are_told_to(stock, own_address):
    with LinkSender(parse(f"zpub://{own_address}:0?receivers=1&peers=highway", "send")) as sender:
        stranger = stock(zmq.SUB)
        stranger.subscribe(b"")
        stranger.connect(sender.bound[0])
        wait_until(lambda: sender.strangers)
        assert sender.transport_end.peers()[:2] == (0, 0)
        with LinkReceiver(parse(f"zsub+{sender.bound[0]}?peers=highway", "receive"), {}) as receiver:
            assert sender.wait_for_receivers()
            sender.send(items(1)[0])
            assert int(receiver.recv(60).item[0][0]) == 0
            assert sender.transport_end.peers()[:2] == (1, 1)


def test_links_to_any_peer_stay_open_beside_those_of_highways_alone(stock, own_address):
    with (
        LinkReceiver(parse(f"zpull://{own_address}:0?peers=highway", "receive"), {}),
        LinkReceiver(parse(f"zpull://{own_address}:0", "receive"), {}) as receiver,
    ):
        other = stock(zmq.PUSH)
        other.connect(receiver.bound[0])
        other.send_multipart(tenbin.encode_list([np.arange(3, dtype=np.int32)]))
        assert receiver.recv(60).item[0].tolist() == [0, 1, 2]


@pytest.fixture
def received():
    """A function that returns a queue of the numbers that a receiver takes, on a thread of its own."""
    with contextlib.ExitStack() as stack:

        def start(link):
            numbers, counters = queue.SimpleQueue(), {}
            stop = threading.Event()

            def receive():
                with LinkReceiver(link, counters) as receiver:
                    while not stop.is_set():
                        with contextlib.suppress(TimeoutError):
                            numbers.put(int(receiver.recv(0.05).item[0][0]))

            thread = threading.Thread(target=receive)
            thread.start()
            stack.callback(thread.join)
            stack.callback(stop.set)
            return numbers

        yield start


@pytest.mark.parametrize("theirs", ["any", "highway"])
def test_a_receiver_that_connects_reaches_senders_that_want_an_announcement_and_others(received, own_address, tmp_path, theirs, caplog):
    with contextlib.ExitStack() as stack:
        urls = [f"zrpush://{own_address}:0", f"zrpush+ipc://{tmp_path}/s"]
        senders = [stack.enter_context(LinkSender(parse(f"{url}?peers={theirs}", "send"))) for url in urls]
        numbers = received(parse([f"zrpull+{sender.bound[0]}" for sender in senders], "receive"))
        for number, sender in enumerate(senders):
            sender.send(items(2)[number], timeout=60)
            assert numbers.get(timeout=60) == number
    assert not [record.message for record in caplog.records if record.message.startswith("zrpull")]


@pytest.mark.parametrize("theirs", ["any", "highway"])
def test_a_sender_that_connects_reaches_a_receiver_that_wants_an_announcement_and_others(own_address, theirs, caplog):
    with (
        LinkReceiver(parse(f"zpull://{own_address}:0?peers={theirs}", "receive"), counters := {}) as receiver,
        LinkSender(parse(f"zpush+{receiver.bound[0]}?receivers=1", "send")) as sender,
    ):
        assert sender.wait_for_receivers()
        sender.send(items(1)[0])
        assert int(receiver.recv(60).item[0][0]) == 0
    assert "sender" not in caplog.text and counters["malformed"] == 0


def test_a_receiver_finds_a_sender_that_was_started_again_and_wants_no_announcement_any_more(received, tmp_path):
    url = f"ipc://{tmp_path}/s"
    numbers = received(parse(f"zrpull+{url}", "receive"))
    for number, peers in enumerate(("any", "highway", "any")):
        with LinkSender(parse(f"zrpush+{url}?peers={peers}", "send")) as sender:
            sender.send(items(3)[number], timeout=60)
            assert numbers.get(timeout=60) == number


@pytest.mark.slow
def test_a_receiver_loses_none_of_many_senders_that_want_an_announcement_by_turns(received, tmp_path):
    urls = [f"ipc://{tmp_path}/{number}" for number in range(12)]
    numbers = received(parse([f"zrpull+{url}" for url in urls], "receive"))
    for peers in ("highway", "any") * 4:
        with contextlib.ExitStack() as stack:
            senders = [stack.enter_context(LinkSender(parse(f"zrpush+{url}?peers={peers}", "send"))) for url in urls]
            for number, sender in enumerate(senders):
                sender.send(items(12)[number], timeout=20)
            assert sorted(numbers.get(timeout=60) for _ in senders) == list(range(12))
