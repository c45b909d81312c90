"""MNIST and CIFAR as torchvision reads them; run by `tox -e oracles`."""

import gzip
import pickle
import struct

import numpy as np
import pytest

from highway.datasets import CIFAR10, CIFAR100, MNIST, FashionMNIST


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_the_files_of_mnist_are_read_as_torchvision_does(tmp_path, torchvision, monkeypatch, name, split):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (30, 28, 28), np.uint8), rng.integers(0, 10, 30, np.uint8)
    folder = tmp_path / name / "raw"
    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        for kind, array in (("images", images), ("labels", labels)):
            content = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()
            (folder / f"{part}-{kind}-idx{array.ndim}-ubyte").write_bytes(content)
            (folder / f"{part}-{kind}-idx{array.ndim}-ubyte.gz").write_bytes(gzip.compress(content))
    theirs = getattr(torchvision.datasets, name)(str(tmp_path), split == "train")
    ours = {"MNIST": MNIST, "FashionMNIST": FashionMNIST}[name](str(tmp_path), split)
    assert len(ours) == len(theirs) == 30
    for sample, (image, label) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(sample["image"][..., 0], np.array(image))
        assert sample["label"] == label
    assert name == "MNIST" or ours.classes == theirs.classes


@pytest.mark.parametrize(("name", "dataset"), [("CIFAR10", CIFAR10), ("CIFAR100", CIFAR100)])
def test_the_pickles_of_cifar_are_read_as_torchvision_does(tmp_path, torchvision, monkeypatch, name, dataset):
    rng, kind = np.random.default_rng(1), getattr(torchvision.datasets, name)
    monkeypatch.setattr(kind, "_check_integrity", lambda self: True)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    folder = tmp_path / kind.base_folder
    folder.mkdir()
    classes = 10 if name == "CIFAR10" else 100
    for file, _ in kind.train_list + kind.test_list:
        labels = rng.integers(0, classes, 7).tolist()
        batch = {"data": rng.integers(0, 256, (7, 3072), np.uint8), "labels" if classes == 10 else "fine_labels": labels}
        (folder / file).write_bytes(pickle.dumps(batch | ({} if classes == 10 else {"coarse_labels": [0] * 7}), 2))
    names = [f"class {number}" for number in range(classes)]
    (folder / kind.meta["filename"]).write_bytes(pickle.dumps({kind.meta["key"]: names}, 2))
    for split in ("train", "test"):
        theirs, ours = kind(str(tmp_path), split == "train"), dataset(str(tmp_path), split)
        assert ours.classes == theirs.classes == names and len(ours) == len(theirs)
        for sample, (image, label) in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(sample["image"], np.array(image))
            assert sample["label"] == label
