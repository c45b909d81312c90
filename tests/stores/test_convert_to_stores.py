"""``highway convert`` with DST in a store: the bytes of a conversion on this machine, whatever fails and however often it is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import fsspec
import numpy as np
import pytest
from object_store import Faults
from PIL import Image

import highway
from highway import modules
from highway.cli import main
from highway.cli.convert.format import written_to
from highway.cli.convert.target import Target
from highway.datasets import Npz, Tar
from highway.datasets.formats import formats
from highway.datasets.shards import shard_writer
from highway.stores.file import names_in

WAYS = {  # what is written, by the name of its format
    "folder": ("f", "--to", "folder"),
    "shards": ("s-%d.tar", "--shard-size", "6"),
    "tfrecord": ("a-%d.tfrecord", "--shard-size", "6"),
    "arrayrecord": ("a-%d.array_record", "--shard-size", "6"),
    "parquet": ("a.parquet",),
    "arrow": ("a-%d.arrow", "--shard-size", "6"),
    "mds": ("m", "--to", "mds", "--write", "size_limit=1500"),
    "hdf5": ("a-%d.h5", "--shard-size", "6"),
    "lmdb": ("a.lmdb",),
    "leveldb": ("a.leveldb",),
    "ten": ("t", "--to", "ten"),
    "cache": ("c", "--to", "cache"),
    "npz": ("a.npz",),
    "npy": ("a.npy", "--images", "decoded", "--fields", "png"),
}
NEEDS = {"arrayrecord": "array_record", "leveldb": "plyvel"}
NAMED_ANEW = ("leveldb", "cache")  # whose files have other names, or other bytes, each time


def convert(*arguments):
    return main(["convert", *map(str, arguments)])


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HIGHWAY_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def squares(tmp_path):
    """Twenty images of two labels, all of one size."""
    for number in range(20):
        path = tmp_path / "squares" / ("cat", "dog")[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
    return tmp_path / "squares"


def way(name):
    if name in NEEDS and not find_spec(NEEDS[name]):
        pytest.skip(f"{NEEDS[name]} is not installed")
    return WAYS[name]


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name[0] != "."}


def objects(store):
    found = {key.removeprefix("out/"): data for (_, key), data in store.objects.items() if key.startswith("out/")}
    return {name: data for name, data in found.items() if not name.rpartition("/")[2].startswith(".")}


def test_all_that_is_written_is_tried_and_the_table_names_the_sinks():
    assert set(WAYS) == {name for name, row in formats().items() if row.writer}
    sinks = {row.sink for row in formats().values() if row.sink}
    assert sinks == {name for name in modules.__all__ if name.endswith("Sink")} - {"ZMQSink"} | {"Cache"}


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_the_same_bytes_are_there_with_a_tenth_of_the_answers_faulty(store, squares, tmp_path, capsys, name):
    target, *options = way(name)
    url = f"s3://bucket/out/{target}?attempts=12"
    store.faults = Faults(0.1, 5, slow=0.05)
    assert convert(squares, url, *options, "--check") == 0, capsys.readouterr()
    out = capsys.readouterr().out
    assert f"s3://bucket/out/{target}: compared with SRC, all 20 samples are the same" in out
    assert convert(squares, url, *options) == 0 and "all 20 samples already exist" in capsys.readouterr().out
    assert convert(squares, tmp_path / "here" / target, *options) == 0
    if name not in NAMED_ANEW:
        assert objects(store) == files(tmp_path / "here")
    source = f"s3://bucket/out/{target}".replace("%d", "*")
    assert convert(source, tmp_path / "back-%d.tar", "--check") == 0
    assert "all 20 samples are the same" in capsys.readouterr().out
    assert store.uploads == {} and sum(store.faults.count[kind] for kind in Faults.KINDS) > 0


KILL = """
import json, os, signal, sys
from highway.cli import main
from highway.stores.requests import Requests

def killing(put):
    def killed(self, *arguments):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return put(self, *arguments)
    return killed

