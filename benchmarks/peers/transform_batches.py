"""What takes more than one image, or boxes: a chain for detection, small images in batches, and several images put together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import albumentations as A
import numpy as np
import torch
from torchvision_v2 import tv_tensors, v2
from transform_rows import JITTER, SIDE, SIZE

import highway.transforms as T
from highway.modules import Augmentations, CopyPaste, CutMix, MixUp, Mosaic

BATCH, SMALL = 16, 256
CLASSES = 10


class Work(NamedTuple):
    """A function, what it gets, one after the other, and how many images that is each time."""

    function: Callable[[Any], Any]
    given: list[Any]
    images: int = 1


def channels_first(image: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(image, -1, -3)))


def detection(pictures: list[np.ndarray], highway: list[Any], torchvision: list[Any], library: str) -> Work:
    """Photographs of 480x640 with 12 boxes and their labels."""
    rng, shape = np.random.default_rng(0), pictures[0].shape[:2]
    corners = rng.integers(0, (500, 360), (12, 2))
    boxes, labels = np.hstack([corners, corners + rng.integers(20, 120, (12, 2))]).astype(np.float32), np.arange(12)
    if library == "highway":
        augment = Augmentations(highway, boxes="boxes", with_boxes=["labels"])
        return Work(partial(augment, rng=rng), [{"image": image, "boxes": boxes, "labels": labels} for image in pictures])
    samples = []
    for image in pictures:
        around = tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=shape)
        samples.append({"image": tv_tensors.Image(channels_first(image)), "boxes": around, "labels": torch.from_numpy(labels)})
    return Work(v2.Compose(torchvision), samples)


DETECTION: dict[str, tuple[list[Any], list[Any]]] = {
    "RandomIoUCrop": ([T.RandomIoUCrop()], [v2.RandomIoUCrop()]),
    "SanitizeBoxes": ([T.SanitizeBoxes()], [v2.SanitizeBoundingBoxes()]),
    "detection chain": (
        [T.LargeScaleJitter((512, 512), (0.5, 1.5)), T.RandomIoUCrop(), T.FlipX(), T.ColorJitter(*JITTER), T.SanitizeBoxes()],
        [
            v2.ScaleJitter((512, 512), (0.5, 1.5), antialias=False),
            v2.RandomIoUCrop(),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(*JITTER),
            v2.SanitizeBoundingBoxes(),
        ],
    ),
}


def small(pictures: list[np.ndarray], library: str) -> Work:
    """Batches of 32x32 pixels, mirrored or not, and normalized."""
    batches = [np.stack([image[:32, side : side + 32] for side in range(SIDE - 32)] * 2)[:SMALL] for image in pictures]
    if library == "highway":
        return Work(partial(Augmentations([T.FlipX(), T.Normalize()]), rng=np.random.default_rng(0)), batches, SMALL)
    if library == "Albumentations":
        chain = A.Compose([A.HorizontalFlip(), A.Normalize()])
        return Work(lambda images: np.stack([chain(image=image)["image"] for image in images]), batches, SMALL)
    floats = v2.ToDtype(torch.float32, scale=True)
    compose = v2.Compose([v2.RandomHorizontalFlip(), floats, v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
    return Work(lambda images: torch.stack([compose(image) for image in images]), list(map(channels_first, batches)), SMALL)


def mixed(pictures: list[np.ndarray], kind: type, peer: type, dtype: type, library: str) -> Work:
    """A batch, and its labels as whole numbers; torchvision's takes floats alone."""
    images, labels = np.stack(pictures * 2), np.arange(BATCH) % CLASSES
    images = images if dtype is np.uint8 else (images / 255).astype(dtype)
    if library == "highway":
        return Work(partial(kind(num_classes=CLASSES), rng=np.random.default_rng(0)), [(images, labels)], BATCH)
    mix, both = peer(num_classes=CLASSES), (channels_first(images), torch.from_numpy(labels))
    return Work(lambda given: mix(*given), [both], BATCH)


def mosaic(pictures: list[np.ndarray], library: str) -> Work:
    """Four images in each."""
    if library == "highway":
        return Work(partial(Mosaic(SIZE), rng=np.random.default_rng(0)), [{"image": np.stack(pictures * 2)}], BATCH)
    chain = A.Compose([A.Mosaic(target_size=SIZE, cell_shape=SIZE, p=1)])
    others = [{"image": image} for image in pictures]
    return Work(lambda image: chain(image=image, mosaic_metadata=others)["image"], pictures)


def copy_paste(pictures: list[np.ndarray], library: str) -> Work:
    """Four objects in each image."""
    masks = np.zeros((BATCH, 4, *SIZE), np.uint8)
    for number in range(4):
        masks[:, number, 60 * number : 60 * number + 70, 20:160] = 1
    boxes = np.tile(np.float32([[20, 60 * number, 160, 60 * number + 70] for number in range(4)]), (BATCH, 1, 1))
    item = {"image": np.stack(pictures * 2), "boxes": boxes, "masks": masks}
    return Work(partial(CopyPaste(boxes="boxes", mask="masks"), rng=np.random.default_rng(0)), [item], BATCH)


MIXING: dict[str, tuple[type, type, type]] = {
    "MixUp": (MixUp, v2.MixUp, np.uint8),
    "MixUp (float32)": (MixUp, v2.MixUp, np.float32),
    "CutMix": (CutMix, v2.CutMix, np.uint8),
    "CutMix (float32)": (CutMix, v2.CutMix, np.float32),
}
# Who has each
BATCHES: dict[str, list[str]] = {
    **{name: ["highway", "torchvision"] for name in DETECTION},
    "32x32: FlipX, Normalize": ["highway", "Albumentations", "torchvision"],
    **{name: ["highway", "torchvision"] if dtype is np.float32 else ["highway"] for name, (_, _, dtype) in MIXING.items()},
    "Mosaic": ["highway", "Albumentations"],
    "CopyPaste": ["highway"],
}


def work(row: str, library: str, pictures: Callable[[tuple[int, int]], list[np.ndarray]]) -> Work:
    """Return what a row has a library do."""
    if row in DETECTION:
        return detection(pictures((480, 640)), *DETECTION[row], library)
    if row in MIXING:
        return mixed(pictures(SIZE), *MIXING[row], library)
    return {"Mosaic": mosaic, "CopyPaste": copy_paste}.get(row, small)(pictures(SIZE), library)
