"""Comparing highway's ``DataLoader`` with torch's, in one run."""

import random

import numpy as np
import torch
from torch.utils import data

from highway.adapters.torch import DataLoader


class Numbered(data.Dataset):
    """``(float32 array, number, {"name": text})`` of each number; it does not declare itself thread-safe."""

    def __init__(self, length=50):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, number):
        if not 0 <= number < self.length:
            raise IndexError(number)
        return np.full((2, 3), number, np.float32), number, {"name": f"sample-{number}"}


class Raising(Numbered):
    """Raises an error for one number."""

    def __init__(self, length, bad, error):
        super().__init__(length)
        self.bad, self.error = bad, error

    def __getitem__(self, number):
        if number == self.bad:
            raise self.error
        return number


def same(ours, theirs):
    """Fail unless two batches are the same: types, dtypes, nesting, values."""
    assert type(ours) is type(theirs)
    if isinstance(theirs, torch.Tensor):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        same(list(ours.values()), list(theirs.values()))
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    else:
        np.testing.assert_array_equal(ours, theirs)


def seed_everything(seed=3):
    """Seed torch's, NumPy's and Python's global generators."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def generators():
    """Return the states of the three global generators."""
    return [torch.get_rng_state(), list(np.random.get_state()), random.getstate()]


def compare(run):
    """Call a function with torch's loader and with highway's, from the same seeds, and return what it returned for torch's.

    Both calls must return the same, and leave the global generators in the same states.
    """
    results = []
    for loader in (data.DataLoader, DataLoader):
        seed_everything()
        results.append([run(loader), generators()])
    same(results[1], results[0])
    return results[0][0]
