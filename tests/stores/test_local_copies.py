"""The cache on a local disk: what is read again from it, how large it is, and several processes that share it."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from highway.errors import ConfigError
from highway.stores import cache, loop, remote
from highway.stores.cache import BlockCache
from highway.stores.file import open_file, read_ranges
from highway.stores.unchanging import FileRange

DATA = os.urandom(300_000)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(remote, "BLOCK", 1 << 16)
    monkeypatch.setattr(cache, "PAGE", 1 << 12)


@pytest.fixture
def url(store, small, tmp_path):
    store.put("bucket", "a.bin", DATA)
    return f"s3://bucket/a.bin?cache_dir={tmp_path}/cache&cache_gb=0.01"


def blocks(tmp_path):
    return sorted(path for path in Path(tmp_path, "cache", "blocks").rglob("*") if path.is_file())


def test_what_was_read_once_is_read_from_the_disk(store, url, tmp_path):
    file = open_file(url)
    for offset, size in ((0, 10), (65_000, 2000), (0, 300_000), (299_990, 10), (131_072, 65_536), (5, 0)):
        assert file.read(offset, size) == DATA[offset : offset + size]
    assert len(blocks(tmp_path)) == 5
    asked = len(store.asked)
    other = open_file(url)
    assert len(store.asked) == asked + 1  # for its state
    before = loop.totals()
    assert read_ranges([FileRange(other, at, 50_000) for at in range(0, 250_000, 49_999)]) == [
        DATA[at : at + 50_000] for at in range(0, 250_000, 49_999)
    ]
    assert len(store.asked) == asked + 1 and loop.totals()["cache_hits"] > before["cache_hits"]


def test_each_block_is_asked_for_once_by_ranges_that_share_it(store, url):
    file = open_file(url)
    asked = len(store.asked)
    assert read_ranges([FileRange(file, 100, 10), FileRange(file, 200, 10), FileRange(file, 65_530, 10)]) == [
        DATA[100:110],
        DATA[200:210],
        DATA[65_530:65_540],
    ]
    assert sorted(one[2] for one in store.asked[asked:]) == ["bytes=0-65535", "bytes=65536-131071"]


def test_what_has_changed_in_the_store_is_not_read_from_the_cache(store, url):
    assert open_file(url).read(0, 10) == DATA[:10]
    store.put("bucket", "a.bin", DATA[::-1])
    assert open_file(url).read(0, 10) == DATA[::-1][:10]


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "sums"])
def test_a_damaged_block_is_fetched_anew(store, url, tmp_path, damage):
    file = open_file(url)
    assert file.read(0, 10) == DATA[:10]
    (path,) = blocks(tmp_path)
    content = bytearray(path.read_bytes())
    if damage in ("cut", "empty"):
        content = content[: 1000 if damage == "cut" else 0]
    else:
        content[5 if damage == "changed" else -len(content) // 1 + 65_536] ^= 1
    path.write_bytes(content)
    assert file.read(0, 10) == DATA[:10]
    assert path.read_bytes()[:65_536] == DATA[:65_536]


def test_what_was_used_longest_ago_goes_first(tmp_path):
    held = BlockCache(str(tmp_path), 100_000)
    for number in range(8):
        held.write(f"{number:02}-block", bytes(10_000))
        os.utime(held.path(f"{number:02}-block"), (number, number))
    assert held.read("00-block", slice(0, 5), 10_000) == bytes(5)  # and so is the one that was used last
    for number in range(8, 14):
        held.write(f"{number:02}-block", bytes(10_000))
    assert held.read("00-block", slice(0, 5), 10_000) == bytes(5)
    assert held.read("01-block", slice(0, 5), 10_000) is None and held.read("02-block", slice(0, 5), 10_000) is None
    total = sum(path.stat().st_size for path in tmp_path.rglob("*block") if path.is_file())
    assert total <= 100_000


def test_who_has_a_block_open_reads_on_while_it_goes(tmp_path):
    held = BlockCache(str(tmp_path), 50_000)
    held.write("aa-block", b"x" * 10_000)
    with open(held.path("aa-block"), "rb") as file:
        os.utime(held.path("aa-block"), (1, 1))
        for number in range(6):
            held.write(f"{number:02}-block", bytes(10_000))
        assert not os.path.exists(held.path("aa-block")) and file.read(10_000) == b"x" * 10_000


def test_what_a_killed_process_began_is_removed_after_some_time(tmp_path):
    held = BlockCache(str(tmp_path), 15_000)
    held.write("aa-block", bytes(10_000))
    part = Path(held.path("aa-other") + ".1.part")
    part.write_bytes(b"x")
    held.evict()
    assert part.exists()
    os.utime(part, (1, 1))
    held.evict()
    assert not part.exists()


def test_threads_that_read_and_evict_at_once_read_what_is_right(store, small, tmp_path):
    for number in range(12):
        store.put("bucket", f"{number}.bin", bytes([number]) * 100_000)
    files = [open_file(f"s3://bucket/{number}.bin?cache_dir={tmp_path}/cache&cache_gb=0.001&hedge=0") for number in range(12)]
    wrong = []

    def read(seed):
        for step in range(40):
            number = (seed * 7 + step * 5) % 12
            if read_ranges([FileRange(files[number], 30_000, 50_000)]) != [bytes([number]) * 50_000]:
                wrong.append(number)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    BlockCache(f"{tmp_path}/cache", 1_000_000).evict()
    assert not wrong and sum(path.stat().st_size for path in blocks(tmp_path)) <= 1_000_000


PROCESS = """
import sys
from highway.stores.cache import BlockCache
cache, seed = BlockCache(sys.argv[1], 400_000), int(sys.argv[2])
for step in range(300):
    number = (seed * 7 + step * 5) % 97
    found = cache.read(f"{number:02}-block", slice(100, 200), 9000)
    assert found in (None, bytes([number]) * 100), (number, found)
    if found is None:
        cache.write(f"{number:02}-block", bytes([number]) * 9000)
