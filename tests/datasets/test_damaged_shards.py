"""Damaged tar shards, read by index and as streams: errors that name the file and the place, and never fewer samples in silence."""

import bz2
import gzip
import io
import lzma
import os
import random
import tarfile

import pytest

from highway.datasets import Tar
from highway.datasets.shards import shard_writer
from highway.errors import ShardError
from highway.modules import WebDatasetSource

BLOCK, RECORD = tarfile.BLOCKSIZE, tarfile.RECORDSIZE
END = 2 * BLOCK


def shard(count=10, size=700):
    """Return an archive of files of random bytes."""
    memory, chosen = io.BytesIO(), random.Random(0)
    with tarfile.open(fileobj=memory, mode="w") as archive:
        for number in range(count):
            info = tarfile.TarInfo(f"{number:03}.bin")
            info.size = size
            archive.addfile(info, io.BytesIO(chosen.randbytes(size)))
    return memory.getvalue()


def by_index(path):
    dataset = Tar(path)
    return [dataset[number]["bin"] for number in range(len(dataset))]


def as_stream(path):
    return [stamped.item["bin"] for stamped in WebDatasetSource(path, epochs=1)]


def by_pipe(path):
    pytest.importorskip("webdataset")
    return as_stream(f"pipe:cat {path}")


READERS = [by_index, as_stream, by_pipe]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "a.tar")


def put(path, data):
    with open(path, "wb") as file:
        file.write(data)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("header", [0, 1, 4, 9])
def test_zeros_over_a_header_are_not_the_end_of_the_shard(path, read, header):
    data, step = bytearray(shard()), 3 * BLOCK
    data[header * step : header * step + BLOCK] = bytes(BLOCK)
    put(path, data)
    with pytest.raises(ShardError, match=rf"a\.tar: .*byte {header * step}\b.*byte {header * step + BLOCK}\b"):
        read(path)


@pytest.mark.parametrize("read", READERS)
def test_shards_joined_by_cat_are_refused(path, read):
    put(path, shard(3) + shard(4))
    with pytest.raises(ShardError, match=rf"a\.tar: .*byte {RECORD}\b.*tar --concatenate"):
        read(path)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("zeros", [RECORD + 1, 1 << 20])
def test_more_zeros_after_the_end_mark_than_a_record_are_an_interrupted_download(path, read, zeros):
    files = 10 * 3 * BLOCK
    put(path, shard()[:files] + bytes(END + zeros))
    with pytest.raises(ShardError, match=rf"a\.tar: .*more than 10240 zero bytes follow the end mark at byte {files}\b"):
        read(path)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("end", [BLOCK, END, END + RECORD])
def test_an_end_mark_and_up_to_a_record_of_zeros_are_read(path, read, end):
    put(path, shard()[: 10 * 3 * BLOCK] + bytes(end))
    assert len(read(path)) == 10


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("data", [bytes(RECORD), bytes(1 << 20), shard(0)])
def test_a_shard_without_files_is_refused(path, read, data):
    put(path, data)
    with pytest.raises(ShardError, match=r"a\.tar: .*(no files|zero bytes follow the end mark)"):
        read(path)


@pytest.mark.parametrize("read", READERS)
def test_a_shard_of_folders_alone_is_refused(path, read):
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("photos")
        info.type = tarfile.DIRTYPE
        archive.addfile(info)
    with pytest.raises(ShardError, match=r"a\.tar: .*no files"):
        read(path)


def test_a_writer_without_samples_leaves_no_shard(path):
    with pytest.raises(ShardError, match=r"a\.tar: no samples"), shard_writer(path):
        pass
    assert not os.path.exists(path)


COMPRESSORS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_a_flipped_bit_of_a_compressed_shard_is_an_error_or_changes_nothing(path, kind):
    packed = COMPRESSORS[kind](shard(40, 100))
    put(path, packed)
    expected, chosen, errors = as_stream(path), random.Random(kind), 0
    assert len(expected) == 40
    for _ in range(60):
        data = bytearray(packed)
        data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
        put(path, data)
        try:
            assert as_stream(path) == expected
        except ShardError as error:
            assert "a.tar" in str(error)
            errors += 1
    assert errors > 40


@pytest.mark.parametrize("kind", COMPRESSORS)
@pytest.mark.parametrize("keep", [0.5, 0.9, 0.999])
def test_a_compressed_shard_that_is_cut_short_is_an_error(path, kind, keep):
    packed = COMPRESSORS[kind](shard())
    put(path, packed[: int(len(packed) * keep)])
    with pytest.raises(ShardError, match=r"a\.tar: "):
        as_stream(path)


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_a_shard_compressed_in_several_parts_is_read(path, kind):
    data = shard()
    put(path, COMPRESSORS[kind](data[:5000]) + COMPRESSORS[kind](data[5000:]))
    assert len(as_stream(path)) == 10
    put(path, COMPRESSORS[kind](data) + COMPRESSORS[kind](data))
    with pytest.raises(ShardError, match=r"a\.tar: .*tar --concatenate"):
        as_stream(path)


def test_a_shard_compressed_by_zstd_is_refused_with_the_way_out(path):
    put(path, b"\x28\xb5\x2f\xfd" + bytes(1000))
    with pytest.raises(ShardError, match=r"a\.tar: .*zstd -d"):
        as_stream(path)
