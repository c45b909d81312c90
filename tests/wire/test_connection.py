"""``Connection``, with each of its arguments."""

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from highway import ConfigError, EndOfStream, FrameError, LinkError, Pipeline, tenbin
from highway.modules import ZMQSink
from highway.wire.connection import Connection
from highway.wire.sender import LinkSender
from highway.wire.url import parse

IMAGES, LABELS = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3), np.array([3, 4], np.int32)
BATCH = [IMAGES, LABELS]


@contextlib.contextmanager
def pair(sender=None, query="", **receiver):
    """A connected pair; ``sender`` and ``receiver`` are further arguments."""
    incoming = Connection("zpull://127.0.0.1:0", **receiver)
    with incoming, Connection(f"zpush{incoming.bound[0][3:]}{query}", **(sender or {})) as outgoing:
        yield outgoing, incoming


def assert_batch(received, expected=BATCH):
    assert isinstance(received, list)
    assert len(received) == len(expected)
    for left, right in zip(received, expected, strict=True):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("multipart", [True, False])
def test_what_is_sent_is_received(multipart):
    with pair({"multipart": multipart}, multipart=multipart) as (outgoing, incoming):
        outgoing.send(BATCH)
        outgoing.write(BATCH)
        for _ in range(2):
            assert_batch(incoming.recv(timeout=60))


def test_a_training_loop_ends_with_total():
    with pair(total=6) as (outgoing, incoming):
        for _ in range(5):
            outgoing.send(BATCH)
        assert [len(labels) for images, labels in incoming] == [2, 2, 2]


def test_without_batch_count_each_message_counts_one():
    with pair(total=3, batch_count=False) as (outgoing, incoming):
        for _ in range(5):
            outgoing.send(BATCH)
        assert len(list(incoming)) == 3
        assert incoming.batchsize(BATCH) == 1


def test_a_loop_ends_when_the_sender_ends():
    with pair(query="?end=1&linger_ms=1000") as (outgoing, incoming):
        outgoing.send(BATCH)
        incoming.recv(timeout=60)  # now they are connected
        outgoing.serve([BATCH] * 3)
        assert len(list(incoming)) == 3
        with pytest.raises(EndOfStream):
            incoming.recv(timeout=1)


def test_the_length_is_the_epoch():
    assert len(Connection(epoch=17)) == 17
    assert len(Connection()) == 100000


def test_infos_are_sent_returned_and_checked():
    with pair({"infos": ["x", "y"]}, infos=True) as (outgoing, incoming):
        outgoing.send(BATCH)
        arrays, infos = incoming.recv(timeout=60)
        assert_batch(arrays)
        assert infos == ["x", "y"]
    with pair({"infos": ["x", "y"]}, infos=["x", "z"]) as (outgoing, incoming):
        outgoing.send(BATCH)
        with pytest.raises(FrameError, match=r"expected the infos \['x', 'z'\], found \['x', 'y'\]"):
            incoming.recv(timeout=60)


def test_64_bit_arrays_are_sent_when_the_connection_or_the_call_allows_it():
    wide = [np.arange(3)]
    with pair() as (outgoing, incoming):
        with pytest.raises(TypeError, match="allow64=True"):
            outgoing.send(wide)
        outgoing.send(wide, allow64=True)
        assert_batch(incoming.recv(timeout=60), wide)
    with pair({"allow64": True}) as (outgoing, incoming):
        outgoing.send(wide)
        assert_batch(incoming.recv(timeout=60), wide)


def test_raw_returns_the_frames():
    with pair(raw=True) as (outgoing, incoming):
        outgoing.send(BATCH)
        frames = incoming.recv(timeout=60)
        assert_batch(tenbin.decode_list(frames))
        assert incoming.stats.count == 1


def test_transforms_go_round_the_arrays_and_converters_come_after_them():
    with pair(batch_transforms=[lambda x: x + 1, None], converters=lambda x: x.tolist()) as (outgoing, incoming):
        outgoing.send([np.array([1], np.uint8)] * 3)
        assert incoming.recv(timeout=60) == [[2], [1], [2]]


def test_the_torch_converter_puts_channels_first_and_widens_labels():
    torch = pytest.importorskip("torch")
    with pair(converters="torch") as (outgoing, incoming):
        outgoing.send([IMAGES, LABELS, LABELS.astype(np.float16), LABELS.astype(np.uint16)])
        images, labels, halves, shorts = incoming.recv(timeout=60)
    assert (images.shape, images.dtype) == ((2, 3, 4, 5), torch.uint8)
    np.testing.assert_array_equal(images.permute(0, 2, 3, 1).numpy(), IMAGES)
    assert [x.dtype for x in (labels, halves, shorts)] == [torch.int64, torch.float32, torch.int64]
    assert labels.tolist() == shorts.tolist() == [3, 4]


