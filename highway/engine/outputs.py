"""Attaches passports to the results and outputs of a stage's code, and measures their size."""

from __future__ import annotations

import time
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

from highway.engine.batch import weighed
from highway.engine.channel import Together
from highway.engine.resume import made_by
from highway.engine.stage import DROP, Lineage, Origin, Passport, Several, Stamped

if TYPE_CHECKING:
    from highway.engine.workers import StageWorkers


_STAMPED, _PASSPORT, _LINEAGE = (partial(tuple.__new__, record) for record in (Stamped, Passport, Lineage))  # faster than _make


def returned(workers: StageWorkers, result: Any, passport: Passport) -> Any:
    """Return the result of a map with its passport: several items as ``Together``, and ``DROP`` unchanged.

    Raises:
        TypeError: the result is ``None``.
        PipelineError: the result is ``DROP`` or has no items, but the map does not declare ``drops``, and the number of its items matters.
    """
    if result is None:
        raise TypeError(f"{workers.stage.name} returned None; return the item, or return DROP to leave it out")
    if type(result) is Stamped:
        if result.passport[:2] != passport[:2]:
            workers.note_renumbered()
        return _complete(result, passport.origin, passport.times)
    if type(result) is Several:
        made_of = map(_LINEAGE, zip(repeat((passport,)), result.parts, repeat(workers.number)))
        passports = zip(repeat(passport.epoch), result.indexes, repeat(passport.origin), result.keys, repeat(passport.times), made_of)
        together = Together(map(_STAMPED, zip(result.items, map(_PASSPORT, passports), strict=True)))
        if not together and workers.traits.stands_for is None:  # a reader plans its samples, and counts skipped samples itself
            workers.note_drop("Several without items")
        return together or DROP
    if result is DROP:
        workers.note_drop()
        return DROP
    return Stamped(result, passport)


def yielded(workers: StageWorkers, output: Stamped) -> Stamped:
    """Return an item that a source or stream stamped, with the missing entries of its passport filled in."""
    if not output.passport.times:
        output = _complete(output, workers.origin, (time.time(),))
    return Stamped(output.item, made_by(workers, output.passport)) if output.passport.made_of else output


def weight(result: Any) -> tuple[int, int, int]:
    """Return the number of items of a result, their bytes, and how many extra items of this size may wait."""
    if type(result) is not Together:
        return 1, *weighed(result.item)
    sizes, more = zip(*[weighed(item) for item, _ in result], strict=True)
    return len(sizes), sum(sizes), min(more)


def _complete(given: Stamped, origin: Origin, times: tuple[float, ...]) -> Stamped:
    """Fill in the origin and times of an item, if the stage that stamped it did not."""
    epoch, index, _, keys, own, made_of = given.passport
    return given if own else Stamped(given.item, Passport(epoch, index, origin, keys, times, made_of))
