"""Parquet and Arrow by number: the same samples in the same order from each, and what goes wrong."""

import contextlib
import json
import os
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pytest
from forking import in_a_fork
from pyarrow import parquet as pq

from highway import Pipeline, Stage
from highway.datasets import Arrow, HuggingFace, ImageFolder, Parquet
from highway.errors import ConfigError, DatasetError
from highway.modules import HuggingFaceSource, ImageFileReader, Reader

LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


def save_parquet(table, path, rows):
    pq.write_table(table, path, row_group_size=rows)


def save_arrow(table, path, rows, options=None):
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema, options=options) as writer:
        writer.write_table(table, rows)


def save_stream(table, path, rows, options=None):
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, table.schema, options=options) as writer:
        writer.write_table(table, rows)


FORMATS = {
    "parquet": (Parquet, save_parquet),
    "arrow": (Arrow, save_arrow),
    "stream": (Arrow, save_stream),
    "lz4": (Arrow, lambda *args: save_arrow(*args, options=LZ4)),
    "lz4-stream": (Arrow, lambda *args: save_stream(*args, options=LZ4)),
}
every_format = pytest.mark.parametrize("name", FORMATS)
N = 100
COLUMNS = {
    "x": np.arange(N) ** 2,
    "name": [f"row {number}" for number in range(N)],
    "data": [bytes([number]) * (number * 400) for number in range(N)],  # up to 40 kB: both sides of what is copied out of the map
    "ids": [list(range(number % 4)) for number in range(N)],
}


