"""What commands print fits the terminal, or 80 columns, and lines break between words; a run ends with one answer."""

import io
import re
import sys

import pytest

from highway.cli import main
from highway.cli.screen import Screen
from highway.cli.summary import answer
from highway.engine.stats import PipelineStats, StageStats
from highway.observe.accounts import Account
from highway.observe.snapshot import Ends
from highway.observe.state import ReplicaState

ENDS = {"reader": Ends(sends="raw"), "worker[0]": Ends("raw", "done"), "worker[1]": Ends("raw", "done"), "trainer": Ends("done")}


def words(text):
    """Return the words of a text; a signature has the same ones on one line and on several, and the free memory is any number."""
    return re.sub(r"\d+", "0", " ".join(text.split()).replace("( ", "(").replace(", )", ")")).split()


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("command", ["doctor", "list", "list Reader", "list Mix", "list TFRecord", "list HDF5Source"])
def test_every_line_fits_and_no_word_is_broken(command, width, capsys, monkeypatch):
    def said(columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(command.split()) == 0
        return capsys.readouterr().out

    found, wide = said(width), said(10_000)
    assert words(found) == words(wide)
    too_long = [line for line in found.splitlines() if len(line) > width and not line.startswith((">>> ", "... ", "[", "array"))]
    assert [line for line in too_long if len(line.split()) > 1] == [], "only a single word may be longer, such as a path"


def test_without_a_terminal_lines_have_80_columns(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["list"]) == 0
    assert 70 < max(map(len, capsys.readouterr().out.splitlines())) <= 80


def state(role, replica=0, busy=0.1, single=True, seconds=100.0, items=400, sink_starved=0.0):
    sink = seconds - sink_starved
    stages = [
        StageStats("ZMQSource", 1, items, 100 * items, busy=0.01 * seconds, starved=0.99 * seconds, shape="source", capacity=3),
        StageStats("ImageFileReader.decode", 2, items, 100 * items, 0, busy * seconds, (1 - busy) * seconds, 0.0, 1, 4),
        StageStats("Benchmark", 1, items, 100 * items, busy=sink, starved=sink_starved, shape="sink"),
    ]
    if role != "trainer":
        stages[-1] = StageStats("ZMQSink", 1, items, 100 * items, busy=1.0, starved=seconds - 1.0, shape="sink")
    return ReplicaState(role, replica, "", "ended", PipelineStats(stages, seconds, cpu=20.0, cores=8), single=single)


def run_of(busy):
    """Return the replicas of a run whose workers are as busy as given, and whose trainer waits for half its time."""
    workers = [state("worker", number, busy, single=False) for number in range(2)]
    return [state("reader"), *workers, state("trainer", sink_starved=50.0)]


def test_the_answer_names_the_wait_the_role_and_the_change():
    assert answer(run_of(0.9), ENDS) == (
        "trainer waited 50% of its time for data. worker (ImageFileReader.decode) is the bottleneck: its 2 replicas were busy 90% of the "
        "time; start more replicas (replicas: 3), or give them more workers (num_workers: 3): 7.2 of 8 cores are free."
    )


def test_the_answer_where_the_trainer_itself_limits_the_run():
    assert answer([*run_of(0.2)[:-1], state("trainer", sink_starved=1.0)], ENDS) == (
        "trainer hardly waits for data: its own work limits the rate. Faster stages upstream would not help."
    )


def test_the_answer_where_the_trainer_is_elsewhere():
    found = answer(run_of(0.9)[:-1], ENDS)
    assert found.startswith("The receiver of worker is outside this run, and waited at most 100% of its time for data. worker (Image")


def test_a_run_that_was_too_short_or_has_begun_nothing_gets_no_advice():
    short = [state(one.role, seconds=0.05, sink_starved=0.04 if one.role == "trainer" else 0.0) for one in run_of(0.9)]
    assert answer(short, ENDS).endswith("The measurement covers less than 0.1 s, which is too short to find the bottleneck.")
    assert answer([ReplicaState("reader", phase="failed")], ENDS) == ""


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_run_ends_with_one_answer_and_then_its_tables(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    Screen().summary(run_of(0.9), [Account("a-link-with-a-long-name", 123_456, 123_450, 6)], ENDS)
    found = capsys.readouterr().out
    assert max(map(len, found.splitlines())) <= width
    first, *tables = found.strip().split("\n\n")
    assert first.split() == answer(run_of(0.9), ENDS).split()
    assert found.count("bottleneck") == 1
    assert [table.split(":")[0] for table in tables[:-1]] == ["reader", "worker[0]", "worker[1]", "trainer"]
    assert tables[-1].splitlines()[1].split() == ["a-link-with-a-long-name", "123,456", "123,450", "6"]
    if width >= 80:
        assert found.count("ImageFileReader.decode ") == 4, "no name is cut"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_sentences_on_a_terminal_break_between_words_and_those_in_a_file_do_not(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    sentence = "highway: 30 of 2,400 messages on the link raw did not arrive: worker[1] was killed by SIGKILL"
    Screen().say(sentence)
    assert capsys.readouterr().err == f"{sentence}\n"
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    Screen().say(sentence)
    lines = terminal.getvalue().splitlines()
    assert len(lines) == 2 and max(map(len, lines)) <= 60 and " ".join(lines) == sentence
    assert not re.search(r"\S{61}", terminal.getvalue())
