"""Scripts that end with a pipeline, and how they end: in real interpreters."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

PRELUDE = r"""
import sys, threading, time
from highway import Pipeline, Stage, check_cancelled

class Print:
    def consume(self, items):
        for item in items:
            sys.stdout.write(f"{item}\n")  # in one piece: two pipelines may print at once
            sys.stdout.flush()

def forever():
    number = 0
    while True:
        yield number
        number += 1
        check_cancelled()
"""


def start(body, tmp_path, *arguments):
    path = tmp_path / "script.py"
    path.write_text(PRELUDE + textwrap.dedent(body))
    return subprocess.Popen([sys.executable, *arguments, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(body, tmp_path, *arguments):
    with start(body, tmp_path, *arguments) as process:
        out, err = process.communicate(timeout=200)
    return process.returncode, out.split(), err


def test_a_script_that_ends_with_a_sink_pipeline_runs_it(tmp_path):
    assert finish("p = Pipeline([range(3), Print()])", tmp_path) == (0, ["0", "1", "2"], "")


def test_it_need_not_be_assigned_and_there_may_be_two(tmp_path):
    code, out, err = finish("Pipeline([range(2), Print()])\nPipeline([range(10, 12), Print()])", tmp_path)
    assert (code, sorted(out), err) == (0, ["0", "1", "10", "11"], "")


def test_a_pipeline_that_was_run_does_not_run_again(tmp_path):
    assert finish("p = Pipeline([range(2), Print()])\np.run()", tmp_path) == (0, ["0", "1"], "")


def test_a_pipeline_that_was_stopped_does_not_run(tmp_path):
    assert finish("p = Pipeline([range(2), Print()])\np.stop()", tmp_path) == (0, [], "")


def test_a_script_that_failed_does_not_run_it(tmp_path):
    code, out, err = finish("p = Pipeline([forever, Print()])\nraise ValueError('mine')", tmp_path)
    assert (code, out) == (1, [])
    assert err.strip().endswith("ValueError: mine")


@pytest.mark.parametrize(
    "last_line",
    ["raise SystemExit(3)", "sys.exit(3)", "with open(__file__): sys.exit(3)", "try:\n    sys.exit(3)\nfinally:\n    pass", "main()"],
)
def test_a_script_that_exits_does_not_run_it_and_says_so(tmp_path, last_line):
    code, out, err = finish(f"def main(): sys.exit(3)\np = Pipeline([forever, Print()])\n{last_line}", tmp_path)
    assert (code, out) == (3, [])
    assert err == "highway: Pipeline(forever -> Print) was not run, because the script ended with SystemExit; call run()\n"


def test_a_script_that_has_caught_an_exit_runs_it(tmp_path):
    body = "def main():\n    Pipeline([range(2), Print()])\nmain()\ntry:\n    sys.exit(1)\nexcept SystemExit:\n    pass"
    assert finish(body, tmp_path) == (0, ["0", "1"], "")


def test_what_was_taken_for_another_pipeline_does_not_run(tmp_path):
    body = "p = Pipeline([forever, Print()])\ntry:\n    p.dequeue()\nexcept TypeError as error:\n    print('refused')"
    assert finish(body, tmp_path) == (0, ["refused"], "")


def test_one_that_shall_not_start_does_not(tmp_path):
    assert finish("p = Pipeline([forever, Print()], start=False)", tmp_path) == (0, [], "")


THREE = """
import logging, queue
import highway.engine.threads
highway.engine.threads.EXPLAIN_AFTER = 0.1
from highway.modules import FromQueue
first, second = queue.Queue(2), queue.Queue(2)
class Put:
    def __init__(self, queue): self.queue = queue
    def consume(self, items):
        for item in items:
            while True:
                check_cancelled()
                try:
                    self.queue.put(item, timeout=0.1)
                    break
                except queue.Full:
                    pass
sink = Pipeline([FromQueue(second)])
worker = Pipeline([FromQueue(first), Put(second)])
source = Pipeline([forever, Put(first)])
"""


def test_who_waits_for_a_pipeline_that_has_not_begun_is_told_what_to_call(tmp_path):
    body = (
        THREE
        + """
try:
    sink.dequeue(timeout=0.1)
except TimeoutError as error:
    print(error)
sink = Pipeline([FromQueue(second)])
logging.getLogger("highway").addFilter(lambda record: threading.Thread(target=sink.stop).start() or True)  # as soon as it says so
try:
    sink.dequeue()
except EOFError:
    worker.stop()
    source.stop()
