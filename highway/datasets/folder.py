"""The image files of a folder by number, in an order that is the same on every machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from highway.data import resolve_data_dir
from highway.datasets.opened import opened
from highway.engine.cancel import check_cancelled
from highway.parameters.checks import checked

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


class _Folder:
    """What image files by number have in common, however they are found."""

    data_dir: str

    def _found(self) -> ImageFiles:
        raise NotImplementedError

    @opened
    def _files(self) -> ImageFiles:
        return self._found()

    def __len__(self) -> int:
        return len(self._files.keys)

    @property
    def keys(self) -> Sequence[str]:
        """The files' paths, relative to ``data_dir``."""
        return self._files.keys

    def locate(self, number: int) -> str:
        """Return the path of a file."""
        return self._files.path(number)

    def fingerprint(self) -> str:
        """Return a text that changes when files are added, removed, renamed or written to."""
        digest = hashlib.blake2b(digest_size=16)
        files = self._found()
        for number, key in enumerate(files.keys):
            check_cancelled()
            state = os.stat(files.path(number))
            digest.update(f"{key}\0{state.st_size}\0{state.st_mtime_ns}\0".encode())
        return digest.hexdigest()


@checked
@dataclass
class ImageFolder(_Folder):
    """The images in one folder per label, in the order of their paths.

    Labels are numbered in the sorted order of the folders' names (:attr:`classes`). Images in folders below a label's folder belong to it.
    Hidden files, and those of other types, are left out.

    Args:
        data_dir: Folder that holds one folder per label. ``highway:photos/...`` stands for photographs that come with the package.

    A sample is ``(data, label)``: the file's bytes, as ``bytes``, and an int32.

    Raises:
        FileNotFoundError: there is no such folder, no label folders in it, or no images in one of these (when it is first read).

    >>> dataset = ImageFolder("highway:photos/val")
    >>> data, label = dataset[0]
    >>> len(dataset), dataset.keys[0], dataset.classes[label]
    (32, 'astronaut/0000.jpg', 'astronaut')
    """

    data_dir: str

    def _found(self) -> ImageFiles:
        return labelled_files(resolve_data_dir(self.data_dir))

    def __getitem__(self, number: int) -> tuple[bytes, np.int32]:
        files = self._files
        return files.read(number), np.int32(files.labels[number])

    @property
    def classes(self) -> list[str]:
        """The labels' names, read from the folder each time; a label's number is its position."""
        return label_names(resolve_data_dir(self.data_dir))


@checked
@dataclass
class Files(_Folder):
    """The images of one folder, in the order of their paths.

    Args:
        data_dir: The folder. ``highway:photos/...`` stands for photographs that come with the package.

    A sample is ``(data,)``: the file's bytes.

    Raises:
        FileNotFoundError: there is no such folder, or no images in it (when it is first read).
    """

    data_dir: str

    def _found(self) -> ImageFiles:
        return flat_files(resolve_data_dir(self.data_dir))

    def __getitem__(self, number: int) -> tuple[bytes]:
        return (self._files.read(number),)


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
