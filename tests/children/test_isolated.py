"""Pipelines in a process of their own: the same as in this one, whatever happens, and how they end."""

import contextlib
import gc
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from forking import in_a_fork
from isolated_stages import (
    Count,
    Late,
    Lines,
    Noise,
    Pictures,
    Strange,
    broken,
    counted,
    counted_strangely,
    die_at_3,
    fail_at_3,
    large,
    never_end,
    strange,
    with_pid,
)
from waiting import wait_until

from highway import (
    ConfigError,
    EndOfStream,
    LinkError,
    Origin,
    Passport,
    Pipeline,
    PipelineError,
    RemoteError,
    Stage,
    Stamped,
)
from highway.children import isolated_child
from highway.modules import Batch, Cache, Mix, Processes, Reader, Shuffle


def data(**options):
    return Pipeline([Reader(range(50), epochs=3), Stage(Noise(), num_workers=2), Shuffle(10), Batch(8)], seed=7, **options)


def plain(items):
    return [np.asarray(item).tolist() for item in items]


@pytest.fixture
def processes(monkeypatch):
    """The processes that were started, in their order."""

    class Noted(subprocess.Popen):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            started.append(self)

    started = []
    monkeypatch.setattr(subprocess, "Popen", Noted)
    return started


# --- items and epochs ---


def test_items_epochs_lengths_and_ends_are_those_of_a_pipeline_in_this_process(processes):
    with data() as here, data(isolated=True) as there:
        for _ in range(3):
            assert plain(there) == plain(here)
            assert (there.epoch, len(there)) == (here.epoch, len(here))
        for pipeline in (here, there):
            with pytest.raises(EndOfStream, match="the pipeline has ended"):
                list(pipeline)
            with pytest.raises(EndOfStream, match="the pipeline has ended"):
                pipeline.dequeue()
        assert [process.returncode for process in processes] == [0]


def test_the_rest_of_an_epoch_whose_loop_is_left_is_not_made():
    found = []
    for isolated in (False, True):
        with data(isolated=isolated) as pipeline:
            epoch = iter(pipeline)
            first = next(epoch)
            epoch.close()
            found.append([plain([first]), pipeline.epoch, plain(pipeline), plain(pipeline)])
    assert found[0] == found[1]


def test_what_is_left_of_an_epoch_is_not_made_in_the_process_either():
    with Pipeline([Reader(range(1_600_000), epochs=2), Batch(8)], isolated=True) as pipeline:
        epoch = iter(pipeline)
        next(epoch)
        epoch.close()
        assert pipeline.epoch == 1
        next(iter(pipeline))
        assert pipeline.stats().stages[-1].items < 100_000  # and not 200,000: what is made before the process hears of it takes no seconds


def test_arrays_are_views_of_shared_memory_and_go_back_when_they_are_collected():
    with Pipeline([Pictures()], isolated=True) as pipeline:
        for number, item in enumerate(pipeline):
            assert item["name"] == str(number)
            assert (item["image"] == number).all()
            item["image"][:] = 255  # nobody else has it: its memory is filled anew for another item
            assert "/memfd:highway" in mapping(item["image"].ctypes.data)


