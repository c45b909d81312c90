"""MNIST, Fashion-MNIST and CIFAR, from small files that are laid out like the published ones."""

import gzip
import os
import pickle
import struct
from pathlib import Path

import fsspec
import numpy as np
import pytest

from highway import Pipeline
from highway.datasets import CIFAR10, CIFAR100, MNIST, FashionMNIST
from highway.datasets.classification.plain_pickle import load_plain
from highway.errors import DatasetError
from highway.modules import Augmentations, Reader
from highway.transforms import FlipX

RNG = np.random.default_rng(0)
DIGITS = RNG.integers(0, 256, (12, 28, 28), np.uint8)
LABELS = (np.arange(12) % 10).astype(np.uint8)
PIXELS = RNG.integers(0, 256, (4, 3, 32, 32), np.uint8)


def idx(array):
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def write_mnist(folder, form="train-{}-idx{}-ubyte", zipped=False, images=None, labels=None):
    folder.mkdir(parents=True, exist_ok=True)
    for name, axes, content in (("images", 3, images or idx(DIGITS)), ("labels", 1, labels or idx(LABELS))):
        path = folder / (form.format(name, axes) + (".gz" if zipped else ""))
        path.write_bytes(gzip.compress(content) if zipped else content)


@pytest.mark.parametrize("kind", [MNIST, FashionMNIST])
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("folder", ["", "raw", "{}/raw"])
@pytest.mark.parametrize("mark", ["-", "."])
def test_images_and_labels_are_those_of_the_files_wherever_they_usually_are(tmp_path, kind, zipped, folder, mark):
    write_mnist(tmp_path / folder.format(kind.__name__), "t10k-{}" + mark + "idx{}-ubyte", zipped)
    dataset = kind(str(tmp_path), "test")
    assert len(dataset) == 12 and len(dataset.classes) == 10
    for number in (0, 11, -1):
        sample = dataset[number]
        assert sample["image"].dtype == np.uint8 and sample["image"].shape == (28, 28, 1)
        np.testing.assert_array_equal(sample["image"][..., 0], DIGITS[number])
        assert sample["label"] == LABELS[number] and sample["label"].dtype == np.int32
    with pytest.raises(IndexError):
        dataset[12]
    dataset[0]["image"][:] = 0  # it is memory of its own
    np.testing.assert_array_equal(dataset[0]["image"][..., 0], DIGITS[0])


def test_classes_have_names():
    assert MNIST("nowhere").classes[3] == "3" and FashionMNIST("nowhere").classes[9] == "Ankle boot"


def test_readers_make_batches_that_transforms_take(tmp_path):
    write_mnist(tmp_path)
    dataset = pickle.loads(pickle.dumps(MNIST(str(tmp_path))))
    with Pipeline([Reader(dataset, 5, shuffle=False, epochs=1), Augmentations([FlipX(p=1)])]) as pipeline:
        batches = list(pipeline)
    images = np.concatenate([batch["image"] for batch in batches])
    np.testing.assert_array_equal(images[..., 0], DIGITS[:, :, ::-1])
    assert np.concatenate([batch["label"] for batch in batches]).tolist() == LABELS.tolist()
    assert dataset.locate(3) == f"{tmp_path}: image 3 of train"


def test_they_are_read_from_a_store(tmp_path):
    write_mnist(tmp_path, zipped=True)
    files = fsspec.filesystem("memory")
    files.put(str(tmp_path), "/mnist/raw", recursive=True)
    try:
        dataset = MNIST("memory://mnist")
        np.testing.assert_array_equal(dataset[5]["image"][..., 0], DIGITS[5])
        assert dataset.fingerprint() == MNIST("memory://mnist").fingerprint()
    finally:
        files.rm("/mnist", recursive=True)


