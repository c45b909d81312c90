"""Epochs of sources that combine other sources, and epochs of a fixed size."""

import json
from collections import Counter

import pytest

from highway import Passport, Pipeline, Stage, Stamped, Traits
from highway.errors import ConfigError, EndOfStream
from highway.modules import Batch, Concat, FixedEpochs, Mix, Reader, Repeat, Shuffle, Take, Zip


def reader(first, stop, epochs=3, **settings):
    return Reader(range(first, stop), **{"epochs": epochs, "shuffle": False, "num_workers": 1, **settings})


def loops(pipeline):
    found = []
    try:
        while True:
            found.append([int(item) if not isinstance(item, tuple) else item for item in pipeline])
    except EndOfStream:
        return found


def epochs_of(source):
    with Pipeline([source], seed=4) as pipeline:
        return loops(pipeline)


class Numbered:
    """A source of the user's own that numbers epochs, and has no state."""

    def __iter__(self):
        for epoch in range(3):
            for index in range(2):
                yield Stamped(70 + index, Passport(epoch, index))

    def __highway__(self):
        return Traits(numbers_epochs=True)


def double(item):
    return 2 * item


def test_a_loop_over_concat_is_one_epoch_of_each_source():
    pipelined = Pipeline([reader(20, 22), double])
    source = Concat([reader(0, 3), [7], pipelined, Numbered(), Repeat([9], 3)])
    assert epochs_of(source) == [[0, 1, 2, 7, 40, 42, 70, 71, 9]] * 3
    with Pipeline([Concat([reader(0, 3, None), [7]])]) as endless:
        assert [list(endless) for _ in range(4)] == [[0, 1, 2, 7]] * 4
        assert endless.epoch == 4
    with Pipeline([Concat([reader(0, 3, 2), [7]])]) as stream:
        places = [passport[:2] for _, passport in stream.stamped()]
    assert places == [(epoch, index) for epoch in range(2) for index in range(4)]


def test_each_epoch_of_a_source_has_its_own_order():
    first, second = epochs_of(Concat([Reader(range(30), epochs=2), Pipeline([range(100, 130), Shuffle(30)])]))
    assert sorted(first) == sorted(second) == [*range(30), *range(100, 130)]
    assert first[:30] != second[:30] and first[30:] != second[30:]
    assert [first[:30], second[:30]] == epochs_of(Reader(range(30), epochs=2))
    first, second = epochs_of(Mix([reader(0, 20, 2), reader(20, 40, 2)]))
    assert sorted(first) == sorted(second) == list(range(40)) and first != second


def test_a_source_with_fewer_epochs_ends_before_the_others():
    assert epochs_of(Concat([reader(0, 2, 1), reader(5, 7, 2), [9]])) == [[0, 1, 5, 6, 9], [5, 6, 9]]
    assert [sorted(epoch) for epoch in epochs_of(Mix([reader(0, 2, 1), reader(5, 7, 2)]))] == [[0, 1, 5, 6], [5, 6]]
    with pytest.raises(
        ValueError, match=r"Zip: sources \[0\] of 3 end after 1 epochs, but others continue; set the same epochs=, or pass strict"
    ):
        epochs_of(Zip([reader(0, 2, 1), reader(5, 7, 2), [1, 2]]))
    assert epochs_of(Zip([reader(0, 2, 1), reader(5, 7, 2), [1, 2, 3]], strict=False)) == [[(0, 5, 1), (1, 6, 2)]]


def test_zip_combines_epochs():
    assert epochs_of(Zip([reader(0, 2, 2), ["a", "b"]])) == [[(0, "a"), (1, "b")]] * 2
    shortest = Zip([reader(0, 5, 2), reader(10, 12, 2)], strict=False)
    assert epochs_of(shortest) == [[(0, 10), (1, 11)]] * 2  # the longer source begins each epoch anew


def test_the_first_source_may_end_the_epochs_of_a_mix():
    epochs = epochs_of(Mix([reader(0, 4, 3), reader(100, 140, 3)], stop="first"))
    assert [[item for item in epoch if item < 100] for epoch in epochs] == [[0, 1, 2, 3]] * 3
    others = [item for epoch in epochs for item in epoch if item >= 100]
    assert others == list(range(100, 100 + len(others)))  # each epoch continues at the next item
    assert all(any(item >= 100 for item in epoch) for epoch in epochs)


