"""Converters between numpy and torch."""

import sys

import numpy as np
import pytest

from highway import ConfigError
from highway.adapters.arrays import tonumpy, totorch

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((4, 5, 3), (3, 4, 5)), ((4, 5, 4), (4, 4, 5)), ((2, 4, 5, 3), (2, 3, 4, 5)), ((6, 5, 2), (6, 5, 2)), ((5, 3), (5, 3)), ((3,), (3,))],
)
def test_channels_of_3_or_4_move_to_the_front_and_back(shape, expected):
    array = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    tensor = totorch()(array)
    assert tensor.shape == expected
    if len(shape) > 2:
        np.testing.assert_array_equal(tonumpy()(tensor), array)
    assert totorch(transpose=False)(array).shape == shape


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float16", torch.float32),
        ("float32", torch.float32),
        ("float64", torch.float32),
        ("int8", torch.int8),
        ("uint8", torch.uint8),
        ("int16", torch.int64),
        ("uint16", torch.int64),
        ("int32", torch.int64),
        ("uint32", torch.int64),
        ("int64", torch.int64),
        ("bool", torch.bool),
    ],
)
def test_dtypes_become_those_that_training_takes(dtype, expected):
    array = np.array([0, 1], dtype)
    tensor = totorch()(array)
    assert tensor.dtype == expected
    assert tensor.tolist() == [0, 1]


def test_a_dtype_can_be_asked_for():
    assert totorch("float16")(np.array([1], np.uint8)).dtype == torch.float16
    assert tonumpy(np.float64)(torch.ones(2)).dtype == np.float64


def test_a_tensor_does_not_write_into_a_read_only_array():
    array = np.zeros(3, np.uint8)
    array.flags.writeable = False
    tensor = totorch()(array)
    tensor += 1
    assert array.tolist() == [0, 0, 0]


def test_other_values_are_left_alone():
    assert totorch()("text") == "text"
    assert tonumpy()([1]) == [1]


def test_torch_that_is_missing_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match=r"tensors need torch: pip install .*\[torch\]'"):
        totorch()
