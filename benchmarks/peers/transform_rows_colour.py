"""Transforms that leave pixels in place, and policies: of each highway's, as drawn and as a plain function, and those of its peers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import albumentations as A
import cv2
import direct
import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torchvision_v2 import v2
from transform_rows import JITTER, Row

import highway.transforms as T
from highway import functional as F

RNG = np.random.default_rng(0)
TABLE = RNG.integers(0, 256, 256, np.uint8)
LINE = np.eye(5, dtype=np.float32) / 5
GREY = cv2.COLOR_RGB2GRAY
HOLES = [(40, 60, 80, 80)]


def enhanced(kind: Any) -> Callable[[Image.Image], Image.Image]:
    return lambda image: kind(image).enhance(1.3)


def scaled(image: np.ndarray) -> np.ndarray:
    return np.multiply(image, np.float32(1 / 255), dtype=np.float32)


ROWS: dict[str, Row] = {
    "Brightness": (
        T.Brightness(),
        lambda i: F.brightness(i, 1.3),
        lambda i: cv2.LUT(i, TABLE),
        enhanced(ImageEnhance.Brightness),
        A.RandomBrightnessContrast(0.4, 0, p=1),
        v2.ColorJitter(0.4),
    ),
    "Contrast": (
        T.Contrast(),
        lambda i: F.contrast(i, 1.3),
        None,
        enhanced(ImageEnhance.Contrast),
        A.ColorJitter((1, 1), (0.6, 1.4), (1, 1), (0, 0), p=1),
        v2.ColorJitter(0, 0.4),
    ),
    "Saturation": (
        T.Saturation(),
        lambda i: F.saturation(i, 1.3),
        None,
        enhanced(ImageEnhance.Color),
        A.ColorJitter((1, 1), (1, 1), (0.6, 1.4), (0, 0), p=1),
        v2.ColorJitter(0, 0, 0.4),
    ),
    "Hue": (T.Hue(), lambda i: F.hue(i, 20 / 256), direct.hue, None, A.HueSaturationValue(20, 0, 0, p=1), v2.ColorJitter(0, 0, 0, 0.1)),
    "ColorJitter": (
        T.ColorJitter(),
        None,
        None,
        None,
        A.ColorJitter((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1), p=1),
        v2.ColorJitter(*JITTER),
    ),
    "Grayscale": (
        T.Grayscale(),
        F.grayscale,
        lambda i: cv2.cvtColor(cv2.cvtColor(i, GREY), cv2.COLOR_GRAY2RGB),
        lambda i: ImageOps.grayscale(i).convert("RGB"),
        A.ToGray(p=1),
        v2.Grayscale(3),
    ),
    "ColorSpace": (
        T.ColorSpace("RGB2HSV"),
        lambda i: F.color_space(i, "RGB2HSV"),
        lambda i: cv2.cvtColor(i, cv2.COLOR_RGB2HSV),
        lambda i: i.convert("HSV"),
        None,
        None,
    ),
    "Gamma": (T.Gamma(), lambda i: F.gamma(i, 1.1), lambda i: cv2.LUT(i, TABLE), None, A.RandomGamma(p=1), None),
    "Posterize": (
        T.Posterize(1.0),
        lambda i: F.posterize(i, 4),
        lambda i: i & 0xF0,
        lambda i: ImageOps.posterize(i, 4),
        A.Posterize(4, p=1),
        v2.RandomPosterize(4, 1),
    ),
    "Solarize": (
        T.Solarize(1.0),
        lambda i: F.solarize(i, 0.5),
        lambda i: cv2.LUT(i, TABLE),
        ImageOps.solarize,
        A.Solarize(p=1),
        v2.RandomSolarize(128, 1),
    ),
    "Invert": (T.Invert(1.0), F.invert, cv2.bitwise_not, ImageOps.invert, A.InvertImg(p=1), v2.RandomInvert(1)),
    "AutoContrast": (T.AutoContrast(1.0), F.autocontrast, None, ImageOps.autocontrast, A.AutoContrast(p=1), v2.RandomAutocontrast(1)),
    "Equalize": (T.Equalize(1.0), F.equalize, direct.equalize, ImageOps.equalize, A.Equalize(p=1), v2.RandomEqualize(1)),
    "CLAHE": (T.CLAHE(1.0), F.clahe, direct.clahe, None, A.CLAHE((4, 4), p=1), None),
    "Sharpness": (
        T.Sharpness(),
        lambda i: F.sharpness(i, 1.4),
        direct.sharpness,
        enhanced(ImageEnhance.Sharpness),
        A.Sharpen(p=1),
        v2.RandomAdjustSharpness(1.3, 1),
    ),
    "Lighting": (T.Lighting(), lambda i: F.lighting(i, (0.1, 0.05, -0.1)), None, None, A.FancyPCA(p=1), None),
    "GaussianBlur": (
        T.GaussianBlur((1.5, 1.5), 7),
        lambda i: F.gaussian_blur(i, 1.5, 7),
        lambda i: cv2.GaussianBlur(i, (7, 7), 1.5),
        lambda i: i.filter(ImageFilter.GaussianBlur(1.5)),
        A.GaussianBlur((7, 7), (1.5, 1.5), p=1),
        v2.GaussianBlur(7, 1.5),
    ),
    "MedianBlur": (
        T.MedianBlur((5, 5)),
        lambda i: F.median_blur(i, 5),
        lambda i: cv2.medianBlur(i, 5),
        None,
        A.MedianBlur((5, 5), p=1),
        None,
    ),
    "MotionBlur": (
        T.MotionBlur((5, 5)),
        lambda i: F.motion_blur(i, 5, 45.0),
        lambda i: cv2.filter2D(i, -1, LINE),
        None,
        A.MotionBlur((5, 5), p=1),
        None,
    ),
    "GaussianNoise": (
        T.GaussianNoise(),
        lambda i: F.add_noise(i, 1.0, 0.0, 15.0, RNG),
        direct.noise,
        None,
        A.GaussNoise((0.02, 0.1), p=1),
        v2.GaussianNoise(0, 0.06),
    ),
    "SaltPepper": (T.SaltPepper(), lambda i: F.salt_pepper(i, rng=RNG), None, None, A.SaltAndPepper((0.1, 0.1), p=1), None),
    "ISONoise": (T.ISONoise(), lambda i: F.iso_noise(i, rng=RNG), None, None, A.ISONoise(p=1), None),
    "JpegNoise": (
        T.JpegNoise((70, 70)),
        lambda i: F.jpeg_noise(i, 70),
        direct.jpeg,
        direct.pillow_jpeg,
        A.ImageCompression("jpeg", (70, 70), p=1),
        None,
    ),
    "RandomErasing": (T.RandomErasing(1.0), lambda i: F.erase(i, HOLES), direct.erasing, None, A.Erasing(p=1), v2.RandomErasing(1)),
    "CoarseDropout": (T.CoarseDropout(1.0), lambda i: F.erase(i, HOLES), direct.erasing, None, A.CoarseDropout(p=1), None),
    "Cutout": (
        T.Cutout(1.0),
        lambda i: F.erase(i, HOLES),
        direct.erasing,
        None,
        A.CoarseDropout((1, 1), (0.25, 0.25), (0.25, 0.25), p=1),
        None,
    ),
    "Normalize": (
        T.Normalize(),
        F.normalize,
        None,
        None,
        A.Normalize(p=1),
        v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]),
    ),
    "ToFloat": (T.ToFloat(), F.to_float, scaled, None, A.ToFloat(255, p=1), v2.ToDtype(torch.float32, scale=True)),
    "MinMaxNormalize": (
        T.MinMaxNormalize(0, 1),
        lambda i: F.min_max_normalize(i, 0.0, 1.0),
        lambda i: cv2.normalize(i, None, 0, 1, cv2.NORM_MINMAX, cv2.CV_32F),
        None,
        A.Normalize(normalization="min_max", p=1),
        None,
    ),
    "MeanVarianceNormalize": (
        T.MeanVarianceNormalize(),
        F.mean_variance_normalize,
        None,
        None,
        A.Normalize(normalization="image", p=1),
        None,
    ),
    "RandAugment": (T.RandAugment(), None, None, None, None, v2.RandAugment()),
    "TrivialAugmentWide": (T.TrivialAugmentWide(), None, None, None, None, v2.TrivialAugmentWide()),
    "AutoAugment": (T.AutoAugment(), None, None, None, None, v2.AutoAugment()),
    "AugMix": (T.AugMix(), None, None, None, None, v2.AugMix()),
}
