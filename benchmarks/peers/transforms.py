"""Transforms of one image of 256x256x3 bytes, one after the other in one thread: highway's, and those of its peers.

The argument is a folder with ``job.json``: ``seconds`` of processor time that a turn takes; ``--list`` instead tells the rows. A mode is a
row of the table below and, behind a colon, whose transform it is. highway, Albumentations and torchvision draw for each image, as in use;
OpenCV and Pillow are called directly, with fixed parameters. All get their own kind of image: an array, torchvision a tensor with the
channels first, Pillow its Image.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"

import albumentations as A
import cv2
import direct
import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from worker import serve

import highway.transforms as T
from highway.data import photos
from highway.images.ops import cv2_or_none
from highway.modules import Augmentations
from samples import Came, load

try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):  # its operators need CUDA's libraries; transforms need none of them
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from torchvision import tv_tensors
from torchvision.transforms import v2

cv2_or_none()  # switches off OpenCV's threads
torch.set_num_threads(1)
SIDE = 256
SIZE = (SIDE, SIDE)
CROP, ASIDE = (200, 200), (20, 30)
BILINEAR = v2.InterpolationMode.BILINEAR
TURN = cv2.getRotationMatrix2D((SIDE / 2, SIDE / 2), 20, 1)
CORNERS = np.float32([[0, 0], [SIDE, 0], [SIDE, SIDE], [0, SIDE]])
TILT = cv2.getPerspectiveTransform(CORNERS, CORNERS + np.float32([[9, 20], [-30, 5], [-20, -10], [25, -15]]))
PLACES = (np.indices(SIZE, np.float32)[::-1] + np.random.default_rng(0).normal(0, 3, (2, *SIZE))).astype(np.float32)
TABLE = np.random.default_rng(0).integers(0, 256, 256, np.uint8)
LINE = np.eye(5, dtype=np.float32) / 5
GREY = cv2.COLOR_RGB2GRAY
JITTER = (0.4, 0.4, 0.4, 0.1)


def enhanced(kind: Any) -> Callable[[Image.Image], Image.Image]:
    return lambda image: kind(image).enhance(1.3)


def scaled(image: np.ndarray) -> np.ndarray:
    return np.multiply(image, np.float32(1 / 255), dtype=np.float32)


# Of each transform highway's, OpenCV's, Pillow's, Albumentations' and torchvision's; None where one has none.
ROWS: dict[str, tuple[Any, Any, Any, Any, Any]] = {
    "RandomResizedCrop": (
        T.RandomResizedCrop((224, 224)),
        lambda i: cv2.resize(i[20:220, 30:230], (224, 224)),
        lambda i: i.resize((224, 224), Image.Resampling.BILINEAR, (30, 20, 230, 220)),
        A.RandomResizedCrop((224, 224), p=1),
        v2.RandomResizedCrop((224, 224), antialias=False),
    ),
    "Resize": (
        T.Resize((224, 224), interpolation="bilinear"),
        lambda i: cv2.resize(i, (224, 224)),
        lambda i: i.resize((224, 224), Image.Resampling.BILINEAR),
        A.Resize(224, 224, p=1),
        v2.Resize((224, 224), antialias=False),
    ),
    "LargeScaleJitter": (
        T.LargeScaleJitter(SIZE, (0.5, 1.5)),
        None,
        None,
        A.RandomScale((-0.5, 0.5), p=1),
        v2.ScaleJitter(SIZE, (0.5, 1.5), antialias=False),
    ),
    "FlipX": (T.FlipX(1.0), lambda i: cv2.flip(i, 1), ImageOps.mirror, A.HorizontalFlip(p=1), v2.RandomHorizontalFlip(1)),
    "FlipY": (T.FlipY(1.0), lambda i: cv2.flip(i, 0), ImageOps.flip, A.VerticalFlip(p=1), v2.RandomVerticalFlip(1)),
    "Rotate90": (T.Rotate90(), lambda i: cv2.rotate(i, 0), lambda i: i.transpose(2), A.RandomRotate90(p=1), None),
    "D4": (T.D4(), None, None, A.D4(p=1), None),
    "RandomCrop": (T.RandomCrop(CROP), None, lambda i: i.crop((30, 20, 230, 220)), A.RandomCrop(*CROP, p=1), v2.RandomCrop(CROP)),
    "Pad": (
        T.Pad(16),
        lambda i: cv2.copyMakeBorder(i, 16, 16, 16, 16, cv2.BORDER_CONSTANT),
        lambda i: ImageOps.expand(i, 16),
        A.Pad(16, p=1),
        v2.Pad(16),
    ),
    "RandomZoomOut": (T.RandomZoomOut(side_range=(1, 1.5), p=1), None, None, None, v2.RandomZoomOut(side_range=(1, 1.5), p=1)),
    "Rotate": (
        T.Rotate(30.0, "bilinear"),
        lambda i: cv2.warpAffine(i, TURN, SIZE),
        lambda i: i.rotate(20, Image.Resampling.BILINEAR),
        A.Rotate((-30, 30), p=1),
        v2.RandomRotation(30, BILINEAR),
    ),
    "Affine": (
        T.Affine(20.0, (0.1, 0.1), (0.8, 1.2), 10.0),
        lambda i: cv2.warpAffine(i, TURN, SIZE),
        None,
        A.Affine(scale=(0.8, 1.2), translate_percent=(-0.1, 0.1), rotate=(-20, 20), shear=(-10, 10), p=1),
        v2.RandomAffine(20, (0.1, 0.1), (0.8, 1.2), 10, BILINEAR),
    ),
    "Perspective": (T.Perspective(p=1), lambda i: cv2.warpPerspective(i, TILT, SIZE), None, A.Perspective(p=1), v2.RandomPerspective(p=1)),
    "Elastic": (T.Elastic(), lambda i: cv2.remap(i, *PLACES, 1), None, A.ElasticTransform(50, 5, p=1), v2.ElasticTransform()),
    "GridDistortion": (T.GridDistortion(), lambda i: cv2.remap(i, *PLACES, 1), None, A.GridDistortion(p=1), None),
    "Brightness": (
        T.Brightness(),
        lambda i: cv2.LUT(i, TABLE),
        enhanced(ImageEnhance.Brightness),
        A.RandomBrightnessContrast(0.4, 0, p=1),
        v2.ColorJitter(0.4),
    ),
    "Contrast": (
        T.Contrast(),
        None,
        enhanced(ImageEnhance.Contrast),
        A.ColorJitter((1, 1), (0.6, 1.4), (1, 1), (0, 0), p=1),
        v2.ColorJitter(0, 0.4),
    ),
    "Saturation": (
        T.Saturation(),
        None,
        enhanced(ImageEnhance.Color),
        A.ColorJitter((1, 1), (1, 1), (0.6, 1.4), (0, 0), p=1),
        v2.ColorJitter(0, 0, 0.4),
    ),
    "Hue": (T.Hue(), direct.hue, None, A.HueSaturationValue(20, 0, 0, p=1), v2.ColorJitter(0, 0, 0, 0.1)),
    "ColorJitter": (
        T.ColorJitter(),
        None,
        None,
        A.ColorJitter((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1), p=1),
        v2.ColorJitter(*JITTER),
    ),
    "Grayscale": (
        T.Grayscale(),
        lambda i: cv2.cvtColor(cv2.cvtColor(i, GREY), cv2.COLOR_GRAY2RGB),
        lambda i: ImageOps.grayscale(i).convert("RGB"),
        A.ToGray(p=1),
        v2.Grayscale(3),
    ),
    "Gamma": (T.Gamma(), lambda i: cv2.LUT(i, TABLE), None, A.RandomGamma(p=1), None),
    "Posterize": (T.Posterize(1.0), lambda i: i & 0xF0, lambda i: ImageOps.posterize(i, 4), A.Posterize(4, p=1), v2.RandomPosterize(4, 1)),
    "Solarize": (T.Solarize(1.0), lambda i: cv2.LUT(i, TABLE), ImageOps.solarize, A.Solarize(p=1), v2.RandomSolarize(128, 1)),
    "Invert": (T.Invert(1.0), cv2.bitwise_not, ImageOps.invert, A.InvertImg(p=1), v2.RandomInvert(1)),
    "AutoContrast": (T.AutoContrast(1.0), None, ImageOps.autocontrast, A.AutoContrast(p=1), v2.RandomAutocontrast(1)),
    "Equalize": (T.Equalize(1.0), direct.equalize, ImageOps.equalize, A.Equalize(p=1), v2.RandomEqualize(1)),
    "CLAHE": (T.CLAHE(1.0), direct.clahe, None, A.CLAHE((4, 4), p=1), None),
    "Sharpness": (T.Sharpness(), direct.sharpness, enhanced(ImageEnhance.Sharpness), A.Sharpen(p=1), v2.RandomAdjustSharpness(1.3, 1)),
    "Lighting": (T.Lighting(), None, None, A.FancyPCA(p=1), None),
    "GaussianBlur": (
        T.GaussianBlur((1.5, 1.5), 7),
        lambda i: cv2.GaussianBlur(i, (7, 7), 1.5),
        lambda i: i.filter(ImageFilter.GaussianBlur(1.5)),
        A.GaussianBlur((7, 7), (1.5, 1.5), p=1),
        v2.GaussianBlur(7, 1.5),
    ),
    "MedianBlur": (T.MedianBlur((5, 5)), lambda i: cv2.medianBlur(i, 5), None, A.MedianBlur((5, 5), p=1), None),
    "MotionBlur": (T.MotionBlur((5, 5)), lambda i: cv2.filter2D(i, -1, LINE), None, A.MotionBlur((5, 5), p=1), None),
    "GaussianNoise": (T.GaussianNoise(), direct.noise, None, A.GaussNoise((0.02, 0.1), p=1), v2.GaussianNoise(0, 0.06)),
    "SaltPepper": (T.SaltPepper(), None, None, A.SaltAndPepper((0.1, 0.1), p=1), None),
    "ISONoise": (T.ISONoise(), None, None, A.ISONoise(p=1), None),
    "JpegNoise": (T.JpegNoise((70, 70)), direct.jpeg, direct.pillow_jpeg, A.ImageCompression("jpeg", (70, 70), p=1), None),
    "RandomErasing": (T.RandomErasing(1.0), direct.erasing, None, A.Erasing(p=1), v2.RandomErasing(1)),
    "CoarseDropout": (T.CoarseDropout(1.0), direct.erasing, None, A.CoarseDropout(p=1), None),
    "Normalize": (
        T.Normalize(),
        None,
        None,
        A.Normalize(p=1),
        v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]),
    ),
    "ToFloat": (T.ToFloat(), scaled, None, A.ToFloat(255, p=1), v2.ToDtype(torch.float32, scale=True)),
    "MinMaxNormalize": (
        T.MinMaxNormalize(0, 1),
        lambda i: cv2.normalize(i, None, 0, 1, cv2.NORM_MINMAX, cv2.CV_32F),
        None,
        A.Normalize(normalization="min_max", p=1),
        None,
    ),
    "MeanVarianceNormalize": (T.MeanVarianceNormalize(), None, None, A.Normalize(normalization="image", p=1), None),
    "RandAugment": (T.RandAugment(), None, None, None, v2.RandAugment()),
    "TrivialAugmentWide": (T.TrivialAugmentWide(), None, None, None, v2.TrivialAugmentWide()),
    "AutoAugment": (T.AutoAugment(), None, None, None, v2.AutoAugment()),
    "AugMix": (T.AugMix(), None, None, None, v2.AugMix()),
}
LIBRARIES = ("highway", "cv2", "Pillow", "Albumentations", "torchvision")
CHAIN = "detection chain"  # of an image of 480x640 with 12 boxes


def pictures(shape: tuple[int, int]) -> list[np.ndarray]:
    """Return eight photographs of one size."""
    paths = sorted(Path(photos()).rglob("*.jpg"))[::4][:8]
    return [np.asarray(Image.open(path).convert("RGB").resize(shape[::-1])) for path in paths]


def change(row: str, library: str) -> tuple[Callable[[Any], Any], list[Any]]:
    """Return a function, and the images that it gets."""
    if row == CHAIN:
        return detection(library)
    kind, images = LIBRARIES.index(library), pictures(SIZE)
    transform = ROWS[row][kind]
    if library == "highway":
        rng = np.random.default_rng(0)
        return (lambda image: transform(image, rng)), images
    if library == "Pillow":
        return transform, [Image.fromarray(image) for image in images]
    if library == "Albumentations":
        return (lambda image: transform(image=image)["image"]), images
    if library == "torchvision":
        return transform, [torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))) for image in images]
    return transform, images


def detection(library: str) -> tuple[Callable[[Any], Any], list[Any]]:
    rng, shape = np.random.default_rng(0), (480, 640)
    corners = rng.integers(0, (500, 360), (12, 2))
    boxes, labels = np.hstack([corners, corners + rng.integers(20, 120, (12, 2))]).astype(np.float32), np.arange(12)
    if library == "highway":
        several = [T.LargeScaleJitter((512, 512), (0.5, 1.5)), T.RandomIoUCrop(), T.FlipX(), T.ColorJitter(*JITTER), T.SanitizeBoxes()]
        augment = Augmentations(several, boxes="boxes", with_boxes=["labels"])
        return partial(augment, rng=rng), [{"image": image, "boxes": boxes, "labels": labels} for image in pictures(shape)]
    jitter = v2.ScaleJitter((512, 512), (0.5, 1.5), antialias=False)
    chain = v2.Compose([jitter, v2.RandomIoUCrop(), v2.RandomHorizontalFlip(), v2.ColorJitter(*JITTER), v2.SanitizeBoundingBoxes()])
    samples = []
    for image in pictures(shape):
        tensor = tv_tensors.Image(torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))))
        around = tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=shape)
        samples.append({"image": tensor, "boxes": around, "labels": torch.from_numpy(labels)})
    return chain, samples


def prepare(job: dict[str, Any], mode: str) -> Callable[[], Iterator[tuple[Came, None]]]:
    row, _, library = mode.partition(":")
    function, images = change(row, library)

    def turn() -> Iterator[tuple[Came, None]]:
        until, done = time.thread_time() + job["seconds"], 0
        while time.thread_time() < until:
            for image in images:
                function(image)
            done += len(images)
        yield Came(done, 0), None

    return turn


def listed() -> dict[str, list[str]]:
    """Return the rows, and the libraries that have each."""
    rows = {row: [library for library, one in zip(LIBRARIES, several, strict=True) if one is not None] for row, several in ROWS.items()}
    return rows | {CHAIN: ["highway", "torchvision"]}


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print(json.dumps(listed()))
        raise SystemExit
    serve(prepare, "albumentations", "opencv-python-headless", "pillow", "torch", "torchvision", load=load)
