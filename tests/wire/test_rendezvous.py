"""Ends of links that find each other by name, wherever they are, and go on when one of them moves."""

import itertools
import logging
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from waiting import wait_until

import highway
from highway import LinkError, Pipeline
from highway.engine.cancel import wait
from highway.errors import ConfigError
from highway.modules import ZMQSink, ZMQSource, links
from highway.wire import goodbye, rendezvous
from highway.wire.receiver import LinkReceiver
from highway.wire.registries.folder import FolderRendezvous
from highway.wire.sender import LinkSender
from highway.wire.url import parse

HOME = Path(highway.__file__).parents[1]
PUSH, PULL = "zpush+named://raw.reader.0", "zrpull+named://raw.reader.0"  # who connects
BIND_PUSH, BIND_PULL = "zrpush+named://raw.reader.0", "zpull+named://raw.reader.0"  # who binds


class Moved:
    """A rendezvous in memory that can fail, and whose addresses can be changed."""

    def __init__(self):
        self.addresses, self.broken, self.calls = {}, "", 0

    def publish(self, addresses):
        self._call()
        self.addresses |= addresses

    def find(self, names):
        self._call()
        return {name: address for name, address in self.addresses.items() if name in names}

    def _call(self):
        self.calls += 1
        if self.broken:
            raise OSError(self.broken)


@pytest.fixture
def use(own_address, monkeypatch):
    """Have this process use a rendezvous, as another process would that shares it; returns what it knows of names."""
    directories = []
    monkeypatch.setattr(rendezvous, "REFRESH", 0.05)

    def use(meeting, host=own_address):
        directories.append(rendezvous.use(meeting, host))
        return directories[-1]

    yield use
    for directory in directories:
        directory.close()


@pytest.fixture(params=["folder", "memory"])
def meeting(request, tmp_path):
    return FolderRendezvous(tmp_path / "rendezvous") if request.param == "folder" else Moved()


@pytest.fixture
def opened():
    """Open an end of a link; it is closed at the end of the test."""
    ends = []

    def opened(url):
        end = LinkSender(parse(url, "send")) if "push" in url else LinkReceiver(parse(url, "receive"), {})
        ends.append(end)
        return end

    yield opened
    for end in ends:
        end.close()


def item(number):
    return (np.full(1, number, np.int32),)


def number_of(message):
    return int(message.item[0][0])


def deliver(sender, receiver, number):
    wait_until(lambda: receiver.transport_end.peers().live)  # an end that connects looks where the other is when it is used
    sender.send(item(number), timeout=60)
    assert number_of(receiver.recv(60)) == number


@pytest.mark.parametrize("urls", [(PUSH, BIND_PULL), (BIND_PUSH, PULL)], ids=["receiver binds", "sender binds"])
@pytest.mark.parametrize("late", [0, 1], ids=["sender is late", "receiver is late"])
def test_ends_find_each_other_whoever_comes_first(use, meeting, opened, urls, late):
    ends = [None, None]
    for which in (1 - late, late):
        directory = use(meeting)
        ends[which] = opened(urls[which])
        if which != late and urls[which] in (PUSH, PULL):  # it connects, and asks in vain
            with pytest.raises(TimeoutError, match=r"no process has published an address for raw.reader.0: check that the other end runs"):
                ends[which].send(item(0), timeout=0.2) if which == 0 else ends[which].recv(0.2)
            assert directory.address("raw.reader.0") == ""
    sender, receiver = ends
    if urls == (BIND_PUSH, PULL):
        deliver(sender, receiver, 7)
    else:
        sender.send(item(7), timeout=60)
        assert number_of(receiver.recv(60)) == 7


def test_an_end_that_binds_opens_no_port_but_at_its_own_address(use, own_address, opened):
    meeting = Moved()
    use(meeting)
    end = opened(BIND_PULL)
    (bound,) = end.bound
    assert re.fullmatch(rf"tcp://{own_address}:\d+", bound)
    assert wait_until(lambda: meeting.addresses) == {"raw.reader.0": bound}


