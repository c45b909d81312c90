"""Transforms that move pixels against torchvision, Albumentations, OpenCV and scipy: image, boxes, mask and points, by equal parameters.

Run by ``tox -e oracles-transforms``.
"""

import math

import cv2
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import ndimage
from transform_oracles import (
    BOXES,
    HEIGHT,
    IMAGE,
    MASK,
    POINTS,
    TF,
    WIDTH,
    A,
    assert_alike,
    assert_same_boxes,
    boxes_by_torchvision,
    by_torchvision,
    channels_first,
    channels_last,
    points_by_torchvision,
    torch,
    v2,
)

import highway.functional as F
import highway.transforms as T

SIZE = (HEIGHT, WIDTH)
NEAREST, BILINEAR, BICUBIC = v2.InterpolationMode.NEAREST, v2.InterpolationMode.BILINEAR, v2.InterpolationMode.BICUBIC
EXACT = v2.InterpolationMode.NEAREST_EXACT


def pads(left, top, right, bottom, mode="constant"):
    return lambda given: TF.pad(given, [left, top, right, bottom], padding_mode=mode)


def quarters(turns):
    return lambda given: TF.rotate(given, 90 * turns, expand=True)


def mirrored(turns):
    """Turn, and swap rows and columns: a quarter clockwise and a flip."""
    return lambda given: TF.horizontal_flip(TF.rotate(quarters(turns)(given), -90, expand=True))


def cuts(top, left, height, width):
    return lambda given: TF.crop(given, top, left, height, width)


def moves(down, right):
    return lambda given: TF.affine(given, angle=0, translate=[right, down], scale=1, shear=[0, 0])


def steps(*several):
    def run(given):
        for step in several:
            given = step(given)
        return given

    return run


BOX = (10, 20, 75, 101)
WHOLE = [  # a transform that moves whole pixels, its parameters, torchvision's function; whether its points are pixels' indices
    (T.FlipX(), True, TF.horizontal_flip, True),
    (T.FlipY(), True, TF.vertical_flip, True),
    (T.Transpose(), True, mirrored(0), None),
    *[(T.Rotate90(), turns, quarters(turns), False) for turns in range(4)],
    *[(T.D4(), 4 + turns, mirrored(turns), None) for turns in range(4)],
    (T.Shift(0.2), (13, -21), moves(13, -21), False),
    (T.PadCrop(9), (-4, 7), steps(pads(9, 9, 9, 9), cuts(13, 2, HEIGHT, WIDTH)), False),
    (T.Pad((3, 4, 5, 6)), None, pads(5, 3, 6, 4), False),
    (T.Pad((3, 7), mode="reflect"), None, pads(7, 3, 7, 3, "reflect"), False),
    (T.Pad(8, mode="edge"), None, pads(8, 8, 8, 8, "edge"), False),
    (T.Pad(8, mode="symmetric"), None, pads(8, 8, 8, 8, "symmetric"), False),
    (T.Paste((150, 200)), ((150, 200), (15, 20)), pads(20, 15, 20, 15), False),
    (T.Paste((100, 140), "random"), ((100, 140), (-7, -20)), cuts(7, 20, 100, 140), False),
    (T.RandomZoomOut(), ((240, 320), (33, 44)), pads(44, 33, 116, 87), False),
    (T.CenterCrop((60, 100)), (30, 30, 60, 100), lambda given: TF.center_crop(given, [60, 100]), False),
    (T.RandomCrop((75, 101)), BOX, cuts(*BOX), False),
    (T.RandomCropRandomShape(40, 40), BOX, cuts(*BOX), False),
    (T.Slicer(), BOX, cuts(*BOX), False),
    (T.TopCenterCrop((60, 100)), (0, 30, 60, 100), cuts(0, 30, 60, 100), False),
]


