"""Items of ``.ten`` files by number."""

import os
import pickle

import numpy as np
import pytest

from highway import FrameError, Passport, Pipeline, Stamped
from highway.datasets import TenFiles
from highway.modules import Reader, TenSink, TenSource
from highway.modules.caching.fingerprint import fingerprint


@pytest.fixture
def folder(tmp_path):
    """Twelve items with keys of their own."""
    items = [Stamped({"x": np.full(2, n, np.int32)}, Passport(0, n, keys=(f"key {n}",))) for n in range(12)]
    Pipeline([items, TenSink(str(tmp_path / "ten"))]).run()
    return str(tmp_path / "ten")


@pytest.mark.parametrize("mmap", [False, True])
def test_items_are_read_by_number_and_known_by_their_paths(folder, mmap):
    dataset = TenFiles(folder, mmap)
    assert len(dataset) == 12
    assert [int(item["x"][0]) for item in dataset] == list(range(12))
    assert dataset.keys[3] == dataset.locate(3) == os.path.join(folder, "000-00000003.ten")
    assert dataset.with_passport(3).passport.keys == ("key 3",)
    again = pickle.loads(pickle.dumps(dataset))
    assert again == dataset and int(again[5]["x"][1]) == 5


def test_the_fingerprint_changes_with_the_files(folder):
    dataset, source = TenFiles(folder), TenSource(folder)
    before, cached = dataset.fingerprint(), fingerprint([source])
    assert before == TenFiles(folder).fingerprint() == dataset.fingerprint() and cached == fingerprint([source])
    os.remove(dataset.keys[5])
    assert dataset.fingerprint() != before and fingerprint([source]) != cached


def test_a_reader_makes_batches_of_them(folder):
    with Pipeline([Reader(TenFiles(folder), 5, epochs=1, shuffle=False)]) as pipeline:
        found = list(pipeline.stamped())
    assert [batch["x"].shape for batch, _ in found] == [(5, 2), (5, 2), (2, 2)]
    assert found[1].passport.keys[0].endswith("000-00000005.ten")


def test_the_source_reads_in_the_order_of_a_reader_with_the_keys_that_were_saved(folder):
    def numbers(reader):
        with Pipeline([reader], seed=3) as pipeline:
            return [(int(item["x"][0]), passport.index, passport.keys) for item, passport in pipeline.stamped()]

    found = numbers(TenSource(folder, 2, True, num_workers=3))
    assert [keys for *_, keys in found] == [(f"key {number}",) for number, *_ in found]
    assert [number for number, *_ in found] == [number for number, *_ in numbers(Reader(TenFiles(folder), epochs=2))]
    assert [index for _, index, _ in found] == [*range(12), *range(12)]


def test_ranks_share_the_files(folder):
    def numbers(rank):
        with Pipeline([TenSource(folder, rank=rank, world_size=2)]) as pipeline:
            return [int(item["x"][0]) for item in pipeline]

    assert sorted(numbers(0) + numbers(1)) == list(range(12))


def test_a_folder_that_may_not_be_read_is_no_empty_one(folder, monkeypatch):
    monkeypatch.chdir(os.path.dirname(folder))
    os.chmod(".", 0o755)
    os.chmod("ten", 0)
    user = os.geteuid()
    try:
        if not user:  # whom rights do not stop
            os.seteuid(65534)
        with pytest.raises(PermissionError, match="ten"):
            len(TenFiles("ten"))
    finally:
        os.seteuid(user)
        os.chmod("ten", 0o755)


def test_a_damaged_file_is_named(folder):
    dataset = TenFiles(folder)
    with open(dataset.keys[2], "r+b") as file:
        file.truncate(100)
    with pytest.raises(FrameError, match=r"000-00000002.ten: "):
        dataset[2]
    with pytest.raises(FileNotFoundError, match=r"none': there are no .ten files"):
        len(TenFiles(folder + "/none"))
