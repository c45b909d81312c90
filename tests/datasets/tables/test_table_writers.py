"""Samples written into Parquet and Arrow files, and read again."""

import json
import os

import numpy as np
import pytest
from pyarrow import parquet as pq

from highway.datasets import Arrow, Parquet
from highway.datasets.tables.writers import arrow_writer, parquet_writer

WRITERS = {"parquet": (parquet_writer, Parquet), "arrow": (arrow_writer, Arrow)}
every_writer = pytest.mark.parametrize(("write", "read"), WRITERS.values(), ids=WRITERS)
NUMBERS = {f"x{number}": dtype for number, dtype in enumerate(["?", "i1", "u2", "i4", "i8", "u8", "f2", "f4", "f8", ">i4"])}


def sample(number):
    """Return a sample with a field of each kind."""
    return {
        **{name: np.dtype(dtype).type(number % 2 * 100) for name, dtype in NUMBERS.items()},
        **{f"of {name}": (np.arange(number % 4) * 30).astype(dtype) for name, dtype in NUMBERS.items()},
        "jpg": bytes([number]) * number,
        "txt": f"é{number}",
        "boxes": np.full((number % 3, 4), number, np.float32),
        "image": np.full((number, number + 1, 3), number, np.uint8),
        "mask": np.zeros((2, number % 2), bool),
        "0-d": np.array(2.5),
        "json": {"a": [1, None, {"b": number}]},
        "list": [number, "x"],
        "day": np.datetime64(number, "D"),
        "time": np.datetime64(number, "us"),
        "span": np.timedelta64(number, "s"),
        "a.b": np.int8(1),
    }


def same(found, expected):
    assert list(found) == list(expected)
    for name, value in expected.items():
        if isinstance(value, (np.ndarray, np.generic)):
            assert (found[name].dtype, found[name].shape) == (value.dtype.newbyteorder("="), value.shape), name
            assert np.array_equal(found[name], value), name
        else:
            assert type(found[name]) is type(value) and found[name] == value, name


@every_writer
@pytest.mark.parametrize("rows", [None, 7])
def test_samples_come_back_with_their_fields_dtypes_shapes_and_keys(tmp_path, write, read, rows):
    path = str(tmp_path / "new" / "a.x")
    with write(path, rows) as writer:
        for number in range(20):
            writer.add(f"k/{number}.0", sample(number))
        assert writer.samples == 20 and not os.path.exists(path)
    dataset = read(path)
    assert list(dataset.keys) == [f"k/{number}.0" for number in range(20)]
    assert list(map(len, dataset.blocks())) == ([20] if rows is None else [7, 7, 6])
    for number in range(20):
        same(dataset[number], sample(number))
    assert os.listdir(tmp_path / "new") == ["a.x"]


@every_writer
def test_numbers_of_python_lose_nothing(tmp_path, write, read):
    path = str(tmp_path / "a.x")
    with write(path) as writer:
        writer.add("a", {"i": -(2**63), "f": 0.1, "b": True, "i4": np.int32(3)})
    found = read(path)[0]
    assert {name: value.dtype.str[1:] for name, value in found.items()} == {"i": "i8", "f": "f8", "b": "b1", "i4": "i4"}
    assert found == {"i": -(2**63), "f": 0.1, "b": True, "i4": 3}


@every_writer
def test_large_blocks_are_cut_by_their_bytes(tmp_path, write, read):
    path = str(tmp_path / "a.x")
    data = np.random.default_rng(0).bytes(6 << 20)
    with write(path) as writer:
        for number in range(7):
            writer.add(str(number), {"data": data, "x": number})
    dataset = read(path)
    assert list(map(len, dataset.blocks())) == [3, 3, 1]
    assert dataset[5]["data"] == data and [int(one["x"]) for one in dataset.__getitems__([6, 0])] == [6, 0]


@every_writer
def test_an_error_leaves_nothing_behind_and_what_was_there_stays(tmp_path, write, read):
    path = tmp_path / "a.x"
    path.write_text("before")
    with pytest.raises(ZeroDivisionError), write(str(path), 1) as writer:
        writer.add("a", {"x": 1})
        raise ZeroDivisionError
    with pytest.raises(ValueError, match=r"a\.x: no sample was added, so the columns are unknown;"), write(str(path)):
        pass
    assert os.listdir(tmp_path) == ["a.x"] and path.read_text() == "before"


