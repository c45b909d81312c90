"""Ends of different topology files at one address: they exchange nothing, and both logs say why. Ends of one file always meet."""

import contextlib
import os
import shutil
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from waiting import wait_until

from highway.modules import ZMQSink, ZMQSource
from highway.topology import load
from highway.wire.receiver import LinkReceiver
from highway.wire.sender import LinkSender

TEXT = "links: {l: {from: a, to: b, port: 5555}}\nroles: {a: [Noise: [2], ZMQSink: {link: l}], b: [ZMQSource: {link: l}]}\n"
EXTERNAL = TEXT.replace("b: [ZMQSource: {link: l}]", "b: {external: true}")


def written(path, text=TEXT):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def topology_of(*paths):
    """Return the parameter by which an end tells its file."""
    return load(paths).process_spec("a").stages[1]["ZMQSink"].get("topology", "")


@dataclass
class Ends:
    """Opens both ends of a link: one binds, the other one connects to it."""

    place: str

    def sender(self, topology, receiver=None):
        url = f"zpush+{receiver.bound[0]}" if receiver else f"zrpush+{self.place}"
        return LinkSender(ZMQSink(f"{url}?linger_ms=0", peers="highway", topology=topology).link)

    def receiver(self, topology, sender=None, peers="highway"):
        url = f"zrpull+{sender.bound[0]}" if sender else f"zpull+{self.place}"
        return LinkReceiver(ZMQSource(url, peers=peers, topology=topology).link, {})


@pytest.fixture(params=["tcp", "ipc"])
def ends(request, own_address, ipc):
    return Ends(f"tcp://{own_address}:0" if request.param == "tcp" else f"ipc://{ipc()}")


def has_connected(receiver):
    """Let a receiver try to connect again, and return whether it is connected."""
    with contextlib.suppress(TimeoutError):
        receiver.transport_end.recv(0.01)
    return receiver.transport_end.peers().live


def check_they_meet(ends, bound, connecting):
    with ends.sender(bound) as sender, ends.receiver(connecting, sender) as receiver:
        sender.send((np.arange(3, dtype=np.int32),), timeout=60)
        assert receiver.recv(60).item[0].tolist() == [0, 1, 2]
        assert sender.strangers == 0


def test_a_receiver_of_another_file_with_the_same_name_gets_nothing(ends, tmp_path, caplog):
    own, other = (written(tmp_path / folder / "t.yaml") for folder in ("one", "two"))
    with ends.sender(topology_of(own)) as sender:
        with ends.receiver(topology_of(other), sender) as stranger:
            wait_until(lambda: sender.strangers and stranger.transport_end.peers().strangers)
            assert sender.transport_end.peers()[:2] == stranger.transport_end.peers()[:2] == (0, 0)
        with ends.receiver(topology_of(own), sender) as receiver:
            sender.send((np.arange(3, dtype=np.int32),), timeout=60)
            assert receiver.recv(60).item[0].tolist() == [0, 1, 2]
    assert (
        caplog.text.count(
            f"belongs to the topology file {other}, but this end belongs to {own}: highway exchanges no data with this program."
        )
        == 1
    )
    assert caplog.text.count(f"does not belong to the topology file of this end, {other} (the log of the other end names both files)") == 1


def test_a_sender_of_another_file_ends_nobody_and_brings_nothing(ends, tmp_path, caplog):
    own, other = (written(tmp_path / folder / "t.yaml") for folder in ("one", "two"))
    with ends.receiver(topology_of(own)) as receiver:
        with ends.sender(topology_of(other), receiver) as stranger:
            wait_until(lambda: stranger.strangers and receiver.transport_end.peers().strangers)
        with ends.sender(topology_of(own), receiver) as sender:
            sender.send((np.arange(3, dtype=np.int32),), timeout=60)
            assert receiver.recv(60).item[0].tolist() == [0, 1, 2]
    assert caplog.text.count(f"{other}, but this end belongs to {own}") == 1


