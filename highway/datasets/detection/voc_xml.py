"""Read the objects in an XML file of PASCAL VOC."""

from __future__ import annotations

import math
from typing import NamedTuple
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

import numpy as np

from highway.errors import DatasetError

# The number to subtract from each side: VOC numbers pixels from 1, and xmax and ymax are the last pixels of a box.
_SIDES = {"xmin": 1, "ymin": 1, "xmax": 0, "ymax": 0}
_FLAGS = {"0": False, "1": True, "": False}  # a missing flag is false


class Objects(NamedTuple):
    """The annotated objects of an image, in the order of the file.

    Args:
        names: The class of each object.
        boxes: float32 ``(N, 4)``: x1, y1, x2, y2 in pixels.
        difficult: bool ``(N,)``: whether an object is hard to recognise. VOC's evaluation ignores such objects.
        truncated: bool ``(N,)``: whether a part of the object is outside the box.
    """

    names: list[str]
    boxes: np.ndarray
    difficult: np.ndarray
    truncated: np.ndarray


class _Builder(TreeBuilder):
    """Raises an error for a document type. A document type can define entities, and an entity can expand to any amount of text."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise DatasetError(f"a document type ({name!r}) is declared, but annotations have no document type: remove the line <!DOCTYPE ...>")


def read_objects(path: str, data: bytes) -> Objects:
    """Read an XML file.

    Args:
        path: The path of the file, for messages.
        data: The content.

    Raises:
        DatasetError: the file or an object in it is not valid. The message names the file and the index of the object, from 0.
    """
    parser = XMLParser(target=_Builder())
    try:
        parser.feed(data)
        root = parser.close()
        if root.tag != "annotation":
            raise DatasetError(f"the outermost element is <{root.tag}>; expected <annotation>")
        objects = root.findall("object")  # only direct children: the parts of a person are nested deeper
        boxes = [_box(number, one) for number, one in enumerate(objects)]
        names = [_text(one, "name") for one in objects]
        if "" in names:
            raise DatasetError(f"object {names.index('')} has no <name>")
        flags = [[_flag(number, one, name) for number, one in enumerate(objects)] for name in ("difficult", "truncated")]
    except ParseError as error:
        raise DatasetError(f"{path}: not XML, or damaged or truncated: {error}") from error
    except DatasetError as error:
        raise DatasetError(f"{path}: {error}") from None
    return Objects(names, np.array(boxes, np.float32).reshape(-1, 4), *(np.array(flag, np.bool_) for flag in flags))


def _text(element: Element, name: str) -> str:
    return (element.findtext(name) or "").strip()


def _flag(number: int, element: Element, name: str) -> bool:
    if (text := _text(element, name)) not in _FLAGS:
        raise DatasetError(f"object {number}: <{name}> is {text!r}; expected 0 or 1")
    return _FLAGS[text]


def _box(number: int, element: Element) -> list[float]:
    found = element.find("bndbox")
    if found is None:
        raise DatasetError(f"object {number} has no <bndbox>")
    texts = [_text(found, side) for side in _SIDES]
    try:
        box = [float(text) - less for text, less in zip(texts, _SIDES.values(), strict=True)]
    except ValueError:
        box = [math.nan]
    if not all(map(math.isfinite, box)) or box[0] >= box[2] or box[1] >= box[3]:
        shown = ", ".join(f"{side} {text!r}" for side, text in zip(_SIDES, texts, strict=True))
        raise DatasetError(f"object {number}: the box is {shown}; expected numbers with xmin <= xmax and ymin <= ymax")
    return box
