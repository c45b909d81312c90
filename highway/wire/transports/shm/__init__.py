"""Same-host links: messages in shared memory between processes of one user, push and pull (``docs/reference/same-host.md``).

A *slot* is a piece of shared memory for one message. A sender copies the frames of a message into a slot, and sends the slot's number to
one receiver. The receiver returns read-only views of the slot. After the last view is deleted, the receiver sends the slot's number back.
So a message usually costs one copy and at most two small packets. A sender waits while it has no free slot or no receiver.
"""

from __future__ import annotations

from typing import Any

from highway.wire.transports.shm import same_thread
from highway.wire.transports.shm.connections import Connections
from highway.wire.transports.shm.receiver import ShmReceiver
from highway.wire.transports.shm.sender import ShmSender
from highway.wire.url import Link

__all__ = ["ShmReceiver", "ShmSender", "open_receiver", "open_sender", "start_threads"]


def open_sender(link: Link) -> ShmSender:
    """Return the sending end of a link; see :class:`highway.wire.transports.protocol.Opener`."""
    sender = ShmSender(str(link), link.budget_mb)
    _open(sender.connections, link)
    return sender


def open_receiver(link: Link) -> ShmReceiver:
    """Return the receiving end of a link; see :class:`highway.wire.transports.protocol.Opener`."""
    receiver = ShmReceiver(str(link))
    _open(receiver.connections, link)
    same_thread.add(receiver)
    return receiver


def start_threads(link: Link) -> None:
    """Do nothing, because an end of a same-host link has no threads."""


def _open(connections: Connections[Any], link: Link) -> None:
    try:
        connections.attach(link)
    except BaseException:
        connections.close()
        raise
