"""``tensorstat``: print statistics of the batches on a link, and compare them with a contract."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time

from highway.cli import arguments, command
from highway.cli.streams import contract
from highway.cli.streams.subscription import Count, Subscription, add_subscription_options, losses, rates, subscribe
from highway.datasets.writing import writing
from highway.errors import ConfigError, LinkError
from highway.observe.summary import Summary
from highway.safe_text import for_terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subscription_options(parser)
    parser.add_argument("-b", "--unbatched", action="store_true", help="the arrays have no batch axis")
    parser.add_argument("-c", "--count", type=arguments.positive, default=20, metavar="N", help="number of batches to read; default: 20")
    parser.add_argument("-r", "--raw", action="store_true", help="do not decode: print only the rate")
    parser.add_argument("--save", metavar="FILE.json", help="write the statistics as a contract")
    parser.add_argument(
        "--assert",
        dest="contract",
        metavar="FILE.json",
        help="compare the stream with a contract; the exit code is 1 if the stream breaks the contract",
    )
    tolerance = "maximum difference of the values, as a fraction of their spread; default: 0.25"
    parser.add_argument("--tolerance", type=arguments.share, default=0.25, metavar="T", help=tolerance)


def run(options: argparse.Namespace) -> int:
    """Read ``--count`` batches, print their statistics, and write a contract or compare them with a contract."""
    if options.raw and (options.save or options.contract):
        raise ConfigError("--raw does not read values, which --save and --assert need; remove --raw")
    expected = None if options.contract is None else contract.load(options.contract)
    batched = not options.unbatched
    if expected is not None and expected["batched"] != batched:
        raise ConfigError(
            f"{options.contract} was written {'without' if expected['batched'] else 'with'} -b; use the same option for the comparison"
        )
    if options.save:
        _check_writable(options.save)
    summary = Summary(batched)
    with subscribe(options) as subscription:
        print(f"reading {options.count} batches from {subscription.where}", flush=True)
        seconds = _read(subscription, summary, options)
        counters = subscription.counters
        count = subscription.count
    if not count:
        raise LinkError(f"{subscription.where}: all senders ended before a batch arrived")
    found = ", ".join(rates(Count(seconds, count, nbytes=counters["bytes"]), Count(0.0), samples=False))
    print(f"{count} batches, {counters['bytes'] / 1e6:.1f} MB{f' in {seconds:.1f} s: {found}' if count > 1 else ''}")
    if options.raw:
        return command.DONE
    print(f"{losses(counters)}\n\n{summary.table()}", flush=True)
    if options.save:
        with writing(options.save) as name, open(name, "w", encoding="utf-8") as file:
            json.dump(contract.to_contract(summary), file, indent=1)
        print(f"\nwritten to {options.save}", flush=True)
    return command.DONE if expected is None else _judge(summary, expected, options)


def _read(subscription: Subscription, summary: Summary, options: argparse.Namespace) -> float:
    """Add the batches to the summary. Return the number of batches times the mean seconds between two batches; NaN for one batch.

    The time before the first batch is not used, because it includes connecting and the start of the sender.
    """
    times = []
    for item, _ in subscription.batches(options.count, options.raw):
        times.append(time.monotonic())
        if not options.raw:
            summary.add(item)
    return (times[-1] - times[0]) / (len(times) - 1) * len(times) if len(times) > 1 else math.nan


def _judge(summary: Summary, expected: dict[str, object], options: argparse.Namespace) -> int:
    checks = contract.compare(summary, expected, options.tolerance)
    broken = [check for check in checks if not check.ok]
    print()
    for check in checks:
        print(f"{'ok    ' if check.ok else 'BROKEN'}  {for_terminal(check.text)}")
    if not broken:
        print(f"the stream keeps the contract {options.contract}", flush=True)
        return command.DONE
    sys.stdout.flush()
    print(f"tensorstat: the stream breaks the contract {options.contract} in {len(broken)} of {len(checks)} points", file=sys.stderr)
    return command.FAILED


def _check_writable(path: str) -> None:
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path) or (os.path.isdir(folder) and not os.access(folder, os.W_OK)):
        raise ConfigError(f"--save {path}: it cannot be written; give a file in a folder that you can write to")


main = command.program("tensorstat")
