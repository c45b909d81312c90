"""The values of LMDB databases by number."""

import os
import pickle
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lmdb
import msgpack
import msgpack_numpy
import numpy as np
import pytest
from forking import in_a_fork

from highway import Pipeline
from highway.datasets import LMDB, ImageFolder
from highway.datasets.keyed import lmdb as module
from highway.datasets.keyed.keys import pack_list
from highway.datasets.keyed.lmdb import lmdb_writer
from highway.errors import ConfigError, DatasetError, ItemError
from highway.modules import ImageFileReader


def write(path, items, **options):
    """Write a database by the library alone."""
    with lmdb.open(str(path), map_size=1 << 24, **options) as environment, environment.begin(write=True) as transaction:
        for key, value in items:
            transaction.put(key, value)
    return str(path)


@pytest.fixture
def ten(tmp_path):
    """Ten samples of our writer."""
    path = str(tmp_path / "ten.lmdb")
    with lmdb_writer(path) as writer:
        for n in reversed(range(10)):
            writer.add(f"k/{n}", {"txt": f"number {n}", "cls": n})
    return path


def test_samples_come_in_the_order_of_their_keys(ten):
    dataset = LMDB(ten)
    assert len(dataset) == 10 and list(dataset.keys) == [f"k/{n}" for n in range(10)]
    assert list(dataset) == [{"txt": f"number {n}", "cls": n} for n in range(10)]
    assert dataset.__getitems__([7, 0, -1])[2] == dataset[9] and dataset[3]["cls"].dtype == np.int32
    assert dataset.locate(4) == f"{ten}: sample 'k/4'"
    assert LMDB(ten, fields={"label": "cls"})[5] == {"label": 5}
    with pytest.raises(IndexError):
        dataset[10]
    with lmdb.open(str(shutil.copytree(ten, ten + ".copy"))) as environment, environment.begin() as transaction:
        assert transaction.get(b"k/3") == LMDB(ten, decode="bytes")[3]


def test_any_bytes_are_read(tmp_path):
    items = [(b"%02d" % n, bytes([n]) * n * 900) for n in range(12)]
    dataset = LMDB(write(tmp_path / "a", items))
    assert [(key.encode(), value) for key, value in zip(dataset.keys, dataset, strict=True)] == items
    assert type(dataset[5]) is bytes
    single = LMDB(write(tmp_path / "one.mdb", [(b"k", b"v")], subdir=False))
    assert list(single) == [b"v"]
    assert list(LMDB(str(tmp_path / "a" / "data.mdb"))) == [value for _, value in items]


def test_tensorpack_databases_are_recognised(tmp_path):
    def packed(item):
        return msgpack.packb(item, default=msgpack_numpy.encode, use_bin_type=True)

    folder = ImageFolder("highway:photos/val")
    keys = [b"%08d" % n for n in range(32)]
    items = [(key, packed([np.frombuffer(folder[n][0], np.uint8), int(folder[n][1])])) for n, key in enumerate(keys)]
    dataset = LMDB(write(tmp_path / "a.lmdb", [*items, (b"__keys__", packed(keys))], subdir=False))
    assert len(dataset) == 32 and dataset.keys[31] == "00000031"
    with Pipeline([ImageFileReader(dataset, 8, (32, 32), epochs=1)], seed=1) as pipeline:
        batches = list(pipeline)
    with Pipeline([ImageFileReader(folder, 8, (32, 32), epochs=1)], seed=1) as pipeline:
        for (images, labels), (others, numbers) in zip(pipeline, batches, strict=True):
            assert np.array_equal(images, others) and np.array_equal(labels, numbers)


def test_caffe_databases_are_recognised(tmp_path):
    datum = bytes.fromhex("0803 1001 1802 2206 010203040506 2807")
    dataset = LMDB(write(tmp_path / "a", [(b"00000000_cat.jpg", datum)]))
    assert dataset.keys[0] == "00000000_cat.jpg" and dataset[0]["label"] == 7 and dataset[0]["image"].shape == (1, 2, 3)


def test_keys_that_say_something_of_all_are_no_samples(tmp_path):
    items = [(b"a", b"1"), (b"b", b"2"), (b"__len__", b"2"), (b"__keys__", pickle.dumps([b"a", b"b"]))]
    assert list(LMDB(write(tmp_path / "a", items)).keys) == ["a", "b"]


def test_a_list_of_keys_that_is_not_of_all_is_not_believed(ten):
    write(ten, [(b"k/5a", LMDB(ten, decode="bytes")[5])])
    assert len(LMDB(ten)) == 11 and LMDB(ten).keys[6] == "k/5a"


