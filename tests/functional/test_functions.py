import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from image_backends import image_backend
from numpy.testing import assert_allclose, assert_array_equal
from pairwise import pairwise

from highway import functional as F
from highway.images.ops import cv2_or_none

__all__ = ["image_backend"]

GREY = np.array([[1, 2, 3], [4, 5, 6]], np.uint8)


def image(*shape, dtype=np.uint8, seed=0):
    values = np.random.default_rng(seed).integers(0, 256, shape)
    made = values.astype(dtype) if np.dtype(dtype).kind != "f" else (values / 255).astype(dtype)
    made.flags.writeable = False
    return made


SHAPES = [(5, 7), (5, 7, 1), (5, 7, 2), (5, 7, 3), (5, 7, 4), (5, 7, 6)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64, bool], ids=lambda d: d.__name__)
def test_flips_reverse_columns_and_rows_of_every_kind_of_image(backend, shape, dtype):
    given = image(*shape, dtype=dtype)
    for flipped, expected in ((F.flip_x(given), given[:, ::-1]), (F.flip_y(given), given[::-1])):
        assert flipped.dtype == given.dtype
        assert_array_equal(flipped, expected, strict=True)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_flip_fills_out_where_it_fits_and_else_makes_a_new_array(backend, shape):
    given = image(*shape)
    fits, too_small, other_type = np.zeros(shape, np.uint8), np.zeros((2, *shape[1:]), np.uint8), np.zeros(shape, np.float32)
    assert F.flip_x(given, fits) is fits
    assert_array_equal(fits, given[:, ::-1])
    for unfit in (too_small, other_type):
        assert_array_equal(F.flip_x(given, unfit), given[:, ::-1], strict=True)
        assert not unfit.any()


@given(arrays.arrays(np.uint8, arrays.array_shapes(min_dims=2, max_dims=3, max_side=6)))
def test_flipping_twice_gives_the_image_back(given):
    assert_array_equal(F.flip_x(F.flip_x(given)), given, strict=True)
    assert_array_equal(F.flip_y(F.flip_y(given)), given, strict=True)


@pytest.mark.parametrize(
    ("mode", "row"),
    [
        ("constant", [0, 0, 1, 2, 3, 0, 0]),
        ("edge", [1, 1, 1, 2, 3, 3, 3]),
        ("reflect", [3, 2, 1, 2, 3, 2, 1]),
        ("symmetric", [2, 1, 1, 2, 3, 3, 2]),
        ("wrap", [2, 3, 1, 2, 3, 1, 2]),
        ("maximum", [3, 3, 1, 2, 3, 3, 3]),
        ("minimum", [1, 1, 1, 2, 3, 1, 1]),
        ("mean", [2, 2, 1, 2, 3, 2, 2]),
        ("median", [2, 2, 1, 2, 3, 2, 2]),
        ("linear_ramp", [0, 0, 1, 2, 3, 1, 0]),
    ],
)
def test_pad_fills_by_mode(mode, row):
    assert_array_equal(F.pad(GREY[:1], ((0, 0), (2, 2)), mode), np.array([row], np.uint8), strict=True)
    assert F.pad(image(4, 5, 3), 2, mode).shape == (8, 9, 3)


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
@given(st.data())
def test_pad_is_numpys_whoever_does_it(mode, data):
    shape = data.draw(st.sampled_from([(5, 7), (2, 3, 1), (1, 4, 3), (6, 1, 4), (3, 4, 5)]))
    dtype = data.draw(st.sampled_from([np.uint8, np.float32, np.float64, np.int16]))
    given = image(*shape, dtype=np.uint8).astype(dtype)
    sides = data.draw(st.tuples(*[st.tuples(*[st.integers(0, 2 * length)] * 2) for length in shape[:2]]))
    expected = np.pad(given, [*sides, *[(0, 0)] * (len(shape) - 2)], mode)
    assert_array_equal(F.pad(given, sides, mode), expected, strict=True)


