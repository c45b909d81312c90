"""A stage that applies transforms of Albumentations."""

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

_HALF = np.float32(0.5)  # for highway, (0, 0) is the corner of the first pixel; for Albumentations, it is the centre of this pixel
_OF_COMPOSE = {"bboxes": "bbox_params", "keypoints": "keypoint_params"}


class NumpyRandom(Random):
    """A Python random generator that draws from a numpy generator. This avoids seeding a Python generator for each image."""

    def __init__(self, rng: Generator) -> None:
        super().__init__(0)
        self._rng = rng

    def random(self) -> float:
        return self._rng.random()

    gauss = Random.normalvariate  # gauss() of the base class would keep a second number for the next image


@checked
@dataclass
class Albumentations(Adapter):
    """Apply transforms of Albumentations to the images of a batch or sample, and to their boxes, points and masks.

    The pipeline provides the random numbers. The results differ from epoch to epoch. They do not depend on the number of workers, processes
    or hosts, or on whether a run was resumed. The ``seed`` of a ``Compose`` has no effect. Tested with version 2.0.8, which is the last
    version under the MIT licence: ``pip install albumentations==2.0.8``.

    Args:
        transforms: One or several transforms, including ``A.Compose``, ``A.Sequential`` and ``A.OneOf``. A ``Compose`` must not have
            ``bbox_params``, ``keypoint_params`` or ``additional_targets``, because the parameters of this stage replace them. In YAML,
            write ``albumentations:HorizontalFlip: {p: 0.5}``, or ``package.module:name`` for your own object.
        min_area: Minimum remaining area of a box in pixels. Smaller boxes and empty boxes are removed.
        min_visibility: Minimum remaining fraction of a box's area, from 0 to 1. Boxes with a smaller fraction are removed.

    Returns:
        The item with a transformed image and transformed annotations, in new arrays. The images of a batch become one array. Boxes become
        float32, and are clipped to the image. Empty boxes, such as padding and boxes outside the image, are removed, together with their
        rows in the fields of ``with_boxes``. In a batch, the boxes and the fields of ``with_boxes`` therefore become lists. Points outside
        the image are not removed.

    Raises:
        ConfigError: Albumentations is not installed, or an entry of ``transforms`` is not a transform of Albumentations (on construction).
        KeyError: a field does not exist.
        ValueError: an array is not an image, or annotations do not fit the image.
        ValueError: a transform moves pixels, and the item has annotations whose parameter is not given.
        ValueError: the new images of a batch differ in shape; or a transform removes points, or creates tensors.

    >>> import albumentations as A
    >>> images = np.zeros((2, 32, 32, 3), np.uint8)
    >>> Albumentations(A.CenterCrop(24, 24))(images, np.random.default_rng(0)).shape
    (2, 24, 24, 3)
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
                raise ConfigError(
                    f"Albumentations: {transform!r} is not a transform of Albumentations; for a function, use A.Lambda(image=function)"
                )
        for transform in with_inner(self._given):
            _expect_usable(A, transform)

    def _moves_pixels(self, transform: Any) -> bool:
        changes_boxes = "bboxes" in getattr(transform, "available_keys", ()) and type(transform).__name__ != "NoOp"
        return changes_boxes and ".dropout." not in type(transform).__module__  # dropout does not move boxes

    @opened
    def _composes(self) -> OfThread[Any]:
        return OfThread(self._compose)

    def _compose(self) -> Any:
        """Return a copy of the transforms for one thread, because transforms store their random numbers and generators."""
        A = _albumentations()
        transforms: list[Any] = copy.deepcopy(self._given)
        boxes = keypoints = None
        if self.boxes is not None:
            boxes = A.BboxParams("pascal_voc", min_area=self.min_area, min_visibility=self.min_visibility)
        if self.points is not None:
            keypoints = A.KeypointParams("xy", remove_invisible=False)
        if not any("bboxes" in transform.available_keys for transform in transforms):
            transforms.append(A.NoOp(p=0))  # avoids a warning that no transform changes boxes
        return A.Compose(transforms, bbox_params=boxes, keypoint_params=keypoints)

    def _changed(self, target: Target, rng: Generator) -> Changed:
        compose = self._composes.value
        if compose.random_generator is not rng:
            compose.set_random_state(rng, NumpyRandom(rng))
        given = {"image": target["image"]}
        if "boxes" in target:
            given["bboxes"] = _within(_numbered(target["boxes"]), target["image"].shape)
        if "points" in target:
            given["keypoints"] = _numbered(target["points"].reshape(-1, 2) - _HALF)
        if "mask" in target:
            mask = _as_opencv_takes_it(target["mask"])
            name = "mask" if mask.ndim == 2 else "masks"
            if mask.ndim == 2 or len(mask):  # Albumentations stacks masks, so there must be at least one mask
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
                    f"Albumentations: the transforms returned {len(points)} of {len(given['keypoints'])} points, or another order, so "
                    "fields of the points would no longer match; remove the transform that removes or reorders points"
                )
            belongs["points"] = (points + _HALF).reshape(target["points"].shape)
        if "mask" in target:
            moved = done[name] if name in given else np.empty((0, *done["image"].shape[:2]), mask.dtype)
            belongs["mask"] = moved.astype(target["mask"].dtype, copy=False)
        return Changed(done["image"], belongs, rows)


def _albumentations() -> Any:
    # Otherwise each process that imports Albumentations looks online for a newer version.
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    return imported("albumentations", "Albumentations", "pip install albumentations==2.0.8")


def _expect_usable(A: Any, transform: Any) -> None:
    """Raise ConfigError if a transform defines annotations itself, or needs inputs that this stage does not pass."""
    name = type(transform).__name__
    if getattr(transform, "bbox_labels", None) is not None:
        raise ConfigError(f"Albumentations: {name} needs bbox_labels, which highway does not pass; use mask_indices")
    if not isinstance(transform, A.Compose):
        return
    said = [parameter for role, parameter in _OF_COMPOSE.items() if role in transform.processors]
    said += ["additional_targets"] * bool(transform.additional_targets)
    if said:
        raise ConfigError(
            f"Albumentations: the {name} sets {' and '.join(said)} itself; create it without these parameters, and set the annotations of "
            "the image here: Albumentations([...], boxes='boxes', points='points', mask='mask', with_boxes=['labels'], min_visibility=0.1)"
        )


def _as_opencv_takes_it(mask: np.ndarray) -> np.ndarray:
    """Return a mask in a dtype that OpenCV does not convert silently: uint8 for bools, int32 for larger integers.

    Raises:
        ValueError: a value does not fit.
    """
    if mask.dtype == bool:
        return mask.view(np.uint8)
    if mask.dtype.kind not in "iu" or mask.dtype.itemsize < 4 or mask.dtype == np.int32:
        return mask
    narrow = mask.astype(np.int32)
    if (narrow != mask).any():
        raise ValueError(
            f"Albumentations: the mask is {mask.dtype} with values from {mask.min()} to {mask.max()}; OpenCV supports only values of int32"
        )
    return narrow


def _within(boxes: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Clip boxes ``(N, 5)`` to the image, and remove empty boxes. Albumentations would raise an error or be slower."""
    sides = boxes[:, :4]
    np.maximum(sides, 0, out=sides)
    np.minimum(sides, (shape[1], shape[0], shape[1], shape[0]), out=sides)
    stay = (sides[:, 2:] > sides[:, :2]).all(axis=1)
    return boxes if stay.all() else boxes[stay]


def _numbered(rows: np.ndarray) -> np.ndarray:
    """Return rows as float32, with an additional column that contains the index of each row."""
    count, columns = rows.shape
    numbered = np.empty((count, columns + 1), np.float32)
    numbered[:, :columns] = rows
    numbered[:, columns] = np.arange(count)
    return numbered


def _unnumbered(rows: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Split the result of :func:`_numbered` into the rows, float32, and their indexes."""
    if not len(rows):  # if there are no rows, the column can be missing
        return np.empty((0, columns), np.float32), np.empty(0, np.intp)
    return rows[:, :columns].astype(np.float32), rows[:, columns].astype(np.intp)
