"""The page of a run in a browser: what it shows, and that nothing which it shows becomes more than text. Run by ``tox -e slow``.

With ``HIGHWAY_SCREENSHOTS=FOLDER`` it leaves pictures of the page there, to be looked at.
"""

import contextlib
import json
import os
import re
import signal
import urllib.parse
import urllib.request
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from chromium import chromium  # noqa: F401  # a fixture
from waiting import wait_until

from highway import Pipeline
from highway.engine.stage import Passport
from highway.engine.stats import PipelineStats, StageStats
from highway.observe.dashboard.local import OPTION
from highway.observe.dashboard.looking import Looker
from highway.observe.dashboard.site import Site
from highway.observe.endpoint import Answers
from highway.observe.snapshot import Ends, Snapshot
from highway.observe.state import ReplicaState
from highway.topology.spec import MetricsSpec
from highway.wire.tally import Counts

pytestmark = pytest.mark.slow

MARKUP = [
    "<script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "<svg/onload=window.hacked=1>",
    '"><b onmouseover=window.hacked=1>x</b>',
    "'><i>x</i>",
    "</title><script>window.hacked=1</script>",
    "</option></select><iframe src=javascript:window.hacked=1>",
    "</style><style>*{display:none}</style>",
    "javascript:window.hacked=1",
    "{{7*7}}${7*7}",
    "&lt;b&gt;&amp;",
    "<!--",
    "]]>",
    "<a href=//evil.example>x</a>",
    "url(//evil.example)",
    "\\u003cscript\\u003e",
    "a\u202egpj.exe",
    "<math><mtext></mtext></math>",
    "<details open ontoggle=window.hacked=1>",
    "<base href=//evil.example>",
    "<input autofocus onfocus=window.hacked=1>",
]
TOPOLOGY = """
links:
  raw: {from: reader, to: worker, transport: ipc}
  done: {from: worker, to: trainer, transport: ipc, bind: to}
roles:
  reader: [$Numbers: {every: 0.005}, ZMQSink: {link: raw}]
  worker: {replicas: 2, restart: on-failure, stages: [ZMQSource: {link: raw}, $Pass, ZMQSink: {link: done}]}
  trainer: [ZMQSource: {link: done}, Benchmark: 100]
"""

OPEN_WORKER = "[...document.querySelectorAll('.node .role')].find((one) => one.textContent.startsWith('worker')).click()"


def keep(browser, name):
    """Leave a picture, if one is wanted."""
    if folder := os.environ.get("HIGHWAY_SCREENSHOTS"):
        browser.screenshot(os.path.join(folder, f"{name}.png"))


def fetched(url, path):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.parse.urljoin(url, path), timeout=60) as answer:
        return json.loads(answer.read())


def figures(items, name="decode", busy=0.5):
    stages = [StageStats("ZMQSource", 1, items, 100 * items, busy=0.1, starved=9.9, shape="source", queued=1, capacity=3)]
    stages.append(StageStats(name, 2, items, 100 * items, 3, 20 * busy, 20 * (1 - busy), queued=2, capacity=8, error=f"ValueError: {name}"))
    stages.append(StageStats("ZMQSink", 1, items, 100 * items, busy=1.0, starved=9.0, shape="sink"))
    return PipelineStats(stages, 10.0, 8.0, 4, 1.0, 0.0, 40_000_000)


@contextlib.contextmanager
def served(states, ends, looker=None, places=(), lines=(), title="feed", check=()):
    """Serve the page of a run that is at a standstill, whose clock goes on."""
    ticks = count(1)

    def snapshot():
        late = next(ticks)
        moved = [replace(one, stats=_later(one.stats, late)) if one.stats else one for one in states]
        return Snapshot(title, moved, ends)

    site = Site(title, None, looker or Looker({}), places, check=check)
    for line in lines:
        site.line(*line)
    with Answers(snapshot, MetricsSpec(0), site, OPTION) as answers:
        yield answers.page


def _later(stats, ticks):
    stages = [replace(stage, items=stage.items + 50 * ticks, busy=stage.busy + 0.5 * ticks) for stage in stats.stages]
    return replace(stats, seconds=stats.seconds + ticks, stages=stages)


