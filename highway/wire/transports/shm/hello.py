"""What each end of a same-host link says first: magic, version of the protocol, its role and (a sender) the limits of its pool."""

from __future__ import annotations

import struct
from typing import Final, Literal, NamedTuple, get_args

from highway.errors import LinkError

VERSION: Final = 1

Role = Literal["sender", "receiver"]
_ROLES: tuple[Role, ...] = get_args(Role)  # a role's number is its position
_MAGIC = b"~HwyShm~"
_START = struct.Struct("<8sI")  # magic and version: the same in every version
_REST = struct.Struct("<IQI")


class Hello(NamedTuple):
    """What one end says first.

    Args:
        role: Whether it sends or receives.
        budget: Bytes that all slots of a sender may take.
        most: How many slots it may have.
    """

    role: Role
    budget: int = 0
    most: int = 0

    def pack(self) -> bytes:
        """Return it as a packet."""
        return _START.pack(_MAGIC, VERSION) + _REST.pack(_ROLES.index(self.role), self.budget, self.most)

    def fitting(self, packet: bytes) -> Hello:
        """Return what the other end said.

        Raises:
            LinkError: it is none that this end can work with.
        """
        if len(packet) < _START.size or not packet.startswith(_MAGIC):
            raise LinkError(f"it is not highway: it began with {packet[:16]!r}")
        _, version = _START.unpack_from(packet)
        if version != VERSION:
            raise LinkError(
                f"it speaks version {version} of the same-host protocol and this process {VERSION}; run the same highway on both ends"
            )
        if len(packet) != _START.size + _REST.size:
            raise LinkError(f"its hello has {len(packet)} bytes; expected {_START.size + _REST.size}")
        role, budget, most = _REST.unpack_from(packet, _START.size)
        if role >= len(_ROLES) or _ROLES[role] == self.role:
            raise LinkError(f"both ends are {self.role}s; one must push and the other pull")
        return Hello(_ROLES[role], budget, most)
