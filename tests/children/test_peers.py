"""Processes of one host that get the same items: one of them works, and the others get its items and its position."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from highway import ConfigError, EndOfStream, LinkError, Passport, Pipeline, PipelineError, RemoteError, Stage, Stamped
from highway.modules import Batch, Noise, Reader, Shuffle, ZMQSink
from highway.process.ranks import PeerRanks


def name():
    return f"test-{uuid.uuid4().hex}"


def of_all(count, run):
    """Call ``run(peers)`` for each peer in a thread of its own, and return the results."""
    link = name()
    with ThreadPoolExecutor(count) as threads:
        waiting = [threads.submit(run, PeerRanks(rank, tuple(range(count)), link)) for rank in range(count)]
        return [result.result(60) for result in waiting]


class Pictures:
    """A dataset that counts how often it was read."""

    def __init__(self):
        self.reads = []

    def __len__(self):
        return 40

    def __getitem__(self, number):
        self.reads.append(number)
        return {"image": np.full((5, 7), number, np.uint8), "name": f"picture {number}"}


def noisy(sample, rng):
    return sample + rng.integers(1000)


def test_all_peers_get_the_same_items_and_one_reads_them():
    pictures = Pictures()

    def run(peers):
        with Pipeline([Reader(pictures, 8, epochs=2)], seed=3, peers=peers) as pipeline:
            assert len(pipeline) == 5
            return [[(batch["image"].copy(), list(batch["name"])) for batch in pipeline] for _ in range(2)]

    first, *others = of_all(3, run)
    assert sorted(pictures.reads) == sorted([*range(40)] * 2)
    with Pipeline([Reader(Pictures(), 8, epochs=2)], seed=3) as alone:
        expected = [[(batch["image"], list(batch["name"])) for batch in alone] for _ in range(2)]
    for run_of_one in (first, *others):
        for epoch, expected_epoch in zip(run_of_one, expected, strict=True):
            for (images, names), (expected_images, expected_names) in zip(epoch, expected_epoch, strict=True):
                np.testing.assert_array_equal(images, expected_images)
                assert names == expected_names


def all_of(pipeline):
    found = []
    with contextlib.suppress(EndOfStream):
        while True:
            found.append(pipeline.dequeue().tolist())
    return found


def stages():
    return [Reader(range(100), epochs=3), Stage(noisy, num_workers=2), Shuffle(20), Batch(8)]


@pytest.mark.parametrize("taken", [0, 13, pytest.param(3, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.slow)])
def test_each_peer_has_the_same_state_which_resumes_with_or_without_peers(taken):
    def begin(peers):
        with Pipeline(stages(), seed=5, peers=peers) as pipeline:
            for _ in range(taken):
                pipeline.dequeue()
            return pipeline.state_dict()

    def rest(peers, state):
        with Pipeline(stages(), seed=5, peers=peers) as pipeline:
            pipeline.load_state_dict(state)
            return all_of(pipeline)

    with Pipeline(stages(), seed=5) as alone:
        whole = all_of(alone)
    first, second = of_all(2, begin)
    assert first == second
    assert rest(None, second) == whole[taken:]
    assert of_all(2, lambda peers: rest(peers, second)) == [whole[taken:]] * 2


def backwards(number):
    return Stamped(number, Passport(0, 99 - int(number)))


def test_each_peer_notes_that_a_map_has_renumbered_items():
    def begin(peers):
        with Pipeline([Reader(range(100), shuffle=False, epochs=1), backwards, Batch(2)], peers=peers) as pipeline:
            pipeline.dequeue()
            return pipeline.state_dict()["renumbered"]

    assert of_all(2, begin) == [["backwards"]] * 2


def test_a_loop_that_ends_early_skips_its_epoch_on_each_peer():
    def run(peers):
        found = []
        with Pipeline([Reader(range(1000), 10, epochs=3, shuffle=False)], peers=peers) as pipeline:
            for _ in range(3):
                for batch in pipeline:
                    found.append(int(batch[0]))
                    if len(found) % 2 == 0:
                        break
            return found, pipeline.epoch

    assert of_all(2, run) == [([0, 10] * 3, 3)] * 2


def failing(number):
    if number == 5:
        raise KeyError("the fifth")
    return number


def test_an_error_of_a_stage_is_raised_on_each_peer():
    def run(peers):
        with Pipeline([range(10), failing], peers=peers) as pipeline:
            for _ in range(2):
                with pytest.raises(KeyError, match="the fifth"):
                    list(pipeline)

    of_all(2, run)


def skipped(number):
    if number % 10 == 0:
        raise ValueError(number)
    return number


def test_skipped_errors_count_in_the_state_of_each_peer():
    def run(peers):
        with Pipeline([Reader(range(1000)), Stage(skipped, on_error="skip")], peers=peers) as pipeline:
            for _ in range(1000):  # until a snapshot of the stages has come that counts errors
                for _ in range(100):
                    pipeline.dequeue()
                if (state := pipeline.state_dict())["errors"]:
                    return state

    first, second = of_all(2, run)
    assert first == second
    assert len(first["errors"]) == 1


def test_peers_that_resume_from_other_states_are_refused():
    def run(peers):
        with Pipeline([range(100)], peers=peers) as pipeline:
            if peers.rank:
                pipeline.load_state_dict(state)
                with pytest.raises(PipelineError, match=r"the last item before the run resumed is \[0, 0, 2\] on rank 1, and None on proc"):
                    pipeline.dequeue()
            else:
                pipeline.dequeue()

    with Pipeline([range(100)]) as alone:
        for _ in range(3):
            alone.dequeue()
        state = alone.state_dict()
    of_all(2, run)


def test_items_that_cannot_be_pickled_are_an_error_on_each_peer():
    def run(peers):
        with Pipeline([[lambda: 0]], peers=peers) as pipeline, pytest.raises(PipelineError, match="cannot be sent to another process"):
            pipeline.dequeue()

    of_all(2, run)


def test_a_peer_that_wants_more_than_the_first_takes_gets_an_error():
    def run(peers):
        with Pipeline([range(10)], peers=peers) as pipeline:
            pipeline.dequeue()
            if peers.rank:
                with pytest.raises(RemoteError, match=rf"rank 1 gets its items from process {os.getpid()} \(rank 0\), and it was stopped"):
                    pipeline.dequeue()

    of_all(2, run)


def test_a_peer_that_leaves_does_not_stop_the_others():
    def run(peers):
        with Pipeline([range(2000)], peers=peers) as pipeline:
            return [pipeline.dequeue() for _ in range(3 if peers.rank == 1 else 2000)]

    first, left, other = of_all(3, run)
    assert first == other == list(range(2000))
    assert left == [0, 1, 2]


def test_a_time_limit_holds_while_peers_are_missing():
    for rank in range(2):
        with Pipeline([range(10)], peers=PeerRanks(rank, (0, 1), name())) as pipeline, pytest.raises(TimeoutError):
            pipeline.dequeue(timeout=0.2)


def test_a_process_alone_is_an_ordinary_pipeline():
    with Pipeline([range(3)], peers=PeerRanks(4, (4,), name())) as pipeline:
        assert list(pipeline) == [0, 1, 2]


def test_bad_input_is_named_before_anything_runs():
    peers = PeerRanks(0, (0, 1), name())
    with pytest.raises(ConfigError, match="rank=2 is not among ranks=\\(0, 1\\); pass the ranks of all peers"):
        PeerRanks(2, (0, 1), name())
    with pytest.raises(ConfigError, match="isolated=True and peers= cannot be combined; remove one"):
        Pipeline([range(3)], isolated=True, peers=peers)
    with pytest.raises(ConfigError, match="budget_mb=0; expected more than 0"):
        Pipeline([range(3)], budget_mb=0, peers=peers)
    with pytest.raises(PipelineError, match="ZMQSink is a sink, so the pipeline yields no items for peers; remove peers="):
        Pipeline([range(3), ZMQSink("ipc://unused")], peers=peers)


def test_a_name_that_is_taken_is_an_error():
    peers = PeerRanks(0, (0, 1), name())
    with Pipeline([range(3)], peers=peers) as first, Pipeline([range(3)], peers=peers) as second:
        with pytest.raises(TimeoutError):
            first.dequeue(timeout=0)
        with pytest.raises(LinkError, match=r"rank 0 cannot listen for its peers: .*; check that this job does not run twice"):
            second.dequeue(timeout=0)


FIRST = """
    import sys
    from highway import Pipeline
    from highway.modules import Noise
    from highway.process.ranks import PeerRanks

    with Pipeline([Noise((10, 10))], peers=PeerRanks(0, (0, 1), sys.argv[1])) as pipeline:
        for _ in range(3):
            pipeline.dequeue()
        print("there", flush=True)
        sys.stdin.read()
