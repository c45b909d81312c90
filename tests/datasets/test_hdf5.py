"""Rows of the datasets of HDF5 files, by their layouts; files are written by h5py itself, and by the writer."""

import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest
from forking import in_a_fork

from highway import Pipeline
from highway.datasets import HDF5, ImageFolder
from highway.datasets.hdf5.columns import Chunks
from highway.datasets.hdf5.writer import hdf5_writer
from highway.errors import ConfigError, DatasetError, ItemError
from highway.modules import ImageFileReader, Reader

ROWS = 23
LAYOUTS = {
    "contiguous": {},
    "chunks": {"chunks": (5, 2, 3)},
    "single": {"chunks": (1, 3, 4)},
    "gzip": {"chunks": (8, 3, 4), "compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"chunks": (30, 3, 4), "maxshape": (None, 3, 4), "compression": "lzf"},
}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "a.h5")


def values(dtype, shape=(ROWS, 3, 4)):
    return np.random.default_rng(0).integers(0, 2, shape).astype(dtype) * np.ones((), dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["u1", "<f4", ">i4", "?", "f2", "c8", "i8"])
@pytest.mark.parametrize("userblock", [0, 512])
def test_rows_are_those_of_the_dataset_whatever_its_layout(path, layout, dtype, userblock):
    array = values(dtype)
    array[:, 0, 0] = np.arange(ROWS) if np.dtype(dtype).kind != "b" else np.arange(ROWS) % 2
    with h5py.File(path, "w", userblock_size=userblock) as file:
        file.create_dataset("x", data=array, **LAYOUTS[layout])
    dataset = HDF5(path)
    assert len(dataset) == ROWS
    for numbers in ([], [3], [2, 3, 4], [22, 0, 1, 1, 7, 5, -1, -23], list(range(ROWS))):
        found = [sample["x"] for sample in dataset.__getitems__(numbers)]
        assert all(row.dtype == array.dtype and row.shape == (3, 4) for row in found)
        np.testing.assert_array_equal(np.array(found).reshape(-1, 3, 4), array[numbers])
    for number in (ROWS, -ROWS - 1):
        with pytest.raises(IndexError):
            dataset[number]


def variable(file, name, rows, dtype, **options):
    dataset = file.create_dataset(name, (len(rows),), h5py.vlen_dtype(np.dtype(dtype)), **options)
    for number, row in enumerate(rows):
        dataset[number] = np.frombuffer(row, dtype) if isinstance(row, bytes) else row


@pytest.mark.parametrize("options", [{}, {"chunks": (4,), "compression": "gzip"}])
def test_values_of_any_length_and_texts_come_as_python_has_them(path, options):
    blobs, ragged = [b"abc", b"", b"\0d\0", b"x" * 70000, b"abc"], [np.arange(n, dtype=np.float32) for n in (2, 0, 2, 5, 1)]
    texts = ["a", "", "ü€", "x" * 1000, "a"]
    with h5py.File(path, "w") as file:
        variable(file, "blob", blobs, np.uint8, **options)
        variable(file, "ragged", ragged, np.float32, **options)
        file.create_dataset("text", data=texts, dtype=h5py.string_dtype(), **options)
        file.create_dataset("fixed", data=np.array([text.encode()[:4] for text in "abcde"], "S4"), **options)
        file.create_dataset("words", data=np.array([[b"ab", b"c"]] * 5, "S2"))
        file.create_dataset("opaque", data=np.frombuffer(b"\0a\0b\0" * 5, "V5"), **options)
        file.create_dataset("pair", data=np.array([(n, n / 2) for n in range(5)], [("a", "<i2"), ("b", "<f8")]), **options)
        file.create_dataset("kind", data=np.arange(5) % 2, dtype=h5py.enum_dtype({"A": 0, "B": 1}, "i4"), **options)
        file["share"] = 0.5  # a single value is no column
    dataset = HDF5(path)
    order = [3, 0, 0, 4, 2, 1]
    for number, sample in zip(order, dataset.__getitems__(order), strict=True):
        assert sorted(sample) == ["blob", "fixed", "kind", "opaque", "pair", "ragged", "text", "words"]
        assert type(sample["blob"]) is bytes and sample["blob"] == blobs[number]
        assert sample["ragged"].dtype == np.float32 and sample["ragged"].tolist() == ragged[number].tolist()
        assert type(sample["text"]) is str and sample["text"] == texts[number]
        assert type(sample["fixed"]) is str and sample["fixed"] == "abcde"[number]
        assert type(sample["opaque"]) is bytes and sample["opaque"] == b"\0a\0b\0"
        assert sample["words"].tolist() == ["ab", "c"] and sample["words"].dtype == "<U2"
        assert (sample["pair"]["a"], sample["pair"]["b"], sample["kind"]) == (number, number / 2, number % 2)


