"""Write image files into a folder. The path of an image is its key. If the key has no folder, the label becomes the folder."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from PIL import Image

from highway.datasets.image_files import SUFFIXES
from highway.datasets.writing import write_whole
from highway.errors import DatasetError, ItemError
from highway.stores.file import present_in
from highway.stores.url import join, shown

LABELS = "highway-labels.txt"  # the list of labels, which is written if ImageFolder would number the labels differently

EXTENSIONS = {suffix[1:] for suffix in SUFFIXES}


class ImageFolderWriter:
    """Writes images; see :func:`image_folder_writer`. Several threads can write at the same time."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_there = present_in(path)
        self._labels: dict[str, int | None] = {}  # the label of each written file, by its path in the folder
        self._taken: dict[str, object] = {}  # an object for each path that was written

    def add(self, key: str, sample: Mapping[str, Any]) -> None:
        """Write the image of a sample. Existing files are not overwritten.

        Args:
            key: The path of the image in the folder, without an extension. If the key has no ``/`` and the sample has a label, the image is
                written to a subfolder. The name of this subfolder is the number of the label, such as ``0003``.
            sample: A dict with an image, and optionally a label. The label is an integer in the field ``cls`` or ``label``. The image is
                ``bytes`` or an array. ``bytes`` are in a field whose name is the extension (``jpg``, ``png``, ...). An array is uint8
                ``(H, W, 3)``, ``(H, W)`` or ``(H, W, 1)``, and is written as PNG.

        Raises:
            ItemError: the sample has no image, or has a field that is neither an image nor a label.
            DatasetError: the key is a path outside the folder, or the path of a hidden file.
            DatasetError: an earlier image has the same path.
        """
        extension, data, label = _image_and_label(sample)
        parts = key.split("/")
        if os.path.isabs(key) or ".." in parts:
            raise DatasetError(f"the key {key!r} is a path outside the folder; use other keys")
        if parts[-1] in ("", ".") or any(part.startswith(".") for part in parts if part != "."):
            raise DatasetError(f"the key {key!r} would be a hidden file or folder, which readers skip; use other keys")
        name = f"{place_of(key, label)}.{extension}"
        mine = object()
        if self._taken.setdefault(name, mine) is not mine:  # setdefault is atomic, so two threads cannot take the same path
            raise DatasetError(f"two images have the path {name!r} in {shown(self._path)}; give each sample a unique key")
        self._labels[name] = label
        if not self._is_there(name):
            write_whole(join(self._path, name), data, durable=True)

    def finish(self) -> None:
        """Write the list of labels, unless each label is the index of its folder in sorted order."""
        folders = sorted({name.partition("/")[0] for name in self._labels if "/" in name})
        numbers = {folder: number for number, folder in enumerate(folders)}
        labelled = {name: label for name, label in self._labels.items() if label is not None}
        if any(numbers.get(name.partition("/")[0]) != label for name, label in labelled.items()):
            lines = "".join(f"{name}\t{label}\n" for name, label in sorted(labelled.items()))
            write_whole(join(self._path, LABELS), lines.encode(errors="surrogateescape"), durable=True)


def place_in(key: str, sample: Mapping[str, Any]) -> str:
    """Return the path of the image of a sample; see :func:`place_of`."""
    return place_of(key, sample.get("cls", sample.get("label")))


def place_of(key: str, label: int | None) -> str:
    """Return the path of an image without extension, such as ``a/x`` for the key ``./a//x``, or ``0003/x`` for ``x`` with label 3."""
    place = "/".join(part for part in key.split("/") if part not in ("", "."))
    return place if "/" in place or label is None else f"{label:04d}/{place}"


def _image_and_label(sample: Mapping[str, Any]) -> tuple[str, bytes, int | None]:
    rest = dict(sample)
    label = next((rest.pop(name) for name in ("cls", "label") if isinstance(rest.get(name), (int, np.integer))), None)
    if len(rest) != 1:
        raise ItemError(
            f"a folder stores an image and a label for each sample, but this sample has {', '.join(sample)}; remove the other fields, "
            f"or write another format"
        )
    ((name, value),) = rest.items()
    if name in EXTENSIONS and isinstance(value, bytes):
        return name, value, None if label is None else int(label)
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or not (value.ndim == 2 or value.shape[2:] in ((1,), (3,))):
        raise ItemError(
            f"a folder stores images, but field {name!r} is a {type(value).__name__}; expected the bytes of an image file in a field "
            f"named by its extension ({', '.join(sorted(EXTENSIONS))}), or an array `image`, uint8 (H, W, 3) or (H, W)"
        )
    file = io.BytesIO()
    Image.fromarray(value[..., 0] if value.shape[2:] == (1,) else value).save(file, "PNG")
    return "png", file.getvalue(), None if label is None else int(label)


@contextmanager
def image_folder_writer(path: str) -> Iterator[ImageFolderWriter]:
    """Write images below a folder. Each image gets its final name only when it is complete.

    :class:`~highway.datasets.ImageFolder` can read the folder. ``ImageFolder`` numbers the labels in the sorted order of the folders. If
    the labels of the samples differ from these numbers, the writer also writes a list of labels. In this case, read the folder with
    ``Files(path, labels="highway-labels.txt")``.
    """
    writer = ImageFolderWriter(path)
    yield writer
    writer.finish()
