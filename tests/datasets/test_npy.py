"""Rows of arrays in files by number."""

import os
import pickle
import random
import zipfile

import numpy as np
import pytest
from forking import in_a_fork

from highway import Pipeline
from highway.datasets import Npy, Npz
from highway.errors import DatasetError
from highway.modules import Reader

DTYPES = ["u1", "<f4", ">i4", "?", "U3", "M8[s]", "c8", [("a", "i2"), ("b", "f8", 3)]]
SHAPES = [(7,), (7, 2), (7, 2, 0), (7, 3, 2), (0, 4)]


def array_of(dtype, shape):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    zeros_and_ones = np.random.default_rng(0).integers(0, 2, size, dtype=np.uint8)
    return zeros_and_ones.view(dtype).reshape(shape) if size else np.zeros(shape, dtype)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "a.npy")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_those_of_the_array(path, dtype, shape):
    array = array_of(dtype, shape)
    np.save(path, array)
    rows = Npy(path)
    assert len(rows) == len(array)
    for number in range(-len(array), len(array)):
        assert rows[number].dtype == array[number].dtype and rows[number].shape == array[number].shape
        assert np.array_equal(rows[number], array[number])
    for numbers in ([], [3], [2, 3, 4], [6, 0, 1, 1, 2, 5, 4]):
        if len(array):
            found = rows.__getitems__(numbers)
            assert (found.dtype, found.shape) == (array.dtype, (len(numbers), *shape[1:]))
            assert found.tobytes() == array[numbers].tobytes()
    with pytest.raises(IndexError):
        rows[len(array)]


def test_rows_are_memory_of_their_own_and_survive_the_file(path):
    np.save(path, np.arange(6).reshape(3, 2))
    rows = Npy(path)
    row = rows[1]
    os.remove(path)
    row += 1
    assert row.tolist() == [3, 4] and rows[1].tolist() == [2, 3]


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_both_versions_of_the_format_are_read(path, version):
    with open(path, "wb") as file:
        np.lib.format.write_array(file, np.arange(5), version)
    assert [int(row) for row in Npy(path)] == list(range(5))


def test_it_is_read_after_a_pickle_and_in_a_forked_child(path):
    np.save(path, np.arange(5))
    rows = Npy(path)
    assert rows[1] == 1 and pickle.loads(pickle.dumps(rows))[2] == 2
    assert in_a_fork(lambda: rows[4]) == 4


@pytest.mark.parametrize("kind", [Npy, Npz])
def test_readers_take_them_in_runs_of_rows(tmp_path, kind):
    array = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    path = str(tmp_path / "a")
    with open(path, "wb") as file:
        np.save(file, array) if kind is Npy else np.savez(file, x=array)
    for shuffle in (False, True):
        with Pipeline([Reader(kind(path), 20, epochs=1, shuffle=shuffle)]) as pipeline:
            found = [batch if kind is Npy else batch["x"] for batch in pipeline]
        assert [len(rows) for rows in found] == [20, 20, 10]
        rows = np.concatenate(found)
        assert np.array_equal(rows, array) is not shuffle
        np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(array, axis=0))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_sample_of_several_arrays_is_a_dict(tmp_path, save):
    path = str(tmp_path / "a.npz")
    save(path, images=np.arange(24, dtype=np.uint8).reshape(4, 2, 3), labels=np.arange(4, dtype=np.int32))
    rows = Npz(path)
    assert len(rows) == 4 and list(rows[0]) == ["images", "labels"]
    for number, row in enumerate(rows):
        np.testing.assert_array_equal(row["images"], np.arange(6).reshape(2, 3) + 6 * number)
        assert row["labels"] == number and row["labels"].dtype == np.int32
    row = rows[1]
    row["images"] += 1
    assert rows[1]["images"][0, 0] == 6
    assert [row["labels"] for row in rows.__getitems__([3, 1, 2])] == [3, 1, 2]
    assert rows.locate(2) == f"{path}: row 2"


def test_arrays_that_differ_in_length_are_named(tmp_path):
    path = str(tmp_path / "a.npz")
    np.savez(path, images=np.zeros((4, 2)), labels=np.zeros(3))
    with pytest.raises(DatasetError, match=r"a\.npz: expected arrays with equal numbers of rows, found: 'images' has 4, 'labels' has 3"):
        len(Npz(path))
    np.savez(path)
    with pytest.raises(DatasetError, match=r"a\.npz: .* found: no arrays"):
        len(Npz(path))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.asfortranarray(np.zeros((3, 4))), r"Fortran order, so its rows are not contiguous; save np.ascontiguousarray\(array\)"),
        (
            np.array([{}, []], object),
            r"(it holds|the array contains) Python objects, which are pickled",
        ),
        (np.array(3), "a single value; expected an array with rows"),
    ],
)
def test_what_has_no_rows_of_its_own_is_refused_with_the_way_out(tmp_path, array, message):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(DatasetError, match=rf"a\.npy: .*{message}"):
        len(Npy(str(tmp_path / "a.npy")))
    np.savez(tmp_path / "a.npz", x=array)
    with pytest.raises(DatasetError, match=rf"a\.npz: 'x': .*{message}"):
        len(Npz(str(tmp_path / "a.npz")))


@pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x03\x00\x10\x00\x00\x00{}"])
def test_what_is_no_array_is_named(tmp_path, content):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(DatasetError, match=r"a\.npy: not a readable .npy file: "):
        len(Npy(str(tmp_path / "a.npy")))
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DatasetError, match=r"a\.npz: not a .npz file, or damaged or truncated; "):
        len(Npz(str(tmp_path / "a.npz")))
    for kind in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "b.npz", "w", kind) as archive:
            archive.writestr("x.npy", content)
        with pytest.raises(DatasetError, match=r"b\.npz: 'x': not a readable .npy file: "):
            len(Npz(str(tmp_path / "b.npz")))


def test_an_array_that_is_cut_short_is_named_with_its_sizes(path):
    np.save(path, np.arange(100))
    os.truncate(path, 500)
    with pytest.raises(DatasetError, match=r"a\.npy: expected 800 bytes for the shape \(100,\) and dtype int64, found 372"):
        len(Npy(path))


@pytest.mark.parametrize("kind", [Npy, Npz])
def test_a_file_that_shrinks_or_changes_is_named_with_its_sizes(tmp_path, kind):
    path = str(tmp_path / "a")

    def save(values):
        with open(path, "r+b" if os.path.exists(path) else "wb") as file:
            np.save(file, values) if kind is Npy else np.savez(file, x=values)

    save(np.arange(100))
    rows, size = kind(path), os.path.getsize(path)
    assert rows[99] is not None
    before = rows.fingerprint()
    os.truncate(path, 600)
    assert rows.fingerprint() != before
    for number in (0, 99):
        with pytest.raises(DatasetError, match=rf"a: it had {size} bytes when it was first read, and now has 600 bytes; "):
            rows[number]
    save(np.arange(100, 200))
    os.utime(path, ns=(1, 1))  # which a quick machine may not have changed: the clock of files has steps
    with pytest.raises(DatasetError, match=r"a: .* and now it is \d+"):
        rows[0]


def test_a_zip_that_is_cut_short_is_named(tmp_path):
    path = str(tmp_path / "a.npz")
    np.savez(path, x=np.arange(100))
    os.truncate(path, 500)
    with pytest.raises(DatasetError, match=r"a\.npz: not a .npz file, or damaged or truncated; "):
        len(Npz(path))


def header_of(text):
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize(
    "text", [b"{'descr': '<f4", b"{'descr': (((", b"{'descr': '<f4', 'fortran_order': False, 'shape': (-5,)}", b"\xff" * 40]
)
def test_a_damaged_header_of_an_array_is_named(tmp_path, kind, text):
    (tmp_path / "a.npy").write_bytes(header_of(text))
    with pytest.raises(DatasetError, match=r"a\.npy: not a readable .npy file: "):
        len(Npy(str(tmp_path / "a.npy")))
    with zipfile.ZipFile(tmp_path / "a.npz", "w", kind) as archive:
        archive.writestr("x.npy", header_of(text))
    with pytest.raises(DatasetError, match=r"a\.npz: 'x': not a readable .npy file: "):
        len(Npz(str(tmp_path / "a.npz")))


@pytest.mark.parametrize("shape", [(100 << 40,), (1 << 60, 1 << 60), (3,), (0,)])
def test_a_shape_that_lies_is_named_before_memory_is_spent_on_it(tmp_path, shape):
    data = header_of(b"{'descr': '|u1', 'fortran_order': False, 'shape': %s}" % str(shape).encode()) + bytes(500)
    (tmp_path / "a.npy").write_bytes(data)
    with pytest.raises(DatasetError, match=r"a\.npy: expected \d+ bytes for the shape .*, found 500"):
        len(Npy(str(tmp_path / "a.npy")))
    for kind in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "a.npz", "w", kind) as archive:
            archive.writestr("x.npy", data)
        with pytest.raises(DatasetError, match=r"a\.npz: 'x': expected \d+ bytes for the shape .*, found 500"):
            len(Npz(str(tmp_path / "a.npz")))


def test_damage_in_a_compressed_array_is_named(tmp_path):
    path, chosen = tmp_path / "a.npz", random.Random(0)
    np.savez_compressed(path, x=np.arange(300), y=np.full((300, 2), 7.5))
    whole, errors = path.read_bytes(), 0
    expected = [(row["x"], *row["y"]) for row in Npz(str(path))]
    for _ in range(200):
        data, place = bytearray(whole), chosen.randrange(len(whole) - 4)
        data[place : place + 4] = chosen.randbytes(4)
        path.write_bytes(data)
        try:
            assert [(row["x"], *row["y"]) for row in Npz(str(path))] == expected
        except DatasetError as error:
            assert "a.npz" in str(error)
            errors += 1
    assert errors > 100
