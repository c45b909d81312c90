"""Whole objects and folders as files here, for libraries that take nothing else."""

import fcntl
import os
import shutil
import threading
from pathlib import Path

import pytest
from forking import in_a_fork
from object_store import Faults
from waiting import wait_until

from highway.errors import CacheFullError, ConfigError
from highway.stores import copies
from highway.stores.cache import BlockCache, cache_of
from highway.stores.file import local
from highway.stores.url import parse


@pytest.fixture
def options(store, tmp_path):
    for name in ("a.bin", "db/CURRENT", "db/sub/1.ldb", "db/empty"):
        store.put("bucket", name, name.encode() * 1000 if name != "db/empty" else b"")
    return f"?cache_dir={tmp_path}/cache&cache_gb=0.001"


def copied(tmp_path):
    return [path for path in Path(tmp_path, "cache", "copies").glob("*") if path.is_dir()]


def test_a_path_is_itself(tmp_path):
    assert local(str(tmp_path)) == str(tmp_path)


def test_an_object_is_copied_once(store, options, tmp_path):
    store.faults = Faults(0.2, 1, slow=0.05)
    path = local(f"s3://bucket/a.bin{options}")
    assert Path(path).read_bytes() == b"a.bin" * 1000 and Path(path).name == "a.bin"
    whole = store.count()
    assert local(f"s3://bucket/a.bin{options}") == path and store.count() == whole
    assert len(copied(tmp_path)) == 1


def test_a_folder_is_copied_whole(options, tmp_path):
    path = Path(local(f"s3://bucket/db{options}"))
    assert {str(one.relative_to(path)): one.read_bytes() for one in path.rglob("*") if one.is_file()} == {
        "CURRENT": b"db/CURRENT" * 1000,
        "sub/1.ldb": b"db/sub/1.ldb" * 1000,
        "empty": b"",
    }


def test_what_has_changed_is_copied_anew(store, options):
    first = local(f"s3://bucket/a.bin{options}")
    store.put("bucket", "a.bin", b"new")
    second = local(f"s3://bucket/a.bin{options}")
    assert second != first and Path(second).read_bytes() == b"new" and Path(first).read_bytes() == b"a.bin" * 1000


def test_threads_that_want_the_same_copy_wait_for_it(store, options, monkeypatch):
    monkeypatch.setattr(copies, "CHUNK", 500)
    found = []
    threads = [threading.Thread(target=lambda: found.append(local(f"s3://bucket/a.bin{options}"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1 and len(found) == 4
    assert sum(asked[2] == "bytes=0-499" for asked in store.asked) == 1


def copied_by_another_process(url, tmp_path):
    """Return the copy of a process that has ended."""
    before = copied(tmp_path)
    assert in_a_fork(lambda: len(local(url)) and 0) == 0
    (folder,) = {*copied(tmp_path)} - {*before}
    return next(folder.iterdir())


def test_a_process_that_copies_is_waited_for_and_its_copy_is_used(store, options, tmp_path):
    url = f"s3://bucket/a.bin{options}"
    path = copied_by_another_process(url, tmp_path)
    with open(f"{path.parent}.lock") as lock:  # as another process locks it
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(path.parent)
        found, asked = [], len(store.asked)
        thread = threading.Thread(target=lambda: found.append(local(url)))
        thread.start()
        wait_until(lambda: len(store.asked) > asked)  # for what it is now; then it waits
        path.parent.mkdir()
        path.write_bytes(b"the other's")
    thread.join()
    assert found == [str(path)] and path.read_bytes() == b"the other's"


def test_a_copy_that_is_used_is_not_evicted_and_others_are(store, options, tmp_path):
    ended = copied_by_another_process(f"s3://bucket/db/CURRENT{options}", tmp_path)
    path = local(f"s3://bucket/a.bin{options}")
    held = cache_of(parse(f"s3://bucket/a.bin{options}").options)
    old = tmp_path / "cache" / "copies" / "unused"
    (old / "x").mkdir(parents=True)
    (old / "x" / "y").write_bytes(bytes(2_000_000))
    os.utime(Path(path).parent, (1, 1))
    assert isinstance(held, BlockCache) and held.evict() == 2
    assert not old.exists() and not ended.exists() and Path(path).exists()
    held.limit = 10
    assert held.evict() == 0 and Path(path).exists()


def test_a_copy_that_fails_leaves_nothing(store, options, tmp_path, monkeypatch):
    monkeypatch.setattr(copies, "CHUNK", 500)
    store.faults.next = [None, None, None, "500", "500"]
    with pytest.raises(OSError, match=r"s3://bucket/a\.bin: 2 attempts failed"):
        local(f"s3://bucket/a.bin{options}&attempts=2")
    assert copied(tmp_path) == []
    assert Path(local(f"s3://bucket/a.bin{options}")).read_bytes() == b"a.bin" * 1000


def test_where_to_must_be_said_and_be_large_enough(store, options, monkeypatch):
    monkeypatch.delenv("HIGHWAY_CACHE_DIR", raising=False)
    with pytest.raises(
        ConfigError,
        match=r"'s3://bucket/a\.bin': this format can only be read from a copy on this machine; .*\?cache_dir=FOLDER, or HIGHWAY_CACHE_DIR",
    ):
        local("s3://bucket/a.bin")
    store.put("bucket", "big.bin", bytes(1_100_000))
    with pytest.raises(CacheFullError, match=r"s3://bucket/big\.bin: 0\.0011 GB do not fit into the cache of 0\.001 GB; raise cache_gb"):
        local(f"s3://bucket/big.bin{options}")
    with pytest.raises(FileNotFoundError, match=r"s3://bucket/none: no such object"):
        local(f"s3://bucket/none{options}")
