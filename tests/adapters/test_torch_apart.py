"""``DataLoader`` with processes, and in a process of its own."""

import os
import random

import numpy as np
import pytest

from highway import PipelineError
from highway.errors import RemoteError

torch = pytest.importorskip("torch")

from test_torch_loader import same  # noqa: E402
from torch.utils import data  # noqa: E402
from torch_datasets import Drawn, Dying, Numbered, Raising, print_worker  # noqa: E402

from highway.adapters.torch import DataLoader  # noqa: E402
from highway.adapters.torch.apart import why_not_apart  # noqa: E402
from highway.adapters.torch.samples import seed_generators  # noqa: E402


@pytest.mark.slow
def test_batches_from_another_process_are_the_same_and_may_be_written_into():
    torch.manual_seed(3)
    expected = [list(data.DataLoader(Numbered(), 8, shuffle=True)) for _ in range(2)]
    torch.manual_seed(3)
    with DataLoader(Numbered(), 8, shuffle=True, num_workers=2, isolated=True) as loader:
        for epoch in expected:
            for ours, theirs in zip(loader, epoch, strict=True):
                same(ours, theirs)
                ours[0].fill_(-1)
        dataset = loader.dataset
        assert type(dataset) is Numbered
        loader.load_state_dict(loader.state_dict() | {"batches": 6})
        assert len(list(loader)) == 1


@pytest.mark.slow
def test_what_is_drawn_hangs_on_the_batch_and_not_on_the_process(capfd):
    generator = torch.Generator().manual_seed(2)
    seed = int(torch.empty((), dtype=torch.int64).random_(generator=torch.Generator().manual_seed(2)))
    arguments = {"num_workers": 2, "worker_init_fn": print_worker, "workers": "processes", "isolated": False}
    with DataLoader(Drawn(16), 4, generator=generator, **arguments) as loader:
        batches = [[field.tolist() for field in batch] for batch in loader]
    assert [number for batch in batches for number in batch[0]] == list(range(16))
    assert {number for batch in batches for number in batch[4]} <= {0, 1}
    assert {pid for batch in batches for pid in batch[5]} != {os.getpid()}
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    for index, batch in enumerate(batches):
        seed_generators(seed + index)
        assert list(zip(*batch[1:4], strict=True)) == [Drawn(1)[0][1:4] for _ in range(4)]
    random.setstate(before[0])
    np.random.set_state(before[1])
    torch.set_rng_state(before[2])
    assert set(capfd.readouterr().out.splitlines()) <= {"worker 0", "worker 1"}


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
