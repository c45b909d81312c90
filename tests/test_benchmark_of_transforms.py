"""The benchmark of transforms leaves none out without a reason."""

import ast
import dataclasses
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
