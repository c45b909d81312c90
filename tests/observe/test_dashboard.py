"""The page of a run without a browser: who gets it, what it says, and what it costs. How it looks is in test_dashboard_page."""

import ast
import gzip
import http.client
import io
import itertools
import json
import os
import re
import resource
import socket
import struct
import subprocess
import sys
import time
import tokenize
import urllib.parse
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from waiting import wait_until

from highway import Pipeline
from highway.engine.stage import Passport
from highway.engine.stats import PipelineStats, StageStats
from highway.errors import ConfigError
from highway.observe.bottleneck import bottleneck
from highway.observe.dashboard.document import document, points
from highway.observe.dashboard.history import LENGTH, MOST, History
from highway.observe.dashboard.local import OPTION, site_of
from highway.observe.dashboard.looking import Looker
from highway.observe.endpoint import Endpoint
from highway.observe.poll import Poller, Sample
from highway.observe.snapshot import Ends
from highway.observe.state import ReplicaState
from highway.observe.wait import waiting
from highway.topology import load
from highway.topology.spec import MetricsSpec
from highway.topology.wiring import Wiring
from highway.wire.tally import Counts

TEXT = """
links: {raw: {from: reader, to: worker, port: 5555}}
roles:
  reader: [Noise: [2], ZMQSink: {link: raw}]
  worker: {replicas: 2, stages: [ZMQSource: {link: raw}, Identity, Benchmark: 10]}
"""
PAGE = Path(__file__).parents[2] / "highway/observe/dashboard/page"
OWN = [path for path in PAGE.iterdir() if not path.name.startswith("uplot")]


def worker(replica=0, items=8, phase="running", starved=1.0, busy=3.0, name="worker", **rest):
    stages = [
        StageStats("ZMQSource", 1, items, shape="source"),
        StageStats("Benchmark", 1, items, 10 * items, 0, busy, starved, shape="sink"),
    ]
    stats = PipelineStats(stages, busy + starved, cpu=1.0, cores=4, resident=5_000_000)
    return ReplicaState(name, replica, phase=phase, stats=stats, single=False, counts=Counts(received=items), **rest)


@contextmanager
def served(tmp_path, spec=None, option=OPTION, check=()):
    (tmp_path / "feed.yaml").write_text(TEXT)
    topology = load(tmp_path / "feed.yaml")
    site = site_of(topology, check=check, note="")
    with Endpoint(Wiring(topology, topology.plan.processes()), spec or MetricsSpec(0), site, option) as endpoint:
        endpoint.line = site.line
        yield endpoint


@pytest.fixture
def endpoint(tmp_path):
    with served(tmp_path) as endpoint:
        yield endpoint


def ask(url, path="/", method="GET", host=None, **headers):
    """Return the status, headers and body of an answer; the path goes out as it is written."""
    place = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
    connection.putrequest(method, path, skip_host=host is not None, skip_accept_encoding=True)
    for name, value in ({"Host": host} if host is not None else {}).items() | headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.headers), body


def shown_at(url):
    """Return the batch that a page shows, and its images; nothing if there is another batch by then."""
    seen = json.loads(ask(url, "/look.json?place=0")[2])
    picture = ask(url, f"/look.png?place=0&n={seen['number']}")[2]
    return picture and (seen, picture)


def now(url, ready=lambda shown: shown.get("roles")):
    """Return the document, once it is as expected."""
    until = time.monotonic() + 30
    while not ready(shown := json.loads(ask(url, "/now.json")[2])):
        assert time.monotonic() < until, shown
    return shown


def test_the_page_says_what_stats_say(endpoint):
    states = [worker(0, 8, restarts=2), worker(1, 5, "failed", error="ValueError: no 3")]
    endpoint.update(states)
    shown = now(endpoint.page, lambda shown: len(shown.get("replicas", ())) == 2)
    stats = json.loads(ask(endpoint.page, "/stats")[2])
    found = [(row[1], row[3], row[4], row[5], row[13]) for row in shown["replicas"]]
    names = [f"{state['role']}[{state['replica']}]" for state in stats["states"]]
    assert found == [
        (name, state["phase"], state["restarts"], state["stats"]["stages"][-1]["items"], state["error"])
        for name, state in zip(names, stats["states"], strict=True)
    ]
    (role,) = (role for role in shown["roles"] if role["name"] == "worker")
    for number, stage in enumerate(role["stages"]):
        for count in ("items", "errors", "queued", "capacity"):
            assert stage[count] == sum(state["stats"]["stages"][number][count] for state in stats["states"])
    (link,) = shown["links"]
    assert (link["received"], link["sent"]) == (sum(state["counts"]["received"] for state in stats["states"]), None)
    assert shown["phases"] == {"running": 1, "failed": 1}
    assert shown["problems"] == ["worker[1]: ValueError: no 3"]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example", "localhost@evil.example", "10.1.2.3", "[bad", "a b"]
)
def test_a_foreign_host_is_refused(endpoint, host):
    for path in ("/", "/now.json", "/stats", "/look.json?place=0"):
        assert ask(endpoint.page, path, host=host)[0] in (400, 421)


