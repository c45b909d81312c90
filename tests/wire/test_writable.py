"""Arrays from a link that may be written into."""

import itertools
import os
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from highway import Pipeline
from highway.modules import ZMQSource
from highway.wire.connection import Connection
from highway.wire.transports.memory import writable

ITEM = {"image": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "mask": np.array([True, False]), "none": np.zeros((0, 3), np.int16)}
NAMES = itertools.count()
LINKS = [(transport, codec) for transport in ("tcp", "ipc", "shm") for codec in ("tensorcom", "tenbin", "msgpack")]


@pytest.fixture
def sender(ipc):
    """A function that opens a sender, and returns it with the location that it bound."""
    opened = []

    def connect(transport, codec="tensorcom"):
        location = {"tcp": "127.0.0.1:0", "ipc": ipc(), "shm": f"writable-{os.getpid()}-{next(NAMES)}"}[transport]
        opened.append(Connection(f"zrpush+{transport}://{location}?codec={codec}&end=1"))
        return opened[-1], opened[-1].bound[0].split("://")[1] if transport == "tcp" else location

    yield connect
    for connection in opened:
        connection.close()


def assert_own_memory(item):
    assert list(item) == list(ITEM)
    for name, array in item.items():
        assert (array.dtype, array.shape) == (ITEM[name].dtype, ITEM[name].shape)
        np.testing.assert_array_equal(array, ITEM[name])
        assert array.flags.writeable
        assert array.flags.c_contiguous
        assert array.__array_interface__["data"][0] % 64 == 0
        array[...] = 1


@pytest.mark.parametrize(("transport", "codec"), LINKS)
def test_a_source_yields_arrays_that_may_be_written_into(transport, codec, sender):
    outgoing, location = sender(transport, codec)
    with Pipeline([ZMQSource(f"{transport}://{location}", codec=codec, writable=True)]) as pipeline, ThreadPoolExecutor() as pool:
        received = pool.submit(list, pipeline)
        outgoing.serve([ITEM, ITEM])
        items = received.result(60)
    for item in items:
        assert_own_memory(item)
    assert len(items) == 2


def test_a_topology_asks_for_arrays_that_may_be_written_into(sender, tmp_path):
    outgoing, location = sender("tcp")
    file = tmp_path / "feed.yaml"
    file.write_text(f"roles: {{r: [ZMQSource: {{url: 'tcp://{location}', writable: true}}]}}")
    with Pipeline.from_yaml(file, "r") as pipeline, ThreadPoolExecutor() as pool:
        received = pool.submit(list, pipeline)
        outgoing.serve([ITEM])
        (item,) = received.result(60)
    assert_own_memory(item)


@pytest.mark.parametrize(("transport", "codec"), LINKS)
def test_a_connection_receives_arrays_that_may_be_written_into(transport, codec, sender):
    outgoing, location = sender(transport, codec)
    with Connection(f"zrpull+{transport}://{location}?codec={codec}", writable=True) as incoming:
        outgoing.send(ITEM)
        assert_own_memory(incoming.recv(timeout=60))


def test_transforms_get_arrays_that_may_be_written_into(sender):
    def add_one(array):
        array += 1
        return array

    outgoing, location = sender("tcp")
    with Connection(f"zrpull://{location}", writable=True, batch_transforms=add_one) as incoming:
        outgoing.send([np.zeros(2, np.uint8)])
        assert incoming.recv(timeout=60)[0].tolist() == [1, 1]


def test_tensors_are_writable_without_a_warning(sender):
    torch = pytest.importorskip("torch")
    outgoing, location = sender("tcp")
    with Connection(f"zrpull://{location}", writable=True) as incoming, warnings.catch_warnings():
        warnings.simplefilter("error")
        outgoing.send([np.zeros(2, np.uint8)])
        tensor = torch.from_numpy(incoming.recv(timeout=60)[0])
        tensor += 1
    outgoing, location = sender("tcp")
    with Connection(f"zrpull://{location}", converters="torch") as incoming, warnings.catch_warnings():
        warnings.simplefilter("error")
        outgoing.send([np.zeros(2, np.uint8)])
        tensor = incoming.recv(timeout=60)[0]
        tensor += 1
    assert tensor.tolist() == [1, 1]


def test_arrays_within_lists_are_copied_and_other_values_kept():
    array = np.arange(3)
    array.flags.writeable = False
    kept, (text, copied) = writable((None, ["text", array]))
    assert (kept, text, copied.tolist(), copied.flags.writeable) == (None, "text", [0, 1, 2], True)


def test_who_writes_into_what_a_link_lent_is_told_how(sender):
    def darken(item):
        item["image"] *= 0.5
        return item

    outgoing, location = sender("tcp")
    with Pipeline([ZMQSource(f"tcp://{location}"), darken]) as pipeline, ThreadPoolExecutor() as pool:
        received = pool.submit(list, pipeline)
        outgoing.send(ITEM)
        with pytest.raises(ValueError, match="read-only") as raised:
            received.result(60)
    assert "ZMQSource(writable=True)" in raised.value.__notes__[-1]