def test_files_that_are_not_there_are_named_and_not_fetched(tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=r"found no train-images-idx3-ubyte or train-images-idx3-ubyte\.gz in this folder .*download and unpack MNIST",
    ):
        len(MNIST(str(tmp_path)))
    write_mnist(tmp_path)
    os.remove(tmp_path / "train-labels-idx1-ubyte")
    with pytest.raises(FileNotFoundError, match="no train-labels-idx1-ubyte or"):
        MNIST(str(tmp_path)).fingerprint()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"images": b"\0\0"}, "train-images-idx3-ubyte: the file is damaged or truncated: the header has 2 of 16 bytes"),
        (
            {"images": idx(LABELS)[:9]},
            "train-images-idx3-ubyte: the file begins with the number 2049; expected 2051: the content belongs to another file",
        ),
        (
            {"images": idx(LABELS)},
            "train-images-idx3-ubyte: the file begins with the number 2049; expected 2051: the content belongs to another file",
        ),
        ({"labels": idx(DIGITS)}, "train-labels-idx1-ubyte: the file begins with the number 2051; expected 2049"),
        ({"images": idx(DIGITS)[:-1]}, r"train-images-idx3-ubyte: expected 9408 bytes for the shape \(12, 28, 28\), found 9407"),
        ({"images": idx(DIGITS) + b"\0"}, r"train-images-idx3-ubyte: expected 9408 bytes for the shape \(12, 28, 28\), found 9409"),
        (
            {"images": struct.pack(">4I", 2051, 2**32 - 1, 2**32 - 1, 2**32 - 1)},
            r"expected \d+ bytes for the shape .*, found 0: the file is damaged",
        ),
        ({"labels": idx(LABELS[:-1])}, "train-labels-idx1-ubyte: 11 labels, but 12 images; use the labels and images of the same split"),
        ({"labels": idx(LABELS + 1)}, "train-labels-idx1-ubyte: the labels are from 1 to 10; expected labels from 0 to 9"),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path, files, message):
    write_mnist(tmp_path, **files)
    with pytest.raises(DatasetError, match=message):
        len(MNIST(str(tmp_path)))


