"""Datasets of an HDF5 file whose values are in other files: virtual datasets, and external storage."""

from __future__ import annotations

import math
import os
from typing import Any

from highway.datasets.hdf5.backend import h5py
from highway.errors import DatasetError
from highway.stores.unchanging import FileState


class OtherFiles:
    """The other files that hold the values of a dataset.

    If values are missing in these files, HDF5 returns the fill value without an error.

    Args:
        dataset: The h5py dataset.
        path: The file that contains the dataset.
        name: The name in messages.
        allowed: Whether other files may be read.

    Raises:
        DatasetError: other files exist but are not allowed, are missing, or are too short.
    """

    def __init__(self, dataset: Any, path: str, name: str, allowed: bool) -> None:
        self._name, self.states = name, dict[str, FileState]()
        if not (dataset.is_virtual or dataset.external):
            return
        if not allowed:
            kind = "a virtual dataset" if dataset.is_virtual else "a dataset in external storage"
            raise DatasetError(
                f"{name}: {kind}, whose values are in other files; say other_files=True if you trust this file to name any file of this "
                "machine, or leave the dataset out by fields={...}"
            )
        folder = os.path.dirname(os.path.abspath(path))
        for file, offset, size in dataset.external or ():
            prefix = os.environ.get("HDF5_EXTFILE_PREFIX", "").replace("${ORIGIN}", folder)  # the path, as HDF5 finds it
            self._add(os.path.abspath(os.path.join(prefix, os.fsdecode(file))), 0 if size == h5py.h5f.UNLIMITED else offset + size)
        for source in dataset.virtual_sources() if dataset.is_virtual else ():
            self._check_source(dataset, path, folder, source)

    def _check_source(self, dataset: Any, path: str, folder: str, source: Any) -> None:
        if "%" in source.file_name:
            raise DatasetError(f"{self._name}: its sources are files by number, {source.file_name!r}, which are not read; name each")
        place = path if source.file_name == "." else os.path.join(folder, source.file_name)
        if source.file_name != ".":
            self._add(place, 0)
        try:
            with h5py.File(place, "r", locking="best-effort") as file:
                shape = file[source.dset_name].shape
        except Exception as error:  # h5py raises errors of many types
            raise DatasetError(f"{self._name}: its source {source.dset_name!r} in {place!r} cannot be read: {error}") from error
        wanted = source.src_space
        if wanted.get_select_type() == h5py.h5s.SEL_ALL:
            fits = math.prod(shape) == source.vspace.get_select_npoints()
        else:
            ends = wanted.get_select_bounds()[1]
            fits = len(shape) == len(ends) and all(end < length for end, length in zip(ends, shape, strict=True))
        if not fits:
            raise DatasetError(
                f"{self._name}: its source {source.dset_name!r} in {place!r} has shape {shape}, which does not match this dataset"
            )

    def _add(self, place: str, size: int) -> None:
        try:
            self.states[place] = state = FileState.of(place)
        except FileNotFoundError:
            raise DatasetError(f"{self._name}: its values are in {place!r}, which does not exist; put the file there") from None
        if state.size < size:
            raise DatasetError(f"{self._name}: its values are in {place!r}, expected at least {size} bytes, found {state.size}")

    def check(self) -> None:
        """Raise DatasetError if one of the files has changed."""
        for place, state in self.states.items():
            if not os.path.exists(place) or FileState.of(place) != state:
                raise DatasetError(f"{self._name}: {place!r} has changed since it was first read; start again")
