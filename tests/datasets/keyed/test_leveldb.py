"""The values of LevelDB databases by number."""

import os
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import msgpack
import msgpack_numpy
import numpy as np
import pytest
from forking import in_a_fork

from highway import Pipeline
from highway.datasets import LevelDB
from highway.datasets.keyed import leveldb as module
from highway.datasets.keyed.leveldb import leveldb_writer
from highway.errors import ConfigError, DatasetError, ItemError
from highway.modules import Reader

plyvel = pytest.importorskip("plyvel", reason="which has no wheel for Python 3.13 and later")


def write(path, items):
    """Write a database by the library alone."""
    database = plyvel.DB(str(path), create_if_missing=True)
    for key, value in items:
        database.put(key, value)
    database.close()
    return str(path)


@pytest.fixture
def ten(tmp_path):
    """Ten samples of our writer."""
    path = str(tmp_path / "ten")
    with leveldb_writer(path) as writer:
        for n in reversed(range(10)):
            writer.add(f"k/{n}", {"txt": f"number {n}", "cls": n})
    return path


def test_samples_come_in_the_order_of_their_keys(ten):
    dataset = LevelDB(ten)
    assert len(dataset) == 10 and list(dataset.keys) == [f"k/{n}" for n in range(10)]
    assert list(dataset) == [{"txt": f"number {n}", "cls": n} for n in range(10)]
    assert dataset.locate(4) == f"{ten}: sample 'k/4'" and dataset[-1]["cls"] == 9
    assert LevelDB(ten, fields={"label": "cls"})[5] == {"label": 5}
    with pytest.raises(IndexError):
        dataset[10]


def test_the_library_reads_what_we_write_and_we_what_it_does(ten, tmp_path):
    value = LevelDB(ten, decode="bytes")[3]
    database = plyvel.DB(ten)
    assert [key for key, _ in database] == [b"k/%d" % n for n in range(10)] and database.get(b"k/3") == value
    database.close()
    assert list(LevelDB(write(tmp_path / "a", [(b"b", b"2"), (b"a", b"1"), (b"__len__", b"2")]))) == [b"1", b"2"]


def test_databases_of_highway_2017_are_read(tmp_path):
    """Their keys are n zero bytes, since bytes(n) is no longer what it was in Python 2."""
    values = [msgpack.packb((np.full((2, 2), n, np.uint8), n), default=msgpack_numpy.encode, use_bin_type=True) for n in range(12)]
    dataset = LevelDB(write(tmp_path / "a", [(bytes(n), value) for n, value in enumerate(values)]))
    assert list(dataset.keys) == [str(n) for n in range(12)]
    assert [(image.tolist(), label) for image, label in dataset] == [([[n, n], [n, n]], n) for n in range(12)]
    with Pipeline([Reader(dataset, 4, epochs=1, shuffle=False)]) as pipeline:
        assert [labels.tolist() for _, labels in pipeline] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_datasets_of_one_database_share_it_and_the_last_closes_it(ten):
    datasets = [LevelDB(ten), pickle.loads(pickle.dumps(LevelDB(ten))), LevelDB(f"{ten}/../ten", decode="bytes")]
    assert [len(dataset) for dataset in datasets] == [10, 10, 10]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: int(datasets[n % 2][n % 10]["cls"]), range(200)))
    assert found == [n % 10 for n in range(200)]
    datasets.clear()
    plyvel.DB(ten).close()


def test_a_database_that_other_code_has_open_is_said(ten):
    database = plyvel.DB(ten)
    with pytest.raises(
        DatasetError,
        match=r"ten: the database is already open in other code of this process, and LevelDB can open .* only once: .* convert it to LMDB",
    ):
        len(LevelDB(ten))
    database.close()


def test_a_database_that_another_process_has_open_is_said(ten):
    dataset = LevelDB(ten)
    assert len(dataset) == 10
    code = f"from highway.datasets import LevelDB\ntry: len(LevelDB({ten!r}))\nexcept ValueError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (
        "ten: the database is already open in another process, and LevelDB can open a database only once: close it there, "
        "or convert it to LMDB" in done.stdout
    )


def test_a_forked_child_is_told_that_it_may_not_read(ten):
    dataset = LevelDB(ten, decode="fields")
    assert dataset[3]["cls"] == 3

    def said():
        with pytest.raises(DatasetError, match="the parent of this forked process has opened the database"):
            len(dataset)
        return 3

    assert in_a_fork(said) == 3
    assert dataset[4]["cls"] == 4


def test_what_is_no_database_is_said_and_nothing_made_there(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match="not a LevelDB database: the file CURRENT is missing"):
            len(LevelDB(str(path)))
    assert os.listdir(tmp_path) == []


def test_a_damaged_database_is_said(ten):
    assert len(LevelDB(ten)) == 10
    table = os.path.join(ten, next(name for name in os.listdir(ten) if name.endswith(".ldb")))
    os.truncate(table, 100)
    with pytest.raises(DatasetError, match=r"ten: the database is damaged: LevelDB reports: .*\.ldb"):
        len(LevelDB(ten))
    os.unlink(table)
    opened_anew, open_still = "Corruption: 1 missing files", r"NotFound: .*\.ldb"
    with pytest.raises(DatasetError, match=f"ten: .*LevelDB reports: ({opened_anew}|{open_still})"):
        len(LevelDB(ten))


