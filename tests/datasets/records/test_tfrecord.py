"""Records of TFRecord files by number."""

import gzip
import os
import pickle
import re
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from forking import in_a_fork

from highway import Pipeline
from highway.datasets import ImageFolder, TFRecord
from highway.datasets.index.file import Group, save_index
from highway.datasets.records import framing, tfrecord
from highway.datasets.records.tfrecord import tfrecord_writer
from highway.errors import ConfigError, DatasetError
from highway.modules import ImageFileReader, Reader
from highway.stores.unchanging import FileState

# The records b"one", b"" and b"three", as tf.io.TFRecordWriter of TensorFlow 2.21 writes them.
GOLDEN = bytes.fromhex("0300000000000000b099490e6f6e6501405508000000000000000029039807d8ea82a20500000000000000eab2043e74687265656023fb45")


def write(path, records):
    with tfrecord_writer(str(path)) as writer:
        for record in records:
            writer.write(record)
    return str(path)


@pytest.fixture
def files(tmp_path):
    """Three files of 10, 0 and 5 records."""
    for number, (first, stop) in enumerate([(0, 10), (10, 10), (10, 15)]):
        write(tmp_path / f"train-{number}", [b"%d" % n * n for n in range(first, stop)])
    return f"{tmp_path}/train-{{0..2}}"


