"""``tensormon``: print the live rates of a link: batches/s, samples/s, MB/s, and the number of lost batches."""

from __future__ import annotations

import argparse
import sys
import time

from highway.cli import arguments, command
from highway.cli.streams.subscription import Count, add_subscription_options, losses, rate_line, rates, samples, subscribe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subscription_options(parser)
    parser.add_argument("-R", "--raw", action="store_true", help="do not decode: print only batches/s and MB/s, without samples and gaps")
    parser.add_argument(
        "-r", "--report", type=arguments.positive, default=10, metavar="N", help="number of batches between two lines; default: 10"
    )
    parser.add_argument("-c", "--count", type=arguments.positive, default=sys.maxsize, metavar="N", help="end after N batches")


def run(options: argparse.Namespace) -> int:
    """Print a line after every ``--report`` batches. End after ``--count`` batches or when the senders end, and print the overall rate."""
    with subscribe(options) as subscription:
        print(f"waiting for {subscription.where}", flush=True)
        first = before = last = Count(time.monotonic())
        try:
            for item, _ in subscription.batches(options.count, options.raw):
                number = 0 if options.raw else samples(item)
                last = Count(time.monotonic(), subscription.count, last.samples + number, subscription.counters["bytes"])
                if last.batches == 1:
                    print("connected", flush=True)
                    first = before = last
                if last.batches % options.report == 0:
                    gaps = "" if options.raw else f"  gaps {subscription.counters['gaps']:.0f}"
                    print(f"{rate_line(last, before, not options.raw)}{gaps}", flush=True)
                    before = last
            if subscription.count < options.count:
                print("the senders have ended", flush=True)
        finally:
            said = [f"{subscription.count} batches, {subscription.counters['bytes'] / 1e6:.1f} MB"]
            said.append("gaps are not counted with --raw" if options.raw else losses(subscription.counters))
            if last.batches > 1:  # rates since the first batch
                said.append(", ".join(rates(last, first, not options.raw)))
            print("; ".join(said), flush=True)
    return command.DONE


main = command.program("tensormon")
