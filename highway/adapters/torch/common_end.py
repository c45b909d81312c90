"""End the loops of all ranks after the same number of batches, if the ranks have different numbers of batches."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from highway.adapters.device_loader import Ready
from highway.adapters.torch.mesh import members_of
from highway.errors import ConfigError, PipelineError
from highway.process.ranks import rank_and_world_size

log = logging.getLogger("highway")

_MOST = 100  # maximum number of batches that a rank reads only to count them, after another rank has ended
_REPORT_AFTER = 60  # seconds of waiting for other ranks between two warnings


class CommonEnd:
    """Ends the loops of all ranks as soon as one rank has no further batch.

    Before a rank passes batch n to its loop, it waits until all ranks have reported that they have batch n. Each rank reports batch n when
    its loop requests batch n - 1, so that the exchange runs during a training step. The exchange is a reduction of five integers between
    CPUs (gloo). A loop makes each exchange on its own thread. Therefore all ranks make their exchanges in the same order, also if they
    leave loops early or run one loop inside another.

    Args:
        group: The ranks. ``None``: all ranks of ``torch.distributed``.

    Raises:
        ConfigError: this process is not in the group.
    """

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self._members = None if group is None else members_of(group, "to_device: end_together")

    def __call__(self, batches: Iterator[Ready]) -> Iterator[Ready]:
        """Yield the batches of a loop up to the common end.

        If another rank has ended first, yield the end of this rank's loop, unless too many batches remain.
        """
        ranks = self._ranks()
        if ranks is None:
            yield from batches
            return
        loop, ready = ranks.new_loop(), _next(batches)
        exchange = ranks.exchange(loop, 0, ready)
        for number in count(1):
            if isinstance(ready, Exception):
                raise ready
            ended = exchange.wait()
            if ready.is_end:
                yield ready
                return
            if ended is not None:
                yield from _rest(batches, f"to_device: rank {ended} has ended its epoch after {number - 1} batches; rank {ranks.rank}")
                return
            following = _next(batches)
            exchange = ranks.exchange(loop, number, following)
            yield ready
            ready = following

    def _ranks(self) -> _Ranks | None:
        """Return the ranks; ``None`` if there is only one."""
        if not dist.is_initialized():
            _, world_size = rank_and_world_size()
            if world_size == 1:
                return None
            raise ConfigError(
                f"to_device: end_together: the launcher started {world_size} ranks, but they cannot report their batches to each other; "
                "call torch.distributed.init_process_group() before the loop"
            )
        members = tuple(self._members or range(dist.get_world_size()))
        if len(members) == 1:
            return None
        known = _known.setdefault(dist.group.WORLD, {})
        if members not in known:
            known[members] = _Ranks(members)
        return known[members]


class _Ranks:
    """The ranks that end their loops together, with a group for their exchanges. The group is created on all ranks at their first loop."""

    def __init__(self, members: tuple[int, ...]) -> None:
        self.rank, self.members = dist.get_rank(), members
        self.group = dist.new_group(list(members), backend="gloo", use_local_synchronization=True)
        self._loops = 0

    def new_loop(self) -> int:
        """Return the number of a new loop, from 0. It is the same on all ranks that run the same loops."""
        self._loops += 1
        return self._loops - 1

    def exchange(self, loop: int, number: int, ready: Ready | Exception) -> _Exchange:
        """Report to the other ranks whether this rank has a batch, and begin to collect the reports of the other ranks."""
        if isinstance(ready, Exception):
            report = -1 - self.rank - dist.get_world_size()
        else:
            report = -1 - self.rank if ready.is_end else 0
        return _Exchange(self, torch.tensor([report, loop, number, -loop, -number]), f"batch {number} of loop {loop}")


class _Exchange:
    """The reports of all ranks about one batch."""

    def __init__(self, ranks: _Ranks, least: torch.Tensor, batch: str) -> None:
        self._ranks, self._least, self._batch = ranks, least, batch
        self._work: Any = dist.all_reduce(least, dist.ReduceOp.MIN, group=ranks.group, async_op=True)

    def wait(self) -> int | None:
        """Wait for the reports. Return a rank that has no further batch; ``None`` if all ranks have a further batch.

        Raises:
            PipelineError: the loader of a rank raised an error, a rank did not report, or the ranks are at different batches.
        """
        place = f"to_device: end_together: rank {self._ranks.rank} of {dist.get_world_size()}"
        others = "whether all ranks have it"
        for seconds in count(1):
            try:
                self._work.wait(timedelta(seconds=1))  # with a limit, because Ctrl-C does not interrupt torch
                break
            except RuntimeError as error:
                if self._work.is_completed():
                    raise PipelineError(
                        f"{place} waited for {self._batch}, {others}, but another rank has ended or did not answer in time; look for the "
                        f"first error in the logs of the other ranks ({error})"
                    ) from error
            if seconds % _REPORT_AFTER == 0:
                log.warning("%s has waited for %d s to learn about %s, %s", place, seconds, self._batch, others)
        report, *first, loop, number = self._least.tolist()
        last = [-loop, -number]
        if first != last:
            raise PipelineError(
                f"{place} is at {self._batch}, but other ranks are at other batches (batches {first[1]} to {last[1]}, loops {first[0]} to "
                f"{last[0]}); run the same loops in the same order on all ranks, and leave them at the same step"
            )
        size = dist.get_world_size()
        if report < -size:
            raise PipelineError(
                f"{place} stops at {self._batch}, because the loader of rank {-report - 1 - size} raised an error; see the log of that rank"
            )
        return -report - 1 if report else None


_known: WeakKeyDictionary[Any, dict[tuple[int, ...], _Ranks]] = WeakKeyDictionary()  # for torch's group of all ranks


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
