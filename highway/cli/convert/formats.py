"""The table of formats that ``highway convert`` reads and writes: one row each."""

from __future__ import annotations

import fnmatch
import glob
import os
import struct

from highway.cli.convert import reading
from highway.cli.convert.format import Format, Place
from highway.datasets.folder_writer import place_of
from highway.datasets.records.framing import checksum
from highway.datasets.shards import key_in_shard
from highway.errors import ConfigError
from highway.stores.url import is_url


def _holds(place: Place, *suffixes: str) -> bool:
    return any(name.endswith(suffixes) for name in place.names if not name.startswith("."))


def _has(place: Place, *names: str) -> bool:
    return place.names.issuperset(names)


def _like(place: Place, *patterns: str) -> bool:
    if is_url(place.path):
        return any(fnmatch.filter(place.names, pattern) for pattern in patterns)
    return any(glob.glob(os.path.join(glob.escape(place.path), pattern)) for pattern in patterns)


def _starts(place: Place, magic: bytes, at: int = 0) -> bool:
    return _head(place, at + len(magic))[at:] == magic


def _head(place: Place, size: int) -> bytes:
    if not os.path.isfile(place.path):
        return b""
    with open(place.path, "rb") as file:
        return file.read(size)


def _is_tfrecord(place: Place) -> bool:
    head = _head(place, 12)
    try:
        return len(head) == 12 and head[8:] == struct.pack("<I", checksum(head[:8]))
    except ConfigError:  # what it takes is not installed
        return False


_MNIST = ("train-images*idx3-ubyte*", "*/train-images*idx3-ubyte*", "*/raw/train-images*idx3-ubyte*")
_CIFAR10 = ("data_batch_1*", "cifar-10-batches-*")
_CIFAR100 = ("train.bin", "fine_label_names.txt", "cifar-100-*")

