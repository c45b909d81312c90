"""Start a child process with a new interpreter (never by fork), and describe how it died."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import highway
from highway.children.pickling import importing, pack
from highway.errors import PipelineError, RemoteError
from highway.process import signals
from highway.process.interrupt import Withheld

END_TIMEOUT = 5.0  # seconds for an idle child to end

# The child must import the same highway as its parent, even if sys.path has changed. gc.freeze() excludes the child's modules from garbage
# collection. Collecting these modules at exit would take 50 ms while the parent waits.
_CODE = """import gc, sys
sys.path[:] = [{home!r}, *{path!r}]
import highway
del sys.path[0]
from {module} import main
gc.freeze()
main(*{arguments!r})"""


def expect_no_import(who: str) -> None:
    """Raise PipelineError in a child that is importing its parent's script. Otherwise, each child would start further children."""
    if importing.now:
        raise PipelineError(
            f"{who} would start while a child process imports this script; "
            'put what builds and runs the pipeline under  if __name__ == "__main__":'
        )


def expect_picklable(part: Any, label: str, who: str) -> None:
    """Raise PipelineError if a part of a pipeline cannot be pickled. The message starts with ``who``."""
    try:
        pack(part)
    except Exception as error:  # pickle and __reduce__ can raise any error
        raise PipelineError(
            f"{who}: {label} cannot be sent to another process: {error}; define its functions and classes at the top level of a module, "
            "and keep no open files or locks in it"
        ) from error


def start(
    who: str, module: str, kinds: Sequence[int], arguments: Sequence[object], **environment: str
) -> tuple[subprocess.Popen[bytes], list[socket.socket]]:
    """Start a child process. The child ignores Ctrl-C. This process receives Ctrl-C, and ends the child if necessary.

    Args:
        who: The start of error messages: the name of the component that starts the child.
        module: The module whose ``main`` the child calls. ``main`` gets the ID of this process, the descriptors of the child's sockets, and
            ``arguments``.
        kinds: A socket type such as ``socket.SOCK_STREAM`` for each pair of sockets that connects this process and the child.
        arguments: Further arguments of ``main``. The child gets their ``repr()``.
        **environment: Environment variables for the child. Variables that are set in this process take precedence.

    Returns:
        The child, and this process's end of each pair of sockets.

    Raises:
        PipelineError: the child cannot be started.
    """
    home = str(Path(highway.__file__).parents[1])
    ours, theirs = zip(*(socket.socketpair(socket.AF_UNIX, kind) for kind in kinds), strict=True)
    fds = [their.fileno() for their in theirs]
    code = _CODE.format(home=home, path=sys.path, module=module, arguments=(os.getpid(), fds, *arguments))
    command, environment = [sys.executable, "-c", code], {**environment, **os.environ}
    try:
        with Withheld():
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=fds, env=environment), list(ours)
    except BaseException as error:
        for our in ours:
            our.close()
        if isinstance(error, OSError):
            raise PipelineError(f"{who}: a process cannot be started: {error}") from error
        raise
    finally:
        for their in theirs:
            their.close()


def death(process: subprocess.Popen[bytes], who: str, when: str = "") -> RemoteError:
    """Return the error that describes how a child ended.

    Args:
        process: The child. It has closed its links.
        who: The start of the message: the name of the component that started the child.
        when: What the child was doing, such as `` while it had an item``.
    """
    try:
        code = process.wait(END_TIMEOUT)
    except subprocess.TimeoutExpired:
        return RemoteError(f"{who}: process {process.pid} has closed its connections{when}, but is still running")
    if code >= 0:
        return RemoteError(f"{who}: process {process.pid} ended with exit code {code}{when}")
    hint = "; the kernel does this if memory runs out: see its log (dmesg)" if -code == signal.SIGKILL else ""
    return RemoteError(f"{who}: process {process.pid} was killed by {signals.name_of(-code)}{when}{hint}")


def end(process: subprocess.Popen[bytes], timeout: float = END_TIMEOUT) -> bool:
    """Wait until an idle child ends. After ``timeout`` seconds, kill the child. Return whether it was killed.

    If the child is in a system call that hangs, the child ends when the call returns.
    """
    deadline = time.monotonic() + timeout
    if process.poll() is None:
        with contextlib.suppress(AttributeError, OSError), open(os.pidfd_open(process.pid)) as ended:  # wait() alone polls every 50 ms
            poller = select.poll()
            poller.register(ended, select.POLLIN)
            poller.poll(1000 * timeout)
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_TIMEOUT)
        return True
    return False
