import itertools
import queue
from collections import Counter
from itertools import islice

import pytest

from highway import EndOfStream, Passport, Pipeline, PipelineError, Stage, Stamped, Traits
from highway.errors import ConfigError
from highway.modules import (
    Batch,
    Cache,
    Concat,
    DumpImages,
    FromQueue,
    ImageFileReader,
    ImageSink,
    Mix,
    Noise,
    Repeat,
    Shuffle,
    Take,
    Zip,
)


def items_of(source):
    return [each.item for each in source]


def places(source):
    return [(each.passport.epoch, each.passport.index) for each in source]


class Named:
    """A source with keys."""

    def __init__(self, *keys):
        self.keys = keys

    def __iter__(self):
        for index, key in enumerate(self.keys):
            yield Stamped((key,), Passport(7, index, keys=(key,)))

    def __len__(self):
        return len(self.keys)


def test_each_pass_of_repeat_is_an_epoch():
    assert items_of(Repeat(["a", "b"], 2)) == list("abab")
    assert places(Repeat(["a", "b"], 2)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [each.passport.keys for each in Repeat(Named("x"), 2)] == [("x",), ("x",)]


def test_repeat_without_times_has_no_end():
    assert [each.item for each in islice(Repeat(range(3)), 100)] == [n % 3 for n in range(100)]


@pytest.mark.parametrize("times", [None, 2])
def test_repeating_what_is_used_up_is_an_error_and_no_endless_loop(times):
    with pytest.raises(ValueError, match=r"pass 2 over .* yielded no items: it can be iterated over only once"):
        list(Repeat(iter("ab"), times))


def test_repeating_nothing_for_ever_is_an_error():
    with pytest.raises(ValueError, match="it is empty"):
        list(Repeat([]))
    assert list(Repeat([], 1)) == []


def reader(**settings):
    return ImageFileReader("highway:photos/val", 5, (8, 8), **{"seed": 3, **settings})


def stamps_of(source):
    with Pipeline([source]) as pipeline:
        return [(each.passport.epoch, each.passport.index, each.passport.keys) for each in pipeline.stamped()]


@pytest.mark.parametrize("given", [{}, {"epochs": 1}])
def test_a_reader_that_is_repeated_makes_as_many_epochs(given):
    expected = stamps_of(reader(epochs=3))
    assert stamps_of(Repeat(reader(**given), 3)) == expected
    with Pipeline([reader(**given), lambda item: item, Repeat(times=3)]) as pipeline:
        assert [(each.passport.epoch, each.passport.index, each.passport.keys) for each in pipeline.stamped()] == expected
    assert stamps_of(Repeat(Pipeline([reader(**given)]), 3)) == expected
    assert expected[:7] != expected[7:14]


def test_a_reader_with_epochs_is_repeated_with_all_of_them():
    assert stamps_of(Repeat(reader(epochs=2), 2)) == stamps_of(reader(epochs=4))


def test_repeat_in_the_middle_begins_each_stream_anew():
    with Pipeline([range(5), Batch(2), Repeat(times=2)]) as pipeline:
        got = [(each.item.tolist(), each.passport.epoch, each.passport.index) for each in pipeline.stamped()]
    assert got == [([0, 1], 0, 0), ([2, 3], 0, 1), ([4], 0, 2), ([0, 1], 1, 0), ([2, 3], 1, 1), ([4], 1, 2)]
    with Pipeline([range(5), Repeat(times=2), Batch(4)]) as pipeline:
        got = [[batch.tolist() for batch in pipeline] for _ in range(2)]
    assert got == [[[0, 1, 2, 3], [4]]] * 2


def test_take_before_repeat_begins_the_source_anew_though_it_never_ends():
    with Pipeline([itertools_count, Stage(lambda n: 10 * n, num_workers=3), Take(3), lambda n: n + 1, Repeat(times=2)]) as pipeline:
        assert [list(pipeline), list(pipeline)] == [[1, 11, 21]] * 2
    with Pipeline([reader(epochs=1), Take(2), Repeat(times=2), Take(3)]) as pipeline:
        assert [(each.passport.epoch, each.passport.index) for each in pipeline.stamped()] == [(0, 0), (0, 1), (1, 0)]


def itertools_count():
    yield from itertools.count()


def test_what_draws_by_a_seed_draws_anew_in_each_pass():
    with Pipeline([range(50), Shuffle(50), Repeat(times=2)]) as pipeline:
        first, second = list(pipeline), list(pipeline)
    with Pipeline([range(50), Shuffle(50)]) as pipeline:
        assert list(pipeline) == first
    assert sorted(first) == sorted(second) == list(range(50)) and first != second
    first, second = batched(items_of(Repeat(Mix([range(20), range(20, 40)]), 2)), 40)
    assert first == items_of(Mix([range(20), range(20, 40)])) and sorted(first) == sorted(second) and first != second


def batched(items, size):
    return [items[start : start + size] for start in range(0, len(items), size)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Pipeline([range(3), Repeat(range(3), 2)]),
            r"not the first stage; to repeat the stages before it, remove the source: "
            r"Repeat\(times=...\)",
        ),
        (lambda: list(Repeat(times=2)), "as the first stage it needs a source"),
        (lambda: Pipeline([[(1,)], Cache(), Repeat(times=2)]), "Cache.* already repeats; pass epochs= to that stage"),
        (lambda: Pipeline([range(3), Stage(Repeat(times=2), buffer_size=3)]), "Repeat uses the settings of the stages before it"),
    ],
)
def test_a_repeat_that_means_nothing_is_refused(make, message):
    with pytest.raises((ConfigError, PipelineError), match=message):
        make()


