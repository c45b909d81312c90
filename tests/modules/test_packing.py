"""Sequences in rows of one length: none is lost, cut where it must not be, or taken for another."""

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highway import Pipeline
from highway.errors import ConfigError
from highway.modules import Batch, ConcatThenSplit, Pack, Reader

COUNTS = st.lists(st.integers(1, 10), max_size=60)


def sequences(counts):
    """Return arrays of these lengths, in which every value is another one."""
    ends = np.cumsum([0, *counts])
    return [np.arange(begin + 1, end + 1, dtype=np.int32) for begin, end in pairwise(ends)]


def rows(*stages, stamped=False):
    with Pipeline(list(stages), seed=1) as pipeline:
        return list(pipeline.stamped()) if stamped else list(pipeline)


def first_fit(counts, length, bins, most=None):
    """Return which sequences stand in each row, as plainly as can be."""
    done, waiting = [], []
    for number, count in enumerate(counts):
        for row in waiting:
            if sum(counts[other] for other in row) + count <= length and len(row) != most:
                row.append(number)
                break
        else:
            if len(waiting) == bins:
                done, waiting = done + waiting, []
            waiting.append([number])
    return done + waiting


def assert_row(row, expected, length, fill=0):
    """Check that a row holds these sequences one after the other."""
    values, segment_ids, positions = row
    assert {part.dtype for part in row} == {np.dtype(np.int32)} and {len(part) for part in row} == {length}
    begin = 0
    for number, array in enumerate(expected, start=1):
        here = slice(begin, begin + len(array))
        np.testing.assert_array_equal(values[here], array)
        assert set(segment_ids[here].tolist()) <= {number}
        assert positions[here].tolist() == list(range(len(array)))
        begin += len(array)
    assert (values[begin:] == fill).all() and not segment_ids[begin:].any() and not positions[begin:].any()


@settings(deadline=None, max_examples=60)
@given(COUNTS, st.integers(10, 25), st.integers(1, 5), st.none() | st.integers(1, 3))
def test_each_sequence_stands_in_the_first_row_that_has_room(counts, length, bins, most):
    arrays = sequences(counts)
    found = rows(arrays, Pack(length, bins, most, fill=-1))
    expected = first_fit(counts, length, bins, most)
    assert len(found) == len(expected)
    for row, numbers in zip(found, expected, strict=True):
        assert_row(row, [arrays[number] for number in numbers], length, fill=-1)