"""


def test_the_death_of_the_process_that_reads_is_named_at_once():
    link = name()
    command = [sys.executable, "-c", textwrap.dedent(FIRST), link]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first,
        Pipeline([Noise((10, 10))], peers=PeerRanks(1, (0, 1), link)) as pipeline,
    ):
        for _ in range(3):
            pipeline.dequeue()
        assert first.stdout.readline() == b"there\n"
        first.send_signal(signal.SIGKILL)
        killed_at = time.monotonic()
        with pytest.raises(RemoteError, match=rf"rank 1 gets its items from process {first.pid} \(rank 0\), and this rank has ended"):
            while True:
                pipeline.dequeue()
        assert time.monotonic() - killed_at < 10


def test_a_source_without_a_state_is_refused_on_each_peer_alike():
    def run(peers):
        with Pipeline([lambda: iter(range(5))], peers=peers) as pipeline:
            pipeline.dequeue()
            with pytest.raises(PipelineError, match=r"does not report its position; declare Traits\(state"):
                pipeline.state_dict()

    of_all(2, run)


def test_the_end_comes_to_each_peer():
    def run(peers):
        with Pipeline([range(3)], peers=peers) as pipeline:
            items = [pipeline.dequeue() for _ in range(3)]
            with pytest.raises(EndOfStream):
                pipeline.dequeue()
            return items

    assert of_all(2, run) == [[0, 1, 2]] * 2