def test_an_epoch_ends_before_a_source_repeats_although_its_passes_begin_elsewhere():
    epochs = epochs_of(Mix([reader(0, 6, 8), reader(100, 109, 5)], [1, 1], stop="first"))
    assert len(epochs) > 4
    for epoch in epochs:
        assert max(Counter(epoch).values()) == 1  # within an epoch no sample comes twice
    for begin, stop, passes in ((0, 6, 8), (100, 109, 5)):
        read = [item for epoch in epochs for item in epoch if begin <= item < stop]
        assert read == (list(range(begin, stop)) * passes)[: len(read)]


def test_sources_of_a_mix_may_restart_until_all_were_read_whole():
    epochs = epochs_of(Mix([reader(0, 3, 40), reader(100, 110, 3), [50]], [5, 1, 5], stop="restart"))[:3]
    for epoch in epochs:
        found = Counter(epoch)
        assert min(found[item] for item in (*range(3), *range(100, 110), 50)) >= 1
        assert found[0] > 1 and found[50] > 2


def test_a_mix_of_lists_has_one_epoch():
    (items,) = [list(Pipeline([Mix([[1, 2], [5, 6, 7, 8, 9]], stop="restart", seed=3)]))]
    assert set(items) == {1, 2, 5, 6, 7, 8, 9} and Counter(items)[1] > 1
    assert not Pipeline([Mix([[1, 2], [5, 6]], stop="first")]).numbers_epochs


def test_mix_by_size_knows_the_size_of_a_reader():
    with Pipeline([Mix([reader(0, 90, 2, batch_size=3), [99]], by_size=True)]) as pipeline:
        assert len(pipeline) == 31
        places = [[item for item, _ in enumerate(epoch)] for epoch in ([*pipeline], [*pipeline])]
    assert [len(epoch) for epoch in places] == [31, 31]


class TooLong(list):
    def __len__(self):
        return 2


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Mix([[1]], by_size=True, stop="first"), ConfigError, "Mix: stop='first' cannot be combined with by_size"),
        (
            lambda: Mix([[1], Pipeline([[1], Stage(double, drops=True)])], by_size=True),
            ConfigError,
            r"sources\[1\], Pipeline.*has no length \(the",
        ),
        (lambda: Mix([TooLong([1, 2, 3])], by_size=True), ValueError, r"Mix: sources\[0\] has more items in an epoch than its length"),
        (
            lambda: Concat([reader(0, 2, 2), iter([5])]),
            ValueError,
            r"Concat: sources\[1\], <list_iterator.*it can be iterated over only once",
        ),
        (lambda: Zip([reader(0, 2, 2), [5]]), ValueError, r"sources \[1\] of 2 end after 1 items, but others continue"),
    ],
)
def test_a_combination_that_cannot_be_is_an_error(make, error, message):
    with pytest.raises(error, match=message):
        epochs_of(make())


def test_the_length_of_a_combination_is_that_of_an_epoch():
    assert len(Pipeline([Concat([reader(0, 3), [7, 8], reader(5, 10)])])) == 10
    assert len(Pipeline([Zip([reader(0, 3), [7, 8, 9]])])) == 3
    assert len(Pipeline([Repeat(Concat([reader(0, 3), [7]]), 2)])) == 4
    assert len(Pipeline([reader(0, 10), FixedEpochs(4)])) == 4
    for source, why in [
        (Concat([reader(0, 3, 1), reader(0, 3, 2)]), r"Concat has sources with different numbers of epochs, \[1, 2\]"),
        (Mix([reader(0, 3), reader(0, 3)], stop="first"), r"depends on random numbers \(stop='first'\)"),
    ]:
        with pytest.raises(TypeError, match=f"the length of an epoch is unknown: .*{why}"):
            len(Pipeline([source]))


