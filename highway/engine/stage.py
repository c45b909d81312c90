"""What the author of a component needs: the four shapes, ``Stage``, ``DROP``, and the passport beside each item.

A component needs no base class. It is recognised by what it defines (:func:`shape_of`):

=========  ==================================================================  =====================
shape      defines                                                             workers
=========  ==================================================================  =====================
source     ``__iter__(self)``; first in the list                               1
map        ``__call__(self, item)`` or ``__call__(self, item, rng)``           n, the order is kept
stream     ``stream(self, items)``, an iterator of outputs                     1
sink       ``consume(self, items)``; last in the list                          1
composite  ``stages(self)``, a list of stages that take its place              theirs
=========  ==================================================================  =====================

A stage that must know what stands before it, as a cache must, defines ``after(self, stages)`` besides: it returns what takes the place of
those stages and of itself, the last of which runs as the stage does, unless the component says ``adds_a_stage = False``.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

from highway.errors import EndOfStream, PipelineError
from highway.parameters.checks import checked
from highway.parameters.ranges import Count, Range


class Drop(enum.Enum):
    """The type of :data:`DROP`."""

    DROP = "DROP"


DROP: Final = Drop.DROP
"""What a map returns to leave its item out."""


class Origin(NamedTuple):
    """Who made an item."""

    host: str = ""
    role: str = ""
    replica: int = 0


class Passport(NamedTuple):
    """What travels beside an item: enough to say which item it is, whatever happened to its arrays on the way.

    ``(epoch, index)`` names the item within its source; randomness in maps hangs on it. ``keys`` names the samples in it (file names,
    shard keys), one for each. ``times`` are Unix seconds: when the source made it, then each time it was sent.
    """

    epoch: int = 0
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which nobody asks a passport for
    origin: Origin = Origin()
    keys: tuple[str, ...] = ()
    times: tuple[float, ...] = ()


class Stamped(NamedTuple):
    """An item with its passport. A source or stream yields this to set the passport; else the engine numbers the items."""

    item: Any
    passport: Passport


@runtime_checkable
class Component(Protocol):
    """What a parameter is hinted with that takes any stage: a component, or a :class:`Stage` around one."""


class Items(Protocol):
    """What a stream or sink iterates over: the bare items.

    ``passport`` is that of the item returned last. ``left_out`` is how many errors ``on_error="skip"`` has left out in the stages before,
    up to now: of items that are on their way, too.
    """

    passport: Passport

    @property
    def left_out(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...


OnError = Literal["raise", "skip"]


@checked
@dataclass(frozen=True)
class Stage:
    """A component, and how to run it.

    Args:
        op: The component: an iterable, a callable, or an object with ``stream``, ``consume`` or ``stages``.
        num_workers: Worker threads of a map. ``None`` means one, or, for a component that says ``parallel = True`` (highway's own
            maps do), as many as the cores this process may use.
        ordered: Whether a map with several workers keeps the order of its items.
        buffer_size: Finished items that may wait for the next stage, at least 1.
        on_error: ``"raise"`` ends the run with the first error; ``"skip"`` leaves out the item, counts it and warns. What a source, stream
            or sink raises ends the run in any case, since it cannot be resumed; errors that it can go on from it reports by
            :func:`highway.engine.cancel.report_error`.
        max_errors: With ``"skip"``: the errors that may be left out; one more ends the run. ``None`` is no limit.
        name: Name in statistics and messages, and part of what randomness hangs on; the class's or function's name when empty.

    A ``Stage`` around a composite hands ``num_workers``, ``ordered`` and the error policy on to the maps in it, and the error policy to
    its source too.
    """

    op: Any
    num_workers: Count | None = None
    ordered: bool = True
    buffer_size: Count = 2
    on_error: OnError = "raise"
    max_errors: Annotated[int, Range(ge=0)] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.op, Stage):
            raise PipelineError(f"a Stage inside a Stage: {self.op!r}; give the settings to one of them")
        if self.max_errors is not None and self.on_error != "skip":
            raise PipelineError(f"{self.label}: max_errors={self.max_errors} without on_error='skip'")

    @property
    def label(self) -> str:
        """``name``, or what the component is called."""
        if self.name:
            return self.name
        named = self.op if inspect.isroutine(self.op) or inspect.isclass(self.op) else type(self.op)
        return getattr(named, "__name__", type(self.op).__name__).strip("<>")


Shape = Literal["source", "map", "stream", "sink", "composite"]


def shape_of(op: Any, first: bool = False, label: str = "") -> Shape:
    """Return the shape of a component by what it defines; only the ``first`` of a list can be a source.

    A callable is a source if it can be called without arguments, else a map, but for a generator function, which is a source or an error.
    Errors call the component by its ``label``.

    Raises:
        PipelineError: it has none of the shapes, or is a class where an instance is meant.
    """
    if inspect.isclass(op) and _defines_a_shape(op):
        raise PipelineError(f"{op.__name__} is a class; an instance is meant: {op.__name__}(...)")
    for method, shape in _METHODS.items():
        if callable(getattr(op, method, None)):
            return shape
    if first and (hasattr(op, "__iter__") or (callable(op) and _needs_nothing(op))):
        return "source"
    if inspect.isgeneratorfunction(op):
        raise PipelineError(
            f"{label or Stage(op).label} is a generator function, of which a map would make a generator for each item; "
            "to make several items of one, define  stream(self, items)  in a class"
        )
    if callable(op):
        return "map"
    if hasattr(op, "__iter__"):
        raise PipelineError(f"{label or Stage(op).label} is an iterable, a source; only the first stage can be one")
    raise PipelineError(f"{op!r} is no stage: expected an iterable, a callable, or an object with stages(), stream() or consume()")


_METHODS: dict[str, Shape] = {"stages": "composite", "stream": "stream", "consume": "sink"}


def _defines_a_shape(cls: type) -> bool:
    return any(inspect.isfunction(getattr(cls, method, None)) for method in (*_METHODS, "__call__", "__iter__"))


def _needs_nothing(op: Callable[..., Any]) -> bool:
    """Say whether a callable can be called without arguments."""
    try:
        inspect.signature(op).bind()
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature: calling it will tell
        return True
    return True


def open_source(op: Any) -> Iterator[Any]:
    """Return the iterator of a source: an iterable, a function that returns one, or one that is called until it raises ``EndOfStream``."""
    if callable(stamped := getattr(op, "stamped", None)):  # a pipeline
        return stamped()  # type: ignore[no-any-return]
    if hasattr(op, "__iter__"):
        return iter(op)
    try:
        first = op()
    except (EndOfStream, StopIteration):
        return iter(())
    return first if isinstance(first, Iterator) else _call_until_end(op, first)


def _call_until_end(function: Callable[[], Any], item: Any) -> Iterator[Any]:
    while True:
        yield item
        try:
            item = function()
        except (EndOfStream, StopIteration):
            return


def takes_rng(op: Callable[..., Any]) -> bool:
    """Say whether a map has a parameter named ``rng``."""
    try:
        return "rng" in inspect.signature(op).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return False


def expand(stages: Sequence[Any]) -> list[tuple[Stage, Shape]]:
    """Return the stages of a list with their shapes: composites replaced by what they consist of, bare components wrapped, labels unique.

    Raises:
        PipelineError: the list is empty, a source is not first, a sink is not last, or something in it is no stage.
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
            raise PipelineError(f"{stage.label} is a sink; only the last stage can be one (Tee hands items to a function on their way)")
    for stage, shape in zip(flat, shapes, strict=True):
        if shape != "map" and (stage.num_workers or 1) > 1:
            raise PipelineError(f"{stage.label} is a {shape}, which runs in one thread; num_workers={stage.num_workers} is for maps")
    return list(zip(unique(flat), shapes, strict=True))


