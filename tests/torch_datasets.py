"""Datasets for tests of the hand-over to torch, in a module since processes import it."""

import os
import random
import signal

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


class Drawn(Numbered):
    """What the three global generators draw, as which worker of torch, and in which process."""

    def __getitem__(self, number):
        info = torch.utils.data.get_worker_info()
        return number, random.random(), float(np.random.rand()), float(torch.rand(())), -1 if info is None else info.id, os.getpid()


class Raising(Numbered):
    """Raises an error for one number."""

    def __init__(self, length, bad, error):
        super().__init__(length)
        self.bad, self.error = bad, error

    def __getitem__(self, number):
        if number == self.bad:
            raise self.error
        return number


class Dying(Raising):
    """And ends its process for the ninth."""

    def __getitem__(self, number):
        if number == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(number)


def print_worker(number):
    print("worker", number, flush=True)
