"""Write to standard output and standard error. An error of these streams, such as a full disk, does not end the run.

Standard output can be reserved for JSON.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import TextIO

from highway.process import interrupt, signals

_kept: TextIO | None = None


@contextlib.contextmanager
def kept_for_json() -> Iterator[None]:
    """Reserve standard output for :func:`own_stdout`.

    Other output of this process, for instance of user modules, goes to standard error.
    """
    global _kept
    before, _kept = _kept, sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _kept = before


def own_stdout() -> TextIO:
    """Return the standard output for the command's own output."""
    return _kept or sys.stdout


def run_apart(command: Callable[[], int], library: str, document: Callable[[int, str], str]) -> int:
    """Run a command in a child process, print the command's document (JSON), and return the exit code.

    This function forks and returns in both processes. If a library ends the child too early, the document comes from the function
    ``document``. If this process is not the program ``highway``, the command runs in this process, because the caller can have threads,
    and a process with threads cannot fork safely. The child's standard output is a file, because processes that outlive the child could
    keep a pipe open. The child has its own process group, and gets signals only from this process.

    Args:
        command: Function that runs the command and returns the exit code.
        library: Name of the library that can end the process.
        document: Function that returns the document of a command that ended without printing a document. The arguments are an exit code and
            a message.
    """
    if not interrupt.is_program():
        return command()
    passed_on = {number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if the signal is ignored, the kernel keeps no exit codes
    with tempfile.TemporaryFile() as written:
        before, parent = signal.pthread_sigmask(signal.SIG_BLOCK, passed_on), os.getpid()
        # Python 3.12 and later warn about a fork with threads, even about NumPy's threads.
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            child = os.fork()
        if not child:
            os.setpgid(0, 0)
            interrupt.die_with_parent(signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)
            _write_to(written.fileno())
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return command()
        with signals.received({*passed_on, signal.SIGCHLD}) as heard:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            sent = set()
            while not (ended := os.waitpid(child, os.WNOHANG))[0]:
                if (number := os.read(heard, 1)[0]) in passed_on:
                    os.kill(child, number)
                    sent.add(number)
            code = os.waitstatus_to_exitcode(ended[1])
            written.seek(0)
            text = written.read().decode(errors="replace")
            if not text.endswith("}\n"):  # there is no document, or an incomplete document
                how = f"was killed by {signals.name_of(-code)}" if code < 0 else f"ended with exit code {code}"
                blamed = "" if -code in sent else f"; perhaps {library} has ended it"
                message = f"the process of the run {how}{blamed}; the number of lost messages is unknown"
                code = 128 - code if code < 0 else code or 1
                text = document(code, message) + "\n"
                print(f"highway: {message}", file=sys.stderr, flush=True)
            out = Output(own_stdout(), "standard output", lambda said: print(f"highway: {said}", file=sys.stderr, flush=True))
            out.write(text)
            out.flush()
            out.finish()
    return code


def _write_to(descriptor: int) -> None:
    """Make :func:`own_stdout` return the file ``descriptor``. Text that C libraries print on standard output goes to standard error."""
    global _kept
    own_stdout().flush()
    os.dup2(2, 1)
    _kept = open(descriptor, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # until the command ends


class Output(io.TextIOBase):
    """A text stream that drops text that cannot be written, and reports this once.

    Args:
        stream: The stream to write to.
        name: The name of the stream in messages.
        tell: A function that is called with a sentence at the first text that cannot be written.
    """

    def __init__(self, stream: TextIO, name: str, tell: Callable[[str], None]) -> None:
        self._stream, self._name, self._tell = stream, name, tell
        self.failed = False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream, for the library rich."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Write buffered text, or drop it."""
        if not self._stream.closed:  # garbage collection also flushes this object, perhaps after the stream was closed
            self._try(self._stream.flush)

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the stream."""
        return self._stream.fileno()

    def finish(self) -> None:
        """Write buffered text, or drop it. Python would write this text at exit, and fail if the stream has an error."""
        with contextlib.suppress(OSError):
            self._stream.flush()
            return
        with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), self._stream.fileno())

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError as error:
            if not self.failed:
                self.failed = True
                why = "its reader has closed it" if isinstance(error, BrokenPipeError) else error.strerror or str(error)
                self._tell(f"cannot write to {self._name}: {why}; the run continues without this output")