BAD = [
    (None, "a NoneType; make it bytes, a str, a number, an array of numbers, or a dict or list that JSON can hold"),
    (2**63, "9223372036854775808, which does not fit into int64; make it a str"),
    (np.zeros(2, np.complex64), r"an array of complex64, shape \(2,\); make it"),
    (np.array(["a"]), r"an array of <U1, shape \(1,\); make it"),
    (np.array([{}], object), r"an array of object, shape \(1,\); make it"),
    (np.datetime64(1, "s"), r"np.datetime64\('1970-01-01T00:00:01'\); make it"),
    (np.datetime64("NaT", "D"), r"np.datetime64\('NaT'.*; make it"),
    ((np.zeros(2), np.zeros(3)), "a tuple; make it"),
    ([np.zeros(2)], "a list that JSON would change; convert it to arrays in separate fields"),
    ({1: "a"}, "a dict that JSON would change; convert it to arrays in separate fields"),
    ("\udce4", "a text that UTF-8 cannot encode: .*; write it as bytes"),
    (object(), "a object; make it"),
]


@every_writer
@pytest.mark.parametrize(("value", "message"), BAD)
def test_what_no_column_can_hold_is_named_with_field_type_and_way_out(tmp_path, write, read, value, message):
    with pytest.raises(TypeError, match=rf"a\.x: sample 'k': field 'y' is {message}"), write(str(tmp_path / "a.x")) as writer:
        writer.add("k", {"x": 1, "y": value})
    assert os.listdir(tmp_path) == []


@every_writer
def test_samples_that_differ_from_the_first_are_named_and_the_others_can_be_written(tmp_path, write, read):
    path = str(tmp_path / "a.x")
    with write(path) as writer:
        writer.add("a", {"x": 1, "y": np.zeros((2, 2))})
        for other, message in [
            (
                {"x": 1},
                "sample 'b' has the fields x, but the fields are x, y in earlier samples; give all samples the same fields and types",
            ),
            ({"x": 1, "y": np.zeros((2, 2)), "z": 1}, "has the fields x, y, z, but the fields are x, y"),
            ({"x": np.int32(1), "y": np.zeros((2, 2))}, "has one int32 in the field 'x', but the field has one int64"),
            (
                {"x": 1, "y": np.zeros(2)},
                "has an array of float64 of dimension 1 in the field 'y', but the field has an array of float64 of dimension 2",
            ),
            ({"x": "1", "y": np.zeros((2, 2))}, "has str in the field 'x', but the field has one int64"),
            ({"__key__": "1"}, "has a field '__key__', the name of the key column; rename the field"),
        ]:
            with pytest.raises(TypeError, match=message):
                writer.add("b", other)
        writer.add("c", {"y": np.ones((3, 1)), "x": 2})
    dataset = read(path)
    assert list(dataset.keys) == ["a", "c"] and dataset[1]["y"].tolist() == [[1], [1], [1]]
    with pytest.raises(TypeError, match="sample 'a' has no fields"), write(path) as writer:
        writer.add("a", {})


def test_what_is_written_is_plain_to_other_readers(tmp_path):
    path = str(tmp_path / "a.parquet")
    with parquet_writer(path, compression="zstd") as writer:
        writer.add("a", {"image": b"abc", "label": 3, "ids": np.arange(2), "box": np.ones((1, 2), np.float32), "meta": {"a": 1}})
    table = pq.read_table(path)
    assert {name: str(kind) for name, kind in zip(table.schema.names, table.schema.types, strict=True) if name not in ("box", "meta")} == {
        "__key__": "string",
        "image": "binary",
        "label": "int64",
        "ids": "list<element: int64>",
    }
    (row,) = table.to_pylist()
    assert (row["__key__"], row["image"], row["label"], row["ids"]) == ("a", b"abc", 3, [0, 1])
    assert row["box"] == {"data": [1, 1], "shape": [1, 2]} and row["meta"] in ('{"a": 1}', json.loads('{"a": 1}'))
    assert pq.ParquetFile(path).metadata.row_group(0).column(1).compression == "ZSTD"