@pytest.mark.parametrize(("transform", "params", "theirs", "by_pixels"), WHOLE, ids=[f"{row[0]}-{row[1]}" for row in WHOLE])
def test_whole_pixels_move_as_in_torchvision_to_the_bit(transform, params, theirs, by_pixels):
    assert_array_equal(transform.image(IMAGE, params), by_torchvision(theirs, IMAGE))
    if transform not in (T.Pad(8, mode="edge"), T.Pad(8, mode="symmetric"), T.Pad((3, 7), mode="reflect")):
        assert_array_equal(transform.mask(MASK, params), by_torchvision(theirs, MASK))
        assert_same_boxes(transform.boxes(BOXES, params, SIZE), boxes_by_torchvision(theirs))
        if by_pixels is not None:
            found = transform.points(POINTS, params, SIZE)
            expected = points_by_torchvision(theirs, by_pixels)
            height, width = transform.output(params, SIZE)
            inside = ((found > 0) & (found < (width, height))).all(axis=1)  # torchvision moves those outside onto the border
            assert_allclose(found[inside], expected[inside], atol=1e-3)
            assert inside.any()
    assert transform.output(params, SIZE) == transform.image(IMAGE, params).shape[:2]


def test_what_is_drawn_without_chance_is_the_centre_of_torchvision():
    for shape in ((60, 100), (61, 99), (61, 100), (120, 160)):
        expected = by_torchvision(lambda given, shape=shape: TF.center_crop(given, list(shape)), IMAGE)
        if (HEIGHT - shape[0]) % 2 == (WIDTH - shape[1]) % 2 == 0:  # torchvision rounds halves to even
            assert_array_equal(T.CenterCrop(shape)(IMAGE), expected)


def albumentations(transform, image=IMAGE, boxes=BOXES, mask=MASK, points=POINTS):
    """Return image, boxes, mask and points behind a transform of Albumentations; its points are pixels' indices."""
    compose = A.Compose(
        [transform],
        bbox_params=A.BboxParams("pascal_voc", label_fields=["numbers"], clip=True),
        keypoint_params=A.KeypointParams("xy", remove_invisible=False),
    )
    done = compose(image=image, bboxes=boxes, numbers=range(len(boxes)), mask=mask, keypoints=points - np.float32(0.5))
    moved = np.zeros_like(boxes)
    moved[np.asarray(done["numbers"], int)] = np.reshape(done["bboxes"], (-1, 4))
    return done["image"], moved, done["mask"], done["keypoints"] + 0.5


def fixed(kind, given, **options):
    """Return a transform of Albumentations that draws nothing."""
    return type(kind.__name__, (kind,), {"get_params": lambda self: given, "get_transform_init_args_names": lambda self: ()})(
        **options, p=1
    )


ALBUMENTATIONS = [
    (T.FlipX(), True, A.HorizontalFlip(p=1)),
    (T.FlipY(), True, A.VerticalFlip(p=1)),
    (T.Transpose(), True, A.Transpose(p=1)),
    *[(T.Rotate90(), turns, fixed(A.RandomRotate90, {"factor": turns})) for turns in range(4)],
    (T.CenterCrop((60, 100)), (30, 30, 60, 100), A.CenterCrop(60, 100, p=1)),
    (T.RandomCrop((75, 101)), BOX, A.Crop(x_min=20, y_min=10, x_max=121, y_max=85, p=1)),
    (T.Pad((3, 4, 5, 6)), None, A.Pad(padding=(5, 3, 6, 4), p=1)),
]


@pytest.mark.parametrize(("transform", "params", "theirs"), ALBUMENTATIONS, ids=[f"{row[0]}-{row[1]}" for row in ALBUMENTATIONS])
def test_whole_pixels_move_as_in_albumentations_to_the_bit(transform, params, theirs):
    image, boxes, mask, points = albumentations(theirs)
    assert_array_equal(transform.image(IMAGE, params), image)
    assert_array_equal(transform.mask(MASK, params), mask)
    assert_same_boxes(transform.boxes(BOXES, params, SIZE), boxes)
    assert_allclose(transform.points(POINTS, params, SIZE), points, atol=1e-3)


