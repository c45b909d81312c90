"""Read columns whose values are in the names of folders, such as ``label=0/part-1.parquet``. Hive and Spark write such folders.

If all values of a column are integers, the column is int32, or int64 if int32 is too small. Otherwise the column has strings, as in
pyarrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from highway.errors import DatasetError
from highway.stores.url import shown, without_options

if TYPE_CHECKING:
    import pyarrow as pa

_NULL = "__HIVE_DEFAULT_PARTITION__"
_PATTERN = "*?[{"


class TableFile(NamedTuple):
    """A file of a table: the path of the file, and the values in the names of its folders, by column."""

    path: str
    values: dict[str, str]


def table_files(named: Sequence[tuple[str, Sequence[str]]]) -> list[TableFile]:
    """Return the files, each with the values in the names of its folders. Folders above the user's paths are ignored.

    Args:
        named: Each path of the user, with its files.
    """
    folders = [_fixed(path, files) for path, files in named]
    common = len(list(takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False))))
    return [TableFile(file, _values(file, common)) for _, files in named for file in files]


def _fixed(path: str, files: Sequence[str]) -> list[str]:
    """Return the folder of a path, as a list of names.

    For a pattern, this is the folder above the pattern. For a file, this is the folder of the file.
    """
    parts = without_options(path).rstrip("/").split("/")
    pattern = next((place for place, part in enumerate(parts) if set(part) & set(_PATTERN)), None)
    if pattern is not None and path not in files:
        return parts[:pattern]
    return parts[:-1] if path in files else parts


def _values(file: str, above: int) -> dict[str, str]:
    parts = without_options(file).split("/")[above:-1]
    return {unquote(name): value for name, equals, value in (part.partition("=") for part in parts) if name and equals}


def columns_of(files: Sequence[TableFile], own: Sequence[str]) -> Mapping[str, pa.Array]:
    """Return the columns in the names of folders, with one value per file. Columns in ``own``, which are in the files, are skipped.

    Raises:
        DatasetError: the folder names of two files define different columns.
    """
    from highway.datasets.tables.backend import pa  # imported here, because pyarrow is needed only when files are read

    first = files[0].values if files else {}
    for file in files:
        if file.values.keys() != first.keys():
            there, here = (", ".join(f"{name}=" for name in values) or "none" for values in (first, file.values))
            raise DatasetError(
                f"{shown(file.path)}: the folder names of this file define the columns {here}, but the folder names of "
                f"{shown(files[0].path)} define {there}; read these files as separate datasets"
            )
    found: dict[str, pa.Array] = {}
    for name in first:
        texts = [None if file.values[name] == _NULL else unquote(file.values[name]) for file in files]
        if name not in own:
            found[name] = pa.array(texts, pa.string())
            if all(text is None or text.removeprefix("-").isdecimal() for text in texts):
                numbers = [None if text is None else int(text) for text in texts]
                fits = all(number is None or -(2**31) <= number < 2**31 for number in numbers)
                found[name] = pa.array(numbers, pa.int32() if fits else pa.int64())
    return found
