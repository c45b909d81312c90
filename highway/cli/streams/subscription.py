"""The input of the commands that show the batches of a link: a subscription, messages about missing data, and rates."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

from highway.engine import batch
from highway.engine.stage import Passport
from highway.engine.stats import Rate
from highway.errors import ConfigError, EndOfStream, FrameError, LinkError
from highway.safe_text import for_terminal
from highway.wire.counters import LINK_COUNTERS
from highway.wire.receiver import LinkReceiver
from highway.wire.url import parse

SERVER = "127.0.0.1:7880"
HINT_AFTER = 5.0  # seconds without a batch before a message to the user


def add_subscription_options(parser: argparse.ArgumentParser, urls: Sequence[str] = (f"zsub://{SERVER}",)) -> None:
    """Add the options for the source of the batches (URLs, or a link of a topology) and for the timeout."""
    add = parser.add_argument
    where = f"the URLs of the senders; default: {' '.join(urls)}; or a topology file, with --link"
    add("urls", nargs="*", default=list(urls), metavar="URL|FILE", help=where)
    add("--link", metavar="NAME", help="show this link of a running topology, without an effect on the run")
    add("--role", metavar="NAME", help="show only this role, if several roles send on the link")
    add("--replica", type=int, metavar="N", help="show only the process with this number, from 0, if several processes send on the link")
    add(
        "--local",
        action="store_true",
        default=None,
        help="use this machine in place of all hosts of the topology, as `highway run FILE` does",
    )
    add("--set", action="append", metavar="VAR=VALUE", help="set the value of a variable, as for `highway run`")
    add("-t", "--timeout", type=float, default=-1.0, metavar="S", help="maximum seconds to wait for a batch; default: -1, no limit")


def subscribe(options: argparse.Namespace) -> Subscription:
    """Return the subscription that the options select, for a ``with`` block.

    Raises:
        ConfigError: a URL, the topology or the link is invalid.
        LinkError: an address cannot be bound.
    """
    files = [name for name in options.urls if "://" not in name]
    if options.link is None:
        if files:
            raise ConfigError(f"'{files[0]}' is not a URL; to show a running topology, pass FILE --link NAME")
        for option in ("role", "replica", "local", "set"):
            if getattr(options, option) is not None:
                raise ConfigError(f"--{option} selects data of a link of a topology; also pass FILE --link NAME")
        return Subscription(options.urls, options.timeout)
    if len(files) < len(options.urls):
        raise ConfigError(
            f"--link {options.link} selects a link of a topology: pass the topology file, such as pipeline.yaml, instead of URLs"
        )
    return Subscription(_taps(files, options), options.timeout, f"the link {options.link} of {files[-1]}")


def _taps(files: list[str], options: argparse.Namespace) -> list[str]:
    from highway.cli.files import variables  # imported here, because these imports take a while
    from highway.observe.viewers import viewer_urls
    from highway.topology import load

    topology = load(files, variables(options.set or []))
    plan = (topology.on_this_machine() if options.local else topology).plan
    return viewer_urls(plan, options.link, options.role, options.replica)


class Subscription:
    """Receives batches over a link. The constructor opens the socket. Use a subscription in a ``with`` block.

    Args:
        urls: The URLs of the senders.
        timeout: Maximum seconds to wait for a batch. Negative: no limit.
        where: How messages to the user refer to the senders, such as ``the link samples of pipeline.yaml``. Default: the URLs.

    Raises:
        ConfigError: a URL is invalid.
        LinkError: an address cannot be bound.
    """

    def __init__(self, urls: Sequence[str], timeout: float, where: str = "") -> None:
        link = parse(urls, "receive")
        self.where = where or str(link)
        self.counters: dict[str, float] = {}
        self.count = 0  # number of batches that were yielded
        self._timeout = timeout if timeout >= 0 else float("inf")
        self._receiver = LinkReceiver(link, self.counters)
        self._since = time.monotonic()
        self._hint = self._since + HINT_AFTER
        for address in self._receiver.bound:
            print(f"listening at {address}", flush=True)

    def batches(self, count: int = sys.maxsize, raw: bool = False) -> Iterator[tuple[Any, Passport]]:
        """Yield items with their passports (metadata) until ``count`` items were yielded, or all senders have ended.

        A malformed message is skipped. It is reported on standard error, and the receiver adds 1 to ``counters["malformed"]``.

        Args:
            count: Maximum number of items. Items that earlier calls have yielded also count.
            raw: If true, messages are not decoded. Each item is then the number of bytes of a message, and its passport is empty. Missing
                messages and the end of the senders are not detected.

        Raises:
            LinkError: no message came within the timeout.
        """
        while self.count < count:
            now = time.monotonic()
            wait = max(0.0, min(1.0, self._since + self._timeout - now, self._hint - now))
            arrived = None
            try:
                if raw:
                    before = self.counters["bytes"]
                    self._receiver.recv_raw(wait)
                    arrived = int(self.counters["bytes"] - before), Passport()
                else:
                    message = self._receiver.recv(wait)
                    arrived = message.item, (message.envelope and message.envelope.passport) or Passport()
            except EndOfStream:
                return
            except TimeoutError:
                self._check_patience()
                continue
            except FrameError as error:
                print(f"message skipped: {for_terminal(error)}", file=sys.stderr, flush=True)
            self._since = time.monotonic()
            self._hint = float("inf")
            if arrived is not None:
                self.count += 1
                yield arrived

    def _check_patience(self) -> None:
        now = time.monotonic()
        if now - self._since >= self._timeout:
            raise LinkError(f"no batch arrived from {self.where} within {self._timeout:g} s; check that the server runs at this address")
        if now >= self._hint:
            self._hint = float("inf")
            hint = f"no batch has arrived from {self.where} yet; check that the server runs. Still waiting (Ctrl-C ends the wait)"
            print(hint, file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._receiver.close()


def samples(item: Any) -> int:
    """Return the length of the first axis of an item's first field, or 1 if this field is not an array or has no axes."""
    values = batch.fields(item)
    shape = getattr(values[0], "shape", ()) if values else ()
    return int(shape[0]) if shape else 1


def losses(counters: dict[str, float]) -> str:
    """Return a description of the lost messages that a receiver has counted."""
    counts = {name: (int(counters.get(name, 0)), about.at_viewer) for name, about in LINK_COUNTERS.items() if about.at_viewer}
    return ", ".join(f"{name} {count}{f' ({why})' if count else ''}" for name, (count, why) in counts.items() if count or name == "gaps")


class Count(NamedTuple):
    """The counts of batches, samples and bytes that arrived until the time ``at``, which is a time of ``time.monotonic()``."""

    at: float
    batches: int = 0
    samples: int = 0
    nbytes: float = 0


def rate_line(now: Count, before: Count, samples: bool = True) -> str:
    """Return a line with the number of batches and the rates since ``before``. The line has samples/s if ``samples`` is true."""
    batches, *others = rates(now, before, samples)
    return "  ".join([f"{now.batches:10d} batches", f"{batches:>19}", *(f"{other:>20}" for other in others)])


def rates(now: Count, before: Count, samples: bool = True) -> list[str]:
    """Return the rates between two moments as texts: batches/s, samples/s if ``samples`` is true, and MB/s."""
    seconds = now.at - before.at
    batches, megabytes = Rate.of(now.batches - before.batches, now.nbytes - before.nbytes, seconds)
    of_samples = [f"{Rate.of(now.samples - before.samples, 0, seconds).items:.1f} samples/s"] if samples else []
    return [f"{batches:.1f} batches/s", *of_samples, f"{megabytes:.1f} MB/s"]
