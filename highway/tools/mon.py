"""``tensormon``: the live rates of a stream: batches/s, samples/s, MB/s, and how many batches were lost on the way."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

from highway.errors import EndOfStream
from highway.tools import command
from highway.tools.feed import Feed, losses, open_feed, samples
from highway.tools.feed import add_arguments as add_feed_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the tool."""
    add_feed_arguments(parser)
    parser.add_argument("-R", "--raw", action="store_true", help="do not decode: batches/s and MB/s alone, without samples and gaps")
    parser.add_argument("-r", "--report", type=command.seconds, default=10.0, metavar="S", help="seconds between two lines; default: 10")
    parser.add_argument("-c", "--count", type=command.positive, default=sys.maxsize, metavar="N", help="end after N batches")


@dataclass
class Tally:
    """What has come since ``since``, by ``time.monotonic()``."""

    since: float
    batches: int = 0
    samples: int = 0

    def line(self, total: int, nbytes: float, now: float, raw: bool) -> str:
        """Return the rates up to ``now``, of ``nbytes`` bytes; ``total`` is the number of batches since the beginning."""
        seconds = max(now - self.since, 1e-9)
        parts = [f"{total:10d} batches", f"{self.batches / seconds:9.1f} batches/s"]
        if not raw:
            parts.append(f"{self.samples / seconds:10.1f} samples/s")
        return "  ".join([*parts, f"{nbytes / seconds / 1e6:9.1f} MB/s"])


def run(options: argparse.Namespace) -> int:
    """Print a line every ``report`` seconds until the senders end or ``count`` batches have come."""
    with open_feed(options) as feed:
        print(f"waiting for {feed.where}", flush=True)
        try:
            _watch(feed, options)
        finally:
            lost = "gaps are not counted with --raw" if options.raw else losses(feed.counters)
            print(f"{feed.count} batches, {feed.counters['bytes'] / 1e6:.1f} MB; {lost}", flush=True)
    return command.DONE


def _watch(feed: Feed, options: argparse.Namespace) -> None:
    tally, before = Tally(time.monotonic()), 0.0
    while feed.count < options.count:
        try:
            arrived = feed.next(max(0.001, tally.since + options.report - time.monotonic()), options.raw)
        except EndOfStream:
            print("the senders have ended", flush=True)
            return
        if arrived is not None:
            if feed.count == 1:
                print("connected", flush=True)
                tally, before = Tally(time.monotonic()), feed.counters["bytes"]
            else:
                tally.batches += 1
                tally.samples += 1 if options.raw else samples(arrived[0])
        now = time.monotonic()
        if feed.count and now - tally.since >= options.report:
            line = tally.line(feed.count, feed.counters["bytes"] - before, now, options.raw)
            print(line if options.raw else f"{line}  gaps {feed.counters['gaps']:.0f}", flush=True)
            tally, before = Tally(now), feed.counters["bytes"]


TOOL = command.Tool("tensormon", "mon", "show the live rates of a stream, and what was lost on the way", add_arguments, run)
main = TOOL.main
