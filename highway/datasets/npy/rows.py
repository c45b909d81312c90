"""Random access to the rows of the arrays in ``.npy`` and ``.npz`` files."""

from __future__ import annotations

import errno
import io
import lzma
import math
import struct
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from highway.datasets.field_codecs import BAD_NPY
from highway.datasets.opened import opened
from highway.datasets.records import trusted_pickle
from highway.errors import DatasetError, StoreError
from highway.parameters.checks import checked
from highway.stores.file import fingerprint_of, open_file, read_ranges
from highway.stores.unchanging import FileRange, UnchangingFile
from highway.stores.url import shown

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_LONGEST = 1 << 16  # maximum number of bytes of a header
_END = struct.Struct("<10xH10x")  # the end record of a zip archive, which contains the number of files
# The header of a file in a zip archive. The last two numbers are the lengths of the name and of the extra field.
_LOCAL = struct.Struct("<26xHH")

_PICKLED = "the array contains Python objects, which are pickled; save arrays of numbers or text"
_PICKLED_NPZ = trusted_pickle.refusal("it holds Python objects, which are pickled", "Npz(path, trusted_pickle=True)", "NumpySerializer")
KEYS = "__key__"  # the array of a .npz file that contains the keys of the rows

_MOST_TIMES = 1 << 16  # maximum ratio of an array's size to its compressed size; for zeros, deflate reaches 1032
# The errors that zipfile and its decompressors raise for damaged data. bz2 raises OSErrors without errno.
_BAD_ZIP = (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError, struct.error)

Rows = Callable[[Sequence[int]], np.ndarray]  # a function that returns rows by index, as a new array


class StoredRows:
    """Reads rows that are consecutive in a file.

    Args:
        file: The file.
        name: Name of the array in messages.
        offset: The byte offset of the first row.
        shape: Shape of the array.
        dtype: Type of the array.
        end: The byte offset at which the array must end. ``None``: anywhere in the file.

    Raises:
        DatasetError: the array does not end at ``end``, or the file is too short for the array.
    """

    def __init__(
        self, file: UnchangingFile, name: str, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any], end: int | None = None
    ) -> None:
        self.shape, self.dtype = shape, dtype
        self._file, self._offset, self._row = file, offset, dtype.itemsize * math.prod(shape[1:])
        found = (file.state.size if end is None else end) - offset
        if (expected := shape[0] * self._row) > found or (end is not None and expected < found):
            raise DatasetError(f"{name}: expected {expected} bytes for the shape {shape} and dtype {dtype}, found {found}")

    def __call__(self, numbers: Sequence[int]) -> np.ndarray:
        rows = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        memory = rows.reshape(-1).view(np.uint8).data if rows.size else memoryview(b"")
        runs, first = list[tuple[int, memoryview]](), 0
        for place in range(1, len(numbers) + 1):  # consecutive rows are read together
            if place == len(numbers) or numbers[place] != numbers[place - 1] + 1:
                runs.append((self._offset + numbers[first] * self._row, memory[first * self._row : place * self._row]))
                first = place
        if self._file.is_here:
            for offset, part in runs:
                self._file.read_into(offset, part)
        else:
            contents = read_ranges([FileRange(self._file, offset, len(part)) for offset, part in runs])
            for (_, part), content in zip(runs, contents, strict=True):
                part[:] = content
        return rows


class _NpyRows(StoredRows):
    """Reads the rows of an array that ``np.save`` wrote.

    Args:
        file: The file.
        name: Name of the array in messages.
        begin: The byte offset of the header.
        end: The byte offset at which the array must end.
        pickled: The error message for an array of Python objects.

    Raises:
        DatasetError: the file is damaged, or rows of this array cannot be read one by one.
    """

    def __init__(self, file: UnchangingFile, name: str, begin: int, end: int, pickled: str = _PICKLED) -> None:
        header = io.BytesIO(file.read(begin, min(_LONGEST, end - begin)))
        shape, fortran, dtype = _read_header(header, name, pickled)
        if fortran and len(shape) > 1:
            raise DatasetError(f"{name}: the array is in Fortran order, so its rows are not contiguous; save np.ascontiguousarray(array)")
        super().__init__(file, name, begin + header.tell(), shape, dtype, end)


