"""Lines of SVMlight and LIBSVM, sparse and dense."""

import os
import pickle

import fsspec
import numpy as np
import pytest

from highway import Pipeline
from highway.datasets import SVMLight, svmlight
from highway.errors import ConfigError, DatasetError
from highway.modules import Batch, Reader

TEXT = b"""# a comment first

+1 1:0.5 3:-2e1 10:7 # and behind
-1 qid:3 2:1
   # indented
0.25
 3 4:1 5:.5\t\r
1 1:1"""
ROWS = [(1, [0, 2, 9], [0.5, -20, 7]), (-1, [1], [1]), (0.25, [], []), (3, [3, 4], [1, 0.5]), (1, [0], [1])]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "a.svm").write_bytes(TEXT)
    return str(tmp_path / "a.svm")


@pytest.mark.parametrize("chunk", [1, 3, 10, 1 << 20])
def test_a_line_is_a_label_and_the_features_that_are_not_0(path, monkeypatch, chunk):
    monkeypatch.setattr(svmlight, "CHUNK", chunk)
    dataset = SVMLight(path)
    assert len(dataset) == 5
    for sample, (label, indices, values) in zip(dataset, ROWS, strict=True):
        assert sample["label"] == label and sample["label"].dtype == np.float32
        assert sample["indices"].tolist() == indices and sample["indices"].dtype == np.int32
        assert sample["values"].tolist() == values and sample["values"].dtype == np.float32
    assert [("qid" in sample) for sample in dataset] == [False, True, False, False, False]
    assert dataset[1]["qid"] == 3 and dataset[-1]["label"] == 1 and dataset.locate(3) == f"{path}:7"
    with pytest.raises(IndexError):
        dataset[5]
    blocks = dataset.blocks()
    assert [number for block in blocks for number in block] == list(range(5)) and (len(blocks) == 1) is (chunk > 100)


def test_dense_rows_have_all_features(path):
    dataset = SVMLight(path, num_features=12, dense=True, dtype="float64")
    assert dataset[0]["x"].dtype == np.float64 and dataset[0]["label"].dtype == np.float64
    assert [sample["x"].tolist() for sample in dataset] == [
        [dict(zip(indices, values, strict=True)).get(number, 0) for number in range(12)] for _, indices, values in ROWS
    ]
    with pytest.raises(ConfigError, match="dense=True needs the number of features; pass num_features"):
        SVMLight(path, dense=True)


def test_indices_from_0_are_read_if_that_is_said(tmp_path):
    (tmp_path / "z").write_text("1 0:2 4:3\n")
    assert SVMLight(str(tmp_path / "z"), zero_based=True)[0]["indices"].tolist() == [0, 4]
    with pytest.raises(DatasetError, match="z:1: an index is 0, but indices start at 1; pass zero_based=True"):
        SVMLight(str(tmp_path / "z"))[0]


def test_many_rows_are_the_arrays_of_a_sparse_matrix(path):
    sparse = pytest.importorskip("scipy.sparse")
    dataset = SVMLight(path)
    values, indices, offsets = dataset.csr()
    assert (values.dtype, indices.dtype, offsets.tolist()) == (np.float32, np.int32, [0, 3, 4, 4, 6, 7])
    dense = SVMLight(path, num_features=10, dense=True)
    expected = [sample["x"].tolist() for sample in dense]
    assert sparse.csr_matrix((values, indices, offsets), (5, 10)).toarray().tolist() == expected
    some = sparse.csr_matrix(dataset.csr([3, 0, 2]), (3, 10)).toarray().tolist()
    assert some == [expected[3], expected[0], expected[2]]
    assert [array.tolist() for array in dataset.csr([])] == [[], [], [0]]


