"""Tables and streams of Hugging Face against the package datasets, without network."""

import json
import os
import pickle
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from forking import in_a_fork

from highway import Pipeline
from highway.datasets import Arrow, HuggingFace, ImageFolder, Parquet
from highway.datasets.tables.writers import parquet_writer
from highway.errors import ConfigError, DatasetError
from highway.modules import Batch, HuggingFaceSource, ImageFileReader, Reader

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
huggingface = pytest.importorskip("datasets", minversion="5", reason="run by `tox -e oracles`")  # without a version it is tests/datasets
pytest.importorskip("tqdm").tqdm.monitor_interval = 0  # else its thread goes on behind a bar that is not shown

N = 300


@pytest.fixture(scope="module")
def table():
    """A table with columns of many kinds."""
    rng = np.random.default_rng(0)
    features = huggingface.Features(
        {
            "text": huggingface.Value("string"),
            "x": huggingface.Value("float32"),
            "ids": huggingface.List(huggingface.Value("int64")),
            "box": huggingface.Array2D((2, 3), "float32"),
            "label": huggingface.ClassLabel(names=["a", "b", "c"]),
            "objects": {"name": huggingface.Value("string"), "area": huggingface.List(huggingface.Value("int32"))},
        }
    )
    columns = {
        "text": [f"row {number}" for number in range(N)],
        "x": rng.normal(size=N),
        "ids": [list(range(number % 5)) for number in range(N)],
        "box": rng.normal(size=(N, 2, 3)),
        "label": [number % 3 for number in range(N)],
        "objects": [{"name": "x", "area": [number]} for number in range(N)],
    }
    return huggingface.Dataset.from_dict(columns, features)


@pytest.fixture(scope="module")
def photos():
    folder = ImageFolder("highway:photos/val")
    features = huggingface.Features({"image": huggingface.Image(), "label": huggingface.ClassLabel(names=folder.classes)})
    rows = [{"image": {"bytes": data, "path": None}, "label": int(label)} for data, label in folder]
    return huggingface.Dataset.from_list(rows, features)


def plain(value):
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return {name: plain(part) for name, part in value.items()} if isinstance(value, dict) else value


def same(found, expected):
    assert len(found) == len(expected) > 0
    for left, right in zip(found, expected, strict=True):
        assert plain(left) == plain(right)


@pytest.mark.filterwarnings("ignore:Specifying null_placement:FutureWarning")  # by datasets, to pyarrow
@pytest.mark.parametrize("change", ["as it is", "shuffle", "select", "filter", "sort", "shard", "concatenate", "format", "select_columns"])
def test_samples_are_the_rows_of_the_table_in_its_order(table, change):
    changed = {
        "as it is": lambda: table,
        "shuffle": lambda: table.shuffle(seed=1),
        "select": lambda: table.select([5, 3, 3, 200]),
        "filter": lambda: table.filter(lambda row: row["label"] == 1),
        "sort": lambda: table.sort("x"),
        "shard": lambda: table.shard(4, 1),
        "concatenate": lambda: huggingface.concatenate_datasets([table, table.select(range(10))]),
        "format": lambda: table.with_format("numpy", columns=["x", "label"]),
        "select_columns": lambda: table.select_columns(["label", "ids"]),
    }[change]()
    dataset = HuggingFace(changed)
    expected = [dict(row) for row in changed.with_format(None, columns=list(changed.format["columns"]))]
    same([dataset[number] for number in range(len(dataset))], expected)
    order = np.random.default_rng(1).permutation(len(dataset)).tolist()
    same(dataset.__getitems__(order), [expected[number] for number in order])
    assert dataset.classes == ["a", "b", "c"] and dataset[-1].keys() == expected[-1].keys()
    with pytest.raises(IndexError):
        dataset[len(dataset)]
    if "label" in expected[0] and "x" in expected[0]:
        assert (dataset[0]["x"].dtype, dataset[0]["label"].dtype) == (np.float32, np.int64)


