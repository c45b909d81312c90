"""Watching a running topology as a user does: its endpoint, ``highway top`` and ``highway graph --live``, with real processes."""

import json
import re
import signal
import socket
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from waiting import wait_until

from highway.cli.top import render
from highway.engine.stats import PipelineStats, StageStats
from highway.observe.poll import Sample, View
from highway.observe.snapshot import Ends, Snapshot
from highway.observe.state import ReplicaState

TEXT = """
links: {raw: {from: reader, to: worker, transport: ipc}, done: {from: worker, to: trainer, transport: ipc, bind: to}}
roles:
  reader: [$Numbers: {every: 0.005}, ZMQSink: {link: raw}]
  worker: {replicas: 2, stages: [ZMQSource: {link: raw}, Identity, ZMQSink: {link: done}]}
  trainer: [ZMQSource: {link: done}]
"""


def get(url):
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=30) as answer:
        return answer.read()


@pytest.fixture
def file(write):
    """A topology whose name, and with it the names of its links, no other test has."""
    return Path(write(TEXT))


@pytest.fixture
def running(start):
    """Run a topology, give the URL of its endpoint, interrupt it, and see that the endpoint is closed with it."""

    @contextmanager
    def running(file, *arguments):
        run = start("run", file, "--plugin", "mine", "--metrics", 0, *arguments)
        url = run.error.until(r"metrics at (http://127\.0\.0\.1:\d+)/metrics$")[1]
        yield url
        run.process.send_signal(signal.SIGINT)
        code, _, error = run.end()
        assert code == 130, error
        with pytest.raises(OSError):
            get(f"{url}/health")

    return running


def states_when(url, what):
    """Return the states of the first answer of an endpoint of which ``what`` is true."""

    def found():
        states = Snapshot.from_json(get(f"{url}/stats")).states
        return what(states) and states

    return wait_until(found, seconds=60, every=0.1)


@pytest.fixture
def url(file, running):
    """The endpoint of a run of the topology in which every replica has handed on items."""
    with running(file) as url:
        states_when(url, lambda states: all(state.stats and state.stats.items for state in states))
        yield url


def port_of(url):
    return url.rpartition(":")[2]


@pytest.mark.slow
def test_a_run_answers_for_all_that_it_runs(url, file):
    snapshot = Snapshot.from_json(get(f"{url}/stats"))
    assert [state.name for state in snapshot.states] == ["reader", "worker[0]", "worker[1]", "trainer"]
    assert {state.phase for state in snapshot.states} == {"running"}
    assert snapshot.topology == file.stem
    assert snapshot.ends["worker[1]"] == Ends("raw", "done")
    assert [stage.name for stage in snapshot.states[1].stats.stages] == ["ZMQSource", "Identity", "ZMQSink"]
    assert json.loads(get(f"{url}/health")) == {"status": "ok", "reasons": []}
    samples = {}
    for family in text_string_to_metric_families(get(f"{url}/metrics").decode()):
        samples |= {(sample.name, *sorted(sample.labels.items())): sample.value for sample in family.samples}
    label = (("link", "done"), ("replica", "0"), ("role", "trainer"), ("stage", "ZMQSource"))
    assert samples["highway_link_messages_total", *label] > 0
    assert samples["highway_link_gaps_total", *label] == 0
    assert samples["highway_role_up", ("replica", "1"), ("role", "worker")] == 1


@pytest.mark.slow
def test_top_shows_every_replica_and_link_and_names_the_bottleneck(url, file, ask):
    code, out, error = ask("top", file, "--plugin", "mine", "--metrics", port_of(url), "--once", "--interval", "5")
    assert (code, error) == (0, "")
    title, heading, *rows = [line.rstrip() for line in out.splitlines() if line.strip()]
    rows, last = rows[:7], " ".join(rows[7:])  # a sentence is folded where the terminal is narrow
    assert title.startswith(file.stem)
    assert heading.split()[:5] == ["role", "host", "phase", "items/s", "MB/s"]
    assert [row.split()[0] for row in rows] == ["reader", "worker[0]", "worker[1]", "trainer", "link", "raw", "done"]
    assert all(row.split()[2] == "running" and float(row.split()[3].replace(",", "")) > 0 for row in rows[:4])
    sent, received = (int(cell.replace(",", "")) for cell in rows[-1].split()[1:3])
    assert sent > 0 and received > 0
    assert last.startswith("reader (Numbers) is the bottleneck: it was busy ")
    code, out, _ = ask("top", url, "--once", "--interval", "1.5", "-o", "top.svg")
    assert code == 0 and "worker[1]" in out
    picture = Path("top.svg").read_text()
    assert picture.startswith("<svg") and "worker[1]" in picture and "@font-face" not in picture