@pytest.mark.parametrize(
    ("mode", "scipys"), [("constant", "constant"), ("nearest", "nearest"), ("reflect", "reflect"), ("mirror", "mirror")]
)
def test_shifts_fill_as_scipy_does(mode, scipys):
    expected = ndimage.shift(IMAGE, (13, -21, 0), order=0, mode=scipys)
    assert_array_equal(T.Shift(0.2, mode).image(IMAGE, (13, -21)), expected)


SCALED = [  # a transform that scales, its parameters, height and width of the result
    (T.Resize((90, 200), interpolation="bilinear"), None, (90, 200)),
    (T.Resize(0.5, interpolation="bilinear"), None, (60, 80)),
    (T.Resize(240, "shorter", "bilinear"), None, (240, 320)),
    (T.ResizeShortestEdge(90), (90, 120), (90, 120)),
    (T.RandomResize((0.5, 2), (0.5, 2)), (77, 133), (77, 133)),
    (T.LargeScaleJitter((100, 100)), (45, 60), (45, 60)),
]


@pytest.mark.parametrize(("transform", "params", "shape"), SCALED, ids=[str(row[0]) for row in SCALED])
def test_scaling_is_that_of_torchvision_without_antialiasing(transform, params, shape):
    assert transform.output(params, SIZE) == shape
    assert_alike(
        transform.image(IMAGE, params), by_torchvision(lambda given: TF.resize(given, list(shape), BILINEAR, antialias=False), IMAGE), 1
    )
    nearest = by_torchvision(lambda given: TF.resize(given, list(shape), EXACT), MASK)
    assert_alike(transform.mask(MASK, params), nearest, 0, 0.005)  # a place halfway between two pixels
    assert_same_boxes(transform.boxes(BOXES, params, SIZE), boxes_by_torchvision(lambda given: TF.resize(given, list(shape))))
    assert_allclose(
        transform.points(POINTS, params, SIZE), points_by_torchvision(lambda given: TF.resize(given, list(shape)), False), atol=1e-3
    )


def test_interpolations_are_those_of_torchvision_and_opencv():
    for shape in ((90, 200), (200, 300)):
        bicubic = by_torchvision(lambda given, shape=shape: TF.resize(given, list(shape), BICUBIC, antialias=False), IMAGE)
        assert_alike(F.resize(IMAGE, shape, "bicubic"), bicubic, 1, 0.001)
    assert_alike(F.resize(IMAGE, (60, 80), "area"), IMAGE.reshape(60, 2, 80, 2, 3).mean(axis=(1, 3)), 0.51)
    assert_array_equal(F.resize(IMAGE, (90, 200), "lanczos"), cv2.resize(IMAGE, (200, 90), interpolation=cv2.INTER_LANCZOS4))


def test_sizes_are_those_of_torchvision():
    for scale in (0.1, 0.37, 1.0, 1.7):
        drawn = v2.ScaleJitter((200, 300), (scale, scale)).make_params([channels_first(IMAGE)])  # width first
        found = T.LargeScaleJitter((300, 200), (scale, scale)).draw(SIZE, np.random.default_rng(0))
        assert np.abs(np.subtract(found, drawn["size"])).max() <= 1, "torchvision's factor is a float32"
    for length, most in ((90, None), (300, 350), (64, 70)):
        expected = TF.resize(torch.zeros(1, *SIZE), [length], max_size=most).shape[1:]
        assert np.abs(np.subtract(T.ResizeShortestEdge(length, most).draw(SIZE, None), expected)).max() <= 1, "highway rounds, it cuts off"


def test_random_resized_crop_scales_a_box_as_torchvision_does():
    transform = T.RandomResizedCrop((64, 96))
    theirs = lambda given, how=BILINEAR: TF.resized_crop(given, *BOX, [64, 96], how, antialias=False)  # noqa: E731
    assert_alike(transform.image(IMAGE, BOX), by_torchvision(theirs, IMAGE), 1)
    assert_array_equal(transform.mask(MASK, BOX), by_torchvision(lambda given: theirs(given, EXACT), MASK))
    assert_same_boxes(transform.boxes(BOXES, BOX, SIZE), boxes_by_torchvision(theirs))
    found, expected = transform.points(POINTS, BOX, SIZE), points_by_torchvision(theirs, False)
    inside = ((found > 0) & (found < (96, 64))).all(axis=1)
    assert_allclose(found[inside], expected[inside], atol=1e-3)