@pytest.mark.parametrize("urls", [(PUSH, BIND_PULL), (BIND_PUSH, PULL)], ids=["receiver binds", "sender binds"])
def test_an_end_that_moves_is_followed_and_the_stream_goes_on(use, meeting, opened, urls):
    binds = 0 if urls[0] == BIND_PUSH else 1
    directory = use(meeting)
    stays = opened(urls[1 - binds])
    places, numbers = [], itertools.count()
    for _ in range(3):
        use(meeting)  # a new process
        moves = opened(urls[binds])
        places += moves.bound
        sender, receiver = ends = (moves, stays) if binds == 0 else (stays, moves)
        wait_until(lambda place=places[-1]: directory.address("raw.reader.0") == place)
        wait_until(lambda ends=ends: [end.transport_end.peers().live for end in ends] == [1, 1])
        for number in itertools.islice(numbers, 3):
            deliver(sender, receiver, number)
        moves.close(0) if binds == 0 else moves.close()  # without an end of the stream
    assert len(set(places)) == 3


def test_what_had_come_before_its_sender_moved_is_still_received(use, opened):
    use(meeting := Moved())
    receiver = opened(PULL)
    for which in range(2):
        use(meeting)
        sender = opened(BIND_PUSH)
        wait_until(lambda sender=sender: receiver.transport_end.peers() and sender.transport_end.peers().live)
        for number in range(3):
            sender.send(item(3 * which + number), timeout=60)
        if which == 0:
            assert number_of(receiver.recv(60)) == 0
            sender.close(5)
    assert sorted(number_of(receiver.recv(60)) for _ in range(5)) == [1, 2, 3, 4, 5]


def test_two_names_at_one_place_are_one_connection_which_stays_when_one_of_them_moves(use, opened):
    """As where a process has taken the port of one that has ended."""
    meeting = Moved()
    directory = use(meeting)
    receiver, sender = opened(BIND_PULL), opened("zpush+named://raw.reader.{0,1}")
    (bound,) = receiver.bound
    meeting.addresses["raw.reader.1"] = bound
    wait_until(lambda: directory.address("raw.reader.1"))
    sender.send(item(0), timeout=60)
    assert number_of(receiver.recv(60)) == 0
    use(meeting)
    other = opened("zpull+named://raw.reader.1")
    wait_until(lambda: directory.address("raw.reader.1") != bound)
    wait_until(lambda: sender.transport_end.peers().live == 2)
    for number in range(10):
        sender.send(item(number), timeout=60)
    assert len([number_of(end.recv(60)) for end in (receiver, other) for _ in range(5)]) == 10
    assert sender.transport_end.peers().opened == 2


def test_a_rendezvous_that_does_not_answer_keeps_what_is_known_and_is_told_once(use, opened, caplog):
    caplog.set_level(logging.INFO, "highway")
    meeting = Moved()
    use(meeting)
    receiver, sender = opened(BIND_PULL), opened(PUSH)
    sender.send(item(0), timeout=60)
    assert number_of(receiver.recv(60)) == 0
    meeting.broken = "its host is gone"
    calls = meeting.calls
    wait_until(lambda: meeting.calls > calls + 5)
    sender.send(item(1), timeout=60)
    assert number_of(receiver.recv(60)) == 1
    meeting.broken = ""
    wait_until(lambda: "answers again" in caplog.text)
    assert caplog.text.count("the rendezvous does not answer, so links keep the known addresses: its host is gone") == 1


def test_a_rendezvous_that_has_lost_all_is_told_again(use, own_address, opened):
    meeting = Moved()
    use(meeting)
    opened(BIND_PULL)
    address = wait_until(lambda: dict(meeting.addresses))
    meeting.addresses.clear()
    assert wait_until(lambda: dict(meeting.addresses)) == address