def test_the_bytes_that_tensorflow_writes_are_read_and_written(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(GOLDEN)
    assert list(TFRecord(str(path))) == [b"one", b"", b"three"]
    assert Path(write(tmp_path / "b", [b"one", b"", b"three"])).read_bytes() == GOLDEN


def test_records_are_numbered_over_all_files(files, tmp_path):
    dataset = TFRecord(files)
    expected = [b"%d" % n * n for n in range(15)]
    assert len(dataset) == 15 and [dataset[n] for n in range(15)] == expected
    assert dataset.__getitems__([14, 0, 1, 2, 10, 9, -1]) == [expected[n] for n in (14, 0, 1, 2, 10, 9, 14)]
    assert dataset.blocks() == [range(10), range(10, 15)]
    assert dataset.locate(12) == f"{tmp_path}/train-2: record 2" and dataset.keys is None
    with pytest.raises(IndexError):
        dataset[15]
    assert len(TFRecord(f"{tmp_path}/train-1")) == 0


def test_files_are_named_by_paths_patterns_and_lists(files, tmp_path):
    TFRecord(files, index=True)[0]
    for paths in (f"{tmp_path}/train-*", [f"{tmp_path}/train-0", f"{tmp_path}/train-[12]"]):
        dataset = TFRecord(paths)
        assert len(dataset) == 15 and dataset.files == [f"{tmp_path}/train-{n}" for n in range(3)]
    (tmp_path / "train-9.77.part").write_bytes(GOLDEN[:19])  # what a writer that was killed has left
    assert len(TFRecord(f"{tmp_path}/train-*")) == 15
    with pytest.raises(FileNotFoundError, match=r"val-\*': no file matches this pattern \(the current directory is .*\)"):
        len(TFRecord(f"{tmp_path}/val-*"))
    with pytest.raises(FileNotFoundError, match="none"):
        len(TFRecord(f"{tmp_path}/none"))
    with pytest.raises(IsADirectoryError, match="a folder; pass the files in it"):
        len(TFRecord(str(tmp_path)))
    with pytest.raises(ConfigError, match="expected at least one file"):
        TFRecord([])


def test_large_and_small_records_are_found_in_windows_of_any_size(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    records = [rng.bytes(int(size)) for size in rng.choice([0, 1, 5, 90, 3000], 500)]
    path = write(tmp_path / "a", records)
    for window in (12, 13, 100, 1 << 12, 1 << 20):
        monkeypatch.setattr(framing, "WINDOW", window)
        monkeypatch.setattr(framing, "HEADERS_AT_ONCE", window)
        assert list(TFRecord(path)) == records


def test_neighbours_are_read_together_and_others_are_not(files, monkeypatch):
    dataset = TFRecord(files)
    assert dataset[0] == b""
    reads, plain = [], os.pread
    monkeypatch.setattr(os, "pread", lambda *place: reads.append(place) or plain(*place))
    assert dataset.__getitems__([2, 3, 4, 7, 8]) == [b"%d" % n * n for n in (2, 3, 4, 7, 8)]
    assert len(reads) == 2


@pytest.mark.parametrize(("large", "at_once"), [(30, 100), (100, 30), (1 << 16, 1 << 18)])
def test_any_numbers_are_read_whatever_is_read_together(tmp_path, monkeypatch, large, at_once):
    monkeypatch.setattr(tfrecord, "LARGE", large)
    monkeypatch.setattr(tfrecord, "IN_MEMORY", at_once)
    rng = np.random.default_rng(0)
    records = [rng.bytes(size) for size in rng.integers(0, 60, 200).tolist()]
    dataset = TFRecord(write(tmp_path / "a", records))
    for count in (0, 1, 2, 7, 100):
        some, first = rng.integers(-200, 200, count).tolist(), int(rng.integers(100))
        assert dataset.__getitems__(some) == [records[number] for number in some]
        assert dataset.__getitems__(range(first, first + count)) == records[first : first + count]
    with pytest.raises(IndexError):
        dataset.__getitems__([3, 200])


def test_large_records_are_read_and_checked_like_others(tmp_path):
    records = [bytes([n]) * size for n, size in enumerate([10, 70_000, 65_520, 65_521, 3, 200_000])]
    path = write(tmp_path / "a", records)
    dataset = TFRecord(path)
    assert dataset.__getitems__([5, *range(6)]) == [records[5], *records]
    views = dataset.__getviews__([5, *range(6)])
    assert views == [records[5], *records] and {type(one) for one in views if len(one) > 65_536} == {memoryview}
    data = bytearray((tmp_path / "a").read_bytes())
    for place in (100, -100_000, -1):  # in the data of two large ones, and in the checksum of the last
        damaged = data.copy()
        damaged[place] ^= 1
        (tmp_path / "a").write_bytes(damaged)
        for method in ("__getitems__", "__getviews__"):
            with pytest.raises(
                DatasetError,
                match=r"a: byte \d+: the record of \d+ bytes does not match its checksum .*\. Remove the index file, which may be damaged",
            ):
                getattr(TFRecord(path), method)([1 if place > 0 else 5])


def test_large_examples_come_with_views_where_these_are_asked_for(tmp_path):
    samples = [
        {"jpg": b"%d" % n * size, "all": [b"a" * size, b"b"], "text": "ü" * size, "cls": n * 100} for n, size in enumerate([1, 90_000])
    ]
    with tfrecord_writer(str(tmp_path / "a")) as writer:
        for n, sample in enumerate(samples):
            writer.add(f"k/{n}", sample)
    dataset = TFRecord(str(tmp_path / "a"), example=True)
    assert dataset.__getviews__([1, 0]) == dataset.__getitems__([1, 0]) == [samples[1], samples[0]]
    (sample,), (views,) = dataset.__getitems__([1]), dataset.__getviews__([1])
    assert (type(sample["jpg"]), type(sample["all"][0]), type(sample["text"])) == (bytes, bytes, str)
    assert (type(views["jpg"]), type(views["all"][0]), type(views["text"])) == (memoryview, memoryview, str)
    assert list(dataset.keys) == ["k/0", "k/1"]


def test_it_is_read_again_after_a_pickle_and_in_a_forked_child(files):
    dataset = TFRecord(files)
    assert dataset[1] == b"1"
    again = pickle.loads(pickle.dumps(dataset))
    assert again == dataset and again[2] == b"22"
    assert in_a_fork(lambda: len(dataset[11])) == 22


def test_few_files_are_open_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("highway.datasets.records.tfrecord.MOST_OPEN", 2)
    for n in range(6):
        write(tmp_path / f"{n}", [b"%d" % n])
    dataset = TFRecord(f"{tmp_path}/*")
    assert [dataset[n] for n in [*range(6), *range(6)]] == [b"%d" % n for n in [*range(6), *range(6)]]
    open_now = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    assert sum(os.path.dirname(path) == os.path.realpath(tmp_path) for path in open_now) == 2


# --- the index; index/test_index_files.py has what it shares with other formats ---


def test_an_index_that_says_other_lengths_is_named(tmp_path):
    path = write(tmp_path / "a", [bytes(84), bytes(84)])
    wrong = Group.of(FileState.of(path), [np.array([0, 50, 200], np.uint32)])
    save_index(str(tmp_path / "highway-tfrecord.index"), framing.VERSION, {"a": wrong})
    with pytest.raises(
        DatasetError, match=r"a: byte 0: the index lists a record of 34 bytes, but the file has a record of 84 bytes; remove the index file"
    ):
        TFRecord(path)[0]


# --- Examples ---


@pytest.fixture
def examples(tmp_path):
    path = str(tmp_path / "examples.tfrecord")
    with tfrecord_writer(path) as writer:
        for n in range(4):
            writer.add(f"k/{n}", {"jpg": b"%d" % n, "cls": np.int32(n), "box": np.full((n, 4), n, np.float32)})
    return path


def test_examples_are_dicts_and_come_back_as_they_were_written(examples):
    dataset = TFRecord(examples, example=True)
    assert [sample["cls"].item() for sample in dataset] == list(range(4))
    assert list(dataset[2]) == ["jpg", "cls", "box"]
    assert (dataset[2]["jpg"], dataset[2]["cls"].dtype, dataset[2]["box"].shape) == (b"2", np.int32, (2, 4))
    assert list(dataset.keys) == [f"k/{n}" for n in range(4)] == dataset.keys[:] and len(dataset.keys) == 4


def test_fields_are_chosen_and_renamed(examples):
    dataset = TFRecord(examples, example=True, fields={"image": "png;jpg", "name": "__key__"})
    assert dataset[1] == {"image": b"1", "name": b"k/1"}
    with pytest.raises(DatasetError, match=r"examples.tfrecord: record 1: there is no value for the field 'x': expected y, found "):
        TFRecord(examples, example=True, fields={"x": "y"})[1]
    with pytest.raises(ConfigError, match="fields selects features, but samples are bytes; pass example=True"):
        TFRecord(examples, fields={"x": "y"})
    with pytest.raises(ConfigError, match="key selects features"):
        TFRecord(examples, key="x")


def test_another_feature_may_be_the_key(examples):
    assert list(TFRecord(examples, example=True, key="cls").keys) == ["0", "1", "2", "3"]
    with pytest.raises(DatasetError, match=r"record 2: the record has no feature 'id' for its key; select another feature by key="):
        TFRecord(examples, example=True, key="id").keys[2]
    with pytest.raises(DatasetError, match=r"record 1: the feature 'box' contains a ndarray"):
        TFRecord(examples, example=True, key="box").keys[1]


def test_keys_are_read_without_the_rest_of_the_records(examples, monkeypatch):
    dataset = TFRecord(examples, example=True)
    assert dataset.keys[0] == "k/0"
    monkeypatch.setattr(TFRecord, "__getitems__", None)
    monkeypatch.setattr("highway.datasets.records.tfrecord.check_records", None)
    assert dataset.keys[3] == "k/3"


def test_records_that_are_no_examples_are_named(files):
    with pytest.raises(DatasetError, match=r"train-0: record 7: "):
        TFRecord(files, example=True)[7]
    with pytest.raises(DatasetError, match=r"train-0: record 7: "):
        TFRecord(files, example=True, key="x").keys[7]


def test_readers_take_them_in_place_of_a_folder(tmp_path):
    folder = ImageFolder("highway:photos/val")
    for number in range(2):
        with tfrecord_writer(str(tmp_path / f"photos-{number}")) as writer:
            for n in range(16 * number, 16 * number + 16):
                writer.add(folder.keys[n], dict(zip(("image", "label"), folder[n], strict=True)))

    def batches(data):
        with Pipeline([ImageFileReader(data, 8, (32, 32), epochs=2)], seed=3) as pipeline:
            return [(*item, passport.keys) for item, passport in pipeline.stamped()]

    by_folder, by_records = batches("highway:photos/val"), batches(TFRecord(f"{tmp_path}/photos-*", example=True))
    assert [keys for *_, keys in by_folder] == [keys for *_, keys in by_records]
    for (images, labels, _), (others, numbers, _) in zip(by_folder, by_records, strict=True):
        assert np.array_equal(images, others) and np.array_equal(labels, numbers)


def test_blocks_are_the_files(files):
    with Pipeline([Reader(TFRecord(files), epochs=1, shuffle="blocks", window=5)], seed=1) as pipeline:
        assert sorted(pipeline) == sorted(b"%d" % n * n for n in range(15))


# --- what is no TFRecord file, or none any more ---


@pytest.mark.parametrize("keep", range(1, len(GOLDEN)))
def test_a_file_that_is_cut_short_is_an_error_wherever_it_is_cut(tmp_path, keep):
    path = tmp_path / "a"
    path.write_bytes(GOLDEN[:keep])
    if keep in (19, 35):  # between two records
        assert len(TFRecord(str(path))) == (1 if keep == 19 else 2)
        return
    with pytest.raises(
        DatasetError, match=r"a: byte (0|19|35): the file has only \d+ of the \d+ bytes of a record: the file was truncated"
    ):
        len(TFRecord(str(path)))


@pytest.mark.parametrize("place", range(len(GOLDEN)))
def test_a_byte_that_has_changed_is_an_error_wherever_it_is(tmp_path, place):
    path = tmp_path / "a"
    data = bytearray(GOLDEN)
    data[place] ^= 0x40
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=r"a: (byte (0|19|35)[:,] .* does not match its checksum|not a TFRecord file)"):
        list(TFRecord(str(path)))


def test_what_is_no_tfrecord_file_is_said(tmp_path):
    path = tmp_path / "a"
    for data, message in [
        (b"a text and no records", "not a TFRecord file: the checksum of the first length does not match"),
        (gzip.compress(GOLDEN), "compressed with GZIP, so there is no random access to its records; decompress it first, with `gzip -d`"),
        (
            zlib.compress(GOLDEN),
            "compressed with ZLIB, so there is no random access to its records; decompress it first, with Python's zlib",
        ),
    ]:
        path.write_bytes(data)
        with pytest.raises(DatasetError, match=message):
            len(TFRecord(str(path)))


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path):
    path = tmp_path / "a"
    dataset = TFRecord(write(path, [b"one", b"two"]))
    assert dataset[0] == b"one"
    with open(path, "ab") as file:
        file.write(b"more")
    with pytest.raises(DatasetError, match=r"a: it had 38 bytes when it was first read, and now has 42 bytes"):
        dataset[1]


