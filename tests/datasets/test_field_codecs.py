"""Fields as the files of a shard."""

import re

import numpy as np
import pytest

from highway.datasets.field_codecs import decode_field, encode_field, field_name
from highway.errors import FrameError, ItemError
from highway.wire import chunks


@pytest.mark.parametrize("name", ["iscrowd", "x.ten", "cls", "txt"])
@pytest.mark.parametrize("value", [np.array([True, False]), np.zeros((0, 3), np.bool_), np.array(True), np.array([[True], [True]])])
def test_booleans_come_back_as_such_and_are_bytes_to_others(name, value):
    extension, data = encode_field(name, value)
    found = decode_field(extension, data)
    assert field_name(extension) == name.removesuffix(".ten")
    assert found.dtype == np.bool_ and found.shape == value.shape and (found == value).all()
    (plain,) = chunks.decode_buffer(data)
    assert plain.dtype == np.uint8


def test_a_tuple_keeps_which_of_its_arrays_are_of_booleans():
    found = decode_field(*encode_field("pair", (np.uint8([1, 0]), np.array([True, False]))))
    assert [array.dtype for array in found] == [np.uint8, np.bool_]


@pytest.mark.parametrize("array", [np.uint8([0, 2]), np.int8([0, 1])])
def test_what_is_no_array_of_booleans_is_none(array):
    with pytest.raises(FrameError, match="array 0 is marked as boolean, but does not contain 0 and 1 as u1"):
        decode_field("x.ten", bytes(chunks.encode_buffer([array], ["bool"])))


@pytest.mark.parametrize("value", [np.int64(2**31), np.int64(-(2**31) - 1), np.uint64(2**63)])
def test_a_number_that_is_no_int32_keeps_its_dtype(value):
    extension, data = encode_field("id", value)
    found = decode_field(extension, data)
    assert (extension, found.dtype, found) == ("id.ten", value.dtype, value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("id", 2**31, "field 'id' contains a int, which cannot be stored under this name; make it"),
        ("names", np.array(["a"]), "field 'names' contains <U1 (1,), which cannot be stored under this name; make it"),
        (
            "x.json",
            {"a": np.int64(1)},
            "field 'x.json' contains a dict, which cannot be stored under this name: Object of type int64 is",
        ),
        ("txt", "\ud800", "field 'txt' contains a str, which cannot be stored under this name: 'utf-8' codec can't encode"),
        (
            "npy",
            np.array([None]),
            "field 'npy' contains object (1,), which cannot be stored under this name: Object arrays cannot be saved",
        ),
        ("jpg", np.zeros((4, 4, 2)), "field 'jpg' is float64 (4, 4, 2); an image is written from uint8"),
    ],
)
def test_what_no_file_holds_is_said_with_the_field_and_the_way_out(name, value, message):
    with pytest.raises(ItemError, match=re.escape(message)):
        encode_field(name, value)
