"""Arrays as bytes."""

import io
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from highway import FrameError, tenbin

DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
ARRAYS = st.sampled_from(DTYPES).flatmap(lambda code: hnp.arrays(np.dtype(code), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0)))


def header(code=b"u1", info=b"", rank=1, dims=(3,), behind=b""):
    return struct.pack(f"<8s8sq{len(dims)}q", code, info, rank, *dims) + behind


def assert_same(left, right):
    assert left.dtype == right.dtype
    assert left.shape == right.shape
    assert left.tobytes() == right.tobytes()


@given(st.lists(ARRAYS, max_size=4))
def test_what_is_encoded_is_decoded(arrays):
    for decoded in (
        tenbin.decode_list(tenbin.encode_list(arrays)),
        tenbin.decode_buffer(tenbin.encode_buffer(arrays)),
        tenbin.decode_buffer(bytes(tenbin.encode_buffer(arrays))),
    ):
        assert len(decoded) == len(arrays)
        for before, after in zip(arrays, decoded, strict=True):
            assert_same(before, after)


@given(st.lists(ARRAYS, max_size=3), st.booleans())
def test_files_give_back_what_was_saved(tmp_path_factory, arrays, mmap):
    path = tmp_path_factory.mktemp("ten") / "a.ten"
    tenbin.save(path, *arrays, infos=[f"field{n}" for n in range(len(arrays))])
    loaded, infos = tenbin.load(path, infos=True, mmap=mmap)
    assert infos == [f"field{n}" for n in range(len(arrays))]
    for before, after in zip(arrays, loaded, strict=True):
        assert_same(before, after)


def test_the_header_is_laid_out_as_the_format_says():
    assert tenbin.encode_header(np.zeros((2, 3), np.float32), "abc") == b"f4\0\0\0\0\0\0abc\0\0\0\0\0" + struct.pack("<qqq", 2, 2, 3)


def test_a_chunk_is_laid_out_as_the_format_says():
    assert tenbin.encode_chunks([b"xyz"]) == b"~TenBin~" + struct.pack("<q", 3) + b"xyz" + bytes(61)
    assert len(tenbin.encode_chunks([bytes(64)])) == 16 + 64


def test_decoded_arrays_are_read_only_views():
    source = np.arange(10, dtype=np.uint8)
    frames = tenbin.encode_list([source])
    assert np.shares_memory(np.frombuffer(frames[1], np.uint8), source)
    (decoded,) = tenbin.decode_list(frames)
    assert np.shares_memory(decoded, source)
    with pytest.raises(ValueError, match="read-only"):
        decoded[0] = 1


@pytest.mark.parametrize(
    "array",
    [np.arange(12, dtype=np.int16).reshape(3, 4).T, np.arange(10, dtype=np.float32)[::-2], np.arange(4, dtype=">f4"), np.array(7, ">i2")],
)
def test_arrays_in_another_order_in_memory_come_out_with_the_same_values(array):
    (decoded,) = tenbin.decode_list(tenbin.encode_list([array]))
    assert decoded.dtype == array.dtype.newbyteorder("<")
    np.testing.assert_array_equal(decoded, array)


def test_booleans_travel_as_u1():
    (decoded,) = tenbin.decode_list(tenbin.encode_list([np.array([True, False, True])]))
    assert_same(decoded, np.array([1, 0, 1], np.uint8))


@pytest.mark.parametrize("value", [np.array(["a"]), np.zeros(2, complex), np.array([None]), np.zeros(2, "M8[s]"), np.longdouble(1)])
def test_a_dtype_that_the_format_lacks_is_named(value):
    with pytest.raises(TypeError, match=r"has dtype .*; dtypes that can be sent are bool, float16"):
        tenbin.encode_list([value])


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64"])
def test_64_bit_arrays_are_refused_unless_allowed(dtype):
    array = np.zeros(2, dtype)
    tenbin.check_acceptable_input_type([array], True)
    with pytest.raises(TypeError, match=rf"field 1 has the 64-bit dtype {dtype}; send astype\(np.{dtype[:-2]}32\), or pass allow64=True"):
        tenbin.check_acceptable_input_type([np.zeros(2, np.uint8), array], False)


def test_a_value_that_is_no_array_is_named_with_the_way_out():
    with pytest.raises(TypeError, match=r"field 0 is a int, but only numpy arrays can be sent: convert it to an array, such as np.asarray"):
        tenbin.check_acceptable_input_type([3], False)
    with pytest.raises(TypeError, match=r"field 0 is a list, .* resize images of different sizes first, such as with Augmentations"):
        tenbin.check_acceptable_input_type([[np.zeros((2, 3, 3), np.uint8)]], False)


