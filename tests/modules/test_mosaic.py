import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from highway import Pipeline, Stage
from highway.errors import ConfigError
from highway.modules import Batch, Mosaic, Unbatch

SIZES = [(40, 60), (50, 30), (64, 64), (33, 71), (20, 90)]


def target(number, size, dtype=np.uint8):
    """Return an image whose pixels say which it is, two objects in it, what belongs to them, and a padding box."""
    height, width = size
    boxes = np.float32([[2, 3, width // 2, height // 2], [width // 2, height // 2, width - 1, height - 2], [0, 0, 0, 0]])
    masks = np.zeros((3, height, width), np.uint8)
    for mask, (x1, y1, x2, y2) in zip(masks, boxes.astype(int), strict=True):
        mask[y1:y2, x1:x2] = 1
    return {
        "image": np.full((height, width, 3), 8 * (number + 1), dtype),
        "boxes": boxes,
        "labels": np.int32([10 * number, 10 * number + 1, -1]),
        "names": [f"{number}a", f"{number}b", "none"],
        "masks": masks,
        "corners": boxes.reshape(3, 2, 2).copy(),
        "centre": np.float32([[width / 2, height / 2], [1, 1]]),
        "segmentation": np.full((height, width), number + 1, np.int16),
        "id": number,
    }


def batch(sizes=SIZES, dtype=np.uint8):
    targets = [target(number, size, dtype) for number, size in enumerate(sizes)]
    return {name: [one[name] for one in targets] for name in targets[0]}


OBJECTS = {"boxes": "boxes", "points": "corners", "mask": "masks", "with_boxes": ["labels", "names", "masks", "corners"]}


def rng(seed=0):
    return np.random.default_rng(seed)


def frozen(value):
    if isinstance(value, list):
        return [frozen(one) for one in value]
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    return value


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(["cover", "contain"]),
    st.tuples(st.integers(8, 80), st.integers(8, 80)),
    st.sampled_from([0.5, 1.0]),
)
def test_boxes_masks_points_and_labels_follow_their_images(seed, fit_mode, shape, p):
    item = {name: frozen(value) for name, value in batch().items()}
    done = Mosaic(shape, **OBJECTS, fit_mode=fit_mode, p=p, center_range=(0.0, 1.0))(item, rng(seed))
    assert done["image"].shape == (5, *shape, 3) and done["image"].dtype == np.uint8 and done["id"] == [0, 1, 2, 3, 4]
    for row in range(5):
        image, boxes, labels, masks = (done[name][row] for name in ("image", "boxes", "labels", "masks"))
        count = len(boxes)
        assert boxes.shape == (count, 4) and boxes.dtype == np.float32 and labels.dtype == np.int32
        assert masks.shape == (count, *shape) and masks.dtype == np.uint8 and done["corners"][row].shape == (count, 2, 2)
        assert done["names"][row] == [f"{label // 10}{'ab'[label % 10]}" for label in labels.tolist()]
        assert (boxes >= 0).all() and (boxes <= np.tile(shape[::-1], 2)).all() and (boxes[:, 2:] > boxes[:, :2]).all()
        assert_array_equal(done["corners"][row].reshape(-1, 4), boxes)  # which the border of a part cuts alike
        for box, label, mask in zip(boxes, labels.tolist(), masks, strict=True):
            assert set(image[mask != 0].ravel().tolist()) <= {8 * (label // 10 + 1)}  # an object lies on its own image
            rows, columns = np.nonzero(mask)
            if len(rows):
                around = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
                scale = 80 / 20  # a pixel of the source is at most so many
                assert_allclose(around, box, atol=scale + 1e-3)


def test_a_mosaic_holds_its_own_image_and_three_others():
    item = batch([(32, 32)] * 6)
    done = Mosaic((40, 50))({"image": item["image"]}, rng())
    shown = [set(image[..., 0].ravel().tolist()) for image in done["image"]]
    assert all(len(values) == 4 and 8 * (row + 1) in values for row, values in enumerate(shown))
    assert len(set(map(frozenset, shown))) > 1
    corners = {tuple(image[::39, ::49, 0].ravel().tolist()).index(8 * (row + 1)) for row, image in enumerate(done["image"])}
    assert len(corners) > 1  # its own image is not always in the same place


@pytest.mark.parametrize("count", [2, 3])
def test_with_fewer_images_some_are_there_twice(count):
    (image, *_) = Mosaic((40, 50))((batch([(32, 32)] * count)["image"],), rng())[0]
    assert set(image[..., 0].ravel().tolist()) == {8 * (number + 1) for number in range(count)}


def test_cover_cuts_a_window_of_the_same_proportions():
    """Of images that say where each pixel is from: scaled alike in both directions, but for rounding."""
    down, right = np.mgrid[:60, :80].astype(np.float32)
    images = np.stack([np.dstack([down, right, np.full_like(down, number)]) for number in range(4)])
    (mosaic, *_) = Mosaic((120, 160), center_range=(0.5, 0.5))((images,), rng(3))[0]
    for part in (mosaic[:60, :80], mosaic[60:, 80:]):
        assert_allclose(part[..., :2], images[0, ..., :2], atol=1e-4)
    (mosaic, *_) = Mosaic((120, 160), center_range=(0.25, 0.25))((images,), rng(3))[0]
    part = mosaic[30:, 40:]
    assert_allclose(np.diff(part[5:-5, :, 0], axis=0).mean(), 60 / 90, atol=0.02)
    assert_allclose(np.diff(part[:, 5:-5, 1], axis=1).mean(), 80 / 120, atol=0.02)


def test_contain_keeps_images_whole_next_to_the_centre_with_fill_about_them():
    images = [np.full((20, 40, 3), 200, np.uint8), np.full((40, 20, 3), 200, np.uint8)]
    item = {"image": images, "boxes": [np.float32([[0, 0, 40, 20]]), np.float32([[0, 0, 20, 40]])]}
    done = Mosaic((80, 80), boxes="boxes", fit_mode="contain", fill=(1, 2, 3), center_range=(0.5, 0.5))(item, rng())
    for image, boxes in zip(done["image"], done["boxes"], strict=True):
        assert len(boxes) == 4
        expected = np.full((80, 80, 3), (1, 2, 3), np.uint8)
        for x1, y1, x2, y2 in boxes.astype(int).tolist():
            assert (x1 == 40 or x2 == 40) and (y1 == 40 or y2 == 40) and (x2 - x1) * (y2 - y1) == 800
            expected[y1:y2, x1:x2] = 200
        assert_array_equal(image, expected)


def test_p_0_brings_each_image_to_the_shape():
    item = batch()
    done = Mosaic((30, 30), boxes="boxes", with_boxes=["labels"], mask="segmentation", p=0.0, fit_mode="contain", fill=7)(item, rng())
    for row, (height, width) in enumerate(SIZES):
        scale = 30 / max(height, width)
        assert set(done["image"][row].ravel().tolist()) == {7, 8 * (row + 1)} or height == width
        assert done["labels"][row].tolist() == [10 * row, 10 * row + 1]
        sides = done["boxes"][row][:, 2:] - done["boxes"][row][:, :2]
        assert_allclose(sides, (item["boxes"][row][:2, 2:] - item["boxes"][row][:2, :2]) * scale, rtol=0.06)
        assert_array_equal(done["segmentation"][row], np.where(done["image"][row][..., 0] == 7, 0, row + 1))


def test_masks_of_whole_images_are_put_together_as_these_are():
    item = batch([(32, 48)] * 5)
    item |= {"image": np.stack(item["image"]), "segmentation": np.stack(item["segmentation"])}
    del item["boxes"]
    done = Mosaic((40, 50), mask="segmentation", points="centre")(item, rng(1))
    assert done["segmentation"].dtype == np.int16
    assert_array_equal(done["image"][..., 0], done["segmentation"] * 8)
    for points in done["centre"]:
        assert points.dtype == np.float32 and len(points) <= 8
        for x, y in points:
            assert 0 <= x <= 50 and 0 <= y <= 40
    assert len({len(points) for points in done["centre"]}) > 1  # those that are cut off are removed


def test_min_visibility_removes_what_is_cut_off_too_far():
    item = {field: value for field, value in batch().items() if field in ("image", "boxes")}
    counts = [
        sum(map(len, Mosaic((60, 60), boxes="boxes", with_boxes=[], min_visibility=least)(item, rng(4))["boxes"]))
        for least in (0.0, 0.5, 1.0)
    ]
    assert counts[0] > counts[1] > counts[2] > 0


def test_all_four_images_may_lack_boxes():
    item = {"image": np.zeros((2, 9, 9, 1), np.float32), "boxes": np.zeros((2, 0, 4), np.float32), "masks": np.zeros((2, 0, 9, 9), bool)}
    done = Mosaic((12, 10), boxes="boxes", mask="masks", with_boxes=["masks"])(item, rng())
    assert [boxes.shape for boxes in done["boxes"]] == [(0, 4)] * 2
    assert [(masks.shape, masks.dtype) for masks in done["masks"]] == [((0, 12, 10), bool)] * 2


def test_an_empty_batch_stays():
    item = {"image": np.zeros((0, 9, 9, 1), np.float32)}
    assert Mosaic((12, 10))(item, rng()) is item


GREY = np.zeros((8, 8), np.uint8)
FLAT = np.zeros((2, 8, 8, 3), np.uint8)
BOXES, MASKS = np.zeros((2, 3, 4)), np.zeros((2, 3, 8, 8))
OF_BOXES = {"boxes": "boxes"}
WRONG = [
    ({"image": FLAT[0]}, {}, r"the image field contains one image, \(8, 8, 3\).*Batch\(..., as_list=True\), and add Unbatch"),
    ({"image": FLAT[:1]}, {}, "the batch has only one image"),
    ({"image": [FLAT[0], GREY]}, {}, r"image 0 of the batch is \(8, 8, 3\) uint8 and image 1 is \(8, 8\) uint8"),
    ({"image": [FLAT[0], FLAT[0] / 2]}, {}, "need the same dtype and number of channels"),
    ({"image": FLAT}, {"fit_mode": "contain", "fill": (1, 2)}, r"fill=\(1.0, 2.0\) has 2 numbers, but the image has 3 channels"),
    ({"image": FLAT, "boxes": BOXES[:1]}, OF_BOXES, "2 images, but boxes has values for 1"),
    ({"image": FLAT, "boxes": BOXES, "boxes_count": [1, 2]}, OF_BOXES, "'boxes_count' contains the number of rows.*ragged='list'"),
    ({"image": FLAT, "boxes": np.zeros((2, 3, 5))}, OF_BOXES, r"boxes are numbers, \(N, 4\)"),
    ({"image": FLAT, "boxes": BOXES, "ids": BOXES[:, 1:]}, {**OF_BOXES, "with_boxes": ["ids"]}, "3 boxes, but with_boxes 'ids' has 2 rows"),
    ({"image": FLAT, "boxes": BOXES, "mask": MASKS}, {**OF_BOXES, "mask": "mask"}, r"with_boxes=\[..., 'mask'\]"),
    (
        {"image": FLAT, "mask": np.zeros((2, 8, 9))},
        {"mask": "mask"},
        r"the mask is \(8, 9\), but its image is "
        r"\(8, 8, 3\)",
    ),
    ({"image": FLAT, "mask": [GREY, GREY[None]]}, {"mask": "mask"}, r"some images have a mask \(H, W\), and some"),
    ({"image": FLAT, "at": [np.ones((1, 2)), np.ones((1, 3, 2))]}, {"points": "at"}, "points of combined images have the shapes"),
]


@pytest.mark.parametrize(("item", "parameters", "words"), WRONG, ids=[words[:30] for *_, words in WRONG])
def test_what_cannot_be_put_together_is_said(item, parameters, words):
    with pytest.raises(ValueError, match=f"^Mosaic.*{words}"):
        Mosaic((16, 16), **parameters)(item, rng())


def test_wrong_parameters_are_said():
    for wrong in ({"center_range": (0.7, 0.3)}, {"fit_mode": "fill"}, {"p": 2.0}, {"min_visibility": -1.0}, {"with_boxes": ["labels"]}):
        with pytest.raises(ConfigError, match=f"Mosaic: {next(iter(wrong))}"):
            Mosaic((16, 16), **wrong)


def pipeline(workers=1):
    samples = [target(number, SIZES[number % 5]) for number in range(30)]
    mosaic = Stage(Mosaic((24, 20), **OBJECTS), num_workers=workers)
    return Pipeline([samples, Batch(6, as_list=True), mosaic, Unbatch()], seed=3)


def assert_same(runs, expected):
    for one, other in zip(runs, expected, strict=True):
        for name in one:
            assert np.shape(one[name]) == np.shape(other[name]) and np.array_equal(one[name], other[name]), name


def test_same_bits_for_any_number_of_workers():
    with pipeline() as one, pipeline(4) as four:
        alone, together = list(one), list(four)
    assert len(alone) == 30 and alone[7]["image"].shape == (24, 20, 3)
    assert_same(together, alone)


def test_a_run_goes_on_in_the_middle_of_a_batch():
    with pipeline() as whole:
        expected = list(whole)
    with pipeline(2) as left:
        begun = [left.dequeue() for _ in range(9)]
        state = json.loads(json.dumps(left.state_dict()))
    with pipeline() as rest:
        rest.load_state_dict(state)
        assert_same([*begun, *rest], expected)
