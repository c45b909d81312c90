import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from highway import functional as F
from highway.transforms import BoxCrop, CenterCrop, FlipX, RandomCrop, RandomResizedCrop, Resize, Slicer, TopCenterCrop, covering_box
from highway.transforms.base import draws_runs

IMAGE = np.arange(5 * 7, dtype=np.uint8).reshape(5, 7)
IMAGE.flags.writeable = False


def test_fixed_crops_cut_where_they_say():
    assert_array_equal(CenterCrop((3, 4))(IMAGE), IMAGE[1:4, 1:5], strict=True)
    assert_array_equal(TopCenterCrop((3, 4))(IMAGE), IMAGE[0:3, 1:5], strict=True)
    assert_array_equal(Slicer(0.6, 3 / 7)(IMAGE), IMAGE[1:4, 2:5], strict=True)
    assert_array_equal(RandomCrop((3, 4))(IMAGE), IMAGE[1:4, 1:5], strict=True)
    assert_array_equal(CenterCrop((5, 7))(IMAGE), IMAGE, strict=True)


def test_random_crop_reaches_every_place():
    rng = np.random.default_rng(0)
    crop = RandomCrop((3, 4))
    boxes = {crop.box((5, 7), rng) for _ in range(500)}
    assert boxes == {(top, left, 3, 4) for top in range(3) for left in range(4)}
    assert_array_equal(crop.image(IMAGE, (2, 3, 3, 4)), IMAGE[2:5, 3:7], strict=True)


@pytest.mark.parametrize("crop", [CenterCrop((6, 7)), TopCenterCrop((5, 8)), RandomCrop((6, 8))], ids=str)
def test_an_image_too_small_is_an_error_that_says_both_sizes_and_the_way_out(crop):
    with pytest.raises(
        ValueError, match=r"needs an image of at least [56]x[78] \(height x width\), got 5x7; resize or pad it first"
    ) as caught:
        crop(IMAGE)
    assert str(caught.value).startswith(str(crop))


def test_crops_move_boxes_and_points_and_clip_boxes_only():
    crop, params = CenterCrop((4, 4)), (2, 3, 4, 4)
    boxes, points = np.float32([[0, 0, 5, 5], [4, 3, 6, 5]]), np.float32([[3, 2], [0, 0]])
    assert_array_equal(crop.boxes(boxes, params, (9, 9)), np.float32([[0, 0, 2, 3], [1, 1, 3, 3]]), strict=True)
    assert_array_equal(crop.points(points, params, (9, 9)), np.float32([[0, 0], [-3, -2]]), strict=True)


@pytest.mark.parametrize("crop", [CenterCrop((3, 4)), RandomCrop((3, 4)), TopCenterCrop((3, 4)), RandomResizedCrop((3, 4))], ids=str)
def test_crops_can_draw_their_box_before_the_image_is_there(crop):
    assert isinstance(crop, BoxCrop)
    assert crop.shape == (3, 4)
    top, left, height, width = crop.box((5, 7), np.random.default_rng(0))
    cut = F.resize(IMAGE[top : top + height, left : left + width], crop.shape, "bilinear")
    assert_array_equal(crop(IMAGE, np.random.default_rng(0)), cut, strict=True)


def test_other_transforms_are_no_box_crops():
    assert not isinstance(FlipX(), BoxCrop)
    assert not isinstance(Resize((3, 4)), BoxCrop)
    assert not isinstance(Slicer(), BoxCrop)  # its size hangs on the image's


@given(st.integers(1, 600), st.integers(1, 600), st.integers(0, 2**32))
def test_random_resized_crop_stays_within_the_image(height, width, seed):
    top, left, h, w = RandomResizedCrop((8, 8)).box((height, width), np.random.default_rng(seed))
    assert top >= 0
    assert left >= 0
    assert 1 <= h <= height - top
    assert 1 <= w <= width - left


def test_random_resized_crop_draws_areas_and_ratios_evenly_within_their_bounds():
    crop, rng = RandomResizedCrop((8, 8), scale=(0.1, 0.3), ratio=(0.5, 2.0)), np.random.default_rng(0)
    boxes = np.array([crop.box((1000, 1000), rng) for _ in range(4000)])
    area, ratio = boxes[:, 2] * boxes[:, 3] / 1e6, np.log2(boxes[:, 3] / boxes[:, 2])
    assert_allclose([area.min(), area.max(), area.mean(), area.std()], [0.1, 0.3, 0.2, 0.2 / math.sqrt(12)], rtol=0.03)
    assert_allclose([ratio.min(), ratio.max(), ratio.std()], [-1, 1, 2 / math.sqrt(12)], rtol=0.03)
    assert_allclose(ratio.mean(), 0, atol=0.03)
    share = boxes[:, 0] / (1000 - boxes[:, 2])
    assert_allclose([share.mean(), share.std()], [0.5, 1 / math.sqrt(12)], rtol=0.03)


