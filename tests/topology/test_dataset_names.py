"""Datasets in a file: named as in Python, where a parameter is one."""

import jsonschema
import numpy as np
import pytest

from highway import Pipeline
from highway.datasets import Files, ImageFolder
from highway.errors import ConfigError
from highway.modules import EncodedImageReader, ImageFileReader, Reader
from highway.parameters.location import Location
from highway.topology import check, load
from highway.topology.components import Components, built_in
from highway.topology.graph import graph
from highway.topology.registry import Registry
from highway.topology.schema import schema

MINE = '''
class Squares:
    """The squares of the numbers below ``count``."""

    def __init__(self, count: int = 5):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        return number * number

class Stream:
    def __iter__(self):
        return iter([1])
'''


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "my_squares.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    return "my_squares"


def build(spec, *plugins, look_only=False):
    return Registry(Components(plugins, look_only)).build_stage(spec, Location() / "at").op


def message_of(spec, *plugins):
    with pytest.raises(ConfigError) as raised:
        build(spec, *plugins)
    return str(raised.value)


def test_a_dataset_is_named_where_a_parameter_is_one():
    assert build({"Reader": {"dataset": {"ImageFolder": "d"}, "batch_size": 4}}) == Reader(ImageFolder("d"), 4)
    assert build({"Reader": {"dataset": {"Files": {"data_dir": "d"}}}}) == Reader(Files("d"))
    assert build({"ImageFileReader": {"data_dir": {"ImageFolder": "d"}, "batch_size": 4}}) == ImageFileReader(ImageFolder("d"), 4)
    assert build({"EncodedImageReader": {"data_dir": {"ImageFolder": "d"}, "batch_size": 4}}) == EncodedImageReader(ImageFolder("d"), 4)
    assert build({"ImageFileReader": {"data_dir": "ImageFolder", "batch_size": 4}}) == ImageFileReader("ImageFolder", 4)  # a path


@pytest.mark.parametrize("path", ["a/b", "./photos", "highway:photos/val", "s3://b/c", "train-*.parquet", "x.npz"])
def test_a_path_is_a_dataset(path):
    assert build({"Reader": {"dataset": path, "batch_size": 4}}) == Reader(path, 4) and build({"Reader": path}) == Reader(path)


def test_a_class_of_ones_own_is_a_dataset(mine):
    reader = build({"Reader": {"dataset": {f"{mine}:Squares": 3}, "epochs": 1, "shuffle": False}}, mine)
    with Pipeline([reader]) as pipeline:
        assert list(pipeline) == [0, 1, 4]
    passed_over = build({"Reader": {"dataset": f"{mine}:Squares"}}, look_only=True)
    assert [name for name, _ in passed_over.found] == [f"{mine}:Squares"]


