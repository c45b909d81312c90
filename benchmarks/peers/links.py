"""Ways between two processes: how each sends and receives batches, with the settings that it has by default.

Nothing is imported but by the function that needs it, so that each runs where only its own packages are installed.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

Batch = tuple[np.ndarray, np.ndarray]
Announce = Callable[[str], object]  # takes the address to send to
Each = Callable[[np.ndarray, np.ndarray], object]  # takes what came


class Way(NamedTuple):
    """How batches go from one process to another.

    Args:
        packages: Whose versions are told.
        send: Sends all batches to a URL.
        receive: Receives at a URL batches like the one that it is given, until it is stopped.
    """

    packages: tuple[str, ...]
    send: Callable[[str, Iterable[Batch]], object]
    receive: Callable[[str, Announce, Each, Batch], object]


def send_raw(url: str, batches: Iterable[Batch]) -> None:
    """The arrays' bytes, in a TCP or Unix socket."""
    with socket.socket(socket.AF_UNIX if url.startswith("/") else socket.AF_INET) as end:
        end.connect(url if url.startswith("/") else ("127.0.0.1", int(url)))
        for images, labels in batches:
            end.sendall(images)
            end.sendall(labels)


def receive_raw(url: str, announce: Announce, each: Each, like: Batch) -> None:
    """Into memory that is used again."""
    unix = url.startswith("/")
    memory = bytearray(sum(array.nbytes for array in like))
    view, batch = memoryview(memory), _arrays(memory, like)
    with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as end:
        end.bind(url if unix else ("127.0.0.1", int(url)))
        end.listen()
        announce(url if unix else str(end.getsockname()[1]))
        with end.accept()[0] as stream:
            while True:
                got = 0
                while got < len(view):
                    got += stream.recv_into(view[got:])
                each(*batch)


def send_highway(url: str, batches: Iterable[Batch]) -> None:
    from highway.wire.connection import Connection

    with Connection(url) as connection:
        for batch in batches:
            connection.send(batch)


def receive_highway(url: str, announce: Announce, each: Each, like: Batch) -> None:
    from highway.wire.connection import Connection

    with Connection(url) as connection:
        _, question, options = url.partition("?")
        announce("zpush+" + connection.bound[0] + question + options)
        while True:
            each(*connection.recv())


def send_tensorcom(url: str, batches: Iterable[Batch]) -> None:
    from tensorcom.zcom import Connection

    connection = Connection(url)
    for batch in batches:
        connection.send(list(batch))


def receive_tensorcom(url: str, announce: Announce, each: Each, like: Batch) -> None:
    import zmq
    from tensorcom.zcom import Connection

    connection = Connection(url)
    announce(f"zpush+{connection.socket.getsockopt_string(zmq.LAST_ENDPOINT)}")
    while True:
        each(*connection.recv())


def send_highway_2017(url: str, batches: Iterable[Batch]) -> None:
    """msgpack and msgpack-numpy in one frame, sent and received as pyzmq does unless told otherwise."""
    import msgpack_numpy
    import zmq

    with zmq.Context.instance().socket(zmq.PUSH) as end:
        end.connect(url)
        for batch in batches:
            end.send(msgpack_numpy.packb(batch))


def receive_highway_2017(url: str, announce: Announce, each: Each, like: Batch) -> None:
    import msgpack_numpy
    import zmq

    with zmq.Context.instance().socket(zmq.PULL) as end:
        end.bind(url)
        announce(end.getsockopt_string(zmq.LAST_ENDPOINT))
        while True:
            each(*msgpack_numpy.unpackb(end.recv()))


def send_iceoryx2(url: str, batches: Iterable[Batch]) -> None:
    """Each batch is copied into a loan of shared memory."""
    import iceoryx2

    with _Iceoryx2(url) as service:
        backpressure = iceoryx2.BackpressureStrategy.RetryUntilDelivered
        publisher = service.publisher_builder().initial_max_slice_len(1).allocation_strategy(iceoryx2.AllocationStrategy.PowerOfTwo)
        publisher = publisher.backpressure_strategy(backpressure).create()
        for batch in batches:
            loan = publisher.loan_slice_uninit(sum(array.nbytes for array in batch))
            for array, place in zip(batch, _arrays(loan.payload().as_memory_view(), batch), strict=True):
                np.copyto(place, array)
            loan.assume_init().send()


