"""What links carried and lost, counted at both ends, at the end of a run; and that a run ends whoever was killed, and when."""

import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from forking import in_a_fork
from topologies import all_lost, lost_within, place

from highway.cli.summary import losses
from highway.engine.stats import PipelineStats, StageStats
from highway.observe.accounts import Departure, account
from highway.observe.snapshot import Ends
from highway.observe.state import ReplicaState
from highway.run.supervise import Result
from highway.topology import load
from highway.topology.plan import Process
from highway.topology.wiring import Wiring, depths_of
from highway.wire.tally import SENT, Counts, Tally

THREE = """
links:
  raw: {{from: reader, to: worker, {raw}}}
  done: {{from: worker, to: trainer, {done}, bind: to}}
roles:
  reader: [$Numbers: {{count: {count}, every: 0.0005}}, ZMQSink: {{link: raw}}]
  worker:
    replicas: 2
    restart: {{delay_s: {delay}}}
    stages: [ZMQSource: {{link: raw}}, {stage}, ZMQSink: {{link: done}}]
  trainer: [ZMQSource: {{link: done}}, $Say: {{every: {every}}}]
"""


def three(transport="ipc", count=400, delay=0.1, stage="$Pass", every=0.0):
    return THREE.format(raw=place(transport), done=place(transport), count=count, delay=delay, stage=stage, every=every)


def summary(out):
    """Return the JSON that a run printed, with its links by name."""
    found = json.loads(out)
    return found, {link["link"]: link for link in found["links"]}


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["ipc", "shm"])
def test_a_run_that_loses_nothing_says_so(write, call, transport):
    code, out, error = call("run", write(three(transport)), "--plugin", "mine", "--json")
    found, links = summary(out)
    assert (code, found["code"], found["losses"]) == (0, 0, []), error
    assert [(links[name]["sent"], links[name]["received"], links[name]["missing"]) for name in ("raw", "done")] == [(400, 400, 0)] * 2
    assert "did not arrive" not in error
    assert "trainer | got 399\n" in error


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["ipc", "shm"])
def test_what_a_killed_worker_loses_is_counted_to_the_last_message(write, call, numbers, transport):
    path = write(three(transport, count=800, stage="$KillAt: 300", every=0.001))
    code, out, error = call("run", path, "--plugin", "mine", "--json")
    found, links = summary(out)
    got = numbers(error)
    assert code == 0, error
    assert links["raw"]["sent"] == 800
    assert links["done"]["received"] == len(got)
    assert all_lost(found) == 800 - len(got) > 0
    for loss in found["losses"]:
        assert f"highway: {loss}\n" in error
        assert re.search(r"worker\[\d\] was killed by SIGKILL", loss)


@pytest.mark.slow
def test_the_closing_table_has_the_links(write, call):
    code, out, error = call("run", write(three(count=20)), "--plugin", "mine")
    assert code == 0, error
    assert re.search(r"^link  sent  received  missing\nraw     20        20        0\ndone    20        20        0\n", out, re.M)


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.01, 1.0])
def test_a_run_ends_when_a_worker_is_killed_at_the_last_item(write, call, delay):
    code, out, error = call("run", write(three(count=200, delay=delay, stage="$KillAt: 199")), "--plugin", "mine", "--json")
    found, links = summary(out)
    assert (code, found["message"]) == (0, ""), error
    assert re.search(
        r"^highway \| worker\[\d\] (failed \(killed by SIGKILL\): it ended without an error message; not restarted, because reader "
        r"ended before|"
        r"was killed by SIGKILL, and received no messages after its restart)$",
        error,
        re.M,
    )
    assert links["raw"]["sent"] == 200


@pytest.mark.slow
def test_an_interrupted_run_says_what_was_on_its_way(write, start):
    text = three(count=100_000, every=1000.0).replace("ZMQSink: {link: raw}", "$SayAndPass, ZMQSink: {link: raw}")
    run = start("run", write(text), "--plugin", "mine", "--json")
    run.error.until("item 200$")  # more than wait in the processes behind it while the trainer is at its first
    run.process.send_signal(signal.SIGINT)
    code, out, error = run.end()
    found, links = summary(out)
    assert code == found["code"] == 130
    assert links["raw"]["missing"] + links["done"]["missing"] > 0
    role, how = re.search(r"did not arrive: (\S+) was (stopped|killed by SIGKILL)", found["losses"][0]).groups()
    assert how == ("killed by SIGKILL" if f"{role} | does not end; it is killed" in error else "stopped")  # as where the machine is busy
    assert "Traceback" not in error


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["tcp", "ipc", "shm"])
@pytest.mark.parametrize("whole", [True, False], ids=["of the run", "of one worker"])
def test_what_a_drain_that_runs_out_of_time_loses_is_counted(write, start, call, numbers, transport, whole):
    text = three(transport, count=100_000, stage="$SayAndPass, $Wait: {until: go}").replace(
        "replicas: 2", "replicas: 1" if whole else "replicas: 2"
    )
    path = write(text.replace("every: 0.0005", "every: 0.0005, until: stop"))
    run = start("run", path, "--plugin", "mine", "--json", "--drain-timeout", "1")
    run.error.until("item 0$" if whole else r"worker\[0\] \| item \d+$")  # it has some, and hands on none
    if whole:
        run.process.send_signal(signal.SIGTERM)
    else:
        assert call("drain", path, "--role", "worker", "--replica", "0")[0] != 0
        Path("stop").touch()
        Path("go").touch()
    code, out, error = run.end()
    found, links = summary(out)
    assert code == (143 if whole else 0), error
    assert all_lost(found) == links["raw"]["sent"] - len(numbers(error))
    assert lost_within(found) > 0
    assert re.search(r"^highway: worker\S* was stopped: .* that it had received .* lost$", error, re.M)


