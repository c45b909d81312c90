"""A file without a name, to hand something to a process."""

from __future__ import annotations

import os
import sys
import tempfile


def anonymous_file(name: str) -> int:
    """Return the descriptor of a new file that goes with its last descriptor: in memory on Linux, where ``name`` is seen in ``/proc``."""
    if sys.platform == "linux":
        descriptor = os.memfd_create(name)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    return descriptor
