"""Ranks with different numbers of batches end their loops together: ``to_device(..., end_together=True)``."""

import json
import logging
import re
import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch")

from highway import ConfigError, Pipeline, Stage  # noqa: E402
from highway.adapters.torch import DataLoader, to_device  # noqa: E402
from highway.modules import Batch, Bucket, Cache, ConcatThenSplit, FixedEpochs, Reader, Shuffle, Unbatch  # noqa: E402

START = """
    import json, logging, os, sys
    from datetime import timedelta
    import torch.distributed as dist
    from highway import DROP, Pipeline, PipelineError, Stage
    from highway.adapters.torch import DataLoader, to_device
    from highway.modules import Batch, Bucket, Reader

    logged = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())
    logging.getLogger("highway").addHandler(handler)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    results = {}


    def save():
        with open(f"{sys.argv[1]}/{rank}.json", "w") as file:
            json.dump(results, file)


    def kept(counts, epochs=2):
        "A pipeline that keeps so many samples of this rank in each epoch."
        def keep(number):
            return number if number // 3 < counts[rank] else DROP

        return Pipeline([Reader(range(900), shuffle=False, epochs=epochs), Stage(keep, drops=True), Batch(2)], seed=1)


    def loop(batches):
        return [batch.tolist() for batch in batches]


    def failure(batches):
        taken = []
        try:
            for batch in batches:
                taken.append(int(batch))
        except PipelineError as error:
            return [taken, str(error)]
        except ValueError as error:
            return [taken, repr(error)]
"""

UNEVEN = """
    with kept([10, 7, 14]) as train:
        batches = to_device(train, "cpu", end_together=True)
        results["uneven"] = [loop(batches), train.epoch, loop(batches), train.epoch]
        results["logged"], logged[:] = list(logged), []

    with kept([10, 0, 14]) as train:
        results["zero"] = [loop(to_device(train, "cpu", end_together=True)) for _ in range(2)] + [train.epoch]

    with kept([280, 4, 4]) as train:  # rank 0 does not read the rest of its epoch only to count it
        logged.clear()
        results["far"] = [loop(to_device(DataLoader(train), "cpu", end_together=True)) for _ in range(2)] + [train.epoch, list(logged)]

    with kept([10, 7, 14]) as train:
        states = []
        for batch in to_device(train, "cpu", end_together=True):
            states.append(train.state_dict())
        states.append(train.state_dict())
    results["resumed"] = []
    for state in states:
        with kept([10, 7, 14]) as train:
            train.load_state_dict(state)
            batches = to_device(train, "cpu", end_together=True)
            results["resumed"].append([loop(batches), loop(batches) if state["epoch"] == 0 else []])

    with kept([10, 7, 14]) as train, kept([3, 6, 4], epochs=None) as val:
        batches, taken = to_device(train, "cpu", end_together=True), []
        for batch in batches:
            taken.append([batch.tolist(), loop(to_device(val, "cpu", end_together=True))])
            if len(taken) == 2:
                break
        results["left"] = [taken, loop(batches), val.epoch]

    mine = DataLoader(range((4, 2, 3)[rank]))
    results["loader"] = loop(to_device(mine, "cpu", end_together=True))
    group = dist.new_group([0, 2])
    if rank != 1:
        results["group"] = loop(to_device(mine, "cpu", end_together=group))

    def bad():
        yield from (0, 1)
        if rank == 1:
            raise ValueError("bad")
        yield from (2, 3)

    results["bad"] = failure(to_device(Pipeline([bad]), "cpu", end_together=True))
    save()
"""

ALONE = """
    source = Pipeline([iter(range(10))])
    for number, batch in enumerate(to_device(source, "cpu", end_together=True)):
        if number == (2 if rank == 0 else 3):
            break  # at different steps
    results["other loop"] = failure(to_device(range(5), "cpu", end_together=True))
    save()
    sys.stdout.flush()
    os._exit(0)  # the other ranks may still wait for this one
"""

