"""What is written to a store: whole or not at all, in parts if it is large, sent again if that fails, and nothing else is lost or left."""

import asyncio
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import fsspec
import numpy as np
import pytest
from forking import in_a_fork
from object_store import Faults
from waiting import wait_until

from highway import Pipeline
from highway.datasets.folder_writer import image_folder_writer
from highway.datasets.writing import write_whole, writing, writing_folder
from highway.errors import ConfigError, StoreError
from highway.modules import Cache, ImageSink, LMDBSink, MDSSink, NpzSink, ShardSink, TenSink
from highway.stores import clients, loop, obstore_client, requests
from highway.stores import writing as stores_writing
from highway.stores.file import exists, names_in, read_whole, remove

DATA = np.random.default_rng(0).bytes(50_000)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The temporary folder, in which nothing is left in the end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    os.mkdir(tmp_path / "temporary")
    yield tmp_path / "temporary"
    assert os.listdir(tmp_path / "temporary") == []


@pytest.fixture
def parts(monkeypatch):
    """Have files above 10 kB sent in parts of that size."""
    for module in (clients, obstore_client, requests, stores_writing):
        monkeypatch.setattr(module, "PART", 10_000)


def fill(url, data=DATA):
    with writing(url) as name, open(name, "wb") as file:
        file.write(data)


def test_a_small_file_is_one_request_and_a_large_one_several(store, parts):
    fill("s3://bucket/a/small.bin", DATA[:10_000])
    assert store.objects == {("bucket", "a/small.bin"): DATA[:10_000]} and len(store.asked) == 1
    fill("s3://bucket/a/large.bin")
    assert store.objects["bucket", "a/large.bin"] == DATA and store.begun == 1 and store.uploads == {}
    assert sorted(size for method, _, size, _ in store.asked if method == "PUT") == [10_000] * 6


def test_nothing_is_there_before_all_is_or_after_an_error(store, parts, folder):
    with pytest.raises(RuntimeError), writing("s3://bucket/a.bin") as name, open(name, "wb") as file:
        file.write(DATA)
        assert os.path.dirname(name) in glob.glob(f"{folder}/highway-upload-*")
        raise RuntimeError
    assert store.asked == [] and not exists("s3://bucket/a.bin")


@pytest.mark.parametrize("seed", range(4))
def test_what_fails_is_sent_again_until_all_is_there(store, parts, seed):
    store.faults = Faults(0.3, seed, slow=0.05, kinds=("500", "503", "reset", "slow"))
    for number in range(3):
        fill(f"s3://bucket/{number}.bin?attempts=20", DATA[number:])
    write_whole("s3://bucket/small.bin?attempts=20", b"small")
    assert store.objects == {**{("bucket", f"{n}.bin"): DATA[n:] for n in range(3)}, ("bucket", "small.bin"): b"small"}
    assert store.uploads == {} and sum(store.faults.count[kind] for kind in Faults.KINDS) > 3


def test_an_answer_that_is_lost_does_no_harm(store):
    store.faults.next = ["cut"]
    fill("s3://bucket/a.bin")
    assert store.objects == {("bucket", "a.bin"): DATA} and store.count("PUT") == 2


def test_what_fails_too_often_is_an_error_and_the_parts_are_discarded(store, parts):
    store.faults = Faults(1, kinds=["503"])
    with pytest.raises(StoreError, match=r"s3://bucket/a\.bin: 2 attempts failed; the last error: status 503 .*check the network"):
        fill("s3://bucket/a.bin?attempts=2")
    store.faults, store.forbidden = Faults(), {"b.bin"}
    for size in (5, 50_000):
        with pytest.raises(PermissionError, match=r"s3://bucket/b\.bin: the store refuses access .*AWS_ACCESS_KEY_ID") as caught:
            fill("s3://bucket/b.bin", DATA[:size])
        assert "the-secret-key" not in str(caught.value) and not getattr(caught.value, "__notes__", [])
    store.missing.add("nowhere"), store.forbidden.clear()
    for size in (5, 50_000):
        with pytest.raises(FileNotFoundError, match=r"s3://nowhere/b\.bin: there is no bucket s3://nowhere; correct the URL"):
            fill("s3://nowhere/b.bin", DATA[:size])
    assert store.objects == {} and store.uploads == {}


