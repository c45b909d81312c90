"""The files of a dataset are closed, and its memory is freed, when nobody refers to it any more: the garbage collector is not needed."""

import gc
import os
import weakref

import numpy as np
import pytest

from highway.datasets.formats import formats


def descriptors():
    return {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("arrayrecord", "x.array_record"),
        ("arrow", "x.arrow"),
        ("hdf5", "x.h5"),
        ("leveldb", "x.leveldb"),
        ("lmdb", "x.lmdb"),
        ("mds", "x.mds"),
        ("npy", "x"),
        ("npz", "x.npz"),
        ("parquet", "x.parquet"),
        ("shards", "x.tar"),
        ("tfrecord", "x.tfrecord"),
    ],
)
def test_a_dataset_closes_its_files_when_nobody_refers_to_it(name, file, tmp_path):
    if name == "arrayrecord":
        pytest.importorskip("array_record")
    if name == "leveldb":
        pytest.importorskip("plyvel")
    with formats()[name].write(str(tmp_path / file), {}) as writer:
        for number in range(20):
            writer.add(f"{number:02}", {"x": np.full((4, 4), number, np.float32)})
    del writer
    gc.collect()
    gc.disable()
    try:
        dataset = formats()[name].open([str(tmp_path / file)], {})
        assert len(dataset) == 20 and len([dataset[number] for number in (0, 7, 19)]) == 3
        gone = weakref.ref(dataset)
        del dataset
        assert gone() is None
        assert not [path for path in descriptors() if path.startswith(str(tmp_path))]
        with open("/proc/self/maps") as maps:
            assert str(tmp_path) not in maps.read()
    finally:
        gc.enable()
