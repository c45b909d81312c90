"""Runs a role in this process, for who has started it: a launcher, or the user."""

from __future__ import annotations

import gc
import logging
from typing import Protocol

from highway.cli.command import RunError
from highway.engine.stats import PipelineStats
from highway.errors import StuckError
from highway.run import role
from highway.run.control import ControlServer
from highway.run.role import Terminated
from highway.topology.process_spec import ProcessSpec
from highway.topology.registry import Registry

log = logging.getLogger("highway")


class Listener(Protocol):
    """Who hears how the role of this process goes."""

    def progress(self, stats: PipelineStats) -> None:
        """Take in its figures."""

    def draining(self) -> None:
        """Take note that it was asked to end."""

    def done(self) -> None:
        """Take note that it has ended as it should, and has delivered all that it had."""


def run_role(spec: ProcessSpec, registry: Registry, drain_timeout: float, listener: Listener) -> int:
    """Run a role in this process.

    Args:
        spec: What to run.
        registry: Builds its components.
        drain_timeout: Seconds that what is in flight may take to arrive when it is asked to end.
        listener: Hears how it goes.

    Returns:
        The exit code: 0, or 143 if it was asked to end.

    Raises:
        RunError: a stage failed; the cause is what it raised.
        ConfigError: the stages cannot be built.
        StuckError: a stage did not end.
    """
    pipeline = spec.pipeline(registry)
    gc.freeze()  # what was imported stays: the collector need not look at it again, at the end least of all
    with ControlServer(spec.key, spec.replica, listener.draining) as control:
        if control.number not in (None, spec.replica):
            name, number = spec.key.role, control.number
            log.info("another %s runs here as number %d; `highway drain` calls this one number %d", name, spec.replica, number)
        code, complete = 0, True
        try:
            role.run(pipeline, listener.progress, drain_timeout=drain_timeout, control=control)
        except Terminated as terminated:
            code, complete = 143, terminated.drained
        except StuckError:
            raise
        except Exception as error:
            raise RunError from error
        control.answer(pipeline.stats().items, complete)
        if complete:
            listener.done()
    return code