def test_who_was_replaced_does_not_take_the_place_of_its_successor(use, opened):
    """Such as a process whose host was cut off, and is back."""
    meeting = Moved()
    use(meeting)
    opened(BIND_PULL)
    wait_until(lambda: meeting.addresses)
    use(meeting)
    successor = opened(BIND_PULL)
    wait_until(lambda: meeting.addresses["raw.reader.0"] == successor.bound[0])
    calls = meeting.calls
    wait_until(lambda: meeting.calls > calls + 10)
    assert meeting.addresses["raw.reader.0"] == successor.bound[0]


def test_names_that_nobody_publishes_are_told_once(use, caplog, monkeypatch):
    class Asked(Moved):
        def __init__(self):
            super().__init__()
            self.names = set()

        def find(self, names):
            self.names |= names
            return super().find(names)

    monkeypatch.setattr(rendezvous, "TELL_AFTER", 1000.0)
    meeting = Asked()
    directory = use(meeting)
    for replica in range(6):
        directory.follow(f"raw.reader.{replica}")
    wait_until(lambda: len(meeting.names) == 6)
    monkeypatch.setattr(rendezvous, "TELL_AFTER", 0.0)
    said = (
        "no process has published the names raw.reader.0, raw.reader.1, raw.reader.2, raw.reader.3 and 2 more; check that these "
        "processes run"
    )
    wait_until(lambda: said in caplog.text)
    calls = meeting.calls
    wait_until(lambda: meeting.calls > calls + 5)
    assert caplog.text.count("no process has published") == 1


def test_the_thread_that_moves_data_never_waits_for_the_rendezvous(use, opened):
    class Slow(Moved):
        gate = threading.Event()

        def _call(self):
            assert threading.current_thread().name == "highway:rendezvous"
            self.gate.wait(60)

    use(Slow())
    receiver, sender = opened(BIND_PULL), opened(PUSH)
    with pytest.raises(TimeoutError):
        sender.send(item(0), timeout=0.2)
    Slow.gate.set()
    sender.send(item(1), timeout=60)
    assert number_of(receiver.recv(60)) == 1


def test_a_process_without_a_rendezvous_says_how_to_give_it_one():
    code = f"from highway.wire.sender import LinkSender; from highway.wire.url import parse; LinkSender(parse({PUSH!r}, 'send'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert re.search(r"LinkError: .*the name in this URL needs a rendezvous.*`highway run --rendezvous folder:PATH`", done.stderr)


@pytest.mark.parametrize(
    ("host", "why"),
    [("192.0.2.1", "Cannot assign requested address"), ("no.such.host.invalid", "this machine finds no address for the name")],
)
def test_an_address_that_is_not_this_hosts_is_said(use, host, why):
    use(Moved(), host)
    with pytest.raises(LinkError) as error:
        LinkReceiver(parse(BIND_PULL, "receive"), {})
    said = f"{BIND_PULL}: cannot bind a port of {host} ({why}); pass another address of this host with --address HOST"
    assert error.value.strerror == said


def test_a_folder_keeps_names_of_any_kind_apart_and_leaves_nothing_else_in_it(tmp_path):
    names = ["raw.reader.0", "a/b", "ü {x} %2E", "a%2Fb"]
    writer, reader = FolderRendezvous(tmp_path / "new" / "folder"), FolderRendezvous(tmp_path / "new" / "folder")
    assert reader.find(names) == {}
    for turn in range(2):
        writer.publish({name: f"host:{turn}{number}" for number, name in enumerate(names)})
        assert reader.find(names) == {name: f"host:{turn}{number}" for number, name in enumerate(names)}
    assert reader.find(["another", names[0]]) == {names[0]: "host:10"}
    assert len(os.listdir(tmp_path / "new" / "folder")) == len(names)
    assert os.listdir(tmp_path) == ["new"]