@settings(deadline=None, max_examples=60)
@given(COUNTS, st.integers(1, 25))
def test_what_is_joined_is_cut_where_a_row_is_full(counts, length):
    arrays = sequences(counts)
    found = rows(arrays, ConcatThenSplit(length))
    total = sum(counts)
    assert len(found) == -(-total // length)
    values = np.concatenate([values for values, _, _ in found]) if found else np.array([])
    assert values[:total].tolist() == list(range(1, total + 1)) and not values[total:].any()
    for row, begin in zip(found, range(0, total, length), strict=True):
        parts = [array[(array > begin) & (array <= begin + length)] for array in arrays]
        assert_row(row, [part for part in parts if len(part)], length)
    assert len(rows(arrays, ConcatThenSplit(length, drop_last=True))) == total // length


@pytest.mark.parametrize("ragged", ["list", "offsets"])
@pytest.mark.parametrize("make", [lambda **how: Pack(20, 3, **how), lambda **how: ConcatThenSplit(20, **how)])
def test_batches_of_sequences_make_the_same_rows(make, ragged):
    data = [{"tokens": array, "weights": array / 2} for array in sequences([1 + number % 9 for number in range(200)])]
    expected = rows(Reader(data, epochs=2), make())
    for size in (1, 7, 200):
        found = rows(Reader(data, size, epochs=2, ragged=ragged), make(batched=True))
        assert len(found) == len(expected)
        for row, other in zip(found, expected, strict=True):
            assert list(row) == list(other)
            for name in row:
                np.testing.assert_array_equal(row[name], other[name])
    pairs = [(each["tokens"], each["weights"]) for each in data]
    for row, other in zip(rows(Reader(pairs, 7, epochs=2, ragged=ragged), make(batched=True)), expected, strict=True):
        assert all(np.array_equal(left, right) for left, right in zip(row, other.values(), strict=True))


def test_a_number_in_a_batch_is_a_sequence_of_one():
    data = [
        {"tokens": array, "label": np.int64(number)} for number, array in enumerate(sequences([1 + number % 9 for number in range(50)]))
    ]
    expected = rows(Reader(data, epochs=1), Pack(20, 3))
    found = rows(Reader(data, 7, epochs=1, ragged="list"), Pack(20, 3, batched=True))
    for row, other in zip(found, expected, strict=True):
        assert list(row) == list(other)
        for name in row:
            np.testing.assert_array_equal(row[name], other[name])


@pytest.mark.parametrize("stream", [Pack(999), ConcatThenSplit(999)])
def test_samples_with_other_fields_are_named_though_they_came_in_together(stream):
    samples = [{"tokens": np.ones(2)}] * 20 + [{"text": np.ones(2)}] * 20
    with pytest.raises(ValueError, match=re.escape("a sample has fields ('text',), but others have ('tokens',)")) as caught:
        rows(Reader(samples, shuffle=False, num_workers=1), stream)
    assert "highway: the error was raised for epoch 0, item 20" in caught.value.__notes__


def test_fields_may_have_lengths_of_their_own():
    data = [{"inputs": np.full(3, number), "targets": np.full(1 + number % 2, number, np.float32)} for number in range(6)]
    found = rows(data, Pack({"inputs": 9, "targets": 3}, bins=2))
    assert list(found[0]) == [f"{name}{part}" for part in ("", "_segment_ids", "_positions") for name in ("inputs", "targets")]
    assert [row["inputs"].tolist() for row in found] == [
        [0] * 3 + [1] * 3 + [0] * 3,
        [2] * 3 + [3] * 3 + [0] * 3,
        [4] * 3 + [5] * 3 + [0] * 3,
    ]
    assert [row["targets"].tolist() for row in found] == [[0, 1, 1], [2, 3, 3], [4, 5, 5]]
    assert found[1]["targets_segment_ids"].tolist() == [1, 2, 2] and found[1]["targets"].dtype == np.float32


def test_a_row_is_like_the_samples():
    (row,) = rows([(np.ones(2, np.uint16), [5, 6], 7)], Pack(4))
    assert [(part.tolist(), part.dtype.name) for part in row[:3]] == [
        ([1, 1, 0, 0], "uint16"),
        ([5, 6, 0, 0], "int32"),
        ([7, 0, 0, 0], "int32"),
    ]
    assert len(row) == 9
    (row,) = rows([{"x": np.ones((2, 3, 4))}], Pack(5))
    assert row["x"].shape == (5, 3, 4) and row["x_positions"].tolist() == [0, 1, 0, 0, 0]


def test_sequences_of_no_values_are_sequences():
    (row,) = rows([np.array([1]), np.array([], np.int64), np.array([2])], Pack(4))
    assert [part.tolist() for part in row] == [[1, 2, 0, 0], [1, 3, 0, 0], [0, 0, 0, 0]]
    (row,) = rows([np.array([1]), np.array([], np.int64), np.array([2])], ConcatThenSplit(4))
    assert row[1].tolist() == [1, 2, 0, 0]


class Named(list):
    keys = tuple(f"key {number}" for number in range(100))


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("make", [lambda batched: Pack(10, 4, batched=batched), lambda batched: ConcatThenSplit(10, batched=batched)])
def test_a_row_has_the_keys_of_its_sequences_and_rows_of_two_epochs_are_kept_apart(make, batched):
    data = Named(np.full(1 + number % 4, number) for number in range(100))
    reader = Reader(data, 7, epochs=2, ragged="offsets") if batched else Reader(data, epochs=2)
    found = rows(reader, make(batched), stamped=True)
    assert {passport.epoch for _, passport in found} == {0, 1}
    seen = {0: set(), 1: set()}
    places = []
    for (values, segment_ids, _), passport in found:
        assert passport.keys == tuple(f"key {values[segment_ids == number][0]}" for number in range(1, segment_ids.max() + 1))
        seen[passport.epoch] |= set(passport.keys)
        places.append((passport.epoch, passport.index))
    assert seen == {0: set(data.keys), 1: set(data.keys)}
    assert places == sorted(set(places))


def test_rows_are_batched():
    data = [{"tokens": array} for array in sequences([1 + number % 9 for number in range(100)])]
    batches = rows(Reader(data, 32, epochs=1, ragged="offsets"), Pack(16, batched=True), Batch(8))
    assert list(batches[0]) == ["tokens", "tokens_segment_ids", "tokens_positions"]
    assert {(value.shape, value.dtype) for value in batches[0].values()} == {((8, 16), np.dtype(np.int32))}
    assert sum(int((batch["tokens"] > 0).sum()) for batch in batches) == sum(len(each["tokens"]) for each in data)


@pytest.mark.parametrize(
    ("stream", "samples", "message"),
    [
        (
            Pack(4),
            [np.zeros(5)],
            "Pack: a sequence of field 0 has 5 values, more than a row of length=4; truncate it in an earlier map, or use",
        ),
        (
            Pack({"a": 9}),
            [{"a": [1], "b": [2]}],
            "field 'b' is not in length={'a': 9}; add its length, or remove the field with an earlier Select",
        ),
        (Pack(9), [{"a": [1]}, {"b": [2]}], "Pack: a sample has fields ('b',), but others have ('a',); expected the same fields in all"),
        (Pack(9), [np.zeros(1), np.zeros(1, np.int32)], "field 0 has dtypes ['float64', 'int32']; convert to one dtype"),
        (Pack(9), [np.zeros((1, 2)), np.zeros((1, 3))], "field 0 has shapes (*, 2), (*, 3); all axes except the first must be equal"),
        (Pack(9, fill=-1), [np.zeros(1, np.uint8)], "field 0 has dtype uint8, which cannot hold fill=-1"),
        (Pack(9, batched=True), [np.zeros(3)], "batched=True, but the input is not a batch of sequences"),
        (Pack(9, batched=True), [{"a": [np.zeros(1)], "b": np.zeros(3)}], "batched=True, but the input is not a batch of sequences"),
        (
            Pack(9, batched=True),
            [{"a": np.zeros((2, 3)), "a_count": np.ones(2)}],
            "batched=True, but the input is not a batch of sequences",
        ),
        (Pack(9, batched=True), [(np.zeros((2, 3)), np.ones((2, 3), int))], "batched=True, but the input is not a batch of sequences"),
        (Pack(9, batched=True), [[np.zeros(3), np.zeros(2)]], "batched=True, but the input is not a batch of sequences"),
        (
            ConcatThenSplit(4),
            [(np.zeros(2), np.zeros(3))],
            "ConcatThenSplit: the fields of a sequence have lengths {0: 2, 1: 3}; expected equal lengths",
        ),
        (ConcatThenSplit(4), [np.zeros(1), np.zeros(9, np.int32)], "field 0 has dtypes ['float64', 'int32']"),
    ],
)
def test_what_does_not_fit_is_named(stream, samples, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        rows(samples, stream)


@pytest.mark.parametrize("stream", [Pack(4), ConcatThenSplit(4)])
def test_a_sequence_that_does_not_fit_is_named_though_others_came_in_with_it(stream):
    samples = [(np.zeros(1), np.zeros(1))] * 40
    samples[23] = (np.zeros(9), np.zeros(1))
    with pytest.raises(ValueError) as caught:
        rows(Reader(samples, shuffle=False, num_workers=1), stream)
    assert "highway: the error was raised for epoch 0, item 23" in caught.value.__notes__


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=60), st.integers(1, 5), st.none() | st.integers(1, 3))
def test_a_row_has_room_for_a_sequence_if_all_of_its_fields_have(counts, bins, most):
    samples = [{"a": np.full(first, number), "b": np.full(second, number)} for number, (first, second) in enumerate(counts)]
    expected, waiting = [], []
    for number, (first, second) in enumerate(counts):
        for row in waiting:
            if sum(counts[at][0] for at in row) + first <= 7 and sum(counts[at][1] for at in row) + second <= 9 and len(row) != most:
                row.append(number)
                break
        else:
            if len(waiting) == bins:
                expected, waiting = expected + waiting, []
            waiting.append([number])
    found = rows(samples, Pack({"a": 7, "b": 9}, bins, most, fill=-1))
    for name, place in (("a", 0), ("b", 1)):
        values = [[at for at in row for _ in range(counts[at][place])] for row in expected + waiting]
        assert [row[name][row[name] >= 0].tolist() for row in found] == values


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Pack(0), "Pack: length=0; expected at least 1"),
        (lambda: Pack({"a": 0}), "Pack: length={'a': 0}; expected at least 1"),
        (lambda: Pack(1, 0), "Pack: bins=0; expected at least 1"),
        (lambda: Pack(1, 1, 0), "Pack: max_sequences_per_bin=0; expected at least 1"),
        (lambda: ConcatThenSplit(0), "ConcatThenSplit: length=0; expected at least 1"),
    ],
)
def test_a_wrong_parameter_is_named(make, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        make()


def test_a_filling_for_a_field_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match=r"fill=\{'token': -1\.0\} is for a field 'token', but the padded fields are 'tokens'"):
        list(Pipeline([[{"tokens": np.arange(2)}], Pack(4, fill={"token": -1})]))


