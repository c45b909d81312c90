"""The index file of a folder: of all formats whose files are scanned for the positions of their samples."""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from forking import in_a_fork

from highway import Pipeline
from highway.datasets import Tar, TFRecord, tar_index
from highway.datasets.index import scanning
from highway.datasets.index.file import Group, load_index, save_index
from highway.datasets.index.of_files import indexes_of
from highway.datasets.records import framing
from highway.datasets.records.tfrecord import tfrecord_writer
from highway.datasets.shards import shard_writer
from highway.errors import DatasetError, ShardError
from highway.modules import Reader
from highway.stores.unchanging import FileState

KINDS = [Tar, TFRecord]
WRITERS = {Tar: shard_writer, TFRecord: tfrecord_writer}
NOTHING = FileState(0, 0)
VERSIONS = {Tar: tar_index.VERSION, TFRecord: framing.VERSION}


def write(kind, path, numbers):
    with WRITERS[kind](str(path)) as writer:
        for number in numbers:
            writer.add(f"{number}", {"cls": np.int32(number), "txt": "x" * (number % 7)})


def opened(kind, paths, index=False):
    return kind(paths, index=index, **({"example": True} if kind is TFRecord else {}))


def values(dataset):
    return [int(sample["cls"]) for sample in dataset]


def name(kind):
    return f"highway-{kind.__name__.lower()}.index"


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


@pytest.fixture
def files(kind, tmp_path):
    """Three files of 10, 1 and 5 samples."""
    os.mkdir(tmp_path / "data")
    for number, samples in enumerate([range(10), range(10, 11), range(11, 16)]):
        write(kind, tmp_path / f"data/s-{number}", samples)
    return f"{tmp_path}/data/s-{{0..2}}"


@pytest.fixture
def scanned(reads):
    """The names of the files that are scanned if the length of a dataset is asked for."""

    def names(dataset):
        reads.clear()
        len(dataset)
        return sorted({os.path.basename(read.path) for read in reads})

    return names


ALL = ["s-0", "s-1", "s-2"]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_one_index_file_is_written_for_a_folder_and_used_while_it_fits(kind, files, tmp_path, scanned, elsewhere):
    where = str(tmp_path / "indexes") if elsewhere else True
    assert values(opened(kind, files)) == list(range(16)) and not list(tmp_path.rglob("*.index*"))
    assert scanned(opened(kind, files, where)) == ALL
    (path,) = tmp_path.rglob("*.index*")
    assert path == tmp_path / "data" / name(kind) if not elsewhere else path.parent == tmp_path / "indexes"
    before = path.stat()
    for paths in (files, f"{tmp_path}/data/s-{{1..2}}", [f"{tmp_path}/data/s-2", f"{tmp_path}/data/../data/s-0"]):
        assert scanned(opened(kind, paths, where)) == []
    assert scanned(opened(kind, files)) == (ALL if elsewhere else [])
    assert values(opened(kind, files, where)) == list(range(16)) and path.stat().st_mtime_ns == before.st_mtime_ns


def test_only_files_that_are_new_or_have_changed_are_scanned(kind, files, tmp_path, scanned):
    data = tmp_path / "data"
    assert scanned(opened(kind, f"{data}/s-{{0..1}}", True)) == ["s-0", "s-1"]
    assert scanned(opened(kind, f"{data}/s-2", True)) == ["s-2"] and scanned(opened(kind, files, True)) == []
    before = os.stat(data / "s-1")
    write(kind, data / "s-1", [17])  # as many bytes
    os.utime(data / "s-1", ns=(0, before.st_mtime_ns + 1))
    assert os.stat(data / "s-1").st_size == before.st_size
    assert scanned(opened(kind, files)) == ["s-1"]  # and no index is written
    assert scanned(opened(kind, files, True)) == ["s-1"] and scanned(opened(kind, files, True)) == []
    assert values(opened(kind, files, True)) == [*range(10), 17, *range(11, 16)]


def test_a_removed_file_leaves_the_index_and_is_missed(kind, files, tmp_path, scanned):
    len(opened(kind, files, True))
    os.unlink(tmp_path / "data/s-1")
    with pytest.raises(FileNotFoundError, match="s-1"):
        len(opened(kind, files, True))
    write(kind, tmp_path / "data/s-2", range(3))
    assert scanned(opened(kind, f"{tmp_path}/data/s-{{0,2}}", True)) == ["s-2"]
    index = load_index(str(tmp_path / "data" / name(kind)), VERSIONS[kind], pytest.fail)
    assert sorted(index) == ["s-0", "s-2"]


