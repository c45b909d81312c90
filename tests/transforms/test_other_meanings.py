"""Values that mean something else in tensorpack, by the same name, are errors that say so."""

import numpy as np
import pytest

from highway import functional as F
from highway import transforms as T
from highway.errors import ConfigError

LEVELS = np.linspace(0, 255, 48, dtype=np.float32).reshape(4, 4, 3)
THIN = np.zeros((1, 1000, 3), np.uint8)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            lambda: T.Brightness(30),
            r"Brightness: amount=30\.0; expected how far a factor may be .*not levels",
        ),
        (lambda: T.Contrast(10.5), r"Contrast: amount=10\.5; expected how far a factor may be from 1"),
        (lambda: T.ColorJitter(brightness=30), r"ColorJitter: brightness=30\.0; expected"),
        (lambda: T.ColorJitter(contrast=(80, 120)), r"ColorJitter: contrast=\(80\.0, 120\.0\); expected \(least, greatest\), factors"),
        (lambda: T.ResizeShortestEdge(256, 2), r"max_size=2; expected pixels of the longer edge, at least 256; .*interpolation="),
        (lambda: T.ResizeShortestEdge((200, 256), 255), r"max_size=255; expected pixels of the longer edge, at least 256"),
        (lambda: T.Lighting(0.1, (55.5, 4.8, 1.1)), r"eigval.*=.*; expected eigenvalues of colours from 0 to 1; divide .* by 255"),
        (lambda: T.RandomResize((200, 350), (200, 350)), r"xrange=\(200\.0, 350\.0\); expected .* factors, .* at most 10"),
        (
            lambda: T.LargeScaleJitter((100, 100), (80, 120)),
            r"scale_range=\(80\.0, 120\.0\); expected .* factors, .* at most 10",
        ),
        (lambda: T.RandomZoomOut(side_range=(1, 400)), r"side_range=\(1\.0, 400\.0\); expected \(least, greatest\), from 1 to 10"),
        (lambda: T.Resize(224.0), r"shape=224\.0; expected a share of the image's size, above 0 and at most 10, or \(height, width\)"),
    ],
)
def test_a_parameter_that_can_only_have_the_other_meaning_is_an_error_that_explains_it(make, expected):
    with pytest.raises(ConfigError, match=expected):
        make()


@pytest.mark.parametrize(
    ("transform", "advice"),
    [
        (T.ToUint8(), r"to_uint8: .* values up to 255; expected 0 to 1; for floats from 0 to 255, use scale=1"),
        (T.Gamma((0.8, 1.2)), r"gamma: .* values up to 255; .*; divide floats from 0 to 255 by 255 first, for example with ToFloat\(\)"),
    ],
)
def test_floats_of_0_to_255_are_refused_where_floats_span_0_to_1(transform, advice):
    with pytest.raises(ValueError, match=advice):
        transform(LEVELS, np.random.default_rng(0))


def test_floats_that_overshoot_1_a_little_are_saturated():
    assert F.to_uint8(np.array([[[-0.1, 0.5, 1.4]]], np.float32)).tolist() == [[[0, 128, 255]]]
    assert F.to_uint8(LEVELS, 1).max() == 255
    assert F.to_uint8(np.zeros((0, 3, 3), np.float32)).shape == (0, 3, 3)


@pytest.mark.parametrize("transform", [T.ResizeShortestEdge(256), T.Resize(256, "shorter"), T.Resize(256, "width")])
def test_no_edge_that_nobody_asked_for_becomes_so_long_that_it_fills_the_memory(transform):
    image = THIN if transform != T.Resize(256, "width") else THIN.transpose(1, 0, 2)
    with pytest.raises(ValueError, match=r"an image of \d+x\d+ \(height x width\) would become one of \d+x\d+; crop it first, or limit"):
        transform(image)
    assert max(T.ResizeShortestEdge(256, max_size=512)(image).shape) == 512
    assert T.Resize(256, "shorter")(np.zeros((4, 5, 3), np.uint8)).shape == (256, 320, 3)
