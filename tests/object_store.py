"""An object store on loopback: the part of S3 that is used, listings of Azure, objects in memory, and a schedule of faults."""

import contextlib
import hashlib
import random
import re
import threading
from collections import Counter
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape


class Faults:
    """Which answers are faulty: drawn by a seed, one for each request, or what a test has put into ``next``."""

    KINDS = ("500", "503", "cut", "reset", "slow")

    def __init__(self, share=0.0, seed=0, kinds=KINDS, slow=0.5, methods=()):
        self.share, self.kinds, self.slow, self.methods = share, kinds, slow, methods  # of these requests; empty: of all
        self.next, self.count, self.released = [], Counter(), threading.Event()
        self._random, self._lock = random.Random(seed), threading.Lock()

    def draw(self, method):
        if self.methods and method not in self.methods:
            return None
        with self._lock:
            kind = self.next.pop(0) if self.next else self._random.choice(self.kinds) if self._random.random() < self.share else None
            self.count[kind] += 1
            return kind


class ObjectStore:
    """What the server holds: objects by ``(bucket, key)``; what was asked is in ``asked``."""

    def __init__(self):
        self.objects, self.modified, self.asked, self.faults = {}, {}, [], Faults()
        self.in_flight = self.most_in_flight = 0
        self.together, self.of = 0, ""  # of expect_together
        self.ranges = True  # whether it gives parts of objects
        self.lists = True
        self.listed = lambda query, body: body  # what a test makes of the answer to a listing; None: the server does not know a parameter
        self.forbidden = set()  # keys
        self.missing = set()  # buckets that are not there
        self.uploads = {}  # parts by number, by the number of the upload
        self.begun = 0  # uploads in parts
        self.lock = threading.Condition()
        self.url = ""

    def put(self, bucket, key, data):
        with self.lock:
            self.objects[bucket, key] = bytes(data)
            self.modified[bucket, key] = self.modified.get((bucket, key), 1_700_000_000) + 1

    def upload(self, bucket, folder, prefix=""):
        """Put all files below a folder."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(bucket, f"{prefix}{path.relative_to(folder)}", path.read_bytes())

    def expect_together(self, count, of=""):
        """Answer no request for what has ``of`` in its URL before so many are in flight at once, for 40 s: that many are asked at once."""
        self.most_in_flight, self.together, self.of = 0, count, of

    def buckets(self):
        return {bucket for bucket, _ in list(self.objects)}  # at once: others are put meanwhile

    def count(self, method="GET"):
        return sum(one[0] == method for one in self.asked)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        store = self.server.store
        self._begin((self.command, self.path, self.headers.get("Range"), self.headers.get("Authorization")))
        with store.lock:
            store.lock.wait_for(lambda: store.most_in_flight >= store.together or store.of not in self.path, timeout=40)
        try:
            self._answer(store, store.faults.draw(self.command))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            self._end()

    do_HEAD = do_GET

    def do_PUT(self):
        store = self.server.store
        bucket, key, query = self._asked_for()
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._begin((self.command, self.path, len(data), None))
        try:
            fault = store.faults.draw(self.command)
            if fault in ("500", "503"):
                return self._send(int(fault), _xml_error("SlowDown" if fault == "503" else "InternalError"))
            if fault == "slow":
                store.faults.released.wait(store.faults.slow)
            if fault != "reset":
                self._change(store, bucket, key, {name: values[0] for name, values in query.items()}, data, fault == "cut")
            self.close_connection |= fault in ("reset", "cut")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            self._end()

    do_POST = do_DELETE = do_PUT

    def _begin(self, about):
        self.in_flight, store = True, self.server.store
        with store.lock:
            store.asked.append(about)
            store.in_flight += 1
            store.most_in_flight = max(store.most_in_flight, store.in_flight)
            store.lock.notify_all()

    def _end(self):
        """Count the request as answered: before it is, since who has the answer may ask for the next at once."""
        store = self.server.store
        with store.lock:
            store.in_flight -= self.in_flight
            self.in_flight = False

    def _change(self, store, bucket, key, query, data, cut):
        """Do what is asked, and say so, unless the answer is ``cut``."""
        number, status, body = query.get("uploadId"), 200, b""
        if key in store.forbidden:
            status, body = 403, _xml_error("AccessDenied")
        elif bucket in store.missing:
            status, body = 404, _xml_error("NoSuchBucket")
        elif number is not None and number not in store.uploads:
            status, body = 404, _xml_error("NoSuchUpload")
        elif self.command == "POST" and "uploads" in query:
            with store.lock:
                store.begun += 1
                store.uploads[number := str(store.begun)] = {}
            body = f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>".encode()
        elif self.command == "POST" and "delete" in query:
            keys = re.findall(r"<Key>.*?</Key>", data.decode())
            for one in keys:
                store.objects.pop((bucket, unescape(one[5:-6])), None)
            body = f"<DeleteResult>{''.join(f'<Deleted>{one}</Deleted>' for one in keys)}</DeleteResult>".encode()
        elif self.command == "POST":
            numbers = sorted(map(int, re.findall(rb"<PartNumber>(\d+)</PartNumber>", data)))
            parts = store.uploads.pop(number)
            store.put(bucket, key, b"".join(parts[one] for one in numbers))
            body = b"<CompleteMultipartUploadResult><ETag>&quot;whole&quot;</ETag></CompleteMultipartUploadResult>"
        elif self.command == "DELETE":
            status = 204
            store.uploads.pop(number)
        elif number is not None:
            store.uploads[number][int(query["partNumber"])] = data
        else:
            store.put(bucket, key, data)
        if not cut:
            self._send(status, body, ETag=_etag(data))

    def _asked_for(self):
        parts = urlsplit(self.path)
        _, bucket, *key = unquote(parts.path).split("/", 2)
        return bucket, key[0] if key else "", parse_qs(parts.query, keep_blank_values=True)

    def _answer(self, store, fault):
        bucket, key, query = self._asked_for()
        if fault in ("500", "503"):
            return self._send(int(fault), _xml_error("SlowDown" if fault == "503" else "InternalError"))
        if fault == "reset":
            self.close_connection = True
            return None
        if fault == "slow":
            store.faults.released.wait(store.faults.slow)
        if not key and ("list-type" in query or "comp" in query):
            return self._list(store, bucket, {name: values[0] for name, values in query.items()})
        if key in store.forbidden:
            return self._send(403, _xml_error("AccessDenied"))
        if bucket not in store.buckets():
            return self._send(404, _xml_error("NoSuchBucket"))
        data = store.objects.get((bucket, key))
        if data is None:
            return self._send(404, _xml_error("NoSuchKey"))
        return self._object(store, data, store.modified[bucket, key], fault == "cut")

    def _object(self, store, data, modified, cut):
        about = {"ETag": _etag(data), "Last-Modified": formatdate(modified, usegmt=True)}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")) if store.ranges else None
        if not asked:
            return self._send(200, data, cut, **about)
        begin, end = int(asked[1]), min(int(asked[2] or len(data) - 1), len(data) - 1)
        if begin >= len(data):
            return self._send(416, _xml_error("InvalidRange"))
        return self._send(206, data[begin : end + 1], cut, **about, **{"Content-Range": f"bytes {begin}-{end}/{len(data)}"})

    def _list(self, store, bucket, query):
        if not store.lists:
            return self._send(403, _xml_error("AccessDenied"))
        if bucket not in store.buckets():
            return self._send(404, _xml_error("NoSuchBucket"))
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after") or query.get("marker") or ""
        found = {}
        for one, key in sorted(store.objects):
            if one == bucket and key.startswith(prefix):
                rest = key[len(prefix) :]
                folder = prefix + rest[: rest.index(delimiter) + 1] if delimiter and delimiter in rest else None
                found[folder or key] = folder is None
        names = [name for name in found if name > after and name >= query.get("startFrom", "")]
        page, more = names[:5], len(names) > 5
        if "comp" in query:
            return self._send_listing(store, query, self._blobs(store, bucket, [(name, found[name]) for name in page], more))
        contents = "".join(self._entry(store, bucket, name) for name in page if found[name])
        folders = "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in page if not found[name])
        following = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        body = (
            f"<ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{following}{contents}{folders}</ListBucketResult>"
        )
        return self._send_listing(store, query, body)

    def _send_listing(self, store, query, body):
        body = store.listed(query, body)
        return self._send(400, _xml_error("InvalidQueryParameterValue")) if body is None else self._send(200, body.encode())

    @staticmethod
    def _blobs(store, bucket, page, more):
        """Return a page of Azure's listing: folders, and objects."""
        blobs = ""
        for name, is_object in page:
            if is_object:
                data, modified = store.objects[bucket, name], formatdate(store.modified[bucket, name], usegmt=True)
                about = f"<Last-Modified>{modified}</Last-Modified><Etag>{escape(_etag(data))}</Etag><Content-Type>a/b</Content-Type>"
                about += f"<Content-Length>{len(data)}</Content-Length>"
                blobs += f"<Blob><Name>{escape(name)}</Name><Properties>{about}</Properties></Blob>"
            else:
                blobs += f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>"
        following = f"<NextMarker>{escape(page[-1][0])}</NextMarker>" if more else "<NextMarker/>"
        return f"<EnumerationResults><Blobs>{blobs}</Blobs>{following}</EnumerationResults>"

    @staticmethod
    def _entry(store, bucket, key):
        data = store.objects[bucket, key]
        return (
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>{escape(_etag(data))}</ETag>"
            f"<Size>{len(data)}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        )

    def _send(self, status, body, cut=False, **headers):
        self._end()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.close_connection = True


def _etag(data):
    return f'"{hashlib.md5(data).hexdigest()}"'


def _xml_error(code):
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *args):
        super().__init__(*args)
        self.sockets = set()

    def process_request(self, request, client_address):
        self.sockets.add(request)  # here, and not when its thread runs, which may be when the server ends
        super().process_request(request, client_address)

    def handle_error(self, *_):
        pass


@contextlib.contextmanager
def serving():
    """Run an object store on a free port of loopback."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.store = ObjectStore()
        server.store.url = f"http://127.0.0.1:{server.server_port}"
        server.daemon_threads = False
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.store
        finally:
            server.store.faults.released.set()
            server.shutdown()
            thread.join()
            for connection in server.sockets:
                with contextlib.suppress(OSError):
                    connection.shutdown(2)
