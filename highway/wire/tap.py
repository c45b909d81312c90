"""A tap: a second way out at the end of a link that sends, for viewers that come and go (``docs/howto/look.md``).

It is a publisher of its own, beside the link's socket. While nobody has subscribed, no message is given to it. A viewer that is slow misses
messages; the link never waits for it.
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

CHECK_VIEWERS_EVERY = 0.05  # seconds between two looks at whether somebody has subscribed
VIEWERS_MAY_STAY = 1.0  # seconds that viewers may take to go when the stream has ended
END_AGAIN_EVERY = 0.02  # seconds between two ends
LINGER = 0.5  # seconds that the last messages may take to leave
# As ``budget_mb``: two bytes, and so two messages of any size, may wait for each viewer. That is the high-water mark from the start, and
# stays it; setting it again while subscribers come and go crashes libzmq 4.3.5.
LEAST = 2e-6
NEVER = float("inf")
ANY_SIZE = 1e6  # as ``max_mb``: what the link takes the tap takes


def open_tap(link: Link) -> Tap | None:
    """Return the tap that the options of a link ask for; ``None`` if they ask for none, or its address is in use or cannot be had."""
    if not link.options.tap:
        return None
    try:
        return Tap(link)
    except LinkError as error:
        if error.errno == errno.EADDRINUSE:  # as when a process has joined, whose number another one has
            log.info("%s: viewers see what the process sends that was here first, and not what this one sends", link)
            return None
        log.info("%s: the tap is off, nobody can look into this end of the link: %s", link, error)
        return None


class Tap:
    """Where viewers see what goes over a link. Opens its socket at once; for the thread that sends.

    Args:
        link: The link, with its ``tap`` option.

    Attributes:
        sender: What its frames go through.
        bound: The address that was bound.
        is_watched: Whether somebody looked when it was last asked.

    Raises:
        LinkError: the address cannot be bound.
    """

    def __init__(self, link: Link) -> None:
        options = dataclasses.replace(link.options, tap="", budget_mb=LEAST, max_mb=ANY_SIZE, linger_ms=int(LINGER * 1000), peers="any")
        self._link = parse(f"zpub+{link.options.tap}", "send", defaults=options)
        self.sender = opener_of(self._link.transport).open_sender(self._link)
        self.bound = self.sender.bound
        self._due = 0.0  # when to look again, by ``time.monotonic()``; never if closed
        self.is_watched = False

    def offer(self, frames: Sequence[Frame]) -> None:
        """Show a message to those who look, without waiting for them; nobody may change its frames afterwards."""
        now = time.monotonic()
        if self.is_watched or now >= self._due:
            self._pass_on(frames, now)

    def finish(self, frames: Sequence[Frame]) -> None:
        """Tell the viewers that nothing more will come.

        They are told until they have gone, ``VIEWERS_MAY_STAY`` seconds at most, since who is behind misses messages, and may miss this.
        """
        deadline = time.monotonic() + VIEWERS_MAY_STAY
        while self._due < NEVER:
            self._pass_on(frames, self._due)
            if not self.is_watched or time.monotonic() > deadline:
                return
            cancel.wait(END_AGAIN_EVERY)

    def close(self, linger: float = LINGER) -> None:
        """Close the socket; what has not left may do so within ``linger`` seconds, in the background."""
        self._due, self.is_watched = NEVER, False
        self.sender.close(min(linger, LINGER))

    def _pass_on(self, frames: Sequence[Frame], now: float) -> None:
        try:
            if now >= self._due:
                self._due = now + CHECK_VIEWERS_EVERY
                peers = self.sender.peers()
                self.is_watched = peers is not None and peers.live > 0
                self.sender.unsent()  # forgets the messages that were dropped
            if self.is_watched:
                self.sender.send(frames, 0)
        except Exception as error:  # whatever it is, the link goes on
            log.warning("%s: the tap is closed: %s", self._link, error)
            self.close(0)