@pytest.mark.slow
def test_one_role_that_is_not_drained_in_time_says_what_is_lost(write, start):
    path = write(three(count=100_000, stage="$SayAndPass, $Wait: {until: go}").replace("replicas: 2", "replicas: 1"))
    options = ("--plugin", "mine", "--json", "--drain-timeout", "1", "--role")
    run, *_ = [start("run", path, *options, role) for role in ("worker", "reader", "trainer")]
    run.error.until("item 0$")
    run.process.terminate()
    code, out, error = run.end()
    (loss,) = json.loads(out)["losses"]
    assert code == 143
    assert re.fullmatch(r"worker\S* was stopped: .* that it had received .* lost", loss)
    assert f"highway: {loss}\n" in error


# --- the parts ---


def test_counts_outlive_the_process_that_made_them():
    tally = Tally()

    def count_and_die():
        with open(os.dup(tally.descriptor), "r+b") as file:
            file.seek(8 * SENT)
            file.write((7).to_bytes(8, "little"))
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_a_fork(count_and_die) == -signal.SIGKILL
    assert tally.read() == Counts(sent=7)
    tally.close()
    assert tally.read() == Counts(sent=7)


def departure(name="worker", how="was killed by SIGKILL", failed=True, received=0, sent=0, **counts):
    source = StageStats("ZMQSource", 1, capacity=3, shape="source")
    return Departure(name, how, failed, Counts(received, 0, sent, **counts), PipelineStats([source], 1.0))


def state(role, **counts):
    return ReplicaState(role, phase="ended", counts=Counts(**counts))


ENDS = {"reader": Ends(sends="raw"), "worker": Ends("raw", "done"), "trainer": Ends("done")}


def test_what_is_missing_is_the_difference_of_both_ends_with_who_died():
    states = [state("reader", sent=100), state("worker", received=90, sent=85), state("trainer", received=85)]
    departures = [departure("reader", "ended", False, sent=100), departure(received=90, sent=85)]
    raw, done = account(states, departures, ENDS, {"raw", "done"})
    assert (raw.sent, raw.received, raw.missing, raw.reasons) == (100, 90, 10, ["worker was killed by SIGKILL"])
    assert str(raw) == "10 of 100 messages on the link raw did not arrive: worker was killed by SIGKILL"
    assert (done.missing, done.reasons) == (0, [])
    assert departures[1].held == 5
    assert departures[0].held == 0


def test_a_link_with_an_end_elsewhere_misses_nothing_that_is_known():
    (raw, _) = account([state("reader", sent=100), state("worker", received=40)], [], ENDS, set())
    assert (raw.sent, raw.received, raw.missing) == (100, 40, None)


def test_what_comes_after_the_receivers_have_ended_is_no_loss():
    states = [state("reader", sent=100), state("worker", received=90)]
    (raw, _) = account(states, [departure("reader", "was stopped", False), departure("worker", "ended", False)], ENDS, {"raw"})
    assert (raw.missing, raw.unwanted) == (10, True)
    (raw, _) = account(states, [departure("reader", "ended", False), departure("worker", "was drained", False)], ENDS, {"raw"})
    assert (raw.missing, raw.unwanted) == (10, False)


def test_more_than_was_sent_is_no_negative_loss():
    (raw, _) = account([state("reader", sent=10), state("worker", received=40)], [], ENDS, {"raw"})
    assert raw.missing is None


def test_a_receiver_that_connected_again_is_not_taken_for_another_one():
    states = [state("reader", sent=505), state("worker", received=371)]
    for connections in (1, 2, 3):
        reader = Departure("reader", "was stopped", False, Counts(0, 0, 505, connections))
        worker = Departure("worker", "was stopped", False, Counts(371, 1, 371, 0, connections))
        (raw, _) = account(states, [reader, worker], ENDS, {"raw"})
        assert (raw.missing, raw.doubts) == (134, [])


