"""Functions for the parameter ``type`` of argparse: each converts the text of an argument."""

from __future__ import annotations

import argparse
import re


def positive(text: str) -> int:
    """Return a whole number above 0."""
    return _whole(text, 1, "above 0")


def natural(text: str) -> int:
    """Return a whole number of at least 0."""
    return _whole(text, 0, "at least 0")


def _whole(text: str, least: int, expected: str) -> int:
    if not re.fullmatch(r"-?\d+", text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text}; expected a whole number {expected}")
    return int(text)


def seconds(text: str) -> float:
    """Return a finite number of seconds above 0."""
    return _finite(text, "a number of seconds above 0")


def share(text: str) -> float:
    """Return a finite number of at least 0."""
    return _finite(text, "a number, at least 0", is_zero_allowed=True)


def rate(text: str) -> float:
    """Return a finite number above 0."""
    return _finite(text, "a number above 0")


def _finite(text: str, expected: str, is_zero_allowed: bool = False) -> float:
    number = float(text)
    if not 0 <= number < float("inf") or (number == 0 and not is_zero_allowed):
        raise argparse.ArgumentTypeError(f"{text}; expected {expected}")
    return number
