"""What a run answers over HTTP: metrics, figures, health; and that figures count on over restarts."""

import json
import urllib.error
import urllib.request
from dataclasses import replace

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from highway.engine.stats import PipelineStats, StageStats
from highway.errors import ConfigError
from highway.observe.endpoint import Endpoint
from highway.observe.figures import Totals
from highway.observe.metrics import registry
from highway.observe.snapshot import Ends, Snapshot
from highway.observe.state import ReplicaState
from highway.topology import check, load
from highway.topology.spec import MetricsSpec, parse_metrics
from highway.topology.wiring import Wiring
from highway.wire.tally import Counts

TEXT = """
links: {raw: {from: reader, to: worker, port: 5555}}
roles:
  reader: [Noise: [2], ZMQSink: {link: raw}]
  worker: {replicas: 2, stages: [ZMQSource: {link: raw}, Identity, ZMQSink: 'zrpub://127.0.0.1:7880?codec=tenbin']}
"""
COUNTERS = {"messages": 9, "bytes": 900, "gaps": 2, "duplicates": 1, "late": 0, "malformed": 0, "senders": 1}


def figures(items, seconds=1.0, queued=0):
    source = StageStats("ZMQSource", 1, items, 10 * items, 0, 0.25, 0.5, 0.25, queued, 4, "source", COUNTERS)
    sink = StageStats("ZMQSink", 1, items, 10 * items, 0, seconds, shape="sink")
    return PipelineStats([source, StageStats("Identity", 2, items, errors=1), sink], seconds)


def worker(replica=0, items=8, phase="running", **rest):
    counts = Counts(received=items + 1, sent=items)
    return ReplicaState("worker", replica, phase=phase, stats=figures(items), single=False, counts=counts, **rest)


@pytest.fixture
def topology(tmp_path):
    (tmp_path / "feed.yaml").write_text(TEXT)
    return load(tmp_path / "feed.yaml")


@pytest.fixture
def endpoint(topology):
    with Endpoint(Wiring(topology, topology.plan.processes()), MetricsSpec(0)) as endpoint:
        yield endpoint


def get(endpoint, path, accept="*/*"):
    """Return the status and the body of an answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(endpoint.url + path, headers={"Accept": accept}), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(text):
    """Return the values of all samples by name and labels; a sample that comes twice is a mistake."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, *(sample.labels[label] for label in ("role", "replica", "stage", "link") if label in sample.labels))
            assert key not in found
            found[key] = sample.value
    return found


def test_metrics_are_what_prometheus_reads_under_the_names_of_the_design(endpoint):
    endpoint.update([worker(0, restarts=0), worker(1, 5, "waiting", restarts=0)])
    status, text = get(endpoint, "/metrics")
    found = samples(text)
    assert status == 200
    assert found["highway_stage_items_total", "worker", "0", "ZMQSource"] == 8
    assert found["highway_stage_bytes_total", "worker", "1", "ZMQSink"] == 50
    assert found["highway_stage_errors_total", "worker", "0", "Identity"] == 1
    assert [found[f"highway_stage_{part}_seconds_total", "worker", "0", "ZMQSource"] for part in ("busy", "starved", "blocked")] == [
        0.25,
        0.5,
        0.25,
    ]
    assert found["highway_stage_queued", "worker", "0", "ZMQSource"] == 0
    assert found["highway_stage_capacity", "worker", "0", "ZMQSource"] == 4
    assert found["highway_link_messages_total", "worker", "0", "ZMQSource", "raw"] == 9
    assert found["highway_link_bytes_total", "worker", "0", "ZMQSource", "raw"] == 900
    assert found["highway_link_gaps_total", "worker", "0", "ZMQSource", "raw"] == 2
    assert found["highway_link_duplicates_total", "worker", "0", "ZMQSource", "raw"] == 1
    assert found["highway_link_messages_total", "worker", "0", "ZMQSink", "tcp://127.0.0.1:7880"] == 8
    assert found["highway_role_up", "worker", "0"] == 1
    assert found["highway_role_up", "worker", "1"] == 0
    assert found["highway_role_restarts_total", "worker", "1"] == 0


def test_what_a_link_has_lost_is_a_metric_that_rises(endpoint):
    reader = ReplicaState("reader", counts=Counts(sent=20))
    endpoint.update([reader, worker(0), worker(1, 5)])
    found = samples(get(endpoint, "/metrics")[1])
    assert (found["highway_link_missing", "raw"], found["highway_link_lost_total", "raw"]) == (20 - 9 - 6, 0)
    endpoint.update([replace(reader, phase="ended"), worker(0, phase="failed"), worker(1, 5, phase="ended")])
    assert samples(get(endpoint, "/metrics")[1])["highway_link_lost_total", "raw"] == 5
    assert Snapshot.from_json(get(endpoint, "/stats")[1].encode()).losses["raw"].lost == 5