def test_what_is_decoded_can_be_said(tmp_path):
    path = write(tmp_path / "a", [(b"k", b'{"a": 1}')])
    assert LMDB(path)[0] == b'{"a": 1}' and LMDB(path, decode="json")[0] == {"a": 1}
    with pytest.raises(DatasetError, match=r"a: sample 'k': "):
        LMDB(path, decode="npy")[0]
    with pytest.raises(ConfigError, match=r"the encoding of the values is unknown; fields={'a': 'b'} also needs decode="):
        len(LMDB(path, fields={"a": "b"}))
    with pytest.raises(
        ConfigError, match=r"decode='bytes' yields values without fields, so fields={'a': 'b'} has no effect; remove one of them"
    ):
        LMDB(path, "bytes", {"a": "b"})
    with pytest.raises(ConfigError, match="expected one of"):
        LMDB(path, decode="pickle")


# --- one environment in a process ---


def test_several_datasets_of_one_file_share_it_and_the_last_closes_it(ten):
    datasets = [LMDB(ten), LMDB(ten, decode="bytes"), pickle.loads(pickle.dumps(LMDB(ten)))]
    assert [len(dataset) for dataset in datasets] == [10, 10, 10]
    assert Path("/proc/self/maps").read_text().count(os.path.realpath(ten)) == 1
    with pytest.raises(lmdb.Error, match="already open"):
        lmdb.open(ten)
    del datasets
    lmdb.open(ten, readonly=True, lock=False).close()


def test_an_environment_that_is_open_elsewhere_is_said(ten):
    with (
        lmdb.open(ten, readonly=True, lock=False),
        pytest.raises(DatasetError, match=r"other code in this process has opened the file with lmdb\.open\(\);"),
    ):
        len(LMDB(ten))


def test_it_is_read_in_a_forked_child(ten):
    dataset = LMDB(ten)
    assert dataset[3]["cls"] == 3
    assert in_a_fork(lambda: int(dataset[7]["cls"]) + len(LMDB(ten))) == 17
    assert dataset[8]["cls"] == 8


def test_many_threads_read_at_once(ten):
    dataset = LMDB(ten)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: int(dataset[n % 10]["cls"]), range(800)))
    assert found == [n % 10 for n in range(800)]


def test_no_lock_file_is_made(ten):
    assert LMDB(ten)[0] and os.listdir(ten) == ["data.mdb"]


# --- what is no database, or none any more ---


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        len(LMDB(str(tmp_path / "none")))
    with pytest.raises(FileNotFoundError, match=r"no data.mdb in this folder; was its writer stopped before the end\?"):
        len(LMDB(str(tmp_path)))
    (tmp_path / "a.mdb").write_bytes(b"garbage" * 2000)
    with pytest.raises(DatasetError, match=r"a.mdb: not an LMDB database, or a database of another version"):
        len(LMDB(str(tmp_path / "a.mdb")))


@pytest.mark.parametrize("keep", [0, 100, 4096, 8192, 12288])
def test_a_file_that_was_cut_short_is_said(tmp_path, keep):
    path = write(tmp_path / "a", [(b"%d" % n, bytes(3000)) for n in range(20)])
    os.truncate(f"{path}/data.mdb", keep)
    with pytest.raises(
        DatasetError, match="the file was truncated|not an LMDB database" if keep else "data.mdb: the file is empty, so it is not an"
    ):
        len(LMDB(path))


def test_a_file_that_changes_while_it_is_read_is_named(ten):
    dataset = LMDB(ten)
    assert dataset[0]
    now = os.stat(f"{ten}/data.mdb")
    os.utime(f"{ten}/data.mdb", ns=(now.st_atime_ns, now.st_mtime_ns + 10**9))
    with pytest.raises(DatasetError, match=r"data.mdb: .* a dataset must not change while it is read"):
        dataset[1]
    assert LMDB(ten)[1]["cls"] == 1


def test_a_database_that_is_replaced_is_read_anew(ten):
    dataset = LMDB(ten)
    assert len(dataset) == 10
    with lmdb_writer(ten) as writer:
        writer.add("new", {"cls": 1})
    assert list(LMDB(ten).keys) == ["new"]


def test_the_fingerprint_changes_with_the_file_and_what_is_read(ten):
    before = LMDB(ten).fingerprint()
    assert LMDB(ten).fingerprint() == before != LMDB(ten, decode="bytes").fingerprint()
    with lmdb_writer(ten) as writer:
        writer.add("new", {"cls": 1})
    os.utime(f"{ten}/data.mdb", ns=(1, 1))  # which a quick machine may not have changed: the clock of files has steps
    assert LMDB(ten).fingerprint() != before


