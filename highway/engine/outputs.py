"""Attaches passports to the results and outputs of a stage's code, and measures their size."""

from __future__ import annotations

import time
import warnings
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

from highway.engine.batch import weighed
from highway.engine.channel import Together
from highway.engine.resume import as_json
from highway.engine.stage import DROP, Lineage, Origin, Passport, Several, Stamped

if TYPE_CHECKING:
    from highway.engine.workers import StageWorkers


_STAMPED, _PASSPORT, _LINEAGE = (partial(tuple.__new__, record) for record in (Stamped, Passport, Lineage))  # faster than _make


def returned(workers: StageWorkers, result: Any, passport: Passport) -> Any:
    """Return the result of a map with its passport: several items as ``Together``, and ``DROP`` unchanged.

    Raises:
        TypeError: the result is ``None``.
        PipelineError: the result is ``DROP`` or has no items, and the map has to declare this here.
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
    return Stamped(output.item, _made_by(workers, output.passport)) if output.passport.made_of else output


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


def _made_by(worker: StageWorkers, passport: Passport) -> Passport:
    """Complete the lineage of a passport with the number of the stage that made the item."""
    inputs, part, stage = _lineage_of(worker, passport)
    if stage is None:
        return Passport(*passport[:5], Lineage(inputs, part, worker.number))  # half of the time of _replace
    if worker.shape == "source":  # the item comes from an inner pipeline: its lineage has a stage number there
        return passport._replace(made_of=Lineage((), as_json(passport), worker.number))
    return passport


def _lineage_of(worker: StageWorkers, passport: Passport) -> Lineage:
    """Return the lineage of a passport. Up to version 0.1.0 it was ``(None, inputs, part)``, which works with a warning until 0.3."""
    made_of: Any = passport.made_of
    if type(made_of) is Lineage:
        return made_of
    _, inputs, part = made_of
    warnings.warn(
        f"{worker.stage.name}: made_of=(None, inputs, part) in a passport is made_of=Lineage(inputs, part) now, of highway; highway reads "
        "the tuple until version 0.3",
        FutureWarning,
        stacklevel=2,
    )
    return Lineage(inputs, part)