def test_what_save_to_disk_has_written_is_read_with_and_without_the_package(table, tmp_path):
    folder = str(tmp_path / "table")
    table.shuffle(seed=3).save_to_disk(folder, num_shards=3)
    expected = list(huggingface.load_from_disk(folder))
    for dataset in (
        Arrow(folder, key="text"),
        HuggingFace(folder, key="text"),
        HuggingFace(huggingface.load_from_disk(folder), key="text"),
    ):
        same(list(dataset), expected)
        assert list(dataset.keys) == [row["text"] for row in expected] and dataset.classes == ["a", "b", "c"]
        assert dataset.fingerprint() == pickle.loads(pickle.dumps(dataset)).fingerprint()
    huggingface.DatasetDict(train=table, test=table.select([0])).save_to_disk(tmp_path / "splits")
    assert len(HuggingFace(str(tmp_path / "splits"), "test")) == len(Arrow(str(tmp_path / "splits" / "test"))) == 1
    with pytest.raises(ConfigError, match="split=None; expected one of 'train', 'test'"):
        len(HuggingFace(str(tmp_path / "splits")))
    with pytest.raises(ConfigError, match=r"the folder has splits; pass the folder of one split: '.*train' or '.*test'"):
        len(Arrow(str(tmp_path / "splits")))


def test_parquet_that_either_has_written_is_read_by_the_other(table, tmp_path):
    path = str(tmp_path / "table.parquet")
    table.to_parquet(path, batch_size=50)
    dataset = Parquet(path)
    same(list(dataset), list(table))
    assert dataset.classes == ["a", "b", "c"] and len(dataset.blocks()) > 1
    with parquet_writer(str(tmp_path / "own.parquet")) as writer:
        for number in range(20):
            writer.add(str(number), {"text": f"row {number}", "ids": np.arange(number % 3), "data": bytes([number])})
    own = huggingface.Dataset.from_parquet(str(tmp_path / "own.parquet"), cache_dir=str(tmp_path / "cache"))
    assert own[7] == {"__key__": "7", "text": "row 7", "ids": [0], "data": b"\7"}
    same(list(HuggingFace(own)), list(Parquet(str(tmp_path / "own.parquet"))))


def test_images_stay_encoded_and_are_decoded_as_those_of_the_folder(photos, tmp_path):
    folder = ImageFolder("highway:photos/val")
    photos.save_to_disk(tmp_path / "photos")
    photos.to_parquet(str(tmp_path / "photos.parquet"))
    paths = huggingface.Dataset.from_dict({"image": [folder.locate(number) for number in range(len(folder))], "label": photos["label"]})
    for dataset in (
        HuggingFace(photos),
        HuggingFace(paths.cast_column("image", huggingface.Image())),
        Arrow(str(tmp_path / "photos")),
        Parquet(str(tmp_path / "photos.parquet")),
    ):
        expected, found = (list(Pipeline([ImageFileReader(of, 8, (32, 32), epochs=1)], seed=3)) for of in (folder, dataset))
        for left, right in zip(expected, found, strict=True):
            np.testing.assert_array_equal(left[0], right[0])
            np.testing.assert_array_equal(left[1], right[1])
    with pytest.raises(DatasetError, match="row 0, column 'image': the value is not an image, but the path"):
        paths.cast_column("image", huggingface.Image()).to_parquet(str(tmp_path / "paths.parquet"))
        table = huggingface.Dataset.from_parquet(str(tmp_path / "paths.parquet"), cache_dir=str(tmp_path / "cache"))
        table = table.map(
            lambda row: {"image": {"bytes": None, "path": "a.jpg"}}, features=paths.cast_column("image", huggingface.Image()).features
        )
        Arrow(table.cache_files[0]["filename"])[0]


def test_it_is_read_by_many_threads_in_a_forked_child_and_after_a_pickle(table, tmp_path):
    table.save_to_disk(tmp_path / "table")
    dataset = HuggingFace(huggingface.load_from_disk(tmp_path / "table").shuffle(seed=1), key="text")
    expected = [plain(sample) for sample in dataset]
    with ThreadPoolExecutor(4) as threads:
        orders = [np.random.default_rng(seed).permutation(N).tolist() for seed in range(4)]
        for order, found in zip(orders, threads.map(dataset.__getitems__, orders), strict=True):
            same(found, [expected[number] for number in order])
    assert in_a_fork(lambda: dataset.keys[0] == expected[0]["text"] and plain(dataset[7]) == expected[7]) == 1
    same(list(pickle.loads(pickle.dumps(dataset))), expected)