def test_without_its_library_the_command_is_said(ten, monkeypatch):
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(ConfigError, match=r"LMDB needs the package lmdb: pip install .*\[lmdb\]'"):
        len(LMDB(ten))


# --- the writer ---


@pytest.mark.parametrize("size", [1 << 14, 1 << 15, 50_000, 1 << 18])
@pytest.mark.parametrize("at_once", [0, 10_000, 1 << 20])
def test_a_database_grows_with_what_is_written(tmp_path, monkeypatch, size, at_once):
    monkeypatch.setattr(module, "MAP_SIZE", size)
    monkeypatch.setattr(module, "TRANSACTION", at_once)
    rng = np.random.default_rng(size)
    values = {f"{n:04}": rng.bytes(int(rng.choice([10, 2000, 9000]))) for n in rng.permutation(300)}
    with lmdb_writer(str(tmp_path / "a")) as writer:
        for key, value in values.items():
            writer.add(key, {"bin": value})
    dataset = LMDB(str(tmp_path / "a"))
    assert {key: sample["bin"] for key, sample in zip(dataset.keys, dataset, strict=True)} == values


def test_a_key_that_comes_again_gets_a_number(tmp_path):
    with lmdb_writer(str(tmp_path / "a")) as writer:
        for n in range(4):
            writer.add("k" if n != 1 else "k-2", {"cls": n})
    dataset = LMDB(str(tmp_path / "a"))
    assert list(dataset.keys) == ["k", "k-2", "k-3", "k-4"] and [int(sample["cls"]) for sample in dataset] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("key", "message"),
    [("", "has 0 bytes; LMDB supports"), ("é" * 256, "has 512 bytes; LMDB supports 1 to 511"), ("__keys__", "use another key")],
)
def test_keys_that_cannot_be_are_refused(tmp_path, key, message):
    with pytest.raises(ItemError, match=message), lmdb_writer(str(tmp_path / "a")) as writer:
        writer.add(key, {"cls": 1})
    assert os.listdir(tmp_path / "a") == []


def test_a_writer_that_fails_leaves_nothing_and_what_was_there_stays(ten):
    with pytest.raises(TypeError, match="field 'x' contains a NoneType"), lmdb_writer(ten) as writer:
        writer.add("0", {"x": None})
    assert len(LMDB(ten)) == 10 and os.listdir(ten) == ["data.mdb"]


def test_a_disk_that_is_full_is_an_os_error_that_names_the_database(tmp_path):
    code = f"""
import resource
from highway.datasets.keyed.lmdb import lmdb_writer
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    with lmdb_writer({str(tmp_path / "a")!r}) as writer:
        for n in range(1000):
            writer.add(str(n), {{"bin": bytes(1000)}})
except OSError as error:
    print(error, *error.__notes__)
"""
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True)
    assert re.search(r"LMDB reports: .* while writing .*/a/data\.mdb: free space, or choose another path", done.stdout)
    assert os.listdir(tmp_path / "a") == []


def test_a_value_that_is_gone_is_said(tmp_path):
    keys = [b"k/%d" % n for n in range(10)]
    listed = pack_list([key.replace(b"7", b"x") for key in keys], 10)
    dataset = LMDB(write(tmp_path / "a", [*((key, b"") for key in keys), (b"__keys__", listed)]))
    assert len(dataset) == 10
    with pytest.raises(
        DatasetError,
        match=r"sample 'k/x': the list of keys contains this key, but the database has no value for it; write the database again",
    ):
        dataset.__getitems__([5, 7])


def test_a_database_may_be_one_file(tmp_path):
    with lmdb_writer(str(tmp_path / "a.mdb"), durable=True) as writer:
        writer.add("k", {"cls": 1})
    assert os.listdir(tmp_path) == ["a.mdb"] and list(LMDB(str(tmp_path / "a.mdb"))) == [{"cls": 1}]


def test_a_database_without_samples_is_empty(tmp_path):
    with lmdb_writer(str(tmp_path / "a")):
        pass
    assert len(LMDB(str(tmp_path / "a"))) == 0