@given(st.data())
def test_paste_is_the_image_at_its_corner_cut_off_where_it_does_not_fit(data):
    given = image(*data.draw(st.sampled_from([(3, 5), (4, 2, 1), (3, 3, 3), (2, 4, 5)])))
    (height, width), corner = (data.draw(st.tuples(*[st.integers(*bounds)] * 2)) for bounds in ((1, 7), (-6, 8)))
    fill = data.draw(st.sampled_from([0, 7]))
    expected = np.full((30, 30, *given.shape[2:]), fill, given.dtype)  # with room around
    top, left = corner[0] + 10, corner[1] + 10
    expected[top : top + given.shape[0], left : left + given.shape[1]] = given
    assert_array_equal(F.paste(given, (height, width), corner, fill), expected[10 : 10 + height, 10 : 10 + width], strict=True)


def test_crop_cuts_a_box_out_and_refuses_one_that_reaches_beyond_the_image():
    assert_array_equal(F.crop(GREY, (1, 1), (1, 2)), [[5, 6]])
    for corner, size in (((0, 0), (3, 1)), ((0, 2), (1, 2)), ((-1, 0), (1, 1)), ((0, -1), (1, 1))):
        with pytest.raises(ValueError, match="not within the image of 2x3"):
            F.crop(GREY, corner, size)


@pytest.mark.parametrize(
    ("offset", "mode", "expected"),
    [
        ((0, 1), "constant", [[0, 1, 2], [0, 4, 5]]),
        ((0, -1), "constant", [[2, 3, 0], [5, 6, 0]]),
        ((1, 0), "constant", [[0, 0, 0], [1, 2, 3]]),
        ((-1, 2), "wrap", [[5, 6, 4], [2, 3, 1]]),
        ((1, 1), "nearest", [[1, 1, 2], [1, 1, 2]]),
        ((5, 0), "constant", [[0, 0, 0], [0, 0, 0]]),
    ],
)
def test_shift_moves_down_and_right(offset, mode, expected):
    assert_array_equal(F.shift(GREY, offset, mode), np.array(expected, np.uint8), strict=True)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64], ids=lambda d: d.__name__)
def test_resize_nearest_repeats_and_picks_pixels_of_any_dtype(backend, dtype):
    given = GREY.astype(dtype)
    assert_array_equal(F.resize(given, (4, 6), "nearest"), given.repeat(2, axis=0).repeat(2, axis=1), strict=True)
    assert_array_equal(F.resize(given, (1, 1), "nearest"), given[1:, 1:2], strict=True)


def test_resize_bilinear_weighs_by_the_distance_of_centres(backend):
    given = np.array([[0, 100]], np.uint8)
    assert_array_equal(F.resize(given, (1, 4), "bilinear"), np.array([[0, 25, 75, 100]], np.uint8), strict=True)
    assert_allclose(F.resize(given.astype(np.float32), (1, 4), "bilinear"), [[0, 25, 75, 100]], atol=1e-4)


