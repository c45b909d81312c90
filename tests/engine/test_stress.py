"""Random pipelines: worker counts, buffers, delays, errors, early ends; right output, in order, nothing left running."""

import random
import time

import pytest

from highway import DROP, Pipeline, Stage
from highway.modules import Take


class Slow:
    """A map that takes a random time, leaves out multiples of ``drop`` and raises at ``fail``."""

    def __init__(self, drop, fail, delay):
        self.drop, self.fail, self.delay = drop, fail, delay

    def __call__(self, item, rng):
        if rng.random() < 0.2:
            time.sleep(rng.random() * self.delay)
        if item == self.fail:
            raise ArithmeticError(f"at {item}")
        return DROP if self.drop and item % self.drop == 0 else item


class Pairs:
    """A stream that hands on its items in reversed pairs."""

    def stream(self, items):
        for first in items:
            second = next(items, None)
            yield from ([second, first] if second is not None else [first])


def expected(count, stages):
    """What the same stages give one after the other, without threads."""
    values = list(range(count))
    for stage in stages:
        op = stage.op
        if isinstance(op, Slow):
            values = [v for v in values if not (op.drop and v % op.drop == 0)]
        elif isinstance(op, Pairs):
            pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
            values = [v for pair in pairs for v in reversed(pair)]
        else:
            values = values[: op.n]
    return values


def random_pipeline(random):
    count = random.choice([0, 1, 7, 60])
    stages = []
    for _ in range(random.randint(1, 4)):
        kind = random.random()
        if kind < 0.7:
            op = Slow(random.choice([0, 0, 2, 3]), fail=None, delay=0.002)
        else:
            op = Pairs() if kind < 0.85 else Take(random.choice([0, 1, 10, 100]))
        workers = random.choice([1, 2, 8]) if isinstance(op, Slow) else None
        drops = isinstance(op, Slow) and bool(op.drop)
        stages.append(Stage(op, num_workers=workers, buffer_size=random.choice([1, 2, 5]), drops=drops))
    return count, stages


@pytest.mark.parametrize("seed", range(25))
def test_random_pipelines_give_what_their_stages_give_one_after_the_other(seed):
    chance = random.Random(seed)
    count, stages = random_pipeline(chance)
    with Pipeline([range(count), *stages], seed=seed) as pipeline:
        assert list(pipeline) == expected(count, stages)


@pytest.mark.parametrize("seed", range(25))
def test_random_pipelines_that_fail_or_are_stopped_end_at_once_and_in_order(seed):
    chance = random.Random(1000 + seed)
    fail = chance.choice([None, 0, 5, 30])
    stages = [Stage(Slow(0, fail, 0.002), num_workers=chance.choice([1, 2, 8]), buffer_size=chance.choice([1, 2, 5])) for _ in range(3)]
    stop_after = chance.choice([0, 3, 100])
    got = []
    with Pipeline([range(60), *stages], seed=seed) as pipeline:
        try:
            for item in pipeline:
                got.append(item)
                if len(got) == stop_after:
                    pipeline.stop()
        except ArithmeticError as error:
            assert str(error) == f"at {fail}"
            assert len(got) <= fail
        else:
            assert (len(got) == 60 and fail is None) or len(got) == stop_after
    assert got == list(range(len(got)))
