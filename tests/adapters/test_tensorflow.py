"""Pipelines as tf.data datasets; with TensorFlow itself run by ``tox -e adapters-tf``."""

import collections
import gc
import itertools
import sys
import threading
import weakref

import numpy as np
import pytest
from waiting import wait_until

from highway import Connection, Pipeline
from highway.errors import ConfigError, EndOfStream, PipelineError
from highway.modules import Batch, Processes, Repeat
from highway.process.aligned import aligned

SAMPLES = [{"x": np.full((4, 3), n, np.float32), "y": n} for n in range(10)]


def test_without_tensorflow_the_import_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "highway.adapters.tensorflow", raising=False)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ConfigError, match=r"^highway\.adapters\.tensorflow needs tensorflow: pip install tensorflow"):
        import highway.adapters.tensorflow  # noqa: F401


@pytest.fixture
def tf():
    return pytest.importorskip("tensorflow", reason="tensorflow is not installed: this is run by tox -e adapters-tf")


@pytest.fixture
def to_dataset(tf):
    from highway.adapters.tensorflow import to_dataset

    return to_dataset


def test_dicts_keep_names_shapes_and_dtypes(tf, to_dataset):
    with Pipeline([SAMPLES, Batch(4)]) as pipeline:
        dataset = to_dataset(pipeline)
        assert dataset.element_spec == {"x": tf.TensorSpec([None, 4, 3], tf.float32), "y": tf.TensorSpec([None], tf.int32)}
        batches = list(dataset)
    assert [batch["y"].numpy().tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]  # the first is not lost
    np.testing.assert_array_equal(batches[1]["x"][:, 0, 0], [4, 5, 6, 7])


def test_the_shape_of_samples_is_known_as_a_whole(tf, to_dataset):
    with Pipeline([[(np.zeros((5, 4, 3), np.uint8), 7, "seven", True, 0.5)]]) as pipeline:
        dataset = to_dataset(pipeline)
        assert dataset.element_spec == (
            tf.TensorSpec([5, 4, 3], tf.uint8),
            *(tf.TensorSpec([], dtype) for dtype in (tf.int32, tf.string, tf.bool, tf.float32)),
        )
        [(_, *scalars)] = dataset
    assert [scalar.numpy() for scalar in scalars] == [7, b"seven", True, 0.5]


def test_nothing_starts_before_the_first_loop_if_the_signature_is_given(tf, to_dataset):
    started = []

    def source():
        started.append(1)
        yield np.zeros(2), [1, 2]

    with Pipeline([source]) as pipeline:
        dataset = to_dataset(pipeline, (tf.TensorSpec([2], tf.float64), tf.TensorSpec([None], tf.int32)))
        assert not started
        assert [(a.shape, b.numpy().tolist()) for a, b in dataset] == [((2,), [1, 2])]


def test_each_loop_is_an_epoch_and_one_after_the_last_is_an_error(to_dataset):
    with Pipeline([SAMPLES, Batch(4), Repeat(times=3)]) as pipeline:
        dataset = to_dataset(pipeline)
        epochs = [[len(batch["y"]) for batch in dataset] for _ in range(2)]
        epochs.append([len(batch["y"]) for batch in dataset.map(lambda batch: batch)])
        assert epochs == [[4, 4, 2]] * 3
        with pytest.raises(EndOfStream, match="the pipeline has ended"):
            list(dataset)


