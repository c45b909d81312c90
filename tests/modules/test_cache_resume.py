"""States of pipelines with a cache that lacks samples: each resumes exactly, or is refused."""

import json
import shutil

import numpy as np
import pytest

from highway import Pipeline, Stage
from highway.engine.stage import DROP
from highway.errors import PipelineError
from highway.modules import Batch, Cache, Reader, Repeat, Shuffle


class Samples:
    """40 arrays, of which three cannot be read."""

    def __len__(self):
        return 40

    def __getitem__(self, number):
        if number in (3, 17, 30):
            raise OSError(f"sample {number} cannot be read")
        return (np.array([number]),)

    def fingerprint(self):
        return "40 samples"


def doubled(item):
    return (item[0] * 2,)


def plain(stamped):
    (values,), passport = stamped
    return values.reshape(-1).tolist(), passport.epoch, passport.index


def build(path, batch_size, budget=None):
    reader = Stage(Reader(Samples(), batch_size, 4, rank=1, world_size=2), on_error="skip")
    return Pipeline([reader, doubled, Cache(path, budget=budget, batched=batch_size is not None)], seed=3)


def rest_from(state, *args, **kwargs):
    with build(*args, **kwargs) as pipeline:
        pipeline.load_state_dict(json.loads(json.dumps(state)))
        return list(map(plain, pipeline.stamped()))


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize(("first_cut", "meanwhile"), list(enumerate(["left", "finished", "lost", "memory", "full"], 1)))
def test_a_state_of_any_epoch_resumes_exactly_though_samples_are_left_out(batch_size, first_cut, meanwhile, tmp_path):
    budget = 1 if meanwhile == "full" else None
    with build(None, batch_size) as pipeline:
        expected = list(map(plain, pipeline.stamped()))
    for cut in range(first_cut, len(expected), 11 if batch_size is None else 4):  # two in each epoch
        path = None if meanwhile in ("memory", "full") else str(tmp_path / str(cut))
        with build(path, batch_size, budget) as pipeline:
            stamped = pipeline.stamped()
            taken = [plain(next(stamped)) for _ in range(cut)]
            state = pipeline.state_dict()
            if meanwhile == "finished":  # the run goes on after the state was saved
                list(stamped)
        if meanwhile == "lost":
            shutil.rmtree(path, ignore_errors=True)
        assert taken == expected[:cut]
        assert rest_from(state, path, batch_size, budget) == expected[cut:], f"after {cut} of {len(expected)} items"


