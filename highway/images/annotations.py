"""Find the boxes, masks and points of an item's images by the names of the fields, and prepare them for drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from highway.engine.batch import Field, Item, get, names
from highway.images.drawing import Drawn
from highway.images.ops import Size

USUAL = {"boxes": ("boxes",), "mask": ("masks", "mask"), "points": ("keypoints", "points"), "visibility": ("visibility",)}
"""The default field names of each *role*: boxes, mask, points and visibility."""


def fields_of(item: Item, given: Mapping[str, Field]) -> dict[str, Field]:
    """Return the field of each role: the given field, or the first field with a default name.

    Raises:
        KeyError: a given field does not exist.
    """
    for field in given.values():
        get(item, field)
    found: dict[str, Field] = {role: name for role, called in USUAL.items() for name in reversed(called) if name in names(item)}
    return found | dict(given)


def rows_of(item: Item, field: Field, count: int, batched: bool = True) -> list[Any]:
    """Return the values of a field for each of ``count`` images.

    In a batch, the field is a list or an array. The field ``<field>_count`` contains the lengths of padded values. The field
    ``<field>_offsets`` contains the offsets of concatenated values.

    Raises:
        ValueError: the field does not have ``count`` values.
    """
    value, known = get(item, field), names(item)
    if not batched:
        return [value]
    if f"{field}_offsets" in known:
        ends = np.asarray(get(item, f"{field}_offsets")).tolist()
        found = [value[start:end] for start, end in pairwise(ends)]
    else:
        found = list(value) if isinstance(value, (list, tuple)) or np.ndim(value) else [value]
    if len(found) != count:
        raise ValueError(f"field {field!r} has {len(found)} values for {count} images")
    if f"{field}_count" in known:
        found = [part[:there] for part, there in zip(found, np.asarray(get(item, f"{field}_count")).tolist(), strict=True)]
    return found


def annotations_of(item: Item, sizes: Sequence[Size], given: Mapping[str, Field], batched: bool = True) -> list[dict[str, np.ndarray]]:
    """Return the annotations of each image as a dict from roles to values.

    The values are boxes ``(N, 4)``, a mask ``(H, W)`` or ``(N, H, W)``, and points ``(N[, K], 2 or 3)``. A field that is found by its
    default name is ignored if it does not contain such values.

    Args:
        item: The item.
        sizes: Height and width of each image.
        given: A dict from roles to the fields that the user named.
        batched: Whether the fields have a batch axis.

    Raises:
        KeyError: a given field does not exist.
        ValueError: a given field does not contain such values.
    """
    found: list[dict[str, np.ndarray]] = [{} for _ in sizes]
    for role, field in fields_of(item, given).items():
        try:
            parts = [_checked(role, field, part, size) for part, size in zip(rows_of(item, field, len(sizes), batched), sizes, strict=True)]
        except ValueError:
            if role in given:
                raise
            continue
        for one, part in zip(found, parts, strict=True):
            one[role] = part
    return found


def drawn_from(given: Mapping[str, np.ndarray], box_names: Sequence[str] = (), colors: Sequence[int] = ()) -> Drawn:
    """Return the annotations to draw on an image, without padding and without points that are marked as not labelled or not visible."""
    boxes, points = given.get("boxes"), given.get("points")
    if points is not None:
        there: np.ndarray = np.ones(points.shape[:-1], np.bool_)
        if points.shape[-1] == 3:
            there &= points[..., 2] > 0
        seen = given.get("visibility")
        if seen is not None and seen.shape == there.shape:
            there &= seen > 0
        if boxes is not None and len(boxes) == len(points) and points.ndim == 3:
            there &= np.all(boxes[:, 2:] > boxes[:, :2], axis=1, keepdims=True)
        points = np.where(there[..., None], points[..., :2], np.nan)
    return Drawn(boxes, box_names, given.get("mask"), points, colors)


def labelled(given: Mapping[str, np.ndarray], label: np.ndarray | None, classes: Mapping[str, str]) -> tuple[Drawn, bool]:
    """Return the annotations to draw on an image, and whether the boxes have labels, one per box.

    Args:
        given: The annotations of the image, from :func:`annotations_of`.
        label: The label of the image, or of each box.
        classes: A dict from labels, as texts, to their names.
    """
    of_boxes = "boxes" in given and label is not None and label.ndim == 1 and len(label) == len(given["boxes"])
    if not of_boxes or label is None:
        return drawn_from(given), False
    texts = [text_of(one) for one in label]
    return drawn_from(given, [classes.get(text, text) for text in texts], label.tolist() if label.dtype.kind in "iu" else ()), True


def text_of(label: Any) -> str:
    """Return a label, which is a number or a text, as text."""
    return f"{label:g}" if np.asarray(label).dtype.kind in "iuf" else str(label)


def _checked(role: str, field: Field, value: Any, size: Size) -> np.ndarray:
    array = np.asarray(value)
    shape = array.shape
    if role == "boxes":
        array = array.reshape(-1, 4) if array.size == 0 else array
        fits, expected = array.ndim == 2 and array.shape[1] == 4, "boxes (N, 4)"
    elif role == "points":
        array = array.reshape(0, 2) if array.size == 0 else array
        fits, expected = array.ndim in (2, 3) and array.shape[-1] in (2, 3), "points (N, 2) or (N, K, 2)"
    elif role == "mask":
        array = array[..., 0] if shape == (*size, 1) else array
        fits, expected = array.ndim in (2, 3) and array.shape[-2:] == size, f"a mask {size} or (N, {size[0]}, {size[1]})"
    else:
        return array
    if not fits or array.dtype.kind not in "biuf":
        raise ValueError(
            f"field {field!r} contains {array.dtype} {shape} for an image of height {size[0]} and width {size[1]}; expected {expected}"
        )
    return array.astype(np.int64) if role == "mask" and array.dtype.kind == "f" else array.astype(np.float32) if role != "mask" else array
