"""Highway 2017's codec, against the package that it was written with."""

import pickle
import tracemalloc

import msgpack
import msgpack_numpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from highway import FrameError
from highway.wire.msgpack import decode, encode

ITEM = [np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3), np.array([[0.5, 1]], np.float32)]
ARRAYS = st.sampled_from(["u1", "<i4", ">i2", "f4", "f8", "?", "c8", "S3", "<U2"]).flatmap(
    lambda code: hnp.arrays(np.dtype(code), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)


def assert_same(left, right):
    assert left.dtype == right.dtype
    assert left.shape == right.shape
    assert left.tobytes() == right.tobytes()


@given(ARRAYS)
def test_the_package_reads_what_we_write(array):
    assert_same(array, msgpack_numpy.unpackb(encode(array)))


@given(ARRAYS)
def test_we_read_what_the_package_writes(array):
    assert_same(array, decode(msgpack_numpy.packb(array)))


def test_both_write_the_same_bytes():
    assert encode(ITEM) == msgpack_numpy.packb(ITEM)


def test_dicts_keys_strings_and_scalars_go_both_ways():
    item = {"images": ITEM[0], "keys": ["a.jpg", "b.jpg"], "epoch": 3, "mean": np.float32(0.5), "ok": np.bool_(True), "raw": b"\0\1"}
    for decoded in (decode(msgpack_numpy.packb(item)), msgpack_numpy.unpackb(encode(item), use_list=False)):
        assert_same(decoded.pop("images"), ITEM[0])
        assert decoded == {"keys": ("a.jpg", "b.jpg"), "epoch": 3, "mean": 0.5, "ok": True, "raw": b"\0\1"}
        assert isinstance(decoded["mean"], np.float32)


def test_arrays_in_another_order_in_memory_come_out_with_the_same_values():
    array = np.arange(12, dtype=np.int16).reshape(3, 4).T
    np.testing.assert_array_equal(decode(encode(array)), array)


def test_decoded_arrays_are_read_only():
    assert not decode(encode(ITEM))[0].flags.writeable


@pytest.mark.parametrize("value", [np.array([object()]), object(), {1, 2}, np.zeros(2, [("a", "u1")])])
def test_what_msgpack_cannot_express_is_refused_on_sending(value):
    with pytest.raises(TypeError, match="cannot be sent as msgpack; expected arrays of numbers"):
        encode([value])


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle from the network was loaded",))


def array(**changes):
    fields = {"nd": True, "type": "|u1", "kind": b"", "shape": [3], "data": b"abc", **changes}
    return msgpack.packb({key.encode(): value for key, value in fields.items() if value is not ...})


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (b"", "not valid msgpack"),
        (b"\xc1", "not valid msgpack"),
        (b"\x93\x01", "not valid msgpack"),
        (encode(ITEM)[:-1], "not valid msgpack"),
        (encode(ITEM) + b"\0", "not valid msgpack"),
        (b"\xdc\xff\xff", "not valid msgpack"),
        (b"\x91" * 5000, "not valid msgpack"),
        (msgpack.packb({(1, 2): 3}).replace(b"\x92\x01\x02", b"\x80"), "not valid msgpack"),
        (array(kind=b"O", data=pickle.dumps(Bomb())), "an array has kind b'O', which means Python objects or records"),
        (array(kind=b"V"), "an array has kind b'V'"),
        (array(type="|O"), "an array has type '|O'"),
        (array(type=[["a", "|u1"]]), "an array has type (('a', '|u1'),)"),
        (array(type="nonsense"), "an array has type 'nonsense'; expected a type such as '|u1' or '<f4'"),
        (array(type=3), "an array has type 3"),
        (array(type=...), "an array has no b'type'"),
        (array(data=...), "an array has no b'data'"),
        (array(data="abc"), "and data of type str"),
        (array(shape=[4]), "an array of shape (4,) and dtype uint8 needs 4 bytes, but has 3 bytes"),
        (array(shape=[2**40, 2**40]), "but has 3 bytes"),
        (array(shape=[-3]), "an array has shape (-3,)"),
        (array(shape="3"), "an array has shape '3'"),
        (array(shape=[1] * 70 + [3]), "an array of shape"),
        (msgpack.packb(msgpack.ExtType(5, b"")), "an extension type with code 5"),
        (
            msgpack.packb(msgpack.ExtType(0x48, msgpack.packb(["x", "y"]))),
            "the message that ends a stream lacks the name of the sender or the number of messages",
        ),
        (msgpack.packb(msgpack.ExtType(0x48, msgpack.packb([b"x" * 100, 1]))), "the sender's name has 100 bytes; expected 8 to 32"),
        (
            msgpack.packb(msgpack.ExtType(0x48, msgpack.packb(3))),
            "the message that ends a stream lacks the name of the sender or the number of messages",
        ),
    ],
)
def test_a_frame_that_is_no_item_says_what_is_wrong(frame, says):
    with pytest.raises(FrameError) as caught:
        decode(frame)
    assert says in str(caught.value)


@given(st.binary(max_size=200))
def test_any_frame_is_read_or_refused(frame):
    try:
        decode(frame)
    except FrameError:
        return


def test_rows_that_announce_more_than_they_hold_allocate_little():
    tracemalloc.start()
    try:
        for announced in (b"\xdd\x7f\xff\xff\xff", b"\xdf\x7f\xff\xff\xff", b"\xc6\x7f\xff\xff\xff", b"\xdb\x7f\xff\xff\xff"):
            with pytest.raises(FrameError):
                decode(announced * 1000)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