def test_mix_concat_and_zip_take_readers_pipelines_and_functions():
    photos = reader(epochs=1, shuffle=False)
    keys = [keys for _, _, keys in stamps_of(photos)]
    mixed = stamps_of(Mix([photos, Pipeline([photos, lambda item: item])], seed=1))
    assert sorted(key for _, _, key in mixed) == sorted(keys * 2)
    assert [index for _, index, _ in mixed] == list(range(14))
    assert [keys for _, _, keys in stamps_of(Concat([photos, Pipeline([photos, Take(2)])]))] == [*keys, *keys[:2]]
    assert items_of(Zip([itertools_count, list("abc")], strict=False)) == [(0, "a"), (1, "b"), (2, "c")]
    with Pipeline([Mix([photos, photos]), Take(1)]) as pipeline:  # what is inside ends with it
        assert len(list(pipeline)) == 1


def test_mix_may_end_with_the_first():
    items = items_of(Mix([range(3), range(100, 200)], stop="first", seed=2))
    assert [n for n in items if n < 100] == [0, 1, 2] and len(items) < 20
    assert len(items_of(Mix([range(3), range(100, 200)]))) == 103


def test_an_error_in_a_source_of_a_mix_keeps_its_type():
    with Pipeline([Mix([reader(), ImageFileReader("nowhere", 1, (2, 2))])]) as pipeline, pytest.raises(FileNotFoundError, match="nowhere"):
        list(pipeline)


def test_concat_numbers_through_and_keeps_keys():
    source = Concat([Named("a", "b"), [("c",)], Named("d")])
    assert items_of(source) == [("a",), ("b",), ("c",), ("d",)]
    assert places(source) == [(0, n) for n in range(4)]
    assert [each.passport.keys for each in source] == [("a",), ("b",), (), ("d",)]


def test_zip_joins_tuples_and_dicts():
    assert items_of(Zip([[(1, 2), (3, 4)], ["a", "b"]])) == [(1, 2, "a"), (3, 4, "b")]
    assert items_of(Zip([[{"x": 1}], [{"y": 2}]])) == [{"x": 1, "y": 2}]
    assert [each.passport.keys for each in Zip([Named("k"), [5]])] == [("k",)]


