"""Maps in processes of their own: the same results as without, and what happens when something goes wrong in one."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from process_maps import (
    HangAt3,
    Logged,
    Offset,
    ReportAndTakeAMillisecond,
    Select,
    Squareroot,
    TakeAMillisecond,
    WaitForOthers,
    a_lock_at_5,
    add_one,
    die_after_3,
    die_at_3,
    draw,
    exit_at_3,
    fail_after_3,
    fail_at_3,
    fail_peculiarly,
    fail_with_a_lambda,
    frozen_objects,
    move_on,
    never_end,
    never_end_at_300,
    nothing,
    numbers,
    odd_ones,
    report_odd_ones,
    slow_in_turns,
    square,
    with_pid,
    write_into,
)
from waiting import wait_until

from highway import ConfigError, Passport, Pipeline, PipelineError, RemoteError, Stage, Stamped
from highway.children import remote
from highway.children.objects import ObjectLink
from highway.modules import Augmentations, Batch, ImageFileReader, ImageSink, Processes, Repeat, Take
from highway.transforms import FlipX

SRC = str(Path(__file__).parents[2])


def run(*stages, source=range(8), num_processes=1, **settings):
    with Pipeline([source, Stage(Processes(list(stages), num_processes), **settings)]) as pipeline:
        return list(pipeline)


# --- results ---


def test_results_are_those_of_the_maps_in_order():
    assert run(slow_in_turns, square, source=range(30), num_processes=3) == [n * n for n in range(30)]


def test_the_work_is_done_in_so_many_other_processes(tmp_path):
    pids = {pid for _, pid in run(WaitForOthers(str(tmp_path), 2), source=range(1000), num_processes=2)}  # more than one has in flight
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_arrays_cross_with_dtype_and_shape_and_are_read_only():
    batches = [{"image": np.full((2, 300, 400, 3), n, np.uint8), "box": np.full((3, 4), n / 7), "name": f"{n}"} for n in range(5)]
    for n, batch in enumerate(run(Select(), source=batches)):
        assert batch["name"] == str(n)
        assert np.array_equal(batch["image"], batches[n]["image"])
        assert batch["image"].dtype == np.uint8
        assert np.array_equal(batch["box"], batches[n]["box"])
        assert not batch["image"].flags.writeable


def test_what_a_child_has_imported_does_not_delay_its_end():
    assert min(run(frozen_objects)) > 10_000


def test_results_may_be_kept_beyond_the_budget():
    arrays = [np.full(300_000, n, np.uint8) for n in range(30)]
    with Pipeline([arrays, Processes([Select()], 1, budget_mb=1.0)]) as pipeline:
        kept = list(pipeline)
    assert [int(array[0]) for array in kept] == list(range(30))


def test_parameters_of_a_map_go_with_it():
    (item,) = run(Offset(np.arange(3)), source=[np.ones(3)])
    assert item.tolist() == [1, 2, 3]


@pytest.mark.slow
def test_random_numbers_are_those_of_the_maps_without_processes():
    images = [np.random.default_rng(n).integers(0, 255, (8, 6, 6, 3), np.uint8) for n in range(6)]
    maps = [Augmentations([FlipX()]), draw, Stage(draw, name="again")]
    with Pipeline([images, *maps], seed=3) as pipeline:
        expected = list(pipeline)
    for num_processes in (1, 3):
        with Pipeline([images, Processes(maps, num_processes)], seed=3) as pipeline:
            found = list(pipeline)
        assert repr(found) == repr(expected)
        assert all(np.array_equal(a[0][0], b[0][0]) for a, b in zip(found, expected, strict=True))


def test_dropped_items_are_left_out():
    assert run(Stage(odd_ones, drops=True), square) == [1, 9, 25, 49]


def test_passports_go_with_the_items():
    stamped = [Stamped(n, Passport(2, n + 10)) for n in range(4)]
    with Pipeline([stamped, Processes([square], 2)]) as pipeline:
        assert [(item, passport[:2]) for item, passport in pipeline.stamped()] == [(n * n, (2, n + 10)) for n in range(4)]
    with Pipeline([range(2), Processes([move_on, draw], 2)]) as pipeline:
        assert [passport[:2] for _, passport in pipeline.stamped()] == [(5, 100), (5, 101)]


# --- several items in flight ---


def test_neither_an_item_nor_a_result_waits_for_others():
    taken = threading.Semaphore(0)

    def one_at_a_time():
        yield from range(200)  # so quickly that many are in flight
        for n in range(200, 300):
            yield n
            assert taken.acquire(timeout=60)
        yield 300

    with Pipeline([one_at_a_time, Processes([never_end_at_300], 1)]) as pipeline:
        for n in range(300):
            assert pipeline.dequeue(timeout=60) == n
            if n >= 200:
                taken.release()


@pytest.mark.slow
def test_many_small_items_may_be_in_flight_and_few_large_ones():
    for item, most, least in ((b"", 200, 10), (np.zeros(1_000_000, np.uint8), 6, 3)):
        with Pipeline([[item] * 300, Stage(Processes([TakeAMillisecond(0)], 1), buffer_size=2)]) as pipeline:
            capacities = [pipeline.stats().stages[1].capacity for _ in pipeline]
            assert len(capacities) == 300
            assert least <= max(capacities) <= most


@pytest.fixture
def waits(monkeypatch):
    """How long a worker lets answers gather before each look, and how many there were."""
    naps, looks, receive = [], [], ObjectLink.receive
    monkeypatch.setattr(remote, "sleep", lambda seconds: naps.append(seconds) or time.sleep(seconds))
    monkeypatch.setattr(ObjectLink, "receive", lambda link, *deadline: looks.append(receive(link, *deadline)) or looks[-1])
    return naps, looks


def test_answers_gather_for_10_ms_at_most_while_the_child_has_work(waits):
    assert run(TakeAMillisecond(), source=range(600), num_processes=1) == list(range(600))
    naps, looks = waits
    assert len(naps) > len(looks) / 2
    assert 0 < max(naps) <= 0.01


def test_a_child_that_asks_what_to_do_about_an_error_is_answered_at_once(waits):
    assert run(ReportAndTakeAMillisecond(), source=range(200), num_processes=1, on_error="skip") == list(range(200))
    assert len(waits[0]) < 50


def test_an_object_that_comes_twice_arrives_as_two():
    box = {"n": 0}
    assert run(add_one, source=[box] * 100, num_processes=1) == [{"n": 1}] * 100


def test_items_larger_and_smaller_than_the_budget_has_slots_for_come_in_order_while_results_are_kept():
    sizes = np.random.default_rng(0).integers(1, 100_000, 150)
    with Pipeline([[np.full(size, n, np.uint8) for n, size in enumerate(sizes)], Processes([Select()], 2, budget_mb=0.3)]) as pipeline:
        kept = list(pipeline)
    assert [(int(array[0]), array.size) for array in kept] == list(enumerate(sizes))


@pytest.mark.slow
def test_epochs_are_kept_apart_where_no_order_is():
    with Pipeline([Repeat(range(40), times=3), Stage(Processes([slow_in_turns], 2), ordered=False)]) as pipeline:
        assert [sorted(pipeline) for _ in range(3)] == [list(range(40))] * 3


# --- items that take too long ---


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [True, False])
def test_a_process_that_hangs_is_ended_and_another_tries_its_item(tmp_path, caplog, ordered):
    def items(folder, times, **settings):
        folder.mkdir()
        pipeline = Pipeline([range(40), Stage(Processes([HangAt3(str(folder), times)], 2), ordered=ordered, **settings)], seed=3)
        return list(pipeline), pipeline.stats().stages[1]

    expected, _ = items(tmp_path / "a", 0)
    found, stats = items(tmp_path / "b", 1, timeout=2, attempts=100)
    assert sorted(found) == sorted(expected)
    assert not ordered or found == expected
    assert stats.counters["ended_processes"] >= 1
    (pid,) = os.listdir(tmp_path / "b")
    assert not Path(f"/proc/{pid}").exists()
    text = next(message for message in caplog.messages if f"Process {pid} was ended" in message)
    assert "item 3: the item has taken longer than timeout=2 s; attempt 2 of 100 begins in another process." in text
    assert "called from __call__, line " in text and "process_maps.py" in text


@pytest.mark.slow
def test_an_item_that_hangs_in_all_its_processes_is_an_error(tmp_path):
    stage = Stage(Processes([HangAt3(str(tmp_path), 100)], 1), timeout=1, attempts=2)
    with pytest.raises(TimeoutError, match="the item has taken longer than timeout=1 s in each of 2 attempts") as caught:
        list(Pipeline([[3], stage]))
    assert len(os.listdir(tmp_path)) == 2
    notes = "\n".join(caught.value.__notes__)
    assert "process_maps.py" in notes and "at epoch 0, item 0" in notes


@pytest.mark.slow
def test_items_after_one_that_hangs_are_not_lost_if_it_is_skipped(tmp_path):
    stage = Stage(Processes([HangAt3(str(tmp_path), 100)], 1), timeout=5, on_error="skip", max_errors=1)
    pipeline = Pipeline([range(10), stage])
    assert [item for item, _ in pipeline] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert pipeline.stats().stages[1].errors == 1


# --- errors of the maps ---


def test_an_error_comes_back_with_its_type_its_place_and_its_traceback():
    with pytest.raises(KeyError, match="three") as caught:
        run(square, fail_at_3, source=[1, Squareroot(3), 2], num_processes=2)
    notes = "\n".join(caught.value.__notes__)
    assert "in process" in notes
    assert "in fail_at_3\n    raise KeyError" in notes
    assert "in stage 'Processes.square+fail_at_3'" in notes
    assert "at epoch 0, item 1" in notes


def test_an_error_that_cannot_be_made_again_is_named():
    with pytest.raises(RemoteError, match=r"process_maps.Peculiar: 7 because of this") as caught:
        run(fail_peculiarly)
    assert "in fail_peculiarly" in "\n".join(caught.value.__notes__)


def test_a_builtin_error_that_cannot_be_pickled_keeps_its_type():
    with pytest.raises(ValueError, match="<function fail_with_a_lambda"):
        run(fail_with_a_lambda)


def test_items_with_errors_are_skipped_when_the_stage_says_so(caplog):
    assert run(fail_at_3, num_processes=2, on_error="skip") == [0, 1, 2, 4, 5, 6, 7]
    assert "KeyError: 'three'" in caplog.text


def test_a_map_that_returns_none_is_an_error_that_names_it():
    with pytest.raises(TypeError, match="nothing returned None; return the item, or return DROP"):
        run(square, nothing)


@pytest.mark.slow
def test_errors_that_a_map_could_go_on_from_are_the_stages_to_decide(caplog):
    assert run(report_odd_ones, source=range(300), on_error="skip") == list(range(300))
    with pytest.raises(ValueError, match="1 is odd"):
        run(report_odd_ones, num_processes=1)
    with pytest.raises(ValueError, match="5 is odd"):
        run(report_odd_ones, num_processes=1, on_error="skip", max_errors=2)


def test_an_item_that_cannot_be_pickled_is_an_error():
    with pytest.raises(Exception, match="pickle"):
        run(square, source=[lambda: 1])


def test_only_the_item_or_result_that_cannot_be_sent_is_left_out():
    large = np.zeros(100_000)
    source = [0, 1, lambda: 2, 3, large, 5, 6]
    with Pipeline([source, Stage(Processes([a_lock_at_5], 1, budget_mb=1.0), on_error="skip")]) as pipeline:
        assert list(pipeline) == [0, 1, 3, 6]
        assert pipeline.stats().stages[1].errors == 3


def test_writing_into_an_item_is_an_error():
    with pytest.raises(ValueError, match="read-only"):
        run(write_into, source=[np.zeros(10_000)])


# --- death ---


@pytest.mark.parametrize(
    ("fn", "message"), [(die_at_3, "was killed by SIGKILL while it had an item"), (exit_at_3, "ended with exit code 4 while")]
)
def test_a_child_that_dies_is_an_error_of_its_item(fn, message):
    with pytest.raises(RemoteError, match=message) as caught:
        run(fn)
    assert "item 3" in "\n".join(caught.value.__notes__)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_child_that_cannot_be_started_is_an_error_that_leaves_no_sockets(on_error, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(PipelineError, match=r"Processes: a process cannot be started: .*'/nowhere/python'"):
        run(square, on_error=on_error)
    assert set(os.listdir("/proc/self/fd")) <= before


def test_another_child_takes_the_place_of_one_that_died(caplog):
    assert run(die_at_3, with_pid, on_error="skip", source=range(8), num_processes=2)[-1][0] == 7
    assert "was killed by SIGKILL" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [True, False])
def test_of_the_items_in_flight_at_a_death_one_is_left_out_and_none_is_begun_twice(tmp_path, ordered):
    log = tmp_path / "begun"
    left = [n for n in range(350) if n % 100 != 1]
    with Pipeline([range(350), Stage(Processes([Logged(str(log))], 1), on_error="skip", ordered=ordered)]) as pipeline:
        assert list(pipeline) == left
        assert pipeline.stats().stages[1].errors == 4
    assert [int(line) for line in log.read_text().split()] == list(range(350))


def test_a_child_that_was_killed_between_items_is_an_error_of_the_next():
    with Pipeline([itertools.count(), Stage(Processes([with_pid], 1), buffer_size=1)]) as pipeline:
        _, pid = pipeline.dequeue()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(RemoteError, match=f"process {pid} was killed by SIGKILL"):
            for _ in range(1000):  # it may have answered many before
                pipeline.dequeue()


@pytest.mark.slow
def test_stopping_does_not_wait_for_a_child_at_work(monkeypatch, caplog):
    monkeypatch.setattr("highway.engine.threads.STOP_TIMEOUT", 60.0)  # then it says who does not stop
    with Pipeline([itertools.count(), Processes([never_end], 2)]) as pipeline:
        with pytest.raises(TimeoutError):
            pipeline.dequeue(timeout=2)
        pipeline.stop()
    assert "does not stop" not in caplog.text


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it goes between the opening and the reading
        return False


PARENT = """
import sys, time
sys.path.insert(0, {tests!r})
from process_maps import {stage}, with_pid
from highway import Pipeline
from highway.modules import Processes
pipeline = Pipeline([range(1000), Processes([with_pid], 2)])
for _ in range(4):
    print(pipeline.dequeue()[1], flush=True)