def test_readers_take_a_table_in_the_order_of_any_other_dataset(table):
    expected = [{"x": value} for value in np.array(table["x"], np.float32)]
    for options in ({}, {"shuffle": False}, {"num_workers": 3}):
        found, other = (
            [batch["x"].tolist() for batch in Pipeline([Reader(of, 16, epochs=1, **options)], seed=5)]
            for of in (HuggingFace(table, fields={"x": "x"}), expected)
        )
        assert found == other
    assert len(list(Pipeline([Reader(HuggingFace(table, fields={"x": "x"}), 16, shuffle="blocks", epochs=1)]))) == 19
    with pytest.raises(
        ConfigError, match=r"shuffle='blocks': the rows of .* were reordered .*; use shuffle=True, or dataset.flatten_indices"
    ):
        list(Pipeline([Reader(HuggingFace(table.shuffle(seed=1)), 16, shuffle="blocks", epochs=1)]))


def test_what_is_no_table_or_has_a_transform_is_named_with_the_way_out(table):
    for other, message in [
        ([1, 2], "dataset is of type list; expected a Dataset of the package datasets$"),
        (huggingface.DatasetDict(train=table), "split=None; expected one of 'train'"),
        (table.with_transform(lambda rows: rows), r"the table has a transform, .* after dataset.reset_format\(\)"),
    ]:
        with pytest.raises(ConfigError, match=message):
            len(HuggingFace(other))
    with pytest.raises(ConfigError, match="HuggingFaceSource for streams"):
        HuggingFace(table.to_iterable_dataset())
    with pytest.raises(DatasetError, match=r"there is no value for the field 'image': expected img, found text, x"):
        len(HuggingFace(table, fields={"image": "img"}))
    nulls = huggingface.Dataset.from_dict({"x": [1, None]})
    with pytest.raises(DatasetError, match="row 1, column 'x': the value is null"):
        HuggingFace(nulls)[1]
    assert HuggingFace(nulls, nulls={"x": -1})[1] == {"x": -1}


STREAMS = {
    "as it is": lambda stream: stream,
    "mapped": lambda stream: stream.map(lambda row: {"y": row["label"] * 2}),
    "in batches": lambda stream: stream.map(lambda rows: {"y": [label * 2 for label in rows["label"]]}, batched=True, batch_size=7),
    "filtered": lambda stream: stream.filter(lambda row: row["label"] != 1),
    "shuffled": lambda stream: stream.shuffle(seed=1, buffer_size=50),
    "interleaved": lambda stream: huggingface.interleave_datasets([stream, stream]),
    "numpy": lambda stream: stream.with_format("numpy"),
    "arrow": lambda stream: stream.with_format("arrow"),
}


