"""Batches by buckets against tf.data's ``bucket_by_sequence_length``; run by ``tox -e oracles``."""

import numpy as np
import pytest

from highway import Pipeline
from highway.modules import Bucket

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: these are run by tox -e oracles")

rng = np.random.default_rng(0)
SEQUENCES = [(rng.integers(1, 100, count, np.int32), np.float32(count)) for count in rng.integers(0, 20, 300)]
SIGNATURE = (tf.TensorSpec((None,), tf.int32), tf.TensorSpec((), tf.float32))


def theirs(samples, boundaries, sizes, **how):
    dataset = tf.data.Dataset.from_generator(lambda: iter(samples), output_signature=SIGNATURE)
    batches = dataset.bucket_by_sequence_length(lambda tokens, number: tf.shape(tokens)[0], boundaries, sizes, **how)
    return [(tokens, numbers) for tokens, numbers in batches.as_numpy_iterator()]


def ours(samples, *args, **how):
    with Pipeline([samples, Bucket(*args, **how)]) as pipeline:
        return [(tokens, numbers) for tokens, numbers, counts in pipeline]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("pad_to_boundary", [False, True])
@pytest.mark.parametrize(("boundaries", "sizes"), [([5, 10, 20], [16, 8, 4, 2]), ([25], [10, 3])])
def test_batches_are_those_of_tf_data(boundaries, sizes, pad_to_boundary, drop_last):
    expected = theirs(
        SEQUENCES,
        boundaries,
        sizes,
        padding_values=(-1, 0.0),
        pad_to_bucket_boundary=pad_to_boundary,
        drop_remainder=drop_last,
    )
    found = ours(SEQUENCES, boundaries, sizes, drop_last=drop_last, pad_to_boundary=pad_to_boundary, fill={0: -1.0})
    assert len(found) == len(expected) > 20
    rest = 0 if drop_last else len(sizes)  # smaller ones in the end: tf.data hands them on in an order of its own
    for (tokens, numbers), (other, others) in zip(found[: len(found) - rest], expected, strict=False):
        np.testing.assert_array_equal(tokens, other)
        np.testing.assert_array_equal(numbers, others)
    assert sorted(tokens.tolist() for tokens, _ in found) == sorted(tokens.tolist() for tokens, _ in expected)
