"""Sinks that write images, and a stream that writes images and passes the items on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Literal

import numpy as np

from highway.datasets.writing import writing
from highway.engine.batch import Item, get, names
from highway.engine.stage import Items, Passport, Stamped
from highway.images.annotations import annotations_of, labelled, rows_of
from highway.images.drawing import draw_on
from highway.images.grid import Tile, draw_grid, fitted
from highway.images.items import file_name, image_field, row_keys, rows, to_pillow
from highway.parameters.checks import checked, require
from highway.parameters.ranges import Count, Range
from highway.stores.url import join


@dataclass
class _ImageFiles:
    """Writes every image to its own file.

    Args:
        path: Folder for the files. It is created if it does not exist.
        field: Name or index of the field that contains the images. By default ``"image"`` or ``"images"`` of a dict, or the first field.
        format: ``"png"`` (lossless) or ``"jpg"`` (quality 95).
    """

    path: str
    field: str | int | None = None
    format: Literal["png", "jpg"] = "png"

    def __post_init__(self) -> None:
        is_suffix = isinstance(self.field, str) and self.field.startswith(".")
        require(not is_suffix, self, "field", f"the field of the images; to select the file type, pass format={str(self.field)[1:]!r}")

    def _written(self, items: Items) -> Iterator[Stamped]:
        numbers = count()
        for item in items:
            images = rows(item, self.field)
            for image, key in zip(images, row_keys(items.passport, len(images)), strict=True):
                with writing(join(self.path, file_name(next(numbers), key, self.format))) as name:
                    picture = to_pillow(image)
                    if self.format == "png":
                        picture.save(name, "PNG", compress_level=1)
                    else:
                        picture.convert("RGB").save(name, "JPEG", quality=95)
            yield Stamped(item, items.passport)


@checked
@dataclass
class DumpImages(_ImageFiles):
    """Write every image to its own file, and pass the items on.

    A file name consists of a running number, from 0, and the key of the sample: ``000017-cat-03.png``. If the sample has no key, the name
    is only the number. A later run overwrites the files.

    Raises:
        KeyError: the field does not exist.
        OSError: a file cannot be written.
        ValueError: the field does not contain images.

    >>> import os
    >>> images = [np.zeros((8, 8, 3), np.uint8)] * 2
    >>> same = list(Pipeline([images, DumpImages("images")]))
    >>> sorted(os.listdir("images"))
    ['000000.png', '000001.png']
    """

    stream = _ImageFiles._written


@checked
@dataclass
class ImageSink(_ImageFiles):
    """Write every image to its own file. File names and errors are the same as for :class:`DumpImages`.

    >>> import os
    >>> images = [np.zeros((8, 8, 3), np.uint8)] * 2
    >>> Pipeline([images, ImageSink("images")]).run()
    >>> sorted(os.listdir("images"))
    ['000000.png', '000001.png']
    """

    def consume(self, items: Items) -> None:
        for _ in self._written(items):
            pass


@checked
@dataclass
class ContactSheet:
    """Write one PNG file with a grid of the first images, each with its label and key. Boxes, masks and points are drawn on the images.

    When ``limit`` images have arrived, or at the end of its input, the sink writes the file and prints a line. The sink ignores later
    items.

    Args:
        path: The PNG file. Its folder is created if it does not exist.
        columns: Number of images per row, at least 1.
        limit: Maximum number of images, at least 1.
        size: Height and width in pixels of each cell, at least 16.
        field: Name or index of the field that contains the images. By default ``"image"`` or ``"images"`` of a dict, or the first field.
        label: Name or index of the field that contains the labels: one integer per image, or one per box. By default ``"label"`` or
            ``"labels"`` of a dict, or the second field.
        classes: Names of the labels, indexed by label.
        boxes: Name or index of the field of the boxes, ``(N, 4)`` per image. By default ``"boxes"``, if this field contains boxes.
        mask: Name or index of the field of the masks, ``(H, W)`` or ``(N, H, W)``. By default ``"masks"`` or ``"mask"``.
        points: Name or index of the field of the points, ``(N, 2)`` or ``(N, K, 2)``. By default ``"keypoints"`` or ``"points"``.

    Raises:
        KeyError: a given field does not exist.
        OSError: the file cannot be written.
        ValueError: the field does not contain images, no image arrived, or a given field does not contain the expected values.

    >>> images, labels = np.zeros((4, 32, 32, 3), np.uint8), np.arange(4)
    >>> Pipeline([[(images, labels)], ContactSheet("sheet.png")]).run()
    The first 4 images are in sheet.png
    """

    path: str
    columns: Count = 8
    limit: Count = 64
    size: Annotated[int, Range(ge=16)] = 128
    field: str | int | None = None
    label: str | int | None = None
    classes: list[str] | None = None
    boxes: str | int | None = None
    mask: str | int | None = None
    points: str | int | None = None

    def consume(self, items: Items) -> None:
        tiles: list[Tile] = []
        for item in items:
            missing = self.limit - len(tiles)
            if missing:
                tiles += self._tiles(item, items.passport, missing)
                if len(tiles) == self.limit:
                    self._write(tiles)
        if not tiles:
            raise ValueError(f"ContactSheet: no images arrived, so {self.path} was not written")
        if len(tiles) < self.limit:
            self._write(tiles)

    def _tiles(self, item: Item, passport: Passport, most: int) -> list[Tile]:
        images = rows(item, self.field)
        given_images = get(item, image_field(item) if self.field is None else self.field)
        batched = not any(image is given_images for image in images)
        given = {role: field for role in ("boxes", "mask", "points") if (field := getattr(self, role)) is not None}
        found = annotations_of(item, [image.shape[:2] for image in images], given, batched)
        labels, keys = self._labels(item, len(images), batched), row_keys(passport, len(images))
        names = {str(number): name for number, name in enumerate(self.classes or ())}
        tiles = []
        for image, belongs, label, key in list(zip(images, found, labels, keys, strict=True))[:most]:
            drawn, at_boxes = labelled(belongs, label, names)
            text = "" if at_boxes else self._text(label, len(images))
            picture = to_pillow(image)
            tiles.append(Tile(draw_on(fitted(picture, self.size), drawn, picture.size), names.get(text, text), key))
        return tiles

    def _labels(self, item: Item, count: int, batched: bool) -> list[np.ndarray | None]:
        """Return, for each image, its label or the labels of its boxes. If the item has no labels, return ``None`` for each image."""
        field = self.label
        if field is None:
            field = next((name for name in ("label", "labels", 1) if name in names(item)), None)
        if field is None:
            return [None] * count
        try:
            return [np.asarray(value) for value in rows_of(item, field, count, batched)]
        except ValueError:
            if self.label is None:
                return [None] * count
            raise

    def _text(self, label: np.ndarray | None, count: int) -> str:
        if label is not None and label.size == 1 and label.dtype.kind in "iu":
            return str(label.item())
        if self.label is None:
            return ""
        kind = "nothing" if label is None else label.dtype
        raise ValueError(f"ContactSheet: field {self.label!r} contains {kind} for {count} images; expected a whole number for each image")

    def _write(self, tiles: list[Tile]) -> None:
        with writing(self.path) as name:
            draw_grid(tiles, self.columns, self.size, f"The first {len(tiles)} images").save(name, "PNG")
        print(f"The first {len(tiles)} images are in {self.path}", flush=True)
