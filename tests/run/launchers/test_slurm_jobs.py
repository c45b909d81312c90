"""What is handed to Slurm, and what it is told of without a Slurm: commands that answer as its own do."""

import os
import re
import shlex
import sys

import pytest

from highway.errors import ConfigError
from highway.run.engines import LiveEngine
from highway.run.folder import RunFolder
from highway.run.launcher import LaunchSpec
from highway.run.launchers import slurm
from highway.run.launchers.slurm import SlurmLauncher
from highway.run.launchers.slurm_jobs import JobState, call, job_states, submission
from highway.run.launchers.table import ENGINES
from highway.topology import load_checked

FILE = """
links:
  raw: {from: reader, to: worker, port: 1}
  out: {from: worker, to: trainer, port: 2, bind: to}
roles:
  reader: {stages: [Noise, ZMQSink: {link: raw}]}
  worker:
    replicas: 4
    resources: {cpus: 2.5, gpus: 1, memory_mb: 1500, labels: {gpu: a100, disk: nvme, slurm/partition: gpu, slurm/time: "1-00:00:00"}}
    stages: [ZMQSource: {link: raw}, ZMQSink: {link: out}]
  trainer: {stages: [ZMQSource: {link: out}, Benchmark]}
"""

WORKERS = """\
# sbatch --parsable --array=0-3 '{folder}/jobs/worker.sh'
#!/bin/sh
#SBATCH --job-name=worker
#SBATCH --chdir={here}
#SBATCH --output='{folder}/logs/worker.%a.log'
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=3
#SBATCH --gres=gpu:1
#SBATCH --mem=1431M
#SBATCH --constraint='a100&nvme'
#SBATCH --partition=gpu
#SBATCH --time=1-00:00:00
#SBATCH --requeue
export PYTHONPATH={path}
exec {python} -P -m highway.run.job '{folder}' worker.${{SLURM_ARRAY_TASK_ID}}
"""

READER = """\
# sbatch --parsable '{folder}/jobs/reader.sh'
#!/bin/sh
#SBATCH --job-name=reader
#SBATCH --chdir={here}
#SBATCH --output='{folder}/logs/reader.0.log'
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --requeue
export PYTHONPATH={path}
exec {python} -P -m highway.run.job '{folder}' reader.0
"""


def test_a_dry_run_prints_the_scripts_and_starts_nothing(write, ask, folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/lib")
    monkeypatch.setattr("highway.run.launchers.slurm_jobs.environment", lambda own: {"PYTHONPATH": "/lib"})
    monkeypatch.setenv("PATH", "/nowhere")
    code, out, error = ask("launch", write(FILE), "--on", "slurm", "--folder", "the run", "--dry-run")
    values = {"folder": folder / "the run", "here": folder, "path": "/lib", "python": shlex.quote(sys.executable)}
    assert (code, error) == (0, "")
    reader, worker, trainer = re.split(r"\n(?=# sbatch)", out)
    assert reader + "\n" == READER.format(**values) + "\n"
    assert worker + "\n" == WORKERS.format(**values) + "\n"
    assert trainer == READER.format(**values).replace("reader", "trainer")
    assert not (folder / "the run").exists()


@pytest.mark.parametrize(("replicas", "array"), [([0, 1, 2, 3], "0-3"), ([2], "2"), ([3, 0, 1], "0-1,3"), ([0, 2, 4, 5], "0,2,4-5")])
def test_some_replicas_are_elements_of_an_array(write, tmp_path, replicas, array):
    role = load_checked(write(FILE)).roles["worker"]
    assert submission(RunFolder(tmp_path), role, replicas)[2] == f"--array={array}"


def test_what_would_be_launched_on_ray_cannot_be_shown(write, ask):
    code, _, error = ask("launch", write(FILE), "--on", "local", "--dry-run")
    assert code == 2
    assert error.startswith("highway: --dry-run: there is nothing to show for processes on this machine,")


@pytest.mark.parametrize(
    ("was", "is_now", "said"),
    [
        ("to: worker, port: 1", "to: worker, transport: shm", r"links\.raw\.transport: a link over shm works only within one host"),
        (
            "slurm/time",
            "slurm/tiem",
            r"labels\.slurm/tiem: expected one of account, .*, time after slurm/; did you mean time\?",
        ),
        ("disk: nvme", "disk: '!nvme'", r"resources\.labels\.disk: '!nvme' is not a feature of a node; expected a word, such as a100"),
    ],
)
def test_what_slurm_cannot_do_is_found_by_check(write, ask, was, is_now, said):
    assert was in FILE
    code, out, error = ask("check", write(FILE.replace(was, is_now)), "--on", "slurm")
    assert (code, out.count("\n") + error.count("\n")) == (2, 1)
    assert re.search(said, out + error), error


EVIL = "x\ntouch done #"


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (('slurm/time: "1-00:00:00"', 'slurm/time: "x\\ntouch done #"'), [], r"labels\.slurm/time: .*cannot be part of a Slurm script"),
        (("reader", '"x\\ntouch done #"'), [], r"roles\.x\\ntouch done #: a name must not contain a line break"),
        (("", ""), ["--folder", EVIL], r"highway: --folder .*cannot be part of a Slurm script"),
    ],
)
def test_no_value_ends_the_comments_at_the_head_of_a_script(write, ask, change, options, said):
    given = ["launch", write(FILE.replace(*change)), "--on", "slurm", "--dry-run", *options]
    code, out, error = ask(*given)
    assert (code, out) == (2, "")
    assert re.search(said, error), error


