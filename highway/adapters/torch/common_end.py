"""The ranks of torch exchange integers to end their loops after the same batch."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from highway.adapters.common_end import expect_one_rank
from highway.adapters.torch.mesh import members_of

# Seconds to add to the timeout of a rank for gloo's timeout. The rank must raise its error before gloo.
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
_known: weakref.WeakKeyDictionary[Any, dict[tuple[tuple[int, ...], float], _Ranks]] = weakref.WeakKeyDictionary()


class _Ranks:
    """The ranks that end their loops together. All ranks create a group for their exchanges at their first loop.

    An exchange is an ``all_reduce`` of integers on CPUs (gloo).
    """

    def __init__(self, members: tuple[int, ...], timeout: float) -> None:
        self.rank, self.world_size, self.loops, self._members = dist.get_rank(), dist.get_world_size(), 0, members
        limit = timedelta(seconds=timeout + _CONNECTING)
        self._group = dist.new_group(list(members), limit, "gloo", use_local_synchronization=True)
        self._store = dist.PrefixStore("highway", dist.distributed_c10d._get_process_group_store(self._group))
        self._used = list[tuple[torch.Tensor, Any]]()  # the tensors of earlier exchanges, each with gloo's handle of the exchange

    def begin(self, numbers: list[int]) -> _Exchange:
        done = [number for number, (_, work) in enumerate(self._used) if work.is_completed()]
        least = self._used.pop(done[0])[0] if done else _tensor_for_gloo(len(numbers))
        work: Any = dist.all_reduce(least.copy_(torch.tensor(numbers)), dist.ReduceOp.MIN, group=self._group, async_op=True)
        exchange = _Exchange(least, work)
        weakref.finalize(exchange, self._used.append, (least, work)).atexit = False
        return exchange

    def wait_for(self, batch: str) -> None:
        self._store.set(str(self.rank), batch)

    def missing(self, batch: str) -> list[int]:
        there = {rank: self._store.get(str(rank)) for rank in self._members if self._store.check([str(rank)])}
        return [rank for rank in self._members if there.get(rank) != batch.encode()]


def _tensor_for_gloo(size: int) -> torch.Tensor:
    """Create a tensor that is never deleted.

    A thread of gloo that releases the last reference to a tensor waits for the GIL. If Python exits meanwhile, the process aborts.
    """
    tensor = torch.zeros(size, dtype=torch.float64)
    owner = torch.zeros(size, dtype=torch.float64, requires_grad=True)
    owner.grad = tensor  # a reference in C++; releasing it does not need the GIL
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
    return tensor


class _Exchange:
    def __init__(self, least: torch.Tensor, work: Any) -> None:
        self._least, self._work = least, work

    def has_started(self) -> bool:
        return True

    def wait(self) -> list[int] | None:
        try:
            self._work.wait(timedelta(seconds=1))  # one second, because Ctrl-C does not interrupt torch
        except RuntimeError:
            if self._work.is_completed():
                raise
            return None
        return [int(number) for number in self._least.tolist()]
