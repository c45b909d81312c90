"""CIFAR-10 and CIFAR-100, from the published files (https://www.cs.toronto.edu/~kriz/cifar.html)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from highway.datasets.classification.loaded import LoadedImages, Split, checked_labels, found, missing
from highway.datasets.classification.plain_pickle import load_plain
from highway.datasets.opened import opened
from highway.errors import DatasetError
from highway.parameters.checks import checked
from highway.stores.file import read_whole
from highway.stores.url import join, shown

_PIXELS = 3 * 32 * 32


class _Label(NamedTuple):
    """A kind of label: the class, or the coarse label.

    Args:
        field: Name of the field in a sample.
        classes: Number of classes.
        pickled: Key under which a pickle contains the labels.
        names: In the binary version, the file of the class names.
        pickled_names: Key under which a pickle contains the class names.
    """

    field: str
    classes: int
    pickled: bytes
    names: str
    pickled_names: bytes


class _OfCIFAR(LoadedImages):
    """Images and labels in the files of CIFAR."""

    name: ClassVar[str]
    folders: ClassVar[tuple[str, str]]  # folder of the binary version, and folder of the pickles
    batches: ClassVar[dict[Split, list[str]]]
    labels: ClassVar[list[_Label]]  # in the order of the bytes in a record
    meta: ClassVar[str]

    def _files(self) -> list[str]:
        return [self._file([f"{name}.bin", name]) for name in self.batches[self.split]]

    def _file(self, names: Sequence[str]) -> str:
        path = found([self.data_dir, *(join(self.data_dir, folder) for folder in self.folders)], names)
        if path is None:
            raise missing(self.data_dir, names, self.name)
        return path

    def _load(self) -> dict[str, np.ndarray]:
        parts = [self._batch(path) for path in self._files()]
        return {name: np.concatenate([part[name] for part in parts]) for name in ("image", *(label.field for label in self.labels[::-1]))}

    def _batch(self, path: str) -> dict[str, np.ndarray]:
        data = read_whole(path)
        pixels, labels = self._records(data, path) if path.partition("?")[0].endswith(".bin") else self._pickled(data, path)
        images = np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        checked = (checked_labels(found, label.classes, path) for found, label in zip(labels, self.labels, strict=True))
        return {"image": images, **{label.field: values for label, values in zip(self.labels, checked, strict=True)}}

    def _records(self, data: bytes, path: str) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the pixels and labels in a binary file. A record has one byte per label, then the red, green and blue planes."""
        size = len(self.labels) + _PIXELS
        if not data or len(data) % size:
            raise DatasetError(
                f"{shown(path)}: the file has {len(data)} bytes; expected records of {size} bytes: the file is "
                f"truncated, or it is not a file of this dataset"
            )
        records = np.frombuffer(data, np.uint8).reshape(-1, size)
        return records[:, len(self.labels) :], [records[:, number] for number in range(len(self.labels))]

    def _pickled(self, data: bytes, path: str) -> tuple[np.ndarray, list[np.ndarray]]:
        batch = load_plain(data, shown(path))
        pixels, labels = batch.get(b"data"), [batch.get(label.pickled) for label in self.labels]
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (_PIXELS,):
            what = f"{pixels.dtype} {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
            raise DatasetError(f"{shown(path)}: the entry 'data' is {what}; expected uint8 (N, {_PIXELS})")
        for label, values in zip(self.labels, labels, strict=True):
            if not isinstance(values, list) or len(values) != len(pixels) or not all(type(value) is int for value in values):
                raise DatasetError(f"{shown(path)}: the entry {label.pickled.decode()!r} is not a list of {len(pixels)} numbers")
        return pixels, [_numbers(values, path) for values in labels if values is not None]

    def _names_of(self, label: _Label) -> list[str]:
        path = self._file([label.names, self.meta])
        data = read_whole(path)
        if path.partition("?")[0].endswith(label.names):
            try:
                names = data.decode().split()
            except UnicodeDecodeError as error:
                raise DatasetError(f"{shown(path)}: the file is not UTF-8 text: {error}") from error
        else:
            listed: Any = load_plain(data, shown(path)).get(label.pickled_names, [])
            names = [name.decode() if isinstance(name, bytes) else str(name) for name in listed]
        if len(names) != label.classes:
            raise DatasetError(f"{shown(path)}: the file has {len(names)} names; expected the names of {label.classes} classes")
        return names

    @opened
    def classes(self) -> list[str]:
        """The names of the labels, indexed by label."""
        return self._names_of(self.labels[-1])


