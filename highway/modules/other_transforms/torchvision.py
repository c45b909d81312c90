"""A stage that applies transforms of torchvision, version 2."""

from __future__ import annotations

import copy
import importlib
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.random import Generator

from highway.datasets.opened import opened
from highway.errors import ConfigError
from highway.modules.other_transforms.adapter import Adapter, Changed, imported, with_inner
from highway.modules.targets import Target
from highway.parameters.checks import checked
from highway.process.torch_generators import torch_generators
from highway.transforms.base import areas

_COMMAND = "pip install torchvision"
_HALF = np.float32(0.5)  # for highway, (0, 0) is the corner of the first pixel; for torchvision's flips, it is the centre of this pixel


@checked
@dataclass
class TorchvisionV2(Adapter):
    """Apply transforms of ``torchvision.transforms.v2`` to the images of a batch or sample, and to their annotations.

    Inputs and outputs are arrays. The pipeline provides the random numbers. The results differ from epoch to epoch. They do not depend on
    the number of workers, processes or hosts, or on whether a run was resumed.

    torch has one random generator for the whole process. This stage seeds this generator for each image, and holds a lock meanwhile.
    Therefore, only one thread at a time transforms an image. Your program must not use the generator of torch meanwhile. To avoid both
    limits, put the stage into ``Processes``, which is also faster, or use ``Pipeline(..., isolated=True)``. Tested with version 0.28.

    Args:
        transforms: One or several transforms of ``torchvision.transforms.v2``, or callables. Their input is a dict with ``"image"`` (an
            ``Image``), ``"boxes"`` (``BoundingBoxes``), ``"labels"`` (the row indexes of the boxes), ``"points"`` (``KeyPoints``) and
            ``"mask"`` (a ``Mask``). In YAML, write ``torchvision.transforms.v2:RandomHorizontalFlip: {p: 0.5}``.

    Returns:
        The item with a transformed image and transformed annotations, in new arrays. The images of a batch become one array, with the
        channels last. Boxes become float32. Empty boxes become (0, 0, 0, 0). ``SanitizeBoundingBoxes`` removes boxes, and their rows in the
        fields of ``with_boxes``. In a batch, these fields become lists.

    Raises:
        ConfigError: torchvision is not installed; a transform is from version 1 of ``torchvision.transforms``; or a transform converts the
            format of boxes (on the first use).
        KeyError: a field does not exist.
        ValueError: an array is not an image, or annotations do not fit the image.
        ValueError: a transform moves pixels, and the item has annotations whose parameter is not given.
        ValueError: the new images of a batch differ in shape; or a transform removes points, or does not return tensors.

    >>> from torchvision.transforms import v2
    >>> images = np.zeros((2, 32, 32, 3), np.uint8)
    >>> TorchvisionV2(v2.CenterCrop(24))(images, np.random.default_rng(0)).shape
    (2, 24, 24, 3)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if find_spec("torchvision") is None:  # only search for the package, because importing it takes seconds
            imported("torchvision", "TorchvisionV2", _COMMAND)
        for transform in with_inner(self._given):
            if type(transform).__module__ == "torchvision.transforms.transforms":
                raise ConfigError(
                    f"TorchvisionV2: {type(transform).__name__} is a transform of version 1; use the transform of torchvision.transforms.v2"
                )

    def _moves_pixels(self, transform: Any) -> bool:
        modules = {cls.__module__.rpartition(".v2.")[2] for cls in type(transform).__mro__}
        return not modules.isdisjoint(("_geometry", "_auto_augment"))

    @opened
    def _compose(self) -> Any:
        v2 = imported("torchvision.transforms.v2", "TorchvisionV2", _COMMAND)
        transforms = copy.deepcopy(self._given)
        for transform in with_inner(transforms):
            if isinstance(transform, v2.ConvertBoundingBoxFormat):
                raise ConfigError("TorchvisionV2: remove ConvertBoundingBoxFormat; boxes must stay x1, y1, x2, y2")
            if getattr(transform, "inplace", False):
                transform.inplace = False  # otherwise the transform would write into the item
        return v2.Compose(transforms or [v2.Identity()])

    def _changed(self, target: Target, rng: Generator) -> Changed:
        compose, seed = self._compose, int(rng.integers(2**63))
        torch, tensors = importlib.import_module("torch"), importlib.import_module("torchvision.tv_tensors")
        image, size = target["image"], target["image"].shape[:2]
        planes = _tensor(image)[None] if image.ndim == 2 else _tensor(image).permute(2, 0, 1)
        given = {"image": tensors.Image(planes)}
        if "boxes" in target:
            given["boxes"] = tensors.BoundingBoxes(_tensor(target["boxes"]), format="XYXY", canvas_size=size)
            given["labels"] = torch.arange(len(target["boxes"]))
        if "points" in target:
            given["points"] = tensors.KeyPoints(_tensor(target["points"] - _HALF), canvas_size=size)
        if "mask" in target:
            given["mask"] = tensors.Mask(_tensor(target["mask"]))
        with torch_generators, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            done = compose(given)
        if not isinstance(done, dict) or (lost := given.keys() - done.keys()):
            what = f"a dict without {', '.join(sorted(lost))}" if isinstance(done, dict) else f"a {type(done).__name__}"
            raise ValueError(f"TorchvisionV2: the transforms returned {what} for a dict with {', '.join(given)}; expected the same fields")
        belongs: Target = {}
        rows = None
        if "boxes" in target:
            boxes, rows = done["boxes"].numpy().astype(np.float32), done["labels"].numpy()
            belongs["boxes"] = np.where(areas(boxes)[:, None] > 0, boxes, np.float32(0))
        if "points" in target:
            belongs["points"] = done["points"].numpy().astype(np.float32) + _HALF
        if "mask" in target:
            belongs["mask"] = done["mask"].numpy()
        return Changed(_channels_last(done["image"], image.ndim), belongs, rows)


def _tensor(array: np.ndarray) -> Any:
    """Return a tensor that shares the memory of an array, or of a copy if the array is read-only or not contiguous."""
    return importlib.import_module("torch").from_numpy(np.require(array, requirements=["C", "W"]))


def _channels_last(image: Any, axes: int) -> Any:
    """Return a tensor ``(C, H, W)`` as an array ``(H, W, C)``, or ``(H, W)`` if the input had no channel axis."""
    if not hasattr(image, "permute") or image.ndim != 3:
        return image
    return (image[0] if axes == 2 and len(image) == 1 else image.permute(1, 2, 0)).contiguous().numpy()
