"""Load pickles from files that the user trusts. No other module of highway loads a pickle from a file.

Loading a pickle can run any code. highway loads a pickle only if the user sets ``trusted_pickle``, and only from a file on this machine.
Since December 2019, tensorpack's serializers write pickles by default.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterable
from typing import IO, Any

import numpy as np

from highway.datasets.records.protobuf import Data
from highway.errors import ConfigError
from highway.stores.url import is_url, shown

_PROTOCOLS = range(2, 6)
_CORE = re.compile(r"numpy\.core(|\..*)")
_LOADER = "or let tensorpack read the file: DataFlowSource({serializer}.load(path)), from highway.adapters.tensorpack"


def looks_like_pickle(value: Data) -> bool:
    """Return whether a value begins and ends like a pickle of protocol 2 to 5."""
    return begins_like_pickle(value) and value[-1] == ord(".")


def begins_like_pickle(value: Data) -> bool:
    """Return whether a value begins like a pickle of protocol 2 to 5."""
    return len(value) > 2 and value[0] == 0x80 and value[1] in _PROTOCOLS


def refusal(what: str, option: str, serializer: str) -> str:
    """Return the error message for a pickle. The message explains why highway does not load the pickle, and how the user can load it.

    Args:
        what: The start of the message, such as ``"its values are pickles"``.
        option: The option that allows pickles.
        serializer: The class of tensorpack that writes these files.
    """
    return (
        f"{what}, as tensorpack's {serializer} writes by default; loading a pickle can run any code. If you trust the file, use {option}, "
        + _LOADER.format(serializer=serializer)
    )


def check_local(component: str, paths: Iterable[str]) -> None:
    """Raise ConfigError if a path is a URL."""
    for path in paths:
        if is_url(path):
            raise ConfigError(
                f"{component}: trusted_pickle loads pickles from files on this machine only, not from {shown(path)!r}: "
                "loading a pickle can run any code; copy the file to this machine"
            )


class _Unpickler(pickle.Unpickler):
    """Loads pickles that NumPy 1 or NumPy 2 wrote. NumPy 2 renamed the module ``numpy.core`` to ``numpy._core``."""

    def find_class(self, module: str, name: str) -> Any:
        if found := _CORE.fullmatch(module):
            module = "numpy._core" + found[1]
        return super().find_class(module, name)


def load(value: Data) -> Any:
    """Return the object in a pickle. A list becomes a tuple.

    Raises:
        ValueError: the pickle cannot be loaded.
    """
    try:
        found = _Unpickler(io.BytesIO(value)).load()
    except Exception as error:  # loading a pickle can raise any error
        raise ValueError(f"the pickle cannot be loaded: {error!r}") from error
    return tuple(found) if isinstance(found, list) else found


def load_array(file: IO[bytes]) -> np.ndarray:
    """Return the array in a ``.npy`` file. The array can contain Python objects.

    Raises:
        ValueError: the array cannot be loaded.
    """
    try:
        array: np.ndarray = np.lib.format.read_array(file, allow_pickle=True)
    except Exception as error:  # loading a pickle can raise any error
        raise ValueError(f"the array cannot be loaded: {error!r}") from error
    return array
