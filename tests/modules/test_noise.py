from itertools import islice

import numpy as np
import pytest

from highway import Pipeline
from highway.errors import ConfigError
from highway.modules import Noise
from highway.parameters.location import Location
from highway.topology.registry import Registry


def build(spec):
    return Registry().build_stage(spec, Location())


def test_shape_and_number_of_tensors_are_its_first_arguments():
    items = list(Noise((4, 6, 5, 3), 2, count=3))
    assert [[(array.shape, array.dtype) for array in item] for item in items] == [[((4, 6, 5, 3), np.dtype("u1"))] * 2] * 3


def test_each_tensor_may_have_a_shape_of_its_own():
    ((images, labels, scalar),) = Noise([[4, 6, 5, 3], [4], ()], count=1)
    assert [array.shape for array in (images, labels, scalar)] == [(4, 6, 5, 3), (4,), ()]
    ((images, labels),) = Pipeline([build({"Noise": {"shape": [[2, 3, 3], [2]], "count": 1}})])
    assert (images.shape, labels.shape) == ((2, 3, 3), (2,))
    assert [array.shape for array in next(iter(Noise()))] == [(64, 224, 224, 3)]


def test_the_same_seed_gives_the_same_arrays_and_items_differ():
    one, same, other = (list(Noise((50,), 2, count=2, seed=seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    arrays = {array.tobytes() for item in one + other for array in item}
    assert len(arrays) == 8


def test_constant_noise_is_one_item_again_and_again():
    first, second = Noise((5,), 2, constant=True, count=2)
    assert all(a is b for a, b in zip(first, second, strict=True))


def test_without_count_it_has_no_end():
    assert len(list(islice(Noise((1,)), 1000))) == 1000


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "uint64", "float16", "float32", "float64"])
def test_values_fill_the_range_of_their_type(dtype):
    (values,) = next(iter(Noise((20000,), dtype=dtype)))
    assert values.dtype == np.dtype(dtype)
    kind = np.dtype(dtype).kind
    low, high = (0, 1) if kind in "bf" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    span = float(high) - float(low)
    assert low <= float(values.min()) < low + 0.01 * span
    assert high - 0.01 * span < float(values.max()) <= high


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": (3, -1)}, r"shape=\(3, -1\)"),
        ({"n_tensors": 0}, "n_tensors=0; expected at least 1"),
        ({"shape": [(3, 4), 5]}, r"shape=\(\(3, 4\), 5\); expected one shape, or a list of shapes"),
        ({"shape": [(3, 4), (5,)], "n_tensors": 3}, "n_tensors=3, but 2 shapes; remove n_tensors"),
        ({"shape": "3x4"}, r"shape='3x4'; expected"),
        ({"dtype": "uint9"}, "dtype='uint9'; expected bool, or the name"),
        ({"dtype": "U3"}, "dtype='U3'"),
        ({"count": -1}, "count=-1"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_a_wrong_parameter_is_named(arguments, message):
    with pytest.raises(ConfigError, match=f"Noise: {message}"):
        Noise(**arguments)
