"""Common parts of the two servers: options, publishers, and printed rates."""

from __future__ import annotations

import argparse
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any

from numpy.random import SeedSequence

from highway.cli import arguments, command
from highway.cli.run import add_dashboard_option
from highway.cli.streams.subscription import SERVER, Count, rate_line, rates, samples
from highway.engine import Pipeline, batch
from highway.engine.cancel import check_cancelled
from highway.engine.context import Context
from highway.engine.stage import DROP, Passport, Stage, Stamped
from highway.errors import ConfigError
from highway.modules import ZMQSink
from highway.parameters.braces import expand_braces
from highway.process.cores import available_cores
from highway.run.role import run as run_pipeline
from highway.wire.url import SHOWN_URLS, parse

SHAPE = (224, 224)  # height and width of the served images
_TICK = 0.1  # seconds between two checks of the publishers

Stages = Callable[[int, int | None], Sequence[Any]]
"""Function that returns the stages of a publisher, for a seed and a number of decoding threads (``None``: one for each core)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of both servers."""
    add = parser.add_argument
    urls = f"the address; with braces or several URLs, each address has its own publisher and stream; default: zpub://{SERVER}"
    add("urls", nargs="*", default=[f"zpub://{SERVER}"], metavar="URL", help=urls)
    add("-b", "--batch-size", type=arguments.positive, default=32, metavar="N", help="number of images in a batch; default: 32")
    add(
        "-r",
        "--report",
        type=arguments.positive,
        default=10,
        metavar="N",
        help="number of batches between two lines about the rate; default: 10",
    )
    add("-B", "--benchmark", action="store_true", help="send the first batch repeatedly, to measure the rate of the link")
    add("--epochs", type=arguments.positive, metavar="N", help="end after N passes over the images; default: repeat indefinitely")
    add_dashboard_option(parser)
    add("--seed", type=int, default=0, metavar="N", help="seed of all random numbers; default: 0")


def add_threads(parser: argparse.ArgumentParser, workers: Sequence[str], parallel: str) -> None:
    """Add the options for the number of publishers, and for the threads of each.

    The letters differ between the servers, as in tensorcom.
    """
    add = partial(parser.add_argument, type=arguments.natural, default=0, metavar="N")
    add(
        *workers,
        dest="workers",
        help="number of decoding threads of each publisher; default: 0, which divides the cores among the publishers",
    )
    streams = "start N publishers with separate streams, which all connect to the same address (zpush or zrpub)"
    add(parallel, "--parallel", help=streams)


