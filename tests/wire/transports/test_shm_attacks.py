"""Same-host links and peers that mean harm, or do not know better: each of them ends its own connection at most."""

import contextlib
import fcntl
import gc
import mmap
import os
import resource
import socket
import struct
import sys

import numpy as np
import pytest
from same_host import MB, RECEIVES, SENDS, call, calling, hang_up, hello, listening, look_until, meet

from highway.wire.transports.shm import ShmReceiver, ShmSender
from highway.wire.transports.shm.connections import MOST_PENDING

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


@pytest.fixture(autouse=True)
def in_c_and_in_python(calls):
    """Each test runs twice."""


def memory(size, *, fill=True, seals=SEALS):
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.truncate(fd, size)
    if fill and size:
        os.posix_fallocate(fd, 0, size)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def announce(slot, *lengths):
    return struct.pack(f"<IHH{len(lengths)}Q", slot, 1, len(lengths), *lengths)


@contextlib.contextmanager
def besides(name):
    """A receiver, and a sender that means well; after the test's attack the one still gets what the other sends."""
    gc.collect()  # else files of tests before this one, which hang on reference cycles, may be closed meanwhile
    descriptors = len(os.listdir("/proc/self/fd"))
    with listening(ShmReceiver("r"), name) as receiver, calling(ShmSender("s"), name) as sender:
        meet(sender, receiver)
        yield receiver
        sender.send([b"well"], timeout=60)
        assert bytes(receiver.recv(timeout=60)[0]) == b"well"
        assert len(receiver.connections.peers) == 1
    assert len(os.listdir("/proc/self/fd")) <= descriptors  # nothing that came with a refused packet is left open


def attack(receiver, name, caplog, packets, reason):
    """Send packets with descriptors, and see the receiver hang up at the last one and say why."""
    with call(name, hello(SENDS)) as sender:
        meet(receiver, peers=[2])
        for packet, fds in packets:
            socket.send_fds(sender, [packet], fds)
            for fd in fds:
                os.close(fd)
        assert hang_up(receiver, caplog, reason, left=1) == len(packets) - 1
        with contextlib.suppress(ConnectionResetError):  # what this side has not read
            while sender.recv(1 << 16):
                pass


@pytest.mark.parametrize("count", [2, 100])
def test_several_descriptors_with_one_packet(name, caplog, count):
    with besides(name) as receiver:
        fds = [memory(65536) for _ in range(count)]
        attack(receiver, name, caplog, [(announce(0, 64), fds)], f"{count} descriptors came with one message; expected at most one")


def test_an_empty_memory(name, caplog):
    with besides(name) as receiver:
        attack(receiver, name, caplog, [(announce(0), [memory(0)])], "a message of 0 bytes is announced in a slot of 0 bytes")


def test_three_gigabytes_announced_as_64_bytes(name, caplog):
    with besides(name) as receiver:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        packet = [(announce(0, 64), [memory(3 << 30, fill=False)])]
        attack(receiver, name, caplog, packet, "a message of 64 bytes is announced in a slot of 3221225472 bytes")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_three_gigabytes_that_the_sender_has_not_taken_itself(name, caplog):
    with besides(name) as receiver:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        packet = [(announce(0, 3 << 30), [memory(3 << 30, fill=False)])]
        attack(receiver, name, caplog, packet, "the sender announces 3221225472 bytes of memory, but has allocated only 0 bytes")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_memory_that_is_no_memory(name, caplog, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(65536))
    with besides(name) as receiver:
        fd = os.open(path, os.O_RDONLY)
        attack(receiver, name, caplog, [(announce(0, 64), [fd])], "the sender's memory is not sealed against shrinking")


def test_a_packet_that_is_no_message_with_a_descriptor(name, caplog):
    with besides(name) as receiver:
        attack(receiver, name, caplog, [(b"abc", [memory(65536)])], "a packet of 3 bytes does not announce a message")


def test_a_slot_that_is_new_twice(name, caplog):
    with besides(name) as receiver:
        packets = [(announce(0, 64), [memory(65536)]), (announce(0, 64), [memory(65536)])]
        attack(receiver, name, caplog, packets, "slot 0 is announced as new, but the sender already has 1 of at most 64 slots")


def test_more_slots_than_a_sender_may_have(name, caplog):
    with besides(name) as receiver:
        packets = [(announce(slot, 64), [memory(65536)]) for slot in range(65)]
        attack(receiver, name, caplog, packets, "slot 64 is announced as new, but the sender already has 64 of at most 64 slots")