def test_metrics_come_as_openmetrics_if_asked_for(endpoint):
    endpoint.update([worker()])
    status, text = get(endpoint, "/metrics", "application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in openmetrics.text_string_to_metric_families(text)}
    assert status == 200
    assert families["highway_stage_items"].type == "counter"


def test_before_the_first_report_the_replicas_are_there_and_not_up(endpoint):
    _, text = get(endpoint, "/metrics")
    found = {key: value for key, value in samples(text).items() if key[0] == "highway_role_up"}
    assert found == {("highway_role_up", role, number): 0 for role, number in (("reader", "0"), ("worker", "0"), ("worker", "1"))}
    assert not [name for name, *_ in samples(text) if name.startswith("highway_stage")]


def test_stats_are_read_back_as_they_were(endpoint):
    states = [ReplicaState("reader", phase="starting"), worker(host="a", error="ValueError: no 3"), worker(1, phase="ended")]
    endpoint.update(states)
    _, text = get(endpoint, "/stats")
    snapshot = Snapshot.from_json(text.encode())
    assert list(snapshot.states) == states
    assert snapshot.topology == "feed"
    assert snapshot.ends["reader"] == Ends(sends="raw")
    assert snapshot.ends["worker[1]"] == Ends("raw", "tcp://127.0.0.1:7880", publishes=True)


def test_what_is_no_snapshot_is_not_read_as_one():
    for text in (b"<html>", b"{}", b'{"topology": "a", "states": [{"role": 1}]}'):
        with pytest.raises(ValueError, match="not statistics of highway"):
            Snapshot.from_json(text)


def test_health_is_ok_while_all_run_or_have_ended(endpoint):
    endpoint.update([worker(), worker(1, phase="ended")])
    status, text = get(endpoint, "/health")
    assert (status, json.loads(text)) == (200, {"status": "ok", "reasons": []})


def test_health_names_those_that_failed_or_wait(endpoint):
    endpoint.update([worker(phase="waiting", error="(exit code 1): ValueError: no 3"), worker(1, phase="failed")])
    status, text = get(endpoint, "/health")
    assert (status, json.loads(text)["status"]) == (503, "failing")
    assert json.loads(text)["reasons"] == ["worker[0] waits for its restart (exit code 1): ValueError: no 3", "worker[1] failed"]


def test_other_paths_are_not_found_and_say_which_there_are(endpoint):
    status, text = get(endpoint, "/")
    assert (status, json.loads(text)) == (404, {"paths": ["/metrics", "/stats", "/health"]})


def test_figures_count_on_when_a_replica_is_started_again():
    totals = Totals()
    (first,) = totals.count([worker(items=8)])
    assert first == worker(items=8)
    again = worker(restarts=1)
    (waiting,) = totals.count([replace(again, stats=figures(8), phase="starting")])
    assert waiting.stats == figures(8)
    (began,) = totals.count([replace(again, stats=figures(3, 0.5, queued=2))])
    source = began.stats.stages[0]
    assert (source.items, source.bytes, source.queued, began.stats.seconds) == (11, 110, 2, 1.5)
    assert {name: source.counters[name] for name in ("messages", "gaps", "senders")} == {"messages": 18, "gaps": 4, "senders": 1}
    (later,) = totals.count([replace(again, stats=figures(4, 0.75))])
    assert later.stats.stages[0].items == 12


def test_a_restart_that_begins_without_figures_keeps_the_earlier_ones():
    totals = Totals()
    totals.count([worker(items=8)])
    (began,) = totals.count([replace(worker(restarts=1), stats=None)])
    assert began.stats == figures(8)
    (later,) = totals.count([replace(worker(restarts=1), stats=figures(1))])
    assert later.stats.stages[0].items == 9


def test_a_run_takes_the_first_free_port_of_a_range(topology, own_address):
    spec = MetricsSpec("9400-9401", own_address)
    with Endpoint(Wiring(topology, []), spec) as first, Endpoint(Wiring(topology, []), spec) as second:
        assert [first.url, second.url] == [f"http://{own_address}:9400", f"http://{own_address}:9401"]
        with pytest.raises(ConfigError, match=r"all ports from 9400 to 9401 are used by another process; .* --metrics 0 uses any"):
            Endpoint(Wiring(topology, []), spec)


def test_an_address_of_another_machine_cannot_be_opened(topology):
    with pytest.raises(ConfigError, match=r"metrics: 192\.0\.2\.1:0 cannot be opened: "):
        Endpoint(Wiring(topology, []), MetricsSpec(0, "192.0.2.1"))


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("9400", MetricsSpec("9400-9400", "127.0.0.2")),
        ("0", MetricsSpec("0-0", "127.0.0.2")),
        ("0.0.0.0:9400-9409", MetricsSpec("9400-9409", "0.0.0.0")),
        ("[::1]:9400", MetricsSpec("9400-9400", "::1")),
    ],
)
def test_the_option_gives_a_port_and_may_give_an_address(text, spec):
    assert parse_metrics(text, MetricsSpec(1, "127.0.0.2")) == spec


