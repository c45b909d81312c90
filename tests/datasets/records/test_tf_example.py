"""tf.train.Example, without TensorFlow."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from highway.datasets.records.example import decode_example, encode_example, first_key, key_of
from highway.datasets.records.protobuf import read_int64s, write_bytes, write_int64s

# {"name": b"ab", "label": 300, "box": [0.5, 2.0]} as TensorFlow 2.21 serializes it, with deterministic=True.
GOLDEN = bytes.fromhex(
    "0a36 0a13 0a03626f78 120c 120a 0a08 0000003f000000400a0f 0a056c6162656c 1206 1a04 0a02 ac020a0e 0a046e616d65 1206 0a04 0a02 6162"
)


def example(*features):
    """Return an Example of features, each a name and the bytes of its Feature."""
    return write_bytes(0x0A, b"".join(write_bytes(0x0A, write_bytes(0x0A, name) + write_bytes(0x12, data)) for name, data in features))


def test_the_bytes_that_tensorflow_writes_are_read():
    found = decode_example(GOLDEN)
    assert {name: (np.asarray(value).dtype.str, np.asarray(value).tolist()) for name, value in found.items()} == {
        "box": ("<f4", [0.5, 2.0]),
        "label": ("<i8", 300),
        "name": ("|S2", b"ab"),
    }
    assert type(found["name"]) is bytes and type(found["label"]) is np.int64


def test_lists_may_be_packed_or_not_and_in_parts():
    packed = write_bytes(0x1A, write_bytes(0x0A, write_int64s([1, -2, 300])))
    single = write_bytes(0x1A, b"\x08\x01" + b"\x08" + write_int64s([-2]) + write_bytes(0x0A, write_int64s([300])))
    floats = write_bytes(0x12, b"\x0d" + np.float32(1.5).tobytes() + write_bytes(0x0A, np.float32([2, 3]).tobytes()))
    found = decode_example(example((b"packed", packed), (b"single", single), (b"floats", floats)))
    assert found["packed"].tolist() == found["single"].tolist() == [1, -2, 300]
    assert found["floats"].tolist() == [1.5, 2, 3] and found["floats"].dtype == np.float32


def test_messages_may_come_in_pieces_as_any_message_of_protocol_buffers():
    one, two = (write_bytes(0x1A, write_bytes(0x0A, write_int64s(numbers))) for numbers in ([1, 2], [3]))
    texts = write_bytes(0x0A, write_bytes(0x0A, b"a")) + write_bytes(0x0A, write_bytes(0x0A, b"b"))
    floats = write_bytes(0x12, write_bytes(0x0A, np.float32([5]).tobytes()))
    name, values = write_bytes(0x0A, b"split"), write_bytes(0x12, one) + write_bytes(0x12, two)
    split = write_bytes(0x0A, write_bytes(0x0A, name + values))  # the value of an entry in pieces
    data = example((b"x", one + two), (b"texts", texts), (b"other", one + floats), (b"again", floats + one + floats + two)) + split
    for wanted in (bytes(data), memoryview(data)):
        found = decode_example(wanted)
        assert found["x"].tolist() == found["split"].tolist() == [1, 2, 3] and found["texts"] == [b"a", b"b"]
        assert found["other"] == np.float32(5) and found["again"] == 3  # another kind takes the place of what came before
    assert key_of(example((b"k", write_bytes(0x0A, write_bytes(0x0A, b"a")) + b"\x0a\x00")), "k") == "a"


def test_fields_that_a_list_does_not_know_are_skipped():
    unknown = b"\x10\x07" + write_bytes(0x1A, b"later") + b"\x25\x01\x02\x03\x04"
    lists = {
        b"ints": write_bytes(0x1A, unknown + write_bytes(0x0A, write_int64s([1, 2]))),
        b"floats": write_bytes(0x12, write_bytes(0x0A, np.float32([1, 2]).tobytes()) + unknown),
        b"texts": write_bytes(0x0A, write_bytes(0x0A, b"a") + unknown),
        b"none": write_bytes(0x1A, unknown),
    }
    found = decode_example(example(*lists.items()))
    assert found["ints"].tolist() == found["floats"].tolist() == [1, 2] and found["texts"] == b"a" and found["none"].shape == (0,)


def test_lists_of_several_or_no_values_are_lists_and_arrays_and_a_feature_without_value_is_left_out():
    some = write_bytes(0x0A, write_bytes(0x0A, b"a") + write_bytes(0x0A, b""))
    found = decode_example(example((b"two", some), (b"none", b"\x0a\0"), (b"ints", b"\x1a\0"), (b"floats", b"\x12\0"), (b"empty", b"")))
    assert found["two"] == [b"a", b""] and found["none"] == []
    assert (found["ints"].dtype, found["ints"].shape, found["floats"].dtype) == (np.int64, (0,), np.float32)
    assert "empty" not in found


def test_only_what_is_wanted_is_decoded():
    broken = write_bytes(0x12, write_bytes(0x0A, b"\0\0\0"))
    data = example((b"label", write_bytes(0x1A, write_bytes(0x0A, b"\x07"))), (b"broken", broken))
    assert decode_example(data, {"label"}) == {"label": 7}
    with pytest.raises(ValueError, match="a list of floats contains a field 1 of type 2 with 3 bytes"):
        decode_example(data)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_any_int64_comes_back(values):
    data = write_int64s(values)
    assert read_int64s(b"x" + data + b"y", 1, len(data) + 1).tolist() == values


SAMPLE = {
    "jpg": b"\xff\xd8 an image",
    "cls": np.int32(7),
    "text": "naïve",
    "flag": True,
    "count": 2**40,
    "mean": 0.1,
    "boxes": np.arange(8, dtype=np.float32).reshape(2, 4),
    "one": np.float32([3]),
    "ids": np.arange(3),
    "mask": np.arange(6, dtype=np.uint8).reshape(2, 3),
    "wide": np.array([[2**64 - 1]], np.uint64),
    "half": np.float16([0.1, -2]),
    "big endian": np.array([1.5, 2], ">f8"),
    "no rows": np.zeros((0, 4), np.float32),
    "complex": np.complex64(1 + 2j),
    "names": [b"a", b"bc"],
    "json": {"a": [1, 2.5, None]},
    "pair": (np.arange(2, dtype=np.int32), np.zeros((1, 2), np.float32)),
}


def same(a, b):
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and b.dtype == a.dtype.newbyteorder("=") and b.shape == a.shape and np.array_equal(a, b)
    return type(b) is type(a) and a == b


def test_samples_come_back_with_their_dtypes_and_shapes():
    data = encode_example("cats/01", SAMPLE)
    found = decode_example(data)
    assert found.pop("__key__") == b"cats/01"
    expected = {**SAMPLE, "flag": np.True_, "count": np.int64(2**40), "mean": np.float64(0.1)}
    assert list(found) == list(expected)
    assert [name for name in expected if not same(expected[name], found[name])] == []
    assert key_of(data, "__key__") == first_key(data[:200]) == "cats/01"


def test_plain_features_say_nothing_of_their_types():
    plain = {"a": b"bytes", "b": np.int64(3), "c": np.float32(2), "d": np.arange(4), "e": np.zeros(3, np.float32)}
    assert b"__types__" not in encode_example("k", plain)
    assert b"__types__" in encode_example("k", {"a": np.int32(3)})


@pytest.mark.parametrize("key", ["", "k", "k" * 115, "k" * 116, "k" * 127, "k" * 128, "k" * 300, "é" * 40])
def test_the_key_is_found_whatever_its_length(key):
    data = encode_example(key, {"image": bytes(1000), "cls": np.int64(3)})
    assert key_of(data, "__key__") == key
    assert first_key(data[:512]) in (key, None)
    assert first_key(data[:512]) == key or len(key.encode()) > 115
    assert first_key(data[:12]) is None


def test_a_key_may_be_a_number_but_no_list():
    data = encode_example("k", {"id": np.int64(12), "ids": np.arange(2)})
    assert key_of(data, "id") == "12" and key_of(data, "none") is None
    with pytest.raises(ValueError, match="the feature 'ids' contains a ndarray; expected bytes or a number"):
        key_of(data, "ids")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("x", None, "field 'x' contains a NoneType"),
        ("x", {"a": 1}, "field 'x' contains a dict"),
        ("x", np.array(["text"]), "field 'x'|dtype"),
        ("__key__", b"", "field name '__key__' is reserved for the writer; rename the field"),
    ],
)
def test_what_no_example_can_hold_is_named(name, value, message):
    with pytest.raises(TypeError, match=message):
        encode_example("k", {name: value})


def test_a_sequence_example_is_refused():
    with pytest.raises(ValueError, match="a SequenceExample, whose lists of features differ in length; expected an Example"):
        decode_example(write_bytes(0x12, b""))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x0a\xff\xff\xff\xff\x7f", "ends within"),
        (b"\x0a", "ends within"),
        (b"\x0a\x05\x0a\x01", "ends within"),
        (b"\xff" * 20, "the number has more than 10 bytes"),
        (b"\x0b", "the field has the type 3"),
        (example((b"x", write_bytes(0x1A, write_bytes(0x0A, b"\x80")))), "the last number is incomplete"),
        (example((b"x", write_bytes(0x1A, write_bytes(0x0A, b"\x80" * 11 + b"\0")))), "a number has 12 bytes"),
        (example((b"x", write_bytes(0x1A, b"\x0d\0\0\0\0"))), "a list of int64 contains a field 1 of type 5"),
        (example((b"\xff", b"")), "invalid start byte"),
        (example((b"__types__", write_bytes(0x0A, write_bytes(0x0A, b"{")))), "does not contain types as JSON"),
        (example((b"__types__", write_bytes(0x0A, write_bytes(0x0A, b"[]")))), "does not contain types as JSON"),
        (
            GOLDEN + example((b"__types__", write_bytes(0x0A, write_bytes(0x0A, b'{"name": ["|O", [1]]}')))),
            "expected a dtype and a shape, found",
        ),
        (
            GOLDEN + example((b"__types__", write_bytes(0x0A, write_bytes(0x0A, b'{"name": ["<f4", [9999999999]]}')))),
            "'name' does not match its type in",
        ),
        (GOLDEN + example((b"__types__", write_bytes(0x0A, write_bytes(0x0A, b'{"box": "str"}')))), "'box' does not match its type in"),
    ],
)
def test_bytes_that_are_no_example_are_an_error(data, message):
    with pytest.raises(ValueError, match=message):
        decode_example(data)


@given(st.binary(max_size=80), st.integers(0, len(GOLDEN)))
def test_whatever_the_bytes_are_there_is_a_value_or_a_value_error(noise, cut):
    for data in (noise, GOLDEN[:cut] + noise):
        with contextlib.suppress(ValueError):
            assert isinstance(decode_example(data), dict)
