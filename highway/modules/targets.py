"""What belongs to the images of an item: found by the names of its fields, and checked.

A *target* is one image with its boxes, points and mask, and with what has a row for each box: a dict by role, ``"image"``, ``"boxes"``,
``"points"``, ``"mask"``, and one more for each other field that goes with the boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from highway.engine.batch import Field, Item, get, names, stacked
from highway.images.items import checked_image, is_batch

Target = dict[str, Any]

_WITH_BOXES = "with_boxes"


class Targets:
    """Finds the targets of an item.

    Args:
        owner: Whose errors they are.
        field: The field of the images; ``None``: the usual one.
        boxes: That of the boxes, if there are any; so for the next two.
        points: That of the points.
        mask: That of the masks.
        with_boxes: Fields that have a row for each box.
    """

    def __init__(
        self, owner: str, field: Field | None, boxes: Field | None, points: Field | None, mask: Field | None, with_boxes: Sequence[Field]
    ) -> None:
        self._owner, self._image, self._with_boxes = owner, field, with_boxes
        self._others = {"boxes": boxes, "points": points, "mask": mask}
        self._rows = {"boxes"} | {role for role in ("points", "mask") if self._others[role] in with_boxes}

    def fields(self, item: Item) -> dict[str, Field]:
        """Return which field each role is.

        Raises:
            KeyError: the item has no fields.
        """
        image = self._image
        if image is None:
            known = names(item)
            if not known:
                raise KeyError(f"{self._owner}: the item has no fields; expected one that holds images")
            image = next((name for name in ("image", "images") if name in known), known[0])
        where: dict[str, Field] = {"image": image, **{role: field for role, field in self._others.items() if field is not None}}
        rows = [field for field in self._with_boxes if field not in where.values()]
        return where | {f"{_WITH_BOXES} {field!r}": field for field in rows}

    def goes_with_boxes(self, role: str) -> bool:
        """Say whether a role has a row for each box."""
        return role in self._rows or role.startswith(_WITH_BOXES)

    def checked(self, given: Target) -> Target:
        """Return a target whose image is one, whose boxes and points are new float32 arrays, and whose parts fit to each other.

        Raises:
            ValueError: they do not.
        """
        image = checked_image(given["image"], self._owner)
        target = {**given, "image": image}
        for role, columns in (("boxes", 4), ("points", 2)):
            if role in target:
                target[role] = _coordinates(columns, target[role], self._owner)
        if "mask" in target:
            target["mask"] = _mask(target["mask"], image, self._owner)
        if "boxes" in target:
            count = len(target["boxes"])
            for role, value in target.items():
                if self.goes_with_boxes(role) and len(value) != count:
                    raise ValueError(
                        f"{self._owner}: the image has {count} boxes, but {role} has {len(value)} rows; expected one for each box"
                    )
        return target

    def expect_counts(self, given: Target) -> int:
        """Return how many images a batch has.

        Raises:
            ValueError: a field is for another number of them.
        """
        count = len(given["image"])
        for role, values in given.items():
            if len(values) != count:
                raise ValueError(f"{self._owner}: the batch has {count} images, but {role} for {len(values)}")
        return count

    def expect_no_counts(self, item: Item, fields: Iterable[Field]) -> None:
        """Raise a ValueError if an item says beside one of these fields, whose rows change, how many it has."""
        for field in fields:
            beside = [name for what in ("count", "offsets") if (name := f"{field}_{what}") in names(item)]
            if beside:
                raise ValueError(
                    f"{self._owner}: {beside[0]!r} says how many rows {field!r} has, which change here; make this batch with "
                    f"Batch(..., ragged='list'), and pad behind {self._owner}"
                )

    def several(self, item: Item) -> tuple[dict[str, Field], list[Target]]:
        """Return which field each role is, and the targets of a batch whose images are to be put together: none, or at least two.

        Raises:
            ValueError: it is no batch, or one of one image; the images differ in dtype or channels; or what belongs to them does not fit.
        """
        where = self.fields(item)
        given = {role: get(item, field) for role, field in where.items()}
        expect_batch(given["image"], self._owner)
        self.expect_no_counts(item, [field for role, field in where.items() if self.goes_with_boxes(role) or role == "points"])
        count, targets = self.expect_counts(given), list[Target]()
        expect_partners(count, self._owner)
        for row in range(count):
            try:
                targets.append(self.checked({role: values[row] for role, values in given.items()}))
            except ValueError as error:
                error.add_note(f"image {row} of a batch of {count}")
                raise
        for row, target in enumerate(targets):
            one, first = target["image"], targets[0]["image"]
            if one.dtype != first.dtype or one.shape[2:] != first.shape[2:]:
                raise ValueError(
                    f"{self._owner}: image 0 of the batch is {first.shape} {first.dtype} and image {row} is {one.shape} {one.dtype}; "
                    "images that are put together need one dtype and the same channels"
                )
        return where, targets


def expect_batch(images: Any, owner: str) -> None:
    """Raise a ValueError unless the image field holds a batch."""
    if not is_batch(images, owner):
        raise ValueError(
            f"{owner}: the image field holds one image, {images.shape}; {owner} puts together the images of a batch: put it behind "
            "Batch(..., as_list=True), and Unbatch behind it if single images are to go on"
        )


def expect_partners(count: int, owner: str) -> None:
    """Raise a ValueError for a batch of one image."""
    if count == 1:
        raise ValueError(f"{owner}: the batch has one image, and none to put it together with; drop_last=True leaves out such a rest")


def like(given: Any, values: list[np.ndarray]) -> Any:
    """Return one value per image in the form in which they were given: an array, an object array, or a list."""
    if not isinstance(given, np.ndarray):
        return values
    if given.dtype != object:
        return stacked(values)
    result = np.empty(len(values), object)
    result[:] = values
    return result


def rows_where(values: Any, stay: np.ndarray) -> Any:
    """Return the rows, of an array or a list, that stay."""
    return values[stay] if isinstance(values, np.ndarray) else [value for value, stays in zip(values, stay, strict=True) if stays]


def joined(parts: Sequence[Any], role: str, owner: str) -> Any:
    """Return the rows of several targets, arrays or lists, one after the other; parts without rows may be of any kind.

    Raises:
        ValueError: their rows differ in shape.
    """
    filled = [part for part in parts if len(part)] or parts[:1]
    if not all(isinstance(part, np.ndarray) for part in filled):
        return [row for part in filled for row in part]
    if len(shapes := {part.shape[1:] for part in filled}) > 1:
        shown = " and ".join(sorted(str(("*", *shape)).replace("'", "") for shape in shapes))
        raise ValueError(f"{owner}: {role} of images that are put together have shapes {shown}; all axes but the first have to agree")
    return np.concatenate(filled)


def _coordinates(columns: int, value: Any, owner: str) -> np.ndarray:
    array = np.array(value, np.float32)  # a copy
    if array.size == 0:
        return array if columns == 2 and array.ndim == 3 and array.shape[2] == 2 else array.reshape(0, columns)
    if array.ndim != 2 + (columns == 2 and array.ndim == 3) or array.shape[-1] != columns:
        raise ValueError(f"{owner}: boxes are (N, 4) and points (N, 2) or (N, K, 2) for each image; got an array of shape {array.shape}")
    return array


def _mask(value: Any, image: np.ndarray, owner: str) -> np.ndarray:
    mask = np.asarray(value)
    if mask.shape[-2:] != image.shape[:2] or mask.ndim > 3:
        raise ValueError(f"{owner}: the mask is {mask.shape}, but its image {image.shape}; both need the same height and width")
    return mask