busy = Pipeline([range(10), Processes([{stage}], 1)])
try:
    busy.dequeue(timeout=2)
except TimeoutError:
    pass
whole = Pipeline([Processes([range(1000), with_pid, {stage}])])
try:
    whole.dequeue(timeout=2)
except TimeoutError:
    pass
print("ready", flush=True)
while True:
    time.sleep(0.1)  # again and again, since Python may overlook a Ctrl-C that comes just before it begins to sleep
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_children_do_not_outlive_their_parent(kind):
    code = PARENT.format(tests=str(Path(__file__).parent), stage="never_end")
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as parent:
        try:
            lines = list(itertools.takewhile(lambda line: line != "ready\n", parent.stdout))
            assert len(lines) == 4, lines
            listed = Path(f"/proc/{parent.pid}/task").glob("*/children")
            children = {int(pid) for one in listed for pid in one.read_text().split()}
            assert {int(line) for line in lines} < children
            assert len(children) == 4
            parent.send_signal(kind)
            parent.wait(timeout=200)
        finally:
            parent.kill()
    wait_until(lambda: not any(map(alive, children)), 60)


# --- scripts ---


def script(tmp_path, text):
    path = tmp_path / "train.py"
    path.write_text("from highway import Pipeline\nfrom highway.modules import Processes\n\ndef double(n):\n    return 2 * n\n\n" + text)
    environment = {**os.environ, "PYTHONPATH": SRC}
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=200, env=environment, cwd=tmp_path)