@pytest.mark.parametrize(
    ("interpolation", "shape", "dtype"),
    pairwise(["nearest", "bilinear", "bicubic", "cubic", "lanczos", "area"], SHAPES, [np.uint8, np.float32]),
)
def test_resize_keeps_dtype_channels_and_a_flat_colour(backend, interpolation, shape, dtype):
    flat = np.empty(shape, dtype)
    flat[...] = 93
    result = F.resize(flat, (9, 3), interpolation)
    assert (result.shape, result.dtype) == ((9, 3, *shape[2:]), np.dtype(dtype))
    assert_allclose(result, np.full(result.shape, 93.0), atol=1e-3)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_resize_treats_channels_alike_and_alpha_as_one_of_them(backend, shape):
    given = image(*shape)
    whole = F.resize(given, (9, 11)).reshape(9, 11, -1)
    for channel in range(whole.shape[2]):
        alone = F.resize(given.reshape(5, 7, -1)[..., channel], (9, 11))
        assert_allclose(whole[..., channel].astype(int), alone.astype(int), atol=1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_resize_fills_out(backend, shape):
    given, out = image(*shape), np.zeros((9, 11, *shape[2:]), np.uint8)
    assert F.resize(given, (9, 11), out=out) is out
    assert_array_equal(out, F.resize(given, (9, 11)), strict=True)


def test_resize_to_the_own_size_returns_the_image_itself():
    given = image(4, 5, 3)
    assert F.resize(given, (4, 5)) is given


@pytest.mark.parametrize(
    ("order", "turns", "shape", "dtype"),
    pairwise(range(6), [1, 2, 3, 5], [(4, 6), (5, 7, 3), (6, 5, 1), (4, 4, 6)], [np.uint8, np.float32]),
)
def test_rotating_by_right_angles_is_rot90(backend, order, turns, shape, dtype):
    given = image(*shape, dtype=dtype)
    turned = F.rotate(given, 90 * turns, order, reshape=True)
    assert turned.dtype == given.dtype
    assert_allclose(turned, np.rot90(given, turns), atol=1e-5)
    assert F.rotate(given, 90 * turns, order).shape == given.shape


def test_rotate_by_45_degrees_with_reshape_holds_the_whole_image():
    turned = F.rotate(np.full((10, 10), 7, np.uint8), 45, 0, reshape=True)
    assert turned.shape == (15, 15)
    assert np.count_nonzero(turned) == 113  # the whole numbers x, y with |x| + |y| <= 10 / sqrt(2)
    assert turned[0, 0] == 0
    assert F.rotate(GREY, 360) is GREY


def test_clipped_zoom_enlarges_the_centre_or_borders_the_image_with_zeros(backend):
    given = np.arange(16, dtype=np.uint8).reshape(4, 4)
    assert_array_equal(F.clipped_zoom(given, 2, 0), given[1:3, 1:3].repeat(2, axis=0).repeat(2, axis=1), strict=True)
    small = F.clipped_zoom(given, 0.5, 0)
    assert_array_equal(small, np.pad(given[1::2, 1::2], 1), strict=True)
    assert F.clipped_zoom(given, 1.0) is given


def test_zooming_in_smoothly_stays_near_the_nearest_neighbours(backend):
    ramp = np.tile(np.arange(0, 200, 2, dtype=np.uint8), (100, 1))
    assert_allclose(F.clipped_zoom(ramp, 1.7, 1).astype(int), F.clipped_zoom(ramp, 1.7, 0).astype(int), atol=2)


def test_noise_is_the_generators_and_has_the_asked_moments():
    flat = np.full((200, 200, 3), 0.5, np.float32)
    noisy = F.add_noise(flat, 0.1, mu=2.0, sigma=3.0, rng=np.random.default_rng(7))
    assert_allclose([(noisy - 0.5).mean(), (noisy - 0.5).std()], [0.2, 0.3], rtol=0.02)
    assert_array_equal(noisy, F.add_noise(flat, 0.1, mu=2.0, sigma=3.0, rng=np.random.default_rng(7)), strict=True)


@pytest.mark.parametrize(("dtype", "white"), [(np.uint8, 255), (np.float32, 1)], ids=["uint8", "float32"])
def test_erasing_fills_boxes_of_a_copy(dtype, white):
    given, out = image(9, 12, 3, dtype=np.uint8).astype(dtype), np.zeros((9, 12, 3), dtype)
    expected = given.copy()
    expected[1:4, 2:7] = expected[6:9, 0:1] = (1, 2, 3)
    assert_array_equal(F.erase(given, [(1, 2, 3, 5), (6, 0, 3, 1)], (1.0, 2.0, 3.0)), expected, strict=True)
    assert F.erase(given, [(1, 2, 3, 5), (6, 0, 3, 1)], (1.0, 2.0, 3.0), out=out) is out
    assert_array_equal(out, expected, strict=True)
    noisy = F.erase(given, [(0, 0, 9, 12)], "random", np.random.default_rng(0))
    assert_array_equal(noisy, F.erase(given, [(0, 0, 9, 12)], "random", np.random.default_rng(0)), strict=True)
    assert noisy.dtype == dtype
    assert 0.9 * white < noisy.max() <= white
    assert noisy.min() >= 0


def test_noise_saturates_bytes_at_both_ends():
    given = image(8, 9, 3)
    assert_array_equal(F.add_noise(given, 1, mu=300, sigma=0), np.full((8, 9, 3), 255, np.uint8), strict=True)
    assert_array_equal(F.add_noise(given, 1, mu=-300, sigma=0), np.zeros((8, 9, 3), np.uint8), strict=True)


def test_equalization_spreads_bytes_by_the_cumulated_histogram(backend):
    given = np.array([[10, 10, 20, 30], [20, 10, 30, 40]], np.uint8)
    # cumulated 3, 5, 7, 8 of 8, less the first: 0, 2, 4, 5 of 5
    expected = np.array([[0, 0, 102, 204], [102, 0, 204, 255]], np.uint8)
    assert_array_equal(F.image_histogram_equalization(given), expected, strict=True)
    assert_array_equal(F.image_histogram_equalization(given[..., None].repeat(3, 2)), expected[..., None].repeat(3, 2), strict=True)


def test_equalization_of_one_channel_is_opencvs():
    cv2 = cv2_or_none() or pytest.skip("without OpenCV")
    given = (image(40, 50).astype(int) ** 2 // 256).astype(np.uint8)
    assert_array_equal(F.image_histogram_equalization(given), cv2.equalizeHist(given), strict=True)


def test_equalization_of_floats_spans_0_to_255_and_makes_values_equally_frequent():
    given = np.random.default_rng(0).beta(1, 5, (200, 200, 3)).astype(np.float32)
    result = F.image_histogram_equalization(given)
    assert result.dtype == np.float32
    assert_allclose([result.min(), result.max()], [0, 255], atol=1e-4)
    counts, _ = np.histogram(result, 10)
    assert_allclose(counts / given.size, 0.1, atol=0.01)


def test_equalization_leaves_an_image_of_one_value_alone():
    flat = np.full((3, 4, 3), 9, np.uint8)
    assert_array_equal(F.image_histogram_equalization(flat), flat)


def test_brightness_multiplies_rounds_and_saturates(backend):
    given = np.array([[0, 1, 3, 100, 200]], np.uint8)
    assert_array_equal(F.brightness(given, 1.5), np.array([[0, 2, 4, 150, 255]], np.uint8), strict=True)
    assert_array_equal(F.brightness(given / np.float32(100), 1.5), given / np.float32(100) * np.float32(1.5), strict=True)


def test_contrast_moves_values_away_from_the_mean_grey(backend):
    given = np.array([[100, 150, 200, 150]], np.uint8)
    assert_array_equal(F.contrast(given, 2.0), np.array([[50, 150, 250, 150]], np.uint8), strict=True)
    assert_array_equal(F.contrast(given, 4.0), np.array([[0, 150, 255, 150]], np.uint8), strict=True)
    colour = np.zeros((2, 2, 3), np.uint8)
    colour[..., 1] = 200
    assert_array_equal(F.contrast(colour, 0.0), np.full((2, 2, 3), 117, np.uint8), strict=True)  # 0.587 * 200 = 117.4
    assert_allclose(F.contrast(np.float32([[0.2, 0.4]]), 0.5), [[0.25, 0.35]], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32], ids=lambda d: d.__name__)
def test_grayscale_is_the_luma_in_all_channels_or_one(backend, dtype):
    given = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]], dtype)
    luma = np.array([[76.245, 149.685, 29.07, 255]])
    assert_allclose(F.grayscale(given), luma[..., None].repeat(3, axis=2), atol=0.5)
    alone = F.grayscale(given, keep_channels=False)
    assert (alone.shape, alone.dtype) == ((1, 4, 1), np.dtype(dtype))
    assert_allclose(alone[..., 0], luma, atol=0.5)


