"""Laws that hold for every transform there is: one that is added is held to them by its instance in ``transform_instances``."""

from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from transform_instances import EVERY, ONLY_BYTES, POLICIES

import highway.transforms as T
from highway import functional as F
from highway.transforms.base import Seen

COLOURS = {T.Saturation, T.Grayscale, T.Hue, T.ColorJitter, T.ISONoise, T.Lighting, T.ColorSpace, T.JpegNoise, T.CLAHE}
CROPS_OF_PIXELS = {T.CenterCrop, T.RandomCrop, T.TopCenterCrop}


class Target(NamedTuple):
    image: np.ndarray
    boxes: np.ndarray
    points: np.ndarray
    mask: np.ndarray

    @property
    def size(self):
        return self.image.shape[:2]


def drawn(transform, target, seed):
    """Return a chain of one transform, which gives each kind what it asks for, and its parameters."""
    chain = T.Chain(transform)
    seen = Seen(target.boxes, np.ones(len(target.boxes), np.float32))
    return chain, chain.draw_for(target.size, None if seed is None else np.random.default_rng(seed), seen)


def moved(transform, target, seed):
    chain, params = drawn(transform, target, seed)
    return Target(
        chain.image(target.image, params),
        chain.boxes(target.boxes, params, target.size),
        chain.points(target.points, params, target.size),
        chain.mask(target.mask, params),
    )


def laid_out(array, how):
    """Return the same values in another order in memory, which nobody can write into."""
    if how == "backwards":
        array = np.ascontiguousarray(array[::-1, ::-1])[::-1, ::-1]
    elif how == "apart":
        array = np.repeat(array, 2, axis=1)[:, ::2]
    elif how == "columns":
        array = np.asfortranarray(array)
    part = array
    while part is not None:
        part.flags.writeable, part = False, part.base
    return array


@st.composite
def targets(draw, sides=(1, 2, 3, 7, 13, 24, 33), channels=(None, 1, 2, 3, 4, 5), dtypes=(np.uint8, np.float32)):
    size = draw(st.sampled_from(sides)), draw(st.sampled_from(sides))
    channel, dtype = draw(st.sampled_from(channels)), draw(st.sampled_from(dtypes))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    image = rng.integers(0, 256, size if channel is None else (*size, channel)).astype(dtype)
    image = image / np.float32(255) if dtype == np.float32 else image
    count, edges = draw(st.sampled_from([0, 1, 3])), np.float32([size[1], size[0]])
    corners = np.sort(rng.random((count, 2, 2), np.float32), axis=1) * edges
    boxes = corners.reshape(count, 4)
    boxes[1:2] = 0  # the padding of a batch
    mask = rng.integers(0, 3, size).astype(draw(st.sampled_from([np.uint8, bool, np.int32, np.int64])))
    how = draw(st.sampled_from(["as it is", "backwards", "apart", "columns"]))
    values = (image, boxes, rng.random((count, 2), np.float32) * edges, mask)
    return Target(*(laid_out(value, how if value.shape[:2] == size else "as it is") for value in values))


def refusal(transform, target):
    """Return with what words a transform has to refuse an image, if it has to."""
    kind, image = type(transform), target.image
    if kind in ONLY_BYTES and image.dtype != np.uint8:
        return "expected uint8"
    if kind in CROPS_OF_PIXELS and (target.size < (12, 0) or target.size[1] < 10):
        return "needs an image of at least 12x10"
    channels = image.shape[2] if image.ndim == 3 else 1
    if kind in COLOURS | POLICIES and channels not in ((3,) if kind is T.ColorSpace else (1, 3)):
        return f"has {channels} channels; expected"
    return ""


@pytest.mark.parametrize("transform", EVERY, ids=str)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(target=targets(), seed=st.none() | st.integers(0, 2**32))
def test_any_image_with_all_that_belongs_to_it_is_moved_or_refused_in_words(backend, transform, target, seed):
    if backend == "pillow" and isinstance(transform, (T.CLAHE, T.ColorSpace)):
        return
    before = [value.tobytes() for value in target]
    try:
        done, again = moved(transform, target, seed), moved(transform, Target(*map(np.ascontiguousarray, target)), seed)
    except (TypeError, ValueError) as error:
        words = refusal(transform, target)
        assert words and words in str(error)
        return
    # What is not drawn is not refused: without chance, not with this probability, or no change of colours by this policy.
    by_chance = seed is None or getattr(transform, "p", 1) < 1 or (type(transform) in POLICIES and target.image.dtype == np.uint8)
    assert by_chance or not refusal(transform, target)
    chain, params = drawn(transform, target, seed)
    size = chain.output(params, target.size)
    assert done.image.shape[:2] == done.mask.shape == size
    assert (done.boxes.dtype, done.points.dtype, done.mask.dtype) == (np.float32, np.float32, target.mask.dtype)
    assert done.boxes.shape == target.boxes.shape and done.points.shape == target.points.shape
    assert np.isfinite(done.image).all() and np.isfinite(done.points).all()
    assert (done.boxes[:, :2] >= 0).all() and (done.boxes[:, 2:] <= np.float32([size[1], size[0]])).all()
    assert (done.boxes[:, :2] <= done.boxes[:, 2:]).all() and not done.boxes[1:2].any()
    assert set(np.unique(done.mask).tolist()) <= {0, *np.unique(target.mask).tolist()}
    for one, other in zip(done, again, strict=True):  # by the values alone, not by how they lie in memory
        assert_array_equal(one, other, strict=True)
    assert [value.tobytes() for value in target] == before


