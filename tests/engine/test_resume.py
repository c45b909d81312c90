"""The rest of a run after ``load_state_dict()`` is what it would have been, bit for bit."""

import copy
import gc
import json
import logging
import math
import operator
import queue
import shutil
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pairwise import pairwise
from waiting import wait_until

from highway import DROP, Context, EndOfStream, Lineage, Passport, Pipeline, Stage, Stamped, Traits
from highway.datasets import ImageFolder, MixedDataset
from highway.datasets.shards import shard_writer
from highway.datasets.tar_stream import read_members
from highway.engine import NotNowError, Position, Stateless, resume
from highway.engine.component import not_now
from highway.engine.context import here
from highway.engine.resume import MARK_EVERY, MarkerClock
from highway.errors import PipelineError
from highway.modules import (
    Augmentations,
    Batch,
    BatchByShape,
    Bucket,
    Cache,
    Concat,
    ConcatThenSplit,
    DecodeBatch,
    Duplicate,
    EncodedImageReader,
    FixedEpochs,
    FromQueue,
    Identity,
    ImageFileReader,
    Mix,
    Pack,
    Processes,
    Reader,
    Repeat,
    Shuffle,
    Take,
    Tee,
    Unbatch,
    WebDatasetSource,
    Zip,
)
from highway.transforms import FlipX, RandomResizedCrop

CONSTANTS = {name: value for name, value in vars(resume).items() if name.startswith("MARK_")}


def plain(item):
    """What is compared: texts of the bytes of arrays, and all else as it is."""
    if isinstance(item, np.ndarray):
        return item.shape, item.dtype.str, item.tobytes()
    return tuple(map(plain, item)) if isinstance(item, (tuple, list)) else item


@pytest.fixture(scope="module", autouse=True)
def _many_markers():
    """So that small sources send several, however quick they are, and however long a stage takes over one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("highway.engine.resume.MARK_EVERY", 4)
        patch.setattr("highway.engine.resume.MARK_APART", 0.0)
        patch.setattr("highway.engine.resume.MARK_SHARE", math.inf)
        yield


class SomeBad(list):
    """A dataset with samples that cannot be read."""

    def __getitem__(self, number):
        return fails(super().__getitem__(number))


class Sequences(list):
    """A dataset of arrays of different lengths."""

    def __getitem__(self, number):
        return np.full(1 + number % 5, number), number


class Arrays(Sequences):
    """The same without numbers."""

    def __getitem__(self, number):
        return super().__getitem__(number)[:1]


def first_field(sample):
    return sample[0]


def noise(item, rng):
    return item + rng.random()


def double(item):
    return 2 * item


def ragged(number, rng):
    return np.full(1 + number % 3, rng.random())


def some(item, rng):
    return item if rng.random() < 0.7 else DROP


def fails(number):
    if number % 7 == 3:
        raise ValueError("a bad one")
    return number


def fails_at_noise(item):
    return fails(int(item)) + item % 1


class Plus:
    def __init__(self, number):
        self.number = number

    def __call__(self, item):
        return item + self.number


def state_after(build, count):
    """Take some items; return the state, by way of JSON."""
    with build() as pipeline:
        taken = [plain(pipeline.dequeue()) for _ in range(count)]
        return taken, json.loads(json.dumps(pipeline.state_dict()))


def rest_from(build, state):
    with build() as pipeline:
        pipeline.load_state_dict(state)
        return [plain(item) for item, _ in pipeline.stamped()]


def whole(build):
    with build() as pipeline:
        return [(plain(item), passport._replace(times=(), made_of=None)) for item, passport in pipeline.stamped()]


def check(build, cuts):
    expected = [item for item, _ in whole(build)]
    for cut in sorted({int(share * len(expected)) for share in cuts}):
        taken, state = state_after(build, cut)
        assert taken == expected[:cut]
        assert rest_from(build, state) == expected[cut:], f"cut after {cut} of {len(expected)}"


THREE = Stage(noise, num_workers=3)
PIPELINES = {
    "list": lambda: [list(range(90)), THREE],
    "samples": lambda: [Reader(range(60), epochs=2), THREE, Batch(7)],
    "batches": lambda: [Reader(range(180), 4, epochs=2, num_workers=3), THREE],
    "shuffle": lambda: [Reader(range(80), epochs=2), THREE, Shuffle(30), noise, Batch(7, drop_last=True)],
    "shuffle twice": lambda: [Reader(range(80), epochs=2), Shuffle(30, reuse=2), noise, Shuffle(9), Duplicate(2), noise],
    "unbatch": lambda: [Reader(range(80), 8, epochs=2), Unbatch(), THREE, Shuffle(20), Batch(3), Shuffle(4), Unbatch(), Batch(5)],
    "by shape": lambda: [Reader(range(60), epochs=2), Stage(ragged, num_workers=2), BatchByShape(4), Shuffle(3)],
    "dropped": lambda: [Reader(range(60), epochs=2), Stage(some, num_workers=3), Shuffle(20), some, Batch(4)],
    "skipped": lambda: [Reader(range(60), epochs=2), Stage(fails, num_workers=2, on_error="skip"), Shuffle(20), Batch(4)],
    "bad samples": lambda: [Stage(Reader(SomeBad(range(90)), 4, epochs=3), on_error="skip"), Unbatch(), Shuffle(20), Batch(3)],
    "bad samples of one of two": lambda: [Mix([Stage(Reader(SomeBad(range(90)), epochs=2), on_error="skip"), range(60)]), Shuffle(9)],
    "passes that a stream ends": lambda: [Mix([Reader(range(40))]), Take(50), THREE, Repeat(times=3), Batch(2)],
    "copies of a map": lambda: [Reader(range(60), epochs=2), Stage(Plus(1), num_workers=3, per_worker=True), Shuffle(9)],
    "pipelines of pipelines": lambda: [
        Pipeline([Pipeline([Reader(range(60), 4, epochs=2), Unbatch(), Shuffle(9)]), noise, Batch(3)]),
        Unbatch(),
        Shuffle(5),
    ],
    "padded": lambda: [Reader(range(60), epochs=2), Stage(ragged, num_workers=2), Batch(7, ragged="pad", multiple=2), Shuffle(3)],
    "offsets": lambda: [Reader(range(60), epochs=2), Stage(ragged, num_workers=2), Batch(7, ragged="offsets"), Shuffle(3)],
    "padded by the reader": lambda: [Reader(Sequences(range(120)), 7, epochs=2, ragged="pad", fields=[0]), Shuffle(3)],
    "bucket": lambda: [Reader(range(60), epochs=2), Stage(ragged, num_workers=2), Bucket([2, 3], [5, 4, 3]), Shuffle(4)],
    "packed": lambda: [Reader(Sequences(range(150)), epochs=2), first_field, Pack(16, bins=3), Shuffle(4), Batch(2)],
    "packed batches": lambda: [
        Reader(Sequences(range(150)), 7, epochs=2, ragged="offsets", fields=[0]),
        lambda batch: (batch[0], batch[2]),
        Pack(16, bins=3, batched=True),
        Shuffle(4),
        Batch(2),
    ],
    "split": lambda: [Reader(Sequences(range(100)), epochs=2), first_field, ConcatThenSplit(4), Shuffle(9)],
    "split batches": lambda: [
        Reader(Arrays(range(100)), 7, epochs=2, ragged="list", fields=[0]),
        ConcatThenSplit(4, batched=True),
        Shuffle(9),
    ],
    "mixed datasets": lambda: [
        Reader(MixedDataset([range(20), range(45)], weights={0: [1, 1], 25: [3, 1]}, stop="restart"), epochs=3),
        THREE,
        Shuffle(9),
    ],
    "take": lambda: [Reader(range(40)), Tee(id), Take(133), Batch(2)],
    "repeat": lambda: [Repeat(list(range(50)), 3), noise, Shuffle(10), Batch(4)],
    "repeat in the middle": lambda: [range(50), noise, Batch(3), Shuffle(5), Repeat(times=3), Batch(1)],
    "repeat a pipeline": lambda: [Repeat(Pipeline([range(50), noise, Batch(2), Shuffle(4)]), 3), Shuffle(10)],
    "mix": lambda: [Mix([range(80), Reader(range(60), epochs=2), Pipeline([range(40), noise])], seed=3), noise, Shuffle(20), Batch(5)],
    "mix by size": lambda: [Mix([range(80), range(40)], by_size=True), Batch(3)],
    "zip": lambda: [Zip([range(20), Repeat(Reader(range(20), epochs=1), 4)]), Shuffle(7), Batch(5)],
    "concat": lambda: [Concat([range(60), Reader(range(80), epochs=1), range(3)]), Shuffle(8), Batch(9)],
    "a pipeline": lambda: [Pipeline([Reader(range(60), 4, epochs=2), Unbatch(), noise]), Shuffle(30), Batch(3)],
    "images": lambda: [
        ImageFileReader("highway:photos/val", 5, crop=RandomResizedCrop((16, 16)), flip=0.5, epochs=5, num_workers=2),
        Augmentations([FlipX(p=0.5)]),
        Shuffle(4),
    ],
    "encoded": lambda: [EncodedImageReader("highway:photos/val", 5, epochs=8), DecodeBatch(crop=RandomResizedCrop((16, 16))), Shuffle(6)],
}


@pytest.mark.parametrize("stages", PIPELINES.values(), ids=PIPELINES)
def test_the_rest_is_the_same(stages):
    check(lambda: Pipeline(stages(), seed=5), [0.21, 0.501, 1])


@pytest.mark.slow
@pytest.mark.parametrize("stages", PIPELINES.values(), ids=PIPELINES)
def test_so_it_is_after_a_second_time(stages):
    def build():
        return Pipeline(stages(), seed=5)

    expected = [item for item, _ in whole(build)]
    first, second, third = (int(share * len(expected)) for share in (0.3, 0.02, 0.25))
    _, state = state_after(build, first)
    for count in (0, second, third):  # at once, before another marker, and behind some
        with build() as pipeline:
            pipeline.load_state_dict(state)
            taken = [plain(pipeline.dequeue()) for _ in range(count)]
            again = json.loads(json.dumps(pipeline.state_dict()))
        assert taken == expected[first : first + count]
        assert rest_from(build, again) == expected[first + count :]


@pytest.mark.slow
def test_with_processes():
    check(lambda: Pipeline([Reader(range(60), epochs=2), Processes([operator.neg], num_processes=2), Shuffle(10), Batch(4)]), [0.7])


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Seven of 20 samples each; two in each of them are bad, and the last is cut short."""
    folder = tmp_path_factory.mktemp("shards")
    for shard in range(7):
        with shard_writer(str(folder / f"{shard}.tar")) as writer:
            for number in range(20):
                number += 20 * shard
                writer.add(f"{number:05}", {"txt": "no label"} if number % 10 == 7 else {"cls": number})
    last = folder / "6.tar"
    last.write_bytes(last.read_bytes()[:16_000])
    return str(folder / "{0..6}.tar")


