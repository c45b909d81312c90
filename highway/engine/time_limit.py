"""The time limit of a stage, ``Stage(timeout=...)``. An item that takes too long is tried again on a new thread.

A stage without a timeout does not use this module. In a stage with a timeout, each worker has a helper thread, which calls the map. The
worker keeps the item, its place in the order and its passport (metadata). Therefore, order and states do not depend on the helper. If a
call takes too long, the worker abandons the helper: it never uses what the helper returns later. The memory into which an abandoned helper
writes is neither passed on nor reused. The helper ends when its call returns.
"""

from __future__ import annotations

import copy
import itertools
import logging
import math
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from highway.engine.context import at_end, enter, here, leave, on_behalf_of
from highway.engine.running import RunningStage
from highway.errors import Cancelled, PipelineError
from highway.process.threads import frame_of, join_at_exit

log = logging.getLogger("highway")

T = TypeVar("T")

_POLL = 0.1  # seconds between two checks whether the stage was cancelled
_MOST_FRAMES = 10  # maximum number of stack frames in a message


class _LateError(Exception):
    """A call has taken longer than the limit."""


class _OfThread(threading.local):
    """Thread-local values of a worker or a helper."""

    helper: _Helper | None = None  # in a worker: its helper
    ends_helper = False  # in a worker: whether the helper ends with the worker
    map: Callable[..., Any]  # in a helper: the map of the stage


class TimeLimit:
    """The time limit of a stage. The workers of the stage share this object.

    Args:
        running: The stage.
        seconds: Maximum seconds of a call.
        attempts: Number of attempts. If the last attempt takes too long, an error is raised.
    """

    def __init__(self, running: RunningStage, seconds: float, attempts: int) -> None:
        self._running, self.seconds, self.attempts = running, seconds, attempts
        self._own = _OfThread()

    def apply(self, item: Any, *rng: Any) -> Any:
        """Return the result of the stage's map for an item. The limit applies to the call."""
        return self.call(self._apply, item, bool(rng))

    def call(
        self, function: Callable[..., T], *arguments: Any, what: Callable[[], str] = lambda: "the item", otherwise: str = ""
    ) -> T | None:
        """Call a function on a helper thread, and return its result. If the call takes too long, call the function on a new thread.

        Args:
            function: The function.
            *arguments: The arguments of the function.
            what: A function that returns the name of the work, for messages.
            otherwise: A text that describes what the caller does if the call takes too long. If the text is given, there is only one
                attempt: a warning contains the text, and this method returns ``None``. Empty: use all attempts.

        Raises:
            TimeoutError: the function took too long in each attempt.
            Exception: the error that the function raised.
        """
        for attempt in itertools.count(1):
            helper = self._helper()
            helper.ask(function, arguments)
            try:
                result: T = helper.answer(self.seconds, is_retry=attempt > 1)
                return result
            except _LateError:
                stack = self._abandon(helper)
            here().check()
            again = f"attempt {attempt + 1} of {self.attempts} begins on another thread"
            self.late(what(), 0 if otherwise else attempt, f"The abandoned thread is {stack}", otherwise or again)
            if otherwise:
                break
        return None

    def late(self, what: str, attempt: int, stack: str, then: str) -> None:
        """Log a warning that a call has taken too long.

        Args:
            what: Name of the work.
            attempt: 1 for the first attempt, 2 for the second, and so on; 0 if there is only one attempt and no error.
            stack: A sentence that describes the stack of the thread.
            then: A text that describes what happens next, for the warning.

        Raises:
            TimeoutError: this was the last attempt.
        """
        took = f"{what} has taken longer than timeout={self.seconds:g} s"
        if attempt == self.attempts:
            times = f" in each of {attempt} attempts" if attempt > 1 else ""
            error = TimeoutError(
                f"{self._running.stage.label}: {took}{times}; raise timeout= if it needs more time, raise attempts= to try it again, or "
                "continue without such items: on_error='skip'"
            )
            error.add_note(f"highway: {stack}")
            raise error
        log.warning("%s: %s; %s. %s", self._running.where(), took, then, stack)

    def count(self, name: str) -> None:
        """Add 1 to a counter of the stage."""
        self._running.context.count(self._running.stage.op, name)

    def _helper(self) -> _Helper:
        """Return the helper of the worker on this thread."""
        own = self._own
        if not own.ends_helper:
            at_end(self._end)
            own.ends_helper = True
        if own.helper is None:
            own.helper = _Helper(self._running, self._begin)
        return own.helper

    def _begin(self) -> None:
        """Prepare the thread of a helper. No time limit applies, because a helper can wait until other helpers have copied the map."""
        if self._running.limit is not None:
            self._own.map = self._running.own_map(here())

    def _apply(self, item: Any, takes_rng: bool) -> Any:
        if self.attempts > 1:  # an abandoned thread might write into its item
            try:
                item = copy.deepcopy(item)
            except Exception as error:
                error.add_note("highway: with attempts above 1, each attempt gets a copy of the item, but this item cannot be copied")
                raise
        if not takes_rng:
            return self._own.map(item)
        passport: Any = self._running.here.passport
        return self._own.map(item, self._running.generator(passport))  # each attempt draws the same numbers

    def _abandon(self, helper: _Helper) -> str:
        """Abandon a helper, count it, and return its stack."""
        self._own.helper = None
        self.count("abandoned_threads")
        return helper.abandon()

    def _end(self) -> None:
        if (helper := self._own.helper) is not None:
            try:
                helper.end(self.seconds)
            except _LateError:
                self._abandon(helper)