def test_gzip_that_is_cut_short_or_grows_without_end_is_named(tmp_path):
    write_mnist(tmp_path, zipped=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    with pytest.raises(DatasetError, match=r"ubyte\.gz: the file is damaged or truncated"):
        len(MNIST(str(tmp_path)))
    path.write_bytes(gzip.compress(idx(DIGITS) + bytes(1 << 20)))
    with pytest.raises(DatasetError, match=r"ubyte\.gz: expected 9408 bytes .* found 9409"):
        len(MNIST(str(tmp_path)))


TEN = {"fine": [3, 0, 9, 9]}
HUNDRED = {"coarse": [19, 0, 4, 4], "fine": [99, 0, 42, 42]}


def records(labels):
    return b"".join(bytes(row) + pixels.tobytes() for *row, pixels in zip(*labels.values(), PIXELS, strict=True))


def pickled(labels, protocol=2, **changes):
    batch = {b"data": PIXELS.reshape(4, -1), b"filenames": [b"a.png"] * 4, b"batch_label": b"testing batch"}
    names = {"coarse": b"coarse_labels", "fine": b"fine_labels" if "coarse" in labels else b"labels"}
    changed = {name.encode(): value for name, value in changes.items()}
    return pickle.dumps(batch | {names[name]: values for name, values in labels.items()} | changed, protocol)


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture(params=["binary", "python"])
def ten(request, tmp_path):
    names = [f"name{number}" for number in range(10)]
    for batch in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        if request.param == "binary":
            write(tmp_path / "cifar-10-batches-bin" / f"{batch}.bin", records(TEN))
            write(tmp_path / "cifar-10-batches-bin" / "batches.meta.txt", "\n".join([*names, ""]).encode())
        else:
            write(tmp_path / "cifar-10-batches-py" / batch, pickled(TEN))
            write(tmp_path / "cifar-10-batches-py" / "batches.meta", pickle.dumps({b"label_names": [name.encode() for name in names]}, 2))
    return tmp_path


def test_cifar_10_is_read_from_records_and_from_pickles(ten):
    train, test = CIFAR10(str(ten)), CIFAR10(str(ten), "test")
    assert (len(train), len(test), test.classes[3]) == (20, 4, "name3")
    for number, sample in enumerate(test):
        assert sample["image"].dtype == np.uint8 and sample["image"].shape == (32, 32, 3)
        np.testing.assert_array_equal(sample["image"], PIXELS[number].transpose(1, 2, 0))
        assert sample["label"] == TEN["fine"][number] and sample["label"].dtype == np.int32 and list(sample) == ["image", "label"]
    assert [int(sample["label"]) for sample in train] == TEN["fine"] * 5
    assert CIFAR10(next(str(path) for path in ten.iterdir()), "test")[1]["label"] == 0
    before = train.fingerprint()
    os.utime(next(ten.glob("*/data_batch_3*")), (1, 1))
    assert train.fingerprint() != before


@pytest.mark.parametrize("folder", ["cifar-100-binary", "cifar-100-python"])
def test_cifar_100_has_two_labels(tmp_path, folder):
    fine, coarse = ([f"{kind}{number}" for number in range(many)] for kind, many in (("f", 100), ("c", 20)))
    if folder.endswith("binary"):
        write(tmp_path / folder / "train.bin", records(HUNDRED))
        write(tmp_path / folder / "fine_label_names.txt", "\n".join(fine).encode())
        write(tmp_path / folder / "coarse_label_names.txt", "\n".join(coarse).encode())
    else:
        write(tmp_path / folder / "train", pickled(HUNDRED))
        write(tmp_path / folder / "meta", pickle.dumps({"fine_label_names": fine, "coarse_label_names": coarse}, 2))
    dataset = CIFAR100(str(tmp_path))
    assert (dataset.classes, dataset.coarse_classes) == (fine, coarse)
    assert [(int(sample["label"]), int(sample["coarse_label"])) for sample in dataset] == [(99, 19), (0, 0), (42, 4), (42, 4)]
    np.testing.assert_array_equal(dataset[2]["image"], PIXELS[2].transpose(1, 2, 0))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file has 0 bytes; expected records of"),
        (
            records(TEN)[:-1],
            "the file has 12291 bytes; expected records of 3073 bytes: the file is truncated, or it is not a file of this dataset",
        ),
        (records({"fine": [3, 0, 9, 10]}), "the labels are from 0 to 10; expected labels from 0 to 9"),
    ],
)
def test_records_that_do_not_fit_are_named(tmp_path, content, message):
    write(tmp_path / "test_batch.bin", content)
    with pytest.raises(DatasetError, match=rf"test_batch\.bin: {message}"):
        len(CIFAR10(str(tmp_path), "test"))


class Evil:
    def __reduce__(self):
        return os.system, ("touch evil",)


class Builds:
    def __reduce__(self):
        return bytes, (), {"x": 1}


FAR = pickle.PROTO + b"\x05" + pickle.BYTEARRAY8 + struct.pack("<Q", 1 << 40) + b"." + pickle.STOP


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "EOFError"),
        (pickled(TEN)[:-100], "not a pickle of plain arrays and lists, or damaged or truncated:"),
        (pickled(TEN)[:900], "not a pickle of plain arrays and lists, or damaged or truncated:"),
        (pickle.dumps([1]), "it is a list; expected a dict"),
        (pickle.dumps({b"data": Evil()}), "it refers to posix.system, which could run any code"),
        (pickle.dumps({b"data": Builds()}), "it refers to builtins.bytes, which could run any code"),
        (pickle.dumps({b"data": print}), "it refers to builtins.print, which could run any code"),
        (pickle.dumps({b"data": np.array([{}], object)}, 2), "an array has the dtype 'O8'; expected numbers"),
        (b"cnumpy\nndarray\n}c__builtin__\neval\nb.", "it refers to __builtin__.eval"),
        (b"\x80\x02cnumpy\ndtype\n}X\x01\0\0\0aK\x01sb.", "it sets the state of a type"),
        (FAR, "KeyError"),
        (pickled(TEN, data=b""), "expected uint8"),
        (pickled(TEN, data=PIXELS), "the entry 'data' is uint8 .*; expected uint8"),
        (pickled({"fine": [1, 2, 3]}), "is not a list of 4 numbers"),
        (pickled({"fine": [1, 2, 3, None]}), "is not a list of 4 numbers"),
        (pickled({"fine": [1, 2, 3, 10**30]}), "the file has labels of more than 64 bits"),
        (pickled({"fine": [1, 2, 3, -1]}), "the labels are from -1 to 3; expected labels from 0 to 9"),
        (pickled({}), "is not a list of 4 numbers"),
    ],
)
def test_pickles_are_read_for_arrays_lists_and_texts_alone(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "test_batch", content)
    with pytest.raises(DatasetError, match=rf"test_batch: .*{message}"):
        len(CIFAR10(str(tmp_path), "test"))
    assert os.listdir() == ["test_batch"]


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("array", [PIXELS[0], np.asfortranarray(PIXELS[0, 0, :4]), np.arange(3, dtype=">f4"), np.zeros((0, 2), "i2")])
def test_arrays_come_out_of_pickles_as_they_went_in(protocol, array):
    found = load_plain(pickle.dumps({b"data": array, b"list": [1, b"\xff", "ü"]}, protocol), "here")
    np.testing.assert_array_equal(found[b"data"], array)
    assert found[b"data"].dtype == array.dtype and found[b"list"] == [1, b"\xff", "ü"]


