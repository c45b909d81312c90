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
    files: list[str] = []
    for one in [paths] if isinstance(paths, str) else paths:
        for path in expand_braces(one):
            found = [path]
            if glob.has_magic(path) and "://" not in path and not os.path.exists(path):
                found = sorted(name for name in glob.glob(path) if not (leave_out and name.endswith(leave_out)))
            if not found:
                raise FileNotFoundError(f"{path!r}: no file has a name like this, seen from {os.getcwd()!r}")
            files += found
    if folder := next(filter(os.path.isdir, files), None):
        raise IsADirectoryError(f"{folder!r}: a folder; name the files in it, such as {os.path.join(folder, '*')!r}")
    return files
