"""Standard output and standard error that never end a run, even if a disk is full or the reader is gone."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

_kept: TextIO | None = None


@contextlib.contextmanager
def kept_for_json() -> Iterator[None]:
    """Reserve standard output for :func:`own_stdout`; other output of this process, for instance of user modules, goes to standard
    error."""
    global _kept
    before, _kept = _kept, sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _kept = before


def own_stdout() -> TextIO:
    """Return standard output for the command's own output."""
    return _kept or sys.stdout


class Output(io.TextIOBase):
    """A text stream that drops text that cannot be written, and reports that once.

    Args:
        stream: The stream to write to.
        name: Its name in messages.
        tell: Called with a sentence at the first text that cannot be written.
    """

    def __init__(self, stream: TextIO, name: str, tell: Callable[[str], None]) -> None:
        self._stream, self._name, self._tell = stream, name, tell
        self.failed = False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream; rich asks for it."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Write buffered text, or drop it."""
        if not self._stream.closed:  # garbage collection also flushes this, perhaps after the stream
            self._try(self._stream.flush)

    def isatty(self) -> bool:
        """Return whether this is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._stream.fileno()

    def finish(self) -> None:
        """Drop buffered text: Python would try again to write it at exit, and fail."""
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
                why = "nobody reads it any more" if isinstance(error, BrokenPipeError) else error.strerror or str(error)
                self._tell(f"{self._name} cannot be written: {why}; the run goes on, and what was to be printed there is left out")
