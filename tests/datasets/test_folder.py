"""Image files by number, and lists of their labels."""

import copy
import dataclasses
import os

import numpy as np
import pytest
from PIL import Image

from highway import Pipeline
from highway.datasets import Files, ImageFolder
from highway.datasets.image_files import ImageFiles
from highway.errors import ConfigError, DatasetError
from highway.modules import ImageFileReader, ImageReader


@pytest.fixture
def folder(tmp_path):
    """Four images, two of them in folders below."""
    for number, name in enumerate(["a/x.png", "b.png", "c.png", "d/y z.png"]):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (number, 0, 0)).save(path)
    return tmp_path / "images"


def listed(folder, text, names=None, **more):
    """Return the dataset of a list in a file beside the folder, and of a file of classes."""
    folder.with_name("val.txt").write_text(text)
    if names is not None:
        folder.with_name("classes.txt").write_text(names)
        more["class_names"] = str(folder.with_name("classes.txt"))
    return Files(str(folder), str(folder.with_name("val.txt")), **more)


def labels(dataset):
    return {key: int(dataset[number][1]) for number, key in enumerate(dataset.keys)}


def test_numbers_are_labels_as_they_stand_and_the_list_says_the_order(folder):
    dataset = listed(folder, "c.png 3\n\nb.png 0\n")
    assert len(dataset) == 2 and dataset.keys == ["c.png", "b.png"]
    data, label = dataset[0]
    assert data == (folder / "c.png").read_bytes() and label == 3 and label.dtype == np.int32
    assert dataset.classes == ["0", "1", "2", "3"] and dataset.words is None
    assert dataset.locate(1) == str(folder / "b.png")


def test_names_are_numbered_in_their_order_or_in_that_of_a_file(folder):
    text = "c.png dog\nb.png cat\n"
    dataset = listed(folder, text)
    assert labels(dataset) == {"c.png": 1, "b.png": 0} and dataset.classes == ["cat", "dog"]
    dataset = listed(folder, text, "dog\nfish\ncat\n")
    assert labels(dataset) == {"c.png": 0, "b.png": 2} and dataset.classes == ["dog", "fish", "cat"] and dataset.words is None


def test_lists_of_ilsvrc_have_synsets_and_words(folder):
    dataset = listed(folder, "b.png 1\nc.png 0\n", "n01440764 tench, Tinca tinca\nn01443537 goldfish, Carassius auratus\n")
    assert labels(dataset) == {"b.png": 1, "c.png": 0}
    assert dataset.classes == ["n01440764", "n01443537"]
    assert dataset.words == ["tench, Tinca tinca", "goldfish, Carassius auratus"]


def test_lists_of_places365_begin_with_slashes_and_number_their_classes(folder):
    dataset = listed(folder, "/a/x.png 1\nb.png 0\n", "/a/airfield 0\n/a/airplane_cabin 1\n")
    assert labels(dataset) == {"a/x.png": 1, "b.png": 0}
    assert dataset.classes == ["/a/airfield", "/a/airplane_cabin"] and dataset.words is None


def test_lists_of_tiny_imagenet_have_tabs_and_boxes(folder):
    text = "b.png\tn03444034\t0\t32\t44\t62\nd/y z.png\tn01443537\t1\t2\t3\t4\n"
    assert labels(listed(folder, text)) == {"b.png": 1, "d/y z.png": 0}
    assert labels(listed(folder, text, "n03444034\nn01443537\n")) == {"b.png": 0, "d/y z.png": 1}


def test_names_may_hold_spaces(folder):
    assert labels(listed(folder, "d/y z.png 7\n")) == {"d/y z.png": 7}


def test_a_list_is_looked_for_in_the_folder_too(folder, monkeypatch):
    (folder / "here.txt").write_text("b.png 4\n")
    assert labels(Files(str(folder), "here.txt")) == {"b.png": 4}
    with pytest.raises(FileNotFoundError, match=r"images/nowhere\.txt"):
        len(Files(str(folder), "nowhere.txt"))


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        ("b.png\n", None, r"val\.txt, line 1: 'b\.png'; expected a name and a label, such as"),
        ("b.png 1\n\nc.png dog\n", None, r"val\.txt, line 3: 'c\.png dog'; expected as label a number, as in the earlier lines"),
        ("b.png 1\nb.png 2\n", None, r"val\.txt, line 2: .* 'b\.png' is also in an earlier line; remove one of these lines"),
        ("b.png 2\n", "cat\ndog\n", r"val\.txt, line 1: .* a number below 2, the classes in .*classes\.txt"),
        ("b.png fish\n", "cat\ndog\n", r"val\.txt, line 1: .* 'fish' is not in .*classes\.txt; add it to this file,"),
        ("b.png cat\n", "cat\ndog\ncat purrs\n", r"classes\.txt, line 3: .* 'cat' is also in an earlier line;"),
        ("b.png cat\n", "\n", r"classes\.txt: the file has no lines; expected the name of a class in each"),
        ("", None, r"val\.txt: the file has no lines; expected a name and a label in each"),
    ],
)
def test_a_line_that_is_not_as_it_should_be_is_named(folder, text, names, message):
    with pytest.raises(DatasetError, match=message):
        len(listed(folder, text, names))


