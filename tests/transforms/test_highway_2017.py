"""What the names of Highway (2017) meant, parameter by parameter: the transforms and functions mean the same.

scipy.ndimage, which Highway called, is the oracle where it is installed.
"""

from itertools import product

import numpy as np
import pytest
from image_backends import image_backend
from numpy.testing import assert_allclose, assert_array_equal

import highway.transforms as T
from highway import functional as F

__all__ = ["image_backend"]

IMAGE = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
IMAGE.flags.writeable = False
SIZE = (40, 50)


def draws(transform, size=SIZE, count=500):
    rng = np.random.default_rng(0)
    return [transform.draw(size, rng) for _ in range(count)]


@pytest.fixture(scope="module")
def ndimage():
    return pytest.importorskip("scipy.ndimage")


def test_a_share_of_shift_is_of_height_and_width_and_whole_pixels_of_each_are_drawn():
    down, right = zip(*draws(T.Shift(0.1)), strict=True)
    assert set(down) == set(range(-4, 5))
    assert set(right) == set(range(-5, 6))
    assert set(draws(T.Shift(1))) == {(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)}
    assert set(draws(T.Shift(0.0))) == {(0, 0)}


@pytest.mark.parametrize(
    ("mode", "theirs"), [(mode, mode) for mode in ("constant", "nearest", "reflect", "mirror")] + [("wrap", "grid-wrap")]
)
@pytest.mark.parametrize("translation", [(3, -7), (-11, 0), (0, 20), (33, 44)])
def test_shift_fills_in_scipys_words(ndimage, mode, theirs, translation):
    # scipy's "wrap" leaves out a pixel at the seam, and its own documentation advises against it; "grid-wrap" is what is meant.
    expected = ndimage.shift(IMAGE, (*translation, 0), order=0, mode=theirs)
    assert_array_equal(F.shift(IMAGE, translation, mode), expected, strict=True)
    assert_array_equal(T.Shift(0.5, mode).image(IMAGE, translation), expected, strict=True)


def test_pad_crop_pads_by_4_with_zeros_by_default():
    assert T.PadCrop() == T.PadCrop(padsize=4, mode="constant")
    assert set(draws(T.PadCrop(), count=3000)) == {(y, x) for y in range(-4, 5) for x in range(-4, 5)}
    expected = np.pad(IMAGE, ((4, 4), (4, 4), (0, 0)))[1:41, 6:56]
    assert_array_equal(T.PadCrop().image(IMAGE, (3, -2)), expected, strict=True)


def test_noise_has_a_strength_of_a_fifth_and_50_levels_by_default():
    assert T.AdditiveNoise() == T.AdditiveNoise(strength=0.2, mu=0, sigma=50)
    grey = np.full((200, 200, 3), 128, np.uint8)
    for noisy in (T.AdditiveNoise()(grey, np.random.default_rng(0)), F.add_noise(grey)):
        assert_allclose([noisy.mean(), noisy.std()], [128, 10], rtol=0.02)


def test_rotate_draws_whole_degrees_of_a_whole_number():
    assert set(draws(T.Rotate(3))) == {float(angle) for angle in range(-3, 4)}
    assert T.Rotate(3).interpolation == "nearest"
    assert all(abs(angle) <= 0.5 for angle in draws(T.Rotate(0.5)))


@pytest.mark.parametrize("shape", [(40, 50), (41, 50, 3), (60, 33, 1)], ids=str)
@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_rotate_samples_by_splines_as_scipy_does(ndimage, backend, order, shape):
    given = np.random.default_rng(0).integers(0, 256, shape).astype(np.float32)
    expected = ndimage.rotate(given, 23, order=order, reshape=False, mode="mirror")
    inner = (slice(15, -15), slice(15, -15))  # turned by 23 degrees: not the corners, where the two differ in what lies outside
    assert_allclose(F.rotate(given, 23, order)[inner], expected[inner], atol=0.002 if order > 1 else 6)  # OpenCV has 32 steps to a pixel
    rounded = np.clip(np.rint(expected), 0, 255)[inner]
    assert np.abs(F.rotate(given.astype(np.uint8), 23, order)[inner] - rounded).mean() < 1