def test_a_run_whose_worker_is_killed(chromium, write, start):  # noqa: F811
    run = start("run", write(TOPOLOGY), "--plugin", "mine", "--dashboard")
    url = run.error.until(r"^dashboard at (http://127.0.0.1:\d+/)$")[1]
    pids = run.pids(2)
    chromium.open(url)
    chromium.until("document.querySelectorAll('.node').length == 3 && document.getElementById('phases').innerText.includes('4 running')")
    chromium.run(OPEN_WORKER)
    chromium.until("document.querySelectorAll('#replicas tbody tr').length == 2")
    os.kill(pids["worker[1]"], signal.SIGKILL)
    chromium.until("[...document.querySelectorAll('#replicas tbody tr')].some((row) => row.children[3].innerText == '1')")
    chromium.until("document.getElementById('log').innerText.includes('worker[1] failed')")
    stats = fetched(url, "stats")
    states = {f"{one['role']}[{one['replica']}]" if one["role"] == "worker" else one["role"]: one for one in stats["states"]}
    assert states["worker[1]"]["restarts"] == 1
    rows = chromium.run(
        "[...document.querySelectorAll('#replicas tbody tr')].map((row) => [row.children[0].innerText, row.children[3].innerText])"
    )
    assert dict(rows) == {name: str(states[name]["restarts"]) for name in ("worker[0]", "worker[1]")}
    host, cores, memory = next((row[1], *row[9:11]) for row in chromium.rows("#replicas") if row[0] == "worker[0]")
    assert host == os.uname().nodename and re.fullmatch(r"\d+\.\d", cores) and re.fullmatch(r"\d+ MB", memory)
    chromium.run("document.getElementById('pictures').scrollIntoView()")
    chromium.until("document.querySelector('#fields tbody tr') && document.querySelector('#fields tbody tr').innerText.includes('int')")
    keep(chromium, "killed")
    assert chromium.complaints == []
    run.process.send_signal(signal.SIGINT)
    run.end()


def test_the_page_shows_the_same_values_as_stats(chromium):  # noqa: F811
    states = [ReplicaState("worker", number, stats=figures(1000 * number), single=False, counts=Counts(7, 9)) for number in range(2)]
    states.append(replace(states[0], replica=2, phase="failed", error="OSError: no space", restarts=4))
    frozen = Snapshot("feed", states, {f"worker[{number}]": Ends("raw") for number in range(3)})
    site = Site("feed", None, Looker({}))
    with Answers(lambda: frozen, MetricsSpec(0), site, OPTION) as answers:
        chromium.open(answers.page)
        chromium.until("document.querySelectorAll('.node').length == 2")
        chromium.run(OPEN_WORKER)
        chromium.until("document.querySelectorAll('#replicas tbody tr').length == 3")
        rows = chromium.run(
            "[...document.querySelectorAll('#replicas tbody tr')].map((row) => [...row.children].map((cell) => cell.innerText))"
        )
        shown = {row[0]: (row[2].strip("●✕▲ "), row[3], row[4].replace(",", ""), row[8], row[11]) for row in rows}
        stats = fetched(answers.page, "stats")
        assert shown == {
            f"worker[{one['replica']}]": (
                one["phase"],
                str(one["restarts"]),
                str(one["stats"]["stages"][-1]["items"]),
                str(sum(stage["errors"] for stage in one["stats"]["stages"])),
                one["error"],
            )
            for one in stats["states"]
        }
        assert rows[0][0] == "worker[2]", "what has failed stands first"
        chromium.run("[...document.querySelectorAll('.node .stage')].find((one) => one.textContent.startsWith('decode')).click()")
        detail = chromium.until(
            "document.querySelector('#detail h2').innerText == 'worker: decode' && document.querySelector('#detail dl').innerText"
        )
        assert "ValueError: decode" in detail and re.search(r"errors left out\s*9", detail)
    assert chromium.complaints == []


