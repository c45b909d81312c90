"""Points that change places where the image is mirrored, and what goes with them."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from highway.datasets import COCO
from highway.errors import ConfigError
from highway.modules import Augmentations, DecodeImage
from highway.transforms import (
    D4,
    Affine,
    CenterCrop,
    Elastic,
    FlipX,
    FlipY,
    Geometric,
    Paste,
    Perspective,
    RandAugment,
    Resize,
    Rotate,
    Rotate90,
    SanitizeBoxes,
    Shift,
    Sometimes,
    Translate,
    Transpose,
)

POINTS = np.float32([[[10, 5], [20, 6], [15, 9]], [[30, 25], [34, 20], [3, 4]]])
VISIBLE = np.uint8([[2, 1, 0], [0, 1, 2]])
ITEM = {"image": np.zeros((30, 40, 3), np.uint8), "points": POINTS, "visible": VISIBLE}
for array in ITEM.values():
    array.flags.writeable = False


def augmented(transforms, item=ITEM, seed=0, **parameters):
    augment = Augmentations(transforms, points="points", with_points=["visible"], **parameters)
    return augment(item, np.random.default_rng(seed))


@dataclass(frozen=True)
class Mirror(Geometric):
    """One of a user's own."""

    def image(self, image, params):
        return image[:, ::-1]

    def points(self, points, params, size):
        return np.float32([size[1], 0]) + points * np.float32([-1, 1])


@pytest.mark.parametrize(
    ("transforms", "mirrored"),
    [
        ([FlipX(1)], True),
        ([FlipY(1)], True),
        ([Transpose(1)], True),
        ([Mirror()], True),
        ([FlipX(1), Resize((9, 80)), CenterCrop((5, 5))], True),
        ([FlipX(1), FlipY(1), Affine(30, (0.1, 0.1), (0.5, 2), 20), Transpose(1)], True),
        ([], False),
        ([FlipX(0)], False),
        ([FlipX(1), FlipX(1)], False),
        ([FlipX(1), FlipY(1)], False),
        ([Rotate(180.0, reshape=True), Shift(9), Rotate90(), Perspective(0.5, 1), Elastic()], False),
        ([RandAugment(4, 30)], False),
    ],
    ids=str,
)
def test_points_change_places_where_all_together_mirror_the_image(transforms, mirrored):
    for seed in range(5):
        done, plain = augmented(transforms, seed=seed, swap_points=[(0, 1)]), augmented(transforms, seed=seed)
        order = [1, 0, 2] if mirrored else [0, 1, 2]
        assert_array_equal(done["points"], plain["points"][:, order], strict=True)
        assert_array_equal(done["visible"], VISIBLE[:, order], strict=True)


def test_half_of_the_ways_of_d4_mirror():
    swapped = [bool((augmented([D4()], seed=seed, swap_points=[(0, 1)])["visible"][0] == [1, 2, 0]).all()) for seed in range(200)]
    assert 70 < sum(swapped) < 130


def test_a_face_that_is_flipped_has_its_right_eye_on_the_left_as_any_other_face():
    dataset = COCO("highway:objects/JPEGImages", "highway:objects/instances_val.json", keypoints=True)
    right, left = (dataset.keypoint_names.index(name) for name in ("right_eye", "left_eye"))
    augment = Augmentations(
        [FlipX(1)],
        boxes="boxes",
        points="keypoints",
        with_boxes=["keypoints", "visibility"],
        swap_points=[(left, right)],
        with_points=["visibility"],
    )
    sample = DecodeImage()(dataset[0], None)
    flipped = augment(sample, np.random.default_rng(0))
    for given in (sample, flipped):
        face, eyes = given["boxes"][0], given["keypoints"][0]
        assert face[0] < eyes[right, 0] < eyes[left, 0] < face[2]
    width = sample["image"].shape[1]
    assert_allclose(flipped["keypoints"][0, right], [width - sample["keypoints"][0, left, 0], sample["keypoints"][0, left, 1]])


def test_points_of_one_object_and_batches_go_too():
    one = {"image": ITEM["image"], "points": POINTS[0], "visible": VISIBLE[0]}
    done = augmented([FlipX(1)], one, swap_points=[(0, 1)])
    assert_array_equal(done["points"], np.float32([[20, 6], [30, 5], [25, 9]]), strict=True)
    assert done["visible"].tolist() == [1, 2, 0]
    batch = {name: np.stack([value] * 3) for name, value in ITEM.items()}
    done = augmented([FlipX(1)], batch, swap_points=[(0, 2)])
    assert_array_equal(done["visible"], VISIBLE[None, :, [2, 1, 0]].repeat(3, axis=0), strict=True)
    none = {"image": ITEM["image"], "points": POINTS[:0], "visible": np.zeros(0, np.uint8)}
    assert augmented([FlipX(1)], none, swap_points=[(0, 1)])["points"].shape == (0, 3, 2)


