"""Find the code that opens the ends of links. The package of a transport is imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from highway.wire.transports.protocol import Opener
from highway.wire.transports.table import Transport


def _zmq() -> Opener:
    from highway.wire.transports import zmq

    return zmq


def _shm() -> Opener:
    from highway.wire.transports import shm

    return shm


_PACKAGES: Mapping[str, Callable[[], Opener]] = {"zmq": _zmq, "shm": _shm}


def opener_of(transport: Transport) -> Opener:
    """Return the opener for the ends of a transport."""
    return _PACKAGES[transport.package]()
