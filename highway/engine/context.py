"""The context of a stage: the object through which the code of a stage uses the engine during a run.

Streams and sinks read the context from ``items.context``. Sources and maps receive the context if they have a parameter ``context``:
``__iter__(self, context=None)`` or ``__call__(self, item, context)``. :func:`here` returns the context of the current thread. It is for
code that cannot receive the context as an argument, such as a socket deep inside a library.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Generic, Literal, Protocol, TypeVar

from highway.engine.component import RunState, Traits, name_of, shape_by_method
from highway.engine.stats import HandOver
from highway.errors import Cancelled, PipelineError

T = TypeVar("T")
State = Literal["busy", "starved", "blocked"]


def _raise(error: Exception) -> None:
    raise error


class Limit(Protocol):
    """The time limit of a stage: see :class:`highway.engine.time_limit.TimeLimit`."""

    @property
    def seconds(self) -> float: ...
    @property
    def attempts(self) -> int: ...
    def apply(self, item: Any, *rng: Any) -> Any: ...
    def call(self, function: Callable[..., T], *arguments: Any, what: Callable[[], str] = ..., otherwise: str = ...) -> T | None: ...
    def late(self, what: str, attempt: int, stack: str, then: str) -> None: ...
    def count(self, name: str) -> None: ...


class _Waiting:
    """Counts the time of a ``with`` block as waiting. This class is three times as fast as a generator function."""

    def __init__(self, context: Context, state: State) -> None:
        self._context, self._state = context, state

    def __enter__(self) -> None:
        self._context.report_state(self._state)

    def __exit__(self, *_: object) -> None:
        self._context.report_state("busy")


class Context:
    """The context of a stage in one run. The workers of a stage share one context.

    Attributes:
        seed: The seed of the pipeline; 0 outside of any pipeline.
        workers_behind: Number of workers of the next stage; 1 if there is no next stage.
        draining: Whether :meth:`highway.Pipeline.drain` was called. Draining ends the input early. A stream that creates its own items must
            check ``draining`` and stop.
        lock: A lock for the code of the stage. A worker holds the lock while it changes an object that the workers share.
        changed: A condition that wakes :meth:`wait_until`. Code that changes a value for which a stage waits must hold the condition and
            call ``notify_all()``.
        limit: The time limit of the stage; ``None`` if it has no timeout.

    Args:
        report_error: A function that receives the errors that the stage reports. If the stage does not skip an error, the function raises
            the error.
        report_state: A function that is called when the stage begins to wait, with ``"starved"`` or ``"blocked"``, and when the wait ends,
            with ``"busy"``.
        seed: The seed of the pipeline.
        is_stage: Whether this context belongs to a stage, not to code outside of any pipeline.

    >>> class Numbers:
    ...     def __iter__(self, context: Context = None):
    ...         yield context.seed
    >>> list(Pipeline([Numbers()], seed=3))
    [3]
    """

    def __init__(
        self,
        report_error: Callable[[Exception], None] = _raise,
        report_state: Callable[[State], None] = lambda _: None,
        seed: int = 0,
        is_stage: bool = True,
    ) -> None:
        self.interrupted = threading.Event()  # if it is set, check() raises Cancelled
        self.cancelled = False
        self.running: tuple[Any, RunState | None] = (None, None)  # the component that runs, and its state if it declares one
        self.refusal = ""  # why this run cannot return states
        self.is_source = False  # for a stream: whether it takes no more input; the stream then creates the markers
        self.inner = 0  # number of nested sources that are running; each counts epochs on its own
        self.skipped = -1  # the last epoch whose items are no longer wanted
        self.draining = False
        self.flushed: set[str] = set()  # stages of an inner pipeline that have flushed their items because the inner pipeline was drained
        self.is_wanted = True  # for a source: whether it is allowed to begin
        self.lock = threading.Lock()
        self._changing = threading.RLock()  # used without the Condition on the main thread: Ctrl-C in a Condition can leave its lock held
        self.changed = threading.Condition(self._changing)
        self.limit: Limit | None = None
        self._counters: dict[int, tuple[object, dict[str, Any]]] = {}  # by the id of a component, while it exists
        self.counts: dict[str, int] = {}  # counts of code that the component calls
        self.report_error = report_error  # returns if the stage skips the error, else raises it
        self.report_state = report_state
        self.seed = seed
        self.key = 0  # the key of the stage's random numbers, from the pipeline's seed and the stage's name
        self.workers_behind = 1
        self.hand_over: HandOver | None = None  # for a source: the hand-over of its pipeline
        self._starved, self._blocked = _Waiting(self, "starved"), _Waiting(self, "blocked")
        self.is_stage = is_stage

    # --- for the code of a stage ---

    def check(self) -> None:
        """Raise ``Cancelled`` if the stage was cancelled; else return immediately."""
        if self.interrupted.is_set():
            raise Cancelled

    def wait(self, seconds: float) -> None:
        """Sleep for ``seconds``. If the stage is cancelled, raise ``Cancelled``."""
        if self.interrupted.wait(seconds):
            raise Cancelled

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until ``holds()`` is true. ``holds`` is called after each notification of ``changed``.

        If the stage is cancelled, raise ``Cancelled``.
        """
        with self.changed:
            while not holds():
                self.check()
                self.changed.wait()

    def seed_or(self, own: int | None) -> int:
        """Return the seed to use: the component's own seed, or, if it is ``None``, the pipeline's seed modulo 2**63."""
        return self.seed % 2**63 if own is None else own

    def state_of(self, component: Any) -> Any:
        """Return the state of the component, an object from ``Traits(state=...)``. If the run resumes, the state is restored.

        Outside a stage, such as in ``iter(source)``, return a new state. If a stream calls a component that also has a state, the run
        cannot return states, because only the state of the stream is saved.

        Raises:
            PipelineError: the component declares no state.
        """
        runs, state = self.running
        if runs is not component or state is None:
            if runs is not component and shape_by_method(runs) == "stream":
                inner = name_of(component)
                self.refusal = f"state_dict: {name_of(runs)} runs {inner}, whose state is not saved; make {inner} a separate stage"
            state = Traits.of(component).new_state()
        if state is None:
            raise PipelineError(f"{name_of(component)} uses a state that it does not declare; declare Traits(state=...)")
        return state

    def counters(self, component: object) -> dict[str, Any]:
        """Return the counters of a component in this run: a dict that the component changes. Statistics show these counters.

        The dict is empty at first. If two pipelines contain the same component, each pipeline has its own counters for it. Outside a stage,
        each call returns a new dict.
        """
        return self._counters_of(component) if self.is_stage else {}

    def count(self, component: object, name: str) -> None:
        """Add 1 to one of the :meth:`counters` of a component. Several threads of the stage can call this method at the same time."""
        with self.lock:
            counts = self.counters(component)
            counts[name] = counts.get(name, 0) + 1

    def count_calls(self, counts: Mapping[str, int]) -> None:
        """Add counts of code that the component calls to the counters of the stage. Outside a stage, do nothing."""
        with self.lock:
            for name, number in counts.items() if self.is_stage else ():
                self.counts[name] = self.counts.get(name, 0) + number

    def is_skipped(self, epoch: int) -> bool:
        """Return whether the loop over an epoch ended early. If so, a source skips the rest of this epoch and begins the next epoch.

        In a source inside another source, return ``False``, because the outer source numbers its own epochs.
        """
        return epoch <= self.skipped and not self.inner

    def finish(self) -> bool:
        """Return whether a source that has caught ``Cancelled`` must yield the items that it has received.

        ``True``: ``drain()`` was called. The source must yield these items and end. ``False``: the stage was cancelled. The source must
        raise ``Cancelled`` again. A source that calls this method must declare ``Traits(finishes=True)``.
        """
        with self.lock:
            self.interrupted.clear()
            if self.cancelled:  # check after clearing the event, so that no cancellation is lost
                self.interrupted.set()
            return self.draining and not self.cancelled

    def starved(self) -> AbstractContextManager[None]:
        """Count the time in the ``with`` block as waiting for input. Use it in sources that wait for a peer or a device."""
        return self._starved

    def blocked(self) -> AbstractContextManager[None]:
        """Count the time in the ``with`` block as waiting for room downstream. Use it in sinks that wait for a peer."""
        return self._blocked

    # --- for the engine ---

    def cancel(self) -> None:
        self.cancelled = True
        self._interrupt()

    def drain(self, interrupt: bool) -> None:
        with self.lock:  # so that finish() sees both changes or none
            self.draining = True
            if interrupt:
                self._interrupt()

    def _interrupt(self) -> None:
        self.interrupted.set()
        self.notify()

    def notify(self) -> None:
        """Make :meth:`wait_until` check its condition again."""
        with self._changing:
            self.changed.notify_all()

    def skip(self, epoch: int) -> None:
        """Skip the rest of an epoch and all earlier epochs."""
        self.skipped = max(self.skipped, epoch)
        self.notify()

    def want(self) -> None:
        """Let a source begin."""
        self.is_wanted = True
        self.notify()

    def begin(self, component: Any, state: RunState | None, saved: Any = None) -> None:
        """Record the component that begins in this stage, and its ``state``. If ``saved`` is not ``None``, restore ``state`` from it."""
        if state is not None and saved is not None:
            state.restore(saved)
        self.running = component, state

    def _counters_of(self, component: object, copy_of: object = None) -> dict[str, Any]:
        key = id(component)
        if key not in self._counters:
            try:
                held: object = weakref.ref(component, lambda _: self._counters.pop(key, None))
            except TypeError:  # a tuple, for example, has no weak references: keep the component alive
                held = component
            self._counters.setdefault(key, (held, {} if copy_of is None else self._counters_of(copy_of)))
        return self._counters[key][1]

    def copied(self, component: object, original: object) -> None:
        """Make the copy of a component share the counters of the original."""
        self._counters_of(component, copy_of=original)

    def counted(self, components: Iterable[object]) -> dict[str, Any]:
        own = {name: count for part in components for name, count in self._counters.get(id(part), (part, {}))[1].copy().items()}
        return own | self.counts


