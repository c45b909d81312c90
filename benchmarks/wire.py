"""Links between processes: how near to a raw socket is highway, and how far from it are others?

Each case is a sender and a receiver in processes of their own, on the loopback interface or a Unix socket, with the settings that each has
by default. Stock tensorcom and Highway 2017's way (msgpack and msgpack-numpy, one frame) are run by an interpreter that has them. torch's
DataLoader hands over batches from one worker process through shared memory: other means to the same end.

    python benchmarks/wire.py [--rounds 7] [--tensorcom .tox/peers/tensorcom/bin/python]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from highway.wire import tenbin
from highway.wire.codec import named
from highway.wire.envelope import Envelope
from measure import Work, console, in_turns, machine, show

HERE = Path(__file__).resolve().parent
TENSORCOM = HERE.parent / ".tox" / "peers" / "tensorcom" / "bin" / "python"
SIZES = {"9.6 MB": ((64, 224, 224, 3), 60), "1 MB": ((20, 224, 224), 600), "100 kB": ((2, 224, 224), 4000)}
Case = Callable[[], Work]


def batches(shape: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.full(shape, n, np.uint8), np.arange(shape[0], dtype=np.int32)) for n in range(4)]


@contextlib.contextmanager
def linked(python: str | Path, name: str, url: str, shape: tuple[int, ...], count: int) -> Iterator[Case]:
    """Yield a case that sends ``count`` messages from one process to another."""
    size = sum(array.nbytes for array in batches(shape)[0])
    rest = ["x".join(map(str, shape)), str(count)]
    with contextlib.ExitStack() as stack:

        def start(direction: str, where: str) -> tuple[subprocess.Popen[str], str]:
            command = [str(python), str(HERE / "peers" / "link.py"), direction, name, where, *rest]
            process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            return process, process.stdout.readline().strip()

        receiver, address = start("receive", url)
        sender, _ = start("send", address)

        def case() -> Work:
            sender.stdin.write("go\n")
            sender.stdin.flush()
            if receiver.stdout.readline() != "done\n":
                raise RuntimeError(f"{name} over {url}: the receiver died")
            return Work(count, count * size)

        yield case


def handed_over(shape: tuple[int, ...], count: int) -> Case:
    """Return a case in which torch's DataLoader hands over batches from one worker."""
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    class Batches(IterableDataset):
        def __iter__(self) -> Iterator[list[torch.Tensor]]:
            for images, labels in itertools.cycle(batches(shape)):
                yield [torch.from_numpy(images), torch.from_numpy(labels)]

    loader = DataLoader(Batches(), batch_size=None, num_workers=1)
    iterator = iter(loader)

    def case() -> Work:
        size = 0
        for _ in range(count):
            images, labels = next(iterator)
            size += images.nbytes + labels.nbytes
        return Work(count, size)

    return case


def cases_for(
    python: Path, shape: tuple[int, ...], count: int, folder: str, stack: contextlib.ExitStack
) -> tuple[dict[str, Case], dict[str, str]]:
    """Return the cases, and those that are absent with the reason."""
    ours: list[tuple[str, str | Path, str, str]] = [
        ("raw TCP socket", sys.executable, "raw", "0"),
        ("raw Unix socket", sys.executable, "raw", f"{folder}/raw"),
        ("highway, tcp", sys.executable, "highway", "zpull://127.0.0.1:0"),
        ("highway, ipc", sys.executable, "highway", f"zpull+ipc://{folder}/highway"),
        ("highway, tcp, msgpack", sys.executable, "highway", "zpull://127.0.0.1:0?codec=msgpack"),
        ("highway, tcp, one frame", sys.executable, "highway", "zpull://127.0.0.1:0?codec=tenbin"),
        ("Highway 2017, tcp", sys.executable, "highway-2017", "tcp://127.0.0.1:*"),
    ]
    stock: list[tuple[str, str | Path, str, str]] = [
        ("tensorcom, tcp", python, "tensorcom", "zpull://127.0.0.1:0"),
        ("tensorcom, ipc", python, "tensorcom", f"zpull+ipc://{folder}/tensorcom"),
    ]
    absent = {} if python.exists() else {name: f"no {python}; make it with venv and 'pip install tensorcom==0.1.0'" for name, *_ in stock}
    cases = {}
    for name, interpreter, kind, url in ours if absent else ours + stock:
        cases[name] = stack.enter_context(linked(interpreter, kind, url, shape, count))
    try:
        cases["DataLoader, one worker"] = handed_over(shape, count)
    except ImportError as error:
        absent["DataLoader, one worker"] = str(error)
    return cases, absent


def codecs_alone() -> None:
    """Print what encoding and decoding one batch costs by itself."""
    batch = batches((64, 224, 224, 3))[0]
    frames = tenbin.encode_list(batch)
    messages = {name: named(name).encode(batch, Envelope(sender=b"12345678")) for name in ("tensorcom", "tenbin", "msgpack")}
    timed: dict[str, tuple[Callable[[], object], Callable[[], object], int]] = {
        "tenbin, by views": (lambda: tenbin.encode_list(batch), lambda: tenbin.decode_list(frames), 20_000)
    }
    for name, message in messages.items():
        codec = named(name)
        timed[f"codec {name}, with envelope" if name != "msgpack" else "codec msgpack"] = (
            lambda codec=codec: codec.encode(batch, Envelope(sender=b"12345678")),
            lambda codec=codec, message=message: codec.decode(message),
            20_000 if name == "tensorcom" else 50,
        )
    console.print("\n[bold]the codecs alone, one batch of 9.6 MB, microseconds (the best of 5)[/bold]")
    for name, (encode, decode, number) in timed.items():
        encoding, decoding = (min(timeit.repeat(f, number=number, repeat=5)) / number * 1e6 for f in (encode, decode))
        console.print(f"{name:28} encode {encoding:9.1f}   decode {decoding:9.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tensorcom", type=Path, default=TENSORCOM, help="interpreter that has tensorcom 0.1.0 (default: %(default)s)")
    arguments = parser.parse_args()
    console.print(machine("numpy", "pyzmq", "msgpack", "msgpack-numpy", "torch"))
    codecs_alone()
    for size, (shape, count) in SIZES.items():
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            cases, absent = cases_for(arguments.tensorcom, shape, count, folder, stack)
            rates = in_turns(cases, arguments.rounds)
            show(
                f"one message of {size}, process to process",
                rates,
                ["raw TCP socket", "tensorcom, tcp", "Highway 2017, tcp"],
                "messages",
                absent,
            )


if __name__ == "__main__":
    main()
