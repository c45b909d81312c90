"""Random access to the image files in a folder. The files have the same order on every machine."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from highway.data import resolve_data_dir
from highway.datasets.dataset import StoredFiles
from highway.datasets.image_files import ImageFiles, flat_files, label_names, labelled_files, listed_files
from highway.datasets.labels import LabelList, read_classes, read_labels
from highway.datasets.opened import opened
from highway.errors import ConfigError
from highway.parameters.checks import checked
from highway.stores.file import exists, fingerprint_of
from highway.stores.url import is_url, join


class _Folder(ABC):
    """Base class of datasets of image files. Subclasses find the files."""

    data_dir: str

    @abstractmethod
    def _found(self) -> ImageFiles:
        """List the files that exist now."""

    @opened
    def _files(self) -> ImageFiles:
        return self._found()

    def __len__(self) -> int:
        return len(self._files.keys)

    def __getitem__(self, number: int) -> Any:
        files = self._files
        data = files.read(number)
        return (data, np.int32(files.labels[number])) if files.labels else (data,)

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several samples. Files in an object store are requested concurrently."""
        files = self._files
        contents = files.contents(numbers)
        if not files.labels:
            return [(data,) for data in contents]
        return [(data, np.int32(files.labels[number])) for data, number in zip(contents, numbers, strict=True)]

    # This method must be in the same class as __getitem__: if a subclass overrides only __getitem__, readers ignore __getfiles__.
    def __getfiles__(self, numbers: Sequence[int]) -> StoredFiles:
        return self._files.stored(numbers)

    @property
    def keys(self) -> Sequence[str]:
        """The paths of the files, relative to ``data_dir``."""
        return self._files.keys

    def locate(self, number: int) -> str:
        """Return the path of a file."""
        return self._files.path(number)

    def fingerprint(self) -> str:
        """Return a string that changes when files are added, removed, renamed or written to."""
        return self._found().fingerprint()


def _place_of(path: str, root: str) -> str:
    """Return ``path`` if a file exists there. Otherwise return ``path`` joined to the image folder ``root``."""
    path = resolve_data_dir(path)
    return path if is_url(path) or exists(path) else join(root, path)


@checked
@dataclass
class ImageFolder(_Folder):
    """The images of a folder that contains one subfolder per label. The images are sorted by label, then by path.

    The subfolders are called label folders. By default, the labels have the sorted order of the folder names. If ``class_names`` is given,
    the labels have the order of ``class_names``. A label folder can have subfolders. Images in these subfolders have the label of the label
    folder. Symbolic links are followed. Hidden files, and files without the extension of an image format, are skipped.

    Args:
        data_dir: The folder that contains one folder per label, or the URL of this folder. ``highway:photos/train`` and
            ``highway:photos/val`` are folders with a few photographs in the highway package.
        class_names: The names of the label folders, in the order of the labels: a list, or a file such as ``wnids.txt`` of Tiny ImageNet.
            For the format of the file, see ``class_names`` of :class:`Files`. Folders that are not in the list are skipped. ``None``
            selects all folders, in sorted order. If all of them have names of splits, such as ``train`` and ``val``, an error is raised,
            because ``data_dir`` is probably the wrong folder.

    A sample is ``(data, label)``: the ``bytes`` of the file, and the label as int32.

    Raises:
        FileNotFoundError: ``data_dir`` does not exist, or has no label folders (when the dataset is first read).
        FileNotFoundError: a label folder has no images, or a name in ``class_names`` has no folder.
        FileNotFoundError: the target of a symbolic link does not exist.
        DatasetError: a symbolic link leads to a folder that contains the link.
        DatasetError: ``class_names`` is ``None``, and all folders have names of splits.
        DatasetError: a line in the file ``class_names`` is not valid.

    >>> dataset = ImageFolder("highway:photos/val")
    >>> data, label = dataset[0]
    >>> len(dataset), dataset.keys[0], dataset.classes[label]
    (32, 'astronaut/00.jpg', 'astronaut')
    """

    data_dir: str
    class_names: str | list[str] | None = None

    def _found(self) -> ImageFiles:
        return labelled_files(resolve_data_dir(self.data_dir), self._names)

    @property
    def _names(self) -> Sequence[str] | None:
        if not isinstance(self.class_names, str):
            return self.class_names
        return read_classes(_place_of(self.class_names, resolve_data_dir(self.data_dir)))[0]

    @property
    def classes(self) -> list[str]:
        """The names of the labels, indexed by label. Each access reads the names from the folder again."""
        return label_names(resolve_data_dir(self.data_dir), self._names)

    def fingerprint(self) -> str:
        """Return a string that changes when files are added, removed, renamed or written to, or when ``class_names`` changes."""
        return super().fingerprint() + ("" if self.class_names is None else f" {self._names}")


