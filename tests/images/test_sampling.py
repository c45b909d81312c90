import numpy as np
import pytest
from image_backends import image_backend
from numpy.testing import assert_allclose, assert_array_equal
from pairwise import pairwise

from highway.images import sampling

__all__ = ["image_backend"]

BACK = {
    "affine": np.array([[0.93, 0.31, -3.03], [-0.17, 1.07, 4.01]]),
    "projective": np.array([[0.93, 0.31, -3.03], [-0.17, 1.07, 4.01], [1e-3, -2e-3, 1.0]]),
}


def photo(*shape, dtype=np.uint8):
    values = np.random.default_rng(0).integers(0, 256, shape)
    made = (values if dtype == np.uint8 else values / 255).astype(dtype)
    made.flags.writeable = False
    return made


def places():
    """Return the places that the affine map names, for pixels whose (0, 0) is the centre of the upper left one."""
    x, y = np.meshgrid(np.arange(31) + 0.5, np.arange(29) + 0.5)
    return [(a * x + b * y + c - 0.5).astype(np.float32) for a, b, c in BACK["affine"]]


def by_map(name):
    return lambda image, **how: sampling.warp(image, BACK[name], (29, 31), **how)


def by_places(image, **how):
    return sampling.remap(image, *places(), **how)


WAYS = {"affine": by_map("affine"), "projective": by_map("projective"), "places": by_places}


@pytest.mark.parametrize(
    ("way", "dtype", "channels", "fills"), pairwise(list(WAYS), [np.uint8, np.float32], [1, 2, 3, 4, 5, 6, 7, 11, 130], ["one", "each"])
)
def test_every_channel_comes_out_as_if_it_were_alone(backend, way, dtype, channels, fills):
    given = photo(25, 27, channels, dtype=dtype)
    each = tuple(float(channel % 7) for channel in range(channels)) if fills == "each" else (5.0,) * channels
    together = WAYS[way](given, fill=each if fills == "each" else 5.0)
    alone = [WAYS[way](np.ascontiguousarray(given[..., channel]), fill=fill) for channel, fill in enumerate(each)]
    assert (together.shape, together.dtype) == ((29, 31, channels), given.dtype)
    assert_allclose(together.astype(float), np.stack(alone, axis=2).astype(float), atol=0 if dtype == np.uint8 else 1e-6)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_places_sample_as_the_map_that_names_them(backend, interpolation):
    x, y = places()
    inside = (x > 1) & (x < 25) & (y > 1) & (y < 23)  # Pillow has the border elsewhere
    assert inside.mean() > 0.3
    for given in (photo(25, 27, 3), photo(25, 27, dtype=np.float32)):
        by_matrix, one_by_one = (WAYS[way](given, interpolation=interpolation)[inside] for way in ("affine", "places"))
        apart = np.abs(by_matrix.astype(float) - one_by_one) > (3 if given.dtype == np.uint8 else 0.02)
        assert apart.mean() < 0.01  # a place halfway between two pixels


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int64, bool, np.float64], ids=lambda dtype: np.dtype(dtype).name)
def test_the_nearest_pixel_of_a_place_is_copied_whatever_its_dtype(backend, dtype):
    given = np.arange(12).reshape(3, 4).astype(dtype)
    x, y = np.float32([[0.4, 3.4, -0.4, -0.6], [1.6, 3.6, 2, 1]]), np.float32([[0.4, 1.6, 1, 1], [2.4, 1, 2.6, -0.4]])
    expected = np.array([[0, 11, 4, 0], [10, 0, 0, 1]]).astype(dtype)
    assert_array_equal(sampling.remap(given, x, y, "nearest"), expected, strict=True)


def test_large_images_of_three_channels_come_out_as_small_ones():
    for height, width, dtype in (
        (1, 2**15, np.float32),
        (2**9, 2**9, np.float32),
        (2**9, 2**9 + 1, np.float32),
        (2**11, 2**11 + 1, np.uint8),
    ):
        given = np.zeros((height, width, 3), dtype)
        given[0, :32] = photo(1, 32, 3, dtype=dtype)
        moved = sampling.warp(given, np.array([[1.0, 0, 0.3], [0, 1, 0]]), (height, width))
        assert_array_equal(moved[0, :31], sampling.warp(given[:1, :32].copy(), np.array([[1.0, 0, 0.3], [0, 1, 0]]), (1, 31))[0])


def test_a_result_is_not_written_into_by_the_next(backend):
    for sample in WAYS.values():
        first = sample(photo(25, 27, 3))
        kept = first.copy()
        sample(255 - photo(25, 27, 3))
        assert_array_equal(first, kept)