"""


@pytest.mark.slow
def test_processes_share_a_cache(tmp_path):
    processes = [subprocess.Popen([sys.executable, "-c", PROCESS, str(tmp_path), str(seed)]) for seed in range(3)]
    assert [process.wait(200) for process in processes] == [0, 0, 0]
    BlockCache(str(tmp_path), 400_000).evict()
    assert sum(path.stat().st_size for path in tmp_path.rglob("*block") if path.is_file()) <= 400_000
    assert not list(tmp_path.rglob("*.part"))


def test_one_process_evicts_at_a_time(tmp_path):
    held = BlockCache(str(tmp_path), 1200)
    held.write("aa-block", bytes(900))
    os.utime(held.path("aa-block"), (1, 1))
    with cache.locked(str(tmp_path / "evicting.lock")) as mine:
        assert mine and held.write("bb-block", bytes(900)) == 0 and os.path.exists(held.path("aa-block"))
    assert held.evict() == 1 and not os.path.exists(held.path("aa-block"))


@pytest.mark.parametrize(("ago", "is_written"), [(59, False), (61, True)])
def test_the_time_of_last_use_is_written_down_now_and_then(tmp_path, monkeypatch, ago, is_written):
    held = BlockCache(str(tmp_path), 100_000)
    held.write("aa-block", bytes(100))
    used = int(os.stat(held.path("aa-block")).st_mtime) - ago
    os.utime(held.path("aa-block"), (used, used))
    monkeypatch.setattr(cache, "time", SimpleNamespace(time=lambda: used + ago))
    held.read("aa-block", slice(0, 10), 100)
    assert (os.stat(held.path("aa-block")).st_mtime != used) is is_written


def test_a_folder_that_cannot_be_one_is_named(store, tmp_path):
    store.put("bucket", "a.bin", DATA)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cache_dir='.*/file': .*; choose a folder that is writable"):
        open_file(f"s3://bucket/a.bin?cache_dir={tmp_path}/file").read(0, 10)


def test_the_environment_says_where_it_is(store, small, tmp_path, monkeypatch):
    monkeypatch.setenv("HIGHWAY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HIGHWAY_CACHE_GB", "0.5")
    store.put("bucket", "a.bin", DATA)
    assert open_file("s3://bucket/a.bin").read(0, 10) == DATA[:10] and len(blocks(tmp_path)) == 1


def test_a_block_with_the_name_of_another_is_fetched_anew(store, url, tmp_path):
    file = open_file(url)
    assert file.read(0, 300_000) == DATA
    one, other, *_ = [path for path in blocks(tmp_path) if path.stat().st_size > 65_536]
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    assert file.read(0, 300_000) == DATA and one.read_bytes() == content
    asked = len(store.asked)
    assert file.read(0, 300_000) == DATA and len(store.asked) == asked  # both are whole again


def test_pages_that_were_swapped_with_their_checksums_are_fetched_anew(tmp_path, small):
    held = BlockCache(str(tmp_path), 100_000)
    held.write("aa-block", b"a" * 4096 + b"b" * 4096)
    content = Path(held.path("aa-block")).read_bytes()
    Path(held.path("aa-block")).write_bytes(content[4096:8192] + content[:4096] + content[8200:] + content[8192:8200])
    assert held.read("aa-block", slice(0, 10), 8192) is None


def test_each_url_of_a_read_has_its_own_cache(store, small, tmp_path):
    for name in "abc":
        store.put("bucket", name, name.encode() * 100_000)
    queries = {"a": f"?cache_dir={tmp_path}/one", "b": "", "c": f"?cache_dir={tmp_path}/other"}
    for names in ("abc", "bca", "cab"):
        files = [open_file(f"s3://bucket/{name}{queries[name]}") for name in names]
        asked = len(store.asked)
        assert read_ranges([FileRange(file, 10, 90_000) for file in files]) == [name.encode() * 90_000 for name in names]
        assert len(store.asked) - asked == (5 if names == "abc" else 1)  # two blocks of a and c, and what is asked for of b
    for folder in ("one", "other"):
        assert sum(path.is_file() for path in (tmp_path / folder / "blocks").rglob("*")) == 2


FULL = """
import logging, resource, sys
from highway.stores.file import open_file
logging.basicConfig(format="%(message)s")
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for name in ("a.bin", "b.bin", "a.bin"):
    sys.stdout.buffer.write(open_file(f"s3://bucket/{name}?cache_dir={sys.argv[1]}").read(0, 300_000))
"""


def test_a_full_disk_is_said_once_and_objects_are_read_without_the_cache(store, tmp_path):
    store.put("bucket", "a.bin", DATA)
    store.put("bucket", "b.bin", DATA[::-1])
    done = subprocess.run([sys.executable, "-B", "-c", FULL, str(tmp_path / "cache")], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, DATA + DATA[::-1] + DATA)
    said = done.stderr.decode()
    assert said.count("cannot be written") == 1 and f"cache_dir='{tmp_path}/cache' cannot be written (File too large)" in said
    assert blocks(tmp_path) == []  # nothing half written stays


def test_a_cache_whose_folder_has_gone_does_not_end_the_run(store, url, tmp_path, caplog):
    file = open_file(url)
    assert file.read(0, 10) == DATA[:10]
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").touch()
    assert file.read(0, 300_000) == DATA
    assert len(caplog.messages) == 1 and "so objects are read from the store; free space, lower cache_gb" in caplog.text
