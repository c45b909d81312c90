"""The protocol, and the table of what every transform keeps."""

import inspect
import math
import re
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from transform_instances import ALL, CHANCELESS, COMPOSED, EVERY, FLOATING, POLICIES, SIZING, VARYING

import highway.transforms as T
from highway.errors import ConfigError
from highway.modules import Augmentations
from highway.transforms.base import below, happens, uniform


def image(*shape, dtype=np.uint8):
    made = np.random.default_rng(3).integers(0, 256, shape).astype(dtype)
    if made.dtype == np.float32:
        made /= 255
    made.flags.writeable = False
    return made


@pytest.mark.parametrize("transform", ALL + COMPOSED, ids=str)
def test_size_dtype_and_channels_are_what_the_table_says(backend, transform):
    for dtype, channels, seed in product((np.uint8, np.float32), ((), (1,), (3,)), (None, 0)):
        result = transform(image(20, 30, *channels, dtype=dtype), None if seed is None else np.random.default_rng(seed))
        expected_size = (12, 10) if transform in SIZING else (20, 30)
        expected_dtype = np.float32 if transform in FLOATING else dtype
        assert (result.shape, result.dtype) == ((*expected_size, *channels), np.dtype(expected_dtype)), (dtype, channels, seed)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((5, 20, 30, 3), np.uint8), ", a batch: to apply transforms to each image of a batch, use Augmentations([...])"),
        (np.zeros((0, 30, 3), np.uint8), "an image of shape (0, 30, 3) has no pixels"),
        (np.zeros((3, 20, 30), np.uint8), "seems to have its channels first"),
        (np.full((20, 30, 3), None), "expected an image, an array (H, W, C) or (H, W); got an array of shape (20, 30, 3) object"),
        ([[1, 2], [3, 4]], "expected an image, an array (H, W, C) or (H, W); got [[1, 2], [3, 4]]"),
    ],
)
@pytest.mark.parametrize("transform", [T.FlipX(1), T.Chain([T.Rotate90()]), T.RandAugment(), T.SanitizeBoxes()], ids=str)
def test_what_is_no_image_is_refused_when_a_transform_is_called(transform, given, message):
    with pytest.raises(ValueError, match=f"^{type(transform).__name__}: .*{re.escape(message)}"):
        transform(given, np.random.default_rng(0))


INFINITE = {(T.Clip, "max"), (T.RandomIoUCrop, "max_aspect_ratio"), (T.SanitizeBoxes, "min_size"), (T.SanitizeBoxes, "min_area")}
INFINITE |= {(T.RandomIoUCrop, "sampler_options")}


@pytest.mark.parametrize("transform", EVERY, ids=str)
def test_numbers_that_are_not_finite_are_refused_where_nothing_is_meant_by_them(transform):
    for number, field in product((math.nan, math.inf), (field for field in fields(transform) if field.init)):
        value = getattr(transform, field.name)
        if isinstance(value, tuple) and value and isinstance(value[-1], (int, float)):
            value, wrong = value[-1], (*value[:-1], number)
        else:
            wrong = number
        if isinstance(value, (int, float)) and not (number == math.inf and (type(transform), field.name) in INFINITE):
            with pytest.raises(ConfigError, match=f"{number}"):
                replace(transform, **{field.name: wrong})


def test_the_table_has_every_transform_there_is():
    classes = {cls for name in T.__all__ if isinstance(cls := getattr(T, name), type)}
    there_are = {cls for cls in classes if not inspect.isabstract(cls) and not getattr(cls, "_is_protocol", False)}
    assert {type(transform) for transform in EVERY} == there_are


@pytest.mark.parametrize("transform", ALL, ids=str)
def test_same_generator_gives_same_image_and_other_draws_differ_where_there_is_chance(transform):
    given = image(40, 50, 3) // 2 + 40
    first, again = (transform(given, np.random.default_rng(5)) for _ in range(2))
    assert_array_equal(first, again, strict=True)
    others = [transform(given, np.random.default_rng(seed)) for seed in range(12)]
    differ = any(not np.array_equal(other, first) for other in others)
    by_chance = (
        type(transform) in {type(t) for t in CHANCELESS} | {T.RandomCrop, T.RandomResizedCrop, T.Slicer, T.Paste}
        and getattr(transform, "p", 0) != 1
    )
    assert differ == by_chance


