"""Requests that fail, are slow, or are not wanted any more."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from forking import in_a_fork
from object_store import Faults
from waiting import wait_until

from highway import Pipeline
from highway.errors import ConfigError, DatasetError, StoreError
from highway.modules import Reader
from highway.stores import loop
from highway.stores.file import exists, open_file, read_whole
from highway.stores.unchanging import FileState

DATA = bytes(range(256)) * 40


@pytest.fixture
def url(store):
    store.put("bucket", "a.bin", DATA)
    return "s3://bucket/a.bin"


def counted(call):
    """Return what a call has counted, beside what it returned."""
    before = loop.totals()
    result = call()
    return result, {name: number - before.get(name, 0) for name, number in loop.totals().items() if number != before.get(name, 0)}


def test_a_file_is_read_by_position(url):
    file = open_file(url)
    assert file.state.size == len(DATA) and file.path == url
    assert file.read(100, 300) == DATA[100:400] and file.read(0, len(DATA)) == DATA
    memory = bytearray(50)
    file.read_into(7, memoryview(memory))
    assert memory == DATA[7:57] and read_whole(url) == DATA
    with file.as_stream() as stream:
        stream.seek(-3, os.SEEK_END)
        assert stream.read() == DATA[-3:] and stream.seek(5) == 5 and stream.read(4) == DATA[5:9]


def test_large_parts_are_asked_for_in_several_requests_at_once(store, url, monkeypatch):
    monkeypatch.setattr("highway.stores.remote.PART", 1000)
    data, counts = counted(lambda: open_file(url).read(500, 9000))
    assert data == DATA[500:9500] and counts == {"requests": 10, "bytes": 9000}
    assert {asked[2] for asked in store.asked if asked[2]} == {f"bytes={at}-{at + 999}" for at in range(500, 9500, 1000)}


@pytest.mark.parametrize("kind", ["500", "503", "reset", "cut"])
def test_what_fails_is_asked_for_again_and_counted(store, url, kind):
    file = open_file(url)
    store.faults.next = [kind, kind]
    data, counts = counted(lambda: file.read(0, len(DATA)))
    assert data == DATA and counts == {"requests": 3, "asked_again": 2, "bytes": len(DATA)}


def test_what_fails_too_often_is_an_error_that_names_it(store, url):
    file = open_file(f"{url}?attempts=2")
    store.faults.next = ["503"] * 2
    with pytest.raises(
        StoreError, match=r"s3://bucket/a\.bin: 2 attempts failed; the last error: status 503 SlowDown; check the network, and"
    ):
        file.read(0, 10)


def test_a_slow_answer_is_asked_for_again_and_the_first_one_counts(store, url, monkeypatch):
    file = open_file(url)
    for _ in range(10):
        file.read(0, 10)
    monkeypatch.setattr("highway.stores.requests.LEAST_HEDGE", 0.1)  # not before: none of those is to be asked for twice
    store.faults.next, store.faults.slow = ["slow"], 1000
    data, counts = counted(lambda: file.read(0, 10))
    assert data == DATA[:10]
    assert counts == {"requests": 2, "hedged": 1, "hedges_won": 1, "bytes": 10}


def test_no_answer_in_time_is_a_failure(store, url):
    file = open_file(f"{url}?timeout=0.2&attempts=1", FileState(len(DATA), 0))
    store.faults.next, store.faults.slow = ["slow"], 1000
    with pytest.raises(StoreError, match=r"a\.bin: the request failed: no answer within 0\.2 s; check the network"):
        file.read(0, 10)


def test_so_many_requests_are_in_flight_and_no_more(store):
    for number in range(24):
        store.put("bucket", f"{number}.bin", bytes(10))
    files = [open_file(f"s3://bucket/{n}.bin?requests=6", FileState(10, 0)) for n in range(24)]
    store.expect_together(6)
    from highway.stores.file import read_ranges
    from highway.stores.unchanging import FileRange

    with pytest.raises(DatasetError, match=r"with another ETag or time"):
        read_ranges([FileRange(file, 0, 10) for file in files])
    assert store.most_in_flight == 6


def test_a_change_is_noticed_by_the_next_answer(store, url):
    file = open_file(url)
    store.put("bucket", "a.bin", DATA[::-1])
    with pytest.raises(
        DatasetError, match=r"s3://bucket/a\.bin: the object has changed \(10240 bytes, with another ETag .* start the program again"
    ):
        file.read(0, 10)
    with pytest.raises(DatasetError, match="another ETag"):
        file.check()
    store.put("bucket", "a.bin", DATA[:50])
    with pytest.raises(DatasetError, match="from 10240 to 50 bytes"):
        file.read(0, 10)


def test_what_lies_behind_the_end_is_not_asked_for(store, url):
    file = open_file(url)
    asked = len(store.asked)
    with pytest.raises(DatasetError, match=r"a\.bin: expected at least 10250 bytes, found 10240 bytes: it is truncated"):
        file.read(10200, 50)
    with pytest.raises(DatasetError, match="expected at least"):
        file.read(0, 1 << 60)
    assert len(store.asked) == asked


def test_an_object_or_bucket_that_is_not_there_is_named(url):
    with pytest.raises(FileNotFoundError, match=r"s3://bucket/b\.bin: no such object in s3://bucket; correct the URL"):
        open_file("s3://bucket/b.bin")
    with pytest.raises(FileNotFoundError, match=r"s3://nowhere/b\.bin: .*s3://nowhere; correct the URL"):
        open_file("s3://nowhere/b.bin")
    assert exists(url) and not exists("s3://bucket/b.bin")


def test_who_has_no_rights_is_told_how_to_say_who_they_are(store, url):
    store.forbidden.add("a.bin")
    with pytest.raises(
        PermissionError, match=r"s3://bucket/a\.bin: the store refuses access .*AWS_ACCESS_KEY_ID .*AWS_SKIP_SIGNATURE=true"
    ) as caught:
        open_file(url)
    assert "the-secret-key" not in str(caught.value) and "the-key-id" not in str(caught.value)


def test_a_store_that_is_not_there_is_an_error_after_few_attempts(monkeypatch, url):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(
        StoreError,
        match=r"s3://other/a\.bin: 3 attempts failed; the last error: the connection was refused; check the network, and "
        r"AWS_ENDPOINT_URL",
    ):
        open_file("s3://other/a.bin")


def test_a_host_that_is_not_there_and_an_endpoint_that_is_none_are_named(monkeypatch, store):
    with pytest.raises(
        StoreError, match=r"https://nowhere\.invalid/a\.bin: 3 attempts failed; the last error: the name of the host cannot be found"
    ):
        open_file("https://nowhere.invalid/a.bin?token=secret")
    with pytest.raises(StoreError, match=r"ftp://127\.0\.0\.1:9/a: 3 attempts failed; the last error: ConnectionRefusedError"):
        open_file("ftp://127.0.0.1:9/a")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nonsense")
    with pytest.raises(ConfigError, match=r"AWS_ENDPOINT_URL='nonsense' in the environment; expected http://HOST or https://HOST"):
        open_file("s3://other/a.bin")


def test_half_of_the_credentials_is_an_error_that_says_so(monkeypatch, store):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(ConfigError, match=r"'s3://half/a\.bin': Generic S3 error: Missing AccessKeyId"):
        open_file("s3://half/a.bin")  # a bucket of its own: a server of an earlier test, with a client, may have had the same port


def test_unknown_schemes_and_missing_packages_are_named(monkeypatch):
    with pytest.raises(ConfigError, match=r"'s4://b/a\?*': unknown scheme 's4'"):
        open_file("s4://b/a")
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    with pytest.raises(ConfigError, match=r"'s3://no-obstore/a': s3:// needs the package obstore: pip install .*\[stores\]'"):
        open_file("s3://no-obstore/a")
    monkeypatch.setitem(__import__("sys").modules, "fsspec.registry", None)
    with pytest.raises(ConfigError, match=r"'hf://no-fsspec/a': hf:// needs the package fsspec: pip install .*\[stores\]'"):
        open_file("hf://no-fsspec/a")


def test_user_password_and_token_are_sent_and_never_shown(store):
    store.put("bucket", "a.bin", DATA)
    url = store.url.replace("//", "//me:the-password@") + "/bucket/{}?token=the-token&attempts=1"
    assert read_whole(url.format("a.bin")) == DATA
    _, path, _, authorization = store.asked[-1]
    assert "token=the-token" in path and authorization == "Basic bWU6dGhlLXBhc3N3b3Jk"
    file = open_file(url.format("a.bin"))
    store.forbidden.add("c.bin")
    texts = [repr(file.path), str(file)]
    for name, faults in (("b.bin", []), ("c.bin", []), ("a.bin", ["500"])):
        store.faults.next = faults
        with pytest.raises(OSError) as caught:
            open_file(url.format(name))
        error = caught.value
        texts += [str(error), *getattr(error, "__notes__", []), repr(error.__cause__)]
        assert error.__suppress_context__ or error.__context__ is None
    assert not [text for text in texts if "the-password" in text or "the-token" in text]


class _Stored:
    def __init__(self, url):
        self.file = open_file(url)

    def __len__(self):
        return 4

    def __getitem__(self, number):
        return self.file.read(number, 1)[0]


def test_a_pipeline_that_stops_gives_up_its_requests(store, url, caplog, monkeypatch):
    monkeypatch.setattr("highway.engine.threads.STOP_TIMEOUT", 60)  # a busy machine is slow, too
    dataset = _Stored(url)
    store.faults = Faults(1, kinds=["slow"], slow=1000)
    with Pipeline([Reader(dataset, epochs=1)]) as pipeline:
        with pytest.raises(TimeoutError):
            pipeline.dequeue(timeout=0.1)
        wait_until(lambda: store.in_flight)
    assert "does not stop" not in caplog.text


def test_an_interrupt_ends_a_slow_request(store, url):
    file = open_file(f"{url}?hedge=0")  # else a second request may be quicker than the interrupt
    store.faults.next, store.faults.slow = ["slow"], 1000

    def interrupt():
        wait_until(lambda: store.faults.count["slow"])
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a command that ran in this process may have left its own
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            file.read(0, 10)
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)


def test_statistics_say_how_often_a_store_was_asked_again(store, url):
    dataset = _Stored(url)
    store.faults.next = ["500", "503"]
    with Pipeline([Reader(dataset, epochs=1, num_workers=1)]) as pipeline:
        assert sorted(pipeline) == [0, 1, 2, 3]
        counters = pipeline.stats().stages[1].counters
    assert counters["store_requests"] == 6 and counters["store_asked_again"] == 2 and counters["store_bytes"] == 4


def test_a_forked_child_has_clients_of_its_own(store, url):
    file = open_file(url)
    assert file.read(0, 4) == DATA[:4]
    for child in range(2):

        def reads(begin=10 * child):
            assert file.read(begin, 4) == DATA[begin : begin + 4]
            return in_a_fork(lambda: file.read(100, 4) == DATA[100:104])  # in a child of the child, too

        assert in_a_fork(reads) == 1
    assert file.read(20, 4) == DATA[20:24]


@pytest.mark.slow
def test_a_process_that_ends_right_after_an_answer_ends_well(store, url):
    code = f"from highway.stores.file import exists; exists({url!r})"
    children = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(8)]  # of which a fifth aborted once
    assert [(child.communicate()[1], child.returncode) for child in children] == [(b"", 0)] * 8
