"""The sentence that names the bottleneck: what waits is not busy, and the advice fits the machine and the component."""

import dataclasses
import subprocess
import sys
import uuid

from waiting import wait_until

from highway import Pipeline
from highway.engine.stats import BEYOND_CORES, PipelineStats, StageStats
from highway.modules import Processes, ZMQSink
from highway.process.cores import available_cores, cpu_seconds


def stats(cpu=0.0, cores=0, parameter="num_workers"):
    source = StageStats("Read", 1, 10, busy=0.2, blocked=1.8, shape="source")
    return PipelineStats([source, StageStats("Augment", 2, 10, busy=3.8, starved=0.2, parameter=parameter)], 2.0, cpu, cores)


def test_more_workers_are_advised_where_cores_are_free():
    assert stats(cpu=4.2, cores=4).bottleneck == (
        "Augment is the bottleneck: its 2 workers were busy 95% of the time; give it more workers (num_workers=3): 1.9 of 4 cores are free."
    )


def test_no_workers_are_advised_where_all_cores_are_in_use():
    assert stats(cpu=3.9, cores=2).bottleneck == (
        "Augment is the bottleneck: its 2 workers were busy 95% of the time; all 2 cores are in use, so more workers would not help: "
        "reduce its work, or move it to another machine."
    )


def test_cores_that_other_programs_use_are_not_free():
    busy = dataclasses.replace(stats(cpu=1.0, cores=2), load=8.0)
    assert "all 2 cores are in use, so more workers would not help" in busy.bottleneck


def test_python_code_that_keeps_as_many_workers_as_cores_waiting_for_each_other_is_to_run_in_processes():
    assert f"; {BEYOND_CORES}: 1.0 of 2 cores are free." in stats(cpu=2.0, cores=2).bottleneck
    assert "give it more workers (num_processes=3): 1.0 of 2 cores" in stats(cpu=2.0, cores=2, parameter="num_processes").bottleneck


def test_a_source_that_does_little_is_to_yield_batches():
    source = StageStats("range", 1, 1000, busy=2.0, shape="source")
    assert PipelineStats([source], 2.0, 2.0, 2).bottleneck == (
        "range is the bottleneck: it was busy 100% of the time; a source has only one thread: move part of its work into a map, or, if the "
        "work for each item is small, yield batches."
    )


def test_a_run_that_was_too_short_gets_no_advice():
    source = StageStats("range", 1, 10, busy=0.001, shape="source")
    assert PipelineStats([source], 0.001, 0.001, 2).bottleneck == (
        "The measurement covers less than 0.1 s, which is too short to find the bottleneck."
    )


def test_the_advice_names_the_parameter_of_the_component():
    assert "(num_processes=3)" in stats(cpu=1.0, cores=8, parameter="num_processes").bottleneck
    with Pipeline([range(1), Processes([str], num_processes=1)]) as pipeline:
        assert pipeline.stats().stages[-1].parameter == "num_processes"


def test_waiting_for_receivers_is_no_work(tmp_path):
    with Pipeline([range(10), ZMQSink(f"ipc://@highway-{uuid.uuid4().hex}", receivers=1)]) as pipeline:
        pipeline.start()
        figures = wait_until(lambda: (found := pipeline.stats()).stages[-1].share(found.stages[-1].blocked) > 0.8 and found)
    assert figures.bottleneck.startswith("The receivers of ZMQSink are the bottleneck: ZMQSink waited ")


def test_what_a_pipeline_uses_is_known_with_the_machine():
    with Pipeline([range(3)]) as pipeline:
        list(pipeline)
        figures = pipeline.stats()
        assert figures == pipeline.stats()  # it has ended, so nothing is added
    assert figures.cores == available_cores()
    assert 0 <= figures.cpu < 10


def test_the_cores_that_children_use_count():
    code = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    before = cpu_seconds()
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        assert cpu_seconds() - before >= 0.45
        child.communicate(b"\n")
