"""Functions of levels and colours against Pillow's, whose formulas RandAugment and its kin mean."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image, ImageEnhance, ImageOps

import highway.functional as F
from highway.datasets import ImageFolder
from highway.images.decode import decode


@pytest.fixture(scope="module", name="photo")
def _photo():
    folder = ImageFolder("highway:photos/val")
    return decode(folder[9][0])[60:220, 80:300].copy()


def pillow(function, image, *args):
    return np.asarray(function(Image.fromarray(image), *args))


EXACT = [  # name, ours, Pillow's
    ("invert", F.invert, ImageOps.invert),
    ("posterize", lambda image: F.posterize(image, 3), lambda image: ImageOps.posterize(image, 3)),
    ("solarize", lambda image: F.solarize(image, 100 / 255), lambda image: ImageOps.solarize(image, 100)),
    ("equalize", F.equalize, ImageOps.equalize),
    ("autocontrast", F.autocontrast, ImageOps.autocontrast),
]
TO_A_LEVEL = [
    ("brightness", F.brightness, ImageEnhance.Brightness),
    ("contrast", F.contrast, ImageEnhance.Contrast),
    ("saturation", F.saturation, ImageEnhance.Color),
    ("sharpness", F.sharpness, ImageEnhance.Sharpness),
]


@pytest.mark.parametrize(("ours", "theirs"), [row[1:] for row in EXACT], ids=[row[0] for row in EXACT])
@pytest.mark.parametrize("darker", [1, 3])
def test_levels_are_pillows_to_the_bit(backend, photo, ours, theirs, darker):
    given = photo // darker + 10 * (darker > 1)
    for image in (given, given[..., :1], given[..., 0]):
        assert_array_equal(ours(image), pillow(theirs, image.reshape(*image.shape[:2], -1).squeeze()).reshape(image.shape), strict=True)


@pytest.mark.parametrize("factor", [0.0, 0.1, 0.7, 1.0, 1.4, 1.9])
@pytest.mark.parametrize(("ours", "theirs"), [row[1:] for row in TO_A_LEVEL], ids=[row[0] for row in TO_A_LEVEL])
def test_enhancements_are_pillows_to_a_level_or_two_where_they_mix_pixels(backend, photo, ours, theirs, factor):
    expected = np.asarray(theirs(Image.fromarray(photo)).enhance(factor)).astype(int)
    assert np.abs(ours(photo, factor).astype(int) - expected).max() <= (2 if ours in (F.saturation, F.sharpness) else 1)


@pytest.mark.parametrize(
    "name", ["solarize", "invert", "gamma", "posterize", "autocontrast", "hue", "saturation", "sharpness", "gaussian_blur"]
)
def test_floats_of_0_to_1_are_bytes_without_their_rounding(backend, photo, name):
    arguments = {
        "solarize": (0.4,),
        "gamma": (0.7,),
        "posterize": (3,),
        "hue": (0.25,),
        "saturation": (0.4,),
        "sharpness": (0.5,),
        "gaussian_blur": (1.5,),
    }
    function = getattr(F, name)
    of_bytes, of_floats = (function(image, *arguments.get(name, ())) for image in (photo, photo.astype(np.float32) / 255))
    assert of_floats.dtype == np.float32
    assert_allclose(of_floats * 255, of_bytes, atol=8 if name == "hue" else 1.5)  # bytes of hue have 256 steps, of saturation too
    assert np.abs(of_floats * 255 - of_bytes).mean() < 1


def test_the_hue_turns_colours_and_leaves_grey_and_brightness(backend):
    red_grey = np.uint8([[[255, 0, 0], [120, 120, 120], [200, 100, 100]]])
    assert_allclose(F.hue(red_grey, 1 / 3), [[[0, 255, 0], [120, 120, 120], [100, 200, 100]]], atol=6)  # in 256 steps around the circle
    assert_allclose(F.hue(red_grey, -1 / 3), [[[0, 0, 255], [120, 120, 120], [100, 100, 200]]], atol=6)
    assert_allclose(F.hue(red_grey / np.float32(255), 0.5)[0, 0], [0, 1, 1], atol=1e-3)


def test_gaussian_blur_keeps_the_sum_of_a_point_and_spreads_it_by_sigma(backend):
    point = np.zeros((41, 41), np.float32)
    point[20, 20] = 1
    blurred = F.gaussian_blur(point, 2.5)
    distance = np.arange(41) - 20
    assert_allclose([blurred.sum(), (blurred.sum(axis=0) * distance**2).sum()], [1, 2.5**2], rtol=0.03)
    assert np.count_nonzero(F.gaussian_blur(point, 2.5, size=5)) == 25


def test_motion_blur_is_a_line_in_its_direction(backend):
    point = np.zeros((21, 21), np.float32)
    point[10, 10] = 1
    assert_allclose(F.motion_blur(point, 5, 0)[10, 8:13], np.full(5, 0.2), atol=1e-6)
    assert_allclose(F.motion_blur(point, 5, 90)[8:13, 10], np.full(5, 0.2), atol=1e-6)
    assert_allclose(np.diag(F.motion_blur(point, 5, 135))[8:13], [0, 1 / 3, 1 / 3, 1 / 3, 0], atol=1e-6)  # as long, and so of fewer pixels


def test_median_takes_single_pixels_away(backend, photo):
    given = photo.copy()
    given[::7, ::7] = 255
    flat = np.full((9, 9, 3), 7, np.uint8)
    flat[4, 4] = 200
    assert_array_equal(F.median_blur(flat, 3), np.full((9, 9, 3), 7, np.uint8))
    assert np.abs(F.median_blur(given, 3).astype(int) - F.median_blur(photo, 3)).mean() < 2


def test_jpeg_noise_grows_as_quality_falls(backend, photo):
    errors = [np.abs(F.jpeg_noise(photo, quality).astype(int) - photo).mean() for quality in (95, 50, 10)]
    assert 0 < errors[0] < errors[1] < errors[2] < 30
    assert F.jpeg_noise(photo[..., 0], 50).shape == photo.shape[:2]
    for wrong, error in ((photo.astype(np.float32), TypeError), (np.zeros((8, 8, 4), np.uint8), ValueError)):
        with pytest.raises(error, match="jpeg_noise: the image"):
            F.jpeg_noise(wrong, 50)


def test_salt_and_pepper_have_their_shares_and_hit_all_channels():
    grey = np.full((300, 300, 3), 100, np.uint8)
    noisy = F.salt_pepper(grey, 0.1, 0.02, np.random.default_rng(0))
    assert_allclose([(noisy == 255).mean(), (noisy == 0).mean()], [0.1, 0.02], atol=0.005)
    assert_array_equal(noisy[..., 0], noisy[..., 2])


def test_lighting_adds_one_colour_along_the_axes():
    grey = np.full((4, 4, 3), 0.5, np.float32)
    lit = F.lighting(grey, (1, 0, 0))
    assert_allclose(lit - grey, np.broadcast_to(np.float32(F.EIGENVECTORS)[:, 0] * 0.2175, grey.shape), atol=1e-6)
    assert_allclose(F.lighting((grey * 255).astype(np.uint8), (1, 0, 0)) / 255, lit, atol=0.005)
    for one in (grey[..., 0], grey[..., :1], np.full((4, 4), 9, np.uint8), np.full((4, 4, 1), 9, np.uint8)):
        assert_array_equal(F.lighting(one, (1, 0, 0)), one, strict=True)


@pytest.mark.parametrize("shape", [(20, 30, 3), (20, 30, 1), (20, 30)])
def test_images_of_bytes_are_stretched_as_their_floats_are(backend, shape):
    image = np.random.default_rng(0).integers(30, 220, shape, np.uint8)
    for low, high, all_channel in ((-1, 3, True), (-1, 3, False), (3, -1, True)):
        expected = F.min_max_normalize(image.astype(np.float32), low, high, all_channel)
        assert_allclose(F.min_max_normalize(image, low, high, all_channel), expected, atol=1e-5, strict=True)
    assert_array_equal(F.min_max_normalize(image * 0 + np.uint8(7), -1, 3), np.full(shape, -1, np.float32), strict=True)


def test_scaling_by_the_images_own_values(photo):
    stretched = F.min_max_normalize(photo, -1, 1)
    assert_allclose([stretched.min(), stretched.max()], [-1, 1], atol=1e-6)
    assert stretched.dtype == np.float32
    assert_allclose(F.min_max_normalize(photo, all_channel=False).min(axis=(0, 1)), [0, 0, 0])
    normal = F.mean_variance_normalize(photo, all_channel=False)
    assert_allclose([*normal.mean(axis=(0, 1)), *normal.std(axis=(0, 1))], [0, 0, 0, 1, 1, 1], atol=1e-4)
    assert_array_equal(F.to_uint8(F.to_float(photo)), photo, strict=True)
    assert_array_equal(F.mean_variance_normalize(np.full((3, 3), 7, np.uint8)), np.zeros((3, 3), np.float32), strict=True)


def test_what_needs_bytes_says_so():
    for function in (F.equalize, F.clahe):
        with pytest.raises(TypeError, match="the image is float32; expected uint8: put it before transforms that return floats"):
            function(np.zeros((8, 8, 3), np.float32))


def test_tables_are_the_same_with_stringzilla_and_without(photo, monkeypatch):
    fast = F.gamma(photo, 0.6)
    monkeypatch.setattr("highway.images.ops.translate_or_none", lambda: None)
    assert_array_equal(F.gamma(photo, 0.6), fast, strict=True)
