"""Sockets: limits, addresses, processes."""

import errno
import os
import socket
import stat
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zmq
from waiting import wait_until

from highway import LinkError
from highway.errors import ItemError
from highway.wire import address
from highway.wire.connection import Connection
from highway.wire.transports.zmq import base
from highway.wire.transports.zmq.socket import ZMQReceiver, ZMQSender
from highway.wire.url import parse


def test_frames_arrive_as_they_were_sent(pair):
    sender, receiver = pair()
    large = np.arange(1_000_000, dtype=np.uint32)
    sender.send([b"", b"small", large], timeout=60)
    frames = receiver.recv(timeout=60)
    assert [bytes(frame) for frame in frames[:2]] == [b"", b"small"]
    np.testing.assert_array_equal(np.frombuffer(frames[2], np.uint32), large)


def test_the_folder_of_a_topologys_sockets_is_made_for_this_user_alone(ipc, monkeypatch):
    folder = ipc()
    monkeypatch.setattr(address, "SOCKETS_FOLDER", folder)
    with Connection(f"zpush+ipc://{folder}/a") as sender, Connection(f"zpull+ipc://{folder}/a") as receiver:
        sender.send((np.arange(3, dtype=np.int32),))
        assert receiver.recv()[0].tolist() == [0, 1, 2]
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700


@pytest.mark.parametrize("side", ["zpush", "zrpush"])
def test_a_folder_of_sockets_that_others_can_write_into_is_refused(opened, ipc, monkeypatch, side):
    folder = ipc()
    os.mkdir(folder)
    os.chmod(folder, 0o777)
    monkeypatch.setattr(address, "SOCKETS_FOLDER", folder)
    with pytest.raises(LinkError, match=rf"{folder}, the folder of ipc sockets, must belong to you"):
        opened(f"{side}+ipc://{folder}/a")


@pytest.mark.parametrize(("send", "receive"), [("zpush", "zpull"), ("zrpush", "zrpull"), ("zpub", "zsub")])
def test_the_end_that_bound_a_socket_removes_its_file(opened, ipc, send, receive):
    place = ipc()
    sender, receiver = opened(f"{send}+ipc://{place}"), opened(f"{receive}+ipc://{place}")
    binds, connects = (sender, receiver) if sender.bound else (receiver, sender)
    connects.close(0)
    assert stat.S_ISSOCK(os.lstat(place).st_mode)
    binds.close(0)
    assert not os.path.lexists(place)


def test_the_file_of_another_socket_that_has_taken_the_path_stays(opened, ipc):
    place = ipc()
    sender = opened(f"zrpush+ipc://{place}")
    os.unlink(place)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(place)
        sender.close(0)
        assert stat.S_ISSOCK(os.lstat(place).st_mode)


def test_a_file_is_removed_only_if_nobody_listens_there(ipc):
    place = ipc()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(place)
        other.listen()
        address.remove_if_dead(place)
        assert os.path.lexists(place)
    address.remove_if_dead(place)
    assert not os.path.lexists(place)
    with open(place, "w"):
        address.remove_if_dead(place)
    assert os.path.lexists(place)


def test_a_path_that_is_too_long_for_a_socket_is_refused_with_the_way_out(opened):
    with pytest.raises(LinkError, match=r"can have at most 107 bytes: use a shorter path"):
        opened(f"zrpush+ipc:///tmp/{'x' * 120}")


def test_frames_outlive_the_socket(pair):
    sender, receiver = pair()
    sender.send([np.full(100_000, 7, np.uint8)], timeout=60)
    (frame,) = receiver.recv(timeout=60)
    sender.close(0)
    receiver.close(0)
    assert np.frombuffer(frame, np.uint8).sum() == 700_000


