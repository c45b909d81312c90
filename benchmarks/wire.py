"""Compare links between processes with a raw socket, a memcpy and other libraries.

Each case is a sender and a receiver in their own processes, over the loopback interface, a Unix socket or shared memory, with the default
settings. A message is a batch of images and their labels.
"""

from __future__ import annotations

import contextlib
import tempfile
import timeit
from collections.abc import Callable
from dataclasses import dataclass

import msgpack_numpy
import numpy as np

from highway import tenbin
from measure import Absent, Report, Work, chosen, foreign, in_turns, machine, parse, parser
from peers.environments import python
from peers.process import Process

# What a message is called, the shape of its images, and how many go in a turn.
SMALL = "100 kB"  # a memcpy of so little stays in the caches, and ZeroMQ's share of a small message is large: other targets
SIZES = {"9.6 MB": ((64, 224, 224, 3), 60), "1 MB": ((20, 224, 224), 600), SMALL: ((2, 224, 224), 4000)}


@dataclass(frozen=True)
class Case:
    """A way in peers/links.py and where it listens, or one in peers/handovers.py; and its environment, none for the one that runs this."""

    way: str
    url: str = ""
    environment: str = ""


MEMCPY, TCP, UNIX = "bound: memcpy, one thread", "bound: raw TCP socket", "bound: raw Unix socket"
CASES = {
    MEMCPY: Case("memcpy"),
    TCP: Case("raw", "0"),
    UNIX: Case("raw", "{folder}/raw"),
    "highway, shm": Case("highway", "zpull+shm://benchmark{folder}"),
    "highway, tcp": Case("highway", "zpull://127.0.0.1:0"),
    "highway, ipc": Case("highway", "zpull+ipc://{folder}/highway"),
    "highway, tcp, one frame": Case("highway", "zpull://127.0.0.1:0?codec=tenbin"),
    "highway, tcp, msgpack": Case("highway", "zpull://127.0.0.1:0?codec=msgpack"),
    "tensorcom, tcp": Case("tensorcom", "zpull://127.0.0.1:0", "tensorcom"),
    "tensorcom, ipc": Case("tensorcom", "zpull+ipc://{folder}/tensorcom", "tensorcom"),
    "Highway 2017, tcp": Case("highway-2017", "tcp://127.0.0.1:*"),
    "iceoryx2": Case("iceoryx2", "{folder}", "iceoryx2"),
    "Arrow Flight, put": Case("flight", "grpc://127.0.0.1:0", "flight"),
    "gRPC, stream": Case("grpc", "127.0.0.1:0", "grpc"),
    "multiprocessing.Queue": Case("queue"),
    "DataLoader, one worker": Case("dataloader"),
}
AGAINST = [MEMCPY, TCP, "tensorcom, tcp"]
TARGETS = {
    ("highway, shm", MEMCPY): 0.9,
    ("highway, shm", "tensorcom, ipc"): 4.0,
    ("highway, shm", "DataLoader, one worker"): 6.0,
    ("highway, tcp", TCP): 0.9,
    ("highway, tcp", "tensorcom, tcp"): 1.5,
    ("highway, tcp", "Highway 2017, tcp"): 4.0,
}
SMALL_TARGETS = {
    ("highway, shm", "tensorcom, ipc"): 4.0,
    ("highway, shm", "DataLoader, one worker"): 6.0,
    ("highway, tcp", "tensorcom, tcp"): 1.5,
    ("highway, tcp", "Highway 2017, tcp"): 1.1,  # it sends one frame: at this size, the calls cost more than its copies
}


class Link:
    """The processes of a case.

    Raises:
        Absent: one has no environment, or does not start.
    """

    def __init__(self, case: Case, shape: tuple[int, ...], count: int, folder: str, closing: contextlib.ExitStack) -> None:
        rows, images = shape[0], int(np.prod(shape))
        self.work = Work(count, count * (images + 4 * rows))
        rest = ["x".join(map(str, shape)), str(count)]

        def start(end: str, url: str) -> Process:
            process = Process(python(case.environment), "link", [end, case.way, url, *rest], timeout=30)
            closing.callback(process.close)
            return process

        self.receiver = start("receive" if case.url else "both", case.url.format(folder=folder))
        self.ends = [self.receiver] + ([start("send", self.receiver.hello["address"])] if case.url else [])

    def __call__(self) -> Work:
        for end in self.ends:
            end.tell("go")
        self.receiver.answer()
        return self.work


def codecs_alone(report: Report) -> None:
    """Print what encoding and decoding one batch costs by itself."""
    batch = [np.zeros((64, 224, 224, 3), np.uint8), np.arange(64, dtype=np.int32)]
    frames, packed = tenbin.encode_list(batch), msgpack_numpy.packb(batch)
    codecs: dict[str, tuple[Callable[[], object], Callable[[], object], int]] = {
        "tenbin, by views": (lambda: tenbin.encode_list(batch), lambda: tenbin.decode_list(frames), 5_000),
        "msgpack-numpy, Highway 2017's": (lambda: msgpack_numpy.packb(batch), lambda: msgpack_numpy.unpackb(packed), 20),
    }
    rows = []
    for name, (encode, decode, number) in codecs.items():
        best = [min(timeit.repeat(function, number=number, repeat=5)) / number * 1e6 for function in (encode, decode)]
        rows.append([name, *(f"{microseconds:,.1f}" for microseconds in best)])
    report.line("**Codecs without a transport: microseconds per batch of 9.6 MB, best of 5**")
    report.table(["codec", "encode", "decode"], rows)


def main() -> None:
    arguments = parser(__doc__, rounds=7)
    arguments.add_argument("--messages", type=float, default=1.0, help="factor for the number of messages per turn (default: %(default)s)")
    given = parse(arguments, messages=0.2)
    report = Report("wire", given.record)
    report.line(machine("highway-data", "numpy", "pyzmq", "msgpack", "msgpack-numpy", "torch"))
    codecs_alone(report)
    for size, (shape, number) in SIZES.items():
        count = max(4, round(number * given.messages))
        links: dict[str, Link] = {}
        absent: dict[str, str] = {}
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as closing:
            for name in chosen(CASES, given):
                try:
                    links[name] = Link(CASES[name], shape, count, folder, closing)
                except Absent as error:
                    absent[name] = str(error)
            if size == next(iter(SIZES)):
                report.line(foreign({name: link.receiver.versions for name, link in links.items()}))
                report.line(f"{given.rounds} rounds.")
            rates = in_turns(links, given.rounds, absent)
        target = " (target: 80,000 messages/s over shm)" if size == SMALL else ""
        report.rates(f"Messages of {size}, from process to process, {count} per turn{target}", rates, AGAINST, "messages", absent)
        report.targets(rates, SMALL_TARGETS if size == SMALL else TARGETS)
    report.record()


if __name__ == "__main__":
    main()