@pytest.mark.parametrize("transform", CHANCELESS, ids=str)
def test_without_chance_the_image_stays(transform):
    for dtype in (np.uint8, np.float32) if type(transform) not in POLICIES else (np.uint8,):  # policies refuse floats at once
        given = image(20, 30, 3, dtype=dtype)
        assert_array_equal(transform(given), given, strict=True)
        assert_array_equal(transform(given, None), given, strict=True)


@pytest.mark.parametrize("transform", [t for t in ALL if isinstance(t, T.Writing)], ids=str)
def test_into_a_row_of_a_batch_is_the_same_as_a_new_image(backend, transform):
    transform = replace(transform, p=1.0) if hasattr(transform, "p") else transform
    for shape in ((20, 30), (20, 30, 1), (20, 30, 3)):
        given = image(*shape)
        expected = transform(given, np.random.default_rng(1))
        out = np.zeros((3, *expected.shape), expected.dtype)[1]
        result = transform.into(given, transform.draw(given.shape[:2], np.random.default_rng(1)), out)
        assert_array_equal(result, expected, strict=True)
        assert result is out


@pytest.mark.parametrize("transform", ALL, ids=str)
def test_a_transform_is_frozen_equal_by_value_and_typed_for_yaml(transform):
    values = {field.name: getattr(transform, field.name) for field in fields(transform) if field.init}
    assert type(transform)(**values) == transform
    assert hash(transform) == hash(type(transform)(**values))
    assert isinstance(transform, T.Transform)
    hints = get_type_hints(type(transform))
    assert set(values) <= set(hints)


def test_draws_are_even_and_what_is_certain_takes_none():
    rng = np.random.default_rng(0)
    assert_allclose(np.bincount([below(5, rng) for _ in range(10_000)]), [2000] * 5, rtol=0.08)
    numbers = [uniform(-2.0, 3.0, rng) for _ in range(10_000)]
    assert_allclose(np.histogram(numbers, 5, (-2, 3))[0], [2000] * 5, rtol=0.08)
    assert sum(happens(0.3, rng) for _ in range(10_000)) == pytest.approx(3000, rel=0.05)
    before = rng.bit_generator.state
    assert happens(1.0, rng)
    assert rng.bit_generator.state == before
    assert [happens(p, None) for p in (0.0, 0.9, 1.0)] == [False, False, True]


@pytest.mark.parametrize(
    ("transform", "most"),
    [
        (T.RandomErasing(1.0, scale=(0.1, 0.2), ratio=(0.5, 2.0)), 1),
        (T.CoarseDropout(1.0, num_holes=(2, 3), height=(0.1, 0.3), width=(0.2, 0.4)), 3),
        (T.Cutout(1.0, height=0.3, width=0.2), 1),
    ],
    ids=str,
)
def test_holes_lie_within_the_image_and_reach_all_of_its_sides(transform, most):
    rng = np.random.default_rng(0)
    drawn = [transform.draw((30, 40), rng)[1] for _ in range(400)]
    assert {len(holes) for holes in drawn} == set(range(min(most, 2), most + 1))
    boxes = np.array([box for holes in drawn for box in holes])
    ends = boxes[:, :2] + boxes[:, 2:]
    assert_array_equal(boxes[:, :2].min(axis=0), [0, 0])
    assert_array_equal(ends.max(axis=0), [30, 40])
    least, greatest = boxes[:, 2:].min(axis=0).tolist(), boxes[:, 2:].max(axis=0).tolist()
    if isinstance(transform, T.Cutout):
        assert least == greatest == [9, 8]
    elif isinstance(transform, T.CoarseDropout):
        assert (least, greatest) == ([3, 8], [9, 16])
    else:
        share, ratio = boxes[:, 2:].prod(axis=1) / 1200, boxes[:, 3] / boxes[:, 2]
        assert 0.09 < share.min() < 0.11 < 0.19 < share.max() < 0.21
        assert 0.45 < ratio.min() < 0.6 < 1.7 < ratio.max() < 2.2