def turned(angle, how, reshape=False, fill=0):
    return lambda given: TF.rotate(given, angle, how, expand=reshape, fill=fill)


def affine(angle=0.0, shift=(0, 0), scale=1.0, shear=(0.0, 0.0)):
    """torchvision turns clockwise here, as it does nowhere else."""
    return lambda given, how=BILINEAR: TF.affine(given, -angle, list(shift), scale, list(shear), how)


def perspective(moved):
    corners = np.array([[0, 0], [WIDTH, 0], [WIDTH, HEIGHT], [0, HEIGHT]])
    return lambda given, how=BILINEAR: TF.perspective(given, corners.tolist(), (corners + moved).tolist(), how)


CORNERS = np.array([[8, 5], [-20, 12], [-3, -17], [11, -6]])
WARPED = [  # a transform that samples between pixels, its parameters, torchvision's function
    (T.Rotate(30, "bilinear"), 23.0, lambda given, how=BILINEAR: TF.rotate(given, 23.0, how)),
    (T.Rotate(180, "bilinear"), -137.0, lambda given, how=BILINEAR: TF.rotate(given, -137.0, how)),
    (T.Zoom(0.5, "bilinear"), (0.7, (0.5, 0.5)), affine(scale=0.7)),
    (T.Zoom(0.5, "bilinear"), (1.4, (0.5, 0.5)), affine(scale=1.4)),
    (T.Affine(rotate=30), (17.0, 1.0, 0.0, 0.0, 0.0, 0.0), affine(17)),
    (T.Affine(scale=(0.5, 2)), (0.0, 1.3, 0.0, 0.0, 0.0, 0.0), affine(scale=1.3)),
    (T.Shear(30), (0.0, 1.0, 21.0, 0.0, 0.0, 0.0), affine(shear=(21, 0))),
    (T.Shear(30), (0.0, 1.0, 0.0, -13.0, 0.0, 0.0), affine(shear=(0, -13))),
    (T.Shear(30), (0.0, 1.0, 21.0, -13.0, 0.0, 0.0), affine(shear=(21, -13))),
    (T.Translate(), (0.0, 1.0, 0.0, 0.0, 12.0, -7.0), affine(shift=(12, -7))),
    (T.Affine(rotate=30), (-25.0, 0.8, 11.0, 7.0, 12.0, -7.0), affine(-25, (12, -7), 0.8, (11, 7))),
    (T.Perspective(), CORNERS, perspective(CORNERS)),
]


@pytest.mark.parametrize(("transform", "params", "theirs"), WARPED, ids=[f"{row[0]}-{number}" for number, row in enumerate(WARPED)])
def test_warps_are_those_of_torchvision(transform, params, theirs):
    ours = transform.image(IMAGE, params)
    inside = by_torchvision(theirs, np.ones_like(IMAGE, dtype=np.float32)) > 0.999  # on the border it mixes with the fill in another way
    expected = by_torchvision(theirs, IMAGE)
    assert inside.mean() > 0.3
    assert_alike(np.where(inside, ours, 0), np.where(inside, expected, 0), 4, 0.002)  # OpenCV has 32 places between two pixels
    assert np.abs(np.where(inside, ours.astype(int) - expected, 0)).mean() < 0.5
    nearest = by_torchvision(lambda given: theirs(given, NEAREST), MASK)
    assert_alike(transform.mask(MASK, params), nearest, 0, 0.002)  # where a place is halfway between two pixels
    assert_same_boxes(transform.boxes(BOXES, params, SIZE), boxes_by_torchvision(theirs), 0.02)
    found = transform.points(POINTS, params, SIZE)
    there = ((found > 0) & (found < (WIDTH, HEIGHT))).all(axis=1)
    assert_allclose(found[there], points_by_torchvision(theirs, False)[there], atol=0.02)


