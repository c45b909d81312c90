"""The table of dataset formats, with one :class:`Format` per format.

Readers, sinks, ``highway convert``, ``highway doctor``, setup.py, docs/howto/formats.md and the tests use this table. Other packages can
add formats by entry points of the group ``highway.formats``. Each entry point refers to a :class:`Format`.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence

from highway.datasets.folder import has_label_folders
from highway.datasets.folder_writer import LABELS
from highway.datasets.format import Extra, Format, Options, Place
from highway.datasets.records.framing import checksum
from highway.errors import ConfigError
from highway.parameters.location import did_you_mean
from highway.stores.file import exists
from highway.stores.url import join, shown

GROUP = "highway.formats"  # group of entry points


def _is_tfrecord(place: Place) -> bool:
    try:
        return len(place.head) >= 12 and place.head[8:12] == struct.pack("<I", checksum(place.head[:8]))
    except ConfigError:  # the package of this format is not installed
        return False


def _records_in(paths: Sequence[str], options: Options) -> tuple[str, Options]:
    """Return the dataset class for TFRecord files. Records are ``tf.train.Example``, unless the user sets ``trusted_pickle``."""
    return "highway.datasets.records.tfrecord:TFRecord", {"example": not options.get("trusted_pickle"), **options}


def _images_in(paths: Sequence[str], options: Options) -> tuple[str, Options]:
    """Return the dataset class for a folder of images.

    If there is one folder per label and no list of labels, this is ``ImageFolder``, otherwise ``Files``.

    Raises:
        ConfigError: ``paths`` has several folders of images.
    """
    path, *others = paths
    if others:
        raise ConfigError(
            f"{shown(others[0])}: only one folder of images can be read at a time, because each folder has its own label "
            f"numbers; pass one folder"
        )
    if exists(join(path, LABELS)):
        options = {"labels": LABELS, **options}
    folders = "highway.datasets.folder:ImageFolder"
    if not ("labels" in options or not has_label_folders(path)):
        return folders, options
    return "highway.datasets.folder:Files", options


ARROW = Extra("arrow", "pyarrow>=16")  # older versions do not support NumPy 2

_TABLE = (
    Format(
        "shards",
        "WebDataset shards",
        "highway.datasets.tar:Tar",
        note="not compressed; to read compressed shards (gz, bz2, xz) or pipes, use `WebDatasetSource`",
        writer="highway.datasets.shards:shard_writer",
        sink="ShardSink",
        suffixes=(".tar",),
        streams=(".tar.gz", ".tgz", "pipe:"),
        source="WebDatasetSource",
        magic=((257, b"ustar"),),
        images="files",
        layout="files",
        key="highway.datasets.shards:key_in_shard",
    ),
    Format(
        "tfrecord",
        "TFRecord files of tf.train.Example",
        "highway.datasets.records.tfrecord:TFRecord",
        note="not compressed; the first access scans the files for the positions of the records; checksums are checked",
        choose=_records_in,
        writer="highway.datasets.records.tfrecord:tfrecord_writer",
        sink="TFRecordSink",
        suffixes=(".tfrecord", ".tfrecords"),
        is_at=_is_tfrecord,
        extra=Extra("tfrecord", "google-crc32c>=1.5"),
        layout="files",
    ),
    Format(
        "arrayrecord",
        "ArrayRecord files of tf.train.Example",
        "highway.datasets.records.arrayrecord:ArrayRecord",
        note="random access is fast if the file was written with `group_size:1`",
        given={"example": True},
        writer="highway.datasets.records.arrayrecord:arrayrecord_writer",
        sink="ArrayRecordSink",
        suffixes=(".array_record", ".arrayrecord"),
        extra=Extra("arrayrecord", "array-record>=0.6"),
        layout="files",
        is_copied=True,
    ),
    Format(
        "parquet",
        "Parquet files",
        "highway.datasets.tables.parquet:Parquet",
        note='a row group is read as a whole, so use `shuffle="blocks"`',
        writer="highway.datasets.tables.writers:parquet_writer",
        sink="ParquetSink",
        suffixes=(".parquet", ".pq"),
        magic=((0, b"PAR1"),),
        inside=("*.parquet", "*.pq"),
        extra=ARROW,
        layout="files",
    ),
    Format(
        "arrow",
        "Arrow files, or a folder of Hugging Face's save_to_disk",
        "highway.datasets.tables.arrow:Arrow",
        note="mapped into memory",
        writer="highway.datasets.tables.writers:arrow_writer",
        sink="ArrowSink",
        suffixes=(".arrow", ".feather"),
        magic=((0, b"ARROW1"),),
        inside=("*.arrow",),
        extra=ARROW,
        layout="files",
        is_copied=True,
    ),
    Format(
        "huggingface",
        "a dataset by its name on the Hub; --read split=train",
        "highway.datasets.tables.huggingface:HuggingFace",
        note="also a table of the package `datasets`; `HuggingFaceSource` reads streams",
        is_name=True,
        extra=Extra("huggingface", "datasets>=2.19"),
    ),
    Format(
        "mds",
        "a folder of Mosaic's streaming",
        "highway.datasets.mds.dataset:MDS",
        note="no pickles, no compressed shards",
        writer="highway.datasets.mds.writer:mds_writer",
        sink="MDSSink",
        inside=("index.json",),
    ),
    Format(
        "hdf5",
        "the datasets of HDF5 files, with a row for each sample",
        "highway.datasets.hdf5.dataset:HDF5",
        note='if the data has chunks, a chunk is read as a whole, so use `shuffle="blocks"`',
        writer="highway.datasets.hdf5.writer:hdf5_writer",
        sink="HDF5Sink",
        suffixes=(".h5", ".hdf5"),
        magic=((0, b"\x89HDF\r\n\x1a\n"),),
        kinds=("bytes", "str", "number", "array"),
        extra=Extra("hdf5", "h5py>=3.10"),
        layout="files",
        is_copied=True,
    ),
    Format(
        "lmdb",
        "an LMDB database",
        "highway.datasets.keyed.lmdb:LMDB",
        note="in the order of the keys; databases of tensorpack and Caffe are recognised",
        writer="highway.datasets.keyed.lmdb:lmdb_writer",
        sink="LMDBSink",
        suffixes=(".lmdb", ".mdb"),
        magic=((16, b"\xde\xc0\xef\xbe"),),
        inside=("data.mdb",),
        extra=Extra("lmdb", "lmdb>=1.4.1"),
        images="files",
        keeps_order=False,
        is_copied=True,
    ),
    Format(
        "leveldb",
        "a LevelDB database",
        "highway.datasets.keyed.leveldb:LevelDB",
        note="one process at a time",
        writer="highway.datasets.keyed.leveldb:leveldb_writer",
        sink="LevelDBSink",
        suffixes=(".leveldb",),
        inside=("CURRENT",),
        extra=Extra("leveldb", "plyvel>=1.5; python_version < '3.13'"),  # plyvel has no wheel for later versions of Python
        images="files",
        keeps_order=False,
        is_copied=True,
    ),
    Format(
        "cache",
        "a cache that `Cache` has written",
        "highway.datasets.decoded_cache:DecodedCache",
        note="all samples have the same fields; checksums are checked",
        writer="highway.datasets.decoded_cache:cache_writer",
        sink="Cache",
        inside=("highway-cache.json",),
        images="pixels",
        is_copied=True,
    ),
    Format(
        "zarr",
        "Zarr arrays of formats 2 and 3, with a row for each sample",
        "highway.datasets.npy.zarr:Zarr",
        note='a chunk is read as a whole, so use `shuffle="blocks"`',
        suffixes=(".zarr",),
        inside=("zarr.json", ".zgroup", ".zarray"),
        extra=Extra("zarr", "zarr>=3"),
        is_copied=True,
    ),
    Format(
        "npz",
        "arrays with a row for each sample",
        "highway.datasets.npy.rows:Npz",
        note="a compressed array is loaded into memory as a whole",
        writer="highway.datasets.npy.writer:npz_writer",
        sink="NpzSink",
        suffixes=(".npz",),
        magic=((0, b"PK\x03\x04"),),
        kinds=("str", "number", "array"),
        images="pixels",
        layout="files",
    ),
    Format(
        "npy",
        "one array with a row for each sample",
        "highway.datasets.npy.rows:Npy",
        writer="highway.datasets.npy.writer:npy_writer",
        suffixes=(".npy",),
        magic=((0, b"\x93NUMPY"),),
        kinds=("str", "number", "array"),
        images="pixels",
        layout="files",
        keeps_keys=False,
    ),
    Format(
        "ten",
        "a folder of .ten files, one for each sample",
        "highway.datasets.ten:TenFiles",
        note="a sample consists of arrays and bytes",
        writer="highway.datasets.ten:ten_writer",
        sink="TenSink",
        suffixes=(".ten",),
        inside=("*.ten",),
        kinds=("bytes", "number", "array"),
        images="pixels",
        layout="each",
    ),
    Format(
        "voc",
        "PASCAL VOC; --read split=trainval",
        "highway.datasets.detection.voc:VOC",
        note="images with boxes, and masks",
        is_at=lambda place: place.names.issuperset(("JPEGImages", "Annotations")),
    ),
    Format(
        "mnist",
        "the files of MNIST, Fashion-MNIST and KMNIST; --read split=test",
        "highway.datasets.classification.mnist:MNIST",
        note="the whole dataset is loaded into memory",
        inside=("train-images*idx3-ubyte*", "*/train-images*idx3-ubyte*", "*/raw/train-images*idx3-ubyte*"),
    ),
    Format(
        "cifar10",
        "CIFAR-10; --read split=test",
        "highway.datasets.classification.cifar:CIFAR10",
        note="the whole dataset is loaded into memory",
        inside=("data_batch_1*", "cifar-10-batches-*"),
    ),
    Format(
        "cifar100",
        "CIFAR-100; --read split=test",
        "highway.datasets.classification.cifar:CIFAR100",
        note="the whole dataset is loaded into memory",
        inside=("train.bin", "fine_label_names.txt", "cifar-100-*"),
    ),
    Format(
        "svmlight",
        "lines of SVMlight and LIBSVM",
        "highway.datasets.svmlight:SVMLight",
        note="sparse features; not compressed",
        suffixes=(".svm", ".libsvm", ".svmlight"),
    ),
    Format(
        "megatron",
        "Megatron-LM's indexed datasets of tokens (.bin and .idx)",
        "highway.datasets.records.megatron:MegatronIndexed",
        suffixes=(".idx",),
        magic=((0, b"MMIDIDX"),),
    ),
    Format(
        "coco",
        "the images of COCO; --read annotations=instances.json",
        "highway.datasets.detection.coco:COCO",
        note="images with boxes, masks and keypoints",
    ),
    Format(
        "folder",
        "image files, in one folder per label, or all in one folder",
        "highway.datasets.folder:Files",
        note="on a network disk, listing the files is slow",
        choose=_images_in,
        writer="highway.datasets.folder_writer:image_folder_writer",
        sink="ImageSink",
        kinds=(),
        is_at=lambda place: place.is_folder,  # this is the last row of the table, so it accepts any other folder
        images="files",
        layout="keys",
        key="highway.datasets.folder_writer:place_in",
        keeps_order=False,
    ),
)


@functools.cache
def formats() -> Mapping[str, Format]:
    """Return all formats by name: the formats of highway, and the formats that installed packages add.

    Raises:
        ConfigError: an entry point cannot be loaded or does not refer to a :class:`Format`, or two formats have the same name.
    """
    import importlib.metadata  # imported here, because the import takes 15 ms

    found = {row.name: row for row in _TABLE}
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            row = entry.load()
        except Exception as error:
            raise ConfigError(f"the entry point {entry.name} = {entry.value} of {GROUP} cannot be loaded: {error!r}") from error
        if not isinstance(row, Format) or found.get(row.name, row) is not row:
            what = f"a format {row.name!r} already exists" if isinstance(row, Format) else f"expected a Format, found {row!r}"
            raise ConfigError(f"the entry point {entry.name} = {entry.value} of {GROUP}: {what}; correct or uninstall that package")
        found = {row.name: row, **found}  # added before highway's formats, because the last of these accepts any folder
    return found


def format_named(name: str) -> Format:
    """Return a format by its name.

    Raises:
        ConfigError: there is no format with this name.
    """
    known = formats()
    if name not in known:
        raise ConfigError(f"there is no format {name!r}{did_you_mean(name, known) or f'; the formats are {chr(44).join(known)}'}")
    return known[name]


def by_suffix(paths: Sequence[str]) -> Format | None:
    """Return the first format that matches the suffixes or prefixes of all paths, or ``None``. The files are not read."""
    return next((row for row in formats().values() if all(map(row.is_named_by, paths))), None)
