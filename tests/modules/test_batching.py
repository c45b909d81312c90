"""Batches of what differs in length: padded, flat, as lists, and by buckets of like length."""

import re
from collections import Counter

import numpy as np
import pytest

from highway import Pipeline, Stage
from highway.engine.batch import fields as get_all
from highway.engine.batch import names
from highway.errors import ConfigError, ItemError
from highway.modules import Batch, Bucket, Reader, Unbatch
from highway.wire.tenbin import check_acceptable_input_type


def sequence(number):
    return {"tokens": np.full(number % 11, number, np.int32), "id": number}


SEQUENCES = [sequence(number) for number in range(100)]


def batches(*stages, stamped=False):
    with Pipeline(list(stages), seed=1) as pipeline:
        return list(pipeline.stamped()) if stamped else list(pipeline)


def assert_whole(batch):
    """Check that a padded batch holds what the samples do."""
    for tokens, count, number in zip(batch["tokens"], batch["tokens_count"], batch["id"], strict=True):
        assert tokens[:count].tolist() == [number] * (number % 11) and not tokens[count:].any()


def test_a_batch_is_padded_behind_maps_of_any_number_of_workers():
    for workers in (1, 3):
        found = batches(Reader(SEQUENCES, epochs=1), Stage(dict, num_workers=workers), Batch(8, ragged="pad", fields=["tokens"]))
        assert [len(batch["id"]) for batch in found] == [8] * 12 + [4]
        assert all(batch["tokens"].shape[1] % 8 == 0 for batch in found)
        for batch in found:
            assert_whole(batch)


@pytest.mark.parametrize("ragged", ["pad", "offsets", "list"])
def test_a_reader_makes_the_same_batches(ragged):
    ours = batches(Reader(SEQUENCES, 8, epochs=1, ragged=ragged, fields=["tokens"]))
    behind = batches(Reader(SEQUENCES, epochs=1), Batch(8, ragged=ragged, fields=["tokens"]))
    for batch, other in zip(ours, behind, strict=True):
        assert list(batch) == list(other)
        for value, expected in zip(batch.values(), other.values(), strict=True):
            for left, right in zip(value, expected, strict=True):
                np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("ragged", ["pad", "offsets"])
@pytest.mark.parametrize("kind", [dict, tuple, list])
def test_a_batch_is_taken_apart_into_the_samples_it_was_made_of(ragged, kind):
    samples = [sample if kind is dict else kind([sample["id"], sample["tokens"]]) for sample in SEQUENCES]
    fields = ["tokens"] if kind is dict else [1]
    found = batches(Reader(samples, epochs=1, shuffle=False), Batch(8, ragged=ragged, fields=fields), Unbatch(ragged, fields))
    for sample, expected in zip(found, samples, strict=True):
        assert type(sample) is kind and names(sample) == names(expected)
        for value, other in zip(get_all(sample), get_all(expected), strict=True):
            np.testing.assert_array_equal(value, other)
    if kind is dict:
        found = batches(Reader(samples, epochs=1, shuffle=False), Batch(8, ragged=ragged, fields=fields), Unbatch(ragged))
        assert [sample["tokens"].tolist() for sample in found] == [sample["tokens"].tolist() for sample in samples]


@pytest.mark.parametrize(
    ("batch", "options", "message"),
    [
        ({"x": np.zeros((2, 3))}, {"ragged": "pad"}, "which fields are ragged"),
        ((np.zeros((2, 3)), np.zeros(2, int)), {"ragged": "pad"}, r"select the ragged fields by their positions, from 0: fields=\[1\]"),
        ((np.zeros((2, 3)), np.zeros(2, int)), {"ragged": "pad", "fields": [-2]}, "which fields are ragged"),
        (
            {"x": np.zeros((2, 3)), "x_count": np.array([4, 1])},
            {"ragged": "pad"},
            r"counts of field 'x', \[4, 1\], do not match its .*\(2, 3\)",
        ),
        ({"x": np.zeros((2, 3)), "x_count": np.array([-1, 1])}, {"ragged": "pad"}, "counts of field 'x'"),
        ({"x": np.zeros((2, 3)), "x_count": np.array([1])}, {"ragged": "pad"}, "counts of field 'x'"),
        (
            {"x": np.zeros(5), "x_offsets": np.array([0, 4])},
            {"ragged": "offsets"},
            r"offsets of field 'x', \[0, 4\], do not match its 5 rows",
        ),
        ({"x": np.zeros(5), "x_offsets": np.array([0, 4, 3, 5])}, {"ragged": "offsets"}, "offsets of field 'x'"),
        ({"x": np.zeros(5), "x_offsets": np.array([0, 5]), "y": np.zeros(2)}, {"ragged": "offsets"}, "must share a batch axis"),
    ],
)
def test_a_batch_whose_counts_or_offsets_do_not_fit_is_not_taken_apart(batch, options, message):
    with pytest.raises(ValueError, match=message):
        batches([batch], Unbatch(**options))