KNOWN = ", ".join(built_in("highway.datasets"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"Reader": {"dataset": {"ImageFoldr": "d"}}},
            "dataset.ImageFoldr: unknown dataset 'ImageFoldr'; did you mean ImageFolder?",
        ),
        (
            {"Reader": {"dataset": "photos"}},
            "unknown dataset 'photos'; `highway list` shows all; if it is a path, write it with a slash: ./photos",
        ),
        ({"Reader": "ImageFolder"}, "at.Reader: ImageFolder needs data_dir: str; `highway list ImageFolder` shows all its parameters"),
        (
            {"Reader": {"dataset": {"ImageFolder": {"dir": "d"}}}},
            "'dir' of ImageFolder; expected one of class_names, data_dir",
        ),
        ({"Reader": {"dataset": [1, 2]}}, "at.Reader.dataset: expected a dataset, as  Name  or  Name: value  or  Name: {parameter"),
        ({"Reader": {"dataset": {"ImageFolder": "d", "epochs": 1}}}, "Name: {parameter: value}; got a mapping of 2"),
        ({"ImageReader": {"data_dir": 2017, "batch_size": 1}}, "got int 2017; put a path in quotes"),
        ({"Reader": {"dataset": "FlipX"}}, f"FlipX is not a Dataset; expected one of {KNOWN}, or an object with __len__ and __getitem__"),
        ({"Reader": {"dataset": "my_squares:Stream"}}, "Stream is not a Dataset; expected one of "),
        ({"Reader": {"ImageFolder": "d"}}, "ImageFolder is a dataset, not a parameter of Reader; write  dataset: {ImageFolder: ...}"),
        ({"ImageReader": {"Files": "d"}}, "Files is a dataset, not a parameter of ImageReader; write  data_dir: {Files: ...}"),
        ({"ImageFolder": "d"}, "at: ImageFolder is a dataset, not a stage; write  Reader: {dataset: {ImageFolder: ...}}"),
        ({"Files": "d", "num_workers": 2}, "at: Files is a dataset, not a stage; write  Reader: {dataset: {Files: ...}}"),
        ("Files", "at: Files is a dataset, not a stage; write  Reader: {dataset: {Files: ...}}"),
        (
            "my_squares:Squares",
            "is not a stage: expected an iterable, a callable, or an object with stages(), stream() or consume(); use Reader(",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place_and_the_way_out(mine, spec, message):
    assert message in message_of(spec, mine)


FILE = """
roles:
  read:
  - Reader: {dataset: {ImageFolder: nowhere}, batch_size: 4}
  decode:
  - {ImageFileReader: {data_dir: {ImageFolder: nowhere}, batch_size: 4}, name: images}
  plain:
  - ImageFileReader: {data_dir: nowhere, batch_size: 4, shape: [8, 8]}
  one:
  - Reader: {dataset: {%s: 3}}
"""


def test_a_file_is_checked_without_data_and_drawn_with_its_datasets(tmp_path, mine):
    (tmp_path / "t.yaml").write_text(FILE % f"{mine}:Squares")
    topology = load(tmp_path / "t.yaml", plugins=[mine])
    assert check(topology) == []
    expected = [("Reader(ImageFolder)",), ("images(ImageFolder)",), ("ImageFileReader",), ("Reader(Squares)",)]
    assert [node.stages for node in graph(topology).nodes] == expected


def test_the_schema_knows_datasets():
    validator = jsonschema.Draft202012Validator(schema())

    def valid(stage):
        return validator.is_valid({"roles": {"r": [stage]}})

    assert valid({"Reader": {"dataset": {"ImageFolder": "d"}, "batch_size": 4}})
    assert valid({"Reader": {"dataset": {"mine:Squares": {"count": 3}}}})
    assert valid({"ImageFileReader": {"data_dir": {"ImageFolder": {"data_dir": "d"}}, "batch_size": 4}})
    assert not valid({"Reader": {"dataset": {"ImageFoldr": "d"}}})
    assert not valid({"Reader": {"dataset": "photos"}})
    assert valid({"Reader": {"dataset": "a/b"}}) and valid({"Reader": {"dataset": "train-*.parquet"}})
    assert not valid({"Reader": {"dataset": {"FlipX": 1}}})
    assert not valid({"Reader": {"dataset": {"ImageFolder": {"batch_size": 4}}}})
    assert not valid({"ImageFolder": "d"})


@pytest.mark.parametrize("name", built_in("highway.datasets"))
def test_every_dataset_says_what_a_sample_is_and_is_made_without_data(name):
    assert "\nA sample is " in Components().describe(name)


def test_names_in_place_of_numbers_are_an_error_that_says_them():
    split = {"train": [1, 2], "test": [3]}
    message = "a dict with the keys 'train', 'test' has no random access by number; pass one of its values"
    with Pipeline([Reader(split)]) as pipeline, pytest.raises(ConfigError, match=message):
        pipeline.dequeue()
    with Pipeline([Reader({0: np.int32(5), 1: np.int32(6)}, shuffle=False, epochs=1)]) as pipeline:
        assert list(pipeline) == [5, 6]
