"""``highway doctor``: report installed packages, the implementations in use, the machine's resources, and how to be faster."""

from __future__ import annotations

import argparse
import os
import platform
import re
import resource
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import highway
from highway.cli import command, doctor_dataset
from highway.columns import terminal_width, wrapped
from highway.datasets.formats import formats
from highway.distribution import version_of
from highway.extras import pip_install
from highway.images.decode import backend, extension_or_none
from highway.images.ops import cv2_or_none
from highway.process.cores import available_cores
from highway.process.memory import available_memory
from highway.wire.transports.shm.message import IN_C

_GB = 1e9
_FEW_FILES = 4096  # fewer file descriptors are few: each worker of a reader, each peer of a link, and each pipe needs one
_SMALL_SHM = 1 << 30
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_PACKAGES = ("numpy", "pillow", "pyzmq", "simplejpeg", "opencv-python-headless", "webdataset", "torch", "threadpoolctl")


_OF_TENSORCOM = {  # command that both tensorcom and highway install -> equivalent command of highway
    "tensormon": "mon",
    "tensorshow": "show",
    "tensorstat": "stat",
    "serve-imagenet-dir": "serve-dir",
    "serve-imagenet-shards": "serve-shards",
}


class Finding(NamedTuple):
    """A finding about a topic, and a sentence of advice, which can be empty."""

    topic: str
    found: str
    advice: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command, including the options to measure a dataset."""
    doctor_dataset.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Print the findings and then the advice. If a dataset is given, only print the fastest way to read the dataset."""
    if options.dataset is not None:
        return doctor_dataset.run(options)
    findings = list(look())
    width, gap = terminal_width(), max(len(finding.topic) for finding in findings) + 2
    for finding in findings:
        print(wrapped(f"{finding.topic:<{gap}}{finding.found}", width, " " * gap))
    advice = [finding.advice for finding in findings if finding.advice]
    print("\nTo be faster:" if advice else "\nThere is nothing to install or change.")
    for sentence in advice:
        print(wrapped(f"- {sentence}", width, "  "))
    return command.DONE


