"""A script that ends with a pipeline: constructing one that ends in a sink is enough to run it.

::

    p = Pipeline([ImageFileReader(data_dir, 16, (240, 320)), ZMQSink("tcp://source:5555")])   # the last line

Nothing starts when a pipeline is constructed, so such a script would end having done nothing. Therefore a pipeline that ends in a sink,
was constructed by the ``__main__`` script itself, and was neither run nor stopped when the script ends, is run then, before the
interpreter exits: until its source ends (exit code 0), a stage raises (1, with the error's message) or it is interrupted (130). It is not
run if the script ends in an exception, ``SystemExit`` included, in an interactive interpreter, or with ``start=False``.
"""

from __future__ import annotations

import atexit
import dis
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from highway.process import script_interrupt
from highway.process.interrupt import ignore_at_exit

if TYPE_CHECKING:  # which imports this
    from highway.engine.threads import Run

log = logging.getLogger("highway")


_waiting: dict[Run, tuple[object, FrameType]] = {}  # each with its pipeline, which must not be collected meanwhile, and the script
_registered = False


def is_built_by_script(frame: FrameType) -> bool:
    """Say whether ``frame`` belongs to a script that the interpreter runs, rather than a library or an interactive session."""
    return frame.f_globals.get("__name__") == "__main__" and "__file__" in frame.f_globals and script_interrupt.is_script()


def run_at_end(run: Run, pipeline: object, frame: FrameType) -> None:
    """Run it when the main thread has come to its end, unless it is forgotten before, or the script that ``frame`` is of ends otherwise.

    Python starts no threads any more by then (3.12 and later), so they are created now, waiting.
    """
    global _registered
    while frame.f_code.co_name != "<module>" and frame.f_back is not None:
        frame = frame.f_back
    with script_interrupt.held():
        run.spawn()
        _waiting[run] = (pipeline, frame)
    if not _registered:
        _registered = True
        ignore_at_exit()
        script_interrupt.quiet_while(lambda: bool(_waiting), _is_running)
        # The hook that concurrent.futures uses: called when the main thread ends, before its fellows are joined and atexit functions run.
        threading._register_atexit(_run_all)  # type: ignore[attr-defined]


def not_begun() -> str:
    """Return what to say to who waits for an item while pipelines wait for the end of the script; empty if there are none."""
    pipelines = ", ".join(str(pipeline) for pipeline, _ in _waiting.values())
    if not pipelines:
        return ""
    return f"not begun are {pipelines}: what ends in a sink begins when the script has ended; call start() on it to have it run meanwhile"


def forget(run: Run) -> None:
    """Do not run it at the end: somebody has started or stopped it."""
    _waiting.pop(run, None)


def _is_running(frame: FrameType | None) -> bool:
    """Say whether a frame is of the script, or of what the script has called."""
    scripts = [script for _, script in _waiting.values()]
    while frame is not None and frame not in scripts:
        frame = frame.f_back
    return frame is not None


def _run_all() -> None:
    with script_interrupt.held() as is_interrupted:
        _run(lambda: script_interrupt.lost or is_interrupted())


def _run(is_interrupted: Callable[[], bool]) -> None:
    pipelines = dict(_waiting)  # which must not be collected before they have ended
    runs = list(pipelines)
    failed = getattr(sys, "last_value", None) is not None  # and its traceback was printed
    for run, (pipeline, frame) in pipelines.items():
        if failed or not _has_returned(frame):
            run.stop()
            runs.remove(run)
            if not failed:
                print(f"highway: {pipeline} was not run, since the script ended by SystemExit; call run()", file=sys.stderr)
    try:
        for run in runs:
            if not is_interrupted():
                run.start()  # which forgets it
        for run in runs:
            run.wait(is_interrupted)
    except KeyboardInterrupt:
        _exit(130, runs)
    except BaseException as error:
        message = "".join(traceback.format_exception_only(error)).strip()
        print(f"highway: {message}", file=sys.stderr)
        _exit(1, runs)


def _has_returned(frame: FrameType) -> bool:
    """Say whether the code of a frame that has ended came to its end: the last that it did was to return."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN")


def _exit(code: int, runs: list[Run]) -> NoReturn:
    """Leave with an exit code: at this point only ``os._exit`` can set one, so what an exit does otherwise is done here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for run in runs:
        run.stop()
    atexit._run_exitfuncs()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
