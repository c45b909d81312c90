"""Convert the values of a column to fields of samples, one by one.

=====================================  ==============================================================================================
column                                 value
=====================================  ==============================================================================================
integers, floats, bool                 a NumPy number of the column's dtype
string; binary                         ``str``; ``bytes``
nested lists of numbers                an array of the column's dtype; a list of arrays if the inner lists differ in length
tensors (Arrow's two extension types)  an array
struct of ``bytes`` and ``path``       the bytes; Hugging Face stores images and sounds in this form
other structs and lists                a dict; a list
dictionary                             the value to which the row's index refers
date, timestamp, duration              ``np.datetime64``, ``np.timedelta64``
JSON (Arrow's extension type)          the value of the JSON text
all other types                        the result of pyarrow's ``as_py``
=====================================  ==============================================================================================

Each value is a copy. A null becomes ``None``. A null in a list of numbers raises an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from highway.datasets.tables.backend import pa
from highway.errors import DatasetError

TENSOR = "arrow.variable_shape_tensor"  # for both names, see https://arrow.apache.org/docs/format/CanonicalExtensions.html
JSON = "arrow.json"
EXTENSION = b"ARROW:extension:name"  # key in the metadata of a field, if pyarrow does not know the type of the field

Value = Callable[[int], Any]  # returns the value of a column in a row; the argument is the row
Span = Callable[[int, int], Any]  # returns the values from one row to another, as one array
Bytes = Callable[[int, int], bytes]  # returns the bytes of a buffer from one byte offset to another


class Access(NamedTuple):
    """How to access the memory of values.

    Args:
        memory: A function that receives a buffer, and returns a function. The returned function reads bytes of the buffer.
        file: A function that returns the content of a file. It is used for images that are stored as paths.
    """

    memory: Callable[[pa.Buffer], Bytes]
    file: Callable[[str], bytes]


def in_memory(buffer: pa.Buffer) -> Bytes:
    """Return a function that reads a buffer in memory."""
    view = memoryview(buffer)
    return lambda begin, end: bytes(view[begin:end])


def refuse_path(path: str) -> bytes:
    """Raise the error for an image that is stored only as a path."""
    raise DatasetError(
        f"the value is not an image, but the path {path!r}; use HuggingFace(...) of highway.datasets, which reads the file, or save the "
        f"table again with save_to_disk, which stores the images in the table"
    )


IN_MEMORY = Access(in_memory, refuse_path)


def values_of(array: pa.Array, field: pa.Field, access: Access) -> Value:
    """Return a function that returns the value of a column in a row; ``None`` for a null. Errors do not name the row."""
    value = _extension(array, field, access) or _plain(array, access)
    if not array.null_count:
        return value
    is_valid = _bits(array.buffers()[0], array.offset) if array.buffers()[0] is not None else lambda row: False
    return lambda row: value(row) if is_valid(row) else None


def _extension(array: pa.Array, field: pa.Field, access: Access) -> Value | None:
    """Return the function for a column with an extension type. Return ``None`` for any other column."""
    known = isinstance(array.type, pa.BaseExtensionType)
    name = array.type.extension_name if known else (field.metadata or {}).get(EXTENSION, b"").decode()
    storage = array.storage if known else array
    if name == JSON and _is_text(storage.type):
        text = _plain(storage, access)
        return lambda row: json.loads(text(row))
    if name == TENSOR and pa.types.is_struct(storage.type):
        data, shape = (_plain(storage.field(part), access) for part in ("data", "shape"))
        return lambda row: data(row).reshape(shape(row))
    if isinstance(array.type, pa.FixedShapeTensorType):
        tensors = array.to_numpy_ndarray() if len(array) else ()
        return lambda row: tensors[row].copy()
    return values_of(storage, pa.field("", storage.type), access) if known else None


def _plain(array: pa.Array, access: Access) -> Value:
    kind = array.type
    for is_kind, values in _KINDS:
        if is_kind(kind):
            return values(array, access)
    return lambda row: array[row].as_py()


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_numbers(kind: pa.DataType) -> bool:
    """Return whether the values are numbers, or nested lists of numbers."""
    while _is_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return _is_number(kind) or pa.types.is_boolean(kind)


def _bits(buffer: pa.Buffer, offset: int) -> Callable[[int], bool]:
    view = memoryview(buffer).cast("B")
    return lambda row: bool(view[(offset + row) >> 3] >> ((offset + row) & 7) & 1)


def _all_valid(array: pa.Array) -> np.ndarray:
    """Return the numbers of a column, without a copy. A null becomes an arbitrary number."""
    values = pa.Array.from_buffers(array.type, len(array), [None, array.buffers()[1]], 0, array.offset) if array.null_count else array
    numbers: np.ndarray = values.to_numpy()
    return numbers


def _numbers(array: pa.Array, access: Access) -> Value:
    return _all_valid(array).__getitem__


def _bools(array: pa.Array, access: Access) -> Value:
    bit = _bits(array.buffers()[1], array.offset)
    return lambda row: np.bool_(bit(row))


def _times(array: pa.Array, access: Access) -> Value:
    return lambda row: array.slice(row, 1).to_numpy(zero_copy_only=False)[0]


def _offsets(array: pa.Array) -> np.ndarray:
    """Return the start of each list or string in the values, and the end of the last: a view of the buffer, int32 or int64."""
    if not len(array):
        return np.zeros(1, np.int32)
    is_large = pa.types.is_large_list(array.type) or pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    dtype = np.dtype(np.int64 if is_large else np.int32)
    return np.frombuffer(array.buffers()[1], dtype, len(array) + 1, array.offset * dtype.itemsize)


def _parts(array: pa.Array, access: Access) -> tuple[memoryview, Bytes]:
    data = array.buffers()[2]
    return _offsets(array).data, access.memory(pa.py_buffer(b"") if data is None else data)


def _binary(array: pa.Array, access: Access) -> Value:
    offsets, read = _parts(array, access)
    return lambda row: read(offsets[row], offsets[row + 1])


def _texts(array: pa.Array, access: Access) -> Value:
    offsets, read = _parts(array, access)
    return lambda row: read(offsets[row], offsets[row + 1]).decode()


def _fixed_binary(array: pa.Array, access: Access) -> Value:
    width, first, read = array.type.byte_width, array.offset, access.memory(array.buffers()[1])
    return lambda row: read((first + row) * width, (first + row + 1) * width)


def _starts(array: pa.Array) -> Callable[[int, int], np.ndarray]:
    """Return a function that returns the start of each list between two rows, and the end of the last list."""
    if not pa.types.is_fixed_size_list(array.type):
        offsets = _offsets(array)
        return lambda begin, end: offsets[begin : end + 1]
    first, size = array.offset, array.type.list_size
    return lambda begin, end: size * np.arange(first + begin, first + end + 1)


def _lists(array: pa.Array, access: Access) -> Value:
    starts = _starts(array)
    if _is_numbers(array.type):
        span = _span(array.values)
        return lambda row: span(*starts(row, row + 1).tolist())
    value = values_of(array.values, array.type.value_field, access)
    return lambda row: list(map(value, range(*starts(row, row + 1).tolist())))


def _span(array: pa.Array) -> Span:
    """Return a function that returns consecutive values as one array. Lists of different lengths become a list of arrays."""
    inside = _numbers_span(array) if _is_number(array.type) or pa.types.is_boolean(array.type) else _lists_span(array)

    def span(begin: int, end: int) -> Any:
        if array.null_count and array.slice(begin, end - begin).null_count:
            raise DatasetError("the list of numbers contains a null, which an array cannot contain; select other columns by fields=")
        return inside(begin, end)

    return span


def _numbers_span(array: pa.Array) -> Span:
    if pa.types.is_boolean(array.type):
        return lambda begin, end: array.slice(begin, end - begin).to_numpy(zero_copy_only=False).copy()
    numbers = _all_valid(array)
    return lambda begin, end: numbers[begin:end].copy()


def _lists_span(array: pa.Array) -> Span:
    inner, starts = _span(array.values), _starts(array)
    size = array.type.list_size if pa.types.is_fixed_size_list(array.type) else 0

    def span(begin: int, end: int) -> Any:
        bounds = starts(begin, end)
        lengths = np.diff(bounds)
        if (lengths == lengths[:1]).all():
            found = inner(int(bounds[0]), int(bounds[-1]))
            if isinstance(found, np.ndarray):
                return found.reshape(len(lengths), int(lengths[0]) if len(lengths) else size, *found.shape[1:])
        return [inner(first, stop) for first, stop in pairwise(bounds.tolist())]

    return span


def _structs(array: pa.Array, access: Access) -> Value:
    fields = [array.type.field(number) for number in range(array.type.num_fields)]
    values = {field.name: values_of(array.field(number), field, access) for number, field in enumerate(fields)}
    if set(values) != {"bytes", "path"}:
        return lambda row: {name: value(row) for name, value in values.items()}
    data, path = values["bytes"], values["path"]

    def content(row: int) -> bytes | None:
        found: bytes | None = data(row)
        if found is None and (where := path(row)) is not None:
            return access.file(where)
        return found

    return content


def _meant(array: pa.Array, access: Access) -> Value:
    number = values_of(array.indices, pa.field("", array.type.index_type), access)
    value = values_of(array.dictionary, pa.field("", array.type.value_type), access)
    return lambda row: value(number(row))


_KINDS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, Access], Value]]] = [
    (_is_number, _numbers),
    (lambda kind: pa.types.is_boolean(kind), _bools),
    (_is_binary, _binary),
    (_is_text, _texts),
    (lambda kind: _is_list(kind) or pa.types.is_fixed_size_list(kind), _lists),
    (lambda kind: pa.types.is_struct(kind), _structs),
    (lambda kind: pa.types.is_dictionary(kind), _meant),
    (lambda kind: pa.types.is_fixed_size_binary(kind), _fixed_binary),
    (_is_time, _times),
]
