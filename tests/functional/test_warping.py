import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_backends import image_backend
from numpy.testing import assert_allclose, assert_array_equal

from highway import functional as F

__all__ = ["image_backend"]

SIZE = (40, 60)
CORNERS = np.array([[0.0, 0.0], [60, 0], [60, 40], [0, 40]])


@given(st.floats(-180, 180), st.floats(0.3, 3), st.floats(-60, 60), st.floats(-60, 60), st.floats(-9, 9), st.floats(-9, 9))
def test_an_affine_map_slants_along_x_then_y_then_scales_turns_and_shifts_about_the_centre(angle, scale, x, y, right, down):
    turn, along_x, along_y = np.radians(-angle), np.tan(np.radians(x)), np.tan(np.radians(y))
    turned = scale * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    linear = turned @ np.array([[1, 0], [-along_y, 1]]) @ np.array([[1, -along_x], [0, 1]])
    points = np.array([[0.0, 0.0], [60, 0], [7, 33]])
    expected = (points - (30, 20)) @ linear.T + (30 + right, 20 + down)
    matrix = F.affine(SIZE, angle, scale, x, y, (right, down))
    assert_allclose(points @ matrix[:, :2].T + matrix[:, 2], expected, atol=1e-9)


@pytest.mark.parametrize(
    "matrix",
    [F.affine(SIZE, 30, 1.2, 10, -5, (3, 4)), F.projection(CORNERS, CORNERS + np.array([[3, 4], [-5, 1], [-2, -6], [1, -3]]))],
    ids=["affine", "projective"],
)
def test_the_map_back_brings_points_back(matrix):
    points = np.float32([[0, 0], [60, 0], [7, 33]])
    assert F.inverted(matrix).shape == matrix.shape
    assert_allclose(F.move_points(F.move_points(points, matrix), F.inverted(matrix)), points, atol=1e-4)


def test_a_map_onto_a_line_has_no_way_back():
    for matrix in (np.array([[1.0, 2, 3], [2, 4, 5]]), np.array([[1.0, 2, 3], [2, 4, 6], [0, 0, 1]])):
        with pytest.raises(ValueError, match=r"the map \[\[1\.0, 2\.0, 3\.0\].* has no inverse"):
            F.inverted(matrix)


def test_a_spline_takes_no_projective_matrix(backend):
    with pytest.raises(ValueError, match="warp: a projective matrix with a spline of order 3; expected 'nearest' or 'bilinear'"):
        F.warp(np.zeros((5, 6), np.uint8), np.eye(3), (5, 6), 3)


@given(st.lists(st.floats(-15, 15), min_size=16, max_size=16))
def test_a_projection_sends_four_points_to_four_others(numbers):
    places, wanted = CORNERS + np.reshape(numbers[:8], (4, 2)), CORNERS + np.reshape(numbers[8:], (4, 2))
    matrix = F.projection(places, wanted)
    assert matrix[2, 2] == 1
    assert_allclose(F.move_points(places.astype(np.float32), matrix), wanted, atol=0.01)


def test_a_projection_onto_three_points_of_a_line_is_refused():
    with pytest.raises(ValueError, match=r"three of the points .* lie on a line"):
        F.projection(CORNERS, np.array([[0.0, 0.0], [10, 10], [20, 20], [30, 30]]))


def test_a_field_displaces_whatever_its_order_in_memory_and_is_left_as_it_is(backend):
    image = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    planes = np.zeros((2, 20, 30), np.float32)
    planes[0], planes[1] = 3, -2
    field = planes.transpose(1, 2, 0)
    for one in (field, np.ascontiguousarray(field)):
        before = one.copy()
        moved = F.displace(image, one)
        assert_array_equal(one, before)
        assert_array_equal(moved[2:, :27], image[:18, 3:])
        assert_array_equal(F.displace(image, one, "nearest"), moved)
        assert_allclose(F.displace_points(np.float32([[10, 10]]), one), [[7, 12]])
    assert F.displace_points(np.empty((0, 2), np.float32), field).shape == (0, 2)