def mapping(address):
    """Return what is mapped at an address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(number, 16) for number in line.split()[0].split("-"))
        if begin <= address < end:
            return line
    return ""


def test_items_may_be_kept_beyond_what_is_shared():
    with Pipeline([Pictures()], isolated=True, budget_mb=0.5) as pipeline:
        kept = list(pipeline)
    assert [int(item["image"].min()) for item in kept] == list(range(40))


def test_the_process_works_ahead_by_no_more_than_it_declares():
    with Pipeline([Pictures()], isolated=True) as pipeline:
        pipeline.dequeue()
        last = wait_until(lambda: (stage := pipeline.stats().stages[-1]).blocked > 0.3 and stage.queued >= isolated_child.MOST and stage)
        assert last.capacity == isolated_child.MOST + 3 + 6  # pictures are so small that six more may wait
        assert last.queued <= last.capacity
        assert last.items <= last.capacity + 2  # one taken, one about to be handed over


def test_passports_come_with_the_items():
    def build(isolated):
        stamped = [
            Stamped(n, Passport(2, n + 10, origin, keys=(f"{n}",), times=(1.0, n))) for n, origin in enumerate([Origin("there"), Origin()])
        ]
        return Pipeline([stamped], origin=Origin("here", "role", 3), isolated=isolated)

    with build(False) as here, build(True) as there:
        expected, found = list(here.stamped()), list(there.stamped())
    assert found == expected
    assert [type(passport.origin) for _, passport in found] == [Origin, Origin]
    with Pipeline([[5]], origin=Origin("here", "role", 3), isolated=True) as pipeline:
        ((_, passport),) = pipeline.stamped()
    assert passport[:4] == (0, 0, Origin("here", "role", 3), ())


def test_a_timeout_leaves_the_pipeline_as_it_is(tmp_path):
    with Pipeline([Late(tmp_path / "now")], isolated=True) as pipeline:
        with pytest.raises(TimeoutError, match=r"no item within 0.01 s; the pipeline continues"):
            pipeline.dequeue(timeout=0.01)
        with pytest.raises(TimeoutError):
            pipeline.dequeue(block=False)
        (tmp_path / "now").touch()
        assert pipeline.dequeue() == 1


def test_who_waits_does_not_look_around(tmp_path):
    threads = threading.enumerate()
    with Pipeline([Late(tmp_path / "now")], isolated=True) as pipeline:
        for timeout in (0, 0.05):
            with pytest.raises(TimeoutError):
                pipeline.dequeue(timeout=timeout)
            wait_until(lambda: pipeline.stats().stages[0].starved > 0)
        called = []
        sys.setprofile(lambda frame, event, function: called.append(function.__name__) if event == "c_call" else None)
        try:
            with pytest.raises(TimeoutError):
                pipeline.dequeue(timeout=0.5)
        finally:
            sys.setprofile(None)
        assert 1 <= sum(name in ("acquire", "poll", "select", "sleep") for name in called) <= 3
        assert set(threading.enumerate()) <= set(threads)


# --- states ---


@pytest.mark.parametrize(("first", "second"), [(False, True), (True, False)])
def test_states_are_exchanged_with_pipelines_in_this_process(first, second):
    with data() as whole:
        expected = plain(item for item, _ in whole.stamped())
    with data(isolated=first) as pipeline:
        taken = plain(pipeline.dequeue() for _ in range(10))
        state = json.loads(json.dumps(pipeline.state_dict()))
    with data(isolated=second) as pipeline:
        pipeline.load_state_dict(state)
        assert taken + plain(item for item, _ in pipeline.stamped()) == expected


def test_a_state_of_something_else_is_refused_before_a_process_starts():
    with data() as pipeline:
        pipeline.dequeue()
        state = pipeline.state_dict()
    other = Pipeline([Reader(range(51)), Batch(8)], seed=7, isolated=True)
    with pytest.raises(PipelineError, match="load_state_dict: the state was saved by"):
        other.load_state_dict(state)


def test_a_stage_that_does_not_say_its_state_is_named():
    with Pipeline([Count()], isolated=True) as pipeline:
        pipeline.dequeue()
        with pytest.raises(PipelineError, match="state_dict: Count does not report its position"):
            pipeline.state_dict()


def test_a_run_that_fills_a_cache_which_may_serve_others_gives_no_state(tmp_path):
    reader, cache = Stage(Reader(range(50)), on_error="skip"), Cache(str(tmp_path / "c"), key="k")
    with Pipeline([reader, Batch(8), cache], seed=7, isolated=True) as pipeline:
        pipeline.dequeue()
        with pytest.raises(PipelineError, match=r"state_dict: cache .* is still being filled, .*on_error='skip'"):
            pipeline.state_dict()


def test_the_state_can_be_saved_after_the_process_was_killed(processes):
    with data() as whole:
        expected = plain(item for item, _ in whole.stamped())
    with data(isolated=True) as pipeline:
        taken = plain(pipeline.dequeue() for _ in range(3))
        processes[0].kill()
        with pytest.raises(RemoteError):
            while True:
                taken += plain([pipeline.dequeue()])
        state = pipeline.state_dict()
    with data() as pipeline:
        pipeline.load_state_dict(state)
        assert taken + plain(item for item, _ in pipeline.stamped()) == expected


def test_as_the_source_of_another_pipeline_it_goes_on_with_that():
    def whole(isolated):
        return Pipeline([data(isolated=isolated), Shuffle(3), Batch(2, as_list=True)], seed=1)

    with whole(False) as here, whole(True) as there:
        expected = plain_lists(item for item, _ in here.stamped())
        first = [there.dequeue() for _ in range(3)]
        state = json.loads(json.dumps(there.state_dict()))
    with whole(True) as there:
        there.load_state_dict(state)
        assert plain_lists(first) + plain_lists(item for item, _ in there.stamped()) == expected


def plain_lists(items):
    return [plain(item) for item in items]


@pytest.mark.slow
def test_pipelines_and_processes_run_in_it():
    def mixed(isolated):
        inner = Pipeline([Reader(range(10), shuffle=False, epochs=1), with_pid])
        return Pipeline([Mix([inner, [(100, 0), (101, 0)]]), Processes([with_pid], 1)], isolated=isolated)

    with mixed(False) as here, mixed(True) as there:
        expected, found = list(here), list(there)
    assert [item[0][0] for item in found] == [item[0][0] for item in expected]
    assert len({pid for item in found for pid in (item[0][1], item[1])} - {0, os.getpid()}) == 2


# --- errors ---


def test_an_error_comes_with_its_type_its_stage_its_item_and_its_traceback_again_and_again(processes):
    with Pipeline([range(10), fail_at_3], isolated=True) as pipeline:
        for _ in range(2):  # what waits in the stages is given up with them
            with pytest.raises(KeyError, match="three") as caught:
                for expected in range(4):
                    assert pipeline.dequeue() == expected
        notes = "\n".join(caught.value.__notes__)
        assert "in stage 'fail_at_3'" in notes
        assert "at epoch 0, item 3" in notes
        assert f"in process {processes[0].pid}" in notes
        assert 'raise KeyError("three")' in notes
        with pytest.raises(KeyError, match="three"):
            list(pipeline)


def test_items_that_are_left_out_are_warned_of_and_counted(capfd):
    with Pipeline([range(6), Stage(fail_at_3, on_error="skip")], isolated=True) as pipeline:
        assert list(pipeline) == [0, 1, 2, 4, 5]
        assert pipeline.stats().stages[-1].errors == 1
    assert "fail_at_3 skipped an item" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (strange, PipelineError, "an item of strange cannot be sent to another process: it is strange; yield arrays"),
        (broken, ValueError, "broken"),
        (large, LinkError, r"isolated=True\): the message has 2.0 MB; expected at most half of budget_mb=3: set budget_mb=5"),
    ],
)
def test_what_cannot_be_handed_over_is_an_error(fn, error, message):
    with Pipeline([range(3), fn], isolated=True, budget_mb=3.0) as pipeline:
        for _ in range(2):
            with pytest.raises(error, match=message):
                pipeline.dequeue()


@pytest.mark.parametrize("stages", [[range(3), lambda item: item], [(n for n in range(3))], [[Strange()]]])
def test_stages_that_cannot_be_sent_are_refused_when_the_pipeline_is_built(stages):
    with pytest.raises(PipelineError, match=r"isolated=True\): .* cannot be sent to another process: .*define its functions and classes"):
        Pipeline(stages, isolated=True)


def test_there_must_be_memory():
    with pytest.raises(ConfigError, match=r"budget_mb=0; expected more than 0 megabytes"):
        Pipeline([range(3)], isolated=True, budget_mb=0)


def test_a_process_that_cannot_be_started_is_an_error_that_leaves_no_sockets(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(PipelineError, match=r"a process cannot be started: .*'/nowhere/python'"):
        Pipeline([range(3)], isolated=True).dequeue()
    assert set(os.listdir("/proc/self/fd")) <= before


# --- figures ---


def test_statistics_are_those_of_the_stages_and_last():
    def build(isolated):
        return Pipeline([range(20), counted, Batch(5)], isolated=isolated)

    with build(False) as here, build(True) as there:
        assert [stage.items for stage in there.stats().stages] == [0, 0, 0]
        assert len(list(here)) == len(list(there)) == 4
        for _ in range(2):
            stats = there.stats()
            for ours, theirs in zip(here.stats().stages, stats.stages, strict=True):
                assert [getattr(theirs, what) for what in FIGURES] == [getattr(ours, what) for what in FIGURES]
            assert stats.seconds > 0
            assert stats.cpu > 0
            there.stop()


FIGURES = ("name", "num_workers", "items", "bytes", "errors", "queued", "shape", "counters", "parameter")


def test_what_is_counted_must_be_picklable_too():
    with Pipeline([Count(), counted_strangely], isolated=True) as pipeline:
        pipeline.dequeue()
        with pytest.raises(TypeError, match="it is strange"):
            pipeline.stats()
        pipeline.drain()
        with pytest.raises(TypeError, match="it is strange"):
            list(pipeline)


def test_a_slow_consumer_is_named_as_the_bottleneck():
    with Pipeline([Count()], isolated=True) as pipeline:
        pipeline.dequeue()
        wait_until(lambda: pipeline.stats().bottleneck.startswith("The consumer is the bottleneck"))


# --- how it ends ---


def test_stopping_wakes_who_waits(tmp_path):
    with Pipeline([Late(tmp_path / "never")], isolated=True) as pipeline:
        ends = []

        def take():
            try:
                pipeline.dequeue()
            except EndOfStream as error:
                ends.append(str(error))

        thread = threading.Thread(target=take)
        thread.start()
        wait_until(lambda: pipeline.stats().stages[0].starved > 0)
        pipeline.stop()
        thread.join()
        assert ends == ["the pipeline was stopped; build a new one"]
        with pytest.raises(EndOfStream, match="was stopped"):
            pipeline.dequeue()


def test_one_that_was_stopped_before_it_began_starts_no_process(processes):
    pipeline = Pipeline([range(3)], isolated=True)
    pipeline.stop()
    with pytest.raises(EndOfStream, match="was stopped"):
        pipeline.dequeue()
    assert processes == []


def test_draining_hands_on_what_is_in_flight():
    with Pipeline([Count(), Batch(4)], isolated=True) as pipeline:
        numbers = pipeline.dequeue()[:, 0].tolist()
        pipeline.drain()
        for item, _ in pipeline.stamped():
            numbers += item[:, 0].tolist()
    assert numbers == list(range(len(numbers)))


def test_a_killed_process_is_an_error_that_says_so():
    with Pipeline([range(10), die_at_3], isolated=True) as pipeline:
        for _ in range(2):
            with pytest.raises(RemoteError, match=r"isolated=True\): process \d+ was killed by SIGKILL; the kernel does this if memory"):
                for expected in range(4):
                    assert pipeline.dequeue() == expected


def test_a_pipeline_that_is_collected_ends_its_process(processes):
    pipeline = Pipeline([Count()], isolated=True)
    batch = pipeline.dequeue()
    del pipeline
    gc.collect()
    assert [(process.pid, process.returncode) for process in processes] == [(batch[1], 0)]


def test_it_may_begin_on_a_thread_that_ends():
    with Pipeline([Count()], isolated=True) as pipeline:
        first = []
        thread = threading.Thread(target=lambda: first.append(pipeline.dequeue()))
        thread.start()
        thread.join()
        assert [pipeline.dequeue()[0] for _ in range(30)] == list(range(1, 31))


def test_a_forked_child_is_told_that_it_is_not_its_own_and_leaves_it_alone():
    with Pipeline([Count()], isolated=True) as pipeline:
        pipeline.dequeue()

        def said():
            with pytest.raises(PipelineError, match=r"^this pipeline belongs to process"):
                pipeline.dequeue()
            pipeline.stop()
            return 3

        assert in_a_fork(said) == 3
        assert pipeline.dequeue()[0] == 1


# --- sinks ---


def test_one_that_ends_in_a_sink_runs(tmp_path):
    Pipeline([range(3), Lines(tmp_path / "lines")], isolated=True).run()
    assert (tmp_path / "lines").read_text() == "0\n1\n2\n"
    with pytest.raises(KeyError, match="three"):
        Pipeline([range(5), fail_at_3, Lines(tmp_path / "lines")], isolated=True).run()


# --- scripts ---

PRELUDE = """
import os, signal, sys, time
import numpy as np
from highway import Pipeline, check_cancelled

