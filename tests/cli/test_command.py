"""How the tools end: under their own names, and as commands of ``highway``."""

import itertools
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from highway.cli import main as highway_main
from highway.cli.command import COMMANDS, program

NAMES = {
    "tensormon": "mon",
    "tensorshow": "show",
    "tensorstat": "stat",
    "serve-imagenet-dir": "serve-dir",
    "serve-imagenet-shards": "serve-shards",
}
TOOLS = [command for command in COMMANDS if command.alone]
VIEWERS = [tool for tool in TOOLS if tool.alone.startswith("tensor")]
SERVERS = [tool for tool in TOOLS if tool.alone.startswith("serve")]
START = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from highway.cli.streams.{} import main
sys.exit(main())
"""


def by_name(tool):
    return tool.alone


def test_the_tools_are_tensorcoms():
    assert {tool.alone: tool.name for tool in TOOLS} == NAMES


@pytest.mark.parametrize("tool", TOOLS, ids=by_name)
def test_help_is_shown(tool, capsys):
    with pytest.raises(SystemExit) as end:
        program(tool.alone)(["--help"])
    assert end.value.code == 0
    assert tool.summary in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("tool", TOOLS, ids=by_name)
@pytest.mark.parametrize("url", ["zpsh://127.0.0.1:7880", "127.0.0.1:7880", "zsub://127.0.0.1:port", "zpub://"])
def test_a_wrong_url_is_wrong_usage_and_one_line(tool, url, capsys, tmp_path):
    options = {"serve-imagenet-shards": ["-u", "x.tar"], "serve-imagenet-dir": ["-d", str(tmp_path)]}.get(tool.alone, [])
    assert program(tool.alone)([url, *options]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"{tool.alone}: '{url}'") and err.count("\n") == 1


@pytest.mark.parametrize("tool", VIEWERS, ids=by_name)
def test_a_url_that_can_only_send_is_wrong_usage_for_who_receives(tool, capsys):
    assert program(tool.alone)(["zpub://127.0.0.1:7880"]) == 2
    assert "zpub can only send; to receive, use one of zpull, zsub" in capsys.readouterr().err


@pytest.mark.parametrize("tool", VIEWERS, ids=by_name)
def test_an_endpoint_without_a_server_ends_the_tool_after_the_timeout(tool, capsys, tmp_path):
    assert program(tool.alone)([f"zsub+ipc://{tmp_path}/nobody", "--timeout", "0.2"]) == 1
    err = capsys.readouterr().err
    assert err == (
        f"{tool.alone}: no batch arrived from zsub+ipc://{tmp_path}/nobody within 0.2 s; check that the server runs at this address\n"
    )


@pytest.mark.parametrize("tool", VIEWERS, ids=by_name)
def test_who_waits_for_ever_is_told_so(tool, capsys, tmp_path, monkeypatch):
    ticks = itertools.count()  # by which time goes on when it is asked for, however slow the machine is
    monkeypatch.setattr("highway.cli.streams.subscription.time", SimpleNamespace(monotonic=lambda: next(ticks) / 50))
    monkeypatch.setattr("highway.cli.streams.subscription.HINT_AFTER", 0.1)
    assert program(tool.alone)([f"zsub+ipc://{tmp_path}/nobody", "-t", "0.3"]) == 1
    assert capsys.readouterr().err.count("no batch has arrived") == 1


@pytest.mark.parametrize("option", [["-c", "0"], ["-c", "many"], ["-r", "-1"], ["--tolerance", "-1"], ["-m", "film"], ["--nonsense"]])
def test_an_option_out_of_range_is_wrong_usage(option, capsys):
    tool = next(tool for tool in VIEWERS if tool.alone == {"-r": "tensormon", "-m": "tensorshow"}.get(option[0], "tensorstat"))
    with pytest.raises(SystemExit) as end:
        program(tool.alone)(option)
    assert end.value.code == 2
    assert option[0] in capsys.readouterr().err


@pytest.mark.parametrize("module", ["mon", "show", "stat", "serve_dir"])
def test_ctrl_c_ends_a_tool_with_130_and_no_traceback(module, tmp_path):
    options = ["-d", "highway:photos", "-b", "4", f"zpub+ipc://{tmp_path}/s"] if module == "serve_dir" else [f"zsub+ipc://{tmp_path}/s"]
    process = subprocess.Popen(
        [sys.executable, "-c", START.format(module), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline().split()[0] in ("waiting", "reading", "serving")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=200)
    assert (process.returncode, err) == (130, "")


@pytest.mark.slow
def test_a_reader_that_has_read_enough_is_no_traceback(tmp_path):
    options = ["-d", "highway:photos", "-b", "4", "-B", "-r", "1", f"zpub+ipc://{tmp_path}/s"]
    command = [sys.executable, "-c", START.format("serve_dir"), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
    assert (process.wait(200), err) == (1, "")


@pytest.mark.parametrize("tool", TOOLS, ids=by_name)
def test_each_tool_is_a_command_of_highway(tool, capsys):
    with pytest.raises(SystemExit) as end:
        highway_main([tool.name, "--help"])
    assert end.value.code == 0
    assert f"usage: highway {tool.name}" in capsys.readouterr().out


def test_errors_and_their_tracebacks_are_shown_by_highway_too(tmp_path):
    command = [sys.executable, "-m", "highway", "mon", f"zsub+ipc://{tmp_path}/s", "-t", "0.1"]
    plain = subprocess.run(command, capture_output=True, text=True)
    assert plain.returncode == 1 and plain.stderr.startswith("highway mon: no batch arrived from zsub+ipc://")
    traced = subprocess.run([*command, "--traceback"], capture_output=True, text=True)
    assert traced.returncode == 1 and "Traceback (most recent call last)" in traced.stderr
