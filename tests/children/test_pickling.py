"""How objects travel between a pipeline and its child processes."""

import numpy as np
import pytest

from highway.children.pickling import pack, pack_arrays, unpack


class Mine(np.ndarray):
    pass


ARRAYS = {
    "bytes": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    "big-endian": np.arange(3, dtype=">f4"),
    "of Fortran's order": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "a part": np.arange(10)[::2],
    "a scalar": np.array(2.5),
    "empty": np.empty((0, 3), np.float32),
    "times": np.array(["2026-01-01", "NaT"], "datetime64[D]"),
    "text": np.array(["a", "bcd"]),
    "objects": np.array([None, "a"], object),
    "records": np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    "with metadata": np.zeros(2, np.dtype("i4", metadata={"a": 1})),
    "of a class": np.arange(3).view(Mine),
    "bools": np.array([True, False]),
    "read-only": np.frombuffer(b"abc", np.uint8),
}


@pytest.mark.parametrize("packed", [pack, pack_arrays])
@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_arrays_are_the_same_again(array, packed):
    found = unpack([bytes(frame) for frame in packed({"x": array, "again": array})])
    again = found["x"]
    assert found["again"] is again
    assert type(again) is type(array)
    assert (again.dtype, again.dtype.metadata, again.shape) == (array.dtype, array.dtype.metadata, array.shape)
    assert np.array_equal(again, array, equal_nan=array.dtype.kind in "fM")
    assert again.flags.f_contiguous == array.flags.f_contiguous or not array.flags.contiguous


def test_arrays_travel_beside_the_pickle():
    array = np.arange(1000)
    data, beside = pack_arrays([array])
    assert len(data) < 200
    assert np.shares_memory(np.frombuffer(beside, array.dtype), array)
