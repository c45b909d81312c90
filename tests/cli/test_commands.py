"""The command line as a user meets it: in processes of its own, by what it prints and its exit code."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from topologies import HOME

import highway
from highway.cli.command import COMMANDS

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def write(write):
    """Write a topology, as ``t.yaml`` if not said otherwise."""
    return lambda text, name="t.yaml": write(text, name)


def test_the_version_is_printed(call):
    assert call("--version") == (0, f"highway {highway.__version__}\n", "")


def test_the_help_lists_each_command_once_in_its_group(ask):
    code, out, error = ask("--help")
    assert (code, error) == (0, "")
    groups = {group: re.findall(r"^  ([\w-]+) +\w", lines, re.M) for group, lines in re.findall(r"^(\w+):\n((?:  .*\n)+)", out, re.M)}
    del groups["options"]
    assert list(groups) == ["run", "look", "measure", "data", "streams"]
    listed = [name for names in groups.values() for name in names]
    assert sorted(listed) == sorted(command.name for command in COMMANDS)
    page = (ROOT / "docs/reference/commands.md").read_text()
    assert [name for name in listed if f"`highway {name}" not in page] == []


def test_the_quickstart_needs_no_file(ask):
    code, out, error = ask("quickstart", "--role", "nobody")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"highway: .*/highway/data/quickstart\.yaml: no role 'nobody'; expected one of reader, trainer, worker\n", error)


def test_the_components_are_listed_and_described(ask):
    code, out, error = ask("list")
    assert (code, error) == (0, "")
    assert re.search(r"^  ImageFileReader +Read labelled images", out, re.M)
    assert re.search(r"^highway.datasets:\n(  .*\n)*  ImageFolder +The images of a folder that contains one subfolder per label", out, re.M)
    assert ask("list", "ImageFolder")[1].startswith(
        "ImageFolder(data_dir: str, class_names: str | list[str] | None = None)\n\nThe images of a folder that contains one subfolder"
    )
    code, out, error = ask("list", "FlipX")
    assert (code, error) == (0, "")
    assert ask("list", "flipx") == (code, out, error)
    assert out.startswith("FlipX(p: float (at least 0 and at most 1) = 0.5)\n\nFlip horizontally")
    described = "mine:Say(word: str = 'got', every: float = 0.0)\n\nPrint the number of each item, and wait.\n"
    assert ask("list", "mine:Say", "--plugin", "mine") == (0, described, "")


@pytest.mark.parametrize(
    ("name", "module", "parameter"),
    [
        ("Pipeline", "highway", "seed: int | None = None"),
        ("stage", "highway", "on_error: Literal['raise', 'skip'] = 'raise'"),
        ("DataLoader", "highway.adapters.torch", "rank: int | None = None"),
        ("to_device", "highway.adapters.torch", "depth: int = 2"),
    ],
)
def test_public_names_that_no_file_can_use_are_described_too(ask, name, module, parameter):
    if "torch" in module:
        pytest.importorskip("torch")
    code, out, error = ask("list", name)
    assert (code, error) == (0, "")
    first, rest = out.split("\n", 1)
    assert first.lower() == f"from {module} import {name.lower()}"
    assert f"    {parameter},\n" in rest  # a line for each parameter
    assert "\nArgs:\n" in rest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["fly"], "highway: error: there is no command 'fly'; `highway --help` lists them"),
        (["chek", "good.yaml"], "highway: error: there is no command 'chek'; did you mean check?"),
        (["run"], "the following arguments are required: FILE"),
        (["list", "FlipXX"], "highway: unknown component 'FlipXX'; did you mean FlipX?\n"),
        (["list", "flip_x"], "highway: unknown component 'flip_x'; did you mean FlipX?\n"),
        (["list", "mine:Say"], "highway: mine:Say is in a module that is not allowed here; allow the module with `--plugin mine`"),
        (["check", "nowhere.yaml"], "highway: nowhere.yaml: there is no such file\n"),
        (["check", "good.yaml", "--set", "count"], "highway: --set count: expected VAR=VALUE\n"),
        (["check", "good.yaml", "--set", "cout=1"], "highway: good.yaml: vars has no variable 'cout' to set; did you mean count?\n"),
        (["check", "good.yaml", "--plugin", "nowhere"], "highway: the plug-in nowhere cannot be imported: ModuleNotFoundError"),
        (["run", "good.yaml"], "highway: good.yaml:4: roles.r[0].mine:Numbers: mine:Numbers is in a module that is not allowed here"),
        (["check", "good.yaml", "--plugin", "mine", "--set", "count=x"], "highway: good.yaml:4: roles.r[0].mine:Numbers: expected int"),
        (["run", "good.yaml", "--plugin", "mine", "--set", "count=[1"], "highway: --set count:1: not YAML: "),
        (["run", "good.yaml", "--plugin", "mine", "--role", "s"], "highway: good.yaml: no role 's'; expected one of r\n"),
        (["run", "good.yaml", "--plugin", "mine", "--role", "r", "--replica", "1"], "highway: --replica 1: the role r has one process,"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_message_and_exit_code_2(arguments, message, write, ask):
    write("vars: {count: 1}\nroles:\n  r:\n  - $Numbers: ${count}\n", "good.yaml")
    code, out, error = ask(*arguments)
    assert (code, out) == (2, "")
    assert message in error
    assert "Traceback" not in error


def test_what_only_looks_at_a_file_imports_nothing_that_it_names(folder, write, ask):
    (folder / "evil.py").write_text("from pathlib import Path\nPath('was-run').touch()\nclass Source: pass\nclass Map: pass\n")
    write(
        "roles:\n  a:\n  - evil:Source: {any: 1}\n  - Identity\n  - Augmentations: [FlipX, evil:Map: 3]\n    num_workers: 2\n"
        "  - Tee: evil:Map\n  - NoSuchThing\n  b: [evil:Source, Identity]\n"
    )
    assert ask("check", "t.yaml") == (2, "", "highway: t.yaml:8: roles.a[4]: unknown component 'NoSuchThing'; `highway list` shows all\n")
    Path("t.yaml").write_text(Path("t.yaml").read_text().replace("  - NoSuchThing\n", ""))
    code, out, error = ask("check", "t.yaml")
    assert (code, error) == (0, "")
    said = "was not checked, because this runs the code of evil; to allow this, pass --plugin evil"
    assert out.splitlines() == [
        "role a: Source -> Identity -> Augmentations -> Tee",
        "role b: Source -> Identity",
        f"t.yaml:3: roles.a[0].evil:Source: evil:Source {said}",
        f"t.yaml:5: roles.a[2].Augmentations[1].evil:Map: evil:Map {said}",
        f"t.yaml:7: roles.a[3].Tee: evil:Map {said}",
        f"t.yaml:8: roles.b[0]: evil:Source {said}",
        "t.yaml: no errors in the checked parts",
    ]
    assert ask("graph", "t.yaml")[1].startswith('flowchart LR\n  n0["<b>a</b><br>Source<br>Identity<br>Augmentations<br>Tee"]\n')
    assert ask("schema")[0] == ask("list")[0] == ask("unit", "t.yaml")[0] == 0
    code, out, error = ask("top", "t.yaml", "--once", "--metrics", "1", "--interval", "0.01")
    assert (code, error) == (1, "")
    assert "No endpoint answers" in out
    assert not Path("was-run").exists()
    assert ask("check", "t.yaml", "--plugin", "evil")[0] == 2
    assert Path("was-run").exists()


def test_checking_lists_all_mistakes_of_a_file(write, ask):
    write("roles:\n  a:\n  - $Numbers: x\n  - $Sai\n  b:\n  - $Say\n")
    code, out, error = ask("check", "t.yaml", "--plugin", "mine")
    assert (code, out) == (2, "")
    assert [line.split(": ")[0] for line in error.removeprefix("highway: ").splitlines()] == ["t.yaml:3", "t.yaml:4", "t.yaml:5"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "c"], "highway: t.yaml: no host 'c'; expected one of a, b\n"),
        (["--host", "b"], "highway: t.yaml: nothing runs on b; its roles are on a\n"),
        (
            ["--role", "r", "--host", "b"],
            "highway: t.yaml does not assign r to the host b; to add a process on this machine, remove --host\n",
        ),
        (["--replica", "1"], "highway: --replica needs --role, because each role has its own numbers\n"),
        (["--role", "r", "--replica", "2"], "highway: --replica 2: the role r has 2 processes, numbered 0 to 1\n"),
        (["--role", "x"], "highway: t.yaml: the role x is external and has no stages, so highway cannot run it\n"),
    ],
)
def test_a_part_of_a_topology_that_is_not_there_is_exit_code_2(arguments, message, write, ask):
    write("hosts: {a: 127.0.0.1, b: 10.0.0.1}\nroles: {r: {hosts: a, replicas: 2, stages: [$Numbers: 1]}, x: {hosts: b, external: true}}")
    assert ask("run", "t.yaml", "--plugin", "mine", *arguments) == (2, "", message)


@pytest.mark.slow
def test_a_host_runs_what_the_file_places_there(write, call):
    role = "{hosts: [a, b], replicas: 3, stages: [$Numbers: 1, $Say: '${replica}:']}"
    write(f"hosts: {{a: h, b: h}}\nroles:\n  r: {role}\n  s: {{hosts: b, stages: [$Numbers: 1]}}")
    write("roles: {r: {env: {SOME: thing}}}", "more.yaml")
    code, out, error = call("run", "t.yaml", "more.yaml", "--plugin", "mine", "--host", "a")
    assert (code, without_progress(error)) == (0, "")
    assert sorted(re.findall(r"^r.* \| .*", out, re.M)) == ["r[0] | 0: 0", "r[2] | 2: 0"]
    assert "s: " not in out


@pytest.mark.slow
def test_the_environment_of_a_role_is_that_of_its_process(write, call):
    write("roles: {r: {env: {SOME: thing}, stages: [$Numbers: 1, $SayEnvironment: {names: [SOME, OTHER]}]}}")
    assert call("run", "t.yaml", "--plugin", "mine")[1].startswith("r | thing None\n")
    assert call("run", "t.yaml", "--plugin", "mine", "--role", "r")[1].startswith("thing None\n")


def test_a_topology_is_drawn_to_files_by_their_endings(folder, write, ask):
    write("roles: {r: [$Numbers: 1, $Say]}")
    code, out, error = ask("graph", "t.yaml", "--plugin", "mine")
    assert (code, out, error) == (0, 'flowchart LR\n  n0["<b>r</b><br>Numbers<br>Say"]\n', "")
    for name, begin in (("t.svg", b"<svg"), ("t.png", b"\x89PNG"), ("t.dot", b"digraph"), ("t.mmd", b"flowchart")):
        assert ask("graph", "t.yaml", "--plugin", "mine", "-o", f"out/{name}") == (0, "", "")
        assert (folder / "out" / name).read_bytes().startswith(begin)
    code, _, error = ask("graph", "t.yaml", "--plugin", "mine", "-o", "t.pdf")
    assert (code, error) == (2, "highway: -o t.pdf: expected a name that ends in .svg, .png, .dot or .mmd\n")


def test_the_schema_is_printed(ask):
    code, out, error = ask("schema")
    assert (code, error) == (0, "")
    assert json.loads(out)["required"] == ["roles"]


def test_a_traceback_is_shown_when_asked_for(write, ask):
    write("roles: {r: [$Numbers: x]}")
    code, _, error = ask("check", "t.yaml", "--plugin", "mine", "--traceback")
    assert code == 2
    assert "Traceback (most recent call last)" in error


def test_a_good_file_is_shown_and_its_data_need_not_be_there(write, ask):
    reader = "ImageFileReader: {data_dir: /nowhere, batch_size: 1, shape: [8, 8]}"
    write(f"roles:\n  r:\n    replicas: 2\n    stages:\n    - {reader}\n    - $Say\n")
    assert ask("check", "t.yaml", "--plugin", "mine") == (0, "role r x 2: ImageFileReader -> Say\nt.yaml: no errors\n", "")


def test_one_role_runs_in_this_process_and_ends_with_a_summary(write, call):
    write("vars: {count: 2}\nroles: {r: [$Numbers: '${count}', $Say: item], s: [$Numbers: 1]}")
    code, out, error = call("run", "t.yaml", "--role", "r", "--set", "count=3", "--plugin", "mine")
    assert (code, without_progress(error)) == (0, "")
    assert re.match(r"item 0\nitem 1\nitem 2\n\nr (waited|hardly waits) .*\n\nr: 3 items in ", out, re.S), out


def test_a_role_without_a_sink_is_drained(write, call):
    write("roles: {r: [$Numbers: 5]}")
    code, out, _ = call("run", "t.yaml", "--role", "r", "--plugin", "mine")
    assert code == 0
    assert "r: 5 items in " in out


def test_a_stage_that_fails_is_one_message_and_exit_code_1(write, call):
    write("roles: {r: [$Numbers: 5, $FailAt: 3, $Say]}")
    code, _, error = call("run", "t.yaml", "--role", "r", "--plugin", "mine")
    assert code == 1
    assert error.startswith("highway: ValueError: no 3\n")
    assert "FailAt" in error
    assert "Traceback" not in error


def without_progress(error):
    """Leave out the lines that say how far it is, which come on a slow machine."""
    return re.sub(r"^\[\d+ s\] .*\n", "", error, flags=re.M)


@pytest.mark.slow
def test_every_role_and_replica_runs_in_a_process_of_its_own(write, start):
    write("roles:\n  one: [$Numbers: 2, $Say: a]\n  two:\n    replicas: 2\n    stages: [$Numbers: 1, $Pass]\n")
    run = start("run", "t.yaml", "--plugin", "mine")
    code, out, error = run.end()
    assert (code, without_progress(error)) == (0, "")
    assert re.findall(r"^one \| (.*)", out, re.M) == ["a 0", "a 1"]
    pids = re.findall(r"^(two\[.\]) \| pid (\d+) of (\d+)", out, re.M)
    assert sorted(name for name, _, _ in pids) == ["two[0]", "two[1]"]
    assert len({pid for _, pid, _ in pids}) == 2
    assert {int(parent) for _, _, parent in pids} == {run.process.pid}
    for name in ("one: 2", "two[0]: 1", "two[1]: 1"):
        assert f"\n{name} items in " in out


def test_a_role_that_fails_stops_the_others(write, call):
    write("roles: {bad: [$Numbers: 5, $FailAt: 3], good: [$Numbers, $Say]}")
    code, _, error = call("run", "t.yaml", "--plugin", "mine")
    assert code == 1
    assert "bad | highway: ValueError: no 3\n" in error
    assert error.endswith("highway: bad failed (exit code 1): ValueError: no 3\n")


def test_a_role_that_is_gone_without_a_word_is_a_failure_too(write, call):
    write("roles: {bad: [$Numbers: 5, $Exit: 0], good: [$Numbers, $Say]}")
    code, _, error = call("run", "t.yaml", "--plugin", "mine")
    assert code == 1
    assert error.endswith("highway: bad failed (exit code 0): it ended without an error message\n")


@pytest.mark.slow
def test_it_ends_when_the_sinks_end_even_if_a_source_does_not(folder, write, call):
    link = f"ipc://{folder}/link"
    write(f"roles:\n  endless: [Noise: [2], ZMQSink: '{link}']\n  end: [ZMQSource: '{link}', Take: 3, $Say]\n")
    code, out, error = call("run", "t.yaml", "--plugin", "mine")
    assert (code, without_progress(error)) == (0, "")
    assert len(re.findall(r"^end \| got ", out, re.M)) == 3
    assert "\nend: 3 items in " in out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("role", [[], ["--role", "a"]])
def test_signals_end_it_and_leave_nothing_behind(number, code, role, write, start, wait_until_gone):
    write("roles: {a: [$Numbers, $Pass], b: [$Numbers, $Pass]}")
    run = start("run", "t.yaml", "--plugin", "mine", *role)
    pids = run.pids(1 if role else 2)
    run.process.send_signal(number)
    ended, out, error = run.end()
    assert ended == code
    assert "Traceback" not in error
    assert "a: " in out, "the summary is missing"
    for pid in pids.values():
        wait_until_gone(pid)


@pytest.mark.slow
@pytest.mark.parametrize("link", ["ipc://{}/out", "zrpush+ipc://{}/out?receivers=1", "zpub+ipc://{}/out?receivers=1"])
def test_a_run_whose_external_trainer_is_not_there_is_drained_and_not_killed(folder, write, start, link):
    write(f"roles: {{reader: [Noise: [2], $Pass, ZMQSink: '{link.format(folder)}']}}")
    run = start("run", "t.yaml", "--plugin", "mine", "--drain-timeout", "60")
    run.pids(1)
    run.process.send_signal(signal.SIGTERM)
    code, _, error = run.end()
    assert code == 143 and "SIGKILL" not in error, error


@pytest.mark.slow
def test_a_second_signal_does_not_wait(write, start, wait_until_gone):
    write("roles: {a: [$Numbers, $Deaf]}")
    run = start("run", "t.yaml", "--plugin", "mine")
    pids = run.pids(1)
    run.process.send_signal(signal.SIGINT)
    run.error.until("")  # a warning of the stage that does not stop, or what follows
    run.process.send_signal(signal.SIGINT)
    assert run.end()[0] == 130
    for pid in pids.values():
        wait_until_gone(pid)


@pytest.mark.slow
def test_a_stage_that_does_not_stop_does_not_keep_its_process(write, start):
    write("roles: {a: [$Numbers, $Deaf]}")
    run = start("run", "t.yaml", "--plugin", "mine", "--role", "a", "--drain-timeout", "0.1")
    run.pids(1)
    run.process.send_signal(signal.SIGTERM)
    code, _, error = run.end()
    assert code == 1
    assert "does not stop" in error


def test_roles_die_with_their_launcher_even_if_that_is_killed(write, start, wait_until_gone):
    write("roles: {a: [$Numbers, $Pass], b: [$Numbers, $Pass]}")
    run = start("run", "t.yaml", "--plugin", "mine")
    pids = run.pids(2)
    run.process.kill()
    run.end()
    for pid in pids.values():
        wait_until_gone(pid)


@pytest.mark.slow
def test_a_role_that_holds_the_interpreter_dies_with_its_launcher_and_so_does_what_it_has_started(write, start, wait_until_gone):
    write("roles: {a: [$Numbers, $HoldInterpreter]}")
    run = start("run", "t.yaml", "--plugin", "mine")
    found = run.until(r"pid (\d+) programs (\d+) (\d+)")
    run.process.kill()
    for pid in found.groups():
        wait_until_gone(int(pid))


def test_the_line_break_after_a_long_line_is_no_empty_line(write, start):
    write("roles: {a: [$Numbers: {count: 2, hold: 1}, $LongLine]}")
    run = start("run", "t.yaml", "--plugin", "mine")
    run.until("x{1000}")
    Path("go").touch()
    assert [line for line in run.end()[1].splitlines() if line.startswith("a | ")] == [f"a | {'x' * 65_537}", "a | after it"]


def test_of_a_progress_bar_the_launcher_shows_the_last_state(write, start):
    write("roles: {a: [$Numbers: 1, $ShowProgress: {last: 150000}]}")
    _, out, _ = start("run", "t.yaml", "--plugin", "mine").end()
    lines = [line.removeprefix("a | ") for line in out.splitlines() if line.startswith("a | ")]
    states = [line for line in lines if not line.startswith("x")]
    assert states[-1] == "100% of it"
    assert len(states) < 100  # of 400,000
    assert "".join(line for line in lines if line.startswith("x")) == 150_000 * "x"


def costs_of(process):
    """Return the most memory that a process has had, in megabytes, and its seconds of processor time."""
    memory = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())[1]
    times = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return int(memory) / 1000, sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_a_progress_bar_costs_the_launcher_neither_memory_nor_much_processor_time(write, start):
    costs = []
    for states in (1000, 401_000):  # 23 MB more
        Path("go").unlink(missing_ok=True)
        write(f"roles: {{a: [$Numbers: {{count: 2, hold: 1}}, $ShowProgress: {{states: {states}}}]}}")
        run = start("run", "t.yaml", "--plugin", "mine")
        run.until("100% of it")
        costs.append(costs_of(run.process.pid))
        run.process.send_signal(signal.SIGINT)
        run.end()
    (less_memory, less_time), (more_memory, more_time) = costs
    assert more_memory - less_memory < 10
    assert more_time - less_time < 2


@pytest.mark.slow
def test_a_file_of_the_user_named_highway_does_not_take_the_place_of_highway(folder, write):
    (folder / "highway.py").write_text("raise SystemExit('the wrong highway')")
    write("roles: {r: [ImageFileReader: {data_dir: 'highway:photos/val', batch_size: 8, shape: [8, 8], epochs: 1}]}")
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    command = [sys.executable, "-P", "-m", "highway", "run", "t.yaml"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert (done.returncode, without_progress(done.stderr)) == (0, "")
    assert "r: 4 items in " in done.stdout


@pytest.mark.slow
def test_a_terminal_shows_a_live_table_and_the_lines_above_it(write):
    write("roles: {a: [$Numbers, $Say: item], b: [$Numbers: 5]}")
    screen, terminal = os.openpty()
    environment = {**os.environ, "PYTHONPATH": str(HOME), "COLUMNS": "150", "TERM": "xterm"}
    command = [sys.executable, "-m", "highway", "run", "t.yaml", "--plugin", "mine"]
    with subprocess.Popen(command, env=environment, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        shown, awaited = b"", [rb"\n\s*a +Numbers [^\n]*\s+Say +\d", rb"\n\s*b +Numbers +5 "]  # rows of the table
        with contextlib.suppress(OSError):  # how Linux says that the other end of a terminal is closed
            while data := os.read(screen, 65536):
                shown += data
                if awaited:
                    latest = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown[-len(data) - 10_000 :])
                    awaited = [row for row in awaited if not re.search(row, latest)]
                    if not awaited:
                        process.send_signal(signal.SIGINT)
    os.close(screen)
    assert process.returncode == 130
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "a | item 0\r\n" in plain
    assert re.search(r"role +stage +items +items/s +MB/s +busy +starved +blocked +queued +errors", plain)
    assert re.search(r"^\s*a +Numbers +\d", plain, re.M)
    assert re.search(r"^\s*b +Numbers +5 ", plain, re.M)
    assert re.search(r"a: [\d,]+ items in ", plain)
