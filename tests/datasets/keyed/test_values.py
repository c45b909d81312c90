"""What is in the values of a database."""

import contextlib
import json
import pickle

import msgpack
import msgpack_numpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from highway.datasets.keyed.keys import Keys, ZeroKeys, listed, pack_list
from highway.datasets.keyed.values import DECODERS, encode_sample, recognised
from highway.errors import FrameError
from highway.tenbin import encode_buffer

# {"jpg": b"\xff\xd8", "cls": 7}, as documented.
GOLDEN = bytes.fromhex("83 aa5f5f6669656c64735f5f01 a36a7067c402ffd8 a3636c73c40137")

# A Datum as Caffe writes it: channels 3, height 1, width 2, data, label -1.
PIXELS = bytes.fromhex("08 03 10 01 18 02 22 06 010203040506 28 ffffffffffffffffff01")
ENCODED = bytes.fromhex("08 03 10 01 18 02 22 02 ffd8 28 07 38 01")


def decode(name, value, fields=None):
    return DECODERS[name](memoryview(value), fields)


def test_samples_are_written_as_documented_and_come_back():
    assert encode_sample({"jpg": b"\xff\xd8", "cls": 7}) == GOLDEN
    assert decode("fields", GOLDEN) == {"jpg": b"\xff\xd8", "cls": 7} and decode("fields", GOLDEN)["cls"].dtype == np.int32
    assert decode("fields", GOLDEN, {"image": "png;jpg"}) == {"image": b"\xff\xd8"}
    box = np.arange(8, dtype=np.float32).reshape(2, 4)
    found = decode("fields", encode_sample({"box": box, "txt": "é", "json": [1, {"a": None}], "pair": (box, box[0])}))
    assert found["box"].dtype == np.float32 and np.array_equal(found["box"], box)
    assert (found["txt"], found["json"], len(found["pair"])) == ("é", [1, {"a": None}], 2)
    many = {f"field{n}": b"%d" % n for n in range(20)}
    assert decode("fields", encode_sample(many)) == many and recognised(encode_sample(many)) == "fields"


@pytest.mark.parametrize("sample", [{"x": np.zeros(1), "x.ten": np.zeros(1)}, {"__fields__": b""}])
def test_two_fields_of_one_name_are_refused(sample):
    with pytest.raises(
        TypeError, match=r"two fields have the same name, or a field has the reserved name '__fields__': .*; rename the field"
    ):
        encode_sample(sample)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (GOLDEN[:-1], "not msgpack"),
        (b"\xff\xd8", "not msgpack"),
        (b"\x90", "not a msgpack map with '__fields__', found b'.x90'"),
        (msgpack.packb({"jpg": b""}), "not a msgpack map with '__fields__',"),
        (msgpack.packb({"__fields__": 2, "jpg": b""}), "'__fields__' is 2, expected 1: another version of highway"),
        (msgpack.packb({"__fields__": 1, "jpg": 3}), "the field 'jpg' holds a int; expected bytes"),
        (msgpack.packb({"__fields__": 1, "cls": b"x"}), r"\.cls: invalid literal"),
        (GOLDEN.replace(b"\xc4\x02", b"\xc6\xff\xff\xff\xff"), "not msgpack"),
    ],
)
def test_a_value_that_is_none_of_ours_is_said(value, message):
    with pytest.raises(ValueError, match=message):
        decode("fields", value)


def test_a_datum_is_an_image_and_a_label():
    found = decode("caffe", PIXELS)
    assert found["image"].tolist() == [[[1, 3, 5], [2, 4, 6]]] and found["image"].dtype == np.uint8
    assert found["label"] == -1 and found["label"].dtype == np.int32
    assert decode("caffe", ENCODED) == {"image": b"\xff\xd8", "label": 7}
    assert decode("caffe", ENCODED, {"x": "image"}) == {"x": b"\xff\xd8"}
    floats = bytes.fromhex("08 01 10 01 18 02") + b"\x35" + np.float32(1.5).tobytes() + b"\x32\x04" + np.float32(2).tobytes()
    assert decode("caffe", floats)["image"].tolist() == [[[1.5], [2]]] and decode("caffe", floats)["label"] == 0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (PIXELS[:-2], "the number is incomplete"),
        (PIXELS[:10], "ends within"),
        (PIXELS.replace(b"\x18\x02", b"\x18\x03"), r"the Datum has 6 values; expected the shape \(3, 1, 3\)"),
        (b"\x4a\x00", "not a Datum: it has a field 9 of type 2"),
        (b"", "the Datum has 0 values"),
        (b"\x08\xff\xff\xff\xff\x7f" + PIXELS[2:], "the Datum has 6 values"),
    ],
)
def test_a_damaged_datum_is_said(value, message):
    with pytest.raises(ValueError, match=message):
        decode("caffe", value)


def packed(item):
    """Return an item as tensorpack's serializer writes it."""
    return msgpack.packb(item, default=msgpack_numpy.encode, use_bin_type=True)


