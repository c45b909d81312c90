"""A loop over a pipeline is one epoch, whatever its source and the stages behind it."""

import itertools

import numpy as np
import pytest

from highway import Pipeline, Stage
from highway.datasets import DecodedCache
from highway.errors import EndOfStream
from highway.modules import (
    Batch,
    BatchByShape,
    Cache,
    Concat,
    EncodedImageReader,
    ImageFileReader,
    Peek,
    Processes,
    Reader,
    Repeat,
    ShardSink,
    Shuffle,
    Take,
    TenSink,
    TenSource,
    Unbatch,
    WebDatasetSource,
)

VAL = "highway:photos/val"
NUMBERS = list(range(10))


def numbers(**settings):
    return Reader(NUMBERS, **{"epochs": 3, **settings})


def same(item):
    return item


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ten numbers in each of the formats."""
    folder = tmp_path_factory.mktemp("numbers")
    items = [{"n": np.int32(n), "x": np.full(3, n, np.uint8)} for n in NUMBERS]
    Pipeline([items, TenSink(str(folder / "ten"))]).run()
    for shard in range(2):
        samples = [{"cls": n} for n in NUMBERS[5 * shard : 5 * shard + 5]]
        Pipeline([samples, ShardSink(str(folder / f"{shard}-%d.tar"))]).run()
    with Pipeline([items, Cache(str(folder / "cache"), batched=False, epochs=1, key="k", batch_size=None)]) as pipeline:
        list(pipeline)
    return folder


SOURCES = {
    "Reader, batches": (lambda folder: [numbers(batch_size=3)], 4),
    "Reader, samples": (lambda folder: [numbers()], 10),
    "Reader, Shuffle, Batch": (lambda folder: [numbers(), Shuffle(4), Batch(3)], 4),
    "Reader, drop_last": (lambda folder: [numbers(), Batch(3, drop_last=True)], 3),
    "Reader, BatchByShape": (lambda folder: [numbers(), BatchByShape(4)], 3),
    "Reader, Unbatch": (lambda folder: [numbers(batch_size=4), lambda batch: (batch,), Unbatch()], 10),
    "Reader, unordered map": (lambda folder: [numbers(), Stage(same, num_workers=3, ordered=False)], 10),
    "ImageFileReader": (lambda folder: [ImageFileReader(VAL, 15, (8, 8), epochs=3)], 3),
    "EncodedImageReader": (lambda folder: [EncodedImageReader(VAL, 15, epochs=3)], 3),
    "Cache of batches": (lambda folder: [numbers(batch_size=4), lambda batch: (batch,), Cache()], 3),
    "Cache of samples": (lambda folder: [numbers(), lambda n: {"n": n}, Cache(batch_size=4)], 3),
    "Cache, Batch": (lambda folder: [numbers(), lambda n: {"n": n}, Cache(), Peek(0), Batch(4)], 3),
    "finished Cache": (lambda folder: [[1], Cache(str(folder / "cache"), batched=False, epochs=3, key="k")], 10),
    "Reader of a cache": (lambda folder: [Reader(DecodedCache(str(folder / "cache")), 4, epochs=3)], 3),
    "TenSource": (lambda folder: [TenSource(str(folder / "ten"), epochs=3)], 10),
    "WebDatasetSource": (lambda folder: [WebDatasetSource(sorted(map(str, folder.glob("*.tar"))), epochs=3)], 10),
    "Repeat of a list": (lambda folder: [Repeat(NUMBERS, 3), Batch(4)], 3),
    "Repeat of a reader": (lambda folder: [Repeat(numbers(batch_size=4, epochs=1), 3)], 3),
    "Repeat of a pipeline": (lambda folder: [Repeat(Pipeline([NUMBERS, Batch(4)]), 3)], 3),
    "Repeat of shards in a Concat, WebDatasetSource": (
        lambda folder: [Repeat(Concat([WebDatasetSource(str(folder / f"{shard}-0.tar"), epochs=1) for shard in range(2)]), 3)],
        10,
    ),
    "Repeat of stages": (lambda folder: [NUMBERS, Shuffle(5), Batch(4), Repeat(times=3)], 3),
    "Repeat of files": (lambda folder: [TenSource(str(folder / "ten")), Batch(4), Repeat(times=3)], 3),
    "a pipeline": (lambda folder: [Pipeline([numbers(batch_size=4)]), same], 3),
    "Processes": (lambda folder: [Processes([numbers(batch_size=4)])], 3),
}


@pytest.mark.parametrize("name", SOURCES)
def test_each_loop_is_the_next_epoch_and_after_the_last_there_is_an_error(folder, name):
    make, length = SOURCES[name]
    with Pipeline(make(folder)) as flat:
        epochs = [passport.epoch for _, passport in flat.stamped()]
    assert epochs == [epoch for epoch in range(3) for _ in range(length)]
    with Pipeline(make(folder)) as pipeline:
        assert [sum(1 for _ in pipeline) for _ in range(3)] == [length] * 3
        with pytest.raises(EndOfStream):
            list(pipeline)


@pytest.mark.parametrize("name", SOURCES)
def test_after_a_loop_that_was_left_comes_the_whole_next_epoch(folder, name):
    make, length = SOURCES[name]
    with Pipeline(make(folder)) as pipeline:
        for _ in itertools.islice(pipeline, 1):
            pass
        assert pipeline.epoch == 1
        for _ in pipeline:
            break
        assert len(list(pipeline)) == length
        with pytest.raises(EndOfStream):
            list(pipeline)


@pytest.mark.parametrize("name", SOURCES)
def test_after_a_loop_that_was_left_another_run_begins_with_the_next_epoch(folder, name):
    make, length = SOURCES[name]
    with Pipeline(make(folder)) as pipeline:
        for _ in pipeline:
            break
        state = pipeline.state_dict()
        rest = [sorted(map(str, pipeline)) for _ in range(2)]  # sorted: an unordered map's order is that of its threads
    with Pipeline(make(folder)) as pipeline:
        pipeline.load_state_dict(state)
        assert [sorted(map(str, pipeline)) for _ in range(2)] == rest
        assert [len(epoch) for epoch in rest] == [length] * 2
        with pytest.raises(EndOfStream):
            list(pipeline)


# how many come out depends on what is in the items
UNKNOWN = ("Reader, BatchByShape", "Reader, Unbatch", "WebDatasetSource", "Repeat of shards in a Concat, WebDatasetSource")


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in (*UNKNOWN, "finished Cache")])
def test_the_length_of_a_pipeline_is_that_of_an_epoch(folder, name):
    make, length = SOURCES[name]
    assert len(Pipeline(make(folder))) == length


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_length_that_is_not_known_is_an_error_that_names_the_stage(folder, name):
    with pytest.raises(TypeError, match=f"{name.split(', ')[-1]} does not report (its number of|how many) items"):
        len(Pipeline(SOURCES[name][0](folder)))


def test_each_epoch_is_shuffled_in_its_own_way_by_the_seed():
    def orders(seed):
        with Pipeline([numbers(shuffle=False), Shuffle(5, seed=seed)]) as pipeline:
            return [list(pipeline) for _ in range(3)]

    assert orders(1) == orders(1) != orders(2)
    assert [sorted(order) for order in orders(1)] == [NUMBERS] * 3
    assert len(set(map(tuple, orders(1)))) == 3


def test_take_counts_over_all_epochs():
    with Pipeline([numbers(shuffle=False), Take(14)]) as pipeline:
        assert [list(pipeline), list(pipeline)] == [NUMBERS, [0, 1, 2, 3]]


def test_sinks_get_one_epoch_after_the_other(tmp_path):
    Pipeline([numbers(shuffle=False), lambda n: {"n": np.int32(n)}, TenSink(str(tmp_path))]).run()
    assert len(list(tmp_path.iterdir())) == 30
