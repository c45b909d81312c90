"""Same-host links: how near is a message from process to process to one memcpy, and how far is ZeroMQ's ipc?

Each case sends to a receiver in a process of its own, which says when it has them all. ``items`` cases use the ends of ``ZMQSink`` and
``ZMQSource``, codec and envelope included; ``frames`` cases the transport alone. The memcpy case copies the same four arrays in turns into
four pieces of memory that were touched before.

    python benchmarks/same_host.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import numpy as np

from highway.wire.inlet import RECEIVERS, Inlet
from highway.wire.outlet import SENDERS, Outlet
from highway.wire.url import parse
from measure import Work, console, in_turns, machine, show

SIZES = {"9.6 MB": ((64, 224, 224, 3), 60), "1 MB": ((20, 224, 224), 600), "100 kB": ((2, 224, 224), 4000)}


def receive(kind: str, url: str, count: int) -> None:
    """Receive ``count`` messages again and again, and say so each time."""
    link = parse(url, "receive")
    with contextlib.closing(Inlet(link, {})) if kind == "items" else contextlib.nullcontext() as inlet:
        end = None if inlet else RECEIVERS[link.transport](link)
        print("listening", flush=True)
        while True:
            for _ in range(count):
                _ = inlet.recv() if inlet else end.recv()
            print("done", flush=True)


@contextlib.contextmanager
def sending(kind: str, url: str, batches: list[tuple[np.ndarray, np.ndarray]], count: int) -> Iterator[Callable[[], Work]]:
    """Yield a case that sends ``count`` of ``batches`` in turns to a process that receives them."""
    link = parse(url, "send")
    command = [sys.executable, __file__, "--receive", kind, url.replace("zpush", "zpull"), str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        if kind == "items":
            outlet = Outlet(link)
            send = outlet.send
            close = outlet.close
        else:
            sender = SENDERS[link.transport](link)
            frames = [[b"h" * 40, images, b"h" * 48, labels] for images, labels in batches]
            send, close = sender.send, lambda: sender.close(0)
        what = batches if kind == "items" else frames

        def case() -> Work:
            for number in range(count):
                send(what[number % len(what)])
            process.stdout.readline()
            return Work(count, count * sum(array.nbytes for array in batches[0]))

        yield case
        close()
        process.kill()


def copying(batches: list[tuple[np.ndarray, np.ndarray]], count: int, slots: int = 4) -> Callable[[], Work]:
    targets = [np.ones_like(batches[0][0]) for _ in range(slots)]

    def case() -> Work:
        for number in range(count):
            np.copyto(targets[number % slots], batches[number % len(batches)][0])
        return Work(count, count * batches[0][0].nbytes)

    return case


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--receive", nargs=3)
    arguments = parser.parse_args()
    if arguments.receive:
        kind, url, count = arguments.receive
        receive(kind, url, int(count))
    console.print(machine("numpy", "pyzmq"))
    for size, (shape, count) in SIZES.items():
        batches = [(np.full(shape, n, np.uint8), np.arange(shape[0], dtype=np.int32)) for n in range(4)]
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            cases: dict[str, Callable[[], Work]] = {"memcpy, one thread": copying(batches, count)}
            for kind in ("frames", "items"):
                for transport, place in (("shm", f"bench/{os.getpid()}/{kind}"), ("ipc", f"{folder}/{kind}")):
                    cases[f"{transport}, {kind}"] = stack.enter_context(sending(kind, f"zpush+{transport}://{place}", batches, count))
            show(
                f"one message of {size}, process to process",
                in_turns(cases, arguments.rounds),
                ["memcpy, one thread", "ipc, items"],
                "messages",
            )


if __name__ == "__main__":
    main()
