"""MDS shards: read from bytes that are laid out by hand, and from those that the writer makes."""

import json
import os
import pickle
import struct
from decimal import Decimal
from pathlib import Path

import fsspec
import numpy as np
import pytest

from highway import Pipeline
from highway.datasets import MDS, ImageFolder
from highway.datasets.mds.writer import mds_writer
from highway.errors import DatasetError, ItemError
from highway.modules import ImageFileReader, Reader

GOLDEN = {  # as Mosaic's writer lays them out: the columns' encodings, their values in two samples, and what these are
    "a": ("int", [struct.pack("<q", -5), struct.pack("<q", 1 << 40)], [np.int64(-5), np.int64(1 << 40)]),
    "b": ("str", ["ü".encode(), b""], ["ü", ""]),
    "c": ("bytes", [b"", b"\0\xff"], [b"", b"\0\xff"]),
    "d": ("float32", [struct.pack("<f", 0.5), struct.pack("<f", -2)], [np.float32(0.5), np.float32(-2)]),
    "e": ("jpeg", [b"\xff\xd8..", b"\xff\xd8"], [b"\xff\xd8..", b"\xff\xd8"]),
    "f": ("jpeg:90", [b"1", b"2"], [b"1", b"2"]),
    "g": ("ndarray", [b"\x11\x08\x02\x01\x01\0\x02\0", b"\x08\x04\x02\x07\x09"], [np.array([[1], [2]], "<i2"), np.array([7, 9], "u1")]),
    "h": ("ndarray:uint16", [b"\x04\x01\x05\0", b"\x05\x02\0\x05\0\x06\0"], [np.array([5], "<u2"), np.array([5, 6], "<u2")]),
    "i": ("ndarray:float64:2,1", [struct.pack("<2d", 1, 2), struct.pack("<2d", 3, 4)], [np.array([[1.0], [2]]), np.array([[3.0], [4]])]),
    "j": ("json", [b'{"x": [1, null]}', b"[]"], [{"x": [1, None]}, []]),
    "k": ("uint8", [b"\x07", b"\xff"], [np.uint8(7), np.uint8(255)]),
    "l": ("str_int", [b"123456789012345678901234567890", b"-1"], [123456789012345678901234567890, -1]),
    "m": ("str_float", [b"0.1", b"inf"], [0.1, float("inf")]),
    "n": ("str_decimal", [b"0.10", b"-3"], [Decimal("0.10"), Decimal(-3)]),
    "p": (
        "jpeg_array",
        [struct.pack("<3I", 2, 3, 1) + b"\xff\xd8.?", struct.pack("<I", 0)],
        [[b"\xff\xd8.", b"?"], []],
    ),
    "q": ("list[png]", [struct.pack("<4I", 0, 2, 1, 0) + b"x", struct.pack("<3I", 0, 1, 2) + b"xy"], [[b"x", b""], [b"xy"]]),
    "o": (
        "pil",
        [struct.pack("<3I", 2, 1, 3) + b"RGB" + bytes(range(6)), struct.pack("<3I", 1, 2, 1) + b"L\x05\x06"],
        [np.arange(6, dtype="u1").reshape(1, 2, 3), np.array([[5], [6]], "u1")],
    ),
}
SIZES = {"a": 8, "d": 4, "i": 16, "k": 1}


def shard_of(columns, samples):
    """Return the bytes of a shard."""
    config = json.dumps({"column_names": list(columns), "format": "mds", "version": 2}).encode()
    encoded = []
    for sample in samples:
        varying = [len(value) for name, value in zip(columns, sample, strict=True) if name not in SIZES]
        encoded.append(struct.pack(f"<{len(varying)}I", *varying) + b"".join(sample))
    offsets = [4 * (len(samples) + 2) + len(config)]
    for sample in encoded:
        offsets.append(offsets[-1] + len(sample))
    return struct.pack(f"<{len(offsets) + 1}I", len(samples), *offsets) + config + b"".join(encoded)