def saved(folder, name, columns=COLUMNS, rows=7, parts=1):
    """Write a table into several files, and return what opens it."""
    kind, save = FORMATS[name]
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    folder.mkdir(exist_ok=True)
    share = -(-len(table) // parts)
    for part in range(parts):
        save(table.slice(part * share, share), str(folder / f"part-{part}.{kind.suffixes[0][1:]}"), rows)
    return lambda paths=str(folder), **options: kind(paths, **options)


def plain(sample):
    return {name: value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value for name, value in sample.items()}


@every_format
def test_samples_are_the_rows_of_all_files_in_their_order(tmp_path, name):
    dataset = saved(tmp_path / "t", name, parts=3)()
    rows = pa.table(COLUMNS).to_pylist()
    assert len(dataset) == N
    assert list(map(plain, dataset.__getitems__(range(N)))) == rows == [plain(dataset[number]) for number in range(N)]
    numbers = [99, 0, 0, 33, 34, 50, -1]
    assert [plain(sample) for sample in dataset.__getitems__(numbers)] == [rows[number] for number in numbers]
    assert dataset.__getitems__([]) == []
    assert [dataset.keys[number] for number in (0, 41, -1)] == ["0", "41", "99"] and dataset.keys[3:5] == ["3", "4"]
    assert [len(block) for block in dataset.blocks()] == [7, 7, 7, 7, 6] * 2 + [7, 7, 7, 7, 4]
    assert dataset.locate(35).endswith(f"part-1{dataset.suffixes[0]}: row 1")
    assert dataset[3]["x"].dtype == np.int64 and dataset.classes is None
    for number in (N, -N - 1):
        with pytest.raises(IndexError):
            dataset[number]


@every_format
def test_it_is_read_after_a_pickle_in_a_forked_child_and_by_many_threads(tmp_path, name):
    dataset = saved(tmp_path / "t", name)()
    assert plain(dataset[5])["x"] == 25 and plain(pickle.loads(pickle.dumps(dataset))[6])["x"] == 36
    assert in_a_fork(lambda: dataset[7]["x"]) == 49
    rows, fresh = pa.table(COLUMNS).to_pylist(), pickle.loads(pickle.dumps(dataset))
    orders = [np.random.default_rng(seed).permutation(N).tolist() for seed in range(4)]
    with ThreadPoolExecutor(4) as threads:
        for order, found in zip(orders, threads.map(fresh.__getitems__, orders), strict=True):
            assert [plain(sample) for sample in found] == [rows[number] for number in order]


@every_format
def test_fields_are_selected_and_renamed_and_a_column_may_be_the_keys(tmp_path, name):
    dataset = saved(tmp_path / "t", name)(fields={"y": "missing;x", "text": "name", "again": "x"}, key="name")
    assert [plain(dataset[number]) for number in (2, 0)] == [
        {"y": 4, "text": "row 2", "again": 4},
        {"y": 0, "text": "row 0", "again": 0},
    ]
    assert list(dataset.keys)[:3] == ["row 0", "row 1", "row 2"]
    own = saved(tmp_path / "own", name, {"__key__": [b"a", b"b"], "x": [1, 2]})()
    assert (list(own.keys), plain(own[1])) == (["a", "b"], {"x": 2})
    assert list(saved(tmp_path / "own", name, {"__key__": ["a", "b"], "x": [1, 2]})(key="x").keys) == ["1", "2"]


@every_format
def test_readers_take_each_format_in_the_same_order(tmp_path, name):
    dataset = saved(tmp_path / "t", name)(fields={"x": "x"}, key="name")
    samples = [{"x": np.int64(number**2)} for number in range(N)]

    def epoch(dataset, **options):
        with Pipeline([Reader(dataset, 16, epochs=1, **options)], seed=5) as pipeline:
            return [batch["x"].tolist() for batch in pipeline]

    assert epoch(dataset) == epoch(samples) == epoch(dataset, num_workers=3)
    assert epoch(dataset, shuffle=False) == epoch(samples, shuffle=False)
    mixed = epoch(dataset, shuffle="blocks", window=30)
    assert sorted(x for batch in mixed for x in batch) == sorted(number**2 for number in range(N)) and mixed != epoch(dataset)
    assert mixed == epoch(dataset, shuffle="blocks", window=30, num_workers=3)


@pytest.mark.parametrize("name", ["parquet", "arrow"])
@pytest.mark.parametrize("as_struct", [False, True])
def test_images_are_decoded_as_those_of_the_folder(tmp_path, name, as_struct):
    folder = ImageFolder("highway:photos/val")
    images, labels = zip(*(folder[number] for number in range(len(folder))), strict=True)
    column = [{"bytes": data, "path": None} for data in images] if as_struct else images
    dataset = saved(tmp_path / "t", name, {"image": column, "label": pa.array(labels, pa.int64()), "key": folder.keys})(key="key")
    for options in ({"epochs": 1}, {"epochs": 1, "shuffle": False}):
        expected, found = (list(Pipeline([ImageFileReader(of, 8, (32, 32), **options)], seed=3)) for of in (folder, dataset))
        for (left, left_labels), (right, right_labels) in zip(expected, found, strict=True):
            np.testing.assert_array_equal(left, right)
            np.testing.assert_array_equal(left_labels, right_labels)
            assert right_labels.dtype == np.int32


@every_format
def test_names_of_labels_are_those_that_hugging_face_has_written_down(tmp_path, name):
    features = {"fine": {"_type": "ClassLabel", "names": ["a", "b"]}, "rough": {"_type": "ClassLabel", "names": ["c"]}, "x": {}}
    table = pa.table({"x": [0.5], "fine": [1], "rough": [0]})
    described = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    opened = saved(tmp_path / "t", name, described)
    assert opened().classes == ["a", "b"]
    assert opened(fields={"fine": "fine", "label": "rough"}).classes == ["c"]
    assert opened(fields={"x": "x"}).classes is None
    for metadata in ("no JSON", "[]", '{"info": {"features": 3}}', '{"info": {"features": {"x": {"_type": "ClassLabel"}}}}'):
        assert saved(tmp_path / "u", name, table.replace_schema_metadata({"huggingface": metadata}))().classes is None


@every_format
def test_a_null_is_an_error_that_names_row_and_column_or_what_is_said_for_it(tmp_path, name):
    columns = {"x": [1, None, 3, None], "text": ["a", None, "c", "d"], "ids": [[1], [2], [3, None], [4]]}
    opened = saved(tmp_path / "t", name, columns)
    with pytest.raises(DatasetError, match=r"part-0\.\w+: row 1, column 'x': the value is null; pass nulls=\{'x': ...\}"):
        opened()[1]
    with pytest.raises(DatasetError, match=r"row 2, column 'ids': the list of numbers contains a null"):
        opened()[2]
    filled = opened(nulls={"x": -1, "text": ""}, fields={"x": "x", "text": "text"})
    assert [tuple(plain(sample).values()) for sample in filled] == [(1, "a"), (-1, ""), (3, "c"), (-1, "d")]
    with pytest.raises(DatasetError, match="nulls= contains 'y', which is not a field; the fields are x, text"):
        opened(nulls={"y": 0}, fields={"x": "x", "text": "text"})[0]
    with pytest.raises(DatasetError, match="column 'text' contains nulls; select"):
        opened(key="text").keys[0]
    with Pipeline([Stage(Reader(opened(fields={"x": "x"}), shuffle=False, epochs=1), on_error="skip")]) as pipeline:
        assert [plain(sample) for sample in pipeline] == [{"x": 1}, {"x": 3}]


@every_format
def test_columns_that_are_missing_double_or_of_another_type_are_named(tmp_path, name):
    opened = saved(tmp_path / "t", name)
    with pytest.raises(DatasetError, match="there is no value for the field 'image': expected img or photo, found x, name, data, ids"):
        len(opened(fields={"image": "img;photo"}))
    with pytest.raises(DatasetError, match="no column 'id' for the keys; found x, name"):
        len(opened(key="id"))
    double = saved(tmp_path / "d", name, pa.table([[1], [2], [3]], ["x", "x", "y"]))
    with pytest.raises(DatasetError, match="2 columns have the name 'x'"):
        len(double(fields={"x": "x"}))
    assert plain(double(fields={"y": "y"})[0]) == {"y": 3}
    kind, save = FORMATS[name]
    save(pa.table({"x": [0.5], "name": pa.array(["a"], pa.large_string())}), str(tmp_path / "t" / f"q{kind.suffixes[0]}"), 1)
    with pytest.raises(DatasetError, match=r"q\.\w+: column 'x' has the type double, but the type int64 in .*part-0"):
        len(opened(fields={"x": "x"}))
    assert opened(fields={"name": "name"})[N] == {"name": "a"}
    with pytest.raises(DatasetError, match=r"q\.\w+: there is no column 'data', although .*part-0.* has it; found x, name"):
        len(opened(fields={"data": "data"}))


@every_format
def test_what_is_cut_short_or_of_another_format_is_named(tmp_path, name):
    opened = saved(tmp_path / "t", name)
    kind, _save = FORMATS[name]
    (path,) = opened().files
    whole = Path(path).read_bytes()
    for length in (0, 3, 100, len(whole) // 2, len(whole) - 8, len(whole) - 1):
        Path(path).write_bytes(whole[:length])
        with pytest.raises(
            DatasetError, match=rf"part-0\.\w+: {'Parquet' if kind is Parquet else 'Arrow'}: not a file of this format, or damaged"
        ):
            len(opened())
    Path(path).write_bytes(b"ZZZZZZ" * 100)
    with pytest.raises(DatasetError, match="not a file of this format"):
        len(opened())
    if kind is Arrow:
        save_parquet(pa.table({"x": [1]}), path, 1)
        with pytest.raises(DatasetError, match=r"a Parquet file; use Parquet\(...\)"):
            len(opened())


@pytest.mark.parametrize("name", ["parquet", "arrow", "stream", "lz4"])
def test_bytes_that_were_damaged_are_an_error_or_what_was_written_and_never_a_crash(tmp_path, name):
    opened = saved(tmp_path / "t", name, {"text": [f"é{number}" for number in range(N)], "ids": COLUMNS["ids"]}, rows=10)
    (path,) = opened().files
    whole, rng = Path(path).read_bytes(), np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 150):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.integers(8)
        Path(path).write_bytes(damaged)
        with contextlib.suppress(DatasetError, IndexError):
            assert len(opened().__getitems__(range(N))) == N


@pytest.mark.parametrize("name", ["arrow", "stream", "lz4"])
def test_offsets_and_numbers_that_lead_out_of_memory_are_named_with_their_record_batch(tmp_path, name):
    texts = pa.array([f"text {number}" for number in range(20)])
    offsets = pa.array(np.where(np.arange(21) == 15, 10**8, np.arange(21) * 5).astype(np.int32)).buffers()[1]
    wild = pa.Array.from_buffers(pa.string(), 20, [None, offsets, texts.buffers()[2]])
    beyond = pa.DictionaryArray.from_arrays(pa.array([0] * 19 + [7]), pa.array(["a", "b"]), safe=False)
    for column in (wild, beyond):
        opened = saved(tmp_path / str(column.type)[:4], name, {"x": range(20), "text": column}, rows=10)
        assert opened(fields={"x": "x"})[15] == {"x": 15}
        assert opened()[3]["text"]
        with pytest.raises(DatasetError, match=r"part-0.arrow: Arrow: record batch 1 is damaged or truncated"):
            opened()[12]


@every_format
def test_a_file_that_changes_while_it_is_read_is_named_with_its_sizes(tmp_path, name):
    dataset = saved(tmp_path / "t", name)()
    (path,) = dataset.files
    assert dataset[0] is not None
    before, size = dataset.fingerprint(), os.path.getsize(path)
    os.truncate(path, size // 2)
    assert dataset.fingerprint() != before
    with pytest.raises(DatasetError, match=rf"part-0\.\w+: it had {size} bytes when it was first read, and now has {size // 2} bytes"):
        dataset[N - 1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@every_format
def test_a_file_that_may_not_be_read_is_an_error_of_the_system(tmp_path, name):
    dataset = saved(tmp_path / "t", name)()
    os.chmod(dataset.files[0], 0)
    with pytest.raises(PermissionError):
        len(dataset)


def test_files_are_found_by_folder_pattern_braces_and_list(tmp_path):
    opened = saved(tmp_path / "t", "parquet", parts=3)
    folder = str(tmp_path / "t")
    files = [f"{folder}/part-{number}.parquet" for number in range(3)]
    for paths in (folder, f"{folder}/*.parquet", f"{folder}/part-{{0..2}}.parquet", files):
        assert opened(paths).files == files
    assert opened(files[::-1]).files == files[::-1]
    with pytest.raises(FileNotFoundError, match="no file matches this pattern"):
        len(opened(f"{folder}/none*.parquet"))
    with pytest.raises(FileNotFoundError, match=r"no file in this folder or its subfolders ends in .arrow or .feather or .ipc"):
        len(Arrow(folder))
    with pytest.raises(FileNotFoundError, match=r"none.parquet"):
        len(opened(f"{folder}/none.parquet"))


def test_row_groups_are_decoded_once_in_each_window_with_the_columns_that_are_wanted(tmp_path, monkeypatch):
    dataset = saved(tmp_path / "t", "parquet", rows=10)(fields={"x": "x", "data": "data"})
    decoded, original = [], pq.ParquetFile.read_row_group

    def read(file, number, *given, **named):
        decoded.append(number)
        return original(file, number, *given, **named)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", read)
    for _ in range(2):
        with Pipeline([Reader(dataset, shuffle="blocks", window=20, epochs=1, num_workers=4)]) as pipeline:
            assert len(list(pipeline)) == N
    assert sorted(decoded) == list(range(10))


MEASURED = """
import sys
import numpy as np, pyarrow as pa
from highway import Pipeline
from highway.datasets import Parquet
from highway.modules import Reader

dataset, most = Parquet(sys.argv[1], cache_mb=64), 0
for epoch in range(2):
    with Pipeline([Reader(dataset, shuffle="blocks", window=400, epochs=1, num_workers=2)]) as pipeline:
        for count, _ in enumerate(pipeline):
            most = max(most, pa.total_allocated_bytes())
        assert count == 4799
print(most >> 20)
"""


@pytest.mark.slow
def test_reading_by_blocks_holds_the_row_groups_of_a_window_and_not_the_whole_set(tmp_path):
    rng = np.random.default_rng(0)
    save_parquet(pa.table({"data": [rng.bytes(10_000) for _ in range(4800)]}), str(tmp_path / "a.parquet"), 100)  # 48 groups of 1 MB
    found = subprocess.run([sys.executable, "-c", MEASURED, tmp_path / "a.parquet"], capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) < 32  # a quarter of the cache, and a window of 4 row groups whose end is still being read; the set is 46


def test_a_row_group_that_does_not_fit_into_the_cache_is_an_error_with_the_way_out(tmp_path):
    rng = np.random.default_rng(0)
    opened = saved(tmp_path / "t", "parquet", {"x": [0, 1], "data": [rng.bytes(600_000), rng.bytes(600_000)]})
    with pytest.raises(DatasetError, match=r"row group 0 \(2 rows\) is read as a whole and needs 1 MB, more than cache_mb=1:"):
        len(opened(cache_mb=1))
    assert plain(opened(cache_mb=1, fields={"x": "x"})[1]) == {"x": 1}
    assert len(opened(cache_mb=2)[1]["data"]) == 600_000


def test_row_groups_that_are_decoded_again_and_again_are_worth_one_warning(tmp_path, caplog):
    rng = np.random.default_rng(0)
    dataset = saved(tmp_path / "t", "parquet", {"data": [rng.bytes(20_000) for _ in range(N)]}, rows=25)(cache_mb=1)
    for number in rng.integers(0, N, 300).tolist():
        dataset[number]
    (record,) = caplog.records
    assert "row groups were decoded" in record.message and "each row group has about 25 rows; use shuffle='blocks'" in record.message
    caplog.clear()
    for _ in range(20):
        dataset.__getitems__(range(N))
    assert not caplog.records


def test_folders_that_hugging_face_has_saved_are_read_in_the_order_of_their_files(tmp_path):
    folder = tmp_path / "train"
    folder.mkdir()
    for number in range(3):
        save_stream(pa.table({"x": [number]}), str(folder / f"data-{number}.arrow"), 1)
    save_stream(pa.table({"x": [9]}), str(folder / "cache-1.arrow"), 1)

    def state(names, **more):
        (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names], **more}))

    state(["data-2.arrow", "data-0.arrow"])
    assert [int(sample["x"]) for sample in Arrow(str(folder))] == [2, 0]
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(ConfigError, match=r"the folder has splits; pass the folder of one split: '.*train' or '.*test'"):
        len(Arrow(str(tmp_path)))
    for names in ([], ["../data-0.arrow"]):
        state(names)
        with pytest.raises(DatasetError, match="expected files of this folder"):
            len(Arrow(str(folder)))
    state(["data-0.arrow"], _indices_data_files=[{"filename": "indices.arrow"}])
    with pytest.raises(DatasetError, match="the table was saved with an index of its rows; save it again with dataset"):
        len(Arrow(str(folder)))
    for content, message in (('{"_data', "state.json: not JSON, or truncated"), ('{"_data_files": 3}', "does not list the files")):
        (folder / "state.json").write_text(content)
        with pytest.raises(DatasetError, match=message):
            len(Arrow(str(folder)))


