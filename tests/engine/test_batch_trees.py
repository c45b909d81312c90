"""Fields that are dicts, tuples and named tuples: batches keep them, links and files refuse them."""

from collections import namedtuple
from importlib.util import find_spec

import numpy as np
import pytest

from highway import Connection, Pipeline
from highway.engine.batch import collate, length, nbytes, split
from highway.errors import ItemError
from highway.modules import (
    ArrowSink,
    Batch,
    BatchByShape,
    Cache,
    HDF5Sink,
    LevelDBSink,
    LMDBSink,
    MDSSink,
    NpzSink,
    ParquetSink,
    Reader,
    ShardSink,
    TenSink,
    TFRecordSink,
    Unbatch,
)

Pair = namedtuple("Pair", "left right")
SAMPLES = [({"image": np.full((2, 3), n, np.uint8), "n": n}, Pair(n, (np.float32(n), "abc"[n % 3]))) for n in range(4)]


def expect_batch(batch, *numbers):
    inputs, pair = batch
    assert (type(batch), type(inputs), type(pair), type(pair.right)) == (tuple, dict, Pair, tuple)
    assert (inputs["image"].shape, inputs["image"].dtype) == ((len(numbers), 2, 3), np.uint8)
    assert inputs["n"].dtype == pair.left.dtype == np.int32
    assert inputs["n"].tolist() == pair.left.tolist() == pair.right[0].tolist() == inputs["image"][:, 0, 0].tolist() == list(numbers)
    assert pair.right[1].tolist() == ["abc"[n % 3] for n in numbers]


@pytest.mark.parametrize(
    "stages",
    [
        [SAMPLES, Batch(2)],
        [SAMPLES, Batch(2, ragged="pad")],
        [SAMPLES, BatchByShape(2)],
        [Reader(SAMPLES, 2, shuffle=False, epochs=1)],
        [SAMPLES, Batch(4), Unbatch(), Batch(2)],
    ],
    ids=["Batch", "Batch, ragged", "BatchByShape", "Reader", "Unbatch"],
)
def test_batches_have_the_trees_of_their_samples(stages):
    with Pipeline(stages) as pipeline:
        first, second = pipeline
    expect_batch(first, 0, 1)
    expect_batch(second, 2, 3)


def test_a_named_tuple_of_arrays_stays_one():
    batch = collate([Pair(n, np.zeros(3)) for n in range(2)])
    assert type(batch) is Pair and batch.right.shape == (2, 3)
    assert [type(sample) for sample in split(batch)] == [Pair, Pair]


def test_a_batch_of_trees_has_a_length_and_a_size():
    batch = collate(SAMPLES)
    assert length(batch) == 4
    assert nbytes(batch) == 4 * (6 + 4 + 4 + 4 + 4)
    assert length(({"a": np.zeros(2), "b": np.zeros(3)},)) is None


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (
            [({"a": 1},), ({"b": 1},)],
            r"field 0 differs from sample to sample: sample 1 is a dict with fields \('b',\), but sample 0",
        ),
        ([{"x": {"a": np.zeros(2)}}, {"x": {"a": np.zeros(3)}}], r"field 'x\.a' has shapes \[\(2,\), \(3,\)\]"),
        ([{"x": {"a": (1, 2**40)}}] * 2, r"field 'x\.a\.1' contains 1099511627776, which does not fit into int32"),
    ],
)
def test_trees_that_do_not_go_together_are_an_error_that_names_the_field(samples, message):
    with pytest.raises(ValueError, match=message):
        collate(samples)


def test_a_reader_names_the_sample_whose_tree_is_another():
    samples = [{"x": {"a": np.zeros(2)}}, {"x": {"a": np.zeros(3)}}, {"x": {"a": np.zeros(2)}}]
    with Pipeline([Reader(samples, 3, shuffle=False)]) as pipeline, pytest.raises(ValueError) as caught:
        pipeline.dequeue()
    assert "the sample is dict ('x': dict ('a': float64 (3,)))" in f"{caught.value} {caught.value.__cause__}"


SINKS = [ArrowSink, HDF5Sink, LMDBSink, MDSSink, NpzSink, ParquetSink, ShardSink, TFRecordSink, TenSink]
SINKS += [LevelDBSink] if find_spec("plyvel") else []  # which has no wheel for Python 3.13
TREES = [{"x": {"image": np.zeros(2, np.float32)}}], [{"x": Pair(np.zeros(2, np.float32), 1)}]


@pytest.mark.parametrize("samples", TREES, ids=["dict", "named tuple"])
@pytest.mark.parametrize("sink", SINKS)
def test_a_file_refuses_a_tree_and_says_how_to_flatten_it(sink, samples, tmp_path):
    path = tmp_path / ("shard-%04d.tar" if sink is ShardSink else "written")
    with (
        Pipeline([samples, sink(str(path))]) as pipeline,
        pytest.raises(ItemError, match=r"field 'x'.*flatten it in an earlier map.*'x\.KEY'"),
    ):
        pipeline.run()


@pytest.mark.parametrize("samples", TREES, ids=["dict", "named tuple"])
@pytest.mark.parametrize("folder", [False, True])
def test_a_cache_refuses_a_tree_and_says_how_to_flatten_it(folder, samples, tmp_path):
    cache = Cache(str(tmp_path)) if folder else Cache()
    with (
        Pipeline([Reader(samples, shuffle=False), cache]) as pipeline,
        pytest.raises(ItemError, match=r"field 'x' is .*flatten it in an earlier map"),
    ):
        pipeline.dequeue()


@pytest.mark.parametrize(
    ("codec", "samples"),
    [("tensorcom", TREES[0]), ("tensorcom", TREES[1]), ("tenbin", TREES[0]), ("tenbin", TREES[1]), ("msgpack", TREES[1])],
)
def test_a_link_refuses_a_tree_and_says_how_to_flatten_it(codec, samples):
    with (
        Connection(f"zpush://127.0.0.1:1?codec={codec}") as sender,
        pytest.raises(ItemError, match=r"field 'x' is .*flatten it in an earlier map"),
    ):
        sender.send(samples[0])


@pytest.mark.parametrize("field", [Pair(1, 2), [Pair(1, 2)], {"a": (0, Pair(1, 2))}], ids=["field", "list", "tree"])
def test_msgpack_refuses_a_named_tuple_wherever_it_is(field):
    with Connection("zpush://127.0.0.1:1?codec=msgpack") as sender, pytest.raises(ItemError, match=r"field 'x' is a Pair, .*'x\.KEY'"):
        sender.send({"x": field})


def test_mds_refuses_a_tuple_in_a_dict_and_says_how_to_flatten_it(tmp_path):
    samples = [{"x": {"a": (1, 2)}}]
    with Pipeline([samples, MDSSink(str(tmp_path / "out"))]) as pipeline, pytest.raises(ItemError, match=r"field 'x'.*'x\.KEY'"):
        pipeline.run()


def test_msgpack_takes_dicts_and_tuples_and_gives_them_back():
    url = "127.0.0.1:0?codec=msgpack"
    with Connection(f"zpull://{url}") as receiver, Connection(f"zpush://{receiver.bound[0][6:].split('?')[0]}?codec=msgpack") as sender:
        sender.send({"x": {"image": np.arange(2)}, "y": (np.arange(3), np.zeros((2, 2)))})
        item = receiver.recv()
    assert (item["x"]["image"].tolist(), item["y"][0].tolist(), item["y"][1].shape) == ([0, 1], [0, 1, 2], (2, 2))