COMBINED = {
    "concat": lambda: [Concat([reader(0, 5), [7, 8, 9], reader(20, 24, batch_size=2), Repeat([30, 31], 3)])],
    "mix": lambda: [Mix([reader(0, 5), [7, 8, 9], Pipeline([reader(20, 24), double])])],
    "first": lambda: [Mix([reader(0, 5), [7, 8, 9], Pipeline([reader(20, 24), double])], stop="first")],
    "restart": lambda: [Mix([reader(0, 5, 9), reader(20, 24), [7, 8]], stop="restart")],
    "zip": lambda: [Zip([reader(0, 9), Concat([reader(20, 24), [1, 2]])], strict=False)],
    "nested": lambda: [Concat([Mix([reader(0, 5), [7, 8]]), Concat([Zip([reader(20, 24), [1, 2, 3, 4]])])])],
    "repeated": lambda: [Repeat(Mix([reader(0, 5, 1), [7, 8, 9]]), 3)],
    "repeated without epochs": lambda: [Repeat(Concat([Reader([1, 2, 3]), [7, 8, 9]]), 3)],
    "stages": lambda: [Concat([reader(0, 5), [7, 8, 9]]), Stage(double, num_workers=2), Shuffle(3), Batch(2)],
    "of a fixed size": lambda: [reader(0, 7, 4), FixedEpochs(5), Shuffle(3)],
    "mix of a fixed size": lambda: [Mix([Pipeline([reader(0, 7, 4), FixedEpochs(5)]), [70, 80]])],
}


def shown(items):
    return [str(item) for item in items]


QUICK = ("zip", "first", "of a fixed size")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in COMBINED])
def test_a_loop_that_was_left_does_not_change_the_next_epochs(name):
    with Pipeline(COMBINED[name](), seed=3) as pipeline:
        expected = []
        with pytest.raises(EndOfStream):
            while True:
                expected.append(shown(pipeline))
    assert len(expected) > 2 and all(expected)
    for count in range(1, len(expected[0]) + 1):
        with Pipeline(COMBINED[name](), seed=3) as pipeline:
            for taken, _ in enumerate(pipeline, start=1):
                if taken == count:
                    break
            state = json.loads(json.dumps(pipeline.state_dict()))
            assert shown(pipeline) == expected[1]
            middle = iter(pipeline)
            begun = [str(next(middle))]
            later = json.loads(json.dumps(pipeline.state_dict()))
            assert begun + shown(middle) == expected[2]
        with Pipeline(COMBINED[name](), seed=3) as pipeline:  # between two epochs
            pipeline.load_state_dict(state)
            assert [shown(pipeline), shown(pipeline)] == expected[1:3]
        with Pipeline(COMBINED[name](), seed=3) as pipeline:  # within an epoch
            pipeline.load_state_dict(later)
            assert begun + shown(pipeline) == expected[2]


def test_an_epoch_of_a_fixed_size_continues_where_the_last_ended():
    assert epochs_of(Pipeline([reader(0, 5, 3), FixedEpochs(4)])) == [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4, 0, 1], [2, 3, 4]]
    with Pipeline([[1, 2, 3], FixedEpochs(2), Batch(3)]) as pipeline:
        assert [batch.tolist() for batch in pipeline] == [[1, 2]]


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        ([reader(0, 2, 1)], r"Reader has yielded all its epochs \(1\); for more passes, raise this number"),
        ([Pipeline([reader(0, 2, 2)]), double], r"Pipeline has yielded all its epochs \(2\); for more passes, raise this number"),
        ([Mix([reader(0, 2, 2), [1]])], r"Mix has yielded all its epochs \(2\); for more passes, raise this number"),
        ([reader(0, 200, 9), Take(2)], "Take needs no more items and has ended the pipeline; change this stage"),
        ([(number for number in range(2))], "its source, a generator, yields its items only once; create a new generator"),
        ([[1, 2]], r"list has no more items; for more passes, use a reader with epochs=, or Repeat\(source, times=...\)"),
        ([Repeat([1, 2], 2)], "Repeat has no more items; for more passes, raise times="),
    ],
)
def test_the_error_of_an_ended_pipeline_names_the_cause(stages, why):
    with Pipeline(stages) as pipeline:
        for _ in pipeline.stamped():
            pass
        with pytest.raises(EndOfStream, match=f"the pipeline has ended: {why}(, or| and) build a new pipeline"):
            pipeline.dequeue()
        with pytest.raises(EndOfStream, match=f"the pipeline has ended: {why}"):
            list(pipeline)
