"""The program of docs/howto/from-grain.md, held against Grain; run by ``tox -e datasets``."""

import numpy as np
import pytest

from highway import DROP, Pipeline, Stage, Traits
from highway.modules import Batch, Reader

grain = pytest.importorskip("grain", reason="grain is not installed: this is run by tox -e datasets")

SOURCE = [{"image": np.full((8, 8, 3), 6 * n, np.uint8), "label": np.int32(n % 4)} for n in range(40)]


class Odd(grain.transforms.Filter):
    def __highway__(self):
        return Traits(drops=True)

    def filter(self, element):
        return bool(element["label"] % 2)

    def __call__(self, element):
        return element if self.filter(element) else DROP


class Brighter(grain.transforms.RandomMap):
    def random_map(self, element, rng):
        return element | {"image": element["image"] + rng.integers(6, dtype=np.uint8)}

    def __call__(self, element, rng):
        return self.random_map(element, rng)


def theirs(seed, shuffle=True):
    dataset = grain.MapDataset.source(SOURCE).seed(seed)
    dataset = dataset.shuffle() if shuffle else dataset
    return list(dataset.filter(Odd()).random_map(Brighter()).to_iter_dataset().batch(4, drop_remainder=True))


def ours(seed, shuffle=True, num_workers=8):
    stages = [Reader(SOURCE, epochs=1, shuffle=shuffle), Odd(), Stage(Brighter(), num_workers=num_workers), Batch(4, drop_last=True)]
    with Pipeline(stages, seed=seed) as pipeline:
        return list(pipeline)


def described(batches):
    return [{name: (value.dtype, value.shape) for name, value in batch.items()} for batch in batches]


def labels(batches):
    return [int(n) for batch in batches for n in batch["label"]]


def numbers(batches):
    """Return which samples are in batches, whatever was added to their images."""
    return sorted(int(image.max()) // 6 for batch in batches for image in batch["image"])


def test_batches_are_of_the_same_samples_shapes_and_dtypes():
    for shuffle in (True, False):
        assert described(ours(1, shuffle)) == described(theirs(1, shuffle))
        assert sorted(labels(ours(1, shuffle))) == sorted(labels(theirs(1, shuffle)))
        assert numbers(ours(1, shuffle)) == numbers(theirs(1, shuffle))
    assert labels(ours(1, False)) == labels(theirs(1, False))


def test_a_seed_gives_an_order_and_random_numbers_as_grain_does():
    for read in (ours, theirs):
        one, same, other = ([batch["image"].tobytes() for batch in read(seed)] for seed in (1, 1, 2))
        assert one == same != other
    assert [batch["image"].tobytes() for batch in ours(1)] == [batch["image"].tobytes() for batch in ours(1, num_workers=1)]


def test_a_map_dataset_is_read_as_it_is():
    dataset = grain.MapDataset.source(SOURCE).map(lambda element: element | {"label": element["label"] + 10})
    with Pipeline([Reader(dataset, 8, shuffle=False, epochs=1)]) as pipeline:
        assert labels(pipeline) == [n % 4 + 10 for n in range(40)]
