"""Transforms that leave pixels in place against torchvision, Pillow, OpenCV and Albumentations, by equal parameters.

Run by ``tox -e oracles-transforms``.
"""

import random

import cv2
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from transform_oracles import IMAGE, TF, A, assert_alike, by_torchvision, torch, v2

import highway.functional as F
import highway.transforms as T

blurs, dropout, pixels = (getattr(A.augmentations, kind).functional for kind in ("blur", "dropout", "pixel"))
SIZE = IMAGE.shape[:2]
FLOATS = IMAGE.astype(np.float32) / 255


def pillow(function, *args):
    return np.asarray(function(Image.fromarray(IMAGE), *args))


def enhanced(kind, factor):
    return np.asarray(kind(Image.fromarray(IMAGE)).enhance(factor))


def tv(function, *args, **options):
    return by_torchvision(lambda given: function(given, *args, **options), IMAGE)


def jpeg(image, quality):
    data = cv2.imencode(".jpg", image[..., ::-1], (cv2.IMWRITE_JPEG_QUALITY, quality))[1]
    return cv2.imdecode(data, cv2.IMREAD_COLOR)[..., ::-1]


def of_lab(image):
    lab = cv2.cvtColor(image, cv2.COLOR_RGB2LAB)
    lab[..., 0] = cv2.createCLAHE(3, (4, 8)).apply(lab[..., 0])
    return cv2.cvtColor(lab, cv2.COLOR_LAB2RGB)


def normal(**how):
    return A.Normalize(**how, p=1)(image=IMAGE)["image"]


