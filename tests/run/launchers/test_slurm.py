"""Topologies as jobs of Slurm: a real one of four nodes, of which jobs and nodes are killed."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_cluster import NODES, cluster, missing
from topologies import HOME, all_lost, lost_within
from waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing()), pytest.mark.timeout(300)]

INSIDE = 9  # items that a worker has received and not sent: two queues of 3, and one in the hands of each stage

FILE = """
links:
  raw: {from: reader, to: worker, port: 1}
  out: {from: worker, to: trainer, port: 2, bind: to}
hosts: {far: 192.0.2.7}
roles:
  reader: {hosts: far, resources: {cpus: 2}, stages: [$Numbers: {until: stop}, ZMQSink: {link: raw}]}
  worker:
    replicas: 3
    hosts: far
    resources: {cpus: 2, memory_mb: 100, labels: {disk: nvme, slurm/partition: all}}
    restart: {when: on-failure, delay_s: 0.1}
    stages: [ZMQSource: {link: raw}, $Pass: {}, ZMQSink: {link: out}]
  trainer: {hosts: far, resources: {cpus: 2}, stages: [ZMQSource: {link: out}, $Say: {}]}
"""


@pytest.fixture
def slurm(folder):
    with cluster(folder) as slurm:
        yield slurm
        assert "slurmctld" not in slurm.daemons or slurm.jobs() == []
        wait_until(lambda: not any(map(slurm.processes_on, NODES)))


class Launched:
    """A ``highway launch``, and what it prints."""

    def __init__(self, run):
        self.run, self.pids = run, {}

    def until_all_run(self, *names):
        """Wait until these replicas have said their process."""
        while not set(names) <= self.pids.keys():
            found = self.run.error.until(r"^(\S+) \| pid (\d+)")
            self.pids[found[1]] = int(found[2])
        return self.pids

    def until_it_goes_on(self, items=100):
        """Wait until so many more items have reached the trainer."""
        for _ in range(items):
            self.run.error.until(r"^trainer \| got \d+")

    def end(self):
        """Wait for the end; return the exit code, the numbers that the trainer got, what was sent to it, and all about the run."""
        code, out, error = self.run.end()
        got = [int(number) for number in re.findall(r"^trainer \| got (\d+)$", error, re.M)]
        assert out, error
        return code, got, json.loads(out), error


WORKERS = ("worker[0]", "worker[1]", "worker[2]")


@pytest.fixture
def launch(slurm, start):
    """Launch a topology, with stages of the tests."""

    def launch(path, *arguments, **environment):
        where = {"SLURM_CONF": slurm.environment["SLURM_CONF"], **environment}
        return Launched(
            start("launch", path, "--on", "slurm", "--plugin", "mine", "--json", *arguments, on=slurm.hosts.on("slurm"), **where)
        )

    return launch


def sent(summary, link):
    (found,) = [one for one in summary["links"] if one["link"] == link]
    return found["sent"]


def test_a_topology_runs_as_jobs_and_nothing_of_it_stays(slurm, launch, write):
    run = launch(write(FILE), "--folder", "the run")
    run.until_all_run(*WORKERS)
    names = ["reader", "trainer", "worker", "worker", "worker"]
    wait_until(lambda: sorted(job.split()[1] for job in slurm.jobs()) == names)
    assert {job.split()[3] for job in slurm.jobs() if job.split()[1] == "worker"} <= {"n3", "n4"}  # those with the feature nvme
    run.until_it_goes_on()
    Path("stop").touch()
    code, got, summary, error = run.end()
    assert code == 0, error
    assert sorted(got) == list(range(sent(summary, "raw")))
    assert summary["losses"] == []
    assert "pid" in Path("the run/logs/worker.2.log").read_text()


SCRIPT = """
import sys
from highway import Pipeline
for item in Pipeline.from_yaml(sys.argv[1], role="trainer", plugins=["mine"], on="folder:run/rendezvous"):
    print("got", int(item[0][0]), flush=True)
