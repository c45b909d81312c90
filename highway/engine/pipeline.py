"""``Pipeline``: a chain of stages in worker threads."""

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
from highway.engine.consumer import Consumer
from highway.engine.context import here
from highway.engine.source import ranks_of
from highway.engine.stage import Origin, Stamped, expand
from highway.engine.stats import HandOver, PipelineStats
from highway.engine.threads import Run
from highway.errors import Cancelled, ConfigError, EndOfStream, PipelineError
from highway.parameters.checks import known_only
from highway.process.ranks import PeerRanks

if TYPE_CHECKING:
    from highway.observe.dashboard.local import ServedPage


class Pipeline:
    """A chain of stages, each with its own worker threads.

    The stages start at the first :meth:`dequeue`, iteration or :meth:`run`. If each item of the source has an epoch, as in readers, each
    ``for`` loop over the pipeline is one epoch. The workers start the next epoch before the current loop ends. If a loop ends early, the
    rest of its epoch is skipped. A ``ZMQSource`` cannot skip items. :meth:`dequeue` and sinks get the items of all epochs.

    A sink is a last stage that writes or sends the items. If a script constructs a pipeline with a sink and does not run it, the pipeline
    runs at the end of the script (see :mod:`highway.engine.script`).

    Args:
        stages: Iterables, functions or other components, or :class:`Stage` objects with settings. The first stage is the source.
        seed: Seed of all stages without their own seed. In functions with a parameter ``rng``, random numbers also depend on the stage's
            name and the item's epoch and index. ``None``: the seed of the pipeline that contains this pipeline, or 0.
        origin: Host and role of this process. The passport (the metadata) of each item contains the origin.
        start: Whether a pipeline that ends in a sink runs at the end of the script, unless the script has run or stopped it.
        isolated: Whether the stages run in a separate process, so that this process only receives items. Stages and items must be
            picklable. Arrays are views of shared memory. The items are the same as without ``isolated``.
        budget_mb: Megabytes of shared memory for the items of an isolated pipeline, or of all peers. One item can use at most half.
        peers: Processes on this host that get the same items. The first process runs the stages: see :func:`highway.adapters.torch.peers`.

    Raises:
        ConfigError: ``seed`` is not an integer, or both ``isolated`` and ``peers`` are given.
        PipelineError: ``stages`` is not a list, the stages do not fit together, or a stage cannot be sent to a separate process.

    >>> with Pipeline([range(3), str]) as pipeline:
    ...     print(list(pipeline))
    ['0', '1', '2']
    """

    why_no_Dataset: ClassVar[str] = (
        "a Pipeline is not a dataset, and creates batches itself; iterate over it, or over to_device(pipeline, device) or "
        "DataLoader(pipeline) of highway.adapters.torch; or pass the dataset of the reader to highway.adapters.torch.DataLoader(dataset, "
        "batch_size)"
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
        peers: PeerRanks | None = None,
    ) -> None:
        expect_list(stages)
        try:
            seed = None if seed is None else index(seed)
        except TypeError:
            raise ConfigError(f"Pipeline: seed={seed!r}; expected an integer, or None") from None
        expanded, origin = expand(stages), origin or Origin(os.uname().nodename)
        self._arguments = (stages, seed, origin, False, isolated, budget_mb, peers)
        self.stages = [stage for stage, _ in expanded]  # with the parts of composites in place of composites
        self.seed = seed
        self._run = Run(expanded, seed, origin)
        if isolated or peers is not None:
            from highway.children.peers import run_of  # imported here, because it depends on the engine and on same-host links

            self._run = run_of(stages, expanded, seed, origin, isolated, budget_mb, peers)
        self.hand_over = self._run.stages[0].context.hand_over = HandOver()
        last = self._run.stages[-1]
        self.ends_in_sink, self._last = last.shape == "sink", last.stage.name
        self._finalizer, self._consumer, self._stopped = weakref.finalize(self, self._run.abandon), Consumer(self._run), False
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
            path: The YAML file, or several files, which are merged by key. Later files override earlier files.
            role: The name of a role in the file. ``replica`` is the index of a process of this role, from 0.
            plugins: Modules whose classes the file is allowed to name as ``package.module:Class``.
            isolated: Whether the stages run in a separate process; see :class:`Pipeline`.
            on: How this process finds the other processes of the run. Empty: by the hosts in the file. ``"ray"``: in this Ray cluster,
                under the name in the file. ``"ray:NAME"``: under this name. ``"folder:PATH"``: in a shared folder. Not with ``isolated``.
            **variables: Values for the file's ``vars``. If a variable has the same name as an argument, use :func:`highway.topology.load`.

        Raises:
            ConfigError: the file, the role, a variable or ``on`` is wrong. The message names the mistake.
        """
        from highway.topology import load  # imported here, because it depends on the engine

        return load(path, variables, plugins).joined(on, isolated).pipeline(role, replica, isolated=isolated)

    def __highway__(self) -> Traits:
        """Return the traits (declarations) of this pipeline as the source of another pipeline."""
        return Traits(
            finishes=True,
            numbers_epochs=self.numbers_epochs,
            epochs=self.epochs,
            remake=None if any(stage.traits.remakes_in_run for stage in self.stages) else self.remake,
            ranks=self.ranks,
            stamped=self.stamped,
        )

    def __getitems__(self, numbers: Any) -> Any:
        """Raise TypeError: a pipeline is not a dataset, although torch's ``DataLoader`` would accept it as one."""
        raise TypeError(self.why_no_Dataset)

    if not TYPE_CHECKING:  # for a type checker, a pipeline has no __getitem__
        __getitem__ = __getitems__  # torch's DataLoader calls it with batch_size=None

    def dequeue(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the next item.

        Args:
            block: Whether to wait for the item. ``False`` is the same as ``timeout=0``.
            timeout: Maximum seconds to wait.

        Raises:
            EndOfStream: the source has ended, or the pipeline was stopped.
            TimeoutError: no item arrived in time. The pipeline continues.
            PipelineError: the pipeline ends in a sink.
            Exception: the error that a stage raised, with notes about its place. Every later call raises it again.
        """
        if not self._run.has_begun:
            self._run.note_stages()
        return self._dequeue(timeout if block else 0.0).item

    def _dequeue(self, timeout: float | None) -> Stamped:
        if self.ends_in_sink:
            script.forget(self._run)  # because the caller wants items, do not run the pipeline at the end of the script
            raise PipelineError(f"{self._last} is a sink, so this pipeline yields no items; call run()")
        if not self._consumer.has_ended or self._run.has_begun:  # else a state was loaded that was saved after the last item
            self._run.start()
            context = here()
            try:
                return self.hand_over.take(self._consumer.take, timeout, context.hand_over, context.is_stage)
            except (EndOfStream, Cancelled):
                pass  # the error below is raised outside of this block, so that it has no context
        cancel.check_cancelled()
        has_ended = self._consumer.has_ended = self._consumer.has_ended or not self._stopped
        self._run.join()
        self._run.raise_error()
        raise EndOfStream(self._run.why_over(has_ended))

    def __iter__(self) -> Iterator[Any]:
        """Yield the items of an epoch, or all items if the source does not number epochs.

        After the last epoch or ``stop()``, raise EndOfStream, because a loop without items would look like an empty epoch."""
        return (item for item, _ in self.one_epoch())

    def one_epoch(self) -> Iterator[Stamped]:
        """Yield the same items as ``__iter__``, each with its passport."""
        self._consumer.received(None)
        self._run.note_stages()  # here, because an adapter can take the items in its own stage
        items = iter(()) if self._is_over and self._consumer.has_empty_epoch else self.stamped()
        return self._consumer.one_epoch(items) if self.numbers_epochs else items

    def __len__(self) -> int:
        """Return the number of items of an epoch on this rank.

        After this call, a map that returns ``DROP`` ends the run with an error, unless the map declares drops: ``Stage(f, drops=True)``.

        Raises:
            TypeError: a stage does not know the number, or a map drops items or skips errors (``on_error="skip"``).
            Exception: the source cannot compute the number, such as an OSError for unreadable files.
        """
        return self._run.length()

    def __bool__(self) -> bool:
        return True

    def stamped(self) -> Iterator[Stamped]:
        """Yield all items with their passports. A pipeline that has this pipeline as its source calls this method.

        Raises:
            EndOfStream: there are no more epochs, or the pipeline was stopped.
        """
        if not self._is_over:
            return self._stamped()
        self._run.raise_error()
        raise EndOfStream(self._run.why_over(self._consumer.has_ended))

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
                    if drained:  # the outer pipeline must end, even if it has more sources
                        raise Cancelled from None
                    return
                except Cancelled:  # the outer pipeline was drained or stopped
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
        """Return the state of the loop, for :meth:`load_state_dict`. ``json`` can serialize this dict.

        Only items that the loop has received count, even if an adapter such as ``to_device`` has taken more items.

        Raises:
            PipelineError: the state cannot be saved, for example because a stage does not support states or the last stage is a sink.
        """
        if self.ends_in_sink:
            raise PipelineError(f"state_dict: {self._last} is a sink, so a loop has no position; remove it, and use a loop or dequeue()")
        return self._consumer.state()

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]], allow_changed: Collection[str] | None = ()) -> None:
        """Resume from a state of an earlier pipeline with the same stages. The first loop yields the remaining items of the epoch.

        The stages process some items again, because their states are recorded only every few items. The loop gets no item twice.

        Args:
            state: The return value of :meth:`state_dict`. To resume on another number of ranks: the list of the states of all ranks.
            allow_changed: Names of stages or parameters that can differ from the saved run, such as ``"Reader"``, ``"Reader.batch_size"``,
                ``"Reader.mixture"`` or ``"seed"``. A difference only logs a warning. ``None``: compare only the names of the stages.

        Raises:
            PipelineError: this pipeline has begun; ``state`` is not a state; the state was saved with different stages, parameters, data,
                seeds or ranks; or ``allow_changed`` names an unknown stage.
        """
        if self._run.has_begun:
            raise PipelineError("load_state_dict: the pipeline has begun; load the state before the first item")
        self._consumer.go_on(state, allow_changed)

    def ranks(self) -> Ranks:
        """Return the ranks on which the items depend (:class:`~highway.Traits`). A pipeline calls this method on its source."""
        source = self._run.stages[0]
        return ranks_of(source.stage.op, source.traits)

    def position(self) -> Any:
        """Return the position after the last item that an adapter has taken, for :meth:`received`."""
        return self._consumer.position()

    def received(self, position: Any, is_left: bool = False) -> None:
        """Make :meth:`state_dict` return the state at a position: after the last item that the loop has received.

        This method is for adapters that take items ahead of the loop. An adapter stores a :meth:`position` with each item, and calls this
        method when the loop receives the item. After the loop, ``None`` restores the pipeline's own state.

        Args:
            position: The position, or, if it is unknown, the :class:`~highway.PipelineError` that :meth:`state_dict` must raise.
            is_left: Whether the loop ended early. If the source can skip epochs, the state is then at the start of the next epoch.
        """
        if is_left and isinstance(position, Consumer):
            position = position.left()
        if position is not None or self.numbers_epochs:
            self._consumer.received(position)

    def remake(self, epoch: int, index: int, part: Any) -> Stamped:
        """Create an item of this pipeline again. A pipeline calls this method on its source."""
        return self._consumer.remake(part or [epoch, index])

    def run(self) -> None:
        """Run a pipeline that ends in a sink until its source ends or :meth:`stop` is called.

        Raises:
            PipelineError: the last stage is not a sink; iterate over the pipeline.
            Exception: the error that a stage raised.
        """
        self.start()
        self._run.background = False
        self._run.wait()

    def start(self) -> None:
        """Start a pipeline that ends in a sink, and return immediately. :meth:`run` waits for its end, and :meth:`stop` ends it.

        If the script ends before the pipeline, the pipeline is stopped. An error of a stage is logged, and raised by :meth:`run`.

        Raises:
            PipelineError: the last stage is not a sink; iterate over the pipeline.
        """
        if not self.ends_in_sink:
            raise PipelineError(f"{self._last} is not a sink; iterate over the pipeline, call dequeue(), or append a sink")
        self._run.background = True
        self._run.start()

    def drain(self) -> None:
        """End the source before its next item. The stages process the items that the source has yielded, and then the pipeline ends.

        Any thread can call this method. It returns immediately. If the source is waiting, :func:`highway.check_cancelled` raises
        ``Cancelled`` in it. A :class:`~highway.modules.ZMQSource` first yields the items that it has received.
        """
        if not self._consumer.has_ended:
            self._run.drain()

    def stop(self) -> None:
        """Cancel all stages and wait for their threads. A warning names a stage that does not end within 5 s.

        Any thread can call this method, more than once. In threads that wait for an item, :meth:`dequeue` raises ``EndOfStream``.
        """
        self._stopped = True
        self._run.stop()

    def stats(self) -> PipelineStats:
        """Return the statistics of each stage so far."""
        return replace(self._run.stats(), waited=self.hand_over.waited)

    def dashboard(self, address: str = "") -> ServedPage:
        """Serve a web page that shows this pipeline, and print the URL of the page. ``close()`` of the returned object ends the page.

        ``address`` is ``[ADDRESS:]PORT``. The default is any free port of 127.0.0.1. If other machines can reach the page, the URL includes
        a token. Raises ConfigError if the port is taken.
        """
        from highway.observe.dashboard.local import serve  # imported here, because only this page needs an HTTP server

        return serve({"pipeline": self}, address)

    def outcome(self) -> tuple[bool, BaseException | None]:
        """Return whether all stages have ended, and the error that ended them (or ``None``)."""
        return self._run.has_ended, self._run.error

    def __reduce__(self) -> tuple[Any, ...]:
        if self._run.has_begun or self._run.resumed_from is not None:
            raise PipelineError(f"{self} has begun, or has loaded a state; only a new pipeline can be sent to another process")
        return Pipeline, self._arguments

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return str(self._run)

    def _repr_html_(self) -> str:
        from highway.engine import notebook  # imported here, because only notebooks need it

        return notebook.paragraph(repr(self)) + self.stats()._repr_html_()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the ``repr()``, and make IPython keep this text in place of the pipeline, so that the pipeline's threads can end."""
        from highway.engine import notebook

        printer.text(repr(self))
        notebook.release(self)

    @property
    def epoch(self) -> int:
        """The epoch of the last item, from 0; after a loop, the next epoch."""
        return self._consumer.epoch

    @property
    def numbers_epochs(self) -> bool:
        """Whether each loop over the pipeline is one epoch."""
        return self._run.numbers_epochs

    @property
    def epochs(self) -> int | None:
        """Number of epochs; ``None`` if the number is unlimited or unknown."""
        return self._run.epochs()
