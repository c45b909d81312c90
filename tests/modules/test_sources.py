import queue
from collections import Counter
from itertools import islice

import pytest

from highway import EndOfStream, Passport, Pipeline, Stamped
from highway.errors import ConfigError
from highway.modules import Concat, FromQueue, ImageFileReader, Mix, Repeat, Zip


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
    assert items_of(Repeat("ab", 2)) == list("abab")
    assert places(Repeat("ab", 2)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [each.passport.keys for each in Repeat(Named("x"), 2)] == [("x",), ("x",)]


def test_repeat_without_times_has_no_end():
    assert [each.item for each in islice(Repeat(range(3)), 100)] == [n % 3 for n in range(100)]


@pytest.mark.parametrize("times", [None, 2])
def test_repeating_what_is_used_up_is_an_error_and_no_endless_loop(times):
    with pytest.raises(ValueError, match=r"pass 2 over .* gave nothing: it is used up"):
        list(Repeat(iter("ab"), times))


def test_repeating_nothing_for_ever_is_an_error():
    with pytest.raises(ValueError, match="it is empty"):
        list(Repeat([]))
    assert list(Repeat([], 1)) == []


def test_a_reader_cannot_be_repeated_and_the_message_says_what_can():
    with pytest.raises(ConfigError, match=r"Repeat: source=.*; expected a Source"):
        Repeat(ImageFileReader("nowhere", 1, (2, 2)))


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
        ([[1, 2], [3]], ValueError, r"sources \[1\] of 2 end after 1 items, others go on; strict=False"),
        ([[{"x": 1}], [{"x": 2}]], ValueError, "a name is in two of the dicts"),
        ([[{"x": 1}], [2]], TypeError, "cannot join dict and int"),
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
    drawn = Counter(items_of(islice(Mix([Repeat("a"), Repeat("b")], weights=[3, 1]), 2000)))
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
        (lambda: Mix([]), "Mix: sources is empty"),
        (lambda: Mix([[1]], weights=[1, 2]), r"weights=\[1.0, 2.0\]; expected one above 0 for each of 1 sources"),
        (lambda: Mix([[1]], weights=[0]), r"weights=\[0.0\]"),
        (lambda: Mix([[1]], weights=[1], by_size=True), "two answers to one question"),
        (lambda: Mix([iter([1])], by_size=True), r"sources\[0\], .* has none; give weights"),
        (lambda: Mix([[1]], seed=-1), "seed=-1"),
        (lambda: Concat([[1], 5]), r"Concat: sources\[1\]=5; expected a Source"),
        (lambda: Zip([]), "Zip: sources is empty"),
        (lambda: Repeat([1], 0), "Repeat: times=0"),
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
