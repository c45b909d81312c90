"""What the servers share: their options, and how they run and say how fast."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from highway.engine import Pipeline
from highway.modules import Augmentations, ZMQSink
from highway.stats import PipelineStats
from highway.tools import command
from highway.tools.feed import SERVER
from highway.topology.process import run as run_pipeline
from highway.transforms import Normalize

SHAPE = (224, 224)  # height and width of the images that are served
_TICK = 0.1  # seconds between two looks at the pipeline


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of both servers."""
    parser.add_argument("urls", nargs="*", default=[f"zpub://{SERVER}"], metavar="URL", help=f"where to; default: zpub://{SERVER}")
    parser.add_argument("-b", "--batch-size", type=command.positive, default=32, metavar="N", help="images in a batch; default: 32")
    parser.add_argument("-r", "--report", type=command.seconds, default=10.0, metavar="S", help="seconds between two lines; default: 10")
    parser.add_argument("-B", "--benchmark", action="store_true", help="measure how fast batches are made, without sending them")
    parser.add_argument("--epochs", type=command.positive, metavar="N", help="end after N passes over the images; default: go on for ever")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="what all that is random derives from; default: 0")


def threads(*wishes: int) -> int | None:
    """Return how many threads decode; tensorcom's options for processes mean threads here, and 0 means one for each core."""
    return max(wishes) or None


def serve(stages: Sequence[Any], options: argparse.Namespace, normalize: bool = False) -> int:
    """Run a server: stages that give batches ``(uint8 (B, 224, 224, 3), int32 (B,))``, which are sent to ``options.urls``.

    Args:
        stages: Where the batches come from.
        options: Those of :func:`add_arguments`.
        normalize: Whether to send float32 images with ImageNet's mean 0 and deviation 1.
    """
    stages = [*stages, Augmentations([Normalize()])] if normalize else list(stages)
    sink = None if options.benchmark else ZMQSink(options.urls)
    sample = SHAPE[0] * SHAPE[1] * 3 * (4 if normalize else 1) + 4
    report = Report(options.report, sample, sink)
    pipeline = Pipeline(stages if sink is None else [*stages, sink], seed=options.seed)
    run_pipeline(pipeline, report, _TICK)
    print("the epochs have ended", flush=True)
    return command.DONE


class Report:
    """Prints where a server is bound, then its rate now and then, and with ``--epochs`` how far it is.

    Args:
        interval: Seconds between two lines.
        sample_nbytes: Bytes of one image with its label.
        sink: What sends the batches; ``None`` if nothing does.
    """

    def __init__(self, interval: float, sample_nbytes: int, sink: ZMQSink | None) -> None:
        self._interval, self._sample, self._sink = interval, sample_nbytes, sink
        self._told = False
        self._due = time.monotonic() + interval
        self._before = (0, 0, 0.0)  # batches, bytes, seconds

    def __call__(self, stats: PipelineStats) -> None:
        if not self._told:
            self._announce()
        if time.monotonic() >= self._due:
            self._due += self._interval
            print(self._line(stats), flush=True)

    def _announce(self) -> None:
        if self._sink is None:
            print("measuring, without sending", flush=True)
        elif self._sink.bound:
            print(f"serving at {', '.join(self._sink.bound)}", flush=True)
        self._told = self._sink is None or bool(self._sink.bound)

    def _line(self, stats: PipelineStats) -> str:
        last = stats.stages[-1]
        batches, nbytes, seconds = last.items - self._before[0], last.bytes - self._before[1], max(stats.seconds - self._before[2], 1e-9)
        self._before = (last.items, last.bytes, stats.seconds)
        rates = f"{batches / seconds:9.1f} batches/s  {nbytes / self._sample / seconds:10.1f} samples/s  {nbytes / seconds / 1e6:9.1f} MB/s"
        return f"{last.items:10d} batches  {rates}{_progress(stats)}"


def _progress(stats: PipelineStats) -> str:
    """Return how much of the epochs is done, and how long the rest takes at this rate; nothing if they go on for ever."""
    share = stats.stages[0].counters.get("progress", 0.0)
    return f"  {100 * share:3.0f}%, {timedelta(seconds=round(stats.seconds * (1 / share - 1)))} left" if share else ""
