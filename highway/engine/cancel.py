"""Functions by which the code of a stage learns that it must stop."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from highway.engine import context


def check_cancelled() -> None:
    """Raise ``Cancelled`` if the stage that runs on this thread was cancelled; else return immediately.

    Code that waits outside highway (for a socket, a lock or a device) must call this function at least every 100 ms. Outside a pipeline,
    the function does nothing.

    >>> def poll(item):
    ...     for _ in range(3):
    ...         check_cancelled()
    ...     return item
    >>> list(Pipeline([range(2), poll]))
    [0, 1]
    """
    context.here().check()


def wait(seconds: float) -> None:
    """Sleep for ``seconds``. If the stage that runs on this thread is cancelled, raise ``Cancelled``."""
    context.here().wait(seconds)


def is_cancelled() -> bool:
    """Return whether the stage that runs on this thread was cancelled."""
    return context.here().cancelled


if not TYPE_CHECKING:
    _MOVED = ["counters", "count", "seed_or", "report_error", "is_skipped", "finish", "starved", "blocked"]

    def __getattr__(name: str) -> Any:
        """Return a function that moved to :mod:`highway.engine.context` after version 0.1.0, and warn. Version 0.3 removes the old name."""
        if name in ("at_end", "in_stage", "here", "OfThread"):
            warnings.warn(f"{name} is in highway.engine.context now", FutureWarning, stacklevel=2)
            return getattr(context, name)
        values = {"seed": "seed", "workers_behind": "workers_behind", "is_draining": "draining"}
        if name not in values and name not in _MOVED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        own = values.get(name, name)
        warnings.warn(
            f"highway.engine.cancel.{name} is {own} of the context of a stage now: items.context.{own}, or the argument context of a "
            "source or map; highway.engine.cancel has it until version 0.3",
            FutureWarning,
            stacklevel=2,
        )
        return (lambda: getattr(context.here(), own)) if name in values else lambda *args: getattr(context.here(), name)(*args)
