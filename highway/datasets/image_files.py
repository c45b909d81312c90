"""List the image files in a folder, on this machine or in an object store. The order of the files is the same on every machine."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from highway.datasets.dataset import StoredFiles
from highway.datasets.labels import LabelList
from highway.datasets.paths import entries_of, files_below, reachable
from highway.engine.cancel import check_cancelled
from highway.errors import DatasetError
from highway.stores.file import fingerprint_of, read_whole
from highway.stores.url import is_url, join, shown

if TYPE_CHECKING:
    from highway.stores.listing import Listing

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


class ImageFiles(NamedTuple):
    """A list of image files.

    Args:
        root: The folder, or its URL.
        keys: The paths of the files, relative to the folder, with ``/``.
        labels: The label of each file; empty if there are no labels.
        listing: If the files are in an object store: the objects. ``None``: the files are on this machine.
    """

    root: str
    keys: list[str]
    labels: list[int]
    listing: Listing | None = None

    def path(self, number: int) -> str:
        """Return the path of a file. For a file in an object store, return the URL without secrets, for messages."""
        if self.listing is not None:
            return str(self.listing.object(number))
        return os.path.join(self.root, self.keys[number])

    def read(self, number: int) -> bytes:
        """Return the bytes of a file. Raises OSError."""
        if self.listing is not None:
            return self.listing.read([number])[0]
        return read_whole(self.path(number))

    def contents(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the bytes of several files. Raises OSError."""
        if self.listing is not None:
            return self.listing.read(numbers)
        return [read_whole(self.path(number)) for number in numbers]

    def stored(self, numbers: Sequence[int]) -> StoredFiles:
        """Return several files with their labels: the paths, or the contents if the files are in an object store."""
        folder, keys, labels = os.path.join(self.root, ""), self.keys, self.labels
        files = [folder + keys[number] for number in numbers] if self.listing is None else self.listing.read(numbers)
        return StoredFiles(files, [labels[number] for number in numbers] if labels else None)

    def select(self, numbers: Sequence[int]) -> ImageFiles:
        """Return a list that contains only these files."""
        labels = [self.labels[number] for number in numbers] if self.labels else []
        listing = None if self.listing is None else self.listing.select(numbers)
        return ImageFiles(self.root, [self.keys[number] for number in numbers], labels, listing)

    def fingerprint(self) -> str:
        """Return a string that changes when files are added, removed, renamed or written to."""
        if self.listing is not None:
            return self.listing.fingerprint()
        return fingerprint_of((key, self.path(number)) for number, key in enumerate(self.keys))


def listed_files(root: str, found: LabelList, labels: str) -> ImageFiles:
    """Return the images in a list of labels, in the order of the list.

    Args:
        root: The folder of the files, or its URL.
        found: The list of labels.
        labels: Path of the list, for messages.

    Raises:
        FileNotFoundError: some of the images do not exist.
    """
    if is_url(root):
        return ImageFiles(root, found.keys, found.labels, _select(_listing(root), found.keys, shown(labels)))
    _check_there(root, found.keys, labels)
    return ImageFiles(root, found.keys, found.labels)


def named_files(root: str, keys: list[str], labels: str) -> ImageFiles:
    """Return the files with these names in a folder. Missing local files raise an error only when they are read.

    Args:
        root: The folder of the files, or its URL.
        keys: The names.
        labels: Path of the list that contains the names, for messages.

    Raises:
        FileNotFoundError: the local folder, or a file in an object store, does not exist.
        DatasetError: a name contains a zero byte.
    """
    if damaged := next((key for key in keys if "\0" in key), None):
        raise DatasetError(f"{shown(labels)}: {damaged!r} is not a file name: the list is damaged")
    if not is_url(root) and not os.path.isdir(root):
        raise FileNotFoundError(
            f"{shown(labels)} lists files in {root!r}, but this folder does not exist (the current directory is {os.getcwd()!r}); "
            f"correct data_dir"
        )
    listing = _select(_listing(root, any("/" in key for key in keys)), keys, shown(labels)) if is_url(root) else None
    return ImageFiles(root, keys, [], listing)


def _check_there(root: str, keys: Sequence[str], labels: str) -> None:
    """Raise FileNotFoundError if an image in a list does not exist."""
    names: dict[str, set[str]] = {"": _file_names(root)}
    missing = []
    for key in keys:
        folder, _, name = key.rpartition("/")
        if folder not in names:
            check_cancelled()
            path = os.path.join(root, folder)
            names[folder] = _file_names(path) if os.path.isdir(path) else set()
        if name not in names[folder]:
            missing.append(key)
    if missing:
        raise _not_there(labels, keys, missing, root)


def _file_names(folder: str) -> set[str]:
    return {entry.name for entry in entries_of(folder) if not entry.is_symlink() or os.path.exists(entry.path)}


def _not_there(labels: str, keys: Sequence[str], missing: Sequence[str], root: str) -> FileNotFoundError:
    return FileNotFoundError(
        f"{labels}: {len(missing)} of {len(keys)} listed images do not exist in {root!r}; the first is {missing[0]!r}; "
        "correct data_dir, or remove these lines"
    )


def label_names(root: str, classes: Sequence[str] | None = None) -> list[str]:
    """Return the names of the label folders in ``root``, indexed by label.

    Args:
        root: The folder, or its URL.
        classes: The names of the label folders, in the order of the labels. ``None``: all folders, in sorted order.

    Raises:
        FileNotFoundError: the folder ``root`` does not exist or has no subfolders.
        FileNotFoundError: a name in ``classes`` has no folder, or the target of a link in ``root`` does not exist.
        DatasetError: ``classes`` is ``None``, and all folders have names of splits, such as ``train`` and ``val``.
    """
    found = list(_by_label(root, _listing(root))) if is_url(root) else _folders(root)
    return _numbered(root, found, classes)


