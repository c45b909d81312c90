"""Topologies drawn: as Mermaid, DOT, SVG and PNG."""

import collections
import sys
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from highway.errors import ConfigError
from highway.topology import load
from highway.topology.draw import png, svg
from highway.topology.graph import Edge, Graph, Node, dot, graph, mermaid
from highway.topology.layout import LINE, SMALL, Picture, bezier, layout, text_width

TEXT = """
hosts: {a: 10.0.0.1, b: 10.0.0.2}
links:
  raw: {from: reader, to: worker, port: 5555}
  shared: {from: worker, to: [train, other], kind: publish, port: 7880, bind: to}
roles:
  reader: {hosts: a, stages: [Noise: [2], ZMQSink: {link: raw}]}
  worker: {hosts: [a, b], replicas: 4, stages: [ZMQSource: {link: raw}, ZMQSink: {link: shared}]}
  train: {hosts: b, stages: [ZMQSource: {link: shared}]}
  other: {hosts: b, external: true}
"""
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def drawn(tmp_path):
    """Return a function that makes a graph of a topology's text."""

    def make(text):
        (tmp_path / "t.yaml").write_text(text)
        return graph(load(tmp_path / "t.yaml"))

    return make


def test_roles_are_nodes_and_links_are_edges(drawn):
    assert drawn(TEXT).nodes == (
        Node("reader", ("Noise", "ZMQSink"), 1, "on a"),
        Node("worker", ("ZMQSource", "ZMQSink"), 4, "on a, b"),
        Node("train", ("ZMQSource",), 1, "on b"),
        Node("other", (), 1, "on b (external)", outside=True),
    )
    assert drawn(TEXT).edges == (
        Edge("reader", "worker", "raw", "push tcp 5555"),
        Edge("worker", "train", "shared", "publish tcp 7880", publish=True, binds_target=True),
        Edge("worker", "other", "shared", "publish tcp 7880", publish=True, binds_target=True),
    )


def test_urls_are_edges_between_the_roles_that_use_them_or_lead_outside(drawn):
    found = drawn("roles: {a: [Noise: [2], ZMQSink: 'tcp://h:1'], b: [ZMQSource: 'tcp://h:1'], c: [ZMQSource: 'zsub://far:2']}")
    assert found.edges == (Edge("a", "b", "", "push tcp://h:1"), Edge("tcp://far:2", "c", "", "sub tcp://far:2", publish=True))
    assert found.nodes[-1] == Node("tcp://far:2", outside=True)


def test_mermaid_has_a_line_for_each_node_and_edge(drawn):
    assert mermaid(drawn(TEXT)).splitlines() == [
        "flowchart LR",
        '  n0["<b>reader</b><br>on a<br>Noise<br>ZMQSink"]',
        '  n1["<b>worker x 4</b><br>on a, b<br>ZMQSource<br>ZMQSink"]',
        '  n2["<b>train</b><br>on b<br>ZMQSource"]',
        '  n3(["<b>other</b><br>on b (external)"])',
        '  n0 -->|"raw<br>push tcp 5555<br>reader binds"| n1',
        '  n1 -.->|"shared<br>publish tcp 7880<br>train binds"| n2',
        '  n1 -.->|"shared<br>publish tcp 7880<br>other binds"| n3',
    ]


def test_dot_shows_who_opens_the_port(drawn):
    text = dot(drawn(TEXT))
    assert '"reader" -> "worker" [label="raw\\npush tcp 5555", dir=both, arrowtail=dot];' in text
    assert '"worker" -> "train" [label="shared\\npublish tcp 7880", dir=both, arrowtail=none, arrowhead=normaldot, style=dashed];' in text


def test_senders_stand_to_the_left_of_receivers_and_nothing_leaves_the_picture(drawn):
    picture = layout(drawn(TEXT))
    at = {shape.text: shape.points[0] for shape in picture.shapes if shape.kind == "text"}
    assert at["reader"][0] < at["worker x 4"][0] < at["train"][0] == at["other"][0]
    assert at["train"][1] < at["other"][1]
    for shape in picture.shapes:
        assert all(0 <= x <= picture.width and 0 <= y <= picture.height for x, y in shape.points)


def test_labels_do_not_touch_the_lines_that_they_stand_at(drawn):
    picture = layout(drawn(TEXT))
    labels = [shape for shape in picture.shapes if shape.kind == "text" and shape.anchor == "middle"]
    curves = [shape.points for shape in picture.shapes if shape.kind == "curve"]
    assert (len(labels), len(curves)) == (6, 3)
    for number, label in enumerate(labels):
        (x, base), half = label.points[0], text_width(label.text, SMALL) / 2
        on_line = [bezier(curves[number // 2], step / 200) for step in range(201)]
        near = [y for px, y in on_line if abs(px - x) <= half]
        assert near and all(not base - SMALL <= y <= base + 4 for y in near), label.text


def test_a_circle_of_links_can_be_drawn(drawn):
    text = "links: {x: {from: a, to: b, port: 1}, y: {from: b, to: a, port: 2}}\nroles: {a: {external: true}, b: {external: true}}"
    assert len([shape for shape in layout(drawn(text)).shapes if shape.kind == "curve"]) == 2


def test_svg_and_png_are_the_same_picture(drawn):
    picture = layout(drawn(TEXT))
    root = ElementTree.fromstring(svg(picture))
    assert {"worker x 4", "on a, b", "raw", "push tcp 5555"} <= {text.text for text in root.iter(f"{SVG}text")}
    assert len(list(root.iter(f"{SVG}path"))) == 3
    image = png(picture)
    assert image.size == (2 * round(picture.width), 2 * round(picture.height))
    color = tuple(bytes.fromhex(LINE[1:]))
    for circle in root.iter(f"{SVG}circle"):
        assert image.getpixel((2 * float(circle.get("cx")), 2 * float(circle.get("cy")))) == color


def test_text_with_markup_in_it_is_text(drawn):
    text = "roles: {'a<b>&\"': {external: true}}"
    assert [element.text for element in ElementTree.fromstring(svg(layout(drawn(text)))).iter(f"{SVG}text")] == ['a<b>&"', "(external)"]
    assert '"a<b>&\\""' in dot(drawn(text))
    assert "#quot;" in mermaid(drawn(text))


@pytest.mark.slow
def test_a_chain_of_many_roles_is_drawn_without_measuring_each_text_again_and_again():
    names = [f"role{number}" for number in range(300)]
    edges = tuple(Edge(first, second, f"link{first}", "push tcp 5555") for first, second in pairwise(names))
    calls = collections.Counter()
    sys.setprofile(lambda frame, event, _: calls.update([event]))
    try:
        drawn = layout(Graph(tuple(map(Node, names)), edges))
    finally:
        sys.setprofile(None)
    assert drawn.width > 300 * 100
    assert calls["call"] + calls["c_call"] < 1_000_000  # of the 300 * 300 pairs of texts none is looked at more than some times


def test_a_picture_too_large_for_memory_is_refused():
    with pytest.raises(ConfigError, match=r"needs 16,000,000,000 pixels; the maximum is 100,000,000, so write \.svg instead"):
        png(Picture(1e6, 1e3))