@pytest.mark.slow
def test_the_live_picture_has_the_rates(url, file, ask, start):
    arguments = ("--plugin", "mine", "--metrics", port_of(url), "--live")
    for name in ("live.svg", "live.dot", "live.mmd"):
        assert ask("graph", file, *arguments, "--once", "--interval", "3", "-o", name) == (0, "", "")
        text = Path(name).read_text()
        assert "2 running" in text
        assert re.search(r"[1-9][\d.,]* items/s", text)
    assert ask("graph", file, *arguments, "--once", "--interval", "0.5", "-o", "live.png") == (0, "", "")
    assert Path("live.png").read_bytes().startswith(b"\x89PNG")
    Path("again.svg").touch()
    run, versions, deadline = start("graph", file, *arguments, "--interval", "0.5", "-o", "again.svg"), set(), time.monotonic() + 60
    while len(versions) < 3 and time.monotonic() < deadline:
        versions.add(Path("again.svg").read_text())
    run.process.send_signal(signal.SIGINT)
    assert run.end() == (0, "", "")
    assert sum(version.endswith("</svg>\n") for version in versions) == len(versions - {""}) >= 2
    assert not list(Path.cwd().glob("*.part"))


@pytest.mark.slow
def test_one_role_alone_answers_too(file, write, running):
    write("metrics: {port: 9400, listen: 127.0.0.1}\nroles: {numbers: [$Numbers]}", file.name)
    with running(file, "--role", "numbers") as url:
        (state,) = states_when(url, lambda states: states[0].stats and states[0].stats.items)
    assert (state.name, state.phase) == ("numbers", "running")


@pytest.mark.slow
def test_totals_go_on_when_a_role_is_started_again(file, write, running):
    fail = "$FailAt: {number: 20, after: 4}"  # much longer than from one report to the next
    write(f"roles: {{numbers: {{restart: {{when: on-failure, delay_s: 0.1}}, stages: [$Numbers, {fail}]}}}}", file.name)
    with running(file) as url:
        (state,) = states_when(url, lambda states: states[0].stats and states[0].stats.items == 40)  # each process makes 20
        assert (state.restarts, state.error) == (1, "(exit code 1): ValueError: no 20")
        states_when(url, lambda states: states[0].restarts == 2)
        assert "highway_role_restarts_total" in get(f"{url}/metrics").decode()


def test_a_taken_port_ends_a_run_before_anything_starts(file, ask):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, out, error = ask("run", file, "--plugin", "mine", "--metrics", port)
    assert (code, out) == (2, "")
    assert error.startswith(f"highway: metrics: port {port} is used by another process; ")


def test_who_does_not_answer_is_said_and_is_no_error(file, ask):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    code, out, error = ask("top", file, "--plugin", "mine", "--metrics", port, "--once", "--interval", "0.1")
    assert (code, error) == (1, "")
    assert f"this machine does not answer at 127.0.0.1:{port}: Connection refused" in out
    assert "No endpoint answers" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["top", "t.yaml"], "highway: t.yaml has no key metrics with the address of the run; pass the same --metrics PORT"),
        (["top", "t.yaml", "-o", "t.svg"], "highway: -o t.svg: expected --once, and a name that ends in .svg"),
        (["top", "t.yaml", "--once", "-o", "t.png"], "highway: -o t.png: expected --once, and a name that ends in .svg"),
        (["top", "t.yaml", "--metrics", "x"], "highway: --metrics x: expected a port"),
        (["top", "t.yaml", "--metrics", "9400", "--host", "b"], "highway: t.yaml: no host 'b'; there are none"),
        (["top", "http://127.0.0.1:1", "t.yaml"], "highway: endpoints (http://host:port) cannot be combined with"),
        (["graph", "t.yaml", "--once"], "highway: --once, --metrics and --host need --live, which shows a running topology"),
        (["graph", "t.yaml", "--live"], "highway: t.yaml has no key metrics"),
        (["top", "t.yaml", "--interval", "inf"], "highway top: error: argument --interval: inf; expected a number of seconds above 0"),
        (["run", "t.yaml", "--metrics", "x"], "highway: --metrics x: expected a port"),
    ],
)
def test_wrong_usage_ends_with_2_and_a_sentence(file, arguments, message, ask):
    Path("t.yaml").write_text("roles: {a: [Noise: [2]]}")
    code, out, error = ask(*arguments)
    assert (code, out) == (2, "")
    assert any(line.startswith(message) for line in error.splitlines())


def test_threads_and_processes_that_a_time_limit_has_cost_are_shown():
    read = StageStats("read", 1, counters={"abandoned_threads": 3, "decoder": "c"})
    slow = StageStats("slow", 1, counters={"ended_processes": 1})
    state = ReplicaState("reader", stats=PipelineStats([read, slow], 10.0))
    console = Console(width=200)
    with console.capture() as shown:
        console.print(render("feed", View([Sample(state, state.stats)])))
    assert f"{state.name}, read: 3 abandoned threads, because calls took longer than the stage's timeout." in shown.get()
    assert f"{state.name}, slow: 1 ended processes, because calls took longer than the stage's timeout." in shown.get()
    assert "read: 3 abandoned threads, because calls" in str(state.stats)