def test_bytes_saturate_and_never_wrap():
    bright, dark = np.full((8, 8, 3), 250, np.uint8), np.full((8, 8, 3), 5, np.uint8)
    assert_array_equal(T.AdditiveNoise(1, mu=50, sigma=0)(bright, np.random.default_rng(0)), np.full((8, 8, 3), 255, np.uint8))
    assert_array_equal(T.AdditiveNoise(1, mu=-50, sigma=0)(dark, np.random.default_rng(0)), np.zeros((8, 8, 3), np.uint8))
    assert_array_equal(T.Brightness().image(bright, 1.4), np.full((8, 8, 3), 255, np.uint8))


def painted(height, width, box):
    left, top, right, bottom = box
    picture = np.zeros((height, width), np.uint8)
    picture[top:bottom, left:right] = 255
    return picture


def bounding_box(picture):
    rows, columns = np.flatnonzero(picture.any(axis=1)), np.flatnonzero(picture.any(axis=0))
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) if len(rows) else None


UPRIGHT = [
    T.FlipX(1.0),
    T.FlipY(1.0),
    T.Shift(9),
    T.Shift(0.3),
    T.PadCrop(9),
    T.Zoom(0.5),
    T.Resize((31, 90)),
    T.Resize(1.5),
    T.Resize(40, mode="width"),
    T.Resize(40, mode="shorter"),
    T.Resize(40, mode="longer"),
    *SIZING,
    *[each for each in VARYING if not isinstance(each, (T.BoxSafeCrop, T.RotateAndCropValid))],
    T.Translate((0.3, 0.2)),
    T.Affine(scale=(0.7, 1.4)),
    T.GridDistortion(),
]


