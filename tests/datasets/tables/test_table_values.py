"""The values of columns in samples, against pyarrow's own."""

import json

import numpy as np
import pyarrow as pa
import pytest

from highway.datasets.tables.values import IN_MEMORY, values_of
from highway.errors import DatasetError

N = 40
RNG = np.random.default_rng(0)
ITEMS = [list(range(number % 4)) for number in range(N)]
COLUMNS = {
    **{str(kind): pa.array(np.arange(N) % 7, kind) for kind in (pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64())},
    **{
        str(kind): pa.array(RNG.normal(size=N).astype(dtype))
        for dtype, kind in zip("efd", (pa.float16(), pa.float32(), pa.float64()), strict=True)
    },
    "bool": pa.array(np.arange(N) % 3 == 0),
    "string": pa.array([f"ä{number}" * (number % 3) for number in range(N)]),
    "large_string": pa.array([f"{number}" for number in range(N)], pa.large_string()),
    "binary": pa.array([bytes([number]) * (number % 5) for number in range(N)]),
    "large_binary": pa.array([bytes([number]) for number in range(N)], pa.large_binary()),
    "fixed_binary": pa.array([bytes([number]) * 3 for number in range(N)], pa.binary(3)),
    "empty binary": pa.array([b""] * N),
    "list": pa.array(ITEMS, pa.list_(pa.int16())),
    "large_list": pa.array(ITEMS, pa.large_list(pa.float32())),
    "list of bool": pa.array([[item > 1 for item in items] for items in ITEMS]),
    "fixed list": pa.array([[number, number + 1] for number in range(N)], pa.list_(pa.int32(), 2)),
    "boxes": pa.array([[[number, 1, 2, 3]] * (number % 3) for number in range(N)], pa.list_(pa.list_(pa.float32(), 4))),
    "matrices": pa.array([[[number, 1], [2, 3], [4, 5]] for number in range(N)]),
    "deep": pa.array([[[[number] * 3] * 2] * 4 for number in range(N)]),
    "ragged": pa.array([[[1] * (number % 3), [2, 3]] for number in range(N)]),
    "list of strings": pa.array([[str(item) for item in items] for items in ITEMS]),
    "struct": pa.array([{"a": number, "b": None if number % 2 else "x"} for number in range(N)]),
    "list of structs": pa.array([[{"a": item} for item in items] for items in ITEMS]),
    "dictionary": pa.array([f"c{number % 3}" for number in range(N)]).dictionary_encode(),
    "date": pa.array(np.arange(N).astype("M8[D]")),
    "timestamp": pa.array(np.arange(N).astype("M8[us]")),
    "duration": pa.array(np.arange(N).astype("m8[ms]")),
    "decimal": pa.array(range(N), pa.decimal128(5, 1)),
    "time": pa.array(range(N), pa.time32("s")),
    "map": pa.array([[("a", number)] for number in range(N)], pa.map_(pa.string(), pa.int64())),
}
NUMBERS = {"list", "large_list", "list of bool", "fixed list", "boxes", "matrices", "deep"}


def values(array, field=None):
    return list(map(values_of(array, field or pa.field("x", array.type), IN_MEMORY), range(len(array))))


def plain(value):
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    return list(map(plain, value)) if isinstance(value, list) else value


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("nulls", [False, True])
def test_values_are_those_of_pyarrow_in_slices_and_beside_nulls_too(name, nulls):
    array = COLUMNS[name]
    if nulls:
        array = array.take(pa.array([None if number % 4 == 1 else number for number in range(N)]))
    for part in (array, array[3:], array[9:17], array[:0]):
        expected, found = part.to_pylist(), values(part)
        assert plain(found) == expected
        if name in NUMBERS:
            assert all(isinstance(value, np.ndarray) for value in found if value is not None)


def test_numbers_and_arrays_have_the_dtype_of_their_column_and_memory_of_their_own():
    for name, dtype in {"int8": "i1", "uint64": "u8", "halffloat": "f2", "float": "f4", "double": "f8"}.items():
        assert {value.dtype for value in values(COLUMNS[name])} == {np.dtype(dtype)}
    assert {value.dtype for value in values(COLUMNS["bool"])} == {np.dtype(bool)}
    for name, dtype in {"list": "i2", "large_list": "f4", "list of bool": "?", "boxes": "f4", "matrices": "i8"}.items():
        found = values(COLUMNS[name])
        assert {value.dtype for value in found} == {np.dtype(dtype)}
        before = found[2].tolist()
        values(COLUMNS[name])[2][...] = 0
        assert values(COLUMNS[name])[2].tolist() == before
    assert [value.shape for value in values(COLUMNS["boxes"])[:3]] == [(0, 4), (1, 4), (2, 4)]
    assert values(pa.array([[]], pa.list_(pa.list_(pa.int8()))))[0].shape == (0, 0)
    assert values(pa.array([[[], []]], pa.list_(pa.list_(pa.int8()))))[0].shape == (2, 0)


def test_lists_that_differ_in_length_are_a_list_of_arrays():
    first, *_ = values(COLUMNS["ragged"])
    assert [(part.tolist(), part.dtype) for part in first] == [([], np.int64), ([2, 3], np.int64)]


@pytest.mark.parametrize("items", [[1, None], [[1], None], [[1, 2], [3, None]]])
def test_a_null_among_the_numbers_of_a_list_is_an_error_and_no_other_number(items):
    array = pa.array([[1] if items[0] == 1 else [[1]], items])
    value = values_of(array, pa.field("x", array.type), IN_MEMORY)
    assert value(0).size == 1
    with pytest.raises(DatasetError, match="the list of numbers contains a null,"):
        value(1)


def test_images_of_hugging_face_are_their_bytes():
    array = pa.array([{"bytes": b"abc", "path": "a.jpg"}, {"bytes": None, "path": None}, {"bytes": None, "path": "/b.jpg"}])
    value = values_of(array, pa.field("image", array.type), IN_MEMORY)
    assert (value(0), value(1)) == (b"abc", None)
    with pytest.raises(DatasetError, match=r"the value is not an image, but the path '/b.jpg'; use HuggingFace\(...\)"):
        value(2)


def test_tensors_of_both_kinds_are_arrays_of_their_shape():
    tensors = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
    fixed = pa.FixedShapeTensorArray.from_numpy_ndarray(tensors)
    np.testing.assert_array_equal(values(fixed), tensors)
    np.testing.assert_array_equal(values(fixed[1:]), tensors[1:])
    storage = pa.array([{"data": [1, 2, 3, 4, 5, 6], "shape": [3, 2]}, {"data": [], "shape": [0, 2]}])
    field = pa.field("x", storage.type, metadata={"ARROW:extension:name": "arrow.variable_shape_tensor"})
    first, second = values(storage, field)
    assert first.tolist() == [[1, 2], [3, 4], [5, 6]] and second.shape == (0, 2)


def test_json_is_what_it_holds_whether_pyarrow_knows_the_type_or_not():
    found = [{"a": [1, None]}, [], "x"]
    texts = pa.array([json.dumps(one) for one in found])
    assert values(texts, pa.field("x", texts.type, metadata={"ARROW:extension:name": "arrow.json"})) == found
    if hasattr(pa, "json_"):
        assert values(pa.ExtensionArray.from_storage(pa.json_(), texts)) == found
