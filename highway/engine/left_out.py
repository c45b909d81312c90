"""What a stage leaves out where ``on_error="skip"``: how much of its budget is spent, and when to warn."""

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
WARN_EVERY = 5.0  # seconds between two warnings of one stage about what it left out


class LeftOut:
    """The errors of a stage.

    Args:
        stage: The stage.

    Attributes:
        errors: How many there were in this run.
        fatal: The one with which the budget was spent.
        last: The last one, in words.
        earlier: How many there were in the run that this one goes on from; the budget is for both.
        behind: How many there were behind each marker and before the next; of the first items, behind ``None``.
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
        """Count an error, and warn of it unless that was done just now.

        Args:
            error: The error.
            marker: The last one before the item that it is about.
            where: Says what the worker is at.

        Raises:
            Exception: ``error`` itself, when the budget is spent.
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