def entry_of(name, data, columns, samples, **changes):
    return {
        "column_encodings": [encoding for encoding, *_ in columns.values()],
        "column_names": list(columns),
        "column_sizes": [SIZES.get(column) for column in columns],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "raw_data": {"basename": name, "bytes": len(data), "hashes": {}},
        "samples": samples,
        "size_limit": 67108864,
        "version": 2,
        "zip_data": None,
    } | changes


@pytest.fixture
def golden(tmp_path):
    """Two shards, the second with the samples the other way round."""
    rows = [[values[row] for _, values, _ in GOLDEN.values()] for row in range(2)]
    entries = []
    for number, samples in enumerate((rows, rows[::-1])):
        data, name = shard_of(GOLDEN, samples), f"shard.{number:05}.mds"
        (tmp_path / name).write_bytes(data)
        entries.append(entry_of(name, data, GOLDEN, 2))
    (tmp_path / "index.json").write_text(json.dumps({"shards": entries, "version": 2}))
    return tmp_path


def assert_same(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype and found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)
    else:
        assert found == expected


def test_samples_are_what_the_bytes_say(golden):
    dataset = MDS(str(golden))
    assert len(dataset) == 4 and dataset.keys is None and dataset.blocks() == [range(2), range(2, 4)]
    for number, row in enumerate((0, 1, 1, 0)):
        sample = dataset[number]
        assert list(sample) == list(GOLDEN)
        for name, (_, _, expected) in GOLDEN.items():
            assert_same(sample[name], expected[row])
    assert [sample["k"] for sample in dataset.__getitems__([3, -4, 1])] == [7, 7, 255]
    with pytest.raises(IndexError):
        dataset[4]
    assert dataset.locate(3) == f"{golden}/shard.00001.mds: sample 1"
    dataset[0]["g"][:] = 0  # it is memory of its own


def test_fields_are_named_anew_and_columns_that_are_not_named_are_not_decoded(golden):
    def change(entry):
        entry["column_encodings"][0] = "pkl"

    change_index(golden, change)
    with pytest.raises(DatasetError, match=r"shard\.00000\.mds: column 'a': the encoding 'pkl' is a pickle, which could run any code"):
        MDS(str(golden))[0]
    dataset = MDS(str(golden), {"text": "x;b", "n": "k"})
    assert dataset[1] == {"text": "", "n": 255}
    with pytest.raises(DatasetError, match=r"shard\.00000\.mds: there is no value for the field 'y': expected z, found a, b, c"):
        MDS(str(golden), {"y": "z"})[0]


