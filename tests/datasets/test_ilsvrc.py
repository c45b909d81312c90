"""What comes with ILSVRC beside the images: names of the classes, Caffe's mean image, and boxes of training images."""

import struct

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from highway.datasets import Files
from highway.datasets.classification.ilsvrc import read_mean_image, read_training_boxes
from highway.datasets.records.protobuf import write_bytes, write_int64s, write_varint
from highway.errors import DatasetError

MEAN = np.random.default_rng(0).uniform(0, 255, (3, 6, 5)).astype("<f4")  # channels in the order BGR
VALUES = write_bytes(5 << 3 | 2, MEAN.tobytes())
ONE_BY_ONE = b"".join(struct.pack("<Bf", 5 << 3 | 5, value) for value in MEAN.ravel().tolist())


def old_shape(*shape):
    return b"".join(bytes([number << 3]) + write_varint(length) for number, length in enumerate(shape, start=1))


def new_shape(*shape, packed=True):
    dims = write_bytes(1 << 3 | 2, write_int64s(shape)) if packed else b"".join(b"\x08" + write_varint(length) for length in shape)
    return write_bytes(7 << 3 | 2, dims)


@pytest.mark.parametrize(
    "content",
    [
        old_shape(1, 3, 6, 5) + VALUES,  # as imagenet_mean.binaryproto is
        old_shape(1, 3, 6, 5) + ONE_BY_ONE,
        VALUES + new_shape(1, 3, 6, 5),
        VALUES + new_shape(3, 6, 5, packed=False),
    ],
)
def test_the_mean_image_of_caffe_is_read_in_rgb(tmp_path, content):
    path = tmp_path / "imagenet_mean.binaryproto"
    path.write_bytes(content)
    mean = read_mean_image(str(path))
    assert mean.dtype == np.float32 and mean.flags.c_contiguous
    of_tensorpack = np.transpose(MEAN, [1, 2, 0])  # which is BGR
    assert_array_equal(mean, of_tensorpack[..., ::-1], strict=True)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x89PNG\r\n\x1a\n",
        (old_shape(1, 3, 6, 5) + VALUES)[:-1],
        old_shape(1, 3, 6, 5),
        old_shape(1, 3, 6, 4) + VALUES,
        old_shape(1, 1, 18, 5) + VALUES,
        old_shape(3, 3, 2, 5) + VALUES,
        new_shape(1, 3, 2**62, 5) + VALUES,
    ],
)
def test_a_file_that_is_no_mean_image_is_an_error_that_names_it(tmp_path, content):
    path = tmp_path / "mean.binaryproto"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"mean\.binaryproto: not a mean image of Caffe, or damaged or truncated:"):
        read_mean_image(str(path))


def test_the_names_of_the_classes_need_no_images(tmp_path):
    (tmp_path / "synset_words.txt").write_text("n01440764 tench, Tinca tinca\nn01443537 goldfish, Carassius auratus\n")
    (tmp_path / "val.txt").write_text("ILSVRC2012_val_00000001.JPEG 1\n")
    meta = Files(str(tmp_path), "val.txt", "synset_words.txt")
    assert meta.classes == ["n01440764", "n01443537"]
    assert meta.words == ["tench, Tinca tinca", "goldfish, Carassius auratus"]


def annotation(*boxes):
    sides = ("xmin", "ymin", "xmax", "ymax")
    objects = [
        "<object><name>n01440764</name><bndbox>" + "".join(f"<{side}>{value}</{side}>" for side, value in zip(sides, box, strict=True))
        + "</bndbox></object>"
        for box in boxes
    ]  # fmt: skip
    return f"<annotation><size><width>500</width><height>375</height></size>{''.join(objects)}</annotation>"


KEYS = ["n01440764/n01440764_10040.JPEG", "n01440764/n01440764_18.JPEG", "n01440764/n01440764_2.JPEG"]


def test_the_boxes_of_training_images_are_as_the_files_have_them(tmp_path):
    (tmp_path / "n01440764").mkdir()
    (tmp_path / "n01440764/n01440764_10040.xml").write_text(annotation((0, 9, 499, 370)))
    (tmp_path / "n01440764/n01440764_2.xml").write_text(annotation((13, 22, 100, 200), (1, 2, 3, 4)))
    one, none, two = read_training_boxes(str(tmp_path), KEYS)
    assert_array_equal(one, np.float32([[0, 9, 499, 370]]), strict=True)
    assert_array_equal(none, np.empty((0, 4), np.float32), strict=True)
    assert_array_equal(two, np.float32([[13, 22, 100, 200], [1, 2, 3, 4]]), strict=True)


def test_a_folder_without_a_file_for_any_image_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"n01440764_2\.xml.*data_dir must be the folder that contains n01440764"):
        read_training_boxes(str(tmp_path), KEYS)


def test_a_damaged_annotation_is_an_error_and_no_image_without_boxes(tmp_path):
    (tmp_path / "n01440764").mkdir()
    (tmp_path / "n01440764/n01440764_18.xml").write_text(annotation((0, 9, 499, 370))[:-20])
    with pytest.raises(DatasetError, match=r"n01440764_18\.xml: not XML, or damaged or truncated:"):
        read_training_boxes(str(tmp_path), KEYS)