def test_what_goes_with_points_is_removed_with_them_and_with_the_boxes_of_their_objects():
    item = {"image": ITEM["image"], "points": np.float32([[5, 5], [39, 5], [20, 15]]), "visible": ["a", "b", "c"]}
    assert augmented([CenterCrop((30, 20))], item, keep="drop")["visible"] == ["c"]
    assert augmented([CenterCrop((30, 20))], item)["visible"] == ["a", "b", "c"]
    objects = {**ITEM, "boxes": np.float32([[0, 0, 20, 20], [30, 20, 31, 21]])}
    done = augmented([FlipX(1), SanitizeBoxes(min_size=5)], objects, boxes="boxes", with_boxes=["points", "visible"], swap_points=[(1, 0)])
    assert_array_equal(done["points"], np.float32([[[20, 6], [30, 5], [25, 9]]]), strict=True)
    assert done["visible"].tolist() == [[1, 2, 0]]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"swap_points": [(0, 1)]}, r"Augmentations: swap_points=\[\(0, 1\)\]; expected no value unless points= is set"),
        ({"with_points": ["visible"]}, r"with_points=\['visible'\]; expected no value unless points= is set"),
        ({"points": "points", "swap_points": [(0, 1), (1, 2)]}, r"swap_points=\[\(0, 1\), \(1, 2\)\]; expected each point once"),
        ({"points": "points", "swap_points": [(0, -1)]}, r"swap_points=\[\(0, -1\)\]; expected the numbers of two points, from 0"),
    ],
)
def test_what_cannot_be_is_refused_on_construction(parameters, message):
    with pytest.raises(ConfigError, match=message):
        Augmentations([FlipX()], **parameters)


@pytest.mark.parametrize(
    ("item", "parameters", "message"),
    [
        (ITEM, {"swap_points": [(0, 3)]}, r"points have the shape \(2, 3, 2\); swap_points=\(0, 3\) needs more than 3 points per object"),
        (
            ITEM | {"visible": VISIBLE[:, :2]},
            {},
            r"points have the shape \(2, 3, 2\), but with_points 'visible' has the shape \(2, 2\); "
            r"expected \(2, 3\)",
        ),
        (
            {"image": ITEM["image"], "points": POINTS[0], "visible": VISIBLE[0], "boxes": np.ones((3, 4))},
            {"swap_points": [(0, 1)], "boxes": "boxes", "with_boxes": ["points"]},
            r"points have the shape \(3, 2\), one point for each box; swap_points swaps points of one object, so it needs \(N, K, 2\)",
        ),
    ],
)
def test_points_that_do_not_fit_are_an_error_in_words(item, parameters, message):
    with pytest.raises(ValueError, match=message):
        augmented([FlipX(1)], item, **parameters)


CUT = [CenterCrop((20, 20)), Paste((30, 40))]  # what is not from 5 to 25 in y and 10 to 30 in x is cut off, and the rest back in its place


@pytest.mark.parametrize("transforms", [CUT, [Sometimes(1, tuple(CUT))], [tuple(CUT), Resize((60, 80))]], ids=["chain", "nested", "list"])
def test_points_that_were_cut_off_are_not_visible_any_more(transforms):
    item = {**ITEM, "visible": np.full((2, 3), 2, np.uint8)}
    item["visible"].flags.writeable = False
    done = augmented(transforms, item, visibility="visible")
    assert done["visible"].dtype == np.uint8 and done["visible"].tolist() == [[2, 2, 2], [2, 0, 0]]
    assert_allclose(done["points"], POINTS * done["image"].shape[0] / 30, atol=1e-4)
    assert augmented(transforms, item)["visible"].tolist() == [[2, 2, 2], [2, 2, 2]]


def test_what_was_cut_off_changes_places_in_a_mirror_too():
    item = {**ITEM, "points": np.float32([[[12, 10], [38, 10], [20, 20]]]), "visible": np.uint8([[1, 2, 2]])}
    done = augmented([*CUT, FlipX(1)], item, swap_points=[(0, 1)], visibility="visible")
    assert done["points"].tolist() == [[[2, 10], [28, 10], [20, 20]]] and done["visible"].tolist() == [[0, 1, 2]]


def test_what_one_warp_cuts_off_and_the_next_brings_back_stays_visible():
    item = {**ITEM, "visible": np.full((2, 3), 2, np.uint8)}
    for seed in range(20):  # in some of them the first one cuts off what the second brings back
        done = augmented([Translate((0.5, 0.5)), Translate((0.5, 0.5))], item, seed, visibility="visible")
        inside = ((done["points"] >= 0) & (done["points"] <= (40, 30))).all(axis=2)
        assert_array_equal(done["visible"] > 0, inside)


def test_images_without_points_and_points_of_no_object_have_their_visibility():
    for visible in (np.zeros(0, np.uint8), np.zeros((0, 3), np.uint8)):
        item = {**ITEM, "points": np.zeros((0, 3, 2), np.float32), "visible": visible}
        assert augmented(CUT, item, visibility="visible")["visible"].shape == visible.shape
    flat = {**ITEM, "points": POINTS[1], "visible": VISIBLE[0]}
    assert augmented(CUT, flat, visibility="visible")["visible"].tolist() == [2, 0, 0]


def test_visibility_is_a_field_of_its_own_and_there_are_points():
    with pytest.raises(ConfigError, match="visibility='points'; expected a separate field"):
        Augmentations([], points="points", visibility="points")
    with pytest.raises(ConfigError, match="visibility='visible'; expected no value unless points= is set"):
        Augmentations([], visibility="visible")