def test_an_info_over_8_characters_is_an_error():
    assert tenbin.encode_header(np.zeros(1, np.uint8), "12345678")[8:16] == b"12345678"
    with pytest.raises(ValueError, match="'123456789' has 9 characters; expected at most 8"):
        tenbin.encode_header(np.zeros(1, np.uint8), "123456789")
    with pytest.raises(ValueError, match="is not ASCII"):
        tenbin.str64("é")


def test_ten_dimensions_are_an_error():
    with pytest.raises(ValueError, match="10 dimensions"):
        tenbin.encode_header(np.zeros([1] * 10, np.uint8))


def test_str64_and_unstr64_are_inverse():
    assert tenbin.unstr64(tenbin.str64("images")) == "images"
    assert tenbin.str64("u1") == int.from_bytes(b"u1", "little")


def test_what_stands_behind_the_dimensions_is_ignored():
    (decoded,) = tenbin.decode_list([header(behind=bytes(range(80))), b"abc"])
    assert_same(decoded, np.frombuffer(b"abc", np.uint8))


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        ([b"x"], "1 frames; expected an even number"),
        ([b"", b""], "array 0: the header has 0 bytes; expected a multiple of 8, at least 24"),
        ([header()[:25], b"abc"], "array 0: the header has 25 bytes"),
        ([header(code=b"x9"), b"abc"], "array 0: unknown dtype b'x9"),
        ([header(code=b"u1\0x"), b"abc"], "unknown dtype b'u1\\x00x"),
        ([header(rank=10, dims=[1] * 10), b"a"], "the rank at byte 16 of the header is 10; expected 0 to 9"),
        ([header(rank=-1), b"a"], "the rank at byte 16 of the header is -1;"),
        ([header(rank=2**62), b"a"], "the rank at byte 16 of the header is 46116860"),
        ([header(rank=2), b"abc"], "a header of 32 bytes is too short for its 2 dimensions"),
        ([header(dims=(-3,)), b"abc"], "the shape (-3,) has a negative dimension"),
        ([header(rank=2, dims=(-1, -3)), b"abc"], "a negative dimension"),
        ([header(), b"ab"], "the data have 2 bytes, but the header announces 3 bytes, for shape (3,) and dtype uint8"),
        ([header(), b"abcd"], "the data have 4 bytes, but the header announces 3"),
        ([header(rank=2, dims=(2**40, 2**40)), b"abc"], "the data have 3 bytes, but the header announces 12089258"),
        ([header(rank=3, dims=(2**62, 2**62, 0)), b""], "array 0: "),
        ([header(info=b"\xff"), b"abc"], "is not ASCII"),
        ([header(), b"abc", header(), b"ab"], "array 1: the data have 2 bytes"),
    ],
)
def test_frames_that_are_no_arrays_say_what_was_expected_and_where(frames, says):
    with pytest.raises(FrameError) as caught:
        tenbin.decode_list(frames)
    assert says in str(caught.value)


GOOD = bytes(tenbin.encode_buffer([np.arange(100, dtype=np.float32)]))


@pytest.mark.parametrize(
    ("buffer", "says"),
    [
        (GOOD + b"garbage", f"byte {len(GOOD)}: 7 bytes are left; expected a chunk"),
        (GOOD + bytes(16), f"byte {len(GOOD)}: expected ~TenBin~, found b'\\x00"),
        (GOOD[:100], "byte 96: the header announces a chunk of 400 bytes, but only 4 bytes are left"),
        (GOOD[:-1], "within the padding of the last chunk"),
        (
            b"~TenBin~" + struct.pack("<q", 2**62) + bytes(64),
            "byte 16: the header announces a chunk of 4611686018427387904 bytes, but only 64 bytes are left",
        ),
        (b"~TenBin~" + struct.pack("<q", -1) + bytes(64), "byte 0: the header announces a chunk of -1 bytes"),
        (b"~tenbin~" + bytes(72), "byte 0: expected ~TenBin~, found b'~tenbin~'"),
        (GOOD[:80], "1 frames; expected an even number"),
    ],
)
def test_buffers_that_are_not_tenbin_say_what_was_expected_and_where(tmp_path, buffer, says):
    with pytest.raises(FrameError) as caught:
        tenbin.decode_buffer(buffer)
    assert says in str(caught.value)
    (tmp_path / "bad.ten").write_bytes(buffer)
    for mmap in (False, True):
        with pytest.raises(FrameError) as caught:
            tenbin.load(tmp_path / "bad.ten", mmap=mmap)
        assert str(caught.value).startswith(f"{tmp_path / 'bad.ten'}: ")
        assert says in str(caught.value)


