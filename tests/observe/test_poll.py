"""A whole topology looked at from outside: who answers, what the links carry, what limits the rate."""

import contextlib
import io
import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pytest
from rich.console import Console

from highway.cli.top import WIDE, render
from highway.engine.stats import PipelineStats, Rate, StageStats
from highway.observe.bottleneck import bottleneck
from highway.observe.endpoint import Endpoint
from highway.observe.figures import Recent
from highway.observe.poll import Poller, PollTarget, Sample, targets
from highway.observe.snapshot import Ends
from highway.observe.state import ReplicaState
from highway.observe.traffic import traffic
from highway.topology import load
from highway.topology.plan import Process
from highway.topology.spec import MetricsSpec
from highway.topology.wiring import Wiring
from highway.wire.tally import Counts

TEXT = """
hosts: {a: 10.0.0.1, b: 10.0.0.2}
metrics: 9400-9401
links: {raw: {from: reader, to: worker, port: 5555}}
roles:
  worker: {replicas: 2, hosts: b, stages: [ZMQSource: {link: raw}, Identity]}
  reader: {hosts: a, stages: [Noise: [2], ZMQSink: {link: raw}]}
"""


@pytest.fixture
def topology(tmp_path):
    (tmp_path / "feed.yaml").write_text(TEXT)
    return load(tmp_path / "feed.yaml")


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Wait for an endpoint as long as a busy machine takes."""
    monkeypatch.setattr("highway.observe.poll.ANSWER_TIMEOUT", 100.0)


@pytest.fixture
def free():
    """A function that returns ports which nothing listens at, and which nobody else can take during the test."""
    with contextlib.ExitStack() as taken:

        def free():
            bound = taken.enter_context(socket.socket())
            bound.bind(("127.0.0.1", 0))
            return bound.getsockname()[1]

        yield free


def stage(name, busy=0.0, starved=0.0, blocked=0.0, items=10, shape="map", **rest):
    return StageStats(name, rest.pop("num_workers", 1), items, 1000 * items, 0, busy, starved, blocked, shape=shape, **rest)


def sample(role, *stages, replica=0, receives="", sends="", publishes=False, phase="running", single=True):
    counts = Counts(stages[0].items if receives else 0, 0, stages[-1].items if sends else 0, 0)
    state = ReplicaState(role, replica, phase=phase, stats=PipelineStats(list(stages), 2.0), single=single, counts=counts)
    return Sample(state, state.stats, Ends(receives, sends, publishes), "here")


def reader(busy=0.1, blocked=0.0, **rest):
    return sample(
        "reader", stage("Read", busy, blocked=1 - busy), stage("ZMQSink", 0.1, 0.9 - blocked, blocked, shape="sink"), sends="raw", **rest
    )


def worker(replica=0, busy=0.1, starved=0.9, blocked=0.0, **rest):
    source = stage("ZMQSource", 0.1, starved, 0.9 - starved, shape="source", counters={"gaps": 1, "duplicates": 0, "malformed": 0})
    sink = stage("ZMQSink", 0.1, 0.9 - blocked, blocked, shape="sink")
    return sample(
        "worker", source, stage("Augment", busy, 1 - busy), sink, replica=replica, receives="raw", sends="augmented", single=False, **rest
    )


def trainer(busy=0.1):
    source = stage("ZMQSource", 0.1, 0.9, shape="source", counters={"gaps": 0, "duplicates": 2, "malformed": 1})
    return sample("trainer", source, stage("Train", busy, 1 - busy, shape="sink"), receives="augmented")


def test_the_busiest_stage_over_all_replicas_is_the_bottleneck():
    found = bottleneck([reader(), worker(0, busy=0.96), worker(1, busy=0.98), trainer()])
    assert found == (
        "worker (Augment) is the bottleneck: its 2 replicas were busy 97% of the time; start more replicas (replicas: 3), or give them "
        "more workers (num_workers: 2), as long as cores are free."
    )


def test_the_advice_knows_what_all_roles_on_a_machine_use():
    def using(one, cpu, machine="here"):
        figures = replace(one.recent, cpu=cpu, cores=2)
        return replace(one, recent=figures, state=replace(one.state, stats=figures), machine=machine)

    full = [using(reader(), 1.0), using(worker(0, busy=0.96), 1.4), using(worker(1, busy=0.98), 1.5)]
    assert bottleneck(full).endswith(
        "all 2 cores of here are in use, so more workers would not help: reduce its work, or move it to another machine."
    )
    room = [using(reader(), 1.0), using(worker(0, busy=0.96), 1.5, "gpu1"), using(worker(1, busy=0.98), 2.0, "gpu2")]
    assert bottleneck(room).endswith(
        "start more replicas (replicas: 3), or give them more workers (num_workers: 2): 1.2 of 2 cores of gpu1 are free."
    )


def test_one_busy_replica_among_idle_ones_is_no_bottleneck():
    assert bottleneck([reader(), worker(0, busy=0.98), worker(1, busy=0.0), trainer(0.6)]) == (
        "trainer (Train) is the bottleneck: it was busy 60% of the time; a sink has only one thread: move part of its work into a map."
    )


def test_a_source_cannot_be_given_workers_nor_replicas():
    busy = sample("reader", stage("Noise", 0.9, shape="source"), stage("ZMQSink", 0.1, 0.9, shape="sink"), sends="raw")
    assert bottleneck([busy, worker()]) == (
        "reader (Noise) is the bottleneck: it was busy 100% of the time; a source has only one thread: move part of its work into a map, "
        "or, if the work for each item is small, yield batches."
    )


def test_who_receives_outside_is_the_bottleneck_where_what_is_sent_waits():
    found = bottleneck([reader(blocked=0.85), worker(blocked=0.8)])
    assert found == "The receiver of the link augmented is the bottleneck: worker (ZMQSink) waited 80% of its time to send items."


def test_a_link_is_the_bottleneck_if_both_its_ends_wait():
    found = bottleneck([reader(blocked=0.8), worker(), trainer()])
    assert found == "The link raw is the bottleneck: reader waited 80% of its time to send, and worker waited 90% of its time to receive."


def test_nothing_is_short_of_time():
    assert bottleneck([reader(), worker(), trainer()]).startswith("No stage limits the rate")


def test_what_does_not_run_is_no_bottleneck():
    assert bottleneck([reader(0.99, phase="ended")]) == "No role is running now."
    assert bottleneck([]) == "No role is running now."


def test_nothing_has_passed():
    idle = sample("reader", stage("Read", 0.1, 0.9, items=0))
    assert bottleneck([idle]) == "No items passed through the stages during the measurement."


def test_a_link_carries_what_all_replicas_send_and_receive():
    raw, augmented = traffic([reader(), worker(0), worker(1), trainer()])
    assert (raw.link, raw.sent, raw.received, raw.missing, raw.faults["gaps"], sum(raw.faults.values())) == ("raw", 10, 20, None, 2, 2)
    assert (augmented.link, augmented.sent, augmented.received, augmented.missing) == ("augmented", 20, 10, 10)
    assert augmented.faults == {"gaps": 0, "duplicates": 2, "malformed": 1}
    assert (raw.sending, raw.receiving) == (Rate(5.0, 0.005), Rate(10.0, 0.01))


def test_what_is_published_is_sent_to_each_receiver():
    server = sample("server", stage("Read"), stage("ZMQSink", items=10, shape="sink"), sends="raw", publishes=True)
    (raw,) = traffic([server, worker(0), worker(1)])[:1]
    assert (raw.sent, raw.received, raw.missing) == (20, 20, 0)


def test_a_link_with_an_end_that_is_not_seen_misses_nothing_that_one_knows_of():
    (raw,) = traffic([reader()])
    assert (raw.sent, raw.received, raw.missing) == (10, None, None)


def test_rates_are_those_of_the_last_seconds_and_of_one_process():
    recent = Recent(window=2.0)
    for second in range(5):
        lately = recent.add("a", PipelineStats([stage("Read", items=second * second)], float(second)))
    assert (lately.seconds, lately.items) == (2.0, 16 - 4)
    again = PipelineStats([stage("Read", items=1)], 0.5)
    assert recent.add("a", again) == again


def test_endpoints_are_asked_on_every_host_and_here(topology):
    assert targets(topology, topology.plan.metrics) == [
        PollTarget("http://127.0.0.1:9400", ""),
        PollTarget("http://127.0.0.1:9401", ""),
        PollTarget("http://10.0.0.1:9400", "a"),
        PollTarget("http://10.0.0.1:9401", "a"),
        PollTarget("http://10.0.0.2:9400", "b"),
        PollTarget("http://10.0.0.2:9401", "b"),
    ]
    assert {target.host for target in targets(topology, topology.plan.metrics, "b")} == {"", "b"}


def test_a_host_alone_is_this_machine(tmp_path):
    (tmp_path / "t.yaml").write_text("roles: {a: [Noise: [2]]}")
    found = targets(load(tmp_path / "t.yaml"), MetricsSpec(9400, "0.0.0.0"))
    assert found == [PollTarget("http://127.0.0.1:9400", "this machine")]


def test_answers_are_merged_in_the_order_of_the_file_and_each_run_counts_once(topology, free):
    plan = topology.plan
    with Endpoint(Wiring(topology, plan.processes("a")), MetricsSpec(0)) as first:
        asked = [PollTarget(first.url, ""), PollTarget(first.url, "a"), PollTarget(f"http://127.0.0.1:{free()}", "b")]
        first.update([ReplicaState("reader", host="a"), ReplicaState("worker", host="a")])
        view = Poller(asked, plan.name, list(topology.roles)).poll()
        assert [one.state.role for one in view.samples] == ["worker", "reader"]
        assert view.silent == [f"b does not answer at {asked[2].url.removeprefix('http://')}: Connection refused"]
        assert view.samples[1].ends == Ends(sends="raw")


def test_a_run_that_takes_the_part_of_all_hosts_answers_for_them(topology, free):
    plan = topology.plan
    with Endpoint(Wiring(topology, plan.processes()), MetricsSpec(0)) as endpoint:
        asked = [PollTarget(endpoint.url, ""), PollTarget(f"http://127.0.0.1:{free()}", "a"), PollTarget(f"http://127.0.0.1:{free()}", "b")]
        assert Poller(asked, plan.name).poll().silent == []
        assert [one.machine for one in Poller(asked, plan.name, host="a").poll().samples] == ["a"]


def test_another_topology_is_not_taken_for_this_one(topology):
    with Endpoint(Wiring(topology, [Process("reader", 0, "a")]), MetricsSpec(0)) as endpoint:
        view = Poller([PollTarget(endpoint.url, "a")], "other").poll()
    assert not view.samples
    assert view.silent == [f"a does not answer at {endpoint.url.removeprefix('http://')}: it runs another topology, feed"]


def test_a_server_that_is_no_endpoint_is_named(own_address, monkeypatch):
    monkeypatch.setattr("highway.observe.poll.ANSWER_TIMEOUT", 0.2)
    with socket.create_server((own_address, 0)) as server:
        port = server.getsockname()[1]
        view = Poller([PollTarget(f"http://{own_address}:{port}", "a")]).poll()  # it accepts, and never answers
    assert view.silent == [f"a does not answer at {own_address}:{port}: timed out"]


READ_AT_ONCE = """
import importlib, sys, threading
from highway.observe import snapshot

