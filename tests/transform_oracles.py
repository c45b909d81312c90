"""What the oracles of the transforms have in common: torchvision, Albumentations, one scene, and how far two images may be apart."""

from __future__ import annotations

import os

import numpy as np
import pytest
from without_operators import torchvision_without_operators

ELSEWHERE = "runs by `tox -e oracles-transforms`"
os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # else its import asks the network for a newer one
A = pytest.importorskip("albumentations", reason=ELSEWHERE)
torch = pytest.importorskip("torch", reason=ELSEWHERE)
torch.set_num_threads(1)

torchvision_without_operators()
from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional as TF  # noqa: E402

from highway.datasets import ImageFolder  # noqa: E402
from highway.images.decode import decode  # noqa: E402

__all__ = ["TF", "A", "torch", "tv_tensors", "v2"]
HEIGHT, WIDTH = 120, 160
IMAGE = decode(ImageFolder("highway:photos/val")[9][0])[40 : 40 + HEIGHT, 60 : 60 + WIDTH].copy()
MASK = np.zeros((HEIGHT, WIDTH), np.uint8)
MASK[20:70, 30:90] = 1
MASK[60:110, 80:150] = 2
BOXES = np.float32([[30, 20, 90, 70], [80, 60, 150, 110], [0, 0, 20, 119], [100.5, 3.25, 158, 40]])
POINTS = np.float32([[40.5, 30.5], [100.5, 80.25], [5, 115], [150, 10], [80, 60]])
INSIDE = 1e-3


def channels_first(image):
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(image, -1, 0) if image.ndim == 3 else image[None]))


def channels_last(image):
    array = np.moveaxis(np.asarray(image), 0, -1)
    return array[..., 0] if array.shape[-1] == 1 else array


def by_torchvision(function, image):
    """Return what a functional of torchvision makes of an image ``(H, W, C)``."""
    return channels_last(function(channels_first(image)))


def boxes_by_torchvision(function, boxes=BOXES, size=(HEIGHT, WIDTH)):
    """Return where its boxes go, clipped to the image."""
    given = tv_tensors.BoundingBoxes(torch.from_numpy(boxes.copy()), format="XYXY", canvas_size=size, clamping_mode="hard")
    return np.asarray(function(given))


def points_by_torchvision(function, by_pixels, points=POINTS, size=(HEIGHT, WIDTH)):
    """Return where its points go; it counts in pixels' indices where it flips and in corners where it warps."""
    given = torch.from_numpy(points - np.float32(by_pixels / 2))
    return np.asarray(function(tv_tensors.KeyPoints(given, canvas_size=size))) + by_pixels / 2


def assert_alike(found, expected, levels=0.0, outliers=0.0):
    """See that no more than a share of the values are further apart than so many levels."""
    assert found.shape == expected.shape
    apart = np.abs(found.astype(np.float64) - np.asarray(expected, np.float64))
    far = (apart > levels).mean()
    assert far <= outliers, f"{far:.3%} of the values are more than {levels} apart, up to {apart.max():g}; on average {apart.mean():g}"


def assert_same_boxes(found, expected, within=0.01):
    """See that boxes are equal; where nothing is left of one, highway says (0, 0, 0, 0), and others keep an empty one on the border."""
    sides = expected[:, 2:] - expected[:, :2]
    np.testing.assert_allclose(found, np.where((sides > INSIDE).all(axis=1)[:, None], expected, 0), atol=within)
