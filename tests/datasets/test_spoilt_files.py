"""Every format's files, spoilt: an error that names the file, and never fewer or other samples without a word."""

import os
from importlib.util import find_spec

import numpy as np
import pytest

from highway import tenbin
from highway.datasets import (
    CIFAR10,
    HDF5,
    LMDB,
    MDS,
    MNIST,
    ArrayRecord,
    Arrow,
    DecodedCache,
    LevelDB,
    Npy,
    Npz,
    Parquet,
    SVMLight,
    Tar,
    TenFiles,
    TFRecord,
)
from highway.datasets.formats import formats
from highway.errors import HighwayError

N = 40
PIXELS = np.random.default_rng(0).integers(0, 256, (N, 3072), np.uint8)


def written(name, file, fields=("x", "text")):
    """Return what writes samples into a file of a folder, and its path, by a writer of ``highway convert``."""

    def write(folder, seed=0):
        with formats()[name].write(str(folder / file), {}) as writer:
            for number in range(N):
                sample = {"x": np.full((4, 4), number + seed, np.float32), "text": f"{number + seed} " * 40}
                writer.add(f"{number:03}", {field: sample[field] for field in fields})

    return write


def digits(folder, seed=0):
    images = np.random.default_rng(seed).integers(0, 256, (N, 28, 28), np.uint8)
    for name, array in (("images-idx3", images), ("labels-idx1", np.arange(N, dtype=np.uint8) % 10)):
        head = np.array([0x800 + array.ndim, *array.shape], ">u4").tobytes()
        (folder / f"train-{name}-ubyte").write_bytes(head + array.tobytes())


def colours(folder, seed=0):
    for number in range(1, 6):
        rows = np.concatenate([np.full((N, 1), number, np.uint8), PIXELS ^ np.uint8(seed)], axis=1)
        (folder / f"data_batch_{number}.bin").write_bytes(rows.tobytes())


def lines(folder, seed=0):
    (folder / "a.svm").write_text("".join(f"{number} 1:{number + seed}.5 7:0.25\n" for number in range(N)))


def tens(folder, seed=0):
    tenbin.save(folder / "a.ten", np.full((N, 30), seed, np.float32))


KINDS = {  # what writes the files, the one that is spoilt, and what reads them
    "Tar": (written("shards", "a.tar"), "a.tar", lambda root: Tar(f"{root}/a.tar")),
    "TFRecord": (written("tfrecord", "a.tfrecord"), "a.tfrecord", lambda root: TFRecord(f"{root}/a.tfrecord", example=True)),
    "ArrayRecord": (written("arrayrecord", "a.ar"), "a.ar", lambda root: ArrayRecord(f"{root}/a.ar", example=True)),
    "Parquet": (written("parquet", "a.parquet"), "a.parquet", lambda root: Parquet(f"{root}/a.parquet")),
    "Arrow": (written("arrow", "a.arrow"), "a.arrow", lambda root: Arrow(f"{root}/a.arrow")),
    "HDF5": (written("hdf5", "a.h5"), "a.h5", lambda root: HDF5(f"{root}/a.h5")),
    "LMDB": (written("lmdb", "a.mdb"), "a.mdb", lambda root: LMDB(f"{root}/a.mdb")),
    "LevelDB": (written("leveldb", "a.leveldb"), "a.leveldb/CURRENT", lambda root: LevelDB(f"{root}/a.leveldb")),
    "MDS": (written("mds", "m"), "m/shard.00000.mds", lambda root: MDS(f"{root}/m")),
    "MDS's index": (written("mds", "m"), "m/index.json", lambda root: MDS(f"{root}/m")),
    "Npz": (written("npz", "a.npz"), "a.npz", lambda root: Npz(f"{root}/a.npz")),
    "Npy": (written("npy", "a.npy", ("x",)), "a.npy", lambda root: Npy(f"{root}/a.npy")),
    "DecodedCache": (written("cache", "c"), "c/*.data", lambda root: DecodedCache(f"{root}/c")),
    "TenFiles": (tens, "a.ten", lambda root: TenFiles(f"{root}/a.ten")),
    "MNIST": (digits, "train-images-idx3-ubyte", lambda root: MNIST(str(root))),
    "CIFAR10": (colours, "data_batch_2.bin", lambda root: CIFAR10(str(root))),
    "SVMLight": (lines, "a.svm", lambda root: SVMLight(f"{root}/a.svm")),
}
NEEDS = {"ArrayRecord": "array_record", "LevelDB": "plyvel"}


def spoilt_file(folder, name):
    (path,) = folder.glob(name)
    return path


def cut(path):
    os.truncate(path, path.stat().st_size * 2 // 3)


def of_another_kind(path):
    path.write_bytes(b"<html>404 not found</html>\n" * (path.stat().st_size // 27 + 1))


def empty(path):
    path.write_bytes(b"")


def missing(path):
    path.unlink()


def a_folder(path):
    path.unlink()
    path.mkdir()


def read_all(dataset):
    return [dataset[number] for number in range(len(dataset))]


ALLOWED = {  # what nobody can see: lines and records that end where the file does
    ("TFRecord", empty),
    ("SVMLight", cut),
    ("SVMLight", empty),
}
LOADED = ("MDS's index", "MNIST", "CIFAR10", "LevelDB")  # read once, and not again; and what LevelDB keeps from others by a lock of its own


@pytest.mark.parametrize("how", [cut, of_another_kind, empty, missing, a_folder])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_not_what_it_should_be_is_named(tmp_path, kind, how):
    if kind in NEEDS and not find_spec(NEEDS[kind]):
        pytest.skip(f"{NEEDS[kind]} is not installed")
    write, name, dataset = KINDS[kind]
    write(tmp_path)
    assert len(read_all(dataset(tmp_path))) == len(dataset(tmp_path)) > 0
    how(spoilt_file(tmp_path, name))
    if (kind, how) in ALLOWED:
        assert len(read_all(dataset(tmp_path))) == (0 if how is empty else 28)
        return
    with pytest.raises((HighwayError, OSError)) as caught:
        read_all(dataset(tmp_path))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in LOADED])
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path, kind):
    if kind in NEEDS and not find_spec(NEEDS[kind]):
        pytest.skip(f"{NEEDS[kind]} is not installed")
    write, name, dataset = KINDS[kind]
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    write(tmp_path / "a"), write(tmp_path / "b", 1)
    opened = dataset(tmp_path / "a")
    fingerprint = dataset(tmp_path / "a").fingerprint()
    assert opened[0] is not None
    path = spoilt_file(tmp_path / "a", name)
    with open(path, "r+b") as file:  # as who writes over it, without a new name
        file.write(spoilt_file(tmp_path / "b", name).read_bytes())
    os.utime(path, ns=(1, 1))
    if kind == "TenFiles":  # each is read anew, and whole
        assert opened[0][0][0, 0] == 1 and dataset(tmp_path / "a").fingerprint() != fingerprint
        return
    with pytest.raises((HighwayError, OSError)) as caught:
        opened[1]
    assert str(path.parent) in str(caught.value)
