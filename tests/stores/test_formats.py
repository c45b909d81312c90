"""Each format in a store gives the samples that it gives on a disk, with a tenth of the answers faulty, and counts what was asked again."""

import gzip
import importlib
import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from object_store import Faults

from highway import Pipeline, datasets, tenbin
from highway.data import photos
from highway.datasets import (
    CIFAR10,
    CIFAR100,
    COCO,
    HDF5,
    LMDB,
    MDS,
    MNIST,
    VOC,
    ArrayRecord,
    Arrow,
    DecodedCache,
    FashionMNIST,
    Files,
    HuggingFace,
    ImageFolder,
    LevelDB,
    MegatronIndexed,
    MixedDataset,
    Npy,
    Npz,
    Parquet,
    SVMLight,
    Tar,
    TenFiles,
    TFRecord,
)
from highway.errors import ConfigError
from highway.modules import Reader

IMAGES = [path.read_bytes() for path in sorted(Path(photos(), "val").rglob("*.jpg"))[:24]]
SAMPLES = [{"jpg": data, "cls": number, "x": np.full((2, 3), number, np.float32)} for number, data in enumerate(IMAGES)]

FORMATS = {  # dataset: its writer, the name of what is written, which fields it takes, and whether it is copied into the cache
    Tar: ("shards:shard_writer", "s-{}.tar", ("jpg", "cls", "x"), False),
    TFRecord: ("records.tfrecord:tfrecord_writer", "s-{}.tfrecord", ("jpg", "cls", "x"), False),
    Parquet: ("tables.writers:parquet_writer", "s-{}.parquet", ("jpg", "cls", "x"), False),
    Npz: ("npy.writer:npz_writer", "s.npz", ("cls", "x"), False),
    Npy: ("npy.writer:npy_writer", "s.npy", ("x",), False),
    Arrow: ("tables.writers:arrow_writer", "s-{}.arrow", ("jpg", "cls", "x"), True),
    LMDB: ("keyed.lmdb:lmdb_writer", "s.lmdb", ("jpg", "cls", "x"), True),
    LevelDB: ("keyed.leveldb:leveldb_writer", "s.leveldb", ("jpg", "cls", "x"), True),
    DecodedCache: ("decoded_cache:cache_writer", "cache", ("jpg", "cls", "x"), True),
    HDF5: ("hdf5.writer:hdf5_writer", "s.h5", ("jpg", "cls", "x"), True),
    MDS: ("mds.writer:mds_writer", "mds", ("jpg", "cls", "x"), False),
    ArrayRecord: ("records.arrayrecord:arrayrecord_writer", "s.array_record", ("jpg", "cls", "x"), True),
}
NEEDS = {
    Parquet: "pyarrow",
    Arrow: "pyarrow",
    LMDB: "lmdb",
    LevelDB: "plyvel",
    ArrayRecord: "array_record",
    HDF5: "h5py",
    TFRecord: "google_crc32c",
}


def write(folder, dataset):
    """Write the samples, to two files if the name has a place for a number, and return its pattern with braces."""
    if dataset in NEEDS:
        pytest.importorskip(NEEDS[dataset])
    writer, name, fields, _ = FORMATS[dataset]
    module, _, function = writer.partition(":")
    files = 2 if "{}" in name else 1
    share = len(SAMPLES) // files
    for file in range(files):
        with getattr(importlib.import_module(f"highway.datasets.{module}"), function)(str(folder / name.format(file))) as out:
            for number in range(file * share, file * share + share):
                out.add(f"{number:03}", {field: SAMPLES[number][field] for field in fields})
    return name.format("{0..1}")


def options(dataset):
    return {"example": True} if dataset in (TFRecord, ArrayRecord) else {}


def assert_equal(found, expected):
    assert type(found) is type(expected)
    if isinstance(found, dict):
        assert found.keys() == expected.keys()
        for field in found:
            assert_equal(found[field], expected[field])
    elif isinstance(found, tuple):
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    elif isinstance(found, np.ndarray):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype
    else:
        assert found == expected


