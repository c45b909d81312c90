"""Index files store the positions of a file's samples in a separate file. The next run then finds the samples without a search."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from highway.datasets.writing import write_whole
from highway.stores.file import read_whole
from highway.stores.url import beside, is_url, join, shown

SUFFIX = ".index"


def index_path(path: str, where: bool | str) -> str:
    """Return the path of a file's index: beside the file; or in the folder ``where``, under a name with a digest of the file's path."""
    if isinstance(where, bool):
        return beside(path, SUFFIX)
    whole = shown(path) if is_url(path) else os.path.abspath(path)
    digest = hashlib.blake2b(whole.encode(errors="surrogateescape"), digest_size=8).hexdigest()
    return join(where, f"{os.path.basename(whole)}-{digest}{SUFFIX}")


def load_index(path: str, version: int | str, names: Sequence[str]) -> list[np.ndarray] | None:
    """Return the arrays in an index file, if it exists, is complete, and has this version."""
    try:
        content = read_whole(path)
    except (FileNotFoundError, PermissionError):  # S3 denies access to a missing file if the caller is not allowed to list the bucket
        return None
    return parsed_index(content, version, names)


def parsed_index(content: bytes, version: int | str, names: Sequence[str]) -> list[np.ndarray] | None:
    """Return the arrays in the content of an index file, if it is complete and has this version."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return [arrays[name] for name in names] if arrays["version"] == version else None
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error):
        return None


def save_index(path: str, version: int | str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an index file atomically.

    Raises:
        OSError: the file cannot be written.
    """
    content = io.BytesIO()
    np.savez(content, version=version, **arrays)  # type: ignore[arg-type]  # numpy takes allow_pickle for one of them
    write_whole(path, content.getbuffer())
