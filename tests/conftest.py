"""What every test is held to: it leaves no thread, child process, open file or shared memory behind."""

import gc
import itertools
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

pytest_plugins = ["topologies"]

# A busy machine is no failure, and each run is the same.
settings.register_profile("highway", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("highway")
# Hypothesis draws from the constants in those of our modules, too, that are imported by then: that hangs on the tests that ran before.
if hasattr(providers, "is_local_module_file"):
    providers.is_local_module_file = lambda path: False

_own_base: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--resume-cases", type=int, help="number of random pipelines of tests/engine/test_resume_*.py")


def pytest_configure(config: pytest.Config) -> None:
    """Have ``tmp_path``, and temporary folders of tests, below a short path: tests put sockets there, whose paths have 107 bytes at most.

    pytest's own begins with ``TMPDIR``, and has the user's name in it.
    """
    gc.disable()  # until all tests are collected: it would look again and again through what stays
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a script's shell does that for what it runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what tests start, and then interrupt, would ignore it too
    tempfile.tempdir = "/tmp"
    if config.option.basetemp is None:
        _own_base.append(tempfile.mkdtemp(prefix="hw-"))
        config.option.basetemp = _own_base[0]


def pytest_collection_finish() -> None:
    """Have the garbage collector look at nothing of what is there before the first test: a look at all of it takes 0.2 s."""
    gc.enable()
    gc.freeze()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two more workers than there are cores for slow tests, else one more: many tests wait for processes that they have started."""
    return len(os.sched_getaffinity(0)) + (2 if config.option.markexpr == "slow" else 1)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep what the tests wrote only if one has failed."""
    if exitstatus == pytest.ExitCode.OK:
        for base in _own_base:
            shutil.rmtree(base, ignore_errors=True)


LASTING_THREADS = {  # one for the whole process of pyzmq, one of our links, and one of our stores; TensorFlow's own, which call Python
    "GarbageCollectorThread",
    "Doorkeeper",
    "StoreLoop",
    "_DummyThread",
}


def _threads() -> set[threading.Thread]:
    zarr = ("zarr_io", "asyncio_") if "zarr" in sys.modules else ()  # Zarr keeps its loop, and the threads of that
    return {thread for thread in threading.enumerate() if type(thread).__name__ not in LASTING_THREADS and not thread.name.startswith(zarr)}


def _children() -> set[int]:
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    return {int(pid) for pid in children.read_text().split()} if children.exists() else set()


def _shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith("highway")} if os.path.isdir("/dev/shm") else set()


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    threads, children, memory, path = _threads(), _children(), _shared_memory(), sys.path.copy()
    yield
    sys.path[:] = path  # to which commands add the current directory, where another highway may be than the one that is tested
    if _threads() - threads or _children() - children or _shared_memory() - memory:
        gc.collect()  # it may hang on a reference cycle; collecting after every test would take longer than the tests
    for thread in _threads() - threads:
        thread.join(timeout=30)  # a thread that has done its work may need a moment to end
    for process in multiprocessing.active_children() if _children() - children else ():
        if process.pid not in children:
            process.join(timeout=30)  # torch waits 5 s for a worker, and then does not wait for the end of one that it has killed
    left = sorted(thread.name for thread in _threads() - threads)
    assert not left, f"threads left behind: {left}"
    assert not _children() - children, "child processes left behind"
    assert not _shared_memory() - memory, "shared memory left behind"


@pytest.fixture
def popen() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a process whose output is text in pipes; what still runs when the test ends is killed."""
    processes = []

    def popen(command: list[str], **options: Any) -> subprocess.Popen[str]:
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options))
        return processes[-1]

    yield popen
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Have descriptors that are opened now be above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1500:
        pytest.skip(f"a process may have {hard} descriptors here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1500), hard))
    opened = [os.open(os.devnull, os.O_RDONLY)]
    while opened[-1] < 1100:
        opened.append(os.dup(opened[0]))
    yield
    for descriptor in opened:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def own_address() -> str:
    """A loopback address that no other test uses, so that any port is free on it."""
    _addresses.append(None)
    return f"127.{(os.getpid() >> 8) % 255 + 1}.{os.getpid() & 255}.{len(_addresses) % 250 + 2}"


_addresses: list[None] = []
_numbers = itertools.count()


@pytest.fixture
def ipc() -> Iterator[Callable[[], str]]:
    """A function that returns an unused ``ipc`` location each time; a socket's path must be short, so that it is not in ``tmp_path``."""
    folder = tempfile.mkdtemp(prefix="hw")
    yield lambda: f"{folder}/{next(_numbers)}"
    shutil.rmtree(folder)
