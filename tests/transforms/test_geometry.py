import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from highway import functional as F
from highway.transforms import FlipX, FlipY, PadCrop, Resize, Rotate, Shift, Zoom

GREY = np.array([[1, 2, 3], [4, 5, 6]], np.uint8)
GREY.flags.writeable = False
SIZE = GREY.shape


def test_flips_happen_about_half_of_the_time_by_default_and_always_or_never_on_demand():
    rng = np.random.default_rng(0)
    for flip, mirrored in ((FlipX, GREY[:, ::-1]), (FlipY, GREY[::-1])):
        assert 440 < sum(flip().draw(SIZE, rng) for _ in range(1000)) < 560
        for generator in (None, rng):
            assert_array_equal(flip(p=1.0)(GREY, generator), mirrored, strict=True)
            assert_array_equal(flip(p=0.0)(GREY, generator), GREY, strict=True)


def test_flips_mirror_boxes_and_points():
    boxes, points = np.float32([[1, 2, 4, 3]]), np.float32([[0.5, 2]])
    assert_array_equal(FlipX(1.0).boxes(boxes, True, (10, 20)), np.float32([[16, 2, 19, 3]]), strict=True)
    assert_array_equal(FlipY(1.0).boxes(boxes, True, (10, 20)), np.float32([[1, 7, 4, 8]]), strict=True)
    assert_array_equal(FlipX(1.0).points(points, True, (10, 20)), np.float32([[19.5, 2]]), strict=True)
    assert_array_equal(FlipY(1.0).points(points, False, (10, 20)), points, strict=True)


def test_shift_and_pad_crop_reach_every_offset_up_to_their_limit():
    for transform in (Shift(2), PadCrop(2)):
        rng = np.random.default_rng(0)
        assert {transform.draw(SIZE, rng) for _ in range(1000)} == {(y, x) for y in range(-2, 3) for x in range(-2, 3)}


def test_shift_and_pad_crop_move_the_image_and_fill_by_mode():
    assert_array_equal(Shift(2).image(GREY, (1, -1)), np.array([[0, 0, 0], [2, 3, 0]], np.uint8), strict=True)
    assert_array_equal(PadCrop(2).image(GREY, (1, -1)), np.array([[0, 0, 0], [2, 3, 0]], np.uint8), strict=True)
    assert_array_equal(PadCrop(1, "reflect").image(GREY, (1, 1)), np.array([[5, 4, 5], [2, 1, 2]], np.uint8), strict=True)
    assert_array_equal(Shift(2).points(np.float32([[1, 1]]), (1, -1), SIZE), np.float32([[0, 2]]), strict=True)


def test_rotate_draws_either_way_and_turns_counterclockwise():
    rng = np.random.default_rng(0)
    angles = [Rotate(30.0).draw(SIZE, rng) for _ in range(500)]
    assert -30 <= min(angles) < -28
    assert 28 < max(angles) <= 30
    square = np.arange(9, dtype=np.uint8).reshape(3, 3)
    assert_array_equal(Rotate(90).image(square, 90.0), np.rot90(square), strict=True)
    assert_allclose(Rotate(90).points(np.float32([[3, 0]]), 90.0, (3, 3)), [[0, 0]], atol=1e-6)


def test_rotate_with_reshape_says_the_size_that_comes_out():
    for angle in (0.0, 17.0, 45.0, 90.0, 133.0):
        transform = Rotate(180, reshape=True)
        assert transform.image(np.zeros((20, 31, 3), np.uint8), angle).shape[:2] == transform.output(angle, (20, 31))


def test_zoom_draws_around_one_and_moves_points_from_the_centre():
    rng = np.random.default_rng(0)
    drawn = [Zoom(0.25).draw(SIZE, rng) for _ in range(500)]
    factors = [factor for factor, _ in drawn]
    assert 0.75 <= min(factors) < 0.77
    assert 1.23 < max(factors) <= 1.25
    points = np.float32([[5, 5], [7, 5]])
    assert_allclose(Zoom(0.25).points(points, (1.25, (0.5, 0.5)), (10, 10)), [[5, 5], [7.5, 5]])
    assert_allclose(Zoom(0.5).points(points, (0.5, (0, 1)), (10, 10)), [[7.5, 2.5], [8.5, 2.5]])


def test_masks_of_labels_are_never_mixed():
    labels = np.random.default_rng(0).choice([3, 200, 77777], (40, 50))
    for transform, params in (
        (Rotate(30, interpolation=3), 20.0),
        (Zoom(0.3, interpolation="bilinear"), (1.2, (0.1, 0.9))),
        (Resize((31, 33), interpolation="bicubic"), None),
    ):
        moved = transform.mask(labels, params)
        assert moved.dtype == labels.dtype
        assert set(np.unique(moved)) <= {0, 3, 200, 77777}


def test_resize_gives_the_shape_or_keeps_the_proportions():
    given = np.zeros((30, 60, 3), np.uint8)
    assert Resize((20, 20))(given).shape == (20, 20, 3)
    assert Resize(20, mode="width")(given).shape == (10, 20, 3)
    assert Resize(0.5)(given).shape == (15, 30, 3)
    assert Resize(5, mode="width")(np.zeros((1, 600), np.uint8)).shape == (1, 5)
    boxes = np.float32([[30, 15, 60, 30]])
    assert_array_equal(Resize((20, 20)).boxes(boxes, None, (30, 60)), np.float32([[10, 10, 20, 20]]), strict=True)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos", "area"])
def test_resize_uses_the_interpolation_it_is_told(interpolation):
    given = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    assert_array_equal(Resize((20, 20), interpolation=interpolation)(given), F.resize(given, (20, 20), interpolation), strict=True)