class Count:
    def __iter__(self):
        print("begun", flush=True)
        number = 0
        while True:
            check_cancelled()
            yield number
            number += 1

"""


def start(body, tmp_path, **options):
    path = tmp_path / "script.py"
    path.write_text(PRELUDE + textwrap.dedent(body))
    return subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def finish(body, tmp_path):
    with start(body, tmp_path) as process:
        out, err = process.communicate(timeout=200)
    return process.returncode, out.split(), err


def test_a_script_may_define_what_runs_and_just_end(tmp_path):
    body = """
    if __name__ == "__main__":
        pipeline = Pipeline([Count()], isolated=True)
        print(pipeline.dequeue(), pipeline.dequeue())
    """
    assert finish(body, tmp_path) == (0, ["begun", "0", "1"], "")


def test_a_script_without_the_guard_says_what_to_do(tmp_path):
    code, _, err = finish("Pipeline([Count()], isolated=True).dequeue()", tmp_path)
    assert code == 1
    assert 'put what builds and runs the pipeline under  if __name__ == "__main__":' in err


@pytest.mark.slow
def test_a_script_that_ends_with_a_sink_runs_it(tmp_path):
    body = """
    class Print:
        def consume(self, items):
            for item in items:
                print(item)

    if __name__ == "__main__":
        Pipeline([range(3), Print()], isolated=True)
    """
    assert finish(body, tmp_path) == (0, ["0", "1", "2"], "")


def test_a_class_of_a_session_says_where_to_put_it():
    code = (
        "from highway import Pipeline\nclass Count:\n    def __iter__(self):\n        yield 1\n"
        "try:\n    Pipeline([Count()], isolated=True).dequeue()\nexcept Exception as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True)
    assert "defined in an interactive session, which another process cannot import; put it into a module" in done.stdout


def test_ctrl_c_interrupts_this_process_alone(tmp_path):
    body = f"""
    class Late:
        def __iter__(self):
            print("begun", flush=True)
            while not os.path.exists({str(tmp_path / "now")!r}):
                check_cancelled()
                time.sleep(0.01)
            yield "done"

    if __name__ == "__main__":
        with Pipeline([Late()], isolated=True) as pipeline:
            try:
                pipeline.dequeue()
            except KeyboardInterrupt:
                open({str(tmp_path / "now")!r}, "w").close()
                print(pipeline.dequeue(), flush=True)
    """
    with start(body, tmp_path, start_new_session=True) as process:
        assert process.stdout.readline() == "begun\n"
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=200)
    assert (process.returncode, out, err) == (0, "done\n", "")


def has_ended(pid):
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.slow
@pytest.mark.parametrize("forked", [False, True])
def test_it_does_not_outlive_who_has_started_it(forked, tmp_path):
    body = f"""
    class Pid:
        def __iter__(self):
            while True:
                yield os.getpid()

    if __name__ == "__main__":
        pipeline = Pipeline([Pid()], isolated=True)
        print(pipeline.dequeue(), flush=True)
        if {forked} and os.fork() == 0:
            time.sleep(300)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    with start(body, tmp_path, start_new_session=True) as process:
        pid = int(process.stdout.readline())
        assert process.wait(timeout=200) == -signal.SIGKILL
        try:
            wait_until(lambda: has_ended(pid))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_a_stage_that_does_not_stop_is_named_and_left_behind(monkeypatch, capfd, caplog):
    from highway.children import isolated

    monkeypatch.setattr(isolated, "EXIT_TIMEOUT", 0.5)
    with caplog.at_level(logging.WARNING), Pipeline([range(3), never_end], isolated=True) as pipeline:
        with pytest.raises(TimeoutError):
            pipeline.dequeue(timeout=0.1)
        wait_until(lambda: pipeline.stats().stages[0].items == 3)
    assert "did not end within 0.5 s, and was killed" in caplog.text
