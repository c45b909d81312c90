"""What a component is, and what it may say of itself: the one place where that is written down and read.

A component needs no base class. Its shape is what it defines (:func:`shape_of`):

=========  ==================================================================  =====================
shape      defines                                                             workers
=========  ==================================================================  =====================
source     ``__iter__(self)``; first in the list                               1
map        ``__call__(self, item)`` or ``__call__(self, item, rng)``           n, the order is kept
stream     ``stream(self, items)``, an iterator of outputs                     1
sink       ``consume(self, items)``; last in the list                          1
composite  ``stages(self)``, a list of stages that take its place              theirs
=========  ==================================================================  =====================

All else is optional: the attributes, properties and methods of :class:`Traits`. What a component counts while it runs belongs to the run,
and goes to :func:`highway.engine.cancel.counters`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, runtime_checkable

from highway.errors import PipelineError
from highway.parameters.hints import takes_rng

if TYPE_CHECKING:
    from highway.engine.ahead import WorkerAhead

Shape = Literal["source", "map", "stream", "sink", "composite"]
Makes = Literal["batches", "samples"]
OneToOne = Literal["in order", "reordered"]
Ranks = list[list[int]]


@runtime_checkable
class Component(Protocol):
    """What a parameter is hinted with that takes any stage: a component, or a :class:`Stage` around one."""


_OF_TYPE: dict[Any, Callable[[Any], bool]] = {
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "int | None": lambda value: isinstance(value, int),
    "Makes | None": lambda value: isinstance(value, str) and value in get_args(Makes),
    "OneToOne | None": lambda value: isinstance(value, str) and value in get_args(OneToOne),
}


@dataclass(frozen=True)
class Traits:
    """What a component says of itself: an attribute, a property or a method of each of these names, none of which has to be there.

    One that is there, but is not of the type given here, is the user's own and counts for nothing.

    Args:
        parallel: Of a map: whether it gets a worker for each core that this process may use, if nobody says how many.
        workers_parameter: The parameter that says how many workers it has.
        draws: Whether chance has a part in what it makes, and not in the order alone, if it takes an ``rng`` or its ``seed`` is ``None``.
        drops: Of a map: whether it may return ``DROP``.
        one_to_one: Of a map or stream: whether each input becomes exactly one output, whatever errors are skipped. ``"in order"``: before
            the next input is taken. ``"reordered"``: at any time, with its own passport. ``None``: not known; a plain map is taken to
            be one-to-one unless it drops items or skips errors.
        makes: What comes out of it: ``"batches"`` or ``"samples"``. ``None``: the same as goes in.
        epochs: Passes that it makes over its data; ``None``: without end, or it cannot be known.
        numbers_epochs: Whether its passports say in which epoch an item is, in order, so that a loop over the pipeline is one epoch.
        skips_epochs: Of a source that numbers epochs: whether the rest of one is left out when a loop over it is left.
        per_epoch: Of a stream: whether it begins anew with each epoch: ``items`` end with the epoch.
        whole_epochs: Of a stream: whether the rest of an epoch that was left is made nevertheless, up to it.
        repeats: Of a stream: whether it makes epochs of its own, so that no ``Repeat`` can stand behind it.
        finishes: Of a source: whether it ends by itself when the pipeline is drained (:func:`highway.engine.cancel.finish`); else it is
            ended between two items.
        on_demand: Of a source: whether it begins only when the sink has asked for an item.
        adds_a_stage: Whether the last of what ``after`` returns runs as the stage does that the component is in.
        stands_for: The component that the user wrote, if this one is a part of it or stands around it. Of what is no method, that one
            says what this one does not.
        ahead: Of a map that has several items in work at once: makes a :class:`highway.engine.ahead.WorkerAhead` for each worker, on its
            thread; ``None``: it takes one after the other here. The map itself is called for single items that are made again.
        after: Takes the stages before it, and returns what takes their place and its own: for who must know what stands before it.
        start_threads: Starts what runs beside the threads of the pipeline, before these are started.
        stamped: Of a source: iterates with passports, as ``__iter__`` does without.
        length: Of a source: returns how many items an epoch has; of a stream: takes how many come in, and returns how many go out.
        remake: For resuming. Of a source: takes epoch and index of an item, and which ``part`` of what it is (``None`` if its passport does
            not say), and returns it. Of a stream, or a map that returns ``Several``: takes the items that it made one of (each a
            ``Stamped``) and which part of them that is, and returns it, a stream with its passport.
        ranks: Of a source: returns the ranks that its items depend on, as ``[[rank, world_size]]``, with a pair for each source inside it;
            an empty list if its items are the same on every rank. A source without it is taken to depend on the rank of this process.
        deal_anew: Of such a source: takes its state of another number of ranks, epoch and index of their last item, and these ranks, and
            returns its state.
        identity: Of a source: returns a text that changes when its data change; states are compared by it.
        fingerprint: Returns a text that changes when its output changes, by parameters, files or code. States and caches are
            compared by it, in place of a hash of the object.
    """

    parallel: bool = False
    workers_parameter: str = "num_workers"
    draws: bool = True
    drops: bool = False
    one_to_one: OneToOne | None = None
    makes: Makes | None = None
    epochs: int | None = None
    numbers_epochs: bool = False
    skips_epochs: bool = True
    per_epoch: bool = False
    whole_epochs: bool = False
    repeats: bool = False
    finishes: bool = False
    on_demand: bool = False
    adds_a_stage: bool = True
    stands_for: Any = None
    ahead: Callable[[], WorkerAhead | None] | None = None
    after: Callable[[list[Any]], list[Any]] | None = None
    start_threads: Callable[[], None] | None = None
    stamped: Callable[[], Iterator[Any]] | None = None
    length: Callable[..., int] | None = None
    remake: Callable[..., Any] | None = None
    ranks: Callable[[], Ranks] | None = None
    deal_anew: Callable[[Any, list[int], list[int]], Any] | None = None
    identity: Callable[[], str] | None = None
    fingerprint: Callable[[], str] | None = None

    @classmethod
    def of(cls, op: Any) -> Traits:
        """Read what a component says."""
        if inspect.isclass(op):  # as a map, such as ``str``: what is defined in it is of its instances
            return cls()
        said = {name: value for name in _METHODS if callable(value := getattr(op, name, None))}
        for part in layers(op):
            said |= {name: value for name, fits in _FITS.items() if name not in said and fits(value := getattr(part, name, None))}
        return cls(stands_for=getattr(op, "stands_for", None), **said)


_FITS: dict[str, Callable[[Any], bool]] = {  # whether a value is of the field's type
    field.name: _OF_TYPE[field.type] for field in fields(Traits) if field.type in _OF_TYPE
}
_METHODS = [field.name for field in fields(Traits) if str(field.type).startswith("Callable")]


def layers(op: Any) -> Iterator[Any]:
    """Yield a component, the one that it stands for, and so on to the one that the user wrote."""
    while op is not None:
        yield op
        op = None if inspect.isclass(op) else getattr(op, "stands_for", None)


def written(op: Any) -> Any:
    """Return the component that the user wrote, which this one is, is part of, or stands around."""
    *_, last = layers(op)
    return last


def shape_of(op: Any, first: bool = False, label: str = "") -> Shape:
    """Return the shape of a component by what it defines; only the ``first`` of a list can be a source.

    A callable is a source if it can be called without arguments, else a map, but for a generator function, which is a source or an error.
    Errors call the component by its ``label``.

    Raises:
        PipelineError: it has none of the shapes, or is a class where an instance is meant.
    """
    defining = (*_SHAPES, "__call__", "__iter__")
    if inspect.isclass(op) and any(inspect.isfunction(getattr(op, method, None)) for method in defining):
        raise PipelineError(f"{op.__name__} is a class; an instance is meant: {op.__name__}(...)")
    if (shape := shape_by_method(op)) is not None:
        return shape
    if first:
        _expect_items(op)
    if first and (hasattr(op, "__iter__") or (callable(op) and _needs_nothing(op))):
        return "source"
    if inspect.isgeneratorfunction(op):
        raise PipelineError(
            f"{label or name_of(op)} is a generator function, of which a map would make a generator for each item; "
            "to make several items of one, define  stream(self, items)  in a class"
        )
    if callable(op):
        expect_one_argument(op, label)
        return "map"
    if hasattr(op, "__iter__"):
        of_transforms = isinstance(op, list) and op and all(hasattr(one, "draw") for one in op)
        way_out = "; the stage Augmentations([...]) applies a list of transforms" if of_transforms else ""
        raise PipelineError(f"{label or name_of(op)} is an iterable, a source; only the first stage can be one{way_out}")
    way_out = "; Reader(dataset) reads what has numbers" if hasattr(op, "__getitem__") else ""
    raise PipelineError(f"{op!r} is no stage: expected an iterable, a callable, or an object with stages(), stream() or consume(){way_out}")


def expect_list(stages: Any) -> None:
    """Raise PipelineError for one stage, a path or several arguments, where a list of stages is expected."""
    if isinstance(stages, (str, bytes, PurePath)):
        _expect_items(stages)
    if not isinstance(stages, (Sequence, Iterator)) or isinstance(stages, range):
        raise PipelineError(f"Pipeline: got {name_of(stages)}; expected a list of stages, such as Pipeline([source, map, ...])")


def _expect_items(op: Any) -> None:
    """Raise PipelineError for a source that iterates over something else than the items that are meant."""
    if isinstance(op, PurePath):
        op = str(op)
    if isinstance(op, (str, bytes)):
        raise PipelineError(
            f"the first stage is the text {op!r}, whose items would be its characters; name what reads it, such as "
            f"ImageFileReader({op!r}, 32) or Reader(ImageFolder({op!r}), 32), or give a list of texts: [{op!r}]"
        )
    if isinstance(op, Mapping):
        raise PipelineError(
            "the first stage is a dict, whose items would be its keys; give a list of it for one sample, [sample], or list(mapping.items())"
        )
    if any(cls.__module__.startswith("tensorpack.") for cls in type(op).__mro__):
        raise PipelineError(
            f"{name_of(op)} is a DataFlow of tensorpack; DataFlowSource(dataflow), from highway.adapters.tensorpack, reads it as a source"
        )


def expect_one_argument(op: Callable[..., Any], label: str = "") -> None:
    """Raise PipelineError for a map that needs several arguments."""
    try:
        parameters = [one for one in inspect.signature(op).parameters.values() if one.name != "rng"]
    except (TypeError, ValueError):  # a builtin without a signature: calling it will tell
        return
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one.name for one in parameters if one.kind in by_position and one.default is one.empty]
    if len(needed) > 1:
        raise PipelineError(
            f"{label or name_of(op)} takes {len(needed)} arguments, {', '.join(needed)}, and a map gets one, the item (besides rng): "
            f"take the item apart inside the map, {', '.join(needed)} = item"
        )


_SHAPES: dict[str, Shape] = {"stages": "composite", "stream": "stream", "consume": "sink"}


def shape_by_method(op: Any) -> Shape | None:
    """Return the shape of a composite, stream or sink, which a method gives away; ``None`` for what may be a source or a map."""
    return next((shape for method, shape in _SHAPES.items() if callable(getattr(op, method, None))), None)


def name_of(op: Any) -> str:
    """Return what a component is called: its class, or the function or class that it is."""
    named = op if inspect.isroutine(op) or inspect.isclass(op) else type(op)
    return getattr(named, "__name__", type(op).__name__).strip("<>")


def _needs_nothing(op: Callable[..., Any]) -> bool:
    """Say whether a callable can be called without arguments."""
    try:
        inspect.signature(op).bind()
    except TypeError:
        return False
    except ValueError:
        pass  # a builtin without a signature: calling it will tell
    return True


def hangs_on_seed(op: Any) -> bool:
    """Say whether what a component makes hangs on the pipeline's seed: it takes an ``rng``, or its own ``seed`` is ``None``."""
    takes = callable(op) and not hasattr(op, "__iter__") and takes_rng(op)
    return (takes or getattr(written(op), "seed", 0) is None) and Traits.of(op).draws
