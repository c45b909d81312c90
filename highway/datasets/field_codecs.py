"""The fields of a sample as the files of a shard: by the WebDataset convention, a file's extension says what is in it.

==================================  =====================================================  ==========================================
extension                           read as                                                written from
==================================  =====================================================  ==========================================
``cls cls2 class count index id``   int32                                                  a whole number
``txt text transcript``             str (UTF-8)                                            str
``json``                            what JSON holds                                        the same
``npy``                             array                                                  array
``ten``                             array, or a tuple of those if there are several        array, or a tuple or list of arrays
``png jpg jpeg ppm ...``            bytes, to be decoded by many workers (``DecodeImage``) bytes, or uint8 ``(H, W, 3)`` or ``(H, W)``
any other                           bytes; pickles too, which are never executed           bytes, or an array as ``NAME.ten``
==================================  =====================================================  ==========================================

``NAME.ten`` is read as the field ``NAME``, so that arrays of any name come back under it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image

from highway.wire import chunks

IMAGES = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG", "ppm": "PPM", "pgm": "PPM", "bmp": "BMP", "webp": "WEBP"}
JPEG_QUALITY = 95

_NUMBERS = ("cls", "cls2", "class", "count", "index", "id")
_TEXTS = ("txt", "text", "transcript")


@lru_cache
def field_name(extension: str) -> str:
    """Return the name of the field that a file holds."""
    return extension.removesuffix(".ten") if _last(extension) == "ten" else extension


def decode_field(extension: str, data: bytes) -> Any:
    """Return what a file holds.

    Raises:
        ValueError: the bytes are not what the extension says.
    """
    decoder = _decoder_of(extension)
    return data if decoder is None else decoder(data)


def encode_field(name: str, value: Any) -> tuple[str, bytes]:
    """Return the extension and the bytes of the file that is to hold a field.

    Raises:
        TypeError: no file of that name can hold the value; the message names the way out.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return name, bytes(value)
    kind = _last(name)
    if kind in _NUMBERS and isinstance(value, (int, np.integer)):
        return name, str(int(value)).encode()
    if kind in _TEXTS and isinstance(value, str):
        return name, value.encode()
    if kind == "json":
        return name, json.dumps(value).encode()
    if kind in IMAGES:
        return name, _image(name, value)
    if kind == "npy" and isinstance(value, np.ndarray):
        return name, _npy(value)
    arrays = value if isinstance(value, (tuple, list)) else [value]
    if arrays and all(isinstance(array, (np.ndarray, np.generic)) for array in arrays):
        return name if kind == "ten" else f"{name}.ten", bytes(chunks.encode_buffer([np.asarray(array) for array in arrays]))
    raise TypeError(
        f"field {name!r} holds a {type(value).__name__}, which no file of that name can hold; make it an array or bytes, "
        f"or rename the field to end in one of cls (a number), txt (a string), json"
    )


def _last(extension: str) -> str:
    return extension.rpartition(".")[2]


def _number(data: bytes) -> np.int32:
    try:
        return np.int32(int(data))
    except OverflowError:
        raise ValueError(f"{data[:40]!r} does not fit into an int32; keep such numbers in a .txt or .json") from None


def _tensors(data: bytes) -> Any:
    arrays = chunks.decode_buffer(data)
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


_DECODERS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(_NUMBERS, _number),
    **dict.fromkeys(_TEXTS, bytes.decode),
    "json": json.loads,
    "npy": lambda data: np.lib.format.read_array(io.BytesIO(data), allow_pickle=False),
    "ten": _tensors,
}


@lru_cache
def _decoder_of(extension: str) -> Callable[[bytes], Any] | None:
    return _DECODERS.get(_last(extension))


def _image(name: str, value: Any) -> bytes:
    if not (isinstance(value, np.ndarray) and value.dtype == np.uint8 and (value.ndim == 2 or (value.ndim == 3 and value.shape[2] == 3))):
        what = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise TypeError(f"field {name!r} is {what}; an image is written from uint8 (H, W, 3) or (H, W), or from its encoded bytes")
    file = io.BytesIO()
    Image.fromarray(value).save(file, IMAGES[_last(name)], quality=JPEG_QUALITY)
    return file.getvalue()


def _npy(value: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, value, allow_pickle=False)
    return file.getvalue()
