"""The base class of stages that apply the transforms of another package."""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from highway.engine.batch import Item
from highway.errors import ConfigError
from highway.images.items import TARGETS, checked_image
from highway.modules.targets import WITHOUT_BOXES, Target, Targets, rows_where, unshared
from highway.parameters.checks import require
from highway.renamed import stage_of
from highway.transforms import TransformLike


class Changed(NamedTuple):
    """A transformed image and its annotations.

    Args:
        image: ``(H, W)`` or ``(H, W, C)``.
        belongs: The annotations, as a dict with the keys ``"boxes"`` ``(N, 4)``, ``"points"`` and ``"mask"``. A missing annotation has no
            key.
        rows: The original indexes of the remaining boxes, ``(N,)``. ``None`` if the field of the boxes is not given.
    """

    image: Any
    belongs: Target
    rows: np.ndarray | None


@dataclass
class Adapter(ABC):
    """A map that applies the transforms of another package to each image of a batch, or to the image of a sample.

    Args:
        transforms: Transforms, applied in order. In YAML, write ``package.module:name``, for an object or for a class with its parameters.
        boxes: The field of the boxes, x1, y1, x2, y2 in pixels. For one image, the boxes are ``(N, 4)``. For a batch, the field is an array
            ``(B, N, 4)``, padded with empty boxes, or a list of arrays.
        points: The field of the points, x and y in pixels from the upper left corner. For one image, the points are ``(N, 2)``, or ``(N, K,
            2)`` for K points of each of N objects. For a batch, the field is an array with a first batch axis, or a list of arrays.
        mask: The field of the masks. For one image, the mask is ``(H, W)``, or ``(N, H, W)`` with a mask per object. For a batch, the field
            is an array with a first batch axis, or a list of arrays.
        with_boxes: Fields with one row per box, such as labels. The fields of ``points`` and ``mask`` can be in this list.
        field: The field of the images; see :class:`~highway.modules.Augmentations`.
    """

    transforms: Callable[..., Any] | list[Callable[..., Any]]
    boxes: str | int | None = None
    points: str | int | None = None
    mask: str | int | None = None
    with_boxes: list[str | int] | None = None
    field: str | int | None = None

    def __post_init__(self) -> None:
        require(self.boxes is not None or not self.with_boxes, self, "with_boxes", WITHOUT_BOXES)
        self._owner = type(self).__name__
        self._given = self.transforms if isinstance(self.transforms, list) else [self.transforms]
        for transform in self._given:
            if inspect.isclass(transform):
                name = transform.__name__
                raise ConfigError(f"{self._owner}: {name} is a class; pass an instance: {name}(...)")
            stage = "Augmentations" if isinstance(transform, TransformLike) else stage_of(transform)
            if stage not in ("", self._owner):
                raise ConfigError(f"{self._owner}: {transform} belongs to another package; use the stage {stage}([...])")
        fields = (self.field, self.boxes, self.points, self.mask, self.with_boxes or ())
        moves = any(self._moves_pixels(transform) for transform in with_inner(self._given) if not hasattr(transform, "transforms"))
        self._targets = Targets(self._owner, *fields, follow=TARGETS if moves else (), all_named=self.with_boxes is not None)

    @abstractmethod
    def _moves_pixels(self, transform: Any) -> bool:
        """Return whether a transform moves pixels. Boxes, points and masks must then move in the same way."""

    @abstractmethod
    def _changed(self, target: Target, rng: Generator) -> Changed:
        """Transform a target (a dict with an image and its annotations). Only its boxes and points can be changed in place."""

    def __call__(self, item: Item, rng: Generator) -> Item:
        names = [type(transform).__name__ for transform in self._given]
        return self._targets.each(item, self._one, rng, self._targets.goes_with_boxes, names)

    def _one(self, given: Target, out: np.ndarray | None, rng: Generator) -> Target:
        target = self._targets.checked(given)
        image, belongs, rows = self._changed(target, rng)
        if not isinstance(image, np.ndarray):
            raise ValueError(
                f"{self._owner}: the transforms returned the image as a {type(image).__name__}; expected an array: remove conversions such "
                "as ToTensorV2 or ToPILImage (to_device converts batches to tensors)"
            )
        checked_image(image, self._owner)
        self._expect_rows(target, belongs, rows, image)
        changed = {**target, **belongs, "image": image}
        if rows is not None:
            count = len(target["boxes"])
            behind = [role for role in target if role != "boxes" and self._targets.goes_with_boxes(role) and len(changed[role]) == count]
            changed |= {role: rows_where(changed[role], rows) for role in behind}
        for role in ("image", "mask"):
            if role in changed:
                changed[role] = unshared(changed[role], target[role])
        return changed

    def _expect_rows(self, target: Target, belongs: Target, rows: np.ndarray | None, image: np.ndarray) -> None:
        if rows is not None and len(rows) != len(belongs["boxes"]):
            raise ValueError(
                f"{self._owner}: the transforms returned {len(rows)} labels and {len(belongs['boxes'])} boxes; expected one label for each "
                "box"
            )
        for role, what in (("points", "points"), ("mask", "masks")):
            if role not in belongs or (role == "mask" and target[role].ndim == 2):
                continue
            had, has = len(target[role]), len(belongs[role])
            with_boxes = rows is not None and role == "mask" and self._targets.goes_with_boxes(role) and has == len(rows)
            if had != has and not with_boxes:
                way_out = ", or add their field to with_boxes" * (role == "mask")
                raise ValueError(
                    f"{self._owner}: the transforms returned {has} of {had} {what}; remove the transform that removes them{way_out}"
                )
        if "mask" in belongs and belongs["mask"].shape[-2:] != image.shape[:2]:
            raise ValueError(
                f"{self._owner}: the transforms returned a mask of shape {belongs['mask'].shape} for an image of shape {image.shape}"
            )


def imported(module: str, owner: str, command: str) -> Any:
    """Import a module of an optional package.

    Raises:
        ConfigError: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{owner} needs {module.partition('.')[0]}, which is not installed: {command}") from error


def with_inner(transforms: Iterable[Any]) -> Iterator[Any]:
    """Yield transforms and their nested transforms."""
    for transform in transforms:
        yield transform
        yield from with_inner(getattr(transform, "transforms", ()))