def test_no_data_file_is_opened_before_its_first_sample(kind, files, tmp_path):
    len(opened(kind, files, True))

    def files_opened():
        paths = []
        sys.addaudithook(lambda event, given: paths.append(str(given[0])) if event == "open" else None)
        dataset = opened(kind, files, True)
        assert len(dataset) == 16 and paths == [str(tmp_path / "data" / name(kind))]
        return int(dataset[12]["cls"]) + len(paths)

    assert in_a_fork(files_opened) == 14


def test_an_index_is_mapped_into_memory_and_does_not_stay_in_it(kind, files, tmp_path):
    dataset = opened(kind, files, True)
    assert len(dataset) == 16
    assert str(tmp_path / "data" / name(kind)) in Path("/proc/self/maps").read_text()


# --- damage ---


def cut_or_replaced(data):
    yield from (b"", b"garbage", b"PK\3\4" + data, data.replace(b"index 1", b"index 9"), data + b"x", bytes(len(data)))
    yield from (data[:size] for size in range(0, len(data), 41))


@pytest.mark.parametrize("index", [False, True])
def test_an_index_that_was_cut_or_replaced_is_not_used_and_written_again(kind, files, tmp_path, index):
    path = tmp_path / "data" / name(kind)
    len(opened(kind, files, True))
    data = path.read_bytes()
    for content in cut_or_replaced(data):
        path.write_bytes(content)
        assert values(opened(kind, files, index)) == list(range(16)) and path.read_bytes() == (data if index else content)


def test_no_bit_of_an_index_changes_a_sample(kind, files, tmp_path):
    path = tmp_path / "data" / name(kind)
    len(opened(kind, files, True))
    data, chosen = path.read_bytes(), random.Random(0)
    for place in range(0, len(data), 2):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << chosen.randrange(8)]) + data[place + 1 :])
        assert values(opened(kind, files)) == list(range(16))


def test_a_damaged_part_is_named_and_computed_again(kind, files, tmp_path, caplog):
    path = tmp_path / "data" / name(kind)
    len(opened(kind, files, True))
    data = bytearray(path.read_bytes())
    data[-64] ^= 1  # the last array of the last file
    path.write_bytes(data)
    dataset = opened(kind, files, True)
    assert [int(dataset[number]["cls"]) for number in (0, 10)] == [0, 10] and not caplog.text
    assert values(dataset) == list(range(16))
    assert f"{path}: the index of 's-2' is damaged, so highway computes it again; remove this index file to repair it" in caplog.text


def test_a_damaged_part_is_not_computed_from_a_file_that_has_changed(kind, files, tmp_path):
    path = tmp_path / "data" / name(kind)
    len(opened(kind, files, True))
    path.write_bytes(path.read_bytes()[:-64] + b"damaged!" * 8)
    dataset = opened(kind, files, True)
    assert len(dataset) == 16
    write(kind, tmp_path / "data/s-2", range(3))
    with pytest.raises(DatasetError, match=r"s-2.* has changed since the dataset was opened"):
        dataset[12]


def test_an_index_of_another_version_or_an_earlier_release_is_not_used(kind, files, tmp_path, scanned):
    path = str(tmp_path / "data" / name(kind))
    (tmp_path / "data/s-0.index").write_bytes(b"PK")
    wrong = {one: Group.of(FileState.of(f"{tmp_path}/data/{one}"), [np.zeros(4, np.uint32)] * 7) for one in ALL}
    save_index(path, "another 1", wrong)
    assert scanned(opened(kind, files)) == ALL
    assert scanned(opened(kind, files, True)) == ALL and scanned(opened(kind, files, True)) == []
    assert values(opened(kind, files, True)) == list(range(16))