def test_fields_without_a_count_beside_them_are_named():
    with pytest.raises(KeyError, match="no field 'x_count'"):
        batches([{"x": np.zeros((2, 3))}], Unbatch("pad", ["x"]))
    with pytest.raises(ConfigError, match="no value unless ragged"):
        Unbatch(fields=["x"])


def test_a_sample_that_does_not_fit_is_named_by_the_reader_and_may_be_left_out():
    samples = [*SEQUENCES[:9], {"tokens": np.zeros((2, 2), np.int32), "id": 0}]
    with pytest.raises(ValueError, match=r"'tokens': int32 \(\*, 2\).*, but others of its batch are .*'tokens': int32 \(\*,\)") as raised:
        batches(Reader(samples, 10, ragged="pad", epochs=1))
    assert "sample 9 of list" in str(raised.value.__notes__)
    with pytest.raises(ValueError, match="field 'tokens' has length 8 in sample 0, more than pad_to=7"):
        batches(Reader(SEQUENCES[:9], 9, ragged="pad", pad_to=7, epochs=1))
    (batch,) = batches(Stage(Reader(samples, 10, ragged="pad", epochs=1), on_error="skip"))
    assert_whole(batch)


def test_lists_are_refused_on_the_wire_and_arrays_are_not():
    for ragged in ("pad", "offsets"):
        (batch, *_) = batches(Reader(SEQUENCES, 8, epochs=1, ragged=ragged))
        check_acceptable_input_type(list(batch.values()), allow64=False)
    (batch, *_) = batches(Reader(SEQUENCES, 8, epochs=1, ragged="list"))
    with pytest.raises(
        ItemError,
        match=r"for fields of different lengths, use Batch\(ragged='pad'\) or ragged='offsets' instead of "
        r"ragged='list'",
    ):
        check_acceptable_input_type(list(batch.values()), allow64=False)


def test_a_bucket_holds_samples_of_like_length():
    found = batches(Reader(SEQUENCES, epochs=1), Bucket([4, 8], [16, 8, 4], by="tokens"), stamped=True)
    assert Counter(number for batch, _ in found for number in batch["id"].tolist()) == Counter(range(100))
    full = 0
    for place, (batch, passport) in enumerate(found):
        assert_whole(batch)
        assert passport.index == place
        buckets = {(length >= 4) + (length >= 8) for length in batch["tokens_count"].tolist()}
        assert len(buckets) == 1 and len(batch["id"]) <= [16, 8, 4][min(buckets)]
        assert batch["tokens"].shape[1] == max(batch["tokens_count"])
        full += len(batch["id"]) == [16, 8, 4][min(buckets)]
    assert full >= len(found) - 3
    dropped = batches(Reader(SEQUENCES, epochs=1), Bucket([4, 8], [16, 8, 4], by="tokens", drop_last=True))
    assert len(dropped) == full and all(len(batch["id"]) in (16, 8, 4) for batch in dropped)


def test_a_batch_leaves_a_bucket_as_soon_as_it_is_full():
    lengths = [1, 5, 2, 6, 7, 1]
    found = batches([np.full(length, place) for place, length in enumerate(lengths)], Bucket([4], [3, 2]))
    assert [values[:, 0].tolist() for values, _ in found] == [[1, 3], [0, 2, 5], [4]]