@pytest.mark.parametrize("host", ["localhost:{}", "127.0.0.1:{}", "[::1]:{}", "LOCALHOST:{}"])
def test_this_machine_is_answered(endpoint, host):
    port = urllib.parse.urlsplit(endpoint.page).port
    assert ask(endpoint.page, "/", host=host.format(port))[0] == 200


@pytest.mark.slow
def test_beyond_this_machine_a_token_is_required_for_all_but_its_owner(tmp_path):
    with served(tmp_path, MetricsSpec(0, "0.0.0.0")) as endpoint:
        port, token = urllib.parse.urlsplit(endpoint.page).port, urllib.parse.urlsplit(endpoint.page).query.partition("=")[2]
        url = f"http://127.0.0.1:{port}/"
        assert len(token) >= 32 and endpoint.page.startswith(f"http://{os.uname().nodename}:")
        for path in ("/", "/now.json", "/page.js", "/stats", "/metrics", "/look.png?place=0", "/nothing"):
            assert ask(url, path)[0] == 401
            assert ask(url, f"{path}{'&' if '?' in path else '?'}token={token[:-1]}x")[0] == 401
            assert ask(url, path, Authorization=f"Bearer {token}")[0] in (200, 404)
        status, headers, _ = ask(url, f"/?token={token}")
        assert (status, headers["Location"]) == (303, "./")
        assert re.search("HttpOnly; SameSite=Strict", headers["Set-Cookie"])
        assert ask(url, "/now.json", Cookie=headers["Set-Cookie"].partition(";")[0])[0] == 200
        assert ask(url, "/now.json", host="evil.example", Authorization=f"Bearer {token}")[0] == 421


def test_metrics_stay_open_where_the_page_is_at_their_endpoint(tmp_path):
    with served(tmp_path, MetricsSpec(0, "0.0.0.0"), "--metrics") as endpoint:
        url = f"http://127.0.0.1:{urllib.parse.urlsplit(endpoint.page).port}/"
        assert [ask(url, path)[0] for path in ("/metrics", "/stats", "/health", "/", "/now.json")] == [200, 200, 200, 401, 401]


@pytest.mark.parametrize(
    "path",
    [
        *("/../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/page/../site.py", "/site.py", "/index.html", "/page.js/"),
        *("/look.json", "/look.json?place=-1", "/look.json?place=99", "/look.json?place=../x", "/look.png?place=a", "/.git/config", "/%00"),
    ],
)
def test_no_request_reaches_anything_but_the_page(endpoint, path):
    assert ask(endpoint.page, path)[0] in (400, 404)


def test_a_page_is_only_read(endpoint):
    assert {ask(endpoint.page, "/", method)[0] for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH")} == {405}
    status, headers, body = ask(endpoint.page, "/", "HEAD")
    assert (status, body) == (200, b"") and int(headers["Content-Length"]) > 1000


def test_scripts_and_styles_come_from_the_page_alone(endpoint):
    for path in ("/", "/now.json", "/page.js", "/nothing"):
        _, headers, _ = ask(endpoint.page, path)
        policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == "'none'" and policy["script-src"] == policy["style-src"] == "'self'"
        assert "unsafe" not in headers["Content-Security-Policy"] and policy["frame-ancestors"] == "'none'"
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_nothing_is_fetched_from_elsewhere_and_no_text_becomes_markup():
    texts = {path.name: path.read_text() for path in OWN}
    assert set(re.findall(r"https?://[^\s\"']+", "".join(texts.values()))) <= {"http://www.w3.org/2000/svg"}
    for danger in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc", 'setTimeout("'):
        assert not [name for name, text in texts.items() if danger in text]
    assert not re.search(r"\son\w+=|style=|javascript:", texts["index.html"])


def test_what_a_reader_has_to_read_is_short():
    assert sum(len(path.read_text().splitlines()) for path in OWN if path.suffix in (".js", ".css")) <= 1000
    assert sum(map(lines_of_code, PAGE.parent.glob("*.py"))) <= 600
    assert (PAGE / "uplot-licence.txt").read_text().startswith("The MIT License")


def lines_of_code(path):
    """Count the lines of a module without blank lines, comments and docstrings."""
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline) if token.string.strip()]
    code = {line for token in tokens if token.type != tokenize.COMMENT for line in range(token.start[0], token.end[0] + 1)}
    texts = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return len(code - {line for text in texts for line in range(text.lineno, text.end_lineno + 1)})


