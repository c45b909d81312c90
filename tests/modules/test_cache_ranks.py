"""A cache where several ranks read one dataset."""

import os
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from pairwise import pairwise

from highway import Pipeline, Stage
from highway.datasets import DecodedCache
from highway.datasets.cache_files.folder import FolderWriter
from highway.engine.stage import DROP
from highway.errors import ConfigError
from highway.modules import Batch, Cache, ImageFileReader, Mix, Reader, Repeat, Shuffle
from highway.modules.caching.fingerprint import fingerprint
from highway.transforms import RandomResizedCrop


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
    with pytest.raises(
        ConfigError, match=r"the folder contains 'thesis.tex', which do not belong to a cache; use an empty or new folder for the cache"
    ):
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


# --- the share of a rank stays the same in every epoch ---


@dataclass
class Samples:
    """A dataset of 30 arrays of 1,000 numbers, of which some cannot be read; ``fails`` says how often."""

    bad: tuple[int, ...] = ()
    fails: int = 10**9
    tried: Counter[int] = field(default_factory=Counter, init=False, repr=False)

    def __len__(self):
        return 30

    def __getitem__(self, number):
        self.tried[number] += 1
        if number in self.bad and self.tried[number] <= self.fails:
            raise OSError(f"sample {number} cannot be read")
        return (np.full(1000, number),)

    def fingerprint(self):
        return "30 samples"


def same(item):
    return item


def numbers_of(item):
    (values,) = item
    return values[..., 0].reshape(-1).tolist()


def of_ranks(cache, world_size, batch_size, *, dataset=Samples, maps=(same,), epochs=4, **reader):
    """Return for each epoch what each rank reads: a list for each item. ``cache`` returns a rank's cache, or ``None`` for none."""
    found = [[[] for _ in range(world_size)] for _ in range(epochs)]
    for rank in range(world_size):
        source = Reader(dataset(), batch_size, epochs, rank=rank, world_size=world_size, **reader)
        kept = cache(rank)
        with Pipeline([Stage(source, on_error="skip"), *maps, *([] if kept is None else [kept])], seed=3) as pipeline:
            for item, passport in pipeline.stamped():
                found[passport.epoch][rank].append(numbers_of(item))
    return found


def together(epoch):
    """What all ranks read in an epoch, sorted."""
    return sorted(number for rank in epoch for item in rank for number in item)


ONE_HAS_NO_ROOM = {0: 1, 1: 30_000}  # bytes by rank; the others have as many as they like
BAD = (7, 8, 21)


@pytest.mark.parametrize(
    ("ranks", "how", "in_memory", "room"),
    pairwise(
        [(4, None, ()), (4, None, BAD), (4, 3, ()), (4, 3, BAD), (1, 4, ()), (1, 4, BAD)],  # how many, their batch size, and bad samples
        [{}, {"on_uneven": "drop"}, {"shuffle": False}, {"shuffle": "blocks", "window": 5}],
        [True, False],
        [{}, ONE_HAS_NO_ROOM],
    ),
    ids=str,
)
def test_in_every_epoch_all_ranks_together_read_what_they_read_without_a_cache(ranks, how, in_memory, room, tmp_path):
    world_size, batch_size, bad = ranks

    class Blocked(Samples):
        def blocks(self):
            return [range(begin, begin + 5) for begin in range(0, 30, 5)]

    def cache(rank):
        return Cache(None if in_memory else str(tmp_path / "c"), budget=room.get(rank), batched=batch_size is not None)

    def dataset():
        return Blocked(bad)

    without = of_ranks(lambda rank: None, world_size, batch_size, dataset=dataset, **how)
    found = of_ranks(cache, world_size, batch_size, dataset=dataset, **how)
    again = found if in_memory else of_ranks(cache, world_size, batch_size, dataset=dataset, **how)
    for expected, epoch in [*zip(without, found, strict=True), *zip(without, again, strict=True)]:
        if batch_size is not None:  # the same batches, or a rank waits for ever for the others
            assert [[len(item) for item in rank] for rank in epoch] == [[len(item) for item in rank] for rank in expected]
        assert set(together(epoch)) <= set(range(30)) - set(bad)
        for rank, first in zip(epoch, found[0], strict=True):  # the share is the same in every epoch
            assert {n for item in rank for n in item} == {n for item in first for n in item}
        if how.get("on_uneven") != "drop":
            assert set(together(epoch)) == set(range(30)) - set(bad)
        if batch_size is None and world_size == 1:
            assert together(epoch) == together(expected)
    if world_size == 4 and batch_size is None and not bad:  # 2 samples come twice with "pad", 2 never with "drop"
        assert {len(together(epoch)) for epoch in found} == {len(together(epoch)) for epoch in without}


