"""Sinks for images, and the stream that writes them on their way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Literal

import numpy as np

from highway.datasets.writing import writing
from highway.engine.batch import Item, get, names
from highway.engine.stage import Items, Passport, Stamped
from highway.images.grid import Tile, draw_grid, fitted
from highway.images.items import file_name, row_keys, rows, to_pillow
from highway.parameters.checks import checked
from highway.parameters.ranges import Count, Range


@dataclass
class _ImageFiles:
    """Writes every image to a file of its own.

    Args:
        path: Folder for the files; made if it is not there.
        field: Name or position of the field that holds the images; by default ``"image"``, ``"images"`` or the first.
        format: ``"png"``, exact, or ``"jpg"``, quality 95.
    """

    path: str
    field: str | int | None = None
    format: Literal["png", "jpg"] = "png"

    def _written(self, items: Items) -> Iterator[Stamped]:
        numbers = count()
        for item in items:
            images = rows(item, self.field)
            for image, key in zip(images, row_keys(items.passport, len(images)), strict=True):
                with writing(os.path.join(self.path, file_name(next(numbers), key, self.format))) as name:
                    picture = to_pillow(image)
                    if self.format == "png":
                        picture.save(name, "PNG", compress_level=1)
                    else:
                        picture.convert("RGB").save(name, "JPEG", quality=95)
            yield Stamped(item, items.passport)


@checked
@dataclass
class DumpImages(_ImageFiles):
    """Write every image to a file of its own, and hand on the items.

    Files are named by a running number from 0 and, where the passport has them, the samples' keys: ``000017-cat-03.png``. A later run
    writes over an earlier one's.

    Raises:
        OSError: a file cannot be written.
        ValueError: the field holds no images.
    """

    stream = _ImageFiles._written


@checked
@dataclass
class ImageSink(_ImageFiles):
    """Write every image to a file of its own; the files are those of :class:`DumpImages`."""

    def consume(self, items: Items) -> None:
        for _ in self._written(items):
            pass


@checked
@dataclass
class ContactSheet:
    """Write one PNG with a grid of the images that arrived first, each with its label and key.

    The file is written as soon as ``limit`` images are there, or at the end of the stream; it appears whole or not at all, and a line says
    so. What comes later is taken and dropped.

    Args:
        path: The PNG to write; its folder is made if it is not there.
        columns: Images in a row, at least 1.
        limit: Images on the sheet, at least 1.
        size: Height and width in pixels that an image is fitted into, at least 16.
        field: Name or position of the field that holds the images; by default ``"image"``, ``"images"`` or the first.
        label: Name or position of the field that holds a whole number for each image; by default ``"label"``, ``"labels"`` or the second.
        classes: Names of the labels, by number.

    Raises:
        OSError: the file cannot be written.
        ValueError: the field holds no images, or nothing arrived.
    """

    path: str
    columns: Count = 8
    limit: Count = 64
    size: Annotated[int, Range(ge=16)] = 128
    field: str | int | None = None
    label: str | int | None = None
    classes: list[str] | None = None

    def consume(self, items: Items) -> None:
        tiles: list[Tile] = []
        for item in items:
            missing = self.limit - len(tiles)
            if missing:
                tiles += self._tiles(item, items.passport, missing)
                if len(tiles) == self.limit:
                    self._write(tiles)
        if not tiles:
            raise ValueError(f"ContactSheet: no images arrived, {self.path} was not written")
        if len(tiles) < self.limit:
            self._write(tiles)

    def _tiles(self, item: Item, passport: Passport, most: int) -> list[Tile]:
        images = rows(item, self.field)
        labels, keys = self._labels(item, len(images)), row_keys(passport, len(images))
        return [Tile(fitted(to_pillow(images[row]), self.size), labels[row], keys[row]) for row in range(min(most, len(images)))]

    def _labels(self, item: Item, count: int) -> list[str]:
        """Return the label of each image, by name if there is one; by default nothing where there is no field that could be labels."""
        field = self.label
        if field is None:
            field = next((name for name in ("label", "labels", 1) if name in names(item)), None)
        numbers: np.ndarray = np.empty(0) if field is None else np.asarray(get(item, field)).reshape(-1)
        if len(numbers) == count and numbers.dtype.kind in "iu":
            known = dict(enumerate(self.classes or ()))
            return [known.get(number, str(number)) for number in numbers.tolist()]
        if self.label is None:
            return [""] * count
        raise ValueError(f"ContactSheet: field {field!r} holds {numbers.dtype} for {count} images; expected a whole number for each")

    def _write(self, tiles: list[Tile]) -> None:
        with writing(self.path) as name:
            draw_grid(tiles, self.columns, self.size, f"The first {len(tiles)} images").save(name, "PNG")
        print(f"The first {len(tiles)} images are in {self.path}", flush=True)