@pytest.mark.parametrize("change", STREAMS)
def test_a_stream_gives_the_samples_of_its_table_and_goes_on_exactly_from_any_place(table, change, monkeypatch):
    monkeypatch.setattr("highway.modules.huggingface.MARK", 40)
    stream = STREAMS[change](table.select_columns(["text", "label"]).to_iterable_dataset(num_shards=4))

    def run(stop=None, state=None):
        batches = []
        with Pipeline([HuggingFaceSource(stream, key="text", epochs=2), Batch(7, last="keep")]) as pipeline:
            if state is not None:
                pipeline.load_state_dict(state)
            while True:
                try:
                    for batch in pipeline:
                        batches.append([batch["text"].tolist(), batch["label"].tolist()])
                        if len(batches) == stop:
                            return batches, json.loads(json.dumps(pipeline.state_dict()))
                except EOFError:
                    return batches, None

    whole, _ = run()
    plain_stream = stream.with_format(None)
    assert [text for texts, _ in whole[: len(whole) // 2] for text in texts] == [row["text"] for row in plain_stream]
    for stop in (1, 11, len(whole) // 2, len(whole) - 2):
        first, state = run(stop)
        rest, _ = run(None, state)
        assert first + rest == whole


SCRIPT = """
    import json, sys
    from pathlib import Path
    import datasets
    from highway import Pipeline
    from highway.modules import Batch, HuggingFaceSource

    table = datasets.load_from_disk(sys.argv[1])
    stream = table.to_iterable_dataset(num_shards=4).map(lambda row: {"y": row["x"] * 2}).filter(lambda row: row["x"] % 3).shuffle(seed=1)
    if len(sys.argv) > 3:
        next(iter(stream))  # somebody has had a look at it
    with Pipeline([HuggingFaceSource(stream, epochs=1), Batch(4)]) as pipeline:
        if len(sys.argv) > 3:
            pipeline.load_state_dict(json.loads(Path(sys.argv[2]).read_text()))
        print(json.dumps([pipeline.dequeue()["y"].tolist() for _ in range(3)]))
        Path(sys.argv[2]).write_text(json.dumps(pipeline.state_dict()))
"""


def test_a_stream_resumes_in_another_process(tmp_path):
    huggingface.Dataset.from_dict({"x": list(range(100))}).save_to_disk(tmp_path / "table")
    found = []
    for seed, *more in [("1",), ("2", "again")]:
        script = [sys.executable, "-c", textwrap.dedent(SCRIPT), tmp_path / "table", tmp_path / "state", *more]
        done = subprocess.run(script, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, timeout=250)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    first, rest = found
    assert len(first) == len(rest) == 3 and first != rest
    assert len({number for batch in first + rest for number in batch}) == 24


def test_samples_of_a_stream_are_those_of_the_table(table, photos):
    for of in (table, photos):
        found = list(Pipeline([HuggingFaceSource(of.to_iterable_dataset(), epochs=1)]))
        expected = list(HuggingFace(of))
        same(found, expected)
        for left, right in zip(found, expected, strict=True):
            assert [getattr(value, "dtype", type(value)) for value in left.values()] == [
                getattr(value, "dtype", type(value)) for value in right.values()
            ]


def test_a_folder_that_was_saved_is_streamed_and_a_table_is_refused(table, tmp_path):
    table.save_to_disk(tmp_path / "table")
    with Pipeline([HuggingFaceSource(str(tmp_path / "table"), fields={"t": "text"}, epochs=1)]) as pipeline:
        assert [sample["t"] for sample in pipeline] == table["text"][:]
    with pytest.raises(ConfigError, match=r"a Dataset; expected an IterableDataset .*; use Reader\(HuggingFace\(...\)\) for tables"):
        list(Pipeline([HuggingFaceSource(table)]))
    with pytest.raises(ConfigError, match="a list; expected an IterableDataset"):
        list(Pipeline([HuggingFaceSource([1])]))
    with pytest.raises(DatasetError, match="no samples in the whole epoch 0"):
        list(Pipeline([HuggingFaceSource(table.to_iterable_dataset().filter(lambda row: False))]))


def test_two_pipelines_read_one_stream_at_the_same_time(table):
    stream = table.to_iterable_dataset()
    with Pipeline([HuggingFaceSource(stream, epochs=1)]) as first, Pipeline([HuggingFaceSource(stream, epochs=1)]) as second:
        for left, right in zip(first, second, strict=True):
            assert left["text"] == right["text"]


def test_the_parts_of_ranks_make_up_the_whole_whether_shuffled_or_not(table):
    """Issue 8669 of the package: since 5.0 a shuffled stream said that it had one shard, so that other ranks got nothing; not so in 5.2."""
    from datasets.distributed import split_dataset_by_node

    for stream in (table.to_iterable_dataset(num_shards=4), table.to_iterable_dataset(num_shards=4).shuffle(seed=1, buffer_size=20)):
        parts = [list(Pipeline([HuggingFaceSource(split_dataset_by_node(stream, rank, 2), epochs=1)])) for rank in range(2)]
        assert [len(part) for part in parts] == [N // 2] * 2
        assert sorted(sample["text"] for part in parts for sample in part) == sorted(table["text"])
