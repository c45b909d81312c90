"""A topology drawn as it runs."""

from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import pytest

from highway.engine.stats import PipelineStats, StageStats
from highway.observe.annotate import annotate
from highway.observe.poll import Sample, View
from highway.observe.snapshot import Ends
from highway.observe.state import ReplicaState
from highway.topology import load
from highway.topology.draw import svg
from highway.topology.graph import dot, graph, mermaid
from highway.topology.layout import ALARM, BOX, SMALL, layout, text_width
from highway.wire.tally import Counts

TEXT = """
links:
  raw: {from: reader, to: worker, port: 5555}
  shared: {from: worker, to: [train, other], kind: publish, port: 7880, bind: to}
  keys: {from: reader, to: train, port: 5556}
roles:
  reader: {external: true}
  worker: {replicas: 2, stages: [ZMQSource: {link: raw}, Augmentations: [], ZMQSink: {link: shared}]}
  train: {external: true}
  other: [ZMQSource: {link: shared}]
"""
SVG = "{http://www.w3.org/2000/svg}"


def worker(replica, **rest):
    source = StageStats("ZMQSource", 1, 40, 4_000_000, 0, 0.5, 1.5, 0, 1, 3, "source", {"gaps": 2, "duplicates": 0, "malformed": 1})
    stages = [
        source,
        StageStats("Augmentations", 2, 40, 8_000_000, 3, 3.8, 0.2, 0, 2, 4),
        StageStats("ZMQSink", 1, 38, 8_000_000, shape="sink"),
    ]
    state = ReplicaState("worker", replica, stats=PipelineStats(stages, 2.0), single=False, counts=Counts(40, 1, 38, 1), **rest)
    return Sample(state, state.stats, Ends("raw", "shared", publishes=True), "here")


def other():
    stats = PipelineStats([StageStats("ZMQSource", 1, 70, 1_000_000, shape="source")], 2.0)
    state = ReplicaState("other", stats=stats, counts=Counts(70))
    return Sample(state, state.stats, Ends("shared"), "here")


@pytest.fixture
def plain(tmp_path):
    (tmp_path / "t.yaml").write_text(TEXT)
    return graph(load(tmp_path / "t.yaml"))


@pytest.fixture
def live(plain):
    return annotate(plain, View([worker(0), worker(1, restarts=2), other()], ["b does not answer: timed out"]))


def test_a_role_has_the_rates_of_all_its_replicas_and_how_full_its_stages_are(live):
    node = live.nodes[1]
    assert node.figures == ("2 running", "38.0 items/s, 8.0 MB/s")
    assert node.stages == ("ZMQSource", "Augmentations", "ZMQSink")
    assert node.levels == (("25% busy", "2/6"), ("95% busy", "4/8"), ("0% busy", ""))
    assert node.alarms == ("2 restarts", "6 errors")


def test_a_role_that_nobody_answers_for_is_said_to_be_so_and_an_external_one_is_left_as_it_is(plain, live):
    assert live.nodes[0] == plain.nodes[0]
    assert annotate(plain, View([])).nodes[1].figures == ("not seen",)


def test_phases_are_counted(plain):
    states = [worker(0), replace(worker(1), state=replace(worker(1).state, phase="waiting"))]
    assert annotate(plain, View(states)).nodes[1].figures == ("1 running, 1 waiting", "19.0 items/s, 4.0 MB/s")


def test_a_link_has_what_passes_and_what_is_missing_and_wrong(live):
    raw, to_train, to_other, keys = live.edges
    assert (raw.figures, raw.alarms) == (("40.0 items/s, 4.0 MB/s",), ("4 gaps", "2 malformed"))
    assert to_train.figures == ("38.0 items/s, 8.0 MB/s", "6 not received")
    assert to_other.figures == ("35.0 items/s, 0.5 MB/s", "6 not received")
    assert keys.figures == ()


def test_the_bottleneck_and_who_is_silent_stand_below(live):
    assert live.caption[0].startswith("worker (Augmentations) is the bottleneck: its 2 replicas were busy 95% of the time")
    assert live.caption[1:] == ("b does not answer: timed out",)


def test_figures_are_in_every_form(live):
    texts = {text.text: text for text in ElementTree.fromstring(svg(layout(live))).iter(f"{SVG}text")}
    for form in (mermaid(live), dot(live), " ".join(texts)):
        assert all(
            part in form for part in ("2 running", "95% busy", "4/8", "2 restarts", "40.0 items/s, 4.0 MB/s", "4 gaps", "b does not")
        )
    assert texts["4 gaps"].get("fill") == ALARM


def test_nothing_in_the_picture_stands_on_another(live):
    picture = layout(live)
    boxes = [shape.points for shape in picture.shapes if shape.kind == "box" and shape.fill == BOX]
    texts = []
    for shape in picture.shapes:
        if shape.kind == "text" and shape.anchor == "middle":
            (x, base), half = shape.points[0], text_width(shape.text, SMALL) / 2
            texts.append([(x - half, base - SMALL), (x + half, base + 4)])
    assert (len(boxes), len(texts)) == (4, 5 + 4 + 4 + 2)
    for first, second in combinations([*boxes, *texts], 2):
        assert not overlap(first, second)
    for curve in (shape.points for shape in picture.shapes if shape.kind == "curve"):
        assert not any(overlap(box, [point, point]) for box in boxes for point in curve)
    for shape in picture.shapes:
        assert all(0 <= x <= picture.width and 0 <= y <= picture.height for x, y in shape.points)


def overlap(first, second):
    (left, top), (right, bottom) = first
    (other_left, other_top), (other_right, other_bottom) = second
    return left < other_right and other_left < right and top < other_bottom and other_top < bottom