"""


def test_a_script_finds_its_feeders_in_the_folder_of_the_run(slurm, launch, write):
    path = write(FILE.replace("trainer: {hosts", "trainer: {external: true, hosts").replace(", $Say: {}]", "]"))
    run = launch(path, "--folder", "run")
    paths = {"env": {"PYTHONPATH": f"{HOME}{os.pathsep}."}, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with slurm.popen([sys.executable, "-c", SCRIPT, path], **paths) as script:
        for _ in range(100):
            assert (line := script.stdout.readline()).startswith("got"), line + script.stderr.read()
        Path("stop").touch()
        out, error = script.stdout.read(), script.stderr.read()  # communicate() would lose lines that readline() has buffered
    assert script.returncode == 0, error
    code, _, summary, error = run.end()
    assert code == 0, error
    assert out.count("got") + 100 == sent(summary, "raw")


SCALES = (
    FILE.replace("replicas: 3", "autoscale: {min: 1, max: 4, grow_s: 1, shrink_s: 2}")
    .replace("$Numbers: {until: stop}", "$Waves: {high: 0.005, low: 0.1}")
    .replace("$Pass: {}", "$Pass: {every: 0.02}")
)


def test_one_grows_to_four_and_shrinks_to_one_and_jobs_come_and_go(slurm, launch, write):
    run = launch(write(SCALES))

    def workers():
        return sorted(job.split()[0].partition("_")[2] for job in slurm.jobs() if job.split()[1] == "worker")

    run.until_all_run("worker[0]")
    run.until_all_run("worker[1]", "worker[2]", "worker[3]")
    assert workers() == ["0", "1", "2", "3"]
    Path("calm").touch()
    for number in (3, 2, 1):
        run.run.error.until(rf"worker\[{number}\] is drained: ")
    wait_until(lambda: workers() == ["0"], 60)
    run.until_it_goes_on(10)
    Path("stop").touch()
    code, got, summary, error = run.end()
    assert code == 0, error
    assert sorted(got) == list(range(sent(summary, "raw"))), error
    assert summary["losses"] == []
    assert [replica["restarts"] for replica in summary["replicas"]] == [0] * 6


def test_a_process_that_is_killed_is_started_again_where_it_was(slurm, launch, write):
    run = launch(write(FILE))
    first = dict(run.until_all_run(*WORKERS))
    run.until_it_goes_on()
    before = slurm.jobs()
    os.kill(run.pids.pop("worker[1]"), signal.SIGKILL)
    run.run.error.until(r"worker\[1\] failed \(killed by SIGKILL\).*; restarts in 0.1 s")
    assert run.until_all_run(*WORKERS)["worker[1]"] != first["worker[1]"]
    run.until_it_goes_on()
    assert slurm.jobs() == before
    Path("stop").touch()
    code, got, summary, error = run.end()
    assert code == 0, error
    lost = sent(summary, "raw") - len(got)
    assert len(set(got)) == len(got)
    assert 0 <= lost <= sum(link["missing"] for link in summary["links"]) + INSIDE, error
    assert [replica["restarts"] for replica in summary["replicas"]] == [0, 0, 1, 0, 0]


@pytest.mark.timeout(110)  # Slurm's own time before it begins again is two minutes
def test_a_node_that_fails_has_its_job_queued_again_and_the_stream_goes_on(slurm, launch, write):
    run = launch(write(FILE))
    run.until_all_run(*WORKERS)
    run.until_it_goes_on()
    where = {job.split()[0].partition("_")[2]: job.split()[3] for job in slurm.jobs() if "_" in job.split()[0]}
    others = {job.split()[3] for job in slurm.jobs() if "_" not in job.split()[0]}
    node = next(node for node in ("n4", "n3") if node in where.values() and node not in others)
    lost = [f"worker[{number}]" for number, its in where.items() if its == node]
    slurm.kill_node(node)
    for name in lost:
        run.pids.pop(name)
    run.until_it_goes_on()
    for _ in lost:
        run.run.error.until(r"worker\[\d\] failed \(killed by SIGKILL\): .*; restarts in")
    run.until_it_goes_on()
    run.until_all_run(*lost)
    assert not any(job.split()[3] == node for job in slurm.jobs())
    run.until_it_goes_on()
    Path("stop").touch()
    code, got, summary, error = run.end()
    assert code == 0, error
    assert "has job" not in error
    assert len(set(got)) == len(got)
    assert sorted(replica["restarts"] for replica in summary["replicas"]) == [0] * (5 - len(lost)) + [1] * len(lost)
    assert summary["losses"], error


def test_a_job_that_is_killed_is_submitted_again(slurm, launch, write):
    run = launch(write(FILE))
    run.until_all_run(*WORKERS)
    run.until_it_goes_on()
    before = {job.split()[0] for job in slurm.jobs()}
    agent = int(Path(f"/proc/{run.pids.pop('worker[1]')}/stat").read_text().split()[3])
    os.kill(agent, signal.SIGKILL)
    run.run.error.until(r"worker\[1\] failed \(killed by SIGKILL\): job \d+_1 on n\d has failed; restarts in")
    run.until_all_run(*WORKERS)
    assert len({job.split()[0] for job in slurm.jobs()} - before) == 1
    run.until_it_goes_on()
    Path("stop").touch()
    code, got, _, error = run.end()
    assert code == 0, error
    assert len(set(got)) == len(got)


@pytest.mark.timeout(110)  # Slurm's own time before it begins again is two minutes
def test_a_job_that_slurm_queues_again_drains_and_begins_again(slurm, launch, write):
    """As one that has to make way for another."""
    run = launch(write(FILE))
    run.until_all_run(*WORKERS)
    run.until_it_goes_on()
    job = next(job.split()[0] for job in slurm.jobs() if job.split()[0].endswith("_1"))
    slurm.ask("scontrol", "requeue", job)
    run.pids.pop("worker[1]")
    run.run.error.until(r"worker\[1\] failed \(exit code 143\): job \d+_1 was queued again, because .*; restarts in")
    run.until_all_run(*WORKERS)
    assert job in {job.split()[0] for job in slurm.jobs()}
    run.until_it_goes_on()
    Path("stop").touch()
    code, got, summary, error = run.end()
    assert code == 0, error
    assert sorted(got) == list(range(sent(summary, "raw"))), error


def test_what_scancel_ends_is_drained_and_not_started_again(slurm, launch, write):
    run = launch(write(FILE))
    run.until_all_run(*WORKERS)
    run.until_it_goes_on()
    job = next(job.split()[0] for job in slurm.jobs() if job.split()[0].endswith("_1"))
    slurm.ask("scancel", job)
    wait_until(lambda: job not in " ".join(slurm.jobs()), 60)
    run.until_it_goes_on()
    Path("stop").touch()
    code, got, summary, error = run.end()
    assert code == 0, error
    assert sorted(got) == list(range(sent(summary, "raw"))), error
    assert [replica["restarts"] for replica in summary["replicas"]] == [0] * 5


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_launcher_that_is_asked_to_end_leaves_no_job(slurm, launch, write, number, code):
    run = launch(write(FILE))
    run.until_all_run(*WORKERS)
    run.until_it_goes_on()
    run.run.process.send_signal(number)
    ended, got, summary, error = run.end()
    assert ended == code, error
    assert slurm.jobs() == []
    if number == signal.SIGTERM:
        assert sorted(got) == list(range(sent(summary, "raw"))), error


STUCK = FILE.replace("until: stop}", "until: stop}, $SayAndPass").replace("$Pass: {}", "$Pass: {}, $Wait: {until: go}")


@pytest.mark.parametrize("what", ["the run", "a worker", "a job"])
def test_what_a_drain_that_runs_out_of_time_loses_is_counted(slurm, launch, write, call, what):
    path = write(STUCK)
    run = launch(path, "--drain-timeout", "1")
    run.until_all_run(*WORKERS)
    run.run.error.until(r"^reader \| item 500$")  # workers hold what they can
    if what == "the run":
        run.run.process.send_signal(signal.SIGTERM)
    else:
        if what == "a worker":
            code, out, error = call("drain", path, "--role", "worker", "--replica", "1", on=slurm.hosts.on("slurm"))
            assert code == 1, out + error
        else:
            job = next(job.split()[0] for job in slurm.jobs() if job.split()[0].endswith("_1"))
            slurm.ask("scancel", job)
            wait_until(lambda: job not in " ".join(slurm.jobs()), 60)
        Path("go").touch()
        run.until_it_goes_on()
        Path("stop").touch()
    code, got, summary, error = run.end()
    assert code == (143 if what == "the run" else 0), error
    assert lost_within(summary) > 0
    assert sent(summary, "raw") == len(got) + all_lost(summary), error
    assert re.search(r"^highway: worker\[1\] was stopped: .* that it had received .* lost$", error, re.M), error


def test_a_launcher_that_is_asked_to_end_before_its_jobs_have_begun_leaves_none(slurm, launch, write):
    for node in NODES:
        slurm.ask("scontrol", "update", f"NodeName={node}", "State=drain", "Reason=test")
    run = launch(write(FILE))
    wait_until(lambda: len(slurm.jobs()) == 5, 60)
    run.run.process.send_signal(signal.SIGINT)
    code, got, _, error = run.end()
    assert (code, got) == (130, []), error
    assert slurm.jobs() == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("labels: {disk: tape}", "roles.worker: Slurm rejected the job of this role: Invalid feature specification"),
        ("labels: {slurm/partition: none}", "roles.worker: Slurm rejected the job of this role: Invalid partition name specified"),
        ("gpus: 1", "roles.worker: Slurm rejected the job of this role: Invalid generic resource (gres) specification"),
        ("memory_mb: 1000000", "roles.worker: Slurm rejected the job of this role: Requested node configuration is not available"),
    ],
)
def test_what_slurm_refuses_is_said_in_its_words_and_nothing_has_begun(slurm, launch, write, given, said):
    run = launch(write(re.sub(r"memory_mb: 100, labels: \{.*?\}", given, FILE)))
    code, _, error = run.run.end()
    assert (code, error.count("\n")) == (2, 1), error
    assert said in error
    assert slurm.ask("squeue", "--noheader", "--states=all", "--format=%N").split() == []  # no job ever had a node


OTHER_PIXELS = """
import importlib.metadata, os
own = importlib.metadata.version
importlib.metadata.version = lambda name: "9.9" if os.environ.get("SLURMD_NODENAME") == "n4" and name != "highway-data" else own(name)
"""


def test_a_node_that_makes_other_pixels_than_the_first_of_a_role_is_said(slurm, launch, write, folder):
    Path("sitecustomize.py").write_text(OTHER_PIXELS)
    text = FILE.replace("restart: {when: on-failure, delay_s: 0.1}", "restart: never")
    code, _, _, error = launch(write(text), PYTHONPATH=f"{HOME}{os.pathsep}{folder}").end()
    assert code == 1, error
    has = r"(highway 0\S+, JPEGs by .*?, pixels by \S+ \S+)"
    said = re.search(
        rf"^highway: worker\[\d\] failed \(exit code 2\): \S+ has {has}, but \S+, where worker ran first, has {has}: the same", error, re.M
    )
    assert sorted(pixels.endswith(" 9.9") for pixels in said.groups()) == [False, True]
    assert slurm.jobs() == []


def test_a_folder_that_nodes_do_not_see_is_said(slurm, launch, write, tmp_path):
    """The node's own view has an empty folder there."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    for node in NODES:
        slurm.stop(node)
        slurm.start(node, "unshare", "--mount", "sh", "-c", f"mount -t tmpfs none {hidden} && exec slurmd -D -N {node}")
    run = launch(write(FILE), "--folder", hidden / "run")
    code, _, error = run.run.end()
    assert code == 1, error
    assert re.search(r"has failed; the job has never reported: check that its node can access \S+/hidden/run;", error), error


def test_a_controller_that_does_not_answer_is_said(slurm, launch, write):
    slurm.stop("slurmctld")
    code, _, error = launch(write(FILE)).run.end()
    assert (code, error.count("\n")) == (2, 1), error
    assert "highway: --on slurm: squeue: slurm_load_jobs error: Unable to contact slurm controller" in error
    assert error.endswith("; launch from a host of the cluster, where `sinfo` answers\n")
