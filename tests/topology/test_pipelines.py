"""The topologies that come with the project, and those in the documentation."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from highway.topology import check, load

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "pipelines").glob("*.yaml"))
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.M | re.S))
    if re.search(r"^roles:", block, re.M)
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_pipeline_of_the_project_is_without_mistakes(path):
    assert check(load(path)) == []


@pytest.mark.parametrize("block", BLOCKS)
def test_every_topology_in_the_documentation_is_without_mistakes(block, tmp_path):
    (tmp_path / "t.yaml").write_text(block)
    assert check(load(tmp_path / "t.yaml")) == []


@pytest.mark.slow
def test_the_quickstart_ends_by_itself_and_draws_its_picture(tmp_path):
    settings = {"epochs": 5, "picture": tmp_path / "sheet.png", "transport": "ipc"}
    arguments = [f"--set={name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "highway", "run", str(ROOT / "pipelines" / "quickstart.yaml"), *arguments]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # where the sockets are
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^trainer \| 39 items in .* items/s", done.stdout, re.M), "the first of 40 batches starts the clock"
    assert re.search(r"^reader: 40 items in ", done.stdout, re.M)
    assert re.search(r"^trainer: 40 items in ", done.stdout, re.M)
    tables = re.findall(r"^stage +workers.*\n(?:\w.*\d\n)+(\w.*)", done.stdout, re.M)
    assert [sentence[-1] for sentence in tables] == ["."] * 4, "each table is followed by a sentence on its bottleneck"
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.format == "PNG"
        assert len(sheet.getcolors(maxcolors=1 << 24)) > 10_000
