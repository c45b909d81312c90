"""The files that users name: by paths, braces, patterns, or lists of these."""

from __future__ import annotations

import glob
import os

from highway.datasets.writing import is_part
from highway.stores.url import is_url, shown, without_options
from highway.wire.braces import expand_braces


def files_of(paths: str | list[str], leave_out: str = "") -> list[str]:
    """Return the files, or their URLs, that paths stand for: braces are written out, then patterns matched with what is there, sorted.

    In patterns stand ``*``, ``?`` and ``[...]``; behind the ``?`` of a URL stand its options. They do not stand for what is being written.

    Args:
        paths: One, or a list, in whose order they stay.
        leave_out: How the names of files end that a pattern does not stand for, such as ``.index``.

    Raises:
        FileNotFoundError: no file has a name like a pattern.
        IsADirectoryError: a path is a folder.
    """
    files = [file for one in ([paths] if isinstance(paths, str) else paths) for file in expanded(one, leave_out)]
    if folder := next((file for file in files if not is_url(file) and os.path.isdir(file)), None):
        raise IsADirectoryError(f"{folder!r}: a folder; name the files in it, such as {os.path.join(folder, '*')!r}")
    return files


def expanded(path: str, leave_out: str = "") -> list[str]:
    """Return the files and folders that a path stands for; as for :func:`files_of`."""
    found: list[str] = []
    for one in expand_braces(path):
        if is_url(one):
            names = stored(one, leave_out) if glob.has_magic(without_options(one)) else [one]
            if not names:
                raise FileNotFoundError(f"{shown(one)!r}: no object has a name like this")
            found += names
            continue
        is_pattern = glob.has_magic(one) and "://" not in one and not one.startswith("pipe:") and not os.path.exists(one)
        names = [one]
        if is_pattern:
            names = sorted(name for name in glob.glob(one) if not is_part(name) and not (leave_out and name.endswith(leave_out)))
        if not names:
            raise FileNotFoundError(f"{one!r}: no file has a name like this, seen from {os.getcwd()!r}")
        found += names
    return found


def stored(url: str, leave_out: str = "") -> list[str]:
    """Return the URLs of the objects that a pattern matches, or of those in a folder, sorted.

    Args:
        url: The URL of a folder, or a pattern.
        leave_out: How the names of objects end that are left out.
    """
    from highway.stores.listing import objects_at  # here, since files on this machine need nothing of it

    found = [one.url.with_options for one in objects_at(url, "*", folder=True)]
    return [one for one in found if not (leave_out and without_options(one).endswith(leave_out))]