def serve(stages: Stages, options: argparse.Namespace) -> int:
    """Serve until interrupted, or for ``options.epochs``. Each address has a publisher. All publishers run in this process.

    Args:
        stages: Function that returns stages that yield batches: ``(images (B, H, W, 3), int32 (B,))``.
        options: The options of :func:`add_arguments` and :func:`add_threads`.

    Raises:
        ConfigError: the options are inconsistent, or a URL is invalid.
    """
    if options.benchmark and options.epochs:
        raise ConfigError("--epochs and -B exclude each other, because -B sends one batch forever; remove one of them")
    addresses = _addresses(options.urls, options.parallel)
    threads = options.workers or (None if len(addresses) == 1 else max(1, available_cores() // len(addresses)))
    report = RatePrinter(options.report)
    for number, url in enumerate(addresses):
        seed = _seed(options.seed, number)
        report.publishers.append(Publisher(Pipeline(stages(seed, threads), seed), ZMQSink(url), options.benchmark, report.sent))
    together = Stage(Publisher.run, num_workers=len(addresses), ordered=False, name="publishers", drops=True)
    with _page(report.publishers, options.dashboard):
        try:
            run_pipeline(Pipeline([report.publishers, together]), lambda _: report.tell(), _TICK)
        finally:
            report.tell_all()
    print("all epochs were sent", flush=True)
    return command.DONE


def _page(publishers: Sequence[Publisher], address: str | None) -> AbstractContextManager[Any]:
    """Serve the page of the publishers in a ``with`` block, if an address for the page is given."""
    if address is None:
        return nullcontext()
    from highway.observe.dashboard.local import serve as serve_page  # imported here, because only the page needs an HTTP server

    urls = [str(one.sink.link) for one in publishers]
    names = [f"{url} ({number})" if urls.count(url) > 1 else url for number, url in enumerate(urls)]
    return serve_page(dict(zip(names, (one.pipeline for one in publishers), strict=True)), address, "images")


def _addresses(urls: Sequence[str], parallel: int) -> list[str]:
    """Return the URL of each publisher."""
    addresses = [each for url in urls for each in expand_braces(url)]
    if not parallel:
        return addresses
    if len(addresses) > 1 or parse(addresses, "send").bind:
        raise ConfigError(
            f"--parallel {parallel} needs one address to which publishers connect (zpush or zrpub); found {', '.join(urls)}. Pass one "
            "address for each publisher, such as zpub://127.0.0.1:788{0..3}; for more decoding threads, see --help"
        )
    return addresses * parallel


def _seed(seed: int, number: int) -> int:
    """Return the seed of a publisher. The first publisher has the command's seed. Each other publisher has a derived seed."""
    return seed if number == 0 else int(SeedSequence(seed, spawn_key=(number,)).generate_state(1, "uint64")[0]) >> 1


class Publisher:
    """A pipeline that yields batches, and the link on which the batches are sent.

    Args:
        pipeline: Pipeline without a sink that yields the batches.
        sink: The sink that sends the batches.
        repeats: Whether the publisher sends the first batch repeatedly.
        sent: Function that is called after each sent batch.

    Attributes:
        count: How many batches were sent, and the time of the last batch. Only the sending thread changes this attribute.
    """

    def __init__(self, pipeline: Pipeline, sink: ZMQSink, repeats: bool, sent: Callable[[], None]) -> None:
        self.pipeline, self.sink = pipeline, sink
        self._repeats, self._sent = repeats, sent
        self.counters: dict[str, Any] = {}  # counters of the sink
        self.count = Count(0.0)

    def run(self, context: Context) -> Any:
        """Send the batches. A pipeline runs all publishers, each on a thread."""
        self.counters = context.counters(self.sink)
        with self.pipeline:
            stamped: Iterable[Stamped] = self.pipeline.stamped()
            if self._repeats:
                stamped = itertools.repeat(next(iter(stamped)))
                self.pipeline.stop()
            self.sink.consume(_Sent(stamped, context, self._add))
        return DROP

    @property
    def addresses(self) -> list[str]:
        """The addresses at which the publisher listens, or the URL to which it connects."""
        link = self.sink.link
        return self.counters.get("bound", []) if link.bind else [str(link)]

    @property
    def progress(self) -> float:
        """The finished fraction of the epochs, from 0 to 1; 0 if the number of epochs has no limit."""
        return float(self.pipeline.stats().stages[0].counters.get("progress", 0.0))

    def _add(self, item: Any) -> None:
        _, batches, images, nbytes = self.count
        self.count = Count(time.monotonic(), batches + 1, images + samples(item), nbytes + batch.nbytes(item))
        self._sent()


class _Sent:
    """Items for a sink. An item counts as sent when the sink requests the next item."""

    passport = Passport()
    epoch = left_out = 0
    waiting: Any = ()

    def __init__(self, stamped: Iterable[Stamped], context: Context, count: Callable[[Any], None]) -> None:
        self._stamped, self.context, self._count = iter(stamped), context, count
        self._last: Any = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        check_cancelled()
        if self._last is not None:
            self._count(self._last)
            self._last = None
        self._last, self.passport = next(self._stamped)
        return self._last


class RatePrinter:
    """Prints the publishers' addresses, their total rate every ``every`` batches, and the overall rate at the end.

    With ``--epochs``, each line shows the progress. The sending threads record the times of batches, and a single thread prints.

    Attributes:
        publishers: The publishers.
    """

    def __init__(self, every: int) -> None:
        self.publishers: list[Publisher] = []
        self._every = every
        self._told = False
        self._numbers = itertools.count(1)  # next() of this counter is atomic
        self._moments: deque[Count] = deque(maxlen=1000)  # if printing is slower than sending, the oldest lines are dropped
        self._start = self._before = Count(time.monotonic())

    def sent(self) -> None:
        """Count a batch. Each publisher calls this method after each sent batch."""
        number = next(self._numbers)
        if number % self._every == 0:
            self._moments.append(self._count()._replace(batches=number))

    def tell(self) -> None:
        """Print the lines that are due."""
        if not self._told:
            self._announce()
        due = [self._moments.popleft() for _ in range(len(self._moments))]  # only the lines that are waiting at this moment
        due.sort(key=lambda moment: moment.batches)  # two threads can record their batches in reverse order
        if due:
            progress = self._progress()
            lines = [rate_line(now, before) + progress for before, now in itertools.pairwise([self._before, *due])]
            print("\n".join(lines), flush=True)
            self._before = due[-1]

    def tell_all(self) -> None:
        """Print the overall rate if a batch was sent."""
        count = self._count()
        if count.batches:
            all_rates = ", ".join(rates(count, self._start))
            seconds = count.at - self._start.at
            print(f"{count.batches} batches, {count.nbytes / 1e6:.1f} MB in {seconds:.1f} s; {all_rates}", flush=True)

    def _count(self) -> Count:
        at, *sums = zip(*(publisher.count for publisher in self.publishers), strict=True)
        return Count(max(at), *map(sum, sums))

    def _announce(self) -> None:
        where = [address for publisher in self.publishers for address in publisher.addresses]
        if len(where) == len(self.publishers):
            more = f" and {len(where) - SHOWN_URLS} more" if len(where) > SHOWN_URLS else ""
            print(f"serving at {', '.join(where[:SHOWN_URLS])}{more}", flush=True)
            self._told = True

    def _progress(self) -> str:
        """Return the finished part of the epochs, and the remaining time at this rate; empty if the number of epochs has no limit."""
        share = sum(publisher.progress for publisher in self.publishers) / len(self.publishers)
        left = (time.monotonic() - self._start.at) * (1 / share - 1) if share else 0
        return f"  {100 * share:3.0f}%, {timedelta(seconds=round(left))} left" if share else ""