@pytest.mark.parametrize(
    ("how", "path", "batch_size", "bad"),
    pairwise([{}, {"on_uneven": "drop"}, {"drop_last": True}, {"shuffle": False}], [None, "c"], [None, 4], [(), BAD]),
    ids=str,
)
def test_an_epoch_that_is_served_is_the_same_as_one_that_is_read(how, path, batch_size, bad, tmp_path):
    def items(rank, budget=None, folder=None):
        source = Stage(Reader(Samples(bad), batch_size, 4, rank=rank, world_size=3, **how), on_error="skip")
        with Pipeline([source, Cache(folder, budget=budget, batched=batch_size is not None)], seed=3) as pipeline:
            return [(numbers_of(item), p.epoch, p.index, p.keys) for item, p in pipeline.stamped()]

    for rank in range(3):
        read = items(rank, budget=1)
        for _ in range(2):  # which finds the folder's cache the second time
            assert items(rank, folder=path and str(tmp_path / path)) == read


def test_what_failed_once_is_in_its_place_in_every_later_epoch(tmp_path):
    def items(fails, path):
        source = Stage(Reader(Samples((3, 20), fails), 5, 5, rank=1, world_size=2), on_error="skip")
        with Pipeline([source, Cache(path)], seed=3) as pipeline:
            return [numbers_of(item) for item, p in pipeline.stamped() if p.epoch]

    expected = items(0, None)
    for path in (None, str(tmp_path / "c")):
        assert items(1, path) == expected
    assert items(0, str(tmp_path / "c")) == expected


def test_a_cache_counts_the_samples_that_it_lacks_in_every_epoch():
    with Pipeline([Stage(Reader(Samples((3, 20)), 5, 6), on_error="skip"), Cache()]) as pipeline:
        list(pipeline.stamped())
        (counters,) = (stage.counters for stage in pipeline.stats().stages if stage.name == "Cache.epochs")
    assert counters["skipped"] == 2 * 4  # in epochs 2 to 5, which were served


def test_crops_before_a_cache_are_drawn_once_if_it_does_not_fit_too(tmp_path):
    def items(budget):
        reader = ImageFileReader("highway:photos/val", 8, epochs=3, crop=RandomResizedCrop((8, 8)), flip=0.5, rank=1, world_size=2)
        with Pipeline([reader, Cache(budget=budget)], seed=3) as pipeline:
            return [(images.tobytes(), p.keys) for (images, _), p in pipeline.stamped()]

    assert items(1) == items(None)


def test_a_source_that_has_other_samples_for_a_rank_in_each_epoch_needs_a_cache_that_is_complete():
    def run(**cache):
        mixed = Mix([Reader(Samples(), 5, 3, rank=0, world_size=2), Reader(Samples(), 5, 3, rank=0, world_size=2)])
        with Pipeline([Pipeline([Repeat(mixed, 3)]), Cache(key="k", batched=True, **cache)]) as pipeline:
            return list(pipeline)

    assert run()
    with pytest.raises(ConfigError, match=r"not complete after the first epoch \(the samples do not fit\), and Pipeline gives this rank"):
        run(budget=1)


@pytest.mark.parametrize("path", [None, "c"], ids=["memory", "disk"])
@pytest.mark.parametrize("stream", [Shuffle(9), Batch(4)], ids=["Shuffle", "Batch"])
def test_all_ranks_together_read_each_good_sample_once_if_a_stream_is_before_the_cache(path, stream, tmp_path):
    def cache(rank):
        return Cache(path and str(tmp_path / path), budget=ONE_HAS_NO_ROOM.get(rank), batched=type(stream) is Batch, key="k")

    found = of_ranks(cache, 3, None, dataset=lambda: Samples((3, 20)), maps=[stream])
    assert [together(epoch) for epoch in found] == [sorted(set(range(30)) - {3, 20})] * 4


def test_a_cache_is_given_up_if_a_map_leaves_out_all_items_of_an_epoch(tmp_path, caplog):
    def items(leave_out, **cache):
        stages = [Reader(Samples(), 30, 5), lambda item: DROP if numbers_of(item)[0] == leave_out else item, Cache(**cache)]
        with Pipeline(stages, seed=3) as pipeline:
            return [(numbers_of(item), p.epoch) for item, p in pipeline.stamped()]

    first = items(None)[0][0][0]
    read = items(first, budget=1)
    assert [epoch for _, epoch in read] == [1, 2, 3, 4]
    for _ in range(2):
        assert items(first, path=str(tmp_path / "c")) == read
    assert "a map skips all items of an epoch. highway discards the " in caplog.text
