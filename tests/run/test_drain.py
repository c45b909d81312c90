"""Ending without losing what is in flight, and processes that come and go while the rest runs."""

import re
from pathlib import Path

import pytest
from topologies import place

from highway.run.control import JOINED, ControlServer, find
from highway.topology import load
from highway.topology.wiring import Wiring

LINKS = """
links:
  raw: {{from: reader, to: worker, {raw}}}
  done: {{from: worker, to: trainer, {done}, bind: to}}
roles:
  reader: [$Numbers: {numbers}, ZMQSink: {{link: raw}}]
  worker:
    replicas: {workers}
    stages: [ZMQSource: {{link: raw}}, $Pass: {work}, ZMQSink: {{link: done}}]
  trainer: [ZMQSource: {{link: done}}, $Say]
"""


def three(numbers="{until: stop}", workers=2, transport="shm", work=0.0):
    return LINKS.format(numbers=numbers, workers=workers, raw=place(transport), done=place(transport), work=work)


def assert_nothing_is_lost(ended, numbers, code=0):
    """Check that a run ended as it should, and return how many items arrived: each once, in whatever order."""
    found, out, error = ended
    got = numbers(out)
    assert found == code, error
    assert "did not arrive" not in error  # nor does the closing table say so
    assert sorted(got) == list(range(len(got)))
    return len(got)


@pytest.fixture(params=["shm", "ipc", "tcp"])
def joined(write, start, request):
    """A run with one worker that ends with the file ``stop``, its topology, and another worker that has joined it."""
    path = write(three(workers=1, transport=request.param))
    run = start("run", path, "--plugin", "mine")
    run.pids(1)
    other = start("run", path, "--plugin", "mine", "--role", "worker")
    other.pids(1)
    return run, path, other


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["shm", "ipc"])
def test_a_worker_is_drained_in_mid_stream_and_nothing_is_lost(write, start, call, numbers, wait_until_gone, transport):
    path = write(three(transport=transport))
    run = start("run", path, "--plugin", "mine")
    pids = run.pids(2)
    code, out, error = call("drain", path, "--role", "worker", "--replica", "1")
    assert (code, error) == (0, "")
    delivered = int(re.fullmatch(r"worker\[1\] has ended; it delivered ([\d,]+) items\n", out)[1].replace(",", ""))
    wait_until_gone(pids["worker[1]"])
    for _ in range(100):  # of whatever numbers: those of a worker that stood still come late
        run.until(r"got \d+$")
    assert call("drain", path, "--role", "worker", "--replica", "1") == (
        2,
        "",
        f"highway: --replica 1: the role worker of {path} has no process with this number on this machine; expected one of 0\n",
    )
    Path("stop").touch()
    _, out, error = ended = run.end()
    assert_nothing_is_lost(ended, numbers)
    assert f"\nworker[1]: {delivered:,} items in " in out
    assert "failed" not in error
    assert "restarts in" not in error


@pytest.mark.slow
def test_over_zeromq_nothing_is_lost_of_what_has_arrived(write, start, call, numbers):
    path = write(three("{hold: 50, until: stop}", transport="ipc"))
    run = start("run", path, "--plugin", "mine")
    got = [int(run.until(r"got (\d+)$")[1]) for _ in range(50)]
    assert sorted(got) == list(range(50))
    assert call("drain", path, "--role", "worker", "--replica", "0")[0] == 0
    Path("go").touch()
    run.until(r"got 150$")
    Path("stop").touch()
    assert_nothing_is_lost(run.end(), numbers)


@pytest.mark.slow
def test_sigterm_delivers_what_is_in_flight(write, start, numbers):
    path = write(three("{every: 0.0005}", work=0.003))
    run = start("run", path, "--plugin", "mine")
    run.until(r"got 50$")
    run.process.terminate()
    _, out, error = ended = run.end()
    count = assert_nothing_is_lost(ended, numbers, 143)
    assert error.splitlines()[-1] == "highway: terminated"
    assert f"\nreader: {count:,} items in " in out
    assert "killed" not in error