def _numbered(root: str, found: Sequence[str], classes: Sequence[str] | None) -> list[str]:
    if classes is None:
        if all(_SPLIT.fullmatch(name.lower()) for name in found):
            example = join(root, next((name for name in found if name.lower().startswith("train")), found[0]))
            raise DatasetError(
                f"data_dir {shown(root)!r}: the folders have the names {', '.join(found)}, which are names of splits, not of classes; "
                f"read one of them, {shown(example)!r}, or declare that they are classes: ImageFolder({shown(root)!r}, "
                f"class_names={list(found)})"
            )
        return list(found)
    if missing := [name for name in classes if name not in set(found)]:
        raise FileNotFoundError(
            f"data_dir {shown(root)!r}: there is no folder for {len(missing)} of {len(classes)} classes; the first is {missing[0]!r}; "
            "correct classes or data_dir"
        )
    return list(classes)


_SPLIT = re.compile(
    r"(\d+|images|imgs)?[-_ ]?(train|training|trn|val|valid|validation|dev|test|testing|tst|eval|evaluation|holdout)"
    r"([-_ ]?(set|split|data|images|imgs|\d+))*"
)


def _folders(root: str) -> list[str]:
    entries = list(reachable(root))
    names = [entry.name for entry in entries if entry.is_dir()]
    if not names:
        hint = "it contains images; use ImageReader" if any(map(_is_image, entries)) else "it contains neither folders nor images"
        raise FileNotFoundError(f"data_dir {root!r}: expected one folder per label, but {hint}")
    return names


def labelled_files(root: str, classes: Sequence[str] | None = None) -> ImageFiles:
    """List the images in the label folders and in their subfolders.

    Links are followed. Hidden files, and files that are not images, are skipped.

    For the arguments, see :func:`label_names`. The errors of :func:`label_names` can also be raised.

    Raises:
        FileNotFoundError: a label folder contains no images, or the target of a link does not exist.
        DatasetError: a link leads to a folder that contains the link.
    """
    if is_url(root):
        return _labelled_objects(root, classes)
    keys: list[str] = []
    labels: list[int] = []
    for number, name in enumerate(label_names(root, classes)):
        check_cancelled()
        found = [key for key in files_below(root, name) if key.lower().endswith(SUFFIXES)]
        if not found:
            raise FileNotFoundError(_no_images(os.path.join(root, name), "remove the folder, or put images into it"))
        keys += found
        labels += [number] * len(found)
    return ImageFiles(root, keys, labels)


def flat_files(root: str) -> ImageFiles:
    """List the images in ``root``, without subfolders.

    Raises:
        FileNotFoundError: the folder ``root`` does not exist or has no images, or the target of a link in ``root`` does not exist.
    """
    if is_url(root):
        return _flat_objects(root)
    keys = [entry.name for entry in reachable(root) if _is_image(entry)]
    if not keys:
        way_out = _USE_LABELS if any(e.is_dir() for e in entries_of(root)) else "put images into it"
        raise FileNotFoundError(_no_images(root, way_out))
    return ImageFiles(root, keys, [])


def _is_image(entry: os.DirEntry[str]) -> bool:
    return entry.name.lower().endswith(SUFFIXES) and entry.is_file()


def _listing(root: str, below: bool = True) -> Listing:
    from highway.stores.listing import listing_of  # imported here, because local folders do not need this module

    return listing_of(root, below)


def _labelled_objects(root: str, classes: Sequence[str] | None) -> ImageFiles:
    listing = _listing(root)
    numbers: list[int] = []
    labels: list[int] = []
    folders = _by_label(root, listing)
    for label, name in enumerate(_numbered(root, list(folders), classes)):
        images = [number for number in folders[name] if listing.keys[number].lower().endswith(SUFFIXES)]
        if not images:
            raise FileNotFoundError(_no_images(shown(join(root, name)), "remove the folder, or put images into it"))
        numbers += images
        labels += [label] * len(images)
    images_of = listing.select(numbers)
    return ImageFiles(root, images_of.keys, labels, images_of)


def _by_label(root: str, listing: Listing) -> dict[str, list[int]]:
    """Return a dict from the names of the label folders in an object store to the indexes of their objects."""
    found: dict[str, list[int]] = {}
    for number, key in enumerate(listing.keys):
        name, slash, _ = key.partition("/")
        if slash:
            found.setdefault(name, []).append(number)
    if not found:
        raise FileNotFoundError(
            f"data_dir {shown(root)!r}: expected one folder per label, but it has no folders; use ImageReader for images without labels"
        )
    return found


def _flat_objects(root: str) -> ImageFiles:
    listing = _listing(root, below=False)
    images = listing.select([number for number, key in enumerate(listing.keys) if key.lower().endswith(SUFFIXES)])
    if not images.keys:
        raise FileNotFoundError(_no_images(shown(root), _USE_LABELS))
    return ImageFiles(root, images.keys, [], images)


def _select(listing: Listing, keys: Sequence[str], labels: str) -> Listing:
    numbers = {key: number for number, key in enumerate(listing.keys)}
    if missing := [key for key in keys if key not in numbers]:
        raise _not_there(labels, keys, missing, str(listing.url))
    return listing.select([numbers[key] for key in keys])


_USE_LABELS = "if it has one folder per label, use ImageFileReader"


def _no_images(folder: str, way_out: str) -> str:
    return f"data_dir {folder!r}: the folder contains no images ({', '.join(SUFFIXES)}); {way_out}"
