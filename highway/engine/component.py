"""The shape of a component, and the traits that a component can declare.

A component needs no base class. Its shape depends on the methods that it defines (:func:`shape_of`):

=========  ==================================================================  =====================
shape      defines                                                             workers
=========  ==================================================================  =====================
source     ``__iter__(self)`` or ``__iter__(self, context=None)``; first       1
map        ``__call__(self, item)``, and optionally ``rng``, ``context``       n, the order is kept
stream     ``stream(self, items)``, an iterator of outputs                     1
sink       ``consume(self, items)``; last in the list                          1
composite  ``stages(self)``, a list of stages that replace it                  set by each stage
=========  ==================================================================  =====================

A component can declare more about itself with one method, ``__highway__(self)``, which returns :class:`Traits`. Counts belong to a run, not
to a component. A component therefore stores its counts in :meth:`highway.engine.context.Context.counters`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Literal, NoReturn, Protocol, runtime_checkable

from highway.engine.old_words import old_words
from highway.errors import PipelineError
from highway.parameters.hints import takes_arguments, takes_rng

Shape = Literal["source", "map", "stream", "sink", "composite"]
Makes = Literal["batches", "samples"]
OneToOne = Literal["in order", "reordered"]
Ranks = list[list[int]]


@runtime_checkable
class Component(Protocol):
    """The type hint of a parameter that takes any stage: a component, or a :class:`Stage` around a component."""


class NotNowError(Exception):
    """Raised by the method ``state`` of a :class:`RunState` if a run cannot be resumed at this point. highway asks again later."""


class RunState(Protocol):
    """The state of a source or stream in one run.

    highway asks a source for its state after the source has yielded an item. The state must then be the position after this item. highway
    asks a stream for its state when the stream takes its next input. At this moment, the state and ``items.waiting`` together must describe
    all inputs that the stream has taken and not yet passed on.
    """

    def state(self) -> Any:
        """Return the state between two items, as a new object that JSON can hold, or ``None`` if the component is at its beginning.

        highway calls this method on the thread of the component.

        Raises:
            NotNowError: a run cannot be resumed at this point.
        """

    def restore(self, state: Any) -> None:
        """Continue from the ``state`` of an earlier run. highway calls this before the component begins, unless the state is ``None``."""


class Position:
    """A state that is one value: ``Traits(state=lambda: Position(0))``.

    Args:
        value: The value at the beginning. Before a source yields an item, it sets ``value`` to the position after this item. A stream sets
            ``value`` before it asks for its next input. Alternatively, the component sets ``value`` once, to a function that returns the
            value as a new object. highway calls this function when it records the state.
    """

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def state(self) -> Any:
        return self.value() if callable(self.value) else deepcopy(self.value)

    def restore(self, state: Any) -> None:
        self.value = deepcopy(state)


class Stateless(Position):
    """The state of a stream that keeps no data between items: ``Traits(state=Stateless)``."""


def not_now() -> NoReturn:
    """Raise NotNowError. A :class:`Position` has this function as its value while a run cannot be resumed."""
    raise NotNowError


@dataclass(frozen=True, kw_only=True)
class Traits:
    """The declarations of a component. Its method ``__highway__`` returns them.

    highway calls ``__highway__`` when it builds the pipeline, sometimes more than once. The method must return the same traits each time. A
    component without this method has the defaults below.

    >>> import itertools
    >>> class Half:
    ...     def stream(self, items):
    ...         yield from itertools.islice(items, 0, None, 2)
    ...
    ...     def __highway__(self):
    ...         return Traits(per_epoch=True, length=lambda items: -(-items // 2))
    >>> Traits.of(Half()).per_epoch
    True

    Args:
        makes: Type of the outputs: ``"batches"`` or ``"samples"``. ``None``: the type of the inputs.
        drops: Whether a map is allowed to return ``DROP``. ``Stage(f, drops=True)`` declares this, too.
        parallel: Whether a map gets one worker for each available core, if the user does not set the number of workers.
        draws: Whether random numbers change the items. ``False``: random numbers change only the order, or nothing. highway uses this trait
            only if the component takes an ``rng`` or its ``seed`` is ``None``.
        fingerprint: A function that returns a text. The text must change whenever other parameters, files or code change the output of the
            component. States and caches compare this text instead of a hash of the component.
        finishes: Whether a source ends by itself after :meth:`highway.Pipeline.drain`, because it calls
            :meth:`highway.engine.context.Context.finish`. ``False``: the engine ends the source between two items.
        length: For a source, a function that returns the number of items of an epoch. For a stream, a function that converts the number of
            inputs of an epoch to the number of outputs.
        numbers_epochs: Whether the passports (the metadata) of the items hold ascending epochs. A loop over the pipeline is then one epoch.
        per_epoch: Whether highway calls ``stream`` once for each epoch. ``items`` then ends with the epoch.
        epochs: For a source, the number of passes over its data. ``None``: unlimited or unknown.
        one_to_one: Whether each input of a map or stream becomes exactly one output, even if errors are skipped. ``"in order"``: each
            output comes before the next input is taken. ``"reordered"``: an output can come at any time, and is yielded with its passport.
            ``None``: unknown; highway assumes that a map is one-to-one unless it drops items or skips errors.
        state: For a source or stream that can resume, a function that creates the state of one run (:class:`RunState`), such as a
            :class:`Position`. The component gets this object from :meth:`highway.engine.context.Context.state_of`.
        remake: A function that makes an item again when a run resumes. The lineage ``made_of`` in the item's passport describes how the
            item was made. The function of a source receives the epoch and the index of the item, and the ``part`` of the lineage (``None``
            without a lineage). It returns the item. The function of a stream receives a list of the item's inputs, each a ``Stamped``, and
            the ``part``. It returns the item as a ``Stamped``. The function of a map that returns ``Several`` receives the same arguments
            as the function of a stream, and returns the item.
        identity: For a source, a function that returns a text that changes when the source's data change. highway rejects a state that was
            saved with other data.
        ranks: For a source, a function that returns the ranks on which its items depend, as a list of pairs ``[rank, world_size]``. A
            source that combines several sources returns a pair for each of them. If every rank gets the same items, the list is empty.
            ``None``: the items depend on the rank of this process, unless the source is a sequence.
        whole_inputs: Whether a stream puts each input into at most one output, and never splits an input.
        splits_batches: Whether a stream splits each batch into its rows. The ``part`` of the lineage is the index of the row.
        workers_parameter: The parameter that sets the number of workers.
        skips_epochs: Whether a source that numbers epochs skips the rest of an epoch if the loop over this epoch ends early.
        whole_epochs: Whether a stream needs all items of an epoch even if the loop ends early, because the stream counts or keeps the
            items.
        repeats: Whether a stream makes its own epochs, as ``Repeat`` does. No ``Repeat`` can come after such a stream.
        remakes_in_run: Whether ``remake`` of a stream works only while the stream runs. A pipeline with such a stream has no ``remake`` if
            it is the source of another pipeline.
        on_demand: Whether a source starts only when the sink asks for an item.
        after: A function that receives the preceding stages, and returns a list of stages that replaces them and this component.
        adds_a_stage: Whether the last stage that ``after`` returns gets the settings of the ``Stage`` around the component.
        stands_for: The user's component, if this component wraps it or is a part of it.
        ahead: For a map that works on several items at once, a function that receives the stage's context and returns a
            :class:`highway.engine.ahead.WorkerAhead`. highway calls the function on the thread of each worker. If the function returns
            ``None``, this worker calls the map. When a run resumes, highway calls the map itself, for single items. ``None``: the map works
            on one item at a time.
        applies_timeout: Whether a map applies the timeout of its stage itself, with ``context.limit``. ``False``: the engine applies the
            timeout to each call of the map.
        start_threads: A function that starts the component's own threads. highway calls it before the threads of the pipeline start.
        stamped: For a source, a function that yields the items of ``__iter__`` with their passports.
        deal_anew: For a source that is divided among ranks, a function that converts the state of one rank for another number of ranks. It
            receives the saved state, the epoch and index of the last item, and the pair ``[rank, world_size]`` of the process that saved
            the state. It returns the state for this rank.
        deal_rest: Like ``deal_anew``, if the user loads the states of all ranks. The function receives a list with a
            :class:`highway.engine.resume.ReadByRank` for each old rank, which records the items that the rank has read.
        items_of_rank: For a reader that a source can combine with other readers: a function that receives a ``ReadByRank`` and an
            epoch. It returns the items of this rank in this epoch, as a :class:`highway.engine.resume.ItemsOfRank`.
        indivisible: For a source, the reason why the remaining items of an epoch cannot be divided among other ranks; empty if they can.
            Messages contain this reason.
        resume: For a source, a function that is called before the run resumes. It receives a list of the source's saved states, one for
            each loaded rank, and whether the user accepts another mixture of datasets (:meth:`highway.Pipeline.load_state_dict`).
        at_epoch: For a source or stream, a function that returns its state at the beginning of an epoch, for any number of ranks. Streams
            that are ``per_epoch`` or ``Stateless`` do not need this function.
    """

    # Any component:
    makes: Makes | None = None
    drops: bool = False
    parallel: bool = False
    draws: bool = True
    fingerprint: Callable[[], str] | None = None
    finishes: bool = False
    # Epochs and length:
    length: Callable[..., int] | None = None
    numbers_epochs: bool = False
    per_epoch: bool = False
    epochs: int | None = None
    # Resume:
    one_to_one: OneToOne | None = None
    state: Callable[[], RunState] | None = None
    remake: Callable[..., Any] | None = None
    identity: Callable[[], str] | None = None
    ranks: Callable[[], Ranks] | None = None
    whole_inputs: bool = False
    # Only highway's own components need these:
    splits_batches: bool = False
    workers_parameter: str = "num_workers"
    skips_epochs: bool = True
    whole_epochs: bool = False
    repeats: bool = False
    remakes_in_run: bool = False
    on_demand: bool = False
    after: Callable[[list[Any]], list[Any]] | None = None
    adds_a_stage: bool = True
    stands_for: Any = None
    ahead: Callable[[Any], Any] | None = None
    applies_timeout: bool = False
    start_threads: Callable[[], None] | None = None
    stamped: Callable[[], Iterator[Any]] | None = None
    deal_anew: Callable[[Any, list[int], list[int]], Any] | None = None
    deal_rest: Callable[[list[Any]], Any] | None = None
    indivisible: str = ""
    items_of_rank: Callable[[Any, int], Any] | None = None
    resume: Callable[[list[Any], bool], None] | None = None
    at_epoch: Callable[[int], Any] | None = None

    @classmethod
    def of(cls, op: Any) -> Traits:
        """Return the declarations of a component.

        Raises:
            PipelineError: ``__highway__`` returned an object that is not :class:`Traits`.
        """
        if inspect.isclass(op):  # a class used as a map, such as ``str``: its methods belong to its instances
            return cls()
        declare = getattr(type(op), "__highway__", None)  # looked up on the class, as Python does for special methods
        declared = cls() if declare is None else declare(op)
        if not isinstance(declared, cls):
            raise PipelineError(f"{name_of(op)}.__highway__() returned {declared!r:.80}; expected highway.Traits(...)")
        return replace(declared, **old) if (old := old_words(op)) else declared

    def new_state(self) -> RunState | None:
        """Return a new state of the component for one run; ``None`` if the component does not support states."""
        return None if self.state is None else self.state()


def no_state(name: str) -> str:
    """Return the error message for a stage that declares no state."""
    return f"state_dict: {name} does not report its position; declare Traits(state=...) in this component"


def layers(op: Any) -> Iterator[Any]:
    """Yield a component, then the component that it wraps or is part of, and so on. The last component is the user's own."""
    while op is not None:
        yield op
        op = Traits.of(op).stands_for


def written(op: Any) -> Any:
    """Return the component of the user that a component wraps or is part of; otherwise, the component itself."""
    *_, last = layers(op)
    return last


def fingerprint_of(value: Any) -> Callable[[], str] | None:
    """Return the method ``fingerprint()`` of a value such as a dataset; ``None`` if no such method can be called without arguments."""
    method = getattr(type(value), "fingerprint", None)
    return value.fingerprint if inspect.isroutine(method) and takes_arguments(method, 1) and not inspect.isclass(value) else None


def shape_of(op: Any, first: bool = False, label: str = "") -> Shape:
    """Return the shape of a component, which follows from the methods that it defines.

    A callable without required arguments is a source if it is the first stage. Any other callable is a map, also a class such as ``str``
    that defines none of the methods.

    Args:
        op: The component.
        first: Whether the component is the first stage. Only the first stage can be a source.
        label: The name of the component in error messages.

    Raises:
        PipelineError: the component has none of the shapes, or it is probably a mistake: a text, path or dict as the first stage; an
            iterable as a later stage; a generator function that is not a source; a map that needs several arguments; or a class that
            defines one of the methods, instead of an instance of this class.
    """
    defining = (*_SHAPES, "__call__", "__iter__")
    if inspect.isclass(op) and any(inspect.isfunction(getattr(op, method, None)) for method in defining):
        raise PipelineError(f"{op.__name__} is a class; pass an instance: {op.__name__}(...)")
    if (shape := shape_by_method(op)) is not None:
        return shape
    if first:
        _expect_items(op)
    if first and (hasattr(op, "__iter__") or (callable(op) and _needs_nothing(op))):
        return "source"
    if inspect.isgeneratorfunction(op):
        raise PipelineError(
            f"{label or name_of(op)} is a generator function; as a map, it would return a generator for each item. To make several items "
            "from one item, define  stream(self, items)  in a class"
        )
    if callable(op):
        expect_one_argument(op, label)
        return "map"
    if hasattr(op, "__iter__"):
        of_transforms = isinstance(op, list) and op and all(hasattr(one, "draw") for one in op)
        way_out = "; to apply a list of transforms, use Augmentations([...])" if of_transforms else ""
        raise PipelineError(f"{label or name_of(op)} is an iterable, so it is a source; only the first stage can be a source{way_out}")
    way_out = "; use Reader(dataset) for an object with random access" if hasattr(op, "__getitem__") else ""
    raise PipelineError(
        f"{op!r} is not a stage: expected an iterable, a callable, or an object with stages(), stream() or consume(){way_out}"
    )


def expect_list(stages: Any) -> None:
    """Raise PipelineError if ``stages`` is a single stage or a path instead of a list of stages."""
    if isinstance(stages, (str, bytes, PurePath)):
        _expect_items(stages)
    if not isinstance(stages, (Sequence, Iterator)) or isinstance(stages, range):
        raise PipelineError(f"Pipeline: got {name_of(stages)}; expected a list of stages, such as Pipeline([source, map, ...])")


def _expect_items(op: Any) -> None:
    """Raise PipelineError if the first stage is a text, a path, a dict or a DataFlow of tensorpack, which cannot be a source."""
    if isinstance(op, PurePath):
        op = str(op)
    if isinstance(op, (str, bytes)):
        raise PipelineError(
            f"the first stage is the text {op!r}, whose items would be its characters; pass a component that reads this path, such as "
            f"ImageFileReader({op!r}, 32) or Reader(ImageFolder({op!r}), 32), or pass a list of texts: [{op!r}]"
        )
    if isinstance(op, Mapping):
        raise PipelineError(
            "the first stage is a dict, whose items would be its keys; pass [sample] if it is one sample, or list(mapping.items())"
        )
    if any(cls.__module__.startswith("tensorpack.") for cls in type(op).__mro__):
        raise PipelineError(
            f"{name_of(op)} is a DataFlow of tensorpack; use DataFlowSource(dataflow), from highway.adapters.tensorpack, as the source"
        )


def expect_one_argument(op: Callable[..., Any], label: str = "", besides: Sequence[str] = ("rng", "context")) -> None:
    """Raise PipelineError for a map that needs several arguments."""
    try:
        parameters = [one for one in inspect.signature(op).parameters.values() if one.name not in besides]
    except (TypeError, ValueError):  # a builtin without a signature: an error shows when it is called
        return
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one.name for one in parameters if one.kind in by_position and one.default is one.empty]
    if len(needed) > 1:
        raise PipelineError(
            f"{label or name_of(op)} needs {len(needed)} arguments, {', '.join(needed)}, but a map receives one, the item (besides "
            f"{' and '.join(besides)}): unpack the item inside the map, {', '.join(needed)} = item"
        )


_SHAPES: dict[str, Shape] = {"stages": "composite", "stream": "stream", "consume": "sink"}


def shape_by_method(op: Any) -> Shape | None:
    """Return ``"composite"``, ``"stream"`` or ``"sink"`` if a component has the method of this shape; ``None`` for sources and maps."""
    return next((shape for method, shape in _SHAPES.items() if callable(getattr(op, method, None))), None)


def name_of(op: Any) -> str:
    """Return the name of a component. A function or class has its own name. Any other component has the name of its class."""
    named = op if inspect.isroutine(op) or inspect.isclass(op) else type(op)
    return getattr(named, "__name__", type(op).__name__).strip("<>")


def _needs_nothing(op: Callable[..., Any]) -> bool:
    """Return whether a callable can be called without arguments."""
    try:
        inspect.signature(op).bind()
    except TypeError:
        return False
    except ValueError:
        pass  # a builtin without a signature: an error shows when it is called
    return True


def hangs_on_seed(op: Any) -> bool:
    """Return whether the output of a component depends on the pipeline's seed, because it takes an ``rng`` or its ``seed`` is ``None``."""
    takes = callable(op) and not hasattr(op, "__iter__") and takes_rng(op)
    return (takes or seed_parameter(op, 0) is None) and Traits.of(op).draws


def seed_parameter(op: Any, default: Any = None) -> Any:
    """Return the ``seed`` of the component that the user wrote, or ``default``."""
    return getattr(written(op), "__dict__", {}).get("seed", default)