def test_a_directory_that_cannot_stand_in_a_script_is_refused(write, ask, tmp_path, monkeypatch):
    path = tmp_path / write(FILE)
    (tmp_path / EVIL).mkdir()
    monkeypatch.chdir(tmp_path / EVIL)
    code, out, error = ask("launch", path, "--on", "slurm", "--dry-run", "--folder", tmp_path / "run")
    assert (code, out) == (2, "")
    assert "highway: the current directory" in error


def test_percent_signs_of_names_are_not_those_of_slurm(write, ask):
    _, out, _ = ask("launch", write(FILE.replace("reader", '"a b%a"')), "--on", "slurm", "--dry-run", "--folder", "50%a")
    assert "/50%%a/logs/a%%20b%%25a.0.log" in out


def test_a_host_without_slurm_is_said(write, ask, folder, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    code, _, error = ask("launch", write(FILE), "--on", "slurm", "--folder", "run")
    assert (code, error) == (
        2,
        "highway: --on slurm: this host does not have the command sbatch; launch from a host that has Slurm's commands\n",
    )
    assert not (folder / "run").exists()


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Have Slurm's commands answer with this text on standard output or standard error, and a code."""

    def stand_in(out="", error="", code=0, only=("sbatch", "squeue", "scancel", "scontrol")):
        for name in only:
            path = tmp_path / "bin" / name
            path.parent.mkdir(exist_ok=True)
            log = f"echo {name} $* >> {tmp_path}/called"
            path.write_text(f"#!/bin/sh\n{log}\ncat <<'END'\n{out}\nEND\ncat >&2 <<'END'\n{error}\nEND\nexit {code}\n")
            path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")

    return stand_in


def test_states_of_jobs_are_read(stand_in):
    stand_in("12_0|PENDING|Resources|\n12_1|RUNNING|None|n2\n\n13|NODE_FAIL|NodeDown|n3")
    states = job_states()
    assert states == {
        "12_0": JobState("PENDING", "Resources", ""),
        "12_1": JobState("RUNNING", "None", "n2"),
        "13": JobState("NODE_FAIL", "NodeDown", "n3"),
    }
    assert [state.what for state in states.values()] == ["waits", "runs", "has ended, because its node failed"]
    assert JobState("SOMETHING_NEW").what == "runs"
    assert JobState().what == "is no longer known to Slurm"


@pytest.fixture
def launcher(write, tmp_path):
    """A launcher that was told to start all processes."""
    topology = load_checked(write(FILE))
    folder = RunFolder(tmp_path / "run")
    folder.make()
    said = []
    launcher = SlurmLauncher(topology, folder, lambda name, text, is_error: said.append(text))
    named = topology.processes()
    launcher.specs = [LaunchSpec(f"{role}[{replica}]", topology.process_spec(role, replica), []) for role, replica, _ in named]
    launcher.started, launcher.said = [launcher.start(spec) for spec in launcher.specs], said
    return launcher


def test_no_job_begins_before_all_are_accepted(launcher, stand_in, tmp_path):
    stand_in("7;cluster")
    launcher.wait(0)
    called = (tmp_path / "called").read_text().replace(f"{tmp_path}/run/jobs/", "").splitlines()
    assert called[:6] == [
        "sbatch --begin=now+1hour --parsable reader.sh",
        "sbatch --begin=now+1hour --parsable --array=0-3 worker.sh",
        "sbatch --begin=now+1hour --parsable trainer.sh",
        *["scontrol update JobId=7 StartTime=now"] * 3,
    ]
    assert launcher.said == ["reader is job 7 of Slurm", "worker is job 7 of Slurm", "trainer is job 7 of Slurm"]


@pytest.mark.slow
def test_a_slurm_that_does_not_answer_is_told_once_and_what_runs_goes_on(launcher, stand_in, monkeypatch):
    monkeypatch.setattr(slurm, "ASK", 0.1)
    stand_in("7")
    stand_in("", "squeue: error: no", 1, only=["squeue"])
    for _ in range(3):
        launcher.wait(0.5)
    stand_in("\n".join(f"{job}|RUNNING|None|n1" for job in ("7", "7_0", "7_1", "7_2", "7_3")), only=["squeue"])
    for _ in range(3):
        launcher.wait(0.5)
    assert launcher.said[3:] == ["Slurm does not answer; the running processes continue: squeue: no"]
    assert [process.poll() for process in launcher.started] == [None] * 6


def test_a_job_that_slurm_refuses_later_is_a_failure_of_its_process_alone(launcher, stand_in):
    running = "\n".join(f"{job}|RUNNING|None|n1" for job in ("7", "7_0", "7_2", "7_3"))
    stand_in("7")
    stand_in(f"{running}\n7_1|FAILED|None|n2", only=["squeue"])
    launcher.wait(0.5)
    lost = launcher.started[2]
    assert lost.poll() == -9
    assert re.fullmatch(
        r"job 7_1 on n2 has failed; the job has never reported: check that its node can access \S+; .*", lost.reports()[0].error
    )
    stand_in("", "sbatch: error: Batch job submission failed: Socket timed out", 1, only=["sbatch"])
    again = launcher.start(launcher.specs[2])
    launcher.wait(0.5)
    assert again.poll() == -9
    assert [report.error for report in again.reports()] == ["Slurm rejected the job of this role: Socket timed out"]
    assert [process.poll() for process in launcher.started] == [None, None, -9, None, None, None]


def test_slurms_own_words_are_said(stand_in):
    stand_in("", "sbatch: warning: old\nsbatch: error: Batch job submission failed: No", 1)
    with pytest.raises(ConfigError, match=r"^sbatch: Batch job submission failed: No$"):
        call(["sbatch"])
    stand_in("", "", 3)
    with pytest.raises(ConfigError, match=r"^sbatch: exit code 3$"):
        call(["sbatch"])


def test_a_folder_that_is_no_new_one_is_said(write, ask, folder, stand_in):
    stand_in()
    path = write(FILE)
    (folder / "run" / "logs").mkdir(parents=True)
    code, _, error = ask("launch", path, "--on", "slurm", "--folder", "run")
    assert (code, error) == (2, f"highway: --folder {folder}/run already exists, but a run needs a new folder\n")
    (folder / "file").touch()
    code, _, error = ask("launch", path, "--on", "slurm", "--folder", "file/run")
    assert (code, error) == (2, f"highway: --folder {folder}/file/run cannot be created (Not a directory)\n")


def test_slurm_is_an_engine():
    assert isinstance(ENGINES["slurm"], LiveEngine)