def test_a_device_alone_asks_for_tensors_there():
    pytest.importorskip("torch")
    with pair(device="cpu") as (outgoing, incoming):
        outgoing.send(BATCH)
        assert [tensor.device.type for tensor in incoming.recv(timeout=60)] == ["cpu", "cpu"]


def test_an_unknown_converter_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match="unknown converter 'toch'; did you mean torch"):
        Connection("zpull://127.0.0.1:0", converters="toch")


def test_a_report_is_printed_as_often_as_asked(capsys):
    with pair(report=4, total=10) as (outgoing, incoming):
        for _ in range(5):
            outgoing.send(BATCH)
        list(incoming)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["count", "2"], ["count", "6"], ["count", "10"]]
    assert all("msg/s throughput" in line for line in lines)


def test_both_ends_count_messages_and_bytes():
    with pair(stats_horizon=2) as (outgoing, incoming):
        for _ in range(3):
            outgoing.send(BATCH)
            incoming.recv(timeout=60)
    assert (outgoing.stats.count, outgoing.stats.total) == (3, 3 * (IMAGES.nbytes + LABELS.nbytes))
    assert incoming.stats.count == 3
    assert incoming.stats.total >= outgoing.stats.total
    assert len(incoming.stats.recent) == 2
    assert incoming.counters["messages"] == 3


def test_dicts_come_back_with_their_names_and_transforms():
    with pair(batch_transforms=[None, lambda x: x * 2]) as (outgoing, incoming):
        outgoing.send({"images": IMAGES, "labels": LABELS})
        received = incoming.recv(timeout=60)
    assert list(received) == ["images", "labels"]
    assert received["labels"].tolist() == [6, 8]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_message_that_cannot_be_decoded_is_raised_or_left_out(on_error):
    incoming = Connection("zpull://127.0.0.1:0", on_error=on_error, total=2)
    with incoming, LinkSender(parse(f"zpush{incoming.bound[0][3:]}", "send")) as outgoing:
        outgoing.transport_end.send([b"garbage"])
        outgoing.send(BATCH)
        if on_error == "skip":
            assert_batch(next(iter(incoming)))
        else:
            with pytest.raises(FrameError, match="message 1: the message has 1 frames; expected a header and data for each array"):
                next(iter(incoming))
            assert_batch(incoming.recv(timeout=60))
        assert incoming.counters["malformed"] == 1


def test_receiving_runs_out_and_goes_on():
    with pair() as (outgoing, incoming):
        with pytest.raises(TimeoutError, match=r"no message within [\d.e-]+ s; "):
            incoming.recv(timeout=0.05)
        outgoing.send(BATCH)
        assert_batch(incoming.recv(timeout=60))


def test_all_urls_share_a_socket(ipc):
    places = [ipc() for _ in range(4)]
    senders = [Connection(f"zrpush+ipc://{place}") for place in places]
    with Connection([f"zrpull+ipc://{place}" for place in places]) as incoming:
        for number, sender in enumerate(senders):
            sender.send([np.array([number], np.int32)])
        assert sorted(incoming.recv(timeout=60)[0][0] for _ in places) == [0, 1, 2, 3]
    for sender in senders:
        sender.close()


def test_braces_stay_as_they_are_when_asked(ipc):
    with Connection(f"zpull+ipc://{ipc()}{{a,b}}", noexpand=True) as connection:
        assert connection.bound[0].endswith("{a,b}")


def test_connect_opens_a_connection_made_without_a_url(ipc):
    place = ipc()
    publisher, subscriber = Connection(), Connection()
    subscriber.connect(f"zsub+ipc://{place}", topic="train")
    publisher.connect(f"zpub+ipc://{place}?receivers=1#train")
    publisher.send(BATCH)
    assert_batch(subscriber.recv(timeout=60))
    publisher.close()
    subscriber.close()


def test_a_connection_used_against_its_direction_or_after_its_end_says_so(ipc):
    connection = Connection(f"zpull+ipc://{ipc()}")
    with pytest.raises(LinkError, match="the scheme of the URL allows this connection only to receive"):
        connection.send(BATCH)
    connection.close()
    connection.close()
    for use in (connection.recv, lambda: connection.send(BATCH)):
        with pytest.raises(LinkError, match=r"the connection is closed; call connect\(url\)"):
            use()


