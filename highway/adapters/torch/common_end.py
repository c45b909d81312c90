"""The exchange of integers with which the ranks of torch end their loops together."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from highway.adapters.common_end import expect_one_rank
from highway.adapters.torch.mesh import members_of

# The time limit of an exchange is longer by these seconds than the time limit of a rank, so that the rank raises its error first.
_CONNECTING = 1800


def ranks_of(group: dist.ProcessGroup | None, timeout: float) -> Callable[[], _Ranks | None]:
    """Return a function that returns the ranks of a group, or ``None`` if there is only one.

    Args:
        group: The group. ``None``: all ranks of ``torch.distributed``.
        timeout: Maximum seconds that a rank waits for other ranks.

    Raises:
        ConfigError: this process is not in the group.
    """
    of_group = None if group is None else tuple(members_of(group, "to_device: end_together"))

    def ranks() -> _Ranks | None:
        if not dist.is_initialized():
            expect_one_rank("torch.distributed.init_process_group()")
            return None
        members = of_group or tuple(range(dist.get_world_size()))
        if len(members) == 1:
            return None
        known = _known.setdefault(dist.group.WORLD, {})
        if (members, timeout) not in known:
            known[members, timeout] = _Ranks(members, timeout)
        return known[members, timeout]

    return ranks


# The keys are groups of all ranks (dist.group.WORLD).
_known: WeakKeyDictionary[Any, dict[tuple[tuple[int, ...], float], _Ranks]] = WeakKeyDictionary()


class _Ranks:
    """The ranks that end their loops together. All ranks create a group for their exchanges at their first loop.

    An exchange is an ``all_reduce`` of integers on CPUs (gloo).
    """

    def __init__(self, members: tuple[int, ...], timeout: float) -> None:
        self.rank, self.world_size, self.loops, self._members = dist.get_rank(), dist.get_world_size(), 0, members
        limit = timedelta(seconds=timeout + _CONNECTING)
        self._group = dist.new_group(list(members), limit, "gloo", use_local_synchronization=True)
        self._store = dist.PrefixStore("highway", dist.distributed_c10d._get_process_group_store(self._group))

    def begin(self, numbers: list[int]) -> _Exchange:
        return _Exchange(torch.tensor(numbers), self._group)

    def wait_for(self, batch: str) -> None:
        self._store.set(str(self.rank), batch)

    def missing(self, batch: str) -> list[int]:
        there = {rank: self._store.get(str(rank)) for rank in self._members if self._store.check([str(rank)])}
        return [rank for rank in self._members if there.get(rank) != batch.encode()]


class _Exchange:
    def __init__(self, least: torch.Tensor, group: dist.ProcessGroup) -> None:
        self._least = least
        self._work: Any = dist.all_reduce(least, dist.ReduceOp.MIN, group=group, async_op=True)

    def has_started(self) -> bool:
        return True

    def wait(self) -> list[int] | None:
        try:
            self._work.wait(timedelta(seconds=1))  # one second, because Ctrl-C does not interrupt torch
        except RuntimeError:
            if self._work.is_completed():
                raise
            return None
        numbers: list[int] = self._least.tolist()
        return numbers