def images(tokens, count, patches):
    return {"tokens": np.full(tokens, tokens, np.int32), "images": np.full((count, 2), tokens, np.float32), "patches": patches}


def test_a_row_keeps_within_every_budget_and_concatenates_what_is_counted():
    samples = [images(3, 1, 10), images(2, 2, 20), images(4, 0, 5), images(1, 1, 40)]
    found = rows(samples, Pack({"tokens": 6}, budgets={"images": 2, "patches": 45}))
    assert [row["tokens"].tolist() for row in found] == [[3, 3, 3, 0, 0, 0], [2, 2, 4, 4, 4, 4], [1, 0, 0, 0, 0, 0]]
    assert [row["images"].tolist() for row in found] == [[[3, 3]], [[2, 2], [2, 2]], [[1, 1]]]
    assert [row["patches"].tolist() for row in found] == [[10], [20, 5], [40]]
    assert {*found[0]} == {"tokens", "images", "patches", "tokens_segment_ids", "tokens_positions"}


BUDGETED = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4), st.integers(0, 30)), max_size=40)


@settings(deadline=None, max_examples=20)
@given(BUDGETED, st.integers(1, 4), st.none() | st.integers(1, 3))
def test_budgets_lose_no_sample_and_bounds_cover_the_row(counts, bins, most):
    samples = [images(*one) for one in counts]
    pack = Pack(10, bins, most, budgets={"images": 4, "patches": 30}, cu_seqlens=True)
    found = rows(samples, pack)
    assert sum(len(row["images"]) for row in found) == sum(count for _, count, _ in counts)
    assert sorted(np.concatenate([[], *(row["patches"] for row in found)])) == sorted(patches for *_, patches in counts)
    for row in found:
        assert len(row["images"]) <= 4 and row["patches"].sum() <= 30
        bounds, segments = row["tokens_cu_seqlens"], row["tokens_segment_ids"]
        assert bounds.dtype == np.int32 and bounds[0] == 0 and bounds[-1] == 10 and row["tokens_max_seqlen"] == np.diff(bounds).max()
        assert row["tokens_max_seqlen"].dtype == np.int32 and (most is None or len(bounds) == most + 2)
        for begin, end in pairwise(bounds.tolist()):
            assert len({*segments[begin:end].tolist()}) <= 1
            if begin < end and segments[begin]:
                assert row["tokens_positions"][begin:end].tolist() == list(range(end - begin))
        assert row["tokens_mask"].dtype == bool and (row["tokens_mask"] == (segments > 0)).all()
        assert row["images_cu_seqlens"][-1] == len(row["images"])


