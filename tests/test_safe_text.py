"""Text of strangers, where highway shows it: it commands no terminal, forges no line, and leaves a picture well-formed."""

import json
import logging
from xml.dom import minidom

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highway.cli import main
from highway.columns import Cell, fit
from highway.errors import ConfigError
from highway.observe.snapshot import Snapshot
from highway.parameters.location import Location
from highway.safe_text import for_markup, for_terminal
from highway.topology import load_checked
from highway.topology.draw import svg
from highway.topology.graph import Edge, Graph, Node, dot, mermaid
from highway.topology.layout import layout

EVIL = "a\x1b[2J\x07\nhighway: all is well\r\x00\x9b\u2028\u202e<b>&\"'"


@given(st.text())
def test_what_is_made_safe_is_one_printable_line_and_plain_text_stays_as_it_is(text):
    assert for_terminal(text).isprintable()
    assert for_terminal(for_terminal(text)) == for_terminal(text)
    if text.isprintable():
        assert for_terminal(text) == text


@given(st.text(st.characters(exclude_categories=())))
def test_what_is_made_safe_for_markup_is_the_same_text_in_xml(text):
    shown = minidom.parseString(f"<a>{for_markup(text)}</a>").documentElement.firstChild
    assert (shown.data if shown else "") == for_terminal(text)


def test_log_messages_are_one_line_each_however_many_a_peer_sends(caplog):
    with caplog.at_level(logging.INFO, "highway"):
        logging.getLogger("highway").info("%s says %r, %d times, %.1f", EVIL, {"made": EVIL}, 3, 0.5)
    assert caplog.messages[0].isprintable()
    assert "says {'made': 'a" in caplog.messages[0]
    assert caplog.messages[0].endswith(", 3 times, 0.5")


@pytest.mark.parametrize("name", ["highway", "highway.mistakes"])
def test_a_log_message_whose_only_argument_is_a_mapping_is_one_line(caplog, name):
    with caplog.at_level(logging.INFO, name):
        logging.getLogger(name).info("got %s", {"made": EVIL})
        logging.getLogger(name).info("from %s", EVIL)
    assert all(message.isprintable() for message in caplog.messages)
    assert caplog.messages[0].startswith("got {'made': 'a")


def test_tables_hold_no_escape_sequences():
    assert for_terminal(EVIL) in fit([[Cell("name")], [Cell(EVIL)]], 1000).text()


def test_a_picture_of_names_of_strangers_is_well_formed_and_shows_them():
    drawn = Graph((Node(EVIL, (EVIL,), alarms=(EVIL,)), Node("b", (EVIL,))), (Edge(EVIL, "b", EVIL, EVIL, figures=(EVIL,)),), (EVIL,))
    texts = minidom.parseString(svg(layout(drawn))).getElementsByTagName("text")
    assert for_terminal(EVIL) in {text.firstChild.data for text in texts}
    for text in (mermaid(drawn), dot(drawn)):
        assert "".join(text.split("\n")).isprintable()
        assert "\nhighway:" not in text
    assert "<b>&" not in mermaid(drawn).partition("flowchart")[2]


def test_the_answer_of_an_endpoint_is_safe_in_all_its_texts():
    state = {"role": EVIL, "host": EVIL, "error": EVIL, "phase": "failed"}
    given = {"topology": EVIL, "machine": EVIL, "states": [state], "ends": {EVIL: {"receives": EVIL}}}
    found = Snapshot.from_json(json.dumps(given).encode())
    safe = for_terminal(EVIL)
    assert (found.topology, found.machine, found.states[0].error, found.ends[safe].receives) == (safe, safe, safe, safe)


def test_a_name_in_a_file_that_cannot_be_printed_is_refused_with_its_line(write):
    path = write('roles:\n  "a\\x1b[2J": [Noise]\n', "f.yaml")
    with pytest.raises(ConfigError, match=r"f\.yaml:2: roles\.a\\x1b\[2J: a name must not contain a line break"):
        load_checked(path)


def test_the_location_of_a_value_is_one_line():
    assert str(Location((EVIL,), {(): EVIL})).isprintable()


@pytest.mark.parametrize("command", [["check"], ["graph"], ["plan", "--images-per-second", "5", "--seconds", "0.1"], ["bench"]])
def test_a_name_of_a_stage_that_cannot_be_printed_is_refused_by_every_command(command, tmp_path, capsys):
    path = tmp_path / "a\x1b[2J.yaml"
    path.write_text('roles: {r: [Noise: {shape: [2]}, {Take: 2, name: "x\\x1b[2J"}, {ZMQSink: "zpush://127.0.0.1:1"}]}')
    assert main([command[0], str(path), *command[1:]]) == 2
    out, err = capsys.readouterr()
    assert "r[1].name: a name must not contain a line break" in err
    assert "\x1b" not in out + err


def test_commands_show_names_of_files_safely(tmp_path, capsys):
    path = tmp_path / "a\x1b[2J.yaml"
    path.write_text("roles: {r: [Noise: {shape: [2]}, {Take: 2}, Benchmark: 1]}")
    for command in ("check", "graph"):
        assert main([command, str(path)]) == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err


def test_an_error_shows_no_escape_sequences(tmp_path, capsys):
    assert main(["check", str(tmp_path / "no\x1b[2J.yaml")]) == 2
    assert "\x1b" not in capsys.readouterr().err
