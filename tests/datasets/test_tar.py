"""Samples of shards by number."""

import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from forking import in_a_fork

from highway import Pipeline, Stage
from highway.datasets import ImageFolder, Tar, tar_index
from highway.errors import ConfigError, DatasetError, ShardError
from highway.modules import ImageFileReader, Reader, WebDatasetSource
from highway.modules.caching.fingerprint import fingerprint

VAL = "highway:photos/val"


def write(path, files, **options):
    """Write a shard; a file's content is bytes, or a TarInfo's attributes."""
    with tarfile.open(path, "w", **options) as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            if isinstance(data, bytes):
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
            else:
                for attribute, value in data.items():
                    setattr(info, attribute, value)
                archive.addfile(info)
    return str(path)


def numbered(first, stop):
    return [(f"{n:03}.{kind}", data) for n in range(first, stop) for kind, data in (("cls", b"%d" % n), ("txt", b"number %d" % n))]


@pytest.fixture
def shards(tmp_path):
    """Three shards of 10, 0 and 5 samples; the second has a file that belongs to no sample."""
    for number, files in enumerate([numbered(0, 10), [("README", b"nothing")], numbered(10, 15)]):
        write(tmp_path / f"s-{number}.tar", files)
    return f"{tmp_path}/s-{{0..2}}.tar"


def test_samples_are_those_of_the_source_in_the_order_of_the_shards(shards):
    dataset = Tar(shards)
    assert len(dataset) == 15
    assert [dataset[n] for n in range(15)] == [{"cls": n, "txt": f"number {n}"} for n in range(15)]
    assert [dataset[n] for n in range(15)] == [stamped.item for stamped in WebDatasetSource(shards, epochs=1, shuffle=False)]
    assert list(dataset.keys) == [f"{n:03}" for n in range(15)] == dataset.keys[:]
    assert dataset.blocks() == [range(10), range(10, 15)]
    assert dataset[-1] == dataset[np.int64(14)]
    assert dataset[3]["cls"].dtype == np.int32
    with pytest.raises(IndexError):
        dataset[15]


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_way_to_write_a_name_is_read(tmp_path, kind):
    names = ["a.cls", "dir/b.cls", "x" * 95 + ".cls", "x" * 96 + ".cls", "d" * 90 + "/" + "y" * 60 + ".cls", "./c.cls", "a.b/.hidden.cls"]
    names += [] if kind == tarfile.USTAR_FORMAT else ["long/" * 60 + "z.CLS", "é" * 99 + ".cls", "plain.cls"]
    path = write(
        tmp_path / "a.tar", [("dir", {"type": tarfile.DIRTYPE}), *((name, b"%d" % n) for n, name in enumerate(names))], format=kind
    )
    source = list(WebDatasetSource(path, epochs=1))
    assert len(source) == len(names) - 1
    dataset = Tar(path)
    assert [(key, dataset[n]) for n, key in enumerate(dataset.keys)] == [(s.passport.keys[0], s.item) for s in source]


def test_pax_headers_that_hold_for_all_files_and_large_numbers_are_read(tmp_path):
    headers = {"comment": "made by a test"}
    write(tmp_path / "a.tar", [("1.bin", b"one"), ("2.bin", b"two")], format=tarfile.PAX_FORMAT, pax_headers=headers)
    with tarfile.open(tmp_path / "b.tar", "w", format=tarfile.GNU_FORMAT) as archive:
        info = tarfile.TarInfo("3.bin")
        info.size = 5
        header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
        header[124:136] = b"\x80" + (5).to_bytes(11, "big")
        header[148:156] = b"%06o\0 " % (sum(header) - sum(header[148:156]) + 256)
        archive.fileobj.write(bytes(header) + b"three".ljust(512, b"\0"))
        archive.offset = 1024
    dataset = Tar([str(tmp_path / "a.tar"), str(tmp_path / "b.tar")])
    assert [dataset[n]["bin"] for n in range(3)] == [b"one", b"two", b"three"]


