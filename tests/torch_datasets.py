"""Datasets for tests of the hand-over to torch."""

import numpy as np


class Numbered:
    """``(float32 array, number, {"name": text})`` of each number."""

    __thread_safe__ = True

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