def test_rotate_with_reshape_grows_as_scipys_does(ndimage):
    for angle in (5, 30, 45, 90, 120):
        ours, theirs = F.rotate(IMAGE, angle, reshape=True).shape, ndimage.rotate(IMAGE, angle, order=0).shape
        assert_allclose(ours, theirs, atol=1)


def test_order_of_a_spline_beyond_5_is_refused_and_small_images_are_no_trouble(backend):
    for shape in ((1, 1), (1, 7, 3), (2, 3)):
        for order in range(6):
            flat = np.full(shape, 77, np.uint8)
            turned = F.rotate(flat, 180, order)
            assert_array_equal(turned, flat, strict=True)


def test_zoom_keeps_the_size_and_draws_factor_and_place():
    assert T.Zoom(0.3).interpolation == "nearest"
    factors, places = zip(*draws(T.Zoom(0.3)), strict=True)
    assert 0.7 <= min(factors) < 0.72
    assert 1.28 < max(factors) <= 1.3
    assert_allclose(np.mean(places, axis=0), 0.5, atol=0.05)
    given = np.full((20, 20), 9, np.uint8)
    small = T.Zoom(0.5).image(given, (0.5, (0.0, 1.0)))
    expected = np.zeros((20, 20), np.uint8)
    expected[:10, 10:] = 9
    assert_array_equal(small, expected, strict=True)
    corner = T.Zoom(0.9).image(IMAGE, (2.0, (1.0, 0.0)))
    assert_array_equal(corner, IMAGE[20:, :25].repeat(2, axis=0).repeat(2, axis=1), strict=True)


def test_clipped_zoom_takes_zoom_factor_and_order(ndimage):
    smooth = ndimage.gaussian_filter(np.random.default_rng(0).uniform(0, 255, (40, 50)), 4).astype(np.float32)
    zoomed = F.clipped_zoom(smooth, zoom_factor=1.5, order=3)
    assert zoomed.shape == smooth.shape
    y, x = (np.mgrid[0:40, 0:50] + 0.5 - np.array([20, 25])[:, None, None]) / 1.5 + np.array([20, 25])[:, None, None] - 0.5
    assert_allclose(zoomed, ndimage.map_coordinates(smooth, [y, x], order=3, mode="mirror"), atol=0.01)
    assert F.clipped_zoom(smooth, 1) is smooth