def _flatten(stages: Sequence[Any], at_start: bool) -> list[Stage]:
    flat: list[Stage] = []
    for given in stages:
        stage = _as_stage(given)
        first = at_start and not flat
        if flat and callable(getattr(stage.op, "after", None)):
            *flat, last = stage.op.after(flat)
            if getattr(stage.op, "adds_a_stage", True):
                last = replace(stage, op=last.op, name=stage.label)
            elif replace(stage, op=None) != Stage(None, name=stage.name):
                raise PipelineError(f"{stage.label} runs as the stages before it do; give settings to those")
            flat.append(last)
        elif shape_of(stage.op, first, stage.label) == "composite":
            parts = [replace(part, name=f"{stage.label}.{part.label}") for part in map(_as_stage, stage.op.stages())]
            flat += [_inherit(stage, part, first and not n) for n, part in enumerate(_flatten(parts, first))]
        else:
            flat.append(stage)
    return flat


def _as_stage(given: Any) -> Stage:
    return given if isinstance(given, Stage) else Stage(given)


def _inherit(outer: Stage, part: Stage, is_source: bool) -> Stage:
    """Return a part of a composite with the settings that the stage around it hands on."""
    changes: dict[str, Any] = {}
    if is_source or shape_of(part.op) == "map":
        if outer.on_error != "raise":
            changes |= {"on_error": outer.on_error, "max_errors": outer.max_errors}
        if not is_source:
            changes |= {} if outer.num_workers is None else {"num_workers": outer.num_workers}
            changes |= {} if outer.ordered else {"ordered": False}
    return replace(part, **changes)


def unique(stages: Sequence[Stage]) -> list[Stage]:
    """Return stages with names of their own: the second ``Map`` is ``Map-2``. Randomness hangs on these names."""
    seen: dict[str, int] = {}
    named = []
    for stage in stages:
        count = seen[stage.label] = seen.get(stage.label, 0) + 1
        named.append(replace(stage, name=stage.label if count == 1 else f"{stage.label}-{count}"))
    return named
