"""Samples written as the rows of arrays."""

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from highway.datasets import Npy, Npz
from highway.datasets.npy.writer import npy_writer, npz_writer
from highway.errors import ItemError

SAMPLES = [
    {
        "x": np.full((2, 3), number, np.float32),
        "turned": np.asfortranarray((np.arange(6).reshape(2, 3) + number).astype(">i2")),
        "label": np.int32(number),
        "n": number,
        "share": number / 2,
        "is": number > 1,
        "text": "é" * number,
        "day": np.datetime64("2026-11-22") + np.timedelta64(number, "D"),
        "pair": np.array([(number, 0.5)], [("a", "i2"), ("b", "f8")]),
        "empty": np.zeros((0, 2), np.uint8),
    }
    for number in range(4)
]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "deep" / "a.npz")


def write(path, samples, writer=npz_writer):
    with writer(path) as out:
        for number, sample in enumerate(samples):
            out.add(f"key/{number}", sample)


def test_what_was_written_comes_back(path):
    write(path, SAMPLES)
    found = Npz(path)
    assert found.keys == [f"key/{number}" for number in range(4)]
    for sample, expected in zip(found, SAMPLES, strict=True):
        assert list(sample) == list(expected)
        for name, value in expected.items():
            assert sample[name].dtype == np.asarray(value).dtype or name == "text"
            np.testing.assert_array_equal(sample[name], value)
    assert found[0]["turned"].dtype == np.dtype(">i2") and str(found[3]["text"]) == "ééé"
    with np.load(path, allow_pickle=False) as arrays:  # by numpy itself
        assert arrays["x"].shape == (4, 2, 3) and arrays["label"].tolist() == [0, 1, 2, 3] and arrays["is"].dtype == np.bool_


def test_the_same_samples_make_the_same_bytes(path, tmp_path):
    write(path, SAMPLES)
    write(str(tmp_path / "b.npz"), SAMPLES)
    assert (tmp_path / "b.npz").read_bytes() == (tmp_path / "deep" / "a.npz").read_bytes()


def test_one_field_makes_an_npy_file(tmp_path):
    path = str(tmp_path / "a.npy")
    write(path, [{"x": sample["x"]} for sample in SAMPLES], npy_writer)
    assert [row.tolist() for row in Npy(path)] == [sample["x"].tolist() for sample in SAMPLES]
    assert np.load(path).dtype == np.float32


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([{"x": np.zeros(2)}, {"x": np.zeros(3)}], "field 'x' is float64 (3,), but float64 (2,) in the first sample; all rows of an array"),
        ([{"x": np.zeros(2)}, {"x": np.zeros(2, "f4")}], "field 'x' is float32 (2,), but float64 (2,) in the first sample"),
        ([{"x": 1}, {"y": 1}], "the sample has y, but the first sample has x; give all samples the same fields"),
        ([{"x": "a"}, {"x": 1}], "field 'x' holds a int; expected a str"),
        ([{"x": "a\0"}], "field 'x' holds a text that ends in a zero"),
        ([{"jpg": b"\xff"}], "field 'jpg' is a bytes, which cannot be the row of an array; make it an array"),
        ([{"x": np.array([None])}], "field 'x' is a ndarray, which cannot be the row of an array"),
        ([{"__key__": 1}], "the sample has a field '__key__', where its key is kept"),
        ([{}], "the sample has no fields"),
    ],
)
def test_what_no_array_can_hold_is_refused_and_leaves_nothing(path, samples, message):
    with pytest.raises(ItemError, match=re.escape(message)):
        write(path, samples)
    assert os.listdir(os.path.dirname(path)) == []


def test_several_fields_are_no_npy_file(tmp_path):
    with pytest.raises(ItemError, match=r"a.npy: a .npy file contains one array, but samples have x, y; write a .npz"):
        write(str(tmp_path / "a.npy"), [{"x": 1, "y": 2}], npy_writer)
    assert os.listdir(tmp_path) == []


def test_a_writer_that_is_killed_leaves_nothing_of_that_name(path):
    script = f"""
import os, signal
from highway.datasets.npy.writer import npz_writer
with npz_writer({path!r}) as writer:
    writer.add("a", {{"x": 1}})
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script]).returncode == -signal.SIGKILL
    assert not os.path.exists(path)
