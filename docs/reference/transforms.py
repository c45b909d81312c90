"""Draw the picture of docs/reference/transforms.md: a cell for each transform, and for each stage that mixes images.

Run it in the top folder: ``python docs/reference/transforms.py [PICTURE]``.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from highway import transforms as T
from highway.cli.pictures.before_after import applied
from highway.cli.pictures.examples import Example, packaged, tile
from highway.cli.pictures.output import put_out
from highway.images.grid import Tile, draw_grid
from highway.modules import Augmentations, CopyPaste, CutMix, MixUp, Mosaic

COLUMNS, SIZE = 6, 160  # cells in a row; pixels of each image's longer side
_VEIL, _NO_VEIL = 0.25, 0.0


class Group(NamedTuple):
    """A group of cells with one title.

    Args:
        title: The title above the cells.
        cells: The transforms, or stages.
        veil: The opacity of the masks' colour on the images.
        image: The name of the photograph.
    """

    title: str
    cells: Sequence[Any]
    veil: float = _NO_VEIL
    image: str = "astronaut_00"


SEEDS = {"D4": 5, "Rotate": 4, "RotateAndCropValid": 2, "Zoom": 2, "RandAugment": 2, "AutoAugment": 0, "AugMix": 0}
"""The seeds of transforms whose effect is hard to see with the default seed, 3."""

_TRIES = 8  # maximum seeds to try until the transform changes the image

GROUPS = (
    Group(
        "Moves pixels",
        [
            *[T.FlipX(p=1.0), T.FlipY(p=1.0), T.Transpose(p=1.0), T.Rotate90(), T.D4()],
            *[T.Shift(0.2), T.PadCrop(40), T.Pad(30), T.Paste((360, 400), "random"), T.RandomZoomOut(p=1.0)],
            *[T.CenterCrop((200, 200)), T.RandomCrop((200, 200)), T.TopCenterCrop((160, 240)), T.RandomCropRandomShape(120, 120)],
            T.Slicer(0.6, 0.7),
        ],
        _VEIL,
    ),
    Group(
        "Scales, and samples between pixels",
        [
            *[T.Resize((200, 200)), T.ResizeShortestEdge((160, 200)), T.RandomResize((0.5, 1.5), (0.5, 1.5))],
            *[T.LargeScaleJitter((256, 256)), T.RandomResizedCrop((224, 224)), T.Rotate(30), T.RotateAndCropValid(30), T.Zoom(0.4)],
            *[T.Affine(20, scale=(0.7, 1.3)), T.Shear(20), T.Translate((0.2, 0.2)), T.Perspective(p=1.0)],
            *[T.Elastic(400, 10), T.GridDistortion(distort_limit=0.7)],
        ],
        _VEIL,
    ),
    Group(
        "Goes by the boxes",
        [T.RandomIoUCrop(), T.BoxSafeCrop(), T.SanitizeBoxes(min_size=20)],
        _VEIL,
        "rocket_06",
    ),
    Group(
        "Changes colours and levels",
        [
            *[T.Brightness(0.6), T.Contrast(0.8), T.Saturation(0.9), T.Sharpness(8.0), T.Hue(0.4), T.ColorJitter(), T.Gamma((0.4, 2.0))],
            *[T.Grayscale(), T.Posterize(p=1.0, bits=2), T.Solarize(p=1.0), T.Invert(p=1.0), T.AutoContrast(p=1.0), T.Equalize(p=1.0)],
            *[T.HistEq(), T.CLAHE(p=1.0), T.ColorSpace("RGB2HSV"), T.Lighting(0.5), T.Clip(60, 180)],
        ],
        image="cat_05",
    ),
    Group(
        "Changes what values stand for",
        [
            *[T.RescaleImages(), T.Normalize(), T.ToFloat(), T.ToUint8()],
            *[T.MinMaxNormalize(), T.MeanVarianceNormalize()],
        ],
    ),
    Group(
        "Adds noise, blurs, leaves out",
        [
            *[T.AdditiveNoise(1.0), T.GaussianNoise((40, 40)), T.SaltPepper(), T.ISONoise(), T.JpegNoise((5, 10))],
            *[T.GaussianBlur((2, 3)), T.MedianBlur((7, 11)), T.MotionBlur((9, 15))],
            *[T.RandomErasing(p=1.0, fill="random"), T.CoarseDropout(p=1.0, num_holes=(6, 8)), T.Cutout(p=1.0, fill=128)],
        ],
    ),
    Group("Policies", [T.RandAugment(), T.TrivialAugmentWide(), T.AutoAugment(), T.AugMix(severity=10)], _VEIL),
    Group(
        "Made of transforms, or of a function",
        [
            T.Chain((T.FlipX(p=1.0), T.Invert(p=1.0))),
            T.Sometimes(1.0, T.Rotate(15)),
            T.OneOf((T.FlipY(p=1.0), T.Grayscale())),
            T.SomeOf(2, (T.FlipX(p=1.0), T.Rotate(15), T.Invert(p=1.0))),
            T.Shuffled((T.Rotate(30), T.Shift(0.2))),
            T.Lambda(np.invert),
        ],
        _VEIL,
    ),
    Group("Several images at a time", [MixUp(), CutMix(), Mosaic((256, 256)), CopyPaste("boxes", "mask")], _VEIL),
)


def draw(size: int) -> Image.Image:
    """Return the picture, with images of ``size`` pixels on the longer side. A comment in the picture's file lists the cells."""
    examples = packaged()
    parts = [draw_grid(tiles(group, examples, size), COLUMNS, size, group.title) for group in GROUPS]
    picture = Image.new("RGB", (max(part.width for part in parts), sum(part.height for part in parts)), parts[0].getpixel((0, 0)))
    picture.info["comment"] = ", ".join(type(cell).__name__ for group in GROUPS for cell in group.cells)
    top = 0
    for part in parts:
        picture.paste(part, (0, top))
        top += part.height
    return picture


