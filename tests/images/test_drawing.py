"""Boxes, masks and points on an image."""

import numpy as np
import pytest
from PIL import Image

from highway.images.drawing import COLORS, Drawn, draw_on

GREY = (90, 90, 90)


def drawn(annotations, size=(100, 80), of=None):
    """Return the pixels of a grey image on which something was drawn, ``(H, W, 3)``."""
    return np.asarray(draw_on(Image.new("RGB", size, GREY), annotations, of))


def is_color(pixels, number):
    return (pixels == COLORS[number]).all(axis=-1)


def extent(there):
    """Return x1, y1, x2, y2 around where something is."""
    y, x = np.nonzero(there)
    return [x.min(), y.min(), x.max() + 1, y.max() + 1]


def test_a_box_is_an_outline_just_within_its_sides():
    pixels = drawn(Drawn(np.float32([[10, 20, 60, 70]])))
    assert extent(is_color(pixels, 0)) == [10, 20, 60, 70]
    assert (pixels[25:65, 15:55] == GREY).all()


@pytest.mark.parametrize("times", [0.5, 2, 3])
def test_boxes_masks_and_points_scale_with_the_thumbnail(times):
    mask = np.zeros((80, 100), np.uint8)
    mask[20:40, 10:50] = 2
    for annotations in (Drawn(np.float32([[0, 0, 0, 0], [10, 20, 50, 40]])), Drawn(mask=mask)):
        pixels = drawn(annotations, (round(100 * times), round(80 * times)), (100, 80))
        assert extent(is_color(pixels, 1)) == [round(side * times) for side in (10, 20, 50, 40)]
    x1, y1, x2, y2 = extent(is_color(drawn(Drawn(points=np.float32([[30, 50]])), (round(100 * times), round(80 * times)), (100, 80)), 0))
    assert abs((x1 + x2) / 2 - 30 * times) <= 1 and abs((y1 + y2) / 2 - 50 * times) <= 1


def test_nothing_is_drawn_of_padding_and_of_what_is_no_number():
    empty = Drawn(
        np.float32([[0, 0, 0, 0], [30, 30, 30, 50], [np.nan] * 4]), ["a", "b", "c"], np.zeros((3, 80, 100)), np.full((3, 2, 2), np.nan)
    )
    assert (drawn(empty) == GREY).all()
    none = Drawn(np.zeros((0, 4), np.float32), (), np.zeros((0, 80, 100)), np.zeros((0, 17, 2)))
    assert (drawn(none) == GREY).all()


@pytest.mark.parametrize("size", [128, 256])
@pytest.mark.parametrize("box", [(5, 5, 90, 90), (100, 100, 127, 127), (-20, -20, 30, 30), (60, 120, 70, 140)])
def test_a_name_stands_within_the_picture_wherever_its_box_is(size, box):
    boxes = np.float32([box])
    pixels, without = (drawn(Drawn(boxes, names), (size, size), (128, 128)) for names in (["helmet"], []))
    x1, y1, x2, y2 = extent((pixels != without).any(axis=-1))
    assert x1 >= 0 and y1 >= 0 and x2 <= size and y2 <= size
    assert x2 - x1 >= 30 and y2 - y1 >= 8, "too small to be read"
    ink = pixels[y1:y2, x1:x2].max(axis=-1) < 120
    assert 0.05 < ink.mean() < 0.5


def test_a_label_map_has_a_colour_for_each_number_and_objects_for_each_row():
    labels = np.zeros((80, 100), np.uint8)
    labels[:, :40], labels[:, 60:] = 1, 2
    objects = np.stack([labels == 1, labels == 2])
    by_number, by_row = drawn(Drawn(mask=labels)), drawn(Drawn(mask=objects))
    np.testing.assert_array_equal(by_number, by_row)
    assert (by_number[:, 41:59] == GREY).all()
    veiled = np.round(0.7 * np.array(GREY) + 0.3 * np.array(COLORS[1]))
    np.testing.assert_allclose(by_number[40, 80], veiled, atol=1)
    assert is_color(by_number, 1)[:, 60].all(), "its edge"
    np.testing.assert_array_equal(drawn(Drawn(mask=objects, colors=[4, 2]))[:, 60], [COLORS[2]] * 80)


def test_points_of_an_object_have_its_colour_and_may_lie_outside():
    points = np.float32([[[20, 20], [np.nan, 5]], [[60, 60], [500, -40]]])
    pixels = drawn(Drawn(points=points, colors=[3, 5]))
    assert is_color(pixels, 3)[20, 20] and is_color(pixels, 5)[60, 60]
    assert is_color(pixels, 3).sum() == is_color(pixels, 5).sum() <= 50


def test_the_image_itself_is_not_drawn_on_and_may_be_grey():
    image = Image.new("L", (50, 40), 90)
    done = draw_on(image, Drawn(np.float32([[5, 5, 20, 20]]), mask=np.ones((40, 50), bool), points=np.float32([[7, 7]])))
    assert image.tobytes() == bytes([90]) * 2000 and done.mode == "RGB"
    given = Image.new("RGB", (50, 40), GREY)
    assert draw_on(given, Drawn()) is not given