def test_a_dataset_that_is_made_anew_in_each_epoch_loses_nothing(to_dataset):
    with Pipeline([SAMPLES, Batch(4), Repeat(times=3)]) as pipeline:
        assert [[batch["y"].numpy().tolist() for batch in to_dataset(pipeline)] for _ in range(3)] == [
            [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        ] * 3


def test_what_tensorflow_holds_of_a_loop_that_is_left_is_as_much_as_is_said(tf, to_dataset):
    from highway.adapters.tensorflow import HELD

    with Pipeline([itertools.count()]) as pipeline:
        source = iter(pipeline)
        dataset = to_dataset(next(source) for _ in itertools.count())
        iterator = iter(dataset)
        seen = [int(next(iterator)) for _ in range(20)]
        del iterator
        assert seen[-1] < next(source) <= seen[-1] + 1 + HELD


def test_a_loop_that_is_left_leaves_its_epoch(to_dataset):
    with Pipeline([range(100), Repeat(times=2)]) as pipeline:
        dataset = to_dataset(pipeline)
        assert next(iter(dataset)).numpy() == 0
        assert [int(n) for n in dataset] == list(range(100))


def test_of_two_loops_at_once_the_first_gets_an_error(to_dataset):
    with Pipeline([range(100), Repeat(times=2)]) as pipeline:
        dataset = to_dataset(pipeline)
        first, second = iter(dataset), iter(dataset)
        assert (int(next(first)), int(next(second))) == (0, 0)
        with pytest.raises(PipelineError, match="another loop over the dataset has begun"):
            list(first)


def fail_at_five(n):
    if n == 5:
        raise KeyError("five")
    return n


def test_a_loop_raises_the_original_error(tf, to_dataset):
    with Pipeline([range(10), fail_at_five]) as pipeline:
        got = []
        with pytest.raises(KeyError, match="five") as caught:
            for n in to_dataset(pipeline, tf.TensorSpec([], tf.int32)):
                got.append(int(n))
    assert caught.value.__notes__ == ["highway: in stage 'fail_at_five', at epoch 0, item 5"]
    assert got == list(range(len(got)))


def test_behind_stages_of_tf_data_an_error_is_one_and_with_gives_the_original(tf, to_dataset):
    number = tf.TensorSpec([], tf.int32)

    def count(dataset):
        return int(dataset.map(lambda n: n + 1).reduce(0, lambda total, _: total + 1))

    with Pipeline([range(10), fail_at_five]) as pipeline, pytest.raises(tf.errors.UnknownError, match="KeyError: 'five'"):
        count(to_dataset(pipeline, number))
    with Pipeline([range(10), fail_at_five]) as pipeline, pytest.raises(KeyError, match="five"), to_dataset(pipeline, number) as dataset:
        count(dataset)
    assert isinstance(dataset.error, KeyError)


def test_lists_of_arrays_are_ragged(tf, to_dataset):
    samples = [{"words": np.arange(n, dtype=np.int32), "n": n} for n in (3, 0, 1, 2, 5)]
    with Pipeline([samples, Batch(2, as_list=True)]) as pipeline:
        dataset = to_dataset(pipeline)
        assert dataset.element_spec["words"] == tf.RaggedTensorSpec([None, None], tf.int32, ragged_rank=1)
        batches = list(dataset)
    assert [batch["words"].to_list() for batch in batches] == [[[0, 1, 2], []], [[0], [0, 1]], [[0, 1, 2, 3, 4]]]
    assert [batch["n"].numpy().tolist() for batch in batches] == [[3, 0], [1, 2], [5]]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (np.zeros((2, 4), np.float32), r"item is float32 \(2, 4\), but the signature has float32 \(None, 3\)\. Pass a signature"),
        (np.zeros((2, 3), np.float64), r"item is float64 \(2, 3\), but the signature has float32 \(None, 3\)"),
        ((1, 2, 3, 2**40), "which does not fit into int32; make it an array"),
    ],
)
def test_what_is_not_as_the_signature_says_is_an_error(to_dataset, second, message):
    with Pipeline([lambda: iter([np.zeros((2, 3), np.float32), second])]) as pipeline, pytest.raises(ValueError, match=message):
        list(to_dataset(pipeline))


def test_other_fields_are_an_error_that_names_both(to_dataset):
    for items, message in (
        ([{"x": 1, "y": 2}, {"x": 1, "z": 2}], "item has fields 'x', 'z', but the signature has 'x', 'y'"),
        ([(1, 2), (1, 2, 3)], r"item has tuple of 3, but the signature has 0, 1\."),
    ):
        with Pipeline([items]) as pipeline, pytest.raises(ValueError, match=message):
            list(to_dataset(pipeline))


def test_a_dtype_that_tensors_do_not_have_is_an_error_that_names_the_field(to_dataset):
    with Pipeline([[{"when": np.zeros(2, "datetime64[s]")}]]) as pipeline, pytest.raises(TypeError) as caught:
        to_dataset(pipeline)
    assert caught.value.__notes__[-1].startswith("to_dataset: item['when'] is an array of datetime64[s]")


def test_nothing_to_see_the_signature_in_is_an_error(to_dataset):
    with Pipeline([[]]) as pipeline, pytest.raises(ValueError, match=r"yields no item.*pass signature="):
        to_dataset(pipeline)


def misaligned(offset):
    return np.frombuffer(aligned((400 + offset,), np.uint8).data, np.uint8)[offset:].view(np.float32)[:100]


