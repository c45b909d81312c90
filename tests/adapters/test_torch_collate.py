"""Batches are what torch's ``default_collate`` makes of the samples."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from test_torch_loader import same  # noqa: E402
from torch.utils.data import default_collate  # noqa: E402

from highway.adapters.torch import collate  # noqa: E402
from highway.adapters.torch.nested import as_arrays, as_tensors  # noqa: E402

Point = namedtuple("Point", "x y")
RNG = np.random.default_rng(0)
SAMPLES = {
    **{str(np.dtype(d)): [RNG.integers(0, 2, (3, 2)).astype(d) for _ in range(4)] for d in "?bBhHiIlLefdFD"},
    "without axes": [np.array(3, np.int16), np.array(4, np.int16)],
    "without rows": [np.zeros((0, 3), np.uint8)] * 2,
    "strided": [np.arange(12).reshape(3, 4)[:, ::2]] * 3,
    "numpy scalars": [np.float32(1.5), np.float32(2.5)],
    "numpy integers": [np.int8(1), np.int8(2)],
    "mixed dtypes": [np.zeros(2, np.uint8), np.ones(2, np.float32)],
    "tensors": [torch.arange(6).reshape(2, 3), torch.arange(6).reshape(2, 3) + 1],
    "bfloat16": [torch.ones(2, dtype=torch.bfloat16)] * 2,
    "transposed": [torch.arange(6).reshape(2, 3).T] * 2,
    "of parameters": [torch.nn.Parameter(torch.ones(2)).detach()] * 2,
    "scalar tensors": [torch.tensor(1), torch.tensor(2)],
    "ints": [1, 2**40],
    "bools": [True, False],
    "floats": [0.1, float("nan")],
    "int, then float": [1, 2.5],
    "texts": ["a", "bc"],
    "bytes": [b"a", b"\0"],
    "tuples": [(np.zeros(2), 1, "a"), (np.ones(2), 2, "b")],
    "lists": [[1, 2.0], [3, 4.0]],
    "empty tuples": [(), ()],
    "named tuples": [Point(1, np.zeros(2)), Point(2, np.ones(2))],
    "dicts": [{"a": 1, "b": {"c": "x"}}, {"b": {"c": "y"}, "a": 2, "more": 3}],
    "ordered dicts": [OrderedDict(a=1), OrderedDict(a=2)],
    "nested": [{"boxes": [(1, 2.0), (3, 4.0)], "id": ("x", {"y": torch.zeros(1)})}] * 3,
    "one": [(np.zeros((2, 2), np.uint8), 5)],
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_batch_is_what_torch_makes(kind):
    ours, theirs = collate(SAMPLES[kind]), default_collate(SAMPLES[kind])
    same(ours, theirs)
    same(as_tensors(as_arrays(ours)), theirs)


@pytest.mark.parametrize(
    "samples",
    [
        [np.zeros(2), np.zeros(3)],
        [torch.zeros(2), torch.zeros(3)],
        [{"a": 1}, {"b": 1}],
        [(1, 2), (1,)],
        [None, None],
        [np.array(["a"])] * 2,
        [np.array([None])] * 2,
        [np.array(["2020-01-01"], "M8[D]")] * 2,
        [object(), object()],
        [np.ones(2, ">i4")] * 2,
        [torch.eye(2).to_sparse()] * 2,
        [1, "a"],
    ],
    ids=lambda samples: f"{type(samples[0]).__name__} and {type(samples[1]).__name__}",
)
def test_what_cannot_be_a_batch_gets_the_error_of_torch(samples):
    with pytest.raises(Exception) as theirs:  # whatever torch raises
        default_collate(samples)
    with pytest.raises(type(theirs.value)) as ours:
        collate(samples)
    assert str(ours.value) == str(theirs.value)


def test_arrays_that_torch_does_not_take_for_their_strides_are_stacked():
    """pytorch 188023: an array of negative strides ends the process when it is handed over by DLPack."""
    array = np.arange(12).reshape(3, 4)[::-1, ::-2]
    assert collate([array, array]).tolist() == [array.tolist()] * 2


def test_a_batch_is_memory_of_its_own():
    sample = np.zeros(3)
    batch = collate([sample])
    batch += 1
    assert sample.tolist() == [0, 0, 0]
    assert batch.data_ptr() % 64 == 0
