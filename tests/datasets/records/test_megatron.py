"""Megatron-LM's indexed datasets: files written by the description of the format in Megatron-LM's source."""

import struct

import numpy as np
import pytest

import highway
from highway import Pipeline
from highway.datasets import MegatronIndexed
from highway.datasets.opening import recognised
from highway.errors import DatasetError
from highway.modules import Deal, Reader

CODES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}
SEQUENCES = [[1, 2, 3], [], [4], [5, 6, 7, 8]]


def index_of(sequences, code=8, modes=b"", version=1, magic=b"MMIDIDX\0\0", documents=None, offsets=None):
    lengths = np.array([len(one) for one in sequences], "<i4")
    begins = (
        (np.cumsum(lengths, dtype="<i8") - lengths) * np.dtype(CODES.get(code, "u1")).itemsize
        if offsets is None
        else np.array(offsets, "<i8")
    )
    documents = np.arange(len(sequences) + 1, dtype="<i8") if documents is None else np.array(documents, "<i8")
    header = magic + struct.pack("<QBQQ", version, code, len(sequences), len(documents))
    return header + lengths.tobytes() + begins.tobytes() + documents.tobytes() + modes


@pytest.fixture
def write(tmp_path):
    """Write a dataset and return its path without suffix."""

    def write(sequences=SEQUENCES, code=8, index=None, **given):
        tokens = np.array([token for one in sequences for token in one], CODES[code])
        (tmp_path / "a.bin").write_bytes(tokens.tobytes())
        (tmp_path / "a.idx").write_bytes(index_of(sequences, code, **given) if index is None else index)
        return str(tmp_path / "a")

    return write


@pytest.mark.parametrize("code", CODES)
def test_a_sequence_has_the_tokens_and_dtype_of_the_file(write, code):
    dataset = MegatronIndexed(write(code=code))
    assert len(dataset) == 4
    for sample, expected in zip(dataset.__getitems__([3, 0, 2, 1]), ([5, 6, 7, 8], [1, 2, 3], [4], []), strict=True):
        assert sample.keys() == {"tokens"} and sample["tokens"].dtype == CODES[code] and sample["tokens"].tolist() == expected
        assert sample["tokens"].flags.writeable
    assert dataset[-1]["tokens"].tolist() == [5, 6, 7, 8]
    with pytest.raises(IndexError):
        dataset[4]


def test_modes_are_a_field(write):
    dataset = MegatronIndexed(write(modes=bytes([0, 1, 0, 1])))
    assert [(int(one["mode"]), one["mode"].dtype) for one in dataset] == [(0, np.int8), (1, np.int8), (0, np.int8), (1, np.int8)]


def test_sequences_may_lie_in_any_order_and_be_shared(write):
    dataset = MegatronIndexed(write(index=index_of([[0], [0, 0]], offsets=[4, 2])))
    assert [one["tokens"].tolist() for one in dataset] == [[3], [2, 3]]


def test_both_files_and_the_name_without_suffix_are_the_dataset(write):
    path = write()
    assert [len(MegatronIndexed(path + suffix)) for suffix in ("", ".idx", ".bin")] == [4, 4, 4]
    assert recognised([f"{path}.idx"])[0].name == "megatron" and len(highway.open(f"{path}.idx")) == 4
    assert MegatronIndexed(path).locate(2) == f"{path}.bin: sequence 2"


def test_blocks_are_megabytes_of_tokens(write):
    dataset = MegatronIndexed(write([[7] * 400_000] * 5 + [[]], code=4))
    assert dataset.blocks() == [range(1), range(1, 2), range(2, 3), range(3, 4), range(4, 6)]
    with Pipeline([Reader(dataset, epochs=1, shuffle="blocks")]) as pipeline:
        assert sorted(len(one["tokens"]) for one in pipeline) == [0] + [400_000] * 5


def test_an_empty_dataset_has_no_samples(write):
    dataset = MegatronIndexed(write([]))
    assert len(dataset) == 0 and dataset.costs("tokens").tolist() == [] and dataset.blocks() == []


def test_the_costs_are_in_the_index_so_a_deal_reads_no_tokens(write):
    dataset = MegatronIndexed(write())
    assert dataset.costs("tokens").tolist() == [3, 0, 1, 4] and dataset.costs("pixels") is None
    found = []
    for rank in range(2):
        reader = Reader(dataset, 2, epochs=1, ragged="list", rank=rank, world_size=2, deal=Deal("tokens"))
        with Pipeline([reader]) as pipeline:
            found.append(sum(map(len, pipeline.dequeue()["tokens"])))
    assert sorted(found) == [4, 4]


def test_the_fingerprint_changes_with_both_files(write):
    path = write()
    found = {MegatronIndexed(path).fingerprint()}
    for suffix in (".idx", ".bin"):
        with open(path + suffix, "ab") as file:
            file.write(b"\0")
        found.add(MegatronIndexed(path).fingerprint())
    assert len(found) == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"magic": b"TNTIDX\0\0\0"}, "begins with b'TNTIDX"),
        ({"index": b"MMIDIDX"}, "begins with b'MMIDIDX'; expected an index of Megatron-LM"),
        ({"version": 2}, "version 2 with dtype 8; expected version 1"),
        ({"index": index_of(SEQUENCES, 9)}, "version 1 with dtype 9"),
        ({"modes": b"\0"}, "the index has 123 bytes; expected 122 bytes for 4 sequences and 5 document boundaries"),
        ({"index": index_of(SEQUENCES)[:-3]}, "the index has 119 bytes; expected 122"),
        (
            {"index": index_of([*SEQUENCES, [1]])},
            r"sequence 4 begins at byte 16 and has 1 tokens, but .*a.bin has only 16 bytes: one of the two",
        ),
        ({"index": index_of([[1]], offsets=[-2])}, "sequence 0 begins at byte -2 and has 1 tokens"),
        ({"index": index_of([[1]], offsets=[2**63 - 1])}, "sequence 0 begins at byte"),
    ],
)
def test_an_index_that_is_none_or_does_not_fit_is_an_error_that_names_it(write, given, message):
    path = write(**given)
    with pytest.raises(DatasetError, match=message) as caught:
        len(MegatronIndexed(path))
    assert str(caught.value).startswith(f"{path}.idx: ")


@pytest.mark.parametrize("suffix", [".idx", ".bin"])
def test_a_missing_file_is_named(write, suffix, tmp_path):
    path = write()
    (tmp_path / f"a{suffix}").unlink()
    with pytest.raises(FileNotFoundError, match=rf"a{suffix}"):
        MegatronIndexed(path)[0]
