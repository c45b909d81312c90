"""One end of a link, in a process of its own: ``python link.py send|receive CASE URL SHAPE COUNT``.

A receiver prints its address, then a line each time ``COUNT`` messages have come. A sender sends so many whenever it reads a line.
Nothing of highway is imported but for its own cases, so that this also runs where only a peer is installed.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable

import numpy as np

Send = Callable[[np.ndarray, np.ndarray], object]
Receive = Callable[[], object]


def highway(direction: str, url: str) -> tuple[Send | Receive, str]:
    from highway.wire.connection import Connection

    connection = Connection(url)
    if direction == "receive":
        _, question, options = url.partition("?")
        return connection.recv, "zpush+" + connection.bound[0] + question + options
    return lambda images, labels: connection.send([images, labels]), ""


def tensorcom(direction: str, url: str) -> tuple[Send | Receive, str]:
    import zmq
    from tensorcom.zcom import Connection

    connection = Connection(url)
    if direction == "receive":
        bound = connection.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        return connection.recv, f"zpush+{bound}"
    return lambda images, labels: connection.send([images, labels]), ""


def highway_2017(direction: str, url: str) -> tuple[Send | Receive, str]:
    """msgpack and msgpack-numpy in one frame, sent and received as pyzmq does unless told otherwise."""
    import msgpack_numpy
    import zmq

    transport = zmq.Context.instance().socket(zmq.PULL if direction == "receive" else zmq.PUSH)
    if direction == "receive":
        transport.bind(url)
        return lambda: msgpack_numpy.unpackb(transport.recv()), transport.getsockopt_string(zmq.LAST_ENDPOINT)
    transport.connect(url)
    return lambda images, labels: transport.send(msgpack_numpy.packb([images, labels])), ""


def raw(direction: str, url: str) -> tuple[Send | Receive, str]:
    """The bound: the arrays' bytes in a socket of the system, received into memory that is used again."""
    family = socket.AF_UNIX if url.startswith("/") else socket.AF_INET
    address = url if family == socket.AF_UNIX else ("127.0.0.1", int(url))
    end = socket.socket(family, socket.SOCK_STREAM)
    if direction == "send":
        end.connect(address)
        return lambda images, labels: (end.sendall(images), end.sendall(labels)), ""
    end.bind(address)
    end.listen()
    memory = memoryview(bytearray(SIZE))
    accepted: list[socket.socket] = []

    def receive() -> None:
        if not accepted:
            accepted.append(end.accept()[0])
        got = 0
        while got < SIZE:
            got += accepted[0].recv_into(memory[got:])

    return receive, url if family == socket.AF_UNIX else str(end.getsockname()[1])


CASES = {"highway": highway, "tensorcom": tensorcom, "highway-2017": highway_2017, "raw": raw}


def main() -> None:
    """Be one end until the other side of standard input is closed."""
    direction, name, url, _, count = sys.argv[1:]
    end, address = CASES[name](direction, url)
    print(address, flush=True)
    if direction == "receive":
        while True:
            for _ in range(int(count)):
                end()
            print("done", flush=True)
    for _ in sys.stdin:
        for number in range(int(count)):
            end(*BATCHES[number % len(BATCHES)])


if __name__ == "__main__":
    SHAPE = tuple(map(int, sys.argv[4].split("x")))
    BATCHES = [(np.full(SHAPE, n, np.uint8), np.arange(SHAPE[0], dtype=np.int32)) for n in range(4)]
    SIZE = sum(array.nbytes for array in BATCHES[0])
    main()