def test_saturation_moves_colours_away_from_their_grey_and_saturates_bytes(backend):
    given = image(20, 30, 3)
    assert_allclose(F.saturation(given, 0.0).astype(int), F.grayscale(given).astype(int), atol=1)
    grey = given.astype(float) @ F.LUMA
    expected = np.clip(grey[..., None] + 2.5 * (given - grey[..., None]), 0, 255)
    assert_allclose(F.saturation(given, 2.5), expected, atol=1)
    assert F.saturation(given, 1.0) is given


def test_grey_images_have_neither_saturation_nor_colour_to_lose():
    for grey in (image(4, 5), image(4, 5, 1)):
        assert F.saturation(grey, 0.3) is grey
        assert F.grayscale(grey) is grey
    with pytest.raises(ValueError, match="saturation: the image has 4 channels; expected 1 or 3"):
        F.saturation(image(4, 5, 4), 0.3)


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 3)], ids=str)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64], ids=lambda d: d.__name__)
def test_rescale_and_normalize_are_their_formulas_in_float32(shape, dtype):
    given = image(*shape, dtype=dtype)
    rescaled = F.rescale(given, 0.5, -3.0)
    assert rescaled.dtype == np.float32
    assert_allclose(rescaled, (given + 3.0) * 0.5, rtol=1e-6, atol=1e-6)
    if shape[2:] == (3,):
        full = 255 if dtype is np.uint8 else 1
        normalized = F.normalize(given)
        assert normalized.dtype == np.float32
        assert_allclose(normalized, (given / full - np.array(F.IMAGENET_MEAN)) / np.array(F.IMAGENET_STD), atol=1e-5)
        assert_allclose(F.rescale(given, (1.0, 2.0, 3.0), 0.0), given * np.array([1.0, 2.0, 3.0]), rtol=1e-6)


