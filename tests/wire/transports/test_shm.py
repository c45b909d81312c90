"""Same-host links: what arrives, who waits, who gets what, and what is left when somebody dies."""

import contextlib
import gc
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import uuid

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from same_host import HELLO, MB, RECEIVES, SENDS, call, calling, hang_up, hello, listening, look_until, meet

from highway.engine.context import Context, enter
from highway.errors import Cancelled, ConfigError, LinkError
from highway.wire.transports.shm import ShmReceiver, ShmSender


@pytest.fixture(autouse=True)
def in_c_and_in_python(calls):
    """Each test runs twice."""


@contextlib.contextmanager
def pair(name, budget_mb=16.0):
    """A sender that calls and a receiver that listens, connected."""
    with listening(ShmReceiver("receiver"), name) as receiver, calling(ShmSender("sender", budget_mb), name) as sender:
        meet(sender, receiver)
        yield sender, receiver


@pytest.fixture
def sender_of_two(name):
    """A sender that listens, and two receivers that are connected to it."""
    with listening(ShmSender("s"), name) as sender, calling(ShmReceiver("a"), name) as a, calling(ShmReceiver("b"), name) as b:
        meet(sender, a, b, peers=(2, 1, 1))
        yield sender, a, b


def numbers(frames):
    return int(np.frombuffer(frames[0], np.int64)[0])