def test_waiting_runs_out_at_either_end(opened, ipc):
    sender = opened(f"zrpush+ipc://{ipc()}")
    with pytest.raises(
        TimeoutError,
        match=r"no receiver accepted a message within 0.05 s: no peer is connected; check that the other end runs",
    ):
        sender.send([b"x"], timeout=0.05)
    receiver = opened(f"zpull+ipc://{ipc()}")
    with pytest.raises(
        TimeoutError, match=r"no message within 0.05 s: no peer is connected; check that the other end runs, and that this is its address"
    ):
        receiver.recv(timeout=0.05)


def send_until_it_waits(sender, frames):
    """Return how many messages a sender takes before it waits for its receiver."""
    sent = 0
    with pytest.raises(TimeoutError):
        while True:
            sender.send(frames, timeout=0.5)
            sent += 1
    return sent


def test_what_waits_is_bounded_by_bytes(pair):
    sender, receiver = pair("?budget_mb=4")
    sent = send_until_it_waits(sender, [np.zeros(1_000_000, np.uint8)])
    assert 4 <= sent <= 16  # 4 at each end, and what the system's buffers and the frame under way hold
    for _ in range(sent):
        receiver.recv(timeout=60)
    sender.send([np.zeros(1_000_000, np.uint8)], timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("first", [[b"x"], [bytes(1000)] * 2])
@pytest.mark.parametrize("frames", [[bytes(1_000_000)], [bytes(50_000)] * 20], ids=["one frame", "small frames"])
@pytest.mark.parametrize(("push", "pull"), [("zpush", "zpull"), ("zrpush", "zrpull")])
def test_what_waits_is_bounded_by_bytes_when_the_first_message_is_small(pair, first, frames, push, pull):
    sender, receiver = pair("?budget_mb=8", push, pull)
    sender.send(first, timeout=60)
    receiver.recv(timeout=60)
    sent = send_until_it_waits(sender, frames)
    assert sent <= 8 * 1.5 + 4 + 3  # of the sender, of the receiver, and those on the way
    for _ in range(sent):
        assert sum(map(len, receiver.recv(timeout=60))) == 1_000_000
    sender.send(frames, timeout=60)


def test_a_publisher_whose_messages_grow_keeps_to_its_budget_and_waits_for_nobody(pair, caplog):
    sender, _ = pair("?budget_mb=8", "zpub", "zsub")
    wait_until(lambda: sender.peers().live)
    sender.send([b"small"])
    for _ in range(60):
        sender.send([bytes(1_000_000)])
        assert sender.unsent() <= 12
    assert caplog.text.count("MB of messages wait for slow subscribers, so all subscribers lose messages until") == 1


@pytest.fixture
def python(popen):
    """A function that starts a script in a process of its own, where a warning is an error."""

    def start(script, *arguments):
        return popen([sys.executable, "-W", "error", "-c", textwrap.dedent(script), *arguments], stdin=subprocess.PIPE)

    return start


SLEEPS = """
    import sys
    from highway.wire.transports.zmq.socket import ZMQReceiver
    from highway.wire.url import parse
    receiver = ZMQReceiver(parse("zpull+ipc://" + sys.argv[1] + "?budget_mb=64", "receive"))
    receiver.recv(timeout=60)
    print("ready", flush=True)
    sys.stdin.read()
    receiver.close(0)
"""


def resident(pid):
    """Megabytes of memory that a process has."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) / 1000 for line in status if line.startswith("VmRSS"))


@pytest.mark.slow
def test_a_peer_that_sends_large_messages_does_not_fill_a_receiver(python, ipc):
    place = ipc()
    process = python(SLEEPS, place)
    with zmq.Context() as context, context.socket(zmq.PUSH) as peer:  # of another make, with limits of its own
        peer.sndhwm, peer.linger, peer.sndtimeo = 1, 0, 2000
        peer.connect(f"ipc://{place}")
        peer.send(bytes(1000))
        assert process.stdout.readline() == "ready\n"
        before = resident(process.pid)
        with pytest.raises(zmq.Again):
            for _ in range(100):
                peer.send(bytes(20_000_000))
        assert resident(process.pid) - before < 2 * 64


@pytest.fixture
def sender_of_three(opened, ipc):
    """A function that opens a sender that binds, and receivers that come one by one, each with the message that is sent then."""

    def open_ends(send, receive):
        place = ipc()
        sender = opened(f"{send}+ipc://{place}?budget_mb=4")
        for number in range(3):
            opened(f"{receive}+ipc://{place}?budget_mb=4")
            wait_until(lambda number=number: sender.peers().live > number)
            sender.send([np.zeros(1_000_000, np.uint8)], timeout=60)
        return sender

    return open_ends


def test_what_waits_for_a_receiver_that_comes_late_is_bounded_too(sender_of_three):
    sender = sender_of_three("zrpush", "zrpull")
    sent = send_until_it_waits(sender, [np.zeros(1_000_000, np.uint8)])
    assert sent <= 3 * 12  # each end holds 4 or, of those that came late, 2; the system's buffers and the frames under way come on top


def test_what_waits_for_a_subscriber_that_is_late_and_slow_is_bounded(sender_of_three):
    sender = sender_of_three("zpub", "zsub")
    for _ in range(200):
        sender.send([np.zeros(1_000_000, np.uint8)], timeout=60)
    wait_until(lambda: sender.unsent() <= 3 * 6)  # what was dropped is let go of by a thread of pyzmq's


def test_a_publisher_outlives_subscribers_that_come_and_go(opened, ipc):
    place = ipc()
    sender = opened(f"zpub+ipc://{place}")
    for _ in range(40):
        receivers = [opened(f"zsub+ipc://{place}") for _ in range(3)]
        wait_until(lambda: sender.peers().live)
        for _ in range(20):
            sender.send([np.zeros(1_000_000, np.uint8)], timeout=60)
        for receiver in receivers:
            receiver.close(0)


@pytest.mark.slow
def test_a_publisher_that_was_connected_to_thousands_of_times_is_still_there(opened):
    sender = opened("zpub://127.0.0.1:0")
    address = sender.bound[0].removeprefix("tcp://")
    host, port = address.split(":")
    for _ in range(1500):  # ZeroMQ tells of each twice, and would wait until somebody reads that when it has told 2,000 times
        socket.create_connection((host, int(port)), timeout=60).close()
    receiver = opened(f"zsub://{address}")

    def arrives():
        sender.send([b"item"])
        try:
            return receiver.recv(timeout=0.05)
        except TimeoutError:
            return None

    assert [bytes(frame) for frame in wait_until(arrives)] == [b"item"]


@pytest.mark.slow
def test_a_sender_that_waited_through_thousands_of_attempts_to_connect_goes_on(opened):
    with socket.create_server(("", 0)) as refuses, ThreadPoolExecutor(1) as pool:
        refuses.settimeout(10)
        port = refuses.getsockname()[1]
        sender = opened(f"zpush://127.0.0.{{2..250}}:{port}")

        def refuse_and_receive():
            for _ in range(1500):
                refuses.accept()[0].close()
            refuses.close()
            receiver = opened(f"zpull://127.0.0.2:{port}")
            return [bytes(frame) for frame in receiver.recv(timeout=60)]

        received = pool.submit(refuse_and_receive)
        sender.send([b"item"], timeout=60)
        assert received.result() == [b"item"]


def test_a_subscriber_that_keeps_up_gets_everything_at_the_smallest_budget(pair):
    sender, receiver = pair("?budget_mb=2", "zpub", "zsub")
    wait_until(lambda: sender.peers().live)
    for number in range(100):
        sender.send([np.full(1_000_000, number, np.uint8)], timeout=60)
        (frame,) = receiver.recv(timeout=60)
        assert memoryview(frame)[0] == number


def test_a_receivers_mark_is_not_set_while_a_connection_is_closing(opened, ipc, monkeypatch):
    monkeypatch.setattr(base, "SETTLE", 1000)
    place = f"+ipc://{ipc()}?budget_mb=16"
    receiver, stays, goes = opened(f"zpull{place}"), opened(f"zpush{place}"), opened(f"zpush{place}")
    wait_until(lambda: receiver.peers().seen == 2)
    goes.close(0)
    wait_until(lambda: receiver.peers().live == 1)

    def mark_after_a_message():
        stays.send([np.zeros(8_000_000, np.uint8)], timeout=60)
        receiver.recv(timeout=60)
        return receiver.socket.getsockopt(zmq.RCVHWM)

    assert mark_after_a_message() == 4
    monkeypatch.setattr(base, "SETTLE", 0.05)
    wait_until(lambda: mark_after_a_message() == 2)


@pytest.fixture
def left_by_one(opened, ipc):
    """A function that opens a sender and two receivers, of which one leaves at once, and returns the sender and the other."""

    def open_and_leave(options):
        place = f"+ipc://{ipc()}{options}"
        sender, stays, goes = opened(f"zrpush{place}"), opened(f"zrpull{place}"), opened(f"zrpull{place}")
        wait_until(lambda: sender.peers().seen == 2)
        goes.close(0)
        wait_until(lambda: sender.peers().live == 1)
        return sender, stays

    return open_and_leave


def test_a_senders_mark_is_set_before_its_first_message_when_no_connection_is_closing_any_more(left_by_one):
    sender, _ = left_by_one("?budget_mb=16")
    since = time.monotonic()
    sender.send([np.zeros(8_000_000, np.uint8)], timeout=60)
    assert time.monotonic() - since > base.SETTLE
    assert sender.socket.getsockopt(zmq.SNDHWM) == 2


def test_receivers_that_come_and_go_all_the_time_do_not_keep_a_stream_from_beginning(left_by_one, monkeypatch):
    monkeypatch.setattr(base, "SETTLE", 1000)  # the one that left keeps the connections from being calm
    sender, receiver = left_by_one("?budget_mb=32")
    for number in range(20):
        sender.send([np.full(12_000_000, number, np.uint8)], timeout=60)
        assert memoryview(receiver.recv(timeout=60)[0])[0] == number
    assert sender.socket.getsockopt(zmq.SNDHWM) == 8


def test_a_stream_that_begins_while_a_receiver_leaves_does_not_stall(left_by_one):
    sender, receiver = left_by_one("?budget_mb=32")
    message = [np.zeros(12_000_000, np.uint8)]
    for _ in range(3):  # fewer than the 4 of which ZeroMQ takes notice at the mark of 8, and more than the 2 that the budget allows
        sender.send(message, timeout=60)
    for _ in range(3):
        receiver.recv(timeout=60)
    time.sleep(2 * base.SETTLE)  # no mark that is set from now on may strand what was read before
    for _ in range(10):
        sender.send(message, timeout=60)
        receiver.recv(timeout=60)


@pytest.mark.parametrize("first", [1, 3_000_000])
def test_messages_of_changing_size_never_stall(pair, first):
    sender, receiver = pair("?budget_mb=2")
    for round_ in range(40):
        for size in (first, 1, 1_500_000, 10):
            sender.send([np.zeros(size, np.uint8)], timeout=60)
        for _ in range(4):
            receiver.recv(timeout=60)
        assert sender.peers().live == 1, round_


def test_a_frame_beyond_the_limit_is_refused_by_its_sender(pair):
    sender, _ = pair("?max_mb=0.5")
    with pytest.raises(ItemError, match=r"a frame has 0.6 MB; expected at most max_mb=0.5: send smaller batches, or set \?max_mb=2"):
        sender.send([np.zeros(600_000, np.uint8)], timeout=60)


def test_a_frame_beyond_the_limit_is_not_received(opened, ipc):
    place = ipc()
    sender = opened(f"zpush+ipc://{place}")
    receiver = opened(f"zpull+ipc://{place}?max_mb=0.5")
    sender.send([np.zeros(600_000, np.uint8)], timeout=60)
    sender.send([b"small"], timeout=60)
    assert bytes(receiver.recv(timeout=60)[0]) == b"small"
    assert receiver.peers().seen == 2  # it was disconnected, and came again


def test_what_has_left_is_known(opened, ipc):
    place = ipc()
    sender = opened(f"zpush+ipc://{place}")
    sender.send([b"small"], timeout=60)
    sender.send([np.zeros(1_000_000, np.uint8)], timeout=60)
    assert sender.unsent() == 2
    receiver = opened(f"zpull+ipc://{place}")
    for _ in range(2):
        receiver.recv(timeout=60)
    assert sender.peers().seen == 1
    wait_until(lambda: not sender.unsent())
    with pytest.raises(TimeoutError):
        receiver.recv(timeout=0.01)


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("no-such-host.invalid:0", "cannot bind to 'no-such-host.invalid': this machine finds no address for the name"),
        ("192.0.2.1:0", "this is not an address of this machine: use * for all interfaces, or connect"),
    ],
)
def test_an_address_that_cannot_be_bound_says_the_way_out(opened, location, says):
    with pytest.raises(LinkError, match=says.replace("*", r"\*")):
        opened(f"zpull://{location}")


def test_a_port_that_only_root_may_open_is_said():
    assert address.way_out(errno.EACCES, "tcp://127.0.0.1:80") == "; ports below 1024 are reserved for the system: use another port"


def test_a_folder_that_is_missing_is_said(opened):
    with pytest.raises(LinkError, match="the folder must exist and be writable"):
        opened("zpull+ipc:///no/such/folder/x")


def test_a_path_on_which_somebody_listens_is_not_taken_from_him(opened, ipc):
    place = ipc()
    sender, receiver = opened(f"zpush+ipc://{place}"), opened(f"zpull+ipc://{place}")
    with pytest.raises(LinkError, match=f"cannot bind ipc://{place}: another process listens there; choose another path"):
        opened(f"zpull+ipc://{place}")
    sender.send([b"x"], timeout=60)
    assert bytes(receiver.recv(timeout=60)[0]) == b"x"


def test_a_path_whose_owner_has_gone_can_be_bound_again(opened, ipc):
    place = ipc()
    opened(f"zpull+ipc://{place}").close(0)
    opened(f"zpull+ipc://{place}").close(0)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "", "*"])
def test_hosts_and_free_ports_are_bound_and_read_back(opened, host):
    receiver = opened(f"zpull://{host}:0")
    (bound,) = receiver.bound
    assert bound.startswith("tcp://0.0.0.0:" if host == "*" else "tcp://127.0.0.1:")
    assert not bound.endswith(":0")


def test_a_name_without_an_address_is_warned_of_and_tried_again(opened, caplog):
    opened("zpush://no-such-host.invalid:5555")
    assert "zpush://no-such-host.invalid:5555: the name 'no-such-host.invalid' has no address yet" in caplog.text


def test_ipv6(opened):
    try:
        receiver = opened("zpull://[::1]:0")
    except LinkError:
        pytest.skip("this machine has no IPv6")
    (bound,) = receiver.bound
    sender = opened(f"zpush{bound[3:]}")
    sender.send([b"six"], timeout=60)
    assert bytes(receiver.recv(timeout=60)[0]) == b"six"


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_what_comes_over_ipc_and_what_over_tcp_is_told_apart(ipc, host):
    try:
        receiver = ZMQReceiver(parse([f"ipc://{ipc()}", f"tcp://{host}:0"], "receive", bind=True))
    except LinkError:
        pytest.skip("this machine has no IPv6")
    senders = [ZMQSender(parse(address, "send", bind=False)) for address in receiver.bound]
    sources = []
    for sender in senders:
        sender.send([b"x"], timeout=60)
        sources.append(receiver.source(receiver.recv(timeout=60)))
    assert [source.host for source in sources] == ["", host.strip("[]")]
    assert sources[0].connection != sources[1].connection
    for end in (*senders, receiver):
        end.close(0)


def test_only_what_waits_at_unix_sockets_counts_as_unread(opened, ipc):
    sender = opened([f"zrpush+ipc://{ipc()}", "zrpush://127.0.0.1:0"])
    with zmq.Context() as context, context.socket(zmq.PULL) as over_ipc, context.socket(zmq.PULL) as over_tcp:
        for receiver, bound in zip((over_ipc, over_tcp), sender.bound):
            receiver.rcvhwm = 1
            receiver.connect(bound)
        wait_until(lambda: sender.peers().live == 2)
        wait_until(lambda: not sender.unread())  # of what they have said to each other first
        with pytest.raises(TimeoutError):
            while True:
                sender.send([bytes(4_000_000)], timeout=1)
        wait_until(sender.unread)
        while sender.unread():
            if over_ipc.poll(10):
                over_ipc.recv()
        assert sender.unsent()  # what waits for the other one


def test_a_closed_socket_says_so(pair):
    sender, receiver = pair()
    sender.close(0)
    receiver.close(0)
    receiver.close(0)
    with pytest.raises(LinkError, match="is closed"):
        sender.send([b"x"])


def test_a_forked_child_uses_no_socket_of_its_parent(python, ipc):
    script = """
        import os, sys, warnings
        import numpy as np
        import highway
        from highway.wire.connection import Connection
        warnings.simplefilter("ignore")  # newer Pythons warn of a fork beside threads, which is what this is about
        with Connection("zpush+ipc://" + sys.argv[1]) as mine:
            child = os.fork()
            if child == 0:
                try:
                    mine.send([np.zeros(3, np.uint8)])
                except highway.LinkError as error:
                    mine.close()
                    with Connection("zpush+ipc://" + sys.argv[1]) as own:
                        own.send([np.frombuffer(str(error).encode(), np.uint8)])
                    sys.exit(0)
                sys.exit(1)
            os.waitpid(child, 0)
            mine.send([np.frombuffer(b"parent", np.uint8)])
    """
    with Connection(f"zpull+ipc://{(place := ipc())}") as receiver:
        process = python(script, place)
        texts = {receiver.recv(timeout=60)[0].tobytes().decode() for _ in range(2)}
        _, errors = process.communicate(timeout=200)
    assert (process.returncode, errors) == (0, "")
    assert "parent" in texts
    (of_the_child,) = texts - {"parent"}
    assert "was opened in process" in of_the_child
    assert "open it in the process that uses it" in of_the_child


SENDS_AND_ENDS = """
    import sys
    import numpy as np
    from highway.wire.connection import Connection
    sender = Connection(sys.argv[1])
    for number in range(10):
        sender.send([np.full(1_000_000, number, np.uint8)])
"""


def test_the_tail_of_a_stream_leaves_though_the_script_ends_without_close(python):
    with Connection("zpull://127.0.0.1:0") as receiver:
        process = python(SENDS_AND_ENDS, "zpush" + receiver.bound[0][3:])
        received = [receiver.recv(timeout=60)[0][0] for _ in range(10)]
        _, errors = process.communicate(timeout=200)
    assert received == list(range(10))
    assert (process.returncode, errors) == (0, "")


@pytest.mark.slow
def test_an_absent_peer_does_not_hold_up_the_exit(python, ipc):
    process = python(SENDS_AND_ENDS, f"zpush+ipc://{ipc()}?linger_ms=100")
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0
    assert "10 messages were not delivered, because no receiver connected within 0.1 s" in errors


@pytest.mark.parametrize("position", [1, 2, 3])
def test_a_receiver_that_leaves_in_the_middle_of_a_message_does_not_stop_the_sender(opened, ipc, position):
    place = ipc()
    sender = opened(f"zrpush+ipc://{place}")
    address = f"zrpull+ipc://{place}"
    receivers = [opened(address)]
    frames = [b"first", bytes(100_000), b"third", b"fourth"]
    sent, send_frame = [], sender.send_frame

    def leave(view, *options):
        if len(sent) == position:
            receivers[0].close(0)
            wait_until(lambda: sender.peers().live == 0)
            receivers.append(opened(address))
            wait_until(lambda: sender.peers().live == 1)
        sent.append(bytes(view))
        return send_frame(view, *options)

    wait_until(lambda: sender.peers().live == 1)
    sender.send_frame = leave
    sender.send(frames, timeout=60)
    again = [frames] if sent == frames * 2 else []  # ZeroMQ says that it has dropped a message, unless it has noticed before the next frame
    sender.socket.getsockopt(zmq.EVENTS)  # takes notice of who is gone
    sender.send([b"next"], timeout=60)
    for expected in (*again, [b"next"]):
        assert [bytes(frame) for frame in receivers[1].recv(timeout=60)] == expected


@pytest.mark.slow
def test_a_sender_and_its_receiver_may_close_at_the_same_moment(ipc):
    # Where a message is half sent, libzmq 4.3.5 aborts the process: within 50 to 300 rounds of this.
    script = f"""
        import random, threading
        from highway.wire.transports.zmq.socket import ZMQReceiver, ZMQSender
        from highway.wire.url import parse

        part = memoryview(bytes(900_000))

        def send(sender, closing):
            while not closing.is_set():
                try:
                    sender.send([b"header", part, part, part], timeout=0.01)
                except TimeoutError:
                    pass
            sender.close(0)

        for number in range(400):
            place = "{ipc()}" + str(number)
            sender = ZMQSender(parse(f"zrpush+ipc://{{place}}", "send"))
            receiver = ZMQReceiver(parse(f"zrpull+ipc://{{place}}", "receive"))
            closing = threading.Event()
            thread = threading.Thread(target=send, args=(sender, closing))
            thread.start()
            for _ in range(5):
                receiver.recv(timeout=60)
            closing.set()
            threading.Event().wait(random.random() * 0.02)
            receiver.close(0)
            thread.join()
    """
    child = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], stderr=subprocess.PIPE, text=True, timeout=280)
    assert (child.returncode, child.stderr) == (0, "")


@pytest.mark.parametrize("others", [0, 1])
def test_what_a_sender_sent_before_it_closed_is_received_whenever_it_is_read(opened, own_address, others):
    senders = [opened(f"zrpush://{own_address}:0") for _ in range(1 + others)]
    urls = [f"zrpull://{sender.bound[0].removeprefix('tcp://')}" for sender in senders]
    receiver = opened(urls)
    wait_until(lambda: receiver.peers().live == len(senders))
    for number in range(3):
        senders[0].send([b"%d" % number], timeout=60)
    senders[0].close(20)
    wait_until(lambda: receiver.peers().live == others)
    time.sleep(0.1)  # ZeroMQ's thread tells the monitor before it tells the socket, and nothing tells when it has
    assert [bytes(receiver.recv(timeout=60)[0]) for _ in range(3)] == [b"0", b"1", b"2"]


def test_threads_that_open_the_first_sockets_share_a_context():
    script = """
import threading, warnings
from concurrent.futures import ThreadPoolExecutor
from highway.wire.transports.zmq.context import current
warnings.simplefilter("error")
count = 16
ready = threading.Barrier(count)
def first():
    ready.wait()
    return current()
with ThreadPoolExecutor(count) as pool:
    contexts = [one.result() for one in [pool.submit(first) for _ in range(count)]]
assert len(set(map(id, contexts))) == 1, contexts
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and "Unclosed" not in done.stderr, done.stderr