def test_fields_are_chosen_and_only_those_are_read(tmp_path):
    path = write(tmp_path / "a.tar", [("1.jpg", b"j"), ("1.cls", b"4"), ("1.json", b"{broken"), ("2.png", b"p"), ("2.cls", b"5")])
    dataset = Tar(path, fields={"image": "png;jpg", "label": "cls"})
    assert [dataset[0], dataset[1]] == [{"image": b"j", "label": 4}, {"image": b"p", "label": 5}]
    with pytest.raises(ShardError, match=r"a\.tar: sample '1': \.json: "):
        Tar(path)[0]
    with pytest.raises(
        ShardError, match=r"a\.tar: sample '2': there is no value for the field 'image': expected gif or jpg, found png, cls"
    ):
        Tar(path, fields={"image": "gif;jpg"})[1]


def test_it_is_read_again_after_a_pickle_and_in_a_forked_child(shards):
    dataset = Tar(shards)
    assert dataset[1]["cls"] == 1
    again = pickle.loads(pickle.dumps(dataset))
    assert again == dataset and again[1]["cls"] == 1
    assert in_a_fork(lambda: dataset[11]["cls"]) == 11


def test_more_shards_than_may_be_open_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("highway.datasets.tar.MOST_OPEN", 2)
    for n in range(6):
        write(tmp_path / f"{n}.tar", numbered(n, n + 1))
    dataset = Tar(f"{tmp_path}/{{0..5}}.tar")
    assert [dataset[n]["cls"] for n in [*range(6), *range(6)]] == [*range(6), *range(6)]
    paths = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
    assert sum(os.path.dirname(path) == os.path.realpath(tmp_path) for path in paths) == 2


# --- the index; index/test_index_files.py has what it shares with other formats ---


def test_an_index_is_small(tmp_path):
    path = write(tmp_path / "a.tar", [(f"train/n01440764/n01440764_{n}.{kind}", b"x") for n in range(2000) for kind in ("jpg", "cls")])
    assert sum(column.nbytes for column in tar_index.index_of(path).arrays) < 2000 * (len("train/n01440764/n01440764_1000") + 20)


# --- what is no shard, or none any more ---


@pytest.mark.parametrize("keep", [0, 100, 512, 700, 1024, 1024 + 512, 3000])
def test_a_shard_that_is_cut_short_is_an_error_wherever_it_is_cut(shards, tmp_path, keep):
    path = tmp_path / "s-0.tar"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ShardError, match=r"s-0\.tar: not a tar archive, or damaged or truncated; "):
        len(Tar(shards))


def test_a_damaged_header_is_an_error_and_not_the_end(shards, tmp_path):
    path = tmp_path / "s-0.tar"
    data = bytearray(path.read_bytes())
    data[1024:1100] = b"\xee" * 76
    path.write_bytes(data)
    with pytest.raises(ShardError, match=r"s-0\.tar: not a tar archive, or damaged or truncated; "):
        len(Tar(shards))


def test_a_size_that_lies_is_an_error(shards, tmp_path):
    path = tmp_path / "s-0.tar"
    header = bytearray(path.read_bytes())
    header[124:136] = b"%011o\0" % (1 << 30)
    header[148:156] = b"%06o\0 " % (sum(header[:512]) - sum(header[148:156]) + 256)
    path.write_bytes(header)
    with pytest.raises(ShardError, match=r"s-0\.tar: .*byte \d+: the header of '000.cls' declares 1073741824 bytes, which do not fit"):
        len(Tar(shards))


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
def test_a_compressed_shard_is_refused_with_the_way_out(tmp_path, kind):
    path = str(tmp_path / "a.tar")
    with tarfile.open(path, f"w:{kind}"):
        pass
    with pytest.raises(ShardError, match=r"a\.tar: the shard is compressed with .*; unpack it, or read it with WebDatasetSource"):
        len(Tar(path))


def test_links_are_refused(tmp_path):
    path = write(tmp_path / "a.tar", [("1.cls", b"1"), ("2.cls", {"type": tarfile.LNKTYPE, "linkname": "1.cls"})])
    with pytest.raises(ShardError, match=r"a\.tar: .*'2.cls' is a link or a sparse file"):
        len(Tar(path))


@pytest.mark.parametrize("paths", ["pipe:cat a.tar", "scp://host/a.tar", []])
def test_only_files_have_numbers(paths):
    with pytest.raises(ConfigError, match=r"expected shards, .*WebDatasetSource reads pipes"):
        Tar(paths)


