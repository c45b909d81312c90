"""Arrays that say where the samples of a file lie, kept in a file of their own so that they need not be found again."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from highway.datasets.writing import writing

SUFFIX = ".index"


def index_path(path: str, where: bool | str) -> str:
    """Return where the index of a file is kept: beside it, or in the folder ``where``, by its name and a digest of its whole path."""
    if isinstance(where, bool):
        return path + SUFFIX
    digest = hashlib.blake2b(os.path.abspath(path).encode(errors="surrogateescape"), digest_size=8).hexdigest()
    return os.path.join(where, f"{os.path.basename(path)}-{digest}{SUFFIX}")


def load_index(path: str, version: int | str, names: Sequence[str]) -> list[np.ndarray] | None:
    """Return the arrays in an index file, if it is there and whole, and of this version."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            return [arrays[name] for name in names] if arrays["version"] == version else None
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error):
        return None


def save_index(path: str, version: int | str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an index file, which is whole or not there.

    Raises:
        OSError: it cannot be written.
    """
    with writing(path) as name, open(name, "wb") as out:
        np.savez(out, version=version, **arrays)  # type: ignore[arg-type]  # numpy takes allow_pickle for one of them
