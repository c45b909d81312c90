"""Against a real server of S3, moto's, behind a proxy that spoils a tenth of the answers: all data arrive, and are right."""

import contextlib
import http.client
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from object_store import Faults
from waiting import wait_until

from highway import Pipeline
from highway.cli import main
from highway.data import photos
from highway.datasets import MDS, ImageFolder, Tar
from highway.datasets.shards import shard_writer
from highway.datasets.writing import writing
from highway.modules import ImageFileReader, MDSSink, Reader, WebDatasetSource
from highway.stores import clients, obstore_client, requests
from highway.stores import writing as stores_writing
from highway.stores.file import names_in, open_file, read_whole, remove
from highway.stores.listing import listing_of
from highway.stores.remote import write_object

moto = pytest.importorskip("moto.server", reason="moto is not installed; run by `tox -e stores`")
pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")


class _Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        faults, body = self.server.faults, self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = faults.draw(self.command)
        if fault == "reset":
            self.close_connection = True
            return
        if fault in ("500", "503"):
            return self._send(int(fault), [], b"<Error><Code>SlowDown</Code></Error>")
        if fault == "slow":
            faults.released.wait(faults.slow)
        connection = http.client.HTTPConnection(self.server.behind, timeout=30)
        with self.server.lock, contextlib.closing(connection):  # moto's own server is one process of Python, and slow
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            data, headers = answer.read(), answer.getheaders()
        left_out = ("transfer-encoding", "connection", "date", "server") + (() if self.command == "HEAD" else ("content-length",))
        self._send(answer.status, [pair for pair in headers if pair[0].lower() not in left_out], data, fault == "cut")

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _send(self, status, headers, data, cut=False):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection |= cut


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def process_request(self, request, address):
        self.requests.append(request)
        super().process_request(request, address)

    def handle_error(self, *_):
        pass


@pytest.fixture
def faults(monkeypatch):
    """The faults of a proxy before moto's server, none at first; the environment names it, and it has a bucket ``photos``."""
    behind = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    behind.start()
    host, port = behind.get_host_and_port()
    server = _Server(("127.0.0.1", 0), _Proxy)
    server.behind, server.faults, server.lock, server.requests = f"{host}:{port}", Faults(), threading.Lock(), []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    values = {
        "ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "ACCESS_KEY_ID": "id",
        "SECRET_ACCESS_KEY": "key",
        "REGION": "us-east-1",
    }
    for name, value in values.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    connection = http.client.HTTPConnection(urlsplit(values["ENDPOINT_URL"]).netloc)
    connection.request("PUT", "/photos")
    assert connection.getresponse().status == 200
    connection.close()
    yield server.faults
    server.faults.released.set()
    server.shutdown()
    thread.join()
    for request in server.requests:  # clients keep their connections
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)
    server.server_close()
    behind.stop()


def upload(folder, prefix=""):
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            write_object(f"s3://photos/{prefix}{path.relative_to(folder)}", path.read_bytes())


def spoil(faults):
    faults.share, faults.slow = 0.1, 0.2


def spoilt(faults):
    return sum(faults.count[kind] for kind in Faults.KINDS)


def test_a_folder_gives_the_batches_of_the_folder_here(faults):
    upload(Path(photos(), "val"), "val/")
    spoil(faults)
    there, here = ImageFolder("s3://photos/val"), ImageFolder("highway:photos/val")
    assert there.keys == here.keys and there.classes == here.classes

    def batches(root):
        with Pipeline([ImageFileReader(root, 8, (32, 32), flip=0.5, epochs=3)], seed=7) as pipeline:
            return [stamped.item for stamped in pipeline.stamped()], pipeline.stats().stages[1].counters

    (found, counters), (expected, _) = batches("s3://photos/val"), batches("highway:photos/val")
    assert len(found) == len(expected) == 12
    for (images, labels), (other_images, other_labels) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(images, other_images)
        np.testing.assert_array_equal(labels, other_labels)
    assert counters["store_bytes"] == 3 * sum(len(data) for data, _ in map(here.__getitem__, range(32)))
    again = counters.get("store_asked_again", 0) + counters.get("store_hedged", 0)
    assert spoilt(faults) > 5 and again > 0 and counters["store_requests"] == 96 + again


def test_shards_by_number_as_streams_and_through_a_cache(faults, tmp_path, monkeypatch):
    monkeypatch.setattr("highway.stores.streaming.PART", 20_000)
    (tmp_path / "s").mkdir()
    with shard_writer(str(tmp_path / "s" / "a.tar")) as writer:
        for number in range(40):
            writer.add(f"{number:03}", {"bin": bytes([number]) * (1000 + number), "cls": number})
    upload(tmp_path / "s")
    spoil(faults)
    expected = {number: bytes([number]) * (1000 + number) for number in range(40)}
    for url in ("s3://photos/a.tar", f"s3://photos/a.tar?cache_dir={tmp_path}/cache"):
        with Pipeline([Reader(Tar(url), epochs=2)], seed=1) as pipeline:
            samples = [(int(stamped.item["cls"]), stamped.item["bin"]) for stamped in pipeline.stamped()]
        assert len(samples) == 80 and dict(samples) == expected
        streamed = [stamped.item for stamped in WebDatasetSource(url, epochs=1)]
        assert {int(sample["cls"]): sample["bin"] for sample in streamed} == expected and len(streamed) == 40
    assert spoilt(faults) > 5


