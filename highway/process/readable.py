"""Wait for sockets, pipes and process descriptors.

This module does not use ``select.select``, which fails for descriptors above 1023. A process with many open files has such descriptors.
"""

from __future__ import annotations

import math
import select
from collections.abc import Sequence
from typing import Protocol, TypeVar


class HasDescriptor(Protocol):
    """An object with a descriptor, such as a socket or a file."""

    def fileno(self) -> int: ...


T = TypeVar("T", bound=HasDescriptor | int)


def readable(sources: Sequence[T], timeout: float | None = None) -> list[T]:
    """Wait until a source is readable or has ended. Return all readable and ended sources.

    Args:
        sources: Descriptors, or objects with ``fileno()``.
        timeout: Maximum seconds to wait; ``None``: no limit.
    """
    poll = select.poll()
    known = {source if isinstance(source, int) else source.fileno(): source for source in sources}
    for descriptor in known:
        poll.register(descriptor, select.POLLIN)
    found = poll.poll(None if timeout is None else math.ceil(max(0.0, timeout) * 1000))
    return [known[descriptor] for descriptor, _ in found]
