"""Starting failed processes again."""

import os
import re
from pathlib import Path

import pytest
from topologies import place

from highway import ConfigError
from highway.process.cores import ONE_THREAD
from highway.run.replica import Restarts
from highway.topology import load
from highway.topology.spec import RestartSpec

LINKS = """
links:
  raw: {from: reader, to: worker, transport: shm}
  done: {from: worker, to: trainer, transport: shm, bind: to}
roles:
"""


def test_the_delay_doubles_up_to_its_limit():
    restarts = Restarts(RestartSpec("on-failure", at_most=6, delay_s=1, max_delay_s=10))
    assert [restarts.delay(0.0) for _ in range(7)] == [1, 2, 4, 8, 10, 10, None]


def test_a_process_that_ran_long_enough_begins_a_new_row():
    restarts = Restarts(RestartSpec("on-failure", at_most=2, delay_s=1, max_delay_s=10))
    assert [restarts.delay(ran) for ran in (0, 9.9, 10.0, 0, 0)] == [1, 2, 1, 2, None]


def test_a_long_row_is_no_overflow():
    restarts = Restarts(RestartSpec("always", at_most=5000))
    assert [restarts.delay(0.0) for _ in range(3000)][-1] == 30


@pytest.mark.parametrize(("when", "follows"), [("never", (False, False)), ("on-failure", (True, False)), ("always", (True, True))])
def test_what_is_followed_by_a_start(when, follows):
    restarts = Restarts(RestartSpec(when))
    assert (restarts.follow(failed=True), restarts.follow(failed=False)) == follows


@pytest.mark.parametrize(
    ("written", "spec"),
    [
        ("on-failure", RestartSpec("on-failure", 10, 0.5, 30)),
        ("{}", RestartSpec("on-failure", 10, 0.5, 30)),
        ("{when: always, at_most: 3, delay_s: 1}", RestartSpec("always", 3, 1, 30)),
    ],
)
def test_a_file_says_when(write, written, spec):
    assert load(write(f"roles: {{r: {{restart: {written}, stages: [Noise]}}, s: [Noise]}}")).roles["r"].restart == spec


