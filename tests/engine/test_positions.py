"""A sample has the same random numbers on any number of ranks, in any batch, and at any stage after which it is augmented."""

import json

import numpy as np
import pytest

from highway import Pipeline, Stage
from highway.children.pickling import pack
from highway.modules import (
    Augmentations,
    Batch,
    Cache,
    Concat,
    Duplicate,
    FixedEpochs,
    Mix,
    MixUp,
    Processes,
    Reader,
    Repeat,
    Shuffle,
    Unbatch,
)
from highway.transforms import Brightness, FlipX, RandomCrop

AUGMENT = Augmentations([RandomCrop((6, 6)), FlipX(), Brightness(0.5)])


class Images:
    """Images that differ in each pixel. The second field is the number of the image."""

    def __init__(self, count=24):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        if not 0 <= number < self.count:
            raise IndexError(number)
        return np.random.default_rng(number).integers(256, size=(8, 8, 3), dtype=np.uint8), number


def reader(rank=0, world_size=1, size=None, **how):
    return Reader(Images(), size, **{"epochs": 2, "rank": rank, "world_size": world_size, **how})


def samples_of(items):
    """Return the bytes of each sample, by the number of its epoch and its own number. Items are samples or batches."""
    found = {}
    for (images, numbers), passport in items:
        rows = [images] if np.ndim(numbers) == 0 else images
        for image, number in zip(rows, np.atleast_1d(numbers).tolist(), strict=True):
            assert found.setdefault((passport.epoch, number), image.tobytes()) == image.tobytes()
    return found


def run(stages, world_size=1):
    """Return the samples of all ranks."""
    found = {}
    for rank in range(world_size):
        with Pipeline(stages(rank, world_size), seed=3) as pipeline:
            found |= samples_of(pipeline.stamped())
    return found


EXPECTED = run(lambda rank, ranks: [reader(), AUGMENT])

AUGMENTED = {
    "in the reader's batches": lambda rank, ranks, size: [reader(rank, ranks, size), AUGMENT],
    "after Batch": lambda rank, ranks, size: [reader(rank, ranks), Batch(size), AUGMENT],
    "after Shuffle and Batch": lambda rank, ranks, size: [reader(rank, ranks), Shuffle(7), Batch(size), AUGMENT],
    "after Unbatch": lambda rank, ranks, size: [reader(rank, ranks, size), Unbatch(), AUGMENT],
    "after Unbatch and Batch": lambda rank, ranks, size: [reader(rank, ranks, size), Unbatch(), Shuffle(5), Batch(3), AUGMENT],
    "with a time limit": lambda rank, ranks, size: [reader(rank, ranks, size), Stage(AUGMENT, timeout=60)],
}


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 4, 5])
@pytest.mark.parametrize("stages", AUGMENTED.values(), ids=AUGMENTED)
def test_a_sample_has_the_same_bytes_on_any_ranks_and_in_any_batch(stages, size, world_size):
    assert run(lambda rank, ranks: stages(rank, ranks, size), world_size) == EXPECTED


CACHED = {
    "batches": lambda rank, ranks, size, **how: [reader(rank, ranks, size), Cache(**how), AUGMENT],
    "samples that become batches": lambda rank, ranks, size, **how: [reader(rank, ranks), Cache(batch_size=size, **how), AUGMENT],
    "samples": lambda rank, ranks, size, **how: [reader(rank, ranks), Cache(batched=False, **how), AUGMENT],
}


@pytest.mark.parametrize(("world_size", "size"), [(1, 1), (2, 4), (3, 5)])
@pytest.mark.parametrize("how", [{}, {"budget": 300}], ids=["cached", "too small"])
@pytest.mark.parametrize("stages", CACHED.values(), ids=CACHED)
def test_a_sample_has_the_same_bytes_after_a_cache(stages, how, size, world_size):
    expected = run(lambda rank, ranks: [reader(rank, ranks), Cache(batched=False), AUGMENT])
    assert run(lambda rank, ranks: stages(rank, ranks, size, **how), world_size) == expected
    assert {key: expected[key] for key in expected if key[0] == 0} == {key: EXPECTED[key] for key in expected if key[0] == 0}
    assert expected[0, 5] != expected[1, 5]


def test_a_sample_has_the_same_bytes_in_another_process():
    def stages(rank, ranks):
        return [reader(rank, ranks, 4), Processes([AUGMENT], num_processes=1)]

    assert run(stages, 2) == EXPECTED


