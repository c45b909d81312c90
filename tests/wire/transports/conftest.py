import contextlib
import uuid

import pytest

from highway.wire.transports.shm import message
from highway.wire.transports.zmq.socket import ZMQReceiver, ZMQSender
from highway.wire.url import KINDS, kind_of, parse


@pytest.fixture
def name():
    """A name for a same-host link."""
    return f"test/{uuid.uuid4().hex}"


@pytest.fixture(params=["C", "Python"])
def calls(request, monkeypatch):
    """Has ends that are opened in this process do what each message costs in C, where that was built, and then in Python."""
    chosen = {"C": message.IN_C, "Python": message.IN_PYTHON}[request.param]
    if chosen is None:
        pytest.skip("highway.wire.transports.shm._message is not built: it needs a C compiler when highway is installed")
    monkeypatch.setattr(message, "calls", chosen)


@pytest.fixture
def opened():
    """A function that opens the socket of ZeroMQ that a URL describes; it is closed when the test ends."""
    with contextlib.ExitStack() as stack:

        def open_end(url):
            direction = KINDS[kind_of(url)].direction
            end = {"send": ZMQSender, "receive": ZMQReceiver}[direction](parse(url, direction))
            stack.callback(end.close, 0)
            return end

        yield open_end


@pytest.fixture
def pair(opened, ipc):
    """A function that opens a sender and a receiver at one address."""

    def open_pair(options="", push="zpush", pull="zpull"):
        place = f"+ipc://{ipc()}{options}"
        return opened(push + place), opened(pull + place)

    return open_pair