_OUTSIDE = Context(is_stage=False)  # never cancelled, skips no errors


class _Thread(threading.local):
    def __init__(self) -> None:
        self.context = _OUTSIDE
        self.at_end: list[Callable[[], None]] = []


_thread = _Thread()


def here() -> Context:
    """Return the context of the stage that runs on this thread. Outside a stage, return a context that is never cancelled."""
    return _thread.context


def in_stage() -> bool:
    """Return whether this thread runs a stage."""
    return _thread.context.is_stage


def enter(context: Context) -> None:
    """Make ``context`` the context of the calling thread. The engine calls this at the start of each worker."""
    _thread.context = context


@contextlib.contextmanager
def entered(context: Context) -> Iterator[None]:
    """Use the context of another stage on this thread within the block."""
    before, _thread.context = _thread.context, context
    try:
        yield
    finally:
        _thread.context = before


def on_behalf_of(other: Context) -> Context:
    """Return a copy of another stage's context, to run that stage's code on this thread.

    If this thread's stage is cancelled, the methods of the copy that wait or check also raise ``Cancelled``.
    """
    own, context = here(), copy.copy(other)
    context.interrupted, context.cancelled, context.report_state = own.interrupted, own.cancelled, own.report_state
    context._changing, context.changed = own._changing, own.changed
    context.running = (None, None)
    context._starved, context._blocked = _Waiting(context, "starved"), _Waiting(context, "blocked")
    return context


def leave() -> None:
    """Call the functions that were registered with :func:`at_end` on this thread. The engine does this at the end of each worker."""
    while _thread.at_end:
        _thread.at_end.pop()()


def at_end(callback: Callable[[], None]) -> None:
    """Call ``callback`` on this thread when the worker ends. A map can use it to free the resources of this worker."""
    _thread.at_end.append(callback)


class OfThread(threading.local, Generic[T]):
    """A value for each thread, created when the thread uses it first."""

    def __init__(self, make: Callable[[], T]) -> None:
        self.value = make()
