"""Checksums in the files of Npz, MDS and Parquet: damage in the values is an error, at once or with ``verify``."""

import hashlib
import json
import os

import numpy as np
import pyarrow.parquet as pq
import pytest
import xxhash

from highway.cli import main
from highway.datasets import MDS, Npz, Parquet
from highway.datasets.mds.writer import mds_writer
from highway.datasets.npy.writer import npz_writer
from highway.datasets.tables.writers import parquet_writer
from highway.errors import DatasetError

N = 40


def write(writer, count=N):
    with writer as out:
        for number in range(count):
            out.add(f"{number:03}", {"x": np.full(64, number, np.float32)})


def flip(path, value):
    """Flip a bit in the first place of a row of this value."""
    data = bytearray(path.read_bytes())
    place = data.index(np.full(64, value, np.float32).tobytes())
    data[place + 8] ^= 1
    path.write_bytes(data)


def read_all(dataset):
    return [dataset[number] for number in range(len(dataset))]


def test_verify_compares_the_checksums_of_an_npz_file(tmp_path):
    path = tmp_path / "a.npz"
    write(npz_writer(str(path)))
    assert len(read_all(Npz(str(path), verify=True))) == N
    flip(path, 7)
    assert len(read_all(Npz(str(path)))) == N
    with pytest.raises(DatasetError, match=r"a\.npz: not a .npz file, or damaged or truncated; the checksum of 'x\.npy' does not match"):
        read_all(Npz(str(path), verify=True))


@pytest.mark.parametrize("hashes", [("xxh3_64",), ("sha1",), ("sha256", "xxh64"), ("none", "md5")])
def test_verify_compares_the_checksums_of_mds_shards(tmp_path, hashes):
    write(mds_writer(str(tmp_path / "m"), size_limit=4000))
    index = json.loads((tmp_path / "m/index.json").read_text())
    assert len(index["shards"]) > 2
    for shard in index["shards"]:
        data = (tmp_path / "m" / shard["raw_data"]["basename"]).read_bytes()
        assert shard["raw_data"]["hashes"] == {"xxh3_64": xxhash.xxh3_64(data).hexdigest()}  # as Mosaic's streaming computes it
        digests = {name: getattr(xxhash, name, None) or getattr(hashlib, name, None) for name in hashes}
        shard["raw_data"]["hashes"] = {name: digest(data).hexdigest() if digest else "00" for name, digest in digests.items()}
    (tmp_path / "m/index.json").write_text(json.dumps(index))
    assert len(read_all(MDS(str(tmp_path / "m"), verify=True))) == N
    flip(tmp_path / "m/shard.00001.mds", 20)
    assert len(read_all(MDS(str(tmp_path / "m")))) == N
    dataset = MDS(str(tmp_path / "m"), verify=True)
    with pytest.raises(DatasetError, match=rf"shard\.00001\.mds: the shard is damaged: its {hashes[-1]} is not "):
        read_all(dataset)
    assert dataset[0]["x"][0] == 0 and dataset[N - 1]["x"][0] == N - 1


def test_checksums_that_cannot_be_computed_are_an_error_and_missing_ones_a_warning(tmp_path, caplog):
    write(mds_writer(str(tmp_path / "m")))
    path = tmp_path / "m/index.json"
    index = json.loads(path.read_text())
    index["shards"][0]["raw_data"]["hashes"] = {"of tomorrow": "00"}
    path.write_text(json.dumps(index))
    with pytest.raises(DatasetError, match=r"has only the checksums of tomorrow, which highway cannot compute"):
        read_all(MDS(str(tmp_path / "m"), verify=True))
    assert not caplog.messages
    index["shards"][0]["raw_data"]["hashes"] = {}
    path.write_text(json.dumps(index))
    assert len(read_all(MDS(str(tmp_path / "m"), verify=True))) == N
    assert "m/index.json has no checksums for some shards: damage in these shards is not detected" in caplog.text


def test_a_shard_that_is_replaced_by_one_of_the_same_size_after_it_was_closed_is_an_error(tmp_path):
    write(mds_writer(str(tmp_path / "m"), size_limit=1), 120)  # 120 shards, of which 100 are open at a time
    dataset = MDS(str(tmp_path / "m"))
    assert [sample["x"][0] for sample in read_all(dataset)] == list(range(120))
    first = tmp_path / "m/shard.00000.mds"
    flip(first, 0)
    os.utime(first, ns=(1, 1))  # the clock of files has steps, so that the time of a quick write may be the same
    with pytest.raises(DatasetError, match=r"shard\.00000\.mds: when it was first read"):
        dataset[0]


@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_checksums_of_parquet_pages_are_always_compared(tmp_path, compression):
    path = tmp_path / "a.parquet"
    write(parquet_writer(str(path), rows_per_block=10, compression=compression))
    assert len(read_all(Parquet(str(path)))) == N
    page = pq.ParquetFile(path).metadata.row_group(1).column(1)
    data = bytearray(path.read_bytes())
    data[page.data_page_offset + page.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    dataset = Parquet(str(path))
    assert dataset[0]["x"][0] == 0
    with pytest.raises(DatasetError, match=r"a\.parquet: Parquet: row group 1 is damaged or truncated; .*(checksum|CRC)"):
        dataset[10]


@pytest.mark.parametrize("damaged", ["source", "target"])
def test_convert_check_compares_checksums(tmp_path, capsys, damaged):
    write(npz_writer(str(tmp_path / "a.npz")))
    command = ["convert", str(tmp_path / "a.npz"), str(tmp_path / "m"), "--to", "mds"]
    if damaged == "target":
        assert main(command) == 0
        index = tmp_path / "m/index.json"
        index.write_text(index.read_text().replace('"xxh3_64":"', '"xxh3_64":"0'))
    else:
        flip(tmp_path / "a.npz", 7)
    assert main([*command, "--check"]) == 1
    assert ("its xxh3_64 is not" if damaged == "target" else "the checksum of 'x.npy' does not match") in capsys.readouterr().err