def label(sample):
    return int(sample["cls"])


SHARDS = {
    "shuffled": [label, THREE, Shuffle(40), Batch(7)],
    "reused": [Shuffle(20, reuse=2), label, noise, Shuffle(12), Batch(4), Shuffle(3)],
    "bare": [label],
}


@pytest.mark.slow
@pytest.mark.parametrize("pipes", [False, True], ids=["paths", "pipes"])
@pytest.mark.parametrize("stages", SHARDS.values(), ids=SHARDS)
def test_shards_with_errors_that_are_left_out(shards, stages, pipes):
    def build():
        urls = f"pipe:cat {shards}" if pipes else shards
        return Pipeline([Stage(WebDatasetSource(urls, {"cls": "cls"}, epochs=2), on_error="skip"), *stages], seed=4)

    assert len(whole(build)) > 30
    check(build, [0, 0.3, 0.7] if pipes else [0, 0.01, 0.21, 0.499, 0.5, 0.63, 0.98, 1])


def test_samples_that_waited_are_read_in_one_pass_over_each_shard(shards, monkeypatch):
    opened = []

    def read(url):
        opened.append(url)
        return read_members(url)

    def build():
        return Pipeline([Stage(WebDatasetSource(shards, {"cls": "cls"}, epochs=1), on_error="skip"), Shuffle(100), label])

    _, state = state_after(build, 20)
    monkeypatch.setattr("highway.modules.webdataset.read_members", read)
    monkeypatch.setattr("highway.datasets.tar_samples.read_members", read)
    rest_from(build, state)
    assert len(opened) <= 7 + 7


def test_shards_that_have_changed_are_another_pipeline(tmp_path):
    def build():
        return Pipeline([WebDatasetSource(str(tmp_path / "a.tar")), label, Batch(3)])

    def write(count):
        with shard_writer(str(tmp_path / "a.tar")) as writer:
            for number in range(count):
                writer.add(f"{number:05}", {"cls": number})

    write(10)
    _, state = state_after(build, 20)
    (tmp_path / "a.tar").unlink()
    write(9)
    with build() as pipeline, pytest.raises(PipelineError, match="WebDatasetSource had other parameters or other data"):
        pipeline.load_state_dict(state)


SOURCES = st.sampled_from(
    [
        lambda: Reader(range(92), epochs=2),
        lambda: Reader(range(160), 3, epochs=2, drop_last=True),
        lambda: Repeat(range(60), 2),
        lambda: Mix([range(60), Reader(range(48), epochs=2)]),
        lambda: list(range(120)),
    ]
)
STAGES = st.lists(
    st.sampled_from(
        [
            lambda: noise,
            lambda: Stage(noise, num_workers=3),
            lambda: Stage(some, num_workers=2),
            lambda: Shuffle(17),
            lambda: Shuffle(3, reuse=2),
            lambda: Duplicate(2),
            lambda: Batch(4, as_list=True),
            lambda: BatchByShape(3),
            lambda: Take(56),
            lambda: Tee(id),
        ]
    ),
    max_size=5,
)


def total(item):
    """Make a number of whatever a batch holds, so that any stage can stand behind any other."""
    return float(np.sum(item))


@settings(max_examples=25, deadline=None)
@given(SOURCES, STAGES, st.floats(0, 1), st.floats(0, 1))
def test_random_pipelines(source, stages, cut, again):
    def build():
        return Pipeline([source(), *(part for make in stages for part in (make(), total))], seed=1)

    expected = [item for item, _ in whole(build)]
    first = int(cut * len(expected))
    _, state = state_after(build, first)
    with build() as pipeline:
        pipeline.load_state_dict(state)
        second = int(again * (len(expected) - first))
        assert [plain(pipeline.dequeue()) for _ in range(second)] == expected[first : first + second]
        state = json.loads(json.dumps(pipeline.state_dict()))
    assert rest_from(build, state) == expected[first + second :]


def test_passports_are_the_same_too():
    def build():
        return Pipeline([ImageFolderReader(), Shuffle(6), Batch(2)], seed=2)

    def ImageFolderReader():
        return Reader(ImageFolder("highway:photos/val"), epochs=3)

    expected = [passport.sent() for _, passport in whole(build)]
    _, state = state_after(build, 21)
    with build() as pipeline:
        pipeline.load_state_dict(state)
        assert [passport.sent()._replace(times=()) for _, passport in pipeline.stamped()] == expected[21:]


def slow_at_times(number, rng):
    time.sleep(0.002 * rng.integers(2))  # work, so that items overtake each other
    return 2 * number


@pytest.mark.parametrize("behind", [[], [double], [Shuffle(9)]])
def test_without_an_order_the_rest_is_the_same_as_a_set(behind):
    def build():
        return Pipeline([Reader(range(400), epochs=1), Stage(slow_at_times, num_workers=4, ordered=False), *behind])

    expected = sorted(number for number, _ in whole(build))
    for cut in (0, 5, 130, 333):
        taken, state = state_after(build, cut)
        with build() as pipeline:
            pipeline.load_state_dict(state)
            more = [pipeline.dequeue() for _ in range(30)]
            state = json.loads(json.dumps(pipeline.state_dict()))
        assert sorted(taken + more + rest_from(build, state)) == expected