def look() -> Iterator[Finding]:
    """Yield findings on installed packages, implementations in use, and the machine's resources."""
    yield Finding("highway", f"{highway.__version__} in {Path(highway.__file__).parent}")
    yield Finding("python", f"{platform.python_version()} ({sys.executable})")
    yield Finding("system", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield Finding("packages", ", ".join(f"{name} {version_of(name) or 'absent'}" for name in _PACKAGES))
    yield _formats()
    yield Finding("commands", owners_of_commands())
    yield from (_extension(), _decoder(), _pixels(), _cores(), _blas())
    yield Finding("memory", f"{available_memory() / _GB:.1f} GB left for this process")
    yield from (_links(), _shared_memory(), _files())


def owners_of_commands(path: str | None = None) -> str:
    """Return which package owns each command of tensorcom on this machine. If highway does not own a command, add highway's equivalent.

    Args:
        path: Search path of the commands. ``None``: the search path of the shell.
    """
    owners: dict[str, list[str]] = {}
    for name in _OF_TENSORCOM:
        found = shutil.which(name, path=path)
        text = Path(found).read_text(errors="replace")[:4096] if found else ""
        owner = next((package for package in ("highway", "tensorcom") if re.search(rf"^(from|import) {package}\b", text, re.MULTILINE)), "")
        owners.setdefault(owner or ("another program" if found else "not installed"), []).append(name)
    parts = [f"{', '.join(names)}: {owner}" for owner, names in owners.items()]
    if others := [_OF_TENSORCOM[name] for owner, names in owners.items() if owner != "highway" for name in names]:
        parts.append(f"to always run highway's commands, use: highway {', highway '.join(others)}")
    return "; ".join(parts)


def _formats() -> Finding:
    """Return the readable formats, and how to install the other formats."""
    packages = {row.extra.name: row.extra.package for row in formats().values() if row.extra} | {"stores": "obstore"}
    found = {extra: version_of(package) for extra, package in packages.items()}
    parts = [f"{extra} ({packages[extra]} {version})" for extra, version in found.items() if version]
    text = ", ".join(parts) or "formats that need no further package"
    if absent := [extra for extra, version in found.items() if not version]:
        text += f"{', and' if parts else ';'} with {pip_install(','.join(absent))} the others"
    return Finding("formats", text)


def _extension() -> Finding:
    if extension_or_none():
        return Finding("C extension", "built: of each JPEG, only the cropped box is decoded")
    way_out = "install a C compiler and the headers of libjpeg-turbo (Debian: libjpeg62-turbo-dev, Ubuntu: libjpeg-turbo8-dev)"
    state = "built from another version of highway, or for another libjpeg" if find_spec("highway.images._jpeg") else "not built"
    return Finding("C extension", state, f"JPEGs would decode 1.1 times as fast: {way_out}, then install highway-data again.")


def _decoder() -> Finding:
    found = backend()
    advice = {
        "pillow": f"JPEGs would decode 1.7 times as fast with simplejpeg: {pip_install('fast')}.",
        "cv2": f"JPEGs would decode a little faster, and damage would be detected, with simplejpeg: {pip_install('fast')}.",
    }
    return Finding("JPEG decoder", found, advice.get(found, ""))


def _pixels() -> Finding:
    if cv2 := cv2_or_none():
        return Finding("scaling, flips", f"OpenCV {cv2.__version__} without its own threads, because highway has worker threads")
    return Finding("scaling, flips", "Pillow and numpy", f"Scaling would be 4 times as fast with OpenCV: {pip_install('fast')}.")


def _cores() -> Finding:
    usable, all_cores = available_cores(), os.cpu_count() or 1
    found = f"{usable} of {all_cores} are usable: the default number of workers is {usable}"
    if usable < all_cores:
        return Finding(
            "cores", found, f"This process cannot use {all_cores - usable} cores; extend its CPU affinity or the CPU quota of its cgroup."
        )
    return Finding("cores", found)


def _blas() -> Finding:
    set_ = [f"{name}={os.environ[name]}" for name in _THREADS if name in os.environ]
    try:
        from threadpoolctl import threadpool_info  # type: ignore[import-not-found, unused-ignore]
    except ModuleNotFoundError:
        pools = []
    else:
        pools = [(pool["internal_api"], pool["num_threads"]) for pool in threadpool_info()]
    most = max((threads for _, threads in pools), default=0)
    found = ", ".join([*set_, *(f"{name} with {threads} threads" for name, threads in pools)]) or "not limited"
    if set_ or most == 1:
        return Finding("BLAS threads", found)
    advice = "If your own maps multiply matrices, set OMP_NUM_THREADS=1 before starting Python. Otherwise each worker starts threads."
    return Finding("BLAS threads", found, advice if available_cores() > 1 else "")


def _links() -> Finding:
    if IN_C:
        return Finding("shm links", "in C")
    return Finding(
        "shm links",
        "in Python",
        "Small messages over +shm would be 1.3 times as fast: install a C compiler, then install highway-data again.",
    )


def _shared_memory() -> Finding:
    if not os.path.isdir("/dev/shm"):
        return Finding("/dev/shm", "absent; links with +shm do not need it")
    usage = shutil.disk_usage("/dev/shm")
    found = f"{usage.free / _GB:.1f} of {usage.total / _GB:.1f} GB free"
    if usage.total < _SMALL_SHM:
        way_out = "start the container with --shm-size=8g (highway does not need it)"
        return Finding("/dev/shm", found, f"/dev/shm is small, but PyTorch's worker processes use it: {way_out}.")
    return Finding("/dev/shm", found)


def _files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"at most {_limit(soft)} open files, {_limit(hard)} after `ulimit -n`"
    if soft != resource.RLIM_INFINITY and soft < _FEW_FILES:
        return Finding("files", found, f"The limit of open files is low: run `ulimit -n {_FEW_FILES}` before you start many links.")
    return Finding("files", found)


def _limit(number: int) -> str:
    return "any number" if number == resource.RLIM_INFINITY else f"{number:,}"
