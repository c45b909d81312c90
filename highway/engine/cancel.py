"""How code inside a stage learns that it should stop, and tells the engine what it waits for and what it had to leave out."""

from __future__ import annotations

import contextlib
import copy
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Generic, Literal, TypeVar

from highway.errors import Cancelled

T = TypeVar("T")
State = Literal["busy", "starved", "blocked"]


def _raise(error: Exception) -> None:
    raise error


class Scope:
    """One stage's run, as the code that runs inside it sees it; the engine makes one for each stage."""

    def __init__(
        self,
        report_error: Callable[[Exception], None] = _raise,
        report_state: Callable[[State], None] = lambda _: None,
        seed: int = 0,
    ) -> None:
        self.interrupted = threading.Event()  # set: check() raises
        self.cancelled = False
        self.save: Callable[[], Any] | None = None  # see highway.engine.resume
        self.resume: Callable[[], Any] | None = None
        self.says_its_state = False
        self.refusal = ""  # why there is no state, if not because the source does not say it
        self.is_source = False  # of a stream: whether it needs no more input
        self.holds = False  # whether items may wait in the stage, or it counts them
        self.inner = 0  # sources inside of the one that runs, which number epochs of their own
        self.skipped = -1  # the last epoch whose items nobody wants any more
        self.draining = False
        self.flushed: set[str] = set()  # stages of a pipeline inside that have handed on what waited in them, since it was drained
        self.lock = threading.Lock()
        self._counters: dict[int, tuple[object, dict[str, Any]]] = {}  # by the component's id, for as long as it lives
        self.counts: dict[str, int] = {}  # what is of no component, but of what it calls
        self.report_error = report_error
        self.report_state = report_state
        self.seed = seed
        self.key = 0  # on which the random numbers of a map hang
        self.workers_behind = 1

    def cancel(self) -> None:
        self.cancelled = True
        self.interrupted.set()

    def drain(self, interrupt: bool) -> None:
        with self.lock:  # so that finish() sees both or neither
            self.draining = True
            if interrupt:
                self.interrupted.set()

    def finish(self) -> bool:
        with self.lock:
            self.interrupted.clear()
            if self.cancelled:  # asked after the event was cleared, so that a cancellation in between is not lost
                self.interrupted.set()
            return self.draining and not self.cancelled

    def check(self) -> None:
        if self.interrupted.is_set():
            raise Cancelled

    def counters(self, component: object, copy_of: object = None) -> dict[str, Any]:
        key = id(component)
        if key not in self._counters:
            try:
                held: object = weakref.ref(component, lambda _: self._counters.pop(key, None))
            except TypeError:  # a tuple, say: it lives as long as this
                held = component
            self._counters.setdefault(key, (held, {} if copy_of is None else self.counters(copy_of)))
        return self._counters[key][1]

    def counted(self, components: Iterable[object]) -> dict[str, Any]:
        own = {name: count for part in components for name, count in self._counters.get(id(part), (part, {}))[1].copy().items()}
        return own | self.counts


_OUTSIDE = Scope()  # never cancelled, skips no errors


class _Here(threading.local):
    def __init__(self) -> None:
        self.scope = _OUTSIDE
        self.at_end: list[Callable[[], None]] = []


_here = _Here()


def enter(scope: Scope) -> None:
    """Make ``scope`` the one of the calling thread; the engine calls this at the start of each worker."""
    _here.scope = scope


@contextlib.contextmanager
def entered(scope: Scope) -> Iterator[None]:
    """Have this thread do something for another stage than its own."""
    before, _here.scope = _here.scope, scope
    try:
        yield
    finally:
        _here.scope = before


def on_behalf_of(other: Scope) -> Scope:
    """Return the scope of another stage, which may have ended, for this one to do its work by: cancelled as this one is."""
    scope = copy.copy(other)
    scope.interrupted, scope.cancelled = _here.scope.interrupted, _here.scope.cancelled
    scope.report_state = _here.scope.report_state
    return scope


def leave() -> None:
    """Call what was registered with :func:`at_end` on this thread; the engine does this at the end of each worker."""
    while _here.at_end:
        _here.at_end.pop()()


def at_end(callback: Callable[[], None]) -> None:
    """Have ``callback`` called on this thread when the worker ends, so that a map can give back what it keeps for each worker."""
    _here.at_end.append(callback)