def test_a_writer_that_dies_leaves_the_index_as_it_was(tmp_path):
    path = str(tmp_path / "highway-x.index")
    save_index(path, "x 1", {"a": Group.of(NOTHING, [np.arange(9)])})

    def die():
        killed = Group(NOTHING, [9], lambda: os.kill(os.getpid(), signal.SIGKILL))
        save_index(path, "x 1", {"a": Group.of(NOTHING, [np.arange(5)]), "b": killed})

    assert in_a_fork(die) == -signal.SIGKILL
    with pytest.raises(ZeroDivisionError):
        save_index(path, "x 1", {"a": Group(NOTHING, [9], lambda: 1 // 0)})
    assert load_index(path, "x 1", pytest.fail)["a"].arrays[0].tolist() == list(range(9))


# --- folders that cannot be written to, and several processes ---


def test_in_a_folder_without_permission_to_write_an_index_is_read(kind, files, tmp_path):
    data, user = tmp_path / "data", os.geteuid()
    for folder in [data, *data.parents][: len(data.relative_to("/tmp").parts)]:
        os.chmod(folder, 0o755)
    try:
        if not user:  # whom rights do not stop
            os.seteuid(65534)
        else:
            os.chmod(data, 0o555)
        assert len(opened(kind, files)) == 16
        with pytest.raises(PermissionError, match=name(kind)) as caught:
            len(opened(kind, files, True))
        assert f"while writing {data / name(kind)}" in caught.value.__notes__[0]
    finally:
        os.seteuid(user)
        os.chmod(data, 0o755)
    len(opened(kind, files, True))
    try:
        if not user:
            os.seteuid(65534)
        else:
            os.chmod(data, 0o555)
        assert values(opened(kind, files, True)) == list(range(16))
    finally:
        os.seteuid(user)
        os.chmod(data, 0o755)


def test_of_two_that_build_an_index_at_once_one_scans_and_the_other_waits(tmp_path):
    paths = [str(tmp_path / f"{number}") for number in range(3)]
    for path in paths:
        Path(path).write_bytes(b"abc")
    scans, begun, go_on, results = list[str](), threading.Event(), threading.Event(), list[list[int]]()

    def scan(path):
        scans.append(path)
        begun.set()
        assert go_on.wait(60)
        return Group.of(FileState.of(path), [np.arange(3)])

    def build():
        results.append([group.arrays[0].sum() for group in indexes_of(paths, "x", "x 1", scan, True)])

    threads = [threading.Thread(target=build) for _ in range(3)]
    threads[0].start()
    assert begun.wait(60)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert scans == paths and results == [[3, 3, 3]] * 3 and sorted(os.listdir(tmp_path)) == ["0", "1", "2", "highway-x.index"]


BUILD = """import sys
from highway.datasets import {kind}
print(len({kind}({paths!r}, index=True)), flush=True)"""


def test_processes_that_build_an_index_at_once_all_have_it(kind, files, tmp_path):
    command = [sys.executable, "-c", BUILD.format(kind=kind.__name__, paths=files)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=60)[0] for process in processes] == ["16\n"] * 3
    assert sorted(os.listdir(tmp_path / "data")) == sorted([*ALL, name(kind)])
    assert values(opened(kind, files, True)) == list(range(16))


def test_a_scan_that_takes_long_is_shared_with_other_processes(kind, files, scanned, monkeypatch):
    monkeypatch.setattr(scanning, "SECONDS_ALONE", -1.0)
    assert scanned(opened(kind, files, True)) == []  # by this process
    assert values(opened(kind, files, True)) == list(range(16))


def test_an_error_of_another_process_is_raised_as_its_own(kind, files, tmp_path, monkeypatch):
    monkeypatch.setattr(scanning, "SECONDS_ALONE", -1.0)
    path = tmp_path / "data/s-1"
    path.write_bytes(path.read_bytes()[:-30] if kind is TFRecord else path.read_bytes()[:100])
    with pytest.raises(DatasetError if kind is TFRecord else ShardError, match=r"s-1: .*truncated"):
        len(opened(kind, files, True))


def test_without_other_processes_this_one_scans_all(kind, files, scanned, monkeypatch):
    monkeypatch.setattr(scanning, "SECONDS_ALONE", -1.0)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert scanned(opened(kind, files, True)) == ALL and values(opened(kind, files, True)) == list(range(16))


# --- ranks and states ---


@pytest.mark.parametrize("harm", ["none", "removed", "damaged"])
def test_other_ranks_resume_whatever_became_of_the_index(kind, files, tmp_path, harm):
    def pipeline(rank, ranks):
        return Pipeline([Reader(opened(kind, files, True), 1, rank=rank, world_size=ranks, epochs=1)], seed=3)

    seen = list[int]()
    for rank in range(2):
        with pipeline(rank, 2) as first:
            seen += [int(first.dequeue()["cls"][0]) for _ in range(3)]
            state = first.state_dict()
    path = tmp_path / "data" / name(kind)
    if harm == "removed":
        path.unlink()
    elif harm == "damaged":
        path.write_bytes(path.read_bytes()[:-64] + b"damaged!" * 8)
    for rank in range(5):
        with pipeline(rank, 5) as rest:
            rest.load_state_dict(state)
            seen += [int(batch["cls"][0]) for batch in rest]
    assert sorted(seen) == list(range(16))