def change_index(folder, change):
    index = json.loads((folder / "index.json").read_text())
    for entry in index["shards"]:
        change(entry)
    (folder / "index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "json"}, r"index\.json: shard 0 has the format 'json', version 2; expected 'mds', version 2"),
        ({"version": 3}, r"index\.json: shard 0 has the format 'mds', version 3"),
        ({"column_sizes": []}, r"index\.json: shard 0 has 2 samples with the columns .*; expected a name, an encoding and a size for each"),
        ({"samples": -1}, r"index\.json: shard 0 has -1 samples"),
        ({"samples": "two"}, r"index\.json: not an index of MDS, or damaged or truncated: Expected `int`, got `str` - at `\$.shards"),
        ({"raw_data": {"basename": "../x.mds", "bytes": 1}}, r"index\.json: shard 0: the file '\.\./x\.mds' is outside the folder"),
        (
            {"raw_data": {"bytes": 5}},
            r"00000\.mds: found \d+ bytes, but index\.json lists 5 bytes: ",
        ),
        ({"samples": 10**9}, r"00000\.mds: \d+ bytes cannot hold 1000000000 samples, the number in index\.json"),
        ({"samples": 3}, r"00000\.mds: not a shard of 3 samples, or damaged: it begins with \[2, "),
        (
            {"column_encodings": ["gif"] * len(GOLDEN)},
            r"00000\.mds: column 'a': the encoding 'gif' is unknown; expected one of bytes, jpeg, png, ",
        ),
        ({"column_encodings": ["ndarray:U3"] * len(GOLDEN)}, r"00000\.mds: column 'a': the encoding 'ndarray:U3' is unknown"),
        ({"column_sizes": [4, *[None] * (len(GOLDEN) - 1)]}, r"column 'a': index\.json lists 4 bytes per value, expected 8"),
    ],
)
def test_an_index_that_does_not_fit_is_named(golden, changes, message):
    nested = {name: value for name, value in changes.items() if isinstance(value, dict)}
    change_index(golden, lambda entry: entry.update(changes | {name: entry[name] | value for name, value in nested.items()}))
    with pytest.raises(DatasetError, match=message):
        MDS(str(golden))[0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"a"', '"\xff"', r"index\.json: not an index of MDS, or damaged or truncated: 'utf-8' codec"),
        ("shard.00001.mds", "shard.00000.mds", r"index\.json: several shards have the file 'shard\.00000\.mds'"),
        (
            '"a"',
            '"b"',
            r"shard\.00000\.mds: the shard has column_names .*'a'.*, but index\.json has .*'b'.*: one of these files is damaged",
        ),
    ],
)
def test_a_damaged_index_is_named(tmp_path, old, new, message):
    with mds_writer(str(tmp_path / "m"), size_limit=1) as writer:
        for number in range(2):
            writer.add(str(number), {"a": number})
    path = tmp_path / "m/index.json"
    path.write_bytes(path.read_text().replace(old, new).encode("latin1"))
    with pytest.raises(DatasetError, match=message):
        MDS(str(tmp_path / "m"))[0]


def test_a_shard_that_is_there_only_compressed_is_refused_with_the_way_out(golden):
    os.rename(golden / "shard.00000.mds", golden / "shard.00000.mds.zstd")
    zipped = {"compression": "zstd:3", "zip_data": {"basename": "shard.00000.mds.zstd", "bytes": 3, "hashes": {}}}
    change_index(golden, lambda entry: entry.update(zipped))
    with pytest.raises(
        DatasetError, match=r"00000\.mds: the shard exists only in compressed form, .* for example with zstd -d shard\.00000\.mds\.zstd"
    ):
        MDS(str(golden))[0]
    os.rename(golden / "shard.00000.mds.zstd", golden / "shard.00000.mds")
    assert MDS(str(golden))[0]["b"] == "ü"


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, 99, "sample 0 is damaged: its columns need .* bytes, but the sample has"),
        (16, 1 << 20, "sample 0 is damaged: its columns need .* bytes, but the sample has"),
    ],
)
def test_damage_in_a_sample_is_named(golden, at, value, message):
    path = golden / "shard.00000.mds"
    data = bytearray(path.read_bytes())
    begin = struct.unpack_from("<I", data, 4)[0]
    struct.pack_into("<I", data, begin + at, value)
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=rf"00000\.mds: {message}"):
        MDS(str(golden))[0]
    assert MDS(str(golden))[1]["k"] == 255


