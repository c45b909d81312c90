"""Several processes of one host get the same items. The first process runs the stages, and passes each item on in shared memory.

The first process passes an item on when its own loop takes the item. It also passes on markers, which hold the states of the stages
(:mod:`highway.engine.resume`). Therefore, all processes return equal states after the same number of items.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn

from highway.children.isolated import IsolatedRun
from highway.children.pickling import Failure, pack, pack_arrays, unpack
from highway.children.receiving import Ended, ReceivingRun
from highway.engine.cancel import check_cancelled
from highway.engine.component import Shape
from highway.engine.context import here
from highway.engine.resume import Marker
from highway.engine.source import ranks_of
from highway.engine.stage import Origin, Stage, Stamped
from highway.engine.stats import Meter
from highway.engine.threads import INTERRUPT_POLL, Run
from highway.errors import Cancelled, ConfigError, EndOfStream, LinkError, PipelineError, RemoteError
from highway.process.ranks import PeerRanks
from highway.process.readable import readable
from highway.wire.address import peer_process
from highway.wire.transports.protocol import deadline_of
from highway.wire.transports.shm import ShmReceiver, ShmSender

NAME: Final = "Pipeline(peers=...)"
MOST: Final = 16  # maximum number of items in shared memory for each peer, including the items that its loop uses
MEET: Final = 300.0  # maximum seconds to wait for the other processes before the first item
RETRY: Final = 0.05  # seconds between two attempts to connect


class Begun(NamedTuple):
    """The first message to a peer.

    Args:
        refusal: Why this run refuses to return states; empty if it returns states.
        run: The names and values of the properties that must be the same in all processes.
    """

    refusal: str
    run: dict[str, Any]


def run_of(
    given: Sequence[Any],
    stages: list[tuple[Stage, Shape]],
    seed: int | None,
    origin: Origin,
    isolated: bool,
    budget_mb: float,
    peers: PeerRanks | None,
) -> Run:
    """Return the run of a pipeline with ``isolated=True`` or ``peers=``.

    Raises:
        ConfigError: ``budget_mb`` is not above 0, or both ``isolated`` and ``peers`` are given.
        PipelineError: a stage cannot be pickled, or the pipeline has peers and ends in a sink.
    """
    if peers is None:
        return IsolatedRun(given, stages, seed, origin, budget_mb)
    if isolated:
        raise ConfigError("Pipeline: isolated=True and peers= cannot be combined; remove one of them")
    if not budget_mb > 0:
        raise ConfigError(f"{NAME}: budget_mb={budget_mb}; expected more than 0 megabytes of shared memory, such as 1024")
    stage, shape = stages[-1]
    if shape == "sink":
        raise PipelineError(f"{NAME}: {stage.name} is a sink, so the pipeline yields no items for peers; remove peers=")
    if len(peers.ranks) == 1:
        return Run(stages, seed, origin)
    return (_FirstRun if peers.rank == peers.ranks[0] else _PeerRun)(stages, seed, origin, budget_mb, peers)


class _FirstRun(Run):
    """The run of the first process, which runs the stages for itself and for its peers."""

    def __init__(self, stages: list[tuple[Stage, Shape]], seed: int | None, origin: Origin, budget_mb: float, peers: PeerRanks) -> None:
        super().__init__(stages, seed, origin)
        self._budget_mb, self._peers = budget_mb, peers
        self._has_met = False  # whether all peers have connected
        self._listener: socket.socket | None = None
        self._senders: list[ShmSender] = []
        self._met: Marker | None = None  # the last marker
        self._has_begun = False
        self._told: list[int] = []  # the stages that have renumbered items, as reported to the peers
        self._passing = threading.RLock()  # held while messages are sent
        self._leaves = False  # whether this process takes no more items

    def _get(self, timeout: float | None, meter: Meter | None = None) -> Stamped:
        with self._passing:
            self._meet(timeout)
            try:
                stamped = super()._get(timeout, meter)
            except EndOfStream:
                self._finish("end", Ended([], None))
                raise
            except Cancelled:
                if self.error is not None:
                    self._finish("end", Ended([], Failure.of(self.error)))
                raise
            self._pass_on(stamped)
            return stamped

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listener.bind(_address(self._peers))
            listener.listen(len(self._peers.ranks))
        except OSError as error:
            listener.close()
            self._fail_with(
                LinkError(f"{NAME}: rank {self._peers.rank} cannot listen for its peers: {error}; check that this job does not run twice")
            )
        return listener

    def _meet(self, timeout: float | None) -> None:
        """Wait until all peers have connected."""
        wanted, until = len(self._peers.ranks) - 1, deadline_of(timeout)
        limit = time.monotonic() + MEET
        while not self._has_met:
            self._expect_not_stopped()
            self._listener = self._listener or self._listen()
            if readable([self._listener], min(INTERRUPT_POLL, max(0.0, until - time.monotonic()))):
                sock, _ = self._listener.accept()
                if peer_process(sock)[1] != os.getuid():
                    sock.close()
                    continue
                sender = ShmSender(NAME, self._budget_mb / wanted, MOST, warns=False, writable=True)
                sender.connections.adopt(sock)
                self._senders.append(sender)
            if len(self._senders) == wanted:
                self._has_met = True
                self._listener.close()
            elif time.monotonic() > limit:
                self._fail_with(
                    LinkError(
                        f"{NAME}: rank {self._peers.rank} reads for ranks {self._peers.ranks[1:]}, but only {len(self._senders)} of them "
                        f"have requested items within {MEET:g} s; create the same pipelines, in the same order, on all of these ranks"
                    )
                )
            elif time.monotonic() >= until:
                raise TimeoutError(f"{len(self._senders)} of {wanted} peers have connected")

    def _pass_on(self, stamped: Stamped) -> None:
        item, passport = stamped
        if not self._has_begun:
            self._has_begun = True
            self._send(pack(("begun", Begun(self.stages[0].context.refusal, _description(self)))))
        if (renumbered := self.renumbered) != self._told:
            self._told = renumbered
            self._send(pack(("renumbered", renumbered)))
        if type(item) is Marker:
            met = [self._met, *item.dropped]
            errors = {running.number: sum(running.left_out.behind[marker] for marker in met) for running in self.stages}
            self._met = item
            self._send(pack(("errors", errors)))
        try:
            frames = pack_arrays(("item", (item, tuple(passport))))
        except Exception as error:  # pickle and __reduce__ can raise any error
            self._fail_with(
                PipelineError(
                    f"{NAME}: an item of {self.stages[-1].stage.name} cannot be sent to another process: {error}; yield arrays, numbers "
                    "and text, or remove peers="
                )
            )
        self._send(frames)

    def _send(self, frames: Sequence[Any]) -> None:
        """Send a message to each peer. Forget peers that are gone."""
        for sender in list(self._senders):
            while True:
                self._expect_not_stopped()
                try:
                    sender.send(frames, INTERRUPT_POLL)
                    break
                except TimeoutError:
                    continue
                except LinkError:
                    if not sender.connections.is_over:
                        raise
                    self._senders.remove(sender)
                    sender.close()
                    break

    def _expect_not_stopped(self) -> None:
        check_cancelled()
        if self._leaves:
            raise Cancelled

    def _fail_with(self, error: Exception) -> NoReturn:
        """End the run with an error, in all processes."""
        self.fail(error)
        self._finish("end", Ended([], Failure.of(error)))
        raise Cancelled

    def _finish(self, kind: str, value: Any) -> None:
        """Send the last message, and close the links."""
        if self._senders:
            with contextlib.suppress(Cancelled):
                self._send(pack((kind, value)))
        self._close()

    def _close(self) -> None:
        for sender in self._senders:
            sender.close()
        self._senders.clear()
        if self._listener is not None:
            self._listener.close()

    def stop(self) -> None:
        self._leaves = True
        super().stop()
        if os.getpid() == self._pid:
            with self._passing:
                for sender in self._senders:
                    with contextlib.suppress(TimeoutError, LinkError):
                        sender.send(pack(("stopped", None)), INTERRUPT_POLL)
                self._close()


class _PeerRun(ReceivingRun):
    """The run of a process that gets its items from the first process."""

    def __init__(self, stages: list[tuple[Stage, Shape]], seed: int | None, origin: Origin, budget_mb: float, peers: PeerRanks) -> None:
        super().__init__(stages, seed, origin, NAME)
        self._peers = peers
        self._receiver: ShmReceiver | None = None
        self._sock: socket.socket | None = None
        self._waits_since = 0.0
        self._reader = f"rank {peers.ranks[0]}"
        self._met: Marker | None = None  # the last marker

    def spawn(self) -> None:
        """Start no thread, because the stages run in another process."""

    def _receive(self, timeout: float | None) -> tuple[str, Any] | None:
        if self._receiver is None:
            self._connect(timeout)
        assert self._receiver is not None
        while True:
            kind, value = unpack(self._receiver.recv(timeout))
            if kind == "errors":
                for number, errors in value.items():
                    self.stages[number].left_out.behind[self._met] += errors
            elif kind == "stopped":
                raise LinkError("it was stopped")
            else:
                break
        if kind == "item" and type(value[0]) is Marker:
            self._met = value[0]
        return kind, value

    def _connect(self, timeout: float | None) -> None:
        """Connect to the first process, which runs the stages."""
        until = deadline_of(timeout)
        self._waits_since = self._waits_since or time.monotonic()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            while sock.connect_ex(_address(self._peers)):
                check_cancelled()
                if self.stopped:
                    raise Cancelled
                if time.monotonic() > self._waits_since + MEET:
                    raise LinkError(f"it has not started within {MEET:g} s")
                if time.monotonic() >= until:
                    raise TimeoutError
                with here().starved():
                    here().wait(RETRY)
            process, user = peer_process(sock)
            self._reader = f"process {process} ({self._reader})"
            if user != os.getuid():
                raise LinkError(f"it belongs to user {user}, but this process belongs to user {os.getuid()}")
            self._receiver, self._sock = ShmReceiver(NAME, writable=True), sock
            self._receiver.pair(sock)
        except BaseException:
            sock.close()
            raise

    def _lost(self, error: LinkError) -> BaseException:
        gone = self._receiver is not None and self._receiver.connections.is_over
        why = "this rank has ended without an error message; look at its output and the log of the kernel (dmesg)" if gone else str(error)
        return RemoteError(f"{NAME}: rank {self._peers.rank} gets its items from {self._reader}, and {why}")

    def _note_begin(self, value: Begun) -> None:
        self.stages[0].context.refusal = value.refusal
        for what, mine in _description(self).items():
            if (theirs := value.run[what]) != mine:
                error = PipelineError(
                    f"{NAME}: {what} is {mine} on rank {self._peers.rank}, and {theirs} on {self._reader}, which reads for it; create the "
                    "same pipeline on all peers, and load the state of the same step"
                )
                self._end(error)

    def stop(self) -> None:
        self._note_stop()
        if self._sock is not None and os.getpid() == self._pid:
            with contextlib.suppress(OSError):  # the other process is gone
                self._sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for an item
            with self._receiving:
                self._is_over = True
                if self._receiver is not None:
                    self._receiver.close()


def _description(run: Run) -> dict[str, Any]:
    """Return the properties of a run that must be the same in all processes."""
    source, state = run.stages[0], run.resumed_from
    return {
        "the seed": run.seed,
        "the list of stages": [running.stage.name for running in run.stages],
        "[rank, world_size] of the reader": ranks_of(source.stage.op, source.traits),
        "the last item before the run resumed": None if state is None else [state["epoch"], *(state["last"] or ())],
    }


def _address(peers: PeerRanks) -> str:
    return f"\0highway-peers/{os.getuid()}/{peers.name}"
