"""Datasets for tests of the hand-over to torch, in a module since processes import it."""

import os
import random
import signal
from typing import NamedTuple

import numpy as np
import torch


class Numbered:
    """``(float32 array, number, {"name": text})`` of each number."""

    def __init__(self, length=50):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, number):
        if not 0 <= number < self.length:
            raise IndexError(number)
        return np.full((2, 3), number, np.float32), number, {"name": f"sample-{number}"}


class Pair(NamedTuple):
    image: torch.Tensor
    label: int


class Drawn(Numbered):
    """What the three global generators draw."""

    def __getitem__(self, number):
        return number, random.random(), float(np.random.rand()), float(torch.rand(()))


class Raising(Numbered):
    """Raises an error for one number."""

    def __init__(self, length, bad, error):
        super().__init__(length)
        self.bad, self.error = bad, error

    def __getitem__(self, number):
        if number == self.bad:
            raise self.error
        return number


class Dying(Numbered):
    def __getitem__(self, number):
        if number == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return number


class Process(Numbered):
    """In which process a sample is read, and whether as a worker of torch."""

    def __getitem__(self, number):
        info = torch.utils.data.get_worker_info()
        return os.getpid(), -1 if info is None else info.id


def print_worker(number):
    print("worker", number, flush=True)
