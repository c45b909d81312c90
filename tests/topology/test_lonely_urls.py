"""A URL in a stage whose other end nobody in the file has, and hosts of a file that are one machine."""

import ipaddress
import sys

import pytest

from highway.cli import main
from highway.topology import load


def file(send, receive, rest=""):
    return f"roles:\n  a: [Noise: [2], ZMQSink: '{send}']\n  b: [ZMQSource: '{receive}', Benchmark]\n{rest}"


def test_two_ports_that_do_not_meet_are_a_warning_that_says_how_to_declare_who_is_elsewhere(write, ask):
    path = write(file("zpush://127.0.0.1:15702", "zpull://127.0.0.1:15703"))
    code, out, _ = ask("check", path)
    first, second, last = out.splitlines()[-3:]
    assert code == 0
    assert first == (
        f"warning: {path}:2: roles.a[1]: no role in the file receives from tcp://127.0.0.1:15702, so a waits for another program. Correct "
        "the address, or declare the other program as a role with  external: true  whose stages have this URL"
    )
    assert second.startswith(f"warning: {path}:3: roles.b[0]: no role in the file sends to tcp://127.0.0.1:15703, so b waits")
    assert last == f"{path}: no errors; see the warnings above"


def test_two_hosts_that_are_not_one_machine_do_not_meet_at_the_same_port(write, ask):
    path = write(file("zpush://127.0.0.1:15702", "zpull://127.0.0.9:15702"))
    first, second, _ = ask("check", path)[1].splitlines()[-3:]
    assert "no role in the file receives from tcp://127.0.0.1:15702" in first
    assert "no role in the file sends to tcp://127.0.0.9:15702" in second


@pytest.mark.parametrize(
    ("send", "receive", "rest"),
    [
        ("zpush://127.0.0.1:15702", "zpull://127.0.0.1:15702", ""),
        ("zpub://*:15702", "zsub://localhost:15702", ""),
        ("zpub://0.0.0.0:15702", "zsub://127.0.0.9:15702", ""),
        ("zpub://127.0.0.1:15702", "zsub://localhost:15702", ""),
        ("zpush+ipc://x", "zpull+ipc://x", ""),
        (
            "zpush://127.0.0.1:1",
            "zpull://127.0.0.1:2",
            "  c: {external: true, stages: [ZMQSource: 'zpull://127.0.0.1:1', ZMQSink: 'zpush://127.0.0.1:2']}",
        ),
    ],
)
def test_urls_with_both_ends_in_the_file_are_no_warning(write, ask, send, receive, rest):
    path = write(file(send, receive, rest))
    assert ask("check", path)[1].splitlines()[-1] == f"{path}: no errors"


def test_each_host_of_a_file_that_is_run_on_one_machine_has_an_address_of_its_own(tmp_path):
    path = tmp_path / "t.yaml"
    hosts = "".join(f"  h{number}: 10.0.{number // 256}.{number % 256}\n" for number in range(700))
    path.write_text(f"hosts:\n{hosts}roles: {{a: [Noise: [2]]}}\n")
    plan = load(path).on_this_machine().plan
    found = [ipaddress.ip_address(plan.address(f"h{number}")) for number in range(700)]
    assert len(set(found)) == 700
    assert all(one.is_loopback and 0 < one.packed[-1] < 255 for one in found)
    assert [str(found[number]) for number in (0, 1, 299)] == ["127.0.0.1", "127.0.0.2", "127.0.1.46"]


def test_the_stages_of_a_role_are_built_once_for_all_that_a_check_tells(write, tmp_path, monkeypatch):
    (tmp_path / "highway_test_counted.py").write_text(
        "built = []\nclass Counted:\n    def __init__(self): built.append(self)\n    def __call__(self, item): return item\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    path = write("roles:\n  a: [Noise: [2], 'highway_test_counted:Counted', Benchmark]\n")
    assert main(["check", str(path), "--plugin", "highway_test_counted"]) == 0
    assert len(sys.modules.pop("highway_test_counted").built) == 1