def test_a_compressed_stream_that_is_larger_than_the_cache_is_refused(tmp_path):
    opened = saved(tmp_path / "t", "lz4-stream", {"data": [bytes(3_000_000)]})
    with pytest.raises(DatasetError, match="the compressed stream needs more memory than cache_mb=1 allows; write it as a file"):
        len(opened(cache_mb=1))


def test_a_file_without_rows_is_empty(tmp_path):
    for name in FORMATS:
        assert len(saved(tmp_path / name, name, pa.table({"x": pa.array([], pa.int32())}))()) == 0


@pytest.mark.parametrize("kind", [Parquet, Arrow])
def test_without_pyarrow_it_is_made_and_an_error_names_the_command_when_it_is_read(tmp_path, kind):
    (tmp_path / "a.x").write_bytes(b"")
    text = f"import sys; sys.modules['pyarrow'] = None; from highway import datasets; d = datasets.{kind.__name__}('a.x'); print(1); len(d)"
    found = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True)
    assert found.stdout == "1\n" and re.search(r"ConfigError: Parquet and Arrow files need pyarrow: pip install .*\[arrow\]'", found.stderr)


def test_without_the_package_datasets_a_name_is_an_error_that_names_the_command_when_it_is_read(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    message = r"'beans': Hugging Face's tables need the package datasets: pip install .*\[huggingface\]'"
    with pytest.raises(ConfigError, match=message):
        len(HuggingFace("beans", "train"))
    with pytest.raises(ConfigError, match=message):
        list(Pipeline([HuggingFaceSource("beans", "train")]))
    for nothing in ([1, 2], pa.table({"x": [1]})):
        with pytest.raises(ConfigError, match=r"dataset is of type \w+; expected a Dataset of the package datasets$"):
            HuggingFace(nothing)


# --- folders of files ---


def hive(folder, name, *places, column="x"):
    """Write files of two rows each, numbered in their order, and return the kind of dataset that reads them."""
    kind, save = FORMATS[name]
    for number, place in enumerate(places):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        save(pa.table({column: [2 * number, 2 * number + 1]}), str(folder / place), 2)
    return kind


two_formats = pytest.mark.parametrize(("name", "suffix"), [("parquet", "parquet"), ("arrow", "arrow")])


@two_formats
def test_a_folder_is_read_as_pyarrow_reads_it(tmp_path, name, suffix):
    places = [".part-1.tmp", "PART-3", "_backup", "_tmp/x", "part-1", "sub/.hidden/x", "sub/_c", "sub/part-2"]
    kind = hive(tmp_path, name, *(f"{place}.{suffix}" for place in places))
    (tmp_path / "PART-3.PARQUET" if suffix == "parquet" else tmp_path / "PART-3.ARROW").write_bytes(
        (tmp_path / f"PART-3.{suffix}").read_bytes()
    )
    (tmp_path / f"PART-3.{suffix}").unlink()
    (tmp_path / "_SUCCESS").write_text("")
    dataset = kind(str(tmp_path))
    assert [int(sample["x"]) for sample in dataset] == [2, 3, 8, 9, 14, 15]
    expected = pa.dataset.dataset(str(tmp_path), format="parquet" if name == "parquet" else "ipc")
    assert dataset.files == expected.files and sorted(expected.to_table()["x"].to_pylist()) == [2, 3, 8, 9, 14, 15]


@two_formats
def test_names_of_folders_are_columns_in_a_folder_a_pattern_and_a_list(tmp_path, name, suffix):
    places = [f"label={label}/kind={kind}/p.{suffix}" for label in (0, 1) for kind in ("a", "b%20c")]
    kind = hive(tmp_path / "run=7", name, *places)
    top = str(tmp_path / "run=7")
    ways = [
        top,
        f"{top}/",
        f"{top}/*/*/*.{suffix}",
        f"{top}/label={{0,1}}/*/p.{suffix}",
        [f"{top}/{place}" for place in places],
        [f"{top}/label=0", f"{top}/label=1"],
        [f"{top}/label=0/*/*.{suffix}", f"{top}/label=1/kind=*/*"],
    ]
    for paths in ways:
        dataset = kind(paths)
        rows = [(int(sample["x"]), int(sample["label"]), sample["kind"]) for sample in dataset]
        assert rows == [(number, number // 4, ("a", "b c")[number // 2 % 2]) for number in range(8)], paths
        assert list(dataset[0]) == ["x", "label", "kind"] and dataset[0]["label"].dtype == np.int32
    expected = pa.dataset.dataset(top, format="parquet" if name == "parquet" else "ipc", partitioning="hive").to_table()
    assert list(kind(top)) == expected.to_pylist()
    assert list(kind(f"{top}/{places[0]}")[0]) == ["x"]
    assert kind(top, fields={"y": "label"})[7] == {"y": 1} and kind(top, fields={"a": "x"})[7] == {"a": 7}


def test_what_names_of_folders_hold_is_an_integer_or_a_text(tmp_path):
    hive(tmp_path / "a", "parquet", "n=-1/p.parquet", "n=5000000000/p.parquet")
    assert [sample["n"] for sample in Parquet(str(tmp_path / "a"))] == [-1, -1, 5000000000, 5000000000]
    hive(tmp_path / "b", "parquet", "n=1/p.parquet", "n=1.5/p.parquet")
    assert [sample["n"] for sample in Parquet(str(tmp_path / "b"))] == ["1", "1", "1.5", "1.5"]
    hive(tmp_path / "c", "parquet", "n=1/p.parquet", "n=__HIVE_DEFAULT_PARTITION__/p.parquet")
    with pytest.raises(DatasetError, match=r"__HIVE_DEFAULT_PARTITION__/p\.parquet: row 0, column 'n': the value is null"):
        list(Parquet(str(tmp_path / "c")))
    assert [sample["n"] for sample in Parquet(str(tmp_path / "c"), nulls={"n": 9})] == [1, 1, 9, 9]


def test_a_column_in_the_files_counts_and_not_the_name_of_a_folder(tmp_path):
    hive(tmp_path, "parquet", "x=7/p.parquet")
    assert [sample["x"] for sample in Parquet(str(tmp_path))] == [0, 1]


def test_files_whose_folders_name_other_columns_are_an_error(tmp_path):
    hive(tmp_path, "parquet", "label=0/p.parquet", "p.parquet")
    with pytest.raises(
        DatasetError,
        match=r"p\.parquet: the folder names of this file define the columns none, but the folder names of .* define label=",
    ):
        len(Parquet(str(tmp_path)))
    with pytest.raises(DatasetError, match=r"key='label' is a column in folder names, whose values many rows share"):
        len(Parquet(f"{tmp_path}/*/p.parquet", key="label"))


def test_a_folder_without_files_of_the_format_is_an_error(tmp_path):
    (tmp_path / "_p.parquet").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"no file in this folder or its subfolders ends in \.parquet or \.pq"):
        len(Parquet(str(tmp_path)))


def test_zeros_over_a_message_of_a_stream_are_not_its_end(tmp_path):
    path = str(tmp_path / "a.arrow")
    save_stream(pa.table({"x": range(40)}), path, 10)
    data = Path(path).read_bytes()
    message = b"\xff\xff\xff\xff"
    places = [place for place in range(0, len(data) - 8, 8) if data[place : place + 4] == message]
    assert len(places) == 5 and len(Arrow(path)) == 40
    for place in places[1:]:
        Path(path).write_bytes(data[:place] + bytes(8) + data[place + 8 :])
        with pytest.raises(
            DatasetError,
            match=r"a\.arrow: Arrow: .*an end mark before byte \d+, but the stream has \d+ bytes; perhaps zeros have overwritten a message",
        ):
            len(Arrow(path))
    Path(path).write_bytes(data + data)
    with pytest.raises(DatasetError, match="an end mark before byte"):
        len(Arrow(path))
