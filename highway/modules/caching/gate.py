"""The source before a cache. It does not start if the cache is complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from highway.engine.component import Position, Traits, no_state
from highway.engine.context import Context
from highway.engine.source import has_state, remake_of
from highway.modules.inner_sources import in_place, length_of_epoch, ranks_of_all

if TYPE_CHECKING:
    from highway.modules.caching.run import CacheRun


@dataclass
class Gate:
    """The source before a cache: empty if the cache is complete."""

    stands_for: Iterable[Any]
    run: CacheRun

    def __highway__(self) -> Traits:
        source = Traits.of(self.stands_for)
        return replace(
            source,
            stands_for=self.stands_for,
            state=Position,
            remake=remake_of(self.stands_for, source),
            length=lambda: length_of_epoch(self.stands_for),
            ranks=lambda: ranks_of_all([self.stands_for]),
            stamped=None,
            deal_anew=None,
        )

    def __iter__(self, context: Context) -> Iterator[Any]:
        begun = context.state_of(self).value
        if begun is None and self.run.open(context.seed):
            return iter(())
        if not has_state(self.stands_for, Traits.of(self.stands_for)):
            context.refusal = no_state(self.run.before[0].label)
        elif self.run.refuses_states:
            context.refusal = (
                f"state_dict: {self.run} is being filled from stages with on_error='skip', and a resumed run may serve other samples or "
                "another order; call state_dict() in a run that begins with the finished cache, or leave out path= (a cache in memory), or "
                "on_error='skip'"
            )
        return in_place(self.stands_for, context, begun)