def read(dataset):
    with Pipeline([Reader(dataset, epochs=1, num_workers=2)], seed=5) as pipeline:
        return [(stamped.item, stamped.passport.keys) for stamped in pipeline.stamped()], pipeline.stats().stages[1].counters


@pytest.mark.slow
@pytest.mark.parametrize("dataset", FORMATS, ids=lambda dataset: dataset.__name__)
def test_a_format_in_a_store_is_read_as_on_a_disk(store, tmp_path, dataset):
    files, name = tmp_path / "files", write((tmp_path / "files"), dataset) if (tmp_path / "files").mkdir() is None else ""
    store.upload("bucket", files, "data/")
    is_copied = FORMATS[dataset][3]
    store.faults = Faults(0.25 if is_copied else 0.1, 7, kinds=("500", "503", "cut", "reset"))
    url = f"s3://bucket/data/{name}" + (f"?cache_dir={tmp_path}/cache" if is_copied else "")
    there, here = dataset(url, **options(dataset)), dataset(str(files / name), **options(dataset))
    found, counters = read(there)
    expected, _ = read(here)
    assert [keys for _, keys in found] == [keys for _, keys in expected] and len(found) == len(here) == 24
    for (sample, _), (other, _) in zip(found, expected, strict=True):
        assert_equal(sample, other)
    faulty = sum(store.faults.count[kind] for kind in Faults.KINDS)
    assert faulty > 0
    if not is_copied:
        assert counters["store_requests"] > 0 and counters["store_bytes"] > 0
    assert "s3" in there.locate(0) or is_copied


@pytest.mark.parametrize("dataset", [name for name, row in FORMATS.items() if row[3]], ids=lambda dataset: dataset.__name__)
def test_what_must_be_a_file_here_says_where_to_put_it(store, tmp_path, dataset, monkeypatch):
    monkeypatch.delenv("HIGHWAY_CACHE_DIR", raising=False)
    files = tmp_path / "files"
    files.mkdir()
    name = write(files, dataset)
    store.upload("bucket", files)
    with pytest.raises(ConfigError, match=r"this format can only be read from a copy on this machine; .*HIGHWAY_CACHE_DIR"):
        len(dataset(f"s3://bucket/{name}", **options(dataset)))


def test_records_of_several_files_are_asked_for_at_once(store, tmp_path):
    name = write(tmp_path, TFRecord)
    store.upload("bucket", tmp_path)
    dataset = TFRecord(f"s3://bucket/{name}", example=True)
    assert len(dataset) == 24
    store.expect_together(3)
    assert [sample["cls"] for sample in dataset.__getitems__([0, 13, 5, 20, 8])] == [0, 13, 5, 20, 8]
    assert store.most_in_flight >= 3


@pytest.mark.parametrize(("dataset", "pattern"), [(TFRecord, "s-*.tfrecord"), (Parquet, "s-*.parquet"), (Parquet, "")])
def test_patterns_and_folders_stand_for_what_lies_there(store, tmp_path, dataset, pattern):
    write(tmp_path, dataset)
    store.upload("bucket", tmp_path, "d/")
    assert len(dataset(f"s3://bucket/d/{pattern}?requests=5")) == 24
    if pattern:
        with pytest.raises(FileNotFoundError, match=r"'s3://bucket/d/none-\*\.x': no object matches this"):
            len(dataset("s3://bucket/d/none-*.x"))


def test_an_index_of_records_is_kept_in_the_store(store, tmp_path):
    write(tmp_path, TFRecord)
    store.upload("bucket", tmp_path)
    assert len(TFRecord("s3://bucket/s-0.tfrecord", index=True)) == 12 and ("bucket", "highway-tfrecord.index") in store.objects
    asked = len(store.asked)
    assert len(TFRecord("s3://bucket/s-*.tfrecord")) == 24  # and the index is no file of records
    assert sum("/s-0.tfrecord?" not in path and path.endswith("s-0.tfrecord") for _, path, *_ in store.asked[asked:]) == 1


