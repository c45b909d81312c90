"""What each message over a same-host link costs, in C and in Python: both do the same."""

import gc
import mmap
import os
import socket
import sys

import numpy as np
import pytest

from highway.wire.transports.shm import message
from highway.wire.transports.shm.message import IN_C, IN_PYTHON

pytestmark = pytest.mark.usefixtures("calls")


def slot(size):
    return mmap.mmap(-1, size)


def lend(memory, lengths, give_back=lambda number: None):
    return message.calls.lend(memoryview(memory).toreadonly(), lengths, give_back, 7)  # as a receiver maps it


def test_frames_are_measured_by_their_bytes_each_in_64():
    frames = [b"abc", memoryview(np.zeros((2, 3), np.int32)), bytearray(64), np.zeros(65, np.uint8), b""]
    assert message.calls.measured(frames) == ((3, 24, 64, 65, 0), 64 + 64 + 64 + 128)
    assert message.calls.measured(()) == ((), 0)


def test_what_is_no_buffer_is_not_measured():
    with pytest.raises(TypeError):
        message.calls.measured([b"a", 3])


def test_frames_lie_in_a_slot_at_multiples_of_64():
    memory = slot(1 << 20)
    frames = [b"abc", memoryview(np.arange(6, dtype=np.int32)), b"", np.full(300_000, 5, np.uint8)]
    lengths, end = message.calls.measured(frames)
    message.calls.fill(memory, frames, lengths)
    assert memory[:3] == b"abc"
    assert memory[64:88] == np.arange(6, dtype=np.int32).tobytes()
    assert memory[128:300_128] == bytes([5]) * 300_000
    assert end == 128 + 300_032
    assert [bytes(view) for view in lend(memory, lengths)] == [bytes(memoryview(frame).cast("B")) for frame in frames]
    memory.close()  # nobody holds on to it


@pytest.mark.parametrize("lengths", [(3,), (3, 4), (2, 5), (3, 5, 1)])
def test_frames_of_other_lengths_than_were_measured_are_an_error(lengths):
    with pytest.raises((ValueError, IndexError)), slot(4096) as memory:
        message.calls.fill(memory, [b"abc", b"12345"], lengths)


@pytest.mark.parametrize("frames", [[bytes(5000)], [bytes(200_000)], [bytes(4090), b"abc"], [bytes(4096), b"a"]])
def test_nothing_is_written_behind_a_slot(frames):
    with slot(8192) as memory, pytest.raises((ValueError, IndexError)):
        view = memoryview(memory)[:4096]
        try:
            message.calls.fill(view, frames, message.calls.measured(frames)[0])
        finally:
            assert memory[4096:] == bytes(4096)
            view.release()


@pytest.mark.parametrize(
    "lengths", [(4097,), (4096, 1), (2**63 - 1,), (2**63,), (2**64 - 1,), (64, 2**64 - 64), (1,) * 65, (4000, 2**63 - 65)]
)
def test_what_does_not_fit_into_a_slot_is_not_lent(lengths):
    given_back = []
    with slot(4096) as memory:
        assert lend(memory, lengths, given_back.append) is None
    assert given_back in ([], [7])  # whoever gets None has nothing


@pytest.mark.parametrize("lengths", [(4096,), (0,), (64,) * 64, (1,) * 64, ()])
def test_what_fits_is_lent_read_only(lengths):
    with slot(4096) as memory:
        views = lend(memory, lengths)
        assert [view.nbytes for view in views] == list(lengths)
        assert all(view.readonly and view.format == "B" and view.c_contiguous for view in views)
        assert not any(np.asarray(view).flags.writeable for view in views)
        del views


def test_what_is_lent_of_memory_that_may_be_written_to_may_be_too():
    with slot(4096) as memory:
        (view,) = message.calls.lend(memoryview(memory), (5,), lambda number: None, 7)
        view[:] = b"hello"
        assert memory[:5] == b"hello"
        del view


def test_a_slot_comes_back_once_when_the_last_view_of_any_frame_is_gone():
    given_back = []
    memory = slot(4096)
    views = lend(memory, (8, 100), given_back.append)
    array = np.frombuffer(views[1], np.uint8)[3:]
    part = views[0][2:].toreadonly()
    del views
    assert given_back == []
    del part
    assert given_back == []
    del array
    assert given_back == [7]
    memory.close()
    gc.collect()
    assert given_back == [7]


def test_views_may_go_while_an_exception_is_on_its_way():
    given_back = []

    def fail():
        held = lend(memory, (8,), given_back.append)
        raise KeyError(len(held))

    with slot(4096) as memory:
        with pytest.raises(KeyError, match="1"):
            fail()
        gc.collect()
    assert given_back == [7]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_error_of_who_takes_it_back_stops_nobody(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: told.append(error.exc_value))

    def give_back(number):
        raise RuntimeError(number)

    with slot(4096) as memory:
        views = lend(memory, (8,), give_back)
        del views
    assert [str(error) for error in told] == ["7"]


def test_packets_come_whole_in_order_and_with_their_descriptors():
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        here.setblocking(False)
        there.setblocking(False)
        post, read = message.calls.poster(here), message.calls.reader(there)
        with pytest.raises(BlockingIOError):
            read()
        post(b"one")
        post(bytes(60_000))
        socket.send_fds(here, [b"three"], [0, 1])
        assert read() == (b"one", [], False)
        assert read() == (bytes(60_000), [], False)
        packet, descriptors, lost = read()
        assert (packet, len(descriptors), lost) == (b"three", 2, False)
        for descriptor in descriptors:
            assert not os.get_inheritable(descriptor)
            os.close(descriptor)
        with pytest.raises(BlockingIOError):
            while True:
                post(bytes(1000))
        here.close()
        while read()[0]:
            pass
        assert read() == (b"", [], False)


def test_who_is_gone_is_an_error():
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        post, read = message.calls.poster(here), message.calls.reader(here)
        post(b"never read")
        there.close()
        with pytest.raises(ConnectionResetError):
            read()
        with pytest.raises(BrokenPipeError):
            post(b"more")


@pytest.mark.skipif(
    IN_C is None, reason="highway.wire.transports.shm._message is not built: it needs a C compiler when highway is installed"
)
def test_an_extension_of_another_version_is_not_used(monkeypatch, caplog):
    assert message.built(api=0) is None
    assert "the C extension was built from another version of highway and is not used: install highway-data again" in caplog.text
    monkeypatch.setitem(sys.modules, "highway.wire.transports.shm._message", None)
    assert message.built() is None
    assert message.IN_PYTHON is IN_PYTHON