def test_maps_may_be_defined_in_a_script(tmp_path):
    done = script(tmp_path, 'if __name__ == "__main__":\n    print(list(Pipeline([range(5), Processes([double], 2)])))\n')
    assert (done.stdout, done.stderr) == ("[0, 2, 4, 6, 8]\n", "")


def test_objects_of_a_script_cross_both_ways(tmp_path):
    text = """
class Box:
    def __init__(self, n):
        self.n = n

def grow(box):
    return Box(box.n + 1)

if __name__ == "__main__":
    boxes = list(Pipeline([[Box(1), Box(2)], Processes([grow], 1)]))
    print([type(box) is Box and box.n for box in boxes])
"""
    done = script(tmp_path, text)
    assert (done.stdout, done.stderr) == ("[2, 3]\n", "")


@pytest.mark.slow
def test_a_script_without_the_guard_says_what_to_do(tmp_path):
    done = script(tmp_path, "import multiprocessing.connection\n\nprint(list(Pipeline([range(5), Processes([double], 2)])))\n")
    assert done.returncode == 1
    assert "PipelineError: Processes would start while a child process imports this script; put what builds and runs the" in done.stderr
    assert 'if __name__ == "__main__":' in done.stderr


def test_a_script_whose_maps_come_from_elsewhere_needs_no_guard(tmp_path):
    (tmp_path / "own.py").write_text("def triple(n):\n    return 3 * n\n")
    done = script(tmp_path, "from own import triple\nprint(list(Pipeline([range(3), Processes([triple], 2)])))\n")
    assert (done.stdout, done.stderr) == ("[0, 3, 6]\n", "")