def receive_iceoryx2(url: str, announce: Announce, each: Each, like: Batch) -> None:
    """Asks again and again without a pause, and looks at the batch where it lies."""
    with _Iceoryx2(url) as service:
        subscriber = service.subscriber_builder().create()
        announce(url)
        while True:
            sample = subscriber.receive()
            if sample is not None:
                each(*_arrays(sample.payload().as_memory_view(), like))
                sample.delete()


class _Iceoryx2:
    """A service in which nothing is overwritten before it is received."""

    def __init__(self, url: str) -> None:
        import ctypes

        import iceoryx2

        iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
        self.node = iceoryx2.NodeBuilder.new().signal_handling_mode(iceoryx2.SignalHandlingMode.Disabled).create(iceoryx2.ServiceType.Ipc)
        builder = self.node.service_builder(iceoryx2.ServiceName.new(url)).publish_subscribe(iceoryx2.Slice[ctypes.c_uint8])
        self.service = builder.enable_safe_overflow(False).subscriber_max_buffer_size(4).open_or_create()

    def __enter__(self) -> Any:
        return self.service

    def __exit__(self, *_: object) -> None:
        del self.service, self.node


def send_flight(url: str, batches: Iterable[Batch]) -> None:
    """Arrow Flight's ``do_put``: each batch is a record batch, one row an image."""
    from pyarrow import FixedSizeListArray, RecordBatch, array, flight

    def record(images: np.ndarray, labels: np.ndarray) -> RecordBatch:
        rows = FixedSizeListArray.from_arrays(array(images.reshape(-1)), images[0].size)
        return RecordBatch.from_arrays([rows, array(labels)], ["images", "labels"])

    batches = iter(batches)
    first = record(*next(batches))
    with flight.connect(url) as client:
        writer, _ = client.do_put(flight.FlightDescriptor.for_path("batches"), first.schema)
        with writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(record(*batch))


def receive_flight(url: str, announce: Announce, each: Each, like: Batch) -> None:
    from pyarrow import flight

    class Server(flight.FlightServerBase):
        def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            for chunk in reader:
                images, labels = chunk.data.columns
                each(images.flatten().to_numpy().reshape(like[0].shape), labels.to_numpy())

    server = Server(url)
    announce(f"grpc://127.0.0.1:{server.port}")
    server.serve()


LIMITS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


def send_grpc(url: str, batches: Iterable[Batch]) -> None:
    """One stream of messages, each the joined bytes of the arrays."""
    import grpc

    with grpc.insecure_channel(url, LIMITS) as channel:
        channel.stream_unary("/link/put")(b"".join(map(memoryview, batch)) for batch in batches)


def receive_grpc(url: str, announce: Announce, each: Each, like: Batch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    def put(messages: Iterator[bytes], context: Any) -> bytes:
        for message in messages:
            each(*_arrays(message, like))
        return b""

    server = grpc.server(ThreadPoolExecutor(1), options=LIMITS)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("link", {"put": grpc.stream_unary_rpc_method_handler(put)})])
    port = server.add_insecure_port(url)
    server.start()
    announce(f"127.0.0.1:{port}")
    server.wait_for_termination()


def _arrays(memory: Any, like: Batch) -> Batch:
    """Look at memory as arrays like the given ones, one behind the other."""
    images, labels = like
    first = np.frombuffer(memory, images.dtype, images.size).reshape(images.shape)
    return first, np.frombuffer(memory, labels.dtype, labels.size, images.nbytes).reshape(labels.shape)


WAYS = {
    "raw": Way((), send_raw, receive_raw),
    "highway": Way(("highway-data", "pyzmq"), send_highway, receive_highway),
    "tensorcom": Way(("tensorcom", "pyzmq"), send_tensorcom, receive_tensorcom),
    "highway-2017": Way(("msgpack", "msgpack-numpy", "pyzmq"), send_highway_2017, receive_highway_2017),
    "iceoryx2": Way(("iceoryx2",), send_iceoryx2, receive_iceoryx2),
    "flight": Way(("pyarrow",), send_flight, receive_flight),
    "grpc": Way(("grpcio",), send_grpc, receive_grpc),
}
