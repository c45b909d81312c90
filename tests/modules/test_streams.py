import queue
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highway import Passport, Pipeline, Stamped
from highway.engine.channel import Together
from highway.engine.context import here
from highway.errors import ConfigError
from highway.modules import Batch, BatchByShape, Benchmark, Duplicate, Peek, Shuffle, Take, Tee, Unbatch
from highway.modules.printing import rate


class Feed:
    """What a stream iterates over, outside a pipeline: each item with a passport of its own."""

    def __init__(self, items, epoch_length=1000, epoch=0):
        self._items = iter(enumerate(items))
        self._epoch_length = epoch_length
        self.passport, self.context = Passport(), here()
        self.epoch, self.waiting = epoch, []
        self.taken = 0

    def __iter__(self):
        return self

    def __next__(self):
        number, item = next(self._items)
        self.taken += 1
        self.passport = Passport(*divmod(number, self._epoch_length), keys=(f"key {number}",), times=(float(number),))
        return item


def run(stream, items, epoch_length=1000):
    return one_by_one(stream.stream(Feed(items, epoch_length)))


def one_by_one(outputs):
    return [each for output in outputs for each in (output if type(output) is Together else [output])]


def items_of(stamped):
    return [each.item for each in stamped]


def places(stamped):
    return [(each.passport.epoch, each.passport.index) for each in stamped]


def sample(number, shape=(2, 3)):
    return np.full(shape, number, np.uint8), np.int32(number)


def test_a_batch_stacks_each_field():
    first, second = items_of(run(Batch(2), map(sample, range(4))))
    assert first[0].shape == (2, 2, 3) and first[0].dtype == np.uint8
    assert first[1].dtype == np.int32
    assert second[1].tolist() == [2, 3]
    np.testing.assert_array_equal(second[0][1], sample(3)[0])


def test_a_batch_of_dicts_is_a_dict():
    (batch,) = items_of(run(Batch(2), [{"x": 1, "y": 2}, {"x": 3, "y": 4}]))
    assert {name: value.tolist() for name, value in batch.items()} == {"x": [1, 3], "y": [2, 4]}


@pytest.mark.parametrize(("drop_last", "sizes"), [(False, [3, 3, 1]), (True, [3, 3])])
def test_a_last_batch_is_kept_or_dropped(drop_last, sizes):
    assert [len(batch) for batch in items_of(run(Batch(3, drop_last), range(7)))] == sizes


def test_a_batch_has_the_epoch_of_its_first_sample_and_the_keys_of_all():
    batches = run(Batch(2), range(5), epoch_length=3)
    assert places(batches) == [(0, 0), (0, 1), (1, 2)]
    assert [each.passport.keys for each in batches] == [("key 0", "key 1"), ("key 2", "key 3"), ("key 4",)]
    assert [each.passport.times for each in batches] == [(0.0,), (2.0,), (4.0,)]


def test_samples_of_different_shapes_are_an_error_that_names_the_field():
    with pytest.raises(ValueError, match=r"field 0 has shapes \[\(2, 3\), \(4, 4\)\]"):
        run(Batch(2), [sample(0), sample(1, (4, 4))])


def test_batch_by_shape_puts_together_what_fits():
    shapes = [(1, 2), (2, 2), (1, 2), (2, 2), (2, 2), (1, 2), (3, 3)]
    batches = run(BatchByShape(2), [sample(n, shape) for n, shape in enumerate(shapes)])
    assert [batch[1].tolist() for batch in items_of(batches)] == [[0, 2], [1, 3], [4], [5], [6]]
    assert [each.passport.keys for each in batches][:2] == [("key 0", "key 2"), ("key 1", "key 3")]
    assert [
        batch[1].tolist() for batch in items_of(run(BatchByShape(2, drop_last=True), [sample(n, s) for n, s in enumerate(shapes)]))
    ] == [
        [0, 2],
        [1, 3],
    ]


def test_batch_by_shape_does_not_mix_dtypes():
    batches = items_of(run(BatchByShape(2), [np.uint8(1), np.float32(2), np.uint8(3)]))
    assert [(batch.dtype, batch.tolist()) for batch in batches] == [(np.dtype("u1"), [1, 3]), (np.dtype("f4"), [2.0])]


def test_unbatch_gives_views_with_their_keys():
    images, labels = np.arange(24, dtype=np.uint8).reshape(4, 2, 3), np.arange(4)
    batch = Stamped((images, labels), Passport(2, 5, keys=tuple("abcd")))

    class One(Feed):
        def __next__(self):
            item = super().__next__()
            self.passport = batch.passport
            return item

    samples = one_by_one(Unbatch().stream(One([batch.item, batch.item])))
    assert places(samples) == [(2, n) for n in range(8)]
    assert [each.passport.keys for each in samples[:4]] == [("a",), ("b",), ("c",), ("d",)]
    assert all(np.shares_memory(each.item[0], images) for each in samples)
    assert [int(each.item[1]) for each in samples] == [0, 1, 2, 3] * 2


