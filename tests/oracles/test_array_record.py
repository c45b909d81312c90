"""ArrayRecord files by number, against the library itself."""

import logging
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from forking import in_a_fork

from highway import Pipeline
from highway.datasets import ArrayRecord
from highway.datasets.records.arrayrecord import arrayrecord_writer
from highway.errors import DatasetError
from highway.modules import Reader

module = pytest.importorskip("array_record.python.array_record_module", reason="run by `tox -e oracles`")
data_source = pytest.importorskip("array_record.python.array_record_data_source", reason="run by `tox -e oracles`")

RECORDS = [np.random.default_rng(n).bytes(n * 7 % 400) for n in range(60)]


def write(path, records, options="group_size:1"):
    writer = module.ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()
    return str(path)


@pytest.fixture
def files(tmp_path):
    """Three files of 40, 0 and 20 records."""
    for number, (first, stop) in enumerate([(0, 40), (40, 40), (40, 60)]):
        write(tmp_path / f"a-{number}", RECORDS[first:stop])
    return f"{tmp_path}/a-{{0..2}}"


def test_records_are_those_that_the_library_reads(files):
    dataset = ArrayRecord(files)
    theirs = data_source.ArrayRecordDataSource(dataset.files)
    assert len(dataset) == len(theirs) == 60
    assert list(dataset) == [theirs[n] for n in range(60)] == RECORDS
    assert dataset.__getitems__([59, 3, 3, 0, -1]) == [RECORDS[n] for n in (59, 3, 3, 0, 59)]
    assert dataset.blocks() == [range(40), range(40, 60)] and dataset.keys is None
    with pytest.raises(IndexError):
        dataset[60]


def test_the_library_reads_what_we_write(tmp_path):
    path = str(tmp_path / "ours")
    with arrayrecord_writer(path) as writer:
        for n, record in enumerate(RECORDS):
            writer.add(f"k{n}", {"data": record, "label": np.int32(n)})
    theirs = module.ArrayRecordReader(path)
    assert theirs.num_records() == 60 and "group_size:1," in theirs.writer_options_string()
    dataset = ArrayRecord(path, example=True)
    assert [(sample["data"], int(sample["label"])) for sample in dataset] == [(record, n) for n, record in enumerate(RECORDS)]
    assert list(dataset.keys) == [f"k{n}" for n in range(60)] and dataset[0]["label"].dtype == np.int32
    assert list(ArrayRecord(path)) == theirs.read_all()


def test_it_is_read_after_a_pickle_by_many_threads_and_in_a_forked_child(files):
    dataset = ArrayRecord(files)
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda n: dataset[n % 60], range(600))) == RECORDS * 10
    assert pickle.loads(pickle.dumps(dataset))[7] == RECORDS[7]
    assert in_a_fork(lambda: dataset[41] == RECORDS[41]) == 1


def test_a_reader_gives_every_record_once(files):
    with Pipeline([Reader(ArrayRecord(files), epochs=1, shuffle="blocks", window=10)], seed=1) as pipeline:
        assert sorted(pipeline) == sorted(RECORDS)


def test_groups_are_warned_about(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "highway"):
        assert list(ArrayRecord(write(tmp_path / "one", RECORDS))) == RECORDS
        assert not caplog.records
        assert list(ArrayRecord(write(tmp_path / "many", RECORDS, "group_size:16"))) == RECORDS
    assert "many: groups of 16 records are compressed together (group_size)" in caplog.text


@pytest.mark.parametrize("keep", [0, 10, 70_000, -1])
def test_a_file_that_was_cut_short_is_an_error_and_not_empty(files, tmp_path, keep):
    path = tmp_path / "a-0"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DatasetError, match="a-0: not an ArrayRecord file, or truncated: the end of the file,"):
        len(ArrayRecord(files))


def test_a_damaged_record_is_named(tmp_path):
    records = [bytes([n]) * 3 + np.random.default_rng(n).bytes(3000) for n in range(20)]
    path = write(tmp_path / "a", records)
    data = bytearray((tmp_path / "a").read_bytes())
    data[data.index(records[11][3:40])] ^= 1
    (tmp_path / "a").write_bytes(data)
    dataset = ArrayRecord(path)
    assert dataset[10] == records[10]
    with pytest.raises(DatasetError, match=r"a: record 11: .*mismatch"):
        dataset[11]


def test_a_file_that_changes_while_it_is_read_is_named(files, tmp_path):
    dataset = ArrayRecord(files)
    assert dataset[0] == RECORDS[0]
    write(tmp_path / "new", RECORDS[:5])
    with open(tmp_path / "a-0", "r+b") as file:
        file.write((tmp_path / "new").read_bytes()[:100])
    with pytest.raises(DatasetError, match=r"a-0: .* a dataset must not change while it is read"):
        dataset[1]


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(TypeError), arrayrecord_writer(str(tmp_path / "a")) as writer:
        writer.add("k", {"x": None})
    assert os.listdir(tmp_path) == []
