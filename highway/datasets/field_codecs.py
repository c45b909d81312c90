"""Encode the fields of a sample as files, and decode the files. As in WebDataset, the extension of a file determines the type of the field.

==================================  =====================================================  ==========================================
extension                           read as                                                written from
==================================  =====================================================  ==========================================
``cls cls2 class count index id``   int32                                                  an integer that fits into int32
``txt text transcript``             str (UTF-8)                                            str
``json``                            a JSON value                                           a value that JSON can hold
``npy``                             array                                                  array
``ten``                             array, or a tuple of arrays                            array, or a tuple or list of arrays
``png jpg jpeg ppm ...``            bytes; ``DecodeImage`` decodes them in many workers    uint8 array ``(H, W, 3)`` or ``(H, W)``
any other extension                 bytes; pickles are not loaded                          array, or a tuple or list of arrays
==================================  =====================================================  ==========================================

``bytes`` are written unchanged under every extension. If a field ``NAME`` contains an array, or a tuple or list of arrays, the file is
``NAME.ten``. ``NAME.ten`` is read as the field ``NAME``, so the field keeps its name. There are three exceptions. If a name ends in
``npy``, a single array is written in ``.npy`` format. If a name ends in an image type, the field can contain only an image. If a name ends
in ``json``, the field cannot contain arrays. In ``.ten`` files, boolean arrays are stored as uint8, and the header marks them as ``bool``.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import lru_cache
from tokenize import TokenError
from typing import Any

import numpy as np
from PIL import Image

from highway.engine.batch import how_to_flatten
from highway.errors import FrameError, ItemError
from highway.wire import chunks

IMAGES = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG", "ppm": "PPM", "pgm": "PPM", "bmp": "BMP", "webp": "WEBP"}
JPEG_QUALITY = 95
# The errors that NumPy raises for a damaged .npy header.
BAD_NPY = (ValueError, TypeError, TokenError, SyntaxError, RecursionError, MemoryError, OverflowError)

_NUMBERS = ("cls", "cls2", "class", "count", "index", "id")
_TEXTS = ("txt", "text", "transcript")
_INT32 = range(-(2**31), 2**31)
_BOOL = "bool"  # marks a boolean array in the header of a .ten file, because the format has no booleans


@lru_cache
def field_name(extension: str) -> str:
    """Return the name of the field that is stored in a file with this extension."""
    return extension.removesuffix(".ten") if _last(extension) == "ten" else extension


def decode_field(extension: str, data: bytes) -> Any:
    """Decode the content of a file.

    Raises:
        ValueError: the bytes do not match the extension.
        RecursionError: the bytes are JSON that is nested too deeply.
    """
    decoder = _decoder_of(extension)
    return data if decoder is None else decoder(data)


def encode_field(name: str, value: Any) -> tuple[str, bytes]:
    """Encode a field as a file. Return the extension and the bytes of the file.

    Raises:
        ItemError: no file with this extension can contain the value.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return name, bytes(value)
    if (kind := _last(name)) in IMAGES:
        return name, _image(name, value)
    try:
        if (found := _encoded(name, kind, value)) is not None:
            return found
        why = ""
    except (TypeError, ValueError) as error:
        why = "" if isinstance(error, ItemError) else f": {error}"  # this error only lists the dtypes of .ten files
    what = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
    raise ItemError(
        f"field {name!r} contains {what}, which cannot be stored under this name{why}; make it an array of numbers or bytes, or rename "
        f"the field so that the name ends in cls (a 32-bit number), txt (a string) or json{how_to_flatten(name, type(value))}"
    )


def _encoded(name: str, kind: str, value: Any) -> tuple[str, bytes] | None:
    """Encode a value that is not ``bytes``. Return ``None`` if no file can contain the value."""
    if kind in _NUMBERS and isinstance(value, (int, np.integer)) and int(value) in _INT32:
        return name, str(int(value)).encode()
    if kind in _TEXTS and isinstance(value, str):
        return name, value.encode()
    if kind == "json":
        return name, json.dumps(value).encode()
    if kind == "npy" and isinstance(value, np.ndarray):
        return name, _npy(value)
    arrays = value if isinstance(value, (tuple, list)) else [value]
    if not arrays or not all(isinstance(array, (np.ndarray, np.generic)) for array in arrays):
        return None
    infos = [_BOOL * (array.dtype == np.bool_) for array in arrays]
    return name if kind == "ten" else f"{name}.ten", bytes(chunks.encode_buffer([np.asarray(array) for array in arrays], infos))


def _last(extension: str) -> str:
    return extension.rpartition(".")[2]


def _number(data: bytes) -> np.int32:
    try:
        return np.int32(int(data))
    except OverflowError:
        raise ValueError(f"{data[:40]!r} does not fit into an int32; store such numbers as .txt or .json") from None


def _tensors(data: bytes) -> Any:
    arrays, infos = chunks.decode_buffer(data, True)
    for place, info in enumerate(infos):
        if info == _BOOL:
            if arrays[place].dtype != np.uint8 or arrays[place].max(initial=0) > 1:
                raise FrameError(f"array {place} is marked as boolean, but does not contain 0 and 1 as u1")
            arrays[place] = arrays[place].view(np.bool_)
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _array(data: bytes) -> np.ndarray:
    try:
        array: np.ndarray = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except BAD_NPY as error:
        raise ValueError(f"not a readable .npy file: {error}") from error
    return array


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(_NUMBERS, _number),
    **dict.fromkeys(_TEXTS, bytes.decode),
    "json": json.loads,
    "npy": _array,
    "ten": _tensors,
}


@lru_cache
def _decoder_of(extension: str) -> Callable[[bytes], Any] | None:
    return _DECODERS.get(_last(extension))


def _image(name: str, value: Any) -> bytes:
    if not (isinstance(value, np.ndarray) and value.dtype == np.uint8 and (value.ndim == 2 or (value.ndim == 3 and value.shape[2] == 3))):
        what = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        raise ItemError(f"field {name!r} is {what}; an image is written from uint8 (H, W, 3) or (H, W), or from its encoded bytes")
    file = io.BytesIO()
    Image.fromarray(value).save(file, IMAGES[_last(name)], quality=JPEG_QUALITY)
    return file.getvalue()


def _npy(value: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, value, allow_pickle=False)
    return file.getvalue()
