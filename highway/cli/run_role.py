"""Run a role in this process, for a launcher or a user.

The *launcher* is the process that starts and watches the processes of a run, such as ``highway run``. A *role* is a pipeline of a topology
file.
"""

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
    """Gets the state of the role that this process runs."""

    def progress(self, stats: PipelineStats) -> None:
        """Receive the statistics of the role."""

    def draining(self) -> None:
        """Note that the role was asked to drain: to end without losing items."""

    def done(self) -> None:
        """Note that the role has ended normally and delivered all its items."""


def run_role(spec: ProcessSpec, registry: Registry, drain_timeout: float, listener: Listener) -> int:
    """Run a role in this process.

    Args:
        spec: The process to run.
        registry: The registry that builds the components.
        drain_timeout: Maximum seconds for items in flight to arrive after a request to end.
        listener: An object that receives the state of the role.

    Returns:
        The exit code: 0, or 143 if the process was asked to end.

    Raises:
        RunError: a stage failed. The cause is the error of the stage.
        ConfigError: the stages cannot be built.
        StuckError: a stage did not end.
    """
    pipeline = spec.pipeline(registry)
    gc.freeze()  # imported objects stay in memory, so the garbage collector need not scan them
    with ControlServer(spec.key, spec.replica, listener.draining) as control:
        if control.number not in (None, spec.replica):
            name, number = spec.key.role, control.number
            log.info(
                "another process of %s already runs here with the number %d; use number %d to drain this process with `highway drain`",
                name,
                spec.replica,
                number,
            )
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
