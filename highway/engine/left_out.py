"""Counts the errors that a stage skips with ``on_error="skip"``, compares them with ``max_errors``, and logs warnings."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from highway.engine.stage import Stage

if TYPE_CHECKING:
    from highway.engine.resume import Marker

log = logging.getLogger("highway")

LONGEST = 400  # characters of an error's text that are kept
WARN_EVERY = 5.0  # seconds between two warnings of one stage about skipped errors


class LeftOut:
    """The errors of a stage.

    Args:
        stage: The stage.

    Attributes:
        errors: Number of errors in this run.
        fatal: The error that exceeded ``max_errors``.
        last: The text of the last error.
        earlier: Number of errors in the run that this run resumes. ``max_errors`` counts both.
        behind: Number of errors between each marker and the next; ``None`` for the errors before the first marker.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage, self._lock = stage, threading.Lock()
        self.errors = self.earlier = 0
        self.fatal: Exception | None = None
        self.last = ""
        self.behind: Counter[Marker | None] = Counter()
        self._unreported = 0
        self._warned = -WARN_EVERY

    def add(self, error: Exception, marker: Marker | None, where: Callable[[], str]) -> None:
        """Count an error, and log a warning if the last one was long enough ago.

        Args:
            error: The error.
            marker: The last marker before the item that raised the error.
            where: Returns the place of the worker, for the warning.

        Raises:
            Exception: ``error`` itself, if it exceeds ``max_errors``.
        """
        with self._lock:
            self.errors += 1
            self.behind[marker] += 1
            self._unreported += 1
            errors, now = self.earlier + self.errors, time.monotonic()
            count, due = self._unreported, now - self._warned >= WARN_EVERY
            if due:
                self._warned, self._unreported = now, 0
        if self._stage.max_errors is not None and errors > self._stage.max_errors:
            self.fatal = error
            error.add_note(f"max_errors={self._stage.max_errors} is spent: this is error {errors}")
            raise error
        self.last = f"{type(error).__name__}: {error}"[:LONGEST]
        if due:
            what = f"{count} items, the last" if count > 1 else "an item"
            text = "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
            log.warning("%s left out %s (%s): %s", self._stage.name, what, where(), text)
