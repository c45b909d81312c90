"""Find the files of the paths that a user gives. A path can contain braces and patterns, or be a folder."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence

from highway.datasets.writing import is_part
from highway.engine.cancel import check_cancelled
from highway.errors import DatasetError
from highway.parameters.braces import expand_braces
from highway.stores.url import is_url, shown, without_options


def files_of(paths: str | list[str], leave_out: str = "") -> list[str]:
    """Return the files of one or more paths. Braces are expanded. Then each pattern is replaced by the files that match it, sorted.

    A pattern is a path with ``*``, ``?`` or ``[...]``. In a URL, ``?`` begins the query, and has no effect as a pattern. Patterns do not
    match unfinished files.

    Args:
        paths: A path or URL, or a list of these. The files have the order of the list.
        leave_out: A suffix, such as ``.index``. If a pattern is expanded, files with this suffix are skipped.

    Raises:
        FileNotFoundError: no file matches a pattern.
        IsADirectoryError: a path is a folder.
    """
    files = [file for one in ([paths] if isinstance(paths, str) else paths) for file in expanded(one, leave_out)]
    if folder := next((file for file in files if not is_url(file) and os.path.isdir(file)), None):
        raise IsADirectoryError(f"{folder!r}: the path is a folder; pass the files in it, such as {os.path.join(folder, '*')!r}")
    return files


def expanded(path: str, leave_out: str = "") -> list[str]:
    """Return the files and folders of one path; see :func:`files_of`."""
    found: list[str] = []
    for one in expand_braces(path):
        if is_url(one):
            names = stored(one, leave_out) if glob.has_magic(without_options(one)) else [one]
            if not names:
                raise FileNotFoundError(f"{shown(one)!r}: no object matches this pattern")
            found += names
            continue
        is_pattern = glob.has_magic(one) and "://" not in one and not one.startswith("pipe:") and not os.path.exists(one)
        names = [one]
        if is_pattern:
            names = sorted(name for name in glob.glob(one) if not is_part(name) and not (leave_out and name.endswith(leave_out)))
        if not names:
            raise FileNotFoundError(f"{shown(one)!r}: no file matches this pattern (the current directory is {os.getcwd()!r})")
        found += names
    return found


def stored(url: str, leave_out: str = "") -> list[str]:
    """Return the URLs of the objects that match a pattern, or that are in a folder. The URLs are sorted.

    Args:
        url: The URL of a folder, or a pattern.
        leave_out: Objects whose names have this suffix are skipped.
    """
    from highway.stores.listing import objects_at  # imported here, because local files do not need this module

    found = [one.url.with_options for one in objects_at(url, "*", folder=True)]
    return [one for one in found if not (leave_out and without_options(one).endswith(leave_out))]


def files_below(root: str, folder: str = "", hidden: tuple[str, ...] = (".",)) -> Iterator[str]:
    """Yield the paths of the files in a folder and its subfolders. Paths are relative to ``root``. The names in each folder are sorted.

    Links to files and folders are followed.

    Args:
        root: A folder.
        folder: A folder in ``root``. Empty: ``root`` itself.
        hidden: Files and folders whose names begin with one of these prefixes are skipped.

    Raises:
        FileNotFoundError: the folder does not exist, or the target of a link does not exist.
        DatasetError: a link leads to a folder that contains the link.
    """
    yield from _files_below(root, folder, hidden, [_identity(root)] if folder else [])


def _files_below(root: str, folder: str, hidden: tuple[str, ...], above: Sequence[tuple[int, int]]) -> Iterator[str]:
    path = os.path.join(root, folder)
    entries, here = list(reachable(path, hidden)), _identity(path)
    if here in above:
        raise DatasetError(f"{root!r}: the link {path!r} leads to a folder that contains the link; remove the link")
    check_cancelled()
    for entry in entries:
        key = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_file():
            yield key
        elif entry.is_dir():
            yield from _files_below(root, key, hidden, [*above, here])


def _identity(folder: str) -> tuple[int, int]:
    state = os.stat(folder)
    return state.st_dev, state.st_ino


def reachable(folder: str, hidden: tuple[str, ...] = (".",)) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder, sorted.

    Raises:
        FileNotFoundError: the target of a link does not exist. If the link were skipped, the labels of a dataset could change silently.
    """
    for entry in entries_of(folder, hidden):
        if entry.is_symlink() and not os.path.exists(entry.path):
            target = os.readlink(entry.path)
            raise FileNotFoundError(f"{entry.path!r}: this link leads to {target!r}, which does not exist; correct or remove the link")
        yield entry


def entries_of(folder: str, hidden: tuple[str, ...] = (".",)) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, sorted. Skip entries whose names begin with a prefix in ``hidden``.

    Raises:
        FileNotFoundError: the folder does not exist.
        NotADirectoryError: the path is a file.
    """
    try:
        with os.scandir(folder) as entries:
            return sorted((entry for entry in entries if not entry.name.startswith(hidden)), key=lambda entry: entry.name)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{shown(folder)!r}: there is no such folder (the current directory is {os.getcwd()!r}); correct the path"
        ) from None
    except NotADirectoryError:
        raise NotADirectoryError(f"{folder!r}: this is a file; expected a folder") from None