"""
    )
    code, out, err = finish(body, tmp_path)
    advice = (
        "these pipelines have not begun: Pipeline(FromQueue -> Put), Pipeline(forever -> Put). "
        "A pipeline that ends in a sink begins when the script ends; "
        "to start it earlier, call its start()"
    )
    assert (code, " ".join(out)) == (0, f"no item within 0.1 s; the pipeline continues; {advice}")
    assert err == f"Pipeline(FromQueue) has waited for an item for 0.1 s; {advice}\n"


def test_pipelines_that_were_started_run_beside_the_script_and_end_with_it(tmp_path):
    body = THREE + "worker.start()\nsource.start()\nfor _ in range(3): print(sink.dequeue())"
    assert finish(body, tmp_path) == (0, ["0", "1", "2"], "")


def test_an_error_in_the_background_is_told_at_once(tmp_path):
    body = """
        p = Pipeline([range(3), lambda n: 1 // n, Print()])
        p.start()
        while threading.active_count() > 1: time.sleep(0.01)
        try:
            p.run()
        except ZeroDivisionError:
            print("raised")
    """
    code, out, err = finish(body, tmp_path)
    assert (code, out) == (0, ["raised"])
    assert err.startswith("a pipeline failed in the background: ZeroDivisionError: integer division or modulo by zero; highway: in stage")


def test_an_error_ends_it_with_1_and_the_message(tmp_path):
    code, _, err = finish("p = Pipeline([range(3), Stage(lambda n: 1 // (1 - n), name='divide'), Print()])", tmp_path)
    assert code == 1
    assert err.startswith("highway: ZeroDivisionError: integer division or modulo by zero")
    assert "in stage 'divide'" in err and "item 1" in err and "Traceback" not in err


def test_other_exit_functions_still_run(tmp_path):
    code, out, _ = finish("import atexit; atexit.register(print, 'bye')\np = Pipeline([range(2), lambda n: 1 // n, Print()])", tmp_path)
    assert (code, out) == (1, ["bye"])


@pytest.mark.parametrize("last_line", ["p = Pipeline([forever, Print()])", "Pipeline([forever, Print()]).run()"])
def test_ctrl_c_ends_it(tmp_path, last_line):
    with start(last_line, tmp_path) as process:
        assert process.stdout.readline() == "0\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=200)
    if last_line.startswith("p ="):
        assert (process.returncode, err) == (130, "")
    else:  # inside the user's own call it is Python's own KeyboardInterrupt
        assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in err


def test_an_interpreter_that_exits_with_a_running_pipeline_does_not_hang(tmp_path):
    assert finish("p = Pipeline([forever, Stage(str, num_workers=4)])\nprint(p.dequeue())", tmp_path) == (0, ["0"], "")


def test_a_stuck_stage_does_not_keep_the_interpreter(tmp_path):
    body = """
        import highway.engine.threads
        highway.engine.threads.STOP_TIMEOUT = 0.2
        entered, never = threading.Lock(), threading.Lock()  # whose methods have no frames: the thread is in stuck all the time
        entered.acquire()
        never.acquire()
        def stuck(n):
            entered.release()
            never.acquire()
        p = Pipeline([range(3), Stage(stuck, name="stuck")])
        try:
            p.dequeue(timeout=0)
        except TimeoutError:
            entered.acquire()
    """
    code, _, err = finish(body, tmp_path)
    assert code == 0
    assert "highway:stuck:0 does not stop: it is in stuck, line" in err


def test_a_forked_child_is_told_and_ends(tmp_path):
    body = """
        import os
        p = Pipeline([forever, str])
        p.dequeue()
        if os.fork() == 0:
            try:
                p.dequeue()
            except TypeError as error:
                print("forked" if "forked child" in str(error) else error, flush=True)
            sys.exit(0)
        os.wait()
        print(p.dequeue())
    """
    code, out, _ = finish(body, tmp_path, "-W", "ignore::DeprecationWarning")
    assert (code, out) == (0, ["forked", "1"])


def test_a_pipeline_in_an_imported_module_waits_for_its_run(tmp_path):
    (tmp_path / "library.py").write_text(PRELUDE + "p = Pipeline([range(2), Print()])")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", "import library"], env=environment, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


COMPUTING = """
import atexit
atexit.register(lambda: compute())  # registered first, so called last
import gc
import sys
import threading
import time
import types

import cv2
import numpy as np

import highway.engine.threads
from highway import Pipeline, Stage

highway.engine.threads.STOP_TIMEOUT = 0.2
entered = threading.Event()


class Late:
    "Releases the GIL while Python exits."

    def __init__(self):
        self.sleep = time.sleep

    def __del__(self):
        self.sleep(0.1)


def blur(n):
    entered.set()
    end = time.monotonic() + 4
    while time.monotonic() < end:
        cv2.GaussianBlur(image, (31, 31), 0)
    sys.stderr.write("blurred")
    return n


def compute():
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        pass


def begin(stage):
    pipeline = Pipeline([range(3), stage])
    try:
        pipeline.dequeue(timeout=0)
    except TimeoutError:
        entered.wait()
    return pipeline


image = np.zeros((1000, 1000, 3), np.float64)
PIPELINE
sys.modules["late"] = late = types.ModuleType("late")
late.late = Late()
del late
sys.setswitchinterval(1000)  # other threads get the GIL only while the main thread waits
"""


@pytest.mark.parametrize(
    "pipeline",
    [
        "pipeline = begin(blur)",
        "begin(blur).stop()\ngc.collect()",
        "pipeline = begin(Stage(blur, timeout=60))",
        "list(Pipeline([range(1), Stage(blur, timeout=0.2, on_error='skip')]))\ngc.collect()",
        "from highway.stores.loop import Started, in_thread\ncall = Started(in_thread(lambda: blur(0)))\nentered.wait()",
    ],
    ids=["at work", "stopped", "with a timeout", "abandoned", "call of a store"],
)
@pytest.mark.parametrize(("end", "code"), [("", 0), ("sys.exit(3)", 3), ("raise ValueError", 1)], ids=["end", "exit", "error"])
def test_a_script_that_ends_while_a_map_computes_in_cpp_does_not_abort(popen, pipeline, end, code):
    """A thread that returns from C++ while Python exits would abort the process."""
    process = popen([sys.executable, "-c", COMPUTING.replace("PIPELINE", pipeline) + end])
    _, error = process.communicate(timeout=200)
    assert process.returncode == code, error
    assert error.endswith("blurred")


def test_a_script_does_not_wait_for_abandoned_threads_that_wait(tmp_path):
    body = """
    hang = Stage(lambda n: threading.Event().wait(), num_workers=8, timeout=0.1, on_error="skip")
    assert list(Pipeline([range(20), hang])) == []
    """
    assert finish(body, tmp_path)[:2] == (0, [])