def asked_of_h5py(monkeypatch):
    """Return a list to which each selection that is read by h5py is added, with the name of its dataset."""
    asked, own = [], h5py.Dataset.__getitem__
    monkeypatch.setattr(h5py.Dataset, "__getitem__", lambda dataset, some: asked.append((dataset.name, some)) or own(dataset, some))
    return asked


@pytest.mark.parametrize("options", [{}, {"chunks": (4,)}, {"chunks": (64,), "maxshape": (None,)}])
@pytest.mark.parametrize("userblock", [0, 512])
def test_large_values_are_read_where_they_lie_and_others_by_h5py(path, options, userblock, monkeypatch):
    rng = np.random.default_rng(0)
    sizes = [70_000, 5000, 30_000, 20, 0, 9000, 4096, 4095, 200_000, 25_000, 1, 12_345]  # several in one collection, too
    blobs = [rng.bytes(size) for size in sizes]
    with h5py.File(path, "w", userblock_size=userblock) as file:
        variable(file, "x", blobs, np.uint8, **options)
        file.create_dataset("never", (len(blobs),), h5py.vlen_dtype(np.uint8), **options)
    dataset, asked = HDF5(path), asked_of_h5py(monkeypatch)
    order = rng.permutation(len(blobs)).tolist()
    found = dataset.__getitems__(order)
    assert [(sample["x"] == blobs[number], sample["never"]) for number, sample in zip(order, found, strict=True)] == [(True, b"")] * 12
    assert [(name, len(np.arange(12)[some])) for name, some in asked] == [("/never", 12), ("/x", 4)]


@pytest.mark.parametrize("found", [b"GCOX", b"GCOL\2"])
def test_values_that_do_not_lie_where_they_should_are_left_to_h5py_which_says_so(path, found):
    with h5py.File(path, "w") as file:
        variable(file, "x", [b"x" * 5000, b"y" * 5000], np.uint8)
    content = Path(path).read_bytes()
    Path(path).write_bytes(content.replace(b"GCOL\1"[: len(found)], found))
    with pytest.raises(DatasetError, match=r"a\.h5: '/x': its rows cannot be read; the dataset is damaged or needs a filter: "):
        HDF5(path)[1]


def test_numbers_that_lie_in_the_file_otherwise_than_in_memory_are_converted(path):
    with h5py.File(path, "w") as file:
        packed = h5py.h5t.STD_U16LE.copy()  # 12 bits, the lowest of which is bit 4
        packed.set_precision(12)
        packed.set_offset(4)
        dataset = h5py.h5d.create(file.id, b"x", packed, h5py.h5s.create_simple((3,)))
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([1, 4095, 256], "<u2"))
        assert dataset.get_offset() is not None
    assert [int(sample["x"]) for sample in HDF5(path)] == [1, 4095, 256]


