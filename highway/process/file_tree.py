"""The tree of files that this process sees."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def file_tree() -> str:
    """Return a text that two processes share only if each path names the same file in both; empty if the system does not tell.

    It depends on the machine, which has another boot ID after each start, on its name, and on the mount namespace and root folder of the
    process, which may be in a container.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        mounts, root = os.stat("/proc/self/ns/mnt"), os.stat("/")
    except OSError:
        return ""
    parts = f"{boot} {os.uname().nodename} {mounts.st_ino} {root.st_dev} {root.st_ino}"
    return hashlib.blake2s(parts.encode(), digest_size=8).hexdigest()
