"""A cache where several ranks read one dataset."""

import os
from dataclasses import dataclass, field

import pytest

from highway import Pipeline
from highway.datasets import DecodedCache
from highway.datasets.cache_files.folder import FolderWriter
from highway.errors import ConfigError
from highway.modules import Cache, Mix, Reader
from highway.modules.caching.fingerprint import fingerprint


@dataclass
class Numbers:
    """A dataset that counts what is read of it."""

    read: list[int] = field(default_factory=list, init=False, repr=False)

    def __len__(self):
        return 24

    def __getitem__(self, number):
        self.read.append(number)
        return (number,)

    def fingerprint(self):
        return "24 numbers"


def epochs(path, rank, world_size=2, **cache):
    """Return the numbers of two epochs of a rank, and which of them were read from the dataset."""
    dataset = Numbers()
    reader = Reader(dataset, 4, 2, rank=rank, world_size=world_size)
    with Pipeline([reader, Cache(str(path), **cache)]) as pipeline:
        items = list(pipeline.stamped())
    return [sorted(n for (batch,), p in items if p.epoch == e for n in batch.tolist()) for e in (0, 1)], sorted(dataset.read)


@pytest.mark.parametrize("cache", [{}, {"key": "k"}])
def test_ranks_that_share_a_folder_keep_a_cache_each_in_it(tmp_path, cache):
    path = tmp_path / "c"
    first = [epochs(path, rank, **cache) for rank in (0, 1)]
    kept = [zeroth for (zeroth, again), _ in first if again == zeroth]
    assert sorted(kept[0] + kept[1]) == list(range(24)) and len(kept[0]) == 12
    assert sorted(os.listdir(path)) == ["rank-0-of-2", "rank-1-of-2"]
    for rank in (0, 1):  # and nobody has removed the other's
        (served, _), read = epochs(path, rank, **cache)
        assert (served, read) == (kept[rank], [])
        assert sorted(n for (n,) in DecodedCache(str(path / f"rank-{rank}-of-2"))) == served


@pytest.mark.parametrize("cache", [{}, {"key": "k"}])
def test_a_cache_of_one_number_of_ranks_is_none_of_another(tmp_path, cache):
    path = tmp_path / "c"
    epochs(path, 0, 2, **cache)
    for world_size in (1, 3):
        (first, again), read = epochs(path, 0, world_size, **cache)
        assert first == again and set(first) <= set(read) and len(first) == 24 // world_size
    assert epochs(path, 0, 1, **cache)[1] == epochs(path, 0, 2, **cache)[1] == epochs(path, 0, 3, **cache)[1] == []


def test_ranks_of_the_environment_are_kept_apart_in_readers_within_a_source_too(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        with Pipeline(
            [Mix([Reader(Numbers(), 4, 1), Reader(Numbers(), 4, 1)]), Cache(str(tmp_path / "c"), epochs=1, key="k", batched=True)]
        ) as pipeline:
            list(pipeline)
    assert sorted(os.listdir(tmp_path / "c")) == ["rank-0-of-2", "rank-1-of-2"]


def test_the_key_is_another_one_for_each_rank_and_number_of_ranks(monkeypatch):
    def key(**ranks):
        return fingerprint([Reader(Numbers(), 4, 1, **ranks)])

    ranks = [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3)]
    keys = [key(rank=rank, world_size=world_size) for rank, world_size in ranks]
    assert len(set(keys)) == len(keys)
    for (rank, world_size), expected in zip(ranks, keys, strict=True):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(world_size))
        assert key() == key()
        assert fingerprint([Reader(Numbers(), 4, 1, rank=rank, world_size=world_size)]) == expected
    assert key() != key(rank=0, world_size=3)


def test_ranks_write_no_cache_into_a_folder_of_something_else(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ConfigError, match=r"the folder holds 'thesis.tex', which no cache has written; give the cache a folder of its own"):
        epochs(tmp_path, 1)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_ranks_on_one_machine_share_what_a_cache_may_take(tmp_path, monkeypatch):
    budgets, make = {}, FolderWriter.__init__

    def remembering(writer, folder, budget):
        budgets[os.path.basename(folder.path)] = budget
        make(writer, folder, budget)

    monkeypatch.setattr("highway.modules.caching.run.free_disk", lambda path: 80_000_000)
    monkeypatch.setattr(FolderWriter, "__init__", remembering)
    epochs(tmp_path / "one", 0, 1)
    epochs(tmp_path / "two", 0, 4)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    epochs(tmp_path / "two", 1, 4)
    assert budgets == {"one": 72_000_000, "rank-0-of-4": 18_000_000, "rank-1-of-4": 36_000_000}
