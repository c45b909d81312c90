"""End the loops of all ranks after the same number of batches, even if some ranks have more batches."""

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

_MOST = 100  # after another rank has ended: maximum number of batches that a rank reads only to count them
_REPORT_AFTER = 60  # seconds of waiting for other ranks between two warnings
TIMEOUT = 1800.0  # seconds


class Exchange(Protocol):
    """An exchange of integers between all ranks."""

    def has_started(self) -> bool | None:
        """Wait up to a second until the exchange has started. Return ``True``, or ``None`` if it has not started."""

    def wait(self) -> list[int] | None:
        """Wait up to a second until all ranks have passed their integers.

        Return the minimum of each integer over all ranks, or ``None`` if a rank is missing.

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
        """Begin an exchange. All ranks must begin their exchanges in the same order."""

    def wait_for(self, batch: str) -> None:
        """Publish that this rank waits for other ranks at ``batch``."""

    def missing(self, batch: str) -> list[int]:
        """Return the ranks that have not published that they wait at ``batch``. The list is empty if this is unknown."""


class CommonEnd:
    """Ends the loops of all ranks as soon as one rank has no more batches.

    Before a rank passes batch n to its loop, it waits until all ranks have reported that they have batch n. Each rank reports batch n when
    its loop requests batch n - 1, so the exchange runs during a training step. The thread of a loop begins all exchanges of the loop.
    Therefore, all ranks begin their exchanges in the same order, even if they end loops early or run one loop inside another.

    Args:
        ranks: A function that returns the ranks, or ``None`` if there is only one. It is called at the start of each loop.
        timeout: Maximum seconds that a rank waits for other ranks.

    Raises:
        ConfigError: ``timeout`` is not above 0.
    """

    def __init__(self, ranks: Callable[[], Ranks | None], timeout: float) -> None:
        if not timeout > 0:
            raise ConfigError(f"to_device: end_timeout={timeout}; expected more than 0 seconds")
        self._ranks, self._timeout = ranks, timeout

    def __call__(self, batches: Iterator[Ready]) -> Iterator[Ready]:
        """Yield the batches of the loop on this rank until one of the ranks has no more batches.

        If another rank ends first, then also yield the end of this rank's loop, so that the loader finishes its epoch. If too many batches
        remain, yield no end.
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
    """Raise ConfigError if the launcher started several ranks. ``way_out`` is the call that connects the ranks."""
    _, world_size = rank_and_world_size()
    if world_size > 1:
        raise ConfigError(
            f"to_device: end_together: the launcher started {world_size} ranks, but they cannot report their batches to each other; call "
            f"{way_out} before the loop"
        )


class _Report:
    """An exchange in which each rank reports whether it has the batch with the index ``number``."""

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
        """Wait for the reports of all ranks. Return a rank that does not have the batch, or ``None`` if all ranks have it.

        Raises:
            PipelineError: the loader of a rank raised an error, a rank did not report in time, or the ranks are at different batches.
        """
        report, *first, loop, number = self._result_of(self._exchange.wait)
        last = [-loop, -number]
        if first != last:
            raise PipelineError(
                f"{self._place} is at {self._batch}, but other ranks are at other batches (batches {first[1]} to {last[1]}, loops "
                f"{first[0]} to {last[0]}); run the same loops in the same order on all ranks, and end each loop at the same step"
            )
        size = self._ranks.world_size
        if report < -size:
            raise PipelineError(
                f"{self._place} stopped at {self._batch}, because the loader of rank {-report - 1 - size} raised an error; see the log of "
                "that rank"
            )
        return -report - 1 if report else None

    def _result_of(self, wait: Callable[[], _T | None]) -> _T:
        """Call ``wait``, which waits up to a second, until it returns a result."""
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
                f"{self._place} has waited for {self._timeout:g} s (end_timeout) at {self._batch}{self._missing()}; find the cause in the "
                "logs of the other ranks, or pass a greater end_timeout"
            )
        except RuntimeError as error:
            raise PipelineError(
                f"{self._place} waited at {self._batch} to learn whether all ranks have this batch, but another rank has ended; find the "
                f"first error in the logs of the other ranks ({error})"
            ) from error

    def _missing(self) -> str:
        missing = [str(rank) for rank in self._ranks.missing(self._batch) if rank != self._ranks.rank]
        where = f"; these ranks do not wait there: {', '.join(missing)}" if missing else ""
        return f" to learn whether all ranks have this batch{where}"


def _next(batches: Iterator[Ready]) -> Ready | Exception:
    """Return the next batch, the end, or the error of the loader. The caller raises the error after the preceding batch."""
    try:
        return next(batches)
    except Exception as error:
        return error


def _rest(batches: Iterator[Ready], who: str) -> Iterator[Ready]:
    """Drop the remaining batches of this rank, and count them. Yield the end of the loop, unless too many batches remain."""
    for left_out in range(1, _MOST + 1):
        ready = next(batches)
        if ready.is_end:
            log.warning("%s drops its last %d batches", who, left_out)
            yield ready
            return
    log.warning("%s drops more than %d batches", who, _MOST)
