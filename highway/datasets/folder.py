"""The image files of a folder by number, in an order that is the same on every machine."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from highway.data import resolve_data_dir
from highway.datasets.file import StoredFiles, fingerprint_of
from highway.datasets.labels import LabelList, read_labels
from highway.datasets.opened import opened
from highway.engine.cancel import check_cancelled
from highway.errors import ConfigError
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

    def stored(self, numbers: Sequence[int]) -> StoredFiles:
        """Return where several files are, and their labels."""
        folder, keys, labels = os.path.join(self.root, ""), self.keys, self.labels
        return StoredFiles([folder + keys[number] for number in numbers], [labels[number] for number in numbers] if labels else None)


class _Folder(ABC):
    """What image files by number have in common, however they are found."""

    data_dir: str

    @abstractmethod
    def _found(self) -> ImageFiles:
        """List the files, as they are now."""

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
        files = self._found()
        return fingerprint_of((key, files.path(number)) for number, key in enumerate(files.keys))


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

    def __getfiles__(self, numbers: Sequence[int]) -> StoredFiles:
        return self._files.stored(numbers)

    @property
    def classes(self) -> list[str]:
        """The labels' names, read from the folder each time; a label's number is its position."""
        return label_names(resolve_data_dir(self.data_dir))


@checked
@dataclass
class Files(_Folder):
    """The images of one folder, in the order of their paths; or those in a list of labels, in its order.

    Args:
        data_dir: The folder. ``highway:photos/...`` stands for photographs that come with the package.
        labels: A file with a line for each image: its path in ``data_dir``, and its label behind a space or tab, which is a number, or the
            name of a class. Slashes before the path, and what follows behind a further tab, count for nothing. So ``val.txt`` of ILSVRC,
            ``places365_val.txt``, ``places365_train_standard.txt`` and ``val_annotations.txt`` of Tiny ImageNet are read as they are.
            If there is no such file, it is looked for in ``data_dir``. Images that are not in it are left out.
        class_names: A file with a line for each label: its name, and maybe what it means behind a space or tab, such as ``synsets.txt`` or
            ``synset_words.txt`` of ILSVRC. It numbers the labels; without it they are the numbers in ``labels``, or names are numbered in
            their sorted order.

    A sample is ``(data,)``: the file's bytes; or with ``labels`` ``(data, label)``, of which the label is an int32.

    Raises:
        ConfigError: there are ``class_names`` without ``labels``.
        FileNotFoundError: there is no such folder, no images in it, or not those of the list (when it is first read).
        DatasetError: a line of a list is not what it should be.

    >>> dataset = Files("tiny-imagenet-200/val/images", "tiny-imagenet-200/val/val_annotations.txt", "tiny-imagenet-200/wnids.txt")
    """

    data_dir: str
    labels: str | None = None
    class_names: str | None = None

    def __post_init__(self) -> None:
        if self.class_names is not None and self.labels is None:
            raise ConfigError(f"Files: class_names={self.class_names!r}, but no labels; name the list that says which image has which")

    def _found(self) -> ImageFiles:
        root = resolve_data_dir(self.data_dir)
        if self.labels is None:
            return flat_files(root)
        keys, labels, *_ = self._list
        _check_there(root, keys, self.labels)
        return ImageFiles(root, keys, labels)

    @opened
    def _list(self) -> LabelList:
        labels, *names = self._lists()
        return read_labels(labels, names[0] if names else None)

    def _lists(self) -> list[str]:
        """Return the paths of the files that say which labels there are."""
        root = resolve_data_dir(self.data_dir)
        paths = [resolve_data_dir(path) for path in (self.labels, self.class_names) if path is not None]
        return [path if os.path.exists(path) else os.path.join(root, path) for path in paths]

    def __getitem__(self, number: int) -> tuple[bytes] | tuple[bytes, np.int32]:
        files = self._files
        data = files.read(number)
        return (data, np.int32(files.labels[number])) if files.labels else (data,)

    def __getfiles__(self, numbers: Sequence[int]) -> StoredFiles:
        return self._files.stored(numbers)

    @property
    def classes(self) -> list[str] | None:
        """The labels' names, by number; the numbers if nobody names them, and ``None`` if there are no labels."""
        if self.labels is None:
            return None
        return self._list.classes or [str(number) for number in range(max(self._list.labels) + 1)]

    @property
    def words(self) -> list[str] | None:
        """What the labels mean, by number; ``None`` if ``class_names`` does not say it."""
        return (self._list.words if self.class_names else None) or None

    def fingerprint(self) -> str:
        """Return a text that changes when files are added, removed, renamed or written to, or their labels are."""
        return super().fingerprint() + "".join(f" {fingerprint_of([(path, path)])}" for path in self._lists())


def _check_there(root: str, keys: Sequence[str], labels: str) -> None:
    """Raise FileNotFoundError if one of the images in a list is not in its folder."""
    names: dict[str, set[str]] = {"": {entry.name for entry in _entries(root)}}
    missing = []
    for key in keys:
        folder, _, name = key.rpartition("/")
        if folder not in names:
            check_cancelled()
            path = os.path.join(root, folder)
            names[folder] = {entry.name for entry in _entries(path)} if os.path.isdir(path) else set()
        if name not in names[folder]:
            missing.append(key)
    if missing:
        raise FileNotFoundError(
            f"{labels}: of its {len(keys)} images {len(missing)} are not in {root!r}, the first is {missing[0]!r}; correct data_dir, or "
            "remove these lines"
        )


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
