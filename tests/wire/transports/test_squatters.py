"""Names of same-host links that another user has taken first."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest

from highway import LinkError, Pipeline
from highway.modules import ZMQSource
from highway.wire.connection import Connection
from highway.wire.goodbye import Leave, path_of
from highway.wire.transports.zmq import base

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")

SQUATTER = """
import os, sys, zmq
os.setuid(65534)
socket = zmq.Context().socket(getattr(zmq, sys.argv[1]))
socket.linger = 0
if sys.argv[1] == "PUB":
    socket.sndhwm = 1
socket.bind("ipc://" + sys.argv[2])
print("bound", flush=True)
if sys.argv[1] == "PULL":
    print(socket.poll(1000) and socket.recv()[:20], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def squatter(popen):
    """A function that starts a script, by default one that binds a socket of ZeroMQ, which then is another user's."""

    def start(*arguments, script=SQUATTER):
        process = popen([sys.executable, "-c", script, *arguments], stdin=subprocess.PIPE)
        assert process.stdout.readline() == "bound\n"
        return process

    return start


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """However busy the machine is, the first attempt to connect is waited for."""
    monkeypatch.setattr(base, "ATTEMPT", 60.0)


@pytest.fixture(params=["@", "/tmp/"])
def location(request):
    yield (place := f"{request.param}highway-squatted-{os.getpid()}")
    with contextlib.suppress(OSError):
        os.unlink(place)


EXPECTED = r"user 65534 listens at ipc://.*highway-squatted-.* but this process belongs to user 0.*mode 0700"


def test_nothing_is_sent_to_another_user(squatter, location):
    process = squatter("PULL", location)
    with pytest.raises(LinkError, match=EXPECTED):
        Connection(f"zpush+ipc://{location}").send([np.zeros(4, np.uint8)])
    assert process.stdout.readline() == "0\n"


@pytest.mark.parametrize(("scheme", "kind"), [("zrpull", "PUSH"), ("zsub", "PUB")])
def test_nothing_is_believed_of_another_user(squatter, location, scheme, kind):
    squatter(kind, location)
    with pytest.raises(LinkError, match=EXPECTED):
        Connection(f"{scheme}+ipc://{location}")
    with pytest.raises(LinkError, match=EXPECTED):
        list(Pipeline([ZMQSource(f"{scheme}+ipc://{location}")]))


def test_who_comes_later_is_found_out_at_the_next_call(squatter, location):
    with Connection(f"zrpull+ipc://{location}") as incoming, pytest.raises(LinkError, match=EXPECTED):
        squatter("PUSH", location)
        incoming.recv(timeout=60)


def test_who_binds_a_taken_name_is_told_whose_it_is(squatter, location):
    squatter("PULL", location)
    with pytest.raises(LinkError, match="a process of user 65534 listens there"):
        Connection(f"zpull+ipc://{location}")


def test_a_receiver_that_leaves_says_so_only_to_its_own_user(squatter):
    sender = os.urandom(8)
    listener = f"""
import os, socket, sys
os.setuid(65534)
sock = socket.socket(socket.AF_UNIX)
sock.bind({path_of(sender)!r})
sock.listen()
print("bound", flush=True)
sys.stdin.read()
"""
    squatter(script=listener)
    leave = Leave()
    leave.tell(sender, 0, "")
    assert leave.unreachable == {sender}
