"""A safe unpickler for a dict of arrays, lists, numbers and bytes. A pickle of other objects is an error.

A pickle is a program that can call any function. This unpickler permits only a few NumPy names. It replaces these names by placeholders
that only store their arguments. It creates an array after it has checked the size. It is a subclass of the unpickler in pure Python,
because the unpickler in C allocates any length that a pickle announces.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from typing import Any, ClassVar

import numpy as np

from highway.errors import DatasetError

_DTYPE = re.compile(r"[biuf][1248]")


class _Array:
    """Placeholder for an array: stores its arguments."""

    array: np.ndarray

    def __init__(self, *_: Any) -> None:
        """Ignore the arguments, which describe an empty array. ``__setstate__`` sets the real arguments."""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _Dtype) or not isinstance(data, bytes) or math.prod(shape) * dtype.dtype.itemsize != len(data):
            raise ValueError(f"an array of shape {shape} that does not fit its {len(data)} bytes")
        self.array = np.frombuffer(data, dtype.dtype).reshape(shape, order="F" if fortran else "C")


class _Dtype:
    """Placeholder for a dtype: stores the name of a number type, and then the byte order."""

    def __init__(self, name: str | bytes, *_: Any) -> None:
        text = name.decode() if isinstance(name, bytes) else name
        if not _DTYPE.fullmatch(text):
            raise ValueError(f"an array of {text!r}; expected numbers")
        self.dtype: np.dtype[Any] = np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        if state[1] in (">", b">"):
            self.dtype = self.dtype.newbyteorder(">")


def _encoded(text: str, encoding: str) -> bytes:
    """Convert text to bytes, because Python 3 writes bytes as text in old protocols."""
    if encoding not in ("latin1", b"latin1"):
        raise ValueError(f"text in {encoding!r}")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """Return empty bytes. In old protocols, Python 3 writes empty bytes as a call of ``bytes`` without arguments."""
    return b""


_NAMES: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encoded,
    ("__builtin__", "bytes"): _no_bytes,
}


class _Unpickler(pickle._Unpickler):
    dispatch: ClassVar = {opcode: load for opcode, load in pickle._Unpickler.dispatch.items() if opcode != pickle.BYTEARRAY8[0]}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMES:
            raise ValueError(f"it refers to {module}.{name}, which could run any code")
        return _NAMES[module, name]

    def load_build(self) -> None:
        """Set the state of a placeholder. The method of the base class would set any attribute of any object."""
        stack: list[Any] = self.stack  # type: ignore[attr-defined]
        state, made = stack.pop(), stack[-1]
        if not isinstance(made, (_Array, _Dtype)):
            raise ValueError(f"it changes a {type(made).__name__}")
        made.__setstate__(state)

    dispatch[pickle.BUILD[0]] = load_build  # type: ignore[assignment]  # of this class


def load_plain(data: bytes, where: str) -> dict[bytes, Any]:
    """Return the dict in a pickle. The keys of the dict are bytes, as Python 2 wrote them.

    Args:
        data: The pickle.
        where: Name of the file in error messages.

    Raises:
        DatasetError: the data are not a pickle, are truncated, or contain objects of other types.
    """
    try:
        found = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        if not isinstance(found, dict):
            raise ValueError(f"it is a {type(found).__name__}; expected a dict")
        return {
            name.encode() if isinstance(name, str) else name: value.array if isinstance(value, _Array) else value
            for name, value in found.items()
        }
    except Exception as error:  # invalid bytes raise errors of many types
        raise DatasetError(f"{where}: not a pickle of plain arrays and lists, or damaged or truncated: {error!r}") from error
