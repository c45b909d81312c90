"""Convert addresses for ZeroMQ, check addresses, and give advice about invalid addresses."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import os
import socket
import stat
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

from highway.errors import LinkError

log = logging.getLogger("highway")

SOCKETS_FOLDER = f"/tmp/highway-{os.getuid()}"
"""Folder for the UNIX sockets of the ``ipc`` links that a topology file defines.

The path does not depend on the environment, because a process that joins a run from another terminal must find the folder. ``TMPDIR`` is
not used, because its path can be too long for a socket.
"""

_CREDENTIALS = struct.Struct("3i")
CLOSING = 0.5  # maximum seconds until a closed socket releases its path
LOOKS = 20  # number of checks within ``CLOSING`` seconds; a number, because a suspended process would miss a deadline


def interface(url: str, location: str) -> str:
    """Return a location with the IP address of the host, because ZeroMQ cannot bind a host name.

    Raise LinkError if this machine finds no address for the host.
    """
    host, port = location.rsplit(":", 1)
    if host == "*" or host.startswith("["):
        return location
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)}
    except OSError as error:
        raise LinkError(
            error.errno,
            f"{url}: cannot bind to '{host}': this machine finds no address for the name ({error.strerror}); use * for all interfaces",
        ) from None
    address = min(found, key=lambda each: (each.startswith("127."), each))
    if address.startswith("127.") and host not in ("localhost", address):
        log.warning("%s: '%s' is %s, so only this machine can connect; use tcp://*:%s for all interfaces", url, host, address, port)
    return f"{address}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether a host is ``localhost`` or a loopback address, which only this machine can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def warn_unresolved(url: str, location: str) -> None:
    host = location.rsplit(":", 1)[0].strip("[]")
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        log.warning(
            "%s: the name '%s' has no address yet (%s); highway tries again until the name has an address", url, host, error.strerror
        )


def check_folder(url: str, path: str) -> None:
    """Create :data:`SOCKETS_FOLDER` if a socket's path is in it.

    A user who can write to the folder could replace the other end of a link.

    Raises:
        LinkError: the folder belongs to another user, or other users have access to the folder.
    """
    if os.path.dirname(path) != SOCKETS_FOLDER:
        return
    with contextlib.suppress(FileExistsError):
        os.mkdir(SOCKETS_FOLDER, 0o700)
    found = os.lstat(SOCKETS_FOLDER)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise LinkError(
            errno.EACCES,
            f"{url}: {SOCKETS_FOLDER}, the folder of ipc sockets, must belong to you and have mode 0700; remove the folder, ask its "
            f"owner to remove it, or set transport: shm or tcp for the link",
        )


def check_free(url: str, path: str) -> None:
    """Raise LinkError if a process listens on a path. ZeroMQ would silently replace the socket of that process.

    The check is repeated for half a second, because ZeroMQ closes sockets in the background, and may still be closing an earlier socket.
    """
    user = None
    for _ in range(LOOKS):
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect("\0" + path[1:] if path.startswith("@") else path)
            except OSError:
                return
            user = peer_user(probe)
        time.sleep(CLOSING / LOOKS)  # ZeroMQ does not report when it has closed a socket
    who = "another process" if user in (None, os.getuid()) else f"a process of user {user}"
    raise LinkError(errno.EADDRINUSE, f"{url}: cannot bind ipc://{path}: {who} listens there; choose another path")


class SocketFile(NamedTuple):
    """The file of a UNIX socket. ZeroMQ does not remove the file, so highway removes it, unless another socket already uses the path."""

    path: str
    number: int  # inode number

    @classmethod
    def at(cls, path: str) -> SocketFile | None:
        """Return the socket file at a path. Return ``None`` if there is no file: a path with ``@`` is only a name."""
        with contextlib.suppress(OSError):
            found = os.lstat(path)
            if stat.S_ISSOCK(found.st_mode) and not path.startswith("@"):
                return cls(os.path.abspath(path), found.st_ino)
        return None

    def remove(self) -> None:
        """Remove the file, unless the path now belongs to another file."""
        with contextlib.suppress(OSError):  # another process has removed the file
            if os.lstat(self.path).st_ino == self.number:
                os.unlink(self.path)


def remove_if_dead(path: str) -> None:
    """Remove the file of a UNIX socket if no process listens on the socket, for example because the process was killed."""
    file = SocketFile.at(path)
    with socket.socket(socket.AF_UNIX) as probe:
        if file is not None and probe.connect_ex(path) == errno.ECONNREFUSED:
            file.remove()


def peer_process(connection: socket.socket) -> tuple[int, int]:
    """Return the process ID and the user ID of the other end of a UNIX socket."""
    process, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return process, user


def peer_user(connection: socket.socket) -> int | None:
    """Return the user ID of the other end of a UNIX socket; ``None`` if the user is unknown, or for another kind of socket."""
    if connection.family != socket.AF_UNIX:
        return None
    _, user = peer_process(connection)
    return user if user >= 0 else None


def of_another_user(link: object, user: int, locations: Sequence[str]) -> LinkError:
    """Return the error for an end that has connected to a process of another user."""
    places = ", ".join(f"ipc://{each}" for each in locations[:4])
    return LinkError(
        errno.EACCES,
        f"{link}: a process of user {user} listens at {places}, but this process belongs to user {os.getuid()}; highway exchanges no "
        f"data with other users. End that process, or put the socket into a folder that belongs to you and has mode 0700, so that no "
        f"other user can open it",
    )


def way_out(number: int, address: str) -> str:
    """Return advice to append to an error message about an address; empty if there is no advice. ``number`` is the ``errno``."""
    if number == errno.EADDRINUSE:
        port = address.rsplit(":", 1)[-1]
        return (
            f"; `ss -ltnp 'sport = :{port}'` shows which process uses the port: end this process, use another port (0 selects a free "
            f"port), or connect (bind=False)"
        )
    if number in (errno.EADDRNOTAVAIL, errno.ENODEV):
        return "; this is not an address of this machine: use * for all interfaces, or connect (bind=False)"
    if number == errno.ENAMETOOLONG:
        return (
            "; the path of a socket can have at most 107 bytes: use a shorter path, such as ipc:///tmp/name, or a name without a "
            "file, such as ipc://@name"
        )
    if number == errno.EACCES and address.startswith("tcp:"):
        return "; ports below 1024 are reserved for the system: use another port"
    if number in (errno.ENOENT, errno.EACCES):
        return "; the folder must exist and be writable"
    return ""
