"""The Grafana dashboard and the alert rules of examples/monitoring: highway exports what they read, and Prometheus can read them."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from highway.engine.stats import PipelineStats, StageStats
from highway.observe.metrics import registry
from highway.observe.snapshot import Ends, Loss, Snapshot
from highway.observe.state import ReplicaState
from highway.wire import counters
from highway.wire.tally import Counts

FOLDER = Path(__file__).parents[1] / "examples" / "monitoring"
OF_PROMETHEUS = {"job", "instance"}  # labels that Prometheus adds to those of a scrape

DASHBOARD = json.loads((FOLDER / "grafana.json").read_text())
TARGETS = {panel["title"]: panel["targets"] for panel in DASHBOARD["panels"]}
VARIABLES = {each["name"]: each["query"] for each in DASHBOARD["templating"]["list"]}
ALERTS = {rule["alert"]: rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]}


def queries():
    """Return the queries of the dashboard and the rules by place, with values in place of Grafana's variables."""
    found = {title: target["expr"] for title, targets in TARGETS.items() for target in targets}
    found = {title: text.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$role", ".*") for title, text in found.items()}
    return found | {name: rule["expr"] for name, rule in ALERTS.items()}


def exported():
    """Return all samples that highway exports for a run: a reader, a worker and a trainer."""

    def state(role, received=False, sends=False):
        link = dict.fromkeys(counters.LINK_COUNTERS, 0)
        stages = [
            StageStats("source", 1, 9, 90, 0, 1.0, 1.0, 1.0, 1, 3, "source", link if received else {}),
            StageStats("map", 2, 9, 90, 1, 1.0, 1.0, 1.0, 1, 4),
            StageStats("sink", 1, 9, 90, 0, 1.0, 1.0, 1.0, shape="sink"),
        ]
        return ReplicaState(role, phase="running", stats=PipelineStats(stages, 3.0), counts=Counts(9, 9))

    ends = {"reader": Ends("", "raw"), "worker": Ends("raw", "done"), "trainer": Ends("done")}
    states = [state("reader"), state("worker", received=True), state("trainer", received=True)]
    losses = {"raw": Loss(1, 0), "done": Loss(1, 0)}
    text = generate_latest(registry(lambda: Snapshot("feed", states, ends, losses, dict.fromkeys(ends, 0.5)))).decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def unknown(query, labels_of):
    """Return the metrics and labels of a query that are not exported."""
    names = set(re.findall(r"\bhighway_\w+", query))
    used = {label for group in re.findall(r"\b(?:by|on|without|ignoring) \(([^)]*)\)", query) for label in re.split(r",\s*", group)}
    found = {name for name in names if name not in labels_of}
    for name, selector in re.findall(r"\b(highway_\w+)\{([^}]*)\}", query):
        used_here = set(re.findall(r"(\w+)\s*[=!]", selector))
        found |= {f"{name}{{{label}}}" for label in used_here - labels_of.get(name, set()) - OF_PROMETHEUS}
    common = set.intersection(*(labels_of[name] for name in names - found)) if names - found else set()
    return found | (used - common - OF_PROMETHEUS)


LABELS = {sample.name: set(sample.labels) for sample in exported()}


@pytest.mark.parametrize("place", queries())
def test_highway_exports_every_metric_and_label_that_is_read(place):
    assert unknown(queries()[place], LABELS) == set()


def test_a_name_that_nobody_exports_is_found():
    assert unknown('sum by (role, pod) (rate(highway_stage_items_total{jub="a"}[1m]))', LABELS) == {"pod", "highway_stage_items_total{jub}"}
    assert unknown("highway_stage_item_total > 0", LABELS) == {"highway_stage_item_total"}


def test_names_in_legends_variables_and_texts_are_labels_too():
    for title, targets in TARGETS.items():
        for target in targets:
            (query,) = (text for place, text in queries().items() if place == title)
            kept = {label for group in re.findall(r"by \(([^)]*)\)", query) for label in re.split(r",\s*", group)}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept, title
    for query in (VARIABLES["job"]["query"], VARIABLES["role"]["query"]):
        name, label = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", query).groups()
        assert label in LABELS[name] | OF_PROMETHEUS
    for rule in ALERTS.values():
        for label in re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])):
            assert label in {one for sample in exported() if sample.name in rule["expr"] for one in sample.labels}


def test_the_alerts_and_the_dashboard_cover_what_a_run_can_suffer():
    assert {"HighwayMessagesLost", "HighwayTrainerWaits"} <= ALERTS.keys()
    assert all(rule["annotations"].keys() == {"summary", "description"} for rule in ALERTS.values())
    read = {name for query in queries().values() for name in re.findall(r"\bhighway_\w+", query)}
    assert LABELS.keys() - read == {"highway_link_late_total", "highway_link_bytes_total"}, "an exported metric that no panel shows"


def test_panels_do_not_overlap_and_have_their_own_numbers():
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"]) == len(TARGETS)
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 24


@pytest.fixture
def promtool(tmp_path):
    """Run promtool in a folder with copies of the files, and return what it says."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    for path in FOLDER.iterdir():
        shutil.copy(path, tmp_path)

    def run(*arguments):
        done = subprocess.run(["promtool", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


def test_prometheus_reads_the_rules_and_their_tests_pass(promtool):
    code, said = promtool("check", "rules", "alerts.yaml")
    assert code == 0 and f"{len(ALERTS)} rules found" in said, said
    code, said = promtool("test", "rules", "alerts_test.yaml")
    assert code == 0 and "SUCCESS" in said, said
    tested = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]
    assert {case["alertname"] for one in tested for case in one["alert_rule_test"] if "exp_alerts" in case} == ALERTS.keys()


def test_every_query_of_the_dashboard_finds_what_highway_exports(promtool, tmp_path):
    series = []
    for sample in exported():
        labels = ", ".join(f'{name}="{value}"' for name, value in {"job": "highway", "instance": "a:9400", **sample.labels}.items())
        series.append({"series": f"{sample.name}{{{labels}}}", "values": f"0+{sample.value:g}x30" if "_total" in sample.name else "1x30"})
    tests = [
        {"expr": f"count({query}) > bool 0", "eval_time": "10m", "exp_samples": [{"labels": "{}", "value": 1}]}
        for place, query in queries().items()
        if place in TARGETS
    ]
    said = {"rule_files": ["alerts.yaml"], "tests": [{"interval": "30s", "input_series": series, "promql_expr_test": tests}]}
    (tmp_path / "dashboard_test.yaml").write_text(yaml.safe_dump(said))
    code, output = promtool("test", "rules", "dashboard_test.yaml")
    assert code == 0 and "SUCCESS" in output, output