def test_the_fingerprint_changes_with_the_database_and_stays_when_it_is_opened(ten):
    before = LevelDB(ten).fingerprint()
    assert LevelDB(ten).fingerprint() == before != LevelDB(ten, decode="bytes").fingerprint()
    write(ten, [(b"new", b"")])
    assert LevelDB(ten).fingerprint() != before


def test_without_its_library_the_command_is_said(ten, monkeypatch):
    monkeypatch.setitem(sys.modules, "plyvel", None)
    with pytest.raises(ConfigError, match=r"LevelDB needs the package plyvel: pip install .*\[leveldb\]'"):
        len(LevelDB(ten))
    monkeypatch.setattr(sys, "version_info", (3, 13))
    with pytest.raises(ConfigError, match=r".*; plyvel supports Python up to 3\.12: convert the database with Python 3\.12, for example"):
        len(LevelDB(ten))


# --- the writer ---


def test_a_key_that_comes_again_gets_a_number(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BATCH", 20)
    with leveldb_writer(str(tmp_path / "a"), durable=True) as writer:
        for n in range(5):
            writer.add("k", {"cls": n})
    dataset = LevelDB(str(tmp_path / "a"))
    assert list(dataset.keys) == ["k", "k-2", "k-3", "k-4", "k-5"] and [int(sample["cls"]) for sample in dataset] == list(range(5))


def test_what_cannot_be_written_leaves_nothing(tmp_path, ten):
    with pytest.raises(ItemError, match="use another key"), leveldb_writer(str(tmp_path / "a")) as writer:
        writer.add("__keys__", {"cls": 1})
    with pytest.raises(TypeError, match="field 'x' contains a NoneType"), leveldb_writer(str(tmp_path / "a")) as writer:
        writer.add("k", {"x": None})
    with pytest.raises(FileExistsError, match="ten': already exists; remove it, or choose another path"), leveldb_writer(ten):
        pass
    assert os.listdir(tmp_path) == ["ten"]


def large(path):
    """Write a database of several tables."""
    with leveldb_writer(str(path)) as writer:
        for n in range(2000):
            writer.put(b"%06d" % n, np.random.default_rng(n).bytes(4000))
    return str(path)


CUT = """
import os, sys
from highway.datasets import LevelDB
from highway.errors import DatasetError
dataset = LevelDB(sys.argv[1])
assert len(dataset[0]) == len(dataset[1999]) == 4000
tables = [entry.path for entry in os.scandir(sys.argv[1]) if entry.name.endswith(".ldb")]
assert len(tables) > 1
for path in tables:
    os.truncate(path, 1000)
for number in (0, 1000):
    try:
        dataset[number]
    except DatasetError as error:
        print(error)
"""


def test_a_table_that_is_cut_short_between_two_reads_is_an_error_and_does_not_end_the_process(tmp_path):
    done = subprocess.run([sys.executable, "-c", CUT, large(tmp_path / "a")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert re.search(r"a: \d+\.ldb had \d+ bytes when it was first read, and now has 1000 bytes; a dataset must not change", first)
    assert second == first


def test_what_a_writer_of_ours_has_written_is_all_in_tables(ten):
    sizes = {name: os.path.getsize(os.path.join(ten, name)) for name in os.listdir(ten)}
    assert [name for name in sizes if name.endswith(".ldb")] and not any(size for name, size in sizes.items() if name.endswith(".log"))


@pytest.mark.parametrize("count", [3, 2000])
def test_a_log_that_is_cut_short_or_damaged_is_an_error_and_stays_as_it_was(tmp_path, count):
    path = write(tmp_path / "a", [(b"%04d" % n, b"value" * 20) for n in range(count)])
    (log,) = (tmp_path / "a").glob("*.log")
    whole = log.read_bytes()
    for place in [len(whole) * part // 7 for part in range(1, 7)]:
        for damaged in (whole[:place], whole[:place] + bytes(64) + whole[place + 64 :], whole[:place] + b"?" + whole[place + 1 :]):
            log.write_bytes(damaged)
            with pytest.raises(DatasetError, match=r"damaged|Corruption"):
                len(LevelDB(path))
            assert log.read_bytes() == damaged
    log.write_bytes(whole)
    assert len(LevelDB(path)) == count


def test_damage_in_a_block_of_keys_is_an_error_wherever_it_is(tmp_path):
    path = write(tmp_path / "a", [(b"%04d" % n, np.random.default_rng(n).bytes(400)) for n in range(100)])
    plyvel.DB(path).close()
    (table,) = (tmp_path / "a").glob("*.ldb")
    whole = table.read_bytes()
    for place in range(10, len(whole) - 10, len(whole) // 37):
        table.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(DatasetError, match=f"{tmp_path}/a: the database is damaged: LevelDB reports: "):
            list(LevelDB(path))
