"""A safe unpickler for a dict of arrays, lists, numbers and bytes. For other objects, it raises an error.

A pickle is a program that can call any function. This unpickler allows only a few names of NumPy. Each of these names becomes a placeholder
class. A placeholder checks its arguments, and then creates an array or dtype. The base class is the unpickler in pure Python, because the
unpickler in C would allocate as much memory as a damaged pickle requests.
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
    """Placeholder for an array."""

    array: np.ndarray

    def __init__(self, *_: Any) -> None:
        """Ignore the arguments: a pickle first creates an empty array, and then calls ``__setstate__`` with the content."""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _Dtype) or not isinstance(data, bytes) or math.prod(shape) * dtype.dtype.itemsize != len(data):
            raise ValueError(f"an array of shape {shape} does not fit its {len(data)} bytes")
        self.array = np.frombuffer(data, dtype.dtype).reshape(shape, order="F" if fortran else "C")


class _Dtype:
    """Placeholder for a dtype. A pickle first sets the type, and then the byte order."""

    def __init__(self, name: str | bytes, *_: Any) -> None:
        text = name.decode() if isinstance(name, bytes) else name
        if not _DTYPE.fullmatch(text):
            raise ValueError(f"an array has the dtype {text!r}; expected numbers")
        self.dtype: np.dtype[Any] = np.dtype(text)

    def __setstate__(self, state: Any) -> None:
        if state[1] in (">", b">"):
            self.dtype = self.dtype.newbyteorder(">")


def _encoded(text: str, encoding: str) -> bytes:
    """Placeholder for ``codecs.encode``: in old protocols, Python 3 writes bytes as text that must be encoded."""
    if encoding not in ("latin1", b"latin1"):
        raise ValueError(f"a text has the encoding {encoding!r}; expected latin1")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """Placeholder for ``bytes``: in old protocols, Python 3 writes empty bytes as ``bytes()``."""
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
        """Set the content of a placeholder. The base class would set any attribute of any object."""
        stack: list[Any] = self.stack  # type: ignore[attr-defined]
        state, made = stack.pop(), stack[-1]
        if not isinstance(made, (_Array, _Dtype)):
            raise ValueError(f"it sets the state of a {type(made).__name__}; expected an array")
        made.__setstate__(state)

    dispatch[pickle.BUILD[0]] = load_build  # type: ignore[assignment]  # replaces the method of the base class


def load_plain(data: bytes, where: str) -> dict[bytes, Any]:
    """Return the dict in a pickle. The keys of the dict are bytes, as in pickles of Python 2.

    Args:
        data: The pickle.
        where: Name of the file in error messages.

    Raises:
        DatasetError: the data are not a pickle, are damaged, or contain objects of other types.
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