_ROWS = (
    Format(
        "shards",
        "WebDataset shards",
        reading.shards,
        several=True,
        by_number="Tar",
        writer="datasets.shards:shard_writer",
        sink="ShardSink",
        suffixes=(".tar",),
        is_at=lambda place: _starts(place, b"ustar", at=257),
        read_only=(".tar.gz", ".tgz"),
        images="files",
        layout="files",
        key=lambda key, sample: key_in_shard(key),
    ),
    Format(
        "tfrecord",
        "TFRecord files of tf.train.Example",
        "TFRecord",
        several=True,
        given={"example": True},
        writer="datasets.records.tfrecord:tfrecord_writer",
        sink="TFRecordSink",
        suffixes=(".tfrecord", ".tfrecords"),
        is_at=_is_tfrecord,
        layout="files",
    ),
    Format(
        "arrayrecord",
        "ArrayRecord files of tf.train.Example",
        "ArrayRecord",
        several=True,
        given={"example": True},
        writer="datasets.records.arrayrecord:arrayrecord_writer",
        sink="ArrayRecordSink",
        suffixes=(".array_record", ".arrayrecord"),
        layout="files",
        is_copied=True,
    ),
    Format(
        "parquet",
        "Parquet files",
        "Parquet",
        several=True,
        writer="datasets.tables.writers:parquet_writer",
        sink="ParquetSink",
        suffixes=(".parquet", ".pq"),
        is_at=lambda place: _holds(place, ".parquet", ".pq") or _starts(place, b"PAR1"),
        layout="files",
    ),
    Format(
        "arrow",
        "Arrow files, or a folder of Hugging Face's save_to_disk",
        "Arrow",
        several=True,
        writer="datasets.tables.writers:arrow_writer",
        sink="ArrowSink",
        suffixes=(".arrow", ".feather"),
        is_at=lambda place: _holds(place, ".arrow") or _starts(place, b"ARROW1"),
        layout="files",
        is_copied=True,
    ),
    Format(
        "huggingface",
        "a data set by its name on the Hub; --read split=train",
        "HuggingFace",
        is_name=True,
    ),
    Format(
        "mds",
        "a folder of Mosaic's streaming",
        "MDS",
        writer="datasets.mds.writer:mds_writer",
        sink="MDSSink",
        is_at=lambda place: _has(place, "index.json"),
    ),
    Format(
        "hdf5",
        "the datasets of HDF5 files, with a row for each sample",
        "HDF5",
        writer="datasets.hdf5.writer:hdf5_writer",
        sink="HDF5Sink",
        suffixes=(".h5", ".hdf5"),
        is_at=lambda place: _starts(place, b"\x89HDF\r\n\x1a\n"),
        layout="files",
        is_copied=True,
    ),
    Format(
        "lmdb",
        "an LMDB database",
        "LMDB",
        writer="datasets.keyed.lmdb:lmdb_writer",
        sink="LMDBSink",
        suffixes=(".lmdb", ".mdb"),
        is_at=lambda place: _has(place, "data.mdb") or _starts(place, b"\xde\xc0\xef\xbe", at=16),
        images="files",
        keeps_order=False,
        is_copied=True,
    ),
    Format(
        "leveldb",
        "a LevelDB database",
        "LevelDB",
        writer="datasets.keyed.leveldb:leveldb_writer",
        sink="LevelDBSink",
        suffixes=(".leveldb",),
        is_at=lambda place: _has(place, "CURRENT"),
        images="files",
        keeps_order=False,
        is_copied=True,
    ),
    Format(
        "cache",
        "a cache, as Cache writes it",
        "DecodedCache",
        writer="datasets.decoded_cache:cache_writer",
        sink="Cache",
        is_at=lambda place: _has(place, "highway-cache.json"),
        images="pixels",
        is_copied=True,
    ),
    Format(
        "npz",
        "arrays with a row for each sample",
        "Npz",
        writer="datasets.npy.writer:npz_writer",
        sink="NpzSink",
        suffixes=(".npz",),
        is_at=lambda place: _starts(place, b"PK\x03\x04"),
        images="pixels",
        layout="files",
    ),
    Format(
        "npy",
        "one array with a row for each sample",
        "Npy",
        writer="datasets.npy.writer:npy_writer",
        suffixes=(".npy",),
        is_at=lambda place: _starts(place, b"\x93NUMPY"),
        images="pixels",
        layout="files",
        keeps_keys=False,
    ),
    Format(
        "ten",
        "a folder of .ten files, one for each sample",
        reading.tens,
        several=True,
        writer="datasets.ten:ten_writer",
        sink="TenSink",
        suffixes=(".ten",),
        is_at=lambda place: _holds(place, ".ten"),
        images="pixels",
        layout="each",
    ),
    Format("voc", "PASCAL VOC; --read split=trainval", "VOC", is_at=lambda place: _has(place, "JPEGImages", "Annotations")),
    Format("mnist", "the files of MNIST, Fashion-MNIST and KMNIST; --read split=test", "MNIST", is_at=lambda place: _like(place, *_MNIST)),
    Format("cifar10", "CIFAR-10; --read split=test", "CIFAR10", is_at=lambda place: _like(place, *_CIFAR10)),
    Format("cifar100", "CIFAR-100; --read split=test", "CIFAR100", is_at=lambda place: _like(place, *_CIFAR100)),
    Format("svmlight", "lines of SVMlight and LIBSVM", "SVMLight", suffixes=(".svm", ".libsvm", ".svmlight")),
    Format("coco", "the images of COCO; --read annotations=instances.json", "COCO"),
    Format(
        "folder",
        "image files, in one folder per label or in one",
        reading.folder,
        writer="datasets.folder_writer:image_folder_writer",
        sink="ImageSink",
        is_at=lambda place: os.path.isdir(place.path) or is_url(place.path),  # what a folder is if it is nothing else: the last row
        images="files",
        layout="keys",
        key=lambda key, sample: place_of(key, sample.get("cls", sample.get("label"))),
        keeps_order=False,
    ),
)

FORMATS: dict[str, Format] = {row.name: row for row in _ROWS}