def test_a_script_that_connects_to_any_program_is_refused_for_another_file_only(ends, tmp_path, caplog):
    own, other = (written(tmp_path / folder / "t.yaml") for folder in ("one", "two"))
    with ends.sender(topology_of(own)) as sender:
        with ends.receiver(topology_of(other), sender, peers="any") as stranger:
            wait_until(lambda: "the log of the other end names both files" in caplog.text or has_connected(stranger))
            assert sender.transport_end.peers()[:2] == (0, 0)
        with ends.receiver(topology_of(own), sender, peers="any") as receiver:
            wait_until(lambda: has_connected(receiver))
            sender.send((np.arange(3, dtype=np.int32),), timeout=60)
            assert receiver.recv(60).item[0].tolist() == [0, 1, 2]


def test_a_file_stays_the_same_when_it_is_edited_replaced_linked_or_moved_with_its_folder(ends, tmp_path):
    file = written(tmp_path / "one" / "t.yaml")
    first = topology_of(file)
    written(file, f"# edited\n{TEXT}")
    check_they_meet(ends, first, topology_of(file))
    written(tmp_path / "one" / "new").replace(file)
    check_they_meet(ends, first, topology_of(file))
    (tmp_path / "link.yaml").symlink_to(file)
    check_they_meet(ends, topology_of(tmp_path / "link.yaml"), first)
    (tmp_path / "one").rename(tmp_path / "two")
    check_they_meet(ends, first, topology_of(tmp_path / "two" / "t.yaml"))
    shutil.copytree(tmp_path / "two", tmp_path / "one")
    check_they_meet(ends, first, topology_of(file))


def test_runs_with_the_same_first_file_are_not_told_apart(ends, tmp_path):
    base = written(tmp_path / "base.yaml")
    trainer = written(tmp_path / "trainer.yaml", "seed: 7")
    check_they_meet(ends, topology_of(base), topology_of(base, trainer))


def test_files_on_two_machines_are_not_compared(ends, tmp_path):
    here = topology_of(written(tmp_path / "t.yaml"))
    _, words = here.split(" ", 1)
    check_they_meet(ends, here, f"{'0' * 16} 1 2 {words}")
    there = f"{'0' * 16} {words}"
    check_they_meet(ends, here, there.replace("t.yaml", "other.yaml"))


def test_an_end_without_a_file_meets_an_end_of_any_file(ends, tmp_path):
    topology = topology_of(written(tmp_path / "t.yaml"))
    check_they_meet(ends, topology, "")
    check_they_meet(ends, "", topology)


def test_links_that_other_programs_may_take_part_in_tell_no_file(tmp_path):
    assert topology_of(written(tmp_path / "external.yaml", EXTERNAL)) == ""
    assert topology_of(written(tmp_path / "any.yaml", TEXT.replace("port: 5555", "port: 5555, peers: any"))) == ""


def test_a_script_that_joins_a_run_at_a_rendezvous_may_have_a_copy_of_the_file(tmp_path):
    found = load(written(tmp_path / "t.yaml"))
    script = found.process_spec("b", is_known=False).stages[0]["ZMQSource"]
    assert script["topology"] == topology_of(tmp_path / "t.yaml")
    there = found.at_rendezvous()
    assert "topology" not in there.process_spec("b", is_known=False).stages[0]["ZMQSource"]
    assert "topology" in there.process_spec("b").stages[0]["ZMQSource"]


def test_a_file_that_is_a_pipe_tells_no_path(tmp_path):
    """Of ``highway run <(command)`` each process has another pipe."""
    os.mkfifo(tmp_path / "t.yaml")
    writer = threading.Thread(target=(tmp_path / "t.yaml").write_text, args=[TEXT])
    writer.start()
    assert topology_of(tmp_path / "t.yaml") == ""
    writer.join()


@pytest.mark.parametrize("name", ["x" * 200, "é" * 100, "a b", os.fsdecode(b"\xff\xfe")], ids=["long", "two bytes", "space", "no text"])
def test_any_name_of_a_file_can_be_told(ends, tmp_path, name):
    own, other = (topology_of(written(tmp_path / folder / f"{name}.yaml")) for folder in ("one", "two"))
    with ends.sender(own) as sender:
        with ends.receiver(other, sender):
            wait_until(lambda: sender.strangers)
        with ends.receiver(own, sender) as receiver:
            sender.send((np.arange(3, dtype=np.int32),), timeout=60)
            assert receiver.recv(60).item[0].tolist() == [0, 1, 2]