@pytest.mark.parametrize("stream", [Batch(4), Duplicate(2), Take(300)])
def test_without_an_order_what_hangs_on_one_is_refused(stream):
    with Pipeline([Reader(range(400)), Stage(double, num_workers=2, ordered=False), stream]) as pipeline:
        pipeline.dequeue()
        with pytest.raises(
            PipelineError,
            match=rf"double does not keep the order \(ordered=False\), but the items of {type(stream).__name__} depend on the order",
        ):
            pipeline.state_dict()


# --- caches ---


def image(number):
    return {"image": np.full((2, 3), number), "label": number}


def mean(sample, rng):
    return np.mean(sample["image"]) + sample["label"] + rng.random()


def means(batch, rng):
    return np.mean(batch["image"], axis=(1, 2)) + batch["label"] + rng.random()


def drawn(number, rng):
    return number + float(rng.integers(1000))


NUMBERS = Reader(range(86), epochs=4)
CACHES = {
    "samples": lambda path, **how: [NUMBERS, drawn, image, Cache(path, batched=False, **how), mean],
    "of a list": lambda path, **how: [range(86), image, Cache(path, epochs=4, batched=False, key="a", **how), mean],
    "of a pipeline": lambda path, **how: [Pipeline([NUMBERS, Batch(3)]), Cache(path, key="1", batched=True, epochs=4, **how), total],
    "shuffled": lambda path, **how: [NUMBERS, image, Cache(path, batched=False, **how), mean, Shuffle(20), THREE, Batch(4), Shuffle(3)],
    "made batches": lambda path, **how: [NUMBERS, image, Cache(path, batch_size=5, **how), means, Shuffle(5), Unbatch(), Batch(3)],
    "of batches": lambda path, **how: [NUMBERS, drawn, image, Batch(4), Cache(path, **how), means, Shuffle(5), Unbatch(), Shuffle(9)],
    "of lists": lambda path, **how: [Reader(range(160), 3, epochs=2), Cache(path, stack=False, **how), total, Shuffle(5)],
}
CUTS = [0.1, 0.249, 0.63]
HOW_KEPT = ["memory", "disk", "disk made anew", "full"]


@pytest.fixture(params=HOW_KEPT)
def kept(request, tmp_path):
    """How a cache is kept in the next run: in memory, in the folder where it was, in one that was lost meanwhile, or not at all."""
    how = {"budget": 1000} if request.param == "full" else {}

    def cached(stages):
        def build():
            if request.param == "disk made anew":
                shutil.rmtree(tmp_path / "cache", ignore_errors=True)
            return Pipeline(stages(str(tmp_path / "cache") if "disk" in request.param else None, **how), seed=5)

        return build

    return cached


@pytest.mark.parametrize(("stages", "kept", "share"), pairwise(list(CACHES), HOW_KEPT, CUTS), indirect=["kept"])
def test_caches(stages, kept, share):
    build = kept(CACHES[stages])
    expected = [item for item, _ in whole(build)]
    cut = int(share * len(expected))
    taken, state = state_after(build, cut)
    assert taken == expected[:cut]
    with build() as pipeline:
        pipeline.load_state_dict(state)
        again = [plain(pipeline.dequeue()) for _ in range(min(15, len(expected) - cut))]
        assert again == expected[cut : cut + 15], f"cut after {cut} of {len(expected)}"
        second = json.loads(json.dumps(pipeline.state_dict()))
    assert rest_from(build, second) == expected[cut + 15 :], f"cut after {cut} of {len(expected)}, and again"


def test_a_cache_that_is_finished_goes_on_at_once_and_one_in_memory_is_filled_first(tmp_path):
    made = []

    def note(number):
        made.append(number)
        return number

    for path, count in ((str(tmp_path / "cache"), 0), (None, 86)):

        def build(path=path):
            return Pipeline([NUMBERS, note, image, Cache(path, key="1", batched=False), mean, Shuffle(30)], seed=5)

        expected = [item for item, _ in whole(build)]
        _, state = state_after(build, 200)
        assert len(json.dumps(state)) < 5000
        made.clear()
        assert rest_from(build, state) == expected[200:]
        assert count <= len(made) <= count + 150  # which were on their way


@pytest.mark.slow
def test_loops_over_a_cache(kept):
    build = kept(CACHES["shuffled"])
    with build() as pipeline:
        expected = loops(pipeline)
    assert len(expected) == 4
    for count in range(5):
        with build() as pipeline:
            for _ in range(count):
                list(pipeline)
            state = json.loads(json.dumps(pipeline.state_dict()))
        with build() as pipeline:
            pipeline.load_state_dict(state)
            assert loops(pipeline) == expected[count:]


def of_shards(shards, path, **how):
    source = Stage(WebDatasetSource(shards, {"cls": "cls"}, epochs=4), on_error="skip")
    return Pipeline([source, Shuffle(20), label, image, Cache(path, batched=False, **how), mean, Shuffle(30)], seed=5)


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"budget": 1000}], ids=["memory", "full"])
def test_a_cache_of_shards_of_which_some_is_left_out(shards, how):
    def build():
        return of_shards(shards, None, **how)

    expected = [item for item, _ in whole(build)]
    for cut in (0, 33, 190, 315, 410):  # of which two in epochs that pass, since what was left out is tried twice
        _, state = state_after(build, cut)
        assert rest_from(build, state) == expected[cut:]


def test_a_cache_on_disk_of_shards_of_which_some_may_be_left_out_gives_no_state_in_the_run_that_makes_it(shards, tmp_path):
    with of_shards(shards, str(tmp_path / "cache")) as pipeline:
        for _ in range(300):
            pipeline.dequeue()
            with pytest.raises(PipelineError, match=r"is still being filled, .*on_error="):
                pipeline.state_dict()
        assert pipeline.epoch == 2
    with of_shards(shards, str(tmp_path / "cache")) as pipeline:
        pipeline.dequeue()
        assert pipeline.state_dict()["stages"]


def test_a_cache_that_served_and_does_not_fit_any_more_is_an_error():
    def build(budget=None):
        return Pipeline([NUMBERS, image, Cache(budget=budget, batched=False), mean])

    _, state = state_after(build, 160)
    with build(1000) as pipeline:
        pipeline.load_state_dict(state, allow_changed=["Cache"])
        with pytest.raises(PipelineError, match="cache in memory is not complete, and cannot serve epoch 1: the samples do not fit"):
            pipeline.dequeue()


@pytest.mark.parametrize("around", [lambda source: source, lambda source: Mix([source])])
def test_what_a_cache_of_another_pipeline_has_made_is_refused_when_the_state_is_saved(around):
    def build():
        return Pipeline([around(Pipeline([NUMBERS, image, Cache(batched=False), mean])), Shuffle(50)])

    with pytest.raises(PipelineError, match=r"Shuffle holds items of .* how to make them again\. .* with a Cache, move the"):
        state_after(build, 280)


@pytest.mark.parametrize("around", [lambda source: source, lambda source: Mix([source])])
def test_windows_over_epochs_of_another_pipeline_resume(around):
    def build():
        windows = Pipeline([Reader(range(300), 2, epochs=2), drawn, FixedEpochs(70), Unbatch()])
        return Pipeline([around(windows), drawn, Shuffle(30)], seed=2)

    check(build, [0.3, 0.6, 0.8])


# --- loops ---


def reader():
    return Pipeline([Reader(range(250), epochs=3), Batch(4)])


def loops(pipeline):
    found = []
    while True:
        try:
            found.append([plain(item) for item in pipeline])
        except EOFError:
            return found