def test_a_part_that_is_refused_ends_the_upload_and_discards_the_others(store, parts):
    def forbid():
        wait_until(lambda: store.begun)
        store.forbidden.add("a.bin")
        store.faults.released.set()

    store.faults = Faults(1, kinds=["slow"], slow=1000)  # the parts wait until it is forbidden
    store.faults.next = [None]  # the upload begins
    thread = threading.Thread(target=forbid)
    thread.start()
    with pytest.raises(PermissionError, match=r"s3://bucket/a\.bin: the store refuses access"):
        fill("s3://bucket/a.bin", DATA * 4)
    thread.join()
    assert store.objects == {} and ("DELETE" in {method for method, *_ in store.asked})


@pytest.mark.parametrize(("arrive", "waiting"), [(1, 4), (17, 3)])
def test_a_pipeline_that_stops_leaves_no_parts(store, parts, arrive, waiting, monkeypatch):
    """Stopped in the middle it discards them; stopped when all have been sent it has them become the object."""
    monkeypatch.setattr(stores_writing, "PATIENCE", 60)  # a busy machine is slow, too
    monkeypatch.setattr(obstore_client, "CLOSING", 60)
    closing, shield = threading.Event(), asyncio.shield
    given_up, give_up = threading.Event(), loop.Started.give_up

    def noticed(started):
        given_up.set()  # not because it is done: the store holds back an answer
        give_up(started)

    def shielded(task):  # what makes an object of the parts, once all have been handed over
        closing.set()
        return shield(task)

    monkeypatch.setattr(loop.Started, "give_up", noticed)
    monkeypatch.setattr(asyncio, "shield", shielded)

    class Sink:
        def consume(self, items):
            for _ in items:
                fill("s3://bucket/a.bin", DATA * 4)

    pipeline = Pipeline([range(1), Sink()])
    store.faults = Faults(1, kinds=["slow"], slow=1000, methods=["PUT"])
    store.faults.next = [None] * arrive
    thread = threading.Thread(target=pipeline.run)
    thread.start()
    wait_until(lambda: sum(map(len, store.uploads.values())) == arrive and store.faults.count["slow"] == waiting)
    assert closing.wait(0 if arrive == 1 else 30) is (arrive != 1)
    stopping = threading.Thread(target=pipeline.stop)
    stopping.start()
    assert given_up.wait(30)
    if arrive == 1:
        wait_until(lambda: store.count("DELETE"))
    store.faults.released.set()
    stopping.join()
    thread.join()
    wait_until(lambda: not store.in_flight)
    assert store.uploads == {} and store.objects == ({} if arrive == 1 else {("bucket", "a.bin"): DATA * 4})


def test_a_killed_writer_leaves_nothing_that_looks_whole_and_the_next_one_frees_its_disk(store, folder):
    code = (
        "import os, signal, sys; from highway.datasets.writing import writing\n"
        "with writing('s3://bucket/a.bin') as name, open(name, 'wb') as file:\n"
        "    file.write(bytes(1000)); file.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(folder)}, check=False)
    assert killed.returncode == -signal.SIGKILL and store.asked == [] and len(os.listdir(folder)) == 1
    with writing("s3://bucket/b.bin") as name:
        assert [str(folder / left) for left in os.listdir(folder)] == [os.path.dirname(name)]
        Path(name).write_bytes(b"b")
        assert in_a_fork(lambda: fill("s3://bucket/c.bin") or 0) == 0
        assert os.path.exists(name)
    assert {key for _, key in store.objects} == {"b.bin", "c.bin"}


def test_a_full_disk_is_named_with_the_way_out(store):
    with pytest.raises(OSError, match="No space left") as caught, writing("s3://bucket/a.bin"):
        raise OSError(28, "No space left on device")
    assert caught.value.__notes__[0].startswith("while writing s3://bucket/a.bin, which is first written in ")
    assert caught.value.__notes__[0].endswith(": free space there, or choose another folder with TMPDIR")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "https://me:secret@host/a.tar?token=secret",
            r"'https://.*host/a\.tar': https:// can be read, but not written; use a bucket \(s3://",
        ),
        ("http://host/a.tar", r"'http://host/a\.tar': http:// can be read, but not written"),
        ("s3://bucket", r"'s3://bucket/': the URL has no name after the bucket; add the name of the object"),
        ("s3://bucket/a.tar?listing=.l", r"'s3://bucket/a\.tar': listing= is only for reading; remove it"),
        ("s4://bucket/a.tar", r"'s4://bucket/a\.tar': unknown scheme 's4'"),
    ],
)
def test_what_cannot_be_written_is_refused_in_words(store, url, said):
    with pytest.raises(ConfigError, match=said) as caught:
        fill(url)
    assert "secret" not in str(caught.value)