@pytest.mark.slow
def test_sigterm_without_time_to_drain_stops_at_once(write, start):
    path = write("roles: {a: [$Numbers: {every: 0}, $Say: {every: 1000}]}")
    run = start("run", path, "--plugin", "mine", "--drain-timeout", "0")
    run.until("got 0")
    run.process.terminate()
    assert run.end()[0] == 143


@pytest.mark.slow
def test_the_roles_of_a_launcher_that_is_killed_do_not_take_the_time_to_drain(write, start, wait_until_gone):
    path = write("roles: {a: [$Numbers: {every: 0}, $Pass, $Say: {every: 1000}]}")
    run = start("run", path, "--plugin", "mine", "--drain-timeout", "1000")
    pids = run.pids(1)
    run.process.kill()
    wait_until_gone(pids["a"])


@pytest.mark.slow
def test_one_role_delivers_what_is_in_flight_too(write, start, numbers):
    path = write("roles: {a: [$Numbers, $Pass: 0.01, $Say]}")
    run = start("run", path, "--plugin", "mine", "--role", "a")
    run.until("got 5$")
    run.process.terminate()
    code, out, error = run.end()
    got = numbers(out)
    assert code == 143
    assert got == list(range(len(got)))
    assert f"\na: {len(got):,} items in " in out
    assert "draining" in error


@pytest.mark.slow
def test_a_drain_that_takes_too_long_is_a_stop_and_says_so(write, start):
    path = write("roles: {a: [$Numbers, $Say: {every: 1000}]}")
    run = start("run", path, "--plugin", "mine", "--role", "a", "--drain-timeout", "0.3")
    run.until("got 0")
    run.process.terminate()
    code, _, error = run.end()
    assert code == 143
    assert "not drained within 0.3 s; items still in flight are lost" in error


@pytest.mark.slow
def test_a_second_sigterm_does_not_wait_for_the_drain(write, start):
    path = write("roles: {a: [$Numbers, $Say: {every: 1000}]}")
    run = start("run", path, "--plugin", "mine", "--role", "a", "--drain-timeout", "1000")
    run.until("got 0")
    run.process.terminate()
    run.error.until("draining")
    run.process.terminate()
    assert run.end()[0] == 143


@pytest.mark.slow
def test_a_worker_that_joins_takes_its_share_and_all_items_arrive(joined, numbers):
    run, _, other = joined
    for _ in range(100):  # of whatever numbers: those of a worker that stood still come late
        run.until(r"got \d+$")
    Path("stop").touch()
    code, out, error = other.end()
    assert code == 0, error
    assert "another process of worker already runs here with the number 0; use number 1 to drain this process with `highway drain`" in error
    share = int(re.search(r"^worker: ([\d,]+) items in ", out, re.M)[1].replace(",", ""))
    assert 0 < share < assert_nothing_is_lost(run.end(), numbers)


@pytest.mark.slow
def test_a_worker_that_has_joined_is_drained_by_its_number(joined, call, numbers):
    run, path, other = joined
    code, out, error = call("drain", path, "--role", "worker", "--replica", "1")
    assert (code, error) == (0, "")
    assert out.startswith("worker[1] has ended; it delivered ")
    assert other.end()[0] == 0
    Path("stop").touch()
    assert_nothing_is_lost(run.end(), numbers)


