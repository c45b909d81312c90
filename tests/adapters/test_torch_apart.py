"""``DataLoader`` with processes, and in a process of its own."""

import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest

from highway import PipelineError
from highway.errors import RemoteError

torch = pytest.importorskip("torch")

from test_torch_loader import same, threads  # noqa: E402
from torch.utils import data  # noqa: E402
from torch_datasets import Drawn, Dying, Numbered, Raising, print_worker  # noqa: E402

from highway.adapters.torch import DataLoader  # noqa: E402
from highway.adapters.torch.apart import why_not_apart  # noqa: E402
from highway.adapters.torch.samples import seed_generators  # noqa: E402


@pytest.mark.slow
def test_threads_here_read_until_another_process_is_there():
    """Batches are the same from both, in their order, and may be written into."""
    one, other = (torch.Generator().manual_seed(3) for _ in range(2))
    samples = Numbered(3_000_000)  # more than can be read until the process has started
    expected = iter(data.DataLoader(samples, 3, shuffle=True, generator=one))
    count = there = 0
    with DataLoader(samples, 3, shuffle=True, generator=other, num_workers=2) as loader:
        for ours, theirs in zip(loader, expected, strict=True):
            count += 1
            same(ours, theirs)
            ours[0].fill_(-1)
            there += not threads()
            if there == 20:
                break
        assert not loader.why_here
        loader.load_state_dict(loader.state_dict())
        same(next(iter(loader)), next(expected))
    assert 2 < count < 1_000_000


def test_a_loader_that_is_closed_does_not_wait_for_a_process_to_start(monkeypatch, caplog):
    started = []

    def start(module, arguments, fds, **environment):
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], pass_fds=fds))  # as if it imported torch
        return started[-1]

    monkeypatch.setattr("highway.children.isolated.start", start)
    loader = DataLoader(Numbered(), 2, num_workers=1)
    next(iter(loader))
    loader.close()
    assert [process.returncode for process in started] == [-signal.SIGKILL]
    assert "did not end within" not in caplog.text


class Unreadable(Numbered):
    """Can be pickled, but not made again."""

    def __reduce__(self):
        return _fail, ()


def _fail():
    raise OSError("the mount is missing")


@pytest.mark.slow
def test_threads_here_go_on_if_another_process_cannot_read(caplog):
    with DataLoader(Unreadable(10_000_000), 1, num_workers=1, collate_fn=len) as loader:
        for _ in loader:
            if "since another one cannot" in caplog.text:
                break
        else:
            pytest.fail("the other process has not failed")
    assert "samples are read in this process, since another one cannot: OSError: the mount is missing" in caplog.text


@pytest.mark.slow
def test_what_is_drawn_hangs_on_the_batch_and_not_on_the_process(capfd):
    generator = torch.Generator().manual_seed(2)
    seed = int(torch.empty((), dtype=torch.int64).random_(generator=torch.Generator().manual_seed(2)))
    arguments = {"num_workers": 1, "worker_init_fn": print_worker, "workers": "processes", "isolated": False}
    with DataLoader(Drawn(16), 4, generator=generator, **arguments) as loader:
        batches = [[field.tolist() for field in batch] for batch in loader]
    assert [number for batch in batches for number in batch[0]] == list(range(16))
    assert {number for batch in batches for number in batch[4]} == {0}
    assert {pid for batch in batches for pid in batch[5]} != {os.getpid()}
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    for index, batch in enumerate(batches):
        seed_generators(seed + index)
        assert list(zip(*batch[1:4], strict=True)) == [Drawn(1)[0][1:4] for _ in range(4)]
    random.setstate(before[0])
    np.random.set_state(before[1])
    torch.set_rng_state(before[2])
    assert set(capfd.readouterr().out.splitlines()) == {"worker 0"}


@pytest.mark.slow
def test_an_error_or_death_of_a_process_is_that_of_its_batch():
    with DataLoader(Dying(12, 5, KeyError("no such file")), 2, num_workers=1, workers="processes", isolated=False) as loader:
        batches = iter(loader)
        assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
        with pytest.raises(KeyError, match="no such file") as caught:
            next(batches)
        assert "in process" in "\n".join(caught.value.__notes__)
        assert next(batches).tolist() == [6, 7]
        with pytest.raises(RemoteError, match="was killed by SIGKILL"):
            next(batches)


def test_a_dataset_that_cannot_be_sent_is_refused_if_it_must_be():
    loader = DataLoader(Raising(4, 3, lambda: None), 2, num_workers=1, workers="processes")
    with pytest.raises(PipelineError, match="Processes: ReadSamples cannot be sent to another process"):
        iter(loader)
    assert not why_not_apart(Numbered(), None, print_worker)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [{"workers": "processes", "isolated": False}, {"workers": "processes"}, {"isolated": True}])
def test_nothing_is_left_of_a_loop_that_is_dropped_in_the_middle(arguments):
    """No process, no descriptor, no shared memory: each test is held to that."""
    loader = DataLoader(Numbered(1000), 4, num_workers=2, **arguments)
    _, numbers, _ = next(iter(loader))
    assert numbers.tolist() == [0, 1, 2, 3]
