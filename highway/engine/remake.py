"""Items that waited in a stage when a run was left, made again from their lineages (:func:`highway.engine.resume.lineage`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from highway.engine import cancel
from highway.engine.source import remake_of
from highway.engine.stage import DROP, Passport, Stamped
from highway.errors import PipelineError

if TYPE_CHECKING:
    from highway.engine.workers import StageWorkers


class Remaker:
    """Makes items again as they came into a stage, from their lineages; what several were made of, once.

    Args:
        workers: All stages.
        number: Which of them they came into.
        made: The lineages to which those of the items refer by numbers.
    """

    def __init__(self, workers: Sequence[StageWorkers], number: int, made: Sequence[list[Any]] = ()) -> None:
        self._workers, self._number, self._made = workers, number, made
        self._uses: Counter[Any] = Counter()  # how often an input will be asked for
        self._inputs: dict[Any, Stamped] = {}  # those that were made, and will be asked for again

    def items(self, lineages: Sequence[list[Any]]) -> list[Stamped]:
        """Return items again; they are made in the order of the source, which may read them one after the other.

        Raises:
            PipelineError: a stage cannot make what it has made again, or makes something else now.
        """
        for lineage in lineages:
            self._count_inputs(lineage)
        order = sorted(range(len(lineages)), key=lambda place: lineages[place][:2])
        made = {place: self._item(lineages[place], self._number) for place in order}
        return [made[place] for place in range(len(lineages))]

    def _count_inputs(self, lineage: Sequence[Any]) -> None:
        for key, of_input in self._inputs_of(lineage):
            self._uses[key] += 1
            if self._uses[key] == 1:
                self._count_inputs(of_input)

    def _inputs_of(self, lineage: Sequence[Any]) -> Iterator[tuple[Any, list[Any]]]:
        """Yield the lineage of each input of an item, and what it is remembered by."""
        for of_input in lineage[4:]:
            yield (lineage[2], repr(of_input)), self._made[of_input] if isinstance(of_input, int) else of_input

    def _input(self, key: Any, lineage: Sequence[Any], stage: int) -> Stamped:
        stamped = self._inputs.pop(key, None) or self._item(lineage, stage)
        self._uses[key] -= 1
        if self._uses[key]:
            self._inputs[key] = stamped
        return stamped

    def _item(self, lineage: Sequence[Any], number: int) -> Stamped:
        """Return an item again as it came into a stage: as it was made, and through the maps between."""
        epoch, index, *made_of = lineage
        stage, part = made_of[:2] or (0, None)
        worker = self._workers[stage]
        make = remake_of(worker.stage.op, worker.traits)
        if make is None:
            where = self._workers[number].stage.name if number < len(self._workers) else "another pipeline"
            raise PipelineError(f"{worker.stage.name} cannot make items again, which wait in {where}; it can by Traits(remake=...)")
        items = [self._input(key, of_input, stage) for key, of_input in self._inputs_of(lineage)]
        with cancel.entered(cancel.on_behalf_of(worker.scope)):
            made = make(items, part) if stage else make(epoch, index, part)
        if type(made) is not Stamped:
            made = Stamped(made, Passport(epoch, index, worker.origin))
        by = (stage, tuple(item.passport for item in items), part) if made_of else ()
        stamped = Stamped(made.item, made.passport._replace(epoch=epoch, index=index, made_of=by))
        for between in self._workers[stage + 1 : number]:
            if between.shape == "map":
                scope = cancel.on_behalf_of(between.scope)
                with cancel.entered(scope), between.copying:  # if the map is not thread-safe, its workers have copies
                    result = between.apply(*stamped, between.stage.op)
                if result is DROP:
                    raise PipelineError(f"{between.stage.name} leaves out epoch {epoch}, item {index} now, which it has handed on before")
                stamped = result
        return stamped
