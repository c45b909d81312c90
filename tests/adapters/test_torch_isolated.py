"""``DataLoader`` with isolated threads: the batches of torch, read in one other process."""

import os
import signal

import pytest

torch = pytest.importorskip("torch")

from against_torch import same  # noqa: E402
from torch.utils import data  # noqa: E402

from highway.adapters.torch import DataLoader  # noqa: E402

pytestmark = pytest.mark.slow  # each test starts a process that imports torch


class Located(data.Dataset):
    """The number of a sample, and the process that has read it."""

    def __len__(self):
        return 20

    def __getitem__(self, number):
        return number, os.getpid()


def shuffled(loader, dataset, **options):
    return loader(dataset, 3, True, generator=torch.Generator().manual_seed(5), **options)


def isolated(dataset, **options):
    return DataLoader(dataset, num_workers=2, workers="threads", isolated=True, **options)


def test_isolated_threads_read_the_epochs_of_torch_in_one_other_process_and_resume():
    theirs = shuffled(data.DataLoader, range(20))
    epochs = [list(theirs) for _ in range(4)]
    with shuffled(DataLoader, Located(), num_workers=2, workers="threads", isolated=True) as loader:
        first = list(loader)
        batches = iter(loader)
        second = [next(batches) for _ in range(2)]
        state = loader.state_dict()
        second += batches
        same([[number for number, _ in batches] for batches in (first, second)], epochs[:2])
        readers = {pid for batches in (first, second) for _, pids in batches for pid in pids.tolist()}
        assert len(readers) == 1 and os.getpid() not in readers
        loader.load_state_dict(state)
        same([number for number, _ in loader], epochs[1][2:])
        same([number for number, _ in loader], epochs[2])


class Killed(data.Dataset):
    """Its process is killed at sample 9, which the check of threads in the training process does not read."""

    def __len__(self):
        return 12

    def __getitem__(self, number):
        if number == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return number


def test_a_process_that_is_killed_is_an_error_that_names_it_and_its_samples_at_each_later_call():
    with isolated(Killed(), batch_size=2) as loader:
        batches = iter(loader)
        seen = []
        with pytest.raises(RuntimeError, match=r"process \d+ was killed by SIGKILL.*; it held \d batches: samples .*8, 9") as caught:
            for _ in range(5):
                seen.append(next(batches).tolist())
        assert seen == [[0, 1], [2, 3], [4, 5], [6, 7]][: len(seen)]  # batches that were on the way may be gone
        with pytest.raises(RuntimeError) as again:
            next(batches)
        assert str(again.value) == str(caught.value)
        with pytest.raises(StopIteration):
            batches.close()
            next(batches)