Requests.put, Requests.put_file = killing(Requests.put), killing(Requests.put_file)
codes = []
for left, arguments in json.loads(sys.argv[1]):
    if (child := os.fork()) == 0:
        os._exit(main(["convert", *arguments]))
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(codes))
"""


@pytest.mark.slow
def test_what_is_killed_before_it_puts_an_object_there_goes_on_and_leaves_the_same_bytes(store, squares, tmp_path, capsys):
    ways = [name for name in WAYS if name not in NEEDS or find_spec(NEEDS[name])]
    paths = [str(Path(highway.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(tmp_path)}
    for left in (2, 4):  # puts until it is killed, of which the record of the conversion is the first
        runs = [(left, [str(squares), f"s3://bucket/out/{WAYS[name][0]}", *WAYS[name][1:], "--workers", "1"]) for name in ways]
        run = subprocess.run([sys.executable, "-c", KILL, json.dumps(runs)], env=environment, check=True, capture_output=True, text=True)
        codes = dict(zip(ways, json.loads(run.stdout.splitlines()[-1]), strict=True))
        killed = {name for name in ways if codes[name] == -signal.SIGKILL}
        assert killed == set(ways) if left == 2 else killed > {"folder", "ten", "mds"}, run.stderr
        for name in ways if left == 2 else ():
            target, *options = WAYS[name]
            format = written_to(target, options[1] if options[:1] == ["--to"] else None)
            if format.layout in ("files", "one") and "%" not in target:
                assert Target(f"s3://bucket/out/{target}", format, 1000).whole(None) is None, name
    for name in ways:
        target, *options = WAYS[name]
        assert convert(squares, f"s3://bucket/out/{target}", *options, "--check") == 0, capsys.readouterr().out
        assert convert(squares, tmp_path / "here" / target, *options) == 0
    for target in (WAYS[name][0] for name in NAMED_ANEW):
        shutil.rmtree(tmp_path / "here" / target, ignore_errors=True)
    found = {name: data for name, data in objects(store).items() if name.split("/")[0] not in [WAYS[name][0] for name in NAMED_ANEW]}
    assert found == files(tmp_path / "here")
    assert not [key for _, key in store.objects if key.endswith(("/.highway-upload.json", ".part"))]


def test_files_that_are_there_are_kept_and_no_other_is_written(store, squares, capsys):
    url = "s3://bucket/out/s-%d.tar"
    assert convert(squares, url, "--shard-size", 6) == 0
    before = objects(store)
    del store.objects["bucket", "out/s-1.tar"]
    asked = len(store.asked)
    assert convert(squares, url, "--shard-size", 6) == 0
    assert "6 samples written; 14 already existed" in capsys.readouterr().out and objects(store) == before
    written = [path for method, path, *_ in store.asked[asked:] if method == "PUT"]
    assert len(written) == 2 and "s-1.tar" in written[0] and ".highway-convert-s-" in written[1]
    assert convert(squares, url, "--shard-size", 7) == 2
    assert (
        "an earlier conversion to this path had different inputs or settings (shard_size); remove s3://bucket/out/s-%d.tar and "
        in capsys.readouterr().err
    )


def test_fields_names_and_keys_may_be_chosen(store, squares, tmp_path, capsys):
    assert convert(squares, "s3://bucket/a.npz", "--fields", "cls", "--number-keys", "--check") == 0
    found = Npz("s3://bucket/a.npz")
    assert found.keys[19] == "000000019" and {name: int(value) for name, value in found[19].items()} == {"label": 1}
    with shard_writer(str(tmp_path / "s.tar")) as writer:
        writer.add("0", {"x": np.zeros(2, np.float32), "cls": 1})
    assert convert(tmp_path / "s.tar", "s3://bucket/b.tar", "--read", 'fields={"y.npy": "x"}') == 0
    assert list(Tar("s3://bucket/b.tar")[0]) == ["y.npy"]


def test_something_else_that_is_there_is_not_written_over(store, squares, capsys):
    store.put("bucket", "out/a.tar", b"mine")
    store.put("bucket", "out/f/mine.png", b"mine")
    store.put("bucket", "out/s-7.tar", b"mine")
    before = dict(store.objects)
    for target in (("a.tar",), ("f", "--to", "folder"), ("f", "--to", "mds"), ("s-%d.tar",)):
        assert convert(squares, f"s3://bucket/out/{target[0]}", *target[1:]) == 2
        assert f"s3://bucket/out/{target[0]}: already exists, but no conversion has written it" in capsys.readouterr().err
    assert store.objects == before
    assert convert("s3://bucket/out/a.tar?attempts=3", "s3://bucket/out/a.tar") == 2
    assert "s3://bucket/out/a.tar: SRC and DST are the same" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (
            ("https://me:secret@host/s.tar?token=secret",),
            "https:// can be read, but not written; use a bucket (s3://, gs://, az://)",
        ),
        (("s3://bucket/out",), "s3://bucket/out: the name does not tell the format; add --to shards, "),
        (("s3://bucket/o-%d/s.tar",), "expected at most one number format, such as samples-%06d.tar"),
        (("s3://bucket/s.tar?listing=.l",), "listing= is only for reading; remove it"),
        (("s3://bucket/s.tar.gz?attempts=2",), "shards can be read compressed, but not written compressed; name it *.tar"),
        (("s3://bucket/s.tar?atempts=2",), "unknown option 'atempts'; did you mean attempts?"),
        (("s3://nowhere/s.tar",), "there is no bucket s3://nowhere; correct the URL"),
        (("s3://bucket/no/s.tar",), "s3://bucket/no/.highway-convert-s.tar.json: the store refuses access"),
    ],
)
def test_what_cannot_be_written_is_one_sentence(store, squares, capsys, target, said):
    store.missing.add("nowhere"), store.forbidden.add("no/.highway-convert-s.tar.json"), store.put("bucket", "x", b"")
    assert convert(squares, *target) in (1, 2)
    error = capsys.readouterr().err
    assert said in error and "secret" not in error
    assert set(store.objects) == {("bucket", "x")}


def test_what_is_read_from_copies_says_where_to_put_them_before_anything_is_written(store, squares, monkeypatch, capsys):
    monkeypatch.delenv("HIGHWAY_CACHE_DIR")
    assert convert(squares, "s3://bucket/a.lmdb", "--check") == 2
    assert (
        "s3://bucket/a.lmdb: --check reads lmdb from a copy on this machine; set the folder of the copy with HIGHWAY_CACHE_DIR"
        in capsys.readouterr().err
    )
    assert store.asked == [] and convert(squares, "s3://bucket/a.lmdb") == 0


def test_a_full_disk_ends_it_with_the_way_out(store, squares, tmp_path, monkeypatch, capsys):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("highway.datasets.shards.ShardWriter.append", full)
    assert convert(squares, "s3://bucket/a.tar") == 1
    error = capsys.readouterr().err
    assert "No space left on device" in error and "while writing s3://bucket/a.tar, which is first written in /" in error
    assert "free space there, or choose another folder with TMPDIR" in error and store.objects == {}


def test_what_fsspec_knows_is_a_target_too(squares, monkeypatch, tmp_path, capsys):
    memory = fsspec.filesystem("memory")
    monkeypatch.setattr(type(memory), "store", {})
    monkeypatch.setattr(type(memory), "pseudo_dirs", [""])
    for name in ("shards", "folder", "mds", "ten", "parquet"):
        target, *options = WAYS[name]
        assert convert(squares, f"memory://out/{target}", *options, "--check") == 0
        assert convert(squares, tmp_path / "here" / target, *options) == 0
    found = {path.removeprefix("/out/"): memory.cat(path) for path in memory.find("/out")}
    assert {name: data for name, data in found.items() if name.rpartition("/")[2][0] != "."} == files(tmp_path / "here")
    assert names_in("memory://out") >= {"f", "m", "t", "a.parquet", "s-0.tar"}


def test_a_server_that_lists_nothing_is_a_source_with_a_listing(store, squares, tmp_path, capsys):
    store.upload("bucket", squares, "photos/")
    assert convert("s3://bucket/photos?listing=.listing.gz", tmp_path / "a.tar") == 0
    assert convert(f"{store.url}/bucket/photos?listing=.listing.gz&listing_hours=1", tmp_path / "b.tar") == 0, capsys.readouterr().err
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
