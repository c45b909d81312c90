"""``tensormon``: the live rates of a stream: batches/s, samples/s, MB/s, and how many batches were lost on the way."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from highway.cli import arguments, command, rates
from highway.cli.rates import Count
from highway.cli.streams.subscription import Subscription, losses, samples, subscribe
from highway.cli.streams.subscription import add_arguments as add_subscription_arguments
from highway.errors import EndOfStream


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the tool."""
    add_subscription_arguments(parser)
    parser.add_argument("-R", "--raw", action="store_true", help="do not decode: batches/s and MB/s alone, without samples and gaps")
    parser.add_argument("-r", "--report", type=arguments.positive, default=10, metavar="N", help="batches between two lines; default: 10")
    parser.add_argument("-c", "--count", type=arguments.positive, default=sys.maxsize, metavar="N", help="end after N batches")


def run(options: argparse.Namespace) -> int:
    """Print a line every ``report`` batches until the senders end or ``count`` batches have come, and the rate of all of them."""
    with subscribe(options) as subscription:
        print(f"waiting for {subscription.where}", flush=True)
        watch = Watch(subscription, options)
        try:
            watch.run()
        finally:
            lost = "gaps are not counted with --raw" if options.raw else losses(subscription.counters)
            print(
                "; ".join([f"{subscription.count} batches, {subscription.counters['bytes'] / 1e6:.1f} MB", lost, *watch.rates()]),
                flush=True,
            )
    return command.DONE


class Watch:
    """Counts what comes, and prints how fast it does."""

    def __init__(self, subscription: Subscription, options: argparse.Namespace) -> None:
        self._subscription, self._options = subscription, options
        self._first = self._last = Count(time.monotonic())

    def run(self) -> None:
        """Print a line each ``report`` batches until the senders end or ``count`` batches have come."""
        before = self._first
        while self._subscription.count < self._options.count:
            try:
                arrived = self._subscription.next(raw=self._options.raw)
            except EndOfStream:
                print("the senders have ended", flush=True)
                return
            if arrived is None:
                continue
            self._last = self._counted(arrived[0])
            if self._last.batches == 1:
                print("connected", flush=True)
                before = self._first = self._last
            if self._last.batches % self._options.report == 0:
                line = rates.line(self._last, before, not self._options.raw)
                print(line if self._options.raw else f"{line}  gaps {self._subscription.counters['gaps']:.0f}", flush=True)
                before = self._last

    def rates(self) -> list[str]:
        """Return how fast all came, from the first batch on; nothing if there was no other."""
        if self._last.batches < 2:
            return []
        return [", ".join(rates.rates(self._last, self._first, not self._options.raw))]

    def _counted(self, item: Any) -> Count:
        number = 0 if self._options.raw else samples(item)
        return Count(time.monotonic(), self._subscription.count, self._last.samples + number, self._subscription.counters["bytes"])


main = command.program("tensormon")