@pytest.mark.parametrize("count", [1, 40, 62, 63])
def test_the_first_loop_is_the_rest_of_the_epoch(count):
    with reader() as pipeline:
        expected = loops(pipeline)
    with reader() as pipeline:
        for _, item in zip(range(count), iter(loop := iter(pipeline)), strict=False):
            assert item is not None
        state = pipeline.state_dict()
        del loop
    with reader() as pipeline:
        pipeline.load_state_dict(state)
        assert loops(pipeline) == [expected[0][count:], *expected[1:]]


def test_between_two_loops_the_first_is_a_whole_epoch():
    with reader() as pipeline:
        expected = loops(pipeline)
    with reader() as pipeline:
        list(pipeline)
        state = pipeline.state_dict()
        assert pipeline.epoch == state["epoch"] == 1
    with reader() as pipeline:
        pipeline.load_state_dict(state)
        assert pipeline.epoch == 1
        assert loops(pipeline) == expected[1:]


def test_after_a_loop_that_was_left_the_next_epoch_comes():
    with reader() as pipeline:
        expected = loops(pipeline)
    with reader() as pipeline:
        for number, _ in enumerate(pipeline):
            if number == 40:
                break
        state = pipeline.state_dict()
        following = next(iter(pipeline))
    assert plain(following) == expected[1][0]
    with reader() as pipeline:
        pipeline.load_state_dict(state)
        assert loops(pipeline) == expected[1:]


@pytest.mark.parametrize("leave", [False, True])
def test_a_state_behind_the_last_item_of_an_epoch_loses_and_doubles_nothing(leave):
    with reader() as pipeline:
        expected = loops(pipeline)
    with reader() as pipeline:
        for number, _ in enumerate(loop := iter(pipeline), 1):
            if number == len(expected[0]):
                break
        if leave:
            loop.close()
        state = pipeline.state_dict()
    with reader() as pipeline:
        pipeline.load_state_dict(state)
        assert loops(pipeline) == (expected[1:] if leave else [[], *expected[1:]])


def test_epochs_behind_that_of_the_state_are_whole():
    _, state = state_after(reader, 10)
    with reader() as pipeline:
        pipeline.load_state_dict(state)
        assert [len(epoch) for epoch in loops(pipeline)] == [53, 63, 63]


def test_what_is_on_its_way_is_not_lost():
    made, enough = [], threading.Event()

    def note(number):
        made.append(number)
        if len(made) == 200:
            enough.set()
        return number

    def build():
        return Pipeline([Reader(range(250), epochs=1), note, Stage(Batch(4), buffer_size=100)])

    with build() as pipeline:
        pipeline.dequeue()
        assert enough.wait(60)
        state = pipeline.state_dict()
        expected = [plain(item) for item, _ in pipeline.stamped()]
    assert rest_from(build, state) == expected


def test_threads_that_take_items_leave_a_state_between_two():
    def build():
        return Pipeline([Reader(range(600), epochs=1)])

    switch, taken = sys.getswitchinterval(), []
    sys.setswitchinterval(1e-6)
    try:
        with build() as pipeline:

            def take():
                for _ in range(100):
                    taken.append(pipeline.dequeue())
                    json.dumps(pipeline.state_dict())

            threads = [threading.Thread(target=take) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            state = pipeline.state_dict()
    finally:
        sys.setswitchinterval(switch)
    assert sorted(taken + rest_from(build, state)) == list(range(600))


def test_who_waits_behind_another_thread_waits_no_longer_than_asked():
    with Pipeline([FromQueue(queue.Queue())]) as pipeline:
        other = threading.Thread(target=lambda: list(pipeline))
        other.start()
        wait_until(lambda: pipeline.stats().waited > 0)
        for block in (False, True):
            with pytest.raises(TimeoutError):
                pipeline.dequeue(block, timeout=0.05)
        pipeline.stop()
        other.join(30)
        assert not other.is_alive()


def test_after_the_last_item_there_is_nothing():
    with reader() as pipeline:
        count = sum(len(epoch) for epoch in loops(pipeline))
    _, state = state_after(reader, count)
    assert rest_from(reader, state) == []


def test_after_the_last_loop_the_next_epoch_is_one_that_there_is_not():
    with reader() as pipeline:
        found = len(loops(pipeline))
        assert pipeline.epoch == found
        state = pipeline.state_dict()
    with reader() as pipeline:
        pipeline.load_state_dict(state)
        assert pipeline.epoch == found
        assert loops(pipeline) == []


# --- ranks ---


def shared(rank, world_size, batch_size=4, stages=(), total=100, **settings):
    return Pipeline([Reader(range(total), batch_size, epochs=2, rank=rank, world_size=world_size, **settings), *stages], seed=4)


def numbers(items):
    return [int(number) for item in items for number in np.atleast_1d(item)]


@pytest.mark.parametrize(("share", "batch_size"), [(0, 4), (0.1, 4), (0.5, 4), (0.5, None), (0.9, 4), (1, 4)])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3), (3, 2), (8, 3), (3, 8)])
def test_what_all_ranks_have_read_is_not_read_again_and_the_rest_is_dealt_anew(before, after, share, batch_size):
    read, states = [], []
    for rank in range(before):
        with shared(rank, before, batch_size, [Stage(double, num_workers=2)]) as pipeline:
            count = int(share * len(pipeline))
            read += numbers(pipeline.dequeue() for _ in range(count))
            states.append(json.loads(json.dumps(pipeline.state_dict())))
    for state in (states[0], states[-1]):
        rest = []
        for rank in range(after):
            with shared(rank, after, batch_size, [Stage(double, num_workers=2)]) as pipeline:
                pipeline.load_state_dict(state)
                rest.append([numbers(pipeline), numbers(pipeline)] if count > 0 and share < 1 else [[], numbers(pipeline)])
        assert len({tuple(map(len, both)) for both in rest}) == 1  # all have as many as the others
        if share < 1:
            found = read + [number for first, _ in rest for number in first]
            assert set(found) == set(range(0, 200, 2)) or count == 0
            assert len(found) < 100 + before * (batch_size or 1) + after or count == 0  # but for what evens out the ranks
        assert {number for _, second in rest for number in second} == set(range(0, 200, 2))


def test_ranks_may_change_twice_in_an_epoch():
    read, state = [], None
    for world_size in (2, 3, 1):
        states = []
        for rank in range(world_size):
            with shared(rank, world_size, total=240) as pipeline:
                if state is not None:
                    pipeline.load_state_dict(state)
                read += numbers(pipeline.dequeue() for _ in range(5)) if world_size > 1 else numbers(pipeline)
                states.append(json.loads(json.dumps(pipeline.state_dict())))
        state = states[-1]
    assert sorted(read) == list(range(240))


def test_another_rank_of_as_many_goes_on_from_the_same_state():
    with shared(0, 2) as pipeline:
        for _ in range(5):
            pipeline.dequeue()
        state = pipeline.state_dict()
    with shared(1, 2) as pipeline:
        expected = numbers(pipeline)
    with shared(1, 2) as pipeline:
        pipeline.load_state_dict(state)
        assert numbers(pipeline) == expected[20:]


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("stages", [[Shuffle(5)], [Duplicate(2)], [Unbatch()]])
def test_what_waits_of_one_rank_is_no_state_of_another(stages, world_size):
    with shared(0, 2, stages=stages, total=4000) as pipeline:
        for _ in range(450):
            pipeline.dequeue()
        state = pipeline.state_dict()
    with (
        shared(1, world_size, stages=stages, total=4000) as pipeline,
        pytest.raises(PipelineError, match="saved on rank 0 of 2, but this is"),
    ):
        pipeline.load_state_dict(state)


def test_windows_of_blocks_are_of_as_many_ranks():
    class Blocks(list):
        def blocks(self):
            return [range(start, start + 10) for start in range(0, 100, 10)]

    def build(rank, world_size):
        return Pipeline([Reader(Blocks(range(100)), 4, shuffle="blocks", epochs=2, rank=rank, world_size=world_size)])

    with build(0, 2) as pipeline:
        pipeline.dequeue()
        middle = pipeline.state_dict()
        list(pipeline)
        edge = pipeline.state_dict()
    with (
        build(0, 3) as pipeline,
        pytest.raises(PipelineError, match=r"resume on the same number of ranks, .*; start again .*allow_changed="),
    ):
        pipeline.load_state_dict(middle)
    with build(0, 3) as pipeline:
        pipeline.load_state_dict(edge)
        assert pipeline.epoch == 1 and len(numbers(pipeline)) == 34 and pipeline.epoch == 2


