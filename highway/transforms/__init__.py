"""Transforms of one image and what belongs to it: what one is in :mod:`highway.transforms.base`, and highway's own."""

from typing import TYPE_CHECKING

from highway.lazy import import_when_asked

if TYPE_CHECKING:
    from highway.transforms.base import BoxCrop, Crop, Geometric, RunCrop, Transform, TransformLike, Writing
    from highway.transforms.color import (
        AdditiveNoise,
        Brightness,
        Contrast,
        Grayscale,
        HistEq,
        Normalize,
        RescaleImages,
        Saturation,
    )
    from highway.transforms.crop import CenterCrop, RandomCrop, RandomResizedCrop, Slicer, TopCenterCrop, covering_box
    from highway.transforms.geometry import FlipX, FlipY, PadCrop, Resize, Rotate, Shift, Zoom

__all__ = [
    "AdditiveNoise",
    "BoxCrop",
    "Brightness",
    "CenterCrop",
    "Contrast",
    "Crop",
    "FlipX",
    "FlipY",
    "Geometric",
    "Grayscale",
    "HistEq",
    "Normalize",
    "PadCrop",
    "RandomCrop",
    "RandomResizedCrop",
    "RescaleImages",
    "Resize",
    "Rotate",
    "RunCrop",
    "Saturation",
    "Shift",
    "Slicer",
    "TopCenterCrop",
    "Transform",
    "TransformLike",
    "Writing",
    "Zoom",
    "covering_box",
]

import_when_asked(
    __name__,
    {
        "base": "BoxCrop Crop Geometric RunCrop Transform TransformLike Writing",
        "color": "AdditiveNoise Brightness Contrast Grayscale HistEq Normalize RescaleImages Saturation",
        "crop": "CenterCrop RandomCrop RandomResizedCrop Slicer TopCenterCrop covering_box",
        "geometry": "FlipX FlipY PadCrop Resize Rotate Shift Zoom",
    },
)
