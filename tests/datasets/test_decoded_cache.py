import os
import pickle
from collections import Counter

import numpy as np
import pytest

from highway import Pipeline, Stage
from highway.datasets import DecodedCache
from highway.datasets.dataset import keys_of
from highway.engine.stage import Passport, Stamped
from highway.errors import DamagedError, DatasetError
from highway.modules import Batch, Cache, Reader

SAMPLES = [
    {"image": np.full((4, 5, 3), number, np.uint8), "n": number, "name": f"s{number}", "boxes": [[number]] * (number % 3)}
    for number in range(20)
]


def cached(path, samples=SAMPLES, named=True):
    items = [Stamped(sample, Passport(0, number, keys=(f"k{number}",) if named else ())) for number, sample in enumerate(samples)]
    with Pipeline([items, Cache(str(path), epochs=1, key="k", batched=False)]) as pipeline:
        list(pipeline)
    return str(path)


@pytest.fixture
def path(tmp_path):
    return cached(tmp_path / "c")


def stamped(reader, **stage):
    with Pipeline([Stage(reader, **stage)]) as pipeline:
        return list(pipeline.stamped())


def test_a_sample_is_what_was_cached_by_number(path):
    dataset = DecodedCache(path)
    assert len(dataset) == 20 and list(dataset.keys) == dataset.keys[:] == [f"k{number}" for number in range(20)]
    for number in (0, 7, 19):
        image = dataset[number].pop("image")
        np.testing.assert_array_equal(image, SAMPLES[number]["image"])
        assert not image.flags.writeable
        assert {**dataset[number], "image": 0} == {**SAMPLES[number], "image": 0}
    assert [sample["n"] for sample in dataset.__getitems__([5, 2, 5])] == [5, 2, 5]
    with pytest.raises(IndexError):
        dataset[20]


def test_large_samples_that_are_read_together_do_not_hold_on_to_each_other(tmp_path):
    dataset = DecodedCache(cached(tmp_path / "c", [(np.full(100_000, number, np.uint8),) for number in range(3)]))
    one, other, _ = (image for (image,) in dataset.__getitems__([2, 0, 1]))
    assert (one[0], other[0]) == (2, 0)
    assert abs(one.__array_interface__["data"][0] - other.__array_interface__["data"][0]) >= 100_000 and one.base is not other.base


def test_it_is_read_when_it_is_first_asked_and_can_be_sent_to_a_process(path):
    nowhere = DecodedCache(f"{path}/nowhere")
    with pytest.raises(FileNotFoundError, match="nowhere': there is no finished cache; create a cache with `highway convert"):
        len(nowhere)
    dataset = DecodedCache(path)
    dataset[3]
    assert pickle.loads(pickle.dumps(dataset))[3]["n"] == 3


def test_samples_without_a_key_have_no_keys(tmp_path):
    assert keys_of(DecodedCache(cached(tmp_path / "c", named=False))) is None


def test_the_fingerprint_is_that_of_the_samples_and_their_order(tmp_path, path):
    print_of = DecodedCache(path).fingerprint()
    assert DecodedCache(cached(tmp_path / "same")).fingerprint() == print_of
    assert DecodedCache(cached(tmp_path / "turned", SAMPLES[::-1])).fingerprint() != print_of
    assert DecodedCache(cached(tmp_path / "other", [*SAMPLES[:-1], {**SAMPLES[-1], "n": 99}])).fingerprint() != print_of


@pytest.mark.parametrize("workers", [1, 3])
def test_a_reader_makes_batches_of_a_cache(path, workers):
    got = stamped(Reader(Without(path, "boxes"), 16, epochs=2, seed=5, num_workers=workers))
    samples = stamped(Reader(DecodedCache(path), epochs=2, seed=5))
    assert [key for _, passport in got for key in passport.keys] == [passport.keys[0] for _, passport in samples]
    assert [(p.epoch, p.index, len(p.keys)) for _, p in got] == [(0, 0, 16), (0, 1, 4), (1, 0, 16), (1, 1, 4)]
    for name in ("image", "n", "name"):
        rows = [row for batch, _ in got for row in batch[name]]
        for row, (sample, _) in zip(rows, samples, strict=True):
            np.testing.assert_array_equal(row, sample[name])
    assert got[0][0]["image"].shape == (16, 4, 5, 3)


def test_batches_that_are_held_are_not_written_again(path):
    with Pipeline([Reader(Without(path, "boxes"), 8, epochs=20, num_workers=2)]) as pipeline:
        for batch in list(pipeline):
            assert (batch["image"] == batch["n"].reshape(-1, 1, 1, 1)).all()


def test_ranks_share_a_cache(path):
    ranks = [stamped(Reader(Without(path, "boxes"), 3, epochs=1, rank=rank, world_size=4)) for rank in range(4)]
    assert {len(rank) for rank in ranks} == {2}
    assert sorted(n for rank in ranks for batch, _ in rank for n in batch["n"].tolist()) == list(range(20))


def damage(path, *rows):
    """Change a byte of the images of some samples; return the error that says so."""
    file = DecodedCache(path).file
    with open(file.path, "r+b") as data:
        for row in rows:
            data.seek(int(file.index["offsets"][row, 0]))
            data.write(b"\xee")


def test_a_damaged_sample_is_named_or_replaced_by_the_next(path):
    damage(path, 4, 5)
    with pytest.raises(DamagedError, match=r"damaged: samples 4 \(k4\) do not match their checksums") as caught:
        DecodedCache(path)[4]
    with pytest.raises(DamagedError, match=r"damaged: samples 4") as caught:
        stamped(Reader(DecodedCache(path), 20, shuffle=False))
    assert f"highway: the error was raised for sample 4 (k4) of the cache {path}" in "".join(caught.value.__notes__)
    ((batch, passport),) = stamped(Reader(Without(path, "boxes"), 20, shuffle=False, epochs=1), on_error="skip")
    assert Counter(batch["n"].tolist()) == Counter([*range(4), 6, 6, *range(6, 20)])
    assert passport.keys[3:7] == ("k3", "k6", "k6", "k6")


def test_a_cache_that_was_cut_short_or_is_a_file_is_said(path, tmp_path):
    data = DecodedCache(path).file.path
    os.truncate(data, 100)
    with pytest.raises(DatasetError, match=r"the cache cannot be read: it is damaged \(.*\.data has 100 bytes, not .*create it again"):
        len(DecodedCache(path))
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError, match="file': there is no finished cache; create a cache"):
        len(DecodedCache(str(tmp_path / "file")))


class Without(DecodedCache):
    """A cache without a field, which differs in shape."""

    def __init__(self, path, field):
        super().__init__(path)
        self.field = field

    def __getitems__(self, numbers):
        return [{name: value for name, value in sample.items() if name != self.field} for sample in super().__getitems__(numbers)]


def test_samples_that_were_cached_as_rows_of_batches_are_samples(tmp_path):
    with Pipeline(
        [[(np.full((2, 3), n, np.float32), n) for n in range(10)], Batch(4), Cache(str(tmp_path), epochs=1, key="k")]
    ) as pipeline:
        list(pipeline)
    dataset = DecodedCache(str(tmp_path))
    assert len(dataset) == 10
    assert [int(label) for _, label in dataset] == list(range(10))
    assert {image.shape for image, _ in dataset} == {(2, 3)}