# --- what a state is, and what is refused ---


def test_a_state_fits_where_the_module_of_a_class_has_another_name():
    def build(module):
        numbers = type("Numbers", (), {"__len__": lambda self: 100, "__getitem__": lambda self, number: number, "__module__": module})
        return Pipeline([Reader(numbers(), epochs=1)])

    _, state = state_after(lambda: build("__main__"), 10)
    assert len(rest_from(lambda: build("train"), state)) == 90


def test_a_state_is_small_and_holds_no_pixels():
    def build():
        return Pipeline([Reader(range(100_000), 8, epochs=2), Unbatch(), Shuffle(1000), Batch(64)])

    _, state = state_after(build, 60)
    assert len(json.dumps(state)) < 100 * 1000
    _, state = state_after(lambda: Pipeline([ImageFileReader("highway:photos/val", 8, (32, 32)), Augmentations([FlipX(p=0.5)])]), 60)
    assert len(json.dumps(state)) < 1500


def test_what_waiting_samples_were_cut_from_is_made_once_and_written_down_once():
    made = []

    def note(batch):
        made.append(batch[0])
        return batch

    def build():
        once, twice = ([Batch(16), between, Unbatch(), Shuffle(100)] for between in (note, double))
        return Pipeline([Reader(range(20_000), shuffle=False, epochs=1), *once, *twice, Batch(10)])

    with build() as pipeline:
        for _ in range(220):
            pipeline.dequeue()
        state = json.loads(json.dumps(pipeline.state_dict()))
        expected = plain(pipeline.dequeue())
    assert len(json.dumps(state)) < 120_000
    made.clear()
    with build() as pipeline:
        pipeline.load_state_dict(state)
        assert plain(pipeline.dequeue()) == expected
        assert Counter(made).most_common(1)[0][1] <= 5  # each of four stages that hold what was made of it, and the run itself
        again = json.dumps(pipeline.state_dict())
    assert len(again) < 120_000


@pytest.fixture
def marker_clock(monkeypatch):
    """A clock of markers by highway's own constants, and ``now``, which is its time."""
    for name, value in CONSTANTS.items():
        monkeypatch.setattr(resume, name, value)
    time = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(resume, "time", SimpleNamespace(monotonic=lambda: time.now))
    return MarkerClock(), time


def test_a_marker_is_due_after_so_many_outputs_but_no_sooner_than_it_may_come_and_after_so_long(marker_clock):
    clock, time = marker_clock
    clock.begin(7)
    for seconds, outputs, is_due in ((0.0, 9999, False), (0.009, 9999, False), (0.011, 99, False), (0.011, 100, True), (0.251, 0, True)):
        time.now = 1000.0 + seconds
        assert clock.is_due(7 + outputs) == is_due, (seconds, outputs)


def test_markers_take_a_small_part_of_the_time(marker_clock):
    clock, time = marker_clock
    clock.spent(10)
    clock.spent(1)
    for seconds, is_due in ((0.3, False), (499.9, False), (500.1, True)):
        time.now = 1000.0 + seconds
        assert clock.is_due(1000 * MARK_EVERY) == is_due


def test_few_items_are_made_once_more(monkeypatch):
    monkeypatch.setattr("highway.engine.resume.MARK_APART", 0.0)  # so that only outputs count, not how quick they are,
    monkeypatch.setattr("highway.engine.resume.MarkerClock.spent", lambda clock, seconds: None)
    monkeypatch.setattr("highway.reading.plan.QUICK", 0.0)  # and these stay runs of 8 samples
    made = []

    def note(number):
        made.append(number)
        return number

    def build():
        return Pipeline([Reader(range(10_000), shuffle=False, epochs=1), note, Shuffle(20), Batch(5)])

    _, state = state_after(build, 1000)
    made.clear()
    assert len(rest_from(build, state)) == 1000
    assert len(made) <= 5000 + 20 + 8 * MARK_EVERY


def test_a_marker_that_has_to_wait_for_the_end_of_a_batch_comes_then(monkeypatch):
    monkeypatch.setattr("highway.reading.plan.QUICK", 0.0)  # so that runs of rows do not become longer
    with Pipeline([Reader(range(100_000), 2048, num_workers=1)]) as pipeline:  # of 64 runs of rows
        for _ in range(20):
            pipeline.dequeue()
        assert pipeline.state_dict()["items"] <= 1


@pytest.mark.slow
def test_passports_do_not_grow_without_end():
    with Pipeline([Repeat(Reader(range(100), 4)), Unbatch(), Shuffle(9), Batch(5), Unbatch(), Shuffle(7, reuse=2), Batch(3)]) as pipeline:
        counts = []
        for _ in range(3):
            for _ in range(2000):
                pipeline.dequeue()
            gc.collect()
            counts.append(len(gc.get_objects()))
        assert counts[2] < counts[0] + 10_000, counts  # what is on its way varies; a passport that stays for each sample would be 24,000
        assert len(json.dumps(pipeline.state_dict())) < 10_000


class Unknown:
    def stream(self, items):
        yield from items


def generated():
    yield from range(1000)


@pytest.mark.parametrize(
    ("stages", "name"),
    [
        ([generated], "generated"),
        ([range(1000), Unknown()], "Unknown"),
        ([Repeat(generated, 2)], "generated"),
        ([Mix([generated])], "generated"),
        ([Pipeline([generated])], "generated"),
        ([Concat([Pipeline([generated])])], "generated"),
    ],
)
def test_what_does_not_say_where_it_is_is_refused_by_name(stages, name):
    with Pipeline(stages) as pipeline:
        assert pipeline.state_dict()["items"] == 0  # before the first item nothing has a state
        for _ in range(500):
            pipeline.dequeue()
        with pytest.raises(
            PipelineError,
            match=rf"^state_dict: {name} does not report its position; declare Traits\(state=\.\.\.\) in "
            rf"this component$",
        ):
            pipeline.state_dict()


def test_a_state_after_the_end_that_is_saved_again_is_still_after_the_end():
    """Of an epoch without items only the end is known."""

    def pipeline():
        return Pipeline([Reader(list(range(6)), 3, epochs=2), Stage(lambda batch: DROP, drops=True, name="none")])

    with pipeline() as first:
        loops = []
        with pytest.raises(EndOfStream):
            while True:
                loops.append(list(first))
        state = first.state_dict()
    assert loops == [[], []]
    with pipeline() as second:
        second.load_state_dict(state)
        again = second.state_dict()
    assert again == state
    with pipeline() as third:
        third.load_state_dict(again)
        with pytest.raises(EndOfStream):
            list(third)


def test_a_sink_has_no_state():
    class Sink:
        def consume(self, items):
            for _ in items:
                pass

    with pytest.raises(PipelineError, match="Sink is a sink"):
        Pipeline([range(3), Sink()]).state_dict()


def test_a_pipeline_that_has_begun_takes_no_state():
    _, state = state_after(reader, 3)
    with reader() as pipeline:
        pipeline.dequeue()
        with pytest.raises(PipelineError, match="has begun; load the state before the first item"):
            pipeline.load_state_dict(state)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (
            lambda: Pipeline([Reader(range(250), epochs=3), Shuffle(3)]),
            "saved by Reader.*-> Batch, but .* is Reader.*-> Shuffle",
        ),
        (lambda: Pipeline([Reader(range(250), epochs=3), Batch(5)]), "load_state_dict: Batch had other parameters"),
        (lambda: Pipeline([Reader(range(251), epochs=3), Batch(4)]), "Reader had other parameters or other data"),
        (
            lambda: Pipeline([Reader(range(250), epochs=3), Batch(4)], seed=1),
            r"seed was 0 when the state was saved, and is now 1; start again .*allow_changed=\['seed'\]",
        ),
    ],
)
def test_a_state_of_another_pipeline_is_refused(build, words):
    _, state = state_after(reader, 30)
    with build() as pipeline, pytest.raises(PipelineError, match=words):
        pipeline.load_state_dict(state)