def test_batches_of_sparse_rows_have_offsets(tmp_path):
    (tmp_path / "a").write_text("".join(f"{n} " + " ".join(f"{i}:{i * n}" for i in range(1, n % 4 + 1)) + "\n" for n in range(10)))
    stages = [Reader(SVMLight(str(tmp_path / "a")), shuffle=False, epochs=1), Batch(4, ragged="offsets")]
    with Pipeline(stages) as pipeline:
        batches = list(pipeline)
    assert [batch["label"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches[0]["indices"].tolist() == [0, 0, 1, 0, 1, 2] and batches[0]["values"].tolist() == [1, 2, 4, 3, 6, 9]


def test_readers_make_batches_of_dense_rows_from_a_disk_and_from_a_store(path):
    files = fsspec.filesystem("memory")
    files.put(path, "/svm/a")
    try:
        for where in (path, "memory://svm/a"):
            dataset = pickle.loads(pickle.dumps(SVMLight(where, 10, dense=True)))
            with Pipeline([Reader(Rows(dataset, [0, 2, 3, 4]), 4, shuffle=False, epochs=1)]) as pipeline:
                batch = pipeline.dequeue()
            assert batch["x"].shape == (4, 10) and batch["label"].tolist() == [1, 0.25, 3, 1]
    finally:
        files.rm("/svm", recursive=True)


class Rows:
    """Some rows of a dataset."""

    def __init__(self, dataset, numbers):
        self.dataset, self.numbers = dataset, numbers

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, number):
        return self.dataset[self.numbers[number]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("one 1:1", "could not convert string to float: b'one'"),
        ("1,2 1:1", "could not convert string to float: b'1,2'"),
        ("1 1:2:3", "b'1:2:3'; expected LABEL, optionally qid:NUMBER, and then INDEX:VALUE"),
        ("1 1:23:4", "b'1:23:4'; expected LABEL"),
        ("1 1: 2", "b'1:'; expected LABEL"),
        ("1 2", "b'2'; expected LABEL"),
        ("1 -1:2", "b'-1:2'; expected LABEL"),
        ("1 1:2_0", "b'1:2_0'; expected LABEL"),
        ("1_0 1:2", "b'1_0'; expected LABEL"),
        ("1 1:x", "could not convert string to float: b'x'"),
        ("1 qid:x 1:1", "invalid literal for int"),
        ("1 qid:99999999999999999999 1:1", "a number has more than 64 bits"),
        ("1 1:1 qid:3", "b'qid:3'; expected LABEL"),
        ("1 2:1 1:1", "the indices do not increase, or an index occurs twice; sort the indices"),
        ("1 2:1 2:1", "the indices do not increase, or an index occurs twice"),
        ("1 21:1", "an index is 21, but num_features=20; raise num_features"),
        ("1 99999999999999999999:1", "a number has more than 64 bits"),
        ("1 1:1e300", "a value does not fit into float32; pass dtype='float64'"),
        ("1e300", "a value does not fit into float32; pass dtype='float64'"),
    ],
)
def test_a_line_of_something_else_is_named_with_its_number(tmp_path, line, message):
    (tmp_path / "a").write_text(f"1 1:1\n# comment\n{line}\n2 1:1\n")
    dataset = SVMLight(str(tmp_path / "a"), 20)
    with pytest.raises(DatasetError, match=rf"a:3: {message}"):
        dataset[1]
    assert dataset[2]["label"] == 2


def test_numbers_without_end_are_values_too(tmp_path):
    (tmp_path / "a").write_text("inf 1:nan 2:-inf")
    sample = SVMLight(str(tmp_path / "a"))[0]
    assert sample["label"] == np.inf and np.isnan(sample["values"][0]) and sample["values"][1] == -np.inf


def test_files_that_are_empty_compressed_or_change_are_named(path, tmp_path):
    (tmp_path / "e").write_bytes(b"")
    assert len(SVMLight(str(tmp_path / "e"))) == 0
    (tmp_path / "z").write_bytes(b"\x1f\x8b....")
    with pytest.raises(DatasetError, match="z: the file is compressed with gzip, so there is no random access to its lines; unpack it"):
        len(SVMLight(str(tmp_path / "z")))
    dataset = SVMLight(path)
    before = dataset.fingerprint()
    assert dataset[0]["label"] == 1 and SVMLight(path, zero_based=True).fingerprint() != before
    os.truncate(path, 30)
    assert dataset.fingerprint() != before
    with pytest.raises(DatasetError, match=r"a\.svm: it had \d+ bytes when it was first read, and now has 30"):
        dataset[0]