def plain(size=(24, 33), boxes=((4, 5, 12, 17), (0, 0, 33, 24), (0, 0, 0, 0)), dtype=np.uint8, channels=3):
    image = np.random.default_rng(0).integers(0, 256, (*size, channels)).astype(dtype)
    points = np.float32([[0.5, 0.5], [7.25, 9], [32.5, 20]])
    return Target(image, np.float32(boxes), points, (image[..., 0] > 128).astype(np.uint8))


def assert_same(one, other, atol=0.0):
    assert_array_equal(one.image, other.image, strict=True)
    assert_array_equal(one.mask, other.mask, strict=True)
    assert_allclose(one.boxes, other.boxes, atol=atol)
    assert_allclose(one.points, other.points, atol=atol)


SIZE = (24, 33)
ZERO = [  # as much as nothing
    *[T.Brightness(0), T.Contrast(0), T.Saturation(0), T.Sharpness(0), T.Hue(0), T.ColorJitter(0, 0, 0, 0), T.Gamma((1, 1)), T.Lighting(0)],
    *[T.Posterize(1, 8), T.Clip(0, 255), T.MedianBlur((1, 1)), T.MotionBlur((1, 1)), T.ColorJitter((1, 1), (1, 1), (1, 1), 0)],
    *[T.AdditiveNoise(0), T.GaussianNoise((0, 0)), T.SaltPepper(0, 0), T.ISONoise((0, 0), (0, 0)), T.GaussianBlur(size=1)],
    *[T.Shift(0), T.PadCrop(0), T.Pad(0), T.Paste(SIZE, "random"), T.RandomZoomOut(side_range=(1, 1), p=1), T.Slicer(1, 1)],
    *[
        T.Rotate(0),
        T.Rotate(0.0, "bilinear", reshape=True),
        T.RotateAndCropValid(0),
        T.Zoom(0),
        T.Affine(),
        T.Shear(0),
        T.Translate((0, 0)),
    ],
    *[T.Perspective(0, 1), T.Elastic(0), T.GridDistortion(distort_limit=0), T.Rotate(0, 3)],
    *[T.Resize(1.0), T.Resize(SIZE), T.Resize(24, "shorter"), T.ResizeShortestEdge(24), T.RandomResize((1, 1), (1, 1))],
    *[T.LargeScaleJitter(SIZE, (1, 1)), T.RandomResizedCrop(SIZE, (1, 1), (33 / 24, 33 / 24)), T.RandomCrop(SIZE)],
    *[T.RandomIoUCrop(sampler_options=[1.0]), T.SanitizeBoxes(0, 0), T.Chain([])],
    *[T.Sometimes(0, T.Invert(1)), T.SomeOf(0, [T.Invert(1)]), T.Shuffled([]), T.OneOf([T.Pad(0), T.Rotate(0)])],
    *[replace(transform, p=0.0) for transform in EVERY if "p" in {field.name for field in fields(transform)}],
]


@pytest.mark.parametrize("transform", ZERO, ids=str)
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32))
def test_nothing_changes_at_zero_strength(transform, seed):
    given = plain()
    assert_same(moved(transform, given, seed), given, atol=1e-4)


def test_every_probability_has_been_tried_at_zero():
    assert len([transform for transform in ZERO if getattr(transform, "p", 1) == 0]) > 15


class Fixed(NamedTuple):
    """A transform with parameters that are given."""

    transform: T.Transform
    params: object = None