def folder_of(url, names, last="index.json"):
    with writing_folder(url, last) as name:
        for one in names:
            os.makedirs(os.path.dirname(f"{name}/{one}"), exist_ok=True)
            Path(name, one).write_bytes(one.encode() * 1000)


NAMES = ["index.json", "a/1.bin", "a/0.bin", "z.bin"]


def test_the_file_that_makes_a_folder_look_whole_is_sent_last(store, parts):
    folder_of("s3://bucket/f", [*NAMES, "large-file.bin"])
    keys = [path.removeprefix("/bucket/f/").partition("?")[0] for method, path, *_ in store.asked if method in ("PUT", "POST")]
    assert keys[0] == ".highway-upload.json" and keys[-1] == "/bucket" and keys[-2] == "index.json" and keys.count("index.json") == 1
    assert {key for _, key in store.objects} == {f"f/{name}" for name in [*NAMES, "large-file.bin"]}
    with pytest.raises(FileExistsError, match=r"'s3://bucket/f': this folder already exists; remove it, or choose another URL"):
        folder_of("s3://bucket/f", NAMES)


def test_a_folder_that_was_cut_short_is_begun_anew_and_what_others_have_put_there_is_never_removed(store):
    store.forbidden.add("f/index.json")
    with pytest.raises(PermissionError):
        folder_of("s3://bucket/f", [*NAMES, "old.bin"])
    assert "f/old.bin" in {key for _, key in store.objects} and ("bucket", "f/index.json") not in store.objects
    store.forbidden.clear()
    store.put("bucket", "f/mine.txt", b"mine")
    with pytest.raises(FileExistsError):
        folder_of("s3://bucket/f", NAMES)
    remove("s3://bucket/f/mine.txt")
    folder_of("s3://bucket/f", NAMES)
    assert {key for _, key in store.objects} == {f"f/{name}" for name in NAMES}
    store.put("bucket", "f/.highway-upload.json", json.dumps([*NAMES, "old.bin"]).encode())  # as if it was killed at the very end
    folder_of("s3://bucket/f", NAMES[:2])
    assert {key for _, key in store.objects} == {f"f/{name}" for name in NAMES[:2]}
    store.put("bucket", "g/mine.txt", b"mine")
    with pytest.raises(FileExistsError):
        folder_of("s3://bucket/g", NAMES)
    assert read_whole("s3://bucket/g/mine.txt") == b"mine" and names_in("s3://bucket/g") == {"mine.txt"}


def test_what_fsspec_knows_is_written_through_it(monkeypatch):
    memory = fsspec.filesystem("memory")
    monkeypatch.setattr(type(memory), "store", {})
    monkeypatch.setattr(type(memory), "pseudo_dirs", [""])
    monkeypatch.setattr(stores_writing, "PART", 10_000)
    fill("memory://b/small.bin", b"small"), fill("memory://b/large.bin")
    assert memory.cat("/b/small.bin") == b"small" and memory.cat("/b/large.bin") == DATA
    folder_of("memory://b/f", NAMES)
    assert names_in("memory://b/f") == {"index.json", "a", "z.bin"} and names_in("memory://b/none") == set()
    remove("memory://b/small.bin"), remove("memory://b/small.bin")
    assert not exists("memory://b/small.bin")


