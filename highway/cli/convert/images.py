"""Converts the images and labels of a sample for another format."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from highway.datasets.folder_writer import EXTENSIONS
from highway.errors import ImageError
from highway.images.decode import decode
from highway.images.header import read_header

Images = Literal["files", "bytes", "pixels"]
Sample = dict[str, Any]

_OF_FORMAT = {"BMP": "bmp", "GIF": "gif", "JPEG": "jpg", "PNG": "png", "PPM": "ppm", "TIFF": "tif", "WEBP": "webp"}


def _as_files(sample: Sample) -> Sample:
    """Rename the encoded image of a sample to its extension, and its label, an int32, to ``cls``, as in files of a shard."""
    name, extension = _encoded_image(sample), ""
    if name == "image":
        with contextlib.suppress(ImageError):  # bytes of another kind
            extension = _OF_FORMAT[read_header(sample[name]).format]
    found = _renamed(sample, {name: extension} | _label(sample, "label", "cls")) if extension else sample
    if not isinstance(label := found.get("cls"), (int, np.integer)):
        return found
    if not -(2**31) <= label < 2**31:
        raise ValueError(f"the label {label} does not fit into an int32, as labels of shards are")
    return found | {"cls": np.int32(label)}


def _as_bytes(sample: Sample) -> Sample:
    """Rename the encoded image of a sample to ``image``, and its label to ``label``."""
    name = _encoded_image(sample)
    return _renamed(sample, {name: "image"} | _label(sample, "cls", "label")) if name and "image" not in sample else sample


def _as_pixels(sample: Sample) -> Sample:
    """Decode the images of a sample, to uint8 ``(H, W, 3)``. Rename a single image to ``image``, and the label to ``label``."""
    name = _encoded_image(sample)
    names = [name] if name else [name for name in sample if _is_encoded(sample, name)]
    renamed = {name: "image"} if name and "image" not in sample else {}
    return _renamed(sample | {name: decode(sample[name]) for name in names}, renamed | _label(sample, "cls", "label"))


AS: dict[Images, Callable[[Sample], Sample]] = {"files": _as_files, "bytes": _as_bytes, "pixels": _as_pixels}


def _is_encoded(sample: Sample, name: str) -> bool:
    return isinstance(sample[name], bytes) and name in EXTENSIONS


def _encoded_image(sample: Sample) -> str:
    """Return the name of the only field with an encoded image, or an empty text if there are no or several such fields."""
    names = [name for name in sample if _is_encoded(sample, name) or (name == "image" and isinstance(sample[name], bytes))]
    return names[0] if len(names) == 1 else ""


def _label(sample: Sample, old: str, new: str) -> dict[str, str]:
    return {old: new} if isinstance(sample.get(old), (int, np.integer)) and new not in sample else {}


def _renamed(sample: Sample, names: dict[str, str]) -> Sample:
    return {names.get(name, name): value for name, value in sample.items()}
