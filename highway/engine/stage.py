"""The classes that authors of components need: ``Stage`` with its settings, ``DROP``, and ``Passport`` (the metadata of an item).

:mod:`highway.engine.component` defines what a component is.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import count
from types import BuiltinFunctionType, FunctionType
from typing import Annotated, Any, Final, Literal, Protocol

from highway.engine.component import Shape, Stateless, Traits, layers, name_of, shape_of
from highway.engine.context import Context
from highway.errors import PipelineError
from highway.parameters.checks import checked
from highway.parameters.ranges import HOW, Count, Range
from highway.passport import Lineage as Lineage
from highway.passport import Origin as Origin
from highway.passport import Passport as Passport
from highway.passport import Positions as Positions
from highway.passport import Several as Several
from highway.passport import Stamped as Stamped


class Drop(enum.Enum):
    """The type of :data:`DROP`."""

    DROP = "DROP"


DROP: Final = Drop.DROP
"""A map returns ``DROP`` to drop its item."""


class Items(Protocol):
    """The iterator that a stream or sink receives. It yields items without their passports.

    ``passport`` is the passport of the last item. ``context`` is the context of the stage. ``left_out`` is the number of errors that the
    preceding stages have skipped so far (``on_error="skip"``). ``epoch`` is the current epoch. It is 0 if the stream is not ``per_epoch``,
    or the items of the source have no epochs (:class:`~highway.Traits`).

    ``waiting`` is for streams that can resume. It is a list of the inputs that the stream has taken and still needs. The stream appends
    each input as ``Stamped(item, items.passport)``, and later removes it from the list. When a run resumes, the list contains these inputs
    again. A stream can also store its inputs elsewhere. Then the stream reads the list when it begins, and sets ``items.waiting`` to a
    function that returns its waiting inputs.

    >>> class Pairs:
    ...     def stream(self, items: Items):
    ...         for first in items:
    ...             yield first, next(items, None)
    >>> list(Pipeline([range(4), Pairs()]))
    [(0, 1), (2, 3)]
    """

    passport: Passport
    context: Context
    epoch: int
    waiting: Any

    @property
    def left_out(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...


OnError = Literal["raise", "skip"]


@checked
@dataclass(frozen=True)
class Stage:
    """A component, and the settings with which it runs.

    Args:
        op: The component: an iterable, a callable, or an object with ``stream``, ``consume`` or ``stages``.
        num_workers: Number of worker threads of a map. ``None``: one thread, or one thread per available core if the component declares
            ``parallel``, as ``DecodeImage`` does.
        ordered: Whether a map with several workers keeps the order of its items.
        buffer_size: Maximum number of finished items that wait for the next stage, at least 1. ``None``: 2 items, plus 32 if an item has up
            to 4 kB, or plus 6 if it has up to 256 kB. Items with objects other than arrays, numbers, texts and bytes count as large. Small
            items need a larger buffer, because a thread switch can cost as much as the work on an item.
        on_error: ``"raise"`` ends the run with the first error. ``"skip"`` drops the item, counts the error and logs a warning (at most one
            per stage in 5 s). ConfigError and PipelineError always end the run, because they do not belong to a single item. An error
            raised by a source, stream or sink always ends the run, because it ends the iterator. To skip an item there, pass the error to
            :meth:`highway.engine.context.Context.report_error` instead of raising it.
        max_errors: With ``"skip"``, the maximum number of errors, including errors before a resume. The next error ends the run. ``None``:
            no limit.
        per_worker: Whether each worker calls its own copy of the map. Use it for maps that are not thread-safe, such as a tokenizer. Each
            worker makes its copy with ``copy.deepcopy`` when it begins. All copies start in the same state, so a map must seed its own
            generators from ``rng``.
        name: Name in statistics and messages. Random numbers depend on the name. Empty: the name of the class or function.
        drops: Whether a map is always allowed to return ``DROP``. With ``False``, ``DROP`` ends the run with an error if the number of
            items matters: if there are several ranks, or ``len(pipeline)`` was called. ``list(pipeline)`` also calls ``len``.
        timeout: Maximum seconds, above 0, for a map to process an item, or for a reader to read a sample. ``None``: no limit.
        attempts: With ``timeout``, the maximum number of attempts, at least 1. If an attempt takes too long, a new thread tries the item
            again with the same random numbers. A warning names the item and the line of code that hangs. If the last attempt takes too
            long, the result is a ``TimeoutError``, and ``on_error`` applies.

    Python cannot end a thread that hangs. highway abandons such a thread: it never uses the thread's result, and the counter
    ``abandoned_threads`` counts the thread. The abandoned thread can use the map while a new thread tries the item again. With a timeout,
    the map must therefore be thread-safe, or have ``per_worker``. :class:`~highway.modules.processes.Processes` ends its process and
    abandons no thread. If ``attempts`` is above 1, each attempt gets its own copy of the item, because a map might write into its input.

    If ``op`` is a composite (an object with ``stages``), its maps inherit ``num_workers``, ``ordered``, ``per_worker``, ``drops``,
    ``timeout``, ``attempts``, ``on_error`` and ``max_errors``. Its source inherits only ``on_error`` and ``max_errors``.

    >>> pipeline = Pipeline([range(4), Stage(lambda n: n * n, num_workers=2, name="square")])
    >>> list(pipeline), pipeline.stats().stages[1].num_workers
    ([0, 1, 4, 9], 2)
    """

    op: Any
    num_workers: Annotated[Count | None, HOW] = None
    ordered: bool = True
    buffer_size: Annotated[Count | None, HOW] = None
    on_error: Annotated[OnError, HOW] = "raise"
    max_errors: Annotated[Annotated[int, Range(ge=0)] | None, HOW] = None
    name: str = ""
    per_worker: Annotated[bool, HOW] = False
    drops: Annotated[bool, HOW] = False
    timeout: Annotated[Annotated[float, Range(gt=0, words="seconds above 0")] | None, HOW] = None
    attempts: Annotated[Count, HOW] = 1

    def __post_init__(self) -> None:
        if isinstance(self.op, Stage):
            raise PipelineError(f"a Stage inside a Stage: {self.op!r}; pass all settings to one Stage")
        if self.max_errors is not None and self.on_error != "skip":
            raise PipelineError(f"{self.label}: max_errors={self.max_errors} without on_error='skip'")
        if self.attempts > 1 and self.timeout is None:
            raise PipelineError(
                f"{self.label}: attempts={self.attempts} without timeout; set timeout= to the seconds after which an item is tried again"
            )

    @property
    def label(self) -> str:
        """``name``, or the name of the component."""
        return self.name or name_of(self.op)

    @property
    def settings(self) -> list[str]:
        """Names of the settings that differ from their defaults, without ``name``."""
        return [field.name for field in fields(self) if field.name not in ("op", "name") and getattr(self, field.name) != field.default]

    @cached_property
    def traits(self) -> Traits:
        """The declarations of the component, read once."""
        return Traits.of(self.op)

    @property
    def keeps_count(self) -> bool:
        """Whether each input of a map or stream becomes exactly one output, in order, and no input waits in the stage."""
        if self.traits.one_to_one is not None:
            return self.traits.one_to_one == "in order" and self.ordered
        return shape_of(self.op) == "map" and self.ordered and self.on_error != "skip" and not (self.drops or self.traits.drops)

    @property
    def spans_epochs(self) -> bool:
        """Whether a source or stream carries data from one epoch to the next."""
        return self.traits.at_epoch is None and not self.traits.per_epoch and self.traits.state is not Stateless

    @property
    def layers(self) -> list[Any]:
        """The component, then each component that it wraps or is part of. The last entry is the component that the user wrote."""
        return [self.op, *layers(self.traits.stands_for)]

    def changed(self, **settings: Any) -> Stage:
        """Return a stage of the same component with these settings, or this stage if it has these settings already."""
        if all(getattr(self, name) == value for name, value in settings.items()):
            return self
        stage = replace(self, **settings)
        stage.__dict__["traits"] = self.traits
        return stage

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def copied(self) -> Any:
        """Return a copy of the component.

        Raises:
            PipelineError: the component cannot be copied.
        """
        try:
            return copy.deepcopy(self.op)
        except Exception as error:  # __deepcopy__ and __reduce__ can raise any error
            raise PipelineError(
                f"{self.label} cannot be copied for each of its workers (per_worker=True): {type(error).__name__}: {error}; define a "
                "method __deepcopy__(self, memo) that returns a new object, or create the part that cannot be copied in the first call"
            ) from error


def expand(stages: Sequence[Any]) -> list[tuple[Stage, Shape]]:
    """Return a ``Stage`` with a unique name for each component, and its shape. The parts of a composite replace the composite.

    Raises:
        PipelineError: the list is empty, a source is not first, a sink is not last, an entry is not a stage, or a setting does not fit a
            stage.
    """
    flat = _flatten(stages, at_start=True)
    if not flat:
        raise PipelineError("a pipeline needs at least one stage, a source")
    shapes = [shape_of(stage.op, position == 0, stage.label) for position, stage in enumerate(flat)]
    if shapes[0] != "source":
        sources = "an iterable, or a function without arguments"
        raise PipelineError(f"the first stage must be a source ({sources}), but {flat[0].label} is a {shapes[0]}")
    for stage, shape in zip(flat[:-1], shapes[:-1], strict=True):
        if shape == "sink":
            raise PipelineError(
                f"{stage.label} is a sink; only the last stage can be a sink (to pass items to a function in the middle of a pipeline, use "
                "Tee)"
            )
    for stage, shape in zip(flat, shapes, strict=True):
        if shape != "map" and (stage.num_workers or 1) > 1:
            raise PipelineError(f"{stage.label} is a {shape}, which runs in one thread; num_workers={stage.num_workers} is only for maps")
        if stage.per_worker and shape != "map":
            raise PipelineError(f"{stage.label} is a {shape}, which runs in one thread; per_worker=True is only for maps")
        if stage.drops and shape != "map":
            raise PipelineError(f"{stage.label} is a {shape}; drops=True is only for maps that return DROP")
        if stage.timeout is not None and shape != "map":
            raise PipelineError(
                f"{stage.label} is a {shape}, which cannot try an item again; timeout={stage.timeout:g} is only for maps and readers; "
                "remove timeout: a pipeline that waits for an item for 60 s reports the positions of its threads"
            )
        if stage.per_worker and _holds_functions_only(stage.op):
            raise PipelineError(
                f"{stage.label}: per_worker=True, but the objects that a function uses are not copied with the function; store them in an "
                "object: functools.partial(function, tokenizer), or a class with __call__"
            )
    return list(zip(unique(flat), shapes, strict=True))


def _flatten(stages: Sequence[Any], at_start: bool) -> list[Stage]:
    flat: list[Stage] = []
    for given in stages:
        stage = _as_stage(given)
        first = at_start and not flat
        traits = stage.traits
        if flat and traits.after is not None:
            *flat, last = traits.after(flat)
            if traits.adds_a_stage:
                last = replace(stage, op=last.op, name=stage.label)
            elif stage.settings:
                raise PipelineError(f"{stage.label} uses the settings of the stages before it; pass the settings to these stages")
            flat.append(last)
        elif shape_of(stage.op, first, stage.label) == "composite":
            parts = [part.changed(name=f"{stage.label}.{part.label}") for part in map(_as_stage, stage.op.stages())]
            inherited = [_inherit(stage, part, first and not n) for n, part in enumerate(_flatten(parts, first))]
            for setting in ("per_worker", "drops", "timeout"):
                if (value := getattr(stage, setting)) and not any(getattr(part, setting) for part in inherited):
                    raise PipelineError(f"{stage.label}: {setting}={value} is only for maps, but this component contains no map")
            flat += inherited
        else:
            flat.append(stage)
    return flat


def _as_stage(given: Any) -> Stage:
    return given if isinstance(given, Stage) else Stage(given)


def _inherit(outer: Stage, part: Stage, is_source: bool) -> Stage:
    """Return a part of a composite, with the settings that it inherits from the stage around the composite."""
    changes: dict[str, Any] = {}
    if is_source or shape_of(part.op) == "map":
        if outer.on_error != "raise":
            changes |= {"on_error": outer.on_error, "max_errors": outer.max_errors}
        if is_source and outer.per_worker:
            raise PipelineError(f"{outer.label} is a source, whose workers share one reader; per_worker=True is only for maps")
        if not is_source:
            changes |= {"per_worker": True} if outer.per_worker else {}
            changes |= {} if outer.num_workers is None else {"num_workers": outer.num_workers}
            changes |= {} if outer.ordered else {"ordered": False}
            changes |= {"drops": True} if outer.drops else {}
            changes |= {} if outer.timeout is None else {"timeout": outer.timeout, "attempts": outer.attempts}
    return part.changed(**changes)


_SHARED = (FunctionType, BuiltinFunctionType, type, type(None), bool, int, float, str, bytes)  # types whose copies are the same object


def _holds_functions_only(op: Any) -> bool:
    """Return whether a component is a function or class, or an object that holds only functions, classes and simple values.

    A copy of such a component uses the same functions as the original. Therefore, it also uses the same objects outside these functions.
    """
    held = (op,) if isinstance(op, _SHARED) else tuple(getattr(op, "__dict__", {}).values())
    return any(map(callable, held)) and all(isinstance(value, _SHARED) for value in held)


def unique(stages: Sequence[Stage]) -> list[Stage]:
    """Return the stages with unique names: the second ``Map`` becomes ``Map-2``. Random numbers and states depend on these names."""
    labels = {stage.label for stage in stages}
    names: list[str] = []
    for stage in stages:
        numbered = (f"{stage.label}-{number}" for number in count(2))
        names.append(stage.label if stage.label not in names else next(name for name in numbered if name not in labels.union(names)))
    return [stage.changed(name=name) for stage, name in zip(stages, names, strict=True)]
