"""The benchmark of transforms leaves none out without a reason."""

import ast
import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

import highway.transforms

FOLDER = Path(__file__).parents[1] / "benchmarks"
TABLES = {
    "transforms.py": ["NO_ROW"],
    "peers/transform_rows_geometry.py": ["ROWS"],
    "peers/transform_rows_colour.py": ["ROWS"],
    "peers/transform_batches.py": ["DETECTION", "MIXING", "BATCHES"],
}


def texts(path, names):
    """Return the texts in the tables of a script, whose libraries are not installed here."""
    for node in ast.parse(path.read_text()).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if getattr(target, "id", None) in names:
            yield from (each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant) and isinstance(each.value, str))


def test_every_transform_has_a_row_or_a_reason():
    found = {text for file, names in TABLES.items() for text in texts(FOLDER / file, names)}
    kinds = {name: getattr(highway.transforms, name) for name in dir(highway.transforms)}
    public = {name for name, kind in kinds.items() if isinstance(kind, type) and dataclasses.is_dataclass(kind)}
    assert public - found == set()
    assert {"MixUp", "CutMix", "Mosaic", "CopyPaste"} <= found


def test_without_its_environment_the_script_says_so_and_lets_the_other_scripts_run(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "benchmarks")  # no environments are beside it there
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parent)}
    command = [sys.executable, "benchmarks/transforms.py", "--quick"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout.strip()) == (
        0,
        "absent: transforms (no environment; create it with 'tox -e bench-peers -- transforms')",
    ), done.stderr