def message(number, nbytes=8):
    data = np.zeros(max(1, nbytes // 8), np.int64)
    data[0] = number
    return [data]


@contextlib.contextmanager
def running(code, *args):
    """A script in a process of its own, which says 'ready' on its own account."""
    imports = "import os, sys, time\nimport numpy as np\nfrom highway.wire.transports.shm import ShmReceiver, ShmSender\n"
    preamble = f"{imports}name = sys.argv[1]\n"
    process = subprocess.Popen([sys.executable, "-c", preamble + code, *args], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def is_bound(name):
    with open("/proc/net/unix", errors="replace") as table:
        return any(line.rstrip().endswith(name) for line in table)


SEND_NUMBERS = """
sender = ShmSender("child")
sender.connections.connect(name)
for number in range(int(sys.argv[2])):
    sender.send([np.full(int(sys.argv[3]), number, np.int64)])
print("ready", flush=True)
sys.stdin.readline()
"""

HOLD_FIRST = """
receiver = ShmReceiver("child")
receiver.connections.connect(name)
held = receiver.recv()
print("ready", flush=True)
sys.stdin.readline()
"""


# --- what arrives ---


def test_a_message_arrives_in_another_process_as_it_was_sent(name):
    with listening(ShmReceiver("r"), name) as receiver, running(SEND_NUMBERS, name, "5", "100000"):
        for number in range(5):
            (frame,) = receiver.recv(timeout=60)
            assert np.array_equal(np.frombuffer(frame, np.int64), np.full(100_000, number))
            del frame


@settings(max_examples=60, deadline=None)
@given(frames=st.lists(st.binary(max_size=5000), max_size=9))
def test_any_frames_arrive_whole_and_in_order(frames):
    with pair(f"test/{uuid.uuid4().hex}") as (sender, receiver):
        sender.send(frames)
        assert [bytes(frame) for frame in receiver.recv(timeout=60)] == frames


def test_frames_are_read_only_and_aligned_to_64_bytes(name):
    with pair(name) as (sender, receiver):
        sender.send([b"x" * 48, np.arange(1000), b"y", np.float32(3)])
        arrays = [np.frombuffer(frame, np.uint8) for frame in receiver.recv(timeout=60)]
        assert [array.nbytes for array in arrays] == [48, 8000, 1, 4]
        for array in arrays:
            assert array.ctypes.data % 64 == 0
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.flags.writeable = True


def test_what_is_sent_may_be_changed_afterwards(name):
    data = np.ones(10_000, np.uint8)
    with pair(name) as (sender, receiver):
        sender.send([data])
        data[:] = 2
        assert bytes(receiver.recv(timeout=60)[0]) == b"\1" * 10_000


# --- slots ---


def test_a_slot_is_not_used_again_while_any_view_of_it_lives(name):
    with pair(name) as (sender, receiver):
        sender.send(message(1, 80_000))
        view = np.frombuffer(receiver.recv(timeout=60)[0], np.int64).reshape(100, 100)[:50].T  # the frame itself is forgotten
        for number in range(2, 40):
            sender.send(message(number, 80_000))
            assert numbers(receiver.recv(timeout=60)) == number
        assert view[0, 0] == 1


def test_a_slot_is_used_again_when_its_views_are_gone(name):
    with pair(name) as (sender, receiver):
        addresses = set()
        for number in range(20):
            sender.send(message(number, 80_000))
            addresses.add(np.frombuffer(receiver.recv(timeout=60)[0], np.uint8).ctypes.data)
        assert len(addresses) == 1


def test_a_slot_comes_back_from_another_thread_while_the_receiver_does_nothing(name):
    with pair(name, budget_mb=2.0) as (sender, receiver):
        frames = [None]
        sender.send(message(1, MB))
        frames[0] = receiver.recv(timeout=60)
        thread = threading.Thread(target=frames.clear)
        thread.start()
        thread.join()
        sender.send(message(2, MB), timeout=60)
        sender.send(message(3, MB), timeout=60)  # with the first one still away there would be no room


def test_a_sender_waits_while_all_of_its_memory_is_in_use(name):
    with pair(name, budget_mb=4.0) as (sender, receiver):
        with pytest.raises(TimeoutError, match="receivers still use all memory"):
            for number in range(100):
                sender.send(message(number, MB), timeout=0.02)
        sent = number
        assert 2 <= sent <= 4
        assert numbers(receiver.recv(timeout=60)) == 0
        sender.send(message(sent, MB), timeout=60)
        assert [numbers(receiver.recv(timeout=60)) for _ in range(sent)] == list(range(1, sent + 1))


def test_who_keeps_everything_does_not_stop_the_sender(name):
    with pair(name, budget_mb=4.0) as (sender, receiver):
        kept = []
        for number in range(50):
            sender.send(message(number, MB), timeout=60)
            kept.append(receiver.recv(timeout=60))
        assert list(map(numbers, kept)) == list(range(50))
        assert all(np.frombuffer(frames[0], np.uint8).ctypes.data % 64 == 0 for frames in kept)


def test_many_small_messages_may_be_kept(name):
    with pair(name) as (sender, receiver):
        kept = []
        for number in range(1000):
            sender.send(message(number), timeout=60)
            kept.append(receiver.recv(timeout=60))
        assert list(map(numbers, kept)) == list(range(1000))


def test_messages_may_grow_and_shrink_within_the_budget(name):
    sizes = [1000, 7 * MB, 16, 3 * MB, 8 * MB, 100_000, 5 * MB] * 4
    gc.collect()  # else memory of tests before this one, which hangs on reference cycles, may be given up meanwhile
    before = shared_bytes()
    with pair(name, budget_mb=20.0) as (sender, receiver):
        for number, size in enumerate(sizes):
            sender.send(message(number, size), timeout=60)
            frames = receiver.recv(timeout=60)
            assert (numbers(frames), frames[0].nbytes) == (number, size)
            assert shared_bytes() - before <= 20 * MB
    del frames
    assert shared_bytes() == before


def shared_bytes():
    """Bytes of the memfds that this process holds or maps."""
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    found = {}
    for link in links:
        with contextlib.suppress(FileNotFoundError):
            if "memfd:highway" in os.readlink(link):
                status = os.stat(link)
                found[status.st_ino] = status.st_size
    return sum(found.values())


def test_a_message_beyond_the_budget_is_refused_with_the_way_out(name):
    with pair(name, budget_mb=4.0) as (sender, receiver):
        with pytest.raises(LinkError, match=r"2\.1 MB; expected at most half of budget_mb=4: set budget_mb=5 for the link or in the URL"):
            sender.send(message(1, 2_100_000))
        sender.send(message(2))
        assert numbers(receiver.recv(timeout=60)) == 2


def test_a_process_without_descriptors_says_so(name):
    code = """
import resource
from highway.errors import LinkError
receiver, sender = ShmReceiver("r"), ShmSender("s")
receiver.connections.listen(name)
sender.connections.connect(name)
while not (sender.connections.peers and receiver.connections.peers):
    receiver.look(0.01), sender.look(0.01)
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
try:
    for _ in range(10):
        sender.send([b"x"])
except LinkError as error:
    print(error)
"""
    with running(code, name) as process:
        assert "Too many open files; give the process more memory or descriptors (ulimit -n)" in process.communicate(timeout=200)[0]


def test_nothing_is_left_open(name):
    before = set(os.listdir("/proc/self/fd"))
    with pair(name) as (sender, receiver):
        sender.send(message(1))
        kept = receiver.recv(timeout=60)
        sender.send(message(2))
    assert numbers(kept) == 1  # views outlive both ends
    del kept
    assert set(os.listdir("/proc/self/fd")) <= before
    assert not is_bound(name)


# --- several at one end ---


def test_receivers_share_the_messages_of_a_sender(sender_of_two):
    sender, a, b = sender_of_two
    for number in range(10):
        sender.send(message(number))
    got = [[numbers(receiver.recv(timeout=60)) for _ in range(5)] for receiver in (a, b)]
    assert sorted(got[0] + got[1]) == list(range(10))
    assert all(part == sorted(part) for part in got)


def test_who_is_slow_gets_less(sender_of_two):
    sender, a, b = sender_of_two
    got = 0
    for number in range(20):
        sender.send(message(number))
        with contextlib.suppress(TimeoutError):
            a.recv(timeout=0)
            got += 1
        sender.look()
    assert got == 19
    assert numbers(b.recv(timeout=60)) in (0, 1)


def test_a_message_to_each_reaches_each(sender_of_two):
    sender, a, b = sender_of_two
    sender.send_to_each(message(7))
    assert (numbers(a.recv(timeout=60)), numbers(b.recv(timeout=60))) == (7, 7)


def test_senders_are_received_from_in_turns(name):
    with listening(ShmReceiver("r"), name) as receiver, calling(ShmSender("a"), name) as a, calling(ShmSender("b"), name) as b:
        meet(receiver, a, b, peers=(2, 1, 1))
        for number in range(3):
            a.send(message(number))
            b.send(message(10 + number))
        assert sorted(numbers(receiver.recv(timeout=60)) for _ in range(2)) == [0, 10]
        assert sorted(numbers(receiver.recv(timeout=60)) for _ in range(4)) == [1, 2, 11, 12]


# --- waiting ---


def test_without_a_peer_it_waits_until_the_time_is_over(name):
    with calling(ShmReceiver("zrpull+shm://a"), name) as receiver, calling(ShmSender("zpush+shm://b"), name) as sender:
        with pytest.raises(TimeoutError, match=r"zrpull\+shm://a: no message arrived in time; 0 senders are connected"):
            receiver.recv(timeout=0.01)
        with pytest.raises(TimeoutError, match=r"zpush\+shm://b: the message was not sent in time: there is no receiver"):
            sender.send([b""], timeout=0.01)


def test_who_waits_can_be_cancelled(name):
    context, ended = Context(), []

    def wait():
        enter(context)
        with listening(ShmReceiver("r"), name) as receiver:
            try:
                receiver.recv()
            except Cancelled:
                ended.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    context.cancel()
    thread.join(timeout=60)
    assert ended == [True]


def test_ends_find_each_other_whoever_comes_first_and_again_after_a_restart(name):
    with calling(ShmReceiver("r"), name) as receiver:
        with pytest.raises(TimeoutError):
            receiver.recv(timeout=0.01)
        for number in (1, 2):
            with listening(ShmSender("s"), name) as sender:
                meet(sender, receiver)
                sender.send(message(number))
            assert numbers(receiver.recv(timeout=60)) == number
            with pytest.raises(TimeoutError):
                receiver.recv(timeout=0.01)


# --- death ---


def test_what_a_killed_sender_had_sent_still_arrives_and_nothing_is_left(name):
    with listening(ShmReceiver("r"), name) as receiver:
        with running(SEND_NUMBERS, name, "8", "100000") as process:
            meet(receiver)
            assert process.stdout.readline() == "ready\n"
            assert numbers(receiver.recv(timeout=60)) == 0  # the slot goes back, and the sender never reads that: ECONNRESET
            process.send_signal(signal.SIGKILL)
            process.wait()
        kept = [receiver.recv(timeout=60) for _ in range(7)]
        assert [numbers(frames) for frames in kept] == list(range(1, 8))
        with pytest.raises(TimeoutError):
            receiver.recv(timeout=0.01)
        assert receiver.connections.peers == []
        assert np.array_equal(np.frombuffer(kept[3][0], np.int64), np.full(100_000, 4))
        with running(SEND_NUMBERS, name, "1", "1"):  # and another one may come
            assert numbers(receiver.recv(timeout=60)) == 0
        del kept
    assert not is_bound(name)


def test_what_a_sender_had_sent_in_slots_that_were_used_before_still_arrives(name):
    with pair(name) as (sender, receiver):
        for number in range(2):
            sender.send(message(number))
        kept = [receiver.recv(timeout=60) for _ in range(2)]
        kept.clear()
        sender.look(1)
        for number in range(2, 4):
            sender.send(message(number))  # without descriptors: the receiver knows the slots
        sender.close()
        assert numbers(receiver.recv(timeout=60)) == 2  # this slot cannot be given back to anybody
        assert numbers(receiver.recv(timeout=60)) == 3


def test_a_sender_survives_the_death_of_a_receiver_and_counts_what_it_held(name, caplog):
    with listening(ShmSender("s", 8.0), name) as sender:
        with running(HOLD_FIRST, name) as first:
            for number in range(3):
                sender.send(message(number, MB), timeout=60)
            assert first.stdout.readline() == "ready\n"
            first.send_signal(signal.SIGKILL)
            first.wait()
        with pytest.raises(TimeoutError, match="there is no receiver"):
            sender.send(message(3, MB), timeout=0.01)
        assert sender.lost == 3
        assert "a receiver disconnected before it had released 3 messages" in caplog.text
        with calling(ShmReceiver("r"), name) as receiver:
            meet(sender, receiver)
            for number in range(20):  # all of the memory is there again
                sender.send(message(number, MB), timeout=60)
                assert numbers(receiver.recv(timeout=60)) == number


def test_a_sender_goes_on_with_the_receivers_that_live(name, caplog):
    with contextlib.closing(ShmSender("s")) as sender, contextlib.closing(ShmReceiver("r")) as receiver:
        sender.connections.listen(name)
        with running(HOLD_FIRST, name) as first:
            sender.send(message(0), timeout=60)
            assert first.stdout.readline() == "ready\n"
            receiver.connections.connect(name)
            meet(sender, receiver, peers=(2, 1))
            first.send_signal(signal.SIGKILL)
            first.wait()
            for number in range(10):
                sender.send(message(number), timeout=60)
            assert [numbers(receiver.recv(timeout=60)) for _ in range(10)] == list(range(10))
    assert sender.lost == 1


def test_what_a_receiver_has_read_is_not_lost_when_it_leaves(name, caplog):
    with listening(ShmSender("s"), name) as sender:
        with calling(ShmReceiver("r"), name) as receiver:
            meet(sender, receiver)
            for number in range(5):
                sender.send(message(number))
            kept = [receiver.recv(timeout=60) for _ in range(3)]
        with pytest.raises(TimeoutError, match="there is no receiver"):
            sender.send(message(5), timeout=0.01)
        assert sender.lost == 2
        assert list(map(numbers, kept)) == [0, 1, 2]


def test_memory_that_a_lost_receiver_may_look_at_is_never_written_again(name, caplog):
    with listening(ShmSender("s"), name) as sender:
        receiver = ShmReceiver("r")
        receiver.connections.connect(name)
        meet(sender, receiver)
        sender.send(message(1))
        kept = receiver.recv(timeout=60)
        receiver.close()
        with calling(ShmReceiver("r"), name) as second:
            meet(sender, second)
            for number in range(2, 12):
                sender.send(message(number), timeout=60)
                assert numbers(second.recv(timeout=60)) == number
        assert numbers(kept) == 1


# --- who is let in ---


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            struct.pack("<8sI", b"~HwyShm~", 2),
            "it uses version 2 of the same-host protocol, but this process uses version 1; install the same highway",
        ),
        (b"GET / HTTP/1.0", "it does not use the same-host protocol of highway: its first bytes are b'GET / HTTP/1.0'"),
        (struct.pack("<8sI", b"~HwyShm~", 1), "its hello has 12 bytes; expected 28"),
        (hello(RECEIVES), "both ends are receivers; one end must push, and the other end must pull"),
    ],
)
def test_who_does_not_fit_is_refused_with_a_reason(name, said, reason, caplog):
    with listening(ShmReceiver("zpull+shm://a"), name) as receiver:
        with call(name, said) as stranger:
            refusal = f"zpull+shm://a: process {os.getpid()} at the other end is refused: {reason}"
            look_until(lambda: refusal in caplog.text, receiver)
            with pytest.raises(TimeoutError):
                receiver.recv(timeout=0.01)
            assert len(stranger.recv(100)) == HELLO.size  # what this end said
            assert stranger.recv(100) == b""
        with calling(ShmSender("s"), name) as sender:  # and the next one is welcome
            meet(sender, receiver)


