"""Files that tensorpack and Highway of 2017 have written; ``tests/data/older_systems/write.py`` made them with those programs."""

import pickle
import re
from pathlib import Path

import msgpack
import numpy as np
import pytest

from highway import Pipeline, open
from highway.cli import main
from highway.datasets import HDF5, LMDB, LevelDB, Npz, TFRecord
from highway.datasets.keyed.values import DECODERS, recognised
from highway.errors import ConfigError, DatasetError, FrameError
from highway.modules import LMDBSource, Reader, TFRecordSource
from highway.wire.msgpack import decode

FILES = Path(__file__).parents[1] / "data" / "older_systems"
PICKLED, PACKED = FILES / "tensorpack-pickle.mdb", FILES / "tensorpack-msgpack.mdb"
NPZ, TFRECORD = FILES / "tensorpack.npz", FILES / "tensorpack.tfrecord"
HIGHWAY = [bytes.fromhex(line) for line in (FILES / "highway-2017.hex").read_text().split()]


def sample(number):
    """Return what ``write.py`` wrote."""
    return np.arange(12, dtype=np.uint8).reshape(2, 2, 3) * (number * 20), number


def assert_samples(found):
    assert len(found) == 3
    for number, (image, label) in enumerate(found):
        np.testing.assert_array_equal(image, sample(number)[0], strict=True)
        assert label == number


READ = {
    "lmdb, pickles": lambda: LMDB(str(PICKLED), decode="trusted_pickle"),
    "lmdb, msgpack": lambda: LMDB(str(PACKED)),
    "tfrecord": lambda: TFRecord(str(TFRECORD), trusted_pickle=True),
    "npz": lambda: Npz(str(NPZ), trusted_pickle=True),
    "lmdb, opened": lambda: open(str(PICKLED), decode="trusted_pickle"),
    "tfrecord, opened": lambda: open(str(TFRECORD), trusted_pickle=True),
    "npz, opened": lambda: open(str(NPZ), trusted_pickle=True),
}


@pytest.mark.parametrize("read", READ.values(), ids=READ)
def test_what_tensorpack_has_written_comes_back_if_the_user_trusts_it(read):
    dataset = read()
    samples = [dataset[number] for number in range(len(dataset))]
    assert_samples(samples)
    assert all(type(sample) is tuple for sample in samples)
    with Pipeline([Reader(read(), 3, shuffle=False, epochs=1)]) as pipeline:
        [(images, labels)] = pipeline
    assert_samples(list(zip(images, labels.tolist(), strict=True)))


def test_what_hdf5serializer_has_written_needs_no_trust():
    with Pipeline([Reader(HDF5(str(FILES / "tensorpack.h5")), 3, shuffle=False, epochs=1)]) as pipeline:
        [batch] = pipeline
    np.testing.assert_array_equal(batch["image"], [sample(number)[0] for number in range(3)])
    assert batch["label"].tolist() == [0, 1, 2]


