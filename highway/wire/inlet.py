"""The end of a link that receives: items out of a socket, with gaps and repetitions counted, until all senders have ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from highway.cancel import starved
from highway.errors import EndOfStream, FrameError
from highway.stage import Origin
from highway.wire import codec, shm
from highway.wire.codec import Message
from highway.wire.envelope import Envelope
from highway.wire.socket import ZMQReceiver
from highway.wire.transport import Peers, Receiver
from highway.wire.url import Link

log = logging.getLogger("highway")

RECEIVERS: dict[str, Callable[[Link], Receiver]] = {**dict.fromkeys(("tcp", "ipc", "inproc"), ZMQReceiver), "shm": shm.open_receiver}
"""Transport -> what opens the end that receives."""

GLANCE = 0.1  # seconds between two looks at who is connected
TELL_AFTER = 10.0  # seconds without any sender, when too few have ended, before it is said
MAX_SENDERS = 10_000  # remembered at once


@dataclass
class _Numbers:
    """What has come from one sender."""

    label: str
    next: int
    warned: bool = False


class Inlet:
    """The end that receives. Opens its socket at once; use it in a ``with`` block, on one thread.

    Args:
        link: Where from.
        counters: Where to count ``messages``, ``bytes``, ``gaps``, ``duplicates``, ``late``, ``malformed``, ``senders`` and ``ended``.

    Raises:
        ConfigError: there is no such codec.
        LinkError: the socket cannot be bound or connected.
    """

    def __init__(self, link: Link, counters: dict[str, float]) -> None:
        self._link, self.counters = link, counters
        self._codec = codec.named(link.options.codec)
        self._numbers: dict[bytes, _Numbers] = {}
        self._ended: set[bytes] = set()
        self._over = False
        self._alone_since = float("inf")
        for name in ("messages", "bytes", "gaps", "duplicates", "late", "malformed"):
            counters.setdefault(name, 0)
        self._receiver = RECEIVERS[link.transport](link)
        self.bound = self._receiver.bound

    def recv(self, timeout: float | None = None) -> Message:
        """Wait for the next item.

        Raises:
            EndOfStream: every sender has ended; also on every later call.
            TimeoutError: nothing came within ``timeout`` seconds.
            FrameError: what came is no message; the next call goes on with the next one.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._over:
            frames = self._frames(deadline)
            if frames is None:
                break
            try:
                message = self._codec.decode(frames)
            except FrameError as error:
                self.counters["malformed"] += 1
                raise FrameError(f"{self._link}: message {self.counters['messages']:.0f}: {error}") from None
            if message.envelope is None or not message.envelope.sender:
                return message
            self._count(message.envelope)
            if not message.envelope.end:
                return message
            self._ended.add(message.envelope.sender)
            self._alone_since = time.monotonic()
            self._over = self._enough and not self._link.bind
        self._over = True
        raise EndOfStream(f"{self._link}: the stream has ended")

    def recv_raw(self, timeout: float | None = None) -> list[Any]:
        """Wait for the next message and return its frames as they came, ends included. Raises as :meth:`recv`, but no ``FrameError``."""
        frames = self._frames(None if timeout is None else time.monotonic() + timeout)
        if frames is None:
            raise EndOfStream(f"{self._link}: the stream has ended")
        return frames

    def _frames(self, deadline: float | None) -> list[Any] | None:
        """Wait for the frames of the next message, or return ``None`` if all senders have gone after they had ended.

        Raises:
            TimeoutError: nothing came before ``deadline`` (of ``time.monotonic()``).
        """
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            glance = self._ended and self._link.bind
            try:
                with starved():
                    frames = self._receiver.recv(min(GLANCE, GLANCE if left is None else left) if glance else left)
            except TimeoutError:
                if glance and self._have_all_ended():
                    return None
                if not glance or (left is not None and left <= GLANCE):
                    raise
                continue
            if self._link.topic and len(frames) % 2 != self._codec.single:
                frames = frames[1:]
            self.counters["messages"] += 1
            self.counters["bytes"] += sum([memoryview(frame).nbytes for frame in frames])
            return frames

    def refuse(self) -> None:
        """Have the senders turn to other receivers, where the transport can tell them; what was sent before can still be received."""
        self._receiver.refuse()

    def close(self) -> None:
        """Close the socket."""
        self._receiver.close(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def _enough(self) -> bool:
        """Whether so many senders have ended that this may be the end of the stream."""
        return len(self._ended) >= (self._link.options.senders or (1 if self._link.bind else len(self._link.locations)))

    def _have_all_ended(self) -> bool:
        """Say whether every connection that is open belongs to a sender that has ended; asked when nothing is left to be read.

        A connection that was closed is taken for that of a sender that had ended, which can make this wait, but never end too early.
        """
        peers = self._receiver.peers()
        if peers is None:
            return self._enough
        if not self._enough:
            self._tell_who_is_missing(peers)
            return False
        closed = peers.seen - peers.live
        if peers.live > max(0, len(self._ended) - closed):
            return False
        if peers.seen > len(self._ended):
            log.warning("%s: %d of %d senders went away without an end", self._link, peers.seen - len(self._ended), peers.seen)
        return True

    def _tell_who_is_missing(self, peers: Peers) -> None:
        now = time.monotonic()
        if peers.live:
            self._alone_since = now
        elif now - self._alone_since > TELL_AFTER:
            self._alone_since = float("inf")
            log.warning(
                "%s: %d of %d senders have ended, and no other is connected; waiting for one",
                self._link,
                len(self._ended),
                self._link.options.senders,
            )

    def _count(self, envelope: Envelope) -> None:
        """Find gaps and repetitions in the numbers of a sender."""
        # Who pulls gets a share of what is dealt out. A subscriber gets all, also at the tap of a link that deals out.
        is_share = envelope.shared and (self._link.kind == "pull" or envelope.end)
        known = self._numbers.get(envelope.sender)
        if known is None:
            if len(self._numbers) >= MAX_SENDERS:
                del self._numbers[next(iter(self._numbers))]
            known = self._numbers[envelope.sender] = _Numbers(_label(envelope), envelope.number)
            self.counters["senders"] = self.counters.get("senders", 0) + 1
            if not is_share:
                self._add("late", known, envelope.number)
        missing = envelope.number - known.next
        if missing > 0 and not is_share:
            self._add("gaps", known, missing)
        if missing < 0 and not envelope.end:
            self._add("duplicates", known, 1)
        odd = missing < 0 or (missing > 0 and not is_share)
        if odd and not known.warned and not envelope.end:
            known.warned = True
            what = f"{missing} messages are missing before" if missing > 0 else "it has come before:"
            log.warning("%s: from %s: %s number %d; such are counted from now on", self._link, known.label, what, envelope.number)
        known.next = max(known.next, envelope.number + (not envelope.end))

    def _add(self, name: str, known: _Numbers, count: int) -> None:
        self.counters[name] += count
        if count:
            self.counters[f"{name} from {known.label}"] = self.counters.get(f"{name} from {known.label}", 0) + count


def _label(envelope: Envelope) -> str:
    origin = envelope.passport.origin if envelope.passport else Origin()
    return "/".join(filter(None, [origin.host, origin.role, envelope.sender.hex()[:8]]))
