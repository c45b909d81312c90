"""A state that is loaded after one change of anything is refused before the first item, or the run resumes exactly.

Each case is a random pipeline on one to three ranks. Every rank takes some items, saves its state, and then gives the rest: that is what is
expected. The same pipeline is built again with one change, and loads the state. ``pytest --resume-cases 100000`` runs more cases.
"""

import json
import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import pytest

from highway import DROP, Pipeline, Stage
from highway.errors import EndOfStream, PipelineError
from highway.modules import Batch, Cache, Concat, Duplicate, Mix, Reader, Repeat, Shuffle, Tee, Unbatch, Zip

AT_ONCE = 50  # cases of one test
APART = 100_000  # between what maps add to a sample, which is its number


@pytest.fixture(scope="module", autouse=True)
def _many_markers():
    """So that small sources send several, however quick they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("highway.engine.resume.MARK_EVERY", 4)
        patch.setattr("highway.engine.resume.MARK_APART", 0.0)
        patch.setattr("highway.engine.resume.MARK_SHARE", math.inf)
        yield


def pytest_generate_tests(metafunc):
    if "first" in metafunc.fixturenames:
        metafunc.parametrize("first", range(0, metafunc.config.getoption("--resume-cases"), AT_ONCE))


# --- the maps ---


def plus(item, by):
    return item + APART * by


def noise(item, rng):
    return item + APART * int(rng.integers(1000))


def some(item, by):
    """Drop some of the samples; of a batch, by its first."""
    return DROP if first_number(item) % by == 0 else item


def broken(item):
    if first_number(item) % 7 == 3:
        raise ValueError("a broken sample")
    return item


def first_number(item):
    return int(numbers(item)[0])


def numbers(item):
    if isinstance(item, tuple):
        return [number for field in item for number in numbers(field)]
    return [int(number) for number in (item.ravel() if hasattr(item, "ravel") else [item])]


# --- the pipelines ---


@dataclass(frozen=True)
class Source:
    """A source, and how many samples it has."""

    kind: str
    total: int
    batch_size: int | None
    shuffle: bool = True
    epochs: int = 2

    def build(self, rank, world_size):
        def reader(offset=0, **settings):
            dataset = list(range(offset, offset + self.total))
            given = {"epochs": self.epochs, "shuffle": self.shuffle, "rank": rank, "world_size": world_size} | settings
            return Reader(dataset, self.batch_size, **given)

        return {
            "reader": reader,
            "list": lambda: list(range(self.total)),
            "concat": lambda: Concat([reader(epochs=1), reader(1000, epochs=1)]),
            "mix": lambda: Mix([reader(epochs=1), list(range(1000, 1000 + self.total))], seed=5),
            "zip": lambda: Zip([reader(epochs=1), reader(1000, epochs=1)]),
            "repeat": lambda: Repeat(list(range(self.total)), self.epochs),
            "pipeline": lambda: Pipeline([reader(), partial(plus, by=3)]),
        }[self.kind]()

    @property
    def is_shared(self):
        """Whether ranks read shares of it."""
        return self.kind not in ("list", "repeat")


STAGES = {
    "plus": lambda n, rng: (partial(plus, by=n), {"num_workers": rng.choice([1, 3])}),
    "noise": lambda n, rng: (noise, {"num_workers": rng.choice([1, 2])}),
    "unordered": lambda n, rng: (partial(plus, by=n), {"num_workers": 3, "ordered": False}),
    "some": lambda n, rng: (partial(some, by=2 + n), {"drops": True}),
    "broken": lambda n, rng: (broken, {"on_error": "skip"}),
    "shuffle": lambda n, rng: (Shuffle(4 * n), {}),
    "tee": lambda n, rng: (Tee(id), {}),
    "duplicate": lambda n, rng: (Duplicate(1 + n), {}),
    "batch": lambda n, rng: (Batch(1 + n), {}),
    "unbatch": lambda n, rng: (Unbatch(), {}),
    "cache": lambda n, rng: (Cache(epochs=2), {}),
}


@dataclass(frozen=True)
class Case:
    """A pipeline on some ranks.

    Args:
        source: The source.
        stages: For each stage after it: its kind, a number from 1 to 3 that is its parameter, and settings that override its own.
    """

    source: Source
    stages: tuple
    world_size: int = 1
    seed: int = 1

    def build(self, rank):
        rng = Random(self.seed)
        stages = []
        for kind, number, settings in self.stages:
            op, own = STAGES[kind](number, rng)
            stages.append(Stage(op, **own | dict(settings), name=kind))
        return Pipeline([self.source.build(rank, self.world_size), *stages], seed=self.seed)

    @classmethod
    def random(cls, rng):
        kind = rng.choice(["reader", "reader", "reader", "list", "concat", "mix", "zip", "repeat", "pipeline"])
        batched = kind in ("reader", "concat", "pipeline") and rng.random() < 0.5
        source = Source(kind, rng.randint(5, 24), rng.choice([2, 3]) if batched else None, rng.random() < 0.8)
        stages = []
        for _ in range(rng.randint(0, 3)):
            kinds = ["plus", "noise", "unordered", "some", "broken", "shuffle", "tee", "duplicate", "unbatch" if batched else "batch"]
            if kind == "reader" and not stages:
                kinds += ["cache", "cache"]
            name = rng.choice(["plus", "noise", "tee", rng.choice(kinds)])
            if kind == "zip" and name not in ("tee", "shuffle", "duplicate"):
                continue
            stages.append((name, rng.randint(1, 3), ()))
            batched = {"batch": True, "unbatch": False}.get(name, batched)
        return cls(source, tuple(stages), rng.choice([1, 1, 2, 3]))

    def changed(self, rng):
        """Return the case with one change, and the rank whose state each rank loads."""
        changes = [self._same, self._other_rank, self._more_ranks, self._more_ranks, self._other_data, self._other_seed, self._other_source]
        if self.stages:
            changes += [self._other_parameter, self._other_parameter, self._other_settings, self._other_settings]
            changes += [self._one_less, self._other_order]
        return rng.choice(changes)(rng)

    def _same(self, rng):
        return self

    def _other_rank(self, rng):
        return self

    def _more_ranks(self, rng):
        return replace(self, world_size=rng.choice([n for n in (1, 2, 3, 4) if n != self.world_size]))

    def _other_data(self, rng):
        return replace(self, source=replace(self.source, total=self.source.total + rng.choice([-1, 1])))

    def _other_seed(self, rng):
        return replace(self, seed=2)

    def _other_source(self, rng):
        source = self.source
        return replace(self, source=rng.choice([replace(source, shuffle=not source.shuffle), replace(source, batch_size=4)]))

    def _other_parameter(self, rng):
        place, (kind, number, settings) = self._one(rng)
        return self._with(place, (kind, number % 3 + 1, settings))

    def _other_settings(self, rng):
        place, (kind, number, _) = self._one(rng)
        settings = [("buffer_size", 5)]
        if kind in ("plus", "noise", "unordered"):
            settings = rng.choice([[("num_workers", 4)], [("ordered", kind == "unordered")], settings])
        return self._with(place, (kind, number, tuple(settings)))

    def _one_less(self, rng):
        place, _ = self._one(rng)
        return replace(self, stages=self.stages[:place] + self.stages[place + 1 :])

    def _other_order(self, rng):
        return replace(self, stages=self.stages[::-1])

    def _one(self, rng):
        place = rng.randrange(len(self.stages))
        return place, self.stages[place]

    def _with(self, place, stage):
        return replace(self, stages=(*self.stages[:place], stage, *self.stages[place + 1 :]))


def loops(pipeline):
    """Return what each loop over the pipeline gives, until there is no other epoch."""
    found = []
    try:
        while True:
            found.append([numbers(item) for item in pipeline])
            if not pipeline.numbers_epochs:
                return found
    except EndOfStream:
        return found


def begin(case, rank, count):
    """Take ``count`` items, or as many as there are; return them by epoch, the state, and the rest."""
    taken, state = [[]], None
    with case.build(rank) as pipeline:
        if count == 0:
            return taken, saved(pipeline), loops(pipeline)
        left = count
        try:
            while left:
                epoch = iter(pipeline)
                for item in epoch:
                    taken[-1].append(numbers(item))
                    left -= 1
                    if not left:
                        state = saved(pipeline)
                        rest = [[numbers(item) for item in epoch]]
                        return taken, state, rest + (loops(pipeline) if pipeline.numbers_epochs else [])
                taken.append([])
                if not pipeline.numbers_epochs:
                    break
        except EndOfStream:
            pass
        return taken, saved(pipeline), []


def saved(pipeline):
    return json.loads(json.dumps(pipeline.state_dict()))


def resumed(case, rank, state):
    with case.build(rank) as pipeline:
        pipeline.load_state_dict(state)
        try:
            return loops(pipeline)
        except PipelineError as error:
            raise AssertionError("it was refused late") from error


def saved_again(case, rank, state):
    """Load a state, and save it before the first item, as a run does that is ended right after it was resumed."""
    with case.build(rank) as pipeline:
        pipeline.load_state_dict(state)
        return saved(pipeline)


def as_sets(epochs):
    return [Counter(map(tuple, items)) for items in epochs]


def check(number):
    """Run a case; return how it ended."""
    rng = Random(number)
    case = Case.random(rng)
    try:
        pipelines = [case.build(rank) for rank in range(case.world_size)]
    except PipelineError:  # the random stages do not fit together
        return "no pipeline"
    for pipeline in pipelines:
        pipeline.stop()
    count = rng.choice([0, 1, 2, 3, 5, 8, 13])
    try:
        runs = [begin(case, rank, count) for rank in range(case.world_size)]
    except PipelineError as error:
        assert str(error).startswith("state_dict: "), error
        return "no state"
    change = case.changed(rng)
    turned = rng.random() < 0.5 and change is case and case.world_size > 1
    states = [runs[(rank + turned) % case.world_size][1] for rank in range(change.world_size)]
    sizes = {case.world_size, change.world_size}
    try:
        if rng.random() < 0.3:
            between = replace(change, world_size=rng.choice([change.world_size, 2, 5]))
            sizes.add(between.world_size)
            states = [saved_again(between, rank, states[rank % len(states)]) for rank in range(between.world_size)]
            states = [states[rank % len(states)] for rank in range(change.world_size)]
        rests = [resumed(change, rank, state) for rank, state in enumerate(states)]
    except PipelineError as error:
        assert str(error).startswith("load_state_dict: "), error
        assert change != case or turned or len(sizes) > 1, f"refused without a change: {error}"
        return "refused"
    if len(sizes) == 1 or not case.source.is_shared or count == 0:
        expected = [runs[rank % case.world_size][2] for rank in range(change.world_size)]
        if count == 0:  # it begins
            expected = [begin(change, rank, 0)[2] for rank in range(change.world_size)]
        unordered = any(kind == "unordered" for kind, *_ in case.stages)
        assert list(map(as_sets, rests)) == list(map(as_sets, expected)) if unordered else rests == expected, (case, change)
        return "exact"
    assert len({tuple(map(len, rest)) for rest in rests}) == 1, "ranks have different counts"
    epoch = len([items for items in runs[0][0] if items]) - 1 if count else 0
    read = [number for taken, *_ in runs for item in (taken[max(epoch, 0)] if count else ()) for number in item]
    rest = [number for found in rests for item in (found[0] if found else ()) for number in item]
    times = Counter(number % APART for number in [*read, *rest])
    assert set(times) == set(range(case.source.total)), (case, change)
    most = case.source.total + 4 * sum(sizes)
    assert sum(times.values()) <= most, (case, change)
    return "dealt"


def test_a_state_after_a_change_is_refused_or_exact(first):
    ends = Counter(check(number) for number in range(first, first + AT_ONCE))
    assert ends["refused"] > 0 and ends["exact"] > 0


def test_the_cases_reach_every_end():
    missing = {"refused", "exact", "dealt"}
    for number in range(60):
        missing.discard(check(number))
        if not missing:
            return
    raise AssertionError(f"none of 60 cases ends so: {missing}")
