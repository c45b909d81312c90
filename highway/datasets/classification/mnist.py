"""MNIST and Fashion-MNIST, read from their original files.

A file has a magic number, the length of each axis (both big-endian uint32), and the uint8 values of the array. The format is described on
http://yann.lecun.com/exdb/mnist.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from highway.datasets.classification.loaded import LoadedImages, checked_labels, found, missing
from highway.errors import DatasetError
from highway.parameters.checks import checked
from highway.stores.file import read_whole
from highway.stores.url import join, shown

_KINDS = {"images": 3, "labels": 1}  # the number of axes in each kind of file
_PARTS = {"train": "train", "test": "t10k"}
_MOST = 1100  # maximum compression ratio of gzip


class _OfIdx(LoadedImages):
    """Images and labels in the files of MNIST."""

    name: ClassVar[str]
    classes: ClassVar[list[str]]

    def _files(self) -> list[str]:
        folders = [self.data_dir, join(self.data_dir, "raw"), join(self.data_dir, f"{self.name}/raw")]
        paths = []
        for kind, axes in _KINDS.items():
            names = [f"{_PARTS[self.split]}-{kind}{mark}idx{axes}-ubyte{suffix}" for mark in "-." for suffix in ("", ".gz")]
            path = found(folders, names)
            if path is None:
                raise missing(self.data_dir, names[:2], self.name)
            paths.append(path)
        return paths

    def _load(self) -> dict[str, np.ndarray]:
        images_path, labels_path = self._files()
        images, labels = _idx(images_path, 3), _idx(labels_path, 1)
        if len(images) != len(labels):
            raise DatasetError(
                f"{shown(labels_path)}: {len(labels)} labels, but {len(images)} images; use the labels and images of the same split"
            )
        return {"image": images[..., None], "label": checked_labels(labels, len(self.classes), labels_path)}


@checked
@dataclass
class MNIST(_OfIdx):
    """The handwritten digits of MNIST, or another dataset in the same format, such as KMNIST.

    All images are loaded into memory on the first access: 47 MB for MNIST.

    Args:
        data_dir: The folder with ``train-images-idx3-ubyte`` and the other files, which can be compressed by gzip. The files can also be in
            the subfolder ``raw`` or ``MNIST/raw``, which torchvision creates. highway does not download the files.
        split: ``"train"`` or ``"test"``.

    A sample is a dict: ``image``, uint8 ``(28, 28, 1)``, and ``label``, an int32.

    Raises:
        FileNotFoundError: a file of the split does not exist (on the first access).
        DatasetError: a file has another format, or is damaged or truncated (on the first access).
        DatasetError: there are not as many labels as images, or a label is above 9.

    >>> import struct
    >>> with open("t10k-images-idx3-ubyte", "wb") as file:
    ...     size = file.write(struct.pack(">4i", 2051, 2, 28, 28) + bytes(2 * 28 * 28))
    >>> with open("t10k-labels-idx1-ubyte", "wb") as file:
    ...     size = file.write(struct.pack(">2i", 2049, 2) + bytes([7, 3]))
    >>> dataset = MNIST(".", "test")
    >>> len(dataset), dataset[0]["image"].shape, dataset[0]["label"]
    (2, (28, 28, 1), np.int32(7))
    """

    name: ClassVar = "MNIST"
    classes: ClassVar = [str(digit) for digit in range(10)]


@checked
@dataclass
class FashionMNIST(MNIST):
    """The images of clothes of Fashion-MNIST.

    File names, parameters and errors are the same as in :class:`MNIST`. The files can also be in the subfolder ``raw`` or
    ``FashionMNIST/raw``.

    A sample is a dict, as in :class:`MNIST`: ``image``, uint8 ``(28, 28, 1)``, and ``label``, an int32.

    >>> import struct
    >>> with open("t10k-images-idx3-ubyte", "wb") as file:
    ...     size = file.write(struct.pack(">4i", 2051, 2, 28, 28) + bytes(2 * 28 * 28))
    >>> with open("t10k-labels-idx1-ubyte", "wb") as file:
    ...     size = file.write(struct.pack(">2i", 2049, 2) + bytes([7, 3]))
    >>> dataset = FashionMNIST(".", "test")
    >>> len(dataset), dataset.classes[dataset[0]["label"]]
    (2, 'Sneaker')
    """

    name: ClassVar = "FashionMNIST"
    classes: ClassVar = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


def _idx(path: str, axes: int) -> np.ndarray:
    """Read a file, which can be compressed. Raises DatasetError."""
    data, header = read_whole(path), struct.Struct(f">{1 + axes}I")
    zipped = data.startswith(b"\x1f\x8b")
    try:
        with gzip.open(io.BytesIO(data)) if zipped else io.BytesIO(data) as file:
            head, expected = file.read(header.size), 0x800 + axes
            if len(head) >= 4 and (magic := int.from_bytes(head[:4])) != expected:
                raise DatasetError(
                    f"{shown(path)}: the file begins with the number {magic}; expected {expected}: the content belongs to another file"
                )
            if len(head) < header.size:
                raise EOFError(f"the header has {len(head)} of {header.size} bytes")
            _, *shape = header.unpack(head)
            size = math.prod(shape)
            content = file.read(size + 1) if size <= len(data) * (_MOST if zipped else 1) else b""
    except (EOFError, OSError, zlib.error) as error:
        raise DatasetError(f"{shown(path)}: the file is damaged or truncated: {error}") from error
    if len(content) != size:
        raise DatasetError(
            f"{shown(path)}: expected {size} bytes for the shape {tuple(shape)}, found {len(content)}: the file is damaged or truncated"
        )
    return np.frombuffer(content, np.uint8).reshape(shape)
