"""Measure how long a ``Trainer`` of Lightning waits for data. Requires ``pip install lightning``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from highway.errors import ConfigError

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise ConfigError("highway.adapters.lightning needs lightning 2.2 or later: pip install lightning") from error

FETCH = "[_TrainingEpochLoop].train_dataloader_next"  # the name under which Lightning's profilers measure the time to read a batch


class DataWait(Callback):
    """A callback that logs how long each training step waits for its batch. It works with any loader.

    ::

        trainer = Trainer(callbacks=[DataWait()])

    ``data_wait_seconds_step`` is the waiting time of one step. ``data_wait_seconds_epoch`` is the mean waiting time of the steps in an
    epoch. ``data_wait_share``, from 0 to 1, is the fraction of time that the steps of the epoch have waited so far. The time of validation,
    checkpoints and other callbacks is not included. Each rank measures its own steps. Loggers show the values of rank 0.

    Args:
        clock: A function that returns the current time in seconds.

    >>> from lightning.pytorch import Trainer
    >>> trainer = Trainer(callbacks=[DataWait()], logger=False, accelerator="cpu")
    >>> any(isinstance(callback, DataWait) for callback in trainer.callbacks)
    True
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = self._ended = 0.0
        self._step_wait = self._epoch_wait = self._epoch_work = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        profiler = trainer.profiler
        start, stop = profiler.start, profiler.stop

        def started(action: str) -> None:
            start(action)
            if action == FETCH:
                self._began = self._clock()

        def stopped(action: str) -> None:
            if action == FETCH:
                self._ended = self._clock()
                self._step_wait += self._ended - self._began
            stop(action)

        profiler.start, profiler.stop = started, stopped

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._step_wait = self._epoch_wait = self._epoch_work = 0.0

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._epoch_wait += self._step_wait
        self._epoch_work += self._clock() - self._ended
        share = self._epoch_wait / max(self._epoch_wait + self._epoch_work, 1e-9)
        pl_module.log("data_wait_seconds", self._step_wait, on_step=True, on_epoch=True, batch_size=1)
        pl_module.log("data_wait_share", share, on_step=True, on_epoch=False, batch_size=1)
        self._step_wait = 0.0

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._restore(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._restore(trainer)

    def _restore(self, trainer: Trainer) -> None:
        for name in ("start", "stop"):
            vars(trainer.profiler).pop(name, None)