@pytest.mark.parametrize("stages", [[double], [Pipeline([Reader(range(9), 2)]), Shuffle(3)]], ids=["map", "inner pipeline"])
def test_another_seed_can_be_accepted(stages, caplog):
    def build(seed):
        source = [] if len(stages) > 1 else [Reader(range(9), 2)]
        return Pipeline([*source, *stages], seed=seed)

    _, state = state_after(lambda: build(1), 2)
    with build(2) as pipeline, pytest.raises(PipelineError, match="seed was 1"):
        pipeline.load_state_dict(state)
    with build(2) as pipeline, caplog.at_level(logging.WARNING):
        pipeline.load_state_dict(state, allow_changed=["seed"])
        assert not pipeline.epoch
    assert "seed was 1 when the state was saved, and is now 2; accepted by allow_changed" in caplog.text


def test_an_inner_pipeline_with_another_seed_is_refused():
    _, state = state_after(lambda: Pipeline([Pipeline([Reader(range(9))], seed=1)]), 2)
    with Pipeline([Pipeline([Reader(range(9))], seed=2)]) as pipeline, pytest.raises(PipelineError, match="Pipeline had other parameters"):
        pipeline.load_state_dict(state)


def test_identity_takes_the_place_of_a_map_that_is_gone(caplog):
    _, state = state_after(lambda: Pipeline([Reader(range(9), shuffle=False, epochs=1), Stage(double, name="twice")]), 4)
    refusal = r"saved by Reader.* -> twice, but .* -> Tee; .*Identity\(\), name=.*allow_changed"
    with Pipeline([Reader(range(9), shuffle=False, epochs=1), Tee(id)]) as pipeline, pytest.raises(PipelineError, match=refusal):
        pipeline.load_state_dict(state)
    with Pipeline([Reader(range(9), shuffle=False, epochs=1), Stage(Identity(), name="twice")]) as pipeline:
        pipeline.load_state_dict(state, allow_changed=["twice"])
        assert list(pipeline) == [4, 5, 6, 7, 8]
    assert "twice has changed" in caplog.text


IMAGES = [(np.full((9, 9, 3), number % 200, np.uint8), number % 3, f"image {number}" * 900) for number in range(500)]
OTHERS = {
    "the last": lambda last: [*IMAGES[:-1], last],
    "the first": lambda last: [last, *IMAGES[1:]],
    "all": lambda last: [last] * 500,
    "fewer": lambda last: IMAGES[:-1],
    "array": lambda last: np.arange(500)[::-1],
    "objects": lambda last: np.array([str(number) for number in range(500)][::-1], object),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_list_of_other_entries_is_another_pipeline(other):
    built = {"array": np.arange(500), "objects": np.array([str(number) for number in range(500)], object)}.get(other, IMAGES)
    changed = IMAGES[-1][0].copy()
    changed[-1, -1] = 7
    for last in ((changed, *IMAGES[-1][1:]), (*IMAGES[-1][:2], IMAGES[-1][2][:-1] + "_")):
        for build in (lambda of: [Reader(of)], lambda of: [Mix([Pipeline([Stage(Reader(of, epochs=1), num_workers=2)])])]):
            _, state = state_after(lambda: Pipeline(build(built)), 3)  # noqa: B023  # called at once
            with Pipeline(build(copy.deepcopy(built))) as pipeline:
                pipeline.load_state_dict(state)
            with Pipeline(build(OTHERS[other](last))) as pipeline, pytest.raises(PipelineError, match="other data"):
                pipeline.load_state_dict(state)


def test_a_long_list_is_known_again_without_reading_all_of_it():
    class Entry:
        asked = 0

        def fingerprint(self):
            Entry.asked += 1
            return "entry"

    with Pipeline([[Entry() for _ in range(10_000)]]) as pipeline:
        pipeline.dequeue()
        pipeline.state_dict()
    assert 0 < Entry.asked < 100


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({}, "got a dict"),
        ({"model": 1, "data": 2}, "got a dict of 'model', 'data'"),
        (None, "got a NoneType"),
        ({"format": 1}, r"highway 0.1.0 or older saved this state, in format 1, but highway \S+ reads format 5; resume with that version"),
        ({"format": 7, "version": "0.9.1"}, "highway 0.9.1 saved this state, in format 7"),
        ({"format": 5, 3: 4}, "load_state_dict: part of the state cannot be written as JSON"),
        ({"format": 5, "given": {(1, 2): 3}}, "load_state_dict: part of the state cannot be written as JSON"),
    ],
)
def test_what_is_no_state_is_refused(state, words):
    with reader() as pipeline, pytest.raises(PipelineError, match=words):
        pipeline.load_state_dict(state)


def test_a_source_whose_state_is_not_what_json_can_hold_gives_none():
    class Numbers:
        def __highway__(self):
            return Traits(state=lambda: Position({1: 2, "a": 3}))

        def __iter__(self):
            return iter(range(30_000))

    with Pipeline([Numbers()]) as pipeline, pytest.raises(PipelineError, match="state_dict: part of the state cannot be written as JSON"):
        for _ in pipeline:
            pipeline.state_dict()


def test_a_state_may_be_written_with_its_names_sorted():
    def build():
        return Pipeline([Reader(range(250), epochs=3), Shuffle(3), Batch(4)])

    taken, state = state_after(build, 30)
    assert taken + rest_from(build, json.loads(json.dumps(state, sort_keys=True))) == [item for item, _ in whole(build)]


@pytest.mark.parametrize("other", ["missing", None, "text", 7000, [3], {"0": 5}])
def test_a_state_of_which_a_part_is_missing_or_another_is_refused(other):
    _, state = state_after(reader, 30)
    for name in state:
        changed = {**state, name: other} if other != "missing" else {part: value for part, value in state.items() if part != name}
        if changed != state:
            with reader() as pipeline, pytest.raises(PipelineError, match=r"the return value of state_dict|in format 7000"):
                pipeline.load_state_dict(changed)


def test_a_state_that_was_changed_inside_is_refused():
    _, state = state_after(reader, 90)
    state["states"]["0"]["state"] = [0, "a", 0]
    with reader() as pipeline, pytest.raises(PipelineError, match="part of it is missing or was changed"):
        pipeline.load_state_dict(state)


@pytest.mark.parametrize(("stages", "is_refused"), [([Batch(7)], True), ([double], False)])
def test_a_drained_pipeline_has_no_state_where_a_stream_handed_on_what_waited(stages, is_refused):
    with Pipeline([Reader(range(10_000), epochs=1), *stages]) as pipeline:
        pipeline.dequeue()
        pipeline.drain()
        for _ in pipeline:
            pass
        if is_refused:
            with pytest.raises(PipelineError, match=r"drain\(\) has flushed incomplete items of Batch;"):
                pipeline.state_dict()
        else:
            assert pipeline.state_dict()["stages"]


DRAINED_TO_THE_END = {
    "no epochs": (lambda: [range(3000), double], 5),
    "a loop": (lambda: [Reader(range(3000), epochs=1), double], 5),
    "the first pass of a stream": (lambda: [range(20), Tee(id), Repeat(times=200)], 5),
    "the second pass of a stream": (lambda: [range(20), Tee(id), Repeat(times=200)], 30),
}


@pytest.mark.parametrize(("stages", "count"), DRAINED_TO_THE_END.values(), ids=DRAINED_TO_THE_END)
def test_a_drained_pipeline_whose_streams_hold_nothing_resumes_where_it_was_drained(stages, count):
    def build():
        return Pipeline(stages())

    with build() as pipeline:
        taken = [pipeline.dequeue() for _ in range(count)]
        pipeline.drain()
        taken += [item for item, _ in pipeline.stamped()]
        state = json.loads(json.dumps(pipeline.state_dict()))
    expected = [item for item, _ in whole(build)]
    assert len(taken) < len(expected) and taken + rest_from(build, state) == expected