@pytest.mark.parametrize(
    ("encoding", "data", "message"),
    [
        ("str", b"\xff", "column 'x': UnicodeDecodeError"),
        ("json", b"{", "column 'x': JSONDecodeError"),
        ("str_int", b"one", "column 'x': ValueError"),
        ("str_decimal", b"one", "column 'x': InvalidOperation"),
        ("int", b"123", "column 'x': ValueError: expected 8 bytes for int64, found 3"),
        ("ndarray", b"", "column 'x': IndexError"),
        ("ndarray", b"\x07\x04\x01\x01", "column 'x': KeyError"),
        (
            "ndarray",
            b"\x08\x07\xff\xff\xff\xff\xff\xff\xff\x7f\0",
            "column 'x': ValueError: expected 9223372036854775807 bytes for the shape",
        ),
        ("ndarray:uint8:3", b"\0\0", "column 'x': ValueError: expected 3 bytes for the shape"),
        ("pil", b"\0", "column 'x': error"),
        ("jpegarray", struct.pack("<I", 1 << 31), "column 'x': ValueError"),
        (
            "list[jpeg]",
            struct.pack("<3I", 0, 1, 2) + b"1",
            "column 'x': ValueError: the list of 1 values ends at byte 14; expected byte 13",
        ),
        (
            "pil",
            struct.pack("<3I", 1 << 20, 1 << 20, 1) + b"L\0",
            "column 'x': ValueError: the image has mode 'L', 1048576 x 1048576",
        ),
        ("pil", struct.pack("<3I", 1, 1, 5) + b"CMYK1\0\0\0\0", "column 'x': ValueError: the image has mode 'CMYK1'"),
    ],
)
def test_a_value_that_is_not_what_its_column_says_is_named_before_memory_is_spent_on_it(tmp_path, encoding, data, message):
    content = shard_of({"x": None}, [[data]])
    (tmp_path / "s.mds").write_bytes(content)
    (tmp_path / "index.json").write_text(json.dumps({"shards": [entry_of("s.mds", content, {"x": (encoding,)}, 1)], "version": 2}))
    with pytest.raises(DatasetError, match=rf"s\.mds: sample 0 is damaged: {message}"):
        MDS(str(tmp_path))[0]


def test_a_folder_without_an_index_and_shards_that_change_are_named(golden):
    with pytest.raises(FileNotFoundError, match=r"none/index\.json': there is no such file; pass the folder that contains it"):
        len(MDS(str(golden / "none")))
    (golden / "none").mkdir()
    dataset = MDS(str(golden))
    before = dataset.fingerprint()
    assert dataset[0]["k"] == 7 and MDS(str(golden), {"x": "k"}).fingerprint() != before
    with open(golden / "shard.00000.mds", "ab") as file:
        file.write(b"more")
    assert dataset.fingerprint() != before
    with pytest.raises(DatasetError, match=r"00000\.mds: it had \d+ bytes when it was first read"):
        dataset[1]
    (golden / "shard.00001.mds").unlink()
    with pytest.raises(FileNotFoundError, match=r"shard\.00001\.mds"):
        dataset[2]


SAMPLES = [
    {
        "x": np.full((2, 3), number, np.float32),
        "row": np.arange(300, dtype=np.int16)[: 300 - number],
        "label": np.int32(number),
        "n": -number,
        "share": number / 3,
        "is": number > 1,
        "about": {"names": ["ü"] * number, "none": None},
        "text": "é" * number,
        "image.jpg": b"\xff\xd8" * number,
        "blob": b"\0\xff" * number,
    }
    for number in range(60)
]


