"""Make the inputs of a stage again from their passports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from highway.engine.context import entered, here, on_behalf_of
from highway.engine.source import remake_of
from highway.engine.stage import DROP, Lineage, Passport, Stamped
from highway.engine.workers import StageWorkers
from highway.errors import PipelineError


class Remaker:
    """Makes the inputs of a stage again from their passports. It makes an input that several items share only once.

    Args:
        workers: All stages.
        number: Number of the stage that the items entered.
    """

    def __init__(self, workers: Sequence[StageWorkers], number: int) -> None:
        self._workers, self._number = workers, number
        self._uses: Counter[Any] = Counter()  # remaining uses of each input
        self._inputs: dict[Any, Stamped] = {}  # inputs that will be used again

    def items(self, passports: Sequence[Passport]) -> list[Stamped]:
        """Make items again and return them in the order of ``passports``.

        The items are made in the order of the source, so that the source can read sequentially.

        Raises:
            PipelineError: A stage cannot make its items again, or now makes other items.
        """
        for passport in passports:
            self._count_inputs(passport)
        order = sorted(range(len(passports)), key=lambda place: passports[place][:2])
        made = {place: self._item(passports[place], self._number) for place in order}
        return [made[place] for place in range(len(passports))]

    def _count_inputs(self, passport: Passport) -> None:
        for one in passport.made_of.inputs if passport.made_of else ():
            key = _key(passport.made_of, one)
            self._uses[key] += 1
            if self._uses[key] == 1:
                self._count_inputs(one)

    def _input(self, passport: Passport, made_of: Lineage) -> Stamped:
        key = _key(made_of, passport)
        stamped = self._inputs.pop(key, None) or self._item(passport, made_of.stage or 0)
        self._uses[key] -= 1
        if self._uses[key]:
            self._inputs[key] = stamped
        return stamped

    def _item(self, passport: Passport, number: int) -> Stamped:
        """Make an item again and apply the maps between the stage that made it and the stage that it entered."""
        epoch, index, *_, lineage = passport
        inputs, part, made_by = lineage or Lineage()
        stage = made_by or 0
        worker = self._workers[stage]
        make = remake_of(worker.stage.op, worker.traits)
        if make is None or (lineage is not None and not lineage.is_known):
            where = self._workers[number].stage.name if number < len(self._workers) else "another pipeline"
            raise PipelineError(f"{worker.stage.name} cannot make items again, which wait in {where}; it can by Traits(remake=...)")
        items = [self._input(one, lineage) for one in inputs] if lineage is not None else []
        with entered(on_behalf_of(worker.context)):
            made = make(items, part) if stage else make(epoch, index, part)
        if type(made) is not Stamped:
            made = Stamped(made, Passport(epoch, index, worker.origin))
        by = None if lineage is None else Lineage(tuple(item.passport for item in items), part, stage)
        stamped = Stamped(made.item, made.passport._replace(epoch=epoch, index=index, made_of=by))
        for between in self._workers[stage + 1 : number]:
            if between.shape == "map":
                with entered(on_behalf_of(between.context)):
                    result = _applied(between, stamped)
                if result is DROP:
                    raise PipelineError(f"{between.stage.name} leaves out epoch {epoch}, item {index} now, which it has handed on before")
                stamped = result
        return stamped


def _applied(worker: StageWorkers, stamped: Stamped) -> Any:
    """Return the result of a map for an item that it has processed before."""
    worker.here.passport = stamped.passport  # for error messages
    if worker.limit is not None:
        return worker.apply(*stamped, worker.limit.apply)
    with worker.copying:  # if the map is not thread-safe, its workers have copies
        return worker.apply(*stamped, worker.with_context(worker.stage.op, here()))


def _key(made_of: Lineage | None, passport: Passport) -> tuple[Any, ...]:
    """Return the key of an input of an item: equal for two items that share the input."""
    return made_of and made_of.stage, id(passport) if passport.made_of else passport[:2]
