"""Each format in a store gives the samples that it gives on a disk, with a tenth of the answers faulty, and counts what was asked again."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from object_store import Faults

from highway import Pipeline
from highway.data import photos
from highway.datasets import COCO, HDF5, LMDB, MDS, VOC, ArrayRecord, Arrow, DecodedCache, LevelDB, Npy, Npz, Parquet, Tar, TFRecord
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
    elif isinstance(found, np.ndarray):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype
    else:
        assert found == expected


def read(dataset):
    with Pipeline([Reader(dataset, epochs=1, num_workers=2)], seed=5) as pipeline:
        return [(stamped.item, stamped.passport.keys) for stamped in pipeline.stamped()], pipeline.stats().stages[1].counters


@pytest.mark.parametrize("dataset", FORMATS, ids=lambda dataset: dataset.__name__)
def test_a_format_in_a_store_is_read_as_on_a_disk(store, tmp_path, dataset, monkeypatch):
    monkeypatch.setattr("highway.stores.copies._held", {})
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
    with pytest.raises(ConfigError, match=r"it is read from a file on this machine, .*HIGHWAY_CACHE_DIR"):
        len(dataset(f"s3://bucket/{name}", **options(dataset)))


def test_records_of_several_files_are_asked_for_at_once(store, tmp_path):
    name = write(tmp_path, TFRecord)
    store.upload("bucket", tmp_path)
    dataset = TFRecord(f"s3://bucket/{name}", example=True)
    assert len(dataset) == 24
    store.faults, store.most_in_flight = Faults(1, kinds=["slow"], slow=0.1), 0
    assert [sample["cls"] for sample in dataset.__getitems__([0, 13, 5, 20, 8])] == [0, 13, 5, 20, 8]
    assert store.most_in_flight >= 3


@pytest.mark.parametrize(("dataset", "pattern"), [(TFRecord, "s-*.tfrecord"), (Parquet, "s-*.parquet"), (Parquet, "")])
def test_patterns_and_folders_stand_for_what_lies_there(store, tmp_path, dataset, pattern):
    write(tmp_path, dataset)
    store.upload("bucket", tmp_path, "d/")
    assert len(dataset(f"s3://bucket/d/{pattern}?requests=5")) == 24
    if pattern:
        with pytest.raises(FileNotFoundError, match=r"'s3://bucket/d/none-\*\.x': no object has a name like this"):
            len(dataset("s3://bucket/d/none-*.x"))


def test_an_index_of_records_is_kept_in_the_store(store, tmp_path):
    write(tmp_path, TFRecord)
    store.upload("bucket", tmp_path)
    assert len(TFRecord("s3://bucket/s-0.tfrecord", index=True)) == 12 and ("bucket", "s-0.tfrecord.index") in store.objects
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
    message = r"ImageSets/Main/train\.txt: of its 2 .* 1 are not in 's3://bucket/JPEGImages', the first is 'b\.jpg'"
    with pytest.raises(FileNotFoundError, match=message):
        VOC("s3://bucket")[0]


def test_plain_paths_import_nothing_of_stores():
    code = (
        "import sys; from highway.datasets import ImageFolder, Npy, Tar; ImageFolder('highway:photos/val')[0]; "
        "print(*(name for name in sys.modules if name.startswith(('highway.stores.', 'obstore', 'fsspec'))))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(found.split()) == {"highway.stores.file", "highway.stores.url"}