@pytest.mark.parametrize("form", [list, np.array], ids=lambda form: form.__name__)
def test_one_number_per_channel_is_a_tuple_a_list_or_an_array(form):
    given, mean, std = image(4, 5, 3), (0.2, 0.3, 0.4), (0.5, 0.6, 0.7)
    assert_array_equal(F.normalize(given, form(mean), form(std)), F.normalize(given, mean, std), strict=True)
    assert_array_equal(F.rescale(given, form(std), form(mean)), F.rescale(given, std, mean), strict=True)
    with pytest.raises(ValueError, match=r"rescale: scale=.* has 2 numbers, but the image has 3 channels"):
        F.rescale(given, form([1, 2]))


@pytest.mark.parametrize("std", [0, -1.0, [0.5, 0, 0.5], float("nan")], ids=str)
def test_a_deviation_that_is_not_above_0_is_refused(std):
    with pytest.raises(ValueError, match=r"normalize: std=.*; expected numbers above 0"):
        F.normalize(image(4, 5, 3), 0.5, std)


@pytest.mark.parametrize("height", [1, 7, 251, 256, 299], ids=str)
def test_rescale_treats_rows_alike_however_many_it_takes_at_once(height):
    offset, scale = (1.0, 2.5, -3.0), (0.5, 2.0, 1 / 3)
    for dtype in (np.uint8, np.int16, np.int32, np.float32, np.float64):
        given = image(height, 90, 3, dtype=dtype if dtype != np.int16 else np.uint8).astype(dtype)
        for part in (given, given[:, 1:-1]):
            expected = (part - np.float32(offset)).astype(np.float32) * np.float32(scale)
            assert_array_equal(F.rescale(part, scale, offset), expected, strict=True)


def test_rescale_works_on_views_and_fills_out():
    given = image(9, 9, 3)[1:6, 2:7]
    out = np.zeros((5, 5, 3), np.float32)
    assert F.rescale(given, 2.0, 0.0, out=out) is out
    assert_array_equal(out, given * np.float32(2), strict=True)


def test_numbers_per_channel_must_match_the_channels():
    with pytest.raises(ValueError, match=r"rescale: scale=\(1.0, 2.0\) has 2 numbers, but the image has 3 channels"):
        F.rescale(image(4, 5, 3), (1.0, 2.0))
    with pytest.raises(ValueError, match=r"mean=.* has 3 numbers, but the image has 1 channels"):
        F.normalize(image(4, 5))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.resize(x, (2, 2)),
        lambda x: F.rotate(x, 10, 1),
        lambda x: F.rotate(x, 10, 4),
        lambda x: F.clipped_zoom(x, 2, 1),
        lambda x: F.add_noise(x, 1, rng=np.random.default_rng(0)),
        F.image_histogram_equalization,
        lambda x: F.brightness(x, 2),
        lambda x: F.contrast(x, 2),
        lambda x: F.saturation(x, 2),
        F.grayscale,
    ],
)
def test_all_floats_are_taken_where_values_are_computed_and_other_types_refused_with_their_name(backend, call):
    for dtype in (np.float64, np.float16):
        given = image(4, 5, 3, dtype=dtype)
        assert_array_equal(call(given), call(given.astype(np.float32)).astype(dtype), strict=True)
    with pytest.raises(TypeError, match=r"the image is int64; expected uint8 or a float type: convert it with astype\(\)"):
        call(np.zeros((4, 5, 3), np.int64))


