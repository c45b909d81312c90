"""Batches of files that are decoded elsewhere than they are read."""

from pathlib import Path

import numpy as np
import pytest

from highway import Pipeline, Stage
from highway.data import photos
from highway.errors import ConfigError, ImageError
from highway.modules import DecodeBatch, EncodedImageReader, ImageFileReader
from highway.transforms import RandomResizedCrop

VAL = f"{photos()}/val"


def run(*stages, seed=0):
    with Pipeline(stages, seed=seed) as pipeline:
        return list(pipeline.stamped())


@pytest.mark.parametrize("settings", [{}, {"shuffle": False}, {"drop_last": True}, {"seed": 9}], ids=str)
def test_read_here_and_decoded_there_the_batches_are_those_of_the_reader_that_does_both(settings):
    here = run(ImageFileReader(VAL, 6, (32, 40), epochs=2, **settings))
    there = run(EncodedImageReader(VAL, 6, epochs=2, **settings), DecodeBatch((32, 40)))
    assert len(here) == len(there)
    for ((images, labels), passport), ((expected_images, expected_labels), expected_passport) in zip(there, here, strict=True):
        np.testing.assert_array_equal(images, expected_images)
        np.testing.assert_array_equal(labels, expected_labels)
        assert labels.dtype == np.int32
        assert passport[:4] == expected_passport[:4]


def test_crops_and_flips_are_the_same_for_any_number_of_workers_and_differ_between_images_epochs_and_seeds():
    def images(workers, seed):
        decode = Stage(DecodeBatch(crop=RandomResizedCrop((24, 24)), flip=0.5), num_workers=workers)
        found = run(EncodedImageReader(VAL, 5, epochs=2, shuffle=False, num_workers=workers), decode, seed=seed)
        return np.concatenate([images for (images, _), _ in found])

    one = images(1, seed=0)
    np.testing.assert_array_equal(images(4, seed=0), one)
    assert (images(1, seed=1) != one).any()
    assert (one[: len(one) // 2] != one[len(one) // 2 :]).any()


def test_a_batch_of_files_is_their_bytes_and_where_each_ends(tmp_path):
    for label, name, data in (("a", "1.jpg", b"one"), ("a", "2.png", b"second"), ("b", "1.jpg", b"x")):
        (tmp_path / label).mkdir(exist_ok=True)
        (tmp_path / label / name).write_bytes(data)
    [((data, sizes, labels), passport)] = run(EncodedImageReader(str(tmp_path), 8, epochs=1, shuffle=False))
    assert (data.tobytes(), sizes.tolist(), labels.tolist()) == (b"onesecondx", [3, 6, 1], [0, 0, 1])
    assert (data.dtype, sizes.dtype, labels.dtype) == (np.uint8, np.int32, np.int32)
    assert passport.keys == ("a/1.jpg", "a/2.png", "b/1.jpg")


def test_a_damaged_image_ends_the_run_or_leaves_out_its_batch(tmp_path):
    for number, photo in enumerate(sorted(Path(VAL).rglob("*.jpg"))[:4]):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / f"{number}.jpg").write_bytes(photo.read_bytes() if number != 1 else b"no image")
    reader = EncodedImageReader(str(tmp_path), 2, epochs=1, shuffle=False)
    with pytest.raises(ImageError) as raised:
        run(reader, DecodeBatch((8, 8)))
    assert "image 1 of a batch of 2" in raised.value.__notes__
    [(_, passport)] = run(reader, Stage(DecodeBatch((8, 8)), on_error="skip"))
    assert passport.keys == ("a/2.jpg", "a/3.jpg")


def test_too_few_images_for_a_batch_are_an_error_that_says_what_to_do():
    with pytest.raises(ValueError, match="make no batch of 1000; lower batch_size"):
        run(EncodedImageReader(VAL, 1000, drop_last=True))


@pytest.mark.parametrize(
    "make",
    [
        lambda: EncodedImageReader(VAL, 0),
        lambda: EncodedImageReader(VAL, 1, epochs=0),
        lambda: EncodedImageReader(VAL, 1, num_workers=0),
        lambda: EncodedImageReader(VAL, 1, seed=-1),
        lambda: DecodeBatch(),
        lambda: DecodeBatch((8, 8), RandomResizedCrop((8, 8))),
        lambda: DecodeBatch((0, 8)),
        lambda: DecodeBatch((8, 8), flip=2),
    ],
)
def test_parameters_out_of_their_range_are_refused_with_what_is_expected(make):
    with pytest.raises(ConfigError, match="expected"):
        make()


@pytest.mark.parametrize(
    "item",
    [
        np.zeros((2, 8, 8, 3), np.uint8),
        (np.zeros((2, 8, 8, 3), np.uint8), np.zeros(2, np.int32)),
        (np.zeros(9, np.uint8), np.array([3, 5], np.int32), np.zeros(2, np.int32)),
        (np.zeros(8, np.uint8), np.array([3, 5], np.int32), np.zeros(3, np.int32)),
        (np.zeros(8, np.uint8), np.array([-1, 9], np.int32), np.zeros(2, np.int32)),
    ],
    ids=["array", "decoded", "bytes", "labels", "negative"],
)
def test_what_is_no_batch_of_files_is_refused(item):
    with pytest.raises(ValueError, match="expected a batch of EncodedImageReader,"):
        DecodeBatch((8, 8))(item, np.random.default_rng(0))