@pytest.mark.slow
def test_a_role_of_another_file_with_the_same_name_and_port_takes_nothing(write, start, numbers):
    path = write(three("{count: 20, hold: 10}", transport="tcp"))
    other = Path("other", Path(path).name)
    other.parent.mkdir()
    other.write_bytes(Path(path).read_bytes())
    run = start("run", path, "--plugin", "mine")
    run.until("got 5$")
    stranger = start("run", str(other), "--plugin", "mine", "--role", "worker", "--drain-timeout", "0")
    stranger.error.until(f"does not belong to the topology file of this end, {other.resolve()}")
    Path("go").touch()
    assert assert_nothing_is_lost(run.end(), numbers) == 20
    stranger.process.terminate()
    assert re.search(r"^ZMQSource +1 +0 ", stranger.end()[1], re.M)


@pytest.mark.slow
def test_what_is_drained_is_not_started_again(write, start, call):
    path = write("roles: {a: {restart: always, stages: [$Numbers, $Say]}}")
    run = start("run", path, "--plugin", "mine")
    run.until("got 0")
    code, out, _ = call("drain", path, "--role", "a")
    assert (code, re.sub(r"[\d,]+", "N", out)) == (0, "a has ended; it delivered N items\n")
    assert run.end()[0] == 0


@pytest.mark.slow
def test_draining_what_does_not_run_is_exit_code_2(write, call):
    path = write("roles: {a: {replicas: 2, stages: [$Numbers]}}")
    message = f"highway: no process of the role a of {path} was found; this command finds only your own processes on this machine\n"
    assert call("drain", path, "--role", "a") == (2, "", message)
    assert call("drain", path, "--role", "b") == (2, "", f"highway: {path}: no role 'b'; expected one of a\n")


# --- the control server ---


@pytest.fixture
def key(write):
    return load(write("roles: {a: {replicas: 2, stages: [Noise]}}")).key("a")


def test_processes_have_the_numbers_of_their_replicas_and_others_the_free_ones_behind(key):
    with ControlServer(key, 1) as second, ControlServer(key, 1) as third:
        with ControlServer(key, 1) as fourth:
            assert [control.number for control in (second, third, fourth)] == [1, 2, 3]
            found = find(key)
            assert [(process.name, process.number) for process in found] == [("a[1]", 1), ("a[2]", 2), ("a[3]", 3)]
            for process in found:
                process.connection.close()
        with ControlServer(key, 0) as first, ControlServer(key, 0) as other:
            assert (first.number, other.number) == (0, 3)
    assert find(key) == []


def test_a_process_for_which_there_is_no_number_left_runs_without(key):
    controls = []
    for _ in range(JOINED + 2):
        controls.append(ControlServer(key, 0))
    assert [control.number for control in controls] == [0, *range(2, JOINED + 2), None]
    assert controls[-1].sockets == []
    for control in controls:
        control.__exit__(None, None, None)


def test_only_who_says_so_drains(key):
    asked = []
    with ControlServer(key, 0, lambda: asked.append(True)) as control:
        (process,) = find(key)
        with process.connection:
            assert not control.poll(control.sockets)
            process.connection.send(b"hello")
            assert not control.poll(control.sockets)
            assert process.answer() is None
        (process,) = find(key)
        with process.connection:
            process.ask()
            assert not control.poll(control.sockets)
            assert control.poll(control.sockets)
            assert control.poll([])
            control.answer(12, True)
            assert process.answer() == (12, True)
    assert asked == [True]


def test_the_flow_of_a_topology_is_seen_in_links_and_addresses(write):
    text = three() + "  a: [Noise, ZMQSink: 'ipc:///tmp/x']\n  b: [ZMQSource: 'ipc:///tmp/x']\n"
    topology = load(write(text.replace("$Numbers: {until: stop}", "Noise").replace("$Pass: 0.0", "Identity").replace("$Say", "Identity")))
    ends = topology.plan.processes()
    assert Wiring(topology, ends).feeders == {"reader": set(), "worker": {"reader"}, "trainer": {"worker"}, "a": set(), "b": {"a"}}
    assert Wiring(topology, ends).sinks == {"trainer", "b"}
    here = [end for end in ends if end.role == "worker"]
    assert Wiring(topology, here).feeders == {"worker": set()}