@settings(deadline=None)
@given(st.integers(1, 9), st.lists(st.integers(0, 255), max_size=40))
def test_unbatch_undoes_batch(size, values):
    samples = [(np.uint8(value), np.full(2, value, np.float32)) for value in values]
    again = items_of(run(Unbatch(), items_of(run(Batch(size), samples))))
    assert [int(a) for a, _ in again] == values
    assert [b.tolist() for _, b in again] == [[value] * 2 for value in values]


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 70), st.integers(1, 4), st.integers(0, 5))
def test_shuffle_loses_nothing_and_keeps_passports_apart(count, buffer, reuse, seed):
    out = run(Shuffle(buffer, reuse, seed), range(count))
    assert Counter(items_of(out)) == Counter(dict.fromkeys(range(count), reuse))
    assert len(set(places(out))) == len(out)
    assert all(each.passport.index // reuse == each.item for each in out)


def test_shuffle_is_an_order_of_its_seed():
    one, same, other = (items_of(run(Shuffle(20, seed=seed), range(100))) for seed in (1, 1, 2))
    assert one == same
    assert one != other
    assert one != list(range(100))
    assert items_of(run(Shuffle(1), range(100))) == list(range(100))


def test_shuffle_takes_no_more_than_its_buffer_ahead():
    feed = Feed(range(100))
    out = Shuffle(10).stream(feed)
    for drawn in range(1, 50):
        next(out)
        assert feed.taken == drawn + 9


def test_duplicate_repeats_in_a_row_under_numbers_of_their_own():
    out = run(Duplicate(3), "ab")
    assert items_of(out) == list("aaabbb")
    assert places(out) == [(0, n) for n in range(6)]


def test_take_ends_the_pipeline_after_n_items():
    with Pipeline([range(10**9), Take(4)]) as pipeline:
        assert list(pipeline) == [0, 1, 2, 3]


@pytest.mark.parametrize("n", [0, 1, 5])
def test_take_does_not_ask_for_more_than_it_gives(n):
    feed = Feed(range(3))
    assert items_of(Take(n).stream(feed)) == list(range(min(n, 3)))
    assert feed.taken == min(n, 3)


def test_tee_gives_each_item_to_a_function_and_on():
    copies = queue.Queue()
    out = run(Tee(copies.put), "abc")
    assert items_of(out) == list("abc")
    assert [copies.get_nowait() for _ in range(3)] == list("abc")
    assert out[2].passport.keys == ("key 2",)


def test_peek_prints_the_first_items_and_hands_on_all(capsys):
    out = run(Peek(2), [(np.arange(6, dtype=np.uint8).reshape(2, 3), "a cat")] * 3)
    assert len(out) == 3
    assert capsys.readouterr().out.splitlines() == [
        "epoch 0, item 0, keys key 0",
        "  0: uint8 (2, 3), 0 to 5",
        "  1: str 'a cat'",
        "epoch 0, item 1, keys key 1",
        "  0: uint8 (2, 3), 0 to 5",
        "  1: str 'a cat'",
    ]


def test_peek_shows_what_is_in_lists_and_dicts_with_names(capsys):
    images = [np.zeros((n, 2, 3), np.uint8) for n in range(1, 19)]
    run(Peek(names=["images", "about"]), [[images, {"boxes": np.ones((2, 4), np.float32), "tags": ["a", "b"]}]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["epoch 0, item 0, keys key 0", "  images: list of 18", "    0: uint8 (1, 2, 3), 0 to 0"]
    assert lines[17:] == [
        "    15: uint8 (16, 2, 3), 0 to 0",
        "    ... and 2 more",
        "  about: dict of 2",
        "    boxes: float32 (2, 4), 1 to 1",
        "    tags: list ['a', 'b']",
    ]
    with pytest.raises(ValueError, match="Peek: 2 names, a, b, but the item has 1 fields; expected one name for each"):
        run(Peek(names=["a", "b"]), [(1,)])


def test_batches_may_be_lists():
    (out,) = run(Batch(2, as_list=True), [[np.zeros((1, 2)), 7], [np.zeros((3, 4)), 8]])
    assert [array.shape for array in out.item[0]] == [(1, 2), (3, 4)] and out.item[1] == [7, 8]


def test_benchmark_prints_a_rate_for_each_n_items_and_for_the_rest(capsys):
    out = run(Benchmark(4), [np.zeros(1000, np.uint8)] * 11)
    lines = capsys.readouterr().out.splitlines()
    assert len(out) == 11
    assert [line.split(" in ")[0] for line in lines] == ["4 items", "4 items", "2 items"]
    assert all(" items/s, " in line and line.endswith(" MB/s") for line in lines)


def test_a_rate_is_items_and_bytes_per_second():
    assert rate(50, 2_000_000_000, 4.0) == "50 items in 4.00 s: 12.5 items/s, 500.0 MB/s"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Batch(0), "Batch: batch_size=0; expected at least 1"),
        (lambda: BatchByShape(0), "BatchByShape: batch_size=0"),
        (lambda: Shuffle(0), "Shuffle: buffer_size=0"),
        (lambda: Shuffle(1, 0), "Shuffle: reuse=0"),
        (lambda: Shuffle(1, 1, -1), "Shuffle: seed=-1"),
        (lambda: Duplicate(0), "Duplicate: times=0"),
        (lambda: Take(-1), "Take: n=-1"),
        (lambda: Peek(-1), "Peek: n=-1"),
        (lambda: Benchmark(0), "Benchmark: n=0"),
    ],
)
def test_a_wrong_parameter_is_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