def test_a_folder_on_another_machine_has_a_file_under_its_name_when_it_is_whole(tmp_path, monkeypatch, request):
    from fsspec.implementations.ftp import FTPFileSystem
    from fsspec.implementations.local import LocalFileSystem

    from highway.stores.fsspec_client import FsspecClient
    from highway.stores.url import parse

    class Folder(LocalFileSystem):  # in place of a server of FTP
        is_lost = False

        @classmethod
        def _strip_protocol(cls, path):
            return super()._strip_protocol(path.replace("ftp://host", str(tmp_path)))

        def put_file(self, *arguments, **options):
            super().put_file(*arguments, **options)
            if self.is_lost:
                raise OSError("the connection was lost")

    fsspec.register_implementation("ftp", Folder, clobber=True)
    request.addfinalizer(lambda: fsspec.register_implementation("ftp", FTPFileSystem, clobber=True))
    client = FsspecClient(parse("ftp://host/a"))
    (tmp_path / "source").write_bytes(DATA)
    loop.run(client.put_file("d/a.bin", str(tmp_path / "source"), 100, parse("ftp://host/a").options))
    loop.run(client.put("d/b.bin", b"b"))
    assert (tmp_path / "d" / "a.bin").read_bytes() == DATA and sorted(os.listdir(tmp_path / "d")) == ["a.bin", "b.bin"]
    monkeypatch.setattr(Folder, "is_lost", True)
    with pytest.raises(clients.StoreFailure, match="the connection was lost"):
        loop.run(client.put_file("d/c.bin", str(tmp_path / "source"), 100, parse("ftp://host/a").options))
    assert not (tmp_path / "d" / "c.bin").exists()


SAMPLES = [{"x": np.full(3, number, np.float32), "label": np.int32(number)} for number in range(6)]
SINKS = {  # what is there when a sink was run, by the sink
    ShardSink: ("s-%d.tar", {"max_samples": 4}, {"s-0.tar", "s-1.tar"}),
    NpzSink: ("a-%d.npz", {"max_samples": 4}, {"a-0.npz", "a-1.npz"}),
    LMDBSink: ("a.lmdb", {}, {"a.lmdb"}),
    MDSSink: ("mds", {}, {"mds"}),
}


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.__name__)
def test_sinks_write_to_a_store_and_over_nothing(store, sink):
    path, options, expected = SINKS[sink]
    Pipeline([SAMPLES, sink(f"s3://bucket/d/{path}?attempts=3", **options)]).run()
    assert names_in("s3://bucket/d") == expected
    before = dict(store.objects)
    with pytest.raises(FileExistsError, match=r"'s3://bucket/d/.*(already exists|is there already|it exists already)"):
        Pipeline([SAMPLES, sink(f"s3://bucket/d/{path}", **options)]).run()
    assert store.objects == before


def test_items_and_images_are_written_to_a_store(store):
    Pipeline([SAMPLES[:2], TenSink("s3://bucket/ten")]).run()
    assert names_in("s3://bucket/ten") == {"000-00000000.ten", "000-00000001.ten"}
    with pytest.raises(FileExistsError, match=r"'s3://bucket/ten/000-00000000\.ten' already exists;"):
        Pipeline([SAMPLES[:2], TenSink("s3://bucket/ten")]).run()
    Pipeline([[(np.zeros((2, 8, 8, 3), np.uint8),)], ImageSink("s3://bucket/images")]).run()
    assert len(names_in("s3://bucket/images")) == 2


def test_a_folder_of_images_is_listed_once_and_goes_on_where_it_was(store):
    def write(keys):
        with image_folder_writer("s3://bucket/f") as writer:
            for key in keys:
                writer.add(f"cat/{key}", {"png": key.encode(), "cls": 3})

    write("ab")
    asked = len(store.asked)
    write("abcd")
    listing = ["GET", "GET"]  # and what follows its end: nothing
    assert [method for method, *_ in store.asked[asked:]] == [*listing, "PUT", "PUT", "PUT"]
    assert names_in("s3://bucket/f/cat") == {"a.png", "b.png", "c.png", "d.png"}
    assert read_whole("s3://bucket/f/highway-labels.txt").decode().splitlines()[3] == "cat/d.png\t3"


def test_a_cache_stays_on_this_machine():
    with pytest.raises(ConfigError, match="a folder on this machine, or None to keep the cache in memory"):
        Cache("s3://bucket/cache")


def test_statistics_say_what_was_written(store, parts):
    pipeline = Pipeline([SAMPLES, NpzSink("s3://bucket/a.npz")])
    pipeline.run()
    counters = pipeline.stats().stages[-1].counters
    assert counters["store_bytes_written"] == len(store.objects["bucket", "a.npz"])
