"""Images written below a folder."""

import os

import numpy as np
import pytest
from PIL import Image

from highway.datasets import Files, ImageFolder
from highway.datasets.folder_writer import image_folder_writer
from highway.errors import DatasetError, ItemError


def png(number):
    import io

    file = io.BytesIO()
    Image.new("RGB", (3, 2), (number, 0, 0)).save(file, "PNG")
    return file.getvalue()


def write(path, *samples):
    with image_folder_writer(str(path)) as writer:
        for key, sample in samples:
            writer.add(key, sample)


def test_images_lie_under_their_keys_or_by_their_labels(tmp_path):
    write(tmp_path, ("cat/a.b", {"png": png(1), "cls": np.int32(0)}), ("dog/c", {"gif": b"GIF", "label": 1}))
    dataset = ImageFolder(str(tmp_path))
    assert dataset.keys == ["cat/a.b.png", "dog/c.gif"] and [int(label) for _, label in dataset] == [0, 1]
    assert dataset[0][0] == png(1) and sorted(os.listdir(tmp_path)) == ["cat", "dog"]
    write(tmp_path / "numbers", ("a", {"png": png(1), "cls": 0}), ("b", {"png": png(2), "cls": 1}))
    assert ImageFolder(str(tmp_path / "numbers")).keys == ["0000/a.png", "0001/b.png"]


def test_without_labels_they_lie_in_the_folder_itself(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)
    write(tmp_path, ("a", {"image": pixels}), ("b", {"image": pixels[..., 0]}))
    assert Files(str(tmp_path)).keys == ["a.png", "b.png"]
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "a.png")), pixels)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "b.png")), pixels[..., 0])


@pytest.mark.parametrize("labels", [(7, 9), (1, 0)])
def test_labels_that_the_folders_do_not_say_stand_in_a_list(tmp_path, labels):
    write(tmp_path, ("cat/x", {"png": png(1), "cls": labels[0]}), ("dog/x", {"png": png(2), "cls": labels[1]}))
    dataset = Files(str(tmp_path), labels="highway-labels.txt")
    assert [(key, int(label)) for key, (_, label) in zip(dataset.keys, dataset, strict=True)] == [
        ("cat/x.png", labels[0]),
        ("dog/x.png", labels[1]),
    ]


def test_what_is_there_stays(tmp_path):
    write(tmp_path, ("a", {"png": png(1)}))
    write(tmp_path, ("a", {"png": png(2)}))
    assert (tmp_path / "a.png").read_bytes() == png(1)


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        ([("a", {"png": b"1"}), ("a", {"png": b"2"})], DatasetError, "two images have the path 'a.png' in"),
        ([("../a", {"png": b"1"})], DatasetError, "the key '../a' is a path outside the folder"),
        ([("/a", {"png": b"1"})], DatasetError, "the key '/a' is a path outside the folder"),
        (
            [("a", {"png": b"1", "txt": "b"})],
            ItemError,
            "an image and a label for each sample, but this sample has png, txt; remove the other fields,",
        ),
        ([("a", {"cls": 1})], ItemError, "an image and a label for each sample, but this sample has cls"),
        (
            [("a", {"bin": b"1"})],
            ItemError,
            "a folder stores images, but field 'bin' is a bytes; expected the bytes of an image file in a field named by",
        ),
        ([("a", {"image": np.zeros((2, 2, 4), np.uint8)})], ItemError, "field 'image' is a ndarray; expected"),
    ],
)
def test_what_is_no_labelled_image_is_refused(tmp_path, samples, error, message):
    with pytest.raises(error, match=message.replace("(", r"\(")):
        write(tmp_path, *samples)


@pytest.mark.parametrize("other", ["./a/x", "a//x", "a/./x", ".//a/x"])
def test_two_spellings_of_one_path_are_two_images_for_one_file(tmp_path, other):
    with pytest.raises(DatasetError, match=r"two images have the path 'a/x\.png'"):
        write(tmp_path, ("a/x", {"png": png(1)}), (other, {"png": png(2)}))
    with pytest.raises(DatasetError, match=r"two images have the path '0003/x\.png'"):
        write(tmp_path / "labelled", ("x", {"png": png(1), "cls": 3}), ("./x", {"png": png(2), "cls": 3}))


def test_keys_of_archives_begin_with_a_dot_and_are_plain_paths(tmp_path):
    write(tmp_path, ("./a/x", {"png": png(1)}), ("./b/x", {"png": png(2)}))
    assert ImageFolder(str(tmp_path)).keys == ["a/x.png", "b/x.png"]


@pytest.mark.parametrize("key", ["a/.x", ".a/x", "a/", "a/.", "", "..."])
def test_a_key_that_would_be_hidden_from_readers_is_an_error(tmp_path, key):
    with pytest.raises(DatasetError, match="would be a hidden file or folder, which readers skip"):
        write(tmp_path, (key, {"png": png(1)}))