THERE_AND_BACK = [
    *[[Fixed(T.FlipX(), True)] * 2, [Fixed(T.FlipY(), True)] * 2, [Fixed(T.Transpose(), True)] * 2, [Fixed(T.Invert(), True)] * 2],
    *[[Fixed(T.Rotate90(), turns), Fixed(T.Rotate90(), (4 - turns) % 4)] for turns in range(4)],
    *[[Fixed(T.D4(), turns), Fixed(T.D4(), (4 - turns) % 4)] for turns in range(4)],
    *[[Fixed(T.D4(), mirrored)] * 2 for mirrored in range(4, 8)],
    [Fixed(T.Pad((2, 5))), Fixed(T.CenterCrop(SIZE), (2, 5, *SIZE))],
    [Fixed(T.Pad((1, 2, 3, 4), 9, "edge")), Fixed(T.CenterCrop(SIZE), (1, 3, *SIZE))],
    [Fixed(T.Paste((40, 50)), ((40, 50), (8, 8))), Fixed(T.CenterCrop(SIZE), (8, 8, *SIZE))],
    [Fixed(T.RandomZoomOut(7), ((48, 66), (20, 1))), Fixed(T.CenterCrop(SIZE), (20, 1, *SIZE))],
    [Fixed(T.Rotate(180), 180.0)] * 2,
    [Fixed(T.Rotate(90, reshape=True), 90.0), Fixed(T.Rotate(90, reshape=True), -90.0)],
    [Fixed(T.Resize((48, 66), interpolation="nearest")), Fixed(T.Resize(SIZE, interpolation="nearest"))],
    [Fixed(T.ColorSpace("RGB2BGR"))] * 2,
    [Fixed(T.ToFloat()), Fixed(T.ToUint8())],
    [Fixed(T.RescaleImages(1 / 128, 128)), Fixed(T.RescaleImages(128, -1)), Fixed(T.ToUint8(1))],
]


def applied(steps, target):
    for transform, params in steps:
        size = target.size
        target = Target(
            transform.image(target.image, params),
            transform.boxes(target.boxes, params, size),
            transform.points(target.points, params, size),
            transform.mask(target.mask, params),
        )
    return target


@pytest.mark.parametrize("steps", THERE_AND_BACK, ids=str)
def test_there_and_back_is_where_it_was(steps):
    given = plain()
    assert_same(applied(steps, given), given, atol=1e-4)


@settings(max_examples=30)
@given(down=st.integers(-23, 23), right=st.integers(-32, 32))
def test_a_shift_and_back_is_what_had_stayed_within(down, right):
    given = plain()
    back = applied([Fixed(T.Shift(0.99), (down, right)), Fixed(T.Shift(0.99), (-down, -right))], given)
    stayed = np.zeros(SIZE, bool)
    stayed[max(-down, 0) : 24 - max(down, 0), max(-right, 0) : 33 - max(right, 0)] = True
    assert_array_equal(back.image, given.image * stayed[..., None], strict=True)
    assert_array_equal(back.mask, given.mask * stayed, strict=True)
    assert_allclose(back.points, given.points)
    round_about = applied([Fixed(T.Shift(0.99, "wrap"), (down, right)), Fixed(T.Shift(0.99, "wrap"), (-down, -right))], given)
    assert_array_equal(round_about.image, given.image, strict=True)


WARPS = [transform for transform in EVERY if isinstance(transform, T.Warp)]


@pytest.mark.parametrize("transform", WARPS, ids=str)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_the_points_of_a_warp_come_back_by_the_inverse_of_its_matrix(transform, seed):
    points = plain().points
    matrix = transform.matrix(transform.draw(SIZE, np.random.default_rng(seed)), SIZE)
    if matrix is not None:
        assert_allclose(F.move_points(F.move_points(points, matrix), F.inverted(matrix)), points, atol=1e-2)


WHOLE_PIXELS = (
    *[T.FlipX, T.FlipY, T.Transpose, T.Rotate90, T.Shift, T.PadCrop, T.Pad, T.Paste, T.RandomZoomOut, T.Crop, T.RandomIoUCrop],
    T.BoxSafeCrop,
)
TURNING = (T.Rotate, T.Affine, T.Shear, T.Perspective, T.RotateAndCropValid)
BENDING = (T.Elastic,)  # the box around its outline may be a little less than what is in it
CUTTING = (
    *[T.Shift, T.PadCrop, T.Paste, T.Crop, T.RandomIoUCrop, T.BoxSafeCrop, T.Zoom, T.Translate, T.Rotate, T.Affine, T.Shear],
    *[T.RotateAndCropValid, *POLICIES],
)
MOVING = [  # boxes know nothing of what comes in by reflection or wrapping
    transform
    for transform in EVERY
    if isinstance(transform, T.Geometric)
    and getattr(transform, "mode", "") not in ("wrap", "reflect")
    and not isinstance(transform, BENDING)
]
EXACT = [transform for transform in MOVING if isinstance(transform, WHOLE_PIXELS) and not isinstance(transform, T.RandomResizedCrop)]
TURNED = [transform for transform in MOVING if isinstance(transform, TURNING)]
UPRIGHT = [transform for transform in MOVING if transform not in EXACT + TURNED]