def test_markup_stays_text_wherever_it_comes_from(chromium):  # noqa: F811
    item = {name: np.zeros((2, 3)) for name in MARKUP} | {"image": np.zeros((2, 8, 8, 3), np.uint8), "label": np.array(MARKUP[:2])}
    looker = Looker({name: lambda: (item, Passport(keys=tuple(MARKUP[:2])), {}) for name in MARKUP})
    states = [
        ReplicaState(name, stats=figures(9, name), host=name, phase="failed" if number % 2 else "running", error=name)
        for number, name in enumerate(MARKUP)
    ]
    ends = {name: Ends(sends=f"link {name}") for name in MARKUP}
    with served(states, ends, looker, MARKUP, [(name, name, True) for name in MARKUP], MARKUP[5], MARKUP) as url:
        chromium.open(url, height=8000)
        chromium.until(
            f"document.querySelectorAll('.node').length == {2 * len(MARKUP)} && document.querySelectorAll('#fields tbody tr').length"
        )
        chromium.run("document.querySelectorAll('.node .role')[0].click()")
        chromium.until("document.querySelectorAll('#replicas tbody tr').length == 1")
        assert set(chromium.texts(".node .role")) == {*MARKUP, *(f"link {name}" for name in MARKUP)}
        for place in ("#log div", "#problems li", "#place option", "#fields tbody td:first-child", "#check"):
            found = "\n".join(chromium.texts(place))
            assert [name for name in MARKUP if name not in found] == [], place
        assert chromium.texts("#tiles .key") == MARKUP[:2]
        assert chromium.run("document.title").startswith(MARKUP[5])
        assert chromium.run("window.hacked === undefined && document.querySelectorAll('script').length == 3")
        assert (
            chromium.run("document.querySelectorAll('img, iframe, base, math, svg svg, main script, main style, details[ontoggle]').length")
            == 0
        )
    assert chromium.complaints == []


