"""Options of the transforms against tensorpack's own augmentors, where the meaning is the same; run by ``tox -e adapters-others``."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from highway import functional as F
from highway import transforms as T
from highway.modules import Augmentations

pytest.importorskip("tensorpack", reason="tensorpack is not installed: this is run by tox -e adapters-others")
cv2 = pytest.importorskip("cv2")
from tensorpack import dataflow  # noqa: E402
from tensorpack.dataflow import imgaug  # noqa: E402

IMAGE = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8), (7, 7), 0)
POINTS = np.float32([[3, 4], [40, 30], [79, 59]])
BORDERS = {
    "constant": cv2.BORDER_CONSTANT,
    "nearest": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT,
    "mirror": cv2.BORDER_REFLECT_101,
    "wrap": cv2.BORDER_WRAP,
}


def draw(augmentor):
    augmentor.reset_state()
    return augmentor.get_transform(IMAGE)


def degrees(matrix):
    return float(np.degrees(np.arctan2(matrix[0, 1], matrix[0, 0])))


@pytest.mark.parametrize("mode", BORDERS)
def test_turns_and_shifts_are_tensorpacks_for_each_border(mode):
    options = {"border": BORDERS[mode], "border_value": (7, 8, 9)}
    theirs = draw(imgaug.Rotation(180, (0.3, 0.3), **options))
    ours = T.Rotate(180.0, "bilinear", mode=mode, center_range=(0.3, 0.3), fill=(7, 8, 9))
    params = degrees(theirs.mat), 24.0, 18.0
    assert_allclose(ours.image(IMAGE, params).astype(int), theirs.apply_image(IMAGE.copy()), atol=1)
    moved = ours.points(POINTS + 0.5, params, IMAGE.shape[:2])  # tensorpack's points are 0 at the centre of a pixel
    assert_allclose(moved - 0.5, theirs.apply_coords(POINTS.copy()), atol=1e-3)
    theirs = draw(imgaug.Shift(0.3, 0.2, **options))
    right, down = map(float, theirs.mat[:, 2])
    ours = T.Translate((0.3, 0.2), mode=mode, fill=(7, 8, 9))
    assert_allclose(ours.image(IMAGE, (0.0, 1.0, 0.0, 0.0, right, down)).astype(int), theirs.apply_image(IMAGE.copy()), atol=1)


def test_steps_of_a_turn_are_tensorpacks():
    theirs = {round(degrees(draw(imgaug.Rotation(180, step_deg=60)).mat)) for _ in range(100)}
    for transform in (T.Rotate(180.0, step_deg=60), T.RotateAndCropValid(180.0, step_deg=60)):
        drawn = {round(transform.draw((60, 80), np.random.default_rng(seed))) for seed in range(100)}
        assert {angle % 360 for angle in drawn} == {angle % 360 for angle in theirs} == {0, 60, 120, 180, 240, 300}


@pytest.mark.parametrize("all_channel", [True, False])
def test_normalised_images_are_tensorpacks(all_channel):
    for ours, theirs in (
        (T.MinMaxNormalize(-1, 3, all_channel), imgaug.MinMaxNormalize(-1, 3, all_channel)),
        (T.MeanVarianceNormalize(all_channel), imgaug.MeanVarianceNormalize(all_channel)),
    ):
        expected = theirs.augment(IMAGE.copy())
        assert_allclose(ours(IMAGE), expected, atol=1e-5)
        assert ours(IMAGE).dtype == np.float32  # as tensorpack promises; with NumPy 2 its own result may be float64
    even = np.full((4, 5, 3), 7, np.uint8)
    assert_array_equal(T.MeanVarianceNormalize(all_channel)(even), imgaug.MeanVarianceNormalize(all_channel).augment(even.copy()))


def test_contrast_cutout_and_grey_are_tensorpacks():
    for rgb, per_channel in ((None, True), (True, False)):
        theirs = imgaug.Contrast((1.4, 1.4), rgb=rgb)
        theirs.reset_state()
        assert_allclose(F.contrast(IMAGE, 1.4, per_channel).astype(int), theirs.augment(IMAGE.copy()), atol=1)
    theirs = imgaug.RandomCutout(10, 20, fill=3)
    theirs.reset_state()
    flat = np.full((60, 80, 3), 9, np.uint8)
    ours = T.Cutout(height=10, width=20, fill=3, p=1.0)(flat, np.random.default_rng(0))
    assert (ours == 3).sum() == (theirs.augment(flat.copy()) == 3).sum() == 600
    assert_allclose(T.Grayscale(keep_channels=False)(IMAGE).astype(int), imgaug.Grayscale(rgb=True).augment(IMAGE.copy()), atol=1)


INTERPOLATIONS = {"bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC, "area": cv2.INTER_AREA, "lanczos": cv2.INTER_LANCZOS4}


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("size", [32, 120])
def test_a_crop_that_is_resized_is_tensorpacks_for_each_interpolation(interpolation, size):
    theirs = draw(imgaug.GoogleNetRandomCropAndResize(target_shape=size, interp=INTERPOLATIONS[interpolation]))
    crop = theirs.tfms[0]
    ours = T.RandomResizedCrop((size, size), interpolation=interpolation).image(IMAGE, (crop.y0, crop.x0, crop.h, crop.w))
    assert_allclose(ours.astype(int), theirs.apply_image(IMAGE.copy()), atol=1)


def test_what_shares_a_draw_is_what_tensorpack_makes_of_it(monkeypatch):
    monkeypatch.setattr(np, "float", float, raising=False)  # the name of NumPy 1 that tensorpack uses
    flow = dataflow.DataFromList([[IMAGE.copy(), IMAGE[..., ::-1].copy(), POINTS.astype(float), POINTS[:1].astype(float)]], shuffle=False)
    augmentors = [imgaug.Flip(horiz=True, prob=1.0), imgaug.CenterCrop((40, 50)), imgaug.Resize((20, 25))]
    theirs = dataflow.AugmentImageComponents(flow, augmentors, index=(0, 1), coords_index=(2, 3))
    theirs.reset_state()
    [expected] = theirs
    stage = Augmentations([T.FlipX(1.0), T.CenterCrop((40, 50)), T.Resize((20, 25), interpolation="bilinear")], field=[0, 1], points=[2, 3])
    found = stage((IMAGE, IMAGE[..., ::-1].copy(), POINTS, POINTS[:1]), np.random.default_rng(0))
    for one, other in zip(found[:2], expected[:2], strict=True):
        assert_allclose(one.astype(int), other, atol=1)
    for one, other in zip(found[2:], expected[2:], strict=True):
        assert_allclose(one, other, atol=1e-4)


def test_a_draw_that_is_kept_is_applied_as_tensorpack_applies_its_transform():
    theirs = draw(imgaug.AugmentorList([imgaug.RandomCrop((20, 30)), imgaug.Flip(horiz=True, prob=1.0)]))
    top, left = theirs.tfms[0].y0, theirs.tfms[0].x0
    chain = T.Chain([T.RandomCrop((20, 30)), T.FlipX(1.0)])
    params = chain.draw(IMAGE.shape[:2], np.random.default_rng(0))
    params[0] = params[0]._replace(params=(top, left, 20, 30))
    other = 255 - IMAGE
    assert_array_equal(chain.image(other, params), theirs.apply_image(other.copy()))
    assert_allclose(chain.points(POINTS, params, IMAGE.shape[:2]), theirs.apply_coords(POINTS.copy()), atol=1e-4)
