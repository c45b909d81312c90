"""Transforms made of transforms."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.ndimage import minimum_filter

from highway import functional
from highway.errors import ConfigError
from highway.functional import warp
from highway.transforms import (
    Affine,
    Chain,
    FlipX,
    FlipY,
    OneOf,
    Perspective,
    RandomCrop,
    Resize,
    Rotate,
    SanitizeBoxes,
    Shuffled,
    SomeOf,
    Sometimes,
    Transform,
    Translate,
    Zoom,
)
from highway.transforms.base import Seen

IMAGE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


@dataclass(frozen=True)
class Plus(Transform):
    """Adds a number, so that one sees which transforms were applied, and after a multiplication in which order."""

    number: int
    times: int = 1

    def image(self, image, params):
        return image * self.times + self.number


def applied(transform, seed):
    """Return what becomes of a 0."""
    return int(transform(np.zeros((1, 1)), None if seed is None else np.random.default_rng(seed))[0, 0])


def frequencies(transform, draws=2000):
    return {value: count / draws for value, count in sorted(Counter(applied(transform, seed) for seed in range(draws)).items())}


def test_a_list_in_a_list_counts_as_one():
    assert set(frequencies(OneOf([Plus(1), [Plus(10), Plus(20)], Plus(100)]), 100)) == {1, 30, 100}


def test_one_of_takes_each_alike_or_by_its_weight():
    assert frequencies(OneOf([Plus(1), Plus(2)])) == pytest.approx({1: 0.5, 2: 0.5}, abs=0.05)
    assert frequencies(OneOf([Plus(1), Plus(2), Plus(3)], weights=[3, 0, 1])) == pytest.approx({1: 0.75, 3: 0.25}, abs=0.05)


def test_sometimes_applies_all_or_none():
    assert frequencies(Sometimes(0.3, [Plus(1), Plus(2)])) == pytest.approx({0: 0.7, 3: 0.3}, abs=0.05)


def test_some_of_applies_so_many_in_the_order_of_the_list():
    ten = [Plus(number, times=10) for number in (1, 2, 3)]
    assert frequencies(SomeOf(2, ten)) == pytest.approx({12: 1 / 3, 13: 1 / 3, 23: 1 / 3}, abs=0.05)
    assert set(frequencies(SomeOf((0, 1), ten), 200)) == {0, 1, 2, 3}


def test_shuffled_applies_all_in_every_order():
    orders = frequencies(Shuffled([Plus(number, times=10) for number in (1, 2, 3)]))
    assert orders == pytest.approx(dict.fromkeys((123, 132, 213, 231, 312, 321), 1 / 6), abs=0.04)


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (Chain([Plus(1), Plus(2)]), 3),
        (Sometimes(1.0, Plus(1)), 1),
        (Sometimes(0.9, Plus(1)), 0),
        (OneOf([Plus(1)]), 0),
        (SomeOf(1, [Plus(1)]), 0),
        (Shuffled([Plus(1, 10), Plus(2, 10), Plus(3, 10)]), 123),
    ],
    ids=str,
)
def test_without_chance_what_is_certain_happens_in_the_order_of_the_list(transform, expected):
    assert applied(transform, None) == expected


NESTED = OneOf(
    [
        [RandomCrop((12, 16)), Sometimes(0.5, FlipX(1.0)), Resize((20, 30), interpolation="nearest")],
        SomeOf((1, 2), [FlipY(1.0), [RandomCrop((15, 30)), FlipX()]]),
        Shuffled([FlipX(), [FlipY(), Chain([RandomCrop((18, 18))])]]),
    ]
)


@pytest.mark.parametrize("seed", range(20))
def test_a_nested_chain_moves_image_mask_boxes_and_points_alike(seed):
    size, box = (20, 30), np.float32([[13, 8, 17, 12]])
    image = np.zeros(size, np.uint8)
    image[8:12, 13:17] = 1
    params = NESTED.draw(size, np.random.default_rng(seed))
    moved, mask = NESTED.image(image, params), NESTED.mask(image, params)
    assert_array_equal(moved, mask)
    assert moved.shape == NESTED.output(params, size)
    rows, columns = np.nonzero(moved)
    found = np.float32([[columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]])
    np.testing.assert_allclose(NESTED.boxes(box, params, size), found, atol=1)
    (point,) = NESTED.points(np.float32([[15, 10]]), params, size)
    np.testing.assert_allclose(point, (found[0, :2] + found[0, 2:]) / 2, atol=1)


def test_a_size_that_a_transform_does_not_say_is_an_error_that_names_it():
    @dataclass(frozen=True)
    class Half(Transform):
        def image(self, image, params):
            return image[::2]

    assert Chain([FlipX(), Half()])(IMAGE).shape == (10, 30, 3)  # nobody behind it needs to know
    with pytest.raises(ValueError, match=r"the image is 10x30 \(height x width\), but output\(\) of .*Half\(\) returns 20x30") as caught:
        Chain([Half(), FlipX()])(IMAGE)
    assert caught.value.__notes__ == ["in transforms[1], FlipX(p=0.5)"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OneOf([]), "OneOf: transforms=.*; expected at least one"),
        (lambda: OneOf([FlipX()], weights=[1, 2]), "OneOf: weights=.*; expected 1 numbers, one for each transform, not all 0"),
        (lambda: OneOf([FlipX()], weights=[-1]), "OneOf: weights=.*; expected at least 0"),
        (lambda: SomeOf(3, [FlipX()]), "SomeOf: n=3; expected from 0 to the number of transforms, 1"),
        (lambda: SomeOf((2, 1), [FlipX()]), r"SomeOf: n=\(2, 1\); expected \(least, greatest\), at least 0"),
        (lambda: Sometimes(2, FlipX()), "Sometimes: p=2.*; expected a probability from 0 to 1"),
        (lambda: Sometimes(0.5, [FlipX]), "FlipX is a class; pass an instance"),
        (lambda: OneOf(FlipX(), FlipY()), r"OneOf: got 2 transforms as .*; expected one list, \[FlipX.*, FlipY\(p=0.5\)\]$"),
        (lambda: OneOf([FlipX(), FlipY()], FlipX()), "OneOf: got 2 transforms as separate arguments; expected one list"),
        (lambda: SomeOf(2, FlipX(), FlipY(), Rotate(5)), "SomeOf: got 3 transforms as separate arguments; expected one list"),
        (lambda: SomeOf(FlipX(), FlipY()), "SomeOf: got 2 transforms as separate arguments; expected one list"),
        (lambda: Sometimes(0.5, FlipX(), FlipY()), "Sometimes: got 2 transforms as separate arguments; expected one list"),
        (lambda: Shuffled(FlipX(), FlipY()), "Shuffled: got 2 transforms as separate arguments; expected one list"),
        (lambda: Chain([FlipX()], [FlipY()]), r"Chain: got 2 transforms as separate arguments; expected one list, \[\[FlipX"),
    ],
)
def test_what_cannot_be_is_refused_on_construction(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


WARPS = [Rotate(20, "bilinear"), Affine(15, (0.05, 0.05), (0.9, 1.1), 5), Perspective(0.2, 1.0), Zoom(0.2, "bilinear")]


@pytest.mark.parametrize("seed", range(10))
def test_warps_next_to_each_other_are_one_that_differs_by_no_more_than_the_blur(seed, monkeypatch):
    y, x = np.mgrid[0:120, 0:160]
    waves = np.stack([128 + 90 * np.sin(x / 25 + k) * np.cos(y / 20 - k) for k in range(3)], axis=2)
    smooth = waves.round().astype(np.uint8)
    chain = Chain(WARPS)
    params = chain.draw((120, 160), np.random.default_rng(seed))
    one_by_one, masks = smooth, np.ones((120, 160), np.uint8)
    for step in params:
        one_by_one, masks = step.transform.image(one_by_one, step.params), step.transform.mask(masks, step.params)
    warps = []
    monkeypatch.setattr(functional, "warp", lambda *args: warps.append(1) or warp(*args))
    at_once, mask = chain.image(smooth, params), chain.mask(np.ones((120, 160), np.uint8), params)
    assert len(warps) == 2
    inside = minimum_filter(masks, 9, mode="constant") == 1  # what none of them has cut off, or mixed with a border
    assert inside.mean() > 0.3
    assert np.abs(at_once.astype(int) - one_by_one)[inside].max() <= 2  # a rounding for each of three that are saved
    assert (mask >= masks).mean() > 0.98


def test_warps_that_do_not_interpolate_or_fill_with_other_colours_stay_apart(monkeypatch):
    for pair in ([Rotate(20), Rotate(20)], [Rotate(20, "bilinear"), Affine(5, fill=9)], [Rotate(20, "bilinear"), FlipX(1.0), Affine(5)]):
        chain = Chain(pair)
        params = chain.draw((20, 30), np.random.default_rng(0))
        expected = IMAGE
        for step in params:
            expected = step.transform.image(expected, step.params)
        assert_array_equal(chain.image(IMAGE, params), expected)


def test_boxes_and_what_sees_them_go_by_the_one_warp_that_the_image_goes_by():
    image, box = np.zeros((60, 80), np.uint8), np.float32([[50, 20, 78, 40]])
    image[20:40, 50:78] = 1
    chain = Chain([Translate((0.6, 0)), Translate((0.6, 0)), Affine(5), SanitizeBoxes(min_visibility=0.2)])
    came_back = 0
    for seed in range(100):
        params = chain.draw_for(image.shape, np.random.default_rng(seed), Seen(box, np.ones(1, np.float32)))
        mask, (moved,) = chain.mask(image, params), chain.boxes(box, params, image.shape)
        share = float(mask.sum() / image.sum())
        if not moved.any():
            assert share < 0.4
            continue
        rows, columns = np.nonzero(mask)
        found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        assert (moved[:2] <= np.array(found[:2]) + 1).all() and (moved[2:] >= np.array(found[2:]) - 1).all()
        came_back += bool(params[0].transform.boxes(box, params[0].params, image.shape)[0, 2] >= 80 and share > 0.95)
    assert came_back > 5
