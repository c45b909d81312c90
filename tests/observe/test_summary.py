import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from highway.observe.summary import MAX_SHAPES, PIECE, FieldSummary, Moments, Summary

floats = st.floats(-1e6, 1e6)


@given(st.lists(arrays(np.float64, st.integers(0, 20), elements=floats), max_size=6))
def test_moments_of_pieces_are_those_of_the_whole(pieces):
    merged = sum(map(Moments.of, pieces), Moments())
    whole = np.concatenate([np.empty(0), *pieces])
    assert merged.count == whole.size
    if whole.size:
        assert merged.mean == pytest.approx(whole.mean(), rel=1e-9, abs=1e-6)
        assert merged.std == pytest.approx(whole.std(), rel=1e-6, abs=1e-3)


def test_a_small_deviation_on_a_large_mean_survives_many_merges():
    rng = np.random.default_rng(0)
    values = 1e9 + rng.standard_normal(100_000)
    merged = sum((Moments.of(piece) for piece in np.array_split(values, 999)), Moments())
    assert merged.std == pytest.approx(values.std(), rel=1e-6)
    naive = np.sqrt(np.mean(values**2) - np.mean(values) ** 2)
    assert naive != pytest.approx(values.std(), rel=0.1)  # what subtracting squares gives


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64])
def test_every_dtype_is_summed_up_without_overflow(dtype):
    array = np.full((3, PIECE // 2 + 5), 1 if dtype == np.bool_ else 120, dtype)
    seen = FieldSummary()
    seen.add(array, batched=True)
    value = float(array[0, 0])
    assert (seen.min, seen.max, seen.moments.mean, seen.moments.std) == (value, value, value, 0.0)
    assert (seen.size, seen.moments.count, seen.dtypes, seen.shapes) == (array.size, array.size, {np.dtype(dtype).name}, {array.shape[1:]})


def test_nan_and_infinity_are_counted_and_left_out_of_the_rest():
    summary = Summary()
    summary.add((np.array([[1, np.nan, np.inf], [3, -np.inf, np.nan]], np.float32),))
    summary.add((np.array([[5, 7, 9]], np.float32),))
    seen = summary.fields["0"]
    assert (seen.nan, seen.inf, seen.size, seen.moments.count) == (2, 2, 9, 5)
    assert (seen.min, seen.max, seen.moments.mean, seen.moments.std) == (1, 9, 5, pytest.approx(np.std([1, 3, 5, 7, 9])))


def test_a_field_of_nothing_but_nan_has_no_minimum():
    summary = Summary()
    summary.add((np.full((2, 2), np.nan),))
    seen = summary.fields["0"]
    assert seen.nan == 4 and np.isnan([seen.min, seen.max, seen.moments.std]).all()
    assert "nan" in summary.table()


def test_the_batch_axis_belongs_to_no_shape_unless_there_is_none():
    batched, unbatched = Summary(), Summary(batched=False)
    for length in (4, 2):
        item = {"image": np.zeros((length, 8, 6, 3), np.uint8), "label": np.zeros(length, np.int32)}
        batched.add(item)
        unbatched.add(item)
    assert batched.fields["image"].shapes == {(8, 6, 3)} and batched.fields["label"].shapes == {()}
    assert unbatched.fields["label"].shapes == {(4,), (2,)}
    assert (batched.samples, unbatched.samples) == (6, 2)


def test_many_shapes_are_not_all_remembered():
    summary = Summary(batched=False)
    for length in range(MAX_SHAPES + 5):
        summary.add((np.zeros(length),))
    assert len(summary.fields["0"].shapes) == MAX_SHAPES and summary.fields["0"].more_shapes
    assert summary.table().count("...") == 1


def test_a_number_without_a_batch_axis_is_an_error_that_names_the_option():
    with pytest.raises(ValueError, match="field 1 is one number, without a batch axis; pass -b"):
        Summary().add((np.zeros((2, 2)), np.float32(1)))


def test_bytes_are_summed_up_as_uint8():
    summary = Summary(batched=False)
    summary.add({"image": b"\x01\x03"})
    seen = summary.fields["image"]
    assert (seen.dtypes, seen.shapes, seen.min, seen.max) == ({"uint8"}, {(2,)}, 1, 3)


def test_text_is_an_error_that_names_the_field():
    with pytest.raises(ValueError, match="field 'name' contains <U3; expected numbers"):
        Summary().add({"name": "cat"})


def test_the_table_has_a_line_for_each_field():
    summary = Summary()
    summary.add({"image": np.arange(12, dtype=np.uint8).reshape(2, 2, 3), "label": np.array([3, 5], np.int32)})
    header, image, label = summary.table().splitlines()
    assert header.split() == ["field", "dtype", "sample", "shape", "count", "min", "max", "mean", "std", "NaN", "inf"]
    assert image.split() == ["image", "uint8", "2x3", "12", "0", "11", "5.5", "3.4521", "0", "0"]
    assert label.split() == ["label", "int32", "scalar", "2", "3", "5", "4", "1", "0", "0"]