def test_who_calls_a_peer_that_does_not_fit_gets_an_error(name):
    refused = r"zrpull\+shm://b: process \d+ at the other end is refused: both ends are receivers"
    ends = listening(ShmReceiver("a"), name), calling(ShmReceiver("zrpull+shm://b"), name)
    with ends[0] as first, ends[1] as second, pytest.raises(LinkError, match=refused):
        meet(first, second)


def test_a_name_that_is_taken_is_an_error(name):
    taken = r"zpull\+shm://b: another process already listens under this name; stop that process, use another name"
    with listening(ShmReceiver("a"), name), pytest.raises(LinkError, match=taken), listening(ShmReceiver("zpull+shm://b"), name):
        pass


def test_a_name_that_is_too_long_is_an_error():
    too_long = "the name has 200 bytes; names of same-host links can have at most 80 bytes"
    with pytest.raises(ConfigError, match=too_long), calling(ShmReceiver("r"), "x" * 200):
        pass


def test_memory_that_could_be_taken_away_is_refused(name, caplog):
    with listening(ShmReceiver("r"), name) as receiver, call(name, hello(SENDS, MB, 4)) as sender:
        meet(receiver)
        fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
        os.truncate(fd, 4096)
        socket.send_fds(sender, [struct.pack("<IHHQ", 0, 1, 1, 8)], [fd])
        os.close(fd)
        assert hang_up(receiver, caplog, "the sender's memory is not sealed against shrinking") == 0


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (b"abc", "a packet of 3 bytes does not announce a message"),
        (struct.pack("<IHHQ", 0, 1, 9, 8), "a packet of 16 bytes does not announce a message"),
        (struct.pack("<IHHQ", 5, 1, 1, 8), "slot 5 was announced without its descriptor"),
    ],
)
def test_a_sender_that_breaks_the_protocol_is_disconnected(name, packet, reason, caplog):
    with listening(ShmReceiver("r"), name) as receiver, call(name, hello(SENDS, MB, 4)) as sender:
        sender.send(packet)
        assert hang_up(receiver, caplog, reason) == 0


@pytest.mark.parametrize(
    ("packet", "reason"),
    [(b"abc", "the packet has 3 bytes; expected a multiple of 4"), (struct.pack("<I", 9), "it released a slot that it had not received")],
)
def test_a_receiver_that_breaks_the_protocol_is_disconnected(name, packet, reason, caplog):
    with listening(ShmSender("s"), name) as sender, call(name, hello(RECEIVES)) as receiver:
        receiver.send(packet)
        meet(sender)
        sender.look(1)
        assert sender.connections.peers == []
    assert f"a receiver is disconnected: {reason}" in caplog.text