def test_fields_groups_and_names(path):
    with h5py.File(path, "w") as file:
        file["train/images"], file["train/deep/labels"] = np.arange(12).reshape(6, 2), np.arange(6)
        file["val/images"] = np.zeros((2, 2))
        file["train/linked"] = h5py.SoftLink("/val/images")
        file["train/outside"] = h5py.ExternalLink("/nowhere.h5", "/x")
    assert list(HDF5(path, group="train")[1]) == ["deep/labels", "images"]
    renamed = HDF5(path, {"label": "train/deep/labels", "image": "nothing;train/images"})
    assert [(name, np.asarray(value).tolist()) for name, value in renamed[2].items()] == [("label", 2), ("image", [4, 5])]
    with pytest.raises(
        DatasetError,
        match=r"a\.h5: expected datasets with equal numbers of rows, .* 'train/images' has 6, 'val/images' has 2; select datasets",
    ):
        len(HDF5(path))
    with pytest.raises(DatasetError, match=r"a\.h5: there is no value for the field 'y': expected labels, found deep/labels, images"):
        len(HDF5(path, {"y": "labels"}, group="train"))
    for group in ("test", "val/images"):
        with pytest.raises(DatasetError, match=rf"a\.h5: the file has no group '{group}'; it has 'train', 'val'"):
            len(HDF5(path, group=group))


def test_keys_name_the_samples_and_are_no_field(path):
    with h5py.File(path, "w") as file:
        file["x"], file["__key__"] = np.arange(3), ["a/1", "ü", "c"]
    dataset = HDF5(path)
    assert dataset.keys == ["a/1", "ü", "c"] and list(dataset[0]) == ["x"]
    assert dataset.locate(1) == f"{path}: row 1 (ü)"
    with Pipeline([Reader(dataset, 2, shuffle=False, epochs=1)]) as pipeline:
        assert [passport.keys for _, passport in pipeline.stamped()] == [("a/1", "ü"), ("c",)]
    assert HDF5(path, {"y": "x"})[2]["y"] == 2


