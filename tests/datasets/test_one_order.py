"""One order of samples, whatever holds them."""

import io
import tarfile

import numpy as np
import pytest

from highway import Pipeline
from highway.datasets import HDF5, LMDB, MDS, Arrow, ImageFolder, Parquet, Tar, TFRecord
from highway.datasets.hdf5.writer import hdf5_writer
from highway.datasets.keyed.lmdb import lmdb_writer
from highway.datasets.mds.writer import mds_writer
from highway.datasets.records.tfrecord import tfrecord_writer
from highway.datasets.tables.writers import arrow_writer, parquet_writer
from highway.modules import ImageFileReader, Reader

FOLDER = ImageFolder("highway:photos/val")
SAMPLES = [(key.rpartition(".")[0], *FOLDER[number]) for number, key in enumerate(FOLDER.keys)]


def tar(path):
    with tarfile.open(path, "w") as archive:
        for key, image, label in SAMPLES:
            for name, data in ((f"{key}.jpg", image), (f"{key}.cls", b"%d" % label)):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return Tar(path)


def written(writer, dataset):
    """Return what writes the samples with one of our writers, and opens them."""

    def write(path):
        with writer(path) as out:
            for key, image, label in SAMPLES:
                out.add(key, {"jpg": image, "cls": label})
        return dataset(path)

    return write


FORMATS = {
    "folder": lambda path: FOLDER,
    "tar": tar,
    "tfrecord": written(tfrecord_writer, lambda path: TFRecord(path, example=True)),
    "lmdb": written(lmdb_writer, LMDB),
    "arrow": written(arrow_writer, Arrow),
    "parquet": written(parquet_writer, Parquet),
    "hdf5": written(hdf5_writer, HDF5),
    "mds": written(mds_writer, MDS),
}


def read(reader):
    with Pipeline([reader], seed=5) as pipeline:
        return [(passport.epoch, passport.index, passport.keys, *item) for item, passport in pipeline.stamped()]


@pytest.mark.parametrize("options", [{}, {"rank": 1, "world_size": 3}, {"shuffle": False, "batch_size": 5}], ids=str)
@pytest.mark.parametrize("name", [name for name in FORMATS if name != "folder"])
def test_the_same_samples_stand_at_the_same_places_from_every_format(tmp_path, name, options):
    options = {"batch_size": 8, "shape": (16, 16), "epochs": 2, **options}
    expected, found = (read(ImageFileReader(FORMATS[one](str(tmp_path / f"photos.{one}")), **options)) for one in ("folder", name))
    assert len(expected) == len(found)
    for (*place, keys, images, labels), (*other, names, pixels, numbers) in zip(expected, found, strict=True):
        assert place == other and [key.rpartition(".")[0] for key in keys] == list(names)
        assert np.array_equal(images, pixels) and np.array_equal(labels, numbers)


def test_keys_are_the_same_in_every_format(tmp_path):
    for name, make in FORMATS.items():
        dataset = make(str(tmp_path / f"photos.{name}"))
        with Pipeline([Reader(dataset, epochs=1, shuffle=False)]) as pipeline:
            keys = [passport.keys[0] for _, passport in pipeline.stamped()]
        assert [key.removesuffix(".jpg") for key in keys] == [key for key, *_ in SAMPLES], name