def test_rows_with_a_maximum_of_sequences_have_bounds_of_one_shape_that_concatenate_to_those_of_the_batch():
    samples = [{"x": np.full(count, count)} for count in (3, 2, 6, 5, 1, 4)]
    (batch,) = rows(samples, Pack(6, max_sequences_per_bin=3, cu_seqlens=True), Batch(4))
    bounds = (batch["x_cu_seqlens"] + 6 * np.arange(4)[:, None]).ravel()
    assert batch["x_cu_seqlens"].shape == (4, 5) and batch["x_max_seqlen"].tolist() == [3, 6, 5, 4]
    flat = batch["x"].ravel()
    parts = [{*flat[begin:end].tolist()} for begin, end in pairwise(bounds) if begin < end]
    assert all(len(part) == 1 for part in parts) and bounds[-1] == flat.size == 24


def attention(values, segments):
    """Attend within each sequence, plainly: a causal softmax over one-dimensional keys."""
    out = np.zeros(len(values))
    for at in range(len(values)):
        seen = [other for other in range(at + 1) if segments[other] == segments[at]]
        weights = np.exp(values[seen] * values[at])
        out[at] = (weights * values[seen]).sum() / weights.sum()
    return out


def test_bounds_and_positions_give_the_attention_of_each_sequence_alone():
    samples = [{"x": np.linspace(0, 1, count)} for count in (3, 2, 4)]
    (row,) = rows(samples, Pack(12, cu_seqlens=True))
    by_bounds = [attention(row["x"][begin:end], [0] * (end - begin)) for begin, end in pairwise(row["x_cu_seqlens"].tolist())]
    alone = [attention(sample["x"], [0] * len(sample["x"])) for sample in samples]
    np.testing.assert_allclose(np.concatenate(by_bounds)[row["x_mask"]], np.concatenate(alone))


