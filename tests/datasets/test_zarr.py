import os
import shutil

import numpy as np
import pytest

import highway
from highway import Pipeline
from highway.datasets import Zarr
from highway.errors import ConfigError, DatasetError
from highway.modules import Reader

zarr = pytest.importorskip("zarr")
X = np.arange(40, dtype=np.float32).reshape(20, 2)
LABELS = np.arange(20, dtype=np.int16)


@pytest.fixture(params=[2, 3])
def path(tmp_path, request):
    group = zarr.open_group(str(tmp_path / "g.zarr"), mode="w", zarr_format=request.param)
    group.create_array("x", data=X, chunks=(6, 2))
    group.create_array("label", data=LABELS, chunks=(20,))
    return str(tmp_path / "g.zarr")


def test_a_sample_has_a_row_of_each_array(path):
    dataset = highway.open(path)
    assert dataset == Zarr(path) and len(dataset) == 20
    for number, sample in zip([5, 1, 5, 19], dataset.__getitems__([5, 1, 5, -1]), strict=True):
        assert list(sample) == ["label", "x"] and sample["label"] == LABELS[number] and sample["label"].dtype == np.int16
        np.testing.assert_array_equal(sample["x"], X[number])
    assert dataset.blocks() == [range(6), range(6, 12), range(12, 18), range(18, 20)]
    assert list(Zarr(path, fields={"y": "label"})[3]) == ["y"]
    with pytest.raises(IndexError):
        dataset[20]


def test_one_array_has_bare_rows_and_shards_are_blocks(tmp_path):
    zarr.create_array(str(tmp_path / "a"), data=X, chunks=(2, 2), shards=(10, 2))
    dataset = highway.open(str(tmp_path / "a"))
    np.testing.assert_array_equal(dataset[7], X[7])
    assert dataset.blocks() == [range(10), range(10, 20)]
    with pytest.raises(ConfigError, match=r"a': fields={'x': 'y'} selects arrays of a group, but the path is one array; remove fields"):
        len(Zarr(str(tmp_path / "a"), fields={"x": "y"}))


def test_a_reader_reads_it_by_blocks(path):
    with Pipeline([Reader(path, 5, shuffle="blocks", epochs=1, num_workers=4)]) as pipeline:
        labels = np.concatenate([batch["label"] for batch in pipeline])
    assert sorted(labels) == LABELS.tolist() and labels.tolist() != LABELS.tolist()


def test_the_fingerprint_changes_with_a_chunk_and_with_fields(path):
    first = Zarr(path).fingerprint()
    assert first == Zarr(path).fingerprint() != Zarr(path, fields={"x": "x"}).fingerprint()
    zarr.open(path, mode="r+")["x"][0] = 7
    assert Zarr(path).fingerprint() != first


def test_what_cannot_be_read_is_an_error_that_names_it(path, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere': there is no Zarr group or array;"):
        len(Zarr(str(tmp_path / "nowhere")))
    with pytest.raises(DatasetError, match=r"g.zarr: .*there is no value for the field 'y': expected z, found label, x"):
        len(Zarr(path, fields={"y": "z"}))
    zarr.open_group(path, mode="r+").create_array("short", data=X[:3])
    with pytest.raises(DatasetError, match=r"equal numbers of rows, found: 'label' is \(20,\), 'short' is \(3, 2\), 'x' is \(20, 2\)"):
        len(Zarr(path))


def test_a_damaged_chunk_is_an_error(path):
    for folder, _, names in os.walk(path):
        for name in names:
            if "json" not in name and not name.startswith("."):
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(b"junk")
    with pytest.raises(DatasetError, match=r"g.zarr: row 0: array 'label' is damaged and cannot be read:"):
        Zarr(path)[0]


def test_a_group_without_arrays_is_an_error(path):
    for name in ("x", "label"):
        shutil.rmtree(os.path.join(path, name))
    with pytest.raises(DatasetError, match="expected arrays with equal numbers of rows, found: no arrays"):
        len(Zarr(path))
