"""What runs in the job of a replica: its processes, one after the other, as the launcher wants them."""

import os
import signal
import threading

import pytest
from waiting import wait_until

import highway
from highway.images.software import software
from highway.run import job
from highway.run.control import find
from highway.run.folder import Claim, JobOrder, RoleSoftware, RunFolder
from highway.run.job import Job
from highway.run.launcher import LaunchSpec
from highway.topology import load_checked

FILE = "roles: {a: {stages: [$Numbers: {every: 0.01}, $Pass: {}]}}"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for name, seconds in {"LOOK": 0.05, "TELL": 0.2, "CHECK": 0.1, "KEEP": 60.0, "ORPHANED": 60.0}.items():
        monkeypatch.setattr(job, name, seconds)


class Run:
    """A job on a thread of its own, and what it has told."""

    def __init__(self, folder, holder, spec):
        self.folder, self.spec, self.lines, self.starts = folder, spec, [], 0
        self.reader = folder.reader(holder)
        self.job = Job(folder, "a.0", holder, "127.0.0.1")
        self.thread = threading.Thread(target=self.job.run)
        self.thread.start()

    def want(self, start, *signals, version=highway.__version__):
        self.folder.want("a.0", JobOrder(start, self.spec.to_json(), [*signals], version))

    def news(self, start):
        """Return the news of a start that have come until now."""
        self.lines += self.reader.hear()
        return [line.news for line in self.lines if line.start == start and line.news is not None]

    def until_code(self, start):
        return wait_until(lambda: [one.code for one in self.news(start) if one.code is not None])[0]

    def until_pid(self, start):
        said = wait_until(lambda: [text for one in self.news(start) for text, _ in one.lines if text.startswith("pid")])
        return int(said[0].split()[1])

    def reports(self, start):
        return [report for one in self.news(start) for report in one.reports]

    def ended(self):
        self.thread.join(30)
        return not self.thread.is_alive()


@pytest.fixture
def begin(write, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(folder)
    run_folder = RunFolder(tmp_path / "run")
    run_folder.make()
    runs = []

    def begin(holder="12.0", text=FILE):
        path = write(text, "t.yaml")
        spec = load_checked(path, plugins=["mine"]).process_spec("a")
        launched = LaunchSpec("a", spec, [path, "--plugin=mine", "--drain-timeout=10", "--role=a", "--replica=0"])
        runs.append(Run(run_folder, holder, launched))
        return runs[-1]

    yield begin
    for run in runs:
        run.job.leave()
        assert run.ended()


@pytest.mark.slow
def test_a_process_that_is_wanted_again_is_started_again(begin):
    run = begin()
    run.want(1)
    os.kill(first := run.until_pid(1), signal.SIGKILL)
    assert run.until_code(1) == -9
    run.want(2)
    assert run.until_pid(2) != first
    run.want(2, signal.SIGTERM)
    assert run.until_code(2) == 143
    assert run.ended()  # who has asked its process to end does not soon want another one there
    assert not any(report.draining for report in run.reports(2))


@pytest.mark.slow
def test_figures_come_with_what_is_printed(begin):
    run = begin()
    run.want(1)
    run.until_pid(1)
    wait_until(lambda: [report.stats for report in run.reports(1) if report.stats and report.stats.items > 10])
    assert run.news(1)[-1].address == "127.0.0.1"


@pytest.mark.slow
def test_a_job_that_is_asked_to_end_drains_its_process_and_says_so(begin):
    run = begin()
    run.want(1)
    pid = run.until_pid(1)
    os.kill(pid, signal.SIGTERM)  # as Slurm does, to all of a job
    run.job.leave()
    assert run.until_code(1) == 143
    assert any(report.draining for report in run.reports(1))
    assert run.ended()


@pytest.mark.slow
def test_what_was_begun_before_a_job_was_queued_again_is_not_begun_again(begin):
    run = begin()
    run.want(1)
    run.until_pid(1)
    successor = begin("12.1")
    assert run.ended()  # it was replaced
    wait_until(lambda: successor.reader.hear())
    assert successor.news(1) == []
    successor.want(2)
    successor.until_pid(2)
    assert successor.folder.claim("a.0") == Claim("12.1", 2)


@pytest.mark.slow
def test_a_job_ends_with_its_launcher(begin, monkeypatch):
    run = begin()
    run.folder.beat(1)
    run.want(1)
    pid = run.until_pid(1)
    monkeypatch.setattr(job, "ORPHANED", 0.3)
    assert run.ended()
    assert any(report.draining for report in run.reports(1))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.slow
def test_a_job_whose_process_is_not_wanted_again_ends(begin, monkeypatch):
    run = begin()
    run.want(1)
    pid = run.until_pid(1)
    monkeypatch.setattr(job, "KEEP", 0.3)  # not before: it waits as long for the first start
    os.kill(pid, signal.SIGKILL)
    assert run.ended()


@pytest.mark.slow
def test_a_job_whose_process_a_user_has_drained_ends_even_if_the_process_has_failed(begin):
    run = begin(text=FILE.replace("$Pass: {}", "$Pass: {}, $Wait: {until: go}"))
    run.want(1)
    pid = run.until_pid(1)
    (process,) = find(run.spec.process.key)
    with process.connection:
        process.ask()
        wait_until(lambda: any(report.draining for report in run.reports(1)))
        os.kill(pid, signal.SIGKILL)
        assert run.until_code(1) == -9
    assert run.ended()


def test_another_version_of_highway_is_said(begin):
    run = begin()
    run.want(1, version="0.0.1")
    assert run.until_code(1) == 2
    said = f"127.0.0.1 has highway {highway.__version__}, but the launching host has highway 0.0.1; install the same version on both"
    assert [report.error for report in run.reports(1)] == [said]


def test_a_decoder_that_is_not_the_one_of_the_role_elsewhere_is_said_and_nothing_starts(begin):
    run = begin()
    run.folder.agree("a", RoleSoftware("highway 0.1.0, JPEGs by magic, pixels by magic", "10.0.0.7"))
    run.want(1)
    assert run.until_code(1) == 2
    said = (
        f"127.0.0.1 has {software()}, but 10.0.0.7, where a ran first, has highway 0.1.0, JPEGs by magic, pixels by magic: the same seed "
        "would give different batches on the two nodes; install the same software on both (`highway doctor` lists it), or select the "
        "nodes with labels"
    )
    assert [report.error for report in run.reports(1)] == [said]
    assert not any(one.lines for one in run.news(1))
