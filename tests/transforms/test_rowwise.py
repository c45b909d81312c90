"""Small images of a batch are changed by few calls, and nothing but the time tells it."""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from transform_instances import EVERY

import highway.transforms as T
from highway.modules import Augmentations
from highway.transforms.rowwise import at_once, is_rowwise

ROWWISE = [replace(one, p=0.5) if hasattr(one, "p") else one for one in EVERY if is_rowwise(one)]
IMAGES = np.random.default_rng(0).integers(0, 256, (7, 12, 20, 3), np.uint8)
MANY = np.random.default_rng(1).integers(0, 256, (200, 32, 32, 3), np.uint8)  # more than are changed at once


@dataclass(frozen=True)
class Counting(T.Transform):
    """Counts its calls."""

    calls: list

    rowwise = True

    def image(self, image, params):
        self.calls.append(image.shape)
        return image


def one_by_one(transforms, images, seed):
    rng, augment = np.random.default_rng(seed), Augmentations(transforms)
    return [augment(image, rng) for image in images]


def test_every_rowwise_transform_changes_rows_one_by_one():
    assert {type(one) for one in ROWWISE} == {
        *(T.FlipX, T.Grayscale, T.ColorSpace, T.Posterize, T.Solarize, T.Invert, T.Clip, T.RescaleImages, T.Normalize, T.ToFloat, T.ToUint8)
    }


@pytest.mark.parametrize("transform", ROWWISE, ids=str)
def test_a_batch_of_small_images_has_the_bits_of_one_by_one(backend, transform):
    if backend == "pillow" and isinstance(transform, T.ColorSpace):
        pytest.skip("OpenCV's")
    channels = [3] if isinstance(transform, T.ColorSpace | T.Grayscale | T.Normalize) else [1, 3, 4]
    for dtype, count in product([np.uint8, np.float32, np.float64], channels):
        images = np.random.default_rng(2).integers(0, 256, (9, 13, 17, count), np.uint8)
        images = images if dtype is np.uint8 else (images / 255).astype(dtype)
        images.flags.writeable = False
        assert at_once([transform], images) > 1
        for given in (images, images[:, 2:, ::2], images[::-1]):
            expected = one_by_one([transform], given, 3)
            assert_array_equal(Augmentations([transform])(given, np.random.default_rng(3)), np.stack(expected), strict=True)


@pytest.mark.parametrize(
    "transforms",
    [
        [T.FlipX(), T.Normalize()],
        [T.PadCrop(4), T.FlipX(), T.Posterize(), T.Brightness(), T.Invert(), T.Normalize()],
        [T.Rotate(20, "bilinear"), T.Translate(), T.FlipX(), T.Sometimes(0.5, T.FlipY(1.0)), T.OneOf([T.Invert(1.0), T.Solarize(1.0)])],
        [T.RandomCropRandomShape(8, 8), T.FlipX(), T.Resize((10, 9), interpolation="bilinear"), T.ToFloat()],
        [T.Grayscale(keep_channels=False), T.ToFloat(), T.Clip(0.2, 0.7), T.ToUint8()],
        [T.Sometimes(0.5, T.ToFloat()), T.ToUint8(), T.FlipX()],
    ],
    ids=lambda transforms: str(len(transforms)),
)
@pytest.mark.parametrize("images", [IMAGES, MANY, MANY[:1]], ids=len)
def test_chains_have_the_bits_of_one_by_one(transforms, images):
    expected = np.stack(one_by_one(transforms, images, 4))
    result = Augmentations(transforms)({"image": images, "label": 3}, np.random.default_rng(4))
    assert_array_equal(result["image"], expected, strict=True)
    assert result["label"] == 3
    deterministic = Augmentations(transforms, deterministic=True)
    assert_array_equal(deterministic(images, None), np.stack([deterministic(image, None) for image in images]), strict=True)


def test_small_images_are_changed_by_few_calls_and_large_ones_one_by_one():
    transform = Counting([])
    Augmentations([transform])(MANY, np.random.default_rng(0))
    assert len(transform.calls) == 5
    assert sum(rows for rows, _, _ in transform.calls) == 200 * 32
    transform.calls.clear()
    Augmentations([transform])(np.zeros((5, 200, 200, 3), np.uint8), np.random.default_rng(0))
    assert transform.calls == [(200, 200, 3)] * 5


def test_a_class_that_derives_from_a_rowwise_one_is_asked_image_by_image():
    class Darkest(T.Normalize):
        def image(self, image, params, out=None):
            return super().image(image - image.min(), params, out)

        into = image

    images = IMAGES // 2 + np.arange(7, dtype=np.uint8)[:, None, None, None]
    assert not is_rowwise(Darkest())
    expected = np.stack([T.Normalize()(image - image.min()) for image in images])
    assert_array_equal(Augmentations([T.FlipX(0.0), Darkest()])(images, np.random.default_rng(0)), expected, strict=True)


def test_errors_say_which_images_and_which_transform():
    with pytest.raises(ValueError, match="2 channels") as caught:
        Augmentations([T.FlipX(), T.Grayscale()])(MANY[..., :2], np.random.default_rng(0))
    assert caught.value.__notes__ == ["in transforms[1], Grayscale(p=1.0, keep_channels=True)", "images 0 to 63 of a batch of 200"]
    with pytest.raises(ValueError, match="2 channels") as caught:
        Augmentations([T.FlipX(), T.Hue()])(MANY[..., :2], np.random.default_rng(0))
    assert caught.value.__notes__ == ["in transforms[1], Hue(amount=0.1)", "image 0 of a batch of 200"]
    with pytest.raises(ValueError, match=r"image 0 of the batch is .* and image \d+ is .*; all images of a batch need the same shape"):
        Augmentations([T.FlipX(), T.RandomCropRandomShape(4, 4)])(MANY, np.random.default_rng(0))
    with pytest.raises(ValueError, match="needs an image of at least 40x40") as caught:
        Augmentations([T.FlipX(), T.RandomCrop((40, 40))])(MANY, np.random.default_rng(0))
    assert caught.value.__notes__[-1] == "image 0 of a batch of 200"
