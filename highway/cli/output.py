"""Standard output and standard error, of which neither ends a run because a disk is full or nobody reads any more."""

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
    """Keep standard output for :func:`own_stdout`; what else this process prints, such as modules of the user, goes to standard error."""
    global _kept
    before, _kept = _kept, sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _kept = before


def own_stdout() -> TextIO:
    """Return standard output for what a command itself prints."""
    return _kept or sys.stdout


class Output(io.TextIOBase):
    """A text stream that drops what cannot be written, and says so once.

    Args:
        stream: Where to write.
        name: What people call it.
        tell: Called with a sentence the first time that something cannot be written.
    """

    def __init__(self, stream: TextIO, name: str, tell: Callable[[str], None]) -> None:
        self._stream, self._name, self._tell = stream, name, tell
        self.failed = False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the stream; rich asks for it."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Write out what waits, or drop it."""
        if not self._stream.closed:  # which is flushed too when this is collected, maybe later than the stream
            self._try(self._stream.flush)

    def isatty(self) -> bool:
        """Say whether this is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._stream.fileno()

    def finish(self) -> None:
        """Let go of what could not be written: Python would try again when it exits, and fail."""
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
