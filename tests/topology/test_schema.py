"""The JSON schema for editors takes what ``highway check`` takes, and sees the common mistakes."""

import re
from pathlib import Path

import jsonschema
import msgspec
import pytest

from highway.topology import spec
from highway.topology.document import parse, read
from highway.topology.schema import schema

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "pipelines").glob("*.yaml"))
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.M | re.S))
    if re.search(r"^roles:", block, re.M)
]
REFERENCE = ROOT / "docs" / "reference" / "topology.md"
READER = "ImageFileReader: {data_dir: d, batch_size: 1, shape: [8, 8]}"


@pytest.fixture(scope="module")
def whole():
    return schema()


@pytest.fixture(scope="module")
def validator(whole):
    jsonschema.Draft202012Validator.check_schema(whole)
    return jsonschema.Draft202012Validator(whole)


def valid(validator, text):
    return validator.is_valid(parse(text, "t.yaml")[0])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_pipeline_of_the_project_fits(validator, path):
    assert [error.message for error in validator.iter_errors(read(path)[0])] == []


@pytest.mark.parametrize("block", BLOCKS)
def test_every_topology_in_the_documentation_fits(validator, block):
    assert valid(validator, block)


@pytest.mark.parametrize(
    "stage",
    [
        READER,
        "ImageFileReader: {data_dir: d, batch_size: '${n}', shape: ['${n}', 8], crop: {RandomResizedCrop: [8, 8]}}",
        "Augmentations: [FlipX, {FlipX: 0.5}, {FlipX: {p: 1}}, 'mine.module:Transform', {'mine.module:Other': {a: 1}}]",
        "{Augmentations: [], num_workers: 4, ordered: false, on_error: skip, max_errors: null, name: a}",
        "{Augmentations: [], timeout: 0.5, attempts: 3}",
        "Identity",
        "Identity:",
        "${stage}",
        "mine.module:Stage",
        "ZMQSink: {link: raw}",
        "ZMQSource: tcp://h:1",
        "Mix: {sources: [{ZMQSource: {link: raw}}, {Noise: [2]}]}",
    ],
)
def test_stages_fit(validator, stage):
    assert valid(validator, f"roles:\n  r:\n  - {stage}")


@pytest.mark.parametrize(
    "stage",
    [
        "ImageFileReadr: {data_dir: d}",
        "Nothing",
        "ImageFileReader: {batch_size: 1, shape: [8, 8]}",
        "ImageFileReader: {data_dir: d, batch_size: x, shape: [8, 8]}",
        "ImageFileReader: {data_dir: d, batch_size: 1, shape: [8, 8], shuffle: maybe}",
        "ImageFileReader: {data_dir: d, batch_size: 1, shape: [8, 8, 8]}",
        "ImageFileReader: {data_dir: d, batch_size: 1, shape: [8, 8], epoch: 1}",
        "Augmentations: [FlipZ]",
        "Augmentations: [ZMQSink]",
        "Augmentations: FlipX",
        "{Augmentations: [], num_worker: 4}",
        "{Augmentations: [], on_error: ignore}",
        "{Augmentations: [], timeout: 0}",
        "{Augmentations: [], timeout: 1, attempts: 0}",
        "ZMQSink: {}",
        "5",
    ],
)
def test_stages_with_mistakes_do_not_fit(validator, stage):
    assert not valid(validator, f"roles:\n  r:\n  - {stage}")


@pytest.mark.parametrize(
    "text",
    [
        "role: {}",
        "roles: []",
        "roles: {r: {stage: []}}",
        "roles: {r: {stages: [], replicas: 0}}",
        "roles: {r: []}\nlinks: {l: {from: a}}",
        "roles: {r: []}\nlinks: {l: {from: a, to: b, kind: pull}}",
        "roles: {r: []}\nhosts: {h: {adress: a}}",
        "roles: {r: []}\nseed: x",
    ],
)
def test_files_with_mistakes_do_not_fit(validator, text):
    assert not valid(validator, text)


STRUCTS = [struct for struct in vars(spec).values() if isinstance(struct, type) and issubclass(struct, msgspec.Struct)]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_key_of_a_file_is_in_the_schema_and_in_the_reference(whole, struct):
    keys = [field.encode_name for field in msgspec.structs.fields(struct)]
    found = whole["$defs"].get(struct.__name__, whole)
    assert [key for key in keys if "description" not in found["properties"][key]] == []
    assert [key for key in keys if f"`{key}`" not in REFERENCE.read_text()] == []
