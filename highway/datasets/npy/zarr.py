"""Random access to the rows of Zarr arrays. The package zarr reads the arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from highway.datasets.dataset import chosen
from highway.datasets.opened import opened
from highway.datasets.paths import files_below
from highway.errors import ConfigError, DatasetError
from highway.extras import import_extra
from highway.parameters.checks import checked
from highway.stores.file import fingerprint_of, local
from highway.stores.url import shown


@checked
@dataclass
class Zarr:
    """The rows of Zarr arrays, in format 2 or 3. All selected arrays must have the same number of rows.

    To read one row, highway reads and decodes all chunks that contain parts of the row. Therefore use ``Reader(..., shuffle="blocks")``,
    which reads the rows of a chunk together.

    Args:
        path: The folder of a group of arrays, or of one array. Arrays in subgroups are not read. A folder in an object store, such as S3,
            is copied into a local folder, which ``?cache_dir=FOLDER`` in the URL sets.
        fields: A dict from field names to names of arrays. ``{"image": "img;image"}`` reads the array ``img``, or the array ``image`` if
            there is no array ``img``. ``None`` reads all arrays. If ``path`` is one array, ``fields`` must be ``None``.

    A sample is a dict with one row of each selected array. A row is an array, or a number if the Zarr array has one dimension. If ``path``
    is one array, a sample is a row of this array, not a dict.

    Raises:
        ConfigError: zarr is not installed, or ``path`` is a URL and no local folder is set.
        ConfigError: ``fields`` is given, but ``path`` is one array.
        FileNotFoundError: the group or array does not exist (when the dataset is first read).
        DatasetError: the group or an array is damaged.
        DatasetError: the selected arrays have different numbers of rows, or an array is a single value.
        DatasetError: the group has no array for a field in ``fields``.

    >>> import zarr
    >>> group = zarr.open_group("points.zarr", mode="w")
    >>> array = group.create_array("x", data=np.arange(6).reshape(3, 2))
    >>> dataset = Zarr("points.zarr")
    >>> len(dataset), dataset[1]["x"]
    (3, array([2, 3]))
    """

    path: str
    fields: dict[str, str] | None = None

    @opened
    def _arrays(self) -> dict[str, Any]:
        zarr, folder = import_extra("zarr", "zarr", "Zarr"), local(self.path)
        try:
            found = zarr.open(folder, mode="r")
            is_group = isinstance(found, zarr.Group)
            arrays = dict(chosen(dict(sorted(found.arrays())), self.fields)) if is_group else {"": found}
        except FileNotFoundError:
            raise FileNotFoundError(f"{shown(self.path)!r}: there is no Zarr group or array; correct the path") from None
        except (ValueError, KeyError, TypeError) as error:
            raise DatasetError(f"{shown(self.path)}: not a readable Zarr group or array: {error}") from error
        if not is_group and self.fields is not None:
            raise ConfigError(
                f"{shown(self.path)!r}: fields={self.fields} selects arrays of a group, but the path is one array; remove fields"
            )
        lengths = {array.shape[:1] for array in arrays.values()}
        if len(lengths) != 1 or () in lengths:
            shapes = ", ".join(f"{name!r} is {array.shape}" for name, array in arrays.items())
            raise DatasetError(f"{shown(self.path)}: expected arrays with equal numbers of rows, found: {shapes or 'no arrays'}")
        return arrays

    def __len__(self) -> int:
        return int(next(iter(self._arrays.values())).shape[0])

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several samples. A chunk is read once, even if several samples need the chunk."""
        wanted, places = np.unique([range(len(self))[number] for number in numbers], return_inverse=True)
        columns = {}
        for name, array in self._arrays.items():
            try:
                columns[name] = array.oindex[wanted]
            except Exception as error:  # codecs raise many types of errors for damaged chunks
                raise DatasetError(f"{self.locate(numbers[0])}: array {name!r} is damaged and cannot be read: {error}") from error
        if "" in columns:
            return [columns[""][place].copy() for place in places]
        return [{name: rows[place].copy() for name, rows in columns.items()} for place in places]

    def blocks(self) -> list[range]:
        """Return ranges of rows. A range has the rows of one chunk of the largest array, or of one shard if chunks are stored in shards."""
        array = max(self._arrays.values(), key=lambda array: array.nbytes)
        size = (getattr(array, "shards", None) or array.chunks)[0]
        return [range(begin, min(begin + size, len(self))) for begin in range(0, len(self), size)]

    def locate(self, number: int) -> str:
        """Return the path and the index of a row."""
        return f"{shown(self.path)}: row {number}"

    def fingerprint(self) -> str:
        """Return a string that changes when a file below ``path`` is added, removed or written to, or when ``fields`` changes."""
        root = local(self.path)
        files = ((name, os.path.join(root, name)) for name in files_below(root, hidden=()))
        return f"{fingerprint_of(files)} {self.fields}"