def test_a_plain_url_needs_a_scheme_that_says_what_it_is():
    with pytest.raises(ConfigError, match=r"such as zsub\+tcp or zpush\+tcp"):
        Connection("tcp://127.0.0.1:1")


# --- several calls of connect() ---


@pytest.mark.parametrize("transport", ["tcp", "ipc", "shm"])
def test_a_second_connect_adds_a_sender_while_the_first_goes_on(transport, ipc):
    place = {"tcp": lambda: "127.0.0.1:0", "ipc": ipc, "shm": lambda: f"test-{os.urandom(6).hex()}"}[transport]
    urls = [f"zrpush+{transport}://{place()}" for _ in range(2)]
    with Connection() as incoming, Connection(urls[0]) as one, Connection(urls[1]) as two:
        for number, senders in enumerate([[one], [one, two]]):
            incoming.connect(f"zrpull+{transport}://{senders[-1].bound[0].split('://')[1]}")
            for sender in senders:
                sender.send([np.array([number], np.int32)], timeout=60)
                assert_batch(incoming.recv(timeout=60), [np.array([number], np.int32)])
    assert incoming.counters["senders"] == 2


def test_a_receiver_of_two_publishers_ends_with_the_later_one(ipc):
    places = [ipc(), ipc()]
    with ThreadPoolExecutor(2) as pool, Connection() as incoming:
        for count, place in zip((3, 5), places, strict=True):
            items = [[np.full(1, n, np.int32)] for n in range(count)]
            pool.submit(Pipeline([items, ZMQSink(f"zpub+ipc://{place}", receivers=1)]).run)
            incoming.connect(f"zsub+ipc://{place}")
        assert sorted(int(array[0]) for (array,) in incoming) == [0, 0, 1, 1, 2, 2, 3, 4]


def test_a_sender_can_connect_to_a_second_receiver(ipc):
    places = [ipc(), ipc()]
    with Connection(f"zpull+ipc://{places[0]}") as one, Connection(f"zpull+ipc://{places[1]}") as two, Connection() as outgoing:
        outgoing.connect(f"zpush+ipc://{places[0]}")
        outgoing.send(BATCH)
        assert_batch(one.recv(timeout=60))
        outgoing.connect(f"zpush+ipc://{places[1]}")
        while not two.counters["messages"]:  # they are dealt out to those whose connections are made
            outgoing.send(BATCH, timeout=60)
            with contextlib.suppress(TimeoutError):
                assert_batch(two.recv(timeout=0.05))


@pytest.mark.parametrize("second", ["zpush+ipc://b", "zpull+ipc://b", "zsub+ipc://b#topic", "zsub+ipc://b?budget_mb=7", "zrsub+ipc://b"])
def test_what_cannot_share_the_socket_is_an_error_and_the_first_goes_on(second, ipc):
    with Connection(f"zsub+ipc://{ipc()}") as incoming:
        with pytest.raises(ConfigError, match="cannot share a socket: their schemes, options and topics must be equal"):
            incoming.connect(second)
        with pytest.raises(TimeoutError):
            incoming.recv(timeout=0.01)


def test_a_second_address_that_is_taken_is_an_error_and_the_first_goes_on():
    with Connection("zpull://127.0.0.1:0") as incoming, Connection(f"zpush{incoming.bound[0][3:]}") as outgoing:
        with pytest.raises(LinkError, match="Address already in use"):
            incoming.connect(f"zpull{incoming.bound[0][3:]}")
        outgoing.send(BATCH)
        assert_batch(incoming.recv(timeout=60))
        assert len(incoming.bound) == 1


# --- what frameworks and programs of tensorcom's ask for ---


def test_frameworks_find_the_attributes_of_a_loader():
    with pair() as (outgoing, incoming):
        assert (incoming.sampler, incoming.batch_sampler, incoming.batch_size) == (None, None, 1)
        outgoing.send(BATCH)
        incoming.recv(timeout=60)
        assert incoming.batch_size == 2
        outgoing.send([np.array(3, np.int32)])
        incoming.recv(timeout=60)
        assert incoming.batch_size == 1


@pytest.mark.parametrize(("name", "way_out"), [("socket", r"Use recv\(timeout=\).*budget_mb=.*close\(\)"), ("context", r"use close\(\)")])
def test_what_a_connection_keeps_to_itself_is_an_error_that_says_what_to_use(name, way_out):
    assert not hasattr(Connection(), name)
    with pytest.raises(AttributeError, match=way_out):
        getattr(Connection(), name)
