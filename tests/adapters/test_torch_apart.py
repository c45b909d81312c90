"""``DataLoader`` with processes, and in a process of its own."""

import os

import pytest

from highway import PipelineError
from highway.errors import RemoteError

torch = pytest.importorskip("torch")

from test_torch_loader import same  # noqa: E402
from torch.utils import data  # noqa: E402
from torch_datasets import Drawn, Dying, Numbered, Process, Raising, print_worker  # noqa: E402

from highway.adapters.torch import DataLoader  # noqa: E402
from highway.adapters.torch.apart import why_not_apart  # noqa: E402


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
def test_what_is_drawn_hangs_on_the_batch_and_not_on_the_number_of_processes(capfd):
    def drawn(num_workers, isolated):
        generator = torch.Generator().manual_seed(2)
        arguments = {"num_workers": num_workers, "worker_init_fn": print_worker, "workers": "processes", "isolated": isolated}
        with DataLoader(Drawn(12), 3, generator=generator, **arguments) as loader:
            return [[field.tolist() for field in batch] for batch in loader]

    first = drawn(1, False)
    assert drawn(2, False) == first
    assert len({tuple(batch[3]) for batch in first}) == 4
    assert sorted(set(capfd.readouterr().out.splitlines())) == ["worker 0", "worker 1"]


@pytest.mark.slow
def test_errors_and_deaths_of_other_processes():
    arguments = {"num_workers": 1, "workers": "processes", "isolated": False}
    with DataLoader(Raising(8, 5, KeyError("no such file")), 2, **arguments) as loader:
        batches = iter(loader)
        assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
        with pytest.raises(KeyError, match="no such file") as caught:
            next(batches)
        assert "in process" in "\n".join(caught.value.__notes__)
        assert next(batches).tolist() == [6, 7]
    with DataLoader(Dying(12), 2, num_workers=1, isolated=True) as loader, pytest.raises(RemoteError, match="was killed by SIGKILL"):
        list(loader)


@pytest.mark.slow
def test_processes_know_their_numbers_as_those_of_torch_do():
    with DataLoader(Process(8), 2, num_workers=1, workers="processes", isolated=False) as loader:
        pids, numbers = zip(*loader, strict=True)
    assert {pid for batch in pids for pid in batch.tolist()} != {os.getpid()}
    assert {number for batch in numbers for number in batch.tolist()} == {0}


def test_a_dataset_that_cannot_be_sent_is_refused_if_it_must_be():
    loader = DataLoader(Raising(4, 3, lambda: None), 2, num_workers=1, workers="processes")
    with pytest.raises(PipelineError, match="Processes: ReadSamples cannot be sent to another process"):
        iter(loader)
    assert not why_not_apart(Numbered(), None, print_worker)
