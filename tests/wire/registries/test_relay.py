"""A process asks a rendezvous by another one of its host."""

import subprocess
import sys
import tempfile

import pytest

from highway.wire import rendezvous
from highway.wire.registries.folder import FolderRendezvous
from highway.wire.registries.relay import Relay


class Broken:
    host = ""

    def publish(self, addresses):
        raise OSError("the head is gone")

    find = publish


def asked(relay):
    return rendezvous.parse(relay.text)


def test_what_one_publishes_another_finds(tmp_path):
    relays = [Relay(FolderRendezvous(tmp_path)) for _ in range(2)]
    asked(relays[0]).publish({"raw.ü.0": "tcp://10.0.0.1:5555", "other": "tcp://[fd00::1]:1"})
    assert asked(relays[1]).find(["raw.ü.0", "unknown"]) == {"raw.ü.0": "tcp://10.0.0.1:5555"}
    for relay in relays:
        relay.close()


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")
def test_a_relay_makes_no_files_so_that_none_are_left_when_its_process_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    relay = Relay(Broken())
    assert list(tmp_path.iterdir()) == []
    relay.close()


def test_what_a_rendezvous_says_is_wrong_is_raised_by_who_asked():
    relay = Relay(Broken())
    for ask in (lambda: asked(relay).publish({"a": "b"}), lambda: asked(relay).find(["a"])):
        with pytest.raises(OSError, match=r"^the head is gone$"):
            ask()
    relay.close()


def test_who_asks_a_relay_that_has_ended_is_told():
    relay = Relay(Broken())
    relay.close()
    with pytest.raises(OSError, match=r"No such file|refused"):
        asked(relay).find(["a"])


def test_a_process_joins_one_rendezvous(tmp_path):
    code = f"""
from highway.errors import ConfigError
from highway.wire import rendezvous
for _ in range(2):
    rendezvous.join("folder:{tmp_path}", "10.0.0.1")
print(rendezvous.directory("zpush+named://a").host)
for text, run in (("folder:other", ""), ("ray", "b")):
    try:
        rendezvous.join(text, run=run)
    except ConfigError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    host, *refused = done.stdout.splitlines()
    uses = f"this process already uses the rendezvous folder:{tmp_path}; a process can use only one"
    assert host == "10.0.0.1" and refused == [f"folder:other: {uses}", f"ray:b: {uses}"]