def test_listings_ranges_and_changes_are_those_of_s3(faults):
    for number in range(1100):
        if number % 100 == 0 or number < 4:
            write_object(f"s3://photos/many/{number % 3}/{number:04} +%.bin", bytes([number % 251]) * 10)
    listing = listing_of("s3://photos/many")
    assert len(listing) == 14 and listing.keys[0] == "0/0000 +%.bin"
    assert listing.read([0, 1])[1] == bytes([int(listing.keys[1][2:6]) % 251]) * 10
    file = open_file(f"s3://photos/many/{listing.keys[2]}")
    assert file.read(3, 4) == listing.read([2])[0][3:7] and file.state == listing.object(2).state
    write_object(f"s3://photos/many/{listing.keys[2]}", b"other data")
    with pytest.raises(ValueError, match="another ETag"):
        listing.read([2])
    with pytest.raises(FileNotFoundError, match=r"s3://nowhere/x: .*s3://nowhere"):
        open_file("s3://nowhere/x")
    with pytest.raises(FileNotFoundError, match="there is no bucket s3://nowhere"):
        listing_of("s3://nowhere/x")


def ask(method, path):
    """Return the status and body of an answer of the server."""
    connection = http.client.HTTPConnection(urlsplit(os.environ["AWS_ENDPOINT_URL"]).netloc)
    connection.request(method, path)
    answer = connection.getresponse()
    status, body = answer.status, answer.read()
    connection.close()
    return status, body


@pytest.fixture
def parts(monkeypatch):
    """Have files above 5 MB sent in parts of that size, the least that S3 takes."""
    for module in (clients, obstore_client, requests, stores_writing):
        monkeypatch.setattr(module, "PART", 5 << 20)


def test_a_large_file_is_sent_in_parts_and_is_there_when_all_are(faults, parts, tmp_path):
    spoil(faults)
    faults.kinds = ("500", "503", "reset", "slow")
    data = np.random.default_rng(0).bytes((11 << 20) + 7)
    for number in range(2):
        with writing(f"s3://photos/large/{number}.bin") as name, open(name, "wb") as file:
            file.write(data)
    faults.share = 0
    assert names_in("s3://photos/large") == {"0.bin", "1.bin"} and read_whole("s3://photos/large/1.bin") == data
    assert b"<UploadId>" not in ask("GET", "/photos?uploads")[1]
    remove("s3://photos/large/0.bin")
    assert names_in("s3://photos/large") == {"1.bin"}
    with (
        pytest.raises(FileNotFoundError, match=r"s3://nowhere/a\.bin: there is no bucket s3://nowhere"),
        writing("s3://nowhere/a.bin") as name,
    ):
        Path(name).write_bytes(data)


def test_an_upload_that_is_given_up_leaves_no_parts(faults, parts, monkeypatch):
    monkeypatch.setattr(stores_writing, "PATIENCE", 60)  # a busy machine is slow, too
    started, faults.share, faults.kinds, faults.slow, faults.methods = threading.Event(), 1, ["slow"], 1000, ["PUT"]

    class Sink:
        def consume(self, items):
            for _ in items:
                with writing("s3://photos/stopped/a.bin") as name:
                    Path(name).write_bytes(bytes(60 << 20))
                    started.set()

    pipeline = Pipeline([range(1), Sink()])
    thread = threading.Thread(target=pipeline.run)
    thread.start()
    started.wait(30)
    wait_until(lambda: faults.count["slow"] > 3)  # parts, none of which arrives before it is given up
    pipeline.stop()
    thread.join()
    faults.released.set()
    wait_until(lambda: b"<UploadId>" not in ask("GET", "/photos?uploads")[1])
    assert names_in("s3://photos/stopped") == set()


@pytest.mark.parametrize("target", ["s-%d.tar", "m", "f", "a.parquet"])
def test_a_conversion_ends_with_the_bytes_of_one_on_this_machine(faults, tmp_path, target, capsys):
    options = {"s-%d.tar": ["--shard-size", "12"], "m": ["--to", "mds"], "f": ["--to", "folder"]}.get(target, [])
    spoil(faults)
    assert main(["convert", "highway:photos/val", f"s3://photos/out/{target}?attempts=12", *options, "--check"]) == 0, capsys.readouterr()
    assert "all 32 samples are the same" in capsys.readouterr().out
    assert main(["convert", "highway:photos/val", str(tmp_path / "out" / target), *options]) == 0
    faults.share = 0
    for path in (path for path in (tmp_path / "out").rglob("*") if path.is_file() and path.name[0] != "."):
        assert read_whole(f"s3://photos/{path.relative_to(tmp_path)}") == path.read_bytes()


def test_a_whole_bucket_is_a_folder(faults):
    assert ask("PUT", "/whole")[0] == 200
    Pipeline([[{"x": number} for number in range(5)], MDSSink("s3://whole")]).run()
    assert names_in("s3://whole") == {"index.json", "shard.00000.mds"} and len(MDS("s3://whole")) == 5
    with pytest.raises(FileExistsError, match=r"MDSSink: 's3://whole' already exists;"):
        Pipeline([[{"x": 1}], MDSSink("s3://whole")]).run()
