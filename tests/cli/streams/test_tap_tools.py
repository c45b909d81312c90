"""Looking into the links of a topology that runs."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from highway.cli.streams import mon, show, stat
from highway.errors import ConfigError
from highway.observe.viewers import viewer_urls
from highway.topology import load

WAIT = 60  # seconds; nothing here takes as long
TOPOLOGY = """
vars: {transport: ipc}
hosts: {a: 192.0.2.1, b: 192.0.2.2}
links:
  raw: {from: reader, to: worker, transport: "${transport}"}
  augmented: {from: worker, to: trainer, transport: "${transport}", bind: to}
roles:
  reader: {hosts: a, stages: ["mine:NumberedImages", ZMQSink: {link: raw}]}
  worker: {hosts: a, replicas: 2, stages: [ZMQSource: {link: raw}, ZMQSink: {link: augmented}]}
  trainer: {hosts: a, stages: [ZMQSource: {link: augmented}, "mine:CheckImages", "mine:Record": got]}
"""


@pytest.fixture
def folder(folder, monkeypatch):
    """The current folder, with a topology and its stages."""
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    (folder / "t.yaml").write_text(TOPOLOGY)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["ipc", "shm"])
def test_viewers_see_a_running_topology_and_the_trainer_gets_every_batch(folder, transport, capfd):
    file = f"t{os.getpid()}.yaml"  # whose links have sockets of their own
    (folder / "t.yaml").rename(file)
    command = [sys.executable, "-m", "highway", "run", file, "--plugin", "mine", f"--set=transport={transport}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        link = [file, "--local", "--link", "augmented", "-t", str(WAIT)]
        assert mon.main([*link, "-c", "5"]) == 0
        assert show.main([*link, "-c", "3", "-o", "grid.png"]) == 0
        assert stat.main([*link, "-c", "4", "--role", "worker", "--replica", "1"]) == 0
        assert stat.main([file, "--local", "--link", "raw", "-c", "4"]) == 0
        viewer = subprocess.Popen([sys.executable, "-m", "highway", "mon", *link], stdout=subprocess.PIPE, text=True)
        assert [viewer.stdout.readline() for _ in range(2)] == [f"waiting for the link augmented of {file}\n", "connected\n"]
        (folder / "stop").touch()
        assert "the senders have ended\n" in viewer.communicate(timeout=WAIT)[0]
        _, complaints = process.communicate(timeout=WAIT)
        assert (process.returncode, viewer.returncode) == (0, 0), complaints
    finally:
        (folder / "stop").touch()
        process.communicate(timeout=WAIT)
    assert sorted(map(int, (folder / "got").read_text().split())) == list(range(int((folder / "sent").read_text())))
    out = capfd.readouterr().out
    assert "5 batches, 0.0 MB; gaps" in out
    assert out.count("int32  scalar           16") == 2
    with Image.open("grid.png") as picture:
        middles = [np.asarray(picture)[104, 88 + 142 * n] for n in range(3)]
    assert all(len(set(middle)) == 1 for middle in middles) and len({int(middle[0]) for middle in middles}) > 1  # 256 later it is equal


@pytest.mark.parametrize("tool", [mon, show, stat])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["t.yaml", "--link", "augmentd"], "t.yaml:4: links: no link 'augmentd'; did you mean augmented?"),
        (["t.yaml"], "'t.yaml' is not a URL; to show a running topology, pass FILE --link NAME"),
        (["--link", "raw"], "--link raw selects a link of a topology: pass the topology file, such as pipeline.yaml, instead of URLs"),
        (["zsub://127.0.0.1:1", "--link", "raw"], "--link raw selects a link of a topology: pass the topology file"),
        (["zsub://127.0.0.1:1", "--role", "worker"], "--role selects data of a link of a topology; also pass FILE --link NAME"),
        (["zsub://127.0.0.1:1", "--replica", "0"], "--replica selects data of a link"),
        (["zsub://127.0.0.1:1", "--local"], "--local selects data of a link"),
        (["no.yaml", "--link", "raw"], "no.yaml: there is no such file"),
        (
            ["t.yaml", "--link", "raw", "--role", "worker"],
            "t.yaml:5: links.raw.from: worker does not send on this link; expected one of reader",
        ),
        (["t.yaml", "--link", "augmented", "--replica", "2"], "links.augmented.from: there is no replica 2; expected 0 to 1"),
        (["t.yaml", "--link", "raw", "--set", "trnsport=shm"], "vars has no variable 'trnsport' to set; did you mean transport?"),
        (
            ["t.yaml", "--link", "augmented"],
            "t.yaml:6: links.augmented: worker 0 on a, worker 1 on a: viewers on another machine need a port of the tap; set a port, such "
            "as tap: 7900-7901, and restart the topology, or run the viewer on that machine. If everything runs on this machine, pass "
            "--local",
        ),
    ],
)
def test_what_cannot_be_looked_at_is_said_with_the_way_out(folder, capsys, tool, arguments, message):
    assert tool.main([*arguments, "-t", "5"]) == 2
    assert message in capsys.readouterr().err


def test_who_looks_where_nothing_runs_is_told_so(folder, capsys):
    assert mon.main(["t.yaml", "--local", "--link", "raw", "-t", "0.2"]) == 1
    assert "no batch arrived from the link raw of t.yaml within 0.2 s; check that the server runs" in capsys.readouterr().err


def urls(folder, text, link, *choice, local=False):
    (folder / "u.yaml").write_text(text)
    topology = load("u.yaml")
    plan = topology.on_this_machine().plan if local else topology.plan
    return [re.sub(r"ipc://@highway-tap-\d+-[0-9a-f]+", "TAP", url) for url in viewer_urls(plan, link, *choice)]


def test_a_viewer_subscribes_to_the_taps_of_the_senders_on_this_machine_whatever_they_are_called(folder):
    here = TOPOLOGY.replace("192.0.2.1", "127.0.0.1")
    found = ["zsub+TAP-0?codec=tensorcom", "zsub+TAP-1?codec=tensorcom"]
    assert urls(folder, TOPOLOGY, "augmented", local=True) == urls(folder, here, "augmented") == found
    assert urls(folder, here, "augmented", "worker", 1) == found[1:]
    assert urls(folder, here.replace("bind: to", "bind: to, codec: msgpack"), "augmented", None, 0) == ["zsub+TAP-0?codec=msgpack"]


def test_a_viewer_does_not_wait_for_replicas_that_may_never_be_there(folder):
    scales = TOPOLOGY.replace("replicas: 2", "autoscale: {min: 1, max: 2}")
    assert scales != TOPOLOGY
    assert urls(folder, scales, "augmented", local=True) == [f"zsub+TAP-{number}?codec=tensorcom&senders=1" for number in (0, 1)]
    assert urls(folder, scales, "augmented", "worker", 1, local=True) == ["zsub+TAP-1?codec=tensorcom"]


def test_a_viewer_on_another_machine_takes_the_ports_of_the_taps(folder):
    text = TOPOLOGY.replace("bind: to", "bind: to, tap: 7900-7901").replace("hosts: a, replicas", "hosts: [a, b], replicas")
    assert urls(folder, text, "augmented") == [f"zsub+tcp://192.0.2.{n}:7900?codec=tensorcom" for n in (1, 2)]
    assert urls(folder, text, "augmented", local=True) == [f"zsub+tcp://127.0.0.{n}:7900?codec=tensorcom" for n in (1, 2)]


def test_a_publisher_without_a_tap_in_reach_is_subscribed_to_itself(folder):
    text = TOPOLOGY.replace('to: worker, transport: "${transport}"', "to: worker, kind: publish, port: 7880")
    assert urls(folder, text, "raw") == ["zsub://192.0.2.1:7880?codec=tensorcom"]
    assert urls(folder, text, "raw", local=True) == ["zsub+TAP-0?codec=tensorcom"]
    others = text.replace('reader: {hosts: a, stages: ["mine:NumberedImages", ZMQSink: {link: raw}]}', "reader: {hosts: a, external: true}")
    assert others != text
    assert urls(folder, others, "raw", local=True) == ["zsub://127.0.0.1:7880?codec=tensorcom"]
    connecting = text.replace("port: 7880", "port: 7880, bind: to")
    with pytest.raises(ConfigError, match="such as tap: 7881, and restart"):
        urls(folder, connecting, "raw")
