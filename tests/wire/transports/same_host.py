"""Ends of same-host links in this process, and peers that speak the protocol by themselves."""

import contextlib
import os
import socket
import struct
import time

from waiting import wait_until

MB = 1_000_000
HELLO = struct.Struct("<8sIIQI")
SENDS, RECEIVES = 0, 1


@contextlib.contextmanager
def listening(end, name):
    """An end that listens under a name, and is closed behind the block."""
    with contextlib.closing(end):
        end.connections.listen(name)
        yield end


@contextlib.contextmanager
def calling(end, name):
    """An end that connects to who listens under a name, and is closed behind the block."""
    with contextlib.closing(end):
        end.connections.connect(name)
        yield end


def look_until(condition, *ends):
    """Let ends look around until a condition holds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        for end in ends:
            end.look(0.01)


def meet(*ends, peers=()):
    """Let ends find each other: each one peer, or as many as ``peers`` says in turn."""
    wanted = peers or [1] * len(ends)
    look_until(lambda: all(len(end.connections.peers) >= count for end, count in zip(ends, wanted, strict=True)), *ends)


def call(name, hello=b""):
    """A peer that has called who listens under a name, and said a hello, and then does what a test wants."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(60)
    sock.connect(f"\0highway/{os.getuid()}/{name}")
    if hello:
        sock.send(hello)
    return sock


def hang_up(receiver, caplog, reason, left=0):
    """See a receiver hang up on a sender and say why; ``left`` others stay. Return how many messages came before."""
    came = []

    def has_hung_up():
        with contextlib.suppress(TimeoutError):
            came.append(len(receiver.recv(timeout=0.02)))
        return len(receiver.connections.peers) == left and f"a sender is disconnected: {reason}" in caplog.text

    wait_until(has_hung_up)
    return len(came)


def hello(role, budget=64 * MB, most=64, version=1):
    """What a peer says first."""
    return HELLO.pack(b"~HwyShm~", version, role, budget, most)