def read():
    start.wait()
    assert snapshot.Snapshot.from_json(text).topology == "feed"

sys.setswitchinterval(1e-6)
for _ in range(100):
    importlib.reload(snapshot)
    text, start = snapshot.Snapshot("feed").to_json(), threading.Barrier(8)
    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@pytest.mark.slow
def test_the_first_answers_of_all_endpoints_may_be_read_at_once():
    done = subprocess.run([sys.executable, "-c", READ_AT_ONCE], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")  # msgspec crashed where two threads were the first to read a dataclass


def test_figures_of_late_are_told_from_the_second_look_on(topology):
    with Endpoint(Wiring(topology, [Process("reader", 0, "a")]), MetricsSpec(0)) as endpoint:
        poller = Poller([PollTarget(endpoint.url, "a")])
        first = reader().state
        endpoint.update([first])
        assert poller.poll().samples[0].recent == first.stats
        more = [replace(one, items=one.items + 5) for one in first.stats.stages]
        endpoint.update([replace(first, stats=PipelineStats(more, 3.0))])
        (one,) = poller.poll().samples
    assert (one.recent.seconds, one.recent.items, one.state.stats.items) == (1.0, 5, 15)


# --- endpoints of strangers ---


@pytest.fixture
def answering():
    """A function that starts an endpoint which answers with these bytes again and again until it is left; returns its URL."""
    with contextlib.ExitStack() as servers:

        def answer(first, again=b"", pause=0.0):
            listening = servers.enter_context(socket.create_server(("127.0.0.1", 0)))
            pool, ended = servers.enter_context(ThreadPoolExecutor(1)), Event()
            servers.callback(ended.set)

            def serve():
                client, _ = listening.accept()
                with client, contextlib.suppress(OSError):
                    client.recv(65536)
                    client.sendall(first)
                    while again and not ended.wait(pause):
                        client.sendall(again)

            pool.submit(serve)
            return f"http://127.0.0.1:{listening.getsockname()[1]}"

        yield answer


def answer_of(states):
    body = json.dumps({"topology": "t", "states": states}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        ([], "a has no stages"),
        ([{"name": "A", "num_workers": 1, "counters": {"gaps": "many"}}], "a counter of A is not a number"),
        ([{"name": "A", "num_workers": 1, "items": 10**400}], "a number is too large"),
    ],
)
def test_figures_that_cannot_be_shown_are_refused(answering, stages, why):
    url = answering(answer_of([{"role": "a", "stats": {"stages": stages, "seconds": 1.0}}]))
    view = Poller([PollTarget(url, "there")]).poll()
    assert view.samples == []
    assert why in view.silent[0]


