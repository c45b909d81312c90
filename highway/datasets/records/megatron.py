"""Random access to the sequences in indexed datasets of Megatron-LM. The file ``.bin`` contains the tokens, and the file ``.idx`` is the
index.

The index is little-endian. The header is ``MMIDIDX\\0\\0``, the version (uint64, 1), a code for the dtype of the tokens (uint8), the number
of sequences, and the number of document boundaries (uint64 each). Three arrays follow: the length of each sequence (int32), the byte offset
of each sequence in ``.bin`` (int64), and the document boundaries as indexes of sequences (int64). In multimodal datasets, the mode of each
sequence (int8) follows. Source: megatron/core/datasets/indexed_dataset.py of NVIDIA/Megatron-LM. highway does not read Megatron-LM's older
format, ``TNTIDX``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from highway.datasets.opened import opened
from highway.errors import DatasetError
from highway.parameters.checks import checked
from highway.stores.file import fingerprint_of, open_file, read_ranges
from highway.stores.unchanging import FileRange, UnchangingFile
from highway.stores.url import shown

_HEADER = struct.Struct("<9sQBQQ")
_MAGIC = b"MMIDIDX\0\0"
_DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}
_BLOCK = 1 << 20  # approximate bytes of the sequences in a block


class _Index(NamedTuple):
    """The content of an index.

    Args:
        tokens: The file ``.bin``.
        dtype: The dtype of the tokens.
        lengths: Number of tokens of each sequence, int32 ``(N,)``.
        offsets: The byte offset of each sequence, int64 ``(N,)``.
        modes: The mode of each sequence, int8 ``(N,)``; ``None`` if the index has no modes.
    """

    tokens: UnchangingFile
    dtype: np.dtype[Any]
    lengths: np.ndarray
    offsets: np.ndarray
    modes: np.ndarray | None


@checked
@dataclass
class MegatronIndexed:
    """The sequences of tokens in an indexed dataset of Megatron-LM.

    Args:
        path: The path or URL of the file ``.idx`` or ``.bin``. The suffix can be omitted, as in Megatron's ``--data-path``.

    A sample is a dict. ``tokens`` is an array ``(n,)`` with the dtype of the file. If the index has modes, ``mode`` is an int8.

    Raises:
        OSError: a file cannot be opened (when the dataset is first read).
        DatasetError: the file ``.idx`` is not valid, or does not match the file ``.bin``.
        DatasetError: one of the files has changed since it was opened.

    >>> import struct
    >>> tokens, lengths = np.array([5, 6, 7, 8], np.uint16), np.array([3, 1], np.int32)
    >>> tokens.tofile("text.bin")
    >>> with open("text.idx", "wb") as file:
    ...     size = file.write(struct.pack("<9sQBQQ", b"MMIDIDX", 1, 8, 2, 3) + lengths.tobytes())
    ...     size = file.write(np.array([0, 6, 0, 1, 2]).tobytes())
    >>> dataset = MegatronIndexed("text")
    >>> len(dataset), dataset[0]["tokens"]
    (2, array([5, 6, 7], dtype=uint16))
    """

    path: str

    def _file(self, suffix: str) -> str:
        return self.path.removesuffix(".idx").removesuffix(".bin") + suffix

    @opened
    def _index(self) -> _Index:
        file, tokens = open_file(self._file(".idx")), open_file(self._file(".bin"))
        try:
            return _parsed(file.read(0, file.state.size), tokens)
        except ValueError as error:
            raise DatasetError(f"{shown(file.path)}: {error}") from error

    def __len__(self) -> int:
        return len(self._index.lengths)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return several samples. Sequences in an object store are requested concurrently."""
        index = self._index
        wanted = [range(len(self))[number] for number in numbers]
        sizes = index.lengths[wanted].astype(np.int64) * index.dtype.itemsize
        ranges = zip(index.offsets[wanted].tolist(), sizes.tolist(), strict=True)
        contents = read_ranges([FileRange(index.tokens, offset, size) for offset, size in ranges])
        samples: list[dict[str, Any]] = [{"tokens": np.frombuffer(content, index.dtype).copy()} for content in contents]
        if index.modes is not None:
            for sample, number in zip(samples, wanted, strict=True):
                sample["mode"] = index.modes[number]
        return samples

    def costs(self, kind: str) -> np.ndarray | None:
        """Return the number of tokens of each sequence, int32 ``(N,)``. Return ``None`` if ``kind`` is not ``"tokens"``."""
        return self._index.lengths if kind == "tokens" else None

    def blocks(self) -> list[range]:
        """Return ranges of sample indexes. The tokens of a range have about a megabyte."""
        ends = np.cumsum(self._index.lengths, dtype=np.int64) * self._index.dtype.itemsize
        cuts = np.searchsorted(ends, np.arange(_BLOCK, ends[-1] if len(ends) else 0, _BLOCK))
        return [range(*block) for block in pairwise(np.unique([0, *cuts, len(ends)]).tolist())]

    def locate(self, number: int) -> str:
        """Return the file and the index of a sequence."""
        return f"{shown(self._file('.bin'))}: sequence {number}"

    def fingerprint(self) -> str:
        """Return a string that changes when one of the files is written to."""
        return fingerprint_of((suffix, self._file(suffix)) for suffix in (".idx", ".bin"))


def _parsed(content: bytes, tokens: UnchangingFile) -> _Index:
    """Parse an index.

    Raises:
        ValueError: the index is not valid, or does not match the file of the tokens.
    """
    if len(content) < _HEADER.size or not content.startswith(_MAGIC):
        raise ValueError(f"the file begins with {content[:9]!r}; expected an index of Megatron-LM, which begins with {_MAGIC!r}")
    _, version, code, sequences, documents = _HEADER.unpack_from(content)
    if version != 1 or code not in _DTYPES:
        raise ValueError(f"version {version} with dtype {code}; expected version 1 with a dtype from 1 to 8")
    size = _HEADER.size + 12 * sequences + 8 * documents
    if len(content) not in (size, size + sequences):
        raise ValueError(
            f"the index has {len(content)} bytes; expected {size} bytes for {sequences} sequences and {documents} document boundaries"
        )
    dtype, at = np.dtype(_DTYPES[code]), _HEADER.size
    lengths = np.frombuffer(content, "<i4", sequences, at)
    offsets = np.frombuffer(content, "<i8", sequences, at + lengths.nbytes)
    modes = np.frombuffer(content, np.int8, sequences, size) if len(content) > size else None
    total = tokens.state.size
    outside = (lengths < 0) | (offsets < 0) | (offsets > total - lengths.astype(np.int64) * dtype.itemsize)
    if outside.any():
        number = int(outside.argmax())
        raise ValueError(
            f"sequence {number} begins at byte {offsets[number]} and has {lengths[number]} tokens, but {shown(tokens.path)} has only "
            f"{total} bytes: one of the two files is truncated, or belongs to another dataset"
        )
    return _Index(tokens, dtype, lengths, offsets, modes)
