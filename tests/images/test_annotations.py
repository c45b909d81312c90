"""What belongs to the images of an item is found, and taken apart."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from highway.engine.ragged import RaggedOptions
from highway.images.annotations import annotations_of, drawn_from, fields_of

SIZES = [(8, 6), (8, 6)]
BOXES = [np.float32([[1, 2, 3, 4]]), np.float32([[0, 0, 2, 2], [1, 1, 5, 5], [2, 2, 3, 3]])]


def boxes_of(item, given=None):
    return [found["boxes"] for found in annotations_of(item, SIZES, given or {})]


def batch(ragged):
    samples = [{"image": np.zeros((8, 6, 3), np.uint8), "boxes": boxes} for boxes in BOXES]
    return RaggedOptions(ragged, ["boxes"]).collated(samples)


@pytest.mark.parametrize("ragged", ["pad", "offsets", "list"])
def test_rows_of_ragged_batches_are_those_of_the_samples(ragged):
    for found, expected in zip(boxes_of(batch(ragged)), BOXES, strict=True):
        assert_array_equal(found, expected, strict=True)


def test_an_object_array_will_do_and_padding_without_counts_stays():
    objects = np.empty(2, object)
    objects[:] = BOXES
    assert_array_equal(boxes_of({"image": 0, "boxes": objects})[1], BOXES[1])
    padded = batch("pad")["boxes"]
    assert boxes_of((0, padded), {"boxes": 1})[0].shape == padded.shape[1:]


def test_fields_are_found_by_their_usual_names_and_given_ones_come_first():
    item = dict.fromkeys(["image", "mask", "points", "boxes", "keypoints", "gt"])
    assert fields_of(item, {}) == {"boxes": "boxes", "mask": "mask", "points": "keypoints"}
    assert fields_of(item, {"boxes": "gt", "points": "points"}) == {"boxes": "gt", "mask": "mask", "points": "points"}
    assert fields_of((1, 2, 3), {}) == {}
    with pytest.raises(KeyError, match="no field 'nope'"):
        fields_of(item, {"mask": "nope"})


@pytest.mark.parametrize(
    ("role", "value", "message"),
    [
        (
            "boxes",
            np.zeros((2, 5, 3), np.float32),
            r"contains float32 \(5, 3\) for an image of height 8 and width 6; expected boxes "
            r"\(N, 4\)",
        ),
        ("boxes", np.zeros((3, 5, 4), np.float32), "has 3 values for 2 images"),
        ("mask", np.zeros((2, 6, 8), np.uint8), r"expected a mask \(8, 6\) or \(N, 8, 6\)"),
        ("points", np.zeros((2, 5), np.float32), r"expected points \(N, 2\) or \(N, K, 2\)"),
        ("points", [["a"], ["b"]], "expected points"),
    ],
)
def test_what_does_not_fit_is_an_error_where_it_was_named_and_is_left_out_where_it_is_only_called_so(role, value, message):
    item = {"image": 0, role: value}
    with pytest.raises(ValueError, match=message):
        annotations_of(item, SIZES, {role: role})
    assert annotations_of(item, SIZES, {}) == [{}, {}]


def test_masks_may_have_a_last_axis_and_hold_floats():
    (found,) = annotations_of({"mask": np.full((8, 6, 1), 2.0)}, SIZES[:1], {}, batched=False)
    assert found["mask"].shape == (8, 6) and found["mask"].dtype == np.int64


def test_points_that_are_not_labelled_or_of_padding_are_not_drawn():
    points = np.float32([[[1, 1], [2, 2]], [[3, 3], [4, 4]]])
    boxes = np.float32([[0, 0, 5, 5], [0, 0, 0, 0]])
    assert np.isnan(drawn_from({"boxes": boxes, "points": points}).points[1]).all()
    assert_array_equal(drawn_from({"points": points, "visibility": np.uint8([[2, 0], [0, 1]])}).points[:, :, 0], [[1, np.nan], [np.nan, 4]])
    with_third = np.concatenate([points, np.float32([[[0], [1]], [[2], [0]]])], axis=2)
    assert_array_equal(drawn_from({"points": with_third}).points[:, :, 0], [[np.nan, 2], [3, np.nan]])
    assert_array_equal(drawn_from({"points": points}).points, points)
