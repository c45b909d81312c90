"""Comparing highway's ``DataLoader`` with torch's, in one run."""

import random

import numpy as np
import torch
import torch_datasets
from torch.utils import data

from highway.adapters.torch import DataLoader


class Numbered(torch_datasets.Numbered, data.Dataset):
    """As :class:`torch_datasets.Numbered`, but it does not declare itself thread-safe."""

    __thread_safe__ = None


class Raising(torch_datasets.Raising, data.Dataset):
    """As :class:`torch_datasets.Raising`, but it does not declare itself thread-safe."""

    __thread_safe__ = None


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
