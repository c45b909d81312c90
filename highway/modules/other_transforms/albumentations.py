"""Transforms of Albumentations as a stage."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.random import Generator

from highway.datasets.opened import opened
from highway.engine.component import Traits
from highway.engine.context import OfThread
from highway.errors import ConfigError
from highway.modules.other_transforms.adapter import Adapter, Changed, imported, with_inner
from highway.modules.targets import Target
from highway.parameters.checks import checked
from highway.transforms.parameters import Amount, Share

_HALF = np.float32(0.5)  # points count from the corner of the first pixel here, and from its centre there
_OF_COMPOSE = {"bboxes": "bbox_params", "keypoints": "keypoint_params"}


class _Random(Random):
    """A generator of Python's that draws by one of numpy's, so that nothing is seeded for each image."""

    def __init__(self, rng: Generator) -> None:
        super().__init__(0)
        self._rng = rng

    def random(self) -> float:
        return self._rng.random()

    gauss = Random.normalvariate  # which keeps no second number for the next image


@checked
@dataclass
class Albumentations(Adapter):
    """Apply transforms of Albumentations to each image of a batch, or to the image of a sample; boxes, points and masks follow.

    Each worker has a copy of them, and each image draws by the pipeline's generator: what comes out is the same for any number of workers,
    in ``Processes``, behind a link and after a resume, and another one in each epoch. A ``seed`` of a ``Compose`` counts for nothing.
    Tested with 2.0.8, the last version under the MIT licence: ``pip install albumentations==2.0.8``.

    Args:
        transforms: Transforms, or one; ``A.Compose``, ``A.Sequential``, ``A.OneOf`` and their kin too. A ``Compose`` has no
            ``bbox_params``, ``keypoint_params`` or ``additional_targets`` of its own: what belongs to the image is said here. In YAML
            ``albumentations:HorizontalFlip: {p: 0.5}``, or ``package.module:name`` for an object of your own.
        min_area: Boxes of which less than so many pixels are left are removed, as those are of which nothing is.
        min_visibility: Boxes of which less than this share is left, from 0 to 1, are removed.

    Returns:
        The item with these fields changed, in new arrays. Images of a batch come out as one array. Boxes come out as float32, clipped to
        the image; empty boxes, the padding of a batch among them, and what lies outside, are removed, with their rows of ``with_boxes``. So
        these fields come out of a batch as lists. Points stay, wherever they are.

    Raises:
        ConfigError: the package is not installed, or something in ``transforms`` is none of its transforms (on construction).
        KeyError: a field is not there.
        ValueError: an array is no image; pixels are moved, and a field of boxes such as ``"boxes"`` is not named; the images of a batch
            come out with different shapes; a transform removes points, or makes tensors; boxes, points, masks, or fields that go with
            boxes do not fit.
    """

    min_area: Amount = 0.0
    min_visibility: Share = 0.0

    def __highway__(self) -> Traits:
        return Traits(parallel=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        A = _albumentations()
        for transform in self._given:
            if not isinstance(transform, (A.BasicTransform, A.BaseCompose)):
                raise ConfigError(f"Albumentations: {transform!r} is no transform of it; a function is one by A.Lambda(image=function)")
        for transform in with_inner(self._given):
            _expect_usable(A, transform)

    def _moves_pixels(self, transform: Any) -> bool:
        changes_boxes = "bboxes" in getattr(transform, "available_keys", ()) and type(transform).__name__ != "NoOp"
        return changes_boxes and ".dropout." not in type(transform).__module__  # which covers boxes, and moves none

    @opened
    def _composes(self) -> OfThread[Any]:
        return OfThread(self._compose)

    def _compose(self) -> Any:
        """Return the transforms for one thread: they keep what they have drawn, and their generators."""
        A = _albumentations()
        transforms: list[Any] = copy.deepcopy(self._given)
        boxes = keypoints = None
        if self.boxes is not None:
            boxes = A.BboxParams("pascal_voc", min_area=self.min_area, min_visibility=self.min_visibility)
        if self.points is not None:
            keypoints = A.KeypointParams("xy", remove_invisible=False)
        if not any("bboxes" in transform.available_keys for transform in transforms):
            transforms.append(A.NoOp(p=0))  # else there is a warning that no transform changes boxes
        return A.Compose(transforms, bbox_params=boxes, keypoint_params=keypoints)

    def _changed(self, target: Target, rng: Generator) -> Changed:
        compose = self._composes.value
        if compose.random_generator is not rng:
            compose.set_random_state(rng, _Random(rng))
        given = {"image": target["image"]}
        if "boxes" in target:
            given["bboxes"] = _within(_numbered(target["boxes"]), target["image"].shape)
        if "points" in target:
            given["keypoints"] = _numbered(target["points"].reshape(-1, 2) - _HALF)
        if "mask" in target:
            mask = _as_opencv_takes_it(target["mask"])
            name = "mask" if mask.ndim == 2 else "masks"
            if mask.ndim == 2 or len(mask):  # it stacks masks, of which there must be one
                given[name] = mask
        done = compose(**given)
        belongs: Target = {}
        rows = None
        if "boxes" in target:
            belongs["boxes"], rows = _unnumbered(done["bboxes"], 4)
        if "points" in target:
            points, order = _unnumbered(done["keypoints"], 2)
            if not np.array_equal(order, np.arange(len(given["keypoints"]))):
                raise ValueError(
                    f"Albumentations: {len(points)} of {len(given['keypoints'])} points came out, or in another order; what belongs to "
                    "them would no longer fit: leave out what removes them"
                )
            belongs["points"] = (points + _HALF).reshape(target["points"].shape)
        if "mask" in target:
            moved = done[name] if name in given else np.empty((0, *done["image"].shape[:2]), mask.dtype)
            belongs["mask"] = moved.astype(target["mask"].dtype, copy=False)
        return Changed(done["image"], belongs, rows)


def _albumentations() -> Any:
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # else each process that imports it asks PyPI for its newest version
    return imported("albumentations", "Albumentations", "pip install albumentations==2.0.8")


def _expect_usable(A: Any, transform: Any) -> None:
    """Raise a ConfigError if a transform says itself what belongs to the image, or goes by what is not given to it."""
    name = type(transform).__name__
    if getattr(transform, "bbox_labels", None) is not None:
        raise ConfigError(f"Albumentations: {name} goes by bbox_labels, which are not given to it; take mask_indices")
    if not isinstance(transform, A.Compose):
        return
    said = [parameter for role, parameter in _OF_COMPOSE.items() if role in transform.processors]
    said += ["additional_targets"] * bool(transform.additional_targets)
    if said:
        raise ConfigError(
            f"Albumentations: the {name} has {' and '.join(said)} of its own; make it without them, and say here what belongs to the "
            "image: Albumentations([...], boxes='boxes', points='points', mask='mask', with_boxes=['labels'], min_visibility=0.1)"
        )


def _as_opencv_takes_it(mask: np.ndarray) -> np.ndarray:
    """Return a mask of a dtype that OpenCV does not convert without a word: bytes for bools, int32 for whole numbers of more bits.

    Raises:
        ValueError: a value is too large for that.
    """
    if mask.dtype == bool:
        return mask.view(np.uint8)
    if mask.dtype.kind not in "iu" or mask.dtype.itemsize < 4 or mask.dtype == np.int32:
        return mask
    narrow = mask.astype(np.int32)
    if (narrow != mask).any():
        raise ValueError(
            f"Albumentations: the mask is {mask.dtype} with values from {mask.min()} to {mask.max()}; OpenCV takes those of int32"
        )
    return narrow


def _within(boxes: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return boxes, ``(N, 5)``, clipped to the image, without empty ones: Albumentations takes no others, or is slower at it."""
    sides = boxes[:, :4]
    np.maximum(sides, 0, out=sides)
    np.minimum(sides, (shape[1], shape[0], shape[1], shape[0]), out=sides)
    stay = (sides[:, 2:] > sides[:, :2]).all(axis=1)
    return boxes if stay.all() else boxes[stay]


def _numbered(rows: np.ndarray) -> np.ndarray:
    """Return rows, float32, with their number as one more column, by which they are known again."""
    count, columns = rows.shape
    numbered = np.empty((count, columns + 1), np.float32)
    numbered[:, :columns] = rows
    numbered[:, columns] = np.arange(count)
    return numbered


def _unnumbered(rows: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows, float32 without their numbers, and these."""
    if not len(rows):  # then they may have lost that column
        return np.empty((0, columns), np.float32), np.empty(0, np.intp)
    return rows[:, :columns].astype(np.float32), rows[:, columns].astype(np.intp)
