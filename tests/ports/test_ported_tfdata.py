"""The question that tf.data leaves open: samples that are dicts, or no tensors at all, mapped by plain Python functions in parallel."""

import json

import numpy as np
import pytest

from highway import DROP, Pipeline, Stage
from highway.modules import Batch, Processes, Repeat, Shuffle, Zip

RECORDS = [json.dumps({"id": n, "text": "word " * (n % 5 + 1), "meta": {"width": n}}) for n in range(40)]


def parse(line):
    """Make a dict of text: what py_function cannot return."""
    return json.loads(line)


def only_long(sample):
    return sample if len(sample["text"].split()) > 1 else DROP


def featurize(sample, rng):
    """Make arrays of a nested dict, with chance in it."""
    words = np.zeros(5, np.int32)
    words[: len(sample["text"].split())] = 1
    return {"id": sample["id"], "words": words, "noise": rng.random(3, np.float32), "scale": sample["meta"]["width"] / 2}


def batches(*stages):
    with Pipeline([RECORDS, Shuffle(40, seed=1), *stages, Batch(8)], seed=3) as pipeline:
        return list(pipeline)


def assert_same(got, expected):
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert list(one) == list(other)
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


def test_dicts_are_mapped_in_parallel_and_keep_names_shapes_and_order():
    got = batches(*(Stage(fn, num_workers=4, drops=fn is only_long) for fn in (parse, only_long, featurize)))
    assert {name: (value.dtype.name, value.shape) for name, value in got[0].items()} == {
        "id": ("int32", (8,)),
        "words": ("int32", (8, 5)),
        "noise": ("float32", (8, 3)),
        "scale": ("float32", (8,)),
    }
    assert sorted(n for batch in got for n in batch["id"]) == [n for n in range(40) if n % 5]
    assert_same(got, batches(parse, Stage(only_long, drops=True), featurize))


def test_processes_give_the_same_dicts():
    assert_same(
        batches(Processes([parse, Stage(only_long, drops=True), featurize], 2)), batches(parse, Stage(only_long, drops=True), featurize)
    )


def test_dicts_are_joined_and_repeated():
    ids = [{"row": n} for n in range(40)]
    with Pipeline([Zip([ids, Pipeline([RECORDS, parse])]), Batch(16, as_list=True), Repeat(times=2)]) as pipeline:
        for _ in range(2):
            got = list(pipeline)
            assert [len(batch["row"]) for batch in got] == [16, 16, 8]
            assert all(batch["row"] == batch["id"] for batch in got) and got[0]["meta"][3] == {"width": 3}


def test_what_tensorflow_gets_is_what_its_own_tricks_give():
    """A generator of indices, py_function, and shapes by hand; run by ``tox -e adapters-tf``."""
    tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed: this is run by tox -e adapters-tf")
    from highway.adapters.tensorflow import to_dataset

    def arrays(line):
        sample = json.loads(line)
        words = np.zeros(5, np.int32)
        words[: len(sample["text"].split())] = 1
        return {"id": np.int32(sample["id"]), "words": words, "scale": np.float32(sample["meta"]["width"] / 2)}

    def looked_up(index):
        sample = tf.py_function(lambda n: list(arrays(RECORDS[int(n)]).values()), [index], [tf.int32, tf.int32, tf.float32])
        for value, shape in zip(sample, [(), (5,), ()], strict=True):
            value.set_shape(shape)
        return dict(zip(("id", "words", "scale"), sample, strict=True))

    theirs = tf.data.Dataset.range(len(RECORDS)).map(looked_up, num_parallel_calls=8).batch(8)
    with Pipeline([RECORDS, Stage(arrays, num_workers=8), Batch(8)]) as pipeline:
        ours = to_dataset(pipeline)
        assert ours.element_spec == theirs.element_spec
        assert_same(list(ours), list(theirs))