def test_what_was_written_comes_back(tmp_path):
    path = str(tmp_path / "deep" / "mds")
    with mds_writer(path, 4000) as writer:
        for number, sample in enumerate(SAMPLES):
            writer.add(f"key/{number}", sample)
        assert not os.path.exists(path)
    index = json.loads(Path(path, "index.json").read_text())
    encodings = dict(zip(index["shards"][0]["column_names"], index["shards"][0]["column_encodings"], strict=True))
    assert list(encodings) == sorted([*SAMPLES[0], "__key__"]) and encodings["image.jpg"] == "jpeg" and encodings["x"] == "ndarray"
    sizes = [os.path.getsize(os.path.join(path, shard["raw_data"]["basename"])) for shard in index["shards"]]
    assert len(sizes) > 10 and all(size < 5000 for size in sizes) and sizes == [shard["raw_data"]["bytes"] for shard in index["shards"]]
    found = MDS(path)
    assert list(found.keys) == [f"key/{number}" for number in range(60)] and found.keys[3:5] == ["key/3", "key/4"]
    for sample, expected in zip(pickle.loads(pickle.dumps(found)), SAMPLES, strict=True):
        assert sample.keys() == expected.keys()
        for name, value in expected.items():
            assert_same(sample[name], {int: np.int64, float: np.float64}.get(type(value), lambda same: same)(value))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"x": 1}, {"y": 1}, "the sample has __key__, y, but the first sample has __key__, x; give all samples the same fields"),
        ({"x": 1}, {"x": "1"}, "field 'x' would be encoded as str, but the first sample has the encoding int"),
        ({"x": 1}, {"x": 1 << 63}, "field 'x' is 9223372036854775808, which does not fit into 64 bits; make it a str"),
        (
            {"x": np.zeros((0, 4))},
            None,
            r"field 'x' is an array of shape \(0, 4\); MDS supports only non-empty arrays of up to 63 axes",
        ),
        ({"x": np.array(["a"])}, None, r"field 'x' is <U1 \(1,\), for which MDS has no encoding;"),
        ({"x": (1, 2)}, None, "field 'x' is a tuple, for which MDS has no encoding; make it an array of numbers, a str or bytes"),
        ({"x": {1: 2}}, None, "field 'x' would change in JSON:"),
        ({"x": {"y": b""}}, None, "field 'x' cannot be JSON: Object of type bytes"),
        ({"x": [float("nan")]}, None, "field 'x' cannot be JSON: Out of range"),
        ({}, None, "the sample has no fields"),
        ({"__key__": 1}, None, "the sample has a field '__key__', where its key is kept"),
    ],
)
def test_what_the_format_does_not_hold_is_an_error_and_nothing_is_left(tmp_path, first, second, message):
    with pytest.raises(ItemError, match=message), mds_writer(str(tmp_path / "mds")) as writer:
        writer.add("a", first)
        assert second is not None
        writer.add("b", second)
    assert os.listdir(tmp_path) == []


def test_what_is_there_is_not_written_over(golden):
    with pytest.raises(FileExistsError, match="already exists;"), mds_writer(str(golden)) as writer:
        writer.add("a", {"x": 1})
    assert len(MDS(str(golden))) == 4


def test_what_is_bytes_is_a_view_where_that_is_asked_for(golden):
    dataset = MDS(str(golden))
    for sample, views in zip(dataset, dataset.__getviews__(range(4)), strict=True):
        for name, value in views.items():
            assert_same(bytes(value) if type(value) is memoryview else value, sample[name])
            assert (type(sample[name]) is bytes) is (type(value) is memoryview)


def test_encoded_images_are_decoded_into_their_rows_from_a_disk_and_from_a_store(tmp_path):
    folder, path, files = ImageFolder("highway:photos/val"), str(tmp_path / "mds"), fsspec.filesystem("memory")
    with mds_writer(path, 1 << 18) as writer:
        for key, (image, label) in zip(folder.keys, folder, strict=True):
            writer.add(key, {"image": image, "label": label})
    files.put(path, "/mds", recursive=True)
    try:
        readers = [ImageFileReader(data, 8, (32, 32), epochs=1, seed=3) for data in (folder, MDS(path), MDS("memory://mds"))]
        expected, *found = ([(batch, passport.keys) for batch, passport in Pipeline([reader]).stamped()] for reader in readers)
        for batches in found:
            for ((images, labels), keys), (batch, names) in zip(batches, expected, strict=True):
                np.testing.assert_array_equal(images, batch[0])
                assert labels.tolist() == batch[1].tolist() and keys == names
    finally:
        files.rm("/mds", recursive=True)


def test_readers_take_shards_as_blocks(tmp_path):
    with mds_writer(str(tmp_path / "mds"), 200) as writer:
        for number in range(50):
            writer.add(str(number), {"n": number})
    with Pipeline([Reader(MDS(str(tmp_path / "mds")), 7, shuffle="blocks", epochs=1)], seed=1) as pipeline:
        numbers = np.concatenate([batch["n"] for batch in pipeline])
    assert sorted(numbers) == list(range(50)) and numbers.tolist() != list(range(50))