def test_answers_are_packed_for_those_who_can_read_that(endpoint):
    endpoint.update([worker(number) for number in range(20)])
    now(endpoint.page)
    _, headers, packed = ask(endpoint.page, "/now.json", Accept_Encoding="gzip")
    assert headers["Content-Encoding"] == "gzip" and json.loads(gzip.decompress(packed))["roles"]


def test_the_log_keeps_the_last_lines_and_cuts_long_ones(endpoint):
    for number in range(1000):
        endpoint.line("worker[1]", f"{number} " + "x" * 5000, is_error=number % 2 == 1)
    log = now(endpoint.page, lambda shown: shown.get("log"))["log"]
    assert [line[0] for line in log] == list(range(801, 1001))
    assert log[-1][2:] == ["worker[1]", ("999 " + "x" * 5000)[:400], True]


def sample(name, ends=None, last="sink", busy=1.0, starved=0.0, blocked=0.0, waited=0.0):
    stages = [StageStats("first", 1, 9, busy=0.1, starved=9.9, shape="source")]
    stages.append(StageStats("last", 1, 9, 0, 0, busy, starved, blocked, shape=last))
    stats = PipelineStats(stages, busy + starved + blocked, waited=waited)
    return Sample(ReplicaState(name, stats=stats), stats, ends or Ends(), "here")


def test_the_wait_is_that_of_the_sink_at_the_end():
    reader, trainer = sample("reader", Ends(sends="raw"), blocked=1.0), sample("trainer", Ends("raw"), busy=1.0, starved=3.0)
    found = waiting([reader, trainer])
    assert (found.share, found.of, found.outside) == (0.75, "trainer", False)
    assert found.sentence == f"trainer waited 75% of its time for data. {bottleneck([reader, trainer])}"


def test_the_wait_of_a_loop_is_that_of_its_hand_over():
    assert waiting([sample("pipeline", last="map", busy=4.0, waited=1.0)]).share == 0.25
    assert waiting([sample("pipeline", last="map", busy=4.0, waited=0.1)]).sentence.endswith("Faster stages upstream would not help.")


def test_a_trainer_outside_waits_at_most_as_long_as_its_sender_did_not_wait_for_it():
    found = waiting([sample("reader", Ends(sends="raw"), busy=1.0, blocked=3.0)])
    assert (found.share, found.outside) == (0.25, True)
    assert "at most 25%" in found.sentence


def test_the_slowest_of_several_trainers_counts():
    found = waiting([sample("a", starved=0.0), sample("b", starved=1.0), sample("b", starved=3.0)])
    assert (found.of, found.share) == ("b", (0.5 + 0.75) / 2)


def test_where_nothing_runs_there_is_no_number():
    assert waiting([]).share is None


def slow(seconds, count=30):
    for number in range(count):
        time.sleep(seconds)  # what makes the loop wait
        yield np.full((4, 8, 8, 3), number, np.uint8), np.arange(4)


@pytest.mark.parametrize("wrap", ["the pipeline", "to_device", "DataLoader", "both"])
def test_a_loop_waits_where_it_takes_its_batches(wrap):
    pytest.importorskip("torch")
    torch = pytest.importorskip("highway.adapters.torch")
    wraps = {"the pipeline": lambda one: one, "to_device": lambda one: torch.to_device(one, "cpu"), "DataLoader": torch.DataLoader}
    wraps["both"] = lambda one: torch.to_device(torch.DataLoader(one), "cpu")
    shares = []
    for step in (0.0, 0.04):
        with Pipeline([slow(0.02)]) as pipeline:
            for _ in wraps[wrap](pipeline):
                time.sleep(step)  # a step of the training
            stats = pipeline.stats()
            shares.append(stats.waited / stats.seconds)
    assert shares[0] > 0.8 and shares[1] < 0.4