@pytest.mark.parametrize("angle", [30.0, -75.0, 137.0])
def test_turned_images_that_grow_are_those_of_torchvision(angle):
    transform = T.Rotate(180.0, "bilinear", reshape=True)
    theirs = turned(angle, BILINEAR, True)
    expected, found = by_torchvision(theirs, IMAGE), transform.image(IMAGE, angle)
    assert np.abs(np.subtract(found.shape, expected.shape)).max() <= 1
    if found.shape == expected.shape:
        inside = by_torchvision(theirs, np.ones_like(IMAGE, dtype=np.float32)) > 0.999
        assert np.abs(np.where(inside, found.astype(int) - expected, 0)).mean() < 1
    assert_allclose(transform.boxes(BOXES, angle, SIZE), boxes_by_torchvision(theirs), atol=1)


@pytest.mark.parametrize("angle", [3.0, 20.0, -44.0, 80.0, 135.0])
def test_a_turned_image_cut_to_what_is_valid_has_the_size_of_albumentations_and_no_new_pixels(angle):
    transform = T.RotateAndCropValid(180)
    height, width = transform.output(angle, SIZE)
    given = A.Rotate(limit=(angle, angle), crop_border=True, p=1)(image=IMAGE)["image"]
    assert np.abs(np.subtract(np.minimum((height, width), SIZE), given.shape[:2])).max() <= 2  # it cuts to the image's own size besides
    assert transform.image(np.full((*SIZE, 3), 200, np.uint8), angle).min() >= 198
    whole = TF.rotate(channels_first(IMAGE), angle, BILINEAR, expand=True)
    centre = channels_last(TF.center_crop(whole, [height, width]))[3:-3, 3:-3].astype(int)
    assert np.abs(transform.image(IMAGE, angle)[3:-3, 3:-3] - centre).mean() < 12  # the two centres may lie half a pixel apart


@pytest.mark.parametrize("fill", [0.0, 130.0, (10.0, 200.0, 77.0)])
def test_new_pixels_have_the_colour_of_torchvision(fill):
    colour = list(fill) if isinstance(fill, tuple) else fill
    expected = by_torchvision(lambda given: TF.rotate(given, 30, NEAREST, fill=colour), IMAGE)
    assert_alike(T.Rotate(30, fill=fill).image(IMAGE, 30), expected, 0, 0.002)


def field_of(transform, params):
    field = transform.field(params, SIZE)
    return field, torch.from_numpy(field * np.float32([2 / WIDTH, 2 / HEIGHT]))[None]


@pytest.mark.parametrize("transform", [T.Elastic(alpha=80, sigma=8), T.GridDistortion()], ids=str)
def test_distortions_are_those_of_torchvision_by_the_same_field(transform):
    params = transform.draw(SIZE, np.random.default_rng(3))
    field, theirs = field_of(transform, params)
    expected = by_torchvision(lambda given: TF.elastic(given, theirs, BILINEAR), IMAGE)
    inside = by_torchvision(lambda given: TF.elastic(given, theirs, BILINEAR), np.ones_like(IMAGE, dtype=np.float32)) > 0.999
    found = transform.image(IMAGE, params)
    assert_alike(np.where(inside, found, 0), np.where(inside, expected, 0), 4, 0.002)
    assert_alike(transform.mask(MASK, params), by_torchvision(lambda given: TF.elastic(given, theirs, NEAREST), MASK), 0, 0.002)
    points = transform.points(POINTS, params, SIZE)
    by_steps = points_by_torchvision(lambda given: TF.elastic(given, theirs), True)  # it subtracts the field, which is not the inverse
    assert np.abs(points - by_steps).max() < 0.5 * np.abs(field).max()


def test_the_field_of_elastic_is_as_strong_and_as_smooth_as_torchvisions():
    size = (256, 256)
    ours = [T.Elastic(50, 5).field(T.Elastic(50, 5).draw(size, np.random.default_rng(seed)), size) for seed in range(8)]
    torch.manual_seed(0)
    transform = v2.ElasticTransform(50.0, 5.0)
    theirs = [transform.make_params([torch.zeros(3, *size)])["displacement"][0].numpy() * 128 for _ in range(8)]
    strength = [np.std([field[20:-20, 20:-20] for field in fields]) for fields in (ours, theirs)]
    slope = [np.std(np.diff([field[20:-20, 20:-20] for field in fields], axis=1)) for fields in (ours, theirs)]
    assert_allclose(strength[0], strength[1], rtol=0.25)
    assert_allclose(slope[0], slope[1], rtol=0.35)


