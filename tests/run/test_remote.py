"""What runs a process on another host for a launcher that is elsewhere."""

import os
import signal
import sys
from pathlib import Path

import pytest
from waiting import wait_until

import highway
from highway.run.launcher import LaunchSpec
from highway.run.remote import News, RemoteProcess
from highway.run.report import RoleReport
from highway.topology import load
from highway.wire.tally import Counts, read_kept

AGENT = """
import sys
from highway.run.launcher import LaunchSpec
from highway.run.remote import Agent

agent = Agent(LaunchSpec.from_json(open("order").read()), "127.0.0.1", ["--plugin=mine"], keep=float(sys.argv[1]))
while True:
    news = agent.news(1.0)
    for text, _ in news.lines:
        print(text, flush=True)
    if news.counts.sent == 5:
        print("counts", news.counts_at, flush=True)
"""

STAGES = """
import os
from pathlib import Path


class Leave:
    def consume(self, items):
        print("pid", os.getpid(), flush=True)
        try:
            for item in items:
                pass
        finally:
            Path("ended in order").touch()
"""


@pytest.fixture
def start_agent(write, popen):
    """Start the agent of a role ``a``."""

    def start_agent(text, keep=0):
        with open("mine.py", "a") as file:
            file.write(STAGES)
        spec = load(write(text)).process_spec("a")
        Path("order").write_text(LaunchSpec("a", spec, ["file.yaml"]).to_json())
        home = str(Path(highway.__file__).parents[1])
        return popen([sys.executable, "-c", AGENT, str(keep)], env=os.environ | {"PYTHONPATH": f"{home}{os.pathsep}."})

    return start_agent


def test_a_process_whose_agent_is_killed_is_killed_and_not_drained(start_agent, wait_until_gone):
    """Else it would tell its receivers that this is the end of a stream that its launcher begins again elsewhere."""
    agent = start_agent("roles: {a: [$Numbers, $Leave]}")
    pid = next(int(line.split()[1]) for line in agent.stdout if line.startswith("pid "))
    os.kill(agent.pid, signal.SIGKILL)
    wait_until_gone(pid)
    assert not Path("ended in order").exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="descriptors of other processes are found in /proc")
def test_the_counts_of_a_process_whose_agent_is_killed_can_be_read_for_a_while(start_agent):
    agent = start_agent("roles: {a: [$Numbers: {count: 9, hold: 5}, ZMQSink: {url: 'zpub+ipc://published'}]}", keep=60)
    path = next(line.split()[1] for line in agent.stdout if line.startswith("counts "))
    assert read_kept(path) == Counts(sent=5)
    agent.kill()
    agent.wait()
    assert read_kept(path) == Counts(sent=5)
    guard = int(path.split("/")[2])
    os.kill(guard, signal.SIGKILL)
    wait_until(lambda: not os.path.exists(path), 30)
    with pytest.raises(FileNotFoundError):
        read_kept(path)
    with open(os.devnull) as other, pytest.raises(FileNotFoundError, match="this file does not contain counts of highway"):
        read_kept(f"/proc/{os.getpid()}/fd/{other.fileno()}")


def test_a_process_whose_host_still_tells_its_last_counts_is_not_lost():
    for counts in (None, Counts(7, 1, 6, 1)):
        process = RemoteProcess("a", lambda *line: None, lambda number: None)
        process.hear(News("10.0.0.7", counts=Counts(5, 1, 4, 1)))
        process.lose("its actor was killed", counts=counts)
        process.lose("it does not answer")
        assert (process.poll(), process.is_lost, process.counts()) == (-9, counts is None, counts or Counts(5, 1, 4, 1))


def test_an_error_names_the_host_where_it_was():
    process = RemoteProcess("a", lambda *line: None, lambda number: None)
    process.hear(
        News("10.0.0.7", reports=[RoleReport(error="no such file"), RoleReport(error="10.0.0.7 has no disk"), RoleReport(done=True)])
    )
    assert [report.error for report in process.reports()] == ["no such file (on 10.0.0.7)", "10.0.0.7 has no disk", ""]
