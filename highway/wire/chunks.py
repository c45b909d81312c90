"""Chunks: several buffers in one buffer or file, for tenbin messages and ``.ten`` files. The public module is :mod:`highway.tenbin`.

A chunk has four parts: the bytes ``~TenBin~``, the length of the data as an int64, the data, and zeros. The zeros pad the data, not the
whole chunk, to a multiple of 64 bytes.
"""

from __future__ import annotations

import mmap as _mmap
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader, BytesIO
from typing import Any, BinaryIO

import numpy as np

from highway.errors import FrameError
from highway.process.aligned import aligned
from highway.wire.checksum import check
from highway.wire.tenbin import Array, Buffer, Infos, decode_list, encode_list

magic_str = "~TenBin~"
magic_bytes = magic_str.encode("ascii")
magic: int = struct.unpack("<q", magic_bytes)[0]

_START = struct.Struct("<8sq")
_PIECE = 1 << 24  # bytes to read from a stream at once, because a wrong length must not allocate too much memory


def roundup(n: int, k: int = 64) -> int:
    """Round ``n`` up to a multiple of ``k``.

    Args:
        n: A number of bytes.
        k: The alignment.

    >>> roundup(65), roundup(64)
    (128, 64)
    """
    return k * ((n + k - 1) // k)


def encode_chunks(l: Sequence[Buffer]) -> bytearray:  # noqa: E741 - tensorcom's name
    """Return one buffer with a chunk for each of the given buffers.

    Args:
        l: The buffers.

    >>> len(encode_chunks([b"ab", b"c"]))
    160
    """
    views = [_flat(buffer) for buffer in l]
    result = bytearray(sum(_START.size + roundup(view.nbytes) for view in views))
    offset = 0
    for view in views:
        _START.pack_into(result, offset, magic_bytes, view.nbytes)
        offset += _START.size
        result[offset : offset + view.nbytes] = view
        offset += roundup(view.nbytes)
    return result


def decode_chunks(buf: Buffer) -> list[memoryview]:
    """Return the data of each chunk in a buffer, as views of the buffer.

    Args:
        buf: The bytes.

    Raises:
        FrameError: the buffer is not a sequence of chunks.

    >>> [bytes(chunk) for chunk in decode_chunks(encode_chunks([b"ab", b"c"]))]
    [b'ab', b'c']
    """
    view = _flat(buf)
    return [view[begin : begin + length] for begin, length in _chunks(view.nbytes, lambda begin, end: view[begin:end])]


def _chunks(nbytes: int, part: Callable[[int, int], Buffer]) -> Iterator[tuple[int, int]]:
    """Yield the offset and the length of the data of each chunk in ``nbytes`` bytes. Raises the errors of :func:`decode_chunks`.

    Args:
        nbytes: Number of bytes of all chunks.
        part: A function of two offsets that returns the bytes between them, or fewer bytes at the end.
    """
    offset = 0
    while offset < nbytes:
        length = _chunk_length(memoryview(part(offset, offset + _START.size)), offset)
        offset += _START.size
        if offset + length > nbytes:
            raise FrameError(f"byte {offset}: the header announces a chunk of {length} bytes, but only {nbytes - offset} bytes are left")
        yield offset, length
        offset += roundup(length)
        if offset > nbytes:
            raise FrameError(f"byte {nbytes}: the file ends within the padding of the last chunk")


def encode_buffer(l: Sequence[Array], infos: Sequence[str] | None = None) -> bytearray:  # noqa: E741 - tensorcom's name
    """Return arrays as one buffer. Raises the errors of :func:`encode_list`.

    Args:
        l: The arrays.
        infos: A name of up to 8 ASCII characters for each array.

    >>> len(encode_buffer([np.uint8([1, 2])]))
    160
    """
    return encode_chunks(encode_list(l, infos))


def decode_buffer(buf: Buffer, infos: Infos = False) -> Any:
    """Return the arrays in one buffer, as views of the buffer. Raises the errors of :func:`decode_chunks` and :func:`decode_list`.

    Args:
        buf: The bytes.
        infos: ``True`` returns ``(arrays, infos)``. If a list is given, the names in the buffer must equal the list.

    >>> decode_buffer(encode_buffer([np.uint8([1, 2])]))
    [array([1, 2], dtype=uint8)]
    """
    return decode_list(decode_chunks(buf), infos)


def write_chunk(stream: BinaryIO, buf: Buffer) -> None:
    """Write a buffer as a chunk.

    Args:
        stream: A binary file.
        buf: The bytes.

    >>> import io
    >>> stream = io.BytesIO()
    >>> write_chunk(stream, b"ab")
    >>> len(stream.getvalue())
    80
    """
    view = _flat(buf)
    stream.write(_START.pack(magic_bytes, view.nbytes))
    stream.write(view)
    stream.write(bytes(roundup(view.nbytes) - view.nbytes))


def read_chunk(stream: BinaryIO) -> bytes | bytearray | None:
    """Read one chunk and return its data, or ``None`` at the end of the stream.

    Args:
        stream: A binary file.

    Raises:
        FrameError: the next bytes are not a chunk, or the chunk is incomplete.

    >>> import io
    >>> bytes(read_chunk(io.BytesIO(encode_chunks([b"ab"]))))
    b'ab'
    """
    start = stream.read(_START.size)
    if not start:
        return None
    length = _chunk_length(memoryview(start), None)
    data = _read_exactly(stream, length)
    _read_exactly(stream, roundup(length) - length)
    return data


def write(stream: BinaryIO, l: Sequence[Array], infos: Sequence[str] | None = None) -> None:  # noqa: E741 - tensorcom's name
    """Write arrays to a stream. Raises the errors of :func:`encode_list`.

    Args:
        stream: A binary file.
        l: The arrays.
        infos: As for :func:`encode_buffer`.

    >>> import io
    >>> stream = io.BytesIO()
    >>> write(stream, [np.uint8([1, 2])])
    >>> len(stream.getvalue())
    160
    """
    for buffer in encode_list(l, infos):
        write_chunk(stream, buffer)


def read(stream: BinaryIO, n: int = 999999, infos: Infos = False) -> Any:
    """Read at most ``n`` arrays from a stream.

    Args:
        stream: A binary file.
        n: Maximum number of arrays.
        infos: As for :func:`decode_buffer`.

    Raises:
        FrameError: the stream is not tenbin, or ends within an array.

    >>> import io
    >>> stream = io.BytesIO(encode_buffer([np.uint8([1, 2])]))
    >>> read(stream)
    [array([1, 2], dtype=uint8)]
    """
    chunks: list[Buffer] = []
    for position in range(n):
        header = read_chunk(stream)
        if header is None:
            break
        data = read_chunk(stream)
        if data is None:
            raise FrameError(f"array {position}: the stream ends after its header")
        chunks += [header, data]
    return decode_list(chunks, infos)


def save(fname: str | os.PathLike[str], *args: Array, infos: Sequence[str] | None = None, nocheck: bool = False) -> None:
    """Write arrays to a file. Also raises the errors of :func:`encode_list`.

    Args:
        fname: Path of the file.
        *args: The arrays.
        infos: As for :func:`encode_buffer`.
        nocheck: Whether to allow names that do not end in ``.ten``.

    Raises:
        ValueError: the name does not end in ``.ten``, and ``nocheck`` is false.

    >>> save("a.ten", np.uint8([1, 2]), np.float32([0.5]))
    >>> load("a.ten")
    [array([1, 2], dtype=uint8), array([0.5], dtype=float32)]
    """
    _check_name(fname, nocheck)
    with open(fname, "wb") as stream:
        write(stream, args, infos)


def load(fname: str | os.PathLike[str], infos: Infos = False, nocheck: bool = False, mmap: bool = False) -> Any:
    """Return the arrays in a file.

    Args:
        fname: Path of the file.
        nocheck: Whether to allow names that do not end in ``.ten``.
        infos: ``True`` returns ``(arrays, infos)``. If a list is given, the names in the file must equal the list.
        mmap: Whether to map the file into memory instead of reading it. If the file has no checksums, the system reads only the pages that
            are used. Do not truncate the file while its arrays are in use: access to a truncated part kills the process.

    Raises:
        ValueError: the name does not end in ``.ten``, and ``nocheck`` is false.
        FrameError: the file is truncated or not tenbin, a checksum does not match, or the names differ from the list ``infos``. The message
            begins with the path of the file.

    >>> save("a.ten", np.uint8([1, 2]))
    >>> load("a.ten")
    [array([1, 2], dtype=uint8)]
    """
    _check_name(fname, nocheck)
    try:
        frames = load_chunks(fname, mmap)
        arrays = decode_list(frames, infos)
        check(frames)
        return arrays
    except FrameError as error:
        raise FrameError(f"{os.fspath(fname)}: {error}") from None


def load_chunks(fname: str | os.PathLike[str], mmap: bool = False) -> list[memoryview]:
    """Return the data of each chunk in a file, aligned to 64 bytes.

    With ``mmap``, or if the file is a pipe, the data are views of the whole file, and not aligned.

    Raises:
        FrameError: the file is not a sequence of chunks.
    """
    with open(fname, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if mmap and size:
            return decode_chunks(_mmap.mmap(stream.fileno(), 0, access=_mmap.ACCESS_READ))
        if not size:  # the file is empty, or a pipe
            return decode_chunks(stream.read())
        return read_aligned(stream, size)


def read_aligned(stream: BufferedReader | BytesIO, size: int) -> list[memoryview]:
    """Return the data of each chunk in a stream of ``size`` bytes, aligned to 64 bytes.

    Raises:
        FrameError: the stream is not a sequence of chunks.
    """

    def part(begin: int, end: int) -> bytes:
        stream.seek(begin)
        return stream.read(end - begin)

    # All data fit into ``size`` bytes: the memory has the same padding as the file, but no ``~TenBin~`` and no lengths.
    memory, chunks = aligned((size,), np.uint8).data, list[memoryview]()
    for begin, length in _chunks(size, part):
        chunk, memory = memory[:length], memory[roundup(length) :]
        if stream.readinto(chunk) < length:
            raise FrameError(f"byte {begin}: the header announces a chunk of {length} bytes, but the file has become shorter")
        chunks.append(chunk)
    return chunks


def _flat(buffer: Buffer) -> memoryview:
    view = memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _chunk_length(start: memoryview, offset: int | None) -> int:
    where = "" if offset is None else f"byte {offset}: "
    if start.nbytes < _START.size:
        raise FrameError(f"{where}{start.nbytes} bytes are left; expected a chunk, which begins with {magic_str} and its length")
    found, length = _START.unpack(start)
    if found != magic_bytes:
        raise FrameError(f"{where}expected {magic_str}, found {found!r}")
    if length < 0:
        raise FrameError(f"{where}the header announces a chunk of {length} bytes, which is not a valid length")
    return int(length)


def _read_exactly(stream: BinaryIO, length: int) -> bytes | bytearray:
    data: bytes | bytearray = stream.read(min(length, _PIECE))
    if len(data) == length:
        return data
    data = bytearray(data)
    while len(data) < length:
        piece = stream.read(min(length - len(data), _PIECE))
        if not piece:
            raise FrameError(f"the header announces a chunk of {length} bytes with padding, but the stream ends after {len(data)} bytes")
        data += piece
    return data


def _check_name(fname: str | os.PathLike[str], nocheck: bool) -> None:
    if not nocheck and not os.fspath(fname).endswith(".ten"):
        raise ValueError(f"'{os.fspath(fname)}' does not end in .ten; to use this file, pass nocheck=True")
