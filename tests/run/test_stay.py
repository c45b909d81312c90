"""What an engine needs that starts processes again and gives them names late: ``highway run --stay`` and ``--any-order``."""

import os
import signal
import urllib.request

import pytest

ONE = "roles: {numbers: [Noise: {shape: [2, 2], count: 3}]}"
AWAY = """
hosts: {here: 127.0.0.1, away: no-such-name.invalid}
links: {raw: {from: numbers, to: trainer, port: PORT, bind: to}}
roles:
  numbers: {hosts: here, stages: [Noise: {shape: [2, 2], count: 1}, ZMQSink: {link: raw}]}
  trainer: {hosts: away, stages: [ZMQSource: {link: raw}, Benchmark: 9]}
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_role_that_stays_says_what_it_has_done_and_ends_well_when_it_is_asked_to(start, write, number):
    run = start("run", write(ONE), "--role", "numbers", "--stay", "--metrics", "0")
    url = run.error.until(r"metrics at (\S+)")[1]
    run.until(r"numbers: 3 items")
    text = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=30).read().decode()
    assert 'highway_role_up{replica="0",role="numbers"} 0.0' in text and "highway_role_load{" not in text
    os.kill(run.process.pid, number)
    code, out, _ = run.end()
    assert (code, out.count("numbers: 3 items")) == (0, 1), "it is said once"


@pytest.mark.slow
def test_a_role_that_fails_does_not_stay(call, write):
    code, _, error = call("run", write("roles: {r: [$Numbers: {count: 3}, $FailAt: 1]}"), "--plugin", "mine", "--role", "r", "--stay")
    assert code == 1, error


def test_only_one_process_stays(ask, write):
    said = "highway: --stay needs a --role with one process on this machine, which then waits\n"
    assert ask("run", write(ONE), "--stay") == (2, "", said)


@pytest.mark.slow
def test_in_any_order_a_name_may_have_no_address_yet(call, start, write):
    file = write(AWAY.replace("PORT", "5555"))
    code, _, error = call("run", file, "--role", "numbers")
    assert code == 2 and "this machine finds no address for the name no-such-name.invalid" in error
    run = start("run", file, "--role", "numbers", "--any-order")
    run.error.until("the name 'no-such-name.invalid' has no address yet")
    os.kill(run.process.pid, signal.SIGINT)
    assert run.end()[0] == 130
