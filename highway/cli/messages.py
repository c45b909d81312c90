"""Errors in words, for people who have not read the code."""

from __future__ import annotations

import traceback

from highway.errors import HighwayError


class RunError(Exception):
    """A role failed while it ran; the cause is what its stage raised."""


def explain(error: BaseException, with_traceback: bool = False) -> str:
    """Return an error's message with its notes; highway's own messages need no class name in front."""
    if isinstance(error, RunError) and error.__cause__:
        error = error.__cause__
    if with_traceback:
        return "".join(traceback.format_exception(error)).rstrip()
    if isinstance(error, HighwayError):
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        lines = [text, *getattr(error, "__notes__", [])]
    else:
        lines = "".join(traceback.format_exception_only(error)).rstrip().splitlines()
        lines.append("(--traceback shows where in the code)")
    return "\n  ".join(lines)
