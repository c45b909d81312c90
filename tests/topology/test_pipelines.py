"""The topologies that come with the project, and those in the documentation."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from PIL import Image
from topologies import free_port

from highway import Pipeline
from highway.datasets import LMDB, ImageFolder
from highway.modules import ImageFileReader
from highway.topology import check, load
from highway.topology.graph import graph, mermaid

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "pipelines").glob("*.yaml"))
BLOCKS = [
    pytest.param(over, block, id=f"{page.name}-{number}")
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for number, (over, block) in enumerate(re.findall(r"^(?:<!-- over (\S+) -->\n)?```yaml\n(.*?)^```$", page.read_text(), re.M | re.S))
    if re.search(r"^roles:", block, re.M)
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_pipeline_of_the_project_is_without_mistakes(path):
    topology = load(path)
    assert check(topology) == []
    drawn = mermaid(graph(topology))
    assert [role for role in topology.roles if f"<b>{role}" not in drawn] == []


@pytest.mark.parametrize(("over", "block"), BLOCKS)
def test_every_topology_in_the_documentation_is_without_mistakes(over, block, tmp_path):
    (tmp_path / "t.yaml").write_text(block)
    assert check(load([ROOT / over, tmp_path / "t.yaml"] if over else tmp_path / "t.yaml")) == []


def test_what_prepare_writes_is_read_as_the_folder_is(tmp_path):
    path = str(tmp_path / "photos.mdb")
    Pipeline.from_yaml(ROOT / "pipelines" / "prepare.yaml", role="prepare", out=path, shape=[48, 64]).run()
    dataset, folder = LMDB(path), ImageFolder("highway:photos/train")
    assert [sample["cls"] for sample in dataset] == [label for _, label in folder] and list(dataset.keys) == list(folder.keys)
    with Pipeline([ImageFileReader(dataset, 16, (48, 64), epochs=1)]) as pipeline:
        assert sum(len(labels) for images, labels in pipeline if images.shape[1:] == (48, 64, 3)) == len(folder)


@pytest.mark.slow
def test_the_quickstart_ends_by_itself_and_draws_its_picture(tmp_path):
    settings = {"epochs": 5, "picture": tmp_path / "sheet.png", "transport": "ipc"}
    process = start(tmp_path, "quickstart", settings, columns="80")
    out, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    assert re.search(r"^trainer \| 39 items in .* items/s", out, re.M), "the first of 40 batches starts the clock"
    assert re.search(r"^reader: 40 items in ", out, re.M)
    assert re.search(r"^trainer: 40 items in ", out, re.M)
    answer, *tables = out[out.index("\n\n") + 2 :].split("\n\n")
    assert answer.startswith(("trainer waited ", "trainer hardly waits ")) and len(tables) == 5
    assert max(len(line) for part in (answer, *tables) for line in part.splitlines()) <= 80
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.format == "PNG"
        assert len(sheet.getcolors(maxcolors=1 << 24)) > 10_000


def start(tmp_path, name, settings, links="", columns="200"):
    """Start a pipeline of the project with a second file over it, so that its names are no other test's."""
    over = tmp_path / f"{name}-{os.getpid()}.yaml"
    over.write_text(f"links: {{{links}}}")
    arguments = [f"--set={name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "highway", "run", str(ROOT / "pipelines" / f"{name}.yaml"), str(over), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": columns}
    return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    """Return what a pipeline that was started prints until its end."""
    out, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    return out


def small(tmp_path, name, settings, links=""):
    return finish(start(tmp_path, name, settings, links))


@pytest.mark.slow
def test_every_job_of_imagenet_gets_every_batch(tmp_path):
    first, second = free_port(), free_port()
    links = f"files: {{port: {first}}}, batches: {{port: {second}}}"
    printed = small(tmp_path, "imagenet", {"epochs": 2, "batch_size": 32, "shape": "[32, 32]"}, links)
    assert {role: int(items) for role, items in re.findall(r"^(reader|resnet|vit): (\d+) items", printed, re.M)} == {
        "reader": 8,
        "resnet": 8,
        "vit": 8,
    }
    assert sum(int(items) for items in re.findall(r"^worker\[\d\]: (\d+) items", printed, re.M)) == 8


