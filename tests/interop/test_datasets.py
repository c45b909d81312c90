"""Datasets of Hugging Face and Grain as they are, without an adapter and without network; run by ``tox -e datasets``."""

import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from highway import Pipeline
from highway.datasets import HuggingFace, ImageFolder
from highway.errors import ConfigError, DatasetError
from highway.modules import HuggingFaceSource, ImageFileReader, Reader

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
grain = pytest.importorskip("grain", reason="grain is not installed: these are run by tox -e datasets")
huggingface = pytest.importorskip("datasets", minversion="5")  # without a version it is the folder tests/datasets
array_record = pytest.importorskip("array_record.python.array_record_module")
pytest.importorskip("tqdm").tqdm.monitor_interval = 0  # else its thread goes on behind a bar that is not shown


def read(reader):
    with Pipeline([reader], seed=3) as pipeline:
        return list(pipeline)


def same(batches, expected):
    assert len(batches) == len(expected) > 0
    for batch, other in zip(batches, expected, strict=True):
        assert type(batch) is type(other)
        for left, right in zip(*(one.values() if isinstance(one, dict) else one for one in (batch, other)), strict=True):
            np.testing.assert_array_equal(left, right)


ROWS = [{"x": [number, number**2], "label": number % 3, "text": f"row {number}"} for number in range(50)]


@pytest.fixture
def table(tmp_path):
    """A table of Hugging Face, memory-mapped from Arrow files."""
    huggingface.Dataset.from_list(ROWS).save_to_disk(tmp_path / "table")
    return huggingface.load_from_disk(tmp_path / "table")


def test_a_table_of_hugging_face_is_read_as_a_list_of_its_rows(table):
    for size in (None, 8):
        expected = read(Reader(ROWS, size, epochs=1))
        assert len(expected) == (50 if size is None else 7)
        for workers in (1, 4):
            same(read(Reader(table, size, epochs=1, num_workers=workers)), expected)
        same(read(Reader(pickle.loads(pickle.dumps(table)), size, epochs=1)), expected)
        same(read(Reader(table.with_format("numpy"), size, epochs=1)), expected)
    batch = read(Reader(table.select(range(7, 9)), 2, shuffle=False, epochs=1))[0]
    assert (batch["x"].tolist(), batch["x"].dtype) == ([[7, 49], [8, 64]], np.int32)


def test_splits_by_name_are_an_error_that_says_the_names(table):
    with pytest.raises(ConfigError, match="'train', 'test'"):
        read(Reader(huggingface.DatasetDict(train=table, test=table), 8))


DAMAGE = {
    "zeros over a header": lambda data, begin: data[:begin] + bytes(8) + data[begin + 8 :],
    "cut between two batches": lambda data, begin: data[:begin],
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("kind", ["rows", "order"])
def test_a_table_that_ends_early_is_an_error(tmp_path, kind, damage):
    folder = str(tmp_path / "t")
    huggingface.Dataset.from_dict({"x": range(3000)}).save_to_disk(folder)
    table = huggingface.load_from_disk(folder).shuffle(seed=1)
    rows, order = (Path(file["filename"]) for file in table.cache_files)
    path = rows if kind == "rows" else order
    with pa.OSFile(str(path)) as file:
        messages = pa.ipc.MessageReader.open_stream(file)
        messages.read_next_message(), messages.read_next_message()  # the schema, and the first batch
        begin = file.tell()
    assert len(HuggingFace(pickle.loads(pickle.dumps(table)))) == 3000
    data = path.read_bytes()
    path.unlink()  # because the table has mapped it
    path.write_bytes(DAMAGE[damage](data, begin))
    datasets = [HuggingFace(pickle.loads(pickle.dumps(table)))]
    if kind == "rows":
        assert len(huggingface.load_from_disk(folder)) == 1000  # the package does not see it
        datasets += [HuggingFace(huggingface.load_from_disk(folder)), HuggingFace(folder), Pipeline([HuggingFaceSource(folder)])]
    for dataset in datasets:
        with pytest.raises(DatasetError, match=rf"{path}: Hugging Face: the table is damaged or truncated; "):
            next(iter(dataset)) if isinstance(dataset, Pipeline) else len(dataset)


@pytest.fixture
def photos():
    folder = ImageFolder("highway:photos/val")
    rows = [{"image": {"bytes": data, "path": key}, "label": int(label)} for key, (data, label) in zip(folder.keys, folder)]
    features = huggingface.Features({"image": huggingface.Image(decode=False), "label": huggingface.ClassLabel(names=folder.classes)})
    return huggingface.Dataset.from_list(rows, features)


def test_images_that_hugging_face_leaves_encoded_are_decoded_as_those_of_the_folder(photos):
    same(*(read(ImageFileReader(of, 8, (32, 32), epochs=1)) for of in (photos, ImageFolder("highway:photos/val"))))


def test_images_that_hugging_face_decodes_are_an_error_that_names_the_way_out(photos):
    with pytest.raises(TypeError, match=r"cast_column\('image', Image\(decode=False\)\) to keep images encoded"):
        read(ImageFileReader(photos.cast_column("image", huggingface.Image()), 8, (32, 32)))


@pytest.fixture
def records(tmp_path):
    writer = array_record.ArrayRecordWriter(str(tmp_path / "records"), "group_size:1")
    for number in range(50):
        writer.write(str(number).encode())
    writer.close()
    return grain.sources.ArrayRecordDataSource(str(tmp_path / "records"))


def test_sources_and_maps_of_grain_are_read_as_lists(records):
    same(read(Reader(grain.sources.RangeDataSource(0, 50, 1), 8, epochs=1)), read(Reader(range(50), 8, epochs=1)))
    assert read(Reader(records, epochs=1)) == read(Reader([str(number).encode() for number in range(50)], epochs=1))
    mapped = grain.MapDataset.source(records).map(lambda data: {"x": int(data), "label": int(data) % 3}).slice(slice(0, 20))
    with pytest.raises(TypeError, match="returned None"):
        read(Reader(mapped.filter(lambda row: row["label"] == 0), 8))
    same(read(Reader(mapped, 8, epochs=1)), read(Reader([{"x": number, "label": number % 3} for number in range(20)], 8, epochs=1)))