_helpers: WeakKeyDictionary[threading.Thread, _Helper] = WeakKeyDictionary()  # by the thread of the worker


class _Helper:
    """A thread that makes calls for a worker, one at a time.

    Args:
        running: The stage.
        prepare: A function that is called first on the new thread.
    """

    def __init__(self, running: RunningStage, prepare: Callable[[], object]) -> None:
        self._here, self._number, self._caller = running.here, running.here.number, here()
        self._calls, self._answers = SimpleQueue[Any](), SimpleQueue[Any]()
        self.context = on_behalf_of(self._caller)
        self.context.interrupted = threading.Event()  # so that the helper can be cancelled without the worker
        self.is_at_work = True
        caller = threading.current_thread()
        self.thread = threading.Thread(target=self._run, args=(prepare,), name=f"{caller.name}:helper", daemon=True)
        join_at_exit(self.thread)
        try:
            self.thread.start()
        except RuntimeError as error:
            if "shutdown" in str(error):  # since Python 3.12
                way_out = "Python starts no threads after the end of a script: call run() of the pipeline in the script"
            else:
                way_out = (
                    "this process cannot start more threads: set num_workers lower, or raise the limit (ulimit -u, or the container's "
                    "pids); threads that hang count towards the limit"
                )
            raise PipelineError(f"{running.stage.label}: with a timeout, each worker needs a second thread, but {way_out}") from error
        _helpers[caller] = self
        try:
            self.answer(math.inf)
        except BaseException:
            self._calls.put(None)
            raise

    def ask(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Begin a call on the helper's thread."""
        self.is_at_work = True
        self._calls.put((function, arguments, self._here.passport, self._here.marker))

    def answer(self, seconds: float, is_retry: bool = False) -> Any:
        """Return the result of the call, or raise its error.

        If the stage is cancelled, cancel the call and wait for its end, because the user might close objects that the call uses. In a
        retry, do not wait, because the call probably hangs.

        Raises:
            _LateError: the call takes longer than ``seconds``.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                result, error = self._answers.get(timeout=max(0.0, min(_POLL, deadline - time.monotonic())))
            except Empty:
                if self._caller.interrupted.is_set():
                    self.context.cancel()
                    deadline = -math.inf if is_retry else deadline
                if time.monotonic() >= deadline:
                    raise _LateError from None
            else:
                break
        self.is_at_work = False
        try:
            if error is not None:
                raise error
            return result
        finally:
            del error, result  # breaks a reference cycle: the error's traceback refers to this frame

    def end(self, seconds: float) -> None:
        """End the thread while it makes no call, and wait for its end. Raises _LateError if this takes too long."""
        self._calls.put(None)
        self.answer(seconds)
        self.thread.join()

    def abandon(self) -> str:
        """Cancel the call, and ignore its later reports. Return a text that describes the stack of the thread."""
        stack = _stack(self.thread)
        _helpers.pop(threading.current_thread(), None)
        self.context.report_error, self.context.report_state, self.context.is_stage = _refuse, lambda _: None, False
        self.context.cancel()
        self._calls.put(None)
        return stack

    def _run(self, prepare: Callable[[], object]) -> None:
        enter(self.context)
        local = self._here  # thread-local
        local.number = self._number
        self._answers.put(_outcome(prepare))
        while (call := self._calls.get()) is not None:
            function, arguments, local.passport, local.marker = call
            self._answers.put(_outcome(function, *arguments))
            del call, function, arguments  # frees the item while the helper waits
        self._answers.put(_outcome(leave))


def _outcome(function: Callable[..., Any], *arguments: Any) -> tuple[Any, BaseException | None]:
    """Return a pair: the result of a function and ``None``, or ``None`` and the error that it raised."""
    try:
        return function(*arguments), None
    except BaseException as error:
        return None, error


def _refuse(error: Exception) -> None:
    raise Cancelled


def _stack(thread: threading.Thread) -> str:
    """Return a text that describes the stack of a helper, without the frames of this module.

    This function reads no source files, because reading a file could hang.
    """
    if (top := frame_of(thread)) is None:
        return "just ending"
    own = itertools.takewhile(lambda found: found[0].f_code.co_filename != __file__, traceback.walk_stack(top))
    return stack_in_words((frame.f_code.co_name, line, frame.f_code.co_filename) for frame, line in own)


def stack_in_words(calls: Iterable[tuple[str, int | str, str]]) -> str:
    """Return a text that describes a stack. ``calls`` holds function, line and file of each call, with the most recent call first."""
    places = [f"{function}, line {line} of {file}" for function, line, file in itertools.islice(calls, _MOST_FRAMES)]
    return f"in {', called from '.join(places)}" if places else "in a function that is not written in Python"


def at_work_for(worker: threading.Thread) -> threading.Thread:
    """Return the thread that does a worker's work now: the helper of the worker, or the worker itself."""
    helper = _helpers.get(worker)
    return helper.thread if helper is not None and helper.is_at_work else worker