def test_a_named_database_is_an_error_and_not_a_sample(tmp_path):
    path = tmp_path / "a.lmdb"
    with lmdb.open(str(path), map_size=1 << 24, max_dbs=4) as environment:
        for name in (b"images", b"labels"):
            with environment.begin(write=True, db=environment.open_db(name)) as transaction:
                transaction.put(b"0", b"sample")
    with pytest.raises(DatasetError, match=r"data\.mdb: 'images' is the name of a database in this file.* `mdb_dump -n -s NAME FILE"):
        len(LMDB(str(path)))
    with lmdb.open(str(path), map_size=1 << 24, max_dbs=4) as environment, environment.begin(write=True) as transaction:
        for n in range(10):
            transaction.put(b"k%d" % n, b"sample")
    with pytest.raises(DatasetError, match="'images' is the name of a database"):
        len(LMDB(str(path)))


@pytest.mark.parametrize("value", [bytes(48), b"\xff" * 48, bytes(40) + b"\xff" * 8, bytes(range(48))])
def test_values_as_long_as_the_record_of_a_named_database_are_samples(tmp_path, value):
    path = write(tmp_path / "a.lmdb", [(b"%02d" % n, value) for n in range(10)])
    assert list(LMDB(path, decode="bytes")) == [value] * 10


def test_a_list_of_keys_that_has_one_twice_is_not_believed(tmp_path):
    items = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    path = write(tmp_path / "a.lmdb", [*items, (b"__keys__", msgpack.packb([b"a", b"a", b"c"]))], subdir=False)
    assert list(LMDB(path).keys) == ["a", "b", "c"] and list(LMDB(path)) == [b"1", b"2", b"3"]


CUT = """
import os, sys
from highway.datasets import LMDB
from highway.errors import DatasetError
dataset = LMDB(sys.argv[1], decode="bytes")
assert len(dataset[0]) == 4000
os.truncate(sys.argv[1] + "/data.mdb", 8192)
try:
    dataset[900]
except DatasetError as error:
    print(error)
"""


def test_a_file_that_is_cut_short_between_two_reads_is_an_error_and_does_not_end_the_process(tmp_path):
    path = str(tmp_path / "a.lmdb")
    with lmdb_writer(path) as writer:
        for n in range(1000):
            writer.put(b"%04d" % n, bytes(4000))
    done = subprocess.run([sys.executable, "-c", CUT, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"data\.mdb: it had \d+ bytes when it was first read, and now has 8192 bytes", done.stdout)


@pytest.mark.parametrize("page", ["root", "leaf"])
def test_damaged_pages_are_errors_that_name_the_file(tmp_path, page):
    path = str(tmp_path / "a.lmdb")
    with lmdb_writer(path) as writer:
        for n in range(200):
            writer.put(b"%03d" % n, b"value %03d" % n * 20)
    file = tmp_path / "a.lmdb/data.mdb"
    data, kind = bytearray(file.read_bytes()), {"root": 1, "leaf": 2}[page]
    places = [place for place in range(2 * 4096, len(data), 4096) if int.from_bytes(data[place + 10 : place + 12], "little") == kind]
    for place in places:
        data[place : place + 4096] = bytes(4096)
    file.write_bytes(data)
    with pytest.raises(DatasetError, match=rf"{path}.*: the database is damaged or was written to; copy or write it again: LMDB reports: "):
        list(LMDB(path))


@pytest.mark.parametrize("other", [None, "root", "leaf"])
def test_a_page_in_the_place_of_another_is_an_error_and_does_not_end_the_process(tmp_path, other):
    path = write(tmp_path / "a.lmdb", [(b"%03d" % n, b"value %03d" % n * 20) for n in range(200)])
    file = tmp_path / "a.lmdb/data.mdb"
    whole = file.read_bytes()
    pages = {place: whole[place : place + 4096] for place in range(2 * 4096, len(whole), 4096)}
    kinds = {place: int.from_bytes(page[10:12], "little") for place, page in pages.items()}
    (root,) = [place for place, kind in kinds.items() if kind == 1]
    leaves = [place for place, kind in kinds.items() if kind == 2]
    replacement = {None: bytes(4096), "root": pages[root], "leaf": pages[leaves[5]]}[other]
    file.write_bytes(whole[: leaves[0]] + replacement + whole[leaves[0] + 4096 :])
    done = subprocess.run([sys.executable, "-c", LISTED, path], capture_output=True, text=True)
    assert done.stdout.endswith(f"page {leaves[0] // 4096} is not a page of the database's tree\n"), (done.returncode, done.stderr)


LISTED = """
import sys
from highway.datasets import LMDB
from highway.errors import DatasetError
try:
    print(len(LMDB(sys.argv[1])))
except DatasetError as error:
    print(error)
"""
