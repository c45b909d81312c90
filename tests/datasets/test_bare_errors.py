"""Damaged texts in the files of datasets: a DatasetError that names the file, not an error of the library that parses them."""

import io
import json

import numpy as np
import pytest

from highway.cli import main
from highway.datasets import CIFAR10, COCO, VOC, Tar
from highway.datasets.field_codecs import decode_field
from highway.datasets.npy.writer import npz_writer
from highway.datasets.shards import shard_writer
from highway.errors import DatasetError, ShardError

IMAGES = [{"id": 1, "file_name": "1.jpg", "height": 20, "width": 30}]
BOX = {"image_id": 1, "category_id": 17, "bbox": [1, 2, 3, 4], "segmentation": [[1, 1, 9, 1, 9, 9]]}


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"cat", b"\xff\xfe"),
        (b'id": 1,', b'id": 18446744073709551615,'),
        (b"1.jpg", b"1\\u0000.jpg"),
        (b'"cat"', b'"cat", "x": ' + b"[" * 100_000),
    ],
)
def test_damaged_annotations_of_coco_are_named(tmp_path, masks, old, new):
    content = json.dumps({"images": IMAGES, "annotations": [BOX], "categories": [{"id": 17, "name": "cat"}]}).encode()
    assert old in content
    (tmp_path / "a.json").write_bytes(content.replace(old, new))
    (tmp_path / "1.jpg").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"a\.json: "):
        COCO(str(tmp_path), str(tmp_path / "a.json"), masks=masks)[0]


@pytest.mark.parametrize("name", [b"\xff", b"a\0b"])
def test_a_damaged_list_of_images_of_voc_is_named(tmp_path, name):
    for folder in ("ImageSets/Main", "JPEGImages", "Annotations"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "ImageSets/Main/train.txt").write_bytes(b"2007_000001\n" + name + b"\n")
    with pytest.raises(DatasetError, match=r"train\.txt: "):
        VOC(str(tmp_path), "train")[1]


def test_damaged_names_of_classes_of_cifar_are_named(tmp_path):
    (tmp_path / "batches.meta.txt").write_bytes(b"cat\n\xff\n")
    with pytest.raises(DatasetError, match=r"batches\.meta\.txt: the file is not UTF-8 text:"):
        _ = CIFAR10(str(tmp_path)).classes


@pytest.mark.parametrize("header", [b"{'descr': '<f4", b"{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999,)}"])
def test_a_damaged_array_in_a_shard_is_named(tmp_path, header):
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with pytest.raises(ValueError, match=r"not a readable \.npy file:"):
        decode_field("npy", data)
    with shard_writer(str(tmp_path / "a.tar")) as writer:
        writer.add("1", {"x.npy": data})
    with pytest.raises(ShardError, match=r"a\.tar: sample '1': \.x\.npy: not a readable \.npy file:"):
        Tar(str(tmp_path / "a.tar"))[0]


def test_an_array_in_a_shard_comes_back():
    file = io.BytesIO()
    np.save(file, np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(decode_field("npy", file.getvalue()), np.arange(6).reshape(2, 3))


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"about": 3, "samples": 1}', b"[" * 100_000])
def test_a_damaged_record_of_a_conversion_is_named_with_the_way_out(tmp_path, capsys, content):
    with npz_writer(str(tmp_path / "a.npz")) as writer:
        writer.add("1", {"x": np.zeros(3)})
    command = ["convert", str(tmp_path / "a.npz"), str(tmp_path / "a.tfrecord")]
    assert main(command) == 0
    record = tmp_path / ".highway-convert-a.tfrecord.json"
    record.write_bytes(content)
    assert main(command) != 0
    assert f"{record}: the record of the conversion is missing or damaged: " in capsys.readouterr().err
