"""The notebooks run from their first cell to their last, and are stored without outputs."""

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
NEEDED = {"first_steps": [], "pytorch": ["torch"], "keras": ["keras"]}


def test_the_notebooks_are_stored_without_outputs():
    found = {path.stem: json.loads(path.read_text())["cells"] for path in NOTEBOOKS.glob("*.ipynb")}
    assert found.keys() == NEEDED.keys()
    for name, cells in found.items():
        assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == [], name


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDED)
def test_a_notebook_runs(name, tmp_path, popen):
    for package in ("nbclient", "ipykernel", *NEEDED[name]):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: notebooks are run by tox -e adapters-torch and adapters-tf")
    process = popen([sys.executable, "-c", RUN, str(NOTEBOOKS / f"{name}.ipynb")], cwd=tmp_path)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    if NEEDED[name]:
        assert float(re.findall(r"^accuracy ([\d.]+)$", out, re.M)[-1]) > 0.8
    else:
        assert "the same: True" in out and "another seed: False" in out and "division by zero" in out


RUN = """
import sys
import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
NotebookClient(notebook, km=AsyncKernelManager(transport="ipc"), timeout=100, resources={"metadata": {"path": "."}}).execute()
for cell in notebook.cells:
    for output in cell.get("outputs", []):
        print(output.get("text", ""), end="")
"""
