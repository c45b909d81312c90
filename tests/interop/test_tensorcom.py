"""With stock tensorcom 0.1.0 at the other end, and webdataset's copy of its file format; run by ``tox -e interop``."""

import io
import itertools
import operator
import shutil
import sys
import tarfile
import tempfile
import threading
from importlib import metadata

import numpy as np
import pytest
from PIL import Image

from highway import Passport, Pipeline, Stamped, tenbin
from highway.cli.streams import serve_shards
from highway.datasets import TenFiles
from highway.modules import ZMQSink, ZMQSource
from highway.modules.ten_files import TenSink
from highway.wire.connection import Connection

stock = pytest.importorskip("tensorcom", reason="tensorcom is not installed: these are run by tox -e interop")
zcom = pytest.importorskip("tensorcom.zcom")
webdataset = pytest.importorskip("webdataset.tenbin")
zmq = pytest.importorskip("zmq")

zcom.old_div = operator.truediv  # its Statistics calls this function, which does not exist

DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint64"]
BATCH = [np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3), np.array([3, -4], np.int32)]
LARGE = [np.arange(300_000, dtype=np.uint8).reshape(2, -1), np.array([3, -4], np.int32)]
NUMBERS = itertools.count()


@pytest.fixture
def place():
    """A function that returns an unused location for ``ipc`` each time."""
    folder = tempfile.mkdtemp(prefix="hw")
    yield lambda: f"{folder}/{next(NUMBERS)}"
    shutil.rmtree(folder)


@pytest.fixture
def tensorcom():
    """A function that makes a stock connection, which is closed after the test and does not wait for ever."""
    made = []

    def make(*arguments, **options):
        connection = zcom.Connection(*arguments, **options)
        connection.socket.setsockopt(zmq.RCVTIMEO, 20_000)
        connection.socket.setsockopt(zmq.SNDTIMEO, 20_000)
        made.append((connection, connection.context))
        return connection

    yield make
    for connection, context in made:
        connection.close()
        context.term()


def assert_same(received, expected=BATCH):
    assert len(received) == len(expected)
    for left, right in zip(received, expected, strict=True):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), (1,) * 9, (0, 3)])
def test_frames_buffers_and_files_are_the_same_bytes(tmp_path, dtype, shape):
    arrays = [np.arange(np.prod(shape)).reshape(shape).astype(dtype)] * 2
    infos = ["images", "12345678"]
    assert [bytes(frame) for frame in tenbin.encode_list(arrays, infos)] == [
        bytes(frame) for frame in stock.tenbin.encode_list(arrays, infos)
    ]
    if 0 not in shape:  # stock cannot put arrays without elements into one buffer
        assert tenbin.encode_buffer(arrays, infos) == stock.tenbin.encode_buffer(arrays, infos)
        tenbin.save(tmp_path / "ours.ten", *arrays, infos=infos)
        stock.tenbin.save(str(tmp_path / "stock.ten"), *arrays, infos=infos)
        assert (tmp_path / "ours.ten").read_bytes() == (tmp_path / "stock.ten").read_bytes()
        assert_same(stock.tenbin.load(str(tmp_path / "ours.ten"), infos=infos), arrays)
        assert_same(tenbin.load(tmp_path / "stock.ten", infos=infos, mmap=True), arrays)
        assert_same(webdataset.load(str(tmp_path / "ours.ten")), arrays)


def test_files_of_the_sink_are_read_by_both_with_their_extension(tmp_path):
    item = Stamped({"a long field name": BATCH[0], "labels": BATCH[1]}, Passport(2, 5, keys=("a", "b")))
    Pipeline([[item], TenSink(str(tmp_path))]).run()
    path = str(tmp_path / "002-00000005.ten")
    assert_same(stock.tenbin.load(path))
    assert_same(webdataset.load(path))
    webdataset.save(str(tmp_path / "web.ten"), *BATCH)
    (read,) = TenFiles(str(tmp_path / "web.ten"))
    assert_same(read)


PAIRS = [("zpush", "zpull"), ("zrpush", "zrpull"), ("zpub", "zsub"), ("zrpub", "zrsub")]