BEFORE = {
    "a stream": [Shuffle(10)],
    "batches of samples": [Batch(4)],
    "a map that skips": [Stage(doubled, on_error="skip")],
    "a map that draws": [lambda item, rng: (item[0] + rng.integers(9),)],
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_a_run_that_makes_a_cache_on_disk_gives_no_state_if_what_it_serves_may_differ_from_what_it_reads(before, tmp_path):
    def build():
        reader = Stage(Reader(Samples(), epochs=4), on_error="skip")
        return Pipeline([reader, *before, Cache(str(tmp_path / "c"), key="k", batched=False)], seed=3)

    with build() as pipeline:
        for _ in pipeline.stamped():
            with pytest.raises(PipelineError) as caught:
                pipeline.state_dict()
            assert str(caught.value).startswith(
                f"state_dict: cache {tmp_path / 'c'} is still being filled, and after a resume, on_error='skip'"
            )
            assert "Call state_dict() in a run that begins with the complete cache, or remove on_error='skip' or path=" in str(caught.value)
    with build() as pipeline:
        expected = list(map(plain, pipeline.stamped()))
    for cut in (1, 5, 12, 20, 30):
        with build() as pipeline:
            stamped = pipeline.stamped()
            assert [plain(next(stamped)) for _ in range(cut)] == expected[:cut]
            state = pipeline.state_dict()
        with build() as pipeline:
            pipeline.load_state_dict(state)
            assert list(map(plain, pipeline.stamped())) == expected[cut:]


class Letters:
    """A source without a state."""

    def __iter__(self):
        return iter("highway" * 20)


def test_a_finished_cache_gives_a_state_though_the_source_has_none(tmp_path):
    def build():
        return Pipeline([Letters(), Cache(str(tmp_path), key="k", epochs=3)], seed=3)

    def items(pipeline):
        return [stamped.item for stamped in pipeline.stamped()]

    with build() as pipeline:
        pipeline.dequeue()
        with pytest.raises(PipelineError, match="state_dict: Letters does not report its position"):
            pipeline.state_dict()
        items(pipeline)
    with build() as pipeline:
        expected = items(pipeline)
    for cut in (1, 300):
        with build() as pipeline:
            assert [pipeline.dequeue() for _ in range(cut)] == expected[:cut]
            state = pipeline.state_dict()
        with build() as pipeline:
            pipeline.load_state_dict(state)
            assert items(pipeline) == expected[cut:]


def test_a_state_of_a_cache_that_is_made_of_another_epoch_is_refused():
    def build(fails):
        class Flaky(Samples):
            failures = [3, 17] * fails

            def __getitem__(self, number):
                if number in self.failures:
                    self.failures.remove(number)
                    raise OSError("just now")
                return (np.array([number]),)

        return Pipeline([Stage(Reader(Flaky()), on_error="skip"), Shuffle(10), Cache(batched=False)], seed=3)

    state = {}
    with build(1) as pipeline:
        while "serving" not in json.dumps(state):  # until a marker of the cache has come
            pipeline.dequeue()
            state = pipeline.state_dict()
        expected = [pipeline.dequeue()[0].tolist() for _ in range(50)]
    with build(1) as pipeline:
        pipeline.load_state_dict(state)
        assert [pipeline.dequeue()[0].tolist() for _ in range(50)] == expected
    with build(0) as pipeline:
        pipeline.load_state_dict(state)
        with pytest.raises(PipelineError, match=r"had 40 samples of epoch 2 when the state was saved, but now has 40 samples of epoch 0"):
            pipeline.dequeue()


LEFT_OUT = {"batches": lambda batch: DROP if 5 in batch[0] else batch, "rows": lambda batch: (batch[0][:2],)}


@pytest.mark.parametrize("path", [None, "c"], ids=["memory", "disk"])
@pytest.mark.parametrize("leave_out", LEFT_OUT.values(), ids=LEFT_OUT)
def test_every_epoch_is_read_if_a_map_leaves_out_batches_or_rows_and_the_reader_samples(path, leave_out, tmp_path, caplog):
    def build():
        reader = Stage(Reader(Samples(), 4, 4), on_error="skip")
        return Pipeline([reader, leave_out, Cache(path and str(tmp_path / path), batched=True)], seed=3)

    with build() as pipeline:
        expected = list(map(plain, pipeline.stamped()))
    assert {epoch for _, epoch, _ in expected} == set(range(4)) and len({tuple(rows) for rows, *_ in expected}) == len(expected)
    assert "a map skips batches or rows, and the reader skips samples. highway discards" in caplog.text
    for cut in range(1, len(expected), 4):
        with build() as pipeline:
            list(zip(range(cut), pipeline.stamped(), strict=False))
            state = pipeline.state_dict()
        with build() as pipeline:
            pipeline.load_state_dict(state)
            assert list(map(plain, pipeline.stamped())) == expected[cut:]


SIZES = {
    "shuffled batches": [Reader(range(20), 3, 3), Shuffle(5)],
    "a map that drops batches": [Reader(range(20), 3, 3), lambda batch: DROP if batch[0] % 3 == 0 else batch],
    "a list of batches": [Repeat([np.arange(4), np.arange(2), np.arange(3)], 3)],
}


@pytest.mark.parametrize("before", SIZES.values(), ids=SIZES)
def test_the_first_epoch_has_the_same_items_and_random_numbers_if_it_is_read_or_served(before, tmp_path):
    def items():
        stages = [*before, Cache(str(tmp_path / "c"), epochs=3, batched=True, key="k"), lambda batch, rng: (batch, rng.random())]
        with Pipeline(stages, seed=3) as pipeline:
            return [(batch.tolist(), drawn, *passport[:2]) for (batch, drawn), passport in pipeline.stamped()]

    read = items()
    assert items() == read