def _numbers(values: list[int], path: str) -> np.ndarray:
    try:
        return np.array(values, np.int64)
    except OverflowError:
        raise DatasetError(f"{shown(path)}: the file has labels of more than 64 bits") from None


@checked
@dataclass
class CIFAR10(_OfCIFAR):
    """The images of CIFAR-10. All images are loaded into memory on the first access: 154 MB for training, 31 MB for test.

    Args:
        data_dir: The folder with the binary files, such as ``data_batch_1.bin``, or with the pickles, such as ``data_batch_1``. The files
            can also be in the subfolder ``cifar-10-batches-bin`` or ``cifar-10-batches-py``. highway does not download the files.
        split: ``"train"`` or ``"test"``.

    A sample is a dict: ``image``, uint8 ``(32, 32, 3)`` in RGB, and ``label``, an int32. From a pickle, highway loads only arrays, lists,
    numbers and strings. If a pickle contains other objects, an error is raised, because loading these could run any code.

    Raises:
        FileNotFoundError: a file of the split does not exist (on the first access).
        DatasetError: a file has another format, or is truncated (on the first access).
        DatasetError: a pickle contains objects that are not arrays, lists, numbers or strings.

    >>> with open("batches.meta.txt", "w") as file:
    ...     print("airplane automobile bird cat deer dog frog horse ship truck".replace(" ", chr(10)), file=file)
    >>> with open("test_batch.bin", "wb") as file:
    ...     size = file.write(10_000 * (bytes([3]) + bytes(3072)))
    >>> dataset = CIFAR10(".", "test")
    >>> len(dataset), dataset[0]["image"].shape, dataset.classes[dataset[0]["label"]]
    (10000, (32, 32, 3), 'cat')
    """

    name: ClassVar = "CIFAR-10"
    folders: ClassVar = ("cifar-10-batches-bin", "cifar-10-batches-py")
    batches: ClassVar = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
    labels: ClassVar = [_Label("label", 10, b"labels", "batches.meta.txt", b"label_names")]
    meta: ClassVar = "batches.meta"


@checked
@dataclass
class CIFAR100(_OfCIFAR):
    """The images of CIFAR-100. All images are loaded into memory on the first access: 154 MB for training, 31 MB for test.

    Args:
        data_dir: The folder with the binary files, such as ``train.bin``, or with the pickles, such as ``train``. The files can also be in
            the subfolder ``cifar-100-binary`` or ``cifar-100-python``. highway does not download the files.
        split: ``"train"`` or ``"test"``.

    A sample is a dict: ``image``, uint8 ``(32, 32, 3)`` in RGB; ``label``, an int32; and ``coarse_label``, an int32. The coarse label is
    one of 20 groups of classes. From a pickle, highway loads only arrays, lists, numbers and strings. If a pickle contains other objects,
    an error is raised, because loading these could run any code.

    Raises:
        FileNotFoundError: a file of the split does not exist (on the first access).
        DatasetError: a file has another format, or is truncated (on the first access).
        DatasetError: a pickle contains objects that are not arrays, lists, numbers or strings.

    >>> with open("test.bin", "wb") as file:
    ...     size = file.write(10_000 * (bytes([0, 3]) + bytes(3072)))
    >>> dataset = CIFAR100(".", "test")
    >>> len(dataset), dataset[0]["image"].shape
    (10000, (32, 32, 3))
    """

    name: ClassVar = "CIFAR-100"
    folders: ClassVar = ("cifar-100-binary", "cifar-100-python")
    batches: ClassVar = {"train": ["train"], "test": ["test"]}
    labels: ClassVar = [
        _Label("coarse_label", 20, b"coarse_labels", "coarse_label_names.txt", b"coarse_label_names"),
        _Label("label", 100, b"fine_labels", "fine_label_names.txt", b"fine_label_names"),
    ]
    meta: ClassVar = "meta"

    @opened
    def coarse_classes(self) -> list[str]:
        """The names of the coarse labels, indexed by label."""
        return self._names_of(self.labels[0])