def test_a_map_of_a_session_says_where_to_put_it():
    code = """
from highway import Pipeline
from highway.modules import Processes
def f(n): return n
Pipeline([[1], Processes([f])]).dequeue()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert (
        "PipelineError: it is defined in an interactive session, which another process cannot import; put it into a module" in done.stderr
    )


# --- what does not fit ---


@pytest.mark.parametrize(
    ("maps", "error", "message"),
    [
        ([], ConfigError, r"maps=\[\]; expected at least one map"),
        ([Batch(3)], PipelineError, "Batch is a stream, but only maps can run in processes; put it before or after Processes"),
        ([lambda n: n], PipelineError, "lambda cannot be sent to another process: .*; define its functions and classes at the top level"),
        ([Stage(square, num_workers=3)], PipelineError, r"square has its own settings \(num_workers\); pass them to a Stage around"),
    ],
)
def test_what_cannot_run_in_processes_is_refused_when_the_pipeline_is_built(maps, error, message):
    with pytest.raises(error, match=message):
        Pipeline([range(3), Processes(maps, 2)])


def test_no_processes_are_refused():
    with pytest.raises(ConfigError, match="num_processes=0; expected at least 1"):
        Processes([square], 0)


def test_an_item_beyond_the_budget_names_the_parameter():
    pipeline = Pipeline([[np.zeros(100_000)], Processes([Select()], 1, budget_mb=1.0)])
    with pipeline, pytest.raises(OSError, match=r"0\.8 MB; expected at most half of budget_mb=1: .*budget_mb=3"):
        pipeline.dequeue()


# --- whole pipelines in processes ---


def stamps(*stages):
    with Pipeline(stages, seed=5) as pipeline:
        return [(each.item, each.passport.epoch, each.passport.index, each.passport.keys) for each in pipeline.stamped()]


def assert_same(got, expected):
    assert [rest for _, *rest in got] == [rest for _, *rest in expected]
    for (item, *_), (same, *_) in zip(got, expected, strict=True):
        np.testing.assert_equal(item, same)


@pytest.mark.parametrize(
    "stages",
    [
        [numbers, square, Batch(3)],
        [range(5), draw],
        [ImageFileReader("highway:photos/val", 5, (8, 8), epochs=2), Augmentations([FlipX()]), Take(9)],
        [range(4), Stage(fail_at_3, on_error="skip", num_workers=2)],
    ],
)
def test_a_whole_pipeline_in_a_process_makes_the_same_items(stages):
    assert_same(stamps(Processes(stages)), stamps(*stages))


def test_a_whole_pipeline_runs_in_another_process_and_a_stage_may_follow():
    items = [item for item, *_ in stamps(Processes([numbers, with_pid]), Batch(2, as_list=True))]
    (pid,) = {pid for _, pids in items for pid in pids}
    assert pid != os.getpid()


def test_several_sources_run_in_parallel_and_come_in_turns():
    got = stamps(Processes([[range(3), with_pid], [range(10, 15), with_pid]], num_processes=2), with_pid)
    assert [item[0][0] for item, *_ in got] == [0, 10, 1, 11, 2, 12, 13, 14]
    assert [index for _, _, index, _ in got] == [0, 1, 2, 3, 4, 5, 7, 9]
    assert len({item[0][1] for item, *_ in got}) == 2


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [(fail_after_3, OSError, "disk gone"), (die_after_3, RemoteError, r"Processes: process \d+ was killed by SIGKILL")],
)
def test_an_error_in_a_whole_pipeline_ends_the_run(source, error, message):
    with pytest.raises(error, match=message) as raised, Pipeline([Processes([source])]) as pipeline:
        list(pipeline)
    assert error is RemoteError or "in process " in "".join(raised.value.__notes__)


def test_arrays_of_a_whole_pipeline_are_read_only_and_may_be_kept_beyond_the_budget():
    with Pipeline([Processes([[np.full(300_000, n, np.uint8) for n in range(30)], Select()], budget_mb=1.0)]) as pipeline:
        kept = list(pipeline)
    assert [int(array[0]) for array in kept] == list(range(30))
    assert not any(array.flags.writeable for array in kept)


@pytest.mark.slow
def test_stopping_does_not_wait_for_a_whole_pipeline_at_work(monkeypatch, caplog):
    monkeypatch.setattr("highway.children.isolated.EXIT_TIMEOUT", 600.0)  # no test takes so long
    with Pipeline([Processes([range(3), never_end])]) as pipeline, pytest.raises(TimeoutError):
        pipeline.dequeue(timeout=2)
    assert "did not end" not in caplog.text


def test_a_whole_pipeline_that_never_ends_is_stopped():
    with Pipeline([Processes([Repeat(range(3)), square]), Take(4)]) as pipeline:
        assert [list(pipeline), list(pipeline)] == [[0, 1, 4], [0]]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Processes([numbers, square], 4), ConfigError, r"num_processes=4 for 1 whole pipeline.*Processes\(\[\[source, ...\]"),
        (lambda: Pipeline([Processes([numbers, ImageSink("x")])]), PipelineError, "ImageSink is a sink; put it after Processes"),
        (lambda: Pipeline([Processes([iter("ab"), lambda n: n])]), PipelineError, "cannot be sent to another process"),
        (lambda: Pipeline([range(3), Processes([numbers, square])]), PipelineError, "only the first stage can be a source"),
    ],
)
def test_whole_pipelines_that_cannot_run_in_processes_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_what_a_batch_was_made_of_stays_in_its_process():
    with Pipeline([Processes([range(10), Batch(5)])]) as pipeline:
        assert [passport.made_of for _, passport in pipeline.stamped()] == [None, None]