@pytest.mark.slow
def test_the_single_host_decodes_in_its_first_run_and_in_the_second_not_at_all(tmp_path):
    settings = {"epochs": 2, "batch_size": 32, "stored": "[40, 40]", "shape": "[32, 32]", "cache": tmp_path / "cache"}
    decoded = []
    for _ in range(2):
        printed = small(tmp_path, "single-host-shm", settings)
        assert re.search(r"^trainer: 8 items in ", printed, re.M)
        decoded += [int(items) for items in re.findall(r"^ImageFileReader\.decode +\d+ +(\d+) ", printed, re.M)]
    assert decoded[0] >= 4, "an epoch, and what it had begun of the next one"
    assert decoded[1:] == [0]


@pytest.mark.slow
def test_a_script_takes_the_place_of_the_single_hosts_trainer(tmp_path):
    settings = {"epochs": 1, "batch_size": 32, "stored": "[40, 40]", "shape": "[32, 32]", "cache": "null"}
    others = start(tmp_path, "single-host-shm", {**settings, "external": "true"})
    files = [ROOT / "pipelines" / "single-host-shm.yaml", tmp_path / f"single-host-shm-{os.getpid()}.yaml"]
    with load(files).pipeline("trainer") as batches:
        shapes = [images.shape for images, labels in batches]
    assert shapes == [(32, 32, 32, 3)] * 4
    assert "trainer" not in finish(others)


@pytest.mark.slow
def test_detection_hands_each_image_to_one_of_two_workers(tmp_path):
    links = f"files: {{port: {free_port()}}}, samples: {{port: {free_port()}}}"
    objects = "[boxes, labels, iscrowd, area, masks]"
    printed = small(tmp_path, "detection", {"epochs": 3, "masks": "true", "mask": "masks", "objects": objects}, links)
    assert re.search(r"^trainer: 12 items in ", printed, re.M)
    assert sum(int(items) for items in re.findall(r"^worker\[\d\]: (\d+) items", printed, re.M)) == 48
    assert re.search(r"^files +48 +48 +0$", printed, re.M) and re.search(r"^samples +48 +48 +0$", printed, re.M)


@pytest.mark.slow
def test_a_detector_is_trained_on_what_the_workers_send(tmp_path):
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    links = f"files: {{port: {free_port()}}}, samples: {{port: {free_port()}}}"
    others = start(tmp_path, "detection", {"epochs": 40, "external": "true"}, links)
    files = [str(ROOT / "pipelines" / "detection.yaml"), str(tmp_path / f"detection-{os.getpid()}.yaml")]
    command = [sys.executable, str(ROOT / "examples" / "detection.py"), "--topology", *files]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    try:
        trained = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    except BaseException:
        others.kill()
        raise
    assert trained.returncode == 0, trained.stderr
    assert re.search(r"^epoch 0, step 120: classes", trained.stdout, re.M)
    assert float(re.findall(r"recall: ([\d.]+)", trained.stdout)[-1]) > 0
    assert "trainer" not in finish(others)


@pytest.mark.slow
def test_the_ranks_read_as_many_batches_each(tmp_path):
    printed = small(tmp_path, "ranks", {"epochs": 2, "ranks": 3, "shape": "[32, 32]"})
    assert sorted(re.findall(r"^(trainer\[\d\]|validation): (\d+) items in", printed, re.M)) == [
        ("trainer[0]", "6"),
        ("trainer[1]", "6"),
        ("trainer[2]", "6"),
        ("validation", "2"),
    ]


def test_every_pipeline_of_the_project_is_run_by_a_test():
    assert [path.stem for path in FILES] == ["detection", "imagenet", "prepare", "quickstart", "ranks", "single-host-shm"], (
        "add a test that runs it small"
    )
