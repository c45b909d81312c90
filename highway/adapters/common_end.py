"""End the loops of all ranks after the same number of batches, if the ranks have different numbers of batches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import count
from typing import Protocol, TypeVar

from highway.adapters.device_loader import Ready
from highway.errors import ConfigError, PipelineError
from highway.process.ranks import rank_and_world_size

log = logging.getLogger("highway")
_T = TypeVar("_T")

_MOST = 100  # maximum number of batches that a rank reads only to count them, after another rank has ended
_REPORT_AFTER = 60  # seconds of waiting for other ranks between two warnings
TIMEOUT = 1800.0  # seconds


class Exchange(Protocol):
    """An exchange of integers among all ranks."""

    def has_started(self) -> bool | None:
        """Return True if the loop can continue with its next step; ``None`` if it cannot continue within a second."""

    def wait(self) -> list[int] | None:
        """Return the smallest value of each integer on all ranks; ``None`` if some rank has not passed its integers within a second.

        Raises:
            RuntimeError: the exchange has failed.
        """


class Ranks(Protocol):
    """The ranks that end their loops together.

    Attributes:
        rank: The rank of this process.
        world_size: Number of all ranks.
        loops: Number of loops that this process has begun.
    """

    rank: int
    world_size: int
    loops: int

    def begin(self, numbers: list[int]) -> Exchange:
        """Begin an exchange. All ranks make their exchanges in the same order."""

    def wait_for(self, batch: str) -> None:
        """Note that this rank waits for other ranks at a batch."""

    def missing(self, batch: str) -> list[int]:
        """Return the ranks that have not noted that they wait at a batch. The list is empty if this is unknown."""


class CommonEnd:
    """Ends the loops of all ranks as soon as one rank has no further batch.

    Before a rank passes batch n to its loop, it waits until all ranks have reported that they have batch n. Each rank reports batch n when
    its loop requests batch n - 1, so that the exchange runs during a training step. A loop makes each exchange on its own thread. Therefore
    all ranks make their exchanges in the same order, also if they leave loops early or run one loop inside another.

    Args:
        ranks: Returns the ranks; ``None`` if there is only one. Called at the start of each loop.
        timeout: Seconds that a rank waits for other ranks.

    Raises:
        ConfigError: ``timeout`` is not above 0.
    """

    def __init__(self, ranks: Callable[[], Ranks | None], timeout: float) -> None:
        if not timeout > 0:
            raise ConfigError(f"to_device: end_timeout={timeout}; expected more than 0 seconds")
        self._ranks, self._timeout = ranks, timeout

    def __call__(self, batches: Iterator[Ready]) -> Iterator[Ready]:
        """Yield the batches of a loop up to the common end.

        If another rank has ended first, yield the end of this rank's loop, unless too many batches remain.
        """
        ranks = self._ranks()
        if ranks is None:
            yield from batches
            return
        loop, ready = ranks.loops, _next(batches)
        ranks.loops += 1
        report = _Report(ranks, loop, 0, ready, self._timeout)
        for number in count(1):
            if isinstance(ready, Exception):
                raise ready
            ended = report.wait()
            if ready.is_end:
                yield ready
                return
            if ended is not None:
                yield from _rest(batches, f"to_device: rank {ended} has ended its epoch after {number - 1} batches; rank {ranks.rank}")
                return
            following = _next(batches)
            report = _Report(ranks, loop, number, following, self._timeout)
            yield ready
            ready = following


def expect_one_rank(way_out: str) -> None:
    """Raise ConfigError if the launcher started several ranks. ``way_out`` is the call after which they can report to each other."""
    _, world_size = rank_and_world_size()
    if world_size > 1:
        raise ConfigError(
            f"to_device: end_together: the launcher started {world_size} ranks, but they cannot report their batches to each other; call "
            f"{way_out} before the loop"
        )


class _Report:
    """The report of this rank whether it has a batch, and the reports of the other ranks."""

    def __init__(self, ranks: Ranks, loop: int, number: int, ready: Ready | Exception, timeout: float) -> None:
        if isinstance(ready, Exception):
            report = -1 - ranks.rank - ranks.world_size
        else:
            report = -1 - ranks.rank if ready.is_end else 0
        self._ranks, self._batch, self._timeout = ranks, f"batch {number} of loop {loop}", timeout
        self._place = f"to_device: end_together: rank {ranks.rank} of {ranks.world_size}"
        self._exchange = ranks.begin([report, loop, number, -loop, -number])
        self._result_of(self._exchange.has_started)

    def wait(self) -> int | None:
        """Wait for the reports. Return a rank that has no further batch; ``None`` if all ranks have a further batch.

        Raises:
            PipelineError: the loader of a rank raised an error, a rank did not report, or the ranks are at different batches.
        """
        report, *first, loop, number = self._result_of(self._exchange.wait)
        last = [-loop, -number]
        if first != last:
            raise PipelineError(
                f"{self._place} is at {self._batch}, but other ranks are at other batches (batches {first[1]} to {last[1]}, loops "
                f"{first[0]} to {last[0]}); run the same loops in the same order on all ranks, and leave them at the same step"
            )
        size = self._ranks.world_size
        if report < -size:
            raise PipelineError(
                f"{self._place} stops at {self._batch}, because the loader of rank {-report - 1 - size} raised an error; see the log of "
                "that rank"
            )
        return -report - 1 if report else None

    def _result_of(self, wait: Callable[[], _T | None]) -> _T:
        """Call a function that waits up to a second, until it returns a result."""
        try:
            for seconds in count(1):
                if (result := wait()) is not None:
                    return result
                if seconds == 1:
                    self._ranks.wait_for(self._batch)
                if seconds >= self._timeout:
                    break
                if seconds % _REPORT_AFTER == 0:
                    log.warning("%s has waited for %d s at %s%s", self._place, seconds, self._batch, self._missing())
            raise PipelineError(
                f"{self._place} has waited for {self._timeout:g} s (end_timeout) at {self._batch}{self._missing()}; look for the "
                "cause in the logs of the other ranks, or pass a greater end_timeout"
            )
        except RuntimeError as error:
            raise PipelineError(
                f"{self._place} waited at {self._batch} to learn whether all ranks have it, but another rank has ended; look for the first "
                f"error in the logs of the other ranks ({error})"
            ) from error

    def _missing(self) -> str:
        missing = [str(rank) for rank in self._ranks.missing(self._batch) if rank != self._ranks.rank]
        where = f"; the ranks that do not wait there: {', '.join(missing)}" if missing else ""
        return f" to learn whether all ranks have it{where}"


def _next(batches: Iterator[Ready]) -> Ready | Exception:
    """Return the next batch, the end, or the loader's error. The error must not come before the batch that precedes it."""
    try:
        return next(batches)
    except Exception as error:
        return error


def _rest(batches: Iterator[Ready], who: str) -> Iterator[Ready]:
    """Count the batches that this rank drops, including the batch already read. Yield the end of the loop if few batches remain."""
    for left_out in range(1, _MOST + 1):
        ready = next(batches)
        if ready.is_end:
            log.warning("%s leaves out %d of its batches", who, left_out)
            yield ready
            return
    log.warning("%s leaves out more than %d of its batches", who, _MOST)