@pytest.mark.parametrize("transform", [*UPRIGHT, T.Rotate(180), T.Rotate(180, reshape=True)], ids=str)
@settings(max_examples=20, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_boxes_follow_a_painted_rectangle_within_a_pixel(transform, data, seed):
    height, width = data.draw(st.integers(24, 60)), data.draw(st.integers(24, 60))
    left, top = data.draw(st.integers(0, width - 4)), data.draw(st.integers(0, height - 4))
    box = (left, top, data.draw(st.integers(left + 4, width)), data.draw(st.integers(top + 4, height)))
    params = transform.draw((height, width), np.random.default_rng(seed))
    mask = transform.mask(painted(height, width, box), params)
    (moved,) = transform.boxes(np.float32([box]), params, (height, width))
    assert mask.shape == transform.output(params, (height, width))
    assert set(np.unique(mask)) <= {0, 255}
    found = bounding_box(mask)
    if found is None:  # nothing left, or a sliver that covers no pixel's centre
        assert (moved[2:] - moved[:2]).min() < 1.5
    elif transform == T.Rotate(180):  # the box around the corners, some of which may have left the image
        assert (found[:2] > moved[:2] - 1).all()
        assert (found[2:] < moved[2:] + 1).all()
    else:
        assert_allclose(found, moved, atol=1 if transform in UPRIGHT else 1.5)


@pytest.mark.parametrize(
    "transform",
    [
        *UPRIGHT,
        T.Rotate(180),
        T.Rotate(180, reshape=True),
        T.Affine(30, (0.1, 0.2), (0.8, 1.2), 10),
        T.Perspective(0.4, 1.0),
        T.Elastic(20, 3),
        T.RotateAndCropValid(20),
        *[T.Rotate(40, n) for n in range(1, 6)],
        *[T.Zoom(0.5, n) for n in range(1, 6)],
    ],
    ids=str,
)
def test_an_image_and_its_mask_move_alike(backend, transform):
    blob = np.zeros((48, 60), np.uint8)
    blob[10:30, 5:40] = 200
    params = transform.draw(blob.shape, np.random.default_rng(4))
    moved, mask = transform.image(blob, params), transform.mask(blob, params)
    assert moved.shape == mask.shape
    assert np.mean((moved > 100) != (mask > 100)) < 0.08


def test_boxes_keep_their_number_lost_ones_become_zero_and_padding_stays():
    boxes = np.float32([[2, 2, 6, 6], [12, 12, 18, 18], [0, 0, 0, 0], [-1, -1, -1, -1], [8, 0, 14, 4]])
    cut = T.CenterCrop((10, 10))
    expected = np.float32([[2, 2, 6, 6], [0, 0, 0, 0], [0, 0, 0, 0], [-1, -1, -1, -1], [8, 0, 10, 4]])
    assert_array_equal(cut.boxes(boxes, (0, 0, 10, 10), (20, 20)), expected, strict=True)
    assert_array_equal(T.FlipX(1.0).boxes(boxes[:0], True, (20, 20)), np.zeros((0, 4), np.float32), strict=True)


def test_colours_leave_boxes_points_and_masks_where_they_are():
    for transform in (T.Brightness(), T.HistEq(), T.Normalize(), T.Grayscale()):
        params = transform.draw((20, 20), np.random.default_rng(0))
        for method, arguments in ((transform.boxes, ((20, 20),)), (transform.points, ((20, 20),)), (transform.mask, ())):
            given = np.zeros((3, 4), np.float32)
            assert method(given, params, *arguments) is given


@dataclass(frozen=True)
class Invert(T.Transform):
    """A transform of the user's own: what it takes without chance."""

    def image(self, image, params):
        return 255 - image


@dataclass(frozen=True)
class Transpose(T.Geometric):
    """One that moves pixels."""

    def output(self, params, size):
        return size[::-1]

    def image(self, image, params):
        return image.swapaxes(0, 1)

    def points(self, points, params, size):
        return points[:, ::-1]


METHODS = ("draw", "image", "boxes", "points", "mask", "__call__")


def test_a_new_transform_needs_only_what_is_its_own():
    given = image(4, 6, 3)
    assert_array_equal(Invert()(given), 255 - given)
    size = given.shape[:2]
    assert_array_equal(Transpose().boxes(np.float32([[1, 2, 3, 4]]), None, size), np.float32([[2, 1, 4, 3]]), strict=True)
    assert_array_equal(Transpose().mask(given[..., 0], None), given[..., 0].T)
    assert isinstance(Invert(), T.TransformLike)
    assert not isinstance(len, T.TransformLike)
    of_its_own = type("OfItsOwn", (), {name: getattr(Invert, name) for name in METHODS})()
    assert isinstance(of_its_own, T.TransformLike) and not isinstance(of_its_own, T.Transform)
    assert Augmentations([of_its_own]).transforms == [of_its_own]
    with pytest.raises(TypeError, match="abstract method"):
        type("Nothing", (T.Transform,), {})()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.FlipX(p=1.5), "FlipX: p=1.5; expected a probability from 0 to 1"),
        (lambda: T.FlipY(p=-0.1), "FlipY: p=-0.1; expected a probability from 0 to 1"),
        (lambda: T.Shift(-1), "Shift: shift=-1; expected a share .* or pixels as a whole number, at least 0"),
        (
            lambda: T.Shift(1.0),
            r"Shift: shift=1.0; expected a share of the image as a float from 0 to below 1 \(0.1\), or pixels as a whole",
        ),
        (lambda: T.Shift(-0.1), "Shift: shift=-0.1; expected a share"),
        (lambda: T.Shift(1, "symmetric"), "Shift: mode='symmetric'; expected one of constant, nearest, reflect, mirror, wrap"),
        (lambda: T.PadCrop(-4), "PadCrop: padsize=-4; expected pixels, at least 0"),
        (lambda: T.PadCrop(4, "zero"), "PadCrop: mode='zero'; expected one of constant,"),
        (lambda: T.Rotate(-3), "Rotate: angle=-3; expected degrees, at least 0"),
        (lambda: T.Rotate(3, interpolation=6), "Rotate: interpolation=6; expected one of nearest, bilinear, 0, 1, 2, 3, 4, 5"),
        (lambda: T.Zoom(1.0), "Zoom: fac=1.0; expected at least 0 and below 1"),
        (lambda: T.Zoom(0.1, interpolation=-1), "Zoom: interpolation=-1; expected one of nearest, bilinear, 0, 1, 2, 3, 4, 5"),
        (
            lambda: T.Resize(224),
            r"Resize: shape=224; expected \(height, width\), a share of the image's size such as 0.5, or the new width",
        ),
        (lambda: T.Resize(0.0), "Resize: shape=0.0; expected a share of the image's size, above 0"),
        (lambda: T.Resize((2, 4), "width"), r"Resize: shape=\(2, 4\); expected the new width in pixels with mode='width'"),
        (lambda: T.Resize((2, 2), mode="height"), "Resize: mode='height'; expected one of resize, width, shorter, longer"),
        (lambda: T.Resize((2, 2), interpolation="spline"), "Resize: interpolation='spline'; expected one of nearest, bilinear,"),
        (lambda: T.CenterCrop((0, 3)), r"CenterCrop: shape=\(0, 3\); expected \(height, width\) in pixels, at least 1"),
        (lambda: T.RandomCrop((2.0, 3)), r"RandomCrop: shape\[0\]=2.0; expected int"),
        (lambda: T.TopCenterCrop((3,)), r"TopCenterCrop: crop_shape=\(3,\); expected \(height, width\) in pixels"),
        (lambda: T.CenterCrop(224), r"CenterCrop: shape=224; expected \(height, width\) in pixels, at least 1"),
        (lambda: T.GaussianNoise((5, math.inf)), r"GaussianNoise: sigma=\(5.0, inf\); expected \(least, greatest\), at least 0 and finite"),
        (lambda: T.GaussianNoise(5), r"GaussianNoise: sigma=5; expected \(least, greatest\), at least 0"),
        (lambda: T.CLAHE(tiles=8), r"CLAHE: tiles=8; expected \(rows, columns\), at least 1"),
        (lambda: T.Slicer(0.0), "Slicer: height=0.0; expected a share of the image, above 0 and at most 1"),
        (lambda: T.Slicer(width=64), "Slicer: width=64.0; expected a share of the image, above 0 and at most 1"),
        (lambda: T.Slicer(xoffset=-1), "Slicer: xoffset=-1.0; expected a share from 0 to 0"),
        (
            lambda: T.Slicer(0.5, yoffset=0.3),
            "Slicer: yoffset=0.3; expected a share from 0 to 0.25: height and both margins together are the image",
        ),
        (lambda: T.RandomResizedCrop((2, 2), scale=(0.5, 0.1)), r"RandomResizedCrop: scale=\(0.5, 0.1\); expected \(least, greatest\)"),
        (
            lambda: T.RandomResizedCrop((2, 2), ratio=(0, 1)),
            r"RandomResizedCrop: ratio=\(0.0, 1.0\); expected \(least, greatest\), above",
        ),
        (lambda: T.RandomIoUCrop(min_scale=0.9, max_scale=0.3), "RandomIoUCrop: max_scale=0.3; expected at least min_scale=0.9"),
        (lambda: T.RandomIoUCrop(min_aspect_ratio=3), "RandomIoUCrop: max_aspect_ratio=2.0; expected at least min_aspect_ratio=3.0"),
        (lambda: T.AdditiveNoise(1, sigma=-1), "AdditiveNoise: sigma=-1.0; expected a finite number, at least 0"),
        (lambda: T.Brightness(-0.5), "Brightness: amount=-0.5; expected how far a factor may be from 1, at most 10"),
        (lambda: T.Normalize(std=(0.1, 0.0, 0.1)), r"Normalize: std=\(0.1, 0.0, 0.1\); expected numbers above 0"),
        (lambda: T.Normalize(mean=(0.1, 0.2)), r"Normalize: mean=\(0.1, 0.2\); expected the same number of values as std="),
        (lambda: T.Grayscale(p=0.5, keep_channels=False), "Grayscale: p=0.5; expected 1 with keep_channels=False"),
    ],
)
def test_a_wrong_parameter_is_named_with_its_value_on_construction(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