@checked
@dataclass
class Files(_Folder):
    """The images in one folder, without subfolders, sorted by name. With a list of ``labels``, the images in this list, in its order.

    Args:
        data_dir: The folder, or the URL of the folder. Paths ``highway:photos/...`` refer to a few photographs in the highway package.
        labels: The list of labels: a file with one line per image. A line has the path of the image in ``data_dir``, a space or tab, and
            the label. The label is a number or the name of a class. Leading slashes of the path, and text after a second tab, are ignored.
            Examples are ``val.txt`` of ILSVRC, ``places365_val.txt``, and ``val_annotations.txt`` of Tiny ImageNet. If the lines have only
            paths, the label of an image is the name of its folder. The path of the list can be relative to ``data_dir``. Images that are
            not in the list are skipped.
        class_names: A file with one line per label, such as ``synsets.txt`` or ``synset_words.txt`` of ILSVRC. A line has the name of the
            class. A description can follow, after a space or tab. The first line is label 0. Without this file, class names in the list of
            labels are numbered in sorted order.

    A sample is ``(data,)``: the ``bytes`` of the file. If ``labels`` is given, a sample is ``(data, label)``, where ``label`` is an int32.

    Raises:
        ConfigError: ``class_names`` is given without ``labels``.
        FileNotFoundError: ``data_dir`` does not exist or has no images (when the dataset is first read).
        FileNotFoundError: an image in the list of labels does not exist.
        OSError: the file ``labels`` or ``class_names`` cannot be read.
        DatasetError: a line in the file ``labels`` or ``class_names`` is not valid.

    >>> with open("labels.txt", "w") as file:
    ...     print("cat/00.jpg cat", file=file)
    ...     print("brick/01.jpg brick", file=file)
    >>> dataset = Files("highway:photos/val", "labels.txt")
    >>> data, label = dataset[1]
    >>> len(dataset), dataset.classes[label]
    (2, 'brick')
    """

    data_dir: str
    labels: str | None = None
    class_names: str | None = None

    def __post_init__(self) -> None:
        if self.class_names is not None and self.labels is None:
            raise ConfigError(
                f"Files: class_names={self.class_names!r}, but no labels; pass the list with the label of each image as labels="
            )

    def _found(self) -> ImageFiles:
        root = resolve_data_dir(self.data_dir)
        if self.labels is None:
            return flat_files(root)
        return listed_files(root, self._list, self.labels)

    @opened
    def _list(self) -> LabelList:
        labels, *names = self._lists()
        return read_labels(labels, names[0] if names else None)

    def _lists(self) -> list[str]:
        """Return the paths of the files that define the labels."""
        root = resolve_data_dir(self.data_dir)
        return [_place_of(path, root) for path in (self.labels, self.class_names) if path is not None]

    @property
    def classes(self) -> list[str] | None:
        """The names of the labels, indexed by label. Without names, these are the numbers of the labels. ``None`` without ``labels``."""
        if self.labels is None:
            return None
        return self._list.classes or [str(number) for number in range(max(self._list.labels) + 1)]

    @property
    def words(self) -> list[str] | None:
        """The descriptions in ``class_names``, indexed by label; ``None`` if there are no descriptions."""
        return (self._list.words if self.class_names else None) or None

    def fingerprint(self) -> str:
        """Return a string that changes when files are added, removed, renamed or written to, or when their labels change."""
        return super().fingerprint() + "".join(f" {fingerprint_of([(path, path)])}" for path in self._lists())


def has_label_folders(path: str) -> bool:
    """Return whether a folder contains label folders."""
    if is_url(path):
        try:
            return bool(ImageFolder(path).classes)
        except FileNotFoundError:  # if the folder has no images, Files raises the error
            return False
    return os.path.isdir(path) and any(os.path.isdir(os.path.join(path, name)) for name in os.listdir(path) if not name.startswith("."))
