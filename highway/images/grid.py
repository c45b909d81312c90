"""Draw a grid of images as one picture, with a text below each image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont, features

_PAPER, _FRAME, _INK, _FAINT = (250, 250, 248), (232, 232, 228), (28, 28, 30), (128, 128, 124)
_MARGIN, _GAP, _LINE, _TITLE = 24, 14, 15, 40  # in pixels


class Tile(NamedTuple):
    """One image of a grid, and two lines of text below it: the label, and the key in a lighter colour."""

    image: Image.Image
    label: str = ""
    key: str = ""


def fitted(image: Image.Image, size: int) -> Image.Image:
    """Return a copy in RGB whose longer side is ``size`` pixels. By a factor of 2 or more, images are enlarged without interpolation."""
    by = size / max(image.size)
    shape = (max(1, round(image.width * by)), max(1, round(image.height * by)))
    return image.convert("RGB").resize(shape, Image.Resampling.NEAREST if by >= 2 else Image.Resampling.LANCZOS)


def draw_grid(tiles: Sequence[Tile], columns: int, size: int, title: str) -> Image.Image:
    """Return a picture with the tiles in rows. The images must not be wider or higher than ``size`` pixels."""
    columns = min(columns, len(tiles))
    lines = max(bool(tile.label) + bool(tile.key) for tile in tiles)
    tall = max(tile.image.height for tile in tiles)
    width, height = size + _GAP, tall + _GAP + lines * _LINE
    shape = (2 * _MARGIN + columns * width - _GAP, _TITLE + _MARGIN + -(-len(tiles) // columns) * height)
    picture = Image.new("RGB", shape, _PAPER)
    draw = ImageDraw.Draw(picture)
    draw.text((_MARGIN, _TITLE // 2), _shortened(draw, title, 15, shape[0] - 2 * _MARGIN), fill=_INK, font=type_face(15), anchor="lm")
    for number, tile in enumerate(tiles):
        left, top = _MARGIN + number % columns * width, _TITLE + number // columns * height
        draw.rectangle((left, top, left + size - 1, top + tall - 1), fill=_FRAME)
        picture.paste(tile.image, (left + (size - tile.image.width) // 2, top + (tall - tile.image.height) // 2))
        below = top + tall + 3
        for text, ink in ((tile.label, _INK), (tile.key, _FAINT)):
            if text:
                draw.text((left, below), _shortened(draw, text, 12, size), fill=ink, font=type_face(12))
                below += _LINE
    return picture


def type_face(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return the font for texts. Its height is ``size`` pixels if Pillow was built with FreeType."""
    return ImageFont.load_default(size) if features.check("freetype2") else ImageFont.load_default()


def _shortened(draw: ImageDraw.ImageDraw, text: str, size: int, width: int) -> str:
    """If a text is too long, return only its end, because the end of a path identifies the file."""
    font, text = type_face(size), "".join(c if c.isprintable() else "?" for c in text)
    shown = text
    while shown and draw.textlength(shown if shown == text else f"…{shown}", font=font) > width:
        shown = shown[1:]
    return shown if shown == text else f"…{shown}"
