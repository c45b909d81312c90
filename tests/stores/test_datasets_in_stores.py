"""Datasets whose paths are URLs: the same samples in the same order as from the folder, whatever the store answers."""

import io
from pathlib import Path

import fsspec
import numpy as np
import pytest
from object_store import Faults

from highway import Pipeline, Stage, tenbin
from highway.data import photos
from highway.datasets import Files, ImageFolder, Npy, Npz, Tar, TenFiles
from highway.datasets.shards import shard_writer
from highway.errors import ConfigError, DatasetError, ShardError, StoreError
from highway.modules import EncodedImageReader, ImageFileReader, Reader, WebDatasetSource

FAULTS = {"share": 0.1, "seed": 4, "slow": 0.2}


@pytest.fixture
def memory():
    """fsspec's store in memory, one for the process."""
    files = fsspec.filesystem("memory")
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]


def batches(reader):
    with Pipeline([reader], seed=3) as pipeline:
        return [(batch, passport.keys) for batch, passport in pipeline.stamped()]


def assert_same(found, expected):
    assert [keys for _, keys in found] == [keys for _, keys in expected] and len(found) == len(expected) > 0
    for (batch, _), (other, _) in zip(found, expected, strict=True):
        for field, array in zip(batch, other, strict=True):
            np.testing.assert_array_equal(field, array)
            assert field.dtype == array.dtype


@pytest.fixture
def shards(tmp_path):
    for shard in range(2):
        with shard_writer(str(tmp_path / f"s-{shard}.tar")) as writer:
            for number in range(10 * shard, 10 * shard + 10):
                writer.add(f"{number:03}", {"bin": bytes([number]) * (100 + number), "cls": number, "x": np.full(3, number)})
    return tmp_path


@pytest.mark.slow
def test_a_folder_in_a_store_gives_the_batches_of_the_folder_here(store):
    store.upload("photos", Path(photos()))
    store.put("photos", "val/.hidden/x.jpg", b"")
    store.put("photos", "val/cat/notes.txt", b"")
    store.faults = Faults(**FAULTS)
    here, there = ImageFolder("highway:photos/val"), ImageFolder("s3://photos/val")
    assert there.keys == here.keys and there.classes == here.classes and there.locate(3) == f"s3://photos/val/{here.keys[3]}"
    assert [there[number] for number in range(len(here))] == [here[number] for number in range(len(here))]
    for reader in (ImageFileReader, EncodedImageReader):
        options = {} if reader is EncodedImageReader else {"shape": (32, 32), "flip": 0.5}
        assert_same(*(batches(reader(root, 8, epochs=1, **options)) for root in ("s3://photos/val/", "highway:photos/val")))
    assert sum(store.faults.count[kind] for kind in Faults.KINDS) > 5