def test_by_default_nothing_is_started_again(write):
    assert load(write("roles: {r: [Noise]}")).roles["r"].restart.when == "never"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("sometimes", "roles.r.restart: got str 'sometimes'; expected one of always, never, on-failure"),
        ("{at_most: 0}", "roles.r.restart.at_most: expected int >= 1, got int 0"),
        ("{delay: 1}", "roles.r.restart.delay: unknown key 'delay'; did you mean delay_s?"),
        ("{delay_s: 60}", "roles.r.restart.max_delay_s: 30 is less than delay_s, 60"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(write, written, message):
    path = write(f"roles:\n  r:\n    restart: {written}\n    stages: [Noise]\n")
    with pytest.raises(ConfigError) as raised:
        load(path)
    assert str(raised.value) == f"{path}:3: {message}"


@pytest.mark.slow
def test_a_worker_that_is_killed_is_started_again_and_the_stream_goes_on(write, call, numbers):
    path = write(
        LINKS
        + """
          reader: [$Numbers: {count: 200}, ZMQSink: {link: raw}]
          worker:
            restart: {when: on-failure, delay_s: 0.1}
            stages: [ZMQSource: {link: raw}, $KillAt: 50, ZMQSink: {link: done}]
          trainer: [ZMQSource: {link: done}, $Say]
        """
    )
    code, out, error = call("run", path, "--plugin", "mine")
    got = numbers(out)
    assert code == 0, error
    assert "highway | worker failed (killed by SIGKILL): it ended without an error message; restarts in 0.1 s (restart 1 of 10)\n" in error
    assert got == sorted(set(got))
    assert got[:40] == list(range(40))
    assert got[-1] == 199
    assert re.search(r"^worker: \d+ items in .* since restart 1$", out, re.M)


@pytest.mark.slow
@pytest.mark.parametrize(("restart", "kill"), [("never", ""), ("never", ", $KillAt: 5"), ("on-failure", ", $KillAt: 5")])
def test_nothing_is_left_of_sockets(write, call, kill, restart):
    path = write(
        f"""
        links:
          raw: {{from: reader, to: worker, transport: ipc}}
          done: {{from: worker, to: trainer, transport: ipc}}
        roles:
          reader: [$Numbers: {{count: 20}}, ZMQSink: {{link: raw}}]
          worker: {{restart: {restart}, stages: [ZMQSource: {{link: raw}}{kill}, ZMQSink: {{link: done}}]}}
          trainer: [ZMQSource: {{link: done}}, $Say]
        """
    )
    code, _, error = call("run", path, "--plugin", "mine")
    assert code == (bool(kill) and restart == "never"), error
    plan = load(path).plan
    paths = plan.socket_paths(plan.processes())
    assert [Path(path).name.rpartition("-")[0] for path in paths] == [f"{Path(path).stem}-raw-0", f"{Path(path).stem}-done-0"]
    assert [path for path in paths if os.path.lexists(path)] == []


@pytest.mark.slow
def test_a_worker_that_is_killed_in_the_middle_of_a_report_is_started_again(write, call, numbers):
    path = write("roles: {a: {restart: {delay_s: 0.1}, stages: [$Numbers: {count: 9}, $KillInReport: 5, $Say]}}")
    code, out, error = call("run", path, "--plugin", "mine")
    assert code == 0, error
    assert "highway | a failed (killed by SIGKILL): it ended without an error message; restarts in 0.1 s (restart 1 of 10)\n" in error
    assert numbers(out)[-9:] == list(range(9))


@pytest.mark.slow
def test_one_that_fails_again_and_again_ends_the_run(write, call):
    path = write(
        """
        roles:
          bad:
            restart: {when: on-failure, at_most: 2, delay_s: 0.05}
            stages: [$Numbers, $FailAt: 3]
          good: [$Numbers, $Say]
        """
    )
    code, _, error = call("run", path, "--plugin", "mine")
    assert code == 1
    assert re.findall(r"^highway \| bad failed .*; (restarts in .*)", error, re.M) == [
        "restarts in 0.05 s (restart 1 of 2)",
        "restarts in 0.1 s (restart 2 of 2)",
    ]
    assert error.endswith("highway: bad failed (exit code 1): ValueError: no 3; not restarted, because restart 2 of 2 was the last\n")


@pytest.mark.slow
def test_one_that_ends_as_it_should_is_started_again_only_if_that_is_always(write, call, numbers):
    path = write(
        """
        roles:
          often: {restart: {when: always, at_most: 2, delay_s: 0.05}, stages: [$Numbers: {count: 1}, $Say: often]}
          once: {restart: on-failure, stages: [$Numbers: {count: 1}, $Say: once]}
        """
    )
    code, out, error = call("run", path, "--plugin", "mine")
    assert (code, numbers(out, "often"), numbers(out, "once")) == (0, [0, 0, 0], [0])
    assert "highway | often has ended; restarts in 0.05 s (restart 1 of 2)\n" in error
    assert "highway | often has ended; not restarted, because restart 2 of 2 was the last\n" in error


@pytest.mark.slow
def test_one_that_nothing_feeds_any_more_is_not_started_again(write, start, wait_until_gone):
    path = write(
        LINKS
        + """
          reader: [$Numbers: {count: 5}, $Pass, ZMQSink: {link: raw, end: false}]
          worker: {restart: on-failure, stages: [ZMQSource: {link: raw}, $FailWhen: now, ZMQSink: {link: done}]}
          trainer: [ZMQSource: {link: done}, $Say]
        """
    )
    run = start("run", path, "--plugin", "mine")
    wait_until_gone(int(run.until(r"pid (\d+)")[1]))
    Path("now").touch()
    code, _, error = run.end()
    assert code == 1
    assert error.endswith("highway: worker failed (exit code 1): ValueError: now; not restarted, because reader ended before\n")


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["tcp", "ipc", "shm"])
def test_a_kill_that_restart_allows_leaves_the_exit_code_0_also_after_the_last_item_was_sent(write, start, wait_until_gone, transport):
    path = write(
        re.sub("transport: shm", lambda _: place(transport), LINKS)
        + """
          reader: [$Numbers: {count: 5}, $Pass, ZMQSink: {link: raw, end: false}]
          worker: {restart: on-failure, stages: [ZMQSource: {link: raw}, $KillWhen: now, ZMQSink: {link: done}]}
          trainer: [ZMQSource: {link: done}, $Say]
        """
    )
    run = start("run", path, "--plugin", "mine")
    wait_until_gone(int(run.until(r"pid (\d+)")[1]))
    Path("now").touch()
    code, _, error = run.end()
    assert code == 0, error
    assert (
        "highway | worker failed (killed by SIGKILL): it ended without an error message; not restarted, because reader ended before\n"
        in error
    )
    assert re.search(r"^highway: worker was killed by SIGKILL: .* that it had received .* lost$", error, re.M)


@pytest.mark.slow
def test_a_sink_that_is_killed_after_the_last_item_was_sent_fails_the_run(write, start, wait_until_gone):
    path = write(
        """
        links:
          raw: {from: reader, to: trainer, transport: shm}
        roles:
          reader: [$Numbers: {count: 5}, $Pass, ZMQSink: {link: raw, end: false}]
          trainer: {restart: on-failure, stages: [ZMQSource: {link: raw}, $KillWhen: now, $Say]}
        """
    )
    run = start("run", path, "--plugin", "mine")
    wait_until_gone(int(run.until(r"pid (\d+)")[1]))
    Path("now").touch()
    code, _, error = run.end()
    assert code == 1, error
    assert error.endswith("it ended without an error message; not restarted, because reader ended before\n")


@pytest.mark.slow
def test_numerical_libraries_get_one_thread_unless_somebody_says_otherwise(write, call):
    stages = "stages: [$Numbers: {count: 1}, $SayEnvironment: {names: [OMP_NUM_THREADS, OPENBLAS_NUM_THREADS, MKL_NUM_THREADS]}]"
    path = write(f"roles: {{a: {{env: {{MKL_NUM_THREADS: '3'}}, {stages}}}}}")
    for role in ([], ["--role", "a"]):
        _, out, _ = call("run", path, "--plugin", "mine", *role, **{**dict.fromkeys(ONE_THREAD), "OMP_NUM_THREADS": "2"})
        assert re.search(r"^(a \| )?2 1 3$", out, re.M)
