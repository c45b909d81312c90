"""Samples written into shards."""

import re
import tracemalloc

import numpy as np
import pytest

from highway.datasets import Tar
from highway.datasets.shards import shard_writer
from highway.errors import ItemError


def test_keys_and_fields_come_back(tmp_path):
    path = str(tmp_path / "s.tar")
    keys = ["a", "b/c", "b/.../d", "ünï/ß", "x__y__", "a b", "1" * 200]
    with shard_writer(path) as writer:
        for key in keys:
            writer.add(key, {"txt": key, "seg.png": b"1"})
    found = Tar(path)
    assert list(found.keys) == keys and [sample["txt"] for sample in found] == keys and found[0]["seg.png"] == b"1"


@pytest.mark.parametrize(
    ("key", "sample"),
    [
        ("", {"txt": "a"}),
        ("a/", {"txt": "a"}),
        ("__a__/b", {"txt": "a"}),
        ("a", {"TXT": b"a"}),
        ("a", {"b/txt": b"a"}),
    ],
)
def test_what_would_not_be_read_is_refused(tmp_path, key, sample):
    message = re.escape(f"the sample {key!r} and its field {next(iter(sample))!r} would be stored as the file")
    with pytest.raises(ItemError, match=message), shard_writer(str(tmp_path / "s.tar")) as writer:
        writer.add(key, sample)
    assert not list(tmp_path.iterdir())


def test_two_fields_of_one_name_are_refused(tmp_path):
    message = r"two fields of the sample 'a' would have the same name, because readers remove the suffix \.ten: 'x', 'x\.ten'"
    with pytest.raises(ItemError, match=message), shard_writer(str(tmp_path / "s.tar")) as writer:
        writer.add("a", {"x": np.zeros(2), "x.ten": np.ones(2)})


def test_a_sample_without_fields_is_refused(tmp_path):
    with pytest.raises(ItemError, match="the sample 'a' has no fields"), shard_writer(str(tmp_path / "s.tar")) as writer:
        writer.add("a", {})


@pytest.mark.slow
def test_memory_does_not_grow_with_the_files_of_a_shard_but_for_their_keys(tmp_path):
    with shard_writer(str(tmp_path / "x.tar")) as writer:
        writer.add("first", {"jpg": b"x", "cls": 1})
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(2000):
            writer.add(f"{number:06}", {"jpg": b"x", "cls": 1})
        grown = (tracemalloc.get_traced_memory()[0] - before) / 2000
        tracemalloc.stop()
    assert grown < 250  # bytes for each sample
    assert len(Tar(str(tmp_path / "x.tar"))) == 2001