def test_a_list_that_is_no_text_is_named(folder):
    with pytest.raises(DatasetError, match=r"b\.png: the file is not UTF-8 text:"):
        len(Files(str(folder), str(folder / "b.png")))


def test_images_that_are_not_there_are_counted_and_the_first_is_named(folder):
    dataset = listed(folder, "b.png 1\nno.png 2\nnone/c.png 2\n")
    with pytest.raises(
        FileNotFoundError, match=r"val\.txt: 2 of 3 listed images do not exist in '.*'; the first is 'no\.png'; correct data_dir"
    ):
        len(dataset)
    with pytest.raises(FileNotFoundError, match=r"nowhere': there is no such folder \(the current directory is .*\);"):
        len(Files(str(folder.with_name("nowhere")), str(folder.with_name("val.txt"))))


def test_classes_need_a_list():
    with pytest.raises(
        ConfigError, match=r"class_names='synsets\.txt', but no labels; pass the list with the label of each image as labels="
    ):
        Files("folder", class_names="synsets.txt")


def test_without_a_list_images_have_no_labels(folder):
    dataset = Files(str(folder))
    assert dataset.keys == ["b.png", "c.png"] and dataset[0] == ((folder / "b.png").read_bytes(),)
    assert dataset.classes is None and dataset.words is None


def test_readers_take_them(folder):
    dataset = listed(folder, "c.png 3\nb.png 0\na/x.png 1\n")
    with Pipeline([ImageFileReader(dataset, 3, (4, 4), 1, shuffle=False, one_hot=True)]) as pipeline:
        ((images, rows),) = pipeline
    assert images[:, 0, 0, 0].tolist() == [2, 1, 0] and rows.argmax(axis=1).tolist() == [3, 0, 1] and rows.shape == (3, 4)
    with Pipeline([ImageReader(dataset, 3, (4, 4), 1, shuffle=False)]) as pipeline:
        ((images,),) = pipeline
    assert images[:, 0, 0, 0].tolist() == [2, 1, 0]


def test_readers_of_images_are_told_which_files_they_are_and_do_not_have_them_read(folder, monkeypatch):
    reads = []
    monkeypatch.setattr(ImageFiles, "read", lambda files, number: reads.append(number))
    monkeypatch.setattr(ImageFiles, "contents", lambda files, numbers: reads.extend(numbers))
    for dataset in (ImageFolder(str(folder)), Files(str(folder)), listed(folder, "c.png 3\nb.png 0\n")):
        with Pipeline([ImageReader(dataset, 2, (4, 4), 1)]) as pipeline:
            assert [len(images) for (images,) in pipeline] == [2] and reads == []


def test_the_fingerprint_changes_with_the_list(folder):
    dataset = listed(folder, "b.png 1\n", "cat\ndog\n")
    before = dataset.fingerprint()
    assert before == dataset.fingerprint() != Files(str(folder)).fingerprint()
    os.utime(folder.with_name("classes.txt"), ns=(0, 0))
    assert dataset.fingerprint() != before


def test_a_fingerprint_changes_when_an_image_is_written_to(folder):
    dataset = ImageFolder(str(folder))
    before = dataset.fingerprint()
    os.utime(folder / "a" / "x.png", ns=(0, 0))
    assert dataset.fingerprint() != before


def test_a_copy_with_another_folder_lists_that_folder(folder):
    Image.new("RGB", (4, 4)).save(folder / "d" / "z.png")
    first = ImageFolder(str(folder))
    assert len(first) == 3
    (folder.parent / "others" / "e").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(folder.parent / "others" / "e" / "0.png")
    for other in (copy.copy(first), dataclasses.replace(first, data_dir="")):
        other.data_dir = str(folder.parent / "others")
        assert other.keys == ["e/0.png"]
    assert len(first) == 3


# --- links ---


@pytest.fixture
def classes(tmp_path):
    """Two labels, with one image each."""
    for name in ("cat", "dog"):
        (tmp_path / "classes" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "classes" / name / "0.png")
    return tmp_path / "classes"


@pytest.mark.parametrize("name", ["ant", "cat/1.png", "cat/more"])
def test_a_link_that_leads_nowhere_is_an_error_and_does_not_shift_labels(classes, name):
    os.symlink(classes / "gone", classes / name)
    with pytest.raises(FileNotFoundError, match=rf"classes/{name}': this link leads to '.*/gone', which does not exist; correct or remove"):
        len(ImageFolder(str(classes)))


def test_a_link_that_leads_nowhere_is_an_error_in_a_folder_without_labels_and_in_the_names_of_classes(classes):
    os.symlink("gone", classes / "ant")
    with pytest.raises(FileNotFoundError, match="this link leads to 'gone'"):
        ImageFolder(str(classes)).classes  # noqa: B018
    os.symlink("gone", classes / "cat" / "1.png")
    with pytest.raises(FileNotFoundError, match="this link leads to 'gone'"):
        len(Files(str(classes / "cat")))
    with pytest.raises(FileNotFoundError, match=r"1 of 2 listed images do not exist in .*; the first is '1\.png'"):
        len(listed(classes / "cat", "0.png 0\n1.png 0\n"))


