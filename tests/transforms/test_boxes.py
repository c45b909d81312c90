"""Transforms whose draw hangs on the boxes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from highway.errors import ConfigError
from highway.modules import Augmentations, ImageReader
from highway.parameters.location import Location
from highway.topology.components import Components
from highway.topology.registry import Registry
from highway.transforms import BoxSafeCrop, CenterCrop, Chain, FlipX, OneOf, RandomIoUCrop, Resize, SanitizeBoxes, Sometimes
from highway.transforms.base import Seen

SIZE = (100, 140)


def seen(*boxes):
    return Seen(np.float32(boxes).reshape(-1, 4), np.ones(len(boxes), np.float32))


def overlap(box, crop):
    top, left, height, width = crop
    low, high = np.maximum(box[:2], (left, top)), np.minimum(box[2:], (left + width, top + height))
    common = np.maximum(high - low, 0).prod()
    return common / ((box[2:] - box[:2]).prod() + height * width - common)


@pytest.mark.parametrize("box", [(-20, -10, 60, 70), (90, 60, 300, 300), (-9, -9, 400, 400), (-50, -50, -10, -10), (150, 20, 160, 30)])
def test_box_safe_crop_stays_within_an_image_that_a_box_leaves(box):
    for seed in range(30):
        top, left, height, width = BoxSafeCrop().draw_for(SIZE, np.random.default_rng(seed), seen(box, (70, 50, 80, 60)))
        assert 0 <= top <= 50 and 60 <= top + height <= SIZE[0]
        assert 0 <= left <= 70 and 80 <= left + width <= SIZE[1]


@pytest.mark.parametrize("least", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9])
def test_iou_crop_overlaps_with_a_box_whose_centre_it_holds(least):
    boxes = seen((10, 10, 60, 70), (80, 20, 130, 90), (0, 0, 0, 0))
    crop, smaller = RandomIoUCrop(sampler_options=(least,)), 0
    for seed in range(60):
        found = crop.draw_for(SIZE, np.random.default_rng(seed), boxes)
        if found.within is None:  # none of the trials was as close
            continue
        top, left, height, width = found[:4]
        smaller += height * width < SIZE[0] * SIZE[1]
        assert top >= 0 and left >= 0 and top + height <= SIZE[0] and left + width <= SIZE[1]
        assert 0.5 <= width / height <= 2
        assert 0.29 * SIZE[0] <= height and 0.29 * SIZE[1] <= width
        centres = (boxes.boxes[:2, :2] + boxes.boxes[:2, 2:]) / 2
        inside = ((centres > (left, top)) & (centres < (left + width, top + height))).all(axis=1)
        assert_array_equal(found.within, [*inside, False])
        assert max(overlap(box, found[:4]) for box, held in zip(boxes.boxes, inside) if held) >= least
        moved = crop.boxes(boxes.boxes, found, SIZE)
        assert ((moved[:2] != 0).any(axis=1) == inside).all()
    assert smaller > (0 if least == 0.9 else 20)


def test_iou_crop_leaves_an_image_whole_without_boxes_without_chance_and_for_the_option_1():
    whole = (0, 0, *SIZE)
    for rng, boxes, crop in [
        (np.random.default_rng(0), seen(), RandomIoUCrop()),
        (np.random.default_rng(0), seen((5, 5, 5, 5)), RandomIoUCrop()),
        (None, seen((0, 0, 50, 50)), RandomIoUCrop()),
        (np.random.default_rng(0), seen((0, 0, 50, 50)), RandomIoUCrop(sampler_options=[1.0])),
        (np.random.default_rng(0), seen((0, 0, 1, 1)), RandomIoUCrop(sampler_options=[0.9])),  # which no crop reaches
    ]:
        assert crop.draw_for(SIZE, rng, boxes)[:4] == whole


@given(seed=st.integers(0, 2**32), data=st.data())
def test_a_safe_crop_holds_every_box_whole(seed, data):
    sides = [data.draw(st.integers(0, 130)), data.draw(st.integers(0, 90))]
    boxes = seen((0, 0, 0, 0), (*sides, data.draw(st.integers(sides[0] + 1, 140)), data.draw(st.integers(sides[1] + 1, 100))))
    crop = BoxSafeCrop()
    params = crop.draw_for(SIZE, np.random.default_rng(seed), boxes)
    assert crop.image(np.zeros((*SIZE, 3), np.uint8), params).shape[:2] == crop.output(params, SIZE)
    before, after = boxes.boxes[1], crop.boxes(boxes.boxes, params, SIZE)[1]
    assert_array_equal(after[2:] - after[:2], before[2:] - before[:2])


def test_a_safe_crop_may_cut_a_share_of_the_boxes():
    boxes = seen((40, 30, 100, 70))
    shares = []
    for seed in range(100):
        params = BoxSafeCrop(erosion=0.5).draw_for(SIZE, np.random.default_rng(seed), boxes)
        shares.append(float(BoxSafeCrop().visible(boxes.boxes, params, SIZE)[0]))
    assert 0.25 <= min(shares) < 1
    assert BoxSafeCrop().draw_for(SIZE, np.random.default_rng(0), None)[2:] >= (50, 70)


BOXES = np.float32([[0, 0, 10, 10], [50, 40, 60, 41.5], [0, 0, 0, 0], [90, 40, 130, 80]])
LABELS = np.int32([1, 2, 0, 4])


def item(**more):
    return {"image": np.zeros((*SIZE, 3), np.uint8), "boxes": BOXES, "labels": LABELS, **more}


@pytest.mark.parametrize(
    ("sanitize", "left"),
    [
        (SanitizeBoxes(), [1, 2, 4]),
        (SanitizeBoxes(min_size=1.6), [1, 4]),
        (SanitizeBoxes(min_area=101), [4]),
        (SanitizeBoxes(min_area=1e6), []),
    ],
    ids=str,
)
def test_boxes_that_are_too_small_go_with_all_that_goes_with_them(sanitize, left):
    names = [f"row {label}" for label in LABELS]
    masks = np.zeros((4, *SIZE), np.uint8)
    masks[:] = LABELS[:, None, None]
    points = np.zeros((4, 5, 2), np.float32)
    points[..., 0] = LABELS[:, None]
    given = item(names=names, masks=masks, points=points)
    augment = Augmentations([sanitize], boxes="boxes", mask="masks", points="points", with_boxes=["labels", "names", "masks", "points"])
    done = augment(given, np.random.default_rng(0))
    assert done["labels"].tolist() == left
    assert done["names"] == [f"row {label}" for label in left]
    assert (done["boxes"].shape, done["masks"].shape, done["points"].shape) == ((len(left), 4), (len(left), *SIZE), (len(left), 5, 2))
    assert done["masks"][:, 0, 0].tolist() == left
    assert done["points"][:, 0, 0].tolist() == left
    assert_array_equal(given["boxes"], BOXES)


def test_visibility_is_what_all_transforms_before_have_left():
    boxes = np.float32([[60, 40, 80, 60], [35, 40, 55, 60], [25, 40, 45, 60]])  # the crop's left side is at 40: all, 3/4 and 1/4 of each
    for least, left in ((0.2, [1, 2, 3]), (0.5, [1, 2]), (0.8, [1])):
        chain = [CenterCrop((100, 60)), Resize((200, 300)), FlipX(1.0), SanitizeBoxes(min_visibility=least)]
        augment = Augmentations([Chain(chain)], boxes="boxes", with_boxes=["labels"])
        done = augment({"image": np.zeros((*SIZE, 3), np.uint8), "boxes": boxes, "labels": np.arange(1, 4)}, np.random.default_rng(0))
        assert done["labels"].tolist() == left
        assert_allclose(done["boxes"][0], [100, 80, 200, 120])


def test_keep_says_what_becomes_of_what_leaves_the_image():
    points = np.float32([[5, 5], [100, 50], [200, 50]])
    for keep, boxes, labels, where in [
        ("cut", [[0, 0, 0, 0], [10, 20, 20, 21.5], [0, 0, 0, 0], [50, 20, 60, 60]], [1, 2, 0, 4], [[-35, -15], [60, 30], [160, 30]]),
        ("clip", [[0, 0, 0, 0], [10, 20, 20, 21.5], [0, 0, 0, 0], [50, 20, 60, 60]], [1, 2, 0, 4], [[0, 0], [60, 30], [60, 30]]),
        ("drop", [[10, 20, 20, 21.5], [50, 20, 60, 60]], [2, 4], [[60, 30]]),
    ]:
        augment = Augmentations([CenterCrop((60, 60))], boxes="boxes", points="points", with_boxes=["labels"], keep=keep)
        done = augment(item(points=points), None)
        assert_array_equal(done["boxes"], np.float32(boxes), strict=True)
        assert_array_equal(done["labels"], np.int32(labels), strict=True)
        assert_array_equal(done["points"], np.float32(where), strict=True)


def test_a_batch_of_which_rows_are_removed_comes_out_as_lists():
    batch = {name: np.stack([value, value]) for name, value in item().items()}
    batch["boxes"][1] *= 2
    done = Augmentations([SanitizeBoxes(min_size=3)], boxes="boxes", with_boxes=["labels"])(batch, np.random.default_rng(0))
    assert done["image"].shape == (2, *SIZE, 3)
    assert [labels.tolist() for labels in done["labels"]] == [[1, 4], [1, 2, 4]]
    assert [boxes.shape for boxes in done["boxes"]] == [(2, 4), (3, 4)]


@pytest.mark.parametrize("transform", [RandomIoUCrop(), SanitizeBoxes(), Sometimes(0.5, [FlipX(), OneOf([RandomIoUCrop()])])], ids=str)
def test_a_transform_that_goes_by_boxes_is_refused_where_there_are_none(transform):
    with pytest.raises(ConfigError, match=r"needs the boxes of an image; set the field of the boxes: boxes='boxes'"):
        Augmentations([FlipX(), transform])


def test_what_goes_with_boxes_needs_boxes_and_a_row_for_each():
    with pytest.raises(ConfigError, match=r"with_boxes=\['labels'\]; expected an empty list unless boxes= is set"):
        Augmentations([FlipX()], with_boxes=["labels"])
    augment = Augmentations([FlipX()], boxes="boxes", with_boxes=["labels"])
    with pytest.raises(ValueError, match="the image has 4 boxes, but with_boxes 'labels' has 3 rows; expected one for each box"):
        augment(item(labels=LABELS[:3]), None)


def test_a_mask_for_each_object_moves_like_the_image():
    masks = np.zeros((2, *SIZE), np.uint8)
    masks[0, :, :70], masks[1, :50] = 1, 2
    augment = Augmentations([FlipX(1.0), CenterCrop((50, 80))], mask="masks")
    done = augment({"image": masks.transpose(1, 2, 0), "masks": masks}, None)
    assert_array_equal(done["masks"].transpose(1, 2, 0), done["image"], strict=True)
    none = augment({"image": masks[0], "masks": masks[:0]}, None)
    assert none["masks"].shape == (0, 50, 80)


def test_a_reader_says_that_it_draws_before_it_sees_boxes():
    with pytest.raises(ConfigError, match=r"crop=RandomIoUCrop.*, but a reader selects crops before it decodes: put the crop into Aug"):
        ImageReader("highway:photos/val", 4, crop=RandomIoUCrop())
    reader = {"ImageReader": {"data_dir": "highway:photos/val", "batch_size": 4, "crop": "BoxSafeCrop"}}
    with pytest.raises(ConfigError, match=r"crop: BoxSafeCrop is not a BoxCrop; .*a reader selects crops before it decodes"):
        Registry(Components()).build(reader, Location(("here",)))