@pytest.mark.parametrize("is_drained", [False, True])
def test_the_state_of_the_end_is_that_of_the_end_after_a_drain_too(is_drained):
    with Pipeline([range(5)]) as pipeline:
        assert len(list(pipeline)) == 5
        if is_drained:
            pipeline.drain()
        state = pipeline.state_dict()
    with Pipeline([range(5)]) as pipeline:
        pipeline.load_state_dict(state)
        with pytest.raises(EndOfStream, match="has ended"):
            list(pipeline)


def waits(item, context):
    """Wait with an item until the pipeline is drained."""
    while item == 30 and not context.draining:
        context.wait(0.01)
    return item


def is_starved(pipeline):
    """Return whether the first stage waits for an item."""
    before, after = (pipeline.stats().stages[0] for _ in range(2))
    return after.busy == before.busy and after.starved > before.starved


DRAINED = {
    "a pipeline": lambda inner: [inner, double],
    "its pipeline": lambda inner: [Pipeline([inner, double])],
    "one of several": lambda inner: [Mix([inner, range(1000, 9999)], weights=[1000, 0.001]), double],
}


@pytest.mark.parametrize("stages", DRAINED.values(), ids=DRAINED)
@pytest.mark.parametrize("stream", [[Batch(4)], []], ids=["holds", "holds nothing"])
def test_a_pipeline_inside_that_was_drained_has_no_state_either(stages, stream):
    """Else the batch of 2 that is handed on in the end would be taken for one of 4."""
    with Pipeline(stages(Pipeline([range(1000), waits, *stream, double]))) as pipeline:
        for _ in range(30 // 4 if stream else 30):
            pipeline.dequeue()
        assert pipeline.state_dict()
        wait_until(lambda: is_starved(pipeline))  # not between two items, where it would end at once
        pipeline.drain()
        assert 1 <= len(list(pipeline.stamped())) < 200  # which were on their way
        if stream:
            with pytest.raises(PipelineError, match=r"drain\(\) has flushed incomplete items of Batch;"):
                pipeline.state_dict()
        else:
            assert pipeline.state_dict()


class SeldomNow:
    """A stream that can be resumed only after each 50th item."""

    def stream(self, items):
        position = items.context.state_of(self)
        for number, item in enumerate(items, start=position.value or 0):
            position.value = number + 1 if number % 50 == 49 else not_now
            yield Stamped(item, items.passport)

    def __highway__(self):
        return Traits(state=Position, one_to_one="in order")


BUDGETS = {
    "stream that cannot be resumed at each marker": lambda skip: [Reader(range(500), epochs=1), Stage(fails, **skip), SeldomNow()],
    "map": lambda skip: [Reader(range(500), epochs=1), noise, Shuffle(30), Stage(fails_at_noise, num_workers=3, **skip)],
    "map without an order": lambda skip: [Reader(range(500), epochs=1), Stage(fails, num_workers=3, ordered=False, **skip)],
    "source": lambda skip: [Mix([Stage(Reader(SomeBad(range(500)), epochs=1), **skip)]), Batch(3)],
    "reader": lambda skip: [Stage(Reader(SomeBad(range(500)), 4, shuffle=False, epochs=1, num_workers=3), **skip)],
    "pipeline": lambda skip: [Pipeline([Reader(range(500), epochs=1), Shuffle(9), Stage(fails, num_workers=3, **skip)]), Batch(3)],
}


@pytest.mark.parametrize("stages", BUDGETS.values(), ids=BUDGETS)
def test_the_budget_of_errors_is_one_for_the_whole_run(stages):
    def build(max_errors):
        return Pipeline(stages({"on_error": "skip", "max_errors": max_errors}))

    errors = sum(number % 7 == 3 for number in range(500))
    count = len(whole(lambda: build(errors)))
    for cut in (count // 3, count // 2):
        _, state = state_after(lambda: build(errors), cut)
        with build(errors) as pipeline:
            pipeline.load_state_dict(state)
            assert pipeline.dequeue() is not None
            state = json.loads(json.dumps(pipeline.state_dict()))
        assert len(rest_from(lambda: build(errors), state)) == count - cut - 1
        with pytest.raises(ValueError, match="a bad one") as caught:
            rest_from(lambda: build(errors - 1), state)
        assert f"max_errors={errors - 1} is exceeded: this is error {errors}" in caught.value.__notes__


def test_more_epochs_and_other_workers_are_the_same_pipeline():
    _, state = state_after(reader, 30)
    with reader() as pipeline:
        expected = loops(pipeline)
    with Pipeline([Reader(range(250), epochs=5, num_workers=4), Stage(Batch(4), buffer_size=9)]) as pipeline:
        pipeline.load_state_dict(state)
        found = [item for epoch in loops(pipeline) for item in epoch]
    assert found[: 189 - 30] == [item for epoch in expected for item in epoch][30:] and len(found) == 5 * 63 - 30


# --- the end ---


@pytest.mark.parametrize(
    "source", [lambda: list(range(9)), lambda: Concat([range(4), range(5)]), lambda: Mix([range(4), range(5)], seed=1)]
)
@pytest.mark.parametrize("by_loop", [True, False])
def test_a_state_from_the_end_of_a_source_without_epochs_is_its_end(source, by_loop):
    with Pipeline([source()]) as pipeline:
        for _ in pipeline if by_loop else iter(pipeline.dequeue, None):
            if not by_loop and pipeline.stats().stages[-1].items == 9:
                break
        with pytest.raises(EndOfStream):
            while True:
                pipeline.dequeue()
        state = json.loads(json.dumps(pipeline.state_dict()))
    for take in (Pipeline.dequeue, iter):
        with Pipeline([source()]) as pipeline:
            pipeline.load_state_dict(state)
            with pytest.raises(EndOfStream):
                take(pipeline)


def test_a_state_from_the_end_of_three_epochs_resumes_with_the_fourth_of_five():
    with reader() as pipeline:
        found = len(loops(pipeline))
        state = pipeline.state_dict()
    with (
        Pipeline([Reader(range(100), 8, epochs=found + 2)], seed=3) as other,
        Pipeline([Reader(range(100), 8, epochs=found)], seed=3) as first,
    ):
        assert len(loops(first)) == found
        other.load_state_dict(first.state_dict())
        assert len(loops(other)) == 2
    assert state["ended"]


@pytest.mark.parametrize("stream", [Batch(1), BatchByShape(1), Take(2**50), Duplicate(1)])
def test_a_stream_after_a_map_without_order_is_refused_whatever_its_parameters(stream):
    with Pipeline([range(50), Stage(double, num_workers=2, ordered=False), stream]) as pipeline:
        pipeline.dequeue()
        with pytest.raises(PipelineError, match=r"double does not keep the order"):
            pipeline.state_dict()


@pytest.mark.parametrize("before", [True, False])
def test_a_state_with_an_order_is_none_without_and_the_reverse(before):
    def build(ordered):
        return Pipeline([list(range(50)), Stage(double, num_workers=2, ordered=ordered)])

    with build(before) as pipeline:
        state = pipeline.state_dict()
    with build(not before) as pipeline:
        with pytest.raises(PipelineError, match=r"double had other parameters.*\(double: ordered\)"):
            pipeline.load_state_dict(state)
        pipeline.load_state_dict(state, allow_changed=["double"])


@dataclass
class Pairs:
    """Yields each two neighbours, with a lineage in the form of this version or of 0.1.0."""

    lineage: str = "record"

    def __highway__(self):
        return Traits(state=Position, remake=self.pair)

    def stream(self, items):
        for item in items:
            items.waiting.append(Stamped(item, items.passport))
            if len(items.waiting) == 2:
                yield self.pair(items.waiting, "a pair")
                del items.waiting[0]

    def pair(self, both, part):
        inputs = tuple(passport for _, passport in both)
        made_of = Lineage(inputs, part) if self.lineage == "record" else (None, inputs, part)
        return Stamped(tuple(item for item, _ in both), both[-1].passport._replace(made_of=made_of))


@pytest.mark.parametrize("stages", [[Shuffle(9)], [Pairs(), Shuffle(9), Batch(2)], [Batch(4), Unbatch(), Shuffle(9)]])
def test_pairs_that_wait_are_made_again(stages):
    check(lambda: Pipeline([range(200), double, Pairs(), *stages], seed=3), [0.2, 0.7])


def test_a_lineage_as_a_tuple_warns_and_works():
    def build():
        return Pipeline([range(200), Pairs("tuple"), Shuffle(9)], seed=3)

    with pytest.warns(FutureWarning, match=r"Pairs: made_of=\(None, inputs, part\) in a passport is now made_of=Lineage\(inputs, part\)"):
        check(build, [0.2, 0.7])


@pytest.mark.parametrize("name", ["keep", "saved", "Saved"])
def test_the_functions_of_earlier_versions_show_the_new_form(name):
    with pytest.raises(ImportError, match=rf"no {name} in highway\.engine\.resume; use Traits\(state=\.\.\.\) and items\.waiting"):
        getattr(resume, name)


class Sometimes:
    """A source whose state exists after each third item, and which has methods of the names of a state's."""

    def __highway__(self):
        return Traits(state=self.Third, remake=lambda epoch, index, part: index, numbers_epochs=True, ranks=list)

    class Third:
        def __init__(self):
            self.number = 0

        def state(self):
            if self.number % 3:
                raise NotNowError
            return self.number

        def restore(self, state):
            assert state % 3 == 0
            self.number = state

    def state(self):
        raise AssertionError("this method is the source's own")

    restore = state

    def __iter__(self, context=None):
        third = (context or Context()).state_of(self)
        for number in range(third.number, 200):
            third.number = number + 1
            yield Stamped(number, Passport(0, number))


@pytest.mark.parametrize("source", [Sometimes, lambda: Concat([range(9), Sometimes()]), lambda: Mix([Sometimes(), range(60)])])
def test_a_state_may_exist_after_some_items_only(source):
    check(lambda: Pipeline([source(), double, Shuffle(9)], seed=3), [0.2, 0.7])
    assert [item for item, _ in Sometimes()] == list(range(200))


def test_one_component_in_two_pipelines_has_two_states():
    source, shuffle = Sometimes(), Shuffle(9, seed=1)
    with Pipeline([source, shuffle]) as first, Pipeline([source, shuffle]) as second:
        taken = [(first.dequeue(), second.dequeue()) for _ in range(150)]
        assert [one for one, _ in taken] == [other for _, other in taken]
        first.stop()
        state = second.state_dict()
        rest = list(second.stamped())
    with Pipeline([source, shuffle]) as third:
        third.load_state_dict(state)
        assert [item for item, _ in third.stamped()] == [item for item, _ in rest]


class Plain:
    """A source whose items have no passports."""

    def __highway__(self):
        return Traits(state=lambda: Position(0), ranks=list)

    def __iter__(self, context=None):
        position = (context or here()).state_of(self)
        for number in range(position.value, 200):
            position.value = number + 1
            yield number


class Evens:
    """A stream whose items have no passports."""

    def __highway__(self):
        return Traits(per_epoch=True, state=Stateless)

    def stream(self, items):
        yield from (item for item in items if item % 2 == 0)


@pytest.mark.parametrize("first", [[Plain()], [list(range(400)), Evens()], [Reader(range(90), epochs=3), Evens()], [Plain(), Evens()]])
def test_random_numbers_of_items_without_passports_go_on(first):
    check(lambda: Pipeline([*first, noise, Stage(noise, num_workers=3)], seed=3), [0.3, 0.8])


@pytest.mark.parametrize("stages", [[list(range(400)), Evens(), Shuffle(9)], [list(range(400)), Evens(), double, Batch(3)]])
def test_items_without_a_lineage_that_wait_are_refused_when_the_state_is_saved(stages):
    with Pipeline(stages) as pipeline:
        for _ in zip(range(40), pipeline.stamped()):
            pass
        with pytest.raises(
            PipelineError, match=r"(Shuffle|Batch) holds items of Evens, which does not declare how to make them again\. .* yield Stamped"
        ):
            pipeline.state_dict()


class Runs:
    """A stream that runs another stream."""

    def __highway__(self):
        return Traits(state=lambda: Position(0))

    def stream(self, items):
        return Shuffle(5).stream(items)


def test_a_stream_inside_a_stream_whose_state_would_be_lost_is_refused():
    with Pipeline([list(range(200)), Runs()]) as pipeline:
        for _ in zip(range(40), pipeline.stamped()):
            pass
        with pytest.raises(PipelineError, match="Runs runs Shuffle, whose state is not saved; make Shuffle a separate stage"):
            pipeline.state_dict()


def test_a_state_after_an_error_resumes_at_the_item_that_failed(tmp_path):
    mended = tmp_path / "mended"

    def fails_at_first(number):
        if number == 30 and not mended.exists():
            raise ValueError("thirty")
        return number

    def build():
        return Pipeline([list(range(90)), fails_at_first])

    taken = []
    with build() as pipeline:
        with pytest.raises(ValueError, match="thirty"):
            for item in pipeline:
                taken.append(item)
        state = pipeline.state_dict()
    mended.touch()
    assert [*taken, *rest_from(build, state)] == list(range(90))


class InPlace:
    """A source that changes its position in place, and iterates over itself to make an item again."""

    def __highway__(self):
        return Traits(state=lambda: Position([0]), remake=self.again, ranks=list)

    def __iter__(self, context=None):
        position = (context or here()).state_of(self).value
        while position[0] < 200:
            position[0] += 1
            yield Stamped(position[0] - 1, Passport(0, position[0] - 1))

    def again(self, epoch, index, part):
        return next(islice(iter(self), index, None)).item


def test_a_state_is_a_copy_of_the_position():
    check(lambda: Pipeline([InPlace(), double, Shuffle(9)], seed=3), [0.2, 0.7])


class Outer:
    """A source that iterates over another source itself. Both have a state, and only its own is saved."""

    def __highway__(self):
        return Traits(state=lambda: Position(0), remake=lambda epoch, index, part: 2 * index, ranks=list)

    def __iter__(self, context=None):
        position = (context or here()).state_of(self)
        for item, passport in islice(iter(InPlace()), position.value, None):
            position.value += 1
            yield Stamped(2 * item, passport)


@pytest.mark.parametrize("source", [Outer, lambda: Concat([range(9), Outer()]), lambda: Mix([Outer(), InPlace()])])
def test_a_source_inside_a_source_has_a_state_of_its_own(source):
    check(lambda: Pipeline([source(), double, Shuffle(9)], seed=3), [0.2, 0.7])


def test_a_component_that_asks_for_a_state_declares_it():
    def numbers(context=None):
        return iter(range(context.state_of(numbers).value))

    with (
        Pipeline([numbers]) as pipeline,
        pytest.raises(PipelineError, match=r"numbers uses a state that .*; declare Traits\(state=\.\.\.\)"),
    ):
        pipeline.dequeue()


def test_a_lineage_names_its_stage_and_its_inputs():
    with Pipeline([range(200), Pairs(), Batch(2)]) as pipeline:
        batch = next(pipeline.stamped()).passport
    assert batch.made_of.stage == 2 and batch.made_of.part is None
    assert [(pair.index, pair.made_of.stage, pair.made_of.part) for pair in batch.made_of.inputs] == [(1, 1, "a pair"), (2, 1, "a pair")]
    assert [[(one.index, one.made_of) for one in pair.made_of.inputs] for pair in batch.made_of.inputs] == [
        [(0, None), (1, None)],
        [(1, None), (2, None)],
    ]
