"""``highway unit``: what systemd is told to run, and when to start it again."""

import configparser
import os
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highway.cli import main
from highway.errors import ConfigError
from highway.run import supervise
from highway.run.launcher import STOP_SECONDS
from highway.run.launchers.systemd import HOSTNAME, unit

HOSTS = """
vars: {count: 1}
hosts: {here: 127.0.0.1, away: 10.0.0.9, idle: 10.0.0.10}
roles:
  numbers: {hosts: here, stages: [{Noise: {shape: [2, 2], count: "${count}"}}]}
  others: {hosts: away, stages: [{Noise: {shape: [2, 2], count: 1}}]}
"""


def read(text):
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read_string(text)
    return parser


def words(line, hostname="here"):
    """Return the words of a command line as systemd starts them on a machine."""
    return [hostname if word == HOSTNAME else word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line)]


@pytest.fixture
def printed(tmp_path, monkeypatch, capsys):
    """Print a unit for the file ``t.yaml`` and return it, parsed."""
    monkeypatch.chdir(tmp_path)

    def printed(text, *options):
        (tmp_path / "t.yaml").write_text(text)
        assert main(["unit", "t.yaml", *options]) == 0
        return read(capsys.readouterr().out)

    return printed


def test_the_unit_runs_the_part_of_the_machine_that_it_is_started_on(printed, tmp_path):
    service = printed(HOSTS, "--set", "count=3")["Service"]
    program, *arguments = words(service["ExecStart"], hostname="gpu7")
    assert os.path.isabs(program)
    assert arguments[-5:] == ["run", str(tmp_path / "t.yaml"), "--set=count=3", "--host", "gpu7"]
    assert service["WorkingDirectory"] == str(tmp_path)


@pytest.mark.slow
def test_the_command_of_the_unit_runs(printed):
    command = words(printed(HOSTS, "--set", "count=3")["Service"]["ExecStart"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "numbers: 3 items" in done.stdout and "others" not in done.stdout


def test_a_machine_may_be_called_otherwise_in_the_file(printed):
    assert words(printed(HOSTS, "--host", "away")["Service"]["ExecStart"])[-2:] == ["--host", "away"]


def test_of_a_file_without_hosts_everything_is_run(printed):
    file = "roles: {numbers: [{Noise: {shape: [2, 2], count: 1}}]}"
    assert words(printed(file)["Service"]["ExecStart"])[-2:] == ["run", os.path.abspath("t.yaml")]


def test_it_is_started_again_after_a_failure_and_left_alone_after_a_stop(printed):
    service = printed(HOSTS)["Service"]
    assert service["Restart"] == "on-failure"
    assert service["SuccessExitStatus"] == "143", "what highway returns after the SIGTERM of `systemctl stop`"
    assert (service["KillMode"], service["KillSignal"]) == ("mixed", "SIGTERM")
    assert int(service["TimeoutStopSec"]) > supervise.DRAIN + 2 * supervise.STOP_TIMEOUT


def test_systemd_waits_for_a_longer_drain_too(printed):
    service = printed(HOSTS, "--drain-timeout", "59.5")["Service"]
    assert "--drain-timeout=59.5" in words(service["ExecStart"])
    assert int(service["TimeoutStopSec"]) == 60 + STOP_SECONDS


def test_the_systems_unit_names_a_user_and_waits_for_the_network_and_a_users_own_does_neither(printed):
    system, own = printed(HOSTS), printed(HOSTS, "--user")
    assert system["Service"]["User"]
    assert system["Unit"]["After"] == system["Unit"]["Wants"] == "network-online.target"
    assert system["Install"]["WantedBy"] == "multi-user.target"
    assert "User" not in own["Service"] and "After" not in own["Unit"]
    assert own["Install"]["WantedBy"] == "default.target"


@pytest.mark.parametrize(
    ("host", "message"),
    [("awya", "t.yaml: no host 'awya'; did you mean away?"), ("idle", "t.yaml: nothing runs on idle; its roles are on away, here")],
)
def test_a_host_that_runs_nothing_is_refused(printed, tmp_path, capsys, host, message):
    printed(HOSTS)
    assert main(["unit", "t.yaml", "--host", host]) == 2
    assert capsys.readouterr().err == f"highway: {message}\n"


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"], include_characters=" "), min_size=0)))
def test_any_word_reaches_the_program_as_it_was(arguments):
    service = read(unit("a", ["/bin/x", *arguments], "/", None, 0))["Service"]
    assert words(service["ExecStart"], HOSTNAME) == ["/bin/x", *arguments]


@pytest.mark.parametrize("directory", ["/data\\", "/data ", "/da\nta"])
def test_a_directory_that_a_unit_cannot_name_is_refused(directory):
    with pytest.raises(ConfigError, match="cannot be part of a unit"):
        unit("feed", ["/bin/highway"], directory, None, 1.0)


def test_no_host_has_files_written_outside_the_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "t.yaml"
    path.write_text('hosts: {"..": 10.0.0.1}\nroles: {r: {hosts: "..", stages: [Noise: [2]]}}\n')
    assert main(["launch", str(path), "--on", "systemd", "--render", "units"]) == 2
    assert "would be outside this folder; give the host another name" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["t.yaml"]


def test_a_line_break_cannot_smuggle_in_a_setting():
    with pytest.raises(ConfigError, match="cannot be part of a unit"):
        unit("a", ["/bin/x", "--set=a=1\nExecStartPre=/bin/y"], "/", None, 0)