def test_reading_a_stream_stops_where_the_stream_ends():
    stream = io.BytesIO(GOOD + GOOD)
    (first,) = tenbin.read(stream, n=1)
    (second,) = tenbin.read(stream)
    assert_same(first, second)
    assert tenbin.read(stream) == []
    with pytest.raises(FrameError, match="array 0: the stream ends after its header"):
        tenbin.read(io.BytesIO(GOOD[:80]))
    with pytest.raises(FrameError, match="the header announces a chunk of 400 bytes with padding, but the stream ends after 4 bytes"):
        tenbin.read(io.BytesIO(GOOD[:100]))


def test_an_announced_size_allocates_nothing():
    huge = b"~TenBin~" + struct.pack("<q", 2**40) + bytes(100)
    tracemalloc.start()
    try:
        for attempt in (
            lambda: tenbin.decode_buffer(huge),
            lambda: tenbin.read(io.BytesIO(huge)),
            lambda: tenbin.decode_list([header(rank=3, dims=(2**20, 2**20, 1)), b"abc"]),
        ):
            with pytest.raises(FrameError):
                attempt()
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@given(st.lists(st.binary(max_size=120), max_size=6))
def test_any_frames_decode_or_are_refused(frames):
    try:
        arrays = tenbin.decode_list(frames)
    except FrameError:
        return
    assert sum(array.nbytes for array in arrays) == sum(map(len, frames[1::2]))


@given(st.binary(max_size=400), st.integers(0, len(GOOD) - 1))
def test_any_damage_to_a_buffer_decodes_or_is_refused(patch, position):
    damaged = bytearray(GOOD)
    damaged[position : position + len(patch)] = patch
    for attempt in (tenbin.decode_buffer, lambda data: tenbin.read(io.BytesIO(data))):
        try:
            arrays = attempt(bytes(damaged))
        except FrameError:
            continue
        assert sum(array.nbytes for array in arrays) <= len(damaged)


def test_a_file_of_another_name_needs_nocheck(tmp_path):
    with pytest.raises(ValueError, match=r"does not end in \.ten; to use this file, pass nocheck=True"):
        tenbin.save(tmp_path / "a.bin", np.zeros(1))
    tenbin.save(tmp_path / "a.bin", np.zeros(1), nocheck=True)
    with pytest.raises(ValueError, match=r"does not end in \.ten"):
        tenbin.load(tmp_path / "a.bin")
    assert_same(tenbin.load(tmp_path / "a.bin", nocheck=True)[0], np.zeros(1))


def test_an_empty_file_holds_no_arrays(tmp_path):
    (tmp_path / "a.ten").touch()
    assert tenbin.load(tmp_path / "a.ten") == []
    assert tenbin.load(tmp_path / "a.ten", mmap=True) == []


def test_infos_are_returned_or_checked():
    frames = tenbin.encode_list([np.zeros(1, np.uint8)], ["x"])
    assert tenbin.decode_list(frames, infos=True)[1] == ["x"]
    tenbin.decode_list(frames, infos=["x"])
    with pytest.raises(FrameError, match=r"expected the infos \['y'\], found \['x'\]"):
        tenbin.decode_list(frames, infos=["y"])
    with pytest.raises(ValueError, match="1 infos for 2 arrays"):
        tenbin.encode_list([np.zeros(1), np.zeros(1)], ["x"])


class Wire:
    """A socket that keeps what is sent."""

    def send(self, data):
        self.data = bytes(data)

    def recv(self):
        return self.data

    def send_multipart(self, msg_parts):
        self.parts = [bytes(part) for part in msg_parts]

    def recv_multipart(self):
        return self.parts


def test_the_functions_for_sockets_send_and_receive():
    socket, array = Wire(), np.arange(6, dtype=np.int32).reshape(2, 3)
    tenbin.zsend_single(socket, [array], infos=["a"])
    assert_same(tenbin.zrecv_single(socket)[0], array)
    tenbin.zsend_multipart(socket, [array], infos=["a"])
    arrays, infos = tenbin.zrecv_multipart(socket, infos=True)
    assert_same(arrays[0], array)
    assert infos == ["a"]


def test_buffers_are_measured_in_bytes():
    assert tenbin.bytelen(np.zeros((2, 3), np.float32)) == tenbin.bytelen(bytes(24)) == 24
    assert bytes(tenbin.bytedata(np.arange(3, dtype=np.uint16))) == b"\0\0\1\0\2\0"
    assert [tenbin.roundup(n) for n in (0, 1, 64, 65)] == [0, 64, 64, 128]
