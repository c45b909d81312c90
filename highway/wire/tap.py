"""A tap: a second output at the sending end of a link, for viewers (``docs/howto/look.md``).

A *viewer* is a program that reads copies of the messages, such as ``highway show``. Viewers can connect and disconnect at any time. The tap
publishes on its own socket, in addition to the link's socket. While no viewer has subscribed, the tap gets no messages. A slow viewer
misses messages, because the link never waits for viewers.
"""

from __future__ import annotations

import dataclasses
import errno
import logging
import time
from collections.abc import Sequence

from highway.engine import cancel
from highway.errors import LinkError
from highway.wire.transports.opening import opener_of
from highway.wire.transports.protocol import Frame
from highway.wire.url import Link, parse

log = logging.getLogger("highway")

CHECK_VIEWERS_EVERY = 0.05  # seconds between two checks for subscribers
VIEWERS_MAY_STAY = 1.0  # maximum seconds to wait for viewers to disconnect after the end message
END_AGAIN_EVERY = 0.02  # seconds between two end messages
LINGER = 0.5  # maximum seconds for which unsent messages are still sent after closing
# The ``budget_mb`` of the tap. Two messages can always wait, so this small budget means exactly two messages for each viewer. ZeroMQ's
# high-water mark (the maximum number of waiting messages) then never changes. Setting the mark while subscribers connect or disconnect
# crashes libzmq 4.3.5.
LEAST = 2e-6
NEVER = float("inf")
ANY_SIZE = 1e6  # ``max_mb`` of the tap: the tap sends every frame that the link sends


def open_tap(link: Link) -> Tap | None:
    """Open the tap of a link. Return ``None`` if the link has no option ``tap``, or if the address cannot be bound."""
    if not link.options.tap:
        return None
    try:
        return Tap(link)
    except LinkError as error:
        if error.errno == errno.EADDRINUSE:  # for example, two processes have joined with the same number
            log.info(
                "%s: another process already has the tap of this link, so viewers see the messages of that process, not of this process",
                link,
            )
            return None
        log.info("%s: the tap cannot be opened, so no viewer can connect to this end of the link: %s", link, error)
        return None


class Tap:
    """Sends the messages of a link to viewers. The constructor opens the socket. Use the tap only on the sending thread.

    Args:
        link: A link with the option ``tap``.

    Attributes:
        sender: The sending end of the transport, which sends the frames of the tap.
        bound: The bound address.
        is_watched: Whether there were viewers at the last check.

    Raises:
        LinkError: the address cannot be bound.
    """

    def __init__(self, link: Link) -> None:
        options = dataclasses.replace(link.options, tap="", budget_mb=LEAST, max_mb=ANY_SIZE, linger_ms=int(LINGER * 1000), peers="any")
        self._link = parse(f"zpub+{link.options.tap}", "send", defaults=options)
        self.sender = opener_of(self._link.transport).open_sender(self._link)
        self.bound = self.sender.bound
        self._due = 0.0  # time of the next check, by ``time.monotonic()``; infinity if closed
        self.is_watched = False

    def offer(self, frames: Sequence[Frame]) -> None:
        """Send a message to the viewers, without waiting for them. Do not change the frames after this call."""
        now = time.monotonic()
        if self.is_watched or now >= self._due:
            self._pass_on(frames, now)

    def finish(self, frames: Sequence[Frame]) -> None:
        """Send the end message to the viewers.

        Slow viewers miss messages. Therefore the end message is repeated until all viewers have disconnected, for at most
        ``VIEWERS_MAY_STAY`` seconds.
        """
        deadline = time.monotonic() + VIEWERS_MAY_STAY
        while self._due < NEVER:
            self._pass_on(frames, self._due)
            if not self.is_watched or time.monotonic() > deadline:
                return
            cancel.wait(END_AGAIN_EVERY)

    def close(self, linger: float = LINGER) -> None:
        """Close the socket. Unsent messages are still sent in the background for ``linger`` seconds, but at most for ``LINGER`` seconds."""
        self._due, self.is_watched = NEVER, False
        self.sender.close(min(linger, LINGER))

    def _pass_on(self, frames: Sequence[Frame], now: float) -> None:
        try:
            if now >= self._due:
                self._due = now + CHECK_VIEWERS_EVERY
                peers = self.sender.peers()
                self.is_watched = peers is not None and peers.live > 0
                self.sender.unsent()  # releases the dropped messages
            if self.is_watched:
                self.sender.send(frames, 0)
        except Exception as error:  # the link must continue after any error of the tap
            log.warning("%s: the tap is closed: %s", self._link, error)
            self.close(0)