def test_blocks_are_the_chunks_of_the_largest_dataset(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("image", data=values("f8"), chunks=(8, 3, 4))
        file.create_dataset("label", data=np.arange(ROWS), chunks=(20,))
        file.create_dataset("flat", data=np.zeros((ROWS, 1 << 18)))
    assert HDF5(path).blocks() == [range(8), range(8, 16), range(16, 23)]
    assert HDF5(path, {"label": "label"}).blocks() == [range(20), range(20, 23)]
    assert HDF5(path, {"x": "flat"}).blocks() == [range(n, n + 1) for n in range(ROWS)]


@pytest.mark.parametrize("shuffle", [False, True, "blocks"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_readers_take_them_in_runs_of_rows(path, layout, shuffle):
    array = values("u1")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=array, **LAYOUTS[layout])
        file["n"] = np.arange(ROWS)
    with Pipeline([Reader(HDF5(path), 7, shuffle=shuffle, epochs=1, num_workers=3)], seed=1) as pipeline:
        batches = list(pipeline)
    numbers = np.concatenate([batch["n"] for batch in batches])
    assert sorted(numbers) == list(range(ROWS)) and (numbers.tolist() == list(range(ROWS))) is (shuffle is False)
    np.testing.assert_array_equal(np.concatenate([batch["x"] for batch in batches]), array[numbers])


def test_encoded_images_are_decoded_into_their_rows(path):
    folder = ImageFolder("highway:photos/val")
    with hdf5_writer(path) as writer:
        for key, (image, label) in zip(folder.keys, folder, strict=True):
            writer.add(key, {"image": image, "label": label})
    readers = (ImageFileReader(data, 8, (32, 32), epochs=1, seed=3) for data in (folder, HDF5(path)))
    expected, found = ([(batch, passport.keys) for batch, passport in Pipeline([reader]).stamped()] for reader in readers)
    for (batch, keys), (images_and_labels, names) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(batch[0], images_and_labels[0])
        assert batch[1].tolist() == images_and_labels[1].tolist() and keys == names


def test_it_is_read_by_many_threads_after_a_pickle_and_in_a_forked_child(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(300), chunks=(7,), compression="gzip")
        variable(file, "b", [b"%d" % number for number in range(300)], np.uint8)
    dataset = HDF5(path, cache_mb=1)
    with ThreadPoolExecutor(8) as threads:
        orders = [np.random.default_rng(seed).permutation(300).tolist() for seed in range(8)]
        for order, samples in zip(orders, threads.map(dataset.__getitems__, orders), strict=True):
            assert [(int(sample["x"]), int(sample["b"])) for sample in samples] == [(number, number) for number in order]
    assert pickle.loads(pickle.dumps(dataset))[5]["x"] == 5
    assert in_a_fork(lambda: int(dataset[42]["x"]) + int(dataset[1]["b"])) == 43


@pytest.mark.slow
def test_a_fork_waits_until_the_library_rests(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.zeros((64, 20_000)), chunks=(16, 20_000), compression="gzip")
    dataset = HDF5(path, cache_mb=1)  # of which no chunk finds room beside another
    with ThreadPoolExecutor(2) as threads:
        reading = [threads.submit(lambda first: [dataset[n % 64] for n in range(first, first + 170, 17)], first) for first in (0, 5)]
        for _ in range(10):
            assert in_a_fork(lambda: dataset[3]["x"][0] == 0) == 1
        assert all(len(one.result()) == 10 for one in reading)


def test_chunks_are_kept_up_to_a_limit_and_at_least_one(path):
    chunks = Chunks(100)
    for number in range(4):
        chunks.put("x", number, np.zeros(40, np.uint8))
    assert [chunks.get("x", number) is not None for number in range(4)] == [False, False, True, True]
    chunks.put("x", 9, np.zeros(1000, np.uint8))
    assert [chunks.get("x", number) is not None for number in (2, 3, 9)] == [False, False, True]


def test_a_chunk_is_read_once_for_all_its_rows(path, monkeypatch):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(40), chunks=(10,))
    dataset, asked = HDF5(path), asked_of_h5py(monkeypatch)
    assert [int(dataset[number]["x"]) for number in (0, 15, 9, 11, 3)] == [0, 15, 9, 11, 3]
    assert asked == [("/x", slice(0, 10)), ("/x", slice(10, 20))]


def test_the_fingerprint_changes_with_the_file_and_what_is_read(path):
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
    dataset = HDF5(path)
    before = dataset.fingerprint()
    assert before == HDF5(path).fingerprint() != HDF5(path, {"y": "x"}).fingerprint()
    with h5py.File(path, "a") as file:
        file["y"] = np.arange(3)
    assert dataset.fingerprint() != before


def test_references_and_other_objects_are_refused_by_name(path):
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
        file.create_dataset("ref", data=[file["x"].ref] * 3, dtype=h5py.ref_dtype)
        file.create_dataset("many", (3,), h5py.vlen_dtype(h5py.string_dtype()))
        file["one"] = 3
    for name, message in (
        ("ref", "the dataset contains references that highway does not support; select other datasets by fields"),
        ("many", "the dataset contains values of a type that highway does not support"),
    ):
        with pytest.raises(DatasetError, match=rf"a\.h5: '/{name}': {message}"):
            len(HDF5(path, {"x": "x", "y": name}))
    with pytest.raises(DatasetError, match=r"a\.h5: '/one': the dataset is a single value; expected a dataset with rows"):
        len(HDF5(path, {"x": "one"}))
    assert HDF5(path, {"x": "x"})[2]["x"] == 2


def test_memory_is_not_taken_for_rows_or_chunks_that_are_far_too_large(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("row", (3, 1 << 40), "u1", chunks=(1, 1 << 20), maxshape=(None, None))
        file.create_dataset("flat", (3, 1 << 40), "u1")
        file.create_dataset("chunk", (1 << 21, 1 << 10), "u1", chunks=((1 << 21) - 1, 1 << 10))
    for name in ("row", "flat", "chunk"):
        with pytest.raises(
            DatasetError, match=rf"a\.h5: '/{name}': its chunks of \d+ rows have \d+ bytes; expected at most 1073741824 bytes:"
        ):
            len(HDF5(path, {"x": name}))


def test_rows_that_were_never_written_are_the_fill_value(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (5, 2), "f4", fillvalue=7)
        file.create_dataset("y", (5, 2), "f4", chunks=(2, 2), fillvalue=8)
    assert [sample["x"].tolist() + sample["y"].tolist() for sample in HDF5(path)] == [[7, 7, 8, 8]] * 5


@pytest.mark.parametrize("content", [b"", b"no HDF5 at all" * 100, None])
def test_what_is_no_file_of_the_format_or_cut_short_is_named(path, content):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(1000), chunks=(10,))
    Path(path).write_bytes(Path(path).read_bytes()[:6000] if content is None else content)
    with pytest.raises(DatasetError, match=r"a\.h5: not an HDF5 file, or damaged, truncated, or open for writing: .*(signature|truncated)"):
        len(HDF5(path))
    with pytest.raises(FileNotFoundError, match=r"none\.h5"):
        len(HDF5(path.replace("a.h5", "none.h5")))


@pytest.mark.parametrize("layout", ["contiguous", "gzip", "single", "varying"])
def test_a_file_that_changes_while_it_is_read_is_named(path, layout):
    with h5py.File(path, "w") as file:
        if layout == "varying":
            variable(file, "x", [b"x" * 8000] * ROWS, np.uint8)
        else:
            file.create_dataset("x", data=values("f8"), **LAYOUTS[layout])
    dataset = HDF5(path)
    assert len(dataset[0]["x"]) == (8000 if layout == "varying" else 3)
    os.truncate(path, os.path.getsize(path) - 100)
    with pytest.raises(DatasetError, match=r"a\.h5: it had \d+ bytes when it was first read, and now has \d+ bytes"):
        dataset[20]


def test_damage_in_a_chunk_is_found_by_its_checksum_and_named(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(100, dtype="u1"), chunks=(50,), fletcher32=True)
        at = file["x"].id.get_chunk_info(1).byte_offset
    with open(path, "r+b") as file:
        file.seek(at + 3)
        file.write(b"\xff")
    dataset = HDF5(path)
    assert dataset[49]["x"] == 49
    with pytest.raises(DatasetError, match=r"a\.h5: '/x': its rows cannot be read; the dataset is damaged or needs a filter: "):
        dataset[50]


SPOIL = """
import sys
from highway.datasets import HDF5
from highway.errors import DatasetError

path, = sys.argv[1:]
whole, good = open(path, "rb").read(), list(HDF5(path))
errors = 0
for begin in range(whole.index(b"GCOL"), len(whole), 64):
    open(path, "wb").write(whole[:begin] + bytes(64) + whole[begin + 64 :])
    try:
        assert len(list(HDF5(path))) == len(good)
    except DatasetError as error:
        errors += "a.h5" in str(error)
print(errors)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "shape", "options"),
    [
        ("text", (50,), {}),
        ("array", (50,), {"chunks": (20,)}),
        ("text", (50,), {"chunks": (20,), "compression": "gzip", "shuffle": True}),
        ("text", (10, 5), {"chunks": (3, 2), "compression": "lzf"}),
    ],
    ids=["contiguous", "chunks", "gzip", "lzf"],
)
def test_zeros_among_values_of_varying_length_are_an_error_and_not_an_endless_loop(path, kind, shape, options):
    rows = [f"text {number} " * 9 if kind == "text" else np.arange(number + 9, dtype=np.int16) for number in range(50)]
    with h5py.File(path, "w") as file:
        data = np.empty(50, object)
        data[:] = rows
        file.create_dataset(
            "x", data=data.reshape(shape), dtype=h5py.string_dtype() if kind == "text" else h5py.vlen_dtype("i2"), **options
        )
    before = [sample["x"] for sample in HDF5(path)]
    found = np.concatenate([np.ravel(row) for row in before]) if kind == "text" else before
    assert all(np.array_equal(one, other) for one, other in zip(found, rows, strict=True))
    run = subprocess.run([sys.executable, "-c", SPOIL, path], capture_output=True, text=True, timeout=400)
    assert run.returncode == 0 and int(run.stdout) > 10, run.stderr


def test_all_names_of_a_dataset_are_fields_and_a_group_in_itself_is_an_error(path):
    with h5py.File(path, "w") as file:
        file["a/x"] = np.arange(3)
        file["y"] = file["a/x"]
        file["b"] = file["a"]
    assert HDF5(path)[2] == {"a/x": 2, "b/x": 2, "y": 2} and HDF5(path, group="b")[1] == {"x": 1}
    with h5py.File(path, "a") as file:
        file["a/self"] = file["a"]
    with pytest.raises(DatasetError, match=r"a\.h5: the group '/a/self' contains itself; select the datasets"):
        len(HDF5(path))


@pytest.mark.parametrize("link", ["soft", "external"])
def test_links_are_not_followed_on_the_way_to_a_group_either(path, link):
    with h5py.File(path, "w") as file:
        file["a/x"] = np.arange(3)
        file["b"] = h5py.SoftLink("/a") if link == "soft" else h5py.ExternalLink(path, "/a")
    assert list(HDF5(path)[0]) == ["a/x"]
    with pytest.raises(DatasetError, match=r"a\.h5: the file has no group 'b'"):
        len(HDF5(path, group="b"))


def elsewhere(path, kind):
    """Write a dataset whose values are in another file, and return that file."""
    other = Path(path).with_name("other")
    with h5py.File(path, "w") as file:
        file["y"] = np.arange(6)
        if kind == "external":
            np.arange(6).tofile(other)
            file.create_dataset("x", (6,), "i8", external=[(str(other), 0, 48)])
        else:
            with h5py.File(other, "w") as source:
                source["data"] = np.arange(6)
            layout = h5py.VirtualLayout((6,), "i8")
            layout[:] = h5py.VirtualSource("other", "data", shape=(6,))
            file.create_virtual_dataset("x", layout, fillvalue=-1)
    return other


@pytest.mark.parametrize("kind", ["external", "virtual"])
def test_values_in_other_files_are_read_only_if_that_is_asked_for(path, kind, monkeypatch):
    elsewhere(path, kind)
    with pytest.raises(
        DatasetError,
        match=r"a\.h5: '/x': the values of a .* are in other files, .*, pass other_files=True, .* by fields=\{\.\.\.\}",
    ):
        len(HDF5(path))
    assert HDF5(path, {"y": "y"})[3] == {"y": 3}
    dataset = HDF5(path, other_files=True)
    assert [int(sample["x"]) for sample in dataset] == list(range(6))
    assert dataset.fingerprint() != HDF5(path, {"y": "y"}).fingerprint()


@pytest.mark.parametrize("kind", ["external", "virtual"])
def test_other_files_that_are_gone_cut_short_or_changed_are_an_error(path, kind):
    other = elsewhere(path, kind)
    dataset = HDF5(path, other_files=True)
    assert dataset[5]["x"] == 5
    os.utime(other, ns=(0, 0))
    with pytest.raises(DatasetError, match=r"/other' has changed since it was first read; start the program again"):
        dataset[4]
    del dataset  # while it is open, HDF5 does not look at the file anew
    os.truncate(other, 40)
    with pytest.raises(DatasetError, match=r"'/x': (its source 'data' in )?'.*/other'(, .* has 40 bytes; expected| cannot be read)"):
        len(HDF5(path, other_files=True))
    other.unlink()
    with pytest.raises(DatasetError, match=r"'/x': its values are in '.*/other', which does not exist; restore this file"):
        len(HDF5(path, other_files=True))
    if kind == "virtual":
        with h5py.File(other, "w") as source:
            source["data"] = np.arange(3)
        with pytest.raises(
            DatasetError, match=r"the shape of its source 'data' in '.*/other' is \(3,\), which does not match this dataset"
        ):
            len(HDF5(path, other_files=True))


def test_without_h5py_there_is_a_sentence_with_the_command(path, monkeypatch):
    for name in ("backend", "columns", "growing"):
        monkeypatch.delitem(sys.modules, f"highway.datasets.hdf5.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ConfigError, match=r"HDF5 files need h5py: pip install .*\[hdf5\]'"):
        len(HDF5(path))
    with pytest.raises(ConfigError, match="HDF5 files need h5py"), hdf5_writer(path):
        pass
    assert not os.path.exists(path)


SAMPLES = [
    {
        "x": np.full((2, 3), number, np.float32),
        "turned": np.asfortranarray((np.arange(6).reshape(2, 3) + number).astype(">i2")),
        "label": np.int32(number),
        "n": number,
        "share": number / 2,
        "is": number > 1,
        "text": "é" * number,
        "image": b"\0\xff" * number,
        "deep/pair": np.array([(number, 0.5)], [("a", "i2"), ("b", "f8")]),
        "empty": np.zeros((0, 2), np.uint8),
    }
    for number in range(2100)
]


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_what_was_written_comes_back(path, compression):
    with hdf5_writer(path, compression) as writer:
        for number, sample in enumerate(SAMPLES):
            writer.add(f"key/{number}", sample)
        assert not os.path.exists(path)
    found = HDF5(path)
    assert found.keys == [f"key/{number}" for number in range(2100)]
    for sample, expected in zip(found.__getitems__(range(2100)), SAMPLES, strict=True):
        assert sample.keys() == expected.keys()
        for name, value in expected.items():
            if isinstance(value, (bytes, str)):
                assert type(sample[name]) is type(value) and sample[name] == value
            else:
                assert sample[name].dtype == np.asarray(value).dtype and sample[name].shape == np.asarray(value).shape
                np.testing.assert_array_equal(sample[name], value)
    with h5py.File(path) as file:  # by h5py itself
        assert file["n"][5:7].tolist() == [5, 6] and file["x"].compression == compression and file["text"].asstr()[2] == "éé"
    assert len(HDF5(path).blocks()) == 3


def test_memory_that_is_used_again_for_the_next_sample_is_written_as_it_was(path):
    array, data = np.zeros(3), bytearray(b"0")
    with hdf5_writer(path) as writer:
        for number in range(5):
            array[:], data[:] = number, b"%d" % number
            writer.add(str(number), {"x": array, "data": data, "view": memoryview(data)})
    assert [(sample["x"].tolist(), sample["data"], sample["view"]) for sample in HDF5(path)] == [
        ([n] * 3, b"%d" % n, b"%d" % n) for n in range(5)
    ]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"x": np.zeros(3)}, {"x": np.zeros(2)}, r"field 'x' is float64 \(2,\), but float64 .* in the first sample; all"),
        ({"x": 1}, {"x": 1.5}, r"field 'x' is float64 \(\), but int64 .* in the first sample; all"),
        ({"x": b"1"}, {"x": "1"}, "field 'x' holds a str; expected bytes, as in the first sample"),
        ({"x": "1"}, {"x": b"1"}, "field 'x' holds a bytes; expected a str, as in the first sample"),
        ({"x": "1"}, {"x": "1\0"}, "field 'x' holds a text with a zero character; expected a str"),
        ({"x": 1}, {"y": 1}, "the sample has y, but the first sample has x"),
        ({"x": {}}, None, "field 'x' is a dict, which cannot be the row of an array"),
        ({"x": np.array(["a"])}, None, "field 'x' is <U1, which HDF5 does not support; convert it to numbers, or to a str"),
        ({"x": np.datetime64("2026-11-22")}, None, r"field 'x' is datetime64\[D\], which HDF5 does not support;"),
        ({"x": np.zeros(2, [("a", "U3")])}, None, "field 'x' cannot be a dataset: "),
        ({"x/": 1}, None, "field 'x/' cannot be the name of a dataset; rename it"),
        ({"x": 1, "x/y": 2}, None, "field 'x/y' cannot be a dataset: "),
    ],
)
def test_what_the_format_does_not_hold_is_an_error_and_nothing_is_left(path, first, second, message):
    with pytest.raises(ItemError, match=message), hdf5_writer(path) as writer:
        writer.add("a", first)
        assert second is not None
        writer.add("b", second)
    assert os.listdir(os.path.dirname(path)) == []


def test_a_writer_that_is_killed_leaves_no_file_of_that_name(tmp_path):
    code = """
import sys, numpy as np
from highway.datasets.hdf5.writer import hdf5_writer
with hdf5_writer("a.h5") as writer:
    for number in range(10_000):
        writer.add(str(number), {"x": np.zeros(1000)})
    print("written", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"written\n"
        process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL and not (tmp_path / "a.h5").exists()
