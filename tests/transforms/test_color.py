import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from highway import functional as F
from highway.transforms import AdditiveNoise, Brightness, Contrast, Grayscale, HistEq, Normalize, RescaleImages, Saturation

IMAGE = np.random.default_rng(0).integers(0, 256, (12, 15, 3), dtype=np.uint8)
IMAGE.flags.writeable = False


def test_noise_is_added_in_the_images_own_units_and_the_same_again_for_the_same_draw():
    noise = AdditiveNoise(strength=2.0, mu=1.0, sigma=3.0)
    params = noise.draw((400, 400), np.random.default_rng(0))
    given = np.full((400, 400, 1), 100, np.uint8)
    noisy = noise.image(given, params)
    assert_allclose([noisy.mean(), noisy.std()], [102, 6], rtol=0.01)
    assert_array_equal(noise.image(given, params), noisy)


@pytest.mark.parametrize(("transform", "function"), [(Brightness, F.brightness), (Contrast, F.contrast), (Saturation, F.saturation)])
def test_factors_are_drawn_around_one_and_never_below_zero(transform, function):
    rng = np.random.default_rng(0)
    factors = [transform(0.3).draw((4, 4), rng) for _ in range(500)]
    assert 0.7 <= min(factors) < 0.72
    assert 1.28 < max(factors) <= 1.3
    assert min(transform(2.0).draw((4, 4), rng) for _ in range(200)) >= 0
    assert_array_equal(transform().image(IMAGE, 1.2), function(IMAGE, 1.2), strict=True)
    assert not np.array_equal(transform().image(IMAGE, 1.2), IMAGE)


def test_grayscale_happens_with_its_probability_and_can_leave_one_channel():
    rng = np.random.default_rng(0)
    assert 240 < sum(Grayscale(p=0.3).draw((4, 4), rng) for _ in range(1000)) < 360
    assert_array_equal(Grayscale()(IMAGE), F.grayscale(IMAGE), strict=True)
    assert Grayscale(keep_channels=False)(IMAGE).shape == (12, 15, 1)


def test_the_chanceless_ones_are_their_functions():
    assert_array_equal(HistEq()(IMAGE), F.image_histogram_equalization(IMAGE), strict=True)
    assert_array_equal(Normalize()(IMAGE), F.normalize(IMAGE), strict=True)
    assert_allclose(RescaleImages()(IMAGE), IMAGE / 128 - 1, atol=1e-6)
    assert_allclose(RescaleImages(2.0, (1.0, 2.0, 3.0))(IMAGE), (IMAGE - np.array([1, 2, 3])) * 2.0, atol=1e-4)


def test_normalize_takes_numbers_for_all_channels_or_one_for_each():
    assert_allclose(Normalize(0.5, 0.25)(IMAGE), (IMAGE / 255 - 0.5) / 0.25, atol=1e-5)
    assert_allclose(Normalize(0.5, (0.1, 0.2, 0.3))(IMAGE), (IMAGE / 255 - 0.5) / np.array([0.1, 0.2, 0.3]), atol=1e-5)