CHANGES = {  # a transform, its parameters, what an oracle makes of the image, and how many levels they may be apart
    "brightness, torchvision": (T.Brightness(), 1.37, lambda: tv(TF.adjust_brightness, 1.37), 1),
    "brightness, Pillow": (T.Brightness(), 0.3, lambda: enhanced(ImageEnhance.Brightness, 0.3), 1),
    "brightness, Albumentations": (T.Brightness(), 1.37, lambda: pixels.adjust_brightness_torchvision(IMAGE, 1.37), 1),
    "contrast, torchvision": (T.Contrast(), 0.4, lambda: tv(TF.adjust_contrast, 0.4), 2),
    "contrast, more": (T.Contrast(), 1.6, lambda: tv(TF.adjust_contrast, 1.6), 2),
    "contrast, Pillow": (T.Contrast(), 1.6, lambda: enhanced(ImageEnhance.Contrast, 1.6), 1),
    "saturation, torchvision": (T.Saturation(), 0.4, lambda: tv(TF.adjust_saturation, 0.4), 2),
    "saturation, Pillow": (T.Saturation(), 1.6, lambda: enhanced(ImageEnhance.Color, 1.6), 2),
    "sharpness, torchvision": (T.Sharpness(), 1.7, lambda: tv(TF.adjust_sharpness, 1.7), 2),
    "sharpness, smoother": (T.Sharpness(), 0.2, lambda: tv(TF.adjust_sharpness, 0.2), 2),
    "sharpness, Pillow": (T.Sharpness(), 1.7, lambda: enhanced(ImageEnhance.Sharpness, 1.7), 2),
    "gamma": (T.Gamma(), 0.7, lambda: tv(TF.adjust_gamma, 0.7), 1),
    "gamma, Albumentations": (T.Gamma(), 1.4, lambda: pixels.gamma_transform(IMAGE, 1.4), 1),
    "grey": (T.Grayscale(), True, lambda: tv(TF.rgb_to_grayscale, num_output_channels=3), 1),
    "grey, OpenCV": (T.Grayscale(), True, lambda: cv2.cvtColor(cv2.cvtColor(IMAGE, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB), 1),
    "grey, Albumentations": (T.Grayscale(), True, lambda: A.ToGray(3, "weighted_average", p=1)(image=IMAGE)["image"], 1),
    "posterize": (T.Posterize(bits=3), True, lambda: tv(TF.posterize, 3), 0),
    "posterize, Albumentations": (T.Posterize(bits=3), True, lambda: pixels.posterize(IMAGE, 3), 0),
    "solarize": (T.Solarize(threshold=100 / 255), True, lambda: tv(TF.solarize, 100), 0),
    "solarize, Pillow": (T.Solarize(threshold=100 / 255), True, lambda: pillow(ImageOps.solarize, 100), 0),
    "invert": (T.Invert(), True, lambda: tv(TF.invert), 0),
    "autocontrast": (T.AutoContrast(), True, lambda: tv(TF.autocontrast), 1),
    "autocontrast, Pillow": (T.AutoContrast(), True, lambda: pillow(ImageOps.autocontrast), 0),
    "equalize": (T.Equalize(), True, lambda: tv(TF.equalize), 0),
    "equalize, Pillow": (T.Equalize(), True, lambda: pillow(ImageOps.equalize), 0),
    "CLAHE": (T.CLAHE(clip_limit=3, tiles=(8, 4)), True, lambda: of_lab(IMAGE), 0),
    "CLAHE, Albumentations": (T.CLAHE(clip_limit=3, tiles=(8, 4)), True, lambda: pixels.clahe(IMAGE, 3, (4, 8)), 0),
    "clip": (T.Clip(30, 200), None, lambda: IMAGE.clip(30, 200), 0),
    "Gaussian blur": (T.GaussianBlur(size=7), 1.4, lambda: tv(TF.gaussian_blur, [7, 7], [1.4, 1.4]), 1),
    "Gaussian blur, OpenCV": (T.GaussianBlur(), 1.4, lambda: cv2.GaussianBlur(IMAGE, (11, 11), 1.4), 1),
    "median blur": (T.MedianBlur(), 5, lambda: cv2.medianBlur(IMAGE, 5), 0),
    "median blur, Albumentations": (T.MedianBlur(), 5, lambda: A.MedianBlur((5, 5), p=1)(image=IMAGE)["image"], 0),
    "median blur, Pillow": (T.MedianBlur(), 3, lambda: pillow(lambda image: image.filter(ImageFilter.MedianFilter(3))), 0),
    "JPEG": (T.JpegNoise(), 96, lambda: jpeg(IMAGE, 96), 0),
    "JPEG, Albumentations": (T.JpegNoise(), 96, lambda: pixels.image_compression(IMAGE[..., ::-1], 96, ".jpg")[..., ::-1], 0),
    "rescale": (T.RescaleImages(), None, lambda: (IMAGE - np.float32(128)) / 128, 1e-6),
    "normalize": (
        T.Normalize(),
        None,
        lambda: tv(lambda given: TF.normalize(TF.to_dtype(given, torch.float32, scale=True), list(F.IMAGENET_MEAN), list(F.IMAGENET_STD))),
        1e-5,
    ),
    "normalize, Albumentations": (T.Normalize(), None, lambda: normal(mean=F.IMAGENET_MEAN, std=F.IMAGENET_STD), 1e-5),
    "to float": (T.ToFloat(), None, lambda: tv(TF.to_dtype, torch.float32, scale=True), 1e-6),
    "to float, Albumentations": (T.ToFloat(), None, lambda: A.ToFloat(255, p=1)(image=IMAGE)["image"], 1e-6),
    "min and max": (T.MinMaxNormalize(0, 1), None, lambda: normal(normalization="min_max"), 1e-4),  # it adds 0.0001 to the divisor
    "min and max, each": (T.MinMaxNormalize(0, 1, False), None, lambda: normal(normalization="min_max_per_channel"), 1e-4),
    "mean and deviation": (T.MeanVarianceNormalize(), None, lambda: normal(normalization="image"), 1e-4),
    "mean and deviation, each": (T.MeanVarianceNormalize(False), None, lambda: normal(normalization="image_per_channel"), 1e-4),
    "hue": (T.Hue(), 0.25, lambda: tv(TF.adjust_hue, 0.25), 9),  # bytes have 256 hues
    "hue, Albumentations": (T.Hue(), 0.25, lambda: pixels.adjust_hue_torchvision(IMAGE, 0.25), 9),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_those_of_the_oracle(name):
    transform, params, theirs, levels = CHANGES[name]
    found, expected = transform.image(IMAGE, params), theirs()
    assert (found.dtype == np.uint8) == (expected.dtype == np.uint8)
    assert_alike(found, expected, levels)


@pytest.mark.parametrize("mode", ["RGB2HSV", "RGB2LAB", "RGB2YCrCb", "RGB2GRAY", "RGB2BGR"])
def test_colour_spaces_are_those_of_opencv(mode):
    expected = cv2.cvtColor(IMAGE, getattr(cv2, f"COLOR_{mode}"))
    assert_array_equal(T.ColorSpace(mode)(IMAGE), expected.reshape(*SIZE, -1))


def test_floats_are_those_of_torchvision():
    def theirs(function, *args):
        return np.moveaxis(function(torch.from_numpy(np.moveaxis(FLOATS, -1, 0).copy()), *args).numpy(), 0, -1)

    inside = np.float32([0, 1])  # torchvision clips, highway does not know the range
    for ours, other, args in (
        (F.brightness, TF.adjust_brightness, (1.3,)),
        (F.contrast, TF.adjust_contrast, (0.6,)),
        (F.saturation, TF.adjust_saturation, (1.5,)),
        (F.hue, TF.adjust_hue, (0.2,)),
        (F.sharpness, TF.adjust_sharpness, (1.5,)),
        (F.gamma, TF.adjust_gamma, (1.4,)),
        (F.solarize, TF.solarize, (0.4,)),
        (F.autocontrast, TF.autocontrast, ()),
    ):
        assert_alike(ours(FLOATS, *args).clip(*inside), theirs(other, *args), 2e-3, 1e-3)
    assert_alike(F.posterize(FLOATS, 3), theirs(TF.posterize, 3), 0.004)  # highway's are those of bytes: 224 / 255 where it has 7 / 8


def test_jpeg_of_a_lower_quality_is_opencvs_but_for_the_fast_transform_of_libjpeg_turbo():
    for quality in (30, 60, 90):
        ours, theirs = T.JpegNoise().image(IMAGE, quality).astype(int), jpeg(IMAGE, quality)
        assert np.abs(ours - theirs).mean() < 1.2
        assert abs(np.abs(ours - IMAGE).mean() - np.abs(theirs.astype(int) - IMAGE).mean()) < 0.3


def test_histogram_equalization_of_grey_is_opencvs():
    grey = IMAGE[..., 0].copy()
    assert_alike(T.HistEq()(grey), cv2.equalizeHist(grey), 1)


def test_colour_jitter_is_torchvisions_with_the_same_factors_in_the_same_order():
    functions = (TF.adjust_brightness, TF.adjust_contrast, TF.adjust_saturation, TF.adjust_hue)
    for seed in range(12):
        drawn = T.ColorJitter().draw(SIZE, np.random.default_rng(seed))
        expected = IMAGE
        for number, amount in drawn:
            expected = by_torchvision(lambda given, number=number, amount=amount: functions[number](given, amount), expected)
        apart = np.abs(T.ColorJitter().image(IMAGE, drawn).astype(int) - expected)
        assert apart.mean() < 2.5 and np.quantile(apart, 0.999) <= 10  # torchvision cuts off four times


def test_holes_are_those_of_torchvision_and_albumentations():
    holes = [(10, 20, 30, 40), (50, 100, 20, 60)]
    expected = by_torchvision(lambda given: TF.erase(given, *holes[0], torch.full((1, 1, 1), 7, dtype=torch.uint8)), IMAGE)
    assert_array_equal(T.RandomErasing(fill=7).image(IMAGE, (0, holes[:1])), expected)
    corners = np.array([(left, top, left + width, top + height) for top, left, height, width in holes])
    for transform, fill in ((T.CoarseDropout(fill=(3, 4, 5)), (3, 4, 5)), (T.Cutout(fill=9), 9)):
        theirs = dropout.cutout(IMAGE, corners, fill, np.random.default_rng(0))
        assert_array_equal(transform.image(IMAGE, (0, holes)), theirs)


def test_erased_boxes_have_torchvisions_areas_and_proportions():
    torch.manual_seed(0)
    transform, given = v2.RandomErasing(p=1), torch.zeros(3, *SIZE)
    drawn = [transform.make_params([given]) for _ in range(1500)]
    theirs = np.array([(one["h"], one["w"]) for one in drawn], float)
    ours = np.array(
        [holes[0][2:] for seed in range(1500) if (holes := T.RandomErasing(p=1).holes(SIZE, np.random.default_rng(seed)))], float
    )
    assert_allclose(np.quantile(ours.prod(axis=1), [0.1, 0.5, 0.9]), np.quantile(theirs.prod(axis=1), [0.1, 0.5, 0.9]), rtol=0.12)
    shapes = [np.quantile(np.log(sides[:, 1] / sides[:, 0]), [0.1, 0.5, 0.9]) for sides in (ours, theirs)]
    assert_allclose(*shapes, atol=0.15)


def test_a_line_of_motion_is_that_of_albumentations():
    for size in (3, 5, 7):
        for angle in range(0, 180, 5):
            kernel = blurs.create_motion_kernel(size, angle, 0.0, False, random.Random(0))
            if angle % 90:
                kernel = np.flipud(kernel)  # its angles turn clockwise as seen
            expected = cv2.filter2D(IMAGE, -1, kernel / kernel.sum())
            assert_alike(T.MotionBlur().image(IMAGE, (size, float(angle))), expected, 1)


def test_normal_noise_is_as_strong_as_torchvisions():
    torch.manual_seed(0)
    grey = np.full((200, 300, 3), 128, np.uint8)
    theirs = by_torchvision(lambda given: TF.gaussian_noise(given, 0.0, 20 / 255, True), grey)
    ours = F.add_noise(grey, 1.0, 0.0, 20.0, np.random.default_rng(0))
    assert_allclose([ours.mean(), ours.std()], [theirs.mean(), theirs.std()], rtol=0.03)  # it cuts off at 0 and has few levels
    assert_allclose(np.quantile(ours, [0.01, 0.25, 0.75, 0.99]), np.quantile(theirs, [0.01, 0.25, 0.75, 0.99]), atol=2)


def test_salt_and_pepper_are_those_of_albumentations_at_the_same_places():
    noisy = F.salt_pepper(IMAGE.clip(1, 254), 0.1, 0.05, np.random.default_rng(0))
    salt, pepper = (noisy == 255).all(axis=2), (noisy == 0).all(axis=2)
    assert_array_equal(noisy, pixels.apply_salt_and_pepper(IMAGE.clip(1, 254), salt, pepper))


def test_lighting_is_the_sum_of_the_axes_and_iso_noise_grows_as_that_of_albumentations():
    strengths = (0.1, -0.05, 0.2)
    added = np.array(F.EIGENVECTORS) @ (np.array(strengths) * np.array(F.EIGENVALUES))
    assert_alike(T.Lighting().image(IMAGE, strengths), np.rint(IMAGE + 255 * added).clip(0, 255), 0)
    apart = [
        [np.abs(noisy.astype(float) - IMAGE).mean() for noisy in (ours, theirs)]
        for intensity in (0.1, 0.3, 0.6)
        for ours, theirs in [
            (
                F.iso_noise(IMAGE, 0.01, intensity, np.random.default_rng(0)),
                pixels.iso_noise(IMAGE, 0.01, intensity, np.random.default_rng(0)),
            )
        ]
    ]
    assert (np.diff(apart, axis=0) > 0).all()
