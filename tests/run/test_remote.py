"""What runs a process on another host for a launcher that is elsewhere."""

import os
import signal
import sys
from pathlib import Path

import highway
from highway.run.launcher import LaunchSpec
from highway.run.remote import LaunchOrder, News, RemoteProcess
from highway.run.report import RoleReport
from highway.topology import load

AGENT = """
import sys
from highway.run.remote import Agent, LaunchOrder

agent = Agent(LaunchOrder.from_json(open("order").read()), "127.0.0.1", ["--plugin=mine"])
while True:
    for text, _ in agent.news(1.0).lines:
        print(text, flush=True)
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


def test_a_process_whose_agent_is_killed_is_killed_and_not_drained(write, popen, wait_until_gone):
    """Else it would tell its receivers that this is the end of a stream that its launcher begins again elsewhere."""
    with open("mine.py", "a") as file:
        file.write(STAGES)
    spec = load(write("roles: {a: [$Numbers, $Leave]}")).process_spec("a")
    Path("order").write_bytes(LaunchOrder.of(LaunchSpec("a", spec, ["file.yaml"])).to_json())
    home = str(Path(highway.__file__).parents[1])
    agent = popen([sys.executable, "-c", AGENT], env=os.environ | {"PYTHONPATH": f"{home}{os.pathsep}."})
    pid = next(int(line.split()[1]) for line in agent.stdout if line.startswith("pid "))
    os.kill(agent.pid, signal.SIGKILL)
    wait_until_gone(pid)
    assert not Path("ended in order").exists()


def test_an_error_names_the_host_where_it_was():
    process = RemoteProcess("a", lambda *line: None, lambda number: None)
    process.hear(
        News("10.0.0.7", reports=[RoleReport(error="no such file"), RoleReport(error="10.0.0.7 has no disk"), RoleReport(done=True)])
    )
    assert [report.error for report in process.reports()] == ["no such file (on 10.0.0.7)", "10.0.0.7 has no disk", ""]
