"""Fields whose first axis differs from sample to sample, in batches."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highway.engine.ragged import RaggedOptions
from highway.errors import ConfigError


def boxes(count, first=0):
    return np.arange(4 * first, 4 * (first + count), dtype=np.float32).reshape(count, 4)


def sample(count, first=0):
    return {"image": np.full((2, 3), count, np.uint8), "boxes": boxes(count, first), "labels": np.arange(count), "id": first}


SAMPLES = [sample(3), sample(0, 7), sample(9, 20)]
FIELDS = ["boxes", "labels"]


def test_padded_fields_have_the_greatest_length_rounded_up_and_a_count():
    batch = RaggedOptions("pad", FIELDS).collated(SAMPLES)
    assert list(batch) == ["image", "boxes", "labels", "id", "boxes_count", "labels_count"]
    assert batch["boxes"].shape == (3, 16, 4) and batch["boxes"].dtype == np.float32
    assert batch["labels"].shape == (3, 16) and batch["labels"].dtype == np.int64
    for counts in (batch["boxes_count"], batch["labels_count"]):
        assert counts.dtype == np.int32 and counts.tolist() == [3, 0, 9]
    for row, each in enumerate(SAMPLES):
        count = len(each["boxes"])
        np.testing.assert_array_equal(batch["boxes"][row, :count], each["boxes"])
        assert not batch["boxes"][row, count:].any() and not batch["labels"][row, count:].any()
    assert batch["image"].shape == (3, 2, 3) and batch["id"].tolist() == [0, 7, 20]
    assert all(array.ctypes.data % 64 == 0 for array in batch.values())


def test_values_one_after_the_other_have_offsets():
    batch = RaggedOptions("offsets", FIELDS).collated(SAMPLES)
    np.testing.assert_array_equal(batch["boxes"], np.concatenate([each["boxes"] for each in SAMPLES]))
    assert batch["boxes_offsets"].dtype == np.int32 and batch["boxes_offsets"].tolist() == [0, 3, 3, 12]
    assert batch["labels_offsets"].tolist() == [0, 3, 3, 12] and len(batch["labels"]) == 12
    assert all(array.ctypes.data % 64 == 0 for array in batch.values())


def test_lists_hold_the_samples_arrays():
    batch = RaggedOptions("list", FIELDS).collated(SAMPLES)
    assert list(batch) == list(SAMPLES[0]) and all(one is each["boxes"] for one, each in zip(batch["boxes"], SAMPLES, strict=True))
    assert batch["image"].shape == (3, 2, 3)


def test_in_a_tuple_counts_stand_behind_all_fields():
    samples = [tuple(each.values()) for each in SAMPLES]
    for fields in ([1, 2], [1, -2]):
        batch = RaggedOptions("pad", fields).collated(samples)
        assert [array.shape for array in batch] == [(3, 2, 3), (3, 16, 4), (3, 16), (3,), (3,), (3,)]
    assert type(RaggedOptions("pad", [1, 2]).collated([list(each) for each in samples])) is list


def test_a_bare_array_becomes_a_pair():
    values, counts = RaggedOptions("pad", multiple=1).collated([np.arange(2), np.arange(3)])
    assert values.tolist() == [[0, 1, 0], [0, 1, 2]] and counts.tolist() == [2, 3]
    assert [each.tolist() for each in RaggedOptions("list").collated([np.arange(2), np.arange(1)])] == [[0, 1], [0]]


def test_lists_of_numbers_become_arrays():
    values, offsets = RaggedOptions("offsets").collated([([5, 6],), ([7],)])
    assert (values.tolist(), values.dtype, offsets.tolist()) == ([5, 6, 7], np.int32, [0, 2, 3])


def test_without_names_all_fields_with_an_axis_are_ragged_and_what_agrees_is_not_rounded_up():
    batch = RaggedOptions("pad").collated(SAMPLES)
    assert batch["image"].shape == (3, 2, 3) and batch["image_count"].tolist() == [2, 2, 2]
    assert batch["boxes"].shape == (3, 16, 4) and "id_count" not in batch
    one = RaggedOptions("pad").collated(SAMPLES[:1])
    assert list(one) == list(batch)  # whatever the samples are
    assert one["boxes"].shape == (1, 3, 4)


def test_named_fields_are_rounded_up_whatever_the_samples_are():
    for samples, size in ((SAMPLES[:1], 8), (SAMPLES[1:2], 8), (SAMPLES, 16), ([sample(8)], 8)):
        assert RaggedOptions("pad", FIELDS).collated(samples)["boxes"].shape[1] == size
    assert RaggedOptions("pad", FIELDS, multiple=5).collated(SAMPLES)["boxes"].shape[1] == 10


def test_a_length_may_be_given():
    assert RaggedOptions("pad", FIELDS, pad_to=10).collated(SAMPLES)["labels"].shape == (3, 10)
    batch = RaggedOptions("pad", FIELDS, pad_to={"boxes": 9}).collated(SAMPLES)
    assert (batch["boxes"].shape[1], batch["labels"].shape[1]) == (9, 16)
    with pytest.raises(
        ValueError,
        match=r"field 'boxes' has length 9 in sample 2, more than pad_to=8; truncate the field, or raise "
        r"pad_to",
    ):
        RaggedOptions("pad", FIELDS, pad_to=8).collated(SAMPLES)


@pytest.mark.parametrize("given", [{"fill": {"lables": -1}}, {"pad_to": {"lables": 16}}, {"fill": {"boxes": 0, "id": -1}}])
def test_a_name_that_is_no_padded_field_is_an_error(given):
    wrong = list(*given.values())[-1]
    message = rf"{next(iter(given))}=.* is for a field '{wrong}', but the padded fields are 'boxes', 'labels'; correct the name"
    with pytest.raises(ValueError, match=message):
        RaggedOptions("pad", FIELDS, **given).collated(SAMPLES)


def test_what_fills_the_rest_may_be_given_by_field():
    batch = RaggedOptions("pad", FIELDS, fill={"labels": -1}).collated(SAMPLES)
    assert batch["labels"][0, 3:].tolist() == [-1] * 13 and not batch["boxes"][0, 3:].any()
    assert np.isnan(RaggedOptions("pad", ["boxes"], fill=float("nan")).collated([sample(1)] * 2)["boxes"][:, 1:]).all()
    flags = RaggedOptions("pad", fill=1).collated([np.zeros(1, np.bool_), np.zeros(2, np.bool_)])[0]
    assert flags[0].tolist() == [False] + [True] * 7
    texts = RaggedOptions("pad", multiple=1).collated([(["a", "bc"],), (["d"],)])[0]
    assert texts.tolist() == [["a", "bc"], ["d", ""]]


@settings(deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(1, 9), st.sampled_from([(), (2,), (1, 3)]))
def test_nothing_is_lost(counts, multiple, trailing):
    arrays = [np.random.default_rng(count).integers(1, 100, (count, *trailing)) for count in counts]
    padded, found = RaggedOptions("pad", multiple=multiple).collated(arrays)
    values, offsets = RaggedOptions("offsets").collated(arrays)
    for row, array in enumerate(arrays):
        np.testing.assert_array_equal(padded[row, : found[row]], array)
        np.testing.assert_array_equal(values[offsets[row] : offsets[row + 1]], array)
    assert padded.sum() == values.sum() == sum(array.sum() for array in arrays)
    assert padded.shape[1] % multiple == 0 or len(set(counts)) == 1


@pytest.mark.parametrize(
    ("options", "samples", "message"),
    [
        (("pad",), [np.zeros((1, 2)), np.zeros((1, 3))], "field 0 has shapes (*, 2), (*, 3); all axes except the first must be equal"),
        (("pad",), [np.zeros(1), np.zeros(2, np.float32)], "field 0 has dtypes ['float32', 'float64']; convert"),
        (("pad", ["a"]), [{"a": np.zeros(2)}, {"a": np.float64(3)}], "field 'a' has no axis in sample 1 that could be ragged"),
        (("pad",), [[1, 2], []], "field 0 is an empty list in sample 1, which has no dtype; make it an array such as"),
        (("offsets",), [np.array([None, 1]), np.array([2], object)], "field 0 contains Python objects; pass ragged='list'"),
        (("pad",), [{"a": np.zeros(1), "a_count": 1}] * 2, "a field 'a_count' already exists; rename it with Rename"),
        (("pad", None, 8, None, -1), [np.zeros(1, np.uint8), np.zeros(2, np.uint8)], "has dtype uint8, which cannot hold fill=-1"),
        (("pad", None, 8, None, 0.5), [np.zeros(1, np.int32), np.zeros(2, np.int32)], "has dtype int32, which cannot hold fill=0.5"),
        (("pad",), [{"a": np.zeros(1)}, {"b": np.zeros(1)}], "sample 1 is a dict with fields ('b',), but sample 0 is a dict with fields"),
    ],
)
def test_what_does_not_go_together_is_named(options, samples, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        bare = [(each,) if isinstance(each, (np.ndarray, list)) else each for each in samples]
        RaggedOptions(*options).collated(bare)


def test_a_field_that_is_not_there_is_named():
    with pytest.raises(KeyError, match="no field 'box'; the item has 'image', 'boxes'"):
        RaggedOptions("pad", ["box"]).collated(SAMPLES)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"fields": ["a"]}, "fields=['a']; expected no value unless ragged='pad' or 'list' or 'offsets'"),
        ({"ragged": "offsets", "multiple": 4}, "multiple=4; expected no value unless ragged='pad'"),
        ({"ragged": "list", "fill": 1.0}, "fill=1.0; expected no value unless ragged='pad'"),
        ({"pad_to": 4}, "pad_to=4; expected no value unless ragged='pad'"),
    ],
)
def test_options_that_mean_nothing_are_refused(how, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        RaggedOptions(**how)
