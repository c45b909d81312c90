"""The image files of a folder, in an order that is the same on every machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from highway.engine.cancel import check_cancelled

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


class ImageFiles(NamedTuple):
    """What a reader reads.

    Args:
        root: The folder.
        keys: The files' paths, relative to it, with ``/``.
        labels: The number of each file's label, or nothing.
    """

    root: str
    keys: list[str]
    labels: list[int]

    def path(self, number: int) -> str:
        """Return where a file is."""
        return os.path.join(self.root, self.keys[number])

    def read(self, number: int) -> bytes:
        """Return the bytes of a file. Raises OSError."""
        with open(self.path(number), "rb", buffering=0) as file:
            return file.read()


def label_names(root: str) -> list[str]:
    """Return the names of the label folders in ``root``, sorted; a label's number is its position.

    Raises:
        FileNotFoundError: there is no folder ``root``, or there are no folders in it.
    """
    names = [entry.name for entry in _entries(root) if entry.is_dir()]
    if not names:
        hint = "it has images, which ImageReader reads" if any(map(_is_image, _entries(root))) else "it has neither folders nor images"
        raise FileNotFoundError(f"data_dir {root!r}: expected one folder per label in it, but {hint}")
    return names


def labelled_files(root: str) -> ImageFiles:
    """List the images of each label's folder and of the folders below it; hidden ones and files of other types are left out.

    Raises:
        FileNotFoundError: there is no folder ``root``, no label folders in it, or no images in one of these.
    """
    keys: list[str] = []
    labels: list[int] = []
    for number, name in enumerate(label_names(root)):
        check_cancelled()
        found = list(_below(root, name))
        if not found:
            raise FileNotFoundError(_no_images(os.path.join(root, name), "remove the folder, or put images into it"))
        keys += found
        labels += [number] * len(found)
    return ImageFiles(root, keys, labels)


def flat_files(root: str) -> ImageFiles:
    """List the images in ``root`` itself.

    Raises:
        FileNotFoundError: there is no folder ``root``, or there are no images in it.
    """
    keys = [entry.name for entry in _entries(root) if _is_image(entry)]
    if not keys:
        way_out = "if it has one folder per label, use ImageFileReader" if any(e.is_dir() for e in _entries(root)) else "put images into it"
        raise FileNotFoundError(_no_images(root, way_out))
    return ImageFiles(root, keys, [])


def _below(root: str, folder: str) -> Iterator[str]:
    for entry in _entries(os.path.join(root, folder)):
        key = f"{folder}/{entry.name}"
        if _is_image(entry):
            yield key
        elif entry.is_dir(follow_symlinks=False):  # a link may lead back up
            yield from _below(root, key)


def _entries(root: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(root) as entries:
            return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except FileNotFoundError:
        raise FileNotFoundError(f"data_dir {root!r}: no such folder, seen from {os.getcwd()!r}; correct the path") from None
    except NotADirectoryError:
        raise NotADirectoryError(f"data_dir {root!r}: this is a file; expected a folder") from None


def _is_image(entry: os.DirEntry[str]) -> bool:
    return entry.name.lower().endswith(SUFFIXES) and entry.is_file()


def _no_images(folder: str, way_out: str) -> str:
    return f"data_dir {folder!r}: no images in it ({', '.join(SUFFIXES)}); {way_out}"
