"""Random access to the rows of HDF5 datasets. An HDF5 dataset is an array in a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from highway.datasets.dataset import chosen
from highway.datasets.npy.rows import KEYS
from highway.datasets.opened import opened
from highway.errors import DatasetError
from highway.parameters.checks import checked
from highway.parameters.ranges import Count
from highway.stores.file import fingerprint_of, local
from highway.stores.unchanging import UnchangingFile
from highway.stores.url import shown

_BLOCK = 1 << 20  # approximate bytes of a block of rows, if no dataset has chunks
_VARYING = 1 << 14  # assumed bytes of a value of varying length


class _Columns:
    """The datasets to read. All have the same number of rows."""

    def __init__(self, path: str, group: str, fields: dict[str, str] | None, cache_bytes: int, other_files: bool) -> None:
        from highway.datasets.hdf5.backend import LOCK, h5py
        from highway.datasets.hdf5.columns import Chunks, Column  # imported here, because h5py is needed only when a file is read

        path = local(path)
        file, chunks = UnchangingFile(path), Chunks(cache_bytes)
        with LOCK:
            try:
                self._opened = h5py.File(path, "r", locking="best-effort")
                found = _datasets_in(self._opened, group)
            except DatasetError as error:
                raise DatasetError(f"{path}: {error}") from None
            except Exception as error:  # h5py raises many types of errors for damaged files
                raise DatasetError(f"{path}: not an HDF5 file, or damaged, truncated, or open for writing: {error}") from error
            keys = {name: dataset for name, dataset in found.items() if name == KEYS}
            try:
                wanted = chosen({name: one for name, one in found.items() if fields is not None or (one.shape and name != KEYS)}, fields)
            except ValueError as error:
                raise DatasetError(f"{path}: {error}") from None
            self._keys, self.columns = (
                {name: Column(dataset, file, f"{path}: {dataset.name!r}", chunks, other_files) for name, dataset in some.items()}
                for some in (keys, wanted)
            )
        lengths = {name: column.length for name, column in (self.columns | self._keys).items()}
        if not wanted or len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name!r} has {length}" for name, length in lengths.items()) or "none"
            raise DatasetError(
                f"{path}: expected datasets with equal numbers of rows, found: {listed}; select datasets that belong together by fields "
                f"or group"
            )
        self.length = next(iter(lengths.values()))

    def keys(self) -> list[str] | None:
        return [str(key) for key in self._keys[KEYS](range(self.length))] if self._keys else None

    @property
    def block(self) -> int:
        """The number of consecutive rows that are cheap to read together."""
        widest = max(self.columns.values(), key=lambda column: column.chunk * column.row_bytes if column.chunk > 1 else 0)
        if widest.chunk > 1:
            return widest.chunk
        return max(1, _BLOCK // sum(column.row_bytes or _VARYING for column in self.columns.values()))


def _datasets_in(opened: Any, group: str) -> dict[str, Any]:
    """Return the datasets in a group and its subgroups, by path. Soft links and external links are not followed."""
    from highway.datasets.hdf5.backend import h5py

    top = opened
    for name in filter(None, group.split("/")):
        top = top[name] if isinstance(top, h5py.Group) and isinstance(top.get(name, getlink=True), h5py.HardLink) else None
    if not isinstance(top, h5py.Group):
        raise DatasetError(f"the file has no group {group!r}; it has {', '.join(map(repr, opened)) or 'nothing'}")
    return dict(_datasets_below(top, "", []))


def _datasets_below(group: Any, above: str, groups: list[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the path of each dataset below a group, and the dataset. A dataset with several names is yielded several times."""
    from highway.datasets.hdf5.backend import h5py

    if group in groups:
        raise DatasetError(f"the group {group.name!r} contains itself; select the datasets to read by group=")
    for name in sorted(group):
        if isinstance(group.get(name, getlink=True), h5py.HardLink):
            one = group[name]
            if isinstance(one, h5py.Group):
                yield from _datasets_below(one, f"{above}{name}/", [*groups, group])
            elif isinstance(one, h5py.Dataset) and one.shape is not None:
                yield f"{above}{name}", one