def exchange(sender, receiver, batch):
    """Send until something is received: a publisher drops what is sent before its subscriber has come."""
    receiver.socket.setsockopt(zmq.RCVTIMEO, 100)
    for _ in range(200):
        sender.send(batch)
        try:
            return receiver.recv()
        except zmq.Again:
            continue
    raise AssertionError("nothing arrived")


@pytest.mark.parametrize("batch", [BATCH, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("multipart", [True, False])
@pytest.mark.parametrize(("sends", "receives"), PAIRS)
def test_stock_reads_what_highway_sends(tensorcom, place, sends, receives, multipart, batch):
    location = place()
    urls = f"{sends}+ipc://{location}", f"{receives}+ipc://{location}"
    with Connection(urls[0], multipart=multipart) as sender:
        assert_same(exchange(sender, tensorcom(urls[1], multipart=multipart), batch), batch)


@pytest.mark.parametrize("batch", [BATCH, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("multipart", [True, False])
@pytest.mark.parametrize(("sends", "receives"), PAIRS)
def test_highway_reads_what_stock_sends(tensorcom, place, sends, receives, multipart, batch):
    location = place()
    receiver = Connection(f"{receives}+ipc://{location}", multipart=multipart)
    sender = tensorcom(f"{sends}+ipc://{location}", multipart=multipart, infos=["x", "y"])
    for _ in range(200):
        sender.send(batch)
        try:
            received = receiver.recv(timeout=0.1)
            break
        except TimeoutError:
            continue
    receiver.close()
    assert_same(received, batch)


def test_tcp_in_both_directions(tensorcom):
    with Connection("zpull://127.0.0.1:0") as receiver, Connection("zrpush://127.0.0.1:0") as sender:
        tensorcom("zpush" + receiver.bound[0][3:]).send(BATCH)
        assert_same(receiver.recv(timeout=20))
        other = tensorcom("zrpull" + sender.bound[0][3:])
        sender.send(BATCH)
        assert_same(other.recv())


def test_infos_in_both_directions(tensorcom, place):
    location = place()
    with Connection(f"zpull+ipc://{location}", infos=["x", "y"]) as receiver:
        tensorcom(f"zpush+ipc://{location}", infos=["x", "y"]).send(BATCH)
        assert_same(receiver.recv(timeout=20))
    location = place()
    other = tensorcom(f"zpull+ipc://{location}", infos=["x", "y"])
    with Connection(f"zpush+ipc://{location}", infos=["x", "y"]) as sender:
        sender.send(BATCH)
        assert_same(other.recv())


def test_brace_urls_read_all_senders_in_both_directions(tensorcom, place):
    location = place()
    senders = [tensorcom(f"zrpush+ipc://{location}{end}") for end in "ab"]
    with Connection(f"zrpull+ipc://{location}{{a,b}}") as receiver:
        for number, sender in enumerate(senders):
            sender.send([np.array([number], np.int32)])
        assert sorted(receiver.recv(timeout=20)[0][0] for _ in senders) == [0, 1]
    location = place()
    ours = [Connection(f"zrpush+ipc://{location}{end}") for end in "ab"]
    other = tensorcom(f"zrpull+ipc://{location}{{a,b}}")
    for number, sender in enumerate(ours):
        sender.send([np.array([number], np.int32)])
    assert sorted(other.recv()[0][0] for _ in ours) == [0, 1]
    for sender in ours:
        sender.close()


def test_stock_reads_dicts_with_passports_and_takes_the_end_for_a_batch_without_samples(tensorcom, place):
    location = place()
    receiver = tensorcom(f"zpull+ipc://{location}")
    item = {"image": BATCH[0], "a long field name": BATCH[1]}
    items = [Stamped(item, Passport(1, n, keys=("a", "b"))) for n in range(3)]
    Pipeline([items, ZMQSink(f"zpush+ipc://{location}?linger_ms=200")]).run()
    batches = receiver.items()
    for _ in range(3):
        assert_same(next(batches))
    end = next(batches)
    assert [(array.dtype, array.shape) for array in end] == [("uint8", (0, 4, 5, 3)), ("int32", (0,))]


def test_a_pipeline_reads_a_stock_server_and_its_report(tensorcom, place, capsys):
    location = place()
    source = Pipeline([ZMQSource(f"ipc://{location}", bind=True)])
    with pytest.raises(TimeoutError):
        source.dequeue(timeout=0.01)
    server = tensorcom(f"zpush+ipc://{location}")
    server.serve([BATCH] * 5, report=2)
    for _ in range(5):
        assert_same(source.dequeue(timeout=20))
    source.stop()
    assert capsys.readouterr().out.startswith("count 0 rate")


def test_the_end_of_a_publisher_is_survived_by_a_stock_subscriber(tensorcom, place):
    location = place()
    subscriber = tensorcom(f"zsub+ipc://{location}")
    for start in (0, 10):
        items = [(np.array([start + n], np.int32),) for n in range(3)]
        publisher = Pipeline([items, ZMQSink(f"zpub+ipc://{location}?linger_ms=200&receivers=1")])
        thread = threading.Thread(target=publisher.run)  # a subscriber that comes again says so when it next receives
        thread.start()
        received = []
        while len(received) < 3:
            received += subscriber.recv()[0].tolist()
        thread.join(20)
        assert received == [start, start + 1, start + 2]


# Its server calls the WebDataset of February 2020, which took the fields and the decoder as arguments.
SERVER = """
import operator, runpy, sys
import webdataset
from tensorcom import zcom

zcom.old_div = operator.truediv
current = webdataset.WebDataset
webdataset.WebDataset = lambda url, extensions, decoder, shuffle: (
    current(url, shardshuffle=False).decode(decoder).to_tuple(*extensions.split())
)
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


@pytest.fixture
def server():
    """The path of tensorcom's command ``serve-imagenet-shards``."""
    (found,) = [file.locate() for file in metadata.files("tensorcom") if file.name == "serve-imagenet-shards"]
    if "from tensorcom import zcom" not in found.read_text():
        pytest.skip(f"{found} is highway's command: tox -e interop installs tensorcom's after it")
    return str(found)


def shard_of(path, sizes):
    """Write a shard of random PNGs of these sizes, and return its path."""
    with tarfile.open(path, "w") as shard:
        for number, size in enumerate(sizes):
            encoded = io.BytesIO()
            Image.fromarray(np.random.default_rng(number).integers(0, 256, (*size, 3), np.uint8)).save(encoded, "PNG")
            for suffix, data in (("png", encoded.getvalue()), ("cls", b"%d" % number)):
                member = tarfile.TarInfo(f"{number:03}.{suffix}")
                member.size = len(data)
                shard.addfile(member, io.BytesIO(data))
    return str(path)


def test_the_shard_server_sends_what_tensorcoms_server_sends(server, place, popen, tmp_path):
    shard, theirs, ours = shard_of(tmp_path / "a.tar", [(20, 30)] * 5), f"+ipc://{place()}", f"+ipc://{place()}"
    popen([sys.executable, "-c", SERVER, server, "-u", shard, "-b", "2", f"zpush{theirs}"])
    thread = threading.Thread(target=serve_shards.main, args=[["-u", shard, "-b", "2", "--as-stored", "--epochs", "2", f"zpush{ours}"]])
    with Connection(f"zpull{theirs}") as stock_end, Connection(f"zpull{ours}?end=1") as own_end:
        thread.start()
        for _ in range(6):  # two epochs of two whole batches and a rest
            assert_same(own_end.recv(timeout=120), stock_end.recv(timeout=120))
        assert list(own_end.items()) == []
    thread.join()


def test_images_of_two_sizes_in_a_batch_end_tensorcoms_server_too(server, place, popen, tmp_path):
    shard = shard_of(tmp_path / "a.tar", [(20, 30), (21, 30)])
    process = popen([sys.executable, "-c", SERVER, server, "-u", shard, "-b", "2", f"zpush+ipc://{place()}"])
    _, error = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "stack expects each tensor to be equal size" in error
    assert serve_shards.main(["-u", shard, "-b", "2", "--as-stored", "--epochs", "1", f"zpush+ipc://{place()}"]) == 1
