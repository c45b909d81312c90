"""Create pictures of the images of an item, with labels, boxes, masks and points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from highway.engine.batch import Field, Item, get, names
from highway.engine.stage import Passport
from highway.images.annotations import annotations_of, fields_of, labelled, rows_of, text_of
from highway.images.decode import decode
from highway.images.drawing import Drawn, draw_on
from highway.images.grid import Tile, fitted
from highway.images.items import image_field, row_keys, rows, to_pillow

Classes = Mapping[str, str]


def tiles(
    item: Item,
    passport: Passport,
    size: int,
    unbatched: bool = False,
    pairs: bool = False,
    given: Mapping[str, Field] | None = None,
    classes: Classes | None = None,
) -> Iterator[list[Tile]]:
    """Yield the tiles for each sample of an item: one tile with the image and its annotations, or two tiles for a pair of images.

    Args:
        item: A batch, or a sample if ``unbatched`` is true.
        passport: The passport (metadata) of the item. Its keys appear below the images.
        size: Length of the longer side of each image in pixels.
        unbatched: Whether the fields have no batch axis.
        pairs: Whether the second field also contains images.
        given: A dict from ``"boxes"``, ``"mask"`` or ``"points"`` to the fields. By default, fields with the usual names.
        classes: A dict from labels, as texts, to their names.
    """
    given, classes = given or {}, classes or {}
    first, second = _fields(item, {} if pairs else fields_of(item, given))
    images = _images(item, first, unbatched)
    keys = row_keys(passport, len(images))
    if pairs:
        others = _images(item, second, unbatched)
        for image, other, key in zip(images, others, keys, strict=True):
            yield [_tile(image, size, str(first), key), _tile(other, size, str(second), key)]
        return
    found = annotations_of(item, [image.shape[:2] for image in images], given, not unbatched)
    for image, belongs, label, key in zip(images, found, _labels(item, second, len(images), unbatched), keys, strict=True):
        drawn, at_boxes = labelled(belongs, label, classes)
        text = "" if at_boxes or label is None else _label(label)
        yield [_tile(image, size, classes.get(text, text), key, drawn)]


def _fields(item: Item, where: Mapping[str, Field]) -> tuple[Field, Field | None]:
    """Return the field of the images, and the field of the labels (or of the second images), or ``None``.

    In a dict with boxes, masks or points, the labels must have the usual names ``"label"`` or ``"labels"``.
    """
    first = image_field(item)
    taken = {first, *where.values(), *(f"{field}_{what}" for field in names(item) for what in ("count", "offsets"))}
    others = [name for name in names(item) if name not in taken]
    rest = others if not (where and isinstance(item, dict)) else []
    return first, next((name for name in ("label", "labels") if name in others), next(iter(rest), None))


def _images(item: Item, field: Field | None, unbatched: bool) -> list[np.ndarray]:
    if field is None:
        raise ValueError(f"the batches have only one field, {names(item)[0]!r}; img2img needs two")
    value = get(item, field)
    images = list(value) if not unbatched and (isinstance(value, (list, tuple)) or np.ndim(value)) else [value]
    return rows({field: [_channels_last(image) for image in images]}, field)


def _channels_last(value: Any) -> np.ndarray:
    image = decode(value) if isinstance(value, bytes) else np.asarray(value)
    is_first = image.ndim == 3 and image.shape[0] in (1, 3, 4) and image.shape[2] not in (1, 3, 4)
    return image.transpose(1, 2, 0) if is_first else image


def _labels(item: Item, field: Field | None, count: int, unbatched: bool) -> list[np.ndarray | None]:
    if field is None:
        return [None] * count
    try:
        return [np.asarray(value) for value in rows_of(item, field, count, not unbatched)]
    except ValueError as error:
        raise ValueError(f"{error}; for a stream of samples, pass -b (unbatched)") from None


def _label(value: np.ndarray) -> str:
    """Return the text below an image for a number, a text or a one-hot vector. Return an empty text for any other value."""
    if value.ndim == 1 and value.size > 1 and np.count_nonzero(value) == 1 and value.dtype.kind in "biuf":
        return str(value.argmax())
    return text_of(value.reshape(-1)[0]) if value.size == 1 else ""


def _tile(image: np.ndarray, size: int, label: str, key: str, drawn: Drawn | None = None) -> Tile:
    picture = to_pillow(image)
    small = fitted(picture, size)
    return Tile(small if drawn is None else draw_on(small, drawn, picture.size), label, key)