REFUSED = {
    "LMDBSerializer": (lambda: LMDB(str(PICKLED))[0], 'decode="trusted_pickle"'),
    "LMDBSerializer, as msgpack": (lambda: LMDB(str(PICKLED), decode="msgpack")[0], 'decode="trusted_pickle"'),
    "LMDBSerializer, by a source": (lambda: next(iter(Pipeline([LMDBSource(str(PICKLED))]))), 'decode="trusted_pickle"'),
    "TFRecordSerializer": (lambda: TFRecord(str(TFRECORD), example=True)[0], "TFRecord(path, trusted_pickle=True)"),
    "TFRecordSerializer, by a source": (
        lambda: next(iter(Pipeline([TFRecordSource(str(TFRECORD))]))),
        "TFRecord(path, trusted_pickle=True)",
    ),
    "LMDBSerializer, by a path": (lambda: next(iter(Pipeline([Reader(str(PICKLED), 2)]))), 'decode="trusted_pickle"'),
    "TFRecordSerializer, by a path": (lambda: next(iter(Pipeline([Reader(str(TFRECORD), 2)]))), "TFRecord(path, trusted_pickle=True)"),
    "NumpySerializer, by a path": (lambda: next(iter(Pipeline([Reader(str(NPZ), 2)]))), "Npz(path, trusted_pickle=True)"),
    "NumpySerializer": (lambda: Npz(str(NPZ))[0], "Npz(path, trusted_pickle=True)"),
    "LMDBSerializer, opened": (lambda: open(str(PICKLED))[0], 'decode="trusted_pickle"'),
    "NumpySerializer, opened": (lambda: open(str(NPZ))[0], "Npz(path, trusted_pickle=True)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_pickles_that_nobody_declared_trust_in_are_refused_and_the_error_names_both_ways_out(name):
    read, option = REFUSED[name]
    with pytest.raises(DatasetError) as caught:
        read()
    message = str(caught.value)
    assert "loading a pickle can run any code" in message and option in message
    assert f"DataFlowSource({name.partition(',')[0]}.load(path))" in message
    assert str(FILES) in message


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("read", [open, lambda path: Reader(path, 2)], ids=["opened", "by a reader"])
def test_a_file_that_is_a_pickle_is_refused_and_the_error_says_what_to_do(tmp_path, protocol, read):
    path = tmp_path / "train.pkl"
    path.write_bytes(pickle.dumps([(np.zeros((2, 2, 3), np.uint8), 1)] * 3, protocol))
    with pytest.raises(ConfigError) as caught:
        next(iter(Pipeline([read(str(path))])))
    message = str(caught.value)
    assert message.startswith(f"{path}: the file begins like a pickle, and loading a pickle can run any code.")
    assert "Reader(pickle.load(file), batch_size)" in message


def test_values_that_begin_like_pickles_can_be_read_as_bytes():
    assert LMDB(str(PICKLED), decode="bytes")[2][:2] == b"\x80\x05"
    assert TFRecord(str(TFRECORD))[2][:1] == b"\x80"


@pytest.mark.parametrize("source", [PICKLED, NPZ, TFRECORD])
def test_convert_does_not_copy_pickles(source, tmp_path, capsys):
    assert main(["convert", str(source), str(tmp_path / "out.tar")]) != 0
    assert "loading a pickle can run any code" in capsys.readouterr().err
    assert not (tmp_path / "out.tar").exists()


@pytest.mark.parametrize(
    ("source", "option"), [(PICKLED, "decode=trusted_pickle"), (NPZ, "trusted_pickle=true"), (TFRECORD, "trusted_pickle=true")]
)
def test_convert_reads_pickles_that_are_trusted(tmp_path, source, option):
    path = str(tmp_path / "out.mdb")
    assert main(["convert", "--read", option, "--names", "image,cls", str(source), path]) == 0
    assert_samples([(sample["image"], sample["cls"]) for sample in LMDB(path)])


@pytest.mark.parametrize(
    "make",
    [
        lambda: LMDB("s3://bucket/a.mdb", decode="trusted_pickle"),
        lambda: LevelDB("s3://bucket/a", decode="trusted_pickle"),
        lambda: Npz("https://example.org/a.npz", trusted_pickle=True),
        lambda: TFRecord("https://example.org/a.tfrecord", trusted_pickle=True),
        lambda: TFRecord(["a.tfrecord", "s3://bucket/a.tfrecord"], trusted_pickle=True),
    ],
)
def test_pickles_are_never_loaded_from_a_url(make):
    with pytest.raises(ConfigError, match=r"trusted_pickle loads pickles from files on this machine only, not from '(s3|https)://"):
        make()


def test_a_trusted_pickle_that_cannot_be_loaded_names_its_place(tmp_path):
    with pytest.raises(ValueError, match=r"the pickle cannot be loaded: UnpicklingError"):
        DECODERS["trusted_pickle"](b"\x80\x04.", None)
    with pytest.raises(DatasetError, match=r"tensorpack-msgpack\.mdb: sample '00000000': the pickle cannot be loaded"):
        LMDB(str(PACKED), decode="trusted_pickle")[0]


def test_values_of_highway_2017_are_read_as_highway_read_them():
    assert [recognised(value) for value in HIGHWAY] == ["msgpack"] * 3
    for number, value in enumerate(HIGHWAY):
        for image, one_hot, key in (DECODERS["msgpack"](memoryview(value), None), decode(value)):
            np.testing.assert_array_equal(image, sample(number)[0], strict=True)
            np.testing.assert_array_equal(one_hot, np.eye(3, dtype=np.float32)[number], strict=True)
            assert key == b"cat/%d.jpg" % number


def test_a_database_of_highway_2017_is_read(tmp_path):
    plyvel = pytest.importorskip("plyvel", reason="which has no wheel for Python 3.13 and later")
    database = plyvel.DB(str(tmp_path / "db"), create_if_missing=True)
    for number, value in enumerate(HIGHWAY):
        database.put(bytes(number), value)
    database.close()
    found = list(LevelDB(str(tmp_path / "db")))
    assert_samples([(image, int(one_hot.argmax())) for image, one_hot, _ in found])


@pytest.mark.parametrize("item", [[b"\xff\xd8 jpeg", 7], {"jpg": b"\x89PNG", "cls": 7}], ids=["list", "dict"])
def test_encoded_images_of_highway_2017_are_read_without_an_array_beside_them(item, tmp_path):
    plyvel = pytest.importorskip("plyvel", reason="which has no wheel for Python 3.13 and later")
    database = plyvel.DB(str(tmp_path / "db"), create_if_missing=True)
    database.put(b"0", msgpack.packb(item, use_bin_type=False))
    database.close()
    [found] = LevelDB(str(tmp_path / "db"))
    assert found == (item if isinstance(item, dict) else tuple(item))


def test_names_of_fields_are_texts_in_what_highway_2017_wrote():
    black = {b"nd": True, b"type": b"|u1", b"kind": b"", b"shape": [2], b"data": b"\0\0"}
    for data in (b"\0\0", b"\xff\xfe"):
        found = decode(msgpack.packb({"image": black | {b"data": data}, "meta": {"name": "a"}}, use_bin_type=False))
        assert found["image"].tobytes() == data and found["meta"] == {"name": b"a"}


def test_text_that_is_not_utf8_is_still_no_message_without_an_array_of_highway_2017():
    for item in ([b"\xff"], {"image": np.zeros(2, np.uint8)}):
        packed = msgpack.packb([item, b"\xff\xfe"], use_bin_type=False, default=lambda array: array.tolist())
        with pytest.raises(FrameError, match=re.escape("not valid msgpack: 'utf-8' codec can't decode")):
            decode(packed)
