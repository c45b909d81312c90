"""The tree of files that this process sees."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def file_tree() -> str:
    """Return a text that is equal in two processes if each path names the same file in both. It is empty if this is unknown.

    The text depends on the machine's name and boot ID (a new ID after each start), and on the mount namespace and root folder of the
    process.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        mounts, root = os.stat("/proc/self/ns/mnt"), os.stat("/")
    except OSError:
        return ""
    parts = f"{boot} {os.uname().nodename} {mounts.st_ino} {root.st_dev} {root.st_ino}"
    return hashlib.blake2s(parts.encode(), digest_size=8).hexdigest()