BOX = "<bndbox><xmin>1</xmin><ymin>11</ymin><xmax>96</xmax><ymax>50</ymax></bndbox>"
VOC_FILES = {
    "JPEGImages/a.jpg": IMAGES[0],
    "JPEGImages/b.jpg": IMAGES[1],
    "Annotations/a.xml": f"<annotation><object><name>cat</name>{BOX}</object></annotation>".encode(),
    "Annotations/b.xml": b"<annotation></annotation>",
    "ImageSets/Main/train.txt": b"a\nb\n",
}
COCO_JSON = {
    "images": [{"id": 4, "file_name": "a.jpg", "height": 6, "width": 8}, {"id": 3, "file_name": "b.jpg", "height": 6, "width": 8}],
    "annotations": [
        {
            "id": 1,
            "image_id": 4,
            "category_id": 9,
            "bbox": [0, 1, 2, 3.5],
            "iscrowd": 1,
            "segmentation": {"size": [6, 8], "counts": [1, 3, 44]},
        }
    ],
    "categories": [{"id": 9, "name": "cat"}],
}


def test_voc_and_coco_in_a_store(store, tmp_path):
    for name, data in (VOC_FILES | {"coco.json": json.dumps(COCO_JSON).encode()}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    store.upload("bucket", tmp_path)
    store.faults = Faults(0.1, 3, slow=0.1)
    root, images = str(tmp_path), str(tmp_path / "JPEGImages")
    pairs = [
        (VOC("s3://bucket"), VOC(root)),
        (COCO("s3://bucket/JPEGImages", "s3://bucket/coco.json", masks=True), COCO(images, f"{root}/coco.json", masks=True)),
    ]
    for there, here in pairs:
        assert there.keys == here.keys and there.locate(0) == "s3://bucket/JPEGImages/a.jpg" and len(here) == 2
        for number in range(len(here)):
            assert_equal(there[number], here[number])
        assert there.fingerprint() == there.fingerprint()
    del store.objects["bucket", "JPEGImages/b.jpg"]
    message = r"ImageSets/Main/train\.txt: 1 of 2 listed .* do not exist in 's3://bucket/JPEGImages'; the first is 'b\.jpg'"
    with pytest.raises(FileNotFoundError, match=message):
        VOC("s3://bucket")[0]


def idx(array):
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def write_digits(folder):
    random = np.random.default_rng(0)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(random.integers(0, 256, (12, 28, 28), np.uint8))))
    (folder / "train-labels-idx1-ubyte").write_bytes(idx((np.arange(12) % 10).astype(np.uint8)))


def write_cifar(folder):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 3072), np.uint8)
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        (folder / name).write_bytes(b"".join(bytes([number % 10]) + row.tobytes() for number, row in enumerate(pixels)))
    for name in ("train.bin", "test.bin"):
        (folder / name).write_bytes(b"".join(bytes([number % 20, number]) + row.tobytes() for number, row in enumerate(pixels)))


def write_lines(folder):
    (folder / "a.svm").write_text("".join(f"{number % 2} 1:{number}.5 {number + 2}:0.25 # line\n\n" for number in range(12)))


def write_table(folder):
    huggingface = pytest.importorskip("datasets", minversion="5", reason="run by `tox -e stores`")  # without a version it is tests/datasets
    pytest.importorskip("tqdm").tqdm.monitor_interval = 0  # else its thread goes on behind a bar that is not shown
    huggingface.Dataset.from_dict({"x": list(range(12)), "text": [f"row {number}" for number in range(12)]}).save_to_disk(folder / "table")


def write_images(folder):
    for number, data in enumerate(IMAGES[:12]):
        path = folder / "photos" / ("cat", "dog")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "labels.txt").write_text("".join(f"{'cat' if number % 2 == 0 else 'dog'}/{number}.jpg\t{number}\n" for number in range(12)))


def write_tens(folder):
    for number in range(12):
        tenbin.save(folder / f"{number:02}.ten", np.full((2, 3), number, np.float32))


def mixed(root):
    return MixedDataset([ImageFolder(f"{root}/photos"), ImageFolder(f"{root}/photos")], [2, 1])