def test_the_wait_goes_on_over_loops():
    pytest.importorskip("torch")
    torch = pytest.importorskip("highway.adapters.torch")
    with Pipeline([slow(0.02)]) as pipeline:
        waits = []
        for _ in range(2):
            for number, _ in enumerate(torch.to_device(pipeline, "cpu")):
                if number == 5:
                    break
            waits.append(pipeline.stats().waited)
    assert waits[1] > waits[0] > 0.05


def test_a_pipeline_shows_its_page_and_the_batch_that_it_handed_over(capsys):
    with Pipeline([slow(0.01, 3000)], seed=1) as pipeline, pipeline.dashboard() as page:
        assert capsys.readouterr().out == f"dashboard at {page.url}\n" and page.url in page._repr_html_()
        batches = iter(pipeline)
        next(batches)
        seen = {"fields": []}
        until = time.monotonic() + 30
        while not seen["fields"] and time.monotonic() < until:
            next(batches)
            seen = json.loads(ask(page.url, "/look.json?place=0")[2])
        assert [(field["name"], field["dtype"], field["shape"]) for field in seen["fields"]] == [
            ("0", "uint8", "4x8x8x3"),
            ("1", "int64", "4"),
        ]
        assert [label for label, _ in seen["texts"]] == ["0", "1", "2", "3"] and seen["picture"]
        assert wait_until(lambda: shown_at(page.url))[1].startswith(b"\x89PNG")
        assert ask(page.url, "/look.png?place=0&n=-1")[2] == b"", "no picture for the labels of another batch"
        shown = now(page.url, lambda shown: shown.get("roles") and shown["roles"][0]["stages"][0]["items"])
        assert shown["roles"][0]["name"] == "pipeline" and shown["wait"]["of"] == "pipeline"
    page.close()


@pytest.fixture
def look():
    """Return what the page shows of a batch."""

    def look(item, **passport):
        looker = Looker({"here": lambda: (item, Passport(**passport), {})})
        try:
            return wait_until(lambda: (seen := looker.look(0)).number and seen)
        finally:
            looker.close()

    return look


def test_a_batch_without_images_is_a_table_of_its_fields(look):
    seen = look({"x": np.array([[np.nan, 1], [2, 3]], np.float32), "n": np.array([4, 6]), "text": ["a", "b"]}, keys=("a.txt", "b.txt"))
    assert seen.fields[:2] == [
        {"name": "x", "dtype": "float32", "shape": "2x2", "min": 1, "max": 3, "mean": 2, "nan": 0.25},
        {"name": "n", "dtype": "int64", "shape": "2", "min": 4, "max": 6, "mean": 5, "nan": 0},
    ]
    assert seen.fields[2]["name"] == "text" and "nan" not in seen.fields[2]
    assert (seen.texts, seen.picture) == ([("", "a.txt"), ("", "b.txt")], b"")


def test_a_pipeline_of_samples_shows_whole_images():
    sample = {"image": np.concatenate([np.zeros((32, 64, 3), np.uint8), np.full((32, 64, 3), 255, np.uint8)]), "label": np.int64(3)}
    with Pipeline([itertools.repeat(sample)]) as pipeline, pipeline.dashboard() as page:
        items = iter(pipeline)
        seen, body = wait_until(lambda: next(items) and shown_at(page.url))
        picture = Image.open(io.BytesIO(body))
        assert [picture.getpixel((picture.width // 2, y)) for y in (5, picture.height - 5)] == [(0, 0, 0), (255, 255, 255)]
        assert (seen["fields"][0]["shape"], seen["texts"]) == ("64x64x3", [["3", ""]])


def test_boxes_masks_labels_and_keys_are_shown_with_their_images(look):
    images = {"image": np.zeros((2, 32, 32, 3), np.uint8), "label": np.array([3, 5])}
    boxes = np.array([[[4, 4, 20, 20]], [[8, 8, 30, 30]]], np.float32)
    masks = np.zeros((2, 32, 32), np.uint8)
    masks[:, 10:20] = 1
    plain, boxed, masked = (look(images | more, keys=("a.jpg", "b.jpg")) for more in ({}, {"boxes": boxes}, {"masks": masks}))
    assert plain.texts == [("3", "a.jpg"), ("5", "b.jpg")]
    assert len({plain.picture, boxed.picture, masked.picture}) == 3


def test_the_page_ends_with_its_pipeline():
    pipeline = Pipeline([range(3)])
    page = pipeline.dashboard()
    port = urllib.parse.urlsplit(page.url).port
    del pipeline
    page.close()
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), 5):
        pass


def test_a_taken_port_is_named_with_the_option():
    with socket.create_server(("127.0.0.1", 0)) as taken, Pipeline([range(3)]) as pipeline:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"dashboard: port {port} is used.*--dashboard 0 uses any"):
            pipeline.dashboard(str(port))