def test_iou_crops_overlap_as_they_have_to_and_cut_as_torchvision_does():
    from torchvision.ops import box_iou

    for seed in range(60):
        rng = np.random.default_rng(seed)
        least = (0.1, 0.5, 0.9)[seed % 3]
        transform = T.RandomIoUCrop(sampler_options=(least,))
        drawn = transform.draw_for(SIZE, rng, T.base.Seen(BOXES, np.ones(len(BOXES), np.float32)))
        if drawn.within is None:
            continue
        top, left, height, width = drawn[:4]
        assert_array_equal(transform.image(IMAGE, drawn), by_torchvision(cuts(*drawn[:4]), IMAGE))
        centres = (BOXES[:, :2] + BOXES[:, 2:]) / 2
        within = ((centres > (left, top)) & (centres < (left + width, top + height))).all(axis=1)
        assert_array_equal(drawn.within, within)
        overlap = box_iou(torch.from_numpy(BOXES[within]), torch.tensor([[left, top, left + width, top + height]], dtype=torch.float32))
        assert overlap.max() >= least - 1e-6
        expected = boxes_by_torchvision(cuts(*drawn[:4]))
        assert_same_boxes(transform.boxes(BOXES, drawn, SIZE), np.where(within[:, None], expected, 0))
        assert 0.5 <= width / height <= 2 and math.floor(0.3 * HEIGHT) <= height and math.floor(0.3 * WIDTH) <= width


def test_safe_crops_keep_every_box_whole():
    for seed in range(30):
        drawn = T.BoxSafeCrop().draw_for(SIZE, np.random.default_rng(seed), T.base.Seen(BOXES[:2], np.ones(2, np.float32)))
        found = T.BoxSafeCrop().boxes(BOXES[:2], drawn, SIZE)
        assert_allclose(found[:, 2:] - found[:, :2], BOXES[:2, 2:] - BOXES[:2, :2])
        assert_same_boxes(found, boxes_by_torchvision(cuts(*drawn[:4]), BOXES[:2]))


def test_boxes_that_are_sanitized_are_those_of_torchvision_and_albumentations():
    rng = np.random.default_rng(0)
    corner = rng.uniform(0, 100, (200, 2)).astype(np.float32)
    boxes = np.hstack([corner, np.minimum(corner + rng.uniform(0.1, 20, (200, 2)).astype(np.float32), (WIDTH, HEIGHT))]).astype(np.float32)
    seen = T.base.Seen(boxes, np.ones(200, np.float32))
    for min_size, min_area in ((1, 1), (5, 1), (0, 60), (8, 100)):
        _, valid = TF.sanitize_bounding_boxes(
            torch.from_numpy(boxes), format="XYXY", canvas_size=SIZE, min_size=float(min_size), min_area=float(min_area)
        )
        assert_array_equal(T.SanitizeBoxes(min_size, min_area).draw_for(SIZE, None, seen), valid)
    by_visibility = A.BboxParams("pascal_voc", min_visibility=0.4, label_fields=["n"])
    cut = A.Compose([A.Crop(x_min=20, y_min=10, x_max=121, y_max=85, p=1)], bbox_params=by_visibility)
    kept = cut(image=IMAGE, bboxes=boxes, n=np.arange(200))["n"]
    crop = T.RandomCrop((75, 101))
    left = T.base.Seen(crop.boxes(boxes, BOX, SIZE), crop.visible(boxes, BOX, SIZE))
    stay = T.SanitizeBoxes(0, 1e-6, 0.4).draw_for(BOX[2:], None, left)
    assert_array_equal(np.flatnonzero(stay), np.sort(np.asarray(kept, int)))
