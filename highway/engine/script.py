"""Run a pipeline at the end of a script. If a pipeline ends in a sink, the script does not have to call ``run()``.

::

    p = Pipeline([ImageFileReader(data_dir, 16, (240, 320)), ZMQSink("tcp://source:5555")])   # the last line

The construction of a pipeline starts nothing, so such a script would end without doing anything. Therefore, a pipeline runs at the end of
the script, before the interpreter exits, if three conditions hold:

- the pipeline ends in a sink;
- the ``__main__`` script itself has constructed the pipeline;
- the script has neither run nor stopped the pipeline.

The pipeline does not run if the script ends with an exception (including ``SystemExit``), in an interactive interpreter, or with
``start=False``.

The pipeline runs until one of these events:

- Its source ends. The exit code is 0.
- A stage raises an error. The exit code is 1, and the error's message is printed.
- Ctrl-C interrupts the pipeline. The exit code is 130.
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
from typing import NoReturn, Protocol

from highway.process.interrupt import CODE, held

log = logging.getLogger("highway")


class _Run(Protocol):
    """The methods of the run of a pipeline that this module uses."""

    def spawn(self) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def wait(self, is_interrupted: Callable[[], bool]) -> None: ...


_waiting: dict[_Run, tuple[object, FrameType]] = {}  # by run: its pipeline (which must stay alive), and the frame of the script
_registered = False


def is_built_by_script(frame: FrameType) -> bool:
    """Return whether ``frame`` belongs to a script that the interpreter runs, not to a library or an interactive session."""
    is_interactive = hasattr(sys, "ps1") or sys.flags.interactive
    return frame.f_globals.get("__name__") == "__main__" and "__file__" in frame.f_globals and not is_interactive


def run_at_end(run: _Run, pipeline: object, frame: FrameType) -> None:
    """Run the pipeline when the main thread ends, unless :func:`forget` is called or the script of ``frame`` ends with an exception.

    At that time, Python 3.12 and later cannot start threads. This function therefore starts the threads now, and the threads wait.
    """
    global _registered
    while frame.f_code.co_name != "<module>" and frame.f_back is not None:
        frame = frame.f_back
    with held():
        run.spawn()
        _waiting[run] = (pipeline, frame)
    if not _registered:
        _registered = True
        # Python calls this hook when the main thread ends, before it joins all other threads. concurrent.futures uses the hook, too.
        threading._register_atexit(_run_all)  # type: ignore[attr-defined]


def not_begun() -> str:
    """Return a hint for a caller that waits for an item while pipelines wait for the script's end; empty if there are none."""
    pipelines = ", ".join(str(pipeline) for pipeline, _ in _waiting.values())
    if not pipelines:
        return ""
    return (
        f"these pipelines have not begun: {pipelines}. A pipeline that ends in a sink begins when the script ends; to start it earlier, "
        "call its start()"
    )


def forget(run: _Run) -> None:
    """Do not run the pipeline at the end of the script, because it was started or stopped."""
    _waiting.pop(run, None)


def _run_all() -> None:
    with held() as is_interrupted:
        _run(is_interrupted)


def _run(is_interrupted: Callable[[], bool]) -> None:
    pipelines = dict(_waiting)  # keeps the pipelines alive until they have ended
    runs = list(pipelines)
    failed = getattr(sys, "last_value", None) is not None  # its traceback was printed
    for run, (pipeline, frame) in pipelines.items():
        if failed or not _has_returned(frame):
            run.stop()
            runs.remove(run)
            if not failed:
                print(f"highway: {pipeline} was not run, because the script ended with SystemExit; call run()", file=sys.stderr)
    try:
        for run in runs:
            if not is_interrupted():
                run.start()  # this also calls forget()
        for run in runs:
            run.wait(is_interrupted)
    except KeyboardInterrupt:
        _exit(CODE, runs)
    except BaseException as error:
        message = "".join(traceback.format_exception_only(error)).strip()
        print(f"highway: {message}", file=sys.stderr)
        _exit(1, runs)


def _has_returned(frame: FrameType) -> bool:
    """Return whether the code of a frame has ended with a return, not with an exception."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN")


def _exit(code: int, runs: list[_Run]) -> NoReturn:
    """Exit with an exit code. At this time, only ``os._exit`` can set the code. Therefore, first do the other work of a normal exit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for run in runs:
        run.stop()
    atexit._run_exitfuncs()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