def test_a_pickle_of_python_2_is_read():
    golden = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05(K\x01K\x01"
        b"K\x02\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x02\x07\xfftb"
        b"U\x06labelsq\x08]q\x09(K\x03K\x04eu."
    )
    found = load_plain(golden, "here")
    assert found[b"data"].tolist() == [[7, 255]] and found[b"labels"] == [3, 4]


def test_names_of_classes_that_are_missing_or_too_few_are_an_error(tmp_path):
    dataset = CIFAR10(str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match=r"found no batches\.meta\.txt or batches\.meta in this folder .*download and unpack CIFAR-10"
    ):
        assert dataset.classes
    Path(tmp_path, "batches.meta.txt").write_text("one\ntwo\n")
    with pytest.raises(DatasetError, match=r"batches\.meta\.txt: the file has 2 names; expected the names of 10 classes"):
        assert dataset.classes


def test_the_mean_image_is_that_of_all_images_of_the_split_or_of_several(tmp_path):
    write_mnist(tmp_path)
    write_mnist(tmp_path, "t10k-{}-idx{}-ubyte", images=idx(DIGITS[:5] // 2), labels=idx(LABELS[:5]))
    train, both = DIGITS[..., None], np.concatenate([DIGITS, DIGITS[:5] // 2])[..., None]
    dataset = MNIST(str(tmp_path))
    np.testing.assert_array_equal(dataset.mean_image(), np.mean(np.array(train, "float32"), axis=0), strict=True)
    as_tensorpack = np.mean(np.array(both, "float32"), axis=0)
    np.testing.assert_array_equal(dataset.mean_image(["train", "test"]), as_tensorpack, strict=True)
    np.testing.assert_array_equal(MNIST(str(tmp_path), "test").mean_image(["test", "train"]), as_tensorpack, strict=True)


def test_a_mean_of_no_images_is_an_error(tmp_path):
    write_mnist(tmp_path, images=idx(DIGITS[:0]), labels=idx(LABELS[:0]))
    with pytest.raises(DatasetError, match="there are no images, so there is no mean"):
        MNIST(str(tmp_path)).mean_image()


@pytest.mark.parametrize("kind", [MNIST, FashionMNIST, CIFAR10, CIFAR100])
@pytest.mark.parametrize(
    ("old", "new"),
    [("get_per_pixel_mean", r"mean_image\(\)"), ("get_per_channel_mean", r"mean_image\(\)\.mean"), ("get_label_names", "classes")],
)
def test_a_method_of_tensorpacks_sets_is_an_error_that_names_the_new_one(kind, old, new):
    with pytest.raises(AttributeError, match=f"{kind.__name__} has no {old}; use {new}"):
        getattr(kind("nowhere"), old)
    with pytest.raises(AttributeError, match=f"'{kind.__name__}' object has no attribute 'nonsense'"):
        _ = kind("nowhere").nonsense
