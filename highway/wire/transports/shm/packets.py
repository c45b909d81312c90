"""The packets of a same-host link, all little-endian.

Each end first sends a *hello*: the magic number, the version of the protocol, the role (sender or receiver), and the limits of the sender's
slots. A *slot* is a piece of shared memory for one message.

Each later packet of a sender announces one message:

- the number of the message's slot (uint32),
- the number of the sender's receivers (uint16),
- the number of frames (uint16), and the length of each frame (uint64),
- the numbers of slots that the receiver must unmap (uint32),
- the slot's descriptor, if the slot is new to the receiver.

A packet of a receiver has the numbers of the slots that the receiver gives back (uint32). In the receiver's last packet, a number with the
highest bit set is a slot that is still in use.
"""

from __future__ import annotations

import socket
import struct
import time
from functools import lru_cache
from typing import Final, Literal, NamedTuple, get_args

from highway.errors import FrameError, LinkError

VERSION: Final = 1
TICK: Final = 0.1  # seconds between two checks whether the stage was cancelled
SELDOM: Final = 1.0  # maximum seconds of a wait outside a stage; if Ctrl-C comes just before a wait, Python handles it after the wait
SOON: Final = 0.005  # seconds between two checks of a busy end for new and lost peers
HOT: Final = 1 << 20  # bytes, about the size of a core's caches; a slot is still in the caches if fewer bytes were written since
KEPT: Final = 1 << 31  # bit of a slot number in a receiver's last packet: views still hold the slot
MOST_FRAMES: Final = 4096
MOST_SLOTS: Final = 64
LARGEST: Final = 1 << 16  # maximum bytes of a packet that an end reads
DESCRIPTOR: Final = struct.Struct("=i")
# Plain ints, because a comparison of the socket module's enums takes as long as the system call.
QUIET: Final = int(socket.MSG_NOSIGNAL)
CLOSE_ON_EXEC: Final = int(socket.MSG_CMSG_CLOEXEC)
DESCRIPTOR_LOST: Final = int(socket.MSG_CTRUNC)
ANCILLARY: Final = socket.CMSG_SPACE(253 * DESCRIPTOR.size)  # the maximum number of descriptors that the system passes at once

Role = Literal["sender", "receiver"]
_ROLES: tuple[Role, ...] = get_args(Role)  # a hello has the index of the role
_MAGIC = b"~HwyShm~"
_HELLO = struct.Struct("<8sI")  # magic number and version of the protocol; this part never changes
_LIMITS = struct.Struct("<IQI")
_HEAD = struct.Struct("<IHH")
_SLOT = struct.Struct("<I")


class Hello(NamedTuple):
    """The first packet of an end.

    Args:
        role: Whether the end sends or receives.
        budget: Maximum bytes of all slots, for a sender.
        most: Maximum number of slots, for a sender.
    """

    role: Role
    budget: int = 0
    most: int = 0

    def pack(self) -> bytes:
        """Return the hello as a packet."""
        return _HELLO.pack(_MAGIC, VERSION) + _LIMITS.pack(_ROLES.index(self.role), self.budget, self.most)

    def fitting(self, packet: bytes) -> Hello:
        """Return the hello that a packet of the other end contains.

        Raises:
            LinkError: the other end is incompatible.
        """
        if len(packet) < _HELLO.size or not packet.startswith(_MAGIC):
            raise LinkError(f"it does not use the same-host protocol of highway: its first bytes are {packet[:16]!r}")
        _, version = _HELLO.unpack_from(packet)
        if version != VERSION:
            raise LinkError(
                f"it uses version {version} of the same-host protocol, but this process uses version {VERSION}; install the same "
                f"highway at both ends"
            )
        if len(packet) != _HELLO.size + _LIMITS.size:
            raise LinkError(f"its hello has {len(packet)} bytes; expected {_HELLO.size + _LIMITS.size}")
        role, budget, most = _LIMITS.unpack_from(packet, _HELLO.size)
        if role >= len(_ROLES) or _ROLES[role] == self.role:
            raise LinkError(f"both ends are {self.role}s; one end must push, and the other end must pull")
        return Hello(_ROLES[role], budget, most)


class Announcement(NamedTuple):
    """The content of a sender's packet for a message.

    Args:
        slot: Number of the message's slot.
        receivers: Number of the sender's receivers.
        lengths: Length of each frame, in bytes.
        forget: Numbers of slots that the receiver must unmap.
    """

    slot: int
    receivers: int
    lengths: tuple[int, ...]
    forget: tuple[int, ...] = ()


@lru_cache(256)  # cached, like unpack(), because a stream repeats the same few packets
def pack(slot: int, receivers: int, lengths: tuple[int, ...], forget: tuple[int, ...] = ()) -> bytes:
    """Return a sender's packet for a message."""
    return struct.pack(f"<IHH{len(lengths)}Q{len(forget)}I", slot, min(receivers, 0xFFFF), len(lengths), *lengths, *forget)


@lru_cache(256)
def unpack(packet: bytes) -> Announcement:
    """Return the content of a sender's packet.

    Raises:
        FrameError: the packet is malformed.
    """
    try:
        slot, receivers, frames = _HEAD.unpack_from(packet)
        if frames > MOST_FRAMES:
            raise FrameError(f"the message has {frames} frames; expected at most {MOST_FRAMES}")
        rest = len(packet) - _HEAD.size - 8 * frames
        values = struct.unpack_from(f"<{frames}Q{rest // _SLOT.size}I", packet, _HEAD.size)
    except struct.error as error:
        raise FrameError(f"a packet of {len(packet)} bytes does not announce a message: {error}") from None
    return Announcement(slot, max(1, receivers), values[:frames], values[frames:])


def pack_slots(numbers: list[int]) -> bytes:
    """Return a receiver's packet with slot numbers."""
    return struct.pack(f"<{len(numbers)}I", *numbers)


def unpack_slots(packet: bytes) -> list[int]:
    """Return the slot numbers in a receiver's packet.

    Raises:
        FrameError: the packet is malformed.
    """
    if len(packet) % _SLOT.size:
        raise FrameError(f"the packet has {len(packet)} bytes; expected a multiple of {_SLOT.size}")
    return [number for (number,) in _SLOT.iter_unpack(packet)]


def until(deadline: float, late: str, tick: float = TICK) -> float:
    """Return the seconds until the deadline, but at most ``tick``.

    Raises:
        TimeoutError: the deadline has passed.
    """
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError(late)
    return min(tick, remaining)