def test_the_history_holds_an_hour_and_no_more():
    history = History()
    for number in range(3 * LENGTH):
        history.add(float(number), {"always": number, f"now and then {number // LENGTH}": 1.0})
    whole = history.to_bytes()
    (length,) = struct.unpack_from("<I", whole)
    header = json.loads(whole[4 : 4 + length])
    figures = np.frombuffer(whole, np.float32, offset=4 + length).reshape(len(header["names"]), -1)
    assert header["names"] == ["always", "now and then 2"]
    assert header["times"] == list(range(2 * LENGTH, 3 * LENGTH))
    np.testing.assert_array_equal(figures[0], header["times"])


def test_the_memory_of_eight_hours_is_that_of_one():
    history, sizes = History(), []
    for hour in range(8):
        for number in range(LENGTH):
            history.add(float(number), {f"replica {hour} {number % 50}": 1.0, **{f"figure {one}": 1.0 for one in range(20)}})
        sizes.append(len(history.to_bytes()))
    assert max(sizes[1:]) <= 2.2 * sizes[0] and sizes[7] <= sizes[2]
    history.add(0.0, {f"name {number}": 1.0 for number in range(2 * MOST)})
    assert len(history.to_bytes()) < 4 * (MOST + 1) * LENGTH + 100 * MOST


def view(states):
    return Poller(()).view([endpoint_snapshot(states)])


def endpoint_snapshot(states):
    from highway.observe.snapshot import Snapshot

    return Snapshot("feed", states, {state.name: Ends(sends="a", receives="b") for state in states})


def test_each_figure_of_a_large_run_is_a_finite_number():
    seen = view([worker(number, name=f"role{number % 7}") for number in range(200)])
    shown = document(seen, seen)
    found = dict(points(shown))
    assert len(shown["replicas"]) == 200 and all(np.isfinite(value) for value in found.values())
    assert json.loads(json.dumps(shown)) == json.loads(json.dumps(shown, allow_nan=False))


VIEWERS = """
import http.client, sys, threading, time

def view(port):
    end = time.monotonic() + 8
    while time.monotonic() < end:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for _ in range(8):
            begun = time.monotonic()
            connection.request("GET", "/now.json", headers={"Accept-Encoding": "gzip"})
            assert connection.getresponse().read()
            time.sleep(max(0.0, 1.0 - (time.monotonic() - begun)))
        connection.close()

threads = [threading.Thread(target=view, args=(int(sys.argv[1]),)) for _ in range(50)]
print(time.monotonic())
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [4, 200])
def test_fifty_viewers_cost_less_than_a_twentieth_of_a_core(endpoint, replicas):
    endpoint.update([worker(number) for number in range(replicas)])
    assert now(endpoint.page)["roles"]
    before, begun = processor_seconds(), time.monotonic()
    subprocess.run([sys.executable, "-c", VIEWERS, str(urllib.parse.urlsplit(endpoint.page).port)], check=True, capture_output=True)
    used, seconds = processor_seconds() - before, time.monotonic() - begun
    print(f"{used:.2f} s of a core in {seconds:.1f} s: {used / seconds:.1%}")
    assert used < 0.05 * seconds


@pytest.mark.slow
def test_a_viewer_that_stops_reading_costs_nothing_and_keeps_nobody_out(endpoint):
    endpoint.update([worker(number) for number in range(200)])
    port = urllib.parse.urlsplit(endpoint.page).port
    stuck = []
    for _ in range(20):
        viewer = socket.create_connection(("127.0.0.1", port))
        viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        viewer.sendall(b"GET /now.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)  # and reads none of the answers
        stuck.append(viewer)
    before = processor_seconds()
    started = time.monotonic()
    for _ in range(20):
        assert now(endpoint.page)["roles"]
        endpoint.update([worker(number) for number in range(200)])
    assert processor_seconds() - before < 2.0 + 0.3 * (time.monotonic() - started)
    for viewer in stuck:
        viewer.close()


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
