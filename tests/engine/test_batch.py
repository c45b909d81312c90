"""What flows: tuples and dicts of arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from highway.engine import batch


@pytest.mark.parametrize(
    ("item", "names", "fields"),
    [((1, 2), (0, 1), (1, 2)), ({"a": 1, "b": 2}, ("a", "b"), (1, 2)), ([1], (0,), (1,)), (7, (0,), (7,)), ((), (), ())],
)
def test_fields_are_addressed_by_name_or_position(item, names, fields):
    assert batch.names(item) == names
    assert batch.fields(item) == fields


def test_get_lists_the_fields_that_there_are():
    assert batch.get({"a": 1}, "a") == 1 and batch.get((5, 6), 1) == 6 and batch.get(9, 0) == 9
    with pytest.raises(KeyError, match="no field 'b'; the item has 'a'"):
        batch.get({"a": 1}, "b")
    assert (batch.get((5, 6), -1), batch.get([5, 6], -2)) == (6, 5)
    for item, field in [((1, 2), -3), ((1, 2), 2), ({"a": 1}, -1), (9, -1)]:
        with pytest.raises(KeyError, match=f"no field {field}"):
            batch.get(item, field)


def test_replace_makes_a_new_item_and_adds_no_field():
    given = {"a": 1, "b": 2}
    assert batch.replace(given, {"b": 3}) == {"a": 1, "b": 3} and given == {"a": 1, "b": 2}
    assert batch.replace((1, 2), {0: 9}) == (9, 2) and batch.replace((1, 2), {-1: 9}) == (1, 9)
    assert batch.replace(1, {0: 9}) == 9
    with pytest.raises(KeyError, match="no field 'c'"):
        batch.replace(given, {"c": 3})


def test_a_list_stays_a_list():
    assert batch.replace([1, 2], {-1: 9}) == [1, 9]
    assert batch.rebuild([1, 2], (3, 4)) == [3, 4]
    joined = batch.collate([[1, np.zeros(2)], [2, np.ones(2)]])
    assert type(joined) is list and [type(part) for part in batch.split(joined)] == [list, list]


def test_numbers_of_pythons_own_become_int32_and_float32():
    joined = batch.collate([(7, 0.5, True, [1, 2], np.int64(3), np.float64(0.5)), (8, 1.5, False, [3, 4], np.int64(4), np.float64(2))])
    assert [field.dtype.name for field in joined] == ["int32", "float32", "bool", "int32", "int64", "float64"]
    assert joined[0].tolist() == [7, 8] and joined[3].shape == (2, 2)
    assert batch.collate([-(2**31), 2**31 - 1]).tolist() == [-(2**31), 2**31 - 1]
    with pytest.raises(
        ValueError,
        match=r"field 'n' contains 2147483648, which does not fit into int32; make it an array, such as "
        r"np.int64",
    ):
        batch.collate([{"n": 1}, {"n": 2**31}])


@pytest.mark.parametrize("value", [b"ab\0", "ab\0", b"\0"])
def test_bytes_that_an_array_would_cut_off_are_an_error(value):
    with pytest.raises(ValueError, match=r"field 'data' contains .*0', but arrays of (bytes|str) drop zeros at the end; make lists: Batch"):
        batch.collate([{"data": value[:-1] + value[:1]}, {"data": value}])
    assert batch.collate([{"data": value}], as_lists=True) == {"data": [value]}
    assert batch.collate([b"a\0b", b""]).tolist() == [b"a\0b", b""]


def test_fields_may_become_lists():
    samples = [(np.zeros((2, 3)), 1), (np.zeros((4, 5)), 2)]
    images, labels = batch.collate(samples, as_lists=True)
    assert images == [samples[0][0], samples[1][0]] and labels == [1, 2]
    assert batch.collate([{"a": "x"}, {"a": None}], as_lists=True) == {"a": ["x", None]}


samples = arrays.arrays(st.sampled_from([np.uint8, np.int32, np.float32]), arrays.array_shapes(min_dims=0, max_dims=3, max_side=4))


@given(samples, st.integers(1, 5), st.booleans())
def test_split_undoes_collate(sample, count, named):
    item = {"x": sample, "y": np.int32(3)} if named else (sample, np.int32(3))
    joined = batch.collate([item] * count)
    assert [f.shape[0] for f in batch.fields(joined)] == [count, count]
    for part in batch.split(joined):
        assert batch.names(part) == batch.names(item)
        for got, sent in zip(batch.fields(part), batch.fields(item), strict=True):
            np.testing.assert_array_equal(got, sent)
            assert got.dtype == sent.dtype


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "no samples"),
        ([(1,), {"a": 1}], r"sample 1 is a dict with fields \('a',\), but sample 0 is a tuple"),
        ([{"a": 1}, {"b": 1}], r"fields \('b',\)"),
        (
            [(np.zeros(2),), (np.zeros(3),)],
            r"field 0 has shapes \[\(2,\), \(3,\)\]; crop, pad or resize .* pass ragged='pad' and add 0 to its fields",
        ),
        (
            [(np.zeros((2, 3)),), (np.zeros((2, 4)),)],
            r"field 0 has shapes \[\(2, 3\), \(2, 4\)\]; crop, pad or resize to one shape before batching$",
        ),
        ([{"x": np.int8(1)}, {"x": np.int16(1)}], r"field 'x' has dtypes \['int16', 'int8'\]"),
    ],
)
def test_samples_that_do_not_fit_are_named(samples, message):
    with pytest.raises(ValueError, match=message):
        batch.collate(samples)


def test_split_needs_a_common_batch_axis():
    with pytest.raises(ValueError, match=r"\{0: 2, 1: 3\}"):
        batch.split((np.zeros(2), np.zeros(3)))
    with pytest.raises(ValueError, match=r"\{0: None\}"):
        batch.split((np.float32(1),))


def test_nbytes_counts_arrays_and_byte_strings():
    assert batch.nbytes((np.zeros(3, np.int16), b"abc", "text", 7)) == 9
    assert batch.nbytes({"x": np.zeros(2)}) == 16


OWN = np.zeros(100, np.float32)


@pytest.mark.parametrize(
    ("item", "more"),
    [
        (7, 32),
        ("text", 32),
        ({"a": OWN, "b": b"12", "c": np.int64(3), "d": None, "e": OWN.reshape(10, 10)}, 32),
        ((np.zeros(1025, np.float32),), 6),
        ((np.zeros(1023, np.float32), "12345"), 6),
        ("x" * 5000, 6),
        ([bytes(5000)], 6),
        ([bytes(1 << 18)], 6),
        ([bytes(1 << 18), b"1"], 0),
        (np.zeros((1000, 10))[3], 6),  # it keeps all of them
        (np.zeros((1000, 100))[3], 0),
        (np.frombuffer(memoryview(bytes(8)), np.uint8), 0),
        (np.array([OWN, None], object), 0),
        ({"image": object()}, 0),
        ({"nested": {"a": 1}}, 0),
    ],
)
def test_more_items_may_wait_only_of_those_that_are_known_to_be_small(item, more):
    assert batch.weighed(item) == (batch.nbytes(item), more)


def test_bytes_are_those_of_arrays_of_lists_of_arrays_and_of_byte_strings():
    assert (
        batch.nbytes({"a": OWN, "b": [OWN, OWN], "c": bytearray(3), "d": memoryview(b"12345"), "e": "text", "f": np.ma.array(OWN)}) == 1608
    )


class Tensor:
    """What a framework's tensor is to numpy: an array by one of two protocols."""

    def __init__(self, values, protocol):
        array = np.asarray(values)
        if protocol == "__array__":
            self.__class__ = type("WithArray", (Tensor,), {"__array__": lambda self, dtype=None, copy=None: array})
        else:
            methods = {"__dlpack__": lambda self, **options: array.__dlpack__(**options), "__dlpack_device__": lambda self: (1, 0)}
            self.__class__ = type("WithDLPack", (Tensor,), methods)


@pytest.mark.parametrize("protocol", ["__array__", "__dlpack__"])
def test_tensors_of_frameworks_are_stacked_and_keep_their_dtype(protocol):
    for values in (np.array([2**40, 1]), np.array([0.1, 0.2])):
        stacked = batch.collate([{"x": Tensor(values, protocol)}, {"x": Tensor(values, protocol)}])["x"]
        assert stacked.dtype == values.dtype
        np.testing.assert_array_equal(stacked, [values, values])


@pytest.mark.parametrize("value", [2**70, -(2**70), [1, 2**70], [2**63, -1], [[2**63, 1]]])
def test_integers_that_64_bits_have_no_room_for_become_neither_objects_nor_floats(value):
    with pytest.raises(ValueError, match=r"field 'n' contains .*, which does not fit into int32; make it an array"):
        batch.collate([{"n": value}])
    assert batch.collate([{"n": [2.0**63, 1]}])["n"].dtype == np.float32
