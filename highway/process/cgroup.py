"""The CPU and memory limits of this process's control groups. systemd, Slurm, Kubernetes and Docker set limits. The lowest limit counts.

``/proc/self/cgroup`` lists the groups of the process, and ``/proc/self/mountinfo`` lists the folders with the files of groups. See
cgroups(7), and the kernel's ``admin-guide/cgroup-v2.rst`` and ``cgroup-v1/memory.rst``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/")
_CPU = {1: ["cpu.cfs_quota_us", "cpu.cfs_period_us"], 2: ["cpu.max"]}  # by version of cgroups: files with the quota and its period
_MEMORY = {  # by version of cgroups: files with the limits, file with the usage, and field of the inactive page cache in memory.stat
    1: (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
    2: (("memory.max", "memory.high"), "memory.current", "inactive_file"),
}


def cpu_quota(root: Path = ROOT) -> float | None:
    """Return the CPU time that the process is allowed to use, in cores; ``None`` if no group limits the CPU time.

    Args:
        root: Folder that holds ``proc`` and ``sys``.
    """
    quotas = [quota for folder, version in _folders("cpu", root) if (quota := _quota(folder, version)) is not None]
    return min(quotas, default=None)


def free_memory(root: Path = ROOT) -> int | None:
    """Return how many more bytes of memory the process is allowed to use; ``None`` if no group limits the memory.

    Inactive page cache counts as free, because the kernel drops it when memory is short.

    Args:
        root: Folder that holds ``proc`` and ``sys``.
    """
    left = [free for folder, version in _folders("memory", root) if (free := _free(folder, version)) is not None]
    return min(left, default=None)


def _quota(folder: Path, version: int) -> float | None:
    found = " ".join(text(folder / name) for name in _CPU[version]).split()  # the root group has no files for limits
    return int(found[0]) / int(found[1]) if len(found) == 2 and found[0] not in ("max", "-1") else None


def _free(folder: Path, version: int) -> int | None:
    limits, used, cached = _MEMORY[version]
    found = [int(limit) for name in limits if (limit := text(folder / name)) not in ("", "max")]
    if not found:
        return None
    stat = dict(line.split() for line in text(folder / "memory.stat").splitlines())
    return max(0, min(found) - max(0, int(text(folder / used) or 0) - int(stat.get(cached, 0))))


def _folders(controller: str, root: Path) -> Iterator[tuple[Path, int]]:
    """Yield the folders of the process's group and of all parent groups, each with the version of cgroups."""
    groups = [line.split(":", 2) for line in text(root / "proc/self/cgroup").splitlines()]  # hierarchy number, controllers, path
    for mounted, mount, version, controllers in _mounts(root):
        if version == 1 and controller not in controllers:
            continue
        for _, names, path in groups:
            if (controller in names.split(",")) if version == 1 else not names:
                yield from ((folder, version) for folder in _upwards(mount, mounted, path))


def _upwards(mount: Path, mounted: str, path: str) -> Iterator[Path]:
    """Yield a group's folder and all visible folders above this folder.

    Args:
        mount: Folder where the tree is mounted.
        mounted: The group at the root of the mount. In a container, this is often a group below the root group of the machine.
        path: Path of the group.
    """
    group = PurePosixPath(path)
    inside = group.relative_to(mounted) if group.is_relative_to(mounted) and ".." not in group.parts else PurePosixPath()
    for part in (inside, *inside.parents):
        yield mount / part


def _mounts(root: Path) -> Iterator[tuple[str, Path, int, list[str]]]:
    """Yield for each mounted tree of groups: the root group, the folder, the version, and the controllers (version 1 only)."""
    for line in text(root / "proc/self/mountinfo").splitlines():
        first, _, second = line.partition(" - ")
        fields, kind = first.split(), second.split()
        if len(fields) > 4 and kind and kind[0] in ("cgroup", "cgroup2"):
            mount = root / fields[4].encode().decode("unicode_escape").lstrip("/")  # the kernel writes a space as \040
            yield fields[3], mount, 2 if kind[0] == "cgroup2" else 1, kind[-1].split(",")


def text(path: Path) -> str:
    """Return the content of a kernel file; empty if the file or its process does not exist."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