def test_keys_and_epochs_are_those_of_the_samples():
    class Named(list):
        keys = tuple(f"key {number}" for number in range(100))

    for epoch in range(2):
        found = batches(Reader(Named(SEQUENCES), epochs=2), Bucket([4, 8], [16, 8, 4], by="tokens"), stamped=True)
        mine = [(batch, passport) for batch, passport in found if passport.epoch == epoch]
        assert sum(len(batch["id"]) for batch, _ in mine) == 100
        assert all(passport.keys == tuple(f"key {number}" for number in batch["id"]) for batch, passport in mine)


def test_what_a_length_is_may_be_a_function():
    by = batches(Reader(SEQUENCES, epochs=1), Bucket([4, 8], [16, 8, 4], by=lambda sample: len(sample["tokens"])))
    other = batches(Reader(SEQUENCES, epochs=1), Bucket([4, 8], [16, 8, 4], by="tokens"))
    assert [batch["id"].tolist() for batch in by] == [batch["id"].tolist() for batch in other]


def test_fields_may_be_padded_to_the_greatest_length_of_their_bucket():
    short = [each for each in SEQUENCES if len(each["tokens"]) in (1, 2, 4, 5)]  # none has the greatest length of its bucket
    found = batches(short, Bucket([4, 8], [16, 8, 4], by="tokens", pad_to_boundary=True, fill={"tokens": -1}))
    assert {batch["tokens"].shape[1] for batch in found} == {3, 7}
    assert all(
        (tokens[count:] == -1).all() for batch in found for tokens, count in zip(batch["tokens"], batch["tokens_count"], strict=True)
    )
    with pytest.raises(
        ValueError,
        match=r"a sample has at least the length of the last of boundaries=\[4, 8\], which "
        r"pad_to_boundary=True does not allow; add",
    ):
        batches(SEQUENCES, Bucket([4, 8], [16, 8, 4], by="tokens", pad_to_boundary=True))


def test_what_has_no_length_is_said_with_the_field():
    with pytest.raises(ValueError, match=r"Bucket: field 'id' is .*, which has no length; pass a function of a sample as by="):
        batches(SEQUENCES, Bucket([4], [2, 2], by="id"))


def test_a_bucket_need_not_pad():
    pairs = [(np.zeros(length), place) for place, length in enumerate([3, 5, 3, 5])]
    found = batches(pairs, Bucket([4], [2, 2], ragged=None))
    assert [(values.shape, numbers.tolist()) for values, numbers in found] == [((2, 3), [0, 2]), ((2, 5), [1, 3])]
    flat = batches(SEQUENCES, Bucket([4, 8], [16, 8, 4], by="tokens", ragged="offsets"))
    assert all(len(batch["tokens"]) == batch["tokens_offsets"][-1] for batch in flat)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Batch(4, as_list=True, ragged="pad"), "Batch: as_list=True; expected False, or no ragged fields"),
        (lambda: Batch(4, fields=["a"]), "Batch: fields=['a']; expected no value unless ragged="),
        (lambda: Batch(4, ragged="no"), "Batch: ragged='no'; expected one of pad, list, offsets or None"),
        (lambda: Reader([1], ragged="pad"), "Reader: ragged='pad'; expected None, or a batch_size"),
        (lambda: Bucket([4, 8], [1, 2]), "Bucket: batch_sizes=[1, 2]; expected one number for each of 3 buckets"),
        (lambda: Bucket([8, 4], [1, 2, 3]), "Bucket: boundaries=[8, 4]; expected increasing numbers"),
        (lambda: Bucket([4], [1, 0]), "Bucket: batch_sizes=[1, 0]; expected at least 1"),
        (
            lambda: Bucket([4], [1, 1], pad_to_boundary=True, pad_to=8),
            "pad_to_boundary=True; expected False, or ragged='pad' without pad_to",
        ),
        (lambda: Bucket([4], [1, 1], ragged=None, multiple=4), "Bucket: multiple=4; expected no value unless ragged='pad'"),
    ],
)
def test_a_wrong_parameter_is_named(make, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        make()


def test_a_field_that_is_not_there_is_named():
    with pytest.raises(KeyError, match="no field 0; the item has 'tokens', 'id'"):
        batches(SEQUENCES, Bucket([4], [1, 1]))
