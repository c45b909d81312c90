"""The files that users name: by paths, braces, patterns, or lists of these."""

from __future__ import annotations

import glob
import os

from highway.wire.braces import expand_braces


def files_of(paths: str | list[str], leave_out: str = "") -> list[str]:
    """Return the files that paths stand for: braces are written out, then ``*``, ``?`` and ``[...]`` matched with what is there, sorted.

    Args:
        paths: One, or a list, in whose order they stay.
        leave_out: How the names of files end that a pattern does not stand for, such as ``.index``.

    Raises:
        FileNotFoundError: no file has a name like a pattern.
        IsADirectoryError: a path is a folder.
    """
    files = [file for one in ([paths] if isinstance(paths, str) else paths) for file in expanded(one, leave_out)]
    if folder := next(filter(os.path.isdir, files), None):
        raise IsADirectoryError(f"{folder!r}: a folder; name the files in it, such as {os.path.join(folder, '*')!r}")
    return files


def expanded(path: str, leave_out: str = "") -> list[str]:
    """Return the files and folders that a path stands for; as for :func:`files_of`."""
    found: list[str] = []
    for one in expand_braces(path):
        is_pattern = glob.has_magic(one) and "://" not in one and not one.startswith("pipe:") and not os.path.exists(one)
        names = sorted(name for name in glob.glob(one) if not (leave_out and name.endswith(leave_out))) if is_pattern else [one]
        if not names:
            raise FileNotFoundError(f"{one!r}: no file has a name like this, seen from {os.getcwd()!r}")
        found += names
    return found
