"""Ranks of a ``DataLoader``: as torch.distributed or the environment says, with equal batches for each."""

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.utils import data  # noqa: E402
from torch_datasets import Numbered  # noqa: E402

from highway import ConfigError  # noqa: E402
from highway.adapters.torch import DataLoader  # noqa: E402

LENGTH = 21


def numbers(loader):
    return [batch[1].tolist() for batch in loader]


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("shuffle", [True, False])
def test_each_rank_reads_what_it_does_by_torchs_sampler(shuffle, drop_last):
    for rank in range(4):
        ours = DataLoader(Numbered(LENGTH), 2, shuffle, drop_last=drop_last, shard=True, rank=rank, world_size=4)
        sampler = data.DistributedSampler(Numbered(LENGTH), 4, rank, shuffle, drop_last=drop_last)
        theirs = data.DataLoader(Numbered(LENGTH), 2, sampler=sampler, drop_last=drop_last)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            assert len(ours) == len(theirs)
            assert numbers(ours) == numbers(theirs)
        ours.set_epoch(7)
        sampler.set_epoch(7)
        assert numbers(ours) == numbers(theirs)


def test_ranks_have_equal_batches_and_read_all_together():
    loaders = [DataLoader(Numbered(LENGTH), 3, True, shard=True, rank=rank, world_size=4) for rank in range(4)]
    read = [numbers(loader) for loader in loaders]
    assert [list(map(len, batches)) for batches in read] == [[3, 3]] * 4
    assert {number for batches in read for batch in batches for number in batch} == set(range(LENGTH))


def test_a_generator_seeds_the_order_of_all_ranks():
    def order(seed):
        generator = torch.Generator().manual_seed(seed)
        return numbers(DataLoader(Numbered(LENGTH), 4, True, generator=generator, shard=True, rank=0, world_size=2))

    assert order(1) == order(1) != order(2)


def test_a_launcher_says_which_rank(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert numbers(DataLoader(Numbered(LENGTH), 7)) == [list(range(first, first + 7)) for first in (0, 7, 14)]
    assert numbers(DataLoader(Numbered(LENGTH), 7, shard=True)) == [list(range(1, LENGTH, 3))]
    assert numbers(DataLoader(Numbered(LENGTH), LENGTH, shard=True, rank=0, world_size=1)) == [list(range(LENGTH))]
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(ConfigError, match="RANK and WORLD_SIZE in the environment: rank 3 of 3"):
        DataLoader(Numbered(LENGTH), 7, shard=True)


def test_torch_distributed_says_which_rank_if_the_loader_is_to_shard():
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  # registers it

    dist.init_process_group("fake", store=dist.HashStore(), rank=2, world_size=3)
    try:
        assert numbers(DataLoader(Numbered(LENGTH), LENGTH, shard=True)) == [list(range(2, LENGTH, 3))]
        assert numbers(DataLoader(Numbered(LENGTH), LENGTH)) == [list(range(LENGTH))]
    finally:
        dist.destroy_process_group()


def test_a_state_goes_on_in_the_order_of_its_epoch():
    def make():
        return DataLoader(Numbered(LENGTH), 2, True, shard=True, rank=1, world_size=2)

    whole = make()
    expected = [numbers(whole) for _ in range(3)]
    first = make()
    numbers(first)
    batches = iter(first)
    next(batches)
    second = make()
    second.load_state_dict(first.state_dict())
    assert second.epoch == 1
    second.set_epoch(1)
    assert [numbers(second), numbers(second)] == [expected[1][1:], expected[2]]
