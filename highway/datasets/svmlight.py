"""Random access to the lines of a file in SVMlight or LIBSVM format. A line has a label and sparse features.

A line is ``LABEL [qid:QUERY] INDEX:VALUE INDEX:VALUE ... [# COMMENT]``. The indices in a line increase. In contrast to scikit-learn's
reader, this reader does not load the whole file into memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from highway.datasets.opened import opened
from highway.engine.cancel import check_cancelled
from highway.errors import ConfigError, DatasetError
from highway.parameters.checks import checked
from highway.parameters.ranges import Range
from highway.stores.file import fingerprint_of, open_file, read_ranges
from highway.stores.unchanging import FileRange, UnchangingFile

CHUNK = 1 << 20  # number of bytes to search at once, and approximate number of bytes of a block
_FEATURES = re.compile(rb"(?:\d+:[^\s:_]+(?:\s+|$))*")
_NOTHING = np.frombuffer(b"#\n\r \t", np.uint8)  # if a line begins with one of these bytes, it might be blank or a comment
_MOST = 2**31 - 1  # maximum number of features, because indices are int32


class _Lines(NamedTuple):
    """The lines that contain a sample, not blank lines or comments.

    Args:
        file: The file.
        begins: int64 ``(N + 1,)``: the byte offset of each line in the file, and the size of the file.
        numbers: The line number of each line, from 1; ``None`` if all lines of the file contain samples.
    """

    file: UnchangingFile
    begins: np.ndarray
    numbers: np.ndarray | None


class _Row(NamedTuple):
    label: Any
    query: np.int64 | None
    indices: np.ndarray
    values: np.ndarray


@checked
@dataclass
class SVMLight:
    """The lines of a file in the SVMlight or LIBSVM format, in order. Blank lines and comments are skipped.

    On the first access, one pass over the file finds the byte offsets of the lines.

    Args:
        path: The uncompressed file, or its URL.
        num_features: Number of features. Required if ``dense`` is true. If a line has an index that is too large, reading the line raises
            an error.
        zero_based: Whether indices in the file start at 0. By default, they start at 1.
        dense: Whether samples contain all features, including zeros.
        dtype: Dtype of labels and values, ``"float32"`` or ``"float64"``.

    A sample is a dict. ``label`` is a number of type ``dtype``. ``qid`` is an int64, if the line has a query. The other fields depend on
    ``dense``:

    - If ``dense`` is false: ``indices``, int32 ``(K,)``, which start at 0, and ``values`` ``(K,)``. The two arrays are one row of a sparse
      matrix. :meth:`csr` returns many rows as one matrix. The stage ``Batch(ragged="offsets")`` concatenates the rows of a batch.
    - If ``dense`` is true: ``x`` ``(num_features,)``.

    Raises:
        ConfigError: ``dense`` is set without ``num_features`` (on construction).
        OSError: the file cannot be opened (when the dataset is first read).
        DatasetError: a line is not valid (when its sample is read). The message gives the line number.
        DatasetError: the file is compressed with gzip, or has changed since the first read.

    >>> with open("train.svm", "w") as file:
    ...     print("1 1:0.5 3:2", file=file)
    ...     print("-1 2:1", file=file)
    >>> dataset = SVMLight("train.svm", num_features=3, dense=True)
    >>> len(dataset), dataset[0]
    (2, {'label': np.float32(1.0), 'x': array([0.5, 0. , 2. ], dtype=float32)})
    """

    path: str
    num_features: Annotated[int, Range(ge=1, lt=2**31)] | None = None
    zero_based: bool = False
    dense: bool = False
    dtype: Literal["float32", "float64"] = "float32"

    def __post_init__(self) -> None:
        if self.dense and self.num_features is None:
            raise ConfigError("SVMLight: dense=True needs the number of features; pass num_features, with the same number for all files")

    @opened
    def _lines(self) -> _Lines:
        file = open_file(self.path)
        if file.read(0, min(2, file.state.size)) == b"\x1f\x8b":
            raise DatasetError(f"{file.path}: the file is compressed with gzip, so there is no random access to its lines; unpack it")
        size, begins_line, found, doubtful = file.state.size, True, list[np.ndarray](), list[np.ndarray]()
        for offset in range(0, size, CHUNK):
            check_cancelled()
            chunk = np.frombuffer(file.read(offset, min(CHUNK, size - offset)), np.uint8)
            begins = np.flatnonzero(chunk == ord("\n")) + 1
            begins = np.append(0, begins) if begins_line else begins
            begins_line = chunk[-1] == ord("\n")
            begins = begins[begins < len(chunk)]
            doubtful.append(np.isin(chunk[begins], _NOTHING))
            found.append(begins + offset)
        begins = np.concatenate([*found, [size]])
        kept = np.ones(len(begins), np.bool_)
        for line in np.flatnonzero(np.concatenate([*doubtful, [False]])).tolist():
            kept[line] = bool(file.read(int(begins[line]), int(begins[line + 1] - begins[line])).partition(b"#")[0].strip())
        return _Lines(file, begins[kept], None if kept.all() else np.flatnonzero(kept) + 1)

    def __len__(self) -> int:
        return len(self._lines.begins) - 1

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        return [self._sample(row) for row in self._rows(numbers)]

    def csr(self, numbers: Sequence[int] | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return several samples as the arrays of a sparse matrix. ``None``: all samples.

        Returns:
            ``(values, indices, offsets)``, as for ``scipy.sparse.csr_matrix``. The indices are int32 and start at 0. The offsets are int64
            ``(rows + 1,)``: the start of each row in ``values`` and ``indices``, and the end of the last row.
        """
        rows = self._rows(range(len(self)) if numbers is None else numbers)
        offsets = np.cumsum([0, *(len(row.indices) for row in rows)], dtype=np.int64)
        none = [np.empty(0, self.dtype)], [np.empty(0, np.int32)]
        values, indices = (np.concatenate([*empty, *(row[part] for row in rows)]) for part, empty in zip((3, 2), none, strict=True))
        return values, indices, offsets

    def _rows(self, numbers: Sequence[int]) -> list[_Row]:
        file, begins, _ = self._lines
        wanted = [range(len(self))[number] for number in numbers]
        texts = read_ranges([FileRange(file, int(begins[row]), int(begins[row + 1] - begins[row])) for row in wanted])
        rows = []
        for row, text in zip(wanted, texts, strict=True):
            try:
                rows.append(self._row(text.partition(b"\n")[0].partition(b"#")[0]))
            except (ValueError, OverflowError) as error:
                told = "a number has more than 64 bits" if isinstance(error, OverflowError) else error
                raise DatasetError(f"{self.locate(row)}: {told}") from None
        return rows

    def _row(self, text: bytes) -> _Row:
        label, *rest = text.split(None, 1)
        features, query = rest[0] if rest else b"", None
        if features.startswith(b"qid:"):
            first, *rest = features.split(None, 1)
            features, query = rest[0] if rest else b"", np.int64(int(first[4:]))
        if not _FEATURES.fullmatch(features) or b"_" in label:
            wrong = next((one for one in features.split() if not _FEATURES.fullmatch(one)), label)
            raise ValueError(f"{wrong[:40]!r}; expected LABEL, optionally qid:NUMBER, and then INDEX:VALUE ...")
        tokens = features.replace(b":", b" ").split()
        indices = np.array(list(map(int, tokens[::2])), np.int64) - (0 if self.zero_based else 1)
        self._check(indices)
        numbers = self._as_dtype(np.array(list(map(float, [label, *tokens[1::2]])), np.float64))
        return _Row(numbers[0], query, indices.astype(np.int32), numbers[1:].copy())

    def _check(self, indices: np.ndarray) -> None:
        most = self.num_features or _MOST
        if not len(indices):
            return
        if indices[0] < 0:
            raise ValueError("an index is 0, but indices start at 1; pass zero_based=True if they start at 0")
        if (np.diff(indices) <= 0).any():
            raise ValueError("the indices do not increase, or an index occurs twice; sort the indices")
        if indices[-1] >= most:
            raise ValueError(f"an index is {indices[-1] + (0 if self.zero_based else 1)}, but num_features={most}; raise num_features")

    def _as_dtype(self, values: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            cast = values.astype(self.dtype)
        if (np.isinf(cast) & ~np.isinf(values)).any():
            raise ValueError(f"a value does not fit into {self.dtype}; pass dtype='float64'")
        return cast

    def _sample(self, row: _Row) -> dict[str, Any]:
        sample: dict[str, Any] = {"label": row.label}
        if row.query is not None:
            sample["qid"] = row.query
        if not self.dense:
            return sample | {"indices": row.indices, "values": row.values}
        assert self.num_features is not None
        x = np.zeros(self.num_features, self.dtype)
        x[row.indices] = row.values
        return sample | {"x": x}

    def blocks(self) -> list[range]:
        """Return ranges of sample indexes. The lines of a range have about a megabyte."""
        begins = self._lines.begins
        firsts = np.searchsorted(begins[:-1], np.arange(0, begins[-1], CHUNK))
        return [range(*block) for block in pairwise(np.unique([*firsts, len(self)]).tolist())]

    def locate(self, number: int) -> str:
        """Return the file and line of a sample."""
        file, _, numbers = self._lines
        return f"{file.path}:{number + 1 if numbers is None else numbers[number]}"

    def fingerprint(self) -> str:
        """Return a string that changes when the file is written to, or when a parameter changes the samples."""
        return f"{fingerprint_of([('', self.path)])} {self.num_features} {self.zero_based} {self.dense} {self.dtype}"