@checked
@dataclass
class HDF5:
    """The rows of the datasets in an HDF5 file, or in one group of the file. All datasets must have the same number of rows.

    In HDF5, a dataset is one array in a file. If the rows of a dataset are contiguous, many threads can read rows at the same time. Many
    threads can also read ``bytes`` of varying length with at least 4 kB, such as encoded images. If a dataset has chunks, h5py reads whole
    chunks, in one thread at a time. Recent chunks are cached. For datasets with chunks, use ``Reader(..., shuffle="blocks")``, which reads
    the rows of a chunk together.

    Args:
        path: The file. A file in an object store, such as S3, is copied into a local folder, which ``?cache_dir=FOLDER`` in the URL sets.
        fields: A dict from field names to the paths of datasets: ``{"image": "train/images", "label": "train/labels"}``. ``None`` reads all
            datasets that have rows. The fields then have the paths of the datasets as names, such as ``train/images``.
        group: The group that contains the datasets. Subgroups are also read. Paths in ``fields`` are relative to this group.
        cache_mb: Size of the cache for chunks in MiB. By default, ``shuffle="blocks"`` uses 16 chunks at the same time. The parameter
            ``window`` of the reader changes this number.
        other_files: Whether to read datasets whose values are in other files (virtual datasets, and external storage). Pass ``True`` only
            for a file that you trust, because the file can refer to any file of this machine.

    A sample is a dict with one row of each dataset. A row is an array, a number, a ``str``, or ``bytes``. Rows of opaque type, and rows of
    uint8 with variable length (such as encoded images), are ``bytes``. If there is a dataset ``__key__`` of strings, it contains the keys
    of the samples, and is not a field.

    Raises:
        ConfigError: h5py is not installed, or ``path`` is a URL and no local folder is set.
        OSError: the file cannot be opened (when the dataset is first read).
        DatasetError: the file is not an HDF5 file, is truncated, or has changed since it was opened.
        DatasetError: the file has no group ``group``, or no dataset for a name in ``fields``.
        DatasetError: the datasets do not have the same number of rows, or a dataset cannot be read.
        DatasetError: the values of a dataset are in other files, but ``other_files`` is false.

    >>> import h5py
    >>> with h5py.File("train.h5", "w") as file:
    ...     file["images"] = np.zeros((10, 32, 32, 3), np.uint8)
    ...     file["labels"] = np.arange(10)
    >>> dataset = HDF5("train.h5", {"image": "images", "label": "labels"})
    >>> len(dataset), dataset[3]["label"], dataset[3]["image"].shape
    (10, np.int64(3), (32, 32, 3))
    """

    path: str
    fields: dict[str, str] | None = None
    group: str = "/"
    cache_mb: Count = 256
    other_files: bool = False

    @opened
    def _columns(self) -> _Columns:
        return _Columns(self.path, self.group, self.fields, self.cache_mb << 20, self.other_files)

    @opened
    def keys(self) -> list[str] | None:
        """The keys of the samples; ``None`` if the file has no keys."""
        return self._columns.keys()

    def __len__(self) -> int:
        return self._columns.length

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return several samples. Their rows are read together."""
        columns = self._columns
        wanted = [range(columns.length)[number] for number in numbers]
        try:
            rows = zip(*(column(wanted) for column in columns.columns.values()), strict=True)
            return [dict(zip(columns.columns, row, strict=True)) for row in rows]
        except UnicodeDecodeError as error:
            raise DatasetError(f"{self.path}: a text in it is not UTF-8: {error}") from error

    def blocks(self) -> list[range]:
        """Return ranges of rows that are cheap to read together.

        A range has the rows of one chunk of the dataset with the largest chunks. If no dataset has chunks of several rows, a range has
        about 1 MB of rows.
        """
        columns = self._columns
        return [range(first, min(first + columns.block, columns.length)) for first in range(0, columns.length, columns.block)]

    def locate(self, number: int) -> str:
        """Return the file and the index of a row."""
        return f"{self.path}: row {number}{f' ({self.keys[number]})' if self.keys else ''}"

    def fingerprint(self) -> str:
        """Return a string that changes when the file is written to, or when ``group`` or ``fields`` changes."""
        others = sorted({place for column in self._columns.columns.values() for place in column.others.states}) if self.other_files else []
        files = [(shown(self.path), self.path), *((place, place) for place in others)]
        return f"{fingerprint_of(files)} {self.group} {self.fields}"