def test_what_tensorpack_packs_is_read():
    jpeg = np.frombuffer(b"\xff\xd8\xff", np.uint8)
    image, label = decode("msgpack", packed([jpeg, 3]))
    assert image.tobytes() == b"\xff\xd8\xff" and label == 3
    assert decode("msgpack", packed({"a": np.float32(2), "b": "x"}), {"c": "a"}) == {"c": 2}


ENCODERS = {"json": lambda value: json.dumps(value).encode(), "msgpack": packed, "trusted_pickle": pickle.dumps}


@pytest.mark.parametrize("name", ENCODERS)
def test_fields_are_selected_from_any_dict_and_refused_for_other_values(name):
    encoded = ENCODERS[name]
    assert decode(name, encoded({"a": 1, "b": "x"}), {"c": "a"}) == {"c": 1}
    assert list(decode(name, encoded([1, 2]))) == [1, 2]
    with pytest.raises(ValueError, match=r"the value is not a dict but (list|tuple), so it has no fields; remove fields={'c': 'a'}"):
        decode(name, encoded([1, 2]), {"c": "a"})


@pytest.mark.parametrize("old", [False, True], ids=["msgpack 1", "msgpack before 1"])
def test_an_array_whose_length_is_wrong_is_an_error_and_no_bytes(old):
    """msgpack 0.5.6 without its C extension writes the length of the first axis in place of the number of bytes."""
    packed = msgpack.packb([np.zeros((2, 2, 3), np.uint8), 7], default=msgpack_numpy.encode, use_bin_type=not old)
    whole, cut = (b"\xac", b"\xa2") if old else (b"\xc4\x0c", b"\xc4\x02")
    damaged = packed.replace(whole + bytes(12), cut + bytes(12))
    assert damaged != packed and recognised(damaged) == "msgpack"
    with pytest.raises(FrameError):
        DECODERS["msgpack"](damaged, None)


def test_pickles_in_msgpack_are_refused():
    with pytest.raises(FrameError, match="an array has kind b'O', which means Python objects or records; expected numbers"):
        decode("msgpack", packed([np.array([{}], object)]))


def test_values_that_say_what_they_are_are_recognised():
    array = [np.arange(3, dtype=np.int32)]
    expected = {
        GOLDEN: "fields",
        packed([np.zeros(3, np.uint8), 1]): "msgpack",
        packed([np.array([{}], object)]): "msgpack",
        PIXELS: "caffe",
        ENCODED: "caffe",
        b"\xff\xd8\xff\xe0 JPEG": "bytes",
        b"\x89PNG": "bytes",
        b"RIFF": "bytes",
        b"": "bytes",
        b"text": "bytes",
        b'{"a": 1}': "bytes",
        bytes(encode_buffer(array)): "bytes",
        msgpack.packb([msgpack.ExtType(1, b"")]): "bytes",
    }
    assert {value: recognised(value) for value in expected} == expected
    assert decode("ten", encode_buffer(array)).tolist() == [0, 1, 2]
    assert decode("json", b'{"a": [1]}') == {"a": [1]}


@given(st.binary(max_size=60))
def test_whatever_a_value_is_it_is_decoded_or_a_value_error(value):
    assert recognised(value) in DECODERS
    for name in DECODERS:
        with contextlib.suppress(ValueError):
            decode(name, value)


def test_what_is_decoded_is_no_view_of_the_value():
    for name, value in {"bytes": b"abc", "fields": GOLDEN, "caffe": PIXELS, "msgpack": packed([np.zeros(3)])}.items():
        memory = bytearray(value)
        found = DECODERS[name](memoryview(memory), None)
        before = repr(found)
        memory[:] = bytes(len(memory))
        assert repr(found) == before, name


# --- keys ---


@given(st.lists(st.text("ab_é", max_size=6), unique=True))
def test_keys_are_kept_in_their_order(texts):
    keys = Keys(text.encode() for text in texts)
    kept = [text for text in texts if not (text.startswith("__") and text.endswith("__") and len(text.encode()) > 4)]
    assert list(keys) == kept == keys[:] and len(keys) == len(kept)
    assert [keys.encoded(n) for n in range(-len(kept), 0)] == [text.encode() for text in kept]
    with pytest.raises(IndexError):
        keys[len(kept)]


def test_keys_of_one_length_take_no_more_than_their_bytes():
    keys = Keys(b"%08d" % n for n in range(100_000))
    assert len(pickle.dumps(keys)) < 801_000 and keys[99_999] == "00099999"


def test_keys_of_n_zeros_are_counted():
    keys = ZeroKeys(bytes(n) for n in (0, 1, 3))
    assert list(keys) == ["0", "1", "3"] == keys[:] and keys.encoded(2) == bytes(3) and len(keys) == 3


def test_the_list_of_keys_is_msgpack():
    assert pack_list([b"a", b"bc"], 2) == bytes.fromhex("92 c40161 c4026263")
    assert list(listed(packed([b"00000000", b"00000001"]))) == [b"00000000", b"00000001"]
    for value in (b"", b"\x92\xc4\x01a", pickle.dumps([b"a"]), msgpack.packb([1]), msgpack.packb([b"a"]) + b"x", b"\xdd\xff\xff\xff\xff"):
        with pytest.raises(ValueError):
            list(listed(value))
