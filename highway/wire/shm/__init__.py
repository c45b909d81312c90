"""Same-host links: messages in shared memory between processes of one user, push and pull (``docs/reference/same-host.md``).

A sender copies the frames of a message into a slot of its pool and tells one receiver which slot it is; the receiver hands out read-only
views of it, and sends the slot's number back when the last view is gone. So a message costs one copy and two small packets. A sender
without a free slot waits, and so does one without a receiver.
"""

from highway.wire.shm.receiver import Receiver
from highway.wire.shm.sender import Sender

__all__ = ["Receiver", "Sender"]
