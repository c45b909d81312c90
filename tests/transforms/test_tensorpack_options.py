"""Options of tensorpack's augmentors, against OpenCV as tensorpack called it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from highway import functional as F
from highway import transforms as T
from highway.errors import ConfigError
from highway.modules import DecodeImage

cv2 = pytest.importorskip("cv2")
IMAGE = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8), (5, 5), 0)
BORDERS = {"nearest": cv2.BORDER_REPLICATE, "reflect": cv2.BORDER_REFLECT, "mirror": cv2.BORDER_REFLECT_101, "wrap": cv2.BORDER_WRAP}


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("mode", BORDERS)
@pytest.mark.parametrize("size", [(30, 40), (1, 5), (2, 2)], ids=str)
def test_what_comes_in_at_the_border_is_as_opencv_has_it(mode, size):
    image = IMAGE[: size[0], : size[1]]
    for transform in (T.Rotate(35.0, "bilinear", mode=mode), T.Affine(20, (0.4, 0.3), (0.5, 1.5), 10, mode=mode), T.Translate(mode=mode)):
        params = transform.draw(image.shape[:2], rng(1))
        matrix = transform.matrix(params, image.shape[:2]).copy()
        matrix[:, 2] += matrix[:, :2].sum(axis=1) / 2 - 0.5  # from corners to centres of pixels
        expected = cv2.warpAffine(image, matrix, size[::-1], flags=cv2.INTER_LINEAR, borderMode=BORDERS[mode])
        assert_allclose(transform.image(image, params).astype(int), expected.reshape(image.shape), atol=3)
        mask = image[..., 0].copy()
        assert set(np.unique(transform.mask(mask, params))) <= set(np.unique(mask))


def test_a_row_shows_what_each_mode_repeats():
    row = np.arange(1, 5, dtype=np.uint8)[None, :, None]
    moved = np.array([[1.0, 0, 3], [0, 1, 0]])
    repeated = {"constant": [0, 0, 0, 1], "nearest": [1, 1, 1, 1], "reflect": [3, 2, 1, 1], "mirror": [4, 3, 2, 1], "wrap": [2, 3, 4, 1]}
    for mode, expected in repeated.items():
        assert F.warp(row, moved, (1, 4), "nearest", mode=mode).ravel().tolist() == expected


def test_wrapping_blends_the_last_pixel_with_the_first():
    half = np.array([[1.0, 0, 0.5], [0, 1, 0.5]])
    image = IMAGE.astype(np.float32)
    down = (image + np.roll(image, 1, 0)) / 2
    assert_allclose(F.warp(image, half, image.shape[:2], mode="wrap"), (down + np.roll(down, 1, 1)) / 2, atol=0.01)


def test_warps_with_a_border_are_applied_one_by_one():
    chain = T.Chain([T.Rotate(30.0, "bilinear", mode="nearest"), T.Translate((0.3, 0.3), mode="nearest")])
    steps = chain.draw(IMAGE.shape[:2], rng())
    one_by_one = steps[1].transform.image(steps[0].transform.image(IMAGE, steps[0].params), steps[1].params)
    assert_array_equal(chain.image(IMAGE, steps), one_by_one)


def test_a_spline_of_higher_order_has_no_border_mode():
    with pytest.raises(ConfigError, match="mode='nearest'; expected 'constant' with a spline of order 2 or more"):
        T.Rotate(30, 3, mode="nearest")


@pytest.mark.parametrize("transform", [lambda **options: T.Rotate(9, **options), T.Affine], ids=["Rotate", "Affine"])
def test_a_fill_that_a_spline_would_ignore_is_refused(transform):
    with pytest.raises(ConfigError, match=r"fill=7(\.0)?; expected 0 with a spline of order 2 or more"):
        transform(interpolation=3, fill=7)
    with pytest.raises(ValueError, match="fill=7 with a spline of order 3, whose new pixels are 0"):
        F.rotate(np.zeros((4, 5), np.uint8), 10, interpolation=3, fill=7)


def test_the_centre_of_a_turn_is_drawn_and_stays_in_its_place():
    transform = T.Rotate(90.0, center_range=(0.0, 1.0))
    centres = []
    for seed in range(20):
        params = transform.draw((30, 40), rng(seed))
        centre = np.float32([params[1:]])
        assert_allclose(transform.points(centre, params, (30, 40)), centre, atol=1e-4)
        centres.append(centre[0])
    assert (np.min(centres, axis=0) < (10, 8)).all() and (np.max(centres, axis=0) > (30, 22)).all()
    assert isinstance(T.Rotate(90.0).draw((30, 40), rng()), float)
    with pytest.raises(ConfigError, match=r"center_range=\(0\.0, 1\.0\); expected \(0\.5, 0\.5\) with reshape=True"):
        T.Rotate(90.0, reshape=True, center_range=(0, 1))


@pytest.mark.parametrize(
    ("angle", "step", "expected"),
    [(180, 90, {-180, -90, 0, 90}), (180.0, 60, {-180, -120, -60, 0, 60, 120}), (50, 20, {-40, -20, 0, 20, 40})],
)
def test_a_turn_by_steps_is_a_multiple_of_them(angle, step, expected):
    transform = T.Rotate(angle, step_deg=step)
    assert {transform.draw((30, 40), rng(seed)) for seed in range(200)} == expected


def test_contrast_about_the_mean_of_each_channel_is_tensorpacks():
    mean = IMAGE.mean(axis=(0, 1), keepdims=True)
    expected = np.clip(IMAGE * 1.4 + mean * (1 - 1.4), 0, 255)
    assert_allclose(F.contrast(IMAGE, 1.4, per_channel=True), expected, atol=0.51)
    shares = np.float32(IMAGE / 255)
    assert_allclose(F.contrast(shares, 0.5, per_channel=True), shares * 0.5 + shares.mean(axis=(0, 1)) * 0.5, atol=1e-5)
    assert_array_equal(T.Contrast(0.0, per_channel=True)(IMAGE, rng()), IMAGE)
    changed = T.Contrast(0.4, per_channel=True)(IMAGE, rng())
    assert_allclose(changed.mean(axis=(0, 1)), IMAGE.mean(axis=(0, 1)), atol=2)


def test_a_cutout_in_pixels_has_that_size_in_images_of_any_size():
    for size in ((30, 40), (100, 90)):
        image = np.full((*size, 1), 9, np.uint8)
        assert (T.Cutout(height=7, width=11, p=1.0)(image, rng()) == 0).sum() == 77
    assert (T.Cutout(height=50, width=0.5, p=1.0)(np.full((30, 40, 1), 9, np.uint8), rng()) == 0).sum() == 30 * 20
    with pytest.raises(ConfigError, match=r"height=0; expected a share from 0 to 1, or pixels as a whole number"):
        T.Cutout(height=0)


def test_a_random_resized_crop_scales_as_it_is_told():
    for interpolation in ("nearest", "bicubic"):
        transform = T.RandomResizedCrop((16, 16), interpolation=interpolation)
        top, left, height, width = params = transform.draw(IMAGE.shape[:2], rng())
        expected = F.resize(IMAGE[top : top + height, left : left + width], (16, 16), interpolation)
        assert_array_equal(transform.image(IMAGE, params), expected)
    with pytest.raises(ConfigError, match="a crop with interpolation='bilinear', the interpolation of the decoder; put other crops"):
        DecodeImage(crop=T.RandomResizedCrop((16, 16), interpolation="bicubic"))


def test_one_factor_keeps_the_proportions_and_one_axis_can_change_alone():
    for seed in range(9):
        height, width = T.RandomResize((0.5, 2.0)).draw((300, 400), rng(seed))
        assert abs(height / 300 - width / 400) < 0.01
        height, width = T.RandomResize((0.5, 2.0), (1, 1), aspect_ratio_thres=10).draw((300, 400), rng(seed))
        assert height == 300 and 200 <= width <= 800


def test_a_draw_is_kept_and_applied_to_something_else():
    chain = T.Chain([T.FlipX(1.0), T.RandomCrop((20, 20)), T.Rotate(90)])
    params = chain.draw(IMAGE.shape[:2], rng(3))
    points = np.float32([[10, 10], [3.5, 20]])
    assert_array_equal(chain.image(IMAGE, params)[..., 0], chain.image(IMAGE[..., :1], params)[..., 0])
    assert_array_equal(chain.points(points, params, (30, 40)), chain.points(points, params, (30, 40)))