def _read_header(stream: IO[bytes], name: str, pickled: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape of an array, whether the array is in Fortran order, and the dtype. Raises DatasetError."""
    try:
        version = np.lib.format.read_magic(stream)
        if version not in _HEADERS:
            raise ValueError(f"version {version} of the format is not supported; name the fields of the dtype in ASCII")
        shape, fortran, dtype = _HEADERS[version](stream)
        if min(shape, default=0) < 0:
            raise ValueError(f"the shape {shape} has a negative length")
    except BAD_NPY as error:
        raise DatasetError(f"{name}: not a readable .npy file: {error}") from error
    if dtype.hasobject:
        raise DatasetError(f"{name}: {pickled}")
    if not shape:
        raise DatasetError(f"{name}: the array is a single value; expected an array with rows")
    return shape, fortran, dtype


class _OfFile(ABC):
    """Base class of datasets that read the arrays in one file."""

    path: str

    @abstractmethod
    def __getitems__(self, numbers: Sequence[int]) -> Any:
        """Return several rows."""

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([number])[0]

    def locate(self, number: int) -> str:
        """Return the file and the index of a row."""
        return f"{shown(self.path)}: row {number}"

    def fingerprint(self) -> str:
        """Return a string that changes when the file is written to."""
        return fingerprint_of([(self.path, self.path)])


@checked
@dataclass
class Npy(_OfFile):
    """The rows of the array in a ``.npy`` file.

    The file is read, not mapped into memory, because reading a truncated mapped file would end the process.

    Args:
        path: The file, or its URL.

    A sample is one row as an array, or a number if the array has one dimension.

    Raises:
        OSError: the file cannot be opened (when the dataset is first read).
        DatasetError: the file is not in ``.npy`` format, is incomplete, or has changed since the first read.
        DatasetError: the array contains Python objects, is a single value, or is in Fortran order.

    >>> np.save("points.npy", np.arange(6, dtype=np.float32).reshape(3, 2))
    >>> dataset = Npy("points.npy")
    >>> len(dataset), dataset[1]
    (3, array([2., 3.], dtype=float32))
    """

    path: str

    @opened
    def _rows(self) -> _NpyRows:
        file = open_file(self.path)
        return _NpyRows(file, file.path, 0, file.state.size)

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    def __getitems__(self, numbers: Sequence[int]) -> np.ndarray:
        """Return several rows as one array. Consecutive rows are read together."""
        return self._rows([range(len(self))[number] for number in numbers])


class _Columns:
    """The arrays in a ``.npz`` file."""

    def __init__(self, path: str, verify: bool, trusted: bool) -> None:
        file = open_file(path)
        path = file.path
        self.rows: dict[str, Rows] = {}
        lengths: dict[str, int] = {}
        try:
            with file.as_stream() as stream, zipfile.ZipFile(stream) as archive:
                _check_directory(file, archive)
                if verify and (damaged := archive.testzip()) is not None:
                    raise zipfile.BadZipFile(f"the checksum of {damaged!r} does not match")
                for member in archive.infolist():
                    name = member.filename.removesuffix(".npy")
                    self.rows[name], lengths[name] = _column(file, archive, member, f"{path}: {name!r}", trusted)
        except (DatasetError, StoreError):
            raise
        except (*_BAD_ZIP, EOFError, OSError, RuntimeError, ValueError, OverflowError) as error:
            if isinstance(error, OSError) and error.errno not in (
                None,
                errno.EINVAL,
            ):  # EINVAL: from a seek to a negative position
                raise
            raise DatasetError(f"{path}: not a .npz file, or damaged or truncated; {error}") from error
        file.check()
        if len(set(lengths.values())) != 1:
            found = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
            raise DatasetError(f"{path}: expected arrays with equal numbers of rows, found: {found or 'no arrays'}")
        self.length = next(iter(lengths.values()))
        names = self.rows.pop(KEYS, None)
        self.keys = None if names is None else [str(name) for name in names(range(self.length))]


def _check_directory(file: UnchangingFile, archive: zipfile.ZipFile) -> None:
    """Check that no file of the archive is missing. zipfile does not check the number of files. Raises zipfile.BadZipFile."""
    count, found = len(archive.infolist()), file.read(file.state.size - len(archive.comment) - _END.size, _END.size)
    if found[:4] != b"PK\5\6" or _END.unpack(found)[0] not in (count, 0xFFFF):  # zip64 archives have 0xFFFF here
        raise zipfile.BadZipFile("the directory at the end of the file is missing, or does not match the arrays in the file")


def _column(file: UnchangingFile, archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, trusted: bool) -> tuple[Rows, int]:
    """Return a function that returns the rows of an array, and the number of rows."""
    if member.compress_type == zipfile.ZIP_STORED and not trusted:
        begin = member.header_offset + _LOCAL.size + sum(_LOCAL.unpack(file.read(member.header_offset, _LOCAL.size)))
        stored = _NpyRows(file, name, begin, begin + member.file_size, _PICKLED_NPZ)
        return stored, stored.shape[0]
    with archive.open(member) as content:
        if trusted:
            objects = trusted_pickle.load_array(content)
            return objects.__getitem__, len(objects)
        shape, fortran, dtype = _read_header(content, name, _PICKLED_NPZ)
        size, found = math.prod(shape) * dtype.itemsize, member.file_size - content.tell()
        if size != found or member.file_size > _MOST_TIMES * member.compress_size:
            how_many = f"found {found}, compressed to {member.compress_size}"
            raise DatasetError(f"{name}: expected {size} bytes for the shape {shape} and dtype {dtype}, {how_many}")
        data = content.read()  # at the end of the data, zipfile checks the checksum
    array: np.ndarray = np.ndarray(shape, dtype, data, order="F" if fortran else "C")
    return array.__getitem__, len(array)


@checked
@dataclass
class Npz(_OfFile):
    """The rows of all arrays in a ``.npz`` file. All arrays must have the same number of rows.

    Compressed arrays are loaded on the first access, and stay in memory. Uncompressed arrays are read row by row.

    Args:
        path: The file, or its URL.
        verify: Whether to check the checksums of all arrays on the first access. This reads the whole file. By default, only the checksums
            of compressed arrays are checked.
        trusted_pickle: Whether to load arrays of Python objects, which tensorpack's NumpySerializer writes. These arrays are pickles.
            Loading a pickle can run any code, so pass ``True`` only for a local file that you trust.

    A sample is a dict with one row of each array. A row is an array, or a number if the array has one dimension. The array ``__key__``,
    which highway's writer adds, contains the keys of the samples, and is not a field. In a file of tensorpack's NumpySerializer, a sample
    is a tuple or a dict.

    Raises:
        OSError: the file cannot be opened (when the dataset is first read).
        DatasetError: the file is not in ``.npz`` format, is incomplete or damaged, or has changed since the first read.
        DatasetError: the file has no arrays, or the arrays have different numbers of rows.
        DatasetError: an array cannot be read, for the reasons listed in :class:`Npy`.
        ConfigError: ``trusted_pickle`` is true, but ``path`` is a URL.

    >>> np.savez("points.npz", x=np.zeros((3, 2), np.float32), label=np.arange(3))
    >>> dataset = Npz("points.npz")
    >>> len(dataset), dataset[1]
    (3, {'x': array([0., 0.], dtype=float32), 'label': np.int64(1)})
    """

    path: str
    verify: bool = False
    trusted_pickle: bool = False

    def __post_init__(self) -> None:
        if self.trusted_pickle:
            trusted_pickle.check_local("Npz", [self.path])

    @opened
    def _columns(self) -> _Columns:
        return _Columns(self.path, self.verify, self.trusted_pickle)

    def __len__(self) -> int:
        return self._columns.length

    @property
    def keys(self) -> Sequence[str] | None:
        """The keys of the samples; ``None`` if the file has no keys."""
        return self._columns.keys

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several samples. Consecutive rows are read together."""
        columns = self._columns
        wanted = [range(columns.length)[number] for number in numbers]
        if self.trusted_pickle and list(columns.rows) == ["buffer"]:  # a file of tensorpack, whose rows are whole samples
            return [row if isinstance(row, dict) else tuple(row) for row in columns.rows["buffer"](wanted)]
        values = zip(*(rows(wanted) for rows in columns.rows.values()), strict=True)
        return [dict(zip(columns.rows, row, strict=True)) for row in values]
