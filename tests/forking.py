"""A forked child that runs one function, and nothing else of the tests."""

import os
import signal
import traceback
import warnings


def in_a_fork(function):
    """Call a function in a forked child; return its number, which is the exit code: 255 if it raised, negative if it was killed."""
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # newer Pythons warn of a fork beside threads
        child = os.fork()
    if child == 0:
        code = 255
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest-timeout has a handler of its own
            signal.alarm(60)  # ends a child that waits for ever
            code = int(function())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
