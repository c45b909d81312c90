"""Measure the cost of a link: send items from this process to itself, over a link of the same kind."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from highway.engine.stage import Stamped
from highway.errors import EndOfStream
from highway.observe.calibration import StageCost
from highway.observe.rival import Rival
from highway.process.cores import cpu_seconds
from highway.wire.receiver import LinkReceiver
from highway.wire.sender import LinkSender
from highway.wire.url import Link, parse, url_of

LEAST = 8  # messages
SECONDS = 0.4  # minimum seconds of sending
TIMEOUT = 10.0  # seconds without a message after which an error is assumed


def measure_link(link: Link, allow64: bool, items: Sequence[Stamped]) -> StageCost:
    """Send items repeatedly, and return the cost of a message, at each of the two ends; ``link`` is the sending end of the topology.

    Raises:
        ItemError: the items cannot be sent.
    """
    free, taken = _carry(link, allow64, items), _carry(link, allow64, items, rivalled=True)
    return replace(free, held=min(free.cpu, taken.held))


def _carry(link: Link, allow64: bool, items: Sequence[Stamped], rivalled: bool = False) -> StageCost:
    transport, options = link.transport, replace(link.options, receivers=1, senders=0, end=True, tap="")
    with tempfile.TemporaryDirectory(prefix="hw") as folder, ThreadPoolExecutor(1, "highway-bench") as pool:
        name = f"{transport.prefix}bench-{os.getpid()}"
        location = {"host:port": "127.0.0.1:0", "path": f"{folder}/link", "name": name}[transport.location]
        sending = parse(url_of("zrpush", transport, location), "send", defaults=options)
        with LinkSender(sending, allow64) as sender:
            address = sender.bound[0].partition("://")[2]
            receiving = parse(url_of("zrpull", transport, address), "receive", defaults=options)
            counted = pool.submit(_receive, receiving)
            sender.wait_for_receivers()
            rival = Rival()
            began, cpu = time.perf_counter(), cpu_seconds()
            with rival if rivalled else contextlib.nullcontext():
                sent = _send(sender, items)
            came = counted.result()
            seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu
    return StageCost(str(link), "sink", seconds / sent, cpu / sent / 2, rival.kept_out / sent / 2, nbytes=came / sent)


def _send(sender: LinkSender, items: Sequence[Stamped]) -> int:
    """Send items for some time, and then the end; return the number of messages."""
    until, sent = time.perf_counter() + SECONDS, 0
    for item, passport in itertools.cycle(items):
        sender.send(item, passport, timeout=TIMEOUT)
        sent += 1
        if sent >= LEAST and time.perf_counter() > until:
            break
    sender.finish()
    return sent


def _receive(link: Link) -> float:
    """Receive until the end; return the number of bytes."""
    counters: dict[str, float] = {}
    with LinkReceiver(link, counters) as receiver:
        while True:
            try:
                receiver.recv(TIMEOUT)
            except EndOfStream:
                return counters["bytes"]