def test_links_to_folders_below_a_class_are_followed(classes):
    (classes.parent / "more").mkdir()
    Image.new("RGB", (4, 4)).save(classes.parent / "more" / "1.png")
    os.symlink(classes.parent / "more", classes / "dog" / "more")
    os.symlink(classes / "dog", classes / "fox")  # the same images under two labels are no cycle
    assert labels(ImageFolder(str(classes))) == {"cat/0.png": 0, "dog/0.png": 1, "dog/more/1.png": 1, "fox/0.png": 2, "fox/more/1.png": 2}


@pytest.mark.parametrize(("name", "target"), [("dog/up", ".."), ("dog/here", "."), ("self", "."), ("dog/cat", "../cat")])
def test_a_link_that_leads_back_up_is_an_error(classes, name, target):
    os.symlink(target, classes / name)
    if target == "../cat":  # and back: neither folder holds the other
        os.symlink("../dog", classes / "cat" / "dog")
    with pytest.raises(DatasetError, match=r"classes/.*' leads to a folder that contains the link; remove the link"):
        len(ImageFolder(str(classes)))


@pytest.fixture
def tiny(tmp_path):
    """A folder like Tiny ImageNet: ``wnids.txt`` is in another order than the names of the folders."""
    for number, name in enumerate(["n01", "n02", "n03"]):
        (tmp_path / "train" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4), (number, 0, 0)).save(tmp_path / "train" / name / "a.png")
    (tmp_path / "wnids.txt").write_text("n03\nn01\nn02\n")
    return tmp_path


def test_a_file_of_classes_numbers_folders_as_it_numbers_lists(tiny):
    wnids = str(tiny / "wnids.txt")
    expected = {"n03/a.png": 0, "n01/a.png": 1, "n02/a.png": 2}
    for dataset in (
        ImageFolder(str(tiny / "train"), class_names=wnids),
        ImageFolder(str(tiny / "train"), classes=wnids),
        ImageFolder(str(tiny / "train"), class_names=["n03", "n01", "n02"]),
        ImageFolder(str(tiny / "train"), class_names="../wnids.txt"),
    ):
        assert labels(dataset) == expected and dataset.classes == ["n03", "n01", "n02"]
    (tiny / "val.txt").write_text("".join(f"{key} {key[:3]}\n" for key in expected))
    assert labels(Files(str(tiny / "train"), str(tiny / "val.txt"), wnids)) == expected
    assert ImageFolder(str(tiny / "train")).fingerprint() != ImageFolder(str(tiny / "train"), class_names=wnids).fingerprint()


def test_folders_that_are_not_among_the_classes_are_left_out_and_missing_ones_are_an_error(tiny):
    dataset = ImageFolder(str(tiny / "train"), class_names=["n02"])
    assert labels(dataset) == {"n02/a.png": 0}
    with pytest.raises(FileNotFoundError, match=r"of 2 classes; the first is 'n09'; correct classes or data_dir"):
        len(ImageFolder(str(tiny / "train"), class_names=["n01", "n09"]))


SPLITS = ["train val", "test train validation", "Train Test", "train", "train2017 val2017", "train_set test_set", "trn tst"]


@pytest.mark.parametrize("names", [names.split() for names in SPLITS], ids=SPLITS)
def test_folders_that_are_called_as_splits_are_not_taken_for_classes(tmp_path, names):
    for name in names:
        (tmp_path / name / "cat").mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name / "cat" / "a.png")
    with pytest.raises(DatasetError) as caught, Pipeline([ImageFileReader(str(tmp_path), 1, (4, 4))]) as pipeline:
        pipeline.dequeue()
    train = next((name for name in sorted(names) if name.lower().startswith("train")), min(names))
    assert f"read one of them, '{tmp_path / train}', or declare that they are classes: ImageFolder(" in str(caught.value)
    dataset = ImageFolder(str(tmp_path), class_names=sorted(names))
    assert dataset.classes == sorted(names) and len(dataset) == len(names)


def test_a_class_called_train_among_others_is_a_class(tmp_path):
    for name in ("train", "tram"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (4, 4)).save(tmp_path / name / "a.png")
    assert ImageFolder(str(tmp_path)).classes == ["train", "tram"]


def test_the_folder_is_the_label_where_a_list_has_paths_alone(folder):
    dataset = listed(folder, "/d/y.png\na/x.png\n")
    (folder / "d" / "y z.png").rename(folder / "d" / "y.png")
    assert labels(dataset) == {"d/y.png": 1, "a/x.png": 0} and dataset.classes == ["a", "d"]
    with pytest.raises(DatasetError, match=r"line 2: 'b.png'; expected a name and a label"):
        len(listed(folder, "a/x.png\nb.png\n"))
    with pytest.raises(DatasetError, match=r"line 2: 'b.png 3'; expected only a path, as in the earlier lines"):
        len(listed(folder, "a/x.png\nb.png 3\n"))