SLOW = """
    store = dist.distributed_c10d._get_default_store()

    def slow():
        yield 0
        if rank == 1:  # reads until the other ranks have raised their errors
            store.wait(["failed 0", "failed 2"], timedelta(minutes=3))
            leave()
        yield 1

    def leave():
        save()
        sys.stdout.flush()
        os._exit(0)  # the other ranks may still wait for this one

    results["slow"] = failure(to_device(slow(), "cpu", end_together=True, end_timeout=4))
    store.set(f"failed {rank}", "")
    leave()
"""

EXIT = """
    import atexit
    atexit.register(lambda: leave_loop())  # registered first, so called last
    import sys, time
    import torch.distributed as dist
    from highway.adapters.torch import to_device

    class Late:
        "Releases the GIL while Python exits."

        def __init__(self):
            self.sleep = time.sleep

        def __del__(self):
            self.sleep(0.1)

    def leave_loop():
        for batch in to_device(range(5), "cpu", end_together=True):
            if batch == 3:
                break
        end = time.monotonic() + 0.5
        while time.monotonic() < end:  # the exchange of the next batch ends
            pass

    dist.init_process_group("gloo")
    with open(f"{sys.argv[1]}/{dist.get_rank()}.json", "w") as file:
        file.write("{}")
    late = Late()
    sys.setswitchinterval(1000)  # other threads get the GIL only while the main thread waits
"""


def run(folder, *parts):
    """Run a script on three ranks, and return the results of each rank."""
    script = folder / "train.py"
    script.write_text("".join(map(textwrap.dedent, parts)))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "--standalone", str(script), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(3)]


def batches_of(rank, count):
    """The first batches of two samples that a rank reads in the order of the dataset."""
    return [[3 * number + rank, 3 * (number + 1) + rank] for number in range(0, 2 * count, 2)]


@pytest.mark.slow
def test_all_ranks_end_with_the_first_and_begin_the_next_epoch_together(tmp_path):
    for rank, found in enumerate(run(tmp_path, START, UNEVEN)):
        four = batches_of(rank, 4)
        last = [four[0], four[1], four[2], [18, 21] if rank == 0 else [19] if rank == 1 else [20, 23]]
        assert found["uneven"] == [last, 1, last, 2]
        left_out = {0: 1, 2: 3}.get(rank)
        text = f"to_device: rank 1 has ended its epoch after 4 batches; rank {rank} drops its last {left_out} batches"
        assert found["logged"] == ([text] * 2 if left_out else [])
        assert found["zero"] == [[], [], 2]
        assert found["far"][:3] == [batches_of(rank, 2)] * 2 + [2]
        assert found["far"][3] == (
            ["to_device: rank 2 has ended its epoch after 2 batches; rank 0 drops more than 100 batches"] * 2 if rank == 0 else []
        )
        assert found["resumed"] == [[last[step:], last] for step in range(1, 5)] + [[last, []]]
        validated = [batches_of(0, 2), batches_of(1, 2), batches_of(2, 2)][rank]
        validated[1] = [6] if rank == 0 else validated[1]
        assert found["left"] == [[[batch, validated] for batch in last[:2]], last, 2]
        assert found["loader"] == [[0], [1]]
        assert found.get("group") == (None if rank == 1 else [[0], [1], [2]])
        taken, error = found["bad"]
        assert taken == [0, 1][: len(taken)]  # an error does not wait for the items before it
        assert error == "ValueError('bad')" if rank == 1 else "because the loader of rank 1 raised an error; see the log of that" in error


@pytest.mark.slow
def test_a_rank_that_left_its_loop_or_ended_is_an_error_on_the_other_ranks(tmp_path):
    found = [result["other loop"] for result in run(tmp_path, START, ALONE)]
    assert all(taken == [] for taken, _ in found)
    assert "rank 0 of 3 is at batch 0 of loop 1, but other ranks are at other batches (batches 0 to 4, loops 0 to 1)" in found[0][1]
    for _, error in found[1:]:
        assert "waited at batch 0 of loop 1 to learn whether all ranks have this batch, but another rank has ended; find" in error


@pytest.mark.slow
def test_a_script_that_leaves_its_loop_can_exit_while_the_exchange_of_the_next_batch_ends(tmp_path):
    assert run(tmp_path, EXIT) == [{}] * 3  # and no process aborts