@pytest.mark.parametrize(
    ("sources", "error", "message"),
    [
        ([[1, 2], [3]], ValueError, r"sources \[1\] of 2 end after 1 items, but others continue; pass strict=False"),
        ([[{"x": 1}], [{"x": 2}]], ValueError, "two dicts have the same field:"),
        ([[{"x": 1}], [2]], TypeError, "cannot combine dict and int"),
    ],
)
def test_zip_says_what_does_not_fit(sources, error, message):
    with pytest.raises(error, match=message):
        list(Zip(sources))


def test_zip_that_is_not_strict_ends_with_the_shortest():
    assert items_of(Zip([[1, 2, 3], [4, 5]], strict=False)) == [(1, 4), (2, 5)]


def test_mix_loses_nothing_and_keeps_the_order_of_each_source():
    source = Mix([range(50), range(100, 120), range(200, 201)], seed=3)
    mixed = items_of(source)
    assert [n for n in mixed if n < 100] == list(range(50))
    assert [n for n in mixed if 100 <= n < 200] == list(range(100, 120))
    assert len(mixed) == 71
    assert places(source) == [(0, n) for n in range(71)]


def test_mix_draws_by_weight():
    drawn = Counter(items_of(islice(Mix([["a"] * 9, ["b"] * 3000], weights=[3, 1], stop="restart"), 2000)))
    assert 1380 < drawn["a"] < 1620


def test_mix_by_size_spreads_a_small_source_over_all():
    first = [next(place for place, n in enumerate(items_of(Mix([range(90), [99]], by_size=True, seed=s))) if n == 99) for s in range(200)]
    assert min(first) < 10 and max(first) > 80 and 35 < sum(first) / 200 < 55


def test_mix_is_an_order_of_its_seed():
    one, same, other = (items_of(Mix([range(50), range(50, 100)], seed=seed)) for seed in (1, 1, 2))
    assert one == same
    assert one != other


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mix([]), r"Mix: sources=\[\]; expected at least one"),
        (lambda: Mix([[1]], weights=[1, 2]), r"weights=\[1.0, 2.0\]; expected one weight above 0 for each of 1 sources"),
        (lambda: Mix([[1]], weights=[0]), r"weights=\[0.0\]"),
        (lambda: Mix([[1]], weights=[1], by_size=True), "cannot be combined; remove"),
        (lambda: Mix([iter([1])], by_size=True), r"sources\[0\], .* has no length; use weights"),
        (lambda: Mix([[1]], seed=-1), "seed=-1"),
        (lambda: Concat([[1], 5]), r"Concat: sources\[1\] is not a source: 5 is not a stage: expected an iterable"),
        (lambda: Zip([]), r"Zip: sources=\[\]; expected at least one"),
        (lambda: Repeat([1], 0), "Repeat: times=0"),
        (lambda: Mix([[1], Noise]), r"Mix: sources\[1\] is not a source: Noise is a class; pass an instance: Noise\(...\)"),
        (lambda: Mix([lambda n: n]), r"Mix: sources\[0\] is not a source"),
        (lambda: Repeat(3), "Repeat: source=3 is not a source: 3 is not a stage"),
        (lambda: Concat([Pipeline([[1], DumpImages("x")]), Pipeline([[1], ImageSink("x")])]), r"Concat: sources\[1\] .* ends in a sink"),
    ],
)
def test_a_wrong_parameter_is_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize("end", [EndOfStream, EndOfStream("done")])
def test_from_queue_yields_until_the_end_is_put(end):
    filled = queue.Queue()
    for item in (1, None, 3, end, 5):
        filled.put(item)
    assert list(FromQueue(filled)) == [1, None, 3]


def test_from_queue_stops_with_its_pipeline():
    filled = queue.Queue()
    filled.put("only")
    with Pipeline([FromQueue(filled)]) as pipeline:
        assert pipeline.dequeue() == "only"
    with pytest.raises(EndOfStream):
        pipeline.dequeue()


def test_an_item_of_a_pipeline_that_has_ended_is_made_again():
    inner = Pipeline([range(10), str])
    assert len(list(inner)) == 10
    assert Traits.of(Mix([inner, range(5)])).remake(0, 7, [0, 0, [0, 3]]).item == "3"