def tiles(group: Group, examples: dict[str, Example], size: int) -> list[Tile]:
    """Return the cells of a group, after a cell with the original image."""
    first = examples[group.image]
    tiles = [tile(first, size, "(before)", veil=group.veil)]
    same = Augmentations([T.Resize((256, 256), interpolation="bilinear")], boxes="boxes")  # stages that mix images need equal sizes
    for cell in group.cells:
        name = type(cell).__name__
        stages, given = [same, cell], examples
        if isinstance(cell, T.TransformLike):
            stages, given = [Augmentations([cell], boxes="boxes")], {group.image: first}
        for seed in range(_TRIES):
            (text, example), *_ = applied(stages, given, (SEEDS.get(name, 3) + seed,))
            if not np.array_equal(example["image"], first["image"]) or len(example["boxes"]) < len(first["boxes"]):
                break
        parts = re.sub(r"_\d+", "", text)  # of the images that are mixed, without their numbers
        tiles.append(tile(example, size, name, arguments(cell) or parts or _range(example["image"]), veil=group.veil))
    return tiles


def _range(image: np.ndarray) -> str:
    """Return the range of an image of floats, because a picture does not show it; return an empty text for uint8 images."""
    return "" if image.dtype == np.uint8 else f"{image.min():.2f} to {image.max():.2f}"


def arguments(cell: Any) -> str:
    """Return the arguments of a transform that differ from the defaults, as they are written in Python."""
    parts = []
    for field in dataclasses.fields(cell):
        value = getattr(cell, field.name)
        if not field.init or value == field.default or value == []:
            continue
        if field.name == "transforms":
            shown = ", ".join(type(one).__name__ for one in _each(value))
        else:
            shown = getattr(value, "__name__", re.sub(r"\.0\b", "", repr(value)))
        parts.append(shown if field.default is dataclasses.MISSING else f"{field.name}={shown}")
    return ", ".join(parts)


def _each(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else (value,)


if __name__ == "__main__":
    put_out(draw(SIZE), "transforms", sys.argv[1] if sys.argv[1:] else "docs/reference/transforms.jpg", "transforms.jpg")
