import numpy as np
import pytest
from image_backends import image_backend
from numpy.testing import assert_allclose, assert_array_equal

from highway import functional as F
from highway.images.ops import cv2_or_none

__all__ = ["image_backend"]

SIGMAS = [0.05, 0.3, 0.8, 1.0, 1.5, 2.0, 3.3, 7.0]


def photo(*shape, dtype=np.uint8):
    values = np.random.default_rng(0).integers(0, 256, shape)
    made = (values if dtype == np.uint8 else values / 255).astype(dtype)
    made.flags.writeable = False
    return made


@pytest.mark.parametrize("sigma", SIGMAS)
def test_a_gaussian_of_bytes_is_that_of_opencv_but_for_a_level_in_one_of_ten_thousand(sigma):
    cv2 = cv2_or_none() or pytest.skip("without OpenCV")
    given = photo(200, 300, 3)
    for width in (7, 2 * int(np.ceil(3 * sigma)) + 1):
        apart = np.abs(F.gaussian_blur(given, sigma, width).astype(int) - cv2.GaussianBlur(given, (width, width), sigma))
        assert apart.max() <= 1
        assert (apart > 0).mean() < 1e-4


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32], ids=lambda dtype: dtype.__name__)
def test_a_gaussian_keeps_one_colour_and_spreads_a_point_by_its_deviation(backend, sigma, dtype):
    for level in (255, 128, 1):
        assert_allclose(F.gaussian_blur(np.full((20, 30, 3), level, dtype), sigma), level, rtol=0 if dtype == np.uint8 else 1e-5)
    if sigma >= 0.8 and dtype == np.float32:
        point = np.zeros((61, 61), np.float32)
        point[30, 30] = 1
        down, right = np.mgrid[-30:31, -30:31]
        spread = F.gaussian_blur(point, sigma)
        assert_allclose([(spread * down**2).sum() ** 0.5, (spread * right**2).sum() ** 0.5], sigma, rtol=0.04)


def test_a_gaussian_of_floats_is_opencvs():
    cv2 = cv2_or_none() or pytest.skip("without OpenCV")
    given = photo(50, 60, 3, dtype=np.float32)
    assert_allclose(F.gaussian_blur(given, 1.7, 9), cv2.GaussianBlur(given, (9, 9), 1.7), atol=1e-6)


@pytest.mark.parametrize(("sigma", "size"), [(0, 3), (-1, None), (1, 4)])
def test_a_gaussian_needs_a_deviation_and_an_odd_width(backend, sigma, size):
    with pytest.raises(ValueError, match=rf"gaussian_blur: sigma={sigma}, size={size}; expected a deviation above 0, and an odd width"):
        F.gaussian_blur(photo(5, 6), sigma, size)


@pytest.mark.parametrize("size", [4, 0, -1])
def test_a_median_needs_an_odd_width(backend, size):
    with pytest.raises(ValueError, match=f"median_blur: size={size}; expected a positive odd number"):
        F.median_blur(photo(5, 6), size)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32], ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 9, 130])
def test_blurs_take_any_number_of_channels(backend, dtype, channels):
    given = photo(21, 23, channels, dtype=dtype)
    for blur in (
        lambda x: F.gaussian_blur(x, 1.3),
        lambda x: F.motion_blur(x, 5, 20),
        lambda x: F.median_blur(x, 3),
        lambda x: F.median_blur(x, 7),
        lambda x: F.sharpness(x, 2),
    ):
        together, alone = blur(given), [blur(np.ascontiguousarray(given[..., channel])) for channel in range(channels)]
        assert (together.shape, together.dtype) == (given.shape, given.dtype)
        assert_allclose(together.astype(float), np.stack(alone, axis=2).astype(float), atol=1 if dtype == np.uint8 else 1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9, 3), (9, 1, 3), (2, 2)])
def test_images_smaller_than_the_kernel_are_blurred_too(backend, shape):
    flat = np.full(shape, 77, np.uint8)
    assert_array_equal(F.gaussian_blur(flat, 3.0), flat)
    assert_array_equal(F.motion_blur(flat, 7, 30), flat)


@pytest.mark.parametrize("size", [3, 5, 7, 31])
def test_motion_along_a_row_is_the_filter_of_its_line_to_the_bit(size):
    cv2 = cv2_or_none() or pytest.skip("without OpenCV")
    given, kernel = photo(40, 50, 3), np.full((1, size), 1 / size, np.float32)
    for angle in (0, 0.4, 180, -0.9):
        assert_array_equal(F.motion_blur(given, size, angle), cv2.filter2D(given, -1, kernel))


@pytest.mark.parametrize(
    ("angle", "line"),
    [
        (0, ["     ", "     ", "xxxxx", "     ", "     "]),
        (90, ["  x  ", "  x  ", "  x  ", "  x  ", "  x  "]),
        (20, ["     ", "    x", " xxx ", "x    ", "     "]),
        (45, ["     ", "   x ", "  x  ", " x   ", "     "]),
        (160, ["     ", "x    ", " xxx ", "    x", "     "]),
    ],
)
def test_motion_spreads_a_point_along_a_line(backend, angle, line):
    point = np.zeros((9, 9), np.float32)
    point[4, 4] = 1
    expected = np.array([[letter == "x" for letter in row] for row in line], np.float32)
    assert_allclose(F.motion_blur(point, 5, angle)[2:7, 2:7], expected / expected.sum(), atol=1e-6)