@pytest.mark.parametrize("first", [{"batch_size": 2}, {"global_batch_size": 6}], ids=str)
def test_a_sample_has_the_same_bytes_after_a_resume_on_other_ranks(first):
    def stages(rank, ranks):
        return [Reader(Images(), epochs=2, rank=rank, world_size=ranks, **first), AUGMENT]

    found, indexes, state = {}, [], None
    for ranks, steps in ((3, 2), (2, 1), (1, 99)):
        saved = state
        for rank in range(ranks):
            with Pipeline(stages(rank, ranks), seed=3) as pipeline:
                if saved is not None:
                    pipeline.load_state_dict(saved)
                items = [item for _, item in zip(range(steps), pipeline.stamped(), strict=False)]
                found |= samples_of(items)
                indexes += [passport[:2] for _, passport in items]
                state = json.loads(json.dumps(pipeline.state_dict()))
    assert found == EXPECTED
    assert len(set(indexes)) == len(indexes)  # the index of a batch is never used again


def small(count, size=None):
    return Reader(Images(count), size, epochs=3, shuffle=False, rank=0, world_size=1)


SEVERAL = {
    "Mix": lambda: [Mix([small(5, 2), small(7)], weights=[1, 2])],
    "Concat": lambda: [Concat([small(6, 3), small(6, 3)])],
    "Repeat": lambda: [Repeat(small(6, 3), times=2)],
    "FixedEpochs": lambda: [small(6, 3), FixedEpochs(3)],
    "Duplicate": lambda: [small(6, 3), Duplicate(2)],
    "Shuffle with reuse": lambda: [small(6, 3), Shuffle(2, reuse=2)],
    "Pipeline": lambda: [Pipeline([small(8), Batch(2)])],
    "Processes": lambda: [Processes([[small(6, 3)], [small(6, 3)]])],
}


@pytest.mark.parametrize("stages", SEVERAL.values(), ids=SEVERAL)
def test_two_samples_of_an_epoch_draw_different_numbers(stages):
    draws = []
    with Pipeline([*stages(), Positions()]) as pipeline:
        for rows, passport in pipeline.stamped():
            draws += [(passport.epoch, row) for row in rows]
    assert len(set(draws)) == len(draws)


class Positions:
    """Return the positions of an item, as its generator tells them."""

    def __call__(self, item, rng):
        counter = rng.bit_generator.state["state"]["counter"]
        return list(getattr(rng, "rows", [int(counter[2])]))


@pytest.mark.parametrize("stages", [SEVERAL[name] for name in SEVERAL if name != "Processes"], ids=[*SEVERAL][:-1])
def test_a_resumed_run_draws_the_same_numbers(stages):
    def build():
        return Pipeline([*stages(), Shuffle(4), Positions()], seed=1)

    with build() as pipeline:
        expected = list(pipeline.stamped())
    for cut in range(1, len(expected), 3):
        with build() as pipeline:
            for _ in range(cut):
                pipeline.dequeue()
            state = json.loads(json.dumps(pipeline.state_dict()))
        with build() as pipeline:
            pipeline.load_state_dict(state)
            assert [item for item, _ in pipeline.stamped()] == [item for item, _ in expected[cut:]]


def test_a_stage_that_mixes_the_samples_of_a_batch_depends_on_the_batch():
    def stages(size):
        return lambda rank, ranks: [reader(rank, ranks, size), MixUp(num_classes=24)]

    def images(size):
        with Pipeline(stages(size)(0, 1), seed=3) as pipeline:
            return np.concatenate([images for images, _ in pipeline])

    assert not np.array_equal(images(4), images(6))


def test_a_passport_for_another_process_holds_positions_and_no_passports():
    with Pipeline([reader(), Batch(4)]) as pipeline:
        _, passport = next(iter(pipeline.stamped()))
    sent = passport.sent()
    assert sent.made_of is None and sent.rows == passport.rows == (0, 1, 2, 3)
    assert sum(map(len, pack(sent))) < 1000


def test_positions_of_an_item_that_was_numbered_anew_are_ignored():
    with Pipeline([reader(size=4)]) as pipeline:
        _, passport = next(iter(pipeline.stamped()))
    assert passport.rows == range(4) and passport.position == 0
    copy = passport._replace(index=7)
    assert copy.rows == () and copy.position == 7
