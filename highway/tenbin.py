"""Encode and decode arrays: as bytes in memory, in ``.ten`` files and on sockets. Names are the same as in ``tensorcom.tenbin``.

>>> import numpy as np
>>> from highway import tenbin
>>> tenbin.decode_buffer(tenbin.encode_buffer([np.arange(3, dtype=np.uint8)]))
[array([0, 1, 2], dtype=uint8)]

The format is specified in ``docs/reference/wire.md``. Unlike in tensorcom, SCTP is not supported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from highway.wire.chunks import (
    decode_buffer,
    decode_chunks,
    encode_buffer,
    encode_chunks,
    load,
    magic,
    magic_bytes,
    magic_str,
    read,
    read_chunk,
    roundup,
    save,
    write,
    write_chunk,
)
from highway.wire.tenbin import (
    Array,
    Infos,
    bytedata,
    bytelen,
    check_acceptable_input_type,
    check_infos,
    decode_header,
    decode_list,
    encode_header,
    encode_list,
    long_to_short,
    short_to_long,
    str64,
    unstr64,
)

__all__ = [
    "bytedata",
    "bytelen",
    "check_acceptable_input_type",
    "check_infos",
    "decode_buffer",
    "decode_chunks",
    "decode_header",
    "decode_list",
    "encode_buffer",
    "encode_chunks",
    "encode_header",
    "encode_list",
    "load",
    "long_to_short",
    "magic",
    "magic_bytes",
    "magic_str",
    "read",
    "read_chunk",
    "roundup",
    "save",
    "short_to_long",
    "str64",
    "unstr64",
    "write",
    "write_chunk",
    "zrecv_multipart",
    "zrecv_single",
    "zsend_multipart",
    "zsend_single",
]


class Socket(Protocol):
    """The methods of a socket that ``zsend_single``, ``zrecv_single``, ``zsend_multipart`` and ``zrecv_multipart`` call."""

    def send(self, data: Any) -> Any: ...
    def recv(self) -> Any: ...
    def send_multipart(self, msg_parts: Any) -> Any: ...
    def recv_multipart(self) -> Any: ...


def zsend_single(socket: Socket, l: Sequence[Array], infos: Sequence[str] | None = None) -> Any:  # noqa: E741
    """Send arrays as a message of one frame.

    Args:
        socket: A ``zmq.Socket``.
        l: The arrays.
        infos: As for :func:`encode_buffer`.

    >>> import numpy as np
    >>> import zmq
    >>> with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as other:
    ...     port = one.bind("inproc://arrays"), other.connect("inproc://arrays")
    ...     sent = zsend_single(one, [np.uint8([1, 2])])
    ...     arrays = zrecv_single(other)
    >>> arrays
    [array([1, 2], dtype=uint8)]
    """
    return socket.send(encode_buffer(l, infos))


def zrecv_single(socket: Socket, infos: Infos = False) -> Any:
    """Receive arrays from a message of one frame; see the example of :func:`zsend_single`.

    Args:
        socket: A ``zmq.Socket``.
        infos: As for :func:`decode_buffer`.
    """
    return decode_buffer(socket.recv(), infos)


def zsend_multipart(socket: Socket, l: Sequence[Array], infos: Sequence[str] | None = None) -> Any:  # noqa: E741
    """Send arrays as a multipart message.

    Args:
        socket: A ``zmq.Socket``.
        l: The arrays.
        infos: As for :func:`encode_buffer`.

    >>> import numpy as np
    >>> import zmq
    >>> with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as other:
    ...     port = one.bind("inproc://arrays"), other.connect("inproc://arrays")
    ...     sent = zsend_multipart(one, [np.uint8([1, 2])])
    ...     arrays = zrecv_multipart(other)
    >>> arrays
    [array([1, 2], dtype=uint8)]
    """
    return socket.send_multipart(encode_list(l, infos))


def zrecv_multipart(socket: Socket, infos: Infos = False) -> Any:
    """Receive arrays from a multipart message; see the example of :func:`zsend_multipart`.

    Args:
        socket: A ``zmq.Socket``.
        infos: As for :func:`decode_buffer`.
    """
    return decode_list(socket.recv_multipart(), infos)
