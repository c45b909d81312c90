"""Measure how long a ``Trainer`` of Hugging Face transformers waits for data. Requires ``pip install transformers accelerate``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from highway.errors import ConfigError

try:
    from transformers import Trainer, TrainerCallback
except ImportError as error:
    raise ConfigError("highway.adapters.transformers needs transformers: pip install transformers accelerate") from error


class DataWaitCallback(TrainerCallback):
    """A callback that logs how long the training steps wait for their batches. It works with any loader.

    ::

        trainer = Trainer(...)
        trainer.add_callback(DataWaitCallback(trainer))

    Whenever the trainer logs its loss, this callback logs two values for the steps since its last record. ``data_wait_seconds`` is the mean
    waiting time of a step. ``data_wait_share``, from 0 to 1, is the fraction of time that the steps have waited. The values are in
    ``state.log_history`` and in all integrations. If a step accumulates the gradients of several batches, its waiting time includes all of
    them. The time of evaluation, saving and logging is not included. Each process measures its own steps. Integrations show the values of
    the first process.

    Args:
        trainer: The trainer that logs.
        clock: A function that returns the current time in seconds.

    >>> import torch
    >>> from transformers import Trainer, TrainingArguments
    >>> trainer = Trainer(torch.nn.Linear(1, 1), TrainingArguments("out", report_to="none", use_cpu=True))
    >>> trainer.add_callback(DataWaitCallback(trainer))
    >>> "DataWaitCallback" in trainer.callback_handler.callback_list
    True
    """

    def __init__(self, trainer: Trainer, clock: Callable[[], float] = time.perf_counter) -> None:
        self._trainer, self._clock = trainer, clock
        self._since = self._wait = self._work = 0.0
        self._steps = 0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._wait += self._lap()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._work += self._lap()
        self._steps += 1

    def on_log(self, *_: Any, logs: Mapping[str, float], **__: Any) -> None:
        if "loss" in logs and self._steps:
            share = self._wait / max(self._wait + self._work, 1e-9)
            record = {"data_wait_seconds": self._wait / self._steps, "data_wait_share": share}
            self._wait = self._work = 0.0
            self._steps = 0
            self._trainer.log(record)
        self._lap()

    def _other(self, *_: Any, **__: Any) -> None:
        """Do not measure the time of other work, such as an evaluation."""
        self._lap()

    on_epoch_begin = on_evaluate = on_save = _other

    def _lap(self) -> float:
        """Return the seconds since the last call."""
        since, self._since = self._since, self._clock()
        return self._since - since