def test_a_missing_shard_and_a_pattern_are_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.tar"):
        len(Tar(str(tmp_path / "none.tar")))
    with pytest.raises(FileNotFoundError) as caught:
        len(Tar(str(tmp_path / "*.tar")))
    assert "use braces" in caught.value.__notes__[0]


def test_a_shard_that_changes_while_it_is_read_is_named(shards, tmp_path):
    dataset, path = Tar(shards), tmp_path / "s-0.tar"
    assert dataset[0]["cls"] == 0
    before = os.stat(path)
    os.truncate(path, 3000)
    message = rf"s-0\.tar: it had {before.st_size} bytes when it was first read, and now has 3000 bytes; .* must not change"
    for number in (0, 9):
        with pytest.raises(DatasetError, match=message):
            dataset[number]
    assert dataset[12]["cls"] == 12
    path.write_bytes(bytes(before.st_size))
    os.utime(path, ns=(1, 1))  # which a quick machine may not have changed: the clock of files has steps
    with pytest.raises(DatasetError, match=r"s-0\.tar: .* and now it is \d+"):
        dataset[0]


def test_a_shard_that_is_replaced_before_it_is_opened_is_named(shards, tmp_path):
    dataset = Tar(shards)
    assert len(dataset) == 15
    write(tmp_path / "s-2.tar", numbered(0, 50))
    with pytest.raises(DatasetError, match=r"s-2\.tar: it had \d+ bytes when it was first read, and now has \d+ bytes"):
        dataset[12]


# --- through readers ---


@pytest.fixture
def photos(tmp_path):
    """The photographs as two shards, in the order of the folder."""
    folder = ImageFolder(VAL)
    for number, some in enumerate([range(20), range(20, 32)]):
        files = [(f"{folder.keys[n].rsplit('.', 1)[0]}.{kind}", data) for n in some for kind, data in zip(("jpg", "cls"), folder[n])]
        write(tmp_path / f"p-{number}.tar", [(name, data if isinstance(data, bytes) else b"%d" % data) for name, data in files])
    return f"{tmp_path}/p-{{0..1}}.tar"


def test_the_order_is_the_same_from_a_folder_shards_and_an_array(photos):
    keys = ImageFolder(VAL).keys

    def order(reader, name):
        with Pipeline([reader], seed=5) as pipeline:
            return [name(row) for item, passport in pipeline.stamped() for row in zip(passport.keys or item, strict=True)]

    options = {"batch_size": 8, "epochs": 3}
    by_folder = order(ImageFileReader(VAL, shape=(8, 8), **options), lambda row: keys.index(row[0]))
    by_shards = order(ImageFileReader(photos, shape=(8, 8), **options), lambda row: [k.rsplit(".", 1)[0] for k in keys].index(row[0]))
    by_array = order(Reader(np.arange(32, dtype=np.int32), **options), lambda row: int(row[0]))
    assert by_folder == by_shards == by_array
    assert sorted(by_folder) == sorted([*range(32)] * 3)


@pytest.mark.parametrize("shuffle", [True, False, "blocks"])
def test_images_of_shards_are_those_of_the_folder(photos, shuffle):
    def batches(data_dir):
        shuffled = shuffle if shuffle != "blocks" or data_dir is photos else False
        with Pipeline([ImageFileReader(data_dir, 8, (24, 32), 1, shuffle=shuffled)]) as pipeline:
            return [(bytes(i), int(n)) for images, labels in pipeline for i, n in zip(images, labels, strict=True)]

    found, expected = batches(photos), batches(VAL)
    assert (sorted(found) if shuffle == "blocks" else found) == (sorted(expected) if shuffle == "blocks" else expected)


def test_a_cache_knows_shards(tmp_path, shards):
    def stages(paths):
        return [Stage(Reader(Tar(paths), 4))]

    before = fingerprint(stages(shards))
    assert fingerprint(stages(shards)) == before
    write(tmp_path / "s-2.tar", numbered(0, 5))
    os.utime(tmp_path / "s-2.tar", ns=(1, 1))
    assert fingerprint(stages(shards)) != before
