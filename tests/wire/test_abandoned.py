"""Connections that nobody closed."""

import gc
import socket
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from waiting import wait_until

from highway import EndOfStream
from highway.wire.connection import Connection
from highway.wire.sender import LinkSender

MESSAGE = [np.zeros(100_000, np.uint8)]


def on_another_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


@pytest.fixture(autouse=True)
def nothing_stays_abandoned():
    yield
    Connection().close()


@pytest.fixture
def unraised(monkeypatch):
    """What finalisers raised."""
    found = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: found.append(str(unraisable.exc_value)))
    return found


@pytest.mark.parametrize("url", ["zpush://127.0.0.1:1", "zpush+ipc:///tmp/nobody-listens-here", "zpush+shm://nobody-has-this-name"])
def test_a_finaliser_neither_waits_nor_closes_the_socket_of_another_thread(url, monkeypatch):
    holder = [Connection(f"{url}?linger_ms=90000")]
    if "shm" not in url:  # there, who sends waits for a receiver
        holder[0].send(MESSAGE)
    closed_by, close = [], LinkSender.close
    monkeypatch.setattr(LinkSender, "close", lambda sender: (closed_by.append(threading.current_thread()), close(sender, 0)))
    took = []

    def drop():
        since = time.monotonic()
        with pytest.warns(ResourceWarning, match=r"was not closed.*`with`.*close\(\)") as warned:
            holder.clear()
            took.append(time.monotonic() - since)
            gc.collect()
        assert url in str(warned[0].message)
        Connection().close()  # of this thread, which must let the other's socket alone

    on_another_thread(drop)
    assert closed_by == []
    assert took[0] < 60  # it would wait for a receiver
    Connection()
    assert closed_by == [threading.current_thread()]


def test_what_an_ended_thread_left_is_closed_by_the_next_connection():
    ports = []

    def is_open():
        with socket.socket() as caller:
            return caller.connect_ex(("127.0.0.1", ports[0])) == 0

    def leave():
        connection = Connection("zpull://127.0.0.1:0")
        ports.append(int(connection.bound[0].rpartition(":")[2]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            del connection

    on_another_thread(leave)
    assert is_open()
    Connection()
    wait_until(lambda: not is_open())


def test_an_address_is_free_for_the_next_connection(own_address):
    first = Connection(f"zpull://{own_address}:0")
    address = first.bound[0]
    with pytest.warns(ResourceWarning):
        del first
    with Connection(f"zpull{address[3:]}") as second:
        assert second.bound == [address]


@pytest.mark.parametrize("dropped", ["del connection", ""])
def test_what_was_sent_arrives_though_the_script_ends_without_close(popen, dropped):
    script = f"""
import sys, numpy, highway
connection = highway.Connection(sys.argv[1])
for number in range(50):
    connection.send([numpy.full(100_000, number, numpy.uint8)])
{dropped}
"""
    with Connection("zpull://127.0.0.1:0") as incoming:
        process = popen([sys.executable, "-c", script, f"zpush{incoming.bound[0][3:]}"])
        assert [int(incoming.recv(timeout=60)[0][0]) for _ in range(50)] == list(range(50))
        assert process.communicate(timeout=200)[1] == ""
    assert process.returncode == 0


def test_a_loop_that_ends_closes_its_connection(unraised):
    with Connection("zrpush://127.0.0.1:0?end=1&linger_ms=1000") as outgoing:
        url = f"zrpull{outgoing.bound[0][3:]}"
        incoming = Connection(url)
        outgoing.send(MESSAGE)
        incoming.recv(timeout=60)  # now they are connected
        outgoing.serve([MESSAGE] * 3)
        assert len(list(incoming)) == 3
        with pytest.raises(EndOfStream, match="the stream has ended"):
            incoming.recv(timeout=1)
        assert list(incoming) == []
        del incoming
    incoming = [Connection("zpull://127.0.0.1:0", total=1, batch_count=False)]
    with Connection(f"zpush{incoming[0].bound[0][3:]}") as outgoing:
        outgoing.send(MESSAGE)
        for _ in incoming.pop():
            pass
        gc.collect()
    assert unraised == []


def test_what_cannot_be_opened_is_no_open_connection(unraised, monkeypatch):
    monkeypatch.setattr("highway.wire.sender.LinkSender.wait_for_receivers", lambda sender: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Connection("zpush://127.0.0.1:1")
    gc.collect()
    assert unraised == []
