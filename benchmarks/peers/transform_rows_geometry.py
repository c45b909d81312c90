"""Transforms that move pixels: of each highway's, as drawn and as a plain function, and those of its peers."""

from __future__ import annotations

import albumentations as A
import cv2
import numpy as np
from PIL import Image, ImageOps
from torchvision_v2 import v2
from transform_rows import CROP, SIDE, SIZE, Row

import highway.transforms as T
from highway import functional as F

WIDE = (SIDE + 32, SIDE + 32)
BILINEAR = v2.InterpolationMode.BILINEAR
TURN = cv2.getRotationMatrix2D((SIDE / 2, SIDE / 2), 20, 1)
TURNED = F.rotation(SIZE, 20.0)
CORNERS = np.float32([[0, 0], [SIDE, 0], [SIDE, SIDE], [0, SIDE]])
TILT = cv2.getPerspectiveTransform(CORNERS, CORNERS + np.float32([[9, 20], [-30, 5], [-20, -10], [25, -15]]))
FIELD = np.random.default_rng(0).normal(0, 3, (*SIZE, 2)).astype(np.float32)
PLACES = (np.indices(SIZE, np.float32)[::-1] + FIELD.transpose(2, 0, 1)).astype(np.float32)

ROWS: dict[str, Row] = {
    "RandomResizedCrop": (
        T.RandomResizedCrop((224, 224)),
        lambda i: F.resize(F.crop(i, (20, 30), CROP), (224, 224), "bilinear"),
        lambda i: cv2.resize(i[20:220, 30:230], (224, 224)),
        lambda i: i.resize((224, 224), Image.Resampling.BILINEAR, (30, 20, 230, 220)),
        A.RandomResizedCrop((224, 224), p=1),
        v2.RandomResizedCrop((224, 224), antialias=False),
    ),
    "Resize": (
        T.Resize((224, 224), interpolation="bilinear"),
        lambda i: F.resize(i, (224, 224), "bilinear"),
        lambda i: cv2.resize(i, (224, 224)),
        lambda i: i.resize((224, 224), Image.Resampling.BILINEAR),
        A.Resize(224, 224, p=1),
        v2.Resize((224, 224), antialias=False),
    ),
    "RandomResize": (
        T.RandomResize((0.8, 1.2), (0.8, 1.2)),
        None,
        None,
        None,
        A.RandomScale((-0.2, 0.2), p=1),
        v2.RandomResize(205, 308, antialias=False),
    ),
    "ResizeShortestEdge": (
        T.ResizeShortestEdge(224),
        lambda i: F.resize(i, (224, 224), "bilinear"),
        lambda i: cv2.resize(i, (224, 224)),
        lambda i: i.resize((224, 224), Image.Resampling.BILINEAR),
        A.SmallestMaxSize(224, p=1),
        v2.Resize(224, antialias=False),
    ),
    "LargeScaleJitter": (
        T.LargeScaleJitter(SIZE, (0.5, 1.5)),
        None,
        None,
        None,
        A.RandomScale((-0.5, 0.5), p=1),
        v2.ScaleJitter(SIZE, (0.5, 1.5), antialias=False),
    ),
    "FlipX": (T.FlipX(1.0), F.flip_x, lambda i: cv2.flip(i, 1), ImageOps.mirror, A.HorizontalFlip(p=1), v2.RandomHorizontalFlip(1)),
    "FlipY": (T.FlipY(1.0), F.flip_y, lambda i: cv2.flip(i, 0), ImageOps.flip, A.VerticalFlip(p=1), v2.RandomVerticalFlip(1)),
    "Rotate90": (
        T.Rotate90(),
        lambda i: F.rotate90(i, 3),
        lambda i: cv2.rotate(i, 0),
        lambda i: i.transpose(2),
        A.RandomRotate90(p=1),
        None,
    ),
    "D4": (T.D4(), None, None, None, A.D4(p=1), None),
    "Transpose": (T.Transpose(1.0), F.transpose, cv2.transpose, lambda i: i.transpose(Image.Transpose.TRANSPOSE), A.Transpose(p=1), None),
    "RandomCrop": (
        T.RandomCrop(CROP),
        lambda i: F.crop(i, (20, 30), CROP),
        None,
        lambda i: i.crop((30, 20, 230, 220)),
        A.RandomCrop(*CROP, p=1),
        v2.RandomCrop(CROP),
    ),
    "CenterCrop": (
        T.CenterCrop(CROP),
        lambda i: F.crop(i, (28, 28), CROP),
        None,
        lambda i: i.crop((28, 28, 228, 228)),
        A.CenterCrop(*CROP, p=1),
        v2.CenterCrop(CROP),
    ),
    "Pad": (
        T.Pad(16),
        lambda i: F.paste(i, WIDE, (16, 16)),
        lambda i: cv2.copyMakeBorder(i, 16, 16, 16, 16, cv2.BORDER_CONSTANT),
        lambda i: ImageOps.expand(i, 16),
        A.Pad(16, p=1),
        v2.Pad(16),
    ),
    "PadCrop": (
        T.PadCrop(4),
        None,
        lambda i: cv2.copyMakeBorder(i, 4, 4, 4, 4, cv2.BORDER_CONSTANT)[1:257, 6:262],
        None,
        None,
        v2.RandomCrop(SIZE, padding=4),
    ),
    "Paste": (
        T.Paste((320, 320)),
        lambda i: F.paste(i, (320, 320), (32, 32)),
        lambda i: cv2.copyMakeBorder(i, 32, 32, 32, 32, cv2.BORDER_CONSTANT),
        lambda i: ImageOps.expand(i, 32),
        A.PadIfNeeded(320, 320, p=1),
        v2.Pad(32),
    ),
    "Shift": (
        T.Shift(0.1),
        lambda i: F.shift(i, (9, -12)),
        lambda i: cv2.warpAffine(i, TURN, SIZE, flags=cv2.INTER_NEAREST),
        None,
        A.Affine(translate_percent=(-0.1, 0.1), interpolation=0, p=1),
        v2.RandomAffine(0, (0.1, 0.1)),
    ),
    "RandomZoomOut": (T.RandomZoomOut(side_range=(1, 1.5), p=1), None, None, None, None, v2.RandomZoomOut(side_range=(1, 1.5), p=1)),
    "Rotate": (
        T.Rotate(30.0, "bilinear"),
        lambda i: F.rotate(i, 20, "bilinear"),
        lambda i: cv2.warpAffine(i, TURN, SIZE),
        lambda i: i.rotate(20, Image.Resampling.BILINEAR),
        A.Rotate((-30, 30), p=1),
        v2.RandomRotation(30, BILINEAR),
    ),
    "RotateAndCropValid": (T.RotateAndCropValid(30.0), None, None, None, A.Rotate((-30, 30), crop_border=True, p=1), None),
    "Affine": (
        T.Affine(20.0, (0.1, 0.1), (0.8, 1.2), 10.0),
        lambda i: F.warp(i, TURNED, SIZE),
        lambda i: cv2.warpAffine(i, TURN, SIZE),
        None,
        A.Affine(scale=(0.8, 1.2), translate_percent=(-0.1, 0.1), rotate=(-20, 20), shear=(-10, 10), p=1),
        v2.RandomAffine(20, (0.1, 0.1), (0.8, 1.2), 10, BILINEAR),
    ),
    "Shear": (
        T.Shear(10.0),
        None,
        lambda i: cv2.warpAffine(i, TURN, SIZE),
        None,
        A.Affine(shear=(-10, 10), p=1),
        v2.RandomAffine(0, shear=10, interpolation=BILINEAR),
    ),
    "Translate": (
        T.Translate((0.1, 0.1)),
        None,
        lambda i: cv2.warpAffine(i, TURN, SIZE),
        None,
        A.Affine(translate_percent=(-0.1, 0.1), p=1),
        v2.RandomAffine(0, (0.1, 0.1), interpolation=BILINEAR),
    ),
    "Zoom": (
        T.Zoom(0.2, "bilinear"),
        lambda i: F.clipped_zoom(i, 1.2, "bilinear"),
        lambda i: cv2.warpAffine(i, TURN, SIZE),
        None,
        A.Affine(scale=(0.8, 1.2), p=1),
        v2.RandomAffine(0, scale=(0.8, 1.2), interpolation=BILINEAR),
    ),
    "Perspective": (
        T.Perspective(p=1),
        lambda i: F.warp(i, TILT, SIZE),
        lambda i: cv2.warpPerspective(i, TILT, SIZE),
        None,
        A.Perspective(p=1),
        v2.RandomPerspective(p=1),
    ),
    "Elastic": (
        T.Elastic(),
        lambda i: F.displace(i, FIELD),
        lambda i: cv2.remap(i, *PLACES, 1),
        None,
        A.ElasticTransform(50, 5, p=1),
        v2.ElasticTransform(),
    ),
    "GridDistortion": (
        T.GridDistortion(),
        lambda i: F.displace(i, FIELD),
        lambda i: cv2.remap(i, *PLACES, 1),
        None,
        A.GridDistortion(p=1),
        None,
    ),
}
