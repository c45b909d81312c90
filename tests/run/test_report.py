"""The reports of a process to its launcher."""

import os

from highway import PipelineStats, StageStats
from highway.observe.snapshot import Snapshot
from highway.observe.state import ReplicaState
from highway.run.remote import News
from highway.run.report import Reporter, RoleReport


def test_reports_arrive_even_if_a_file_name_in_them_is_no_text():
    name = os.fsdecode(b"caf\xe9.jpg")
    reading, writing = os.pipe()
    with Reporter(writing) as reporter:
        reporter.progress(PipelineStats([StageStats("read", 1, 5, error=name, counters={"n": 1.5, "kind": int})], 2.0))
        reporter.error(name)
        reporter.draining()
        reporter.done()
    with open(reading, encoding="utf-8") as lines:
        reports = [RoleReport.read(line) for line in lines]
    stats = PipelineStats([StageStats("read", 1, 5, error="caf?.jpg", counters={"n": 1.5, "kind": "<class 'int'>"})], 2.0)
    assert reports == [RoleReport(stats), RoleReport(error="caf?.jpg"), RoleReport(draining=True), RoleReport(done=True)]
    assert News.from_json(News("host", reports=reports).to_json()).reports == reports
    states = [ReplicaState("a", stats=PipelineStats([StageStats("read", 1, error=name)], 1.0))]
    assert Snapshot.from_json(Snapshot("t", states).to_json()).states[0].stats.stages[0].error == "caf?.jpg"