@pytest.mark.parametrize("counts", [{"receivers": 2}, {"senders": 2}], ids=["receiver", "sender"])
def test_with_others_at_a_link_nobody_knows_what_is_missing_and_no_loss_is_told_unless_something_failed(counts):
    states = [state("reader", sent=3200), state("worker", received=3121, sent=3121)]
    receivers, senders = counts.get("receivers", 1), counts.get("senders", 1)
    for failed, how in ((False, "ended"), (False, "was drained"), (True, "was killed by SIGKILL")):
        worker = Departure("worker", how, failed, Counts(3121, senders, 3121, 0))
        departures = [Departure("reader", "ended", False, Counts(0, 0, 3200, receivers)), worker]
        (raw, done) = account(states, departures, ENDS, {"raw"})
        who = f"1 {'receiver' if receivers > 1 else 'sender'} outside this run used the link"
        assert (raw.missing, raw.doubts, raw.reasons) == (None, [who], [f"worker {how}"] if failed else [])
        assert list(losses(Result(0, "", states, [raw, done]))) == ([str(raw)] if failed else [])
    assert str(raw) == (
        "the number of lost messages on the link raw is unknown (in this run, 3,200 were sent and 3,121 were received): "
        f"worker was killed by SIGKILL and {who}"
    )


def test_of_a_process_that_was_lost_with_its_host_the_last_figures_count():
    lost = Departure("worker", "was killed by SIGKILL", True, Counts(80, 1, 70, 1), is_lost=True)
    departures = [
        Departure("reader", "ended", False, Counts(0, 0, 100, 1)),
        lost,
        Departure("trainer", "ended", False, Counts(74, 1, 0, 0)),
    ]
    accounts = account(
        [state("reader", sent=100), state("worker", received=80, sent=70), state("trainer", received=74)], departures, ENDS, {"raw", "done"}
    )
    told = list(losses(Result(0, "", (), accounts)))
    assert [one.missing for one in accounts] == [20, 0]
    assert told == [
        f"{missing} messages on the link {link} did not arrive, according to the last report of worker before its host was lost: "
        "worker was killed by SIGKILL"
        for link, missing in (("raw", "20 of 100"), ("done", "0 of 70"))
    ]


def test_no_more_messages_were_late_than_are_missing():
    ends = {"reader": Ends(sends="raw", publishes=True), "worker": Ends("raw")}
    late = StageStats("ZMQSource", 1, shape="source", counters={"late": 14_730, "gaps": 20})
    states = [state("reader", sent=5000), replace(state("worker", received=1911), stats=PipelineStats([late], 1.0))]
    (raw,) = account(states, [], ends, {"raw"})
    assert (raw.missing, raw.reasons) == (
        3089,
        ["some were sent before a subscriber was connected", "20 were missed by a subscriber that was too slow"],
    )


def test_a_process_holds_no_more_than_its_queues_do():
    assert departure("trainer", received=1000).held == 3 + 2
    assert departure("trainer", received=2).held == 2


def test_a_process_that_was_stopped_before_it_had_delivered_all_holds_the_rest():
    stopped = departure(how="was stopped", failed=False, received=100, sent=97)
    assert (stopped.held, replace(stopped, unfinished=True).held) == (0, 3)
    stopped.stats.stages[0].counters["arrived"] = 40  # what its source took when it left the link
    assert departure(received=100).held == 5
    assert replace(stopped, counts=Counts(received=100), unfinished=True).held == 45


def test_a_process_whose_sink_fails_holds_the_item_that_the_sink_took_last():
    stages = [StageStats("ZMQSource", 1, items=3, capacity=3, shape="source"), StageStats("ZMQSink", 1, items=1, shape="sink")]
    failed = Departure("worker", "failed with exit code 1", True, Counts(received=2), PipelineStats(stages, 1.0))
    assert failed.held == 2
    assert replace(failed, failed=False, how="was stopped", unfinished=True).held == 1


def test_links_are_whole_and_roles_fed_where_all_ends_run(write):
    topology = load(
        write(
            three()
            .replace("$Numbers: {count: 400, every: 0.0005}", "Noise")
            .replace("$Pass", "Identity")
            .replace("$Say: {every: 0.0}", "Identity")
        )
    )
    ends = topology.plan.processes()
    assert Wiring(topology, ends).whole_links == {"raw", "done"}
    assert Wiring(topology, ends).fed_here == {"reader", "worker", "trainer"}
    some = [end for end in ends if end != Process("worker", 1, "")]
    assert Wiring(topology, some).whole_links == set()
    assert Wiring(topology, some).fed_here == {"reader", "worker"}


def test_a_circle_of_roles_has_depths():
    assert depths_of({"a": set(), "b": {"a"}, "c": {"b", "a"}}) == {"a": 0, "b": 1, "c": 2}
    assert set(depths_of({"a": {"b"}, "b": {"a"}})) == {"a", "b"}


ALONE = """
links: {raw: {from: reader, to: worker, transport: ipc}}
roles:
  reader: {external: true}
  worker: [ZMQSource: {link: raw}, $Say]
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--role", "worker"]])
def test_a_role_to_which_nobody_comes_ends_after_the_time_it_may_wait(write, call, options):
    code, _, error = call("run", write(ALONE), "--plugin", "mine", "--wait", "0.5", *options)
    assert code == 0, error
    assert "no sender connected within" in error


@pytest.mark.slow
def test_one_role_says_what_it_did_as_json_too(write, call):
    code, out, error = call("run", write("roles: {a: [$Numbers: {count: 3}, $Say]}"), "--plugin", "mine", "--role", "a", "--json")
    assert code == 0, error
    assert json.loads(out)["replicas"][0]["items"] == 3
    assert "got 2\n" in error