class OfThread(threading.local, Generic[T]):
    """A value for each thread, made when that asks first."""

    def __init__(self, make: Callable[[], T]) -> None:
        self.value = make()


def seed() -> int:
    """Return the seed of the pipeline whose stage runs on this thread; 0 outside of any."""
    return _here.scope.seed


def seed_or(own: int | None) -> int:
    """Return the seed that a component draws by: its ``own`` if it has one, else that of the pipeline, as a number from 0 to 2**63 - 1."""
    return seed() % 2**63 if own is None else own


def workers_behind() -> int:
    """Return how many workers take what the stage that runs on this thread hands on; 1 if no stage does."""
    return _here.scope.workers_behind


def counters(component: object) -> dict[str, Any]:
    """Return what a component counts in this run, to be written into; statistics show it beside what the engine counts of its stage.

    It belongs to the stage that runs on this thread: a component that two pipelines are built of counts for each of them apart. It is
    empty at first; outside of a stage it is a dict that nobody else has.
    """
    return _here.scope.counters(component) if in_stage() else {}


def count(component: object, name: str) -> None:
    """Add 1 to one of :func:`counters`, whatever other threads of the stage count meanwhile."""
    with _here.scope.lock:
        counts = counters(component)
        counts[name] = counts.get(name, 0) + 1


def count_in_stage(counts: Mapping[str, int]) -> None:
    """Add to what statistics show of the stage that runs on this thread, for what its component calls; nothing counts outside of one."""
    if in_stage():
        with _here.scope.lock:
            for name, number in counts.items():
                _here.scope.counts[name] = _here.scope.counts.get(name, 0) + number


def check_cancelled() -> None:
    """Return at once, or unwind the stage that runs on this thread if it was cancelled.

    Code that blocks outside highway (a socket, a lock, a device) calls this at least every 100 ms. Outside a pipeline it does nothing.
    """
    _here.scope.check()


def in_stage() -> bool:
    """Say whether the calling thread runs a stage."""
    return _here.scope is not _OUTSIDE


def is_cancelled() -> bool:
    """Say whether the stage that runs on this thread was cancelled."""
    return _here.scope.cancelled


def here() -> Scope:
    """Return the scope of the stage that runs on this thread."""
    return _here.scope


def is_skipped(epoch: int) -> bool:
    """Say whether nobody wants the items of an epoch any more: a loop over it was left. A source goes on with the next then."""
    return epoch <= _here.scope.skipped and not _here.scope.inner


def is_draining() -> bool:
    """Say whether the pipeline was asked to end (:meth:`highway.Pipeline.drain`): the end of the input is not that of the data then.

    A stream that makes items of its own ends when it sees this.
    """
    return _here.scope.draining


def finish() -> bool:
    """Say whether the source that runs on this thread was interrupted by a drain only; from here on, nothing but a cancellation does.

    For sources that have received more than they have yielded: they catch ``Cancelled``, and raise it again unless this is true. A class
    attribute ``finishes = True`` keeps them from being ended between two items, without an interruption that they could catch.
    """
    return _here.scope.finish()


def wait(seconds: float) -> None:
    """Sleep for ``seconds`` unless the stage that runs on this thread is cancelled meanwhile."""
    if _here.scope.interrupted.wait(seconds):
        raise Cancelled


class _Waiting:
    """A block whose time counts as waiting; a class, since a generator takes three times as long."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __enter__(self) -> None:
        _here.scope.report_state(self._state)

    def __exit__(self, *_: object) -> None:
        _here.scope.report_state("busy")


_STARVED, _BLOCKED = _Waiting("starved"), _Waiting("blocked")


def starved() -> AbstractContextManager[None]:
    """Count the time in the block as waiting for input, not as work: for sources that wait for a peer or a device."""
    return _STARVED


def blocked() -> AbstractContextManager[None]:
    """Count the time in the block as waiting for room downstream, not as work: for sinks that wait for a peer."""
    return _BLOCKED


def report_error(error: Exception) -> None:
    """Report an error that the calling stage could go on from, by leaving out or replacing a part of its output.

    Returns, once the error is counted and logged, if the stage runs with ``on_error="skip"`` and its budget ``max_errors`` lasts;
    else raises ``error``. For sources (which cannot be called again after they raised) and for maps that fill a batch from many files.
    """
    _here.scope.report_error(error)
