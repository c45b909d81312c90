"""Draw annotations on an image: boxes with their names, masks and points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from highway.images.grid import type_face

COLORS = (  # successive colours differ strongly, and all colours are visible on dark and light backgrounds
    *[(255, 215, 0), (0, 200, 255), (255, 60, 140), (60, 220, 80), (255, 120, 0), (150, 110, 255)],
    *[(0, 230, 190), (255, 90, 70), (180, 230, 0), (70, 130, 255), (235, 130, 255), (200, 160, 90)],
)
_INK = (0, 0, 0)


class Drawn(NamedTuple):
    """The annotations to draw on an image.

    Args:
        boxes: ``(N, 4)``: x1, y1, x2, y2 in pixels of the original image. Boxes without area, such as padding, are not drawn.
        names: The texts of the boxes: an empty list, or N texts.
        mask: ``(H, W)``: each integer except 0 is a class or an object. Or ``(N, H, W)``: the pixels of object n are not 0 in ``mask[n]``.
        points: ``(N, 2)`` or ``(N, K, 2)``: x and y in pixels. NaN points are not drawn.
        colors: For each object (a box, a mask, a row of points), an integer that selects its colour. By default 0, 1, 2 and so on.
        veil: Opacity of masks, from 0 to 1. The edges of masks are always opaque.
    """

    boxes: np.ndarray | None = None
    names: Sequence[str] = ()
    mask: np.ndarray | None = None
    points: np.ndarray | None = None
    colors: Sequence[int] = ()
    veil: float = 0.3

    def color(self, row: int) -> tuple[int, int, int]:
        """Return the colour of an object."""
        return _color(self.colors[row] if row < len(self.colors) else row)


def draw_on(image: Image.Image, drawn: Drawn, size: tuple[int, int] | None = None) -> Image.Image:
    """Return a copy of the image in RGB on which the annotations are drawn. Lines, dots and names are larger on larger images.

    Args:
        image: The image.
        drawn: The annotations.
        size: Width and height of the original image, if ``image`` has another size, such as a thumbnail.
    """
    picture = _with_mask(image.convert("RGB"), drawn)  # a copy, even if the image is already RGB
    scale = np.array(picture.size) / np.array(size or picture.size)
    _draw_points(picture, drawn, scale)
    _draw_boxes(picture, drawn, scale)
    return picture


def _with_mask(picture: Image.Image, drawn: Drawn) -> Image.Image:
    if drawn.mask is None:
        return picture
    pixels, mask = np.array(picture), drawn.mask
    if mask.ndim == 2:
        layers = [(_color(number - 1), mask == number) for number in np.unique(mask).tolist() if number]
    else:
        layers = [(drawn.color(row), layer != 0) for row, layer in enumerate(mask)]
    for color, there in layers:
        shown = np.array(Image.fromarray(there).resize(picture.size, Image.Resampling.NEAREST))
        around = np.pad(shown, 1, "edge")
        inner = shown & around[:-2, 1:-1] & around[2:, 1:-1] & around[1:-1, :-2] & around[1:-1, 2:]
        pixels[inner] = (pixels[inner] * (1 - drawn.veil) + np.array(color) * drawn.veil + 0.5).astype(np.uint8)
        pixels[shown & ~inner] = color
    return Image.fromarray(pixels)


def _draw_points(picture: Image.Image, drawn: Drawn, scale: np.ndarray) -> None:
    if drawn.points is None or drawn.points.size == 0:
        return
    draw, radius = ImageDraw.Draw(picture), max(2.0, min(picture.size) / 64)
    for row, points in enumerate(drawn.points.reshape(len(drawn.points), -1, 2)):
        for x, y in (points[np.isfinite(points).all(axis=1)] * scale).tolist():
            draw.ellipse((x - radius - 1, y - radius - 1, x + radius, y + radius), fill=drawn.color(row), outline=_INK)


def _draw_boxes(picture: Image.Image, drawn: Drawn, scale: np.ndarray) -> None:
    if drawn.boxes is None:
        return
    draw, shorter = ImageDraw.Draw(picture), min(picture.size)
    line, face = max(1, round(shorter / 96)), type_face(max(10, round(shorter / 18)))
    scaled = (drawn.boxes.reshape(-1, 2, 2) * scale).reshape(-1, 4)
    sides = {row: tuple(map(round, box)) for row, box in enumerate(scaled.tolist()) if box[0] < box[2] and box[1] < box[3]}
    for row, (left, top, right, bottom) in sides.items():
        draw.rectangle((left, top, max(right - 1, left), max(bottom - 1, top)), outline=drawn.color(row), width=line)
    for row, (left, top, _, _) in sides.items() if drawn.names else ():
        _, _, width, height = (round(side) for side in draw.textbbox((0, 0), drawn.names[row], font=face))
        left, top = max(0, min(left, picture.width - width - 5)), max(0, min(top, picture.height - height - 3))
        draw.rectangle((left, top, left + width + 4, top + height + 2), fill=drawn.color(row))
        draw.text((left + 2, top + 1), drawn.names[row], fill=_INK, font=face)


def _color(number: int) -> tuple[int, int, int]:
    return COLORS[number % len(COLORS)]