def test_a_slot_that_is_announced_again_while_it_is_held(name, caplog):
    with besides(name) as receiver, call(name, hello(SENDS)) as sender:
        meet(receiver, peers=[2])
        fd = memory(65536)
        socket.send_fds(sender, [announce(0, 64)], [fd])
        os.close(fd)
        held = receiver.recv(timeout=60)
        sender.send(announce(0, 64))
        assert hang_up(receiver, caplog, "slot 0 was announced again before it was given back", left=1) == 0
        del held


def test_more_frames_than_a_message_may_have(name, caplog):
    with besides(name) as receiver:
        packets = [(struct.pack("<IHH5000Q", 0, 1, 5000, *[0] * 5000), [])]
        attack(receiver, name, caplog, packets, "the message has 5000 frames; expected at most 4096")


@pytest.mark.parametrize("given_back", [[0, 0], [0, 1, 0], [0, 7]])
def test_slots_that_are_given_back_twice_or_were_never_given(name, caplog, given_back):
    with listening(ShmSender("s", budget_mb=2.0), name) as sender:
        with call(name, hello(RECEIVES)) as receiver:
            meet(sender)
            for number in range(2):
                sender.send([np.full(100_000, number, np.uint8)], timeout=60)
            receiver.send(struct.pack(f"<{len(given_back)}I", *given_back))
            look_until(lambda: not sender.connections.peers, sender)
        assert "a receiver is disconnected: it released a slot that it had not received, or released a slot twice" in caplog.text
        with calling(ShmReceiver("r"), name) as other:  # and all of its memory is there for the next one
            meet(sender, other)
            for _ in range(2):
                sender.send([np.zeros(MB, np.uint8)], timeout=60)
            assert [other.recv(timeout=60)[0].nbytes for _ in range(2)] == [MB, MB]


def test_a_receiver_cannot_write_into_what_others_read(name):
    with listening(ShmSender("s"), name) as sender, call(name, hello(RECEIVES)) as receiver:
        meet(sender)
        sender.send([b"sound"], timeout=60)
        receiver.recv(1 << 16)  # the hello
        _, (fd,), _, _ = socket.recv_fds(receiver, 1 << 16, 1)
        with pytest.raises(PermissionError):
            mmap.mmap(fd, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        with pytest.raises(PermissionError):
            os.pwrite(fd, b"false", 0)
        with mmap.mmap(fd, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ) as seen:
            assert seen[:5] == b"sound"
            receiver.send(struct.pack("<I", 0))
            look_until(lambda: not sender.connections.peers[0].out, sender)
            sender.send([b"again"], timeout=60)  # the sender still writes
            assert seen[:5] == b"again"
        os.close(fd)


def connections(name, count):
    for _ in range(count):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # the queue is full
            sock.connect(f"\0highway/{os.getuid()}/{name}")
            yield sock
            continue
        sock.close()


@pytest.fixture
def many_descriptors():
    """As many as the system allows this process: by default it gives 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_a_thousand_connections_without_a_hello_keep_nobody_out(name):
    with besides(name) as receiver, contextlib.ExitStack() as stack:
        for sock in connections(name, 1000):
            stack.enter_context(sock)
            receiver.look()
        assert receiver.connections.count().opened - receiver.connections.seen <= MOST_PENDING


WITHOUT_DESCRIPTORS = """
import contextlib, os, resource, socket, sys
from highway.wire.transports.shm import ShmReceiver, ShmSender
name = sys.argv[1]
receiver = ShmReceiver("r")
receiver.connections.listen(name)
free = len(os.listdir("/proc/self/fd")) + 10
resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))
print("ready", flush=True)
print(bytes(receiver.recv(timeout=60)[0]).decode(), flush=True)
"""


def test_who_has_no_descriptors_left_goes_on(popen, name):
    process = popen([sys.executable, "-c", WITHOUT_DESCRIPTORS, name])
    assert process.stdout.readline() == "ready\n"
    with contextlib.ExitStack() as stack, contextlib.closing(ShmSender("s")) as sender:
        for sock in connections(name, 40):
            stack.enter_context(sock)
        sender.connections.connect(name)
        sender.send([b"well"], timeout=60)
        out, errors = process.communicate(timeout=200)
    assert out == "well\n"
    assert "no process can connect at the moment: Too many open files; raise the limit (ulimit -n)" in errors


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_a_connection_of_another_user_is_closed_at_once(popen, name, caplog):
    with besides(name) as receiver:
        code = f"""
import os, socket
os.setuid(65534)
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect("\\0highway/0/{name}")
print(sock.recv(9))
"""
        process = popen([sys.executable, "-c", code])
        look_until(lambda: process.poll() is not None, receiver)
        assert process.communicate()[0] == "b''\n"
        assert (
            "it belongs to user 65534, but this process belongs to user 0; both ends of a same-host link must belong to the same user"
            in caplog.text
        )
