"""Arrays that begin at a multiple of 64 bytes."""

import numpy as np
import pytest

from highway.process.aligned import ALIGNMENT, aligned, aligned_bytes, aligned_copy


def begin(array):
    return array.__array_interface__["data"][0] % ALIGNMENT


@pytest.mark.parametrize("dtype", ["bool", "u1", "i2", "f4", "i8", "c8", "U5", "S3", "M8[s]"])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (31, 17, 3), (225, 223, 3), (0, 3)], ids=str)
def test_new_arrays_are_aligned_and_as_numpy_makes_them(shape, dtype):
    kept = [aligned(shape, np.dtype(dtype)) for _ in range(5)]
    assert {begin(array) for array in kept} == {0}
    for array in kept:
        assert (array.shape, array.dtype, array.flags.c_contiguous, array.flags.writeable) == (shape, np.dtype(dtype), True, True)


def test_a_copy_of_bytes_is_aligned_equal_and_read_only():
    for data in (b"", b"a", bytes(range(256)) * 5):
        kept = [aligned_bytes(data) for _ in range(5)]
        for copy in kept:
            array = np.frombuffer(copy, np.uint8)
            assert (copy, copy.readonly, array.ctypes.data % ALIGNMENT if data else 0) == (data, True, 0)


def test_a_copy_is_aligned_and_equal():
    for array in (np.arange(24, dtype="f4").reshape(2, 3, 4).T, np.frombuffer(bytes(range(9)), np.uint8)[1:], np.array(3)):
        copy = aligned_copy(array)
        assert begin(copy) == 0 and copy.flags.c_contiguous and copy.dtype == array.dtype
        np.testing.assert_array_equal(copy, array)


def test_python_objects_stay_in_memory_of_numpy():
    array = aligned((3,), np.dtype(object))
    array[:] = ["a", {}, None]
    assert array.tolist() == ["a", {}, None]