@pytest.fixture
def many():
    """The page of 200 replicas."""
    phases = ["running"] * 190 + ["waiting"] * 5 + ["failed"] * 5
    rest = {"single": False, "counts": Counts(5, 5)}
    states = [
        ReplicaState("worker", number, f"gpu{number // 8}", phase, figures(9, busy=(number % 10) / 10), number % 3, "", **rest)
        for number, phase in enumerate(phases)
    ]
    states.insert(0, ReplicaState("reader", stats=figures(9)))
    states.append(ReplicaState("trainer", stats=figures(9, busy=0.2)))
    ends = {f"worker[{number}]": Ends("raw", "done") for number in range(200)} | {"reader": Ends(sends="raw"), "trainer": Ends("done")}
    with served(states, ends) as url:
        yield url


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_two_hundred_replicas_can_be_read(chromium, many, look):  # noqa: F811
    is_phone = look == "phone"
    chromium.open(many, 390 if is_phone else 1360, 844 if is_phone else 900, look == "dark", is_phone)
    chromium.until("document.querySelectorAll('.node').length == 3")
    chromium.run(OPEN_WORKER)
    chromium.until(
        "document.querySelectorAll('#replicas tbody tr').length == 200 && document.querySelectorAll('.chart canvas').length >= 4"
    )
    keep(chromium, f"many-{look}")
    assert chromium.run("document.documentElement.scrollWidth <= window.innerWidth"), "the page is wider than the window"
    assert chromium.run("[...document.querySelectorAll('#replicas tbody tr')].slice(0, 5).every((row) => row.innerText.includes('failed'))")
    corners = "(one) => { const r = one.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; }"
    boxes = chromium.run(f"[...document.querySelectorAll('.node')].map({corners})")
    assert all(a == b or a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1] for a in boxes for b in boxes), "roles overlap"
    background, ink = chromium.run("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
    light = [sum(map(int, re.findall(r"\d+", color)[:3])) for color in (background, ink)]
    assert (light[0] < light[1]) == (look == "dark") and abs(light[0] - light[1]) > 450
    assert chromium.complaints == []


def test_the_keyboard_reaches_and_opens_everything(chromium, many):  # noqa: F811
    chromium.open(many)
    chromium.until("document.querySelectorAll('.node').length == 3")
    reached = []
    for _ in range(40):
        for kind in ("keyDown", "keyUp"):
            chromium.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        reached.append(chromium.run("document.activeElement.className + ' ' + document.activeElement.id"))
    for what in ("skip", "role", "stage", "edge", "theme", "log-text"):
        assert any(what in one for one in reached), what
    chromium.run("document.querySelector('.node .stage').focus()")
    for kind in ("keyDown", "keyUp"):
        chromium.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    chromium.until("!document.getElementById('detail').hidden")
    for kind in ("keyDown", "keyUp"):
        chromium.call("Input.dispatchKeyEvent", type=kind, key="Escape", code="Escape", windowsVirtualKeyCode=27)
    chromium.until("document.getElementById('detail').hidden")


def test_a_pipeline_of_a_script_or_notebook(chromium):  # noqa: F811
    def batches():
        for number in count():
            yield {"image": np.full((4, 32, 32, 3), number % 255, np.uint8), "label": np.arange(4)}

    with Pipeline([batches()]) as pipeline, pipeline.dashboard() as page:
        taken = iter(pipeline)
        next(taken)
        chromium.open(page.url, height=3000)
        chromium.until("document.querySelectorAll('.node').length == 1")
        wait_until(lambda: next(taken) and chromium.run("document.querySelectorAll('#tiles .image').length == 4"))
        wait_until(lambda: next(taken) and chromium.texts("#fields tbody td:first-child") == ["image", "label"])
        keep(chromium, "pipeline")
    chromium.until("document.getElementById('state').innerText.startsWith('No answer')")


DETECTION = """
links:
  files: {from: reader, to: worker, transport: ipc}
  batches: {from: worker, to: trainer, transport: ipc, bind: to}
roles:
  reader:
    - Reader:
        dataset: {COCO: {data_dir: "highway:objects/JPEGImages", annotations: "highway:objects/instances_train.json"}}
        epochs: 100000
    - ZMQSink: {link: files, allow64: true}
  worker:
    replicas: 2
    stages:
      - ZMQSource: {link: files}
      - DecodeImage
      - Augmentations:
          transforms: [RandomIoUCrop, Paste: {shape: [320, 320], place: random}, FlipX, ColorJitter, SanitizeBoxes: {min_size: 2}]
          boxes: boxes
          with_boxes: [boxes, labels, iscrowd, area]
      - Batch: {batch_size: 8, ragged: pad, fields: [boxes, labels, iscrowd, area]}
      - ZMQSink: {link: batches, allow64: true}
  trainer: [ZMQSource: {link: batches}, Benchmark: 100]
"""
WAVES = """
links:
  raw: {from: reader, to: worker, port: 1, transport: ipc}
  done: {from: worker, to: trainer, port: 2, transport: ipc, bind: to}
roles:
  reader: {stages: [$Waves: {high: 0.003, low: 0.1}, ZMQSink: {link: raw}]}
  worker:
    autoscale: {min: 1, max: 2, grow_s: 0.6, shrink_s: 1}
    stages: [ZMQSource: {link: raw}, $Pass: {every: 0.02}, ZMQSink: {link: done}]
  trainer: {stages: [ZMQSource: {link: done}, $Say]}
"""
LOOKS = {"light": (1360, 900, False), "dark": (1360, 900, True), "wide": (1900, 1000, False), "phone": (390, 844, False)}


def test_photographs_with_their_boxes_labels_and_keys(chromium, write, start):  # noqa: F811
    run = start("run", write(DETECTION, "detection.yaml"), "--dashboard")
    url = run.error.until(r"^dashboard at (http://127.0.0.1:\d+/)$")[1]
    points = 14 if os.environ.get("HIGHWAY_SCREENSHOTS") else 2
    wait_until(lambda: fetched(url, "now.json").get("count", 0) >= points, 200, 1)
    for look, (width, height, is_dark) in LOOKS.items():
        chromium.open(url, width, height, is_dark, look == "phone")
        chromium.until("document.querySelectorAll('.node').length == 3 && document.querySelectorAll('.chart canvas').length == 4", 100)
        chromium.run("document.getElementById('pictures').scrollIntoView(); document.getElementById('place').value = '1'")
        chromium.until("document.querySelectorAll('#tiles .image').length == 8", 100)
        chromium.until("document.getElementById('look-note').innerText.startsWith('batch of')", 100)
        fields = {row[0]: row[1:3] for row in chromium.rows("#fields")}
        assert fields["image"] == ["uint8", "8x320x320x3"] and fields["boxes"][0] == "float32"
        keys = chromium.texts("#tiles .key")
        assert all(re.fullmatch(r"\S+_\d+\.jpg", key.rpartition("/")[2]) for key in keys) and len(set(keys)) == 8
        assert {row[0] for row in chromium.rows("#links")} == {"files", "batches"}
        assert "link batches: worker to trainer, " in chromium.texts("#check")[0]
        assert chromium.run("document.documentElement.scrollWidth <= window.innerWidth"), look
        chromium.run("window.scrollTo(0, 0)")
        keep(chromium, f"photographs-{look}")
    assert chromium.complaints == []
    run.process.send_signal(signal.SIGINT)
    run.end()


def test_what_autoscale_did(chromium, write, start):  # noqa: F811
    run = start("launch", write(WAVES), "--on", "local", "--plugin", "mine", "--dashboard")
    chromium.open(run.error.until(r"^dashboard at (http://127.0.0.1:\d+/)$")[1])
    chromium.until("document.querySelectorAll('.node').length == 3", 100)
    chromium.run(OPEN_WORKER)
    chromium.until("[...document.querySelectorAll('.node .role')].some((one) => one.textContent == 'worker × 2')", 100)
    chromium.until("document.querySelectorAll('#replicas tbody tr').length == 2", 100)
    assert "Replicas that run" in chromium.texts("#detail h3")
    chromium.until("document.getElementById('log').textContent.includes('worker[1] is added: the running replicas were busy for')", 100)
    with open("calm", "w"):
        chromium.until("document.getElementById('log').textContent.includes('worker[1] is drained: ')", 100)
    with open("stop", "w"):
        run.end()


def test_the_log_by_role_text_and_stream(chromium):  # noqa: F811
    lines = [("reader", "one file", False), ("worker[0]", "ONE error", True), ("worker[1]", "two", True), ("worker[0]", "three", False)]
    choose = "(() => {{ const one = document.getElementById('{}'); one.{} = {}; one.dispatchEvent(new Event('input')); }})()"
    with served([ReplicaState("reader", stats=figures(9))], {}, lines=lines) as url:
        chromium.open(url)
        chromium.until("document.querySelectorAll('#log div').length == 4")
        assert chromium.run("[...document.getElementById('log-role').options].map((one) => one.value)") == [
            "",
            "reader",
            "worker[0]",
            "worker[1]",
        ]
        shown = []
        for step in (
            ("log-text", "value", "'one'"),
            ("log-errors", "checked", "true"),
            ("log-text", "value", "''"),
            ("log-role", "value", "'worker[1]'"),
        ):
            chromium.run(choose.format(*step))
            shown.append([text.partition(" | ")[2] for text in chromium.texts("#log div")])
        assert shown == [["one file", "ONE error"], ["ONE error"], ["ONE error", "two"], ["two"]]
        assert chromium.texts("#log-note") == ["1 of 4 lines"]
        assert chromium.texts("#log .error .who")[0].endswith("worker[1] | ")


def test_rates_queues_gaps_the_bottleneck_epochs_and_check(chromium):  # noqa: F811
    source = replace(figures(9).stages[0], counters={"progress": 0.25, "epochs_done": 2.5, "gaps": 3, "duplicates": 0})
    stats = replace(figures(9, busy=0.9), stages=[source, *figures(9, busy=0.9).stages[1:]])
    states = [
        ReplicaState("reader", stats=figures(9, busy=0.1), counts=Counts(sent=40)),
        ReplicaState("worker", stats=stats, counts=Counts(received=30)),
    ]
    check = ["raw: reader -> worker: ok", "raw: 2 messages may be lost"]
    with served(states, {"reader": Ends(sends="raw"), "worker": Ends("raw")}, check=check) as url:
        chromium.open(url)
        chromium.until(
            "document.querySelectorAll('.node').length == 2 && /^[1-9]/.test(document.querySelector('.node .facts').textContent)"
        )
        (slowest,) = chromium.texts(".stage.slowest")
        assert re.fullmatch(r"decode\d+%2/8", slowest), "name, share and queue"
        named = chromium.run("document.querySelector('.stage.slowest').getAttribute('aria-label')")
        assert re.fullmatch(r"decode: \d+% busy, queue 2 of 8, 3 errors, bottleneck", named)
        mark = chromium.run("getComputedStyle(document.querySelector('.stage.slowest span'), '::before').content")
        assert "▶" in mark
        (edge,) = chromium.texts(".edge")
        assert re.fullmatch(r"raw[\d.,]+/s, [\d.,]+ MB/s, 10 not received3 gaps", edge)
        ((name, role, other, sent, received, missing, _, _, _, gaps, *_),) = chromium.rows("#links")
        assert (name, role, other, sent, received, missing, gaps) == ("raw", "reader", "worker", "40", "30", "10", "3")
        assert chromium.texts("#progress li") == ["workerepoch 3, 50% of it; 25% of all"]
        assert chromium.texts("#check") == ["\n".join(check)]
        titles = ["Share of the last minute that the trainer waited", "Items per second of each role"]
        assert chromium.texts("#charts h3") == [*titles, "Megabytes per second on each link", "Messages not received on each link"]
        assert set(chromium.texts("#charts .u-label")) == {"time", "waited", "reader", "worker", "raw"}
        chromium.run("document.querySelector('.edge').click()")


def test_without_colours_phases_and_lines_differ_by_their_shape(chromium, many):  # noqa: F811
    chromium.open(many)
    chromium.until("document.querySelectorAll('.node').length == 3")
    marks = chromium.run(
        "[...document.querySelectorAll('#phases li')].map((one) => [one.className, getComputedStyle(one, '::before').content])"
    )
    assert {kind: mark.strip('" ') for kind, mark in marks} == {"phase running": "●", "phase waiting": "▲", "phase failed": "✕"}
    chromium.run(OPEN_WORKER)
    chromium.until("document.querySelectorAll('.strip li').length == 200")
    borders = chromium.run(
        "[...document.querySelectorAll('.strip li')].map((one) => [one.className, getComputedStyle(one).borderTop.split(' rgb')[0]])"
    )
    assert {tuple(one) for one in borders} == {("running", "1px solid"), ("waiting", "2px dashed"), ("failed", "2px solid")}


@pytest.fixture
def few():
    """The page of two replicas."""
    states = [ReplicaState("reader", stats=figures(9)), ReplicaState("worker", stats=figures(9))]
    images = {"image": np.zeros((16, 64, 64, 3), np.uint8), "label": np.arange(16)}
    looker = Looker({"raw": lambda: (images, Passport(), {})})
    with served(states, {"reader": Ends(sends="raw"), "worker": Ends("raw")}, looker, ["raw"]) as url:
        yield url


HOURS, LOOKS_AN_HOUR = 4, 120
# Has the page look when the test says so, each time half a minute later, with a full hour behind it: what the run answered first comes
# back, with a new point of the last hour, a new line of the log and a new batch.
FAST = """(() => {
    const ask = window.fetch, first = {}, channel = new MessageChannel();
    let looks = 0;
    window.setInterval = (step) => {
        window.look_on = async (number) => {
            for (const end = looks + number; looks < end;) {
                await step();
                await new Promise((done) => { channel.port1.onmessage = done; channel.port2.postMessage(0); });  // the browser draws
            }
            return looks;
        };
    };
    const hour = (now) => {
        const times = Array.from({ length: 720 }, (_, number) => now.time - 5 * (720 - number));
        const head = JSON.stringify({ count: now.count, names: Object.keys(now.point), times });
        const length = 4 * Math.ceil(head.length / 4), bytes = new ArrayBuffer(4 + length + 4 * 720 * Object.keys(now.point).length);
        new DataView(bytes).setUint32(0, length, true);
        new Uint8Array(bytes, 4, length).set(new TextEncoder().encode(head.padEnd(length)));
        return bytes;
    };
    const later = {
        "now.json": (now) => {
            looks += 1;
            const point = Object.fromEntries(Object.entries(now.point).map(([name, value]) => [name, value * (1 + looks % 7)]));
            const log = Array.from({ length: 200 }, (_, back, number = looks + 2000 - back) => (
                [number, now.time, `worker[${number % 200}]`, `line ${number}`, false])).reverse();
            return { ...now, count: now.count + looks, time: now.time + 30 * looks, point, log };
        },
        "look.json": (batch) => ({ ...batch, number: looks, texts: batch.texts.map(([label], row) => [label, `${looks}/${row}.jpg`]) }),
        "look.png": (picture) => picture,
    };
    window.fetch = async (path, options) => {
        const name = path.split("?")[0];
        if (name === "history.bin") return { ok: true, arrayBuffer: async () => hour(first["now.json"]) };
        if (!later[name]) return ask(path, options);
        let found = first[name] && later[name](first[name]);
        if (!found) {
            const answer = await ask(path, options);
            found = name === "look.png" ? await answer.blob() : await answer.json();
            if (found.roles || found.picture || found.size) first[name] = found;
        }
        return { ok: true, json: async () => found, blob: async () => found };
    };
})()"""


def test_the_memory_of_the_page_stays_flat_over_hours(chromium, few):  # noqa: F811
    chromium.call("Page.addScriptToEvaluateOnNewDocument", source=FAST)
    chromium.open(few, height=2600)
    chromium.until("window.look_on !== undefined")
    chromium.run("look_on(1)")
    chromium.run(OPEN_WORKER)
    hours = []
    for _ in range(HOURS):
        for _ in range(4):
            looks = chromium.run(f"look_on({LOOKS_AN_HOUR // 4})")
        assert chromium.texts("#tiles .key")[0] == f"{looks}/0.jpg", "each batch is shown"
        hours.append(chromium.memory())
    nodes, listeners, scripts, resident = zip(*hours, strict=True)
    print(*hours, sep="\n")
    assert max(nodes[1:]) <= 1.05 * nodes[1] and set(listeners) == {listeners[0]}
    assert max(scripts[1:]) - scripts[1] < 500 * LOOKS_AN_HOUR * (HOURS - 2), "bytes of scripts for each look"
    assert max(resident[1:]) - resident[1] < 40e6