@pytest.mark.parametrize("text", ["", "http", "70000", "9409-9400", ":9400", "::1:9400"])
def test_an_option_that_cannot_be_read_says_what_is_expected(text):
    with pytest.raises(ConfigError, match="expected a port, such as 9400"):
        parse_metrics(text)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("9400", MetricsSpec(9400)),
        ("9400-9409", MetricsSpec("9400-9409")),
        ("{port: 9400, listen: 0.0.0.0}", MetricsSpec(9400, "0.0.0.0")),
    ],
)
def test_the_file_says_where_to_listen(tmp_path, text, spec):
    (tmp_path / "t.yaml").write_text(f"metrics: {text}\nroles: {{a: [Noise: [2]]}}")
    assert load(tmp_path / "t.yaml").plan.metrics == spec


@pytest.mark.parametrize("text", ["0", "x", "9409-9400", "60000-70000", "{listen: 0.0.0.0}"])
def test_a_file_with_another_value_is_refused(tmp_path, text):
    (tmp_path / "t.yaml").write_text(f"metrics: {text}\nroles: {{a: [Noise: [2]]}}")
    with pytest.raises(ConfigError, match=r"t\.yaml:1: metrics"):
        load(tmp_path / "t.yaml")


def test_metrics_at_a_port_of_a_link_are_a_mistake(tmp_path):
    (tmp_path / "t.yaml").write_text(f"metrics: 5550-5559\n{TEXT}")
    (error,) = check(load(tmp_path / "t.yaml"))
    assert "metrics: the link raw uses port 5555" in str(error)


def played(seconds, starved, blocked):
    """Return figures of a worker whose source has waited for input, and its sink for receivers, for so many seconds of so many."""
    source = StageStats("ZMQSource", 1, 9, 90, busy=seconds - starved, starved=starved, shape="source")
    sink = StageStats("ZMQSink", 1, 9, 90, busy=seconds - blocked, blocked=blocked, shape="sink")
    return PipelineStats([source, StageStats("Identity", 2, 9, busy=2 * seconds), sink], seconds)


@pytest.mark.parametrize(
    ("starved", "blocked", "load"),
    [(0.0, 0.0, 1.0), (15.0, 0.0, 0.5), (30.0, 0.0, 0.0), (0.0, 30.0, 0.0), (6.0, 12.0, 0.4), (20.0, 20.0, 0.0)],
    ids=["all work", "half of it waiting", "nothing comes", "nobody takes", "some of both", "more than all"],
)
def test_load_is_the_part_of_the_last_half_minute_in_which_a_replica_had_work_to_do(endpoint, starved, blocked, load):
    first = ReplicaState("worker", 0, stats=played(100, 100, 0), single=False)
    last = replace(first, stats=played(130, 100 + starved, blocked))
    endpoint.update([first])
    endpoint.update([last, ReplicaState("worker", 1, phase="waiting", stats=played(9, 1, 1), single=False)])
    found = samples(get(endpoint, "/metrics")[1])
    assert found["highway_role_load", "worker", "0"] == pytest.approx(load)
    assert ("highway_role_load", "worker", "1") not in found, "it does not run"
    assert Snapshot.from_json(get(endpoint, "/stats")[1].encode()).loads == {"worker[0]": pytest.approx(load)}


def test_load_forgets_what_was_more_than_half_a_minute_ago(endpoint):
    for second in range(61):
        endpoint.update([ReplicaState("worker", 0, stats=played(1.0 + second, min(30.0, second), 0), single=False)])
    assert samples(get(endpoint, "/metrics")[1])["highway_role_load", "worker", "0"] == pytest.approx(1.0)


def test_only_the_end_of_a_run_exports_how_long_the_trainer_waited(endpoint):
    registered = registry(
        lambda: Snapshot(
            "feed",
            [
                ReplicaState("worker", stats=played(30.0, 10.0, 5.0)),
                ReplicaState("trainer", stats=replace(played(30.0, 10.0, 5.0), waited=7.0)),
                ReplicaState("pipeline", stats=PipelineStats(played(30.0, 10.0, 5.0).stages[:2], 30.0, waited=7.0)),
            ],
            {"worker": Ends("raw", "done"), "trainer": Ends("done")},
        )
    )
    found = {key[1]: value for key, value in samples(generate_latest(registered).decode()).items() if "waited" in key[0]}
    assert found == {"trainer": 0.0, "pipeline": 7.0}
