"""A run whose items come from another process."""

from __future__ import annotations

import os
import threading
from typing import Any, NamedTuple

from highway.children.pickling import Failure
from highway.engine import script
from highway.engine.component import Shape
from highway.engine.stage import Origin, Passport, Stage, Stamped
from highway.engine.stats import Meter, StageStats
from highway.engine.threads import Run
from highway.errors import Cancelled, EndOfStream, LinkError


class Ended(NamedTuple):
    """The last message of the other process: the end of its run.

    Args:
        stages: The statistics of each stage; empty if the run did not begin.
        failure: The error that a stage raised.
    """

    stages: list[StageStats]
    failure: Failure | None


class ReceivingRun(Run):
    """A run whose stages work in another process. In this process, the stages have no threads and only hold descriptions."""

    def __init__(self, stages: list[tuple[Stage, Shape]], seed: int | None, origin: Origin, name: str) -> None:
        super().__init__(stages, seed, origin)
        self._origin, self._name = origin, name
        self._receiving = threading.RLock()  # held while a thread waits for the next message
        self._is_over = False  # no more messages come
        self._is_there = False  # the other process has begun to send items
        self._last: list[StageStats] = []

    def _receive(self, timeout: float | None) -> tuple[str, Any] | None:
        """Return the kind and the value of the next message; ``None`` if no message can come."""
        raise NotImplementedError

    def _lost(self, error: LinkError) -> BaseException:
        """Return the error that explains why no message can be received."""
        raise NotImplementedError

    def _note_begin(self, value: Any) -> None:
        """Handle the message before the first item."""
        raise NotImplementedError

    def _get(self, timeout: float | None, meter: Meter | None = None) -> Stamped:
        return self._received(timeout) if meter is None else meter.starve(self._received, timeout)

    def _received(self, timeout: float | None) -> Stamped:
        with self._receiving:
            while not self._is_over:
                try:
                    message = self._receive(timeout)
                except TimeoutError:
                    raise TimeoutError from None
                except LinkError as error:
                    self._end(None if self.stopped else self._lost(error))
                    break
                except Exception as error:  # an error of the user's class, while an item is unpickled
                    error.add_note(f"{self._name}: an item from another process cannot be created again in this process")
                    self._end(error)
                    break
                if message is None:
                    break
                kind, value = message
                if kind == "item":
                    item, (epoch, index, origin, *rest) = value
                    return Stamped(item, Passport(epoch, index, origin or self._origin, *rest))
                if kind == "begun":
                    self._is_there = True
                    self._note_begin(value)
                elif kind == "renumbered":
                    for number in value:
                        self.stages[number].has_renumbered = True
                else:
                    self._note_end(value)
        raise Cancelled

    def _note_stop(self) -> None:
        """Record that the run was stopped, unless it has ended."""
        script.forget(self)
        with self._lock:
            self.stopped = self.stopped or not self._is_over
            self._note_time()

    def abandon(self) -> None:
        if os.getpid() == self._pid:
            self.stop()

    def _note_end(self, ended: Ended) -> None:
        self._last = ended.stages
        self._end(None if ended.failure is None else ended.failure.error())
        if ended.failure is None:
            raise EndOfStream("the stream has ended")

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            self._is_over = True
            self.error = self.error or error
            self._note_time()