def test_a_folder_that_cannot_be_written_does_not_fill_up_and_is_told(use, tmp_path, caplog):
    (tmp_path / "file").touch()
    directory = use(FolderRendezvous(tmp_path / "file"))
    directory.publish("raw.reader.0", "tcp://127.0.0.1:5555")
    wait_until(lambda: "the rendezvous does not answer" in caplog.text)
    assert "Not a directory" in caplog.text


@pytest.mark.parametrize("junk", [b"\xff\xfe\x00", b"what is this?", b"tcp://host:99999", b"", b"x" * 10_000_000], ids=range(5))
def test_junk_in_a_folder_is_ignored_and_said_once(use, opened, tmp_path, caplog, junk):
    (tmp_path / "raw.reader.0").write_bytes(junk)
    os.mkfifo(tmp_path / "raw.reader.1")
    (tmp_path / "raw.reader.2").mkdir()
    directory = use(FolderRendezvous(tmp_path))
    for number in (1, 2):
        directory.follow(f"raw.reader.{number}")
    receiver = opened(PULL)
    wait_until(lambda: caplog.text.count("which is ignored because it is not an address such as tcp://host:port") == 3)
    sender = opened(BIND_PUSH)  # publishes over it
    deliver(sender, receiver, 7)
    assert caplog.text.count("for raw.reader.0, which is ignored") == 1


def test_a_rendezvous_that_hangs_is_told_once(use, caplog, monkeypatch):
    class Hanging(Moved):
        gate = threading.Event()

        def _call(self):
            self.gate.wait(60)

    monkeypatch.setattr(rendezvous, "TELL_AFTER", 0.1)
    try:
        directory = use(Hanging())
        directory.follow("raw.reader.0")
        wait_until(lambda: "the rendezvous does not answer" in caplog.text)
    finally:
        Hanging.gate.set()
    wait_until(lambda: "no process has published the names raw.reader.0" in caplog.text)
    assert caplog.text.count("a request has had no answer for 0.1 s") == 1


@pytest.mark.parametrize("host", ["localhost", "::1"])
def test_names_of_hosts_and_addresses_of_ipv6_are_found_too(use, opened, host):
    use(Moved(), host)
    receiver, sender = opened(BIND_PULL), opened(PUSH)
    sender.send(item(3), timeout=60)
    assert number_of(receiver.recv(60)) == 3


@pytest.mark.parametrize("text", ["folder", "folder:", "ray", "dns:x", ""])
def test_a_text_that_is_no_rendezvous_is_said(text):
    with pytest.raises(ConfigError, match=f"^rendezvous {text}: expected folder:PATH"):
        rendezvous.parse(text)


# --- a receiver leaves ---

PADDING = np.zeros(1 << 16, np.uint8)  # so that the system's buffers hold some dozens of messages, not ten thousands


class Numbers:
    def __init__(self):
        self.count = 0

    def __iter__(self):
        for number in itertools.count():
            self.count = number + 1
            yield *item(number), PADDING


class Keep:
    def __init__(self):
        self.got = []

    def consume(self, items):
        for each in items:
            self.got.append(int(each[0][0]))
            wait(0.0005)


@pytest.mark.parametrize("urls", [(BIND_PUSH, PULL), (PUSH, BIND_PULL)], ids=["sender binds", "receiver binds"])
def test_a_receiver_that_is_drained_loses_nothing(use, meeting, urls, monkeypatch):
    """The first one of a link is drained in mid-stream; its successor, where one binds elsewhere, goes on behind it."""
    for name in ("PAUSE", "SILENCE", "HELLO", "GONE"):
        monkeypatch.setattr(goodbye, name, 100.0)  # an end that a busy machine does not run is not gone
    for name in ("LEAVE", "LAST_CALL"):
        monkeypatch.setattr(links, name, 100.0)
    use(meeting)
    source, sinks, threads = Numbers(), [Keep(), Keep()], []

    def run(*stages):
        pipeline = Pipeline(list(stages))
        threads.append(threading.Thread(target=pipeline.run))
        threads[-1].start()
        return pipeline

    sending = run(source, ZMQSink(f"{urls[0]}?budget_mb=4"))
    receiving = []
    try:
        for sink in sinks:
            use(meeting)
            receiving.append(run(ZMQSource(urls[1]), sink))
            wait_until(lambda sink=sink: len(sink.got) > 200)
            if sink is sinks[0]:
                receiving[0].drain()
                threads[1].join(60)
        sending.drain()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
    finally:
        for pipeline in [sending, *receiving]:
            pipeline.stop()
        for thread in threads:
            thread.join(60)
    assert sorted(sinks[0].got + sinks[1].got) == list(range(source.count))