@pytest.mark.parametrize(
    ("samples", "budgets", "message"),
    [
        (
            [images(1, 3, 0)],
            {"images": 2, "patches": 9},
            r"a sequence needs 3 of the budget of field 'images', more than budgets=.*drop or shorten",
        ),
        ([images(1, 0, 10)], {"images": 2, "patches": 9}, "a sequence needs 10 of the budget of field 'patches'"),
        ([images(1, 0, -1)], {"images": 2, "patches": 9}, "has the value -1; expected a whole number of at least 0"),
        ([images(1, 0, 0.5)], {"images": 2, "patches": 9}, r"has the value 0\.5; expected a whole number"),
        ([{"tokens": np.arange(2)}], {"image": 2}, "budgets: there is no field 'image'; the fields are"),
    ],
)
def test_what_exceeds_a_budget_is_named(samples, budgets, message):
    with pytest.raises(ValueError, match=message):
        rows(samples, Pack(4, budgets=budgets))


def test_a_run_of_rows_with_budgets_resumes():
    samples = [images(1 + number % 5, number % 3, number % 7) for number in range(40)]
    stages = [Reader(samples, seed=3, epochs=1), Pack(10, 2, budgets={"images": 4, "patches": 12}, cu_seqlens=True)]
    with Pipeline(stages) as pipeline:
        whole = [{name: value.tolist() for name, value in row.items()} for row in pipeline]
    with Pipeline(stages) as first:
        for _ in range(5):
            first.dequeue()
        state = first.state_dict()
    with Pipeline(stages) as second:
        second.load_state_dict(state)
        assert [{name: value.tolist() for name, value in row.items()} for row in second] == whole[5:]