def test_the_order_of_a_walk_is_the_same_as_on_disk(store, tmp_path):
    names = ["a/b/1.png", "a/b.png", "a/b-c/1.png", "a/B/1.png", "a0/1.png", "a-/1.png", "ä/1.png"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    store.upload("b", tmp_path, "x/y z/")
    here, there = ImageFolder(str(tmp_path)), ImageFolder("s3://b/x/y z")
    assert (
        there.keys == here.keys
        and there.classes == here.classes
        and [*map(there.__getitem__, range(7))] == [*map(here.__getitem__, range(7))]
    )


def test_a_flat_folder_and_a_list_of_labels(store, tmp_path):
    for name in ("b.png", "a.png", "c.txt"):
        store.put("b", f"images/{name}", name.encode())
    store.put("b", "val.txt", b"b.png 1\na.png 0\n")
    dataset = Files("s3://b/images")
    assert dataset.keys == ["a.png", "b.png"] and dataset[1] == (b"b.png",)
    labelled = Files("s3://b/images", "s3://b/val.txt")
    assert labelled.keys == ["b.png", "a.png"] and [labelled[n] for n in range(2)] == [(b"b.png", 1), (b"a.png", 0)]
    assert labelled.fingerprint() != dataset.fingerprint() == Files("s3://b/images").fingerprint()
    store.put("b", "images/list.txt", b"b.png 1\nz.png 0\n")
    with pytest.raises(FileNotFoundError, match=r"list\.txt: 1 of 2 listed images do not exist in 's3://b/images'; the first is 'z\.png'"):
        len(Files("s3://b/images", "list.txt"))
    store.put("c", "images/x/a.png", b"")
    store.put("c", "images/x.txt", b"")
    with pytest.raises(FileNotFoundError, match=r"'s3://c/images': the folder contains no images .* has one folder per label"):
        len(Files("s3://c/images"))


def test_folders_that_are_not_as_they_should_be_are_named(store):
    store.put("b", "images/a.png", b"")
    with pytest.raises(FileNotFoundError, match=r"'s3://b/images': expected one folder per label, but it has no folders; use"):
        len(ImageFolder("s3://b/images"))
    with pytest.raises(FileNotFoundError, match=r"s3://b/none: the folder does not exist in s3://b, or is empty"):
        len(ImageFolder("s3://b/none"))
    store.put("b", "labels/x/readme.md", b"")
    with pytest.raises(FileNotFoundError, match=r"'s3://b/labels/x': the folder contains no images"):
        len(ImageFolder("s3://b/labels"))


def test_an_image_that_changes_or_goes_is_an_error_that_names_it(store):
    for name in ("a", "b"):
        store.put("b", f"i/{name}.png", name.encode())
    dataset = Files("s3://b/i")
    assert dataset[0] == (b"a",)
    store.put("b", "i/a.png", b"x")
    with pytest.raises(DatasetError, match=r"s3://b/i/a\.png: .* another ETag .* start the program again"):
        dataset[0]
    del store.objects["b", "i/b.png"]
    with pytest.raises(FileNotFoundError, match=r"s3://b/i/b\.png: no such object .* the object existed when the folder was listed at 20"):
        dataset[1]


def test_an_image_that_is_none_is_left_out_as_on_disk(store):
    store.upload("photos", Path(photos(), "val"))
    key = sorted(key for _, key in store.objects)[3]
    store.put("photos", key, b"no image")
    reader = ImageFileReader("s3://photos", 8, (16, 16), epochs=1)
    with Pipeline([Stage(reader, on_error="skip")], seed=1) as pipeline:
        keys = [key for _, passport in pipeline.stamped() for key in passport.keys]
    assert key not in keys and len(keys) == 32


@pytest.mark.parametrize("index", [False, True])
def test_shards_in_a_store_by_number(store, shards, index):
    store.upload("b", shards, "d/")
    store.faults = Faults(**FAULTS)
    here, there = Tar(str(shards / "s-{0..1}.tar")), Tar("s3://b/d/s-{0..1}.tar", index=index)
    assert len(there) == 20 and list(there.keys) == list(here.keys) and there.blocks() == here.blocks()
    for number in (0, 9, 10, 19):
        sample, other = there[number], here[number]
        assert sample.keys() == other.keys() and sample["bin"] == other["bin"] and sample["cls"] == number
        np.testing.assert_array_equal(sample["x"], other["x"])
    assert (("b", "d/highway-tar.index") in store.objects) is index
    if index:
        asked = len(store.asked)
        assert Tar("s3://b/d/s-{0..1}.tar")[4]["cls"] == 4
        assert not [
            range_ for _, path, range_, _ in store.asked[asked:] if range_ and int(range_[6:].split("-")[0]) == 0 and "index" not in path
        ]
    found = batches(Reader(Tar("s3://b/d/s-{0..1}.tar", fields={"label": "cls"}), 5, epochs=1))
    expected = batches(Reader(Tar(str(shards / "s-{0..1}.tar"), fields={"label": "cls"}), 5, epochs=1))
    assert [(batch["label"].tolist(), keys) for batch, keys in found] == [(batch["label"].tolist(), keys) for batch, keys in expected]
    assert there.locate(3) == "s3://b/d/s-0.tar: sample '003'"


def test_many_shards_are_opened_at_once(store, tmp_path):
    for shard in range(12):
        with shard_writer(str(tmp_path / f"{shard:02}.tar")) as writer:
            writer.add(f"{shard}", {"cls": shard})
    store.upload("b", tmp_path)
    assert len(Tar("s3://b/{00..11}.tar", index=True)) == 12
    store.expect_together(6)
    dataset, asked = Tar("s3://b/{00..11}.tar"), len(store.asked)
    assert (
        len(dataset) == 12 and store.most_in_flight >= 6 and len(store.asked) == asked + 14
    )  # the states of the shards, and the index file
    store.expect_together(6)
    assert [sample["cls"] for sample in dataset.__getitems__(range(12))] == list(range(12)) and store.most_in_flight >= 6
    store.put("b", "03.tar", store.objects["b", "04.tar"])
    assert [int(Tar("s3://b/{00..11}.tar")[n]["cls"]) for n in (3, 5)] == [4, 5]


def test_rows_that_lie_apart_are_asked_for_at_once(store, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(60).reshape(20, 3))
    store.upload("b", tmp_path)
    dataset = Npy("s3://b/a.npy")
    assert len(dataset) == 20
    store.expect_together(3)
    np.testing.assert_array_equal(dataset.__getitems__([3, 9, 10, 1, 17])[:, 0], [9, 27, 30, 3, 51])
    assert store.most_in_flight >= 3


def test_images_in_shards_in_a_store(store, tmp_path):
    files = sorted(Path(photos(), "val").rglob("*.jpg"))[:12]
    with shard_writer(str(tmp_path / "a.tar")) as writer:
        for number, file in enumerate(files):
            writer.add(f"{number}", {"jpg": file.read_bytes(), "cls": number})
    store.upload("b", tmp_path)
    assert_same(*(batches(ImageFileReader(root, 4, (24, 24), epochs=1)) for root in ("s3://b/a.tar?requests=9", str(tmp_path / "a.tar"))))


def test_a_shard_that_changes_is_an_error(store, shards):
    store.upload("b", shards)
    dataset = Tar("s3://b/s-0.tar")
    assert dataset[0]["cls"] == 0
    store.put("b", "s-0.tar", store.objects["b", "s-1.tar"])
    with pytest.raises(DatasetError, match=r"s3://b/s-0\.tar: .*another ETag"):
        dataset[1]


def test_shards_as_streams(store, shards, monkeypatch):
    monkeypatch.setattr("highway.stores.streaming.PART", 4096)
    store.upload("b", shards)
    store.faults = Faults(**FAULTS)
    found = [stamped.item["cls"] for stamped in WebDatasetSource("s3://b/s-{0..1}.tar", epochs=1, shuffle=False)]
    assert found == list(range(20)) and store.count() > 10
    store.put("b", "cut.tar", store.objects["b", "s-0.tar"][:3000])
    with pytest.raises(ShardError, match=r"s3://b/cut\.tar: not a tar archive, or damaged or truncated; number of complete files: \d+"):
        list(WebDatasetSource("s3://b/cut.tar", epochs=1))


def test_a_server_without_ranges_is_asked_for_whole_shards(store, shards, monkeypatch):
    monkeypatch.setattr("highway.stores.streaming.PART", 4096)
    store.upload("b", shards)
    store.ranges = False
    url = f"{store.url}/b/s-0.tar?token=1"
    assert [stamped.item["cls"] for stamped in WebDatasetSource(url, epochs=1, shuffle=False)] == list(range(10))
    with pytest.raises(StoreError, match=r"/b/s-0\.tar: the store does not support this request .*Range request not supported"):
        Tar(url)[0]


def test_rows_of_arrays(store, tmp_path):
    array = np.arange(60, dtype=np.int16).reshape(20, 3)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", x=array, y=np.arange(20))
    np.savez_compressed(tmp_path / "c.npz", x=array)
    store.upload("b", tmp_path)
    store.faults = Faults(**FAULTS)
    np.testing.assert_array_equal(Npy("s3://b/a.npy").__getitems__([3, 4, 5, 0]), array[[3, 4, 5, 0]])
    for name in ("a.npz", "c.npz"):
        np.testing.assert_array_equal(Npz(f"s3://b/{name}")[7]["x"], array[7])
    store.put("b", "bad.npy", b"nothing")
    with pytest.raises(DatasetError, match=r"s3://b/bad\.npy: not a readable \.npy file:"):
        len(Npy("s3://b/bad.npy"))


def test_ten_files(store, tmp_path):
    for number in range(5):
        tenbin.save(tmp_path / f"{number}.ten", np.full((2, 3), number, np.float32))
    store.upload("b", tmp_path, "d/")
    store.put("b", "d/notes.txt", b"")
    store.faults = Faults(**FAULTS)
    for paths in ("s3://b/d", "s3://b/d/[0-4].ten", [f"s3://b/d/{number}.ten" for number in range(5)]):
        dataset = TenFiles(paths)
        assert dataset.keys == [f"s3://b/d/{number}.ten" for number in range(5)]
        np.testing.assert_array_equal(dataset[3][0], np.full((2, 3), 3))
    assert [batch[0][:, 0, 0].tolist() for batch, _ in batches(Reader(TenFiles("s3://b/d"), 2, shuffle=False, epochs=1))] == [
        [0, 1],
        [2, 3],
        [4],
    ]
    with pytest.raises(FileNotFoundError, match=r"'s3://b/d/x\*\.ten': there are no \.ten files"):
        len(TenFiles("s3://b/d/x*.ten"))
    with pytest.raises(ConfigError, match=r"s3://b/\*/a\.ten: a pattern is only allowed after the last slash"):
        len(TenFiles("s3://b/*/a.ten"))


def test_what_fsspec_knows_is_read_through_it(memory, shards):
    for path in sorted(shards.glob("*.tar")):
        memory.pipe(f"/b/{path.name}", path.read_bytes())
    memory.pipe("/b/i/cat/1.png", b"1"), memory.pipe("/b/i/dog/a/2.png", b"2")
    content = io.BytesIO()
    np.save(content, np.arange(5))
    memory.pipe("/b/a.npy", content.getvalue())
    folder = ImageFolder("memory://b/i")
    assert folder.keys == ["cat/1.png", "dog/a/2.png"] and folder[1] == (b"2", 1)
    assert Tar("memory://b/s-{0..1}.tar")[13]["cls"] == 13 and Npy("memory://b/a.npy")[3] == 3
    assert [stamped.item["cls"] for stamped in WebDatasetSource("memory://b/s-1.tar", epochs=1)] == list(range(10, 20))
    memory.pipe("/b/i/cat/1.png", b"one")
    with pytest.raises(DatasetError, match=r"memory://b/i/cat/1\.png: the object has changed from 1 to 3 bytes"):
        folder[0]
    with pytest.raises(FileNotFoundError, match=r"memory://b/none\.tar: no such object"):
        Tar("memory://b/none.tar")[0]


def test_images_of_a_plain_http_server_by_a_list_of_labels_take_a_listing(store):
    store.put("b", "i/a.png", b"a")
    with pytest.raises(
        StoreError,
        match=r"/b/i: the store does not support this request .*; pass the URLs of the files, or a listing "
        r"from another place",
    ):
        len(Files(f"{store.url}/b/i"))
