"""States of a pipeline in a loop over its ``tf.data.Dataset``; run by ``tox -e adapters-tf``."""

import numpy as np
import pytest

from highway import Pipeline, PipelineError
from highway.modules import Reader

tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed: this is run by tox -e adapters-tf")

from waiting import wait_until  # noqa: E402

from highway.adapters.tensorflow import to_dataset  # noqa: E402

BATCHES = 8
NOBODY = r"state_dict: TensorFlow reads items in advance, so it is unknown which items your loop has received"


def pipeline(*stages):
    return Pipeline([Reader([(n,) for n in range(4 * BATCHES)], 4, epochs=3), *stages], seed=3)


class Counted:
    """A pipeline, and which of its items were taken."""

    def __init__(self, made, taken):
        self.made, self.taken, self.position, self.received = made, taken, made.position, made.received

    def __iter__(self):
        for item in self.made:
            self.taken.append(item)
            yield item


def rows(items):
    return [np.asarray(item[0]).tolist() for item in items]


@pytest.fixture(scope="module")
def expected():
    with pipeline() as whole:
        return [rows(whole) for _ in range(3)]


def resumed(state):
    """Return what is left of the epoch of a state, and the epoch after it."""
    with pipeline() as other:
        other.load_state_dict(state)
        return rows(to_dataset(other, (tf.TensorSpec([None], tf.int32),))), rows(other)


@pytest.mark.parametrize("count", [0, 1, BATCHES - 1, BATCHES + 3])
def test_a_state_counts_what_the_loop_has_received(expected, count):
    with pipeline() as made:
        received, taken, states = [], [], [made.state_dict()]
        dataset = to_dataset(Counted(made, taken))
        for _ in range(2):
            for batch in dataset:
                received.append(batch)
                wait_until(lambda: len(taken) >= min(len(received) + 2, -(-len(received) // BATCHES) * BATCHES))  # TensorFlow is ahead
                if len(received) == count:
                    states.append(made.state_dict())
    epoch, inside = divmod(count, BATCHES)
    assert resumed(states[-1]) == (expected[epoch][inside:], expected[epoch + 1])


def test_the_item_that_shows_the_signature_is_not_received(expected):
    with pipeline() as made:
        to_dataset(made)
        assert resumed(made.state_dict()) == (expected[0], expected[1])


def test_after_a_break_the_state_is_that_of_the_next_epoch(expected):
    with pipeline() as made:
        dataset = to_dataset(made)
        for _ in dataset:
            break
        state = made.state_dict()
        assert rows(dataset) == expected[1]
    assert resumed(state) == (expected[1], expected[2])


def test_a_loop_over_another_dataset_refuses_the_state_until_the_with_block_ends(expected):
    with pipeline() as made:
        with to_dataset(made) as dataset:
            for _ in dataset.map(lambda *batch: batch):
                with pytest.raises(PipelineError, match=NOBODY):
                    made.state_dict()
            with pytest.raises(PipelineError, match=NOBODY):
                made.state_dict()
        state = made.state_dict()
    assert resumed(state) == (expected[1], expected[2])


def test_a_loop_in_a_tf_function_refuses_the_state():
    @tf.function
    def step(iterator):
        return next(iterator)

    with pipeline() as made:
        iterator = iter(to_dataset(made))
        next(iterator)
        made.state_dict()
        step(iterator)
        with pytest.raises(PipelineError, match=NOBODY):
            made.state_dict()


def test_the_cardinality_is_known_if_the_length_is():
    with pipeline() as made:
        dataset = to_dataset(made)
        assert (int(dataset.cardinality()), len(dataset)) == (BATCHES, BATCHES)
    with Pipeline([lambda: iter([np.zeros(2)])]) as made:
        assert to_dataset(made).cardinality() == tf.data.UNKNOWN_CARDINALITY