def test_the_fingerprint_changes_with_the_files_and_the_fields(files, tmp_path):
    before = TFRecord(files).fingerprint()
    assert TFRecord(files).fingerprint() == before
    assert TFRecord(files, example=True).fingerprint() != before
    write(tmp_path / "train-1", [b"new"])
    assert TFRecord(files).fingerprint() != before


def test_without_its_library_the_command_is_said(tmp_path):
    (tmp_path / "a").write_bytes(GOLDEN)
    code = f"import sys; sys.modules['google_crc32c'] = None; from highway.datasets import TFRecord; TFRecord({str(tmp_path / 'a')!r})[0]"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert re.search(r"ConfigError: TFRecord needs the package google_crc32c: pip install .*\[tfrecord\]'", done.stderr)


# --- the writer ---


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(TypeError, match="field 'x' contains a NoneType"), tfrecord_writer(str(tmp_path / "a")) as writer:
        writer.add("0", {"x": None})
    assert os.listdir(tmp_path) == []


def test_a_file_is_not_there_before_it_is_whole(tmp_path):
    with tfrecord_writer(str(tmp_path / "a")) as writer:
        writer.write(b"x")
        assert not (tmp_path / "a").exists() and writer.samples == 1
    assert list(TFRecord(str(tmp_path / "a"))) == [b"x"]
