"""``Pipeline``: stages in worker threads, as their user sees them."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from highway.engine import cancel, script
from highway.engine.component import Ranks, Traits, expect_list
from highway.engine.consumer import ENDED, Consumer
from highway.engine.context import here
from highway.engine.source import ranks_of
from highway.engine.stage import Origin, Stamped, expand
from highway.engine.stats import HandOver, PipelineStats
from highway.engine.threads import Run
from highway.errors import Cancelled, ConfigError, EndOfStream, PipelineError
from highway.parameters.checks import known_only

if TYPE_CHECKING:
    from highway.observe.dashboard.local import ServedPage

STOPPED = "the pipeline was stopped; build a new one"


class Pipeline:
    """A chain of stages, each in worker threads of its own.

    Nothing starts before the first :meth:`dequeue`, iteration or :meth:`run`. A loop over the pipeline is one epoch, if its source numbers
    them, and the next loop is the next epoch, which the workers have begun by then; what is left of an epoch when its loop is left is not
    made. :meth:`dequeue` and sinks get one epoch after the other.

    A script whose last act is to construct a pipeline that ends in a sink runs it until its source ends or the script is interrupted (see
    :mod:`highway.engine.script`).

    Args:
        stages: Components, or :class:`Stage` objects that say how to run one. The first is the source; a sink can only be the last.
        seed: What all that is random derives from: in sources, streams and maps that have no seed of their own, and in maps that take an
            ``rng``, with the stage's name and the item's epoch and index. ``None``: that of the pipeline that this is part of, else 0.
        origin: Host, role and replica that the items which are made here carry in their passports.
        start: Whether a script that ends with this pipeline, and has not run or stopped it, runs it then.
        isolated: Whether the stages run in a process of their own, which takes nothing of this one's time but to take an item. Nothing else
            changes, but that stages and items must be picklable; arrays come out as views of shared memory.
        budget_mb: Megabytes of shared memory that the items of an isolated pipeline may take; one of them may take half.

    Raises:
        ConfigError: ``seed`` is no integer.
        PipelineError: the stages do not fit together, or one cannot be sent to a process of its own.

    >>> with Pipeline([range(3), str]) as pipeline:
    ...     print(list(pipeline))
    ['0', '1', '2']
    """

    why_no_Dataset: ClassVar[str] = (
        "a Pipeline is no dataset, and makes batches by itself; iterate over it, or over to_device(pipeline, device) or "
        "DataLoader(pipeline) of highway.adapters.torch; highway.adapters.torch.DataLoader(dataset, batch_size) takes the dataset that "
        "the reader reads"
    )

    @known_only
    def __init__(
        self,
        stages: Sequence[Any],
        seed: int | None = None,
        origin: Origin | None = None,
        start: bool = True,
        isolated: bool = False,
        budget_mb: float = 1024.0,
    ) -> None:
        expect_list(stages)
        try:
            seed = None if seed is None else index(seed)
        except TypeError:
            raise ConfigError(f"Pipeline: seed={seed!r}; expected an integer, or None") from None
        expanded = expand(stages)
        origin = origin or Origin(os.uname().nodename)
        self._arguments = (stages, seed, origin, False, isolated, budget_mb)
        self.stages = [stage for stage, _ in expanded]  # as they run: composites replaced by what they consist of, with names of their own
        self.seed = seed
        self._run = Run(expanded, seed, origin)
        if isolated:
            from highway.children.isolated import IsolatedRun  # here, since it is built on the engine, and on same-host links

            self._run = IsolatedRun(stages, expanded, seed, origin, budget_mb)
        self.hand_over = self._run.workers[0].context.hand_over = HandOver()
        last = self._run.workers[-1]
        self.ends_in_sink, self._last = last.shape == "sink", last.stage.name
        self._finalizer, self._consumer = weakref.finalize(self, self._run.abandon), Consumer(self._run)
        self._stopped = False
        if start and self.ends_in_sink and script.is_built_by_script(frame := sys._getframe(2)):
            script.run_at_end(self._run, self, frame)

    @staticmethod
    def from_yaml(
        path: str | Path | Sequence[str | Path],
        role: str,
        *,
        replica: int = 0,
        plugins: Collection[str] = (),
        isolated: bool = False,
        on: str = "",
        **variables: Any,
    ) -> Pipeline:
        """Build the pipeline of one role of a topology file.

        Args:
            path: The YAML file, or several, which are merged by key; later ones count.
            role: One of the file's roles, and ``replica`` which one of its processes, from 0.
            plugins: Modules whose classes the file may name as ``package.module:Class``.
            isolated: Whether it runs in a process of its own; see :class:`Pipeline`.
            on: Where it finds the others, if not at the file's hosts: ``"ray"`` or ``"ray:NAME"``, a run of the file, or of that name, in
                the Ray cluster of this process; ``"folder:PATH"``, a folder that all hosts see.
            **variables: Values for the file's ``vars``; for one that is called like an argument here, see :func:`highway.topology.load`.

        Raises:
            ConfigError: the file, the role, a variable or where the others are is wrong; the message says how.
        """
        from highway.topology import load  # here, since it is built on the engine: with isolated runs the one way from here to a room above

        return load(path, variables, plugins).joined(on, isolated).pipeline(role, replica, isolated=isolated)

    def __highway__(self) -> Traits:
        """Return the declarations of a pipeline that is the source of another pipeline."""
        return Traits(
            finishes=True,
            numbers_epochs=self.numbers_epochs,
            epochs=self.epochs,
            remake=self.remake,
            ranks=self.ranks,
            stamped=self.stamped,
        )

    def __getitems__(self, numbers: Any) -> Any:
        """Raise TypeError: a pipeline is no dataset, though torch's ``DataLoader`` takes it for one."""
        raise TypeError(self.why_no_Dataset)

    if not TYPE_CHECKING:  # for a type checker, a pipeline has no __getitem__
        __getitem__ = __getitems__  # which torch's DataLoader calls with batch_size=None

    def dequeue(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the next item.

        Args:
            block: Whether to wait for it; ``False`` is ``timeout=0``.
            timeout: Seconds to wait at most.

        Raises:
            EndOfStream: the source has ended, or the pipeline was stopped.
            TimeoutError: there is no item yet; the pipeline goes on.
            PipelineError: the pipeline ends in a sink.
            Exception: what a stage raised, with notes that say where; again on every later call.
        """
        if not self._run.has_begun:
            self._run.note_stages()
        return self._dequeue(timeout if block else 0.0).item

    def _dequeue(self, timeout: float | None) -> Stamped:
        if self.ends_in_sink:
            script.forget(self._run)  # who takes it for another kind of pipeline does not expect that it runs at the end
            raise PipelineError(f"{self._last} is a sink, nothing comes out of this pipeline; call run()")
        if not self._consumer.has_ended or self._run.has_begun:  # else the state was saved at the end
            self._run.start()
            try:
                return self.hand_over.take(lambda: self._consumer.take(timeout), here().hand_over)
            except (EndOfStream, Cancelled):
                pass  # which is no context of the error that follows
        cancel.check_cancelled()
        has_ended = self._consumer.has_ended = self._consumer.has_ended or not self._stopped
        self._run.join()
        self._run.raise_error()
        raise EndOfStream(ENDED if has_ended else STOPPED)

    def __iter__(self) -> Iterator[Any]:
        """Yield the items of an epoch; where the source does not number epochs, all items until the end.

        Raises:
            EndOfStream: there are no more epochs, or the pipeline was stopped: a loop over no items would look like an empty epoch.
        """
        self._consumer.received(None)
        self._run.note_stages()  # an adapter may take the items in a stage of its own
        if not self.numbers_epochs:
            return (item for item, _ in self.stamped())
        return self._consumer.one_epoch(iter(()) if self._is_over and self._consumer.has_empty_epoch else self.stamped())

    def __len__(self) -> int:
        """Return how many items an epoch has, on this rank.

        After this, a map that returns ``DROP`` without declaring it (``Stage(f, drops=True)``) ends the run with an error.

        Raises:
            TypeError: a stage does not know the number, or a map drops items.
            OSError: the source's files cannot be read.
        """
        return self._run.length()

    def __bool__(self) -> bool:
        return True

    def stamped(self) -> Iterator[Stamped]:
        """Yield items with their passports until the end: what another pipeline takes that this one is the source of.

        Raises:
            EndOfStream: as a loop over the pipeline does.
        """
        if self._is_over:
            self._run.raise_error()
            raise EndOfStream(ENDED if self._consumer.has_ended else STOPPED)
        return self._stamped()

    @property
    def _is_over(self) -> bool:
        return self._consumer.has_ended or self._stopped

    def _stamped(self) -> Iterator[Stamped]:
        drained = False
        try:
            while True:
                try:
                    item = self._dequeue(None)
                except EndOfStream:
                    if drained:  # and there may be other sources beside this one
                        raise Cancelled from None
                    return
                except Cancelled:  # the pipeline that this one is the source of
                    if not here().finish():
                        raise
                    self.drain()
                    drained = True
                    continue
                if self._consumer.is_in_stage and (flushed := self._consumer.flushed()):
                    here().flushed |= flushed
                yield item
        finally:
            if cancel.is_cancelled() and not self._consumer.is_taken_ahead:
                self.stop()

    def state_dict(self) -> dict[str, Any]:
        """Return where the loop is, between two items, in a few kilobytes that JSON can hold; for :meth:`load_state_dict`.

        Items that an adapter such as ``to_device`` has taken, and the loop has not received, do not count.

        Raises:
            PipelineError: a stage has no state, the pipeline ends in a sink, or it is part of another pipeline, whose state includes it.
        """
        if self.ends_in_sink:
            raise PipelineError(f"state_dict: {self._last} is a sink, which takes items without an end; take them by a loop or dequeue()")
        return self._consumer.state()

    def load_state_dict(self, state: Mapping[str, Any], allow_changed: Collection[str] | None = ()) -> None:
        """Resume where another pipeline of the same stages was: with the next item, and the rest of the epoch in the first loop.

        At most as many items as come between two markers, :data:`highway.engine.resume.MARK_EVERY` of the source's, are made once more, and
        what waited in the stages.

        Args:
            state: What :meth:`state_dict` returned there.
            allow_changed: Names of stages whose parameters, data or ranks may have changed since. A warning says what has changed; the rest
                of the run may differ. ``None``: this pipeline is part of another component, which has compared the stages already.

        Raises:
            PipelineError: this pipeline has begun, the state is not a state, or it was saved with other stages, parameters, data, seeds or
                ranks; or ``allow_changed`` names no stage.
        """
        if self._run.has_begun:
            raise PipelineError("load_state_dict: the pipeline has begun; load the state before the first item")
        self._consumer.go_on(state, allow_changed)

    def ranks(self) -> Ranks:
        """Return the ranks that the source depends on; for a pipeline that this pipeline is the source of."""
        source = self._run.workers[0]
        return ranks_of(source.stage.op, source.traits)

    def position(self) -> Any:
        """Return the position after the last item that was taken, for :meth:`received`."""
        return self._consumer.position()

    def received(self, position: Any, is_left: bool = False) -> None:
        """Have :meth:`state_dict` return the state at the position of the last item that a loop has received.

        For adapters that take items ahead of the loop: they take a :meth:`position` with each item, and call this when the loop receives
        the item. After the loop they call it with ``None``: the state is then the one after a loop over the pipeline itself. If the source
        does not number epochs, items that no loop has received still do not count.

        Args:
            position: The position; or the :class:`~highway.PipelineError` that :meth:`state_dict` raises, if nobody knows the position.
            is_left: Whether the loop was left there, so that the state is that of the next epoch.
        """
        if is_left and isinstance(position, Consumer):
            position = position.left()
        if position is not None or self.numbers_epochs:
            self._consumer.received(position)

    def remake(self, epoch: int, index: int, part: Any) -> Stamped:
        """Return an item again that came out of this pipeline; for a pipeline that this one is the source of."""
        return self._consumer.remake(part or [epoch, index])

    def run(self) -> None:
        """Run a pipeline that ends in a sink until its source ends or :meth:`stop` is called.

        Raises:
            PipelineError: the last stage is no sink; iterate over the pipeline instead.
            Exception: what a stage raised.
        """
        self.start()
        self._run.background = False
        self._run.wait()

    def start(self) -> None:
        """Begin to run a pipeline that ends in a sink, and return at once; :meth:`run` waits for its end, :meth:`stop` ends it.

        If the script ends before it, it is stopped. What a stage raises is logged, and raised by :meth:`run`.

        Raises:
            PipelineError: the last stage is no sink; iterate over the pipeline instead.
        """
        if not self.ends_in_sink:
            raise PipelineError(f"{self._last} is no sink; iterate over the pipeline, call dequeue(), or append a sink")
        self._run.background = True
        self._run.start()

    def drain(self) -> None:
        """Have the source end before its next item: what it has yielded passes through, and then the pipeline ends as at its end.

        Returns at once, and may be called from any thread. A source that waits is interrupted as by :meth:`stop`, by ``Cancelled`` out of
        :func:`highway.check_cancelled`; a :class:`~highway.modules.ZMQSource` yields what it has received already.
        """
        self._run.drain()

    def stop(self) -> None:
        """Cancel all stages and wait for their threads; a stage that does not end within 5 s is named in a warning and left behind.

        May be called again, from any thread, and while others wait in :meth:`dequeue`, who then get ``EndOfStream``.
        """
        self._stopped = True
        self._run.stop()

    def stats(self) -> PipelineStats:
        """Return what each stage has done so far."""
        return replace(self._run.stats(), waited=self.hand_over.waited)

    def dashboard(self, address: str = "") -> ServedPage:
        """Serve a page for a browser that shows this pipeline, until it is closed or the pipeline is gone, and print its address.

        ``address`` is ``[ADDRESS:]PORT``; by default any free port of 127.0.0.1. Elsewhere the printed address includes a token.
        Raises ConfigError if the port is taken.
        """
        from highway.observe.dashboard.local import serve  # here, since only who looks needs an HTTP server

        return serve({"pipeline": self}, address)

    def outcome(self) -> tuple[bool, BaseException | None]:
        """Return whether its stages have ended, and what a stage raised that ended them."""
        return self._run.has_ended, self._run.error

    def __reduce__(self) -> tuple[Any, ...]:
        if self._run.has_begun or self._run.resumed_from is not None:
            raise PipelineError(f"{self} has begun, or is to go on from a state; only a new pipeline can be sent to another process")
        return Pipeline, self._arguments

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return str(self._run)

    def _repr_html_(self) -> str:
        from highway.engine import notebook  # here, since only notebooks need it

        return notebook.paragraph(repr(self)) + self.stats()._repr_html_()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Be shown by IPython, which keeps what it shows: the text in place of the pipeline, whose threads end with the last reference."""
        from highway.engine import notebook

        printer.text(repr(self))
        notebook.release(self)

    @property
    def epoch(self) -> int:
        """In which epoch the last item was, from 0; behind a loop, the next one."""
        return self._consumer.epoch

    @property
    def numbers_epochs(self) -> bool:
        """Whether a loop is one epoch."""
        return self._run.numbers_epochs

    @property
    def epochs(self) -> int | None:
        """How many epochs it has; ``None``: without end, or it cannot be known."""
        return self._run.epochs()