def test_histogram_equalization_spans_0_to_255_by_256_bins_over_all_channels_together():
    dim = (IMAGE // 4 + 30).astype(np.uint8)
    equal = T.HistEq()(dim)
    assert (equal.min(), equal.max(), equal.dtype) == (0, 255, np.uint8)
    table = {int(before): int(after) for before, after in zip(dim.ravel(), equal.ravel(), strict=True)}
    assert_array_equal(equal, np.vectorize(table.get)(dim))  # one mapping for all channels
    floats = F.image_histogram_equalization(dim.astype(np.float32), number_bins=64)
    assert_allclose([floats.min(), floats.max()], [0, 255], atol=1e-3)
    assert np.abs(F.image_histogram_equalization(dim.astype(np.float32)) - equal).max() < 8


def test_slicer_cuts_shares_at_a_random_place_away_from_the_borders_and_the_middle_without_chance():
    assert T.Slicer() == T.Slicer(height=0.33, width=1.0, yoffset=0.0, xoffset=0.0)
    assert {box[1:] for box in draws(T.Slicer())} == {(0, 13, 50)}
    assert {box[0] for box in draws(T.Slicer())} == set(range(28))
    assert {box[0] for box in draws(T.Slicer(0.5, yoffset=0.2))} == set(range(8, 13))
    assert T.Slicer(0.5, 0.5, 0.1, 0.2).draw(SIZE, None) == (10, 12, 20, 25)
    for shares in ({"height": 1.1}, {"width": 2}, {"yoffset": 1.5}, {"xoffset": 1.5}):
        with pytest.raises(ValueError, match="Slicer: "):
            T.Slicer(**shares)


def test_rescale_takes_the_offset_away_and_then_multiplies():
    assert T.RescaleImages() == T.RescaleImages(scale=1 / 128, offset=128)
    for rescaled in (T.RescaleImages(1.0 / 128, 128)(IMAGE), F.rescale(IMAGE)):
        assert_array_equal(rescaled, ((IMAGE - 128.0) / 128).astype(np.float32), strict=True)


@pytest.mark.parametrize("shape", [(20, 30), [20, 30]], ids=str)
def test_top_center_crop_takes_rows_from_the_top_and_columns_from_the_middle_with_chance_and_without(shape):
    crop = T.TopCenterCrop(shape)
    assert crop == T.TopCenterCrop((20, 30)) and hash(crop) == hash(T.TopCenterCrop((20, 30)))
    for rng in (None, np.random.default_rng(0)):
        assert_array_equal(crop(IMAGE, rng), IMAGE[:20, 10:40], strict=True)


def test_resize_takes_a_shape_a_share_or_a_width(backend):
    assert T.Resize((20, 20)).interpolation == "bicubic"
    assert T.Resize((20, 24))(IMAGE).shape == (20, 24, 3)
    assert T.Resize([20, 24])(IMAGE).shape == (20, 24, 3)
    assert T.Resize(0.5)(IMAGE).shape == (20, 25, 3)
    assert T.Resize(24, "width")(np.zeros((10, 48, 3), np.float32)).shape == (5, 24, 3)
    for interp in ("nearest", "lanczos", "bilinear", "bicubic", "cubic"):
        assert T.Resize((20, 24), interp=interp)(IMAGE).shape == (20, 24, 3)
    assert_array_equal(T.Resize((20, 24), interp="cubic")(IMAGE), T.Resize((20, 24))(IMAGE), strict=True)


@pytest.mark.parametrize(
    "transform",
    [
        T.FlipX(),
        T.PadCrop(),
        T.AdditiveNoise(),
        T.Shift(0.1),
        T.Rotate(10, order=2),
        T.Zoom(0.2, order=1),
        T.HistEq(),
        T.Slicer(),
        T.RescaleImages(),
        T.TopCenterCrop((9, 9)),
        T.Resize((9, 9)),
    ],
    ids=lambda t: type(t).__name__,
)
def test_floats_go_wherever_bytes_go(backend, transform):
    for dtype, deterministic in product((np.uint8, np.float16, np.float32, np.float64), (False, True)):
        given = IMAGE.astype(dtype)
        result = transform(given, None if deterministic else np.random.default_rng(0))
        as_bytes = transform(IMAGE, None if deterministic else np.random.default_rng(0))
        assert result.shape == as_bytes.shape
        assert result.dtype == (np.float32 if isinstance(transform, T.RescaleImages) else dtype)
        if not isinstance(transform, T.HistEq):  # which maps floats by bins
            assert np.abs(np.clip(result, *(0, 255) if as_bytes.dtype == np.uint8 else (-1, 1)) - as_bytes.astype(np.float64)).max() <= 1


def test_the_functions_take_what_theirs_took():
    assert_array_equal(F.flip_x(IMAGE), IMAGE[:, ::-1])
    assert_array_equal(F.flip_y(IMAGE), IMAGE[::-1])
    assert_array_equal(F.pad(IMAGE, (4, 5)), np.pad(IMAGE, ((4, 4), (5, 5), (0, 0))), strict=True)
    assert_array_equal(F.pad(IMAGE[..., 0], size=(1, 2), mode="wrap"), np.pad(IMAGE[..., 0], ((1, 1), (2, 2)), "wrap"), strict=True)
    assert_array_equal(F.crop(IMAGE, (3, 4), (20, 30)), IMAGE[3:23, 4:34], strict=True)
    assert_array_equal(F.shift(IMAGE, translation=(2, 0)), np.concatenate([np.zeros_like(IMAGE[:2]), IMAGE[:-2]]), strict=True)
    assert F.rotate(IMAGE, 30, order=0, reshape=True).shape[0] > 40