RUN_CROPS = [
    RandomResizedCrop((8, 8)),
    RandomResizedCrop((8, 8), scale=(1.0, 1.0)),
    RandomCrop((3, 4)),
    CenterCrop((3, 4)),
    TopCenterCrop((3, 4)),
]


@pytest.mark.parametrize("crop", RUN_CROPS, ids=str)
@given(st.lists(st.tuples(st.integers(1, 600), st.integers(1, 600)), min_size=1, max_size=9), st.integers(0, 2**32))
def test_boxes_drawn_together_lie_in_their_images_and_hang_on_nothing_else(crop, sizes, seed):
    numbers = np.random.default_rng(seed).random((len(sizes), 23))
    boxes = crop.draw_boxes(np.array(sizes), numbers)
    for row, (size, (top, left, h, w)) in enumerate(zip(sizes, boxes.tolist(), strict=True)):
        assert_array_equal(crop.draw_boxes(np.array([size]), numbers[row : row + 1])[0], boxes[row])
        try:
            alone = crop.box(size, None)
        except ValueError:
            assert (top, left, h, w) == (0, 0, 0, 0)
            continue
        assert 0 <= top < top + h <= size[0] and 0 <= left < left + w <= size[1]
        if not isinstance(crop, (RandomCrop, RandomResizedCrop)):
            assert (top, left, h, w) == alone


def test_boxes_drawn_together_are_spread_as_those_drawn_one_by_one():
    numbers, sizes = np.random.default_rng(0).random((4000, 23)), np.full((4000, 2), 1000)
    boxes = RandomResizedCrop((8, 8), scale=(0.1, 0.3), ratio=(0.5, 2.0)).draw_boxes(sizes, numbers)
    area, ratio = boxes[:, 2] * boxes[:, 3] / 1e6, np.log2(boxes[:, 3] / boxes[:, 2])
    assert_allclose([area.min(), area.max(), area.mean(), area.std()], [0.1, 0.3, 0.2, 0.2 / math.sqrt(12)], rtol=0.03)
    assert_allclose([ratio.min(), ratio.max(), ratio.std()], [-1, 1, 2 / math.sqrt(12)], rtol=0.03)
    share = boxes[:, :2] / (1000 - boxes[:, 2:])
    assert_allclose([share.mean(), share.std()], [0.5, 1 / math.sqrt(12)], rtol=0.03)
    small = RandomCrop((3, 4)).draw_boxes(np.full((500, 2), (5, 7)), numbers[:500])
    assert {tuple(box) for box in small.tolist()} == {(top, left, 3, 4) for top in range(3) for left in range(4)}


def test_a_crop_with_a_box_of_its_own_is_not_asked_for_those_that_another_draws():
    class Own(RandomResizedCrop):
        def box(self, size, rng):
            return 0, 0, 1, 1

    class Both(Own):
        def draw_boxes(self, sizes, numbers):
            return np.tile([0, 0, 1, 1], (len(sizes), 1))

    assert [draws_runs(crop((8, 8))) for crop in (RandomResizedCrop, Own, Both)] == [True, False, True]


@pytest.mark.parametrize(("size", "box"), [((10, 1000), (0, 493, 10, 13)), ((1000, 10), (493, 0, 13, 10))], ids=["wide", "tall"])
def test_where_no_box_fits_the_centre_is_cut_at_the_nearest_ratio_allowed(size, box):
    crop = RandomResizedCrop((8, 8), scale=(1.0, 1.0))
    assert crop.box(size, np.random.default_rng(0)) == box
    assert crop.draw_boxes(np.array([size]), np.full((1, 23), 0.5)).tolist() == [list(box)]


def test_without_chance_the_box_is_the_largest_centred_one_of_the_outputs_proportions():
    assert RandomResizedCrop((100, 200)).box((300, 400), None) == (50, 0, 200, 400)
    assert RandomResizedCrop((64, 64)).box((300, 400), None) == (0, 50, 300, 300)
    assert covering_box((1, 1000), 0.001) == (0, 499, 1, 1)


def test_random_resized_crop_scales_boxes_and_points_with_the_image():
    crop, params = RandomResizedCrop((20, 40)), (10, 20, 40, 20)  # enlarged twice across, halved down
    assert_array_equal(crop.boxes(np.float32([[25, 20, 100, 40]]), params, (99, 99)), np.float32([[10, 5, 40, 15]]), strict=True)
    assert_array_equal(crop.points(np.float32([[20, 10]]), params, (99, 99)), np.float32([[0, 0]]), strict=True)