def write_tokens(folder):
    lengths = np.arange(12, dtype="<i4")
    offsets = np.cumsum(lengths, dtype="<i8") - lengths
    header = struct.pack("<9sQBQQ", b"MMIDIDX", 1, 1, 12, 13)
    (folder / "a.idx").write_bytes(header + lengths.tobytes() + offsets.tobytes() + np.arange(13, dtype="<i8").tobytes())
    (folder / "a.bin").write_bytes(bytes(range(lengths.sum())))


OTHERS = {  # what writes files, and what reads them, by a root that is a folder or a URL
    "MNIST": (write_digits, MNIST),
    "FashionMNIST": (write_digits, FashionMNIST),
    "CIFAR10": (write_cifar, CIFAR10),
    "CIFAR100": (write_cifar, CIFAR100),
    "SVMLight": (write_lines, lambda root: SVMLight(f"{root}/a.svm")),
    "MegatronIndexed": (write_tokens, lambda root: MegatronIndexed(f"{root}/a")),
    "HuggingFace": (write_table, lambda root: HuggingFace(f"{root}/table")),
    "ImageFolder": (write_images, lambda root: ImageFolder(f"{root}/photos")),
    "Files": (write_images, lambda root: Files(f"{root}/photos", labels=f"{root}/labels.txt")),
    "TenFiles": (write_tens, TenFiles),
    "MixedDataset": (write_images, mixed),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_datasets_give_from_a_store_what_they_give_from_a_folder(store, tmp_path, monkeypatch, name):
    monkeypatch.setenv("HIGHWAY_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "files").mkdir()
    write, dataset = OTHERS[name]
    write(tmp_path / "files")
    store.upload("bucket", tmp_path / "files", "data/")
    store.faults = Faults(0.1, 3, slow=0.05)
    there, here = dataset("s3://bucket/data"), dataset(str(tmp_path / "files"))
    assert len(there) == len(here) >= 12
    (found, _), (expected, _) = read(there), read(here)
    for (sample, keys), (other, other_keys) in zip(found, expected, strict=True):
        assert_equal(sample, other)
        assert [key.rpartition("/")[2] for key in keys] == [key.rpartition("/")[2] for key in other_keys]
    with pytest.raises(FileNotFoundError, match=r"s3://bucket/nowhere"):
        len(dataset("s3://bucket/nowhere"))


@pytest.mark.parametrize("name", [*FORMATS, *OTHERS], ids=lambda name: name if isinstance(name, str) else name.__name__)
def test_what_may_not_be_read_is_named_without_secrets(store, tmp_path, monkeypatch, name):
    monkeypatch.setenv("HIGHWAY_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "files").mkdir()
    if name in OTHERS:
        write_files, dataset = OTHERS[name]
        write_files(tmp_path / "files")
        dataset = dataset("s3://bucket/data")
    else:
        dataset = name(f"s3://bucket/data/{write(tmp_path / 'files', name)}", **options(name))
    store.upload("bucket", tmp_path / "files", "data/")
    store.forbidden, store.lists = {key for _, key in store.objects}, False
    with pytest.raises(PermissionError, match=r"s3://bucket/data.*: the store refuses access .*AWS_ACCESS_KEY_ID") as caught:
        len(dataset)
    assert "the-secret-key" not in str(caught.value) and "the-key-id" not in str(caught.value)


def test_every_dataset_is_tried_in_a_store():
    tried = {dataset.__name__ for dataset in FORMATS} | {*OTHERS} | {"VOC", "COCO", "Zarr"}  # Zarr: tests/datasets/test_zarr.py
    assert tried == set(datasets.__all__), "add what is missing to OTHERS of this file"


def test_plain_paths_import_nothing_of_stores():
    code = (
        "import sys; from highway.datasets import ImageFolder, Npy, Tar; ImageFolder('highway:photos/val')[0]; "
        "print(*(name for name in sys.modules if name.startswith(('highway.stores.', 'obstore', 'fsspec'))))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(found.split()) == {f"highway.stores.{name}" for name in ("file", "schemes", "unchanging", "url")}