def test_an_endless_answer_is_left_after_some_megabytes(answering):
    view = Poller([PollTarget(answering(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65536), "there")]).poll()
    assert view.silent[0].endswith("its answer has more than 8,000,000 bytes; check that the program at this address is highway")


def test_an_answer_that_drips_is_left_when_its_time_is_over(answering, monkeypatch):
    monkeypatch.setattr("highway.observe.poll.ANSWER_TIMEOUT", 0.5)
    for first in (b"", b"HTTP/1.1 200 OK\r\n\r\n"):
        view = Poller([PollTarget(answering(first, b" ", 0.01), "there")]).poll()
        assert view.silent[0].endswith("timed out")


def test_of_very_many_replicas_some_thousand_are_shown(answering):
    view = Poller([PollTarget(answering(answer_of([{"role": str(number)} for number in range(2500)])), "there")]).poll()
    assert [one.state.role for one in view.samples] == [str(number) for number in range(2000)]
    assert view.silent == ["the endpoints report more than 2,000 replicas; the others are not shown"]


MARKS = "[red]\x1b[2J\x9b2J\u202e\r\n[/red]"


def test_names_of_strangers_are_neither_markup_nor_escape_sequences(answering):
    stages = [{"name": MARKS, "num_workers": 1}]
    state = {"role": MARKS, "host": MARKS, "error": MARKS, "stats": {"stages": stages, "seconds": 1.0}}
    view = Poller([PollTarget(answering(answer_of([state])), "")]).poll()
    console = Console(file=io.StringIO(), width=WIDE, color_system=None)
    console.print(render("t", view))
    text = console.file.getvalue()
    assert r"[red]\x1b[2J\x9b2J\u202e\r\n[/red] failed [red]\x1b[2J" in text
    assert not set(text) & set("\x1b\x9b\u202e\r")


def test_the_reason_that_an_endpoint_gives_is_shown_without_escape_sequences(answering):
    view = Poller([PollTarget(answering(b"HTTP/1.1 418 \x1b[2J teapot\r\nContent-Length: 0\r\n\r\n"), "there")]).poll()
    assert view.silent[0].endswith(r"418 \x1b[2J teapot")