# --- by hand ---

FILE = """
links:
  raw: {from: reader, to: worker, port: 1}
  out: {from: worker, to: trainer, port: 2, bind: to, tap: 3-4}
hosts: {far: 192.0.2.7}
roles:
  reader: {hosts: far, stages: [$Numbers: {count: 300}, ZMQSink: {link: raw}]}
  worker: {hosts: far, replicas: 2, stages: [ZMQSource: {link: raw}, $Pass, ZMQSink: {link: out}]}
  trainer: {hosts: far, stages: [ZMQSource: {link: out}, $Say: {}]}
"""


@pytest.mark.slow
def test_roles_that_are_started_by_hand_find_each_other_in_a_folder(write, start, numbers, own_address, folder):
    """Their hosts, ports and taps in the file do not count."""
    path = write(FILE)
    common = ["run", path, "--plugin", "mine", "--rendezvous", "folder:meet", "--address", own_address]
    runs = [start(*common, "--role", "trainer"), start(*common, "--role", "worker", "--replica", 1)]
    runs += [start(*common, "--role", "reader"), start(*common, "--role", "worker", "--replica", 0)]
    ended = [run.end() for run in runs]
    assert [code for code, _, _ in ended] == [0, 0, 0, 0], ended
    assert sorted(numbers(ended[0][1])) == list(range(300))
    assert sorted(os.listdir("meet")) == ["out.trainer.0", "raw.reader.0"]


@pytest.mark.slow
def test_all_roles_of_a_host_find_each_other_in_a_folder_and_one_that_is_killed_is_found_again(write, call, numbers, own_address):
    dies = FILE.replace("{count: 300}", "{count: 300}, $KillAt: {number: 100}")
    dies = dies.replace("reader: {hosts: far,", "reader: {hosts: far, restart: {when: on-failure, delay_s: 0.1},")
    code, out, error = call("run", write(dies), "--plugin", "mine", "--rendezvous", "folder:meet", "--address", own_address)
    assert code == 0, error
    got = numbers(out)
    assert set(got) == set(range(300)), error
    assert "reader failed (killed by SIGKILL)" in error


SCRIPT = """
from highway import Pipeline

with Pipeline.from_yaml("PATH", role="trainer", on="folder:meet", plugins=["mine"]) as pipeline:
    pipeline.run()
"""


@pytest.mark.slow
def test_a_script_finds_the_others_in_a_folder(write, start, numbers, own_address):
    path = write(FILE)
    common = ["run", path, "--plugin=mine", "--rendezvous=folder:meet", f"--address={own_address}"]
    runs = [start(*common, "--role=reader"), *(start(*common, "--role=worker", f"--replica={replica}") for replica in range(2))]
    script = [sys.executable, "-c", SCRIPT.replace("PATH", path)]
    trainer = subprocess.run(script, capture_output=True, text=True, timeout=200, env=os.environ | {"PYTHONPATH": f"{HOME}{os.pathsep}."})
    assert trainer.returncode == 0, trainer.stderr
    assert sorted(numbers(trainer.stdout)) == list(range(300))
    assert [run.end()[0] for run in runs] == [0, 0, 0]
