"""Threads that do not start: Ctrl-C comes meanwhile, or the system gives no more."""

import logging
import re
import signal
import subprocess
import sys
import threading

import pytest

from highway import EndOfStream, Pipeline, Stage
from highway.engine.stage import Origin, expand
from highway.engine.threads import Run
from highway.modules import Reader


@pytest.mark.parametrize("comes", ["before", "after"])
def test_ctrl_c_while_threads_start_is_raised_and_leaves_none(monkeypatch, comes):
    start, started = threading.Thread.start, []

    def interrupted(thread):
        started.append(thread)
        if comes == "after":
            start(thread)
        if len(started) == 3:
            raise KeyboardInterrupt
        if comes == "before":
            start(thread)

    pipeline = Pipeline([range(10), Stage(str, num_workers=4)])
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(iter(pipeline))
    pipeline.stop()
    assert not any(thread.is_alive() for thread in started)
    with pytest.raises(EndOfStream, match="stopped"):
        pipeline.dequeue()


FEW = """
import resource, threading
from highway import {imports}
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
threading.stack_size({stack} << 20)
resource.setrlimit(resource.RLIMIT_AS, (size + ({room} << 20),) * 2)
{code}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize(
    ("imports", "stack", "room", "code", "said"),
    [
        (
            "Pipeline, Stage",
            64,
            400,
            "list(Pipeline([range(9), Stage(str, num_workers=60)]))",
            "needs 61 threads, but cannot start them; set num_workers lower",
        ),
        (
            "Pipeline; from highway.run.role import run",
            64,
            40,
            "run(Pipeline([range(9)]), print)",
            "raise the limit (ulimit -u, or the con",
        ),
        ("Connection", 8, 20, "Connection('zpull://127.0.0.1:0')", "ZeroMQ cannot start: this process cannot start more threads"),
    ],
)
def test_a_process_that_gets_no_more_threads_says_so(imports, stack, room, code, said):
    """The room for the stacks of threads is short here; a limit on processes does not hold for root."""
    text = FEW.format(imports=imports, stack=stack, room=room, code=code)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=200)
    assert done.returncode == 1, (done.returncode == -signal.SIGABRT, done.stderr)
    assert said in done.stderr
    assert "cannot join" not in done.stderr
    assert "does not stop" not in done.stderr


def test_a_consumer_that_waits_long_is_told_which_stage_works_and_where():
    released, hanging, reports = threading.Event(), [], []

    class Reports(logging.Handler):
        is_next = False

        def emit(self, record):
            if self.is_next:
                reports.append(record.getMessage())
            self.is_next = len(hanging) == 2
            if len(reports) == 2:
                released.set()

    def hangs(item):
        hanging.append(item)
        released.wait(60)
        return item

    reader = Reader(range(4), shuffle=False, rank=1, world_size=2, num_workers=1)
    run = Run(expand([reader, Stage(hangs, num_workers=2, name="read"), Stage(str)]), 0, Origin(), stalled_after=0.02)
    logger, handler = logging.getLogger("highway"), Reports(logging.WARNING)
    logger.addHandler(handler)
    try:
        run.start()
        assert run.take(None).item == "1"
    finally:
        logger.removeHandler(handler)
        run.stop()
    expected = r"Pipeline\(.* -> read -> str\) has waited for an item for (\S+) s; rank 1 of 2: it waits for the stage 'read': "
    expected += r"worker 1 of 2 has worked for \S+ s: it is in \w+, line \d+ of .*; worker 2 of 2 has worked for"
    found = [re.match(expected, report) for report in reports]
    assert 0.02 <= float(found[0][1]) <= float(found[1][1])
