"""A process that a launcher has started: what it has started ends with it, and nothing that is not its own is signalled."""

import os
import signal
import subprocess
import sys

import pytest

from highway.process.readable import readable
from highway.run.child import Child
from highway.run.launchers.local import LocalProcess
from highway.run.replica import Replica
from highway.topology import load_checked
from highway.wire.tally import Counts, Tally


@pytest.fixture
def started():
    """Start a process in a group of its own, whose standard output is read; it is reaped when the test ends."""
    processes = []

    def start(*command):
        popen = subprocess.Popen(command, stdout=subprocess.PIPE, process_group=0)
        processes.append(LocalProcess(popen, Tally()))
        return processes[-1]

    yield start
    for process in processes:
        process.reap()
        process.popen.stdout.close()


def wait_for_the_end(process):
    with open(os.pidfd_open(process.popen.pid)) as opened:
        assert readable([opened], 30)


@pytest.mark.skipif(sys.platform != "linux", reason="pidfd")
def test_nothing_is_signalled_once_a_process_was_reaped(started, monkeypatch):
    process = started("true")
    wait_for_the_end(process)
    assert process.popen.returncode is None  # nobody else can have its number yet
    assert process.poll() == 0
    signalled = []
    monkeypatch.setattr(os, "killpg", lambda *given: signalled.append(given))
    monkeypatch.setattr(os, "kill", lambda *given: signalled.append(given))
    process.signal(signal.SIGKILL)
    process.signal(signal.SIGTERM)
    assert process.poll() == 0
    assert signalled == []


@pytest.mark.skipif(sys.platform != "linux", reason="pidfd")
def test_what_a_process_has_left_behind_ends_when_it_is_reaped(started):
    process = started("sh", "-c", "sleep 1000 & echo $!")
    left = os.pidfd_open(int(process.popen.stdout.readline()))
    wait_for_the_end(process)
    assert not readable([left], 0)
    assert process.poll() == 0
    with open(left) as opened:
        assert readable([opened], 30)


def test_a_signal_without_a_name_is_told_by_its_number(started):
    process = started(sys.executable, "-c", "import os; os.kill(os.getpid(), 40)")
    process.popen.wait()
    child = Child(process)
    assert child.poll()
    assert child.failure == "(killed by signal 40): it ended without an error message"


class Played:
    """A process that has ended with an error, and a launcher of such."""

    is_lost = False

    address = "elsewhere"

    def start(self, spec):
        return self

    def poll(self):
        return 1

    def reports(self):
        return []

    def counts(self):
        return Counts(received=2, sent=1)


def test_a_look_at_a_replica_costs_the_same_after_many_restarts(write):
    topology = load_checked(write("roles: {a: {restart: {when: always, at_most: 5000, delay_s: 0.001}, stages: [Noise]}}"))
    replica = Replica(topology.processes()[0], topology.roles["a"], lambda *_: None)
    calls = []
    for number in range(1, 1001):
        replica.start(Played())
        assert replica.child.poll()
        replica.settle(may_restart=True)
        seen = []
        sys.setprofile(lambda _, event, __, seen=seen: seen.append(event))
        state = replica.state()
        sys.setprofile(None)
        calls.append(len(seen))
        assert state.counts == Counts(received=2 * number, sent=number)
    assert calls[-1] == calls[0]
