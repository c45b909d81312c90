"""The source before a cache. It does not start if the cache is complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from highway.engine.component import Traits
from highway.engine.context import Context
from highway.engine.resume import Saved, is_resumed, keep
from highway.engine.source import remake_of
from highway.modules.inner_sources import length_of_epoch, opened, ranks_of_all, resumable

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
            remake=remake_of(self.stands_for, source),
            length=lambda: length_of_epoch(self.stands_for),
            ranks=lambda: ranks_of_all([self.stands_for]),
            stamped=None,
            deal_anew=None,
        )

    def __iter__(self, context: Context) -> Iterator[Any]:
        if not is_resumed() and self.run.open(context.seed):
            keep(Saved)
            return iter(())
        return self._without_state(context) if self.run.refuses_states else resumable(self.stands_for, context)

    def _without_state(self, context: Context) -> Iterator[Any]:
        """Yield the items of the source, and refuse states of the pipeline."""
        context.refusal = (
            f"{self.run} is being filled from stages with on_error='skip', and a resumed run may serve other samples or another order; call"
            " state_dict() in a run that begins with the finished cache, or leave out path= (a cache in memory), or on_error='skip'"
        )
        for stamped in opened(self.stands_for, context):
            context.says_its_state = False
            yield stamped
