"""Waiting for what another thread, process or socket is to bring about."""

import re
import time


def wait_until(condition, seconds=30, every=0.01):
    """Look at a condition every so many seconds until it holds, some seconds at most, and return what it has found."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(every)
    return found


def without_waits(err):
    """Return what a process has printed to standard error, but for lines that say what it waits for: a slow machine has them come."""
    return re.sub(
        r"^.*(no (batch has arrived from|message has arrived for) .*|has waited for an item for .*|waiting for receivers; "
        r".*)\n",
        "",
        err,
        flags=re.M,
    )
