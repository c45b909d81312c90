"""TFRecord and tf.train.Example against TensorFlow, both ways."""

import numpy as np
import pytest

from highway.datasets import TFRecord
from highway.datasets.records.example import decode_example, encode_example
from highway.datasets.records.tfrecord import tfrecord_writer
from highway.errors import DatasetError

tf = pytest.importorskip("tensorflow", reason="run by `tox -e oracles`")


def feature(values):
    if all(isinstance(value, bytes) for value in values):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if all(isinstance(value, int) for value in values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


RNG = np.random.default_rng(0)
EXAMPLES = [
    {
        "image/encoded": [RNG.bytes(int(RNG.integers(0, 3000)))],
        "image/class/label": [int(RNG.integers(-(2**63), 2**63 - 1))],
        "boxes": RNG.normal(size=int(RNG.integers(2, 40))).astype(np.float32).tolist(),
        "ids": RNG.integers(-300, 2**40, int(RNG.integers(2, 40))).tolist(),
        "names": [b"a", b"", RNG.bytes(200)],
    }
    for _ in range(50)
]


def serialized(values):
    return tf.train.Example(features=tf.train.Features(feature={name: feature(v) for name, v in values.items()})).SerializeToString()


@pytest.fixture
def theirs(tmp_path):
    path = str(tmp_path / "theirs.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for values in EXAMPLES:
            writer.write(serialized(values))
    return path


def test_what_tensorflow_writes_is_read_as_it_reads_it(theirs):
    dataset = TFRecord(theirs)
    assert list(dataset) == [record.numpy() for record in tf.data.TFRecordDataset(theirs)]
    for values, sample in zip(EXAMPLES, TFRecord(theirs, example=True), strict=True):
        assert {name: np.asarray(v).tolist() for name, v in sample.items() if name not in ("names", "image/encoded")} == {
            name: v if len(v) > 1 else v[0] for name, v in values.items() if name not in ("names", "image/encoded")
        }
        assert sample["names"] == values["names"] and sample["image/encoded"] == values["image/encoded"][0]


def test_tensorflow_reads_what_we_write(tmp_path):
    path = str(tmp_path / "ours.tfrecord")
    boxes = np.arange(8, dtype=np.float32).reshape(2, 4)
    with tfrecord_writer(path) as writer:
        for n in range(20):
            sample = {
                "image": bytes([n]) * n * 50,
                "label": np.int32(-n),
                "boxes": boxes + n,
                "mask": np.full((2, 2), n, np.uint8),
                "t": "é",
            }
            writer.add(f"k{n}", sample)
    schema = {
        "__key__": tf.io.FixedLenFeature([], tf.string),
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "boxes": tf.io.FixedLenFeature([2, 4], tf.float32),
        "mask": tf.io.FixedLenFeature([], tf.string),
        "t": tf.io.FixedLenFeature([], tf.string),
    }
    for n, record in enumerate(tf.data.TFRecordDataset(path)):
        found = tf.io.parse_single_example(record, schema)
        assert (found["__key__"].numpy(), found["image"].numpy()) == (f"k{n}".encode(), bytes([n]) * n * 50)
        assert (int(found["label"]), found["t"].numpy().decode()) == (-n, "é")
        assert np.array_equal(found["boxes"].numpy(), boxes + n)
        assert tf.io.decode_raw(found["mask"], tf.uint8).numpy().tolist() == [n] * 4


def test_the_checksums_are_those_of_tensorflow(tmp_path, theirs):
    records = list(TFRecord(theirs))
    with tfrecord_writer(str(tmp_path / "a")) as writer:
        for record in records:
            writer.write(record)
    with open(theirs, "rb") as one, open(tmp_path / "a", "rb") as other:
        assert one.read() == other.read()


def test_features_of_every_kind_are_those_of_the_protobuf_package():
    message = tf.train.Example()
    message.ParseFromString(encode_example("k", {"a": np.arange(-3, 300), "b": [b"x", b""], "c": np.float32([1, 2]), "d": np.int64(-1)}))
    found = message.features.feature
    assert list(found["a"].int64_list.value) == list(range(-3, 300)) and list(found["d"].int64_list.value) == [-1]
    assert list(found["b"].bytes_list.value) == [b"x", b""] and list(found["c"].float_list.value) == [1, 2]
    assert decode_example(message.SerializeToString())["a"].tolist() == list(range(-3, 300))


@pytest.mark.parametrize("kind", ["GZIP", "ZLIB"])
def test_compressed_files_are_refused(tmp_path, kind):
    path = str(tmp_path / "a")
    with tf.io.TFRecordWriter(path, kind) as writer:
        writer.write(b"x" * 100)
    with pytest.raises(DatasetError, match=f"compressed with {kind}"):
        len(TFRecord(path))


def test_a_sequence_example_is_refused():
    lists = tf.train.FeatureLists(feature_list={"tokens": tf.train.FeatureList(feature=[feature([1]), feature([2])])})
    data = tf.train.SequenceExample(context=tf.train.Features(feature={"id": feature([7])}), feature_lists=lists).SerializeToString()
    with pytest.raises(ValueError, match="a SequenceExample"):
        decode_example(data)
