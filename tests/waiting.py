"""Waiting for what another thread, process or socket is to bring about."""

import time


def wait_until(condition):
    """Wait until a condition holds, 30 s at most."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