def read_only():
    array = aligned((100,), np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "make",
    [
        *(lambda offset=offset: misaligned(offset) for offset in (4, 16, 32)),
        read_only,
        lambda: aligned((200,), np.float32)[::2],
        lambda: aligned((10, 10), np.float32).T,
        lambda: aligned((100,), np.float32)[::-1],
        lambda: aligned((100,), np.dtype(">f4")),
        lambda: np.empty((0, 7), np.float32),
        lambda: np.float32(3),
        lambda: np.zeros(3, bool),
        lambda: np.zeros(3, np.uint64),
        lambda: np.array(["a", "bc"]),
    ],
)
def test_any_array_arrives_as_it_is(to_dataset, make):
    """By DLPack TensorFlow would end the process of those at 4, 16 and 32 bytes, and refuse what is read-only or not in C order."""
    array = np.array(make())
    value = make()
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value[...] = array = np.arange(value.size).reshape(value.shape).astype(value.dtype)
    with Pipeline([[value]]) as pipeline:
        [got] = to_dataset(pipeline)
    expected = array.astype("S") if array.dtype.kind == "U" else array
    np.testing.assert_array_equal(got.numpy(), expected)


def test_aligned_batches_are_not_copied_and_nobody_writes_into_them(tf, to_dataset):
    array = aligned((1024,), np.float32)
    array[:] = 1
    with Pipeline([[array] * 3]) as pipeline:
        dataset = to_dataset(pipeline)
        changed = [float(x[0]) for x in dataset.map(lambda x: tf.nn.relu(-(x * 2)) + 5)]
    assert changed == [5.0] * 3
    np.testing.assert_array_equal(array, np.ones(1024))  # TensorFlow works in place where it may
    with Pipeline([[array]]) as pipeline:
        [tensor] = to_dataset(pipeline)
    array[0] = 3  # to see that it is the same memory; nobody else would write into what was handed over
    assert float(tensor[0]) == 3
    freed = weakref.ref(array.base)
    del array
    gc.collect()
    assert freed() is not None and float(tensor[1]) == 1
    del tensor
    gc.collect()


def test_what_came_from_shared_memory_stays_as_it_was(to_dataset):
    """Its memory is used again when the arrays are gone."""
    with Pipeline([batches, Repeat(times=1)], isolated=True, budget_mb=1) as pipeline:
        got = list(to_dataset(pipeline))
    assert [(int(batch[0, 0]), int(batch[-1, -1])) for batch in got] == [(n, n) for n in range(50)]


def batches():
    for n in range(50):
        yield np.full((64, 1000), n, np.uint8)


def test_a_connection_is_a_dataset(tf):
    with Connection("zpull://127.0.0.1:0") as receiver, Connection(f"zpush://{receiver.bound[0][6:]}?end=1") as sender:
        for n in range(5):
            sender.send([np.full((2, 3), n, np.float32), np.array([n, n], np.int32)])
        sender.serve([])
        dataset = receiver.to_dataset()
        assert [(x.shape.as_list(), y.numpy().tolist()) for x, y in dataset] == [([2, 3], [n, n]) for n in range(5)]


def test_dropped_in_the_middle_it_leaves_nothing(to_dataset):
    def threads():
        return {thread for thread in threading.enumerate() if type(thread).__name__ != "_DummyThread"}

    def main():
        dataset = to_dataset(Pipeline([itertools.count(), Processes([np.sqrt], 1), Batch(4)]))
        for _ in dataset:
            break
        left = iter(dataset)
        next(left)
        assert threads() > before

    before = threads()
    main()
    gc.collect()
    wait_until(lambda: threads() <= before, 30)  # a collection on a thread of the pipeline does not wait for the threads to end


def test_trees_stay_trees(tf, to_dataset):
    """The answer to a question about tf.data: ({"image": ..., "n": ...}, y)."""
    Pair = collections.namedtuple("Pair", "left right")
    samples = [({"image": np.full((2, 3), n, np.uint8), "n": n}, Pair(n, (np.float32(n), n))) for n in range(4)]
    with Pipeline([samples, Batch(2)]) as pipeline:
        dataset = to_dataset(pipeline)
        number = tf.TensorSpec([None], tf.int32)
        assert dataset.element_spec == (
            {"image": tf.TensorSpec([None, 2, 3], tf.uint8), "n": number},
            Pair(number, (tf.TensorSpec([None], tf.float32), number)),
        )
        (first, pair), _ = dataset.map(lambda inputs, pair: (inputs, pair))
    assert (first["image"].shape, first["n"].numpy().tolist()) == ((2, 2, 3), [0, 1])
    assert (type(pair), pair.right[1].numpy().tolist()) == (Pair, [0, 1])