@pytest.mark.slow
def test_a_rank_that_waits_longer_than_end_timeout_names_the_batch_and_the_ranks(tmp_path):
    results = run(tmp_path, START, SLOW)
    for rank in (0, 2):
        taken, error = results[rank]["slow"]
        assert taken == [0]
        missing = re.fullmatch(
            rf"to_device: end_together: rank {rank} of 3 has waited for 4 s \(end_timeout\) at batch 1 of loop 0 to learn whether all "
            r"ranks have this batch; these ranks do not wait there: ([\d, ]+); find the cause in the logs of the other ranks, or pass a "
            r"greater end_timeout",
            error,
        )
        assert missing and "1" in missing[1] and str(rank) not in missing[1]


def test_one_rank_needs_no_other():
    assert [batch.tolist() for batch in to_device([torch.tensor(1), torch.tensor(2)], "cpu", end_together=True)] == [1, 2]


def test_ranks_that_cannot_report_to_each_other_are_refused(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ConfigError, match=r"end_together: the launcher started 3 ranks, .*; call torch.distributed.init_process_group\(\)"):
        list(to_device([1], "cpu", end_together=True))
    with pytest.raises(
        ConfigError, match="to_device: end_together: 'gloo' is neither a DeviceMesh nor a process group that contains this process"
    ):
        to_device([1], "cpu", end_together="gloo")
    with pytest.raises(ConfigError, match="to_device: end_timeout=0; expected more than 0 seconds"):
        to_device([1], "cpu", end_together=True, end_timeout=0)


def warnings_of(stages, caplog, loops=1):
    caplog.clear()
    with caplog.at_level(logging.WARNING, "highway"), Pipeline(stages) as pipeline:
        for _ in range(loops):
            list(iter(pipeline))
    return [message for message in caplog.messages if "may have different numbers" in message]


def failing(number):
    if number == 3:
        raise ValueError(number)
    return number


def test_ranks_that_may_have_different_counts_are_named_once(caplog):
    reader = Reader([torch.zeros(number % 5 + 1).numpy() for number in range(40)], epochs=2, rank=1, world_size=2)
    for stage, why in [
        (Stage(str, drops=True), "str declares to drop items (drops=True)"),
        (Stage(str, on_error="skip"), "str skips items whose work fails (on_error='skip')"),
        (Bucket([2, 4], [2, 2, 2], len), "Bucket does not report how many items it yields for a number of inputs"),
        (ConcatThenSplit(4), "ConcatThenSplit does not report how many items it yields for a number of inputs"),
    ]:
        (message,) = warnings_of([reader, stage], caplog, loops=2)
        assert f"the 2 ranks may have different numbers of items in an epoch, because {why}. Training hangs" in message
        assert "With PyTorch and JAX, pass end_together=True to to_device. With" in message
        assert message.endswith("With TensorFlow and Keras, use FixedEpochs(size) as the last stage, and a reader with epochs=None")
    even = [Reader(range(40), 4, epochs=1, rank=1, world_size=2), Stage(str), Shuffle(10)]
    assert warnings_of(even, caplog) == []
    batches = Reader(range(41), 4, epochs=1, rank=1, world_size=2)
    assert warnings_of([batches, Unbatch(), Batch(3)], caplog) == []  # each rank has 21 samples
    (message,) = warnings_of([batches, lambda batch: batch[batch % 2 == 0], Unbatch()], caplog)
    assert "because Unbatch does not report how many items it yields for a number of inputs" in message
    assert warnings_of([reader, Stage(str, drops=True), FixedEpochs(10)], caplog) == []
    (message,) = warnings_of([reader, Stage(len, drops=True), Cache()], caplog)
    assert "because len declares to drop items" in message
    assert warnings_of([Reader(range(40), epochs=1, rank=0, world_size=1), Stage(failing, on_error="skip")], caplog) == []


@pytest.mark.parametrize("make", [lambda pipeline: pipeline, DataLoader])
def test_no_warning_if_the_loops_end_together(make, caplog):
    stages = [Reader(range(40), epochs=1, rank=1, world_size=2), Stage(failing, on_error="skip", name="failing"), Batch(4)]
    for together in (True, False):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "highway"), Pipeline(stages) as pipeline:
            list(to_device(make(pipeline), "cpu", end_together=together))
        assert [True for message in caplog.messages if "may have different numbers" in message] == [True] * (not together)