@st.composite
def painted(draw):
    """Return a mask of one box, whose sides are whole pixels, in an image."""
    height, width = draw(st.integers(13, 40)), draw(st.integers(13, 40))
    left, top = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    box = left, top, draw(st.integers(left + 1, width)), draw(st.integers(top + 1, height))
    mask = np.zeros((height, width), np.uint8)
    mask[box[1] : box[3], box[0] : box[2]] = 1
    return Target(mask * np.uint8(200), np.float32([box]), np.float32([box[:2], box[2:]]), mask)


def around(mask):
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return np.float32([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) if len(rows) else np.zeros(4, np.float32)


@pytest.mark.parametrize("transform", [*EXACT, T.Shift(9), T.Shift(0.3), T.PadCrop(9), T.Pad((3, 0, 1, 2), 9)], ids=str)
@settings(max_examples=25)
@given(target=painted(), seed=st.integers(0, 2**32))
def test_the_box_of_a_mask_is_exactly_the_moved_box_where_whole_pixels_move(transform, target, seed):
    done = moved(transform, target, seed)
    assert_array_equal(done.image == 200, done.mask == 1)
    if isinstance(transform, T.RandomIoUCrop) and not done.boxes.any():
        return  # its centre is outside
    assert_array_equal(done.boxes[0], around(done.mask))


@pytest.mark.parametrize("transform", [*UPRIGHT, T.Zoom(0.4), T.Zoom(0.4, "bilinear")], ids=str)
@settings(max_examples=25)
@given(target=painted(), seed=st.integers(0, 2**32))
def test_the_box_of_a_mask_is_the_moved_box_to_a_pixel_where_it_stays_upright(transform, target, seed):
    done = moved(transform, target, seed)
    if done.mask.any():
        assert_allclose(done.boxes[0], around(done.mask), atol=1)
    else:  # nothing, or less than the centre of a pixel
        assert (done.boxes[0, 2:] - done.boxes[0, :2]).min() < 1


@pytest.mark.parametrize("transform", TURNED, ids=str)
@settings(max_examples=25)
@given(target=painted(), seed=st.integers(0, 2**32))
def test_the_box_of_a_mask_is_within_the_moved_box_to_a_pixel_where_it_is_turned(transform, target, seed):
    done = moved(transform, target, seed)
    if done.mask.any():
        found = around(done.mask)
        assert (found[:2] >= done.boxes[0, :2] - 1).all() and (found[2:] <= done.boxes[0, 2:] + 1).all()


@pytest.mark.parametrize("transform", [one for one in EVERY if not isinstance(one, BENDING)], ids=str)
@settings(max_examples=5)
@given(target=painted(), seed=st.integers(0, 2**32), shares=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=4))
def test_points_in_a_box_stay_in_it(transform, target, seed, shares):
    low, high = target.boxes[0, :2], target.boxes[0, 2:]
    target = target._replace(points=np.float32(low + np.array(shares) * (high - low)), image=np.repeat(target.image[..., None], 3, axis=2))
    done, (chain, params) = moved(transform, target, seed), drawn(transform, target, seed)
    height, width = chain.output(params, target.size)
    x, y = done.points.T
    inside = done.points[(x > -0.01) & (x < width + 0.01) & (y > -0.01) & (y < height + 0.01)]
    if done.boxes.any():
        assert (inside >= done.boxes[0, :2] - 0.01).all() and (inside <= done.boxes[0, 2:] + 0.01).all()
    assert len(inside) == len(done.points) or isinstance(transform, CUTTING)


@pytest.mark.parametrize("transform", [T.Elastic(), T.Elastic(120, 8), T.Elastic(300, 12)], ids=str)
def test_the_box_of_a_mask_is_the_moved_box_to_a_pixel_where_it_is_bent(transform):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        (left, top), (width, height) = rng.integers(20, 50, 2), rng.integers(10, 60, 2)
        mask = np.zeros((120, 140), np.uint8)
        mask[top : top + height, left : left + width] = 1
        target = Target(mask, np.float32([[left, top, left + width, top + height]]), np.zeros((0, 2), np.float32), mask)
        done = moved(transform, target, seed)
        assert_allclose(done.boxes[0], around(done.mask), atol=1)


def test_points_by_the_ten_thousands_are_displaced_as_few_are():
    points = np.random.default_rng(0).random((40_000, 2), np.float32) * np.float32([33, 24])
    transform = T.Elastic()
    params = transform.draw(SIZE, np.random.default_rng(0))
    assert_array_equal(transform.points(points, params, SIZE)[:5], transform.points(points[:5], params, SIZE), strict=True)