@given(st.integers(1, 40), st.integers(1, 40), st.floats(-400, 400))
def test_rotation_matrix_keeps_the_centre_and_distances(height, width, angle):
    points = np.float32([[width / 2, height / 2], [0, 0], [width, height]])
    moved = F.move_points(points, F.rotation((height, width), angle))
    assert_allclose(moved[0], points[0], atol=1e-3)
    assert_allclose(np.linalg.norm(moved[1:] - moved[0], axis=1), np.linalg.norm(points[1:] - points[0], axis=1), atol=1e-3)
    turned_height, turned_width = F.rotated_size((height, width), angle, True)
    corners = np.float32([[0, 0], [width, 0], [0, height], [width, height]])
    inside = F.move_points(corners, F.rotation((height, width), angle, reshape=True))
    assert (inside > -1e-3).all()
    assert (inside < np.float32([turned_width, turned_height]) + 1e-3).all()


@pytest.mark.parametrize("corner", [(0, 9), (0, -9), (7, 0), (-7, 2), (20, 20)], ids=str)
def test_paste_of_what_lies_wholly_outside_is_the_colour_alone(corner):
    assert_array_equal(F.paste(np.ones((4, 6, 3), np.uint8), (5, 8), corner, 7), np.full((5, 8, 3), 7, np.uint8), strict=True)


COLOURED = {
    "warp": lambda image, fill: F.rotate(image, 30, "bilinear", fill=fill),
    "nearest warp": lambda image, fill: F.rotate(image, 30, fill=fill),
    "remap": lambda image, fill: F.displace(image, np.full((*image.shape[:2], 2), 3, np.float32), fill=fill),
    "paste": lambda image, fill: F.paste(image, (30, 40), (2, 3), fill),
    "erase": lambda image, fill: F.erase(image, [(1, 1, 4, 4)], fill),
}


@pytest.mark.parametrize("name", COLOURED)
def test_a_colour_has_one_number_or_one_for_each_channel(backend, name):
    image = np.zeros((20, 30, 3), np.uint8)
    for one in (image, image[..., 0], image[..., :1]):
        channels = one.shape[2] if one.ndim == 3 else 1
        expected = COLOURED[name](one, 7)
        assert (expected == 7).any()
        for fill in ((7,), (7,) * channels, [7] * channels):
            assert_array_equal(COLOURED[name](one, fill), expected, strict=True)
        with pytest.raises(ValueError, match=rf"fill=\(7, 8\) has 2 numbers, but the image has {channels} channels; pass one number"):
            COLOURED[name](one, (7, 8))
        for fill in (256, -1, (300,) * channels):
            with pytest.raises(ValueError, match=re.escape(f"fill={fill} for a uint8 image; expected levels from 0 to 255")):
                COLOURED[name](one, fill)
        COLOURED[name](one.astype(np.float32), -1)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int16], ids=lambda dtype: dtype.__name__)
def test_what_says_float32_gives_it_for_any_type(dtype):
    image = np.arange(60).reshape(4, 5, 3).astype(dtype)
    for function in (F.rescale, F.normalize, F.to_float, F.min_max_normalize, F.mean_variance_normalize):
        assert function(image).dtype == np.float32
    with pytest.raises(ValueError, match=r"normalize: mean=\(0.485, 0.456, 0.406\) has 3 numbers, but the image has 1 channels"):
        F.normalize(image[..., :1])


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.float16, np.float32, np.float64], ids=lambda dtype: dtype.__name__)
def test_clip_keeps_the_dtype_of_the_image(dtype):
    clipped = F.clip(np.array([[0, 40, 500]], dtype), 30, 200)
    assert_array_equal(clipped, np.array([[30, 40, 200]], dtype), strict=True)
