"""Tables that fit: digits are never cut."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from highway.cli.screen import Screen
from highway.cli.top import render
from highway.columns import Cell, fit, number
from highway.engine.stats import PipelineStats, StageStats
from highway.observe.poll import Sample, View
from highway.observe.snapshot import Ends
from highway.observe.state import ReplicaState


@pytest.mark.parametrize(
    ("value", "digits", "full", "short"),
    [
        (0, 0, "0", "0"),
        (999, 0, "999", "999"),
        (1234, 0, "1,234", "1.2k"),
        (12_345, 1, "12,345.0", "12k"),
        (999_499, 0, "999,499", "999k"),
        (999_500, 0, "999,500", "1.0M"),
        (123_456_789, 0, "123,456,789", "123M"),
        (5e15, 0, "5,000,000,000,000,000", "5000T"),
        (12.34, 1, "12.3", "12.3"),
        (123.4, 1, "123.4", "123"),
        (-1234, 0, "-1,234", "-1.2k"),
    ],
)
def test_numbers_get_units_where_there_is_little_room(value, digits, full, short):
    assert (number(value, digits).full, number(value, digits).short) == (full, short)


def test_numbers_are_shortened_first_then_columns_left_out_then_names_cut():
    rows = [[Cell("stage"), Cell("items"), Cell("MB/s")], [Cell("ImageFileReader.decode"), number(1_234_567), number(1234.5, 1)]]
    assert fit(rows, 100).text() == "stage                       items     MB/s\nImageFileReader.decode  1,234,567  1,234.5"
    assert fit(rows, 35).text() == "stage                   items  MB/s\nImageFileReader.decode   1.2M  1.2k"
    assert fit(rows, 33, drop=[2]).text() == "stage                  items MB/s\nImageFileReader.decode  1.2M 1.2k"
    assert fit(rows, 30, drop=[2]).text() == "stage                  items\nImageFileReader.decode  1.2M"
    assert fit(rows, 20, drop=[2]).text() == "stage          items\nImageFi…decode  1.2M"


@given(st.lists(st.tuples(st.text("abc.", min_size=1, max_size=60), st.integers(0, 10**15)), min_size=1, max_size=5), st.integers(20, 100))
def test_a_table_with_columns_to_spare_always_fits(rows, width):
    cells = [[Cell("name"), Cell("a"), Cell("b")], *([Cell(name), number(value), number(value)] for name, value in rows)]
    fitted = fit(cells, width, drop=[1])
    assert max(map(len, fitted.text().splitlines())) <= width
    position = fitted.columns.index(2)
    assert [row[position] for row in fitted.rows[1:]] in ([f"{value:,}" for _, value in rows], [number(value).short for _, value in rows])


def stats(items, name="ImageFileReader.row_ranges"):
    stages = [
        StageStats(name, 12, items, items * 123_456, 0, 10, 20, 30, 111, 128, "map", {"budget_mb": 64.0}),
        StageStats("ZMQSink", 1, items),
    ]
    return PipelineStats(stages, 3.0)


@pytest.mark.parametrize("items", [1, 12_345, 123_456_789])
@pytest.mark.parametrize(
    ("width", "headings"),
    [
        ("", "stage items items/s busy starved blocked errors"),
        ("120", "stage workers items items/s MB/s busy starved blocked queued max MB errors"),
    ],
)
def test_a_table_fits_the_terminal_or_80_columns_and_keeps_names_and_errors(items, width, headings, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    lines = stats(items, "Augmentations.ImageFileReader.decode-2").table().splitlines()
    assert max(map(len, lines)) <= int(width or 80)
    assert " ".join(lines[0].split()) == headings
    assert lines[1].startswith("Augmentations.ImageFileReader.decode-2 ")


def shown(what, width):
    console = Console(width=width, file=open("/dev/null", "w"), record=True)  # noqa: SIM115 (closed below)
    console.print(what)
    console.file.close()
    return console.export_text().splitlines()


@pytest.mark.parametrize("items", [1, 12_345, 123_456_789])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_run_and_top_fit_the_terminal_and_cut_no_digits(items, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    states = [ReplicaState("reader", 0, "gpu1.example.org", "running", stats(items), single=True), ReplicaState("worker", 1, "", "waiting")]
    live = shown(Screen().table(states, [stats(items), None]), width)
    samples = [
        Sample(states[0], stats(items), Ends("", "augmented-images"), "gpu1.example.org"),
        Sample(ReplicaState("trainer", 0, "", "running", stats(items), single=True), stats(items), Ends("augmented-images"), "gpu2"),
    ]
    tables = shown(render("imagenet", View(samples), width), width)[1:-2]
    for line in live + tables:
        assert len(line) <= width
        assert not re.search(r"\d…|…\d", line), line
    assert any("items/s" in line and "errors" in line for line in live)
    assert any("items/s" in line and "gaps" in line for line in tables)
